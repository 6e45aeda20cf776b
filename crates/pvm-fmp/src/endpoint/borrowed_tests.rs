//! Payloads that a task keeps in the daemon's heap.
use crate::remote::Remote;
use crate::tests::{A, DAEMON, Host, Kept, block_of, body, daemon_and_task};
use crate::{Arrival, Block, Endpoint, Meta, SendError, Sent, Sink};

/// Keeps borrowed payloads where it can.
#[derive(Default)]
struct Keeper {
    bodies: Vec<Remote>,
    copied: usize,
}

impl Sink for Keeper {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        let Arrival::InTransit(body) = body else { panic!("the daemon lends its bodies") };
        match body.keep() {
            Some(kept) => self.bodies.push(kept),
            None => {
                assert!(body.take_all(&mut Vec::new()).is_ok());
                self.copied += 1;
            }
        }
    }
}

/// Lends the first bytes of a block, as the daemon's route does.
fn send(daemon: &mut Endpoint, block: &Block, bytes: usize) -> Result<Sent, SendError> {
    let may_keep = daemon.may_be_kept(bytes);
    daemon.send_borrowed(A, [0; 6], block, bytes, may_keep)
}

#[test]
fn one_long_payload_may_be_kept_after_its_entry_was_read() {
    let host = Host::new();
    let (mut daemon, mut task) = daemon_and_task(&host);
    let long = body(100_000, 1);
    let block = block_of(&mut daemon, &long);
    let mut marks = Vec::new();
    for bytes in [60_000, 100_000, 100_000] {
        assert_eq!(send(&mut daemon, &block, bytes), Ok(Sent::Done));
        marks.push(daemon.written(A));
    }
    assert_eq!((daemon.read_by(A), daemon.kept_by(A)), (0, None));
    let mut keeper = Keeper::default();
    while task.poll(&mut keeper) > 0 {}
    assert_eq!((keeper.bodies.len(), keeper.copied), (1, 2), "one is too short, and only one can be kept");
    assert_eq!((daemon.read_by(A), daemon.kept_by(A)), (marks[2], Some(marks[1])));
    let mut bytes = vec![0; long.len()];
    keeper.bodies[0].read(0, &mut bytes);
    assert_eq!(bytes, long);
    keeper.bodies.clear();
    assert_eq!(daemon.kept_by(A), Some(marks[1]), "the next poll tells the daemon");
    // If a payload is there already, it is kept at once.
    assert_eq!(send(&mut daemon, &block, long.len()), Ok(Sent::Done));
    task.poll(&mut keeper);
    assert_eq!((daemon.read_by(A), daemon.kept_by(A)), (daemon.written(A), Some(daemon.written(A))));
    keeper.bodies.clear();
    task.poll(&mut keeper);
    assert_eq!((daemon.kept_by(A), keeper.copied), (None, 2));
    // The daemon does not allow it while much of its heap is in use.
    daemon.heap.borrow().source().allowance.limit(300_000);
    assert_eq!(send(&mut daemon, &block, long.len()), Ok(Sent::Done));
    task.poll(&mut keeper);
    assert_eq!((daemon.kept_by(A), keeper.copied), (None, 3));
}

#[test]
fn a_payload_that_is_kept_outlives_the_daemon() {
    let host = Host::new();
    let (mut daemon, mut task) = daemon_and_task(&host);
    let block = block_of(&mut daemon, &body(100_000, 3));
    assert_eq!(send(&mut daemon, &block, 100_000), Ok(Sent::Done));
    let mut keeper = Keeper::default();
    task.poll(&mut keeper);
    drop((block, daemon));
    task.peer_gone(DAEMON);
    let mut bytes = vec![0; 100_000];
    keeper.bodies[0].read(0, &mut bytes);
    assert_eq!(bytes, body(100_000, 3));
    drop(keeper);
    task.poll(&mut Kept::default());
}
