//! The task.
use crate::{
    Delivered, Encoding, EnrollError, Environment, Filter, HandlerCall, Kind, MessageInfo, OutputEvent, Source, Submit,
    Ticket,
};
use pvm_core::codes::Code;
use pvm_core::proto::{Message, Reply, Request, TraceSettings};
use pvm_core::tid::Tid;
use std::os::fd::BorrowedFd;

/// One task: its buffers, its queue of messages, its place in the machine.
///
/// Made without a daemon by [`Task::new`]; buffers, options, contexts and handlers work at once
/// (the calls that the contract marks NE), the rest after [`Task::enroll`].
pub struct Task(());

/// Coming and going.
impl Task {
    /// A task that is not enrolled yet.
    pub fn new(_environment: &Environment) -> Task {
        todo!()
    }
    /// Joins the machine. One try; waits for the daemon's welcome. Buffers stay as they are.
    /// After [`Task::leave`] it can be called again and gives a new tid.
    pub fn enroll(&mut self, _environment: &Environment) -> Result<Tid, EnrollError> {
        todo!()
    }
    /// Whether it has a tid (also while the daemon is gone).
    pub fn is_enrolled(&self) -> bool {
        todo!()
    }
    /// Whether it is enrolled and the daemon is there.
    pub fn is_connected(&self) -> bool {
        todo!()
    }
    /// The own tid.
    pub fn tid(&self) -> Option<Tid> {
        todo!()
    }
    /// `pvm_parent`: the spawner, `NoParent` or `ParentNotSet`. `SysErr` when not enrolled.
    pub fn parent(&self) -> Result<Tid, Code> {
        todo!()
    }
    /// The host's data signature.
    pub fn dsig(&self) -> i32 {
        todo!()
    }
    /// The socket of the daemon with which the task talks (for `PVMSOCK`, messages).
    pub fn daemon_socket(&self) -> Option<&std::path::Path> {
        todo!()
    }
    /// The first half of `pvm_exit`: own-exit notifies become handler calls ([`Task::next_handler_call`]).
    pub fn begin_leave(&mut self) {
        todo!()
    }
    /// `pvm_exit`: drops queued messages and handlers, says goodbye, disconnects. `SysErr` when the
    /// daemon was gone already (the task is not enrolled afterwards either way).
    pub fn leave(&mut self) -> Result<(), Code> {
        todo!()
    }
    /// For a child of `fork()`: throws away what belongs to the parent without touching it.
    pub fn abandon(self) {
        todo!()
    }
}

/// Buffers (contract 2.1). None of these needs a daemon.
impl Task {
    /// `pvm_initsend`.
    pub fn init_send(&mut self, _encoding: i32) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_mkbuf`.
    pub fn make_buffer(&mut self, _encoding: i32) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_freebuf`.
    pub fn free_buffer(&mut self, _mid: i32) -> Result<(), Code> {
        todo!()
    }
    /// `pvm_getsbuf`: 0 for none.
    pub fn send_buffer(&self) -> i32 {
        todo!()
    }
    /// `pvm_getrbuf`: 0 for none.
    pub fn receive_buffer(&self) -> i32 {
        todo!()
    }
    /// `pvm_setsbuf`: the previous one.
    pub fn set_send_buffer(&mut self, _mid: i32) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_setrbuf`: the previous one.
    pub fn set_receive_buffer(&mut self, _mid: i32) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_getminfo`; `pvm_bufinfo` is `len`, `tag`, `src` of it.
    pub fn message_info(&self, _mid: i32) -> Result<MessageInfo, Code> {
        todo!()
    }
    /// `pvm_setminfo`: takes ctx, tag, wid, src, dst.
    pub fn set_message_info(&mut self, _mid: i32, _info: &MessageInfo) -> Result<(), Code> {
        todo!()
    }
    /// The encoding of the active send buffer; `NoBuf`.
    pub fn send_encoding(&self) -> Result<Encoding, Code> {
        todo!()
    }
    /// The encoding of the active receive buffer; `NoBuf`.
    pub fn receive_encoding(&self) -> Result<Encoding, Code> {
        todo!()
    }
}

/// Packing into the active send buffer.
impl Task {
    /// Items that lie one after another in native form; `items.len()` is a multiple of the kind's
    /// size. One copy where the encoding allows. `NoBuf`, `NoMem`; `NotImpl` into an in-place
    /// buffer (see [`Task::pack_in_place`]).
    pub fn pack(&mut self, _kind: Kind, _items: &[u8]) -> Result<(), Code> {
        todo!()
    }
    /// Items that lie elsewhere (strides): `fill(first, room)` writes items `first` and on in
    /// native form into `room`, as many as fit there.
    pub fn pack_with(
        &mut self,
        _kind: Kind,
        _count: usize,
        _fill: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), Code> {
        todo!()
    }
    /// A piece for an in-place buffer, to be read at each send. `BadParam` for other buffers.
    pub fn pack_in_place(&mut self, _source: Box<dyn Source>) -> Result<(), Code> {
        todo!()
    }
    /// A string without its closing zero. `NotImpl` in place.
    pub fn pack_string(&mut self, _text: &[u8]) -> Result<(), Code> {
        todo!()
    }
    /// `pvm_pkmesg`.
    pub fn pack_message(&mut self, _mid: i32) -> Result<(), Code> {
        todo!()
    }
    /// `pvm_pkmesgbody`.
    pub fn pack_message_body(&mut self, _mid: i32) -> Result<(), Code> {
        todo!()
    }
}

