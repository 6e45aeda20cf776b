//! The control protocol between a task and the daemon of its host.
//!
//! Frames travel over a Unix stream socket (crate `pvm-link`): a length, then a [`ToDaemon`] or [`ToTask`] in the
//! encoding of the crate postcard. Some frames carry descriptors. Messages between tasks travel through shared memory,
//! not on this socket. This protocol is for control, and for messages that the daemon makes or stores itself: notifies,
//! output, mailboxes.
#![allow(missing_docs)] // the fields have the names of the manual pages
use crate::codes::Code;
use crate::encoding::Reader;
use crate::fabric::Wish;
use crate::flows::pacing::Pacing;
use crate::host_look::HostLook;
use crate::release::Release;
pub use crate::task_info::{TaskInfo, TaskKind};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};
pub use serde_bytes::ByteBuf;

/// The version of the protocol. The daemon refuses a task of another version with `PvmBadVersion`. A test compares
/// the formats of the frames with `formats/tasks.txt`.
pub const VERSION: u32 = 16;

/// A frame between a task and its daemon. The longest one holds an entry of a mailbox.
///
/// * Filled by: each task
/// * Setting: none, both sides use the same limit, and memory is allocated as the bytes arrive
/// * Reached: a longer frame is not sent, and `pvm_putinfo` returns `PvmNoMem`; a task that sends one anyway is
///   disconnected
/// * Test: `a_length_over_the_limit_is_an_error_and_allocates_nothing`
pub const FRAME_BYTES_MAX: usize = (1 << 30) + (1 << 16);

/// A frame from a task to its daemon.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum ToDaemon {
    /// The first frame. It carries two descriptors: the task's segment and its doorbell.
    Hello(Hello),
    /// A request. The answer is exactly one [`ToTask::Reply`] with the same `wait`.
    Request { wait: u32, request: Request },
    /// A message for the daemon: an answer of a registered hoster, tasker or resource manager.
    Message(Message),
    /// Ring the doorbell of a peer whose descriptor this task does not have.
    Ring(Tid),
    /// A member has arrived at a barrier that could not open because the group had too few members. `size` is the size
    /// of the group when the member decided to arrive. Members may have left since then, so the daemon checks whether
    /// the barrier can still open.
    CheckBarrier { group: u64, size: u32 },
    /// `pvm_exit`: the last frame. The task closes the socket next.
    Bye,
    /// The process of the task has ended. Its child has inherited the socket and continues as the task. The frame
    /// carries one descriptor: a pidfd of the child.
    TakeOver,
    /// Packets of several senders to this task were lost at about the same time: the port before this host overflows.
    /// For a while, the daemon tells this to all tasks that get a direct link ([`Direct::overflows`]).
    Overflow,
    /// The fabric that the user has named cannot be used; the daemon writes the reason to its log.
    NoFabric(ByteBuf),
    /// The task has slept for a while (`true`), or is awake again (`false`). A task that sleeps wants no core,
    /// so it does not count among the tasks that may outnumber the cores.
    Idle(bool),
}

/// The task's statement of its identity. The credentials of the socket take precedence.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Hello {
    /// The [`VERSION`] of the task's library.
    pub version: u32,
    /// The process id as the task sees it, for the log only: in a container the daemon sees another number.
    pub pid: u32,
    /// `PVMEPID`: the number that the daemon gave to a spawned process.
    pub cookie: Option<u32>,
    /// The name for `pvm_tasks`, normally empty.
    pub name: ByteBuf,
    /// What the task does.
    pub kind: TaskKind,
}

/// Which order messages between two hosts keep (`HPVM_ORDER`).
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The messages of all tasks of one host to those of the other one are received in the order in which they were sent.
    /// So there are links that no program has asked for only between hosts with one task each.
    #[default]
    Hosts,
    /// Only those of each pair of tasks.
    Pairs,
}

/// Why two tasks of different hosts have a link of their own, a direct one or one on a fabric.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkCause {
    /// The program of one of them has asked for direct routes (`PvmRouteDirect`).
    Program,
    /// One of them sends much to the other.
    Traffic,
}

