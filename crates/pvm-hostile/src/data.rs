//! Attacks on data links: unexpected messages, credit and in-band frames, and invalid frames.
use crate::false_frames;
use crate::life::Life;
use pvm_core::flows::CHUNK_BYTES_MAX;
use pvm_core::flows::pacing::is_paced;
use pvm_core::tid::{DAEMON_BIT, GROUP_BIT, Tid};
use pvm_core::wire;

/// The kinds of frames on a data link.
const START: u8 = 1;
const CHUNK: u8 = 2;
const IN_BAND: u8 = 3;
const CREDIT: u8 = 4;
const ACKNOWLEDGED: u8 = 5;
const ANNOUNCE: u8 = 6;
const REQUEST: u8 = 7;
const PART: u8 = 8;
/// No frame has this kind or a greater one.
const UNKNOWN: u8 = 100;
/// The kinds of requests and reports about bodies, and the kind of a report that only the sender's host gets.
const REQUEST_KINDS: std::ops::RangeInclusive<u32> = 1..=4;
const RECEIVED: u32 = 3;
const GRANT: u8 = 20;
/// The most messages in a burst.
const BURST: u64 = 30;
/// The longest valid message, in bytes.
const MESSAGE_BYTES_MAX: usize = 200_000;

/// Returns the bytes of a frame: its length, its kind, and the given parts.
fn frame(kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let length = 1 + rest.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    rest.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// The beginning of a message.
struct Start {
    transfer: u32,
    src: Tid,
    dst: Tid,
    others: Vec<Tid>,
    tag: u32,
    /// The length of the body that the frame announces.
    length: u64,
    /// The number of bytes of the body that are in the frame.
    first: usize,
}

impl Start {
    fn frame(&self) -> Vec<u8> {
        frame(START, &[&self.transfer.to_le_bytes(), &self.header(), &vec![3; self.first]])
    }

    /// Returns an announcement of the message as a multicast of the host `origin`, whose body the receiver is to fetch
    /// from `parent`.
    fn announcement(&self, origin: Tid, secret: u8, parent: Tid, children: u32) -> Vec<u8> {
        let (key, words) = (body_key(origin, secret), [parent.0.to_le_bytes(), children.to_le_bytes()].concat());
        frame(ANNOUNCE, &[&key, &[5; 32], &words, &self.header()])
    }

    fn header(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let dsig = pvm_core::codes::native_dsig() as u32;
        for word in [self.src.0, self.dst.0, 0, self.tag, 0, dsig, dsig] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&self.length.to_le_bytes());
        head.extend_from_slice(&(self.others.len() as u32).to_le_bytes());
        self.others.iter().for_each(|tid| head.extend_from_slice(&tid.0.to_le_bytes()));
        head
    }
}

/// Returns how hosts name the body of a multicast.
fn body_key(origin: Tid, secret: u8) -> Vec<u8> {
    [&origin.0.to_le_bytes()[..], &[secret; 16]].concat()
}

fn body_request(origin: Tid, secret: u8, kind: u32, at: u64) -> Vec<u8> {
    frame(REQUEST, &[&body_key(origin, secret), &kind.to_le_bytes(), &at.to_le_bytes()])
}

fn start(life: &mut Life, host: Tid, length: usize) -> Start {
    let (transfer, src, dst) = (life.prng.u32(..), life.own_task(), life.victim_at(host));
    let first = length.min(CHUNK_BYTES_MAX);
    Start { transfer, src, dst, others: Vec::new(), tag: life.prng.u32(1..1 << 30), length: length as u64, first }
}

/// Sends messages that must be dropped or delivered, but must not make a daemon cut this host off.
pub fn send_valid(life: &mut Life) {
    let (host, count) = (life.some_peer(), life.prng.u64(1..BURST));
    life.note("data frames", count);
    for _ in 0..count {
        match life.prng.u32(..11) {
            8 => send_multicast(life, host),
            9 => send_about_bodies(life, host),
            10 => send_grants(life, host),
            0..3 => send_message(life, host),
            3 => send_to_missing_tasks(life, host),
            4 => send_credit(life, host),
            _ => send_with_false_frame(life, host),
        }
    }
}

/// Sends a valid message from a task that does not exist, without regard to the limits of pacing.
fn send_message(life: &mut Life, host: Tid) {
    let length = life.prng.usize(..MESSAGE_BYTES_MAX) >> life.prng.u32(..16);
    let mut start = start(life, host, length);
    if is_paced(length) && life.prng.bool() {
        start.first = life.prng.usize(..=start.first);
    }
    start.others = (0..life.prng.usize(..4)).map(|_| life.victim_at(host)).collect();
    life.stream(host, &start.frame());
    let mut left = length - start.first;
    while left > 0 {
        let part = left.min(life.prng.usize(1..=CHUNK_BYTES_MAX));
        left -= part;
        life.stream(host, &frame(CHUNK, &[&start.transfer.to_le_bytes(), &vec![3; part]]));
    }
}

/// Announces a message, and sends its body, wrong parts of it, or nothing.
fn send_multicast(life: &mut Life, host: Tid) {
    let length = life.prng.usize(1..MESSAGE_BYTES_MAX);
    let (own, parent, secret) = (life.own, life.any_tid().host(), life.prng.u8(..));
    let (mut start, children) = (start(life, host, length), life.prng.u32(..4));
    // Messages for dead tasks use no credit, so they can be repeated.
    start.dst = Tid(host.0 | life.prng.u32(1..1 << 18));
    life.stream(host, &start.announcement(own, secret, parent, children));
    let (mut at, parts) = (0, life.prng.usize(..5));
    for _ in 0..parts {
        let part = life.prng.usize(1..=CHUNK_BYTES_MAX);
        life.stream(host, &frame(PART, &[&body_key(own, secret), &(at as u64).to_le_bytes(), &vec![3; part]]));
        at += part;
    }
}

