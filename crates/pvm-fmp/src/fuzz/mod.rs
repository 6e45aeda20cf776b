//! Untrusted input: what peers write to shared memory (docs/testing.md).
//!
//! Random bytes would be refused by the first check; more dangerous is a neighbour that keeps most of the rules and
//! breaks a few. So the input is a list of actions of a hostile peer, and of polls of its victim.
mod barrier;
mod pair;

use self::pair::Cells;
use crate::clock::Clock;
use crate::doorbell;
use crate::ports::{PortTable, PortView};
use crate::queue::{Kind, SLOT_BYTES, Slot, Writer};
use crate::remote::{BORROWED, KEEPABLE};
use crate::segment::Segment;
use crate::segment_layout::{EXTENTS_MAX, FIRST_BYTES, PAGE_BYTES, PeerRecord};
use crate::sync::{AtomicU64, Ordering};
use crate::{Arrival, Endpoint, INLINE_BYTES_MAX, Meta, NotTaken, Remote, Sink};
use pvm_fuzz::{Target, Unstructured, file, part};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::OwnedFd;

/// The fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "neighbour",
        run: neighbour,
        decoder: &[
            file("crates/pvm-fmp/src/arrival.rs"),
            part("crates/pvm-fmp/src/rendezvous.rs", &["receiver_answer", "sender_state", "claim", "request_eager"]),
            part(
                "crates/pvm-fmp/src/queue/mod.rs",
                &[
                    "stamp",
                    "find",
                    "next",
                    "next_immediate",
                    "has_next",
                    "head",
                    "meta_of",
                    "copy_to",
                    "copy_any_to",
                    "load_bytes",
                    "load_words",
                ],
            ),
            part(
                "crates/pvm-fmp/src/queue/stamp.rs",
                &["from_number", "bytes_of", "kind_of", "is_there", "well_known_of"],
            ),
            part("crates/pvm-fmp/src/outstanding.rs", &["remove", "holds"]),
            part(
                "crates/pvm-fmp/src/peer.rs",
                &[
                    "find_record",
                    "consumed",
                    "at",
                    "follow",
                    "note_consumed",
                    "find_queue",
                    "may_have_new_queue",
                    "has_nothing_before",
                ],
            ),
            part(
                "crates/pvm-fmp/src/endpoint/receive.rs",
                &[
                    "drain_peer",
                    "drain_picked",
                    "poll_dead",
                    "drain_some",
                    "mark_damaged",
                    "step",
                    "step_long",
                    "follow_continuation",
                    "receive_rendezvous",
                    "receive_borrowed",
                ],
            ),
            part("crates/pvm-fmp/src/endpoint/words.rs", &["words_of"]),
            part(
                "crates/pvm-fmp/src/endpoint/merge.rs",
                &["poll_in_order", "look_for_heads", "earliest_before", "look_for_queue"],
            ),
            part("crates/pvm-fmp/src/endpoint/gaps.rs", &["take"]),
            part("crates/pvm-fmp/src/endpoint/recent.rs", &["recent", "take", "probe_recent_immediate"]),
            part("crates/pvm-fmp/src/endpoint/in_progress.rs", &["receive_pipelined", "receive_complete"]),
            part(
                "crates/pvm-fmp/src/endpoint/passed.rs",
                &["take_offer", "take_answer", "receive_passed", "body_in_cell", "from_word", "note"],
            ),
            part("crates/pvm-fmp/src/endpoint/packed.rs", &["take_dropped"]),
            part(
                "crates/pvm-fmp/src/pair_memory.rs",
                &[
                    "open",
                    "file_of",
                    "of",
                    "holds",
                    "may_arrive",
                    "read",
                    "retain",
                    "release",
                    "note_dropped",
                    "keep_released",
                ],
            ),
            part("crates/pvm-fmp/src/endpoint/recent.rs", &["take"]),
            part("crates/pvm-fmp/src/immediate.rs", &["filled_body", "copy_numbers_to"]),
            part(
                "crates/pvm-fmp/src/extents.rs",
                &[
                    "of_peer",
                    "reach",
                    "reach_elsewhere",
                    "address",
                    "table",
                    "extents",
                    "map_more",
                    "map_piece",
                    "nearest",
                ],
            ),
        ],
    },
    Target {
        name: "group-barrier",
        run: barrier::group_barrier,
        decoder: &[
            file("crates/pvm-fmp/src/group/view.rs"),
            part(
                "crates/pvm-fmp/src/group/barrier.rs",
                &[
                    "arrival_state",
                    "pending",
                    "arrive",
                    "passed",
                    "fate",
                    "fail",
                    "take",
                    "release",
                    "reopen",
                    "finish_failure",
                ],
            ),
            part("crates/pvm-fmp/src/group/memory.rs", &["look", "waiting", "take", "sleepers", "fail"]),
        ],
    },
];