/// A frame from the daemon to a task. The task handles frames in the order of their arrival.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum ToTask {
    /// The answer to `Hello`. It carries the descriptor of the host's port table. If messages for the task arrived
    /// before the task enrolled, the daemon has made the task's segment and doorbell. Then two more descriptors follow,
    /// the segment (writable) and the doorbell, and replace those of `Hello`.
    Welcome(Welcome),
    /// The answer to `Hello` if the task may not enroll. The daemon closes the socket next.
    Refused(Code),
    /// The answer to the request with the same `wait`.
    Reply { wait: u32, reply: Reply },
    /// A message that the daemon has made (source `Tid::DAEMON`), or the output of a child.
    Message(Message),
    /// An introduction to a peer. Either the peer has sent this task a message, or this task has sent
    /// [`Request::Connect`], whose reply follows the introduction. The frame carries two descriptors: the peer's
    /// segment and its doorbell.
    Peer(Tid),
    /// A peer to which this task was introduced has ended. All messages that the peer sent are in the peer's segment;
    /// the task must read them before it removes the peer.
    PeerGone(Tid),
    /// The pages of a group. This frame precedes each [`Reply::Group`] with the same `id`. It carries the descriptor of
    /// the membership page (read-only), and for members also the descriptor of the barrier page (writable).
    Group { id: u64 },
    /// A direct link to a task of another host. It carries one descriptor: a TCP connection to that task.
    Direct(Direct),
    /// A task of another host, which this task watches, has ended. The task reads the messages that the ended task sent
    /// on a direct link before it handles any later frame of this socket.
    Ended(Tid),
    /// The machine halts, or this host leaves it. The text says why, unless somebody has asked for it.
    Halting(String),
    /// A socket on which the task hears releases of barriers itself. It carries one descriptor: a UDP socket.
    ReleaseSocket,
    /// The anchor of a new chain of releases of the group's barriers that the task hears itself; `None` if the daemon
    /// hears them.
    Chain { group: u64, anchor: Option<Release> },
    /// A task of another host wants to exchange messages on a fabric. The answer is [`Request::FabricAnswer`] with the
    /// same `number`.
    Fabric { number: u32, peer: Tid, offer: FabricOffer, cause: LinkCause },
}

/// What the tasks of a link on a fabric must know of each other. It travels through their daemons, and is believed only
/// from them.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
pub struct FabricOffer {
    /// An encoded [`crate::fabric::Introduction`].
    pub introduction: ByteBuf,
    /// The secrets that seal what the asking task sends, and what it receives; `None` if messages travel in clear.
    pub secrets: Option<FabricSecrets>,
}

/// The length of each secret of a link on a fabric, in bytes.
pub const FABRIC_SECRET_BYTES: usize = 16;

/// The secrets of a link on a fabric: the first one seals what the asking task sends, the second one what it receives.
pub type FabricSecrets = [[u8; FABRIC_SECRET_BYTES]; 2];

impl std::fmt::Debug for FabricOffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sealed = if self.secrets.is_some() { "sealed" } else { "clear" };
        write!(formatter, "FabricOffer({} bytes, {sealed})", self.introduction.len())
    }
}

/// The length of each secret of a connection, in bytes.
pub const SECRET_BYTES: usize = 32;

/// A direct link.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
pub struct Direct {
    /// The task at the other end.
    pub peer: Tid,
    /// Whether this side begins the handshake.
    pub calls: bool,
    /// The secret by which both sides authenticate each other, or `None` if nothing is encrypted.
    pub secret: Option<[u8; SECRET_BYTES]>,
    /// When receivers pace long messages.
    pub pacing: Pacing,
    /// Whether packets of several senders to this host were lost at about the same time a short time ago.
    pub overflows: bool,
    /// Why there is the link.
    pub cause: LinkCause,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Direct({})", self.peer)
    }
}

