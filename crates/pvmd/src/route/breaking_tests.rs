//! Data links that break and are resumed under load.
use super::fuzz::streams;
use super::tests::{Host, Task, pattern, settle};
use super::*;
use pvm_core::flows::FLOW_WINDOW_BYTES;
use pvm_core::flows::HELD_BYTES_MAX;
use pvm_core::flows::frames::write_acknowledged;

/// A small pseudo-random number generator (xorshift).
struct Prng(u64);

impl Prng {
    fn next_below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn join(one: &mut Host, other: &mut Host, encrypted: bool) {
    let (near, far) = streams(encrypted);
    one.route.attach(other.tid, near);
    other.route.attach(one.tid, far);
}

/// Joins both sides by a new connection.
fn join_again(one: &mut Host, other: &mut Host, encrypted: bool) {
    let (near, far) = streams(encrypted);
    one.route.disconnect(other.tid);
    other.route.disconnect(one.tid);
    one.route.resume(other.tid, near);
    other.route.resume(one.tid, far);
}

fn two(encrypted: bool) -> (Host, Host) {
    let (mut one, mut other) = (Host::new(0x40000), Host::new(0x80000));
    join(&mut one, &mut other, encrypted);
    (one, other)
}

fn death(tid: Tid, number: u32) -> Frame {
    Frame::Died { tid: Tid(number), watcher: tid }
}

#[test]
fn what_is_on_its_way_when_links_break_arrives_once_and_in_order() {
    for (encrypted, seed) in (1..=4).flat_map(|seed| [(false, seed), (true, seed)]) {
        let mut prng = Prng(seed);
        let (mut one, mut other) = two(encrypted);
        let (mut a, mut b) = (one.task(1), one.task(2));
        let (mut c, mut d) = (other.task(1), other.task(2));
        let everybody = [c.tid, d.tid];
        [&mut a, &mut c].into_iter().for_each(Task::keep);
        let mut kept = 0;
        let (mut sent, mut news) = ([0; 4], 0);
        for _ in 0..200 {
            let bytes = [10, 600, 5_000, 70_000, 200_000][prng.next_below(5) as usize];
            let body = |number| pattern(bytes, number);
            match prng.next_below(10) {
                0 => (a.send(c.tid, sent[0], &body(sent[0])), sent[0] += 1).1,
                1 => (c.send(a.tid, sent[1], &body(sent[1])), sent[1] += 1).1,
                2 => (b.multicast(&everybody, sent[2], &body(sent[2])), sent[2] += 1).1,
                3 => (d.send(b.tid, sent[3], &body(sent[3])), sent[3] += 1).1,
                4 => {
                    one.route.send_along(c.tid, &death(c.tid, news));
                    news += 1;
                }
                5 => a.take(),
                6 => [&mut c, &mut d].into_iter().for_each(Task::take),
                8 => kept += a.let_go() + c.let_go(),
                7 => {
                    // One side notices the end of the connection first. The other side notices it later, or gets the
                    // new connection before that.
                    if prng.next_below(2) == 0 {
                        one.route.disconnect(other.tid)
                    } else {
                        other.route.disconnect(one.tid)
                    }
                    for _ in 0..prng.next_below(4) {
                        one.turn();
                        other.turn();
                    }
                    join_again(&mut one, &mut other, encrypted);
                }
                _ => {}
            }
            for _ in 0..prng.next_below(3) {
                if prng.next_below(2) == 0 {
                    one.turn()
                } else {
                    other.turn()
                };
            }
        }
        join_again(&mut one, &mut other, encrypted);
        settle([&mut one, &mut other], &mut [&mut a, &mut b, &mut c, &mut d]);
        kept += a.let_go() + c.let_go();
        assert!(kept > 1, "seed {seed}");
        for (task, from, count) in
            [(&c, a.tid, sent[0]), (&a, c.tid, sent[1]), (&d, b.tid, sent[2]), (&b, d.tid, sent[3])]
        {
            assert_eq!(task.numbers(from), (0..count).collect::<Vec<_>>(), "seed {seed}");
            assert!(task.taken.0.iter().all(|(_, meta, body)| *body == pattern(body.len(), meta[0])), "seed {seed}");
        }
        assert_eq!(c.numbers(b.tid), d.numbers(b.tid));
        assert_eq!(other.frames, (0..news).map(|number| death(c.tid, number)).collect::<Vec<_>>());
        assert_eq!(one.route.egress_flows.flows.held_bytes() + other.route.egress_flows.flows.held_bytes(), 0);
        // Blocks up to this total size may remain, since tasks need not report at once what they have read.
        assert!(one.heap_bytes() + other.heap_bytes() <= 4 * FLOW_WINDOW_BYTES as usize, "seed {seed}");
        assert!(one.cuts + other.cuts > 0, "some ends were found");
    }
}

#[test]
fn while_there_is_no_connection_senders_keep_what_they_send_and_deaths_are_survived() {
    let (mut one, mut other) = two(false);
    let (mut a, mut b) = (one.task(1), one.task(2));
    let (mut c, mut d) = (other.task(1), other.task(2));
    one.route.disconnect(other.tid);
    for number in 0..3000 {
        a.send(c.tid, number, &pattern(4000, number));
        b.send(d.tid, number, &pattern(4000, number));
    }
    settle([&mut one, &mut other], &mut [&mut c, &mut d]);
    let held = one.route.egress_flows.flows.held_bytes();
    assert!(held <= 2 * (HELD_BYTES_MAX + (1 << 17)), "{held}");
    // A sender and a receiver end.
    one.dies(&a);
    drop(a.endpoint);
    other.dies(&d);
    join_again(&mut one, &mut other, false);
    settle([&mut one, &mut other], &mut [&mut b, &mut c]);
    assert_eq!(c.numbers(a.tid), (0..3000).collect::<Vec<_>>());
    assert_eq!(one.route.egress_flows.flows.held_bytes(), 0);
    assert!(other.heap_bytes() <= FLOW_WINDOW_BYTES as usize);
    // The host is removed while there is no connection.
    one.route.disconnect(other.tid);
    b.send(c.tid, 1, b"lost");
    settle([&mut one, &mut other], &mut [&mut b, &mut c]);
    assert!(one.route.egress_flows.flows.held_bytes() > 0);
    one.route.forget_host(other.tid);
    assert!(one.route.egress_flows.flows.is_idle());
    d.taken.0.clear();
}

#[test]
fn what_is_acknowledged_after_a_while_is_the_senders_again() {
    let (mut one, mut other) = two(false);
    let (mut a, mut b) = (one.task(1), other.task(1));
    a.send(b.tid, 1, &pattern(60_000, 1));
    settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    assert_eq!(b.numbers(a.tid), [1]);
    let kept = |host: &Host| host.route.data_links.values().map(|data_link| data_link.transmit.kept()).sum::<u64>();
    assert!(kept(&one) > 60_000, "so little is not acknowledged at once");
    for _ in 0..3 {
        [&mut one, &mut other].into_iter().for_each(|host| host.route.acknowledge());
        settle([&mut one, &mut other], &mut [&mut a, &mut b]);
    }
    assert_eq!(kept(&one), 0);
    assert!(kept(&other) <= 13, "an acknowledgement is not acknowledged");
}

#[test]
fn a_frame_longer_than_what_is_kept_passes_and_costs_no_host() {
    let (mut one, mut other) = two(false);
    let b = other.task(1);
    let message = pvm_core::proto::Message {
        src: one.tid,
        dst: b.tid,
        ctx: 0,
        tag: 1,
        wid: 0,
        enc: 0,
        format: 0,
        body: pvm_core::proto::ByteBuf::from(vec![7; 40 << 20]),
    };
    let frame = Frame::Deliver(message);
    one.route.send_along(b.tid, &frame);
    for _ in 0..20 {
        one.turn();
        other.route.send_along(one.tid, &death(one.tid, 1));
        other.turn();
    }
    // The connection also breaks in the middle of the frame.
    join_again(&mut one, &mut other, false);
    for _ in 0..10_000 {
        one.turn();
        other.turn();
    }
    assert_eq!((other.frames.len(), one.frames.len()), (1, 20));
    assert!(other.frames == [frame]);
}

#[test]
fn a_host_that_says_it_has_what_it_was_never_sent_is_found_out() {
    for again in [false, true] {
        let (mut one, mut other) = (Host::new(0x40000), Host::new(0x80000));
        let a = one.task(1);
        let (near, mut far) = streams(false);
        one.route.attach(other.tid, near);
        if again {
            let (near, newer) = streams(false);
            one.route.disconnect(other.tid);
            one.route.resume(other.tid, near);
            far = newer;
        }
        let mut bytes = Vec::new();
        write_acknowledged(1, &mut bytes);
        far.write(&bytes).unwrap();
        one.route.on_socket_ready(other.tid, true, true, false);
        one.route.step(&mut one.context);
        assert!(matches!(one.route.poll_event(), Some(RouteEvent::Broken { host, .. }) if host == other.tid));
        other.turn();
        assert!(a.taken.0.is_empty());
    }
}
