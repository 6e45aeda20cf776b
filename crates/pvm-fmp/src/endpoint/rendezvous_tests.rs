//! A rendezvous whose body does not fit in the sender's heap: the receiver takes it, or the sender withdraws it.
use super::*;
use crate::tests::{A, B, Host, Kept, beside, body};
use crate::{Arrival, Meta, Posted, SendError, Sent, Sink};
use std::sync::mpsc;
use std::time::Instant;

const BODY_BYTES: usize = 256 << 10;
const ANY: Posted = Posted { from: 0, mask: [0; 6], value: [0; 6] };

/// Opens the queue to B, and then lets the heap get no more memory.
fn leave_no_memory(a: &mut Endpoint) {
    a.rendezvous_bytes_min = BODY_BYTES;
    a.send_bytes(B, [1, 0, 0, 0, 0, 0], b"first").map(|_| ()).unwrap();
    a.heap.borrow().source().allowance.limit(0);
}

#[test]
fn a_rendezvous_that_is_taken_near_the_end_of_the_wait_is_taken_or_withdrawn() {
    const WAIT: Duration = Duration::from_millis(40);
    let patience = RENDEZVOUS_PATIENCE + Duration::from_micros((BODY_BYTES / RENDEZVOUS_BYTES_PER_MICROSECOND) as u64);
    let mut taken = 0;
    for round in 0..40u32 {
        let host = Host::new();
        let mut a = host.endpoint(A);
        a.rendezvous_wait_max = WAIT;
        let (posted, is_posted) = mpsc::channel();
        let (begun, begin) = mpsc::channel::<Instant>();
        let (decided, is_decided) = mpsc::channel();
        let thread = beside(&host, &mut a, move |mut b| {
            let mut kept = Kept::default();
            b.post(Some(ANY));
            posted.send(()).unwrap();
            // From round to round, this moment moves from well before the end of the wait to well after it.
            let moment = begin.recv().unwrap() + patience + WAIT * (20 + round) / 40;
            while Instant::now() < moment {
                std::hint::spin_loop();
            }
            b.poll(&mut kept);
            is_decided.recv().unwrap();
            while b.poll(&mut kept) > 0 {}
            kept.messages
        });
        is_posted.recv().unwrap();
        leave_no_memory(&mut a);
        let mut long = body(BODY_BYTES, 3);
        begun.send(Instant::now()).unwrap();
        let sent = a.send_bytes(B, [2, 0, 0, 0, 0, 0], &long);
        long.fill(0);
        decided.send(()).unwrap();
        let messages = thread.join().unwrap();
        match sent {
            Ok(sent) => {
                assert_eq!((sent, messages.len()), (Sent::Done, 2), "round {round}");
                assert!(messages[1].2 == body(BODY_BYTES, 3), "round {round}");
                taken += 1;
            }
            Err(error) => assert_eq!((error, messages.len()), (SendError::NoMemory, 1), "round {round}"),
        }
    }
    assert!(taken < 40, "the last ones came too late");
}

#[test]
fn a_sleeper_that_only_the_daemon_can_wake_is_woken_before_it_is_waited_for() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let (posted, is_posted) = mpsc::channel();
    let (rung, is_rung) = mpsc::channel();
    let thread = beside(&host, &mut a, move |mut b| {
        let mut kept = Kept::default();
        b.post(Some(ANY));
        b.prepare_park();
        posted.send(()).unwrap();
        while kept.messages.len() < 2 && is_rung.recv().is_ok() {
            b.unpark();
            while b.poll(&mut kept) > 0 {}
            b.prepare_park();
        }
        kept.messages
    });
    is_posted.recv().unwrap();
    a.peers[0].as_mut().unwrap().bell = None;
    leave_no_memory(&mut a);
    rung.send(()).unwrap();
    while a.peers[0].as_ref().unwrap().owner.mapping.header().parker.0.parked(false) != Some(2) {
        std::thread::yield_now();
    }
    let mut rings = 0;
    let mut ring = || {
        rings += 1;
        rung.send(()).unwrap();
    };
    let sent = a.send_bytes_ringing(B, [2, 0, 0, 0, 0, 0], &body(BODY_BYTES, 3), &mut ring);
    assert_eq!((sent, rings), (Ok(Sent::Done), 1));
    let messages = thread.join().unwrap();
    assert!(messages[1].2 == body(BODY_BYTES, 3));
}

#[test]
fn who_cannot_ring_makes_no_rendezvous_with_a_peer_that_only_the_daemon_can_wake() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    b.post(Some(ANY));
    a.peers[0].as_mut().unwrap().bell = None;
    leave_no_memory(&mut a);
    assert_eq!(a.send_bytes(B, [2, 0, 0, 0, 0, 0], &body(BODY_BYTES, 3)), Err(SendError::NoMemory));
    a.heap.borrow().source().allowance.limit(u64::MAX);
    a.send_bytes(B, [3, 0, 0, 0, 0, 0], &body(BODY_BYTES, 3)).map(|_| ()).unwrap();
    let mut kept = Kept::default();
    while b.poll(&mut kept) > 0 {}
    assert_eq!((kept.messages.len(), kept.in_transit), (2, 0));
}

/// A sink that refuses bodies in transit. It counts them, and separately all other bodies.
#[derive(Default)]
struct Refusing {
    in_transit: usize,
    bodies: usize,
}

impl Sink for Refusing {
    fn arrived(&mut self, _: u32, _: Meta, body: Arrival<'_>) {
        match body {
            Arrival::InTransit(_) => self.in_transit += 1,
            _ => self.bodies += 1,
        }
    }
}

#[test]
fn a_receiver_that_has_gone_to_sleep_over_a_rendezvous_is_woken_by_the_fall_back_to_eager() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let (posted, is_posted) = mpsc::channel();
    let thread = beside(&host, &mut a, move |mut b| {
        let mut refusing = Refusing::default();
        b.post(Some(ANY));
        posted.send(()).unwrap();
        while refusing.in_transit == 0 && refusing.bodies == 0 {
            b.poll(&mut refusing);
        }
        b.prepare_park();
        if b.poll(&mut refusing) == 0 && refusing.bodies == 0 {
            let mut bell = [rustix::event::PollFd::from_borrowed_fd(b.bell(), rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut bell, Some(&limit)), Ok(1), "nobody has rung");
        }
        b.unpark();
        while refusing.bodies == 0 {
            b.poll(&mut refusing);
        }
    });
    is_posted.recv().unwrap();
    // The body is so long that the receiver goes to sleep before the sender falls back.
    a.send_bytes(B, [2, 0, 0, 0, 0, 0], &body(RENDEZVOUS_BYTES_MIN, 3)).map(|_| ()).unwrap();
    thread.join().unwrap();
}
