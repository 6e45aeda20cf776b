//! After a receive has returned, the sender does not write to the receiver's buffer any more.
use super::*;
use crate::process::BEFORE_WRITE;
use crate::tests::{A, B, Host, beside, body};
use crate::{Arrival, Meta, Posted, Sink, signals};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

/// The length of a body, in bytes: the body is so long that the sender copies a part of it.
const BODY_BYTES: usize = 16 << 20;
/// How long the sender is held between its claim of a chunk and the write.
const HELD: Duration = Duration::from_millis(600);
/// How long the test repeats the send until the sender takes part in a copy. On a busy machine the receiver is often
/// not scheduled in time.
const TRIES_TIME_MAX: Duration = Duration::from_secs(60);

/// A sink that copies each body in transit to the same buffer, and overwrites this buffer right after the copy.
struct Reusing(Vec<u8>);

impl Sink for Reusing {
    fn arrived(&mut self, _: u32, _: Meta, body: Arrival<'_>) {
        if let Arrival::InTransit(body) = body {
            // A sender that was held so long may have fallen back to eager: what `take` returns does not matter here.
            let _ = body.take(&mut self.0);
            self.0.fill(2);
        }
    }
}

#[test]
fn a_sender_that_was_held_between_claim_and_write_writes_nothing_late() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    a.rendezvous_bytes_min = BODY_BYTES;
    let (posted, is_posted) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let thread = beside(&host, &mut a, move |mut b| {
        let mut reusing = Reusing(vec![2; BODY_BYTES]);
        b.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
        posted.send(()).unwrap();
        while is_sent.try_recv() == Err(mpsc::TryRecvError::Empty) {
            b.poll(&mut reusing);
        }
        b.poll(&mut reusing);
        reusing.0.iter().all(|byte| *byte == 2)
    });
    is_posted.recv().unwrap();
    let text = body(BODY_BYTES, 3);
    let held = Arc::new(AtomicBool::new(false));
    let end = Instant::now() + TRIES_TIME_MAX;
    while Instant::now() < end {
        let now_held = held.clone();
        BEFORE_WRITE.set(Some(Box::new(move || {
            now_held.store(true, SeqCst);
            // Signals are blocked here: no signal handler can leave the copy by a jump.
            assert!(signals::is_blocked(libc::SIGALRM) && signals::is_blocked(libc::SIGINT));
            std::thread::sleep(HELD);
        })));
        a.send_bytes(B, [2, 0, 0, 0, 0, 0], &text).map(|_| ()).unwrap();
        // If the receiver came too late, its release of the body in the heap must be read before the next rendezvous.
        a.poll(&mut Reusing(Vec::new()));
        if held.load(SeqCst) {
            break;
        }
    }
    sent.send(()).unwrap();
    let unwritten = thread.join().unwrap();
    assert!(held.load(SeqCst), "the sender had no part in any copy");
    assert!(unwritten, "the sender wrote after the receive had ended");
}
