//! Requests to the daemon and their replies.
use crate::message::{OWN_DSIG, SlotState};
use crate::{Task, Ticket};
use pvm_core::codes::{Code, ENC_IN_PLACE, MBOX_WAIT_FOR_INFO};
use pvm_core::machine::BESIDE_VARIABLE;
use pvm_core::proto::{ByteBuf, Message, Reply, Request, Spawn};
use pvm_core::tid::Tid;

/// What the reply to a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A caller holds the [`Ticket`] and polls for the reply.
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
    fn poll(&mut self, number: u32) -> Option<Result<Reply, Code>> {
        let Some(at) = self.position(number) else { return Some(Err(Code::SysErr)) };
        let reply = self.pending[at].reply.take()?;
        self.pending.swap_remove(at);
        match reply {
            Reply::Error(code) => Some(Err(code)),
            reply => Some(Ok(reply)),
        }
    }

    /// Gives a request up: its reply is dropped, now or when it arrives.
    fn abandon(&mut self, number: u32) {
        let Some(at) = self.position(number) else { return };
        match self.pending[at].reply {
            None => self.pending[at].purpose = Purpose::Ignored,
            Some(_) => drop(self.pending.swap_remove(at)),
        }
    }

    /// Returns the last request that waits for an entry of a mailbox.
    fn awaited_info(&self) -> Option<u32> {
        let awaited = |request: &&Pending| request.purpose == Purpose::AwaitedInfo && request.reply.is_none();
        self.pending.iter().filter(awaited).map(|request| request.number).max()
    }

    /// Forgets a request that needs no reply any more, and may get none.
    fn cancel(&mut self, number: u32) {
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

/// Requests to the daemon.
impl Task {
    /// Sends a request. Fails with `SysErr` if the daemon is gone, and with `NotImpl` inside a handler.
    pub fn begin(&mut self, request: Request) -> Result<Ticket, Code> {
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let awaits_info = matches!(&request, Request::RecvInfo { flags, .. } if flags & MBOX_WAIT_FOR_INFO != 0);
        let purpose = if awaits_info { Purpose::AwaitedInfo } else { Purpose::Caller };
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        member.request(request, purpose).map(Ticket)
    }

    /// If a call waits for an entry of a mailbox, sends a request from within a handler. The reply ends that wait. The
    /// daemon is not told that nobody waits for its own reply any more, which is dropped.
    pub fn end_info_wait(&mut self, request: Request) -> Result<(), Code> {
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        match member.requests.awaited_info() {
            Some(awaited) => member.request(request, Purpose::InsteadOf(awaited)).map(drop),
            None => Ok(()),
        }
    }

    /// Sends a request whose reply is ignored, also inside a handler. Fails with `SysErr` if the daemon is gone.
    pub fn send_request(&mut self, request: Request) -> Result<(), Code> {
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        member.request(request, Purpose::Ignored).map(drop)
    }

    /// Returns the reply if [`Task::progress`] has taken it in. `Reply::Error` becomes `Err`; the result is `SysErr` if
    /// the daemon is gone. Once the reply has been returned, the ticket cannot be used again.
    pub fn poll_reply(&mut self, ticket: &Ticket) -> Option<Result<Reply, Code>> {
        match &mut self.member {
            Some(member) => member.requests.poll(ticket.0),
            None => Some(Err(Code::SysErr)),
        }
    }

    /// Gives a request up: its reply is dropped.
    pub fn forget(&mut self, ticket: Ticket) {
        if let Some(member) = &mut self.member {
            member.requests.abandon(ticket.0);
        }
    }

    /// Drops a request that needs no reply any more.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if let Some(member) = &mut self.member {
            member.requests.cancel(ticket.0);
        }
    }

    /// Returns the request for `pvm_spawn`, with the context, the trace mask and the destination of output. `exported`
    /// holds `PVM_EXPORT=value`, followed by `NAME=value` for each variable that `PVM_EXPORT` names.
    pub fn spawn_request(
        &self,
        file: &[u8],
        arguments: &[&[u8]],
        flags: i32,
        place: &[u8],
        count: i32,
        exported: &[Vec<u8>],
    ) -> Result<Request, Code> {
        if count < 1 {
            return Err(Code::BadParam);
        }
        // As in PVM 3.4, `PvmTaskTrace` changes nothing: a collector gets the traces in any case.
        let children = self.state.settings.children.clone();
        let mut environment = vec![
            format!("PVMCTX={:#x}", self.state.context).into_bytes(),
            [b"PVMTMASK=", children.mask.as_slice()].concat(),
            format!("PVMTRCBUF={}", children.trace_buffer).into_bytes(),
            format!("PVMTRCOPT={}", children.trace_options).into_bytes(),
        ];
        environment.extend_from_slice(exported);
        environment
            .extend(self.state.settings.spawn_directories.iter().map(|places| [BESIDE_VARIABLE, places].concat()));
        Ok(Request::Spawn(Spawn {
            file: ByteBuf::from(file),
            arguments: arguments.iter().map(|argument| ByteBuf::from(*argument)).collect(),
            flags,
            place: ByteBuf::from(place),
            count,
            environment: environment.into_iter().map(ByteBuf::from).collect(),
            children,
        }))
    }

    /// Returns the message of a buffer in a form that the daemon can keep (`Request::PutInfo`). In-place data become
    /// raw data. Fails with `BadParam`, `NoSuchBuf` or `NoMem`.
    pub fn export_message(&self, mid: i32) -> Result<Message, Code> {
        let message = self.state.store.get(mid)?;
        let src = if message.src == 0 { self.own_tid() } else { message.src };
        Ok(Message {
            src: Tid(src as u32),
            dst: Tid(message.dst as u32),
            ctx: message.ctx,
            tag: message.tag,
            wid: message.wid,
            enc: if message.enc == ENC_IN_PLACE { OWN_DSIG } else { message.enc },
            format: message.format,
            body: ByteBuf::from(message.body()?),
        })
    }

    /// Makes an inactive buffer from a message of the daemon (`Reply::Info`).
    pub fn import_message(&mut self, from: Message) -> i32 {
        let store = &mut self.state.store;
        let slot = store.take_slot(SlotState::Buffer);
        let message = &mut store.table[slot as usize];
        (message.ctx, message.tag, message.wid, message.enc) = (from.ctx, from.tag, from.wid, from.enc);
        (message.format, message.src, message.dst) = (from.format, from.src.0 as i32, from.dst.0 as i32);
        message.set_body(from.body.into_vec());
        slot as i32 + 1
    }

    /// `pvm_getcontext`.
    pub fn context(&self) -> i32 {
        self.state.context
    }

    /// `pvm_setcontext`; returns the previous context.
    pub fn set_context(&mut self, ctx: i32) -> i32 {
        std::mem::replace(&mut self.state.context, ctx)
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
