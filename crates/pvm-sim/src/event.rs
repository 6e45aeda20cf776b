//! What happens at a time.
use crate::ids::TaskId;
use crate::ids::{LinkId, NodeId};
use crate::network::Kind;
use crate::scenario::Place;
use pvm_core::codes::Code;
use pvm_core::flows::multicast::{BodyKey, BodyRequest, PartToSend};
use pvm_core::machine::{Found, LinkBreak, SpawnId, Start};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;

/// An event.
pub enum Event {
    /// A daemon's rules are woken at the time that they have requested.
    Wake(NodeId),
    /// The first item of a channel arrives.
    Arrive { link: LinkId, end: usize, kind: Kind },
    /// At one end of a control link, the operating system gives up the connection.
    GiveUp { link: LinkId, end: usize, connection: u64 },
    /// A daemon tries to connect to a host.
    Attempt { from: NodeId, host: Tid, number: u64 },
    /// A daemon calls a host for a new connection of the control link.
    ControlAttempt { node: NodeId, host: Tid, number: u64 },
    /// An end of a control link has a new connection; `call` is the number of its own call.
    ControlUp { link: LinkId, end: usize, connection: u64, call: Option<u64> },
    /// An end of a control link notices that its connection has ended.
    ControlEnded { link: LinkId, end: usize, connection: u64, how: LinkBreak },
    /// A daemon calls a host to make a data link, or the call that it expects has not arrived in time.
    DataAttempt { node: NodeId, host: Tid, number: u64 },
    /// An end of a data link has a new connection.
    DataUp { link: LinkId, end: usize, connection: u64 },
    /// An end of a data link notices that its connection has ended.
    DataEnded { link: LinkId, end: usize, connection: u64 },
    /// A datagram for all hosts reaches a daemon.
    Datagram { node: NodeId, bytes: Box<[u8]> },
    /// Names have been looked up.
    HostsChecked { node: NodeId, request: u32, names: Box<[ByteBuf]> },
    /// A daemon was started, or the start has failed.
    HostStarted { node: NodeId, request: u32, index: usize, started: Result<NodeId, Code> },
    /// The search for a program's file has ended.
    ProgramFound { node: NodeId, spawn: SpawnId, found: Box<Result<Found, Code>> },
    /// A process was started, or the start has failed.
    ProcessStarted { node: NodeId, task: TaskId, start: Box<Start>, fails: bool },
    /// A process sends its `Hello`.
    Hello(TaskId),
    /// The daemon reads a frame from a task's socket.
    FromTask(TaskId),
    /// A task reads a frame from its socket.
    ToTask(TaskId),
    /// The daemon polls a task's queue.
    PollQueue(TaskId),
    /// A task polls its queues.
    Take(TaskId),
    /// The daemon reads what a process has printed.
    Output(TaskId),
    /// The daemon learns how many of the daemon's messages a task has handled.
    Released(TaskId, u64),
    /// A task runs the next step of its program.
    Step(TaskId),
    /// A process gets a signal.
    Signal(TaskId, i32),
    /// The daemon notices that a task's socket has closed.
    SocketClosed(TaskId),
    /// The daemon notices that a process has ended.
    ProcessEnd(TaskId, i32),
    /// A command of the scenario is due.
    Command(usize),
    /// A stopped daemon continues.
    Continue(NodeId),
    /// A fault of the network ends.
    EndFault(u64),
    /// The traffic of a computer is no longer delayed.
    EndSlowness(Place),
    /// A datagram with a part of a body arrives at a daemon.
    Part { node: NodeId, part: Box<PartToSend> },
    /// A daemon sends a report about a body that it has withheld.
    LateReport { node: NodeId, host: Tid, report: Box<(BodyKey, BodyRequest)> },
    /// The simulator checks whether the machine has settled.
    CheckSettled,
}
