//! Look-ups of host names. A separate process serves each request, so that the daemon does not wait for a name server.
use crate::background_command::BackgroundCommand;
use crate::resolve;
use crate::source::Source;
use pvm_core::codes::Code;
use pvm_core::wire::ResolvedHost;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The results for the names of one request, in order.
pub type Answers = Vec<Result<ResolvedHost, Code>>;

/// A look-up that runs.
struct NameLookup {
    command: BackgroundCommand,
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
        let started = BackgroundCommand::start(resolve::command(names), true, b"");
        let watched = started.and_then(|command| command.watched(&self.epoll, Source::NameLookup(request).data()));
        let Ok(command) = watched else { return Some(Vec::new()) };
        self.running.insert(request, NameLookup { command, text: Vec::new(), names: names.len() });
        None
    }

    /// Reads what a process has printed. Returns the answers when it has ended.
    pub fn read(&mut self, request: u32) -> Option<Answers> {
        let lookup = self.running.get_mut(&request)?;
        // The status is read first: all that a process has printed that has ended is read below.
        let has_ended = !matches!(lookup.command.status(), Ok(None));
        lookup.text.extend(lookup.command.output.read());
        lookup.command.errors.read();
        if !has_ended {
            return None;
        }
        let lookup = self.running.remove(&request)?;
        Some(resolve::read_answers(&lookup.text, lookup.names))
    }
}
