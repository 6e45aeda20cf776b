//! The control protocol between a task and the daemon of its host.
//!
//! Frames travel over a Unix stream socket (crate `pvm-link`: a length, then the postcard form of
//! [`ToDaemon`] or [`ToTask`]; some frames carry descriptors). Messages between tasks do not
//! travel here but through shared memory; this is for control, and for messages that the daemon
//! itself makes or keeps (notifies, output, mailboxes).
#![allow(missing_docs)] // fields named as in the manual pages
use crate::codes::Code;
use crate::encoding::Reader;
use crate::tid::Tid;
use crate::wire::SECRET_BYTES;
use serde::{Deserialize, Serialize};
pub use serde_bytes::ByteBuf;

/// Spoken by both sides; unequal versions are refused with `PvmBadVersion`. A test compares what is said with
/// `formats/tasks.txt`.
pub const VERSION: u32 = 2;

/// A frame between a task and its daemon. The longest is one with an entry for a mailbox.
///
/// * Filled by: each task
/// * Setting: none, both sides count by the same number, and memory comes with the bytes
/// * Reached: a longer one is not sent: `pvm_putinfo` says `PvmNoMem`; a task that sends it all the same is
///   disconnected
/// * Test: `a_length_over_the_limit_is_an_error_and_allocates_nothing`
pub const FRAME_BYTES_MAX: usize = (1 << 30) + (1 << 16);

/// From a task to its daemon.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum ToDaemon {
    /// The first frame. Carries two descriptors: the task's segment, its doorbell.
    Hello(Hello),
    /// Wants exactly one [`ToTask::Reply`] with the same `wait`.
    Request { wait: u32, request: Request },
    /// A message addressed to the daemon (answers of registered hosters, taskers, managers).
    Message(Message),
    /// Ring the doorbell of a peer whose descriptor is not at hand.
    Ring(Tid),
    /// A member has arrived at the barrier of that group while the group was too small for it to
    /// open (`size`: how large the group was when the member decided to arrive). Members may have
    /// gone just before: look whether the barrier can still be reached.
    CheckBarrier { group: u64, size: u32 },
    /// `pvm_exit`: what was sent before is done; the socket closes next.
    Bye,
    /// The process of the task has ended, and its child, which has the socket from it, goes on as the task. Carries
    /// one descriptor: the child's process.
    Heir,
}

/// Who the task says it is; the daemon believes the socket's credentials first.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// Process id as the task sees it, which is another where it lives in a container: for the log only.
    pub pid: u32,
    /// `PVMEPID`: claims the place made by a spawn.
    pub cookie: Option<u32>,
    /// A name for `pvm_tasks`, normally empty.
    pub name: ByteBuf,
}

/// From the daemon to a task. Frames are handled in the order in which they come.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum ToTask {
    /// Answers `Hello`. Carries one descriptor, the host's port table, or three: then others had
    /// something for the task before it came, and the daemon has made its segment (writable) and
    /// its doorbell; they are the second and third and replace those of `Hello`.
    Welcome(Welcome),
    /// Answers `Hello` when the task may not come in; the socket closes next.
    Refused(Code),
    /// Answers the request of that number.
    Reply { wait: u32, reply: Reply },
    /// A message of the daemon's own (source `Tid::DAEMON`), or child output.
    Message(Message),
    /// A peer that has something for this task, or that this task asked for by
    /// [`Request::Connect`] (then it comes before the reply). Two descriptors: the peer's
    /// segment, its doorbell.
    Peer(Tid),
    /// A peer to which this task was introduced has ended. Everything that it had sent lies in
    /// its segment; drain that first.
    PeerGone(Tid),
    /// Comes before each [`Reply::Group`] of that number. One descriptor, the group's list of
    /// members (read-only), and for members a second one, its board (writable).
    Group { id: u64 },
    /// A link of its own to a task of another host. One descriptor: a TCP connection to that task
    /// alone.
    Direct(Direct),
    /// A task of another host has ended, and this one watches it. What came from it on a direct link
    /// comes before what follows here.
    Ended(Tid),
    /// The machine halts.
    Halting,
}

