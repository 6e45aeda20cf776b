//! Requests to the daemon and their replies.
use pvm_core::codes::Code;
use pvm_core::proto::Reply;
use pvm_core::tid::Tid;

/// What the reply to a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A caller holds the [`Ticket`](crate::Ticket) and polls for the reply.
    Caller,
    /// As `Caller`, and a message handler may end the wait: the daemon replies when a mailbox has a fitting entry.
    AwaitedInfo,
    /// The reply becomes the reply to that request, whose purpose is `AwaitedInfo`.
    InsteadOf(u32),
    /// The reply is ignored.
    Ignored,
    /// The reply ends the introduction of this peer.
    Introduction(Tid),
    /// The reply reports whether there will be a direct link to this peer.
    DirectLink(Tid),
    /// The reply is the introduction of this peer, or there will be no link on a fabric.
    FabricLink(Tid),
    /// The reply reports whether this peer knows of a link on a fabric that it has asked for.
    FabricAnswer(Tid),
}

/// A request that has no reply yet, or whose reply the caller has not fetched.
struct Pending {
    number: u32,
    purpose: Purpose,
    reply: Option<Reply>,
}

/// The pending requests of a task, by number.
#[derive(Default)]
pub(crate) struct Requests {
    pending: Vec<Pending>,
    last_number: u32,
}

impl Requests {
    /// Returns the number for the next request: none that is pending, though the numbers wrap.
    pub fn next_number(&mut self) -> u32 {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            if self.position(self.last_number).is_none() {
                return self.last_number;
            }
        }
    }

    /// Adds a request that has been sent with this number.
    pub fn add(&mut self, number: u32, purpose: Purpose) {
        self.pending.push(Pending { number, purpose, reply: None });
    }

    /// Takes in a reply. Returns the reply and its purpose if the task itself has to act on it. Ignores replies to
    /// unknown requests, and second replies.
    pub fn on_reply(&mut self, number: u32, reply: Reply) -> Option<(Purpose, Reply)> {
        let at = self.position(number)?;
        match self.pending[at].purpose {
            Purpose::Caller | Purpose::AwaitedInfo => {
                self.pending[at].reply.get_or_insert(reply);
                None
            }
            Purpose::InsteadOf(awaited) => {
                self.pending.swap_remove(at);
                self.on_reply(awaited, reply)
            }
            Purpose::Ignored => {
                self.pending.swap_remove(at);
                None
            }
            purpose => {
                self.pending.swap_remove(at);
                Some((purpose, reply))
            }
        }
    }

    /// Returns and forgets the reply to a caller's request; `None` while it is missing. Fails with `SysErr` for a
    /// request that is not pending: its reply was fetched before, or the daemon is gone.
    pub fn poll(&mut self, number: u32) -> Option<Result<Reply, Code>> {
        let Some(at) = self.position(number) else { return Some(Err(Code::SysErr)) };
        let reply = self.pending[at].reply.take()?;
        self.pending.swap_remove(at);
        match reply {
            Reply::Error(code) => Some(Err(code)),
            reply => Some(Ok(reply)),
        }
    }

    /// Forgets a request. Its reply is dropped, now or when it arrives.
    pub fn abandon(&mut self, number: u32) {
        let Some(at) = self.position(number) else { return };
        match self.pending[at].reply {
            None => self.pending[at].purpose = Purpose::Ignored,
            Some(_) => drop(self.pending.swap_remove(at)),
        }
    }

    /// Returns the last request that waits for an entry of a mailbox.
    pub fn awaited_info(&self) -> Option<u32> {
        let awaited = |request: &&Pending| request.purpose == Purpose::AwaitedInfo && request.reply.is_none();
        self.pending.iter().filter(awaited).map(|request| request.number).max()
    }

    /// Forgets a request that needs no reply any more, and may get none.
    pub fn cancel(&mut self, number: u32) {
        self.pending.retain(|request| request.number != number);
    }

    /// Returns whether the daemon has been asked to introduce that peer.
    pub fn is_introducing(&self, peer: Tid) -> bool {
        self.pending.iter().any(|request| request.purpose == Purpose::Introduction(peer))
    }

    /// Forgets all unanswered requests, since the daemon is gone.
    pub fn on_daemon_lost(&mut self) {
        self.pending.retain(|request| request.reply.is_some());
    }

    #[cfg(any(test, fuzzing))]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.pending.iter().position(|request| request.number == number)
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
