//! The digest of a body that another host relays.
use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};

/// A SHA-256 digest that is being computed.
pub struct Digest(Context);

impl Digest {
    /// The length of a digest in bytes.
    pub const BYTES: usize = SHA256_OUTPUT_LEN;

    /// Returns the digest of no bytes.
    #[expect(clippy::new_without_default, reason = "no user needs it")]
    pub fn new() -> Digest {
        Digest(Context::new(&SHA256))
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest.
    pub fn finish(self) -> [u8; Digest::BYTES] {
        self.0.finish().as_ref().try_into().expect("SHA-256 has this length")
    }
}

/// The one-way function of chains of releases: the digest of the value.
pub fn one_way(value: &[u8; Digest::BYTES]) -> [u8; Digest::BYTES] {
    let mut digest = Digest::new();
    digest.add(value);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_all_bytes() {
        let mut digest = Digest::new();
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|bytes| digest.add(bytes));
        // The example of FIPS 180-4.
        assert_eq!(digest.finish()[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
