//! The data link to one host.
use super::LinkFailure;
use super::receive::ReceiveState;
use super::transmit::TransmitState;
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, Head, read_head, write_acknowledged};
use pvm_net::{ByteStream, LinkError};

/// What is on its way in and out, and the connection for it. Connections break and come again; the rest stays.
pub(super) struct DataLink {
    pub pipe: Option<ByteStream>,
    pub receive: ReceiveState,
    pub transmit: TransmitState,
    /// What each side says first on a connection that takes the place of another.
    greeting: Option<ResumeHandshake>,
}

/// An acknowledgement each way: there both go on.
struct ResumeHandshake {
    unsent: Vec<u8>,
    came: Vec<u8>,
}

impl DataLink {
    /// The first one, or none yet.
    pub fn new(pipe: Option<ByteStream>) -> DataLink {
        DataLink { pipe, receive: ReceiveState::default(), transmit: TransmitState::default(), greeting: None }
    }

    /// The connection is of no use any more.
    pub fn disconnect(&mut self) {
        (self.pipe, self.greeting) = (None, None);
    }

    /// There is another one.
    pub fn reconnect(&mut self, pipe: ByteStream) {
        let mut greeting = ResumeHandshake { unsent: Vec::new(), came: Vec::new() };
        write_acknowledged(self.receive.receipts.tell(), &mut greeting.unsent);
        (self.pipe, self.greeting) = (Some(pipe), Some(greeting));
        (self.receive.readable, self.receive.ended, self.transmit.writable) = (true, false, true);
    }

    /// The connection, if it stands and both sides have greeted each other.
    pub fn connection(&mut self) -> Option<(&mut ByteStream, &mut ReceiveState, &mut TransmitState)> {
        match (&mut self.pipe, &self.greeting) {
            (Some(pipe), None) => Some((pipe, &mut self.receive, &mut self.transmit)),
            _ => None,
        }
    }

    /// Goes on with the greeting, if there is one.
    pub fn greet(&mut self) -> Result<(), LinkFailure> {
        let (Some(pipe), Some(greeting)) = (&mut self.pipe, &mut self.greeting) else { return Ok(()) };
        if !greeting.go_on(pipe)? {
            return Ok(());
        }
        let Ok(Some((Head::Acknowledged { position }, _))) = read_head(&greeting.came) else {
            return Err(LinkFailure::ProtocolViolation);
        };
        self.greeting = None;
        self.transmit.resume(position)?;
        Ok(())
    }
}

impl ResumeHandshake {
    /// Says whether all has been said.
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
