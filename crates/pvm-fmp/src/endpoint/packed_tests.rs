//! Packed bodies, whose ways are learnt from the times that receivers report.
use super::*;
use crate::heap::Block;
use crate::queue::Kind;
use crate::tests::{A, B, Host, Kept, body};
use crate::way_policy::BYTES_MIN;
use crate::{Arrival, Meta, Sent, Sink};
use std::collections::BTreeSet;

/// A length whose ways are learnt.
const BYTES: usize = 4 * BYTES_MIN;
/// More messages than are needed for the first measured one.
const MESSAGES: usize = 12;

/// Packs one body in one block.
fn pack(from: &mut Endpoint, text: &[u8]) -> Block {
    let block = from.allocate(text.len()).unwrap();
    block.write(0, text);
    block
}

fn send(from: &mut Endpoint, blocks: &[(Block, usize)]) {
    assert_eq!(from.send_blocks(B, [5; 6], blocks), Ok(Sent::Done));
}

/// Receives one message, and reports what there is to report.
fn receive(to: &mut Endpoint, sink: &mut impl Sink) {
    while to.poll(sink) == 0 {}
    to.poll(&mut Kept::default());
}

/// Returns whether the endpoint has learnt anything about packed bodies of [`BYTES`] bytes.
fn has_learnt(endpoint: &mut Endpoint) -> bool {
    endpoint.poll(&mut Kept::default());
    endpoint.way_of_packed(BYTES).is_some()
}

#[test]
fn bodies_arrive_whole_by_all_ways_and_their_sender_learns() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let (mut in_use, mut ways) = (None, BTreeSet::new());
    for number in 0..60 {
        let text = body(BYTES, number);
        let block = pack(&mut a, &text);
        ways.extend(block.way_number());
        send(&mut a, &[(block, BYTES)]);
        let mut kept = Kept::default();
        receive(&mut b, &mut kept);
        assert!(kept.messages == [(A, [5; 6], text)]);
        a.poll(&mut Kept::default());
        let bytes = a.heap.borrow().in_use_bytes();
        assert_eq!(*in_use.get_or_insert(bytes), bytes, "the block is given back");
    }
    assert!(has_learnt(&mut a));
    // Where copies through the caches are very slow, string instructions are not tried.
    assert!(ways.is_superset(&(0..4).collect()), "{ways:?}");
    let way = a.way_of_packed(BYTES).unwrap();
    assert!(way.contains(" ns a byte") && way.starts_with("in "), "{way}");
    assert_eq!(b.way_of_packed(BYTES), None, "only the sender decides");
}

/// Copies the body out in pieces of that length.
struct Pieces(usize);

impl Sink for Pieces {
    fn arrived(&mut self, _from: u32, _meta: Meta, text: Arrival<'_>) {
        let Arrival::Remote(remote) = text else { panic!("a packed body is complete") };
        let mut bytes = vec![0; remote.len()];
        for (at, piece) in bytes.chunks_mut(self.0).enumerate() {
            remote.read(at * self.0, piece);
        }
        assert!(bytes == body(remote.len(), 1));
    }
}

#[test]
fn a_receiver_that_copies_in_long_pieces_reports_and_others_do_not() {
    // A part of a body, and a body in short pieces, say nothing about the time of the whole.
    for (piece, reports) in [(BYTES, true), (BYTES / 4, true), (4096, false)] {
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        for _ in 0..MESSAGES {
            let block = pack(&mut a, &body(BYTES, 1));
            send(&mut a, &[(block, BYTES)]);
            receive(&mut b, &mut Pieces(piece));
        }
        assert_eq!(has_learnt(&mut a), reports, "{piece}");
    }
}

#[test]
fn a_body_behind_a_short_fragment_is_measured_too() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for number in 0..MESSAGES as u8 {
        let (head, text) = (body(2000, number), body(BYTES, number));
        let blocks = [(pack(&mut a, &head), head.len()), (pack(&mut a, &text), text.len())];
        send(&mut a, &blocks);
        let mut kept = Kept::default();
        receive(&mut b, &mut kept);
        assert!(kept.messages[0].2 == [head, text].concat());
    }
    assert!(has_learnt(&mut a));
}

#[test]
fn reports_that_are_lies_harm_nothing() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let word = |token: u64, ns: u64| (ns << 32 | token).to_ne_bytes();
    let lie = |b: &mut Endpoint, body: &[u8]| {
        let heap = b.heap.clone();
        b.peers[0].as_mut().unwrap().push(B, &heap, Kind::CopyTime, &[0; 6], body).unwrap();
    };
    // Tokens that do not exist, of a body that is not measured, of one that is; too short; too long.
    let short = pack(&mut a, &body(1000, 1));
    send(&mut a, &[(short, 1000)]);
    for token in [0, 1, 77, u64::from(u32::MAX)] {
        lie(&mut b, &word(token, 1));
    }
    lie(&mut b, &[]);
    lie(&mut b, &[0xff; 40]);
    assert!(!has_learnt(&mut a));
    for number in 0..MESSAGES as u8 {
        let text = body(BYTES, number);
        let block = pack(&mut a, &text);
        send(&mut a, &[(block, BYTES)]);
        for ns in [0, 1, u64::from(u32::MAX)] {
            for token in 0..4 {
                lie(&mut b, &word(token, ns));
            }
        }
        a.poll(&mut Kept::default());
        let mut kept = Kept::default();
        while b.poll(&mut kept) > 0 {}
        assert!(kept.messages.last().is_some_and(|(.., bytes)| *bytes == text));
    }
    assert!(has_learnt(&mut a), "a lie is believed, and costs time alone");
}
