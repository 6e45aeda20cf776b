//! The order in which an endpoint takes what several peers have sent.
use super::*;
use crate::queue::Kind;
use crate::tests::{Host, Kept, body, introduce};
use crate::{Arrival, Immediate, Meta, Sent, SharedBody, Sink};

const LENGTHS: [usize; 6] = [0, 8, 100, 5_000, 50_000, 2_000_000];
/// The receiver.
const TO: u32 = 0x40001;

/// Returns a receiver and that many senders, which all know each other.
fn host(senders: usize) -> (Host, Endpoint, Vec<Endpoint>) {
    let host = Host::new();
    let mut all: Vec<Endpoint> = (0..=senders as u32).map(|place| host.endpoint(TO + place)).collect();
    (0..=senders as u32).for_each(|place| host.table.set(TO + place));
    for one in 0..all.len() {
        for other in 0..all.len() {
            if one != other {
                let (tid, [segment, bell]) = (all[other].tid(), all[other].descriptors().unwrap());
                all[one].connect(tid, segment, bell).unwrap();
            }
        }
    }
    let to = all.remove(0);
    (host, to, all)
}

fn send(from: &mut Endpoint, number: usize, bytes: usize) {
    assert_eq!(from.send_bytes(TO, [number as u32; 6], &body(bytes, 1)), Ok(Sent::Done));
}

fn numbers(kept: &Kept) -> Vec<usize> {
    kept.messages.iter().map(|(_, meta, _)| meta[0] as usize).collect()
}

/// The first meta words of the messages that arrive now.
fn arrived(endpoint: &mut Endpoint) -> Vec<usize> {
    let mut kept = Kept::default();
    while endpoint.poll(&mut kept) > 0 {}
    numbers(&kept)
}

/// A small generator of numbers, so that a failure repeats.
fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

#[test]
fn messages_of_several_senders_are_taken_in_the_order_of_sending() {
    for senders in [2, 3, 16, 40] {
        let (_host, mut to, mut from) = host(senders);
        let mut seed = senders as u64;
        for _ in 0..5 {
            for number in 0..200 {
                let bytes = LENGTHS[next(&mut seed) % 4];
                send(&mut from[next(&mut seed) % senders], number, bytes);
            }
            let mut kept = Kept::default();
            // With many peers, a poll may look at some of them only.
            for _ in 0..1000 {
                to.poll(&mut kept);
            }
            assert_eq!(numbers(&kept), (0..200).collect::<Vec<_>>(), "{senders}");
        }
    }
}

/// The only peer of a receiver does not read the time.
#[test]
fn the_time_counts_from_the_introduction_of_a_second_peer_on() {
    for bytes in LENGTHS {
        let (host, mut to, mut from) = host(2);
        let mut send_one = |sender: usize, number: usize| {
            let is_short = bytes <= 100;
            let short = is_short.then(|| from[sender].send_in_queue(TO, &[number as u32; 6], &body(bytes, 1)));
            if short.flatten().is_none() {
                send(&mut from[sender], number, bytes);
            }
        };
        host.table.message_sent(TO);
        (0..4).for_each(|number| send_one(0, number));
        // The receiver takes in nothing meanwhile, not even the introduction.
        host.table.message_sent(TO);
        (4..12).for_each(|number| send_one(number % 2, number));
        assert_eq!(arrived(&mut to), (0..12).collect::<Vec<_>>(), "{bytes}");
    }
}

#[test]
fn an_answer_to_a_message_comes_after_it_whatever_the_clocks_show() {
    let (_host, mut to, mut from) = host(2);
    for round in 0..100 {
        // The clock of the first sender is ahead.
        from[0].clock.observe(from[0].clock.next().wrapping_add(1 << 35));
        send(&mut from[0], 1, LENGTHS[round % 4]);
        assert_eq!(from[0].send_bytes(TO + 2, [7; 6], b"go on"), Ok(Sent::Done));
        assert_eq!(arrived(&mut from[1]), [7]);
        send(&mut from[1], 2, 8);
        assert_eq!(arrived(&mut to), [1, 2]);
    }
}

/// Takes one message a poll.
struct One(Kept);

impl Sink for One {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        self.0.arrived(from, meta, body);
    }
    fn satisfied(&self) -> bool {
        true
    }
}

