//! Bodies in the default encoding: XDR's widths in the maker's byte order (decision 7).
//!
//! Integers take four bytes, `long` eight, strings a length that counts the closing zero, the
//! bytes, and padding to four; byte arrays are padded to four.

/// Writes a body in the default encoding.
#[derive(Default, Debug, Clone)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty body.
    pub fn new() -> Writer {
        Writer::default()
    }
    /// One C `int`.
    pub fn int(mut self, value: i32) -> Writer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }
    /// A C string.
    pub fn string(mut self, text: &[u8]) -> Writer {
        self = self.int(text.len() as i32 + 1);
        self.0.extend_from_slice(text);
        self.0.push(0);
        self.pad()
    }
    /// Bytes, without their count.
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
    /// The body.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a body in the default encoding; every method gives `None` past the end.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of `body`.
    pub fn new(body: &'a [u8]) -> Reader<'a> {
        Reader(body)
    }
    /// One C `int`.
    pub fn int(&mut self) -> Option<i32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(i32::from_ne_bytes(*head))
    }
    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let padded = count.checked_add(3)? & !3;
        if self.0.len() < padded {
            return None;
        }
        let (head, rest) = self.0.split_at(padded);
        self.0 = rest;
        Some(&head[..count])
    }
    /// A C string without its closing zero.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.int()?).ok()?;
        let data = self.bytes(count)?;
        data.strip_suffix(&[0])
    }
    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
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
    fn lengths_beyond_the_end_give_nothing() {
        let body = Writer::new().int(i32::MAX).finish();
        assert_eq!(Reader::new(&body).string(), None);
        let body = Writer::new().int(-1).finish();
        assert_eq!(Reader::new(&body).string(), None);
    }
}
