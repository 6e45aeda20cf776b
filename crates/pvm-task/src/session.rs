//! A task for programs of one thread: calls that wait.
use crate::{EnrollError, Environment, Filter, OutputEvent, Task};
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::Tid;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A message taken out of the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The sender (`Tid::DAEMON` for the daemon).
    pub src: Tid,
    /// The context.
    pub ctx: i32,
    /// The tag.
    pub tag: i32,
    /// The wait id.
    pub wid: i32,
    /// `ENC_XDR` or a data signature.
    pub enc: i32,
    /// The body as it was sent.
    pub body: Vec<u8>,
}

/// A task with calls that wait.
pub struct Session {
    task: Task,
}

impl Session {
    /// Enrols; tries again for a while when the daemon does not answer.
    pub fn enroll(_environment: &Environment) -> Result<Session, EnrollError> {
        todo!()
    }
    /// The own tid.
    pub fn tid(&self) -> Tid {
        self.task.tid().unwrap_or(Tid::NONE)
    }
    /// The task underneath.
    pub fn task(&mut self) -> &mut Task {
        &mut self.task
    }
    /// Asks the daemon and waits for its answer. `Reply::Error` becomes `Err`.
    pub fn request(&mut self, _request: Request) -> Result<Reply, Code> {
        todo!()
    }
    /// Sends a body made with `pvm_core::encoding::Writer` (`ENC_XDR`).
    pub fn send(&mut self, _to: Tid, _ctx: i32, _tag: i32, _body: &[u8]) -> Result<(), Code> {
        todo!()
    }
    /// The oldest message that `filter` accepts; `None` when the time is over first.
    /// A `timeout` of zero looks once. `Err(SysErr)` when the daemon is gone and nothing can come.
    pub fn recv(&mut self, _filter: Filter, _timeout: Option<Duration>) -> Result<Option<Received>, Code> {
        todo!()
    }
    /// Output of children that has come. Does not wait.
    pub fn next_output(&mut self) -> Option<OutputEvent> {
        todo!()
    }
    /// Sleeps until something came for the task, one of `others` is readable (or at its end), or
    /// the time is over. The answer says which of `others` are ready. Returns at once when
    /// messages, output or news lie there already since the last `wait`.
    pub fn wait(&mut self, _others: &[BorrowedFd<'_>], _timeout: Option<Duration>) -> Vec<bool> {
        todo!()
    }
    /// Whether the daemon still is there.
    pub fn is_connected(&self) -> bool {
        self.task.is_connected()
    }
    /// Leaves the machine.
    pub fn leave(self) -> Result<(), Code> {
        todo!()
    }
}
