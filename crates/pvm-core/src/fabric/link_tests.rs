//! Links between two sides that may be slow, leave in the middle, or lie.
use super::*;
use crate::prng::Prng;
use std::collections::VecDeque;

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
    let ready = link.ready()?;
    let frame = [ready.head(), ready.content].concat();
    link.sent();
    Some(frame)
}

fn message(number: u64) -> Message {
    let content = number.to_le_bytes().to_vec();
    match number % 3 {
        0 => Message::Long(content, Offered { bytes: number + 5, address: number * 4096, key: 77 }),
        _ => Message::Short(content),
    }
}

fn body_of(offered: Offered) -> Vec<u8> {
    offered.address.to_le_bytes().repeat(2)
}

/// One side with its owner: what it has delivered, the bodies that it still reads, and the frames on their way to it.
struct Side {
    link: Link,
    wire: VecDeque<Vec<u8>>,
    reading: Vec<(u64, Offered)>,
    delivered: u64,
    told_taken: u64,
    sent: u64,
}

impl Side {
    fn new(link: Link) -> Side {
        Side { link, wire: VecDeque::new(), reading: Vec::new(), delivered: 0, told_taken: 0, sent: 0 }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Message { content, body } => {
                    let number = u64::from_le_bytes(content.try_into().unwrap());
                    assert_eq!(number, self.delivered, "in order");
                    let expected = match message(number) {
                        Message::Long(_, offered) => Some(body_of(offered)),
                        Message::Short(_) => None,
                    };
                    assert_eq!(body, expected);
                    self.delivered += 1;
                }
                Event::Read(number, offered) => self.reading.push((number, offered)),
                Event::Taken(number) => {
                    assert!(number > self.told_taken && number <= self.sent);
                    self.told_taken = number;
                }
            }
        }
    }

    fn step(&mut self, random: &mut Prng, peer_wire: &mut VecDeque<Vec<u8>>) {
        match random.below(6) {
            0 => {
                self.link.send(message(self.sent));
                self.sent += 1;
            }
            1 | 2 => peer_wire.extend(next_frame(&mut self.link)),
            3 => {
                // Frames may overtake others.
                let at = if random.below(4) == 0 { random.below(self.wire.len() as u64 + 1) as usize } else { 0 };
                if let Some(frame) = self.wire.remove(at) {
                    self.link.receive(&frame).unwrap();
                }
            }
            4 if !self.reading.is_empty() => {
                let (number, offered) = self.reading.swap_remove(random.below(self.reading.len() as u64) as usize);
                self.link.body_arrived(number, body_of(offered));
            }
            _ => self.link.report_taken(),
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
            while let Some((number, offered)) = from.reading.pop() {
                from.link.body_arrived(number, body_of(offered));
                is_still = false;
            }
            from.take_events();
            from.link.report_taken();
            while let Some(frame) = next_frame(&mut from.link) {
                to.wire.push_back(frame);
                is_still = false;
            }
            while let Some(frame) = to.wire.pop_front() {
                to.link.receive(&frame).unwrap();
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
    for seed in 1..200 {
        let mut sides = run(seed, 2000);
        settle(&mut sides);
        let [one, other] = sides;
        assert!(one.sent > 50 && other.sent > 50, "seed {seed} sends little");
        assert_eq!((one.delivered, other.delivered), (other.sent, one.sent), "seed {seed}");
        assert!(one.link.is_all_taken() && other.link.is_all_taken(), "seed {seed}");
    }
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
        one.send(message(number));
    }
    let frames: Vec<Vec<u8>> = std::iter::from_fn(|| next_frame(&mut one)).collect();
    assert_eq!(frames.len(), 5);
    for frame in &frames[..2] {
        other.receive(frame).unwrap();
    }
    assert!(other.ready().is_none(), "two credits are not worth a grant");
    other.receive(&frames[2]).unwrap();
    one.receive(&next_frame(&mut other).unwrap()).unwrap();
    assert_eq!(std::iter::from_fn(|| next_frame(&mut one)).count(), 3);
}

/// Returns a frame for the second side of `pair`.
fn forged(kind: Kind, serial: u64, allowed: u32, taken: u32, rest: &[u8]) -> Vec<u8> {
    [&Header { link: 22, kind, serial, allowed, taken }.bytes()[..], rest].concat()
}

#[test]
fn a_peer_that_breaks_the_rules_is_found_out() {
    let refused = |frames: &[Vec<u8>]| {
        let [_, mut link] = pair([4, 2]);
        link.send(Message::Short(vec![1]));
        next_frame(&mut link).unwrap();
        let (last, before) = frames.split_last().unwrap();
        before.iter().for_each(|frame| link.receive(frame).unwrap());
        link.receive(last).err()
    };
    let short = |serial| forged(Kind::Short, serial, 4, 0, b"x");
    let offer = |bytes| forged(Kind::Offer, 0, 4, 0, &Offered { bytes, address: 0, key: 0 }.bytes());
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
    assert_eq!(refused(&[forged(Kind::Offer, 0, 4, 0, &[0; 23])]), Some(Violation::NoFrame));
    assert_eq!(refused(&[offer(BODY_BYTES_MAX)]), None);
    assert_eq!(refused(&[offer(BODY_BYTES_MAX + 1)]), Some(Violation::Length));
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
                if other.link.receive(&frame).is_err() {
                    break;
                }
                // What arrives is not more than what the frames with credits may cause.
                assert!(std::iter::from_fn(|| other.link.poll_event()).count() <= 12);
            }
        }
    }
}

#[test]
fn a_body_that_nobody_waits_for_changes_nothing() {
    let [_, mut link] = pair([4, 4]);
    link.body_arrived(0, vec![1]);
    link.body_arrived(u64::MAX, vec![1]);
    assert_eq!((link.poll_event(), link.taken()), (None, 0));
}

#[test]
fn unfit_introductions_make_no_link() {
    let ours = introduction(1, 4);
    let made = |theirs: Introduction| Link::new(&ours, &theirs, BODY_BYTES_MAX).is_some();
    assert!(made(introduction(2, 1)));
    assert!(!made(introduction(2, 0)));
    assert!(!made(Introduction { frame_bytes: 48, ..introduction(2, 4) }));
    assert!(!made(Introduction { provider: "other".into(), ..introduction(2, 4) }));
}

#[test]
fn messages_that_are_held_wait_in_order_and_do_not_count_as_taken() {
    let [mut one, mut other] = pair([4, 4]);
    other.hold_after(1);
    let carry = |one: &mut Link, other: &mut Link| {
        while let Some(ready) = one.ready() {
            let frame = [ready.head(), ready.content].concat();
            one.sent();
            other.receive(&frame).unwrap();
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