#[test]
fn a_sink_that_is_satisfied_leaves_the_later_messages() {
    let (_host, mut to, mut from) = host(3);
    for number in 0..30 {
        send(&mut from[number % 3], number, 8);
    }
    let mut one = One(Kept::default());
    for number in 0..30 {
        assert_eq!(to.poll(&mut one), 1);
        assert_eq!(one.0.messages.len(), number + 1);
    }
    assert_eq!(numbers(&one.0), (0..30).collect::<Vec<_>>());
}

#[test]
fn the_short_ways_take_a_message_of_any_peer_only_if_it_is_the_earliest() {
    let (_host, mut to, mut from) = host(2);
    let immediate = Immediate::new([7, 0], 0, &[1; 8]).unwrap();
    // The second sender is the one that has sent last.
    (0..2).for_each(|sender| send(&mut from[sender], sender, 8));
    assert_eq!(arrived(&mut to), [0, 1]);
    send(&mut from[0], 2, 8);
    assert!(from[1].send_immediate(TO, &immediate).is_some());
    assert!(to.probe_recent(true).is_none() && to.probe_recent_immediate(true).is_none());
    assert!(to.probe_recent(false).is_some());
    assert_eq!(to.probe_recent_immediate(false).unwrap().take(), immediate);
    assert_eq!(arrived(&mut to), [2]);
    // Now the first one is.
    assert!(from[0].send_immediate(TO, &immediate).is_some());
    assert_eq!(to.probe_recent_immediate(true).unwrap().take(), immediate);
}

#[test]
fn a_message_that_waits_for_a_frame_holds_later_ones_of_all_peers_back() {
    let (host, mut to, mut from) = host(3);
    to.frame_taken();
    send(&mut from[0], 1, 8);
    host.table.frame_sent(TO);
    host.table.message_sent(TO);
    send(&mut from[1], 2, 8);
    send(&mut from[2], 3, 8);
    assert_eq!((arrived(&mut to), to.waits_for_frame()), (vec![1], true));
    to.frame_taken();
    assert_eq!((arrived(&mut to), to.waits_for_frame()), (vec![2, 3], false));
}

#[test]
fn what_a_dead_peer_has_sent_comes_after_what_others_have_sent_before() {
    let (host, mut to, mut from) = host(3);
    for number in 0..9 {
        send(&mut from[number % 3], number, 100);
    }
    host.table.clear(TO + 2);
    let mut kept = Kept::default();
    assert_eq!(to.poll_dead(TO + 2, &mut kept), 8);
    to.peer_gone(TO + 2);
    assert_eq!(numbers(&kept), (0..8).collect::<Vec<_>>());
    assert_eq!(arrived(&mut to), [8]);
}

#[test]
fn one_peer_can_be_polled_for_messages_that_the_sink_picks() {
    struct Tens(Kept);
    impl Sink for Tens {
        fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
            self.0.arrived(from, meta, body);
        }
        fn picks(&self, _from: u32, meta: &Meta) -> bool {
            meta[0] % 10 == 0
        }
    }
    let (_host, mut to, mut from) = host(2);
    send(&mut from[0], 1, 8);
    for number in [10, 20, 21, 30] {
        send(&mut from[1], number, 8);
    }
    let mut tens = Tens(Kept::default());
    assert_eq!((to.poll_peer(TO + 2, &mut tens), to.poll_peer(TO + 2, &mut tens)), (2, 0));
    assert!(to.has_sent_to_us(TO + 2));
    assert_eq!((numbers(&tens.0), arrived(&mut to)), (vec![10, 20], vec![1, 21, 30]));
    assert!(!to.has_sent_to_us(TO + 2));
}

/// Multicasts a message of the first sender to the receiver and the other senders.
fn multicast(from: &mut Endpoint, to: &[u32], number: u32, bytes: usize) {
    let (body, block) = (body(bytes, 1), from.allocate(bytes.max(1)).unwrap());
    block.write(0, &body);
    let blocks = [(block, bytes)];
    let shared = match bytes {
        ..=crate::INLINE_BYTES_MAX => SharedBody::Bytes(&body),
        _ => SharedBody::Blocks(&blocks),
    };
    let to: Vec<_> = to.iter().map(|to| (*to, [number; 6])).collect();
    let sent = from.send_to_all(&to, shared);
    assert!(sent.len() == to.len() && sent.iter().all(|sent| *sent == Ok(Sent::Done)));
}

