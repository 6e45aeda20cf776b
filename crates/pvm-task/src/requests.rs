//! Requests to the daemon.
use crate::control::Fate;
use crate::message::{OWN_DSIG, SlotState};
use crate::{Task, Ticket};
use pvm_core::codes::{Code, ENC_IN_PLACE};
use pvm_core::machine::BESIDE_VARIABLE;
use pvm_core::proto::{ByteBuf, Message, Reply, Request, Spawn};
use pvm_core::tid::Tid;

/// Requests to the daemon.
impl Task {
    /// Sends a request. `SysErr` without a daemon, `NotImpl` inside a handler.
    pub fn begin(&mut self, request: Request) -> Result<Ticket, Code> {
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let member = self.member.as_mut().ok_or(Code::SysErr)?;
        member.request(request, Fate::PostedReceive).map(Ticket)
    }

    /// Sends a request whose answer nobody needs.
    pub(crate) fn begin_unheeded(&mut self, request: Request) {
        if let Some(member) = &mut self.member {
            // Without a daemon there is nobody to tell.
            let _ = member.request(request, Fate::Unheeded);
        }
    }

    /// The answer if it has come (after [`Task::progress`]). `Reply::Error` becomes `Err`; a daemon
    /// that is gone gives `SysErr`. After the answer the ticket is spent.
    pub fn poll_reply(&mut self, ticket: &Ticket) -> Option<Result<Reply, Code>> {
        let Some(member) = &mut self.member else { return Some(Err(Code::SysErr)) };
        let Some(at) = member.requests.iter().position(|(wait, _)| *wait == ticket.0) else {
            return Some(Err(Code::SysErr));
        };
        if matches!(member.requests[at].1, Fate::PostedReceive) {
            return None;
        }
        match member.requests.swap_remove(at).1 {
            Fate::Here(Reply::Error(code)) => Some(Err(code)),
            Fate::Here(reply) => Some(Ok(reply)),
            _ => Some(Err(Code::SysErr)),
        }
    }

    /// Gives a request up: its answer, when it comes, is dropped.
    pub fn forget(&mut self, ticket: Ticket) {
        let Some(member) = &mut self.member else { return };
        if let Some(at) = member.requests.iter().position(|(wait, _)| *wait == ticket.0) {
            match member.requests[at].1 {
                Fate::PostedReceive => member.requests[at].1 = Fate::Unheeded,
                _ => drop(member.requests.swap_remove(at)),
            }
        }
    }

    /// `pvm_spawn`'s request: adds context, trace mask and where output goes.
    /// `exported` are `NAME=value` of the variables in `PVM_EXPORT`, with `PVM_EXPORT=` first.
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
        // As in PVM 3.4, `PvmTaskTrace` changes nothing: where there is a collector, it gets the traces.
        let children = self.state.settings.children.clone();
        let mut environment = vec![
            format!("PVMCTX={:#x}", self.state.context).into_bytes(),
            [b"PVMTMASK=", children.mask.as_slice()].concat(),
            format!("PVMTRCBUF={}", children.trace_buffer).into_bytes(),
            format!("PVMTRCOPT={}", children.trace_options).into_bytes(),
        ];
        environment.extend_from_slice(exported);
        environment.extend(self.state.settings.beside.iter().map(|places| [BESIDE_VARIABLE, places].concat()));
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

    /// The message of a buffer in a form that the daemon can keep (`Request::PutInfo`); in-place
    /// data become raw data. `BadParam`, `NoSuchBuf`, `NoMem`.
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

    /// Makes a buffer of a message that the daemon gave (`Reply::Info`); not active yet.
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

    /// `pvm_setcontext`: the previous one.
    pub fn set_context(&mut self, ctx: i32) -> i32 {
        std::mem::replace(&mut self.state.context, ctx)
    }
}
