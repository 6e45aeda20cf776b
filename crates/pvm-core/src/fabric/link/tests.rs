//! Links between two sides that may be slow, leave in the middle, or lie.
use super::super::frame::{eager_head, part_head};
use super::super::{Introduction, Violation};
use super::*;
use crate::prng::Prng;
use std::collections::{BTreeMap, VecDeque};

const BODY_BYTES_MAX: u64 = 1 << 30;

fn introduction(link: u64, credits: u32) -> Introduction {
    Introduction { provider: "test".into(), address: vec![1], link, credits, frame_bytes: 256 }
}

/// Returns the two sides of a link. The first may send as many frames as the second has credits.
fn pair(credits: [u32; 2]) -> [Link; 2] {
    let [one, other] = [introduction(11, credits[0]), introduction(22, credits[1])];
    [(&one, &other), (&other, &one)].map(|(ours, theirs)| Link::new(ours, theirs, BODY_BYTES_MAX).unwrap())
}

/// Returns the next frame's bytes and sends it.
fn next_frame(link: &mut Link) -> Option<Vec<u8>> {
    let ready = link.ready(SEAL_BYTES)?;
    let mut frame = [ready.head(), ready.content].concat();
    frame.extend(ready.body.iter().flat_map(|part| eager_body(part.at + part.bytes).split_off(part.at)));
    assert!(frame.len() <= 256 - SEAL_BYTES);
    link.sent();
    Some(frame)
}

/// Returns the first bytes of any eager body.
fn eager_body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| at as u8 ^ (at >> 8) as u8).collect()
}

/// The memory of eager bodies.
fn memory(bytes: usize) -> Option<Vec<u8>> {
    Some(Vec::with_capacity(bytes))
}

/// How much shorter frames are than they could be.
const SEAL_BYTES: usize = 16;
/// The longest piece in these tests.
const PIECE_BYTES: u64 = 10;

/// A third of the messages have bodies, half of them in pieces, and a quarter eager.
fn message(number: u64) -> Message {
    let content = number.to_le_bytes().to_vec();
    match number % 3 {
        0 if is_in_pieces(number) || is_eager(number) => {
            Message::Long(content, Offered { bytes: body_bytes(number), address: 0, key: 0 })
        }
        0 => Message::Long(content, Offered { bytes: body_bytes(number), address: number * 4096, key: 77 }),
        _ => Message::Short(content),
    }
}

fn is_in_pieces(number: u64) -> bool {
    number % 6 == 3
}

fn is_eager(number: u64) -> bool {
    number % 12 == 0
}

fn body_bytes(number: u64) -> u64 {
    let bytes = number % 40 + 5;
    if is_eager(number) { 50 * bytes } else { bytes }
}

/// An owner that places some of the eager bodies itself.
#[derive(Default)]
struct Placer {
    /// How many bodies could have been placed.
    asked: u64,
    /// The body that is placed: the number of its message, and its bytes.
    placed: Option<(u64, Vec<u8>)>,
    /// How many places were needed for something else before the end.
    replaced: u64,
    /// How many frames had room for their bytes before they were taken in.
    written: u64,
}

impl BodyMemory for Placer {
    fn reserve(&mut self, bytes: usize, next: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
        if let Some((number, content)) = next {
            assert_eq!(content, number.to_le_bytes());
            assert_eq!(self.placed, None, "one body after the other");
            self.asked += 1;
            if self.asked % 2 == 1 {
                self.placed = Some((number, Vec::new()));
                return Some(ArrivedBody::Placed { bytes });
            }
        }
        memory(bytes).map(ArrivedBody::Here)
    }

    fn part(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
        let (_, body) = self.placed.as_mut().expect("a body is placed");
        // What a forged frame has left there does not count.
        assert!(at <= body.len());
        body.resize(at + bytes, 0);
        Some(&mut body[at..])
    }
}

