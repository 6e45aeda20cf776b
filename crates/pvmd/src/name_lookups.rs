//! Look-ups of host names. A separate process serves each request, so that the daemon does not wait for a name server.
use crate::resolve;
use crate::source::Source;
use crate::watchdog::may_wait;
use pvm_core::codes::Code;
use pvm_core::wire::ResolvedHost;
use rustix::event::epoll::{self, EventFlags};
use std::collections::HashMap;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::rc::Rc;

/// The results for the names of one request, in order.
pub type Answers = Vec<Result<ResolvedHost, Code>>;

/// A look-up that runs.
struct NameLookup {
    child: Child,
    /// What the process has printed so far.
    text: Vec<u8>,
    names: usize,
}

/// The look-ups that run.
pub struct NameLookups {
    epoll: Rc<OwnedFd>,
    running: HashMap<u32, NameLookup>,
}

impl NameLookups {
    /// Starts without any look-up.
    pub fn new(epoll: Rc<OwnedFd>) -> NameLookups {
        NameLookups { epoll, running: HashMap::new() }
    }

    /// Begins to look names up. If no process could be started or watched, returns the answers at once.
    pub fn begin(&mut self, request: u32, names: &[String]) -> Option<Answers> {
        let Ok(child) = may_wait(|| resolve::command(names).spawn()) else { return Some(Vec::new()) };
        let output = child.stdout.as_ref().expect("the command has a pipe for its output").as_fd();
        let watched = epoll::add(&self.epoll, output, Source::NameLookup(request).data(), EventFlags::IN);
        self.running.insert(request, NameLookup { child, text: Vec::new(), names: names.len() });
        if watched.is_err() { self.read(request) } else { None }
    }

    /// Reads what a process has printed. Returns the answers when it has ended.
    pub fn read(&mut self, request: u32) -> Option<Answers> {
        let lookup = self.running.get_mut(&request)?;
        let mut data = [0; 4096];
        let count = lookup.child.stdout.as_mut().map_or(0, |output| output.read(&mut data).unwrap_or(0));
        lookup.text.extend_from_slice(&data[..count]);
        if count > 0 {
            return None;
        }
        let mut lookup = self.running.remove(&request)?;
        let _ = lookup.child.wait();
        Some(resolve::read_answers(&lookup.text, lookup.names))
    }
}