const VICTIM: u32 = 0x40001;
const ATTACKER: u32 = 0x40002;
const DAEMON: u32 = 0x40000;
const STRANGER: u32 = 0x40003;
/// The number of bytes that are read at each end of a body: enough to see that the body is there.
const LOOK_BYTES: usize = 4096;
/// The offset of the playground: the part of the hostile neighbour's second extent in which its rings and bodies lie.
const PLAYGROUND: u64 = FIRST_BYTES + PAGE_BYTES;
/// The length of the playground in bytes.
const PLAYGROUND_BYTES: u64 = 256 << 10;
/// The number of bytes at the start of the playground that are kept for the neighbour's two rings.
const RINGS_BYTES: u64 = 64 << 10;
/// An input byte of at least this value chooses a [`standing_action`].
const STANDING_FIRST: u8 = 248;
/// An input byte of at least this value, and less than [`STANDING_FIRST`], chooses an action with cells.
const CELLS_FIRST: u8 = 244;
/// The largest number of actions in one run.
const ACTIONS_MAX: usize = 200;

/// Takes messages as a task does, but reads only the two ends of each body.
#[derive(Default)]
struct Looking {
    kept: Vec<Remote>,
    keeps: bool,
    declines: bool,
    in_pieces: bool,
}

impl Looking {
    fn look_at(&mut self, remote: Remote) {
        let mut bytes = [0; LOOK_BYTES];
        let count = remote.len().min(LOOK_BYTES);
        remote.read(0, &mut bytes[..count]);
        remote.read(remote.len() - count, &mut bytes[..count]);
        if self.in_pieces && remote.len() <= LOOK_BYTES {
            let mut done = 0;
            remote.use_pieces(&mut done, &mut |_, _, _| {});
            let mut all = Vec::new();
            remote.append_to(&mut all);
            assert_eq!((done, all.len()), (remote.len(), remote.len()));
        }
        assert!(possible(remote.len(), remote.is_empty()));
        if self.keeps {
            self.kept.push(remote);
        }
    }
}

/// Returns whether a body may have this length, and `is_empty` agrees with it.
fn possible(bytes: usize, is_empty: bool) -> bool {
    bytes <= crate::BODY_BYTES_MAX && is_empty == (bytes == 0)
}

impl Sink for Looking {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        match body {
            Arrival::Inline(inline) => {
                let mut bytes = [0; INLINE_BYTES_MAX];
                assert_eq!(inline.copy_to(&mut bytes), inline.len());
                assert!(possible(inline.len(), inline.is_empty()));
            }
            Arrival::Remote(remote) => self.look_at(remote),
            Arrival::InTransit(_) if self.declines => {}
            Arrival::InTransit(body) => {
                assert!(possible(body.len(), body.is_empty()));
                if let Some(kept) = self.keeps.then(|| body.keep()).flatten() {
                    return self.look_at(kept);
                }
                let missed = match (self.in_pieces, body.len() <= LOOK_BYTES) {
                    (true, true) => body.use_pieces(&mut 0, &mut |_, _, _| {}),
                    (false, true) => {
                        let mut all = Vec::with_capacity(body.len());
                        body.take_all(&mut all)
                    }
                    (_, false) => body.take(&mut [0; LOOK_BYTES]),
                };
                if let Err(NotTaken::Eager(remote)) = missed {
                    self.look_at(remote);
                }
            }
        }
    }
}

