//! Actions: what the rules order the daemon to do. Also the types that actions and their answers contain.
use super::group_page::{GroupAction, Listing};
use crate::codes::Code;
use crate::host_look::{ProcessLook, Traffic};
use crate::hostfile::HostLine;
use crate::proto::{ByteBuf, LinkCause, RunSettings, ToTask, Welcome};
use crate::tid::Tid;
use crate::trace::Record;
use crate::wire::{DataCall, DirectCall, Frame, HostOptions, Key, MachineSettings, StartNews, StartOrder};
use std::net::{IpAddr, SocketAddr};

/// Identifies a connection before a task enrolls on it.
pub type Connection = u64;

/// An instruction to the daemon. Actions are executed in order. "Answer by" a function means: call that function with
/// the result.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Action {
    /// The connection belongs to that task from now on; send `welcome` to the task.
    Welcome { connection: Connection, tid: Tid, welcome: Welcome },
    /// Send the reason of the refusal on the connection, and close it.
    Refuse { connection: Connection, code: Code },
    /// Send a frame to a task, or keep it until the task has enrolled.
    Send { to: Tid, frame: ToTask },
    /// Give each of the two tasks the other's segment and doorbell, or report that this failed
    /// (`Machine::handle_not_introduced`). Both can be the same task.
    Introduce { one: Tid, other: Tid },
    /// Ring a task's doorbell.
    Ring { tid: Tid },
    /// Search for a program; answer by `Machine::handle_found`. `beside`: directories, separated by colons, that
    /// are searched last.
    Find { spawn: SpawnId, file: ByteBuf, directory: Option<ByteBuf>, beside: Option<ByteBuf>, debug: bool },
    /// Start these processes, several at the same time if that is quicker; answer for each by `Machine::handle_started`.
    /// After a failure, those that were not tried may be reported with the same failure.
    Start(Vec<Start>),
    /// Send a signal to a task's process.
    Signal { tid: Tid, process: i32, signal: i32 },
    /// Send a signal to the process group that a task was started in, and to the task itself if it has left that group.
    SignalGroup { tid: Tid, process: i32, signal: i32 },
    /// Write `data` to the standard input of the task; if `data` is empty, close the standard input; answer by
    /// `Machine::handle_input_taken`.
    Input { tid: Tid, data: ByteBuf },
    /// Note that the tid is in use from now on.
    Born { tid: Tid },
    /// The task is gone: release everything that belongs to it.
    Forget { tid: Tid },
    /// Append a line of a task's output to the log.
    Log { tid: Tid, line: Vec<u8> },
    /// Make the messages that send a trace event to a collector, with the time of day in them, and hand them to
    /// `Machine::handle_messages_made`. `describe`: the collector has not received the description of the event's
    /// fields yet. `introduce`: the collector has not received the list of all kinds of data yet.
    Trace { to: Tid, ctx: i32, tag: i32, record: Record, describe: bool, introduce: bool },
    /// Look at these tasks and their processes (0: not known), and at what is under way; answer by `Machine::handle_seen`.
    Look { to: Tid, wait: u32, tasks: Vec<(Tid, i32)> },
    /// Report the time of day by `Machine::handle_time_of_day`.
    TellTime { to: Tid, wait: u32 },
    /// Act on the page of a group.
    Group { group: u64, action: GroupAction },
    /// List the members that wait in the groups' barriers; answer by `Machine::handle_barriers_listed`.
    ListBarriers { listing: Listing },
    /// Write the statistics of messages between hosts to the log; count from 0 again if `reset` is true.
    LogStatistics { reset: bool },
    /// Resolve these host names; answer by `Machine::handle_hosts_checked`.
    CheckHosts { request: u32, names: Vec<ByteBuf> },
    /// Start daemons on these hosts, within the time limit of each; answer for each by `Machine::handle_host_started`.
    /// With `by_hoster`, only report the commands by `Machine::handle_start_commands`, because the hoster runs them.
    StartHosts { request: u32, hosts: Vec<HostStart>, by_hoster: bool },
    /// Parse the line printed by a daemon that the hoster started; answer by `Machine::handle_host_started`.
    ReadAnswer { request: u32, index: usize, line: Vec<u8> },
    /// Run, or end, a command that starts a daemon on another host, as the master has ordered; report by
    /// `Machine::report_start`.
    OrderStart { number: u64, order: StartOrder },
    /// Handle a report from `host` about a command that `host` runs by order of `Machine::order_start`.
    StartNews { host: Tid, number: u64, news: StartNews },
    /// Accept connections from the daemon of that host, if that daemon proves that it has the key.
    KnowHost { host: Tid, key: Key },
    /// Connect to the daemon of a known host; answer by `Machine::handle_link_up` or
    /// `Machine::handle_link_down`.
    OpenLink { host: Tid, addresses: Vec<SocketAddr> },
    /// Connect to the daemon of a host for a new connection of the control link, which takes the place of the one before;
    /// answer by `Machine::handle_link_resumed` or `Machine::handle_call_failed`.
    ReopenLink { host: Tid, addresses: Vec<SocketAddr> },
    /// The host has left the machine: flush the control link, then close the links, drop its flows and forget its
    /// key. No answer.
    ForgetHost { host: Tid },
    /// Read the number of retransmissions on the connection of the control link since it was made; answer by
    /// `Machine::handle_retransmissions`.
    CountRetransmissions { host: Tid },
    /// Put a frame into the session of the control link, behind a fence if needed ([`crate::flows::Flows::fence`]).
    SendHost { host: Tid, frame: Frame },
    /// Note that frames of that host are handled before messages that it has sent earlier, which do not come. No answer.
    OrderLost { host: Tid },
    /// Send a frame in the flow to that task of another host, after everything that this host has sent to the task
    /// before. The task's daemon hands the frame to `Machine::handle_frame_in_flow`.
    SendAlong { to: Tid, frame: Frame },
    /// Send these bytes to all hosts of the machine by one datagram, of at most 1,200 bytes. The datagram may be lost.
    /// The tasks there that hear such datagrams handle the bytes, or their daemon by `Machine::handle_broadcast`.
    Broadcast { bytes: Vec<u8> },
    /// From now on let these tasks hear such datagrams themselves ([`ToTask::ReleaseSocket`]). If one cannot, or if the
    /// list is empty, receive them here.
    HearBroadcasts { tasks: Vec<Tid> },
    /// Prepare for a call from the peer's host (the call links `task` and `peer`); answer by
    /// `Machine::handle_direct_expected`. When the call comes, hand the connection to the task and report by
    /// `Machine::handle_direct_ended`.
    ExpectDirect { ticket: DirectTicket, task: Tid, peer: Tid, cause: LinkCause },
    /// Call the peer's host to link `task` and `peer`; hand the connection to the task and report by
    /// `Machine::handle_direct_ended`.
    CallDirect {
        ticket: DirectTicket,
        task: Tid,
        peer: Tid,
        cause: LinkCause,
        addresses: Vec<SocketAddr>,
        call: DirectCall,
    },
    /// Tell the tasks of this host, before anything that comes later. At first a host has one task at most.
    Company(Company),
    /// Stop setting up that link: it is no longer wanted.
    CancelDirect { ticket: DirectTicket },
    /// Prepare for a call that reopens the data link to a host; answer by `Machine::handle_data_expected`, later by
    /// `Machine::handle_data_up` or `Machine::handle_data_down`.
    ExpectData { host: Tid },
    /// Call a host for a new data link; answer by `Machine::handle_data_up` or `Machine::handle_data_down`.
    CallData { host: Tid, addresses: Vec<SocketAddr>, call: DataCall },
    /// Close the data link to the host, or abandon the attempt to open it. Unsent data wait for the next link. No
    /// answer.
    DropData { host: Tid },
    /// Another host is the master from now on, or this one.
    MasterChanged,
    /// This daemon's host now belongs to a machine: apply the settings of the machine, and let tasks connect.
    Joined { shared: MachineSettings, options: HostOptions },
    /// This host, which is not the master's, ends: tasks cannot enroll any more, so the socket, the rendezvous file and
    /// the log may go.
    Withdraw,
    /// Everything has ended: exit.
    Stop,
}

