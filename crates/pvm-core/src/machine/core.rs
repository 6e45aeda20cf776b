//! The state that all sub-machines share: the time, the settings, the tables of hosts and tasks, and the outbox.
use super::action::{Action, Company};
use super::event::Event;
use super::host_table::HostTable;
use super::links::{Links, State};
use super::open_requests::OpenRequests;
use super::pending_acks::{Ack, PendingAcks};
use super::roles::Roles;
use super::settings::Settings;
use super::task_table::TaskTable;
use crate::proto::{LinkCause, Order, Reply, ToTask};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Backup, Frame};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// This daemon counts as suspended when more than `host_timeout` divided by this number passes between two inputs. A
/// suspended daemon cannot judge how long others were silent.
pub(super) const SLEEPS_PER_TIMEOUT: u32 = 2;

/// The state that all sub-machines share.
pub(super) struct Core {
    pub settings: Settings,
    /// The latest time that the daemon has passed to the core.
    pub now: Time,
    /// Whether the machine, or only this host, is being halted.
    pub halting: bool,
    pub debug_mask: i32,
    pub hosts: HostTable,
    pub tasks: TaskTable,
    /// What the daemon was told last about the tasks.
    told_company: Company,
    pub roles: Roles,
    pub links: Links,
    pub acks: PendingAcks,
    pub requests: OpenRequests,
    /// At the master: the tasks on other hosts that have state at the master, such as requests, groups or roles.
    pub clients: BTreeSet<Tid>,
    /// At a new master: the hosts that do not follow it yet.
    awaited: BTreeMap<Tid, Awaited>,
    /// The host that becomes the master if the present one dies.
    pub deputy: Option<Tid>,
    /// Until then this host does not know whether others have removed it while its daemon was suspended.
    pub may_be_out_until: Time,
    /// At a master whose predecessor has died: the answers of that one, by host and number of the request.
    answers: BTreeMap<(Tid, u32), Reply>,
    /// At a master: what has changed in this step, for the deputy.
    pub changes: Changes,
    /// Actions that wait for nothing, and actions that have waited for the deputy and precede all others.
    urgent: VecDeque<Action>,
    released: VecDeque<Action>,
    /// Actions that wait until the deputy keeps everything up to a mark.
    held: VecDeque<Held>,
    /// Whether this daemon tells nobody anything any more.
    is_silent: bool,
    /// Actions that the daemon has not fetched yet.
    pub(in crate::machine) actions: VecDeque<Action>,
    /// Events that have not been delivered yet.
    events: VecDeque<Event>,
}

impl Core {
    pub fn new(settings: Settings) -> Core {
        let hosts = HostTable::new(&settings);
        Core {
            tasks: TaskTable::new(hosts.own()),
            told_company: Company::Alone,
            hosts,
            settings,
            now: Time::ZERO,
            halting: false,
            debug_mask: 0,
            roles: Roles::default(),
            links: Links::default(),
            acks: PendingAcks::default(),
            requests: OpenRequests::default(),
            clients: BTreeSet::new(),
            awaited: BTreeMap::new(),
            deputy: None,
            may_be_out_until: Time::ZERO,
            answers: BTreeMap::new(),
            changes: Changes::default(),
            urgent: VecDeque::new(),
            released: VecDeque::new(),
            held: VecDeque::new(),
            is_silent: false,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub fn own_host(&self) -> Tid {
        self.hosts.own()
    }
    pub fn is_master(&self) -> bool {
        self.hosts.is_master()
    }

    /// Advances the clock. Returns whether this daemon was suspended; if so, the silence of other hosts does not mean
    /// that they have failed.
    pub fn advance_time(&mut self, now: Time) -> bool {
        let timeout = self.settings.host_timeout;
        let slept = now.saturating_sub(self.now) > timeout / SLEEPS_PER_TIMEOUT;
        self.now = self.now.max(now);
        if slept {
            self.may_be_out_until = self.now + timeout;
            self.acks.restart_timers(self.now);
            self.links.restart_timers(self.now);
        }
        slept
    }

    /// Queues an event for delivery to all sub-machines.
    pub fn raise(&mut self, event: Event) {
        self.events.push_back(event);
    }
    /// Takes the next undelivered event.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the other hosts that have joined and have a link now, the oldest first.
    pub fn linked_hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        let is_linked = |host: Tid| self.links.get(host).is_some_and(|link| matches!(link.state, State::Up));
        self.hosts.tids().filter(move |host| *host != self.own_host() && is_linked(*host))
    }

    /// Returns whether a message may reach the task: the task is here, or its host belongs to the machine.
    pub fn can_receive(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.takes_frames(tid),
            false => tid.is_task() && self.hosts.is_known(tid.host()),
        }
    }

