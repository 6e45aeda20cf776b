//! Data formats: how a host represents numbers, and how its data signature encodes that (contract 5.8).

/// The representation of numbers on a host. All supported hosts have two-byte shorts, four-byte ints and IEEE 754
/// floats; only byte order and the size of a `long` differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Whether the first byte of a number is the most significant one.
    pub big_endian: bool,
    /// The size of a `long`, in bytes.
    pub long_bytes: usize,
}

impl Format {
    /// The format of the host that this program runs on.
    pub const NATIVE: Format = Format { big_endian: cfg!(target_endian = "big"), long_bytes: size_of::<usize>() };

    const ALL: [Format; 4] = [
        Format { big_endian: false, long_bytes: 8 },
        Format { big_endian: false, long_bytes: 4 },
        Format { big_endian: true, long_bytes: 8 },
        Format { big_endian: true, long_bytes: 4 },
    ];

    /// Returns the data signature of the format.
    pub const fn signature(self) -> i32 {
        let order = if self.big_endian { 3 } else { 0 };
        let long = self.long_bytes.ilog2() as i32;
        let formats = 1 | 2 << 5 | long << 10 | 1 << 15 | 2 << 21;
        formats | order << 3 | order << 8 | order << 13 | order << 19 | order << 25
    }

    /// Returns the format with the given data signature, or `None` if the signature is not supported.
    pub fn of_signature(signature: i32) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.signature() == signature)
    }

    /// Returns whether the byte order differs from this host's.
    pub fn is_swapped(self) -> bool {
        self.big_endian != Format::NATIVE.big_endian
    }
}

/// Swaps the byte order of numbers that have `bytes` bytes each.
pub fn swap(numbers: &mut [u8], bytes: usize) {
    match bytes {
        2 => numbers.chunks_exact_mut(2).for_each(|number| number.reverse()),
        4 => numbers.chunks_exact_mut(4).for_each(|number| number.reverse()),
        8 => numbers.chunks_exact_mut(8).for_each(|number| number.reverse()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::DSIG_X86_64;

    #[test]
    fn the_signatures_are_those_of_the_contract() {
        let [little_64, little_32, big_64, big_32] = Format::ALL.map(Format::signature);
        assert_eq!((little_64, little_32), (DSIG_X86_64, 0x0040_8841));
        // Byte order 3 (big endian) for shorts, ints, longs, floats and doubles.
        let big = 3 << 3 | 3 << 8 | 3 << 13 | 3 << 19 | 3 << 25;
        assert_eq!((big_64, big_32), (DSIG_X86_64 | big, 0x0040_8841 | big));
    }

    #[test]
    fn a_signature_is_read_back_and_others_are_none() {
        for format in Format::ALL {
            assert_eq!(Format::of_signature(format.signature()), Some(format));
        }
        assert_eq!(Format::of_signature(0), None);
        assert_eq!(Format::of_signature(Format::NATIVE.signature() | 1 << 28), None);
    }

    #[test]
    fn the_bytes_of_each_number_are_swapped() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        swap(&mut bytes, 2);
        assert_eq!(bytes, [2, 1, 4, 3, 6, 5, 8, 7]);
        swap(&mut bytes, 4);
        assert_eq!(bytes, [3, 4, 1, 2, 7, 8, 5, 6]);
        swap(&mut bytes, 8);
        assert_eq!(bytes, [6, 5, 8, 7, 2, 1, 4, 3]);
        swap(&mut bytes, 1);
        assert_eq!(bytes, [6, 5, 8, 7, 2, 1, 4, 3]);
    }
}
