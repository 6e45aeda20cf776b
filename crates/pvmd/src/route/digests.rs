//! Digests of bodies that other hosts send.
use pvm_core::flows::multicast::BodyKey;
use pvm_fmp::Block;
use pvm_net::Digest;
use std::collections::HashMap;
use std::ops::Range;

/// The digests of bodies that are arriving. Each part is added when it has arrived, while it is in the caches; so little is
/// left to do when the last one is there.
#[derive(Default)]
pub(super) struct Digests(HashMap<BodyKey, Growing>);

struct Growing {
    digest: Digest,
    /// How many bytes are in the digest.
    bytes: usize,
}

impl Digests {
    /// Adds what has arrived of a body, the first `bytes` bytes, to its digest.
    pub fn grow(&mut self, key: BodyKey, block: &Block, bytes: usize) {
        let growing = self.0.entry(key).or_insert_with(|| Growing { digest: Digest::new(), bytes: 0 });
        if bytes > growing.bytes {
            add(&mut growing.digest, growing.bytes..bytes, |at, into| block.read(at, into));
            growing.bytes = bytes;
        }
    }

    /// Returns the digest of a complete body.
    pub fn finish(&mut self, key: BodyKey, block: &Block, bytes: usize) -> [u8; Digest::BYTES] {
        self.grow(key, block, bytes);
        self.0.remove(&key).map_or([0; Digest::BYTES], |growing| growing.digest.finish())
    }

    /// Forgets the bodies for which `is_open` returns false.
    pub fn retain(&mut self, is_open: impl Fn(BodyKey) -> bool) {
        self.0.retain(|key, _| is_open(*key));
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