    /// Returns whether the task lives, as far as this host can know.
    pub fn may_live(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.exists(tid),
            false => self.hosts.is_here(tid),
        }
    }

    // ----- answers of a former master

    /// Keeps the answers of the former master for hosts that send requests again.
    pub fn keep_answers(&mut self, answers: BTreeMap<(Tid, u32), Reply>) {
        self.answers = answers;
    }
    /// Takes the answer of the former master to the request of a host with that number.
    pub fn take_answer(&mut self, number: (Tid, u32)) -> Option<Reply> {
        self.answers.remove(&number)
    }
    /// Drops the answers of the former master to requests of a host. The host has sent again all that it had to.
    pub fn drop_answers(&mut self, host: Tid) {
        if !self.answers.is_empty() {
            self.answers.retain(|(asker, _), _| *asker != host);
        }
    }

    // ----- actions that wait for the deputy

    /// Lets all actions of this step and later ones wait until the deputy keeps everything up to that mark.
    pub fn hold(&mut self, mark: u64) {
        let actions = std::mem::take(&mut self.actions);
        self.held.push_back(Held { mark, actions, acks: Vec::new() });
    }
    /// Lets the actions go on that have waited for marks up to that one.
    pub fn release(&mut self, mark: u64) {
        while self.held.front().is_some_and(|held| held.mark <= mark) {
            let Some(held) = self.held.pop_front() else { return };
            self.released.extend(held.actions);
            held.acks.into_iter().for_each(|(host, ack)| self.acks.resume(host, ack, self.now));
        }
    }
    /// At the end of a step: nobody can acknowledge what waits.
    pub fn suspend_acks(&mut self) {
        if let Some(held) = self.held.back_mut() {
            held.acks.extend(self.acks.suspend(self.now));
        }
    }
    pub fn release_all(&mut self) {
        self.release(u64::MAX);
    }
    /// Drops the frames of a kind that wait, for whatever reason.
    pub fn drop_unsent(&mut self, is_meant: impl Fn(&Frame) -> bool) {
        let stays = |action: &Action| !matches!(action, Action::SendHost { frame, .. } if is_meant(frame));
        let held = self.held.iter_mut().map(|held| &mut held.actions);
        held.chain([&mut self.released, &mut self.actions]).for_each(|actions| actions.retain(stays));
        self.awaited.values_mut().for_each(|awaited| awaited.frames.retain(|frame| !is_meant(frame)));
    }
    /// Tells nobody anything any more, but its own tasks that they end: the deputy may have become the master.
    pub fn fall_silent(&mut self) {
        self.is_silent = true;
        self.release_all();
        for queue in [&mut self.urgent, &mut self.released] {
            queue.retain(|action| !tells(action));
        }
    }
    /// Puts actions before all that do not wait for the deputy.
    pub fn do_next(&mut self, actions: VecDeque<Action>) {
        let later = std::mem::replace(&mut self.released, actions);
        self.released.extend(later);
    }
    /// Returns whether actions wait for the deputy.
    pub fn holds_actions(&self) -> bool {
        !self.held.is_empty()
    }
    /// Takes the next action.
    pub fn take_action(&mut self) -> Option<Action> {
        if self.is_silent {
            self.actions.retain(|action| !tells(action));
        } else if !self.held.is_empty() && self.released.is_empty() {
            // What keeps links alive decides nothing.
            let (urgent, later) = std::mem::take(&mut self.actions).into_iter().partition::<VecDeque<_>, _>(is_upkeep);
            self.urgent.extend(urgent);
            self.held.back_mut().expect("not empty").actions.extend(later);
        }
        let action = self.urgent.pop_front().or_else(|| self.released.pop_front()).or_else(|| self.actions.pop_front());
        if action.is_none() {
            // This resets the empty ring buffer to its start, which is in the caches. Otherwise the actions would use
            // the whole capacity, one place after the other.
            self.actions.clear();
        }
        action
    }
    /// Sends a frame to a host that has a link, before all actions that wait.
    pub fn send_urgently(&mut self, host: Tid, frame: Frame) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(host).filter(|link| link.state.has_session()) {
            link.sent = now;
            self.urgent.push_back(Action::SendHost { host, frame });
        }
    }

    /// Sends a frame to a host that is lost, before all actions that wait, also its removal: its connection may still work.
    pub fn send_lost(&mut self, host: Tid, frame: Frame) {
        self.urgent.push_back(Action::SendHost { host, frame });
    }

    /// At a new master: keeps all frames for a host until the host follows it. `table`: the version of the host table, which the
    /// former master may not have told to the host.
    pub fn await_following(&mut self, host: Tid, table: u64) {
        self.acks.expect(host, Ack::Following, self.now);
        self.awaited.insert(host, Awaited { frames: Vec::new(), table });
    }
    /// Returns whether some host does not follow this master yet.
    pub fn awaits_hosts(&self) -> bool {
        !self.awaited.is_empty()
    }
    /// Returns whether a host does not follow this master yet.
    pub fn is_awaited(&self, host: Tid) -> bool {
        self.awaited.contains_key(&host)
    }
    /// Keeps a frame for a host that does not follow this master yet; otherwise returns it.
    pub fn keep_awaited(&mut self, host: Tid, frame: Frame) -> Option<Frame> {
        match self.awaited.get_mut(&host) {
            Some(awaited) => awaited.frames.push(frame),
            None => return Some(frame),
        }
        None
    }
    /// Sends a host the frames that were kept for it. `known`: the version of its host table. If that is old, the whole table goes
    /// first, in place of the changes among these frames.
    pub fn let_follow(&mut self, host: Tid, known: Option<u64>) {
        let Some(Awaited { mut frames, table }) = self.awaited.remove(&host) else { return };
        if known != Some(table) {
            frames.retain(|frame| !matches!(frame, Frame::Table { .. }));
            let (version, hosts, joining) = (self.hosts.version, self.hosts.entries(), self.hosts.not_joined());
            self.send_host(host, Frame::WholeTable { version, hosts, joining });
        }
        frames.into_iter().for_each(|frame| self.send_host(host, frame));
    }

    /// Tells the daemon if tasks have come, so that there are several, or have gone.
    pub fn tell_company(&mut self) {
        let company = self.tasks.company();
        if std::mem::replace(&mut self.told_company, company) != company {
            self.push(Action::Company(company));
        }
    }

    /// Returns whether this task of this host may have a link that is made for this reason. Messages on a link pass those
    /// of other tasks between the same hosts, so without being asked, links are made only where there are no others.
    pub fn may_have_link(&self, task: Tid, cause: LinkCause) -> bool {
        cause == LinkCause::Program || self.settings.order == Order::Pairs || self.tasks.is_alone(task)
    }

    /// Returns whether a request of the task can be answered: the task is connected here, or is in `clients`.
    pub fn can_be_answered(&self, tid: Tid) -> bool {
        self.tasks.is_connected(tid) || self.clients.contains(&tid)
    }
}

