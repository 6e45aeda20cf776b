//! The result: what each task waits for, why nothing comes, and which tasks can never go on.
use super::graph::{Need, causes, stuck};
use super::look::{Look, State, are_settled, states};
use super::needs::{Freer, Scene};
use crate::host_look::TaskLook;
use crate::jobs;
use crate::proto::TaskInfo;
use crate::state_line::{Call, Label, Unread, Wait, Wanted};
use crate::tid::Tid;
use std::collections::BTreeSet;

/// What is known of all tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// All programs, by tid.
    pub tasks: Vec<TaskReport>,
    /// The causes of deadlocks: tasks that hold each other up, or a task that waits for nobody who is there.
    pub causes: Vec<Vec<Tid>>,
    /// The hosts that have not answered.
    pub silent: Vec<Tid>,
    /// Whether there may be deadlocks that more looks would show: something may still have been under way.
    pub is_unsure: bool,
}

/// What is known of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskReport {
    /// The task, as `pvm_tasks` shows it.
    pub info: TaskInfo,
    /// What it does.
    pub state: State,
    /// How long it has waited, in nanoseconds.
    pub waited_ns: u64,
    /// Whether it can go on.
    pub outlook: Outlook,
    /// Why nothing comes.
    pub obstacles: Vec<Obstacle>,
    /// How many messages it has not received.
    pub unread: u32,
}

/// Whether a task can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// It goes on, or may.
    Open,
    /// Nobody runs who could send it something, but it is one that a new task may address: a server without clients.
    Idle,
    /// It can never go on. `cause`: the index of the cause; `is_part`: whether it is part of the cause.
    Stuck {
        /// The index in `Report::causes`.
        cause: usize,
        /// Whether the task belongs to the cause; otherwise it waits for those that do.
        is_part: bool,
    },
}

/// Why a wait has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The task for which it waits does this.
    Peer(Tid, Peer),
    /// Messages of those that could end the wait are here, but have another tag or context than the call accepts.
    OtherMessages(Vec<Unread>),
    /// It waits for a message from any task.
    Anybody {
        /// The number of tasks that could send one.
        running: usize,
    },
    /// Members of the group have not come.
    Members {
        /// The group.
        group: Label,
        /// How many members the call needs.
        count: usize,
        /// How many members the group has.
        size: usize,
        /// Whether nobody can join the group any more.
        is_frozen: bool,
        /// The members that have not come, and what they do.
        missing: Vec<(Tid, Peer)>,
    },
    /// There is no such group, or the daemons are just ending the wait.
    Group(Label),
}

/// What a task does for which another one waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// It is the waiting task itself.
    Itself,
    /// There is no such task: it has ended.
    Gone,
    /// Its host has not answered.
    Hidden,
    /// This.
    Is(State),
}

/// Makes the report out of several looks, the oldest first. With one look, nobody is said to be stuck.
pub fn report(looks: &[Look]) -> Report {
    let Some(last) = looks.last() else {
        return Report { tasks: Vec::new(), causes: Vec::new(), silent: Vec::new(), is_unsure: false };
    };
    let scene = Scene::new(last, states(looks));
    let needs: Vec<Need> = scene.tids.iter().map(|tid| scene.need(*tid)).collect();
    let stuck = if are_settled(looks) { stuck(&needs) } else { BTreeSet::new() };
    let tid_of = |node: &usize| scene.tids[*node];
    let are_idle = are_idle(&scene, &stuck.iter().map(tid_of).collect::<Vec<_>>());
    let causes = if are_idle { Vec::new() } else { causes(&needs, &stuck) };
    let mut cause_of = vec![None; needs.len()];
    for (number, cause) in causes.iter().enumerate() {
        cause.iter().for_each(|node| cause_of[*node] = Some(number));
    }
    let outlook = |node: usize| match stuck.contains(&node) {
        false => Outlook::Open,
        true if are_idle => Outlook::Idle,
        true => outlook(&needs, &stuck, &cause_of, node),
    };
    let tasks =
        scene.states.values().enumerate().map(|(node, (state, task))| task_report(&scene, *state, task, outlook(node)));
    Report {
        tasks: tasks.collect(),
        causes: causes.iter().map(|cause| cause.iter().map(tid_of).collect()).collect(),
        silent: last.silent.iter().copied().collect(),
        is_unsure: suspects(&scene).len() > stuck.len(),
    }
}

/// Returns the nodes that would be stuck if all that wait now went on waiting.
fn suspects(scene: &Scene<'_>) -> BTreeSet<usize> {
    let wait_on = |state: State| match state {
        State::MayGoOn(wait, doubt) if doubt.is_passing() => State::Waits(wait),
        state => state,
    };
    let states = scene.states.iter().map(|(tid, (state, task))| (*tid, (wait_on(*state), *task)));
    let scene = Scene::new(scene.last, states.collect());
    stuck(&scene.tids.iter().map(|tid| scene.need(*tid)).collect::<Vec<_>>())
}

