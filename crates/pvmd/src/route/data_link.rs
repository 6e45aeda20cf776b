//! The data link to one host.
use super::LinkFailure;
use super::receive::ReceiveState;
use super::transmit::TransmitState;
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, FrameHeader, read_header, write_acknowledged};
use pvm_net::{ByteStream, LinkError};

/// The state of both directions, and the connection. Connections break and are replaced; the state stays.
pub(super) struct DataLink {
    pub pipe: Option<ByteStream>,
    pub receive: ReceiveState,
    pub transmit: TransmitState,
    /// The exchange that begins a connection which replaces another.
    greeting: Option<ResumeHandshake>,
}

/// An acknowledgement in each direction. Each side continues where the other one has stopped.
struct ResumeHandshake {
    unsent: Vec<u8>,
    came: Vec<u8>,
}

impl DataLink {
    /// Makes a data link, with its first connection or without one.
    pub fn new(pipe: Option<ByteStream>) -> DataLink {
        DataLink { pipe, receive: ReceiveState::default(), transmit: TransmitState::default(), greeting: None }
    }

    /// Drops the connection.
    pub fn disconnect(&mut self) {
        (self.pipe, self.greeting) = (None, None);
    }

    /// Takes a new connection.
    pub fn reconnect(&mut self, pipe: ByteStream) {
        let mut greeting = ResumeHandshake { unsent: Vec::new(), came: Vec::new() };
        write_acknowledged(self.receive.receipts.take_position(), &mut greeting.unsent);
        (self.pipe, self.greeting) = (Some(pipe), Some(greeting));
        (self.receive.readable, self.receive.ended, self.transmit.writable) = (true, false, true);
    }

    /// Returns the connection, if it stands and both sides have told how much they have received.
    pub fn connection(&mut self) -> Option<(&mut ByteStream, &mut ReceiveState, &mut TransmitState)> {
        match (&mut self.pipe, &self.greeting) {
            (Some(pipe), None) => Some((pipe, &mut self.receive, &mut self.transmit)),
            _ => None,
        }
    }

    /// Continues the exchange that begins a connection.
    pub fn greet(&mut self) -> Result<(), LinkFailure> {
        let (Some(pipe), Some(greeting)) = (&mut self.pipe, &mut self.greeting) else { return Ok(()) };
        if !greeting.go_on(pipe)? {
            return Ok(());
        }
        let Ok(Some((FrameHeader::Acknowledged { position }, _))) = read_header(&greeting.came) else {
            return Err(LinkFailure::ProtocolViolation);
        };
        self.greeting = None;
        self.transmit.resume(position)?;
        Ok(())
    }
}

impl ResumeHandshake {
    /// Returns whether both acknowledgements have passed.
    fn go_on(&mut self, pipe: &mut ByteStream) -> Result<bool, LinkError> {
        pipe.flush()?;
        let sent = pipe.write(&self.unsent)?;
        self.unsent.drain(..sent);
        while self.came.len() < ACKNOWLEDGED_BYTES {
            let mut bytes = [0; ACKNOWLEDGED_BYTES];
            let rest = &mut bytes[self.came.len()..];
            match pipe.read(rest)? {
                0 => break,
                count => self.came.extend_from_slice(&rest[..count]),
            }
        }
        Ok(self.unsent.is_empty() && self.came.len() == ACKNOWLEDGED_BYTES)
    }
}
