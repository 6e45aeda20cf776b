//! The deputy: a host that keeps what only the master knows, and becomes the master if that one provably dies.
//!
//! The master chooses the host that has been in the machine for the longest time, and sends it everything. When the deputy
//! says that it keeps that, all hosts learn who the deputy is. From then on every change of what only the master knows goes to
//! the deputy first, with the answers to requests that it leads to: all that the master does in the same step and later waits
//! until the deputy has said that it keeps the change ([`Core::hold`]). So nobody ever learns of a change that is lost later.
//! If the deputy is lost, the master goes on without one and chooses another.
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::groups::GroupShadow;
use super::mailbox::Mailboxes;
use super::pending_acks::Ack;
use crate::master_state::{MachineState, MasterState};
use crate::proto::Reply;
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Backup, Frame, HostEntry, Servers};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// For how many silence limits the deputy keeps answers, and how many bytes of them. A host that has not got an answer by then is
/// lost, or was answered before many others.
const ANSWERS_KEPT: u32 = 3;
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How many bytes may be on the way to the deputy, and after how many it says that it keeps them. More could be more than may
/// wait for a host.
const WINDOW_BYTES: usize = 16 << 20;
const MARK_BYTES: usize = 4 << 20;

/// The deputy of this master.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Deputy {
    #[default]
    None,
    /// It gets everything, and has not said that it keeps it.
    Starting(Tid),
    /// All hosts know it.
    Ready(Tid),
}

/// What this host knows of deputies.
#[derive(Default)]
pub(super) struct Deputies {
    /// At the master.
    deputy: Deputy,
    /// The number of the last mark that was sent, and of the last that is kept.
    sent: u64,
    kept: u64,
    /// Pieces that wait until less is on the way.
    queue: VecDeque<Backup>,
    /// The bytes on the way, and those before each mark that is not kept.
    on_way: usize,
    marks: VecDeque<(u64, usize)>,
    since_mark: usize,
    /// At the deputy: what the master knows.
    shadow: Option<Box<Shadow>>,
}

/// What the deputy keeps.
pub(super) struct Shadow {
    pub machine: MachineState,
    pub version: u64,
    pub hosts: Vec<HostEntry>,
    pub joining: BTreeSet<Tid>,
    pub mailboxes: Mailboxes,
    pub groups: GroupShadow,
    pub servers: Servers,
    pub answers: BTreeMap<(Tid, u32), Reply>,
    /// The answers, the oldest first.
    answer_times: VecDeque<(Time, (Tid, u32), usize)>,
    answer_bytes: usize,
}

impl SubMachine for Deputies {
    fn name(&self) -> &'static str {
        "deputy"
    }
    fn is_idle(&self) -> bool {
        true
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        if let Event::HostGone(host) = event {
            // While the master halts, a deputy that is only silent may still live.
            core.deputy.take_if(|deputy| deputy == host && !(core.halting && core.hosts.is_master()));
            if matches!(self.deputy, Deputy::Starting(deputy) | Deputy::Ready(deputy) if deputy == *host) {
                self.stop(core);
                core.release_all();
            }
        }
    }
}

impl Deputies {
    // ----- the master

    /// Returns the host that gets all changes, if there is one.
    pub fn host(&self) -> Option<Tid> {
        match self.deputy {
            Deputy::None => None,
            Deputy::Starting(host) | Deputy::Ready(host) => Some(host),
        }
    }
    /// Returns whether the deputy keeps all that was sent.
    pub fn has_all(&self) -> bool {
        self.deputy == Deputy::None || self.kept == self.sent
    }

    /// Chooses a deputy if there is none. Returns whether it was chosen now, so that it needs everything.
    pub fn choose(&mut self, core: &Core) -> bool {
        if self.deputy != Deputy::None {
            return false;
        }
        let may = |host: &Tid| !core.is_awaited(*host) && !core.hosts.is_draining(*host);
        let Some(host) = core.linked_hosts().find(may) else { return false };
        *self = Deputies { deputy: Deputy::Starting(host), ..Deputies::default() };
        true
    }