/// Returns the outlook of a stuck node: to which cause its wait leads.
fn outlook(needs: &[Need], stuck: &BTreeSet<usize>, cause_of: &[Option<usize>], node: usize) -> Outlook {
    let (mut seen, mut work) = (BTreeSet::from([node]), vec![node]);
    while let Some(here) = work.pop() {
        if let Some(cause) = cause_of[here] {
            return Outlook::Stuck { cause, is_part: here == node };
        }
        if let Need::Some { of, .. } = &needs[here] {
            work.extend(of.iter().copied().filter(|other| stuck.contains(other) && seen.insert(*other)));
        }
    }
    Outlook::Open
}

/// Returns whether the tasks that nobody can free are no deadlock: each waits for messages of anybody, has none that it does not
/// want, and is alone in its job, so it may be a server without clients.
fn are_idle(scene: &Scene<'_>, stuck: &[Tid]) -> bool {
    let infos: Vec<TaskInfo> = scene.states.values().map(|(_, task)| task.info.clone()).collect();
    let jobs = jobs::families(&infos);
    let job_of = |tid: &Tid| jobs.iter().find(|(_, job)| job.contains(tid)).map(|(number, _)| *number);
    let is_server = |tid: &Tid| {
        let Some((State::Waits(wait), task)) = scene.states.get(tid) else { return false };
        let unread = task.line.as_ref().map_or(0, |line| line.unread);
        unread == 0 && scene.freer(*tid, wait) == Freer::Anybody
    };
    if !stuck.iter().all(is_server) {
        return false;
    }
    let mut seen = BTreeSet::new();
    stuck.iter().all(|tid| seen.insert(job_of(tid)))
}

fn task_report(scene: &Scene<'_>, state: State, task: &TaskLook, outlook: Outlook) -> TaskReport {
    let tid = task.info.tid;
    let now_ns = scene.last.hosts.get(&tid.host()).map_or(0, |host| host.now_ns);
    let wait = state.wait();
    TaskReport {
        info: task.info.clone(),
        state,
        waited_ns: wait.map_or(0, |wait| now_ns.saturating_sub(wait.since_ns)),
        outlook,
        obstacles: wait.map_or(Vec::new(), |wait| obstacles(scene, tid, wait, task)),
        unread: task.line.as_ref().map_or(0, |line| line.unread),
    }
}

fn obstacles(scene: &Scene<'_>, tid: Tid, wait: &Wait, task: &TaskLook) -> Vec<Obstacle> {
    let peer = |other: Tid| match scene.state(other) {
        _ if other == tid => Peer::Itself,
        Some(state) => Peer::Is(state),
        None if scene.is_hidden(other) => Peer::Hidden,
        None => Peer::Gone,
    };
    let mut obstacles = match scene.freer(tid, wait) {
        Freer::Task(other) => vec![Obstacle::Peer(other, peer(other))],
        Freer::All(others) => others.into_iter().map(|other| Obstacle::Peer(other, peer(other))).collect(),
        Freer::Anybody => {
            let runs = |(other, (state, _)): &(&Tid, &(State, &TaskLook))| {
                **other != tid && !matches!(state, State::Waits(_) | State::HasLeft)
            };
            vec![Obstacle::Anybody { running: scene.states.iter().filter(runs).count() }]
        }
        Freer::Members { missing, count: still, .. } => {
            let (Call::Barrier { group, .. } | Call::Freeze { group, .. }) = wait.call else { return Vec::new() };
            let (size, is_frozen) =
                scene.group(group).map_or((0, false), |group| (group.members.len(), group.is_frozen));
            let count = size - missing.len() + still;
            let missing = missing.into_iter().map(|member| (member, peer(member))).collect();
            vec![Obstacle::Members { group, count, size, is_frozen, missing }]
        }
        Freer::Daemon => match wait.call {
            Call::Barrier { group, .. } | Call::Freeze { group, .. } => vec![Obstacle::Group(group)],
            _ => Vec::new(),
        },
    };
    if let Call::Receive(wanted) | Call::PostedReceive(wanted, _) = wait.call {
        let others = others(task, wanted);
        if !others.is_empty() {
            obstacles.push(Obstacle::OtherMessages(others));
        }
    }
    obstacles
}

/// Returns the unread messages of those of whom the receive accepts messages.
fn others(task: &TaskLook, wanted: Wanted) -> Vec<Unread> {
    let kinds = task.line.iter().flat_map(|line| &line.unread_kinds);
    kinds.filter(|kind| wanted.from.is_none_or(|from| from == kind.from)).copied().collect()
}