/// The segment of a neighbour that writes there whatever it wants.
struct Hostile {
    segment: Segment,
    writer: Writer,
    ring: u64,
    shift: u32,
    cells: Option<Cells>,
}

impl Hostile {
    fn new() -> Hostile {
        let segment = Segment::new().expect("memory for a segment");
        assert!(segment.grow(PLAYGROUND_BYTES).is_ok_and(|(start, _)| start == PLAYGROUND));
        segment.commit(PLAYGROUND, PLAYGROUND_BYTES).expect("memory for a heap");
        let shift = 6;
        let hostile =
            Hostile { segment, writer: Writer::new(shift, Clock::default()), ring: PLAYGROUND, shift, cells: None };
        let (header, record) = (hostile.segment.mapping.header(), hostile.record());
        record.tid.store(VICTIM, Ordering::Relaxed);
        record.ring_shift.store(shift, Ordering::Relaxed);
        record.ring.store(hostile.ring, Ordering::Relaxed);
        header.peers.0.store(1, Ordering::Relaxed);
        header.table_version.store(1, Ordering::Relaxed);
        hostile
    }

    fn first_ring(&self) -> u64 {
        PLAYGROUND
    }

    fn record(&self) -> &PeerRecord {
        self.segment.mapping.peer_record(0).expect("it is always there")
    }

    fn descriptors(&self) -> (OwnedFd, OwnedFd) {
        let segment = self.segment.descriptor().try_clone_to_owned().expect("a descriptor");
        (segment, doorbell::new().expect("a doorbell"))
    }

    /// Writes an entry of correct form; its content may be anything.
    fn write(&mut self, kind: Kind, meta: &Meta, body: &[u8]) {
        let bytes = (SLOT_BYTES as u64) << self.shift;
        let address = self.segment.mapping.address(self.ring, bytes);
        // SAFETY: `address` has checked that `bytes` bytes lie in the mapping, which `self` keeps; a
        // slot is made of atomics and aligned, since rings begin at multiples of its size.
        let ring: &[Slot] = unsafe { std::slice::from_raw_parts(address.cast(), 1 << self.shift) };
        self.writer.write(ring, kind, meta, body);
    }

    /// Writes a word anywhere in the playground.
    fn scribble(&self, at: u64, value: u64) {
        let address = self.segment.mapping.address(PLAYGROUND + at % PLAYGROUND_BYTES / 8 * 8, 8);
        // SAFETY: checked by `address`; aligned, since the heap begins at a multiple of eight.
        unsafe { &*address.cast::<AtomicU64>() }.store(value, Ordering::Relaxed);
    }
}

/// Returns a number that is likely to be accepted as an offset: small, in the playground, near `end`, near the largest
/// number, or any number.
fn word(from: &mut Unstructured<'_>, end: u64) -> pvm_fuzz::Result<u64> {
    Ok(match from.arbitrary::<u8>()? % 8 {
        0 | 1 => from.arbitrary::<u8>()?.into(),
        2 | 3 => PLAYGROUND + u64::from(from.arbitrary::<u16>()?) * 64 % PLAYGROUND_BYTES,
        4 => end.wrapping_sub(from.arbitrary::<u8>()?.into()),
        5 => u64::from(from.arbitrary::<u16>()?) << (from.arbitrary::<u8>()? % 48),
        6 => u64::MAX - u64::from(from.arbitrary::<u8>()?),
        _ => from.arbitrary()?,
    })
}

fn neighbour(bytes: &[u8]) {
    // `actions` ends when the input has no more bytes.
    let _ = actions(&mut Unstructured::new(bytes));
}

