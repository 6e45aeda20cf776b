//! Digests of bodies that other hosts send.
use pvm_core::flows::multicast::BodyKey;
use pvm_fmp::Block;
use pvm_net::Digest;
use std::collections::HashMap;
use std::ops::Range;

/// The bytes that are added to a digest at once, at least, except for the last ones. So a body that is shorter needs no
/// memory for its digest.
const STEP_BYTES: usize = 64 << 10;

/// The digests of bodies that are being fetched from other hosts than the sender's. Parts are added soon after they have
/// arrived, while they are in the caches, so little is left to do when the last one is there.
#[derive(Default)]
pub(super) struct Digests(HashMap<BodyKey, Growing>);

struct Growing {
    digest: Digest,
    /// How many bytes are in the digest.
    bytes: usize,
}

impl Digests {
    /// Adds what has arrived of a body, the first `bytes` bytes, to its digest, if it is enough.
    pub fn grow(&mut self, key: BodyKey, block: &Block, bytes: usize) {
        let done = self.0.get(&key).map_or(0, |growing| growing.bytes);
        if bytes >= done + STEP_BYTES {
            let growing = self.0.entry(key).or_insert_with(Growing::new);
            growing.add(block, bytes);
        }
    }

    /// Returns the digest of a complete body, and forgets the body.
    pub fn finish(&mut self, key: BodyKey, block: &Block, bytes: usize) -> [u8; Digest::BYTES] {
        let mut growing = self.0.remove(&key).unwrap_or_else(Growing::new);
        growing.add(block, bytes);
        growing.digest.finish()
    }

    /// Forgets the bodies for which `is_open` returns false.
    pub fn retain(&mut self, is_open: impl Fn(BodyKey) -> bool) {
        self.0.retain(|key, _| is_open(*key));
    }
}

impl Growing {
    fn new() -> Growing {
        Growing { digest: Digest::new(), bytes: 0 }
    }

    /// Adds the bytes of a body up to a position.
    fn add(&mut self, block: &Block, to: usize) {
        add(&mut self.digest, self.bytes..to, |at, into| block.read(at, into));
        self.bytes = to;
    }
}

/// Returns the digest of the bytes that `read` copies from a position on.
pub(super) fn digest_of(range: Range<usize>, read: impl Fn(usize, &mut [u8])) -> [u8; Digest::BYTES] {
    let mut digest = Digest::new();
    add(&mut digest, range, read);
    digest.finish()
}

fn add(digest: &mut Digest, range: Range<usize>, read: impl Fn(usize, &mut [u8])) {
    let (mut bytes, mut at) = ([0; 16 << 10], range.start);
    while at < range.end {
        let count = bytes.len().min(range.end - at);
        read(at, &mut bytes[..count]);
        digest.add(&bytes[..count]);
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::tid::Tid;
    use pvm_fmp::Endpoint;

    #[test]
    fn the_digest_of_a_body_does_not_depend_on_how_it_arrives() {
        let mut endpoint = Endpoint::new().unwrap();
        let key = BodyKey { origin: Tid(0x40000), secret: [1; 16] };
        for bytes in [1, STEP_BYTES, 3 * STEP_BYTES + 5] {
            let block = endpoint.allocate(bytes).unwrap();
            let body: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            block.write(0, &body);
            let whole = digest_of(0..bytes, |at, into| into.copy_from_slice(&body[at..][..into.len()]));
            for step in [1000, STEP_BYTES, 2 * STEP_BYTES] {
                let mut digests = Digests::default();
                (0..bytes).step_by(step).for_each(|at| digests.grow(key, &block, at));
                assert!(digests.0.len() <= usize::from(bytes > STEP_BYTES), "a short body needs no memory");
                assert_eq!(digests.finish(key, &block, bytes), whole);
                assert!(digests.0.is_empty());
            }
            let mut digests = Digests::default();
            digests.grow(key, &block, bytes);
            digests.retain(|_| false);
            assert!(digests.0.is_empty());
        }
    }
}
