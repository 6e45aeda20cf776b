//! The lock-free algorithms under loom, which tries every order of their steps.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pvm-fmp`
use crate::clock::{Clock, is_earlier};
use crate::multicasts::Multicasts;
use crate::parker::Parker;
use crate::queue::{Kind, Reader, Slot, WELL_KNOWN_HEADERS, Writer, is_there};
use crate::rendezvous::{self, ReceiverAnswer, SenderState};
use crate::stream::{Spill, Stream};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::two_sided_copy::{self, TwoSidedCopy};
use loom::sync::Arc;
use loom::thread;

/// A ring, the reader's published count, and the word of a sleeper.
struct Shared {
    ring: Vec<Slot>,
    consumed: AtomicU64,
    parker: Parker,
    rung: AtomicU32,
}

fn shared(shift: u32) -> Arc<Shared> {
    Arc::new(Shared {
        ring: (0..1 << shift).map(|_| Slot::new()).collect(),
        consumed: AtomicU64::new(0),
        parker: Parker::new(),
        rung: AtomicU32::new(0),
    })
}

/// Reads one entry if there is one, and publishes that its slots are free.
fn read_one(shared: &Shared, reader: &mut Reader, consumed: &mut u64) -> Option<(u32, Vec<u8>)> {
    if let Some((immediate, _)) = reader.next_immediate(&shared.ring, 0).filter(|_| *consumed % 2 == 0) {
        reader.advance(1, &shared.ring);
        *consumed += 1;
        shared.consumed.store(*consumed, Ordering::Release);
        return Some((immediate.first[0], immediate.filled_body()[..immediate.len()].to_vec()));
    }
    let entry = reader.next(&shared.ring).expect("the writer keeps the rules")?;
    let mut body = vec![0; entry.len()];
    entry.copy_to(&mut body);
    let (first, half_slots) = (entry.meta()[0], entry.half_slots());
    reader.advance(half_slots, &shared.ring);
    *consumed += half_slots as u64;
    shared.consumed.store(*consumed, Ordering::Release);
    Some((first, body))
}

#[test]
fn entries_are_seen_whole_and_in_order() {
    loom::model(|| {
        let shared = shared(2);
        let there = shared.clone();
        let writer = thread::spawn(move || {
            let mut writer = Writer::new(2, Clock::default());
            writer.write_short(&there.ring, &[1, 0, 0, 0, 0, 0], &[1; 4]);
            writer.write(&there.ring, Kind::Message, &[2, 0, 0, 0, 0, 0], &[2; 40]);
        });
        let (mut reader, mut consumed, mut next) = (Reader::new(2), 0, 1);
        for _ in 0..3 {
            if let Some((first, body)) = read_one(&shared, &mut reader, &mut consumed) {
                assert_eq!(first, next);
                assert!(body.iter().all(|byte| u32::from(*byte) == next));
                next += 1;
            }
        }
        writer.join().unwrap();
    });
}

fn well_known(first: u32) -> crate::Meta {
    let [a, b, c, d] = WELL_KNOWN_HEADERS[0];
    [first, 0, a, b, c, d]
}

#[test]
fn half_slots_are_seen_whole_and_in_order() {
    loom::model(|| {
        let shared = shared(1);
        let there = shared.clone();
        let writer = thread::spawn(move || {
            let mut writer = Writer::new(1, Clock::default());
            writer.write_short(&there.ring, &well_known(1), &[1; 8]);
            writer.write_short(&there.ring, &[2, 0, 0, 0, 0, 0], &[2; 8]);
        });
        let (mut reader, mut consumed, mut next) = (Reader::new(1), 0, 1);
        for _ in 0..3 {
            if let Some((first, body)) = read_one(&shared, &mut reader, &mut consumed) {
                assert_eq!((first, body), (next, vec![next as u8; 8]));
                next += 1;
            }
        }
        writer.join().unwrap();
    });
}

