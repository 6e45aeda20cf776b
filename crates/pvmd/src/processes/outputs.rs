//! The pipes that tasks print to.
use crate::source::{Source, Stream};
use pvm_core::tid::Tid;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The daemon's ends of the pipes that tasks print to.
pub struct Outputs {
    epoll: Rc<OwnedFd>,
    pipes: HashMap<(Tid, Stream), OwnedFd>,
    /// Pipes that are not watched because their collector does not keep up.
    paused: Vec<(Tid, Stream)>,
    /// Tasks whose pipes have all ended, and whether this was so at the last [`Outputs::take_closed`].
    closed: Vec<(Tid, bool)>,
}

impl Outputs {
    /// Starts without any pipe.
    pub fn new(epoll: Rc<OwnedFd>) -> Outputs {
        Outputs { epoll, pipes: HashMap::new(), paused: Vec::new(), closed: Vec::new() }
    }

    /// Adds a pipe that is watched already.
    pub fn insert(&mut self, tid: Tid, stream: Stream, pipe: OwnedFd) {
        self.pipes.insert((tid, stream), pipe);
    }

    /// Closes the pipes of a task.
    pub fn remove(&mut self, tid: Tid) {
        self.closed.retain(|(closed, _)| *closed != tid);
        Stream::ALL.iter().for_each(|stream| drop(self.pipes.remove(&(tid, *stream))));
    }

    /// Ceases to watch a pipe until its collector has caught up. The task waits when the pipe is full.
    pub fn pause(&mut self, tid: Tid, stream: Stream) {
        let Some(pipe) = self.pipes.get(&(tid, stream)) else { return };
        if epoll::delete(&self.epoll, pipe).is_ok() {
            self.paused.push((tid, stream));
        }
    }

    /// Resumes watching the paused pipes whose collector is not behind any more.
    pub fn resume(&mut self, mut is_behind: impl FnMut(Tid) -> bool) {
        for (tid, stream) in std::mem::take(&mut self.paused) {
            if is_behind(tid) {
                self.paused.push((tid, stream));
            } else if let Some(pipe) = self.pipes.get(&(tid, stream)) {
                // If the kernel has no memory for this, the pipe stays unread until the process ends.
                let _ = epoll::add(&self.epoll, pipe, Source::Output(tid, stream).data(), EventFlags::IN);
            }
        }
    }

    /// Returns whether a stream of a task can be read.
    pub fn is_open(&self, tid: Tid, stream: Stream) -> bool {
        self.pipes.contains_key(&(tid, stream))
    }

    /// Reads once and returns the number of bytes. Zero means that there are no more bytes for now. A pipe at its end
    /// is closed.
    pub fn read(&mut self, tid: Tid, stream: Stream, into: &mut [u8]) -> usize {
        let Some(pipe) = self.pipes.get(&(tid, stream)) else { return 0 };
        match rustix::io::read(pipe, into) {
            Ok(count) if count > 0 => return count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The pipe is at its end, or has a permanent error.
            _ => {
                self.pipes.remove(&(tid, stream));
                if !Stream::ALL.iter().any(|stream| self.is_open(tid, *stream)) {
                    self.closed.push((tid, false));
                }
            }
        }
        0
    }

    /// Returns the tasks whose pipes had all ended at the last call already: their processes go on without them. Most pipes
    /// end with their process, which is then removed before the next call.
    pub fn take_closed(&mut self) -> Vec<Tid> {
        let (old, new): (Vec<_>, Vec<_>) = std::mem::take(&mut self.closed).into_iter().partition(|(_, seen)| *seen);
        self.closed = new.into_iter().map(|(tid, _)| (tid, true)).collect();
        old.into_iter().map(|(tid, _)| tid).collect()
    }

    /// Returns how many pipes are open, and how many are paused.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.pipes.len(), self.paused.len())
    }
}
