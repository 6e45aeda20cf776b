//! Searches for programs, each in a thread of its own: the daemon's loop must not wait for a file system that does not
//! answer.
use crate::source::Source;
use pvm_core::codes::Code;
use pvm_core::machine::{Found, SpawnId};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Searches at a time.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: none, since a search ends at once unless a file system does not answer
/// * Reached: further searches wait until one has ended, and their spawns fail if that takes too long
/// * Test: `more_searches_than_threads_wait_for_one_another`
const SEARCHES_MAX: usize = 64;
/// The stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// A search that is to be made.
pub type Search = Box<dyn FnOnce() -> Result<Found, Code> + Send>;

/// The result of a search, or why no thread could be had for it.
type Outcome = (SpawnId, io::Result<Result<Found, Code>>);

/// The searches of a daemon.
pub struct ProgramSearches {
    /// Readable when a search has ended.
    bell: Arc<OwnedFd>,
    sender: Sender<Outcome>,
    outcomes: Receiver<Outcome>,
    running: usize,
    waiting: VecDeque<(SpawnId, Search)>,
}

impl ProgramSearches {
    /// Begins without a search.
    pub fn new(epoll: &OwnedFd) -> io::Result<ProgramSearches> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(epoll, &bell, Source::Searches.data(), EventFlags::IN)?;
        let (sender, outcomes) = channel();
        Ok(ProgramSearches { bell, sender, outcomes, running: 0, waiting: VecDeque::new() })
    }

    /// Begins a search; [`ProgramSearches::take_ended`] tells the result.
    pub fn begin(&mut self, spawn: SpawnId, search: Search) {
        self.waiting.push_back((spawn, search));
        self.begin_waiting();
    }

    /// Returns the results since the last call.
    pub fn take_ended(&mut self) -> Vec<Outcome> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let ended: Vec<Outcome> = self.outcomes.try_iter().collect();
        self.running -= ended.len();
        self.begin_waiting();
        ended
    }

    fn begin_waiting(&mut self) {
        while self.running < SEARCHES_MAX {
            let Some((spawn, search)) = self.waiting.pop_front() else { return };
            self.running += 1;
            let (sender, bell) = (self.sender.clone(), self.bell.clone());
            let look = move || tell(&sender, &bell, (spawn, Ok(search())));
            if let Err(error) = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(look) {
                tell(&self.sender, &self.bell, (spawn, Err(error)));
            }
        }
    }
}

fn tell(sender: &Sender<Outcome>, bell: &OwnedFd, outcome: Outcome) {
    // There is no receiver if the daemon has ended.
    if sender.send(outcome).is_ok() {
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::tid::Tid;
    use rustix::event::epoll::CreateFlags;
    use std::time::{Duration, Instant};

    #[test]
    fn more_searches_than_threads_wait_for_one_another() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let mut searches = ProgramSearches::new(&epoll).unwrap();
        let (go, gone) = channel::<()>();
        let gone = Arc::new(std::sync::Mutex::new(gone));
        for number in 0..SEARCHES_MAX as u32 + 3 {
            let gone = gone.clone();
            let search = move || gone.lock().unwrap().recv().map_or(Err(Code::NoFile), |()| Err(Code::SysErr));
            searches.begin(SpawnId { host: Tid::host_number(1), number }, Box::new(search));
        }
        assert_eq!((searches.running, searches.waiting.len()), (SEARCHES_MAX, 3));
        drop(go);
        let (mut numbers, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while numbers.len() < SEARCHES_MAX + 3 {
            assert!(Instant::now() < end, "{} have ended", numbers.len());
            numbers.extend(searches.take_ended().into_iter().map(|(spawn, result)| {
                assert_eq!(result.unwrap(), Err(Code::NoFile));
                spawn.number
            }));
            std::thread::sleep(Duration::from_millis(1));
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..SEARCHES_MAX as u32 + 3).collect::<Vec<_>>());
        assert_eq!(searches.running, 0);
    }
}
