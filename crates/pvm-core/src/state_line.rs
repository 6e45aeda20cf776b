//! The state line: what a task does, as it lies in the task's shared memory for the daemon to read.
//!
//! The task encodes it ([`StateLine::encode`]), `pvm-fmp` carries the words and knows nothing of their meaning, and the
//! daemon decodes them ([`StateLine::decode`]). The daemon believes none of it: whatever the words are, the result is a line
//! within these bounds or none.
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// The number of words of a line.
pub const WORDS: usize = 48;
/// The longest part of a name that a line holds, in bytes.
pub const LABEL_BYTES: usize = 32;
/// How many kinds of unread messages a line names.
///
/// * Filled by: senders of messages that a task does not receive
/// * Setting: none, a line has a fixed size
/// * Reached: the line names the oldest kinds, and counts the others
/// * Test: `of_many_kinds_of_unread_messages_the_oldest_are_named`
pub const UNREAD_KINDS_MAX: usize = 12;
/// How many of the oldest unread messages are looked at.
///
/// * Filled by: senders of messages that a task does not receive
/// * Setting: none, a task that is about to sleep must not walk along a long queue
/// * Reached: later messages are counted, and not named
/// * Test: `of_many_kinds_of_unread_messages_the_oldest_are_named`
pub const UNREAD_WALK_MAX: usize = 64;

/// How many links of a task to tasks of other hosts a line tells of.
///
/// * Filled by: tasks that exchange messages with many tasks of other hosts
/// * Setting: none, a line has a fixed size
/// * Reached: while messages on the links are unacknowledged, nobody is said to be in a deadlock
/// * Test: `of_many_links_none_is_told`
pub const LINKS_MAX: usize = 6;

/// The words before those of the links.
const LINKS: usize = 12;
/// The words before those of the unread messages.
const HEAD: usize = WORDS - 2 * UNREAD_KINDS_MAX;
const _: () = assert!(LINKS + 2 * LINKS_MAX == HEAD);
/// Stands for any tid, tag or context.
const ANY: i32 = -1;

/// A name of a group or mailbox, or its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Label {
    bytes: [u8; LABEL_BYTES],
    length: u8,
}

impl Label {
    /// Makes the label of a name.
    pub fn new(name: &[u8]) -> Label {
        let length = name.len().min(LABEL_BYTES);
        let mut bytes = [0; LABEL_BYTES];
        bytes[..length].copy_from_slice(&name[..length]);
        Label { bytes, length: length as u8 }
    }

    /// Returns the name, or its first bytes.
    pub fn name(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(LABEL_BYTES)]
    }

    /// Returns whether the label is that of the name.
    pub fn is_of(&self, name: &[u8]) -> bool {
        *self == Label::new(name)
    }
}

/// Which messages a receive accepts. `None` stands for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The sender.
    pub from: Option<Tid>,
    /// The tag.
    pub tag: Option<i32>,
    /// The context.
    pub context: Option<i32>,
}

impl Wanted {
    /// Returns what a receive with these arguments accepts.
    pub fn new(from: i32, tag: i32, context: i32) -> Wanted {
        let given = |number: i32| (number != ANY).then_some(number);
        Wanted { from: given(from).map(|tid| Tid(tid as u32)), tag: given(tag), context: given(context) }
    }
}

/// The call in which a task waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// `pvm_recv`, `pvm_trecv`.
    Receive(Wanted),
    /// `pvm_precv`, with the bytes that the program has room for.
    PostedReceive(Wanted, u64),
    /// A receive with the program's own matching function (`pvm_recvf`).
    Matching,
    /// `pvm_send` and the like, until there is room or the receiver has taken the message.
    Send,
    /// `pvm_barrier`. `count` members open it.
    Barrier {
        /// The group.
        group: Label,
        /// How many members open it.
        count: u32,
    },
    /// `pvm_freezegroup`. It ends when `count` members have called it.
    Freeze {
        /// The group.
        group: Label,
        /// How many members must call it; less than 1 for all.
        count: i32,
    },
    /// `pvm_reduce`, `pvm_gather` or `pvm_scatter`: the member waits for this member.
    Collective {
        /// The group.
        group: Label,
        /// The other member.
        of: Tid,
    },
    /// `pvm_recvinfo` that waits for an entry of this mailbox.
    Mailbox(Label),
    /// `pvm_spawn`.
    Spawn,
    /// Adding or deleting hosts.
    Hosts,
    /// `pvm_exit`, until the children whose output the task collects have ended.
    Output,
    /// Another request to the daemon.
    Daemon,
    /// A pause that ends by itself.
    Pause,
}

