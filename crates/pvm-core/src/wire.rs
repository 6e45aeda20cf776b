//! What the daemons of a machine say to each other.
//!
//! Frames travel on the control link between two hosts, in order (crate `pvm-net` authenticates,
//! encrypts and bounds them), or along the flow of messages to a task ([`Frame::Deliver`], [`Frame::Output`] and
//! [`Frame::Died`], so that they do not overtake what was sent before). Nothing here is recursive,
//! so that no frame can exhaust the reader's stack.
use crate::codes::Code;
use crate::machine::{Taken, Waiting};
use crate::proto::{ByteBuf, Message, Reply, Request, Role, Spawn, TraceSettings};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub use crate::proto::{decode, encode};

/// Spoken by both sides. A new daemon names its own with what it says first ([`crate::dialogue`]), and the master
/// refuses another with `PvmBadVersion`; nor does a new daemon stay with a master that speaks another. A test compares
/// what is said with `formats/daemons.txt`.
pub const VERSION: u32 = 3;

/// A frame on the control link between two daemons: what a task says or hears, and a little more.
///
/// * Filled by: each other host
/// * Setting: none, both daemons count by the same number, and memory comes with the bytes
/// * Reached: the link to the host is closed, and the host lost
/// * Test: `a_frame_longer_than_any_task_can_send_ends_the_link`
pub const HOST_FRAME_BYTES_MAX: usize = crate::proto::FRAME_BYTES_MAX + (1 << 16);

/// Bytes of the public key of a daemon (Ed25519).
pub const KEY_BYTES: usize = 32;

/// The public key of a daemon.
pub type Key = [u8; KEY_BYTES];

/// What everybody knows of a host.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its tid.
    pub tid: Tid,
    /// Its name, as it was typed.
    pub name: String,
    /// Other names: canonical ones, addresses as text (D25).
    pub aliases: Vec<String>,
    /// PVM's name for its kind.
    pub arch: String,
    /// `sp=`
    pub speed: i32,
    /// Its data signature.
    pub dsig: i32,
    /// Where its daemon listens, the best first.
    pub addresses: Vec<SocketAddr>,
    /// Its daemon's key.
    pub key: Key,
}

/// What a host gets to know when it is started by the master, beside the table.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Shared {
    /// How long a host may be silent, in milliseconds.
    pub host_timeout_ms: u64,
    /// Whether the network is trusted: message data need no encryption.
    pub trusted: bool,
    /// The registered servers of the whole machine.
    pub servers: Servers,
    /// The mask of `pvm_tickle` at the master.
    pub debug_mask: i32,
    /// How many watches a host may have at each other ([`crate::machine::Limits`]).
    pub host_watches: u64,
}

/// What only the new host needs to know (hostfile).
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
pub struct HostOptions {
    /// `ep=`
    pub path: Option<String>,
    /// `wd=`
    pub directory: Option<String>,
    /// `bx=`
    pub debugger: Option<String>,
}

/// The registered servers of which every host knows.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct Servers {
    /// The resource manager.
    pub manager: Option<Tid>,
    /// The tracer, and what it wants of later tasks.
    pub tracer: Option<Tid>,
    /// See [`Request::SetTracer`].
    pub wish: Option<TraceSettings>,
}

