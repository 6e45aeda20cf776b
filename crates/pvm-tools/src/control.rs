//! The interface through which the commands use the machine; tests replace it.
use pvm_core::codes::Code;
use pvm_core::proto::{GroupPlace, Host, Message, Reply, Request, TaskInfo};
use pvm_core::tid::Tid;
use pvm_core::{codes, encoding};
use pvm_task::Session;
use serde_bytes::ByteBuf;
use std::time::Duration;

/// The class of mailbox entries for the tasks that a reset does not end.
pub const NO_RESET_CLASS: &str = "###_PVM_NO_RESET_###";

/// A task of the machine. Its requests may block until the answer arrives.
pub trait Control {
    /// Returns the tid of this task.
    fn tid(&self) -> Tid;
    /// Sends a request to the daemon and waits for the reply.
    fn ask(&mut self, request: Request) -> Result<Reply, Code>;
    /// Sends requests at once, and waits for the replies; `None` for each that has not come within the limit.
    fn ask_all(&mut self, requests: Vec<Request>, _limit: Duration) -> Vec<Option<Result<Reply, Code>>> {
        requests.into_iter().map(|request| Some(self.ask(request))).collect()
    }
    /// Lets time pass.
    fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Does what `pvm_getopt` does.
    fn option(&mut self, what: i32) -> Result<i32, Code>;
    /// Does what `pvm_setopt` does.
    fn set_option(&mut self, what: i32, value: i32) -> Result<i32, Code>;
    /// Sets the trace mask that spawned tasks inherit.
    fn set_child_trace_mask(&mut self, mask: &[u8]) -> Result<(), Code>;
    /// From now on, takes messages with this context and tag as output of jobs.
    fn collect_output(&mut self, context: i32, tag: i32);
    /// Returns the request that `pvm_spawn` would send, including the settings that children inherit.
    fn spawn_request(&mut self, call: &SpawnCall<'_>) -> Result<Request, Code>;
}

/// The arguments of `pvm_spawn`.
#[derive(Debug, Clone, Copy)]
pub struct SpawnCall<'a> {
    /// The program.
    pub file: &'a [u8],
    /// `argv[1]` and the following ones.
    pub arguments: &'a [&'a [u8]],
    /// The flags, `PvmTask...`.
    pub flags: i32,
    /// Host or architecture, and `:directory`.
    pub place: &'a [u8],
    /// The number of tasks.
    pub count: i32,
    /// `NAME=value` for the children.
    pub environment: &'a [Vec<u8>],
}

impl Control for Session {
    fn tid(&self) -> Tid {
        Session::tid(self)
    }
    fn ask(&mut self, request: Request) -> Result<Reply, Code> {
        self.request(request)
    }
    fn ask_all(&mut self, requests: Vec<Request>, limit: Duration) -> Vec<Option<Result<Reply, Code>>> {
        self.request_all(requests, limit)
    }
    fn option(&mut self, what: i32) -> Result<i32, Code> {
        match what == pvm_task::OptionNumber::NoReset as i32 {
            true => Ok(self.task().no_reset().is_some().into()),
            false => self.task().option(what),
        }
    }
    fn set_option(&mut self, what: i32, value: i32) -> Result<i32, Code> {
        match what == pvm_task::OptionNumber::NoReset as i32 {
            true => set_no_reset(self, value != 0),
            false => self.task().set_option(what, value),
        }
    }
    fn set_child_trace_mask(&mut self, mask: &[u8]) -> Result<(), Code> {
        self.task().set_trace_mask(true, mask)
    }
    fn collect_output(&mut self, context: i32, tag: i32) {
        self.task().collect_output(context, tag);
    }
    fn spawn_request(&mut self, call: &SpawnCall<'_>) -> Result<Request, Code> {
        self.task().spawn_request(call.file, call.arguments, call.flags, call.place, call.count, call.environment)
    }
}

/// Adds the task to those that a reset does not end, or removes it from them.
fn set_no_reset(session: &mut Session, on: bool) -> Result<i32, Code> {
    let before = session.task().no_reset();
    let name = ByteBuf::from(NO_RESET_CLASS);
    match (before, on) {
        (None, true) => {
            let body = encoding::Writer::new().int(session.tid().0 as i32).finish();
            let message = own_message(session.tid(), body);
            let index = put(session, Request::PutInfo { name, flags: codes::MBOX_MULTI_INSTANCE, message })?;
            session.task().set_no_reset(Some(index));
        }
        (Some(index), false) => {
            put(session, Request::DeleteInfo { name, index, flags: 0 })?;
            session.task().set_no_reset(None);
        }
        _ => {}
    }
    Ok(before.is_some().into())
}

fn put(control: &mut dyn Control, request: Request) -> Result<i32, Code> {
    match control.ask(request)? {
        Reply::Int(index) => Ok(index),
        _ => Err(Code::BadMsg),
    }
}

/// Returns a message that can be put into a mailbox.
pub fn own_message(tid: Tid, body: Vec<u8>) -> Message {
    Message { enc: codes::ENC_XDR, ..Message::new(tid, Tid::DAEMON, 0, 0, ByteBuf::from(body)) }
}

/// Returns the hosts and the number of data formats.
pub fn hosts(control: &mut dyn Control) -> Result<(Vec<Host>, i32), Code> {
    match control.ask(Request::Config)? {
        Reply::Hosts { hosts, formats } => Ok((hosts, formats)),
        _ => Err(Code::BadMsg),
    }
}

/// Returns where the barriers of all groups meet.
pub fn group_places(control: &mut dyn Control) -> Result<Vec<GroupPlace>, Code> {
    match control.ask(Request::GroupPlaces)? {
        Reply::GroupPlaces(places) => Ok(places),
        Reply::Error(code) => Err(code),
        _ => Err(Code::BadMsg),
    }
}

/// Returns the tasks on a host, or on all hosts for `Tid::NONE`.
pub fn tasks(control: &mut dyn Control, place: Tid) -> Result<Vec<TaskInfo>, Code> {
    match control.ask(Request::Tasks(place))? {
        Reply::Tasks(tasks) => Ok(tasks),
        _ => Err(Code::BadMsg),
    }
}
