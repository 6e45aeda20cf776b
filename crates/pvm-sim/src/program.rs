//! A simulated task: a program, and the state of its PVM library.
use crate::network::NodeId;
use crate::prng::Prng;
use crate::queue::Nanos;
use pvm_core::proto::{Request, ToDaemon, ToTask, TraceSettings};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The index of a process. No other process ever has the same index.
pub type TaskId = usize;

/// The most other tasks that a program remembers.
const KNOWN_MAX: usize = 24;

/// A message between tasks.
#[derive(Debug)]
pub struct QueuedMessage {
    /// The sender.
    pub src: Tid,
    /// The receivers, each with the number of this message among those from the sender to that receiver.
    pub to: Vec<(Tid, u64)>,
    /// The number of bytes of the body.
    pub bytes: usize,
    /// Another task that the sender knows.
    pub known_task: Option<Tid>,
}

/// The stage in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has not been welcomed yet.
    Starting,
    /// It is a task.
    Enrolled,
    /// It has left the machine, and runs on for a while.
    Left,
    /// It has ended.
    Dead,
}

/// The role of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramRole {
    /// It runs the scenario's commands on the master's host, and nothing else.
    Operator,
    /// It does random things.
    Worker,
}

/// A pending request.
#[derive(Debug, Clone)]
pub struct Open {
    /// The number of the request.
    pub wait: u32,
    /// What was asked.
    pub request: Request,
    /// When it was sent.
    pub at: Nanos,
}

/// A message that waits until its sender has been introduced to the receivers.
pub struct Unsent {
    /// The receivers that exist.
    pub to: Vec<Tid>,
    /// The number of bytes of the body.
    pub bytes: usize,
}

/// A process.
pub struct Task {
    /// The daemon of its host.
    pub node: NodeId,
    /// Its tid; `Tid::NONE` until it has one.
    pub tid: Tid,
    /// Its process id.
    pub process: i32,
    /// The cookie by which the daemon recognizes it, if it was spawned.
    pub cookie: Option<u32>,
    /// The stage of its life.
    pub stage: Stage,
    /// Its role.
    pub role: ProgramRole,
    /// Its random numbers.
    pub prng: Prng,
    /// Frames in its socket towards the daemon.
    pub to_daemon: VecDeque<ToDaemon>,
    /// Frames in its socket from the daemon.
    pub from_daemon: VecDeque<ToTask>,
    /// The time when the last of these frames arrives, in each direction.
    pub last: [Nanos; 2],
    /// Its queue to the daemon: messages for tasks of other hosts.
    pub to_daemon_queue: VecDeque<Rc<QueuedMessage>>,
    /// Whether the daemon is about to poll that queue.
    pub poll_planned: bool,
    /// Messages that other tasks of its host have queued for it.
    pub from_peers: BTreeMap<Tid, VecDeque<Rc<QueuedMessage>>>,
    /// Messages that the daemon has queued for it.
    pub from_daemon_queue: VecDeque<Rc<QueuedMessage>>,
    /// How many messages the daemon has queued for it so far.
    pub from_daemon_count: u64,
    /// Whether it is about to poll its queues.
    pub take_planned: bool,
    /// The time until which it calls no PVM function.
    pub silent_until: Nanos,
    /// The tasks of its host, and the daemon, to which it was introduced.
    pub introduced: BTreeSet<Tid>,
    /// The request that has not been answered yet.
    pub open: Option<Open>,
    /// The number of its last request.
    pub last_wait: u32,
    /// A message that waits for introductions.
    pub unsent: Option<Unsent>,
    /// Other tasks that it knows.
    pub known: Vec<Tid>,
    /// Its contexts.
    pub contexts: Vec<i32>,
    /// Its groups: name, number, and instance number.
    pub joined: Vec<(String, u64, u32)>,
    /// The destination of its output and its traces.
    pub own: TraceSettings,
    /// How many lines it has printed.
    pub printed: u64,
    /// How many lines its daemon has read.
    pub read: u64,
    /// Whether it is the tracer of the machine.
    pub serves: bool,
    /// The group at whose barrier it waits, if it waits in the shared memory of its host.
    pub waits_in_barrier: Option<u64>,
    /// The tag of its last notify request.
    pub last_tag: i32,
    /// Its notify requests: tag, kind, and tids.
    pub asked: Vec<(i32, i32, Vec<Tid>)>,
    /// Whether it ignores SIGTERM.
    pub ignores_sigterm: bool,
    /// The requests that the operator will send, in this order.
    pub planned_requests: VecDeque<Request>,
    /// How many steps are left.
    pub steps_left: usize,
}

impl Task {
    /// Makes a process that has just started.
    pub fn new(node: NodeId, process: i32, cookie: Option<u32>, role: ProgramRole, prng: Prng) -> Task {
        Task {
            node,
            tid: Tid::NONE,
            process,
            cookie,
            stage: Stage::Starting,
            role,
            prng,
            to_daemon: VecDeque::new(),
            from_daemon: VecDeque::new(),
            last: [0; 2],
            to_daemon_queue: VecDeque::new(),
            poll_planned: false,
            from_peers: BTreeMap::new(),
            from_daemon_queue: VecDeque::new(),
            from_daemon_count: 0,
            take_planned: false,
            silent_until: 0,
            introduced: BTreeSet::new(),
            open: None,
            last_wait: 0,
            unsent: None,
            known: Vec::new(),
            contexts: Vec::new(),
            joined: Vec::new(),
            own: TraceSettings::default(),
            printed: 0,
            read: 0,
            serves: false,
            waits_in_barrier: None,
            last_tag: 0,
            asked: Vec::new(),
            ignores_sigterm: false,
            planned_requests: VecDeque::new(),
            steps_left: 0,
        }
    }

    /// Returns whether it is a task that can send and receive.
    pub fn is_enrolled(&self) -> bool {
        self.stage == Stage::Enrolled
    }

    /// Remembers another task.
    pub fn learn(&mut self, tid: Tid) {
        if tid == self.tid || !tid.is_task() || self.known.contains(&tid) {
            return;
        }
        if self.known.len() < KNOWN_MAX {
            self.known.push(tid);
        } else {
            let at = self.prng.below(KNOWN_MAX);
            self.known[at] = tid;
        }
    }
}