/// From one daemon to another.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Frame {
    // ----- links and table
    /// Nothing but a sign of life.
    Beat,
    /// Master to a new host: all hosts, itself among them, and which of them have not joined yet.
    /// Answered by `TableAck`.
    Welcome { wire: u32, version: u64, hosts: Vec<Entry>, joining: Vec<Tid>, shared: Shared, options: HostOptions },
    /// Master to all: hosts that come, hosts that have gone. Answered by `TableAck`.
    Table { version: u64, added: Vec<Entry>, removed: Vec<Tid> },
    /// To the master.
    TableAck { version: u64 },
    /// Master to all: everybody knows these hosts; now they can be used.
    Joined { hosts: Vec<Tid> },
    /// To the master: the link to that host has failed.
    Suspect(Tid),
    /// `from` needs a link to `to`, which is to connect. By way of the master.
    PleaseConnect { to: Tid, from: Tid },
    /// To the master: this daemon has ended its tasks and ends. To a slave: end your tasks, and end.
    Leave,

    // ----- requests
    /// A request of a task, to be handled as if it had been asked there.
    Request { wait: u32, from: Tid, request: Request },
    /// Answers `Request`.
    Reply { wait: u32, reply: Reply },
    /// To the master: a task that had asked it something waits for no answers any more and has
    /// left its groups and offices; if `ended`, it is no more.
    Left { tid: Tid, ended: bool },
    /// To the host of a task: a signal for it.
    Signal { tid: Tid, signal: i32 },
    /// To the master: the task has begun or ceased to serve its host.
    Serves { role: Role, tid: Tid, on: bool },
    /// Master to all: who serves the whole machine.
    Servers(Servers),

    // ----- groups
    /// Master to a host of which a task wants to know the group.
    GroupKnown(GroupState),
    /// Master to the hosts that know the group. Answered by `GroupSeen` if the number is not 0.
    GroupChanged { id: u64, number: u64, change: GroupChange },
    /// To the master: the change of that number is known.
    GroupSeen { number: u64 },
    /// To the master: answers [`GroupChange::Take`].
    GroupTaken { id: u64, taken: Taken },

    /// Master to a host: who waits in the barriers of its memory?
    ListBarriers { number: u32 },
    /// Answers it, by group.
    BarriersListed { number: u32, waiting: BTreeMap<u64, Waiting> },

    // ----- spawns
    /// Start a part of the tasks of a spawn: those from the number `first` on, of `total`.
    Spawn { wait: u32, parent: i32, first: i32, total: i32, spawn: Spawn },
    /// Answers `Spawn`: tids and codes, in order.
    Spawned { wait: u32, results: Vec<i32> },
    /// The spawn of that number has ended: all tasks that came of it.
    Siblings { wait: u32, tids: Vec<Tid> },

    // ----- direct links
    /// `from` wants a link of its own to `to`. With a call it is the receiver of this who calls.
    Direct { number: u32, from: Tid, to: Tid, call: Option<DirectCall> },
    /// Answers `Direct` without a call: who asked may call.
    DirectCall { number: u32, call: DirectCall },
    /// Answers `Direct`: there will be no link.
    DirectRefused { number: u32 },

    // ----- deaths
    /// To the host of `tid`: `watcher` wants to hear of its end.
    Watch { tid: Tid, watcher: Tid },
    /// It does not any more.
    Unwatch { tid: Tid, watcher: Tid },
    /// Along the flow to `watcher`: `tid` is no more.
    Died { tid: Tid, watcher: Tid },

    // ----- messages and output
    /// Along the flow to `message.dst`, or to a daemon: a message of a daemon's own, or one that
    /// came by way of a daemon.
    Deliver(Message),
    /// To the master: a line of output for the log.
    Log {
        tid: Tid,
        #[serde(with = "serde_bytes")]
        line: Vec<u8>,
    },
    /// Along the flow to `message.dst`, a collector: what a task has printed.
    Output(Message),
    /// The collector has taken so much of that, or takes nothing any more.
    OutputTaken { collector: Tid, bytes: u64 },

    // ----- starts by others
    /// Master to a host that is to run the command of that number, which starts a daemon elsewhere.
    StartOrder { number: u64, order: StartOrder },
    /// To the master: what has come of that command.
    StartNews { number: u64, news: StartNews },

    // ----- data links that break
    /// To the host that is called: the data link of that number (the first is 0) is of no use here any more.
    DataLost { number: u32 },
    /// To the host that calls: the data link of that number, which takes the place of all before it, may be made.
    DataCall { number: u32, call: DataCall },

    // ----- pvm run
    /// To the host of a task: a signal for all processes of its group.
    SignalGroup { tid: Tid, signal: i32 },
}

/// What is printed by a command that a host runs for the master to start a daemon elsewhere.
///
/// * Filled by: the host that is added, and the one that runs the command
/// * Setting: none, start-up files do not print as much
/// * Reached: the command is ended, and the master starts the daemon itself
/// * Test: `a_command_that_prints_too_much_is_ended`, `a_parent_that_reports_too_much_has_failed`
pub const START_OUTPUT_BYTES_MAX: usize = 256 << 10;

/// What the master wants of a command that starts a daemon elsewhere.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum StartOrder {
    /// Run these words and hand `input` to the standard input, which stays open.
    Run { words: Vec<ByteBuf>, input: ByteBuf },
    /// The daemon has answered: close the standard input.
    CloseInput,
    /// End it.
    Kill,
}

