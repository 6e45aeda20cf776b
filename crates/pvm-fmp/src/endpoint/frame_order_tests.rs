//! Entries that a receiver takes only after a frame of the daemon.
use super::*;
use crate::tests::{B, Host, Kept, body, introduce};
use crate::{Immediate, Sent};

const LENGTHS: [usize; 6] = [0, 8, 100, 5_000, 50_000, 2_000_000];

/// The first meta words of the messages that arrive now.
fn arrived(endpoint: &mut Endpoint) -> Vec<u32> {
    let mut kept = Kept::default();
    while endpoint.poll(&mut kept) > 0 {}
    kept.messages.iter().map(|(_, meta, _)| meta[0]).collect()
}

fn send(from: &mut Endpoint, number: u32, bytes: usize) {
    assert_eq!(from.send_bytes(B, [number; 6], &body(bytes, 1)), Ok(Sent::Done));
}

#[test]
fn what_is_queued_after_a_message_of_the_daemon_waits_until_it_is_taken() {
    for bytes in LENGTHS {
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        b.frame_taken();
        host.table.frame_sent(B);
        send(&mut a, 1, bytes);
        host.table.message_sent(B);
        send(&mut a, 2, bytes);
        host.table.message_sent(B);
        host.table.frame_sent(B);
        send(&mut a, 3, bytes);
        send(&mut a, 4, bytes);
        for (number, expected) in [&[1][..], &[2], &[3, 4], &[]].into_iter().enumerate() {
            assert_eq!(b.next_frame(), number as u32 + 2);
            assert_eq!(arrived(&mut b), expected, "{bytes}");
            assert_eq!(b.waits_for_frame(), expected.last().is_some_and(|last| *last < 3), "{bytes}");
            b.frame_taken();
        }
    }
}

#[test]
fn the_short_ways_leave_the_first_message_after_a_frame_to_the_ordinary_one() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let immediate = Immediate::new([7, 0], 0, &[1; 8]).unwrap();
    send(&mut a, 1, 8);
    for _ in 0..3 {
        host.table.message_sent(B);
        assert_eq!(a.send_immediate(B, &immediate), None);
        assert_eq!(a.send_in_queue(B, &[7; 6], &[1; 8]), None);
        assert_eq!(a.send_in_cell(B, &[7; 6], &[1; 5000]), None);
        send(&mut a, 1, 8);
        assert!(a.send_immediate(B, &immediate).is_some() && a.send_in_queue(B, &[7; 6], &[1; 8]).is_some());
    }
    assert_eq!(arrived(&mut b).len(), 10, "an endpoint that counts no frames waits for none");
}

#[test]
fn the_other_peers_go_on_and_no_frame_is_waited_for_that_cannot_come() {
    let host = Host::new();
    host.table.set(0x40003);
    let (mut a, mut b) = host.pair();
    let mut c = host.endpoint(0x40003);
    introduce(&mut b, 0x40003, &c);
    introduce(&mut c, B, &b);
    b.frame_taken();
    send(&mut c, 1, 8);
    host.table.frame_sent(B);
    host.table.message_sent(B);
    send(&mut a, 2, 8);
    send(&mut c, 3, 8);
    // What the peers had queued before.
    let mut kept = Kept::default();
    assert_eq!(b.poll_all_through(&mut kept), 1);
    assert!(b.waits_for_frame() && b.has_waited_for_frame());
    assert_eq!((kept.messages[0].1[0], arrived(&mut b)), (1, vec![]));
    b.frames_ended();
    assert_eq!(arrived(&mut b).len(), 2);
    assert!(!b.waits_for_frame() && b.has_waited_for_frame());
    assert_eq!(b.poll_all_through(&mut kept), 0);
    assert!(!b.has_waited_for_frame());
}

#[test]
fn a_child_that_takes_over_goes_on_where_its_parent_was() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    b.frame_taken();
    host.table.frame_sent(B);
    host.table.frame_sent(B);
    b.inherit();
    host.table.message_sent(B);
    send(&mut a, 1, 8);
    for _ in 0..2 {
        assert!(arrived(&mut b).is_empty(), "a frame that the parent has not taken is still to come");
        b.frame_taken();
    }
    assert_eq!(arrived(&mut b), [1]);
}

#[test]
fn the_count_of_frames_wraps() {
    let mut order = FrameOrder { taken: Some(u32::MAX - 1), ..FrameOrder::default() };
    assert!(matches!(order.step(u32::MAX - 1, 2), Step::Other) && !order.stopped);
    assert!(matches!(order.step(u32::MAX, 2), Step::Wait) && order.stopped);
    assert!(matches!(order.step(2, 2), Step::Wait) && matches!(order.step(3, 2), Step::Damaged));
    order.taken = Some(2);
    assert!(matches!(order.step(u32::MAX, 2), Step::Other) && matches!(order.step(2, 2), Step::Other));
}

#[test]
fn a_sender_that_names_a_frame_that_does_not_exist_holds_nobody_up() {
    let host = Host::new();
    host.table.set(0x40003);
    let (mut a, mut b) = host.pair();
    let mut c = host.endpoint(0x40003);
    introduce(&mut b, 0x40003, &c);
    introduce(&mut c, B, &b);
    b.frame_taken();
    host.table.message_sent(B);
    b.frame_taken();
    let index = a.index_of(B).unwrap();
    let (heap, peer) = (a.heap.clone(), a.peers[index].as_mut().unwrap());
    peer.push(0x40001, &heap, crate::queue::Kind::AfterFrame, &[0; 6], &[9, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    send(&mut c, 1, 8);
    assert_eq!((arrived(&mut b), b.waits_for_frame()), (vec![1], false));
}
