//! The protocol between the daemons of a machine.
//!
//! Frames travel in order on the control link between two hosts; crate `pvm-net` authenticates and encrypts them, and
//! limits their length. Only [`Frame::Output`], [`Frame::Died`] and, if the receiver is a task, [`Frame::Deliver`] do
//! not use the control link: they travel in band, in the flow of messages to a task, so that they do not overtake
//! earlier messages. No type here is recursive, so no frame can exhaust the reader's stack.
use crate::codes::Code;
use crate::datagram_error::DatagramError;
use crate::fabric::Wish;
use crate::flows::multicast::McastRoute;
use crate::flows::pacing::Pacing;
use crate::proto::{
    ByteBuf, FabricOffer, LinkCause, Message, Order, Reply, Request, Role, SECRET_BYTES, Spawn, TraceSettings,
};
use crate::release::{Passed, Release};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};

mod backup;
mod groups;

pub use crate::proto::{decode, encode};
pub use backup::Backup;
pub use groups::{GroupChange, GroupNews, GroupState};

/// The version of the protocol. A new daemon names its version in the start dialogue ([`crate::dialogue`]). The master
/// refuses any other version with `PvmBadVersion`, and a new daemon ends if its master has another version. A test
/// compares the formats of the frames with `formats/daemons.txt`.
pub const VERSION: u32 = 21;

