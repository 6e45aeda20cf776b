//! Datagrams that only those who know a secret can make or read.
use crate::aegis::{self, KEY_BYTES, NONCE_BYTES};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

/// The length of a secret in bytes.
pub const SECRET_BYTES: usize = 16;
/// The length of the name of a secret in bytes.
pub const SECRET_NAME_BYTES: usize = 8;
/// How many bytes a sealed datagram is longer than its payload and header.
pub const TAG_BYTES: usize = aegis::TAG_BYTES;

/// The length of what is derived from a secret: its name and a key.
struct Derived;

impl KeyType for Derived {
    fn len(&self) -> usize {
        SECRET_NAME_BYTES + KEY_BYTES
    }
}

/// Seals and opens the datagrams of one sender under one secret.
pub struct Seal {
    key: Zeroizing<[u8; KEY_BYTES]>,
    /// Names the secret without telling anything about it.
    name: [u8; SECRET_NAME_BYTES],
    is_encrypted: bool,
}

impl Seal {
    /// Makes the seal of a secret. Without encryption, payloads are authenticated only.
    pub fn new(secret: &[u8; SECRET_BYTES], is_encrypted: bool) -> Seal {
        let mut derived = Zeroizing::new([0; SECRET_NAME_BYTES + KEY_BYTES]);
        let purpose: [&[u8]; 1] = [if is_encrypted { b"encrypted" } else { b"clear" }];
        let extracted = Salt::new(HKDF_SHA256, b"hpvm datagrams").extract(secret);
        extracted.expand(&purpose, Derived).and_then(|okm| okm.fill(&mut *derived)).expect("the length is allowed");
        let (name, key) = derived.split_at(SECRET_NAME_BYTES);
        let key = Zeroizing::new(key.try_into().expect("the key has this length"));
        Seal { key, name: name.try_into().expect("the name has this length"), is_encrypted }
    }

    /// Returns the public name of the secret.
    pub fn name(&self) -> [u8; SECRET_NAME_BYTES] {
        self.name
    }

    /// Seals a datagram: encrypts what follows the first `head_bytes` bytes, and appends the tag. No two datagrams of a
    /// secret may have the same `serial`.
    pub fn seal(&self, serial: u64, head_bytes: usize, datagram: &mut Vec<u8>) {
        let tag = if self.is_encrypted {
            let (head, payload) = datagram.split_at_mut(head_bytes);
            aegis::seal(&self.key, nonce(serial), head, payload)
        } else {
            aegis::seal(&self.key, nonce(serial), datagram, &mut [])
        };
        datagram.extend_from_slice(&tag);
    }

    /// Opens a datagram in place. Returns the payload, or `None` if the datagram was not sealed with this secret.
    pub fn open<'a>(&self, serial: u64, head_bytes: usize, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let end = datagram.len().checked_sub(TAG_BYTES).filter(|end| *end >= head_bytes)?;
        let (head, sealed) = datagram.split_at_mut(if self.is_encrypted { head_bytes } else { end });
        let payload = aegis::open(&self.key, nonce(serial), head, sealed)?;
        Some(if self.is_encrypted { payload } else { &head[head_bytes..] })
    }

    /// Does what [`Seal::seal`] does for a datagram of these parts, into memory of their length and [`TAG_BYTES`]. The seal
    /// must be one that encrypts.
    pub fn seal_to(&self, serial: u64, head: &[u8], parts: &[&[u8]], datagram: &mut [u8]) {
        assert!(self.is_encrypted, "the payload is encrypted");
        let (place, rest) = datagram.split_at_mut(head.len());
        place.copy_from_slice(head);
        let (sealed, tag) = rest.split_last_chunk_mut().expect("there is room for the tag");
        *tag = aegis::seal_to(&self.key, nonce(serial), head, parts, sealed);
    }

    /// Does what [`Seal::open`] does, and puts the payload into memory of its length. Returns false if the datagram was not
    /// sealed with this secret, or its payload has another length. The seal must be one that encrypts.
    pub fn open_to(&self, serial: u64, head_bytes: usize, datagram: &[u8], payload: &mut [u8]) -> bool {
        assert!(self.is_encrypted, "the payload is encrypted");
        let split = datagram.split_at_checked(head_bytes);
        split.is_some_and(|(head, sealed)| aegis::open_to(&self.key, nonce(serial), head, sealed, payload))
    }

    /// Encrypts into memory of the payload's length, and returns the tag that belongs to it. No two calls for a secret, of this
    /// method, of [`Seal::seal`] or of [`Seal::seal_to`], may have the same `serial`.
    pub fn seal_apart(&self, serial: u64, payload: &[u8], sealed: &mut [u8]) -> [u8; TAG_BYTES] {
        aegis::seal_to(&self.key, nonce(serial), &[], &[payload], sealed)
    }

    /// Decrypts in place. Returns false if payload and tag were not sealed with this secret.
    pub fn open_apart(&self, serial: u64, tag: [u8; TAG_BYTES], payload: &mut [u8]) -> bool {
        aegis::open_apart(&self.key, nonce(serial), &[], payload, tag)
    }
}

