//! What is taken from several looks at the machine: which tasks have been in the same wait all the time, and whether anything
//! may still have been under way to them.
use crate::host_look::{Activity, HostLook, Presence, ProcessLook, TaskLook};
use crate::proto::{GroupPlace, TaskKind};
use crate::state_line::Wait;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// One look at all hosts of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    /// What each daemon sees.
    pub hosts: BTreeMap<Tid, HostLook>,
    /// The hosts that have not answered.
    pub silent: BTreeSet<Tid>,
    /// All groups.
    pub groups: Vec<GroupPlace>,
}

impl Look {
    /// Returns all tasks of the hosts that have answered.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskLook> {
        self.hosts.values().flat_map(|host| &host.tasks)
    }

    /// Returns a task.
    fn task(&self, tid: Tid) -> Option<&TaskLook> {
        self.hosts.get(&tid.host())?.tasks.iter().find(|task| task.info.tid == tid)
    }
}

/// What a task does, as far as several looks can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its program runs, or has done something between the looks.
    Computes,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has been started, and has not enrolled.
    Starts,
    /// It is not in the machine any more, and its process goes on.
    HasLeft,
    /// It waits, and may go on without any of the other tasks.
    MayGoOn(Wait, Doubt),
    /// It has been asleep in this wait at all looks, and has got nothing meanwhile.
    Waits(Wait),
}

/// Why a task that waits may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The call ends by itself.
    Timed,
    /// There has been one look only, or the task was awake at one of them, or it has got something in between.
    Moves,
    /// Something may just be arriving.
    UnderWay,
    /// It has this many threads, and another thread may act.
    Threads(u32),
    /// It catches signals of timers or of descriptors, and the handler may act.
    Signals,
    /// Its process cannot be seen.
    Hidden,
}

impl Doubt {
    /// Returns whether further looks may show that the task does not go on.
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Doubt::Moves | Doubt::UnderWay)
    }
}

impl State {
    /// Returns the wait.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            State::MayGoOn(wait, _) | State::Waits(wait) => Some(wait),
            _ => None,
        }
    }
}

/// Returns whether what was under way at the first look had arrived before the last one.
///
/// A task that has slept since the first look has sent everything before that. Between hosts, the sender's daemon holds a message
/// until it has handed it to the data link as a whole, and shows for whom. From there on, the position in the bytes of the link
/// shows whether the receiver's daemon has the message; it has then rung the receiver before it looks at it.
pub(super) fn are_settled(looks: &[Look]) -> bool {
    let [first, .., last] = looks else { return false };
    first.hosts.iter().all(|(from, host)| {
        host.links.iter().all(|link| {
            // A host that has not answered the last look is silent, and nothing is said of it.
            let Some(to) = last.hosts.get(&link.host) else { return true };
            let back = to.links.iter().find(|back| back.host == *from);
            back.map_or(0, |back| back.received) >= link.sent
        })
    })
}

/// Returns the state of each program that is a task, and what the last look shows of it.
pub(super) fn states(looks: &[Look]) -> BTreeMap<Tid, (State, &TaskLook)> {
    let Some(last) = looks.last() else { return BTreeMap::new() };
    let under_way: BTreeSet<Tid> =
        looks.iter().flat_map(|look| look.hosts.values()).flat_map(|host| host.under_way.iter().copied()).collect();
    let carries_more = looks.iter().flat_map(|look| look.hosts.values()).any(|host| host.carries_more);
    let sends = |tid: Tid, looks: &[Look]| {
        looks.iter().any(|look| look.task(tid).and_then(|task| task.line.as_ref()).is_some_and(|line| line.sends))
    };
    let may_be_sent = carries_more || last.tasks().any(|task| sends(task.info.tid, looks));
    let expecting = expecting(last);
    let programs = last.tasks().filter(|task| task.kind == TaskKind::Program);
    programs
        .map(|task| {
            let tid = task.info.tid;
            let may_arrive = may_be_sent || under_way.contains(&tid) || expecting.contains(&tid);
            (tid, (state(looks, task, may_arrive), task))
        })
        .collect()
}

/// Returns the tasks to which messages are under way on direct links: the other side has sent more than they have received.
fn expecting(look: &Look) -> BTreeSet<Tid> {
    let links = |task: &TaskLook| task.line.as_ref().map_or(Vec::new(), |line| line.links.clone());
    let received: BTreeMap<(Tid, Tid), u32> = look
        .tasks()
        .flat_map(|task| links(task).into_iter().map(|link| ((task.info.tid, link.peer), link.received)))
        .collect();
    let sent = look.tasks().flat_map(|task| links(task).into_iter().map(|link| (task.info.tid, link)));
    sent.filter(|(from, link)| received.get(&(link.peer, *from)).copied().unwrap_or(0) != link.sent)
        .map(|(_, link)| link.peer)
        .collect()
}

fn state(looks: &[Look], task: &TaskLook, may_arrive: bool) -> State {
    match task.presence {
        Presence::Started => return State::Starts,
        Presence::Left => return State::HasLeft,
        Presence::Enrolled => {}
    }
    if task.process.is_some_and(|process| process.activity == Activity::Stopped) {
        return State::Stopped;
    }
    let Some(wait) = task.line.as_ref().and_then(|line| line.wait) else { return State::Computes };
    let same = |look: &Look| look.task(task.info.tid).is_some_and(|earlier| is_same(earlier, task));
    let has_left = |look: &Look| look.task(task.info.tid).is_some_and(|earlier| has_left(earlier, task));
    let doubt = match task.process {
        _ if wait.is_timed => Doubt::Timed,
        None => Doubt::Hidden,
        // A program may leave a wait by a jump, and the line still says that it waits.
        _ if looks.len() > 1 && looks.iter().all(has_left) => return State::Computes,
        Some(ProcessLook { catches_timers: true, .. }) => Doubt::Signals,
        Some(ProcessLook { threads: 2.., .. }) => Doubt::Threads(task.process.map_or(0, |process| process.threads)),
        _ if looks.len() < 2 || !looks.iter().all(same) => Doubt::Moves,
        _ if may_arrive => Doubt::UnderWay,
        Some(_) => return State::Waits(wait),
    };
    State::MayGoOn(wait, doubt)
}

/// Returns whether the task was not asleep at both looks, though its line has not changed: the program has left the wait by a jump.
/// One that does wait is awake for a moment only.
fn has_left(earlier: &TaskLook, later: &TaskLook) -> bool {
    let runs =
        |task: &TaskLook| !task.is_asleep || task.process.is_some_and(|process| process.activity == Activity::Runs);
    earlier.line == later.line && runs(earlier) && runs(later)
}

/// Returns whether the task sleeps at both looks, in the same wait, and has got nothing in between.
fn is_same(earlier: &TaskLook, later: &TaskLook) -> bool {
    let epoch = |task: &TaskLook| task.line.as_ref().map(|line| (line.epoch, line.wait));
    let sleeps = |task: &TaskLook| {
        let process = task.process.filter(|process| process.threads == 1 && process.activity == Activity::Sleeps);
        task.is_asleep && process.is_some()
    };
    // Waking up now and then takes less than a tick.
    let ticks = |task: &TaskLook| task.process.map_or(0, |process| process.ticks);
    sleeps(earlier)
        && sleeps(later)
        && epoch(earlier) == epoch(later)
        && ticks(later).saturating_sub(ticks(earlier)) <= 1
}
