//! Senders learn from the times that receivers report.
use crate::tests::{A, B, Host, Kept, beside, body};
use crate::{CopyWay, Endpoint, Posted, Sent};

const BYTES: usize = 256 << 10;
const LENGTHS: [usize; 2] = [BYTES, 64 << 10];

/// Sends messages to another thread, each after the answer to the one before. `send` gets the endpoint and the body.
fn exchange(bytes: usize, rounds: u8, posts: bool, mut send: impl FnMut(&mut Endpoint, &[u8])) -> Endpoint {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let thread = beside(&host, &mut a, move |mut b| {
        for seed in 0..rounds {
            b.post(posts.then_some(Posted { from: A, mask: [0; 6], value: [0; 6] }));
            let mut kept = Kept::default();
            while b.poll(&mut kept) == 0 {}
            b.post(None);
            assert!(kept.messages.pop().unwrap().2 == body(bytes, seed), "message {seed}");
            assert_eq!(b.send_bytes(A, [9; 6], &[seed]), Ok(Sent::Done));
        }
    });
    for seed in 0..rounds {
        send(&mut a, &body(bytes, seed));
        let mut kept = Kept::default();
        while kept.messages.is_empty() {
            a.poll(&mut kept);
        }
    }
    thread.join().unwrap();
    // The last releases may follow the last answer.
    a.poll(&mut Kept::default());
    a
}

#[test]
fn a_sender_of_one_call_messages_learns_from_the_receivers_times() {
    let a = exchange(BYTES, 20, false, |a, body| a.send_bytes(B, [1; 6], body).map(drop).unwrap());
    assert!(a.one_call_ways(&LENGTHS)[0].is_some());
    assert_eq!(a.one_call_ways(&LENGTHS)[1], None, "nothing of that length was sent");
    assert_eq!(a.packed_ways(&LENGTHS), [None, None]);
}

#[test]
fn a_sender_of_packed_messages_learns_from_the_receivers_times() {
    let a = exchange(BYTES, 20, false, |a, body| {
        let block = a.allocate(body.len()).unwrap();
        // In four calls, as a program may pack.
        for (at, part) in body.chunks(BYTES / 4).enumerate() {
            block.write(at * BYTES / 4, part);
        }
        assert_eq!(a.send_blocks(B, [1; 6], &[(block, body.len())]), Ok(Sent::Done));
    });
    assert!(a.packed_ways(&LENGTHS)[1].is_some(), "the length of the first call counts");
    assert_eq!(a.one_call_ways(&LENGTHS), [None, None]);
}

#[test]
fn a_receiver_that_has_posted_its_receive_may_be_sent_a_rendezvous() {
    let bytes = Endpoint::new().unwrap().posted_bytes_min();
    let mut a = exchange(bytes, 10, true, |a, body| {
        assert!(body.len() < a.rendezvous_bytes_min);
        a.send_bytes(B, [1; 6], body).map(drop).unwrap();
    });
    let index = a.index_of(B).unwrap();
    assert!(a.copy_policy_of(index).times_of(CopyWay::Together, bytes) > 0, "it was tried");
}