/// One side with its owner: what it has delivered, the pieces that it still reads, and the frames on their way to it.
struct Side {
    link: Link,
    wire: VecDeque<Vec<u8>>,
    reading: Vec<ToRead>,
    placer: Placer,
    /// How many bytes of each body were read.
    read: BTreeMap<u64, u64>,
    delivered: u64,
    told_taken: u64,
    sent: u64,
}

impl Side {
    fn new(link: Link) -> Side {
        let (wire, reading, read) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        Side { link, wire, reading, placer: Placer::default(), read, delivered: 0, told_taken: 0, sent: 0 }
    }

    fn send(&mut self) {
        match message(self.sent) {
            Message::Long(content, whole) if is_in_pieces(self.sent) => {
                self.link.send_in_pieces(content, whole.bytes);
            }
            Message::Long(content, whole) if is_eager(self.sent) => {
                self.link.send_eager(content, whole.bytes as usize);
            }
            other => {
                self.link.send(other);
            }
        }
        self.sent += 1;
    }

    /// Makes the next piece ready: its address names message and place.
    fn add_piece(&mut self) {
        if let Some(Lacking { message, at, bytes, .. }) = self.link.lacking() {
            let place = Offered { bytes: bytes.min(PIECE_BYTES), address: message * 4096 + at, key: 77 };
            self.link.add_piece(place, [at as u8; PIECE_TAG_BYTES]);
        }
    }

    /// Needs the place of a body that has not arrived wholly for something else.
    fn replace_placed(&mut self) {
        if let Some((arrived, bytes)) = self.link.placed() {
            let (number, mut body) = self.placer.placed.take().expect("the body is placed");
            body.truncate(arrived);
            assert_eq!((arrived, bytes as u64), (body.len(), body_bytes(number)));
            self.link.replace_placed(body);
            self.placer.replaced += 1;
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message { number, content, body } => {
                    assert_eq!(content, number.to_le_bytes());
                    assert_eq!(number, self.delivered, "in order");
                    let placed = self.placer.placed.take_if(|(of, _)| *of == number);
                    let expected = match number % 3 {
                        0 if placed.is_some() => {
                            let bytes = body_bytes(number) as usize;
                            assert_eq!(placed, Some((number, eager_body(bytes))));
                            ArrivedBody::Placed { bytes }
                        }
                        0 if is_eager(number) => ArrivedBody::Here(eager_body(body_bytes(number) as usize)),
                        0 => ArrivedBody::Read,
                        _ => ArrivedBody::None,
                    };
                    assert_eq!(body, expected);
                    let is_read = body == ArrivedBody::Read;
                    assert_eq!(self.read.remove(&number), is_read.then(|| body_bytes(number)));
                    self.delivered += 1;
                }
                Event::Begun { message, bytes, transfer } => {
                    assert!(message >= self.delivered && bytes == body_bytes(message));
                    assert_eq!(transfer == Transfer::Eager, is_eager(message));
                }
                Event::NoMemory => panic!("there is memory"),
                Event::Read(read) => {
                    let (begun, piece) = (self.read.entry(read.message).or_default(), read.piece);
                    assert_eq!(piece.body_bytes, body_bytes(read.message));
                    assert_eq!(piece.place.address, read.message * 4096 + *begun);
                    let tag = if is_in_pieces(read.message) { *begun as u8 } else { 0 };
                    assert_eq!(piece.tag, [tag; PIECE_TAG_BYTES]);
                    *begun += piece.place.bytes;
                    self.reading.push(read);
                }
                Event::Taken(number) => {
                    assert!(number > self.told_taken && number <= self.sent);
                    self.told_taken = number;
                }
            }
        }
    }

    /// Takes a frame in, sometimes with the bytes of a body written to their place, by a forger or by the peer.
    fn receive(&mut self, frame: &[u8], random: &mut Prng) {
        let (header, bytes) = Header::read(frame).unwrap();
        let way = random.below(4);
        let room = if way > 0 { self.link.room_for(&header, bytes.len(), &mut self.placer) } else { None };
        match room {
            Some(room) if way > 1 => {
                assert_eq!(header.kind, Kind::More);
                room.copy_from_slice(bytes);
                self.placer.written += 1;
                return self.link.receive_written(&header, bytes.len(), &mut self.placer).unwrap();
            }
            Some(room) => {
                room.fill(0xee);
                self.link.forget_room(bytes.len());
            }
            None => {}
        }
        self.link.receive(frame, &mut self.placer).unwrap();
    }

    fn step(&mut self, random: &mut Prng, peer_wire: &mut VecDeque<Vec<u8>>) {
        match random.below(9) {
            0 => self.send(),
            1 | 2 => peer_wire.extend(next_frame(&mut self.link)),
            3 => {
                // Frames may overtake others.
                let at = if random.below(4) == 0 { random.below(self.wire.len() as u64 + 1) as usize } else { 0 };
                if let Some(frame) = self.wire.remove(at) {
                    self.receive(&frame, random);
                }
            }
            4 if !self.reading.is_empty() => {
                let read = self.reading.swap_remove(random.below(self.reading.len() as u64) as usize);
                self.link.piece_arrived(read.message, read.number);
            }
            5 => self.link.report_taken(),
            6 => self.link.report_taken_pieces(),
            7 => self.replace_placed(),
            _ => self.add_piece(),
        }
        self.take_events();
    }
}

