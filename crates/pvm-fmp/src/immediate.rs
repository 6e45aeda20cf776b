//! An immediate message as a value: it goes from core to core in half a slot, and both sides keep it in registers.
/// The most bytes of a body: two words, the rest of half a slot.
pub const IMMEDIATE_BYTES: usize = 16;

/// A message of at most 16 bytes with a well-known header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate {
    /// The first two meta words.
    pub first: [u32; 2],
    /// The index of the other meta words in [`crate::WELL_KNOWN_HEADERS`].
    pub well_known: usize,
    /// Bytes of the body.
    pub(crate) bytes: usize,
    /// The body; the bytes behind its end may have any value.
    pub(crate) words: [u64; 2],
}

#[allow(clippy::len_without_is_empty)] // an empty message is a message, too
impl Immediate {
    /// Returns the message, if the body is short enough.
    #[inline(always)]
    pub fn new(first: [u32; 2], well_known: usize, body: &[u8]) -> Option<Immediate> {
        match Immediate::of_numbers(first, well_known, body) {
            None => Immediate::of_any(first, well_known, body),
            immediate => immediate,
        }
    }

    /// Returns the message, if the body has 4, 8 or 16 bytes, as one or two numbers have. Bodies of these lengths are
    /// copied without a function call.
    #[inline(always)]
    pub fn of_numbers(first: [u32; 2], well_known: usize, body: &[u8]) -> Option<Immediate> {
        let words = match *body {
            [a, b, c, d, e, f, g, h] => [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0],
            [a, b, c, d] => [u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]), 0],
            _ => match <[u8; IMMEDIATE_BYTES]>::try_from(body) {
                Ok(body) => words_of(&body),
                Err(_) => return None,
            },
        };
        Some(Immediate { first, well_known, bytes: body.len(), words })
    }

    #[inline(never)]
    fn of_any(first: [u32; 2], well_known: usize, body: &[u8]) -> Option<Immediate> {
        let mut filled = [0; IMMEDIATE_BYTES];
        filled.get_mut(..body.len())?.copy_from_slice(body);
        Some(Immediate { first, well_known, bytes: body.len(), words: words_of(&filled) })
    }

    /// Returns the length of the body in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the body; the bytes behind its end may have any value.
    #[inline(always)]
    pub fn filled_body(&self) -> [u8; IMMEDIATE_BYTES] {
        let mut body = [0; IMMEDIATE_BYTES];
        body[..8].copy_from_slice(&self.words[0].to_ne_bytes());
        body[8..].copy_from_slice(&self.words[1].to_ne_bytes());
        body
    }

    /// Copies the body, if it has 4, 8 or 16 bytes and fits in `data`. Returns whether it was copied.
    #[inline(always)]
    pub fn copy_numbers_to(&self, data: &mut [u8]) -> bool {
        let body = self.filled_body();
        match self.bytes {
            8 => copy_first::<8>(&body, data),
            4 => copy_first::<4>(&body, data),
            IMMEDIATE_BYTES => copy_first::<IMMEDIATE_BYTES>(&body, data),
            _ => false,
        }
    }
}

#[inline(always)]
fn words_of(body: &[u8; IMMEDIATE_BYTES]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *body;
    [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes([i, j, k, l, m, n, o, p])]
}

#[inline(always)]
fn copy_first<const BYTES: usize>(body: &[u8; IMMEDIATE_BYTES], data: &mut [u8]) -> bool {
    match (data.first_chunk_mut::<BYTES>(), body.first_chunk::<BYTES>()) {
        (Some(place), Some(first)) => {
            *place = *first;
            true
        }
        _ => false,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_any_length_comes_back_as_it_was() {
        let body: Vec<u8> = (1..=IMMEDIATE_BYTES as u8).collect();
        for bytes in 0..=IMMEDIATE_BYTES {
            let immediate = Immediate::new([1, 2], 0, &body[..bytes]).unwrap();
            assert_eq!(immediate.len(), bytes);
            assert_eq!(immediate.filled_body()[..bytes], body[..bytes]);
            for room in 0..20 {
                let mut copy = [0; 20];
                let copied = immediate.copy_numbers_to(&mut copy[..room]);
                assert_eq!(copied, [4, 8, IMMEDIATE_BYTES].contains(&bytes) && bytes <= room);
                let count = if copied { bytes } else { 0 };
                assert_eq!(copy[..count], body[..count]);
                assert!(copy[count..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn numbers_make_the_same_message_by_either_way() {
        let body: Vec<u8> = (1..=IMMEDIATE_BYTES as u8).collect();
        for bytes in 0..=IMMEDIATE_BYTES {
            let quick = Immediate::of_numbers([1, 2], 0, &body[..bytes]);
            assert_eq!(quick.is_some(), [4, 8, IMMEDIATE_BYTES].contains(&bytes));
            assert!(quick.is_none() || quick == Immediate::of_any([1, 2], 0, &body[..bytes]));
        }
    }

    #[test]
    fn what_is_too_long_is_not_immediate() {
        assert!(Immediate::new([1, 2], 0, &[0; IMMEDIATE_BYTES + 1]).is_none());
    }
}
