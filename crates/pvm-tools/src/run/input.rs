//! `pvm run --stdin`: the own standard input for the first task.
use pvm_core::proto::{ByteBuf, INPUT_BYTES_MAX, Request};
use pvm_core::tid::Tid;
use pvm_task::{Session, Ticket};
use std::io::Read;

/// Input on its way to a task.
pub struct Input {
    task: Tid,
    /// The task has not taken the last of it.
    sent: Option<Ticket>,
    at_end: bool,
}

impl Input {
    /// For that task.
    pub fn new(task: Tid) -> Input {
        Input { task, sent: None, at_end: false }
    }

    /// Whether more can be passed on.
    pub fn wants(&self) -> bool {
        self.sent.is_none() && !self.at_end
    }

    /// Passes on what there is to read, or that there is no more.
    pub fn pass_on(&mut self, session: &mut Session) {
        let mut data = vec![0; INPUT_BYTES_MAX];
        // What cannot be read has ended.
        let count = std::io::stdin().lock().read(&mut data).unwrap_or(0);
        data.truncate(count);
        self.at_end = count == 0;
        self.sent = session.task().begin(Request::Input { tid: self.task, data: ByteBuf::from(data) }).ok();
    }

    /// Looks whether the task has taken what it was sent.
    pub fn take_answer(&mut self, session: &mut Session) {
        let Some(answer) = self.sent.as_ref().and_then(|ticket| session.task().poll_reply(ticket)) else { return };
        self.sent = None;
        // It reads no more.
        self.at_end |= answer.is_err();
    }
}