/// Returns whether the action only makes links or keeps them alive.
fn is_upkeep(action: &Action) -> bool {
    match action {
        Action::SendHost { frame, .. } => matches!(frame, Frame::Beat | Frame::PleaseConnect { .. }),
        Action::ReopenLink { .. } | Action::CountRetransmissions { .. } => true,
        _ => false,
    }
}

/// Returns whether the action tells another host, or a task, something that another master may contradict.
fn tells(action: &Action) -> bool {
    match action {
        Action::SendHost { .. } | Action::SendAlong { .. } | Action::Broadcast { .. } => true,
        // The other host would notice.
        Action::ForgetHost { .. } => true,
        // Another master may have given the number to another host.
        Action::StartHosts { .. } | Action::OrderStart { .. } => true,
        Action::Send { frame, .. } => !matches!(frame, ToTask::Halting(_)),
        _ => false,
    }
}

/// A host that does not follow a new master yet.
struct Awaited {
    /// The frames for it.
    frames: Vec<Frame>,
    /// The version of the host table before those frames.
    table: u64,
}

/// Actions that wait until the deputy keeps everything up to a mark, and the acknowledgements of their frames.
struct Held {
    mark: u64,
    actions: VecDeque<Action>,
    acks: Vec<(Tid, Ack)>,
}

/// What has changed at a master that has a deputy.
#[derive(Default)]
pub(super) struct Changes {
    /// Whether there is a deputy.
    pub are_kept: bool,
    /// Whether the host table, the servers, or what else there is once, has changed.
    pub table: bool,
    pub servers: bool,
    pub machine: bool,
    /// The changes of groups.
    pub groups: Vec<Backup>,
    /// The releases of barriers. Nothing waits until the deputy keeps them.
    pub releases: Vec<Backup>,
}

/// A part of the machine that has private state.
pub(super) trait SubMachine {
    /// Returns a name for the state of this sub-machine, for [`leftovers`](super::Machine::leftovers).
    fn name(&self) -> &'static str;
    /// Handles an event.
    fn on_event(&mut self, core: &mut Core, event: &Event);
    /// Returns whether this sub-machine holds no state of any task; persistent mailbox entries do not count.
    fn is_idle(&self) -> bool;
}
