//! Standard inputs of tasks, to which the daemon writes the data of requests.
use crate::source::Source;
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The daemon's end of the standard input of a task.
struct Input {
    pipe: OwnedFd,
    /// The bytes for the pipe, and how many of them the pipe has taken.
    data: ByteBuf,
    written: usize,
    /// Whether `epoll` reports when the pipe has room.
    is_watched: bool,
}

impl Input {
    /// Writes as much as the pipe takes. Returns whether that was all.
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

/// The daemon's ends of the standard inputs of tasks.
pub struct Inputs {
    epoll: Rc<OwnedFd>,
    pipes: HashMap<Tid, Input>,
}

impl Inputs {
    /// Starts without any pipe.
    pub fn new(epoll: Rc<OwnedFd>) -> Inputs {
        Inputs { epoll, pipes: HashMap::new() }
    }

    /// Adds the pipe of a task.
    pub fn insert(&mut self, tid: Tid, pipe: OwnedFd) {
        self.pipes.insert(tid, Input { pipe, data: ByteBuf::new(), written: 0, is_watched: false });
    }

    /// Closes the pipe of a task. Returns whether there was one.
    pub fn close(&mut self, tid: Tid) -> bool {
        self.pipes.remove(&tid).is_some()
    }

    /// Writes data to the standard input of a task; empty data closes it. Returns whether this succeeded, or `None`
    /// while part of the data waits for room in the pipe.
    pub fn write(&mut self, tid: Tid, data: ByteBuf) -> Option<bool> {
        if data.is_empty() {
            return Some(self.close(tid));
        }
        if let Some(input) = self.pipes.get_mut(&tid) {
            (input.data, input.written) = (data, 0);
        }
        self.continue_write(tid)
    }

    /// Writes the remaining data, as far as the pipe has room. Returns as [`Inputs::write`] does.
    pub fn continue_write(&mut self, tid: Tid) -> Option<bool> {
        let Some(input) = self.pipes.get_mut(&tid) else { return Some(false) };
        let taken = match input.write() {
            Ok(false) if input.is_watched => return None,
            Ok(false) => {
                let data = Source::Input(tid).data();
                input.is_watched = epoll::add(&self.epoll, &input.pipe, data, EventFlags::OUT).is_ok();
                if input.is_watched {
                    return None;
                }
                false
            }
            Ok(true) if input.is_watched => {
                input.is_watched = false;
                epoll::delete(&self.epoll, &input.pipe).is_ok()
            }
            Ok(true) => true,
            // Nobody reads the pipe any more.
            Err(_) => false,
        };
        if !taken {
            self.pipes.remove(&tid);
        }
        Some(taken)
    }
}