/// Each word of the body that is written in the first round equals the stamp of an immediate message of the second
/// round.
#[test]
fn a_body_of_an_earlier_round_is_no_stamp() {
    loom::model(|| {
        let shared = shared(0);
        let mut writer = Writer::new(0, Clock::default());
        // A stamp without a parity is one of the second round.
        let stamp = (8u64 << 5 | 8).to_ne_bytes();
        writer.write(&shared.ring, Kind::Message, &[1, 0, 0, 0, 0, 0], &[stamp, stamp].concat());
        let (mut reader, mut consumed) = (Reader::new(0), 0);
        assert_eq!(read_one(&shared, &mut reader, &mut consumed).map(|(first, _)| first), Some(1));
        let there = shared.clone();
        let thread = thread::spawn(move || {
            writer.write_short(&there.ring, &well_known(2), &[2; 8]);
            writer.write_short(&there.ring, &well_known(3), &[3; 8]);
        });
        let mut next = 2;
        for _ in 0..3 {
            if let Some((first, body)) = read_one(&shared, &mut reader, &mut consumed) {
                assert_eq!((first, body), (next, vec![next as u8; 8]));
                next += 1;
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_slot_is_reused_only_after_it_was_read() {
    loom::model(|| {
        let shared = shared(0);
        let there = shared.clone();
        let writer = thread::spawn(move || {
            let mut writer = Writer::new(0, Clock::default());
            writer.write(&there.ring, Kind::Message, &[1, 0, 0, 0, 0, 0], &[1; 8]);
            if there.consumed.load(Ordering::Acquire) == 2 {
                writer.write(&there.ring, Kind::Message, &[2, 0, 0, 0, 0, 0], &[2; 8]);
            }
        });
        let (mut reader, mut consumed, mut expected) = (Reader::new(0), 0, 1);
        for _ in 0..3 {
            if let Some((first, body)) = read_one(&shared, &mut reader, &mut consumed) {
                assert_eq!((first, body), (expected, vec![expected as u8; 8]));
                expected += 1;
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let shared = shared(1);
        let there = shared.clone();
        let sender = thread::spawn(move || {
            Writer::new(1, Clock::default()).write(&there.ring, Kind::Message, &[1, 0, 0, 0, 0, 0], &[]);
            if there.parker.parked(false).is_some() {
                there.rung.store(1, Ordering::Relaxed);
            }
        });
        shared.parker.prepare_park(1);
        let seen = Reader::new(1).next(&shared.ring).unwrap().is_some();
        sender.join().unwrap();
        assert!(seen || shared.rung.load(Ordering::Relaxed) == 1, "the task sleeps and nobody rings");
    });
}

/// The queues between three tasks, and what the first one publishes about its multicasts.
struct Three {
    first_to_last: Vec<Slot>,
    first_to_second: Vec<Slot>,
    second_to_last: Vec<Slot>,
    multicasts: Multicasts,
}

impl Three {
    fn new() -> Arc<Three> {
        let ring = || vec![Slot::new()];
        let multicasts = Multicasts::new();
        Arc::new(Three { first_to_last: ring(), first_to_second: ring(), second_to_last: ring(), multicasts })
    }

    /// Returns the stamp of the first entry of a queue, if it is there.
    fn head(&self, ring: &[Slot]) -> Option<u64> {
        Reader::new(0).head(ring).filter(|stamp| is_there(*stamp, || self.multicasts.committed()))
    }

    /// The second task: forwards a message to the last one when it has got one of the first.
    fn forward(&self) {
        let Some(stamp) = self.head(&self.first_to_second) else { return };
        let clock = Clock::default();
        clock.observe(stamp);
        Writer::new(0, clock).write(&self.second_to_last, Kind::Message, &[3, 0, 0, 0, 0, 0], &[3; 8]);
    }

    /// The last task: if it finds the effect, the cause is there and has the earlier stamp.
    fn check(&self) {
        if let Some(effect) = self.head(&self.second_to_last) {
            let cause = self.head(&self.first_to_last).expect("the effect is there and the cause is not");
            assert!(is_earlier(cause, effect));
        }
    }
}

#[test]
fn a_cause_comes_before_its_effect() {
    loom::model(|| {
        let three = Three::new();
        let (first, second) = (three.clone(), three.clone());
        let first = thread::spawn(move || {
            let clock = Clock::default();
            for ring in [&first.first_to_last, &first.first_to_second] {
                Writer::new(0, clock.clone()).write(ring, Kind::Message, &[1, 0, 0, 0, 0, 0], &[1; 8]);
            }
        });
        let second = thread::spawn(move || second.forward());
        three.check();
        (first.join().unwrap(), second.join().unwrap());
        three.check();
    });
}

#[test]
fn a_multicast_is_there_for_all_receivers_at_once() {
    loom::model(|| {
        let three = Three::new();
        let (first, second) = (three.clone(), three.clone());
        let first = thread::spawn(move || {
            let clock = Clock::default();
            let time = first.multicasts.begin(|| clock.next_later());
            // The one that reacts gets its entry first.
            for ring in [&first.first_to_second, &first.first_to_last] {
                Writer::new(0, clock.clone()).write_held(ring, time, false, &[1, 0, 0, 0, 0, 0], &[1; 8]);
            }
            first.multicasts.commit(time);
        });
        let second = thread::spawn(move || second.forward());
        three.check();
        (first.join().unwrap(), second.join().unwrap());
        three.check();
    });
}

/// Two senders of one multicast each, and one of its receivers. The other receiver sees both later, and takes the one with
/// the earlier time first.
#[test]
fn a_multicast_is_taken_after_those_with_earlier_times() {
    loom::model(|| {
        struct Sender {
            ring: Vec<Slot>,
            multicasts: Multicasts,
            time: AtomicU64,
        }
        let sender = || Sender { ring: vec![Slot::new()], multicasts: Multicasts::new(), time: AtomicU64::new(0) };
        let senders = Arc::new([sender(), sender()]);
        // The host's time: a load of it orders nothing else.
        let time = Arc::new(AtomicU64::new(1));
        let threads: Vec<_> = (0..2)
            .map(|own| {
                let (senders, time) = (senders.clone(), time.clone());
                thread::spawn(move || {
                    let Sender { ring, multicasts, time: sent } = &senders[own];
                    let now = multicasts.begin(|| time.fetch_add(1, Ordering::Relaxed) << crate::clock::FIELD_BITS);
                    sent.store(now, Ordering::Relaxed);
                    Writer::new(0, Clock::default()).write_held(ring, now, false, &[1, 0, 0, 0, 0, 0], &[1; 8]);
                    multicasts.commit(now);
                })
            })
            .collect();
        let head = |sender: &Sender| {
            Reader::new(0).head(&sender.ring).filter(|stamp| is_there(*stamp, || sender.multicasts.committed()))
        };
        let mut taken = None;
        for (one, other) in [(0, 1), (1, 0)] {
            let Some(found) = head(&senders[one]) else { continue };
            // The receiver would wait for the other one; here it takes nothing.
            if taken.is_some() || senders[other].multicasts.may_precede(found, |_| true) {
                continue;
            }
            let earlier = head(&senders[other]).is_some_and(|stamp| is_earlier(stamp, found));
            taken = Some(if earlier { other } else { one });
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        if let Some(first) = taken {
            let [own, other] = [first, 1 - first].map(|sender| senders[sender].time.load(Ordering::Relaxed));
            assert!(is_earlier(own, other), "the other receiver takes them in the other order");
        }
    });
}

/// The sender's memory is one word, which the sender overwrites as soon as it may.
#[test]
fn the_body_of_a_rendezvous_is_never_read_after_its_reuse() {
    loom::model(|| {
        struct Words {
            rendezvous: AtomicU64,
            taken: AtomicU64,
            memory: AtomicU64,
            heap: AtomicU64,
        }
        let words = Arc::new(Words {
            rendezvous: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            memory: AtomicU64::new(7),
            heap: AtomicU64::new(0),
        });
        rendezvous::open(&words.rendezvous, 1);
        let there = words.clone();
        let sender = thread::spawn(move || {
            if rendezvous::receiver_answer(&there.taken, 1) != ReceiverAnswer::Taken {
                there.heap.store(7, Ordering::Relaxed);
                rendezvous::fall_back_to_eager(&there.rendezvous, 1);
            }
            there.memory.store(666, Ordering::Relaxed);
        });
        let got = match rendezvous::sender_state(&words.rendezvous, 1) {
            SenderState::Open => {
                let copy = words.memory.load(Ordering::Relaxed);
                fence(Ordering::Acquire);
                match rendezvous::claim(&words.rendezvous, &words.taken, 1, || unreachable!()) {
                    SenderState::Open => copy,
                    SenderState::Eager => words.heap.load(Ordering::Relaxed),
                    _ => unreachable!(),
                }
            }
            SenderState::Eager => words.heap.load(Ordering::Relaxed),
            _ => unreachable!(),
        };
        assert_eq!(got, 7);
        sender.join().unwrap();
    });
}

/// Either the receiver has the body, or the sender knows that the receiver will not get it. In both cases the sender
/// reuses its memory. The sender opens another rendezvous only if the receiver has this body.
#[test]
fn a_rendezvous_is_either_taken_or_withdrawn() {
    loom::model(|| {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(7)]);
        rendezvous::open(&words[0], 1);
        let there = words.clone();
        let sender = thread::spawn(move || {
            let [rendezvous_word, taken, memory] = &*there;
            let withdrawn = rendezvous::withdraw(rendezvous_word, 1, || rendezvous::receiver_answer(taken, 1));
            memory.store(666, Ordering::Relaxed);
            if !withdrawn {
                rendezvous::open(rendezvous_word, 2);
            }
            withdrawn
        });
        let [rendezvous_word, taken, memory] = &*words;
        let mut got = None;
        if rendezvous::sender_state(rendezvous_word, 1) == SenderState::Open {
            let copy = memory.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            got = (rendezvous::claim(rendezvous_word, taken, 1, || true) == SenderState::Open).then_some(copy);
        }
        let withdrawn = sender.join().unwrap();
        assert_eq!(got, (!withdrawn).then_some(7));
    });
}

#[test]
fn what_is_counted_as_there_can_be_read() {
    loom::model(|| {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        let there = words.clone();
        let sender = thread::spawn(move || {
            for piece in 1..=2 {
                there[piece].store(piece as u64, Ordering::Relaxed);
                crate::pipelined::advance(&there[0], piece);
            }
        });
        let count = crate::pipelined::available(&words[0]);
        assert!((1..=count).all(|piece| words[piece].load(Ordering::Relaxed) == piece as u64));
        sender.join().unwrap();
    });
}

#[test]
fn a_cell_that_goes_to_and_fro_is_written_by_one_side_at_a_time() {
    loom::model(|| {
        // The words of the two queues, the count of the cell, and its body.
        let words = Arc::new(std::array::from_fn::<_, 4, _>(|_| AtomicU64::new(0)));
        let there = words.clone();
        let other = thread::spawn(move || {
            let [from_us, from_them, count, body] = &*there;
            while from_us.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            while crate::pipelined::available(count) != 1 {
                thread::yield_now();
            }
            assert_eq!(body.load(Ordering::Relaxed), 1, "a message that was counted is there");
            body.store(2, Ordering::Relaxed);
            from_them.store(1, Ordering::Release);
        });
        let [from_us, from_them, count, body] = &*words;
        crate::pipelined::advance(count, 0);
        from_us.store(1, Ordering::Release);
        body.store(1, Ordering::Relaxed);
        crate::pipelined::advance(count, 1);
        while from_them.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert_eq!(body.load(Ordering::Relaxed), 2, "an answer in the cell is there");
        other.join().unwrap();
    });
}

#[test]
fn a_payload_that_is_kept_is_not_written_before_it_is_let_go() {
    loom::model(|| {
        // The task's read count, what it keeps, and the payload.
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(7)]);
        let there = words.clone();
        let daemon = thread::spawn(move || {
            let [consumed, mark, payload] = &*there;
            // As `Endpoint::read_by`, then `Endpoint::kept_by`.
            if consumed.load(Ordering::Acquire) >= 2 && mark.load(Ordering::Acquire) != 2 {
                payload.store(8, Ordering::Relaxed);
            }
        });
        let [consumed, mark, payload] = &*words;
        // As `store_kept`, then `Endpoint::publish`.
        mark.store(2, Ordering::Release);
        consumed.store(2, Ordering::Release);
        assert_eq!(payload.load(Ordering::Relaxed), 7);
        mark.store(0, Ordering::Release);
        daemon.join().unwrap();
    });
}

/// The words of a stream with a ring of two words, and a heap of one word.
fn stream(words: &[AtomicU64; 8]) -> Stream<'_> {
    let [written, read, first, second, third, ..] = words;
    Stream { written, read, spill: [first, second, third], capacity: 2 }
}

#[test]
fn a_stream_arrives_whole_from_the_ring_and_from_the_heap() {
    loom::model(|| {
        let words = Arc::new(std::array::from_fn::<_, 8, _>(|_| AtomicU64::new(0)));
        stream(&words).begin();
        let there = words.clone();
        let sender = thread::spawn(move || {
            let (stream, ring, heap) = (stream(&there), &there[5..7], &there[7]);
            let (mut read, mut start) = (0, 3);
            for at in 0..3 {
                // The sender does not wait: without room, the last word goes to the heap.
                if at < start && !stream.has_room(at, at + 1, &mut read) {
                    start = at;
                    stream.spill(Spill { start: at as u64, offset: 7, token: 1 });
                }
                let place = if at < start { &ring[at % 2] } else { heap };
                place.store(at as u64 + 1, Ordering::Relaxed);
                stream.advance(at + 1);
            }
        });
        let stream = stream(&words);
        let mut done = 0;
        while done < 3 {
            let there = stream.available() as usize;
            while done < there {
                let is_spilled = stream.spilled().is_some_and(|spill| done as u64 >= spill.start);
                let place = if is_spilled { &words[7] } else { &words[5 + done % 2] };
                assert_eq!(place.load(Ordering::Relaxed), done as u64 + 1);
                done += 1;
                stream.give_back(done);
            }
            thread::yield_now();
        }
        sender.join().unwrap();
    });
}

/// A two-sided copy into a buffer of two words.
struct Copy {
    open: AtomicU64,
    front: AtomicU64,
    back: AtomicU64,
    back_done: AtomicU64,
    buffer: [AtomicU64; 2],
}

impl Copy {
    fn new() -> Arc<Copy> {
        let new = || AtomicU64::new(0);
        let copy = Copy { open: new(), front: new(), back: new(), back_done: new(), buffer: [new(), new()] };
        two_sided_copy::begin(&copy.back, &copy.back_done);
        Arc::new(copy)
    }
    fn two_sided_copy(&self) -> TwoSidedCopy<'_> {
        TwoSidedCopy { open: &self.open, front: &self.front, back: &self.back, back_done: &self.back_done }
    }
    fn fill(&self, range: std::ops::Range<u64>) -> Result<(), ()> {
        range.for_each(|at| self.buffer[at as usize].store(1, Ordering::Relaxed));
        Ok(())
    }
    /// Does the receiver's part, and then overwrites the buffer.
    fn receive_and_reuse(&self, may_wait: bool, has_ended: &mut dyn FnMut() -> bool) {
        let mut timed_out = || {
            thread::yield_now();
            !may_wait
        };
        let done = self.two_sided_copy().receive(1, 2, 1, |range| self.fill(range), &mut timed_out, has_ended);
        assert!(done.is_ok());
        for word in &self.buffer {
            assert_eq!(word.load(Ordering::Relaxed), 1, "not all was copied");
            word.store(2, Ordering::Relaxed);
        }
    }
    fn is_unwritten(&self) -> bool {
        self.buffer.iter().all(|word| word.load(Ordering::Relaxed) == 2)
    }
}

/// Tries only the orders with at most three preemptions: all orders would take hours.
fn check_interrupted(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Both sides copy ones into a buffer. As soon as the buffer is the receiver's again, the receiver fills it with twos.
/// With `may_wait`, the receiver waits for a chunk that the helper has claimed; otherwise the receiver copies that
/// chunk, too.
fn both_sides_copy(may_wait: bool) {
    check_interrupted(move || {
        let copy = Copy::new();
        let there = copy.clone();
        let helper = thread::spawn(move || {
            if there.two_sided_copy().is_open(1) {
                there.two_sided_copy().help(1, 2, 1, |range| there.fill(range));
            }
        });
        copy.receive_and_reuse(may_wait, &mut || false);
        helper.join().unwrap();
        assert!(copy.is_unwritten(), "written after its end");
    });
}

/// The helper ends in the middle of the chunk that it has claimed. The receiver waits until it knows that the helper
/// has ended.
#[test]
fn a_buffer_is_given_back_when_a_helper_has_ended_in_its_chunk_and_not_before() {
    check_interrupted(|| {
        let copy = Copy::new();
        let ended = Arc::new(AtomicU32::new(0));
        let (there, end) = (copy.clone(), ended.clone());
        let helper = thread::spawn(move || {
            // This does what `TwoSidedCopy::help` does until the helper ends.
            there.back.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if there.two_sided_copy().is_open(1) {
                there.buffer[1].store(1, Ordering::Relaxed);
            }
            end.store(1, Ordering::Release);
        });
        copy.receive_and_reuse(false, &mut || ended.load(Ordering::Acquire) == 1);
        helper.join().unwrap();
        assert!(copy.is_unwritten(), "written after its end");
    });
}

#[test]
fn a_copy_of_both_sides_is_whole_and_ends() {
    both_sides_copy(true);
}

#[test]
fn a_copy_of_both_sides_is_whole_when_the_receiver_does_not_wait() {
    both_sides_copy(false);
}

#[test]
fn a_state_line_is_read_whole_or_not_at_all() {
    loom::model(|| {
        let line = Arc::new(crate::state_line::StateWords::<2>::new());
        let there = line.clone();
        let owner = thread::spawn(move || {
            there.write(&[1, 1], true);
            there.wake();
            there.write(&[2, 2], false);
        });
        if let Some(line) = line.read() {
            assert!(line.words == [1, 1] || line.words == [2, 2], "{line:?}");
            assert!(!line.is_asleep || line.words == [1, 1]);
        }
        owner.join().unwrap();
    });
}