/// The daemon's answer to a task that enrolls.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Welcome {
    /// The task's own tid.
    pub tid: Tid,
    /// `pvm_parent`: a tid, 0 for none, or a negative code (-35).
    pub parent: i32,
    /// The data signature of this host.
    pub dsig: i32,
    /// The destination of the task's own output and traces.
    pub own: TraceSettings,
    /// The resource manager, or `Tid::NONE`.
    pub resource_manager: Tid,
    /// The fabric that the users of the machine and of this host want, unless the environment of the task says
    /// otherwise.
    pub fabric: Wish,
    /// Which order messages between hosts keep.
    pub order: Order,
}

/// `struct Pvmtracer` (contract 1.6): the destination of a task's output and traces.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct TraceSettings {
    pub trace_tid: i32,
    pub trace_ctx: i32,
    pub trace_tag: i32,
    pub output_tid: i32,
    pub output_ctx: i32,
    pub output_tag: i32,
    pub trace_buffer: i32,
    pub trace_options: i32,
    /// The trace mask of 35 characters; if it is empty, no event is traced.
    pub mask: ByteBuf,
    /// Not in `struct Pvmtracer`: settings of `pvm run` for output and process groups.
    pub run: RunSettings,
}

/// The settings of `pvm run` for its tasks, and for all tasks that these spawn. If all are zero, tasks behave as in
/// PVM.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunSettings {
    /// Whether the task starts as the leader of a process group.
    pub group: bool,
    /// The tag of messages with the standard error, or 0 if the standard error is sent together with the output.
    pub errors_tag: i32,
    /// Whether the standard output is a pseudo-terminal, so that programs write it line by line.
    pub terminal: bool,
}

impl RunSettings {
    /// Returns the settings that remain valid if the output goes to another collector.
    pub fn for_others(self) -> RunSettings {
        RunSettings { group: self.group, ..RunSettings::default() }
    }
}

/// A message that passes through the daemon.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Message {
    pub src: Tid,
    pub dst: Tid,
    pub ctx: i32,
    pub tag: i32,
    /// The wait identifier, which pairs a reply of a registered server with its request.
    pub wid: i32,
    /// The encoding as in `pvmminfo.enc`: `ENC_XDR` or a data signature.
    pub enc: i32,
    /// The data signature of the host that made the body.
    pub format: i32,
    pub body: ByteBuf,
}

impl Message {
    /// Makes a message with a body of this host in the default encoding (`ENC_XDR`), without a wait identifier.
    pub fn new(src: Tid, dst: Tid, ctx: i32, tag: i32, body: impl Into<ByteBuf>) -> Message {
        let format = crate::codes::native_dsig();
        Message { src, dst, ctx, tag, wid: 0, enc: crate::codes::ENC_XDR, format, body: body.into() }
    }

    /// Returns a reader of the body.
    pub fn reader(&self) -> Reader<'_> {
        Reader::of(&self.body, self.format)
    }
}

