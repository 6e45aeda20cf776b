//! Bytes on their way in or out.

/// Bytes kept by a buffer that has nothing in it.
const KEEP_BYTES: usize = 512;

/// More than this is not kept by a buffer that is used again and again.
const MUCH_BYTES: usize = 1 << 20;

/// A queue of bytes in one piece.
#[derive(Default)]
pub(crate) struct Buffer {
    /// All of it, used or not, so that reading into the free part needs no unsafe code.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// What is in it.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// What is in it, to be decrypted where it lies.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first so many bytes have been used.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more used than there is");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes `skip` bytes and `count` more, and gives those.
    pub fn take_front(&mut self, skip: usize, count: usize) -> &[u8] {
        let from = self.start + skip;
        self.consume(skip + count);
        &self.bytes[from..from + count]
    }

    /// Room behind the last byte, at least so much.
    pub fn space(&mut self, least: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < least {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() - self.end < least {
                let double = self.bytes.len().saturating_mul(2);
                self.bytes.resize(double.max(self.end + least), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Sees to room for so many bytes more, if there is memory.
    pub fn reserve(&mut self, count: usize) -> bool {
        self.bytes.len() - self.len() >= count || self.bytes.try_reserve(self.bytes.len().max(count)).is_ok()
    }

    /// So many bytes of the room have been written.
    pub fn commit(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "more written than there was room");
    }

    /// Appends bytes.
    pub fn append(&mut self, data: &[u8]) {
        self.space(data.len())[..data.len()].copy_from_slice(data);
        self.commit(data.len());
    }

    /// Gives much memory back if there is nothing in it.
    pub fn release_much(&mut self) {
        if self.is_empty() && self.bytes.len() > MUCH_BYTES {
            *self = Buffer::default();
        }
    }

    /// Gives the memory back if there is nothing in it.
    pub fn release(&mut self) {
        if self.is_empty() && self.bytes.len() > KEEP_BYTES {
            *self = Buffer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_sizes() {
        let mut buffer = Buffer::default();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 0..1000_usize {
            let count = round * 7 % 97;
            let data: Vec<u8> = (0..count).map(|index| next_in.wrapping_add(index as u8)).collect();
            next_in = next_in.wrapping_add(count as u8);
            buffer.append(&data);
            let take = (round * 13 % 101).min(buffer.len());
            for byte in &buffer.filled()[..take] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(take);
        }
        let left = buffer.len();
        buffer.consume(left);
        buffer.append(&[0; KEEP_BYTES + 1]);
        buffer.release();
        assert_eq!(buffer.len(), KEEP_BYTES + 1, "what is in it stays");
        buffer.consume(KEEP_BYTES + 1);
        buffer.release();
        assert!(buffer.bytes.is_empty());
    }
}
