//! A simulated task: a program, and what a library of PVM keeps for it.
use crate::dice::Dice;
use crate::network::NodeId;
use crate::queue::Nanos;
use pvm_core::proto::{Request, ToDaemon, ToTask, TraceSettings};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A process from its start to its end.
pub type TaskId = usize;

/// How many others a program remembers.
const KNOWN_MAX: usize = 24;

/// A message between tasks.
#[derive(Debug)]
pub struct Parcel {
    /// Who sent it.
    pub src: Tid,
    /// To whom, and which message it is from the sender to each.
    pub to: Vec<(Tid, u64)>,
    /// Bytes of its body.
    pub bytes: usize,
    /// Others that the sender knows.
    pub gossip: Option<Tid>,
}

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has not been welcomed yet.
    Starting,
    /// It is a task.
    Enrolled,
    /// It has said goodbye, and goes on for a while.
    Left,
    /// It is no more.
    Dead,
}

/// What a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It does what the scenario says, on the master's host, and nothing else.
    Operator,
    /// It does this and that.
    Worker,
}

/// A request that is open.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its number.
    pub wait: u32,
    /// What was asked.
    pub request: Request,
    /// When.
    pub at: Nanos,
}

/// A message that waits until its sender has been introduced.
pub struct Unsent {
    /// To whom it goes, as far as they are there.
    pub to: Vec<Tid>,
    /// Bytes of its body.
    pub bytes: usize,
}

/// A process.
pub struct Task {
    /// Its host's daemon.
    pub node: NodeId,
    /// Its tid; `Tid::NONE` until it has one.
    pub tid: Tid,
    /// Its process id.
    pub process: i32,
    /// How it claims its place, if it was spawned.
    pub cookie: Option<u32>,
    /// How far it has come.
    pub stage: Stage,
    /// What it is for.
    pub part: Part,
    /// Its chances.
    pub dice: Dice,
    /// What lies in its socket, towards the daemon and from there, and when the last of it comes.
    pub to_daemon: VecDeque<ToDaemon>,
    /// See `to_daemon`.
    pub from_daemon: VecDeque<ToTask>,
    /// When the last of that arrives, in each direction.
    pub last: [Nanos; 2],
    /// Its queue to the daemon: messages for tasks of other hosts.
    pub ring: VecDeque<Rc<Parcel>>,
    /// Whether the daemon is about to look at it.
    pub ring_planned: bool,
    /// What other tasks of its host have queued for it.
    pub rings: BTreeMap<Tid, VecDeque<Rc<Parcel>>>,
    /// What the daemon has queued for it, and how many that were.
    pub daemon_ring: VecDeque<Rc<Parcel>>,
    /// See `daemon_ring`.
    pub daemon_mark: u64,
    /// Whether it is about to look at these.
    pub take_planned: bool,
    /// Until then it calls nothing of PVM.
    pub lazy_until: Nanos,
    /// Tasks of its host, and the daemon, whom it knows.
    pub introduced: BTreeSet<Tid>,
    /// What it is waiting for.
    pub open: Option<Open>,
    /// The number of its last request.
    pub last_wait: u32,
    /// A message on its way out.
    pub unsent: Option<Unsent>,
    /// Tasks of which it has heard.
    pub known: Vec<Tid>,
    /// Its contexts.
    pub contexts: Vec<i32>,
    /// Its groups: name, number, and which member it is.
    pub joined: Vec<(String, u64, u32)>,
    /// Where its output and its traces go.
    pub own: TraceSettings,
    /// Lines that it has printed, and that its daemon has read.
    pub printed: u64,
    /// See `printed`.
    pub read: u64,
    /// Whether it is the tracer of the machine.
    pub serves: bool,
    /// The group in whose barrier it waits, in the memory of its host.
    pub meets_in: Option<u64>,
    /// The last tag that it asked a notification with, and what was asked with some of them.
    pub last_tag: i32,
    /// See `last_tag`.
    pub asked: Vec<(i32, i32, Vec<Tid>)>,
    /// Whether SIGTERM does nothing to it.
    pub stubborn: bool,
    /// What it will ask, one after the other (operator).
    pub agenda: VecDeque<Request>,
    /// Steps that it may still do.
    pub steps_left: usize,
}

impl Task {
    /// A process that has just started.
    pub fn new(node: NodeId, process: i32, cookie: Option<u32>, part: Part, dice: Dice) -> Task {
        Task {
            node,
            tid: Tid::NONE,
            process,
            cookie,
            stage: Stage::Starting,
            part,
            dice,
            to_daemon: VecDeque::new(),
            from_daemon: VecDeque::new(),
            last: [0; 2],
            ring: VecDeque::new(),
            ring_planned: false,
            rings: BTreeMap::new(),
            daemon_ring: VecDeque::new(),
            daemon_mark: 0,
            take_planned: false,
            lazy_until: 0,
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
            meets_in: None,
            last_tag: 0,
            asked: Vec::new(),
            stubborn: false,
            agenda: VecDeque::new(),
            steps_left: 0,
        }
    }

    /// Whether it is a task that can send and receive.
    pub fn is_enrolled(&self) -> bool {
        self.stage == Stage::Enrolled
    }

    /// It has heard of that task.
    pub fn learn(&mut self, tid: Tid) {
        if tid == self.tid || !tid.is_task() || self.known.contains(&tid) {
            return;
        }
        if self.known.len() < KNOWN_MAX {
            self.known.push(tid);
        } else {
            let at = self.dice.roll(KNOWN_MAX);
            self.known[at] = tid;
        }
    }
}
