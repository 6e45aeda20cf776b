//! `pvm run --stdin`: passes the standard input to the first task.
use pvm_core::proto::{ByteBuf, INPUT_BYTES_MAX, Request};
use pvm_core::tid::Tid;
use pvm_task::{Session, Ticket};
use std::io::Read;

/// The input that is being passed to a task.
pub struct Input {
    task: Tid,
    /// The request that passes on the last part, as long as the task has not accepted it.
    sent: Option<Ticket>,
    at_end: bool,
}

impl Input {
    /// Makes the input of this task.
    pub fn new(task: Tid) -> Input {
        Input { task, sent: None, at_end: false }
    }

    /// Returns whether more input can be passed on now.
    pub fn can_read(&self) -> bool {
        self.sent.is_none() && !self.at_end
    }

    /// Reads a part of the input and sends it to the task, or reports the end of the input.
    pub fn pass_on(&mut self, session: &mut Session) {
        let mut data = vec![0; INPUT_BYTES_MAX];
        // A read error counts as the end of the input.
        let count = std::io::stdin().lock().read(&mut data).unwrap_or(0);
        data.truncate(count);
        self.at_end = count == 0;
        self.sent = session.task().begin(Request::Input { tid: self.task, data: ByteBuf::from(data) }).ok();
    }

    /// Checks whether the task has accepted the last part.
    pub fn take_answer(&mut self, session: &mut Session) {
        let Some(answer) = self.sent.as_ref().and_then(|ticket| session.task().poll_reply(ticket)) else { return };
        self.sent = None;
        // The task reads no more.
        self.at_end |= answer.is_err();
    }
}