    /// Sends changes to the deputy, with the answers of this step. What this step does waits until they are kept.
    pub fn send(&mut self, core: &mut Core, changes: Vec<Backup>) {
        let Some(deputy) = self.host() else { return };
        if self.has_all() {
            core.acks.expect(deputy, Ack::Backup, core.now);
        }
        let mut bytes = 0;
        for change in changes.into_iter().chain(answers(core)) {
            bytes += weight(&change);
            self.queue.push_back(change);
            if bytes >= MARK_BYTES {
                bytes = 0;
                self.mark();
            }
        }
        self.mark();
        self.send_queued(core, deputy);
        if matches!(self.deputy, Deputy::Ready(_)) {
            core.hold(self.sent);
        }
    }

    /// Sends what nothing waits for.
    pub fn tell(&mut self, core: &mut Core, releases: Vec<Backup>) {
        if let Some(deputy) = self.host().filter(|_| !releases.is_empty()) {
            self.queue.extend(releases);
            self.send_queued(core, deputy);
        }
    }

    fn mark(&mut self) {
        self.sent += 1;
        self.queue.push_back(Backup::Mark { number: self.sent });
    }

    /// Sends pieces until enough is on the way.
    fn send_queued(&mut self, core: &mut Core, deputy: Tid) {
        while self.on_way < WINDOW_BYTES {
            let Some(piece) = self.queue.pop_front() else { return };
            let bytes = weight(&piece);
            (self.on_way, self.since_mark) = (self.on_way + bytes, self.since_mark + bytes);
            if let Backup::Mark { number } = piece {
                self.marks.push_back((number, std::mem::take(&mut self.since_mark)));
            }
            core.send_urgently(deputy, Frame::Backup(piece));
        }
    }

    /// Handles the news that the deputy keeps all up to a mark.
    pub fn kept(&mut self, core: &mut Core, from: Tid, number: u64) {
        if self.host() != Some(from) || number > self.sent || number <= self.kept {
            return;
        }
        self.kept = number;
        core.acks.received(from, Ack::Backup);
        if !self.has_all() {
            core.acks.expect(from, Ack::Backup, core.now);
        }
        while self.marks.front().is_some_and(|(mark, _)| *mark <= number) {
            self.on_way -= self.marks.pop_front().map_or(0, |(_, bytes)| bytes);
        }
        self.send_queued(core, from);
        core.release(self.kept);
        if self.deputy == Deputy::Starting(from) && self.has_all() {
            self.deputy = Deputy::Ready(from);
            core.deputy = Some(from);
            for host in core.hosts.others() {
                core.send_host(host, Frame::Deputy { host: from });
            }
        }
    }

    /// Stops to send changes.
    pub fn stop(&mut self, core: &mut Core) {
        self.host().into_iter().for_each(|host| core.acks.received(host, Ack::Backup));
        *self = Deputies::default();
    }

    // ----- the deputy

    /// Keeps a piece of what the master knows.
    pub fn keep(&mut self, core: &mut Core, piece: Backup) {
        if piece == Backup::Begin {
            self.shadow = Some(Box::new(Shadow::new(core)));
        }
        let Some(shadow) = &mut self.shadow else { return };
        match piece {
            Backup::Begin => {}
            Backup::State(state) => match *state {
                MasterState::Machine(machine) => shadow.machine = machine,
                MasterState::Entry(entry) => shadow.mailboxes.take_entry(entry),
                MasterState::Group(group) => shadow.groups.take(group),
            },
            Backup::EntryGone { name, index } => shadow.mailboxes.drop_entry(&name, index),
            Backup::GroupChanged { id, name, change } => shadow.groups.change(id, &name, &change),
            Backup::BarrierEnded { id, ended, page } => shadow.groups.barrier_ended(id, &ended, page),
            Backup::Released { id, passed } => shadow.groups.released(id, passed),
            Backup::Table { version, hosts, joining } => {
                (shadow.version, shadow.hosts, shadow.joining) = (version, hosts, joining.into_iter().collect());
            }
            Backup::Servers(servers) => shadow.servers = servers,
            Backup::Answer { host, wait, reply } => shadow.keep_answer(core, (host, wait), reply),
            Backup::Mark { number } => core.send_urgently(core.hosts.master(), Frame::BackupKept { number }),
        }
    }