fn nonce(serial: u64) -> [u8; NONCE_BYTES] {
    let mut bytes = [0; NONCE_BYTES];
    bytes[..8].copy_from_slice(&serial.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_or_sealed_with_another_secret_is_refused() {
        for is_encrypted in [true, false] {
            let seals = [[1; SECRET_BYTES], [2; SECRET_BYTES]].map(|secret| Seal::new(&secret, is_encrypted));
            assert_ne!(seals[0].name(), seals[1].name());
            let mut sealed = b"head, payload".to_vec();
            seals[0].seal(7, 5, &mut sealed);
            assert_eq!(sealed.len(), 13 + TAG_BYTES);
            assert_eq!(sealed.windows(7).any(|part| part == b"payload"), !is_encrypted);
            let open = |seal: &Seal, serial, mut bytes: Vec<u8>| seal.open(serial, 5, &mut bytes).map(<[u8]>::to_vec);
            assert_eq!(open(&seals[0], 7, sealed.clone()).as_deref(), Some(&b" payload"[..]));
            assert_eq!(open(&seals[1], 7, sealed.clone()), None);
            assert_eq!(open(&seals[0], 8, sealed.clone()), None);
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(open(&seals[0], 7, changed), None, "byte {at}");
                assert_eq!(open(&seals[0], 7, sealed[..at].to_vec()), None, "{at} bytes");
            }
        }
    }

    #[test]
    fn a_datagram_that_is_sealed_into_other_memory_is_the_same() {
        let seal = Seal::new(&[1; SECRET_BYTES], true);
        let mut wanted = b"head, payload".to_vec();
        seal.seal(7, 5, &mut wanted);
        let mut sealed = vec![9; 13 + TAG_BYTES];
        seal.seal_to(7, b"head,", &[b" ", b"", b"payload"], &mut sealed);
        assert_eq!(sealed, wanted);
        let mut payload = [0; 8];
        assert!(seal.open_to(7, 5, &sealed, &mut payload) && &payload == b" payload");
        assert!(!seal.open_to(8, 5, &sealed, &mut payload));
        assert!(!seal.open_to(7, 5, &sealed[..4], &mut payload));
    }

    #[test]
    fn what_was_sealed_apart_from_its_tag_is_opened_with_the_tag_only() {
        let seal = Seal::new(&[1; SECRET_BYTES], true);
        let mut sealed = [0; 7];
        let tag = seal.seal_apart(7, b"payload", &mut sealed);
        assert_ne!(&sealed, b"payload");
        let open = |serial, tag, mut bytes: [u8; 7]| seal.open_apart(serial, tag, &mut bytes).then_some(bytes);
        assert_eq!(open(7, tag, sealed), Some(*b"payload"));
        assert_eq!(open(8, tag, sealed), None);
        assert_eq!(open(7, [0; TAG_BYTES], sealed), None);
        sealed[6] ^= 1;
        assert_eq!(open(7, tag, sealed), None);
    }
}
