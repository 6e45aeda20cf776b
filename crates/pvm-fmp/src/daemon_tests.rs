//! A task and the daemon as its peer.
use super::*;

pub(crate) const DAEMON: u32 = 0x40000;

pub(crate) fn pair(host: &Host) -> (Endpoint, Endpoint) {
    host.table.set(DAEMON);
    let (mut daemon, mut task) = (host.endpoint(DAEMON), host.endpoint(A));
    introduce(&mut daemon, A, &task);
    introduce(&mut task, DAEMON, &daemon);
    (daemon, task)
}

/// Returns a block with these bytes.
pub(crate) fn block_of(endpoint: &mut Endpoint, bytes: &[u8]) -> Block {
    let block = endpoint.allocate(bytes.len()).unwrap();
    block.write(0, bytes);
    block
}

fn rung(endpoint: &Endpoint) -> bool {
    let bell = endpoint.bell();
    let mut fds = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn a_borrowed_payload_is_free_when_its_entry_has_been_read() {
    let host = Host::new();
    let (mut daemon, mut task) = pair(&host);
    let long = body(100_000, 1);
    let block = block_of(&mut daemon, &long);
    assert_eq!(daemon.send_borrowed(A, [1, 2, 3, 4, 5, 0x80001], &block, long.len(), false), Ok(Sent::Done));
    let mark = daemon.written(A);
    assert!(!daemon.want_notice(A, Some(mark)));
    daemon.prepare_park();
    let mut kept = Kept { refuse_transit: true, ..Kept::default() };
    task.poll(&mut kept);
    assert!(kept.messages.is_empty() && daemon.read_by(A) < mark && !rung(&daemon), "it was not taken");
    (kept.refuse_transit, kept.append_transit) = (false, true);
    task.poll(&mut kept);
    assert_eq!(kept.messages, [(DAEMON, [1, 2, 3, 4, 5, 0x80001], long)]);
    assert!(daemon.read_by(A) >= mark && rung(&daemon));
    daemon.unpark();
    assert!(daemon.want_notice(A, Some(mark)) && !daemon.want_notice(A, None));
}

#[test]
fn a_daemon_that_wants_no_notice_is_not_rung() {
    let host = Host::new();
    let (mut daemon, mut task) = pair(&host);
    assert_eq!(daemon.send_bytes(A, [0; 6], b"short"), Ok(Sent::Done));
    daemon.prepare_park();
    let mut kept = Kept::default();
    while task.poll(&mut kept) > 0 {}
    task.poll(&mut kept);
    assert_eq!(daemon.read_by(A), daemon.written(A));
    assert!(!rung(&daemon));
}

#[test]
fn long_bodies_reach_the_daemon_complete() {
    let host = Host::new();
    let (mut daemon, mut task) = pair(&host);
    let long = body(LONG_BYTES + 10_000_000, 9);
    daemon.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
    assert_eq!(task.send_bytes(DAEMON, [0; 6], &long), Ok(Sent::Done));
    let mut kept = Kept { keep_remotes: true, ..Kept::default() };
    daemon.poll(&mut kept);
    assert_eq!((kept.in_transit, kept.remotes.len(), kept.messages[0].2 == long), (0, 1, true));
}

/// A sink that wants no messages of one task.
struct Choosy(Kept, u32);

impl Sink for Choosy {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        self.0.arrived(from, meta, body);
    }
    fn wants(&self, from: u32) -> bool {
        from != self.1
    }
}

#[test]
fn what_is_not_wanted_now_stays_in_its_queue() {
    let host = Host::new();
    let (mut daemon, mut task) = pair(&host);
    assert_eq!(task.send_bytes(DAEMON, [0; 6], b"one"), Ok(Sent::Done));
    let mut choosy = Choosy(Kept::default(), A);
    assert_eq!(daemon.poll(&mut choosy), 0);
    assert_eq!(daemon.poll_through(A, &mut choosy), 1);
    assert_eq!(task.send_bytes(DAEMON, [0; 6], b"two"), Ok(Sent::Done));
    assert_eq!(daemon.poll(&mut choosy), 0);
    choosy.1 = 0;
    assert_eq!(daemon.poll(&mut choosy), 1);
    assert_eq!(choosy.0.messages.len(), 2);
}
