//! Requests to the daemon and their replies.
use super::Task;
use crate::envelope::Envelope;
use crate::message::OWN_DSIG;
use crate::requests::Purpose;
use crate::types::Ticket;
use pvm_core::codes::{Code, ENC_IN_PLACE, MBOX_WAIT_FOR_INFO};
use pvm_core::machine::BESIDE_VARIABLE;
use pvm_core::proto::{ByteBuf, Message, Reply, Request, Spawn};
use pvm_core::state_line::{Call, Label};
use pvm_core::tid::Tid;

/// Returns the wait for the reply to a request, for the state line.
pub fn call_of(request: &Request) -> Call {
    match request {
        Request::Spawn(_) | Request::Siblings => Call::Spawn,
        Request::AddHosts(_) | Request::DeleteHosts(_) | Request::DrainHosts { .. } | Request::AwaitHosts => {
            Call::Hosts
        }
        Request::FreezeGroup { name, count } => Call::Freeze { group: Label::new(name), count: *count },
        Request::RecvInfo { name, flags, .. } if flags & MBOX_WAIT_FOR_INFO != 0 => Call::Mailbox(Label::new(name)),
        _ => Call::Daemon,
    }
}

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

    /// Forgets a request. Its reply is dropped.
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
        let slot = store.new_message(&Envelope::of_daemon(&from));
        store.table[slot as usize].set_body(from.body.into_vec());
        slot as i32 + 1
    }

    /// `pvm_notify`: checks the arguments and registers the notifies that are local to the process (own exit, routes).
    /// Returns the request to the daemon for all other notifies, if there are any.
    pub fn notify(&mut self, what: i32, tag: i32, count: i32, tids: &[i32]) -> Result<Option<Request>, Code> {
        let member = &self.member;
        let has_route = |peer| member.as_ref().is_some_and(|member| member.has_route(peer));
        self.state.notify((what, tag, count), tids, has_route)
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