fn actions(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let table = PortTable::new(2).expect("memory for the port table");
    let flags: u8 = from.arbitrary()?;
    let attacker = if flags & 1 == 0 { ATTACKER } else { DAEMON };
    [VICTIM, attacker].iter().for_each(|tid| table.set(*tid));
    let mut victim = Endpoint::new().expect("memory for a segment");
    let view = PortView::new(table.descriptor().try_clone_to_owned().expect("a descriptor"));
    victim.enrolled(VICTIM, view.expect("a port table"));
    let mut hostile = Hostile::new();
    let (segment, bell) = hostile.descriptors();
    victim.connect(attacker, segment, bell).expect("its segment is one");
    let mut sink = Looking { keeps: flags & 2 != 0, declines: flags & 4 != 0, in_pieces: flags & 8 != 0, kept: vec![] };
    strangers(flags >> 4, &mut victim, &hostile);
    for _ in 0..ACTIONS_MAX {
        action(from, &mut hostile)?;
        look(from, &mut victim, attacker, &mut hostile, &mut sink)?;
        if from.is_empty() {
            break;
        }
    }
    table.clear(attacker);
    victim.poll_dead(attacker, &mut sink);
    victim.peer_gone(attacker);
    victim.tidy();
    Ok(())
}

/// Does one action of the neighbour.
fn action(from: &mut Unstructured<'_>, hostile: &mut Hostile) -> pvm_fuzz::Result<()> {
    let end = PLAYGROUND + PLAYGROUND_BYTES;
    let value = word(from, end)?;
    let record = hostile.record();
    let choice: u8 = from.arbitrary()?;
    if choice >= STANDING_FIRST {
        return standing_action(choice - STANDING_FIRST, from, hostile, value);
    }
    if choice >= CELLS_FIRST {
        return pair::action(choice - CELLS_FIRST, from, hostile, value);
    }
    match choice % 32 {
        0 => hostile.segment.mapping.header().peers.0.store(value as u32, Ordering::Relaxed),
        1 => drop(hostile.segment.mapping.header().table_version.fetch_add(1, Ordering::Relaxed)),
        2 => record.tid.store(value as u32, Ordering::Relaxed),
        3 => record.ring.store(value, Ordering::Relaxed),
        4 => record.ring_shift.store(value as u32, Ordering::Relaxed),
        5 => record.rendezvous.store(value, Ordering::Relaxed),
        6 => record.eager_offset.store(value, Ordering::Relaxed),
        7 => record.eager_bytes.store(value, Ordering::Relaxed),
        8 => record.eager_token.store(value, Ordering::Relaxed),
        9 => record.consumed.store(value, Ordering::Relaxed),
        10 => record.taken.store(value, Ordering::Relaxed),
        11 => record.into_number.store(value, Ordering::Relaxed),
        12 => record.into_bytes.store(value, Ordering::Relaxed),
        13 => record.front.store(value, Ordering::Relaxed),
        14 => record.back.store(value, Ordering::Relaxed),
        15 => record.back_done.store(value, Ordering::Relaxed),
        16 => hostile.scribble(from.arbitrary::<u32>()?.into(), value),
        17 => hostile.segment.mapping.header().pid.store(value as u32, Ordering::Relaxed),
        18 => hostile.segment.mapping.header().nonce_address.store(value, Ordering::Relaxed),
        19..=21 => entry(from, hostile, Kind::Blocks, &[value & 0xffff_ffff | 1 << 32])?,
        22 | 23 => entry(from, hostile, Kind::Rendezvous, &[value])?,
        24 | 25 => {
            let kinds = [
                Kind::Pipelined,
                Kind::Offer,
                Kind::Answer,
                Kind::Passed,
                Kind::Streamed,
                Kind::CopyTime,
                Kind::Dropped,
                Kind::AfterFrame,
                Kind::Gap,
                Kind::NoMore,
            ];
            let kind = kinds[(value >> 40) as usize % kinds.len()];
            entry(from, hostile, kind, &[value])?;
        }
        26 => entry(from, hostile, Kind::Release, &[value])?,
        27 => entry(from, hostile, Kind::Continuation, &[value])?,
        28 => {
            let body = [value as u8; INLINE_BYTES_MAX];
            let meta = if value % 2 == 0 { [1, 2, 3, 4, 5, 6] } else { [1, 2, 0, 0x40_8c41, 0x40_8c41, 0] };
            hostile.write(Kind::Message, &meta, &body[..value as usize % (INLINE_BYTES_MAX + 1)]);
        }
        29 => {
            let count = from.arbitrary::<u8>()? as usize % 32;
            let mut words = vec![u64::from(count as u32) << 32 | value & 0xffff_ffff];
            for _ in 0..2 * count {
                words.push(word(from, end)?);
            }
            let body = words_of(&words);
            hostile.write(Kind::Blocks, &[9; 6], &body[..body.len().min(INLINE_BYTES_MAX)]);
        }
        30 => {
            // An open rendezvous, whose memory exists.
            let body = [7u8; LOOK_BYTES];
            record.rendezvous.store(4 * (value & 0xff), Ordering::Relaxed);
            let words = [body.as_ptr() as u64, u64::from(from.arbitrary::<u16>()?), value & 0xff];
            let body = words_of(&words);
            hostile.write(Kind::Rendezvous, &[8; 6], &body);
        }
        // Extents that do not exist, and pieces of a table at any offset.
        _ if value % 4 == 1 => {
            let place = from.arbitrary::<u8>()? as usize % EXTENTS_MAX;
            hostile.segment.mapping.header().ends.0[place]
                .store((value / 4).wrapping_mul(PAGE_BYTES), Ordering::Relaxed);
        }
        _ if value % 4 == 2 => {
            let tables = &hostile.segment.mapping.header().tables;
            tables[from.arbitrary::<u8>()? as usize % tables.len()].store(value / 4, Ordering::Relaxed);
        }
        _ => hostile.writer = Writer::new(hostile.shift, Clock::default()),
    }
    Ok(())
}

