//! The head of a datagram with a part of a broadcast body. All numbers are little endian. The part follows the head; the
//! seal that authenticates both is at the end.

/// The first byte of such a datagram.
pub const BODY_PART: u8 = 1;
/// The length of the public name of a body's secret, in bytes.
pub const NAME_BYTES: usize = 8;
/// The length of a head in bytes.
pub const HEAD_BYTES: usize = 1 + NAME_BYTES + 8 + 4 + 4 + 4;

/// The head of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHead {
    /// The public name of the body's secret.
    pub name: [u8; NAME_BYTES],
    /// A number that differs in all datagrams of a body.
    pub serial: u64,
    /// The number of the part.
    pub part: u32,
    /// How many parts of the body were sent at least once.
    pub sent: u32,
    /// The round that ends with this datagram and is to be reported, or 0.
    pub round: u32,
}

impl DatagramHead {
    /// Appends the head.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(BODY_PART);
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.serial.to_le_bytes());
        for word in [self.part, self.sent, self.round] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads the head of a datagram. Returns `None` if there is none.
    pub fn read(datagram: &[u8]) -> Option<DatagramHead> {
        let (kind, rest) = datagram.split_first()?;
        let (name, rest) = rest.split_first_chunk()?;
        let (serial, rest) = rest.split_first_chunk()?;
        let mut words = rest.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
        let (part, sent, round) = (words.next()?, words.next()?, words.next()?);
        (*kind == BODY_PART).then(|| DatagramHead {
            name: *name,
            serial: u64::from_le_bytes(*serial),
            part,
            sent,
            round,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = DatagramHead { name: [1; NAME_BYTES], serial: 2 << 40, part: 3, sent: 4, round: 5 };
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        assert_eq!((bytes.len(), DatagramHead::read(&bytes)), (HEAD_BYTES, Some(head)));
        assert!((0..HEAD_BYTES).all(|end| DatagramHead::read(&bytes[..end]).is_none()));
        bytes[0] += 1;
        assert_eq!(DatagramHead::read(&bytes), None);
    }
}
