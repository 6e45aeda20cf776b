//! The data link to one host.
use super::Failure;
use super::inlet::Inlet;
use super::outlet::Outlet;
use pvm_core::flows::frames::{ACKNOWLEDGED_BYTES, FrameHeader, read_header, write_acknowledged};
use pvm_net::{LinkError, Pipe};

/// What is on its way in and out, and the connection for it. Connections break and come again; the rest stays.
pub(super) struct Cable {
    pub pipe: Option<Pipe>,
    pub inlet: Inlet,
    pub outlet: Outlet,
    /// What each side says first on a connection that takes the place of another.
    greeting: Option<Greeting>,
}

/// An acknowledgement each way: there both go on.
struct Greeting {
    unsent: Vec<u8>,
    came: Vec<u8>,
}

impl Cable {
    /// The first one, or none yet.
    pub fn new(pipe: Option<Pipe>) -> Cable {
        Cable { pipe, inlet: Inlet::default(), outlet: Outlet::default(), greeting: None }
    }

    /// The connection is of no use any more.
    pub fn unplug(&mut self) {
        (self.pipe, self.greeting) = (None, None);
    }

    /// There is another one.
    pub fn plug(&mut self, pipe: Pipe) {
        let mut greeting = Greeting { unsent: Vec::new(), came: Vec::new() };
        write_acknowledged(self.inlet.receipts.take_position(), &mut greeting.unsent);
        (self.pipe, self.greeting) = (Some(pipe), Some(greeting));
        (self.inlet.readable, self.inlet.ended, self.outlet.writable) = (true, false, true);
    }

    /// The connection, if it stands and both sides have greeted each other.
    pub fn connection(&mut self) -> Option<(&mut Pipe, &mut Inlet, &mut Outlet)> {
        match (&mut self.pipe, &self.greeting) {
            (Some(pipe), None) => Some((pipe, &mut self.inlet, &mut self.outlet)),
            _ => None,
        }
    }

    /// Goes on with the greeting, if there is one.
    pub fn greet(&mut self) -> Result<(), Failure> {
        let (Some(pipe), Some(greeting)) = (&mut self.pipe, &mut self.greeting) else { return Ok(()) };
        if !greeting.go_on(pipe)? {
            return Ok(());
        }
        let Ok(Some((FrameHeader::Acknowledged { position }, _))) = read_header(&greeting.came) else {
            return Err(Failure::Strange);
        };
        self.greeting = None;
        self.outlet.resume(position)?;
        Ok(())
    }
}

impl Greeting {
    /// Says whether all has been said.
    fn go_on(&mut self, pipe: &mut Pipe) -> Result<bool, LinkError> {
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
