//! The data link to one host.
use super::link_failure::LinkFailure;
use super::receive::ReceiveState;
use super::transmit::TransmitState;
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, FrameHeader, read_header, write_acknowledged};
use pvm_net::{ByteStream, LinkError};

/// The state of both directions, and the connection. A connection that breaks is replaced; the state stays.
pub(super) struct DataLink {
    pub stream: Option<ByteStream>,
    pub receive: ReceiveState,
    pub transmit: TransmitState,
    /// The handshake of a connection that replaces an earlier one.
    handshake: Option<ResumeHandshake>,
    /// How many packets had arrived out of order at the last check.
    out_of_order: u32,
}

/// An acknowledgement in each direction. Each side then continues at the position that the other side has acknowledged.
struct ResumeHandshake {
    unsent: Vec<u8>,
    came: Vec<u8>,
}

impl DataLink {
    /// Makes a data link, with its first connection or without one.
    pub fn new(stream: Option<ByteStream>) -> DataLink {
        let (receive, transmit) = (ReceiveState::default(), TransmitState::default());
        DataLink { stream, receive, transmit, handshake: None, out_of_order: 0 }
    }

    /// Returns whether packets were lost on their way to this host since the last call.
    pub fn has_new_losses(&mut self) -> bool {
        let count = self.stream.as_ref().map_or(0, ByteStream::out_of_order);
        count > std::mem::replace(&mut self.out_of_order, count)
    }

    /// Drops the connection.
    pub fn disconnect(&mut self) {
        (self.stream, self.handshake) = (None, None);
    }

    /// Takes a new connection.
    pub fn reconnect(&mut self, stream: ByteStream) {
        let mut handshake = ResumeHandshake { unsent: Vec::new(), came: Vec::new() };
        write_acknowledged(self.receive.receipts.take_position(), &mut handshake.unsent);
        (self.stream, self.handshake) = (Some(stream), Some(handshake));
        (self.receive.readable, self.receive.ended, self.transmit.writable) = (true, false, true);
    }

    /// Returns the connection if there is one and both sides have reported how much they have received.
    pub fn connection(&mut self) -> Option<(&mut ByteStream, &mut ReceiveState, &mut TransmitState)> {
        match (&mut self.stream, &self.handshake) {
            (Some(stream), None) => Some((stream, &mut self.receive, &mut self.transmit)),
            _ => None,
        }
    }

    /// Continues the handshake of a new connection.
    pub fn continue_handshake(&mut self) -> Result<(), LinkFailure> {
        let (Some(stream), Some(handshake)) = (&mut self.stream, &mut self.handshake) else { return Ok(()) };
        if !handshake.advance(stream)? {
            return Ok(());
        }
        let Ok(Some((FrameHeader::Acknowledged { position }, _))) = read_header(&handshake.came) else {
            return Err(LinkFailure::ProtocolViolation);
        };
        self.handshake = None;
        self.transmit.resume(position)?;
        Ok(())
    }
}

impl ResumeHandshake {
    /// Returns whether both acknowledgements have been exchanged.
    fn advance(&mut self, stream: &mut ByteStream) -> Result<bool, LinkError> {
        stream.flush()?;
        let sent = stream.write(&self.unsent)?;
        self.unsent.drain(..sent);
        while self.came.len() < ACKNOWLEDGED_BYTES {
            let mut bytes = [0; ACKNOWLEDGED_BYTES];
            let rest = &mut bytes[self.came.len()..];
            match stream.read(rest)? {
                0 => break,
                count => self.came.extend_from_slice(&rest[..count]),
            }
        }
        Ok(self.unsent.is_empty() && self.came.len() == ACKNOWLEDGED_BYTES)
    }
}
