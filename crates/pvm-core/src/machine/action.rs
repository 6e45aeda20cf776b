//! What the rules have the daemon do: each action, and the types that stand in actions and in their answers.
use super::group_page::{GroupAction, Listing};
use crate::codes::Code;
use crate::hostfile::HostLine;
use crate::proto::{ByteBuf, RunSettings, ToTask, Welcome};
use crate::tid::Tid;
use crate::trace::Record;
use crate::wire::{DataCall, DirectCall, Frame, HostOptions, Key, Shared, StartNews, StartOrder};
use std::net::{IpAddr, SocketAddr};

/// Names a connection before it is a task.
pub type Connection = u64;

/// What the daemon has to do. Actions are to be done in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Action {
    /// The connection is that task from now on; send it its welcome.
    Welcome { connection: Connection, tid: Tid, welcome: Welcome },
    /// Tell the connection why it may not come in, and close it.
    Refuse { connection: Connection, code: Code },
    /// Send a frame to a task, or keep it until the task has enrolled.
    Send { to: Tid, frame: ToTask },
    /// Give each of the two tasks the other's segment and doorbell, or say that it could not be done
    /// ([`Machine::handle_not_introduced`]). Both can be the same.
    Introduce { one: Tid, other: Tid },
    /// Ring a task's doorbell.
    Ring { tid: Tid },
    /// Look for a program; answer by [`Machine::handle_found`].
    /// `beside` are directories, with colons between them, in which to look after all others.
    Find { spawn: SpawnId, file: ByteBuf, directory: Option<ByteBuf>, beside: Option<ByteBuf>, debug: bool },
    /// Start a process; answer by [`Machine::handle_started`].
    Start(Start),
    /// Send a signal to a task's process.
    Signal { tid: Tid, process: i32, signal: i32 },
    /// Send a signal to the process group of a task, or what is left of it; that process is its own.
    SignalGroup { tid: Tid, process: i32, signal: i32 },
    /// Hand this to the standard input of the task, or close that if there is nothing; answer by
    /// [`Machine::handle_input_taken`].
    Input { tid: Tid, data: ByteBuf },
    /// The task's number is in use from now on.
    Born { tid: Tid },
    /// The task is gone: close what belongs to it.
    Forget { tid: Tid },
    /// Append output of a task to the log.
    Log { tid: Tid, line: Vec<u8> },
    /// Tell a collector of an event, stamped with the time of day, by
    /// [`Machine::handle_messages_made`]. `describe`: for the first time.
    /// `introduce`: tell it before what data there are.
    Trace { to: Tid, ctx: i32, tag: i32, record: Record, describe: bool, introduce: bool },
    /// Tell the time of day, by [`Machine::handle_time_told`].
    TellTime { to: Tid, wait: u32 },
    /// Something about the memory of a group.
    Group { group: u64, action: GroupAction },
    /// Tell who waits in the barriers of the groups; by [`Machine::handle_barriers_listed`].
    ListBarriers { listing: Listing },
    /// Find out whether these hosts can be reached; answer by [`Machine::handle_hosts_checked`].
    CheckHosts { request: u32, names: Vec<ByteBuf> },
    /// Have daemons started on these hosts, within the limit of each; answer each by
    /// [`Machine::handle_host_started`]. With `by_hoster` only say by which commands, by
    /// [`Machine::handle_start_commands`]; the hoster starts them.
    StartHosts { request: u32, hosts: Vec<HostStart>, by_hoster: bool },
    /// A hoster had that host started, and this is what its daemon printed; answer by
    /// [`Machine::handle_host_started`].
    ReadAnswer { request: u32, index: usize, line: Vec<u8> },
    /// The master orders something of a command that starts a daemon elsewhere; report by
    /// [`Machine::report_start`].
    OrderStart { number: u64, order: StartOrder },
    /// A host has news of a command that it was given by [`Machine::order_start`].
    StartNews { host: Tid, number: u64, news: StartNews },
    /// The daemon of that host may connect, if it has that key.
    KnowHost { host: Tid, key: Key },
    /// Connect to the daemon of a known host; answer by [`Machine::handle_link_up`] or
    /// [`Machine::handle_link_down`].
    OpenLink { host: Tid, addresses: Vec<SocketAddr> },
    /// The host does not belong to the machine any more: send what is queued on the control link,
    /// then close the links, drop its flows, do not know its key. No answer.
    ForgetHost { host: Tid },
    /// How often has the system sent something again on the control link, since that stands? Answer by
    /// [`Machine::handle_sent_again`].
    CountSentAgain { host: Tid },
    /// Send a frame on the control link.
    SendHost { host: Tid, frame: Frame },
    /// Send a frame along the flow to that task of another host, behind all that was sent to the
    /// task from here before. It comes out at [`Machine::handle_host_frame`] there.
    SendAlong { to: Tid, frame: Frame },
    /// Another host will call, for a link of that task to that peer: make up how, and await it;
    /// answer by [`Machine::handle_direct_expected`]. Once it has called hand the connection to the
    /// task, and tell by [`Machine::handle_direct_ended`] what came of it.
    ExpectDirect { ticket: DirectTicket, task: Tid, peer: Tid },
    /// Call another host, for a link of that task to that peer; hand the connection to the task, and
    /// tell by [`Machine::handle_direct_ended`] what came of it.
    CallDirect { ticket: DirectTicket, task: Tid, peer: Tid, addresses: Vec<SocketAddr>, call: DirectCall },
    /// Nobody wants that link any more.
    CancelDirect { ticket: DirectTicket },
    /// The data link to a host is to be made anew: make up how the host can call, and await it; answer by
    /// [`Machine::handle_data_expected`], and later by [`Machine::handle_data_up`] or
    /// [`Machine::handle_data_down`].
    ExpectData { host: Tid },
    /// Call a host for a new data link; answer by [`Machine::handle_data_up`] or [`Machine::handle_data_down`].
    CallData { host: Tid, addresses: Vec<SocketAddr>, call: DataCall },
    /// The data link to the host is of no use any more: close it, or let the attempt to make it be. What was on
    /// its way waits for the next one. No answer.
    DropData { host: Tid },
    /// This daemon has become a host of a machine.
    Joined { shared: Shared, options: HostOptions },
    /// Everybody is gone: end.
    Stop,
}