/// Runs random steps, and checks after each that no more frames are under way than there are buffers.
fn run(seed: u64, steps: u64) -> [Side; 2] {
    let mut random = Prng(seed);
    let credits = [1 + random.below(9) as u32, 1 + random.below(9) as u32];
    let mut sides = pair(credits).map(Side::new);
    for _ in 0..steps {
        let [one, other] = &mut sides;
        match random.below(2) {
            0 => one.step(&mut random, &mut other.wire),
            _ => other.step(&mut random, &mut one.wire),
        }
        for (side, credits) in sides.iter().zip(credits) {
            assert!(side.wire.len() <= (credits + UNCOUNTED_MAX) as usize, "{} of {credits}", side.wire.len());
        }
    }
    sides
}

/// Lets everything arrive that is under way.
fn settle([one, other]: &mut [Side; 2]) {
    loop {
        let mut is_still = true;
        for is_back in [false, true] {
            let (from, to) = if is_back { (&mut *other, &mut *one) } else { (&mut *one, &mut *other) };
            while let Some(read) = from.reading.pop() {
                from.link.piece_arrived(read.message, read.number);
                is_still = false;
            }
            from.take_events();
            from.link.report_taken();
            from.add_piece();
            while let Some(frame) = next_frame(&mut from.link) {
                to.wire.push_back(frame);
                is_still = false;
            }
            while let Some(frame) = to.wire.pop_front() {
                to.link.receive(&frame, &mut to.placer).unwrap();
                is_still = false;
            }
            to.take_events();
        }
        if is_still {
            return;
        }
    }
}

#[test]
fn messages_keep_their_order_and_no_frame_lacks_a_buffer() {
    let (mut placed, mut replaced, mut written) = (0, 0, 0);
    for seed in 1..200 {
        let mut sides = run(seed, 2000);
        settle(&mut sides);
        let [one, other] = sides;
        assert!(one.sent > 50 && other.sent > 50, "seed {seed} sends little");
        placed += (one.placer.asked + other.placer.asked) / 2;
        replaced += one.placer.replaced + other.placer.replaced;
        written += one.placer.written + other.placer.written;
        assert_eq!((one.delivered, other.delivered), (other.sent, one.sent), "seed {seed}");
        assert!(one.link.is_all_taken() && other.link.is_all_taken(), "seed {seed}");
    }
    assert!(placed > 500 && replaced > 100, "{placed} bodies were placed, {replaced} places replaced");
    assert!(written > 1000, "{written} frames were written to their places");
}