/// A request of a task. Every request is answered, a malformed one with `Reply::Error`. The comment of each request
/// ends with its possible answers: a [`Reply`], or a [`Code`] in a `Reply::Error`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum Request {
    /// Introduce this task and a peer on this host to each other. Answer: `Reply::Done` after `ToTask::Peer`, or
    /// `NoTask`.
    Connect(Tid),
    /// Make a direct link to a task of another host. Answer: `Reply::Done` after `ToTask::Direct`, `Reply::Company`, or
    /// an error.
    Direct { to: Tid, cause: LinkCause },
    /// Allow direct links to this task, or forbid them (`pvm_setopt` for `PvmRoute`). They are allowed at first.
    /// Answer: `Reply::Done`.
    AllowDirect(bool),
    /// `pvm_spawn`. Answer: `Reply::Tids`.
    Spawn(Spawn),
    /// `pvm_siblings`. Answer: `Reply::Tids`, but only when the spawn that started this task has ended.
    Siblings,
    /// `pvm_config`. Answer: `Reply::Hosts`.
    Config,
    /// `pvm_addhosts`. Answer: `Reply::AddedHosts`.
    AddHosts(Vec<ByteBuf>),
    /// Wait until no hosts are being added. Answer: `Reply::Failures`. It lists which hosts of the daemon's hostfile
    /// failed, without failures that were reported before.
    AwaitHosts,
    /// `pvm_delhosts`. Answer: `Reply::Codes`.
    DeleteHosts(Vec<ByteBuf>),
    /// `pvm_mstat`. Answer: `Reply::Code`.
    HostStatus(ByteBuf),
    /// `pvm_pstat`. Answer: `Reply::Code`.
    TaskStatus(Tid),
    /// `pvm_tasks` with its argument: 0, the tid of a host, or the tid of a task. Answer: `Reply::Tasks`.
    Tasks(Tid),
    /// `pvm_sendsig`. Answer: `Reply::Done`, even if there is no such task.
    Signal { tid: Tid, signal: i32 },
    /// `pvm_notify`. Answer: `Reply::Done`.
    Notify { what: i32, ctx: i32, tag: i32, count: i32, tids: Vec<Tid> },
    /// `pvm_newcontext`. Answer: `Reply::Int`.
    NewContext,
    /// `pvm_freecontext`. Answer: `Reply::Done`.
    FreeContext(i32),
    /// `pvm_putinfo`. The message keeps its ctx, tag, src, wid and enc. The caller is the owner. Answer: `Reply::Int`
    /// (index).
    PutInfo { name: ByteBuf, flags: i32, message: Message },
    /// `pvm_recvinfo`. Answer: `Reply::Info`; with `MBOX_WAIT_FOR_INFO` the request waits for an entry.
    RecvInfo { name: ByteBuf, index: i32, flags: i32 },
    /// `pvm_delinfo`. Answer: `Reply::Int` (index).
    DeleteInfo { name: ByteBuf, index: i32, flags: i32 },
    /// `pvm_getmboxinfo`. Answer: `Reply::Mailboxes`.
    MailboxInfo { pattern: ByteBuf },
    /// The console's command `reset info [class [index]]`, and the first half of its command `reset`. Answer:
    /// `Reply::Done`.
    ResetInfo { name: Option<ByteBuf>, index: Option<i32> },
    /// Register (`on`) or unregister as a server. Answer: `Reply::Int`, `Already`, `HostrNMstr`; for the resource
    /// manager `Reply::Manager`.
    Register { role: Role, on: bool },
    /// `pvm_setopt` for the task's own output or traces. Answer: `Reply::Done`.
    SetOwn(TraceSettings),
    /// The registered tracer sets the trace settings of all later tasks. Answer: `Reply::Done`, `Denied`.
    SetTracer(TraceSettings),
    /// `pvm_hostsync`. Answer: `Reply::Clock`.
    HostSync(Tid),
    /// `pvm_tickle`. Answer: `Reply::Ints`.
    Tickle(Vec<i32>),
    /// How a spawned task has ended, for `pvm run`. Answer: `Reply::Ended` as soon as the task has ended; or `NoTask` if the daemon did not start the task or does not remember it any more. The daemon
    /// remembers only the tasks that ended most recently.
    ExitStatus(Tid),
    /// `pvm_joingroup`. Answer: `Reply::Group`, `DupGroup`, or `NotInGroup` for a frozen group.
    JoinGroup(ByteBuf),
    /// `pvm_lvgroup`. Answer: `Reply::Done`, `NoGroup`, `NotInGroup`.
    LeaveGroup(ByteBuf),
    /// Get the pages of a group, whether or not this task is a member. Answer: `Reply::Group`, `NoGroup`.
    Group(ByteBuf),
    /// Arrive at the barrier of a group, with the `count` of `pvm_barrier`, while the members do not use a barrier
    /// page. Answer: `Reply::Done` or `Reply::Released` when the barrier opens; `NoTask` if it cannot open any more, `NoGroup`,
    /// `NotInGroup`, `Mismatch`, `BadParam`.
    Barrier { group: u64, count: i32 },
    /// `pvm_freezegroup`. Answer: `Reply::Int` (the size) when `count` members have made this request.
    FreezeGroup { name: ByteBuf, count: i32 },
    /// `pvm_halt`. Answer: `Reply::Done`, unless the socket closes first.
    Halt,
    /// Like [`Request::Signal`], but for the whole process group of a task that `pvm run` started.
    SignalGroup { tid: Tid, signal: i32 },
    /// Write to the standard input of a task that was spawned with `TASK_INPUT`, at most [`INPUT_BYTES_MAX`] bytes.
    /// Empty `data` closes the standard input. Answer: `Reply::Done` when the pipe has accepted all bytes; `NoTask` if
    /// the pipe is closed, `Already` while another write is in progress.
    Input { tid: Tid, data: ByteBuf },
    /// The reasons why hosts were lost, for `pvm run`: a text for each of the hosts that were lost most recently.
    /// Answer: `Reply::Failures`.
    LostHosts,
    /// Like [`Request::Barrier`], but the barrier is released by one datagram to all hosts if possible
    /// (`pvm_lanbarr`).
    LanBarrier { group: u64, count: i32 },
    /// `pvm_setopt` for `PvmGroupHost`: the host at which barriers of the task's groups meet; 0 if the master chooses.
    /// Answer: `Reply::Done`, `BadParam`, `NoHost`.
    SetGroupHost(Tid),
    /// `conf -g` of the console. Answer: `Reply::GroupPlaces`.
    GroupPlaces,
    /// Like [`Request::Barrier`], or, if `lan` is true, like [`Request::LanBarrier`], from a task that has heard the
    /// release of the barrier before itself. That barrier needs no answer any more.
    NextBarrier { group: u64, count: i32, lan: bool, heard: Release },
    /// Make a link on a fabric to a task of another host. The daemon drops the secrets if the network is trusted, unless
    /// `always_sealed` is true. Answer: `Reply::Fabric`, `Reply::Company`, or an error.
    Fabric { to: Tid, offer: FabricOffer, always_sealed: bool, cause: LinkCause },
    /// The answer to [`ToTask::Fabric`]: an encoded [`crate::fabric::Introduction`], or `None` if the task wants no link.
    /// Answer: `Reply::Done`; `NoTask` if the asking task does not wait for it any more, `Denied` if there cannot be a
    /// link.
    FabricAnswer { number: u32, peer: Tid, introduction: Option<ByteBuf> },
    /// `pvm drain`: these hosts take no new tasks, or, if `drain` is false, take them again. Answer: `Reply::Codes` with
    /// their tids or error codes, when all hosts know it.
    DrainHosts { names: Vec<ByteBuf>, drain: bool },
    /// `pvm why`: what the tasks of that host do. Answer: `Reply::Look`.
    Look(Tid),
}

