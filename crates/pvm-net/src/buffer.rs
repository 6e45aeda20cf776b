//! Buffers for received bytes and for bytes to send.

/// The most memory, in bytes, that an empty buffer keeps when it is released (`release`).
const KEEP_BYTES: usize = 512;

/// The most memory, in bytes, that an empty buffer keeps while it is in use (`release_large`).
const LARGE_BYTES: usize = 1 << 20;

/// A queue of bytes in contiguous memory.
#[derive(Default)]
pub(crate) struct Buffer {
    /// The whole memory, initialised, so that reading into its free part needs no unsafe code.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Returns the bytes in the buffer.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the bytes in the buffer, to be decrypted in place.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes the first `count` bytes.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more used than there is");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Removes the first `skip` bytes and the next `count` bytes, and returns those `count` bytes.
    pub fn take_front(&mut self, skip: usize, count: usize) -> &[u8] {
        let from = self.start + skip;
        self.consume(skip + count);
        &self.bytes[from..from + count]
    }

    /// Returns the free space behind the last byte; it has at least `least` bytes.
    pub fn space(&mut self, least: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < least {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.bytes.len() - self.end < least {
                let double = self.bytes.len().saturating_mul(2);
                self.bytes.resize(double.max(self.end + least), 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Reserves memory for `count` more bytes. Returns whether there is enough.
    pub fn reserve(&mut self, count: usize) -> bool {
        self.bytes.len() - self.len() >= count || self.bytes.try_reserve(self.bytes.len().max(count)).is_ok()
    }

    /// Adds `count` bytes that have been written to the free space.
    pub fn commit(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "more written than there was room");
    }

    /// Appends bytes.
    pub fn append(&mut self, data: &[u8]) {
        self.space(data.len())[..data.len()].copy_from_slice(data);
        self.commit(data.len());
    }

    /// Frees the memory if the buffer is empty and large.
    pub fn release_large(&mut self) {
        if self.is_empty() && self.bytes.len() > LARGE_BYTES {
            *self = Buffer::default();
        }
    }

    /// Frees the memory if the buffer is empty, unless it is small.
    pub fn release(&mut self) {
        if self.is_empty() && self.bytes.len() > KEEP_BYTES {
            *self = Buffer::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_sizes() {
        let mut buffer = Buffer::default();
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 0..1000_usize {
            let count = round * 7 % 97;
            let data: Vec<u8> = (0..count).map(|index| next_in.wrapping_add(index as u8)).collect();
            next_in = next_in.wrapping_add(count as u8);
            buffer.append(&data);
            let take = (round * 13 % 101).min(buffer.len());
            for byte in &buffer.filled()[..take] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(take);
        }
        let left = buffer.len();
        buffer.consume(left);
        buffer.append(&[0; KEEP_BYTES + 1]);
        buffer.release();
        assert_eq!(buffer.len(), KEEP_BYTES + 1, "what is in it stays");
        buffer.consume(KEEP_BYTES + 1);
        buffer.release();
        assert!(buffer.bytes.is_empty());
    }
}