#[test]
fn who_leaves_in_the_middle_knows_what_the_peer_may_lack() {
    for seed in 1..200 {
        let [one, other] = run(seed, 700);
        for (from, to) in [(one.link, other.delivered), (other.link, one.delivered)] {
            let untaken = from.into_untaken();
            assert!(untaken.first <= to && to <= untaken.first + untaken.messages.len() as u64, "seed {seed}");
            let numbers = (untaken.first..).zip(untaken.messages);
            assert!(numbers.into_iter().all(|(number, kept)| kept == message(number)), "seed {seed}");
        }
    }
}

#[test]
fn a_receiver_that_reads_nothing_stops_its_sender_at_the_credits() {
    let [mut one, mut other] = pair([3, 5]);
    for number in 0..20 {
        // No two of them fit a frame.
        one.send(Message::Short(vec![number; 150]));
    }
    let frames: Vec<Vec<u8>> = std::iter::from_fn(|| next_frame(&mut one)).collect();
    assert_eq!(frames.len(), 5);
    for frame in &frames[..2] {
        other.receive(frame, &mut memory).unwrap();
    }
    assert!(other.ready(0).is_none(), "two credits are not worth a grant");
    other.receive(&frames[2], &mut memory).unwrap();
    one.receive(&next_frame(&mut other).unwrap(), &mut memory).unwrap();
    assert_eq!(std::iter::from_fn(|| next_frame(&mut one)).count(), 3);
}

/// Returns a frame for the second side of `pair`.
fn forged(kind: Kind, serial: u64, allowed: u32, taken: u32, rest: &[u8]) -> Vec<u8> {
    [&Header { link: 22, kind, wishes: Wishes::READ, serial, allowed, taken }.bytes()[..], rest].concat()
}

