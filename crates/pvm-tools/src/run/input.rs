//! `pvm run --stdin`: passes the standard input to one task or to all.
use pvm_core::proto::{ByteBuf, INPUT_BYTES_MAX, Request};
use pvm_core::tid::Tid;
use pvm_task::{Session, Ticket};
use std::io::Read;

/// The input that is being passed to tasks.
pub struct Input {
    /// The tasks that still read, each with the request that passes on the last part, as long as the task has not
    /// accepted this part.
    readers: Vec<(Tid, Option<Ticket>)>,
    at_end: bool,
}

impl Input {
    /// Makes the input of these tasks; `None` if there is no task.
    pub fn new(tasks: &[Tid]) -> Option<Input> {
        let readers: Vec<_> = tasks.iter().map(|tid| (*tid, None)).collect();
        (!readers.is_empty()).then_some(Input { readers, at_end: false })
    }

    /// Returns whether more input can be passed on now: each task has accepted the last part.
    pub fn can_read(&self) -> bool {
        !self.at_end && self.readers.iter().all(|(_, sent)| sent.is_none())
    }

    /// Reads a part of the input and sends it to the tasks, or reports the end of the input.
    pub fn pass_on(&mut self, session: &mut Session) {
        let mut data = vec![0; INPUT_BYTES_MAX];
        // A read error counts as the end of the input.
        let count = std::io::stdin().lock().read(&mut data).unwrap_or(0);
        data.truncate(count);
        self.at_end = count == 0;
        for (tid, sent) in &mut self.readers {
            *sent = session.task().begin(Request::Input { tid: *tid, data: ByteBuf::from(data.clone()) }).ok();
        }
    }

    /// Checks which tasks have accepted the last part. Forgets tasks that read no more.
    pub fn take_answers(&mut self, session: &mut Session) {
        self.readers.retain_mut(|(_, sent)| {
            let Some(answer) = sent.as_ref().and_then(|ticket| session.task().poll_reply(ticket)) else { return true };
            *sent = None;
            answer.is_ok()
        });
        self.at_end |= self.readers.is_empty();
    }
}