/// The bytes of input for a task in one request.
///
/// * Filled by: each task
/// * Setting: none, a pipe accepts no more at once
/// * Reached: `Request::Input` is answered by `PvmBadParam`
/// * Test: `input_comes_in_pieces_and_one_at_a_time`
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// The kinds of registered servers.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Hoster,
    Tasker,
    ResourceManager,
    Tracer,
}

/// The arguments of `pvm_spawn`, and what the children inherit.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Spawn {
    pub file: ByteBuf,
    /// The arguments from `argv[1]` on.
    pub arguments: Vec<ByteBuf>,
    pub flags: i32,
    /// The place: host, architecture or `:directory`; empty for any.
    pub place: ByteBuf,
    /// The number of tasks, at least 1.
    pub count: i32,
    /// The exported variables as `NAME=value`, among them `PVM_EXPORT=` (first), `PVMCTX=` and `PVMTMASK=`.
    pub environment: Vec<ByteBuf>,
    /// The destination of the children's output and traces.
    pub children: TraceSettings,
}

/// An answer to a request.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum Reply {
    Done,
    Error(Code),
    Int(i32),
    /// The status that was asked for: 0 or a negative code. Here a negative code does not mean that the request failed.
    Code(i32),
    Ints(Vec<i32>),
    /// The tids of the tasks that were started, then a code for each task that was not.
    Tids(Vec<i32>),
    Hosts {
        hosts: Vec<Host>,
        formats: i32,
    },
    /// The number of added hosts; for each host its tid or a code, and a text with the reason of the failure if the
    /// code does not say everything.
    AddedHosts {
        count: i32,
        hosts: Vec<i32>,
        reasons: Vec<String>,
    },
    /// A text for users about each failure.
    Failures(Vec<String>),
    Codes(Vec<i32>),
    Tasks(Vec<TaskInfo>),
    Info(Message),
    Mailboxes(Vec<Mailbox>),
    /// The previous resource manager, and the hosts.
    Manager {
        previous: Tid,
        hosts: Vec<Host>,
    },
    Clock {
        seconds: i64,
        microseconds: i32,
    },
    /// The group, and the caller's instance number, or -1. The descriptors of the group's pages came before, in the
    /// [`ToTask::Group`] with the same `id`.
    Group {
        id: u64,
        instance: i32,
    },
    /// All groups, by name.
    GroupPlaces(Vec<GroupPlace>),
    /// The barrier has opened by this release.
    Released(Release),
    /// How a task has ended.
    Ended(TaskEnd),
    /// The other task has made its side of the link on a fabric: its encoded [`crate::fabric::Introduction`], and
    /// whether messages are sealed.
    Fabric {
        introduction: ByteBuf,
        sealed: bool,
    },
    /// There is no link for which only the traffic speaks ([`LinkCause`]), since one of the two hosts has several tasks.
    Company,
    /// What the daemon of a host sees of its tasks.
    Look(HostLook),
}