#[test]
fn a_peer_that_breaks_the_rules_is_found_out() {
    let refused = |frames: &[Vec<u8>]| {
        let [_, mut link] = pair([4, 2]);
        link.send(Message::Short(vec![1]));
        next_frame(&mut link).unwrap();
        let (last, before) = frames.split_last().unwrap();
        before.iter().for_each(|frame| link.receive(frame, &mut memory).unwrap());
        link.receive(last, &mut memory).err()
    };
    let short = |serial| forged(Kind::Short, serial, 4, 0, b"x");
    let piece = |kind, serial, body_bytes, bytes| {
        let place = Offered { bytes, address: 0, key: 0 };
        forged(kind, serial, 4, 0, &Piece { body_bytes, place, tag: [0; PIECE_TAG_BYTES] }.bytes())
    };
    let offer = |bytes| piece(Kind::Offer, 0, bytes, bytes);
    assert_eq!(refused(&[vec![]]), Some(Violation::NoFrame));
    assert_eq!(refused(&[short(0)[..23].to_vec()]), Some(Violation::NoFrame));
    assert_eq!(refused(&[short(0), short(0)]), Some(Violation::Serial));
    assert_eq!(refused(&[short(1)]), None);
    assert_eq!(refused(&[short(1), short(1)]), Some(Violation::Serial));
    assert_eq!(refused(&[short(3)]), None);
    assert_eq!(refused(&[short(4)]), Some(Violation::Serial));
    // The third one is found out when its turn comes.
    assert_eq!(refused(&[short(2), short(1), short(0)]), Some(Violation::NoCredit));
    assert_eq!(refused(&[short(0), short(1)]), None);
    assert_eq!(refused(&[short(0), short(1), short(2)]), Some(Violation::NoCredit));
    assert_eq!(refused(&[forged(Kind::Taken, 0, 5, 1, b"")]), None);
    assert_eq!(refused(&[forged(Kind::Taken, 0, 4, 2, b"")]), Some(Violation::Taken));
    assert_eq!(refused(&[forged(Kind::Taken, 0, 6, 0, b"")]), Some(Violation::Grant));
    // Fewer than before is the same as very many more.
    assert_eq!(refused(&[forged(Kind::Taken, 0, 3, 0, b"")]), Some(Violation::Grant));
    assert_eq!(refused(&[forged(Kind::Grant, 0, 5, 0, b"")]), Some(Violation::Grant));
    assert_eq!(refused(&[forged(Kind::Grant, 0, 4, 0, b"")]), Some(Violation::Grant));
    assert_eq!(refused(&[forged(Kind::Offer, 0, 4, 0, &[0; 47])]), Some(Violation::NoFrame));
    assert_eq!(refused(&[offer(BODY_BYTES_MAX)]), None);
    assert_eq!(refused(&[offer(BODY_BYTES_MAX + 1)]), Some(Violation::Length));
    assert_eq!(refused(&[offer(0)]), None);
    assert_eq!(refused(&[piece(Kind::Offer, 0, 5, 6)]), Some(Violation::Piece));
    assert_eq!(refused(&[piece(Kind::Offer, 0, 5, 0)]), Some(Violation::Piece));
    assert_eq!(refused(&[piece(Kind::Piece, 0, 5, 5)]), Some(Violation::Piece), "a piece of nothing");
    let first = piece(Kind::Offer, 0, 5, 3);
    assert_eq!(refused(&[first.clone(), piece(Kind::Piece, 1, 5, 2)]), None);
    assert_eq!(refused(&[first.clone(), piece(Kind::Piece, 1, 5, 3)]), Some(Violation::Piece));
    assert_eq!(refused(&[first.clone(), piece(Kind::Piece, 1, 5, 0)]), Some(Violation::Piece));
    assert_eq!(refused(&[first.clone(), piece(Kind::Offer, 1, 5, 3)]), Some(Violation::Piece));
    assert_eq!(refused(&[first.clone(), short(1)]), Some(Violation::Piece));
    let eager =
        |serial, bytes, body: &[u8]| forged(Kind::Eager, serial, 4, 0, &[&eager_head(bytes, 0)[..], body].concat());
    let more = |serial, body: &[u8]| forged(Kind::More, serial, 4, 0, body);
    assert_eq!(refused(&[eager(0, 3, b"abc"), short(1)]), None);
    assert_eq!(refused(&[eager(0, 3, b"ab"), more(1, b"c")]), None);
    assert_eq!(refused(&[eager(0, 3, b"ab"), more(1, b"cd")]), Some(Violation::Piece));
    assert_eq!(refused(&[eager(0, 3, b"ab"), more(1, b"")]), Some(Violation::Piece));
    assert_eq!(refused(&[eager(0, 3, b"ab"), piece(Kind::Piece, 1, 3, 1)]), Some(Violation::Piece));
    assert_eq!(refused(&[eager(0, 3, b"ab"), short(1)]), Some(Violation::Piece));
    assert_eq!(refused(&[eager(0, 3, b"")]), Some(Violation::Piece));
    assert_eq!(refused(&[eager(0, 0, b"")]), Some(Violation::Piece));
    assert_eq!(refused(&[more(0, b"a")]), Some(Violation::Piece), "more of nothing");
    assert_eq!(refused(&[first.clone(), more(1, b"ab")]), Some(Violation::Piece));
    assert_eq!(refused(&[forged(Kind::Eager, 0, 4, 0, &eager_head(3, 1))]), Some(Violation::NoFrame));
    assert_eq!(refused(&[eager(0, EAGER_BYTES_MAX as u64, b"a")]), None);
    assert_eq!(refused(&[eager(0, EAGER_BYTES_MAX as u64 + 1, b"a")]), Some(Violation::Length));
    let several = |parts: &[&[u8]]| forged(Kind::Several, 0, 4, 0, &parts.concat());
    let short_part = [&part_head(Kind::Short, 1)[..], b"x"].concat();
    assert_eq!(refused(&[several(&[&short_part, &short_part])]), None);
    assert_eq!(refused(&[several(&[&short_part, &short_part[..4]])]), Some(Violation::NoFrame));
    for kind in [Kind::Offer, Kind::Piece, Kind::Grant, Kind::Taken, Kind::Several, Kind::Eager, Kind::More] {
        assert_eq!(refused(&[several(&[&short_part, &part_head(kind, 0)])]), Some(Violation::NoFrame));
    }
}