/// Does an action after which the victim finds an entry to read. Chance alone would hardly lead to such entries.
fn standing_action(choice: u8, from: &mut Unstructured<'_>, hostile: &mut Hostile, value: u64) -> pvm_fuzz::Result<()> {
    let place = hostile.first_ring() + RINGS_BYTES + value % 32 * 1024;
    let bytes: u64 = from.arbitrary::<u16>()?.into();
    let words: Vec<u64> = match choice {
        // A pipelined body, complete or not.
        0 | 1 => {
            let there = if choice == 0 { bytes } else { from.arbitrary::<u16>()?.into() };
            hostile.scribble(place - PLAYGROUND, there);
            vec![value, place, bytes]
        }
        // More bytes of such a body.
        2 => {
            hostile.scribble(place - PLAYGROUND, bytes);
            return Ok(());
        }
        // A body in the heap, or a borrowed payload, in fragments.
        3 | 4 => {
            let token = match choice {
                3 => u64::from(if value % 2 == 0 { BORROWED } else { KEEPABLE }),
                _ => value,
            };
            let pieces = 1 + value % 3;
            let piece = |number| [place + number * 64, bytes / pieces];
            std::iter::once(token & 0xffff_ffff | pieces << 32).chain((0..pieces).flat_map(piece)).collect()
        }
        // A rendezvous that has fallen back to eager.
        5 => {
            let record = hostile.record();
            record.rendezvous.store(value << 2 | 1, Ordering::Relaxed);
            record.eager_offset.store(place, Ordering::Relaxed);
            record.eager_bytes.store(bytes, Ordering::Relaxed);
            vec![4096, bytes, value]
        }
        // The queue continues in another ring, or in one that was read before.
        6 => {
            let next = hostile.first_ring() + RINGS_BYTES / 2 * (value % 2);
            hostile.write(Kind::Continuation, &[0; 6], &words_of(&[next, hostile.shift.into()]));
            hostile.ring = next;
            hostile.writer = Writer::new(hostile.shift, Clock::default());
            return Ok(());
        }
        // A row of short messages.
        _ => {
            for number in 0..bytes % 64 {
                let meta = if number % 3 > 0 { [1, 2, 0, 0x40_8c41, 0x40_8c41, 0] } else { [1, 2, 3, 4, 5, 6] };
                hostile.write(Kind::Message, &meta, &[7; 16][..(number + value % 17) as usize % 17]);
            }
            return Ok(());
        }
    };
    let kind = [Kind::Pipelined, Kind::Pipelined, Kind::Pipelined, Kind::Blocks, Kind::Blocks, Kind::Rendezvous]
        [usize::from(choice)];
    hostile.write(kind, &[1, 2, 3, 4, 5, 6], &words_of(&words));
    Ok(())
}

