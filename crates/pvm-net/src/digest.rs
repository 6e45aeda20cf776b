//! The digest of a body that another host relays.
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// A BLAKE3 digest that is being computed. It takes a third of the time of SHA-256 (`docs/decisions/0043`).
pub struct Digest(blake3::Hasher);

impl Digest {
    /// The length of a digest in bytes.
    pub const BYTES: usize = blake3::OUT_LEN;

    /// Returns the digest of no bytes.
    #[expect(clippy::new_without_default, reason = "no user needs it")]
    pub fn new() -> Digest {
        Digest(blake3::Hasher::new())
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest.
    pub fn finish(self) -> [u8; Digest::BYTES] {
        *self.0.finalize().as_bytes()
    }
}

/// The one-way function of chains of releases: the SHA-256 digest of the value.
pub fn one_way(value: &[u8; SHA256_OUTPUT_LEN]) -> [u8; SHA256_OUTPUT_LEN] {
    digest(&SHA256, value).as_ref().try_into().expect("SHA-256 has this length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_all_bytes() {
        let mut digest = Digest::new();
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|bytes| digest.add(bytes));
        // The known digest of "abc".
        assert_eq!(digest.finish()[..4], [0x64, 0x37, 0xb3, 0xac]);
    }
}