#[test]
fn messages_that_had_to_wait_travel_together() {
    let [mut one, mut other] = pair([3, 2]);
    for number in 0..14 {
        if !is_in_pieces(number) {
            // Those whose body is eager are offered here.
            one.send(message(number));
        }
    }
    let frames: Vec<Vec<u8>> = std::iter::from_fn(|| next_frame(&mut one)).collect();
    let kinds: Vec<Kind> = frames.iter().map(|frame| Header::read(frame).unwrap().0.kind).collect();
    assert_eq!(kinds, [Kind::Several, Kind::Several], "all in two frames");
    frames.iter().for_each(|frame| other.receive(frame, &mut memory).unwrap());
    let mut numbers = Vec::new();
    while let Some(event) = other.poll_event() {
        match event {
            Event::Message { content, .. } => numbers.push(u64::from_le_bytes(content.try_into().unwrap())),
            Event::Read(read) => other.piece_arrived(read.message, read.number),
            Event::Taken(_) | Event::Begun { .. } | Event::NoMemory => {}
        }
    }
    assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 13]);
    other.report_taken();
    one.receive(&next_frame(&mut other).unwrap(), &mut memory).unwrap();
    assert!(one.is_all_taken());
}

#[test]
fn random_bytes_never_get_past_the_rules() {
    for seed in 1..300 {
        let mut random = Prng(seed);
        let [mut one, mut other] = pair([3, 3]).map(Side::new);
        for _ in 0..200 {
            one.step(&mut random, &mut other.wire);
            if let Some(mut frame) = other.wire.pop_front() {
                // A header with a valid kind and serial number, so that the other parts are reached, too.
                let at = 16 + random.below(frame.len() as u64 - 16) as usize;
                if random.below(8) == 0 {
                    frame[at] ^= 1 << random.below(8);
                }
                frame.truncate(frame.len() - random.below(50).saturating_sub(40) as usize);
                if other.link.receive(&frame, &mut memory).is_err() {
                    break;
                }
                // What arrives is not more than what the frames with credits may cause.
                assert!(std::iter::from_fn(|| other.link.poll_event()).count() <= 12);
            }
        }
    }
}

#[test]
fn a_piece_that_nobody_waits_for_changes_nothing() {
    let [_, mut link] = pair([4, 4]);
    link.piece_arrived(0, 0);
    link.piece_arrived(u64::MAX, 1);
    assert_eq!((link.poll_event(), link.taken()), (None, 0));
}

#[test]
fn a_sender_that_makes_more_pieces_is_told_before_its_memory_is_full() {
    let [mut one, mut other] = pair([8, 8]);
    let long = UNTOLD_BYTES_MAX / 2;
    one.send_in_pieces(vec![1], 4 * long);
    let read = |one: &mut Link, other: &mut Link| {
        one.add_piece(Offered { bytes: long, address: 0, key: 0 }, [0; PIECE_TAG_BYTES]);
        other.receive(&next_frame(one).unwrap(), &mut memory).unwrap();
        let read = std::iter::from_fn(|| other.poll_event()).find_map(|event| match event {
            Event::Read(read) => Some(read),
            _ => None,
        });
        other.piece_arrived(0, read.unwrap().number);
        next_frame(other)
    };
    assert_eq!(read(&mut one, &mut other), None, "few bytes");
    let told = read(&mut one, &mut other).expect("the sender needs its memory");
    one.receive(&told, &mut memory).unwrap();
    assert_eq!(one.pieces_taken_by_peer(), 2);
    assert_eq!(read(&mut one, &mut other), None, "it counts from the report on");
    assert_eq!(read(&mut one, &mut other), None, "the sender makes no more");
}

#[test]
fn unfit_introductions_make_no_link() {
    let ours = introduction(1, 4);
    let made = |theirs: Introduction| Link::new(&ours, &theirs, BODY_BYTES_MAX).is_some();
    assert!(made(introduction(2, 1)));
    assert!(!made(introduction(2, 0)));
    assert!(!made(Introduction { frame_bytes: 72, ..introduction(2, 4) }));
    assert!(!made(Introduction { provider: "other".into(), ..introduction(2, 4) }));
}