/// A direct link.
#[derive(Serialize, Deserialize, Clone, PartialEq)]
pub struct Direct {
    /// Who is at its other end.
    pub peer: Tid,
    /// Whether this side begins.
    pub calls: bool,
    /// With what both prove that they are meant; absent where nothing is encrypted.
    pub secret: Option<[u8; SECRET_BYTES]>,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Direct({})", self.peer)
    }
}

/// What a task learns at its enrolment.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Welcome {
    /// The task's own tid.
    pub tid: Tid,
    /// `pvm_parent`: a tid, 0 for none, or a negative code (-35).
    pub parent: i32,
    /// Data signature of this host.
    pub dsig: i32,
    /// Where the task's own output and traces go.
    pub own: TraceSettings,
    /// The resource manager, or `Tid::NONE`.
    pub resource_manager: Tid,
}

/// `struct Pvmtracer` (contract 1.6): where output and traces of a task go.
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
    /// 35 characters; empty means "no event".
    pub mask: ByteBuf,
    /// Beyond `struct Pvmtracer`: how tasks print, and their processes are kept together.
    pub run: RunSettings,
}

/// What `pvm run` wants of its tasks and of all that those start. All zero: tasks are as PVM's.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunSettings {
    /// The task is started as the leader of a process group.
    pub group: bool,
    /// The tag under which the collector gets what comes on the standard error; 0: with the output.
    pub errors_tag: i32,
    /// The standard output is a pseudo-terminal, so that programs write it line by line.
    pub terminal: bool,
}

impl RunSettings {
    /// What stays of it where somebody else takes the output.
    pub fn for_others(self) -> RunSettings {
        RunSettings { group: self.group, ..RunSettings::default() }
    }
}

/// A message on its way through the daemon.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Message {
    pub src: Tid,
    pub dst: Tid,
    pub ctx: i32,
    pub tag: i32,
    /// Wait id: pairs a reply of a registered server with its request.
    pub wid: i32,
    /// As in `pvmminfo.enc`: `ENC_XDR` or a data signature.
    pub enc: i32,
    /// The data signature of the host where the body was made.
    pub format: i32,
    pub body: ByteBuf,
}

impl Message {
    /// A message whose body was made on this host, in the common order (`ENC_XDR`), without wait id.
    pub fn new(src: Tid, dst: Tid, ctx: i32, tag: i32, body: impl Into<ByteBuf>) -> Message {
        let format = crate::codes::native_dsig();
        Message { src, dst, ctx, tag, wid: 0, enc: crate::codes::ENC_XDR, format, body: body.into() }
    }

    /// Reads the body.
    pub fn reader(&self) -> Reader<'_> {
        Reader::of(&self.body, self.format)
    }
}