/// Sends requests and reports about bodies that the other host does not have or want.
fn send_about_bodies(life: &mut Life, host: Tid) {
    let origin = if life.prng.bool() { life.own } else { life.any_tid().host() };
    for _ in 0..life.prng.usize(..200) {
        let (secret, at) = (life.prng.u8(..), life.prng.u64(..));
        let kind = life.prng.u32(REQUEST_KINDS);
        let bytes = match kind {
            RECEIVED => body_request(host, secret, RECEIVED, 0),
            1 => body_request(origin, secret, kind, at),
            _ => body_request(origin, secret, kind, 0),
        };
        life.stream(host, &bytes);
    }
}

/// Sends messages to tasks that do not exist.
fn send_to_missing_tasks(life: &mut Life, host: Tid) {
    let length = life.prng.usize(..100);
    let mut start = start(life, host, length);
    start.dst = Tid(host.0 | life.prng.u32(1..1 << 18));
    // The daemon returns credit for each of these receivers at once, because they do not exist.
    let most = if life.prng.u32(..8) == 0 { 20_000 } else { 50 };
    start.others = (0..life.prng.usize(..most)).map(|_| Tid(host.0 | life.prng.u32(1..1 << 18))).collect();
    life.stream(host, &start.frame());
}

/// Sends credit that nobody has asked for.
fn send_credit(life: &mut Life, host: Tid) {
    let (dst, bytes) = (life.own_task(), [u64::MAX, 0, life.prng.u64(..)][life.prng.usize(..3)]);
    life.stream(host, &frame(CREDIT, &[&dst.0.to_le_bytes(), &bytes.to_le_bytes()]));
}

/// Sends grants that nobody has asked for: for everything, for nothing, many.
fn send_grants(life: &mut Life, host: Tid) {
    let count = if life.prng.u32(..8) == 0 { 10_000 } else { 3 };
    for _ in 0..count {
        let up_to = [u64::MAX, 0, life.prng.u64(..), life.prng.u64(..1 << 20)][life.prng.usize(..4)];
        life.stream(host, &frame(GRANT, &[&up_to.to_le_bytes()]));
    }
}

/// Sends a false frame in band: in the flow to a task.
fn send_with_false_frame(life: &mut Life, host: Tid) {
    let (dst, lie) = (life.any_tid(), false_frames::false_frame(life));
    life.stream(host, &frame(IN_BAND, &[&dst.0.to_le_bytes(), &wire::encode(&lie)]));
}

/// Sends an invalid frame. The other daemon must then cut the link. Returns a description.
pub fn send_invalid_frame(life: &mut Life, host: Tid) -> &'static str {
    let mut start = start(life, host, 1000);
    let transfer = start.transfer.to_le_bytes();
    let (what, bytes) = match life.prng.u32(..14) {
        12 => {
            let origin = life.victim().host();
            ("a multicast of another host", start.announcement(origin, 1, life.own, 0))
        }
        13 => ("the receipt of another host's body", body_request(life.own, 1, RECEIVED, 0)),
        0 => {
            let own = life.own_task().0;
            let names = [life.victim(), life.own, Tid(own | DAEMON_BIT), Tid(own | GROUP_BIT), Tid::DAEMON];
            start.src = names[life.prng.usize(..names.len())];
            ("a message in another's name", start.frame())
        }
        1 => {
            start.dst = Tid(Tid::host_number(4000).0 | 1);
            ("a message to another host", start.frame())
        }
        2 => ("a chunk of nothing", frame(CHUNK, &[&transfer, &[1; 100]])),
        3 => {
            (start.length, start.first) = (70_000, CHUNK_BYTES_MAX);
            let chunk = frame(CHUNK, &[&transfer, &[1; 30_000]]);
            ("more than a message", [start.frame(), chunk].concat())
        }
        4 => {
            (start.length, start.first) = (70_000, CHUNK_BYTES_MAX);
            ("one message twice", [start.frame(), start.frame()].concat())
        }
        5 => {
            start.length = life.prng.u64(..);
            ("a lying length", start.frame())
        }
        6 => ("an unknown kind", frame(life.prng.u8(UNKNOWN..), &[&[0; 40]])),
        7 => ("an endless frame", [&u32::MAX.to_le_bytes()[..], &[life.prng.u8(..), 0, 0]].concat()),
        8 => ("no in-band frame", frame(IN_BAND, &[&transfer, &[0xff; 30]])),
        10 => ("an acknowledgement of what was not sent", frame(ACKNOWLEDGED, &[&u64::MAX.to_le_bytes()])),
        9 => ("credit for another", frame(CREDIT, &[&life.victim().0.to_le_bytes(), &[9; 8]])),
        _ => {
            // One of these tasks is alive, so the messages use up credit. Messages for dead tasks are dropped and use
            // none.
            start.others = life.victims_at(host);
            (start.length, start.first) = (60_000, 60_000);
            ("more than its credit", start.frame().repeat(60))
        }
    };
    life.stream(host, &bytes);
    what
}

/// Sends half of a frame and nothing after it.
pub fn send_partial_frame(life: &mut Life, host: Tid) {
    let length = [100, 100_000, i32::MAX as usize][life.prng.usize(..3)];
    let bytes = start(life, host, length).frame();
    let end = life.prng.usize(1..bytes.len());
    life.stream(host, &bytes[..end]);
}
