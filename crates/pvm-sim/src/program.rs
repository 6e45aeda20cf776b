//! A simulated task: a program, and the state of its PVM library.
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::queue::Nanos;
use pvm_core::proto::{Message, Request, ToDaemon, ToTask, TraceSettings};
use pvm_core::tid::Tid;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// The most tasks that a program remembers.
const KNOWN_MAX: usize = 24;

/// A message between tasks.
#[derive(Debug, Clone)]
pub struct QueuedMessage {
    /// The sender.
    pub src: Tid,
    /// The receivers, each with a number: how many messages, with this one, the sender has sent to that receiver.
    pub to: Vec<(Tid, u64)>,
    /// Its number among all messages, in the order in which they were sent.
    pub order: u64,
    /// The number of bytes of the body.
    pub bytes: usize,
    /// If there are several receivers: the number of this multicast.
    pub multicast: Option<u64>,
    /// A task that the sender knows; the receivers learn of it from this message.
    pub known_task: Option<Tid>,
}

/// An entry of a task's queues.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A message.
    Message(Rc<QueuedMessage>),
    /// The next messages of a host come before all later entries.
    Gap {
        /// The host.
        host: Tid,
        /// The number of messages.
        count: u32,
    },
    /// No more messages of this host arrive.
    NoMore(Tid),
}

/// What waits behind a gap, or is one.
#[derive(Debug)]
pub enum Waiting {
    /// A gap, and the messages for it that have arrived.
    Gap {
        /// The host.
        host: Tid,
        /// The number of messages that are missing.
        count: u32,
        /// Those that have arrived.
        arrived: Vec<Rc<QueuedMessage>>,
    },
    /// A message.
    Message(Rc<QueuedMessage>),
    /// A message of the daemon itself.
    OfDaemon(Message),
}

/// The stage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The process has not been welcomed yet.
    Starting,
    /// The process is a task.
    Enrolled,
    /// The process has left the machine, and still runs for a while.
    Left,
    /// The process has ended.
    Dead,
}

/// The role of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramRole {
    /// The program runs on the first master's host, and only executes commands of the scenario.
    Operator,
    /// The program executes random steps.
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
    /// The daemon of the process's host.
    pub node: NodeId,
    /// The task's tid, or `Tid::NONE` as long as the process has none.
    pub tid: Tid,
    /// Its process id.
    pub process: i32,
    /// If the process was spawned: the cookie by which the daemon recognizes it.
    pub cookie: Option<u32>,
    /// The stage that the process has reached.
    pub stage: Stage,
    /// Its role.
    pub role: ProgramRole,
    /// Its random numbers.
    pub prng: Prng,
    /// The frames in the task's socket on their way to the daemon.
    pub to_daemon: VecDeque<ToDaemon>,
    /// The frames in the task's socket on their way from the daemon.
    pub from_daemon: VecDeque<ToTask>,
    /// The times when the last of these frames arrive: at the daemon, and at the task.
    pub last: [Nanos; 2],
    /// The task's queue to the daemon, with messages for tasks of other hosts.
    pub to_daemon_queue: VecDeque<Rc<QueuedMessage>>,
    /// Whether the daemon is about to poll that queue.
    pub poll_planned: bool,
    /// What other tasks of the host and the daemon have queued for this task, in the order in which they did.
    pub inbox: VecDeque<Entry>,
    /// What the task has taken from its queues and cannot receive yet.
    pub backlog: VecDeque<Waiting>,
    /// How many messages the daemon has queued for this task so far, and how many of them the task has taken.
    pub from_daemon_count: u64,
    /// See `from_daemon_count`.
    pub from_daemon_taken: u64,
    /// Whether the task is about to poll its queues.
    pub take_planned: bool,
    /// The time until which the task calls no PVM function.
    pub silent_until: Nanos,
    /// The tasks of the same host to which this task was introduced, and the daemon.
    pub introduced: BTreeSet<Tid>,
    /// The request that has not been answered yet.
    pub open: Option<Open>,
    /// The number of its last request.
    pub last_wait: u32,
    /// The message that waits until this task has been introduced to the receivers.
    pub unsent: Option<Unsent>,
    /// Other tasks that this task knows.
    pub known: Vec<Tid>,
    /// Its contexts.
    pub contexts: Vec<i32>,
    /// The groups that the task has joined: name, number, and the task's instance number.
    pub joined: Vec<(String, u64, u32)>,
    /// The destination of the task's output and traces.
    pub own: TraceSettings,
    /// How many lines the task has printed.
    pub printed: u64,
    /// How many of these lines the daemon has read.
    pub read: u64,
    /// Whether the task is the tracer of the machine.
    pub is_tracer: bool,
    /// The group at whose barrier the task waits, if it waits in the shared memory of its host.
    pub waits_in_barrier: Option<u64>,
    /// The tag of its last notify request.
    pub last_tag: i32,
    /// Its notify requests: tag, kind, and tids.
    pub asked: Vec<(i32, i32, Vec<Tid>)>,
    /// Whether the process ignores SIGTERM.
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
            inbox: VecDeque::new(),
            backlog: VecDeque::new(),
            from_daemon_count: 0,
            from_daemon_taken: 0,
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
            is_tracer: false,
            waits_in_barrier: None,
            last_tag: 0,
            asked: Vec::new(),
            ignores_sigterm: false,
            planned_requests: VecDeque::new(),
            steps_left: 0,
        }
    }

    /// Returns whether the process is a task that can send and receive.
    pub fn is_enrolled(&self) -> bool {
        self.stage == Stage::Enrolled
    }

    /// Puts a message into the first gap for messages of its host, or behind everything.
    pub fn add_to_backlog(&mut self, message: Rc<QueuedMessage>) {
        let from = message.src.host();
        for waiting in &mut self.backlog {
            if let Waiting::Gap { host, count: count @ 1.., arrived } = waiting {
                if *host == from {
                    *count -= 1;
                    return arrived.push(message);
                }
            }
        }
        self.backlog.push_back(Waiting::Message(message));
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