/// What a task may ask. Every request is answered, a malformed one with `Reply::Error`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum Request {
    /// Introduce this task to a peer on this host (and the peer to this task).
    /// `Reply::Done` after `ToTask::Peer`, or `NoTask`.
    Connect(Tid),
    /// A direct link to a task of another host. `Reply::Done` after `ToTask::Direct`, or an error.
    Direct(Tid),
    /// Whether others may have direct links to this task (`pvm_setopt` of `PvmRoute`; at first they
    /// may). `Reply::Done`.
    AllowDirect(bool),
    /// `pvm_spawn`. `Reply::Tids`.
    Spawn(Spawn),
    /// `pvm_siblings`. `Reply::Tids`; waits until the spawn that made this task has ended.
    Siblings,
    /// `pvm_config`. `Reply::Hosts`.
    Config,
    /// `pvm_addhosts`. `Reply::AddedHosts`.
    AddHosts(Vec<ByteBuf>),
    /// `Reply::Failures` as soon as no hosts are being added: what went wrong with those of the
    /// hostfile that the daemon was started with, if nobody was told before.
    AwaitHosts,
    /// `pvm_delhosts`. `Reply::Codes`.
    DeleteHosts(Vec<ByteBuf>),
    /// `pvm_mstat`. `Reply::Code`.
    HostStatus(ByteBuf),
    /// `pvm_pstat`. `Reply::Code`.
    TaskStatus(Tid),
    /// `pvm_tasks`: 0, a host's tid or a task's. `Reply::Tasks`.
    Tasks(Tid),
    /// `pvm_sendsig`. `Reply::Done`, also when there is no such task.
    Signal { tid: Tid, signal: i32 },
    /// `pvm_notify`. `Reply::Done`.
    Notify { what: i32, ctx: i32, tag: i32, count: i32, tids: Vec<Tid> },
    /// `pvm_newcontext`. `Reply::Int`.
    NewContext,
    /// `pvm_freecontext`. `Reply::Done`.
    FreeContext(i32),
    /// `pvm_putinfo`. The message keeps its ctx, tag, src, wid and enc; the owner is the caller.
    /// `Reply::Int` (index).
    PutInfo { name: ByteBuf, flags: i32, message: Message },
    /// `pvm_recvinfo`. `Reply::Info`; with `MBOX_WAIT_FOR_INFO` it may take long.
    RecvInfo { name: ByteBuf, index: i32, flags: i32 },
    /// `pvm_delinfo`. `Reply::Int` (index).
    DeleteInfo { name: ByteBuf, index: i32, flags: i32 },
    /// `pvm_getmboxinfo`. `Reply::Mailboxes`.
    MailboxInfo { pattern: ByteBuf },
    /// The console's `reset info [class [index]]`, and the first half of `reset`. `Reply::Done`.
    ResetInfo { name: Option<ByteBuf>, index: Option<i32> },
    /// Register (`true`) or unregister as a server. `Reply::Int`, `Already`, `HostrNMstr`.
    /// For the manager: `Reply::Manager`.
    Register { role: Role, on: bool },
    /// `pvm_setopt` of own output or traces. `Reply::Done`.
    SetOwn(TraceSettings),
    /// What the registered tracer wants of all later tasks. `Reply::Done`, `Denied`.
    SetTracer(TraceSettings),
    /// `pvm_hostsync`. `Reply::Clock`.
    HostSync(Tid),
    /// `pvm_tickle`. `Reply::Ints`.
    Tickle(Vec<i32>),
    /// How a spawned task ended, for `pvm run`. `Reply::Int`: the wait status as of `waitpid`, at
    /// once when the task has ended already (the daemon remembers the last ones), else when it
    /// ends. `NoTask` for a task that the daemon did not start, or no longer remembers.
    ExitStatus(Tid),
    /// `pvm_joingroup`. `Reply::Group`, `DupGroup`, or `NotInGroup` for a frozen group.
    JoinGroup(ByteBuf),
    /// `pvm_lvgroup`. `Reply::Done`, `NoGroup`, `NotInGroup`.
    LeaveGroup(ByteBuf),
    /// The memory of a group, for anybody. `Reply::Group`, `NoGroup`.
    Group(ByteBuf),
    /// Arrive at the barrier of a group whose members do not meet in memory; `count` as in
    /// `pvm_barrier`. `Reply::Done` when it opens; `NoTask` when it cannot be reached any more,
    /// `NoGroup`, `NotInGroup`, `Mismatch`, `BadParam`.
    Barrier { group: u64, count: i32 },
    /// `pvm_freezegroup`. `Reply::Int` (the size) when so many members have called it.
    FreezeGroup { name: ByteBuf, count: i32 },
    /// `pvm_halt`. `Reply::Done` may or may not come before the end.
    Halt,
    /// [`Request::Signal`] for all processes of the group that the task was started in, if it was started by `pvm run`.
    SignalGroup { tid: Tid, signal: i32 },
    /// For the standard input of a task that was spawned with `TASK_INPUT`; no bytes: its end. At most
    /// [`INPUT_BYTES_MAX`]. `Reply::Done` when the task's pipe has taken all; `NoTask` when it takes no more,
    /// `Already` while others are on their way.
    Input { tid: Tid, data: ByteBuf },
    /// Why hosts were lost, for `pvm run`: a text for each of the last ones. `Reply::Failures`.
    LostHosts,
}