fn words_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Checks that a file that is no segment is refused.
fn strangers(choice: u8, victim: &mut Endpoint, hostile: &Hostile) {
    let (_, bell) = hostile.descriptors();
    let bytes = hostile.segment.mapping.end();
    let file = |bytes: u64, seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("stranger", flags).expect("memory for a file");
        rustix::fs::ftruncate(&file, bytes).expect("nothing is written to it");
        rustix::fs::fcntl_add_seals(&file, seals).expect("it is ours");
        file
    };
    let stranger = match choice % 4 {
        0 => bell.try_clone().expect("a descriptor"),
        1 => file(bytes, SealFlags::GROW),
        2 => file(4096, SealFlags::SHRINK),
        _ => file(bytes, SealFlags::SHRINK),
    };
    assert!(victim.connect(STRANGER, stranger, bell).is_err());
}

/// Writes an entry whose body is three words: those of `first`, then words that the input chooses. Sometimes only the
/// first word is written.
fn entry(from: &mut Unstructured<'_>, hostile: &mut Hostile, kind: Kind, first: &[u64]) -> pvm_fuzz::Result<()> {
    let end = PLAYGROUND + PLAYGROUND_BYTES;
    let mut words = first.to_vec();
    while words.len() < 3 {
        words.push(word(from, end)?);
    }
    let body = words_of(&words);
    let cut = if from.arbitrary::<u8>()? == 0 { 8 } else { body.len() };
    hostile.write(kind, &[1, 2, 3, 4, 5, 6], &body[..cut]);
    Ok(())
}

