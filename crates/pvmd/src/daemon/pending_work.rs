//! Work that the loop has put off: frames of peers that have used up their budget, sockets that take no descriptors,
//! new connections for which there is no descriptor, and tasks that enroll before it is known that they were started.
use pvm_core::machine::Connection;
use pvm_core::proto::Hello;
use pvm_core::tid::Tid;
use pvm_link::DESCRIPTOR_PAUSE;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The pause in accepting after there was no descriptor or no memory for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The pause after which it is looked again whether the start of a task has a result.
const HELLO_PAUSE: Duration = Duration::from_millis(2);

/// The work that is continued without an event from the system.
pub struct PendingWork {
    /// Connections with frames that have been read but not handled.
    connections: BTreeSet<Connection>,
    /// Hosts with frames that have been read but not handled.
    hosts: BTreeSet<Tid>,
    /// Connections whose socket takes no descriptors now.
    descriptor_limited: BTreeSet<Connection>,
    next_descriptor_try: Instant,
    /// No connection is accepted before this time.
    accepts_from: Option<Instant>,
    /// The first frames of tasks whose start has no result yet.
    hellos: Vec<EarlyHello>,
}

/// The first frame of a task, with its descriptors.
type EarlyHello = (Connection, Hello, Vec<OwnedFd>);

impl PendingWork {
    /// Starts with nothing put off.
    pub fn new() -> PendingWork {
        PendingWork {
            connections: BTreeSet::new(),
            hosts: BTreeSet::new(),
            descriptor_limited: BTreeSet::new(),
            next_descriptor_try: Instant::now(),
            accepts_from: None,
            hellos: Vec::new(),
        }
    }

    /// Puts off the frames of a connection.
    pub fn add_connection(&mut self, connection: Connection) {
        self.connections.insert(connection);
    }

    /// Returns whether frames of a connection have been put off.
    pub fn has_connection(&self, connection: Connection) -> bool {
        self.connections.contains(&connection)
    }

    /// Takes the connections whose frames were put off.
    pub fn take_connections(&mut self) -> BTreeSet<Connection> {
        std::mem::take(&mut self.connections)
    }

    /// Puts off the frames of a host.
    pub fn add_host(&mut self, host: Tid) {
        self.hosts.insert(host);
    }

    /// Returns whether frames of a host have been put off.
    pub fn has_host(&self, host: Tid) -> bool {
        self.hosts.contains(&host)
    }

    /// Takes the hosts whose frames were put off.
    pub fn take_hosts(&mut self) -> BTreeSet<Tid> {
        std::mem::take(&mut self.hosts)
    }

    /// Plans to flush a connection again after a pause.
    pub fn add_descriptor_limited(&mut self, connection: Connection) {
        self.descriptor_limited.insert(connection);
    }

    /// Takes the connections that are to be flushed again, if the pause is over.
    pub fn take_descriptor_limited(&mut self, now: Instant) -> BTreeSet<Connection> {
        if self.descriptor_limited.is_empty() || now < self.next_descriptor_try {
            return BTreeSet::new();
        }
        self.next_descriptor_try = now + DESCRIPTOR_PAUSE;
        std::mem::take(&mut self.descriptor_limited)
    }

    /// Puts off the first frame of a task. A second one of the same connection is dropped.
    pub fn add_hello(&mut self, connection: Connection, hello: Hello, descriptors: Vec<OwnedFd>) {
        if self.hellos.iter().all(|(other, ..)| *other != connection) {
            self.hellos.push((connection, hello, descriptors));
        }
    }

    /// Takes the first frames of tasks that were put off.
    pub fn take_hellos(&mut self) -> Vec<EarlyHello> {
        std::mem::take(&mut self.hellos)
    }

    /// Begins a pause in accepting connections.
    pub fn pause_accepting(&mut self, now: Instant) {
        self.accepts_from = Some(now + ACCEPT_PAUSE);
    }

    /// Ends the pause in accepting connections if it is over. Returns whether it has ended now.
    pub fn resume_accepting(&mut self, now: Instant) -> bool {
        self.accepts_from.take_if(|from| *from <= now).is_some()
    }

    /// Returns how long the loop may sleep at most.
    pub fn sleep_max(&self) -> Option<Duration> {
        if !(self.connections.is_empty() && self.hosts.is_empty()) {
            return Some(Duration::ZERO);
        }
        let descriptors = (!self.descriptor_limited.is_empty()).then_some(DESCRIPTOR_PAUSE);
        let hellos = (!self.hellos.is_empty()).then_some(HELLO_PAUSE);
        descriptors.into_iter().chain(self.accepts_from.map(|_| ACCEPT_PAUSE)).chain(hellos).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::proto::TaskKind;

    #[test]
    fn frames_that_were_put_off_keep_the_loop_awake_and_descriptors_wait_for_a_pause() {
        let mut work = PendingWork::new();
        assert_eq!(work.sleep_max(), None);
        work.add_descriptor_limited(7);
        assert_eq!(work.sleep_max(), Some(DESCRIPTOR_PAUSE));
        let now = Instant::now();
        assert_eq!(work.take_descriptor_limited(now), BTreeSet::from([7]));
        work.add_descriptor_limited(7);
        assert!(work.take_descriptor_limited(now).is_empty(), "the pause is not over");
        assert_eq!(work.take_descriptor_limited(now + DESCRIPTOR_PAUSE), BTreeSet::from([7]));
        work.pause_accepting(now);
        assert!(!work.resume_accepting(now) && work.sleep_max() == Some(ACCEPT_PAUSE));
        assert!(work.resume_accepting(now + ACCEPT_PAUSE) && !work.resume_accepting(now + ACCEPT_PAUSE));
        assert_eq!(work.sleep_max(), None);
        let hello = Hello { version: 0, pid: 1, cookie: Some(7), name: Default::default(), kind: TaskKind::Program };
        for connection in [3, 4, 3] {
            work.add_hello(connection, hello.clone(), Vec::new());
        }
        assert_eq!(work.sleep_max(), Some(HELLO_PAUSE));
        assert_eq!(work.take_hellos().into_iter().map(|(connection, ..)| connection).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(work.sleep_max(), None);
        work.add_connection(3);
        work.add_host(Tid(0x80000));
        assert!(work.has_connection(3) && !work.has_connection(7) && work.has_host(Tid(0x80000)));
        assert_eq!((work.take_connections(), work.sleep_max()), (BTreeSet::from([3]), Some(Duration::ZERO)));
        assert_eq!((work.take_hosts().len(), work.sleep_max()), (1, None));
    }
}