#[test]
fn messages_that_are_held_wait_in_order_and_do_not_count_as_taken() {
    let [mut one, mut other] = pair([4, 4]);
    other.hold_after(1);
    let carry = |one: &mut Link, other: &mut Link| {
        while let Some(ready) = one.ready(0) {
            let frame = [ready.head(), ready.content].concat();
            one.sent();
            other.receive(&frame, &mut memory).unwrap();
        }
        let content = |event| if let Event::Message { content, .. } = event { content[0] } else { 255 };
        std::iter::from_fn(|| other.poll_event()).map(content).collect::<Vec<u8>>()
    };
    for number in 0..3 {
        one.send(Message::Short(vec![number]));
    }
    assert_eq!((carry(&mut one, &mut other), other.taken()), (vec![0], 1));
    other.release();
    one.send(Message::Short(vec![3]));
    assert_eq!((carry(&mut one, &mut other), other.taken()), (vec![1, 2, 3], 4));
}

#[test]
fn a_long_message_that_is_held_does_not_count_as_taken_before_its_release() {
    let [mut one, mut other] = pair([8, 8]);
    other.hold_after(0);
    one.send(Message::Long(vec![0], Offered { bytes: 5, address: 0, key: 0 }));
    one.send(Message::Short(vec![1]));
    let pass = |from: &mut Link, to: &mut Link| {
        while let Some(frame) = next_frame(from) {
            to.receive(&frame, &mut memory).unwrap();
        }
    };
    pass(&mut one, &mut other);
    assert!(matches!(other.poll_event(), Some(Event::Begun { message: 0, bytes: 5, transfer: Transfer::Read })));
    let Some(Event::Read(read)) = other.poll_event() else { panic!("the body is to be read") };
    other.piece_arrived(read.message, read.number);
    for released in [false, true] {
        if released {
            other.release();
        }
        other.send(Message::Short(vec![2]));
        pass(&mut other, &mut one);
        assert_eq!(one.is_all_taken(), released);
    }
}

#[test]
fn without_memory_for_an_eager_body_the_owner_is_told() {
    let [mut one, mut other] = pair([4, 4]);
    one.send_eager(vec![1], 5);
    other.receive(&next_frame(&mut one).unwrap(), &mut |_| None).unwrap();
    assert_eq!((other.poll_event(), other.taken()), (Some(Event::NoMemory), 0));
}

#[test]
fn a_body_whose_place_is_gone_ends_the_link() {
    struct Gone;
    impl BodyMemory for Gone {
        fn reserve(&mut self, bytes: usize, next: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
            assert_eq!(next, Some((0, &[1][..])));
            Some(ArrivedBody::Placed { bytes })
        }

        fn part(&mut self, _: usize, _: usize) -> Option<&mut [u8]> {
            None
        }
    }
    let [mut one, mut other] = pair([4, 4]);
    one.send_eager(vec![1], 5);
    other.receive(&next_frame(&mut one).unwrap(), &mut Gone).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| other.poll_event()).collect();
    assert!(events.contains(&Event::NoMemory), "{events:?}");
}

#[test]
fn each_frame_tells_the_wishes() {
    let [mut one, mut other] = pair([4, 4]);
    assert_eq!(one.wishes_of_peer(), Wishes::READ);
    other.wish(Wishes(5));
    other.send(Message::Short(vec![1]));
    one.receive(&next_frame(&mut other).unwrap(), &mut memory).unwrap();
    assert_eq!(one.wishes_of_peer(), Wishes(5));
}