#[test]
fn a_multicast_arrives_whole_at_all_receivers() {
    let (_host, mut to, mut from) = host(3);
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        multicast(&mut from[0], &[TO, TO + 2, TO + 3], number as u32, bytes);
    }
    let mut from = from.into_iter().skip(1);
    for receiver in [&mut to, &mut from.next().unwrap(), &mut from.next().unwrap()] {
        let mut kept = Kept::default();
        while receiver.poll(&mut kept) > 0 {}
        assert_eq!(numbers(&kept), (0..LENGTHS.len()).collect::<Vec<_>>());
        assert!(kept.messages.iter().zip(LENGTHS).all(|((_, _, bytes), length)| *bytes == body(length, 1)));
    }
}

#[test]
fn nobody_gets_a_multicast_whose_sender_dies_before_it_is_committed() {
    let (host, mut to, mut from) = host(2);
    send(&mut from[0], 1, 8);
    // As `send_to_all` does, up to the commit.
    let heap = from[0].heap.clone();
    let time = heap.borrow().source().mapping.header().multicasts.0.begin(|| from[0].clock.next_later());
    let index = from[0].index_of(TO).unwrap();
    let peer = from[0].peers[index].as_mut().unwrap();
    peer.push_held(TO + 1, &heap, time, false, &[2; 6], b"never sent").unwrap();
    assert_eq!(arrived(&mut to), [1]);
    assert!(to.probe_recent(false).is_none() && to.probe_recent_immediate(false).is_none());
    host.table.clear(TO + 1);
    let mut kept = Kept::default();
    assert_eq!(to.poll_dead(TO + 1, &mut kept), 0);
    // Nor does it hold up another multicast.
    multicast(&mut from[1], &[TO, TO + 1], 3, 8);
    assert_eq!(arrived(&mut to), [3]);
    to.peer_gone(TO + 1);
}

#[test]
fn a_sender_that_is_stopped_in_a_multicast_holds_others_up_for_a_bounded_time() {
    let (_host, mut to, mut from) = host(2);
    // Both know each other's queues.
    (0..2).for_each(|sender| send(&mut from[sender], 0, 8));
    assert_eq!(arrived(&mut to), [0, 0]);
    let heap = from[0].heap.clone();
    let begin = || heap.borrow().source().mapping.header().multicasts.0.begin(|| from[0].clock.next_later());
    // At first it has a time that becomes old, then none.
    let mut number = 0;
    for time in [begin(), 1] {
        heap.borrow().source().mapping.header().multicasts.0.set_pending(time);
        for _ in 0..20 {
            number += 1;
            multicast(&mut from[1], &[TO, TO + 1], number, 8);
            assert_eq!(arrived(&mut to), [number as usize]);
        }
    }
    let index = to.index_of(TO + 1).unwrap();
    assert_eq!(to.peers[index].as_ref().unwrap().patience, 0);
}

#[test]
fn a_queue_that_is_damaged_holds_nobody_up() {
    let (_host, mut to, mut from) = host(3);
    send(&mut from[0], 1, 8);
    let index = from[0].index_of(TO).unwrap();
    let (heap, peer) = (from[0].heap.clone(), from[0].peers[index].as_mut().unwrap());
    peer.push(TO + 1, &heap, Kind::Blocks, &[0; 6], &[0xff; 24]).unwrap();
    (1..3).for_each(|sender| send(&mut from[sender], 1 + sender, 8));
    assert_eq!(arrived(&mut to), [1, 2, 3]);
    send(&mut from[0], 4, 8);
    send(&mut from[1], 5, 8);
    assert_eq!(arrived(&mut to), [5]);
}

#[test]
fn a_new_peer_is_not_overlooked() {
    let (host, mut to, mut from) = host(2);
    let late = TO + 9;
    host.table.set(late);
    let mut new = host.endpoint(late);
    introduce(&mut new, TO, &to);
    introduce(&mut to, late, &new);
    send(&mut new, 1, 8);
    send(&mut from[0], 2, 8);
    send(&mut new, 3, 8);
    assert_eq!(arrived(&mut to), [1, 2, 3]);
}