/// Unpacking from the active receive buffer.
impl Task {
    /// Fills `items` (native form, one after another). Past the end: `NoData`, whole items up to
    /// the end are stored, the position is at the end. `NoBuf`, `BadMsg` (foreign raw data).
    pub fn unpack(&mut self, _kind: Kind, _items: &mut [u8]) -> Result<(), Code> {
        todo!()
    }
    /// As [`Task::unpack`] for items that go elsewhere (strides): `store(first, items)` takes
    /// items `first` and on.
    pub fn unpack_with(
        &mut self,
        _kind: Kind,
        _count: usize,
        _store: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), Code> {
        todo!()
    }
    /// The length of the string that comes next, closing zero counted in. Moves nothing; the
    /// errors of `unpack` (then the position is at the end).
    pub fn string_bytes(&mut self) -> Result<usize, Code> {
        todo!()
    }
    /// Takes the string, closing zero included, into `text` of [`Task::string_bytes`] bytes.
    pub fn unpack_string(&mut self, _text: &mut [u8]) -> Result<(), Code> {
        todo!()
    }
    /// `pvm_upkmesg`: a new inactive buffer.
    pub fn unpack_message(&mut self) -> Result<i32, Code> {
        todo!()
    }
}

/// Sending. All of these check everything before anything is sent; see [`Submit`].
impl Task {
    /// `pvm_send` of the active send buffer.
    pub fn send(&mut self, _to: i32, _tag: i32) -> Result<Submit, Code> {
        todo!()
    }
    /// `pvm_mcast` of the active send buffer.
    pub fn multicast(&mut self, _to: &[i32], _tag: i32) -> Result<Submit, Code> {
        todo!()
    }
    /// `pvm_psend`.
    pub fn psend(&mut self, _to: i32, _tag: i32, _body: &[u8]) -> Result<Submit, Code> {
        todo!()
    }
    /// Sends a body made elsewhere in the default encoding, in any context, with any tag.
    pub fn send_body(&mut self, _to: Tid, _ctx: i32, _tag: i32, _wid: i32, _body: &[u8]) -> Result<Submit, Code> {
        todo!()
    }
}

/// Receiving. None of these waits: [`Task::progress`], try, wait ([`crate::Waiter`]), again.
impl Task {
    /// Takes in what has come: messages from the shared memory, frames from the daemon. No system
    /// call when nothing has come. Says how many messages, replies and so on came.
    pub fn progress(&mut self) -> usize {
        todo!()
    }
    /// Whether anything came since this was last asked (to wake other waiting threads).
    pub fn take_news(&mut self) -> bool {
        todo!()
    }
    /// The filter for a receive in the current context.
    pub fn filter(&self, _src: i32, _tag: i32) -> Filter {
        todo!()
    }
    /// Frees the active receive buffer, as `pvm_recv`, `pvm_nrecv`, `pvm_trecv` do first.
    pub fn drop_receive_buffer(&mut self) {
        todo!()
    }
    /// Takes the oldest message that fits out of the queue and makes it the active receive buffer.
    pub fn receive(&mut self, _filter: &Filter) -> Option<i32> {
        todo!()
    }
    /// `pvm_probe`: the oldest message that fits; it stays queued.
    pub fn probe(&mut self, _filter: &Filter) -> Option<i32> {
        todo!()
    }
    /// The queued messages in the order of their arrival: mid, sender, tag (for `pvm_recvf`).
    pub fn queued(&self) -> impl Iterator<Item = (i32, i32, i32)> + '_ {
        std::iter::empty()
    }
    /// Takes that message out of the queue and makes it the active receive buffer.
    pub fn take_queued(&mut self, _mid: i32) -> bool {
        todo!()
    }
    /// Says that `pvm_precv` waits for `room` bytes, so that senders can hand long data over
    /// directly. Ends with [`Task::end_precv`].
    pub fn begin_precv(&mut self, _filter: &Filter, _room: usize) {
        todo!()
    }
    /// One try of `pvm_precv` (it polls by itself): the oldest fitting message, its first bytes
    /// into `data`.
    pub fn try_precv(&mut self, _filter: &Filter, _data: &mut [u8]) -> Option<Delivered> {
        todo!()
    }
    /// See [`Task::begin_precv`].
    pub fn end_precv(&mut self) {
        todo!()
    }
}