    /// Forgets the deputy of the former master.
    pub fn forget(&mut self, core: &mut Core) {
        core.deputy = None;
        self.shadow = None;
    }

    /// Takes what this deputy keeps.
    pub fn take_shadow(&mut self) -> Option<Box<Shadow>> {
        self.shadow.take()
    }
}

impl Shadow {
    fn new(core: &Core) -> Shadow {
        Shadow {
            machine: MachineState::default(),
            version: 0,
            hosts: Vec::new(),
            joining: BTreeSet::new(),
            mailboxes: Mailboxes::new(core.settings.limits.mailbox_bytes),
            groups: GroupShadow::default(),
            servers: Servers::default(),
            answers: BTreeMap::new(),
            answer_times: VecDeque::new(),
            answer_bytes: 0,
        }
    }

    fn keep_answer(&mut self, core: &Core, key: (Tid, u32), reply: Reply) {
        let keep = core.settings.host_timeout * ANSWERS_KEPT;
        let bytes = answer_weight(&reply);
        self.answer_bytes += bytes;
        self.answers.insert(key, reply);
        self.answer_times.push_back((core.now, key, bytes));
        let is_old = |shadow: &Shadow| {
            let first = shadow.answer_times.front();
            first.is_some_and(|(when, ..)| *when + keep < core.now) || shadow.answer_bytes > ANSWER_BYTES_MAX
        };
        while is_old(self) {
            let Some((_, old, bytes)) = self.answer_times.pop_front() else { return };
            self.answer_bytes -= bytes;
            // A newer answer to a request with the same number stays.
            if !self.answer_times.iter().any(|(_, key, _)| *key == old) {
                self.answers.remove(&old);
            }
        }
    }
}

/// The bytes that a piece takes besides long parts.
const REST: usize = 256;

/// Returns about how many bytes a piece takes.
fn weight(piece: &Backup) -> usize {
    REST + match piece {
        Backup::State(state) => match &**state {
            MasterState::Entry(entry) => entry.name.len() + entry.message.body.len(),
            MasterState::Group(group) => group.members.len() * REST / 4,
            MasterState::Machine(machine) => machine.resolved.len() * REST,
        },
        // No mark says that it is kept.
        Backup::Released { .. } => return 0,
        Backup::BarrierEnded { ended, .. } => ended.len() * REST / 4,
        Backup::Table { hosts, .. } => hosts.len() * REST,
        Backup::Answer { reply, .. } => answer_weight(reply),
        _ => 0,
    }
}

fn answer_weight(reply: &Reply) -> usize {
    REST + match reply {
        Reply::Info(message) => message.body.len(),
        Reply::Tasks(tasks) => tasks.len() * REST,
        _ => 0,
    }
}

/// Returns the answers to requests of other hosts that this step gives.
fn answers(core: &Core) -> Vec<Backup> {
    let answer = |action: &Action| match action {
        Action::SendHost { host, frame: Frame::Reply { wait, reply } } => {
            Some(Backup::Answer { host: *host, wait: *wait, reply: reply.clone() })
        }
        _ => None,
    };
    core.actions.iter().filter_map(answer).collect()
}

/// Returns the host table as a piece for the deputy.
pub(super) fn table(core: &Core) -> Backup {
    Backup::Table { version: core.hosts.version, hosts: core.hosts.entries(), joining: core.hosts.not_joined() }
}