/// A frame on the control link between two daemons. The longest frame contains a frame of a task.
///
/// * Filled by: each other host
/// * Setting: none, both daemons use the same limit, and memory is allocated as the bytes arrive
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_frame_longer_than_any_task_can_send_ends_the_link`
pub const HOST_FRAME_BYTES_MAX: usize = crate::proto::FRAME_BYTES_MAX + (1 << 16);

/// The length of the public key of a daemon (Ed25519), in bytes.
pub const KEY_BYTES: usize = 32;

/// The public key of a daemon.
pub type Key = [u8; KEY_BYTES];

/// The entry of one host in the host table. All hosts have the same table.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// The host's tid.
    pub tid: Tid,
    /// The host's name, as the user typed it.
    pub name: String,
    /// Other names of the host: canonical names, and addresses as text (D25).
    pub aliases: Vec<String>,
    /// The architecture, by PVM's name.
    pub arch: String,
    /// The relative speed: `sp=` of the hostfile.
    pub speed: i32,
    /// The number in the physical network, if it is known: `node=` of the hostfile.
    pub node: Option<u32>,
    /// Whether barriers of groups shall meet on the host, if somebody has said so: `groups=` of the hostfile.
    pub groups: Option<bool>,
    /// Whether the host takes no new tasks, because it is to leave the machine.
    pub is_draining: bool,
    /// The data signature.
    pub dsig: i32,
    /// The addresses on which the daemon listens, the best first.
    pub addresses: Vec<SocketAddr>,
    /// The daemon's public key.
    pub key: Key,
}

/// The settings of the machine that a new host learns from the master, in addition to the host table.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct MachineSettings {
    /// The silence limit: a host from which no frame arrives for this many milliseconds is lost.
    pub host_timeout_ms: u64,
    /// How many milliseconds the tasks may take to end at a halt before they are killed.
    pub halt_grace_ms: u64,
    /// Whether the network is trusted, so that message data need no encryption.
    pub trusted: bool,
    /// The registered servers of the whole machine.
    pub servers: Servers,
    /// The debug mask of the master (`pvm_tickle`).
    pub debug_mask: i32,
    /// The most watches that a host may have at any other host ([`crate::machine::Limits`]).
    pub host_watches: u64,
    /// When receivers pace long messages.
    pub pacing: Pacing,
    /// The number of other hosts with members from which on barriers may be released by broadcast.
    pub barrier_broadcast_hosts: u32,
    /// The multicast group to which hosts send what is for all hosts, unless the machine does without it.
    pub broadcast: Option<SocketAddrV4>,
    /// The fabric of hosts that have no setting of their own.
    pub fabric: Wish,
    /// Which order messages between hosts keep.
    pub order: Order,
}

/// Why two tasks get no link.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// One of the tasks wants none or has ended, or something is missing.
    Denied,
    /// No program has asked for the link, and one of the two hosts has several tasks ([`Order::Hosts`]).
    Company,
}

/// The answer of a task that is asked for a link on a fabric, or of its daemon.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum LinkAnswer {
    /// The introduction of the task ([`crate::fabric::Introduction`]).
    Introduction(ByteBuf),
    /// There will be no link.
    Refused(Refusal),
}

/// Options of the hostfile that only the new host needs.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
pub struct HostOptions {
    /// `ep=`: the search path for programs.
    pub path: Option<String>,
    /// `wd=`: the working directory of tasks.
    pub directory: Option<String>,
    /// `bx=`: the debugger script.
    pub debugger: Option<String>,
    /// `mcast=`: the route of multicasts of tasks that choose none.
    pub mcast: McastRoute,
    /// `fabric=`: the fabric of tasks, as in `PVM_FABRIC`.
    pub fabric: Option<String>,
}

/// The registered servers that serve the whole machine.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct Servers {
    /// The resource manager.
    pub manager: Option<Tid>,
    /// The tracer.
    pub tracer: Option<Tid>,
    /// The trace settings that the tracer wants for later tasks ([`Request::SetTracer`]).
    pub tracer_settings: Option<TraceSettings>,
}

/// A frame from one daemon to another.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the comment of a variant names its fields
pub enum Frame {
    // ----- links and table
    /// A heartbeat.
    Beat,
    /// Master to a new host: all hosts including the new one, and the hosts that have not joined yet. The
    /// answer is `TableAck`.
    Welcome {
        wire: u32,
        version: u64,
        hosts: Vec<HostEntry>,
        joining: Vec<Tid>,
        shared: MachineSettings,
        options: HostOptions,
    },
    /// Master to all: added and removed hosts. The answer is `TableAck`.
    Table { version: u64, added: Vec<HostEntry>, removed: Vec<Tid> },
    /// To the master: the sender has applied this version of the host table.
    TableAck { version: u64 },
    /// Master to all: all hosts have acknowledged these new hosts, so they can be used now.
    Joined { hosts: Vec<Tid> },
    /// To the master: the sender's link to the named host has failed.
    Suspect(Tid),
    /// Sent to `to` through the master: `from` needs a link to `to`, and `to` must connect.
    PleaseConnect { to: Tid, from: Tid },
    /// To the master: the sender has ended its tasks and terminates. To a slave: end your tasks and terminate.
    Leave,

    // ----- requests
    /// A request of a task. The receiver handles it like a request of one of its own tasks. `again`: the former master, which
    /// has died, may have executed it.
    Request { wait: u32, from: Tid, request: Request, again: bool },
    /// The answer to `Request`.
    Reply { wait: u32, reply: Reply },
    /// To the master: a task that has sent requests to the master no longer waits for answers, and has left its groups
    /// and its server roles. If `ended` is set, the task has ended.
    Left { tid: Tid, ended: bool },
    /// To the host of a task: a signal for the task.
    Signal { tid: Tid, signal: i32 },
    /// To the master: the task has become a server of its host (`on`), or has stopped being one.
    Serves { role: Role, tid: Tid, on: bool },
    /// Master to all: the servers of the whole machine.
    Servers(Servers),

    // ----- groups
    /// Master to a host with a task that looks up the group: the state of the group.
    GroupKnown(GroupState),
    /// Master to the hosts with a replica of the group: a change of the group. The answer is `GroupSeen` if `number` is
    /// not 0.
    GroupChanged { id: u64, number: u64, change: GroupChange },
    /// To the master: the sender has applied the change with this number.
    GroupSeen { number: u64 },
    /// To the master: the answer to [`GroupChange::Take`].
    GroupTaken { id: u64, number: u32, taken: Taken },

    /// Master to a host: list the tasks that wait at barriers in the host's barrier pages.
    ListBarriers { number: u32 },
    /// The answer to `ListBarriers`, by group.
    BarriersListed { number: u32, waiting: BTreeMap<u64, Waiting> },

    // ----- spawns
    /// To a host: start some of the tasks of a spawn. The first of them is task number `first` of `total`.
    Spawn { wait: u32, parent: i32, first: i32, total: i32, spawn: Spawn },
    /// The answer to `Spawn`: tids and codes, in order.
    Spawned { wait: u32, results: Vec<i32> },
    /// To a host that has started tasks of the spawn with this number: the spawn is complete, and `tids` are all its
    /// tasks.
    Siblings { wait: u32, tids: Vec<Tid> },

    // ----- direct links
    /// `from` wants a direct link to `to`. If there is a `call`, the receiver of this frame connects.
    Direct { number: u32, from: Tid, to: Tid, call: Option<DirectCall>, cause: LinkCause },
    /// The answer to `Direct` without a `call`: the sender of `Direct` may connect.
    DirectCall { number: u32, call: DirectCall },
    /// The answer to `Direct`: there will be no link.
    DirectRefused { number: u32, why: Refusal },

    // ----- deaths
    /// To the host of `tid`: notify `watcher` when the task ends.
    Watch { tid: Tid, watcher: Tid },
    /// To the host of `tid`: do not notify `watcher` any more when the task ends.
    Unwatch { tid: Tid, watcher: Tid },
    /// In band, to `watcher`: `tid` has ended.
    Died { tid: Tid, watcher: Tid },

    // ----- messages and output
    /// A message that a daemon has made or relays: in band to the task that receives it, or on the control link to a
    /// daemon.
    Deliver(Message),
    /// To the master: a line of output for the log.
    Log {
        tid: Tid,
        #[serde(with = "serde_bytes")]
        line: Vec<u8>,
    },
    /// In band, to a collector: the output of a task.
    Output(Message),
    /// To the host of a task that prints: the collector has consumed this many bytes of output, or has left and will
    /// not consume them.
    OutputTaken { collector: Tid, bytes: u64 },

    // ----- daemons started by other hosts
    /// Master to a host: an order about the command with this number, which starts a daemon on another host.
    StartOrder { number: u64, order: StartOrder },
    /// To the master: news of the command with this number.
    StartNews { number: u64, news: StartNews },

    // ----- data links that break
    /// To the host that accepts connections: the data link with this number (the first is 0) has failed at the sender.
    DataLost { number: u32 },
    /// To the host that connects: make the data link with this number, which replaces all earlier ones.
    DataCall { number: u32, call: DataCall },

    // ----- pvm run
    /// To the host of a task: a signal for the whole process group of the task.
    SignalGroup { tid: Tid, signal: i32 },

    // ----- barriers
    /// To the master, or to the coordinator with the releases of that `chain`: members have arrived at the barrier of the
    /// group.
    Arrived { id: u64, arrivals: Vec<Arrival>, chain: Option<u32> },
    /// Master or coordinator to the host of these arrivals (member and number): their barrier has opened, or has failed.
    /// `release` is the newest release of the group's barriers; if `late` is set, the host should have heard it as a datagram.
    /// `passed`, from the master: it was a barrier of the whole group, and this one.
    BarrierEnded {
        id: u64,
        ended: Vec<(Tid, u64)>,
        failure: Option<Code>,
        release: Option<Release>,
        passed: Option<Passed>,
        late: bool,
    },
    /// To the master or a coordinator: members waited for a release that came only when it was repeated.
    ReleaseMissed,
    /// To the master: the answer to [`GroupChange::Recall`]. The sender knows `passed` releases of the chain, and these
    /// members wait at the barrier after them: its own, and those that it has counted as the coordinator.
    Recalled { id: u64, number: u64, passed: u32, arrivals: Vec<Arrival> },
    /// Coordinator to the master: take back the barriers of the group.
    HandBack { id: u64 },

    // ----- order
    /// On the control link: the frames behind this one come after what the sender has put into flows until now. In band:
    /// that has come.
    Fence,

    // ----- fabrics
    /// `from` wants a link on a fabric to `to`. The answer is `FabricAnswer`.
    Fabric { number: u32, from: Tid, to: Tid, offer: FabricOffer, cause: LinkCause },
    /// The answer to `Fabric`.
    FabricAnswer { number: u32, answer: LinkAnswer },

    // ----- another master
    /// Master to all: that host is the master from now on, after everything that the sender has sent as the master.
    NewMaster { master: Tid },
    /// To the new master: the sender follows it from now on. `clients`: the living tasks of the sender for which the master may
    /// keep state, and whether they have left PVM. `tasker`: the task that starts the tasks of the host. `groups`: the replicas of
    /// groups on the sender's host. `table`: the version of the sender's host table, if all hosts in that table have joined.
    Following { clients: Vec<(Tid, bool)>, tasker: Option<Tid>, groups: Vec<GroupNews>, table: Option<u64> },

    // ----- the deputy
    /// Master to its deputy: a piece of what only the master knows.
    Backup(Backup),
    /// Deputy to the master: all pieces up to the mark with this number are kept.
    BackupKept { number: u64 },
    /// Master to all: that host becomes the master if this one is lost.
    Deputy { host: Tid },
    /// New master to a host that follows it: all hosts, and those that have not joined. The answer is `TableAck`.
    WholeTable { version: u64, hosts: Vec<HostEntry>, joining: Vec<Tid> },
    /// Master to the council: do not support that deputy any more. The answer is `Deposed` with this number.
    Depose { deputy: Tid, number: u64 },
    /// To the master: the answer to the `Depose` with this number.
    Deposed { number: u64 },
}

impl Frame {
    /// Returns whether the frame, on a control link, comes after what its host has sent before in flows. Others are about
    /// the links themselves: a link must not wait for another one. Or no task can see them: the log, and what concerns the
    /// deputy, in its own order.
    pub fn is_ordered(&self) -> bool {
        use Frame::{
            Backup, BackupKept, Beat, DataCall, DataLost, Depose, Deposed, Deputy, Log, PleaseConnect, Suspect,
        };
        let is_of_links = matches!(self, Beat | Suspect(_) | PleaseConnect { .. } | DataLost { .. } | DataCall { .. });
        let is_of_deputy =
            matches!(self, Backup(_) | BackupKept { .. } | Deputy { .. } | Depose { .. } | Deposed { .. });
        !is_of_links && !is_of_deputy && !matches!(self, Log { .. })
    }
}

/// The arrival of a member at a barrier of its group, by way of the daemons.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The member.
    pub tid: Tid,
    /// The number of the arrival. Later arrivals of a host have higher numbers.
    pub turn: u64,
    /// How many changes of the group's members the host of the member knew.
    pub version: u64,
    /// The count of `pvm_barrier`.
    pub count: i32,
    /// Whether the member asks for a release by broadcast (`pvm_lanbarr`).
    pub lan: bool,
}

/// The arrivals taken out of the page of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// How many members must arrive; 0 if no member had arrived.
    pub need: u16,
    /// How many members had arrived.
    pub arrived: u16,
    /// The members that had arrived.
    pub arrived_members: Vec<Tid>,
    /// Members that may have arrived. If one of them has not, it will arrive by way of its daemon.
    pub maybe_arrived: Vec<Tid>,
}

/// The members that wait in the barrier of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// How many members must arrive; 0 before the first arrival.
    pub need: u16,
    /// The members that have arrived.
    pub tids: Vec<Tid>,
}

/// A datagram for all hosts: the release of a barrier of that group.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct ReleaseDatagram {
    /// The number of the group.
    pub group: u64,
    /// The release.
    pub release: Release,
}

/// The most bytes of a [`ReleaseDatagram`]: three integers of variable length, and the value.
pub const RELEASE_DATAGRAM_BYTES_MAX: usize = 64;

impl ReleaseDatagram {
    /// Reads a datagram that anybody may have sent.
    ///
    /// # Errors
    ///
    /// `Malformed`: it is no such datagram.
    pub fn read(bytes: &[u8]) -> Result<ReleaseDatagram, DatagramError> {
        let datagram = Some(bytes).filter(|bytes| bytes.len() <= RELEASE_DATAGRAM_BYTES_MAX).and_then(decode);
        datagram.ok_or(DatagramError::Malformed)
    }
}

/// The output of a command that a host runs for the master. The command starts a daemon on another host.
///
/// * Filled by: the host that is added, and the one that runs the command
/// * Setting: none, start-up files print less
/// * Reached: the command is ended, and the master starts the daemon itself
/// * Test: `a_command_that_prints_too_much_is_ended`, `a_parent_that_reports_too_much_has_failed`
pub const START_OUTPUT_BYTES_MAX: usize = 256 << 10;

/// An order of the master about a command that starts a daemon on another host.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the comment of a variant names its fields
pub enum StartOrder {
    /// Run the command `words`, and write `input` to its standard input, which stays open.
    Run { words: Vec<ByteBuf>, input: ByteBuf },
    /// The daemon has answered: close the standard input.
    CloseInput,
    /// Kill the command.
    Kill,
}

/// News of a command that starts a daemon on another host.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub enum StartNews {
    /// The command has written this to its standard output.
    Output(ByteBuf),
    /// The command has written this to its standard error.
    Errors(ByteBuf),
    /// The command has ended with this `wait` status. All of its output was reported before.
    Ended(i32),
    /// The command could not be run, with this `errno`.
    NotRun(i32),
    /// The command was killed because its output exceeded the limit.
    TooMuch,
}

/// The secrets of a connection that two hosts make for two of their tasks. The connecting side shows the first secret
/// and the accepting side answers with the second. If the messages of the tasks are encrypted, the tasks authenticate
/// each other with the third secret.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct DirectCall {
    /// The secret that the connecting side shows.
    pub shown: [u8; SECRET_BYTES],
    /// The secret that the accepting side answers with.
    pub back: [u8; SECRET_BYTES],
    /// The tasks' secret.
    pub secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for DirectCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a call")
    }
}

/// The secrets of a data link that is remade. The connecting side shows the first secret and the accepting side answers
/// with the second.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct DataCall {
    /// The secret that the connecting side shows.
    pub shown: [u8; SECRET_BYTES],
    /// The secret that the accepting side answers with.
    pub back: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for DataCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a call")
    }
}

/// The result of the look-up of a host's name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedHost {
    /// Other names of the host, such as the canonical one.
    pub aliases: Vec<String>,
    /// The addresses of the host, the best first.
    pub addresses: Vec<IpAddr>,
}

/// The answer of a daemon that has been started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The host's architecture, by PVM's name.
    pub arch: String,
    /// The host's data signature.
    pub dsig: i32,
    /// The addresses on which the daemon listens, the best first.
    pub addresses: Vec<SocketAddr>,
    /// The daemon's public key.
    pub key: Key,
    /// The host's own names for itself.
    pub names: Vec<String>,
}

/// Why a daemon could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFailure {
    /// The code for programs.
    pub code: Code,
    /// The text for users: what was tried, what failed and what helps. Empty if the code says all.
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
    fn a_frame_is_decoded_as_it_was_encoded() {
        let entry = HostEntry {
            tid: Tid::host_number(2),
            name: "beta".into(),
            aliases: vec!["beta.example".into()],
            arch: "LINUX64".into(),
            speed: 1000,
            node: Some(3),
            groups: Some(true),
            is_draining: false,
            dsig: 7,
            addresses: vec!["192.0.2.1:4000".parse().unwrap(), "[2001:db8::1]:4000".parse().unwrap()],
            key: [9; KEY_BYTES],
        };
        let frame = Frame::Table { version: 3, added: vec![entry], removed: vec![Tid::host_number(4)] };
        assert_eq!(decode::<Frame>(&encode(&frame)), Some(frame));
    }

    #[test]
    fn untrusted_input_is_not_decoded_as_a_frame() {
        assert_eq!(decode::<Frame>(&[]), None);
        assert_eq!(decode::<Frame>(&[0xff; 20]), None);
        let whole = encode(&Frame::Log { tid: Tid(0x80001), line: b"hello".to_vec() });
        for cut in 0..whole.len() {
            assert_eq!(decode::<Frame>(&whole[..cut]), None, "{cut}");
        }
        let longer = [whole.as_slice(), &[0]].concat();
        assert_eq!(decode::<Frame>(&longer), None);
        // A length field that points far beyond the end of the input.
        let mut lying = encode(&Frame::Joined { hosts: vec![Tid(1)] });
        lying.truncate(1);
        lying.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(decode::<Frame>(&lying), None);
    }
}
