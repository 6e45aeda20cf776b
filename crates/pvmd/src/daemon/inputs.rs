//! Standard input of tasks that comes by requests.
use super::{Daemon, Source};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The daemon's end of the standard input of a task.
pub struct Input {
    pipe: OwnedFd,
    /// What the pipe has to take, and how much it has taken.
    data: ByteBuf,
    written: usize,
    /// `epoll` tells when it can take more.
    waits: bool,
}

impl Input {
    /// Nothing has come yet.
    pub fn new(pipe: OwnedFd) -> Input {
        Input { pipe, data: ByteBuf::new(), written: 0, waits: false }
    }

    /// Writes what the pipe takes; whether that was all.
    fn write(&mut self) -> Result<bool, Errno> {
        while let Some(rest) = self.data.get(self.written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.pipe, rest) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }
}

impl Daemon {
    /// Something for the standard input of a task, or its end.
    pub(super) fn take_input(&mut self, tid: Tid, data: ByteBuf) {
        if data.is_empty() {
            let closed = self.inputs.remove(&tid).is_some();
            return self.machine.handle_input_taken(tid, closed);
        }
        if let Some(input) = self.inputs.get_mut(&tid) {
            (input.data, input.written) = (data, 0);
        }
        self.write_input(tid);
    }

    /// Writes as much as the pipe takes, and the rest when it takes more.
    pub(super) fn write_input(&mut self, tid: Tid) {
        let Some(input) = self.inputs.get_mut(&tid) else { return self.machine.handle_input_taken(tid, false) };
        let taken = match input.write() {
            Ok(false) if input.waits => return,
            Ok(false) => {
                input.waits = epoll::add(&self.epoll, &input.pipe, Source::Input(tid).data(), EventFlags::OUT).is_ok();
                if input.waits {
                    return;
                }
                false
            }
            Ok(true) if input.waits => {
                input.waits = false;
                epoll::delete(&self.epoll, &input.pipe).is_ok()
            }
            Ok(true) => true,
            // Nobody reads it any more.
            Err(_) => false,
        };
        if !taken {
            self.inputs.remove(&tid);
        }
        self.machine.handle_input_taken(tid, taken);
    }
}
