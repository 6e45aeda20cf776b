//! The connection on which the processes tell each other what daemons would tell them.
use crate::Result;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long a caller tries to connect.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Control {
    stream: TcpStream,
    pub is_sealed: bool,
}

impl Control {
    pub fn accept(address: &str) -> Result<Control> {
        let stream = TcpListener::bind(address)?.accept()?.0;
        stream.set_nodelay(true)?;
        Ok(Control { stream, is_sealed: false })
    }

    pub fn connect(address: &str) -> Result<Control> {
        let end = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(address) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Control { stream, is_sealed: false });
                }
                Err(error) if Instant::now() > end => return Err(format!("{address}: {error}").into()),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Sends a word by one system call: a peer that ends as soon as a word begins to arrive would reset the connection
    /// before a second call.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len())?.to_le_bytes();
        Ok(self.stream.write_all(&[&length[..], bytes].concat())?)
    }

    pub fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_le_bytes(length).min(1 << 20) as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns whether the other process has ended and everything that it has sent was received.
    pub fn has_ended(&self) -> bool {
        match self.peek() {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Returns whether something has arrived that was not received yet.
    pub fn has_word(&self) -> bool {
        self.peek().is_ok_and(|count| count > 0)
    }

    fn peek(&self) -> std::io::Result<usize> {
        self.stream.set_nonblocking(true)?;
        let result = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        result
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