/// What the daemon sees of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sight {
    /// The words of its state line, as they are in its memory; empty for none.
    pub words: Vec<u64>,
    /// Whether it sleeps, as it says.
    pub is_asleep: bool,
    /// Whether its doorbell has rung and it has not emptied the doorbell.
    pub is_rung: bool,
    /// How many frames the daemon has sent to it; wraps.
    pub frames: u32,
    /// Whether frames for it wait in the daemon.
    pub has_backlog: bool,
    /// How much it has sent and received, as it says.
    pub traffic: Traffic,
    /// Its process.
    pub process: Option<ProcessLook>,
}

/// A host on which a daemon is to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStart {
    /// Its index in the request.
    pub index: usize,
    /// The tid that the host will have.
    pub tid: Tid,
    /// The host's line of the hostfile, with defaults filled in.
    pub line: HostLine,
    /// The addresses to which the host's name resolved.
    pub addresses: Vec<IpAddr>,
}

/// A process to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The tid that the task will have.
    pub tid: Tid,
    /// The value of the process's variable `PVMEPID`.
    pub cookie: u32,
    /// The program, as found.
    pub path: ByteBuf,
    /// `argv`, beginning with `argv[0]`.
    pub arguments: Vec<ByteBuf>,
    /// Variables as `NAME=value`, in addition to those that the daemon sets.
    pub environment: Vec<ByteBuf>,
    /// The working directory of the process; the daemon's default if `None`.
    pub directory: Option<ByteBuf>,
    /// The settings of `pvm run`.
    pub run: RunSettings,
    /// Whether the standard input of the process is a pipe, for [`Action::Input`].
    pub input: bool,
}

/// Identifies a spawn: the host that distributes the spawn, and the number of the spawn on that host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct SpawnId {
    pub host: Tid,
    pub number: u32,
}

/// The result of a successful search for a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The full path of the program.
    pub path: ByteBuf,
    /// The debugger that is to run the program, if the spawn asks for one.
    pub debugger: Option<ByteBuf>,
}

/// Whether the tasks of a host are several. Only those count that may send messages to tasks, also before they have enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// There is one at most.
    Alone,
    /// There are several.
    Several,
}

/// Identifies a direct link that is being set up: the host whose task asked for the link, and the number of the link on
/// that host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectTicket {
    /// The host of the task that asked.
    pub host: Tid,
    /// The number of the link on that host.
    pub number: u32,
}