/// What has become of a command that starts a daemon elsewhere.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub enum StartNews {
    /// It has printed that.
    Output(ByteBuf),
    /// It has printed that on the standard error.
    Errors(ByteBuf),
    /// It has ended, with that status of `wait`, and all that it had printed has been told.
    Ended(i32),
    /// It could not be run, by that `errno`.
    NotRun(i32),
    /// It has printed too much and was ended.
    TooMuch,
}

/// A group, as the master tells a host that has not known it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct GroupState {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: ByteBuf,
    /// Instances and tids.
    pub members: Vec<(u32, Tid)>,
    /// Nobody joins any more.
    pub frozen: bool,
    /// It is frozen, and a member has gone.
    pub broken: bool,
    /// Members meet in the memory of the host that is told.
    pub meets_here: bool,
}

/// What has become of a group, or is to be done with its memory.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum GroupChange {
    /// The task is the member of that number now.
    Joined { instance: u32, tid: Tid },
    /// There is no member of that number any more.
    Gone { instance: u32 },
    /// Nobody joins any more.
    Freeze,
    /// A member of the frozen group has gone.
    Break,
    /// The group is no more.
    Close,
    /// Members do not meet in this host's memory any more: who has arrived there?
    Take,
    /// They meet there again.
    Give,
    /// The barrier has opened, or failed, for those who had arrived in this host's memory.
    Release { opened: bool },
}

/// Bytes of each secret of a direct link.
pub const SECRET_BYTES: usize = 32;

/// How two hosts come to a connection for two of their tasks: who calls shows the first secret and
/// is answered with the second. The tasks prove with the third that they are meant, where what they
/// send is encrypted.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct DirectCall {
    /// Shown by the caller.
    pub shown: [u8; SECRET_BYTES],
    /// The answer.
    pub back: [u8; SECRET_BYTES],
    /// For the tasks.
    pub secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for DirectCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a call")
    }
}

/// How a data link comes to be made again: who calls shows the first secret and is answered with the second.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct DataCall {
    /// Shown by the caller.
    pub shown: [u8; SECRET_BYTES],
    /// The answer.
    pub back: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for DataCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a call")
    }
}

/// What looking up a host's name has given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Canonical names and the like.
    pub aliases: Vec<String>,
    /// Its addresses, the best first.
    pub addresses: Vec<IpAddr>,
}

/// What a daemon says when it has been started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// PVM's name for its kind.
    pub arch: String,
    /// Its data signature.
    pub dsig: i32,
    /// Where it listens, the best first.
    pub addresses: Vec<SocketAddr>,
    /// Its key.
    pub key: Key,
    /// By what names its host knows itself.
    pub names: Vec<String>,
}

/// A daemon could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// For programs.
    pub code: Code,
    /// For people: what was tried, what went wrong, what helps. Empty where the code says it all.
    pub reason: String,
}

impl From<Code> for StartFailure {
    fn from(code: Code) -> StartFailure {
        StartFailure { code, reason: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_its_journey() {
        let entry = Entry {
            tid: Tid::host_number(2),
            name: "beta".into(),
            aliases: vec!["beta.example".into()],
            arch: "LINUX64".into(),
            speed: 1000,
            dsig: 7,
            addresses: vec!["192.0.2.1:4000".parse().unwrap(), "[2001:db8::1]:4000".parse().unwrap()],
            key: [9; KEY_BYTES],
        };
        let frame = Frame::Table { version: 3, added: vec![entry], removed: vec![Tid::host_number(4)] };
        assert_eq!(decode::<Frame>(&encode(&frame)), Some(frame));
    }

    #[test]
    fn hostile_bytes_give_no_frame() {
        assert_eq!(decode::<Frame>(&[]), None);
        assert_eq!(decode::<Frame>(&[0xff; 20]), None);
        let whole = encode(&Frame::Log { tid: Tid(0x80001), line: b"hello".to_vec() });
        for cut in 0..whole.len() {
            assert_eq!(decode::<Frame>(&whole[..cut]), None, "{cut}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert_eq!(decode::<Frame>(&longer), None);
        // A length far beyond the end.
        let mut lying = encode(&Frame::Joined { hosts: vec![Tid(1)] });
        lying.truncate(1);
        lying.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(decode::<Frame>(&lying), None);
    }
}
