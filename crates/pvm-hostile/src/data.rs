//! The data link: messages to whom they do not concern, and frames that make no sense.
use crate::lies;
use crate::life::Life;
use pvm_core::flows::CHUNK_BYTES_MAX;
use pvm_core::tid::{DAEMON_BIT, GROUP_BIT, Tid};
use pvm_core::wire;

/// Kinds of the frames of a data link.
const START: u8 = 1;
const CHUNK: u8 = 2;
const ALONG: u8 = 3;
const CREDIT: u8 = 4;
const ACKNOWLEDGED: u8 = 5;
/// Messages in one go.
const BURST: u64 = 30;
/// The longest message that keeps to the rules, in bytes.
const MESSAGE_BYTES_MAX: usize = 200_000;

/// A frame: its length, its kind, and what follows.
fn frame(kind: u8, rest: &[&[u8]]) -> Vec<u8> {
    let length = 1 + rest.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    rest.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// What a message begins with.
struct Start {
    transfer: u32,
    src: Tid,
    dst: Tid,
    others: Vec<Tid>,
    tag: u32,
    /// As it is said.
    length: u64,
    /// Bytes that follow.
    first: usize,
}

impl Start {
    fn frame(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let dsig = pvm_core::codes::native_dsig() as u32;
        for word in [self.transfer, self.src.0, self.dst.0, 0, self.tag, 0, dsig, dsig] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&self.length.to_le_bytes());
        head.extend_from_slice(&(self.others.len() as u32).to_le_bytes());
        self.others.iter().for_each(|tid| head.extend_from_slice(&tid.0.to_le_bytes()));
        frame(START, &[&head, &vec![3; self.first]])
    }
}

fn start(life: &mut Life, host: Tid, length: usize) -> Start {
    let (transfer, src, dst) = (life.dice.u32(..), life.own_task(), life.victim_at(host));
    let first = length.min(CHUNK_BYTES_MAX);
    Start { transfer, src, dst, others: Vec::new(), tag: life.dice.u32(1..1 << 30), length: length as u64, first }
}

/// What is dropped or delivered, and no reason to cut anybody off.
pub fn some(life: &mut Life) {
    let (host, count) = (life.some_peer(), life.dice.u64(1..BURST));
    life.note("data frames", count);
    for _ in 0..count {
        match life.dice.u32(..8) {
            0..3 => whole(life, host),
            3 => nowhere(life, host),
            4 => credit(life, host),
            _ => along(life, host),
        }
    }
}

/// A message as it should be, from a task that there is not.
fn whole(life: &mut Life, host: Tid) {
    let length = life.dice.usize(..MESSAGE_BYTES_MAX) >> life.dice.u32(..16);
    let mut letter = start(life, host, length);
    letter.others = (0..life.dice.usize(..4)).map(|_| life.victim_at(host)).collect();
    life.stream(host, &letter.frame());
    let mut left = length - letter.first;
    while left > 0 {
        let part = left.min(life.dice.usize(1..=CHUNK_BYTES_MAX));
        left -= part;
        life.stream(host, &frame(CHUNK, &[&letter.transfer.to_le_bytes(), &vec![3; part]]));
    }
}

/// A message to tasks that there are not.
fn nowhere(life: &mut Life, host: Tid) {
    let length = life.dice.usize(..100);
    let mut letter = start(life, host, length);
    letter.dst = Tid(host.0 | life.dice.u32(1..1 << 18));
    // For each of them credit comes back at once.
    let most = if life.dice.u32(..8) == 0 { 20_000 } else { 50 };
    letter.others = (0..life.dice.usize(..most)).map(|_| Tid(host.0 | life.dice.u32(1..1 << 18))).collect();
    life.stream(host, &letter.frame());
}

/// Credit that nobody has asked for.
fn credit(life: &mut Life, host: Tid) {
    let (dst, bytes) = (life.own_task(), [u64::MAX, 0, life.dice.u64(..)][life.dice.usize(..3)]);
    life.stream(host, &frame(CREDIT, &[&dst.0.to_le_bytes(), &bytes.to_le_bytes()]));
}

/// A lie that travels with messages.
fn along(life: &mut Life, host: Tid) {
    let (dst, lie) = (life.any_tid(), lies::one(life));
    life.stream(host, &frame(ALONG, &[&dst.0.to_le_bytes(), &wire::encode(&lie)]));
}

/// What makes no sense: the link is to be cut.
pub fn nonsense(life: &mut Life, host: Tid) -> &'static str {
    let mut letter = start(life, host, 1000);
    let transfer = letter.transfer.to_le_bytes();
    let (what, bytes) = match life.dice.u32(..12) {
        0 => {
            let own = life.own_task().0;
            let names = [life.victim(), life.own, Tid(own | DAEMON_BIT), Tid(own | GROUP_BIT), Tid::DAEMON];
            letter.src = names[life.dice.usize(..names.len())];
            ("a message in another's name", letter.frame())
        }
        1 => {
            letter.dst = Tid(Tid::host_number(4000).0 | 1);
            ("a message to another host", letter.frame())
        }
        2 => ("a chunk of nothing", frame(CHUNK, &[&transfer, &[1; 100]])),
        3 => {
            (letter.length, letter.first) = (70_000, CHUNK_BYTES_MAX);
            let chunk = frame(CHUNK, &[&transfer, &[1; 30_000]]);
            ("more than a message", [letter.frame(), chunk].concat())
        }
        4 => {
            (letter.length, letter.first) = (70_000, CHUNK_BYTES_MAX);
            ("one message twice", [letter.frame(), letter.frame()].concat())
        }
        5 => {
            letter.length = life.dice.u64(..);
            ("a lying length", letter.frame())
        }
        6 => ("an unknown kind", frame(life.dice.u8(6..), &[&[0; 40]])),
        7 => ("an endless frame", [&u32::MAX.to_le_bytes()[..], &[life.dice.u8(..), 0, 0]].concat()),
        8 => ("no frame along", frame(ALONG, &[&transfer, &[0xff; 30]])),
        10 => ("an acknowledgement of what was not sent", frame(ACKNOWLEDGED, &[&u64::MAX.to_le_bytes()])),
        9 => ("credit for another", frame(CREDIT, &[&life.victim().0.to_le_bytes(), &[9; 8]])),
        _ => {
            // One of them will live: what is for the dead is dropped, and takes no credit.
            letter.others = life.victims_at(host);
            (letter.length, letter.first) = (60_000, 60_000);
            ("more than its credit", letter.frame().repeat(60))
        }
    };
    life.stream(host, &bytes);
    what
}

/// Half of a frame, after which nothing comes.
pub fn half(life: &mut Life, host: Tid) {
    let length = [100, 100_000, i32::MAX as usize][life.dice.usize(..3)];
    let bytes = start(life, host, length).frame();
    let end = life.dice.usize(1..bytes.len());
    life.stream(host, &bytes[..end]);
}