/// Contexts and message handlers (contract 2.4).
impl Task {
    /// `pvm_getcontext`.
    pub fn context(&self) -> i32 {
        todo!()
    }
    /// `pvm_setcontext`: the previous one.
    pub fn set_context(&mut self, _ctx: i32) -> i32 {
        todo!()
    }
    /// `pvm_addmhf`; `function` is given back in [`HandlerCall`].
    pub fn add_handler(&mut self, _src: i32, _tag: i32, _ctx: i32, _function: u64) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_delmhf`.
    pub fn delete_handler(&mut self, _id: i32) -> Result<(), Code> {
        todo!()
    }
    /// A handler that has to run. `None` while one runs. Buffers and context are those of the
    /// handler until [`Task::handler_done`].
    pub fn next_handler_call(&mut self) -> Option<HandlerCall> {
        todo!()
    }
    /// The handler has run: its buffers are freed, the caller's are back.
    pub fn handler_done(&mut self) {
        todo!()
    }
    /// Whether a handler runs: blocking calls give `NotImpl`, nrecv and probe 0.
    pub fn in_handler(&self) -> bool {
        todo!()
    }
    /// The handlers: id, sender, tag, context (for `pvmdisplaymhfinfo`).
    pub fn handlers(&self) -> impl Iterator<Item = (i32, i32, i32, i32)> + '_ {
        std::iter::empty()
    }
}

/// Requests to the daemon.
impl Task {
    /// Sends a request. `SysErr` without a daemon, `NotImpl` inside a handler.
    pub fn begin(&mut self, _request: Request) -> Result<Ticket, Code> {
        todo!()
    }
    /// The answer if it has come (after [`Task::progress`]). `Reply::Error` becomes `Err`; a daemon
    /// that is gone gives `SysErr`. After the answer the ticket is spent.
    pub fn poll_reply(&mut self, _ticket: &Ticket) -> Option<Result<Reply, Code>> {
        todo!()
    }
    /// `pvm_spawn`'s request: adds context, trace mask and where output goes.
    /// `exported` are `NAME=value` of the variables in `PVM_EXPORT`, with `PVM_EXPORT=` first.
    pub fn spawn_request(
        &self,
        _file: &[u8],
        _arguments: &[&[u8]],
        _flags: i32,
        _place: &[u8],
        _count: i32,
        _exported: &[Vec<u8>],
    ) -> Result<Request, Code> {
        todo!()
    }
    /// `pvm_notify`: checks, and does what is local to the process (own exit, routes). The request
    /// for the rest, if there is a rest.
    pub fn notify(&mut self, _what: i32, _tag: i32, _count: i32, _tids: &[i32]) -> Result<Option<Request>, Code> {
        todo!()
    }
    /// The message of a buffer in a form that the daemon can keep (`Request::PutInfo`); in-place
    /// data become raw data. `BadParam`, `NoSuchBuf`.
    pub fn export_message(&self, _mid: i32) -> Result<Message, Code> {
        todo!()
    }
    /// Makes a buffer of a message that the daemon gave (`Reply::Info`); not active yet.
    pub fn import_message(&mut self, _message: Message) -> i32 {
        todo!()
    }
}

/// Options (contract 2.9) and traces.
impl Task {
    /// `pvm_setopt`: the previous value. `NoReset` apart, which needs mailboxes (see
    /// [`Task::set_no_reset`]). Changes of own output are told to the daemon.
    pub fn set_option(&mut self, _what: i32, _value: i32) -> Result<i32, Code> {
        todo!()
    }
    /// `pvm_getopt`.
    pub fn option(&self, _what: i32) -> Result<i32, Code> {
        todo!()
    }
    /// The index of the own entry in the mailbox class of those that a reset spares.
    pub fn no_reset(&self) -> Option<i32> {
        todo!()
    }
    /// Remembers that index.
    pub fn set_no_reset(&mut self, _index: Option<i32>) {
        todo!()
    }
    /// Where own output and traces go (`pvmtrc`).
    pub fn own_settings(&self) -> &TraceSettings {
        todo!()
    }
    /// Where children's output and traces go (`pvmctrc`).
    pub fn child_settings(&self) -> &TraceSettings {
        todo!()
    }
    /// `pvm_settmask` for oneself (`false`) or children (`true`).
    pub fn set_trace_mask(&mut self, _children: bool, _mask: &[u8]) -> Result<(), Code> {
        todo!()
    }
    /// The resource manager, or `Tid::NONE`.
    pub fn resource_manager(&self) -> Tid {
        todo!()
    }
}

/// Output of children (contract 2.8).
impl Task {
    /// From now on, messages to this context and tag are output of children: they are not queued
    /// but come by [`Task::next_output`]. Does not change where children's output goes.
    pub fn collect_output(&mut self, _ctx: i32, _tag: i32) {
        todo!()
    }
    /// `pvm_catchout(non-NULL)`: children spawned from now on send their output here.
    pub fn catch_output(&mut self) {
        todo!()
    }
    /// `pvm_catchout(NULL)`: later children do not.
    pub fn stop_catching_output(&mut self) {
        todo!()
    }
    /// What came of the output of children.
    pub fn next_output(&mut self) -> Option<OutputEvent> {
        todo!()
    }
    /// How many collected tasks have not ended.
    pub fn collecting(&self) -> usize {
        todo!()
    }
}

/// Descriptors.
impl Task {
    /// The control socket and the doorbell, for `pvm_getfds` and `poll(2)`.
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; 2]> {
        todo!()
    }
}