impl Call {
    const fn number(&self) -> u8 {
        match self {
            Call::Receive(_) => 1,
            Call::PostedReceive(..) => 2,
            Call::Matching => 3,
            Call::Send => 4,
            Call::Barrier { .. } => 5,
            Call::Freeze { .. } => 6,
            Call::Collective { .. } => 7,
            Call::Mailbox(_) => 8,
            Call::Spawn => 9,
            Call::Hosts => 10,
            Call::Output => 11,
            Call::Daemon => 12,
            Call::Pause => 13,
        }
    }
}

/// A wait that has slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The call.
    pub call: Call,
    /// Whether the call ends by itself after a time.
    pub is_timed: bool,
    /// When it began, by the monotonic clock of the host, in nanoseconds.
    pub since_ns: u64,
}

/// Unread messages that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// The sender.
    pub from: Tid,
    /// The tag.
    pub tag: i32,
    /// The context.
    pub context: i32,
    /// How many.
    pub count: u32,
}

/// A link of the task to a task of another host: how many messages it has been given to carry there, and has brought from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLink {
    /// The other task.
    pub peer: Tid,
    /// To it.
    pub sent: u32,
    /// From it.
    pub received: u32,
}

/// What a task does, and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StateLine {
    /// In which call it waits; `None` while the program runs.
    pub wait: Option<Wait>,
    /// How many waits have slept, and how many messages have ever been queued: if both are the same later, the task has been
    /// in the same wait and has got nothing meanwhile.
    pub epoch: (u32, u32),
    /// How long the task has slept in earlier waits, in nanoseconds.
    pub waited_ns: u64,
    /// How many messages are queued that the program has not received.
    pub unread: u32,
    /// The oldest kinds of them.
    pub unread_kinds: Vec<Unread>,
    /// Its direct links, unless they are too many.
    pub links: Vec<OwnLink>,
    /// Whether messages of the task may be under way in other ways, or wait in it.
    pub sends: bool,
    /// How many frames of the daemon the task has seen; wraps.
    pub frames: u32,
}

const TIMED: u64 = 1 << 8;
const SENDS: u64 = 1 << 9;

fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl StateLine {
    /// Adds an unread message, the oldest first.
    pub fn add_unread(&mut self, from: Tid, tag: i32, context: i32) {
        let alike = |kind: &Unread| (kind.from, kind.tag, kind.context) == (from, tag, context);
        match self.unread_kinds.iter().position(alike) {
            Some(at) => self.unread_kinds[at].count += 1,
            None if self.unread_kinds.len() < UNREAD_KINDS_MAX => {
                self.unread_kinds.push(Unread { from, tag, context, count: 1 });
            }
            None => {}
        }
    }

    /// Sets the links. `unacknowledged`: whether some messages on them are.
    pub fn set_links(&mut self, links: impl ExactSizeIterator<Item = OwnLink>, unacknowledged: bool) {
        match links.len() <= LINKS_MAX {
            true => self.links.extend(links),
            false => self.sends |= unacknowledged,
        }
    }

    /// Encodes the line. Returns how many of the words count.
    pub fn encode(&self, words: &mut [u64; WORDS]) -> usize {
        let Some(wait) = &self.wait else {
            words[0] = 0;
            self.encode_rest(words);
            return HEAD;
        };
        let flags = if wait.is_timed { TIMED } else { 0 };
        words[0] = u64::from(wait.call.number()) | flags;
        words[1] = wait.since_ns;
        match wait.call {
            Call::Receive(wanted) => encode_wanted(words, wanted),
            Call::PostedReceive(wanted, room) => {
                encode_wanted(words, wanted);
                words[4] = room;
            }
            Call::Barrier { group, count } => encode_label(words, count, group),
            Call::Freeze { group, count } => encode_label(words, count as u32, group),
            Call::Collective { group, of } => encode_label(words, of.0, group),
            Call::Mailbox(name) => encode_label(words, 0, name),
            _ => {}
        }
        self.encode_rest(words);
        for (kind, place) in self.unread_kinds.iter().zip(words[HEAD..].chunks_exact_mut(2)) {
            place[0] = pair(kind.from.0, kind.tag as u32);
            place[1] = pair(kind.context as u32, kind.count);
        }
        HEAD + 2 * self.unread_kinds.len().min(UNREAD_KINDS_MAX)
    }

    fn encode_rest(&self, words: &mut [u64; WORDS]) {
        words[0] |= if self.sends { SENDS } else { 0 };
        words[8] = pair(self.epoch.0, self.epoch.1);
        words[9] = self.waited_ns;
        words[10] = pair(self.unread, self.unread_kinds.len().min(UNREAD_KINDS_MAX) as u32);
        words[11] = pair(self.frames, self.links.len().min(LINKS_MAX) as u32);
        for (link, place) in self.links.iter().zip(words[LINKS..HEAD].chunks_exact_mut(2)) {
            place[0] = u64::from(link.peer.0);
            place[1] = pair(link.sent, link.received);
        }
    }

    /// Decodes words that a task has written. `None` if no task of this version writes such words.
    pub fn decode(words: &[u64]) -> Option<StateLine> {
        let words: &[u64; WORDS] = words.try_into().ok()?;
        let flags = words[0];
        if flags & !(0xff | TIMED | SENDS) != 0 {
            return None;
        }
        let wait = match flags as u8 {
            0 => None,
            number => {
                let is_timed = flags & TIMED != 0;
                Some(Wait { call: decode_call(number, words)?, is_timed, since_ns: words[1] })
            }
        };
        let (unread, kinds) = halves(words[10]);
        let kinds = if wait.is_some() { kinds as usize } else { 0 };
        let (frames, links) = halves(words[11]);
        if kinds > UNREAD_KINDS_MAX || links as usize > LINKS_MAX {
            return None;
        }
        let kind = |place: &[u64]| {
            let ((from, tag), (context, count)) = (halves(place[0]), halves(place[1]));
            Unread { from: Tid(from), tag: tag as i32, context: context as i32, count }
        };
        let link = |place: &[u64]| {
            let (sent, received) = halves(place[1]);
            OwnLink { peer: Tid(place[0] as u32), sent, received }
        };
        Some(StateLine {
            wait,
            epoch: halves(words[8]),
            waited_ns: words[9],
            unread,
            unread_kinds: words[HEAD..].chunks_exact(2).take(kinds).map(kind).collect(),
            links: words[LINKS..HEAD].chunks_exact(2).take(links as usize).map(link).collect(),
            sends: flags & SENDS != 0,
            frames,
        })
    }
}

fn encode_wanted(words: &mut [u64; WORDS], Wanted { from, tag, context }: Wanted) {
    words[2] = pair(from.map_or(ANY as u32, |tid| tid.0), tag.unwrap_or(ANY) as u32);
    words[3] = u64::from(context.unwrap_or(ANY) as u32);
}

