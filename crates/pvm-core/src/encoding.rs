//! Bodies in the default encoding: XDR's widths in the sender's byte order (decision 3).
//!
//! An integer takes four bytes and a `long` eight. A string is its length (with the terminating zero), its
//! bytes and padding to a multiple of four. A byte array is padded to a multiple of four.

use crate::format::{self, Format};

/// Writes a body in the default encoding.
#[derive(Default, Debug, Clone)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Makes an empty body.
    pub fn new() -> Writer {
        Writer::default()
    }
    /// Appends a C `int`.
    pub fn int(mut self, value: i32) -> Writer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }
    /// Appends a C string.
    pub fn string(mut self, text: &[u8]) -> Writer {
        self = self.int(text.len() as i32 + 1);
        self.0.extend_from_slice(text);
        self.0.push(0);
        self.pad()
    }
    /// Appends bytes without their count.
    pub fn bytes(mut self, data: &[u8]) -> Writer {
        self.0.extend_from_slice(data);
        self.pad()
    }
    fn pad(mut self) -> Writer {
        while self.0.len() % 4 != 0 {
            self.0.push(0);
        }
        self
    }
    /// Returns the body.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a body in the default encoding. Every method returns `None` past the end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    swapped: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `body`, which was written in this host's format.
    pub fn new(body: &'a [u8]) -> Reader<'a> {
        Reader { rest: body, swapped: false }
    }
    /// Reads a body from a host with the given data signature. The body counts as empty if the signature is unknown.
    pub fn of(body: &'a [u8], signature: i32) -> Reader<'a> {
        match Format::of_signature(signature) {
            Some(format) => Reader { rest: body, swapped: format.is_swapped() },
            None => Reader::new(&[]),
        }
    }
    /// Reads a C `int`.
    pub fn int(&mut self) -> Option<i32> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        let value = i32::from_ne_bytes(*head);
        Some(if self.swapped { value.swap_bytes() } else { value })
    }
    /// Reads a C `long`.
    pub fn long(&mut self) -> Option<i64> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        let value = i64::from_ne_bytes(*head);
        Some(if self.swapped { value.swap_bytes() } else { value })
    }
    /// Reads `count` numbers of `bytes` bytes each and returns them in this host's byte order.
    pub fn numbers(&mut self, count: usize, bytes: usize) -> Option<Vec<u8>> {
        let mut numbers = self.bytes(count.checked_mul(bytes)?)?.to_vec();
        if self.swapped {
            format::swap(&mut numbers, bytes);
        }
        Some(numbers)
    }
    /// Reads `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let padded = count.checked_add(3)? & !3;
        if self.rest.len() < padded {
            return None;
        }
        let (head, rest) = self.rest.split_at(padded);
        self.rest = rest;
        Some(&head[..count])
    }
    /// Reads a C string and returns it without its terminating zero.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.int()?).ok()?;
        let data = self.bytes(count)?;
        data.strip_suffix(&[0])
    }
    /// Returns the unread rest.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let body = Writer::new().int(-7).string(b"abcd").bytes(b"xy").finish();
        assert_eq!(body.len(), 4 + 4 + 8 + 4);
        let mut reader = Reader::new(&body);
        assert_eq!(reader.int(), Some(-7));
        assert_eq!(reader.string(), Some(&b"abcd"[..]));
        assert_eq!(reader.bytes(2), Some(&b"xy"[..]));
        assert_eq!(reader.int(), None);
    }

    #[test]
    fn bodies_in_the_other_byte_order_are_read() {
        let other = Format { big_endian: !Format::NATIVE.big_endian, ..Format::NATIVE };
        let swapped = |value: i32| value.swap_bytes().to_ne_bytes();
        let body = [&swapped(-7)[..], &swapped(3), b"ab\0\0", &swapped(1), &swapped(2)].concat();
        let mut reader = Reader::of(&body, other.signature());
        assert_eq!((reader.int(), reader.string()), (Some(-7), Some(&b"ab"[..])));
        assert_eq!(reader.clone().numbers(2, 4), Some([1i32, 2].map(i32::to_ne_bytes).concat()));
        assert_eq!(
            reader.long(),
            Some(i64::from_ne_bytes([swapped(1), swapped(2)].concat().try_into().unwrap()).swap_bytes())
        );
        assert_eq!(reader.long(), None);
        assert_eq!(Reader::of(&body, 5).int(), None);
    }

    #[test]
    fn lengths_beyond_the_end_are_rejected() {
        let body = Writer::new().int(i32::MAX).finish();
        assert_eq!(Reader::new(&body).string(), None);
        let body = Writer::new().int(-1).finish();
        assert_eq!(Reader::new(&body).string(), None);
    }
}
