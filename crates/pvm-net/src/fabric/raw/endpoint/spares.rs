//! Memory of bodies that is used again.

/// This many bodies are kept to be used again, and this many bytes of them together.
const SPARE_BODIES_MAX: usize = 20;
const SPARE_BYTES_MAX: usize = 64 << 20;
/// Memory of an earlier body is used again for a body that needs at least this part of it.
const SPARE_PART_MIN: usize = 4;

/// Memory of earlier bodies: new memory has to get its pages first, which takes longer than many a network needs to fill
/// them.
#[derive(Debug, Default)]
pub struct SpareBodies(Vec<Vec<u8>>);

impl SpareBodies {
    /// Returns an empty vector with room for this many bytes, if possible that of an earlier body; `None` if there is no
    /// memory.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |spare: &Vec<u8>| spare.capacity() >= bytes && spare.capacity() / SPARE_PART_MIN <= bytes;
        // The one that was used last: its bytes are most likely in a cache.
        if let Some(index) = self.0.iter().rposition(fits) {
            return Some(self.0.remove(index));
        }
        let mut body = Vec::new();
        body.try_reserve_exact(bytes).ok()?;
        Some(body)
    }

    /// Takes the memory of a body back.
    pub fn put(&mut self, mut body: Vec<u8>) {
        body.clear();
        self.0.push(body);
        let kept = |spare: &Vec<Vec<u8>>| spare.iter().map(Vec::capacity).sum::<usize>();
        // The oldest go first: bodies of their length have not come lately.
        while self.0.len() > SPARE_BODIES_MAX || kept(&self.0) > SPARE_BYTES_MAX {
            self.0.remove(0);
        }
    }
}