fn encode_label(words: &mut [u64; WORDS], number: u32, label: Label) {
    words[2] = u64::from(number);
    words[3] = u64::from(label.length);
    for (word, bytes) in words[4..8].iter_mut().zip(label.bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
}

fn decode_call(number: u8, words: &[u64; WORDS]) -> Option<Call> {
    let (first, second) = halves(words[2]);
    let wanted = Wanted::new(first as i32, second as i32, words[3] as i32);
    let mut bytes = [0; LABEL_BYTES];
    words[4..8]
        .iter()
        .zip(bytes.chunks_exact_mut(8))
        .for_each(|(word, into)| into.copy_from_slice(&word.to_ne_bytes()));
    let length = usize::try_from(words[3]).ok().filter(|length| *length <= LABEL_BYTES);
    let label = || length.map(|length| Label::new(&bytes[..length]));
    Some(match number {
        1 => Call::Receive(wanted),
        2 => Call::PostedReceive(wanted, words[4]),
        3 => Call::Matching,
        4 => Call::Send,
        5 => Call::Barrier { group: label()?, count: first },
        6 => Call::Freeze { group: label()?, count: first as i32 },
        7 => Call::Collective { group: label()?, of: Tid(first) },
        8 => Call::Mailbox(label()?),
        9 => Call::Spawn,
        10 => Call::Hosts,
        11 => Call::Output,
        12 => Call::Daemon,
        13 => Call::Pause,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn line(call: Call) -> StateLine {
        let wait = Wait { call, is_timed: true, since_ns: 12_345_678_901 };
        let mut line =
            StateLine { wait: Some(wait), epoch: (3, 9), waited_ns: 5, unread: 4, frames: 7, ..StateLine::default() };
        line.add_unread(Tid(0x40003), 7, 0);
        line.add_unread(Tid(0x40003), 7, 0);
        line.add_unread(Tid::DAEMON, -3, 5);
        line.links = vec![OwnLink { peer: Tid(0x80001), sent: 3, received: u32::MAX }];
        line
    }

    fn passed(line: &StateLine) -> Option<StateLine> {
        // What an earlier line has left behind.
        let mut words = [0xfeed; WORDS];
        line.encode(&mut words);
        StateLine::decode(&words)
    }

    #[test]
    fn each_call_is_decoded_as_it_was_encoded() {
        let (group, of) = (Label::new(b"workers"), Tid(0x40002));
        let wanted = Wanted { from: Some(of), tag: None, context: Some(3) };
        let calls = [
            Call::Receive(wanted),
            Call::Receive(Wanted::new(-1, 8, -1)),
            Call::PostedReceive(wanted, 1 << 40),
            Call::Matching,
            Call::Send,
            Call::Barrier { group, count: 3 },
            Call::Freeze { group, count: -1 },
            Call::Collective { group, of },
            Call::Mailbox(Label::new(&[7; 50])),
            Call::Spawn,
            Call::Hosts,
            Call::Output,
            Call::Daemon,
            Call::Pause,
        ];
        for call in calls {
            assert_eq!(passed(&line(call)).as_ref(), Some(&line(call)));
        }
        let computing = StateLine { epoch: (1, 2), sends: true, ..StateLine::default() };
        assert_eq!(passed(&computing), Some(computing));
    }

    #[test]
    fn of_many_kinds_of_unread_messages_the_oldest_are_named() {
        let mut line = line(Call::Spawn);
        (0..UNREAD_WALK_MAX as i32).for_each(|tag| line.add_unread(Tid(0x40009), tag, 0));
        assert_eq!(line.unread_kinds.len(), UNREAD_KINDS_MAX);
        let read = passed(&line).unwrap();
        assert_eq!((read.unread_kinds[0].count, read.unread_kinds[2].tag), (2, 0));
    }

    #[test]
    fn of_many_links_none_is_told() {
        let link = |number| OwnLink { peer: Tid(number), sent: 1, received: 0 };
        for (count, told, sends) in [(LINKS_MAX, LINKS_MAX, false), (LINKS_MAX + 1, 0, true)] {
            let mut line = StateLine::default();
            line.set_links((0..count as u32).map(link), true);
            assert_eq!((line.links.len(), line.sends), (told, sends));
            assert_eq!(passed(&line), Some(line));
        }
        let mut line = StateLine::default();
        line.set_links((0..99).map(link), false);
        assert!(!line.sends && line.links.is_empty());
    }

    #[test]
    fn whatever_a_task_writes_gives_a_line_or_none() {
        let mut random = Prng(5);
        for round in 0..20_000u64 {
            let mut words = [0; WORDS];
            line(Call::Barrier { group: Label::new(b"g"), count: 1 }).encode(&mut words);
            for _ in 0..=round % 5 {
                words[random.below(WORDS as u64) as usize] = random.below(u64::MAX) >> (random.below(8) * 8);
            }
            if let Some(line) = StateLine::decode(&words) {
                let mut again = [0; WORDS];
                line.encode(&mut again);
                assert_eq!(StateLine::decode(&again), Some(line));
            }
        }
        assert_eq!(StateLine::decode(&[]), None);
        assert_eq!(StateLine::decode(&[u64::MAX; WORDS]), None);
        assert_eq!(StateLine::decode(&[0; WORDS]), Some(StateLine::default()));
    }
}