#[test]
fn a_receive_that_waits_is_told_and_only_the_next_message_is_for_it() {
    let [mut one, mut other] = pair([4, 4]);
    let pass = |from: &mut Link, to: &mut Link| {
        let frames: Vec<_> = std::iter::from_fn(|| next_frame(from)).collect();
        frames.iter().try_for_each(|frame| to.receive(frame, &mut memory)).map(|()| frames.len())
    };
    assert_eq!(other.wanted_by_peer(), None);
    assert!(one.want(b"first"));
    assert_eq!((pass(&mut one, &mut other), pass(&mut one, &mut other)), (Ok(1), Ok(0)), "once");
    assert_eq!(other.wanted_by_peer(), Some(&b"first"[..]));
    other.send(Message::Short(vec![1]));
    assert_eq!(other.wanted_by_peer(), None, "that was the next message");
    // This side does not know of the message yet, so what it wants comes too late.
    assert!(one.want(b"late"));
    pass(&mut one, &mut other).unwrap();
    assert_eq!(other.wanted_by_peer(), None);
    // Nothing is told if a message has arrived meanwhile.
    assert!(one.want(b"stale"));
    pass(&mut other, &mut one).unwrap();
    assert_eq!((pass(&mut one, &mut other), other.wanted_by_peer()), (Ok(0), None));
    assert!(one.want(b"second"));
    pass(&mut one, &mut other).unwrap();
    assert_eq!(other.wanted_by_peer(), Some(&b"second"[..]));
    // While a body is read, or messages are held, the next message is not the first that arrives.
    other.send(Message::Long(vec![2], Offered { bytes: 5, address: 0, key: 0 }));
    pass(&mut other, &mut one).unwrap();
    assert!(!one.want(b"third"));
    let [mut held, _] = pair([4, 4]);
    held.hold_after(0);
    assert!(!held.want(b"held"));
}

#[test]
fn a_receive_that_waits_for_the_rest_of_a_body_is_told() {
    let [mut one, mut other] = pair([8, 8]);
    let pass = |from: &mut Link, to: &mut Link| {
        std::iter::from_fn(|| next_frame(from)).for_each(|frame| to.receive(&frame, &mut memory).unwrap());
    };
    let message = other.send_in_pieces(vec![1], 10);
    let piece = |bytes| Offered { bytes, address: 0, key: 0 };
    other.add_piece(piece(4), [0; PIECE_TAG_BYTES]);
    pass(&mut other, &mut one);
    assert_eq!((other.wanted_of(message), other.wanted_by_peer()), (None, None));
    assert!(one.want(b"rest"));
    pass(&mut one, &mut other);
    assert_eq!(other.wanted_of(message), Some(&b"rest"[..]));
    assert_eq!((other.wanted_of(message + 1), other.wanted_by_peer()), (None, None), "not for the message after it");
    other.add_piece(piece(6), [0; PIECE_TAG_BYTES]);
    pass(&mut other, &mut one);
    assert!(!one.want(b"late"), "all is offered");
    // Nor for an eager body, whose frames hold copies.
    let [mut one, mut other] = pair([8, 8]);
    other.send_eager(vec![1], 1000);
    one.receive(&next_frame(&mut other).unwrap(), &mut memory).unwrap();
    assert!(!one.want(b"eager"));
}

#[test]
fn nobody_waits_for_a_message_behind_those_that_were_sent() {
    let refused = |count: u64, words: usize| {
        let [mut link, _] = pair([4, 4]);
        link.send(Message::Short(vec![1]));
        next_frame(&mut link).unwrap();
        let rest = [&count.to_le_bytes()[..], &vec![0; words]].concat();
        link.receive(&forged(Kind::Wanted, 0, 4, 0, &rest), &mut memory).err()
    };
    let most = wanting::WANTED_BYTES_MAX;
    assert_eq!((refused(0, most), refused(1, most)), (None, None));
    assert_eq!((refused(2, 0), refused(0, most + 1)), (Some(Violation::Wanted), Some(Violation::Wanted)));
    let [mut link, _] = pair([4, 4]);
    assert_eq!(link.receive(&forged(Kind::Wanted, 0, 4, 0, b"short"), &mut memory), Err(Violation::NoFrame));
}