/// Input for a task in one request, in bytes.
///
/// * Filled by: each task
/// * Setting: none, a pipe takes no more at once
/// * Reached: `Request::Input` is answered by `PvmBadParam`
/// * Test: `input_comes_in_pieces_and_one_at_a_time`
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// The servers that a task can become.
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
    /// `argv[1]` and on.
    pub arguments: Vec<ByteBuf>,
    pub flags: i32,
    /// Host, architecture, `:directory`; empty for none.
    pub place: ByteBuf,
    /// At least 1.
    pub count: i32,
    /// `NAME=value` of exported variables, with `PVM_EXPORT=` first, `PVMCTX=` and `PVMTMASK=` ….
    pub environment: Vec<ByteBuf>,
    /// Where the children's output and traces go.
    pub children: TraceSettings,
}

/// Answers to requests.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum Reply {
    Done,
    Error(Code),
    Int(i32),
    /// A status that is no failure of the request: 0 or a negative code.
    Code(i32),
    Ints(Vec<i32>),
    /// Good tids first, then codes.
    Tids(Vec<i32>),
    Hosts {
        hosts: Vec<Host>,
        formats: i32,
    },
    /// How many were added; for each its tid or code, and for people the reason of a failure where
    /// there is more to say than the code.
    AddedHosts {
        count: i32,
        hosts: Vec<i32>,
        reasons: Vec<String>,
    },
    /// A text for each, for people.
    Failures(Vec<String>),
    Codes(Vec<i32>),
    Tasks(Vec<TaskInfo>),
    Info(Message),
    Mailboxes(Vec<Mailbox>),
    /// The previous manager, and the hosts.
    Manager {
        previous: Tid,
        hosts: Vec<Host>,
    },
    Clock {
        seconds: i64,
        microseconds: i32,
    },
    /// The group, and the asker's instance, or -1. [`ToTask::Group`] has brought its memory.
    Group {
        id: u64,
        instance: i32,
    },
}

/// `struct pvmhostinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Host {
    pub tid: Tid,
    pub name: String,
    pub arch: String,
    pub speed: i32,
    pub dsig: i32,
}

/// `struct pvmtaskinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TaskInfo {
    pub tid: Tid,
    /// 0 for none, -35 for `PvmNoSpawnParent`.
    pub parent: i32,
    pub host: Tid,
    pub flags: u32,
    /// As given to spawn; empty for tasks that came by themselves.
    pub name: ByteBuf,
    pub pid: i32,
    /// Beyond `struct pvmtaskinfo`: where its output goes, as collector, context and tag.
    pub output: (i32, i32, i32),
}

/// `struct pvmmboxinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Mailbox {
    pub name: ByteBuf,
    /// Index, owner, flags.
    pub entries: Vec<(i32, Tid, i32)>,
}

/// The form of a frame on the wire.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("every type of the protocol has a wire form")
}

/// Reads a frame; bytes that are no frame give `None`.
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
    fn a_frame_survives_its_journey() {
        let frame = ToDaemon::Request { wait: 7, request: Request::Signal { tid: Tid(0x40001), signal: 9 } };
        assert_eq!(decode::<ToDaemon>(&encode(&frame)), Some(frame));
    }

    #[test]
    fn bytes_from_nowhere_give_no_frame() {
        assert_eq!(decode::<ToDaemon>(&[0xff; 9]), None);
        assert_eq!(decode::<ToTask>(&[]), None);
        let mut frame = encode(&ToTask::Halting);
        frame.push(0);
        assert_eq!(decode::<ToTask>(&frame), None);
    }
}