/// Does one action of the victim, such as a poll.
fn look(
    from: &mut Unstructured<'_>,
    victim: &mut Endpoint,
    attacker: u32,
    hostile: &mut Hostile,
    sink: &mut Looking,
) -> pvm_fuzz::Result<()> {
    match from.arbitrary::<u8>()? % 16 {
        0..=3 => drop(victim.poll(sink)),
        4 => drop(victim.poll_peer(attacker, sink)),
        5 => {
            victim.poll_all(sink);
            victim.frame_taken();
            victim.poll_all_through(sink);
        }
        6 => {
            if let Some(message) = victim.probe_recent(true) {
                let mut data = [0; 600];
                let (bytes, _) = (message.len(), message.meta());
                assert!(message.take(&mut data[..bytes.min(600)]).is_none_or(|taken| taken == bytes));
            }
        }
        7 => {
            let _ = victim.send_bytes(attacker, [1, 2, 3, 4, 5, 0], &[3; 40]);
        }
        8 => {
            if let Ok(block) = victim.allocate(2000) {
                let _ = victim.send_blocks(attacker, [1, 2, 3, 4, 5, 0], &[(block, 2000)]);
            }
        }
        9 => {
            let _ = victim.send_bytes(attacker, [1, 2, 3, 4, 5, 0], &[3; 20_000]);
        }
        10 => {
            victim.watch_most_recent();
            victim.watch();
            victim.has_read(attacker, victim.written(attacker));
        }
        11 => victim.tidy(),
        12 => sink.kept.clear(),
        13 => sink.declines = !sink.declines,
        14 => {
            if let Some(first) = victim.probe_recent_immediate(true) {
                let mut data = [0; 16];
                let bytes = first.immediate.len();
                let copied = first.immediate.copy_numbers_to(&mut data);
                assert_eq!(copied, [4, 8, 16].contains(&bytes));
                assert!(!copied || first.take().filled_body()[..bytes] == data[..bytes]);
            }
        }
        _ => pair::take_turns(hostile, victim, attacker, sink),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a task and its hostile neighbour.
    pub(super) fn neighbours() -> (PortTable, Endpoint, Hostile) {
        let table = PortTable::new(2).unwrap();
        table.set(VICTIM);
        table.set(ATTACKER);
        let mut victim = Endpoint::new().unwrap();
        victim.enrolled(VICTIM, PortView::new(table.descriptor().try_clone_to_owned().unwrap()).unwrap());
        let hostile = Hostile::new();
        let (segment, bell) = hostile.descriptors();
        victim.connect(ATTACKER, segment, bell).unwrap();
        (table, victim, hostile)
    }

    #[test]
    fn a_queue_that_leads_in_a_circle_is_read_once() {
        for further in [0, 64, 4096] {
            let (_table, mut victim, mut hostile) = neighbours();
            hostile.write(Kind::Message, &[1; 6], b"one");
            hostile.write(Kind::Continuation, &[0; 6], &words_of(&[hostile.ring + further, 6]));
            // The second ring leads back to the first one, or overlaps with it.
            hostile.ring += further;
            hostile.writer = Writer::new(hostile.shift, Clock::default());
            hostile.write(Kind::Message, &[2; 6], b"two");
            hostile.write(Kind::Continuation, &[0; 6], &words_of(&[hostile.ring - further, 6]));
            // The entries that the dead peer left are read once or a few times, but not for ever.
            assert!(victim.poll_dead(ATTACKER, &mut Looking::default()) < 1000, "{further}");
        }
    }

    #[test]
    fn a_rendezvous_with_a_number_that_no_word_can_hold_is_damage() {
        let (_table, mut victim, mut hostile) = neighbours();
        hostile.record().rendezvous.store(4, Ordering::Relaxed);
        hostile.write(Kind::Rendezvous, &[1; 6], &words_of(&[4096, 8, 1 << 62 | 1]));
        hostile.write(Kind::Message, &[1; 6], b"not believed any more");
        assert_eq!(victim.poll(&mut Looking::default()), 0);
    }

    #[test]
    fn a_peer_that_has_read_more_than_there_was_is_sent_to_all_the_same() {
        let (_table, mut victim, hostile) = neighbours();
        let full = 4 << hostile.shift;
        for round in 0..3 * full {
            hostile.record().consumed.store(u64::MAX - round, Ordering::Relaxed);
            assert!(victim.send_bytes(ATTACKER, [1, 2, 3, 4, 5, 0], &[3; 40]).is_ok());
        }
        victim.tidy();
    }

    #[test]
    fn a_body_longer_than_any_message_is_damage() {
        let long = crate::BODY_BYTES_MAX as u64 + 1;
        let at = PLAYGROUND + PLAYGROUND_BYTES + PAGE_BYTES;
        let entries = [
            (Kind::Blocks, words_of(&[1 << 32, at, long])),
            (Kind::Blocks, words_of(&[3 << 32, at, long / 2, at, long / 2, at, 1])),
            (Kind::Pipelined, words_of(&[0, at, long])),
            (Kind::Rendezvous, words_of(&[4096, long, 1])),
        ];
        for (kind, entry) in entries {
            let (_table, mut victim, mut hostile) = neighbours();
            assert!(hostile.segment.grow(2 * long).is_ok_and(|(start, _)| start <= at));
            hostile.record().rendezvous.store(4, Ordering::Relaxed);
            hostile.write(kind, &[1; 6], &entry);
            hostile.write(Kind::Message, &[1; 6], b"not believed any more");
            assert_eq!(victim.poll(&mut Looking::default()), 0, "{kind:?}");
            assert_eq!(victim.poll(&mut Looking::default()), 0, "{kind:?}");
        }
    }

    #[test]
    fn what_was_found_in_bytes_from_nowhere_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
