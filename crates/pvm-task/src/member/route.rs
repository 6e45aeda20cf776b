//! The routes of messages, and the introductions that they need.
use super::Member;
use crate::requests::Purpose;
use pvm_core::codes::Code;
use pvm_core::machine::limits::DAEMON_MESSAGE_BYTES_MAX;
use pvm_core::proto::{ByteBuf, Message, Request, ToDaemon};
use pvm_core::tid::{DAEMON_BIT, Tid};
use pvm_fmp::{Meta, SendError, Sent};

/// A message of at least this many bytes to another host keeps the daemon busy for longer than a task spins.
const RELAYED_BYTES_MIN: usize = 64 << 10;

/// How a message reaches its receiver.
#[derive(PartialEq)]
pub(crate) enum Route {
    /// Through shared memory.
    Shared,
    /// Through shared memory to the daemon, which relays it to another host.
    Default,
    /// On a direct link to a task of another host.
    Direct,
    /// To the queue of this task.
    Loopback,
    /// Through the daemon's socket.
    Daemon,
    /// No route yet: the daemon introduces the peer first.
    Introducing,
    /// No route: there is no such task.
    Gone,
}

impl Member {
    /// Finishes a send: asks the daemon to ring the receiver if this task cannot ring it.
    #[inline]
    pub fn finish_send(&mut self, to: Tid, sent: Result<Sent, SendError>) -> Result<(), Code> {
        match sent {
            Ok(Sent::Done) => Ok(()),
            Ok(Sent::RingByDaemon) => self.ring_by_daemon(to),
            Err(SendError::NoMemory) => Err(Code::NoMem),
            // The peer has ended since the route was chosen.
            Err(SendError::NotConnected) => Ok(()),
        }
    }

    /// Notes that the daemon relays a message of `bytes` bytes.
    pub fn note_relayed(&mut self, bytes: usize) {
        self.relay_pending |= bytes >= RELAYED_BYTES_MIN;
    }

    /// Starts an introduction to a peer that will be needed, unless the peer is connected or cannot be connected.
    pub fn introduce(&mut self, to: Tid) {
        // A later send to the peer reports the failure.
        let _ = self.route(to);
    }

    /// Returns whether messages can take the default route now. If not, asks the daemon to introduce itself.
    pub fn has_default_route(&mut self) -> bool {
        let daemon = self.tid.host();
        let is_connected = self.endpoint.is_connected(daemon.0);
        // After a refusal, only a send asks again, because a send can report the failure.
        if !is_connected && !self.introductions.is_refused(daemon) {
            let _ = self.request_introduction(daemon);
        }
        is_connected
    }

    #[cold]
    #[inline(never)]
    pub fn ring_by_daemon(&mut self, to: Tid) -> Result<(), Code> {
        self.send(&ToDaemon::Ring(to));
        self.check_descriptors()
    }

    /// Returns the route to a tid; starts an introduction if one is needed.
    #[inline]
    pub fn route(&mut self, to: Tid) -> Result<Route, Code> {
        if self.endpoint.is_connected(to.0) {
            return Ok(Route::Shared);
        }
        self.route_to_unconnected(to)
    }

    #[cold]
    fn route_to_unconnected(&mut self, to: Tid) -> Result<Route, Code> {
        if to == self.tid {
            return Ok(Route::Loopback);
        }
        if !to.is_task() || to.is_service() {
            return Ok(Route::Daemon);
        }
        let here = self.tid.host();
        if to.host() == here {
            return self.request_introduction(to);
        }
        if self.has_link_to(to) {
            self.leave_links_in_company();
            if self.has_link_to(to) {
                return Ok(Route::Direct);
            }
        }
        if self.endpoint.is_connected(here.0) {
            self.leave_links_beside(to);
            return Ok(Route::Default);
        }
        self.request_introduction(here)
    }

    /// Asks the daemon to introduce a peer of this host, or itself.
    fn request_introduction(&mut self, to: Tid) -> Result<Route, Code> {
        match self.introductions.take_refusal(to) {
            Some(Code::OutOfRes) => return Err(Code::OutOfRes),
            Some(_) => return Ok(Route::Gone),
            None => {}
        }
        if to.is_task() && !self.endpoint.ports().is_some_and(|ports| ports.alive(to.0)) {
            return Ok(Route::Gone);
        }
        if to.is_task() {
            self.leave_unasked_links(|_| true);
        }
        if !self.requests.is_introducing(to) {
            self.request(Request::Connect(to), Purpose::Introduction(to))?;
        }
        Ok(Route::Introducing)
    }

    /// Sends a message to a daemon, through the socket.
    pub fn send_to_daemon(&mut self, dst: Tid, meta: Meta, body: Vec<u8>) -> Result<(), Code> {
        let [ctx, tag, wid, enc, format, ..] = meta.map(|word| word as i32);
        if body.len() > DAEMON_MESSAGE_BYTES_MAX {
            return Err(Code::NoMem);
        }
        let dst = if dst.is_task() { dst } else { Tid(dst.0 | DAEMON_BIT) };
        let body = ByteBuf::from(body);
        self.send(&ToDaemon::Message(Message { src: self.tid, dst, ctx, tag, wid, enc, format, body }));
        if self.daemon.is_none() { Err(Code::SysErr) } else { Ok(()) }
    }
}
