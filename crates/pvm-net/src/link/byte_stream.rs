//! A connection as a stream of bytes, for users that have their own format of frames.
use super::{Link, LinkError};
use crate::raw;
use crate::socket;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

/// The number of bytes that an encrypted stream takes at a time. The stream keeps a copy of these bytes, so this number
/// also bounds the memory that it needs.
const WRITE_BYTES_MAX: usize = 512 << 10;

/// A connection without frames. Its owner watches the socket.
#[derive(Debug)]
pub struct ByteStream(Link);

impl ByteStream {
    pub(super) fn new(link: Link) -> ByteStream {
        ByteStream(link)
    }

    /// Sends bytes. Returns how many of the bytes, from the first on, were taken. These are fewer than all if the
    /// socket is full.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<usize, LinkError> {
        if self.is_encrypted() {
            return self.write_by(bytes.len(), &mut |into| {
                let next;
                (next, bytes) = bytes.split_at(into.len());
                into.copy_from_slice(next);
            });
        }
        self.flush()?;
        if self.wants_write() {
            return Ok(0);
        }
        match socket::write(&self.0, &[IoSlice::new(bytes)]) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends bytes on an encrypted stream. `fill` copies them, piece by piece, into the memory that it is given.
    /// Returns how many bytes were taken; fewer than `bytes` if the socket is full.
    pub fn write_by(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<usize, LinkError> {
        let link = &mut self.0;
        link.flush()?;
        if link.wants_write() {
            return Ok(0);
        }
        let bytes = bytes.min(WRITE_BYTES_MAX);
        link.write_encrypted_by(bytes, fill)?;
        Ok(bytes)
    }

    /// Frees memory that is not needed while the stream carries no data.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// Writes the bytes that wait for the socket. On a stream in clear, only the last bytes of the handshake can wait.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    /// Returns whether bytes wait for the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Reads bytes. Returns how many bytes were read, zero if there are none now.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.0.read_bytes(into)
    }

    /// Reads up to `most` bytes of an encrypted stream and passes them to `take`, piece by piece, in the memory in
    /// which they were decrypted. So only `take` copies them. Returns how many bytes were read, zero if there are none
    /// now.
    pub fn read_by(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.0.read_by(most, take)
    }

    /// Notes that the socket may have become readable.
    pub fn expect_more(&mut self) {
        self.0.expect_more();
    }

    /// Returns whether a read since [`ByteStream::expect_more`] has emptied the socket. The system reports what comes
    /// later.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    /// Returns whether received bytes wait to be read. No event of the socket reports them.
    pub fn has_unread(&self) -> bool {
        self.0.has_unread()
    }

    /// Returns how many packets have arrived out of order since the connection was made. Such packets follow lost ones,
    /// as a rule.
    pub fn out_of_order(&self) -> u32 {
        raw::carried(self.0.as_fd()).map_or(0, |carried| carried.out_of_order)
    }

    /// Returns the socket, if the bytes in the socket are exactly the bytes of the stream. This is so on a stream in
    /// clear, once everything that arrived with the handshake has been read.
    pub fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        let plain = !self.0.is_encrypted() && !self.0.has_unread() && !self.0.wants_write();
        plain.then(|| self.0.as_fd())
    }

    /// Returns whether the stream is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, KeyPair};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// Returns the two ends of a link whose handshake is complete.
    fn links(encrypted: bool) -> [Link; 2] {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let mut links = match encrypted {
            false => [Link::clear(near), Link::clear(far)],
            true => {
                let own = Identity::new(KeyPair::generate().unwrap());
                own.known().add(own.public());
                [Link::secure_to(near, &own, own.public()).unwrap(), Link::secure_from(far, &own).unwrap()]
            }
        };
        while !links.iter().all(Link::is_ready) {
            for link in &mut links {
                link.handshake().unwrap();
            }
        }
        links.iter_mut().for_each(Link::trust_as_it_is);
        links
    }

    #[test]
    fn a_stream_begins_behind_the_frames_and_hands_its_socket_out_when_nothing_is_left_of_them() {
        for encrypted in [false, true] {
            let [mut near, mut far] = links(encrypted);
            far.send(1, &[], &[b"frame"]).unwrap();
            let mut far = far.into_byte_stream();
            assert_eq!(far.write(b"rest"), Ok(4));
            near.expect_more();
            assert!(near.receive_whole().unwrap().is_some_and(|(_, body)| body == b"frame"));
            let (mut near, mut bytes) = (near.into_byte_stream(), [0; 3]);
            assert!(near.has_unread() && near.plain_socket().is_none());
            assert_eq!((near.read(&mut bytes), &bytes), (Ok(3), b"res"));
            assert!(near.has_unread() && near.plain_socket().is_none());
            assert_eq!((near.read(&mut bytes), bytes[0]), (Ok(1), b't'));
            assert!(!near.has_unread());
            assert_eq!((near.plain_socket().is_some(), near.is_encrypted()), (!encrypted, encrypted));
            assert_eq!(near.read(&mut bytes), Ok(0), "nothing has come");
            drop(far);
            assert_eq!(near.read(&mut bytes), Err(LinkError::Closed));
        }
    }

    #[test]
    fn an_encrypted_stream_takes_a_bounded_amount_and_nothing_while_that_waits_for_the_socket() {
        let [near, far] = links(true);
        let (mut near, mut far) = (near.into_byte_stream(), far.into_byte_stream());
        let sent: Vec<u8> = (0..2 * WRITE_BYTES_MAX).map(|at| (at * 31 >> 3) as u8).collect();
        assert_eq!(near.write(&sent), Ok(WRITE_BYTES_MAX));
        assert!(near.wants_write(), "no socket holds that much");
        assert_eq!(near.write(b"more"), Ok(0));
        assert_eq!(near.write_by(4, &mut |_| panic!("nothing is to be copied")), Ok(0));
        let mut received = Vec::new();
        while received.len() < WRITE_BYTES_MAX {
            let before = received.len();
            let count = far.read_by(1000, &mut |bytes| received.extend_from_slice(bytes)).unwrap();
            assert!(count <= 1000 && received.len() == before + count);
            near.flush().unwrap();
        }
        assert!(received == sent[..WRITE_BYTES_MAX]);
        assert!(!near.wants_write());
        assert_eq!(near.write(b"more"), Ok(4));
        let mut bytes = [0; 10];
        assert_eq!(far.read(&mut bytes), Ok(4));
        assert_eq!(&bytes[..4], b"more");
    }

    #[test]
    fn a_stream_in_clear_takes_what_the_socket_takes() {
        let [near, far] = links(false);
        let (mut near, mut far) = (near.into_byte_stream(), far.into_byte_stream());
        let (data, mut taken) = (vec![7; 1 << 20], 0);
        loop {
            match near.write(&data).unwrap() {
                0 => break,
                count => taken += count,
            }
        }
        assert!(taken > 0 && !near.wants_write(), "no copy waits in the stream");
        let (mut bytes, mut received) = (vec![0; 5000], 0);
        loop {
            match far.read(&mut bytes).unwrap() {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, taken);
    }
}