/// A host to start a daemon on.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStart {
    /// Which of the hosts of its request it is.
    pub index: usize,
    /// The host that it will be.
    pub tid: Tid,
    /// Its line, with the defaults of the hostfile.
    pub line: HostLine,
    /// What its name has led to.
    pub addresses: Vec<IpAddr>,
}

/// A process to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The task that it will be.
    pub tid: Tid,
    /// To pass on as `PVMEPID`.
    pub cookie: u32,
    /// The program, as found.
    pub path: ByteBuf,
    /// `argv[0]` and on.
    pub arguments: Vec<ByteBuf>,
    /// `NAME=value`, beside what the daemon itself sets.
    pub environment: Vec<ByteBuf>,
    /// Where it runs, if not in the daemon's own place for tasks.
    pub directory: Option<ByteBuf>,
    /// What `pvm run` wants of it.
    pub run: RunSettings,
    /// Its standard input is a pipe, for [`Action::Input`].
    pub input: bool,
}

/// Which spawn: the host that deals it out, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct SpawnId {
    pub host: Tid,
    pub number: u32,
}

/// A program that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The full path.
    pub path: ByteBuf,
    /// The debugger that is to run it.
    pub debugger: Option<ByteBuf>,
}

/// Names a link that is being made: the host whose task has asked for it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectTicket {
    /// The asker's host.
    pub host: Tid,
    /// Its number for the link.
    pub number: u32,
}