/// How the process that was started for a task has ended.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskEnd {
    /// The status of `waitpid`.
    pub status: i32,
    /// What the process has used.
    pub usage: Usage,
}

/// What a process has used, with the children that it has waited for; zeros if that is not known.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time in the program, and in the system for it, in microseconds.
    pub user_us: u64,
    pub system_us: u64,
    /// The most memory that the process, or the largest of the children, has held at once. The process begins as a copy
    /// of the daemon, so this is not less than what the daemon held then.
    pub memory_max_bytes: u64,
}

/// The members of a group, and where its barriers meet.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct GroupPlace {
    /// The name of the group.
    pub name: ByteBuf,
    /// Its members, the lowest instance first.
    pub members: Vec<Tid>,
    /// Whether it is frozen: nobody joins it any more.
    pub is_frozen: bool,
    /// The number of hosts with members.
    pub hosts: u32,
    /// The host at which its barriers meet.
    pub at: Tid,
}

/// `struct pvmhostinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Host {
    pub tid: Tid,
    pub name: String,
    pub arch: String,
    pub speed: i32,
    pub dsig: i32,
    /// Whether the host takes no new tasks, because it is to leave the machine.
    pub is_draining: bool,
    pub office: Office,
}

/// What a host is for the whole machine.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Office {
    /// Nothing.
    #[default]
    None,
    /// It decides what concerns the whole machine.
    Master,
    /// It becomes the master if that one is lost.
    Deputy,
    /// It votes when the master and the deputy cannot hear each other.
    Council,
}

impl Office {
    /// Returns its name, or an empty text for `None`.
    pub fn name(self) -> &'static str {
        match self {
            Office::None => "",
            Office::Master => "master",
            Office::Deputy => "deputy",
            Office::Council => "council",
        }
    }
}

/// `struct pvmmboxinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Mailbox {
    pub name: ByteBuf,
    /// The entries: index, owner and flags.
    pub entries: Vec<(i32, Tid, i32)>,
}

/// Encodes a frame.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("every type of the protocol can be encoded")
}

/// Decodes a frame. Returns `None` if the bytes are not exactly one frame.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_decoded_as_it_was_encoded() {
        let frame = ToDaemon::Request { wait: 7, request: Request::Signal { tid: Tid(0x40001), signal: 9 } };
        assert_eq!(decode::<ToDaemon>(&encode(&frame)), Some(frame));
    }

    #[test]
    fn untrusted_input_is_not_decoded_as_a_frame() {
        assert_eq!(decode::<ToDaemon>(&[0xff; 9]), None);
        assert_eq!(decode::<ToTask>(&[]), None);
        let mut frame = encode(&ToTask::Halting(String::new()));
        frame.push(0);
        assert_eq!(decode::<ToTask>(&frame), None);
    }
}
