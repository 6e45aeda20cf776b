//! What all sub-machines share: the time, the settings, who belongs to the machine, and the outbox.
use super::action::Action;
use super::event::Event;
use super::host_table::HostTable;
use super::links::Links;
use super::open_requests::OpenRequests;
use super::pending_acks::PendingAcks;
use super::roles::Roles;
use super::settings::{Settings, Time};
use super::task_table::TaskTable;
use crate::tid::Tid;
use std::collections::{BTreeSet, VecDeque};

/// After a pause of this part of the time that hosts may be silent, this daemon has been asleep and cannot know
/// whether the others were.
const SLEEPS_A_TIMEOUT: u32 = 2;

/// What all sub-machines share. Each of them has the rest of its state to itself.
pub(super) struct Core {
    pub settings: Settings,
    /// The latest moment that was told.
    pub now: Time,
    /// Whether the machine, or this host of it, is about to end.
    pub halting: bool,
    pub debug_mask: i32,
    pub hosts: HostTable,
    pub tasks: TaskTable,
    pub roles: Roles,
    pub links: Links,
    pub acks: PendingAcks,
    pub requests: OpenRequests,
    /// At the master: tasks of other hosts for which something is kept here.
    pub clients: BTreeSet<Tid>,
    pub(in crate::machine) actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Core {
    pub fn new(settings: Settings) -> Core {
        let hosts = HostTable::new(&settings);
        Core {
            tasks: TaskTable::new(hosts.own()),
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

    /// Lets time pass. Returns whether this daemon was asleep, so that others are not to blame for their silence.
    pub fn pass(&mut self, now: Time) -> bool {
        let slept = now.saturating_sub(self.now) > self.settings.host_timeout / SLEEPS_A_TIMEOUT;
        self.now = self.now.max(now);
        if slept {
            self.acks.begin_again(self.now);
            self.links.begin_again(self.now);
        }
        slept
    }

    /// Notes what has happened; the machine tells all sub-machines of it.
    pub fn raise(&mut self, event: Event) {
        self.events.push_back(event);
    }
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether what is sent to the task may reach it: it is here, or its host belongs to the machine.
    pub fn may_take(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.takes_frames(tid),
            false => tid.is_task() && self.hosts.is_known(tid.host()),
        }
    }

    /// Whether the task lives, as far as this host can know.
    pub fn may_live(&self, tid: Tid) -> bool {
        match tid.host() == self.own_host() {
            true => self.tasks.exists(tid),
            false => self.hosts.is_here(tid),
        }
    }

    /// Whether the task may be answered: it is connected here, or a client from another host.
    pub fn is_present(&self, tid: Tid) -> bool {
        self.tasks.is_connected(tid) || self.clients.contains(&tid)
    }
}

/// A part of the machine with a state of its own.
pub(super) trait SubMachine {
    /// What it keeps, for [`leftovers`](super::Machine::leftovers).
    fn name(&self) -> &'static str;
    /// Takes note of an event.
    fn on_event(&mut self, core: &mut Core, event: &Event);
    /// Whether nothing is kept here of any task, but what was put into mailboxes to outlive its owner.
    fn is_idle(&self) -> bool;
}
