//! The deputy: a host that keeps what only the master knows, and becomes the master if that one is lost.
//!
//! The master chooses the host that has been in the machine for the longest time, and sends it everything. When the deputy
//! says that it keeps that, all hosts learn who the deputy is. From then on every change of what only the master knows goes to
//! the deputy first, with the answers to requests that it leads to: all that the master does in the same step and later waits
//! until the deputy has said that it keeps the change ([`Core::hold`]). So nobody ever learns of a change that is lost later.
//!
//! If the deputy has ended, the master chooses another. If the deputy is only silent, it may become the master meanwhile. So the
//! master *deposes* it first: what it does waits until the deputy agrees, or is lost and a majority of the [council](super::council)
//! does not support it any more. The deputy, if it has lost the master, *stands*: it becomes the master as soon as a majority follows
//! it. A proof that the master has died counts as the vote of the master, unless the master was silent for long before.
use super::action::Action;
use super::core::{Core, SubMachine};
use super::council::{Council, Deposition, Verdict};
use super::event::{Event, Loss};
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

/// For which part of the silence limit a deputy waits for votes. The other hosts notice within two beats that they have lost the
/// master, too.
const CANDIDACIES_PER_TIMEOUT: u32 = 2;
/// For which part of the silence limit the master may have been silent before the proof of its end counts as its vote. The master
/// goes on without a deputy only after a whole limit, or if the deputy agrees.
const PROOFS_PER_TIMEOUT: u32 = 2;

/// The deputy of this master.
#[derive(Default)]
enum Deputy {
    #[default]
    None,
    /// It gets everything, and has not said that it keeps it.
    Starting(Tid),
    /// All hosts know it.
    Ready(Tid),
    /// It is lost, or is to be replaced, and may not know that yet.
    Deposed(Deposition),
}

/// What this host is as a deputy.
#[derive(Default)]
enum Standby {
    /// It is not the deputy.
    #[default]
    Off,
    /// It keeps what the master knows.
    Keeps(Box<Shadow>),
    /// It has lost the master, and becomes the master if a majority follows it in time.
    Stands { shadow: Box<Shadow>, loss: Loss, until: Time },
}

/// What this host knows of deputies.
#[derive(Default)]
pub(super) struct Deputies {
    /// At the master.
    deputy: Deputy,
    /// The number of the last mark that was sent, and of the last that is kept. It grows with each deputy, so that a late answer of
    /// a former one means nothing.
    sent: u64,
    kept: u64,
    /// Pieces that wait until less is on the way.
    queue: VecDeque<Backup>,
    /// The bytes on the way, and those before each mark that is not kept.
    on_way: usize,
    marks: VecDeque<(u64, usize)>,
    since_mark: usize,
    /// The councils of all host tables that the deputy may have, the oldest first, each with the mark that ends its step. The
    /// deputy has the first one for certain.
    councils: VecDeque<(u64, Council)>,
    /// At the deputy.
    standby: Standby,
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
    /// The pieces of a step of the master that have come.
    step: Vec<Backup>,
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
        let Event::HostGone(host) = event else { return };
        if !core.is_master() {
            core.deputy.take_if(|deputy| deputy == host);
            return;
        }
        // The core has forgotten a deputy that has provably ended, unless this host slept: that one may have been the master.
        let may_live = core.deputy == Some(*host) && !core.halting;
        match &mut self.deputy {
            Deputy::Starting(deputy) | Deputy::Ready(deputy) if deputy == host => match may_live {
                true => self.depose(core, *host),
                false => self.do_without(core),
            },
            Deputy::Deposed(deposition) => {
                if deposition.deputy == *host && !may_live {
                    deposition.agree(*host);
                }
                self.count_agreed(core);
            }
            _ => {}
        }
    }
}

impl Deputies {
    // ----- the master

    /// Returns the host that gets all changes, if there is one.
    pub fn host(&self) -> Option<Tid> {
        match self.deputy {
            Deputy::None | Deputy::Deposed(_) => None,
            Deputy::Starting(host) | Deputy::Ready(host) => Some(host),
        }
    }
    /// Returns whether something waits, or may have to wait, for a deputy.
    pub fn is_active(&self) -> bool {
        !matches!(self.deputy, Deputy::None)
    }
    /// Returns whether that host is the deputy, and all hosts know it.
    pub fn is_ready(&self, host: Tid) -> bool {
        matches!(self.deputy, Deputy::Ready(deputy) if deputy == host)
    }
    /// Returns whether the deputy keeps all that was sent.
    pub fn has_all(&self) -> bool {
        match self.deputy {
            Deputy::None => true,
            Deputy::Deposed(_) => false,
            Deputy::Starting(_) | Deputy::Ready(_) => self.kept == self.sent,
        }
    }

    /// Chooses a deputy if there is none, if possible the host that is to be the next master. Returns whether it was chosen now,
    /// so that it needs everything. `leaves`: whether a host is to leave.
    pub fn choose(&mut self, core: &Core, next_master: Option<Tid>, leaves: impl Fn(Tid) -> bool) -> bool {
        if !matches!(self.deputy, Deputy::None) {
            return false;
        }
        let takes_tasks = |host: Tid| !core.hosts.is_draining(host) || next_master == Some(host);
        let may = |host: &Tid| !core.is_awaited(*host) && !leaves(*host) && takes_tasks(*host);
        let mut hosts: Vec<Tid> = core.linked_hosts().filter(may).collect();
        hosts.sort_by_key(|host| next_master != Some(*host));
        let Some(host) = hosts.first() else { return false };
        self.deputy = Deputy::Starting(*host);
        true
    }

    /// Begins to do without the deputy. What this master does waits until that is safe.
    pub fn depose(&mut self, core: &mut Core, deputy: Tid) {
        if matches!(self.deputy, Deputy::Starting(_)) {
            return self.do_without(core);
        }
        let councils = std::mem::take(&mut self.councils);
        self.stop(core);
        core.hold(u64::MAX);
        let mut deposition = Deposition::begin(deputy, councils.into_iter().map(|(_, council)| council));
        deposition.agree(core.own_host());
        let mut members = deposition.members();
        members.insert(deputy);
        for member in members {
            if core.is_awaited(member) {
                // It has not heard of the deputy.
                deposition.agree(member);
            } else if core.links.has_session(member) && core.hosts.is_here(member) {
                core.acks.expect(member, Ack::Deposed, core.now);
                core.send_urgently(member, Frame::Depose { deputy, number: self.sent });
            }
        }
        self.deputy = Deputy::Deposed(deposition);
        self.count_agreed(core);
    }

    /// Goes on without the deputy.
    fn do_without(&mut self, core: &mut Core) {
        self.stop(core);
        core.release_all();
    }

    /// Likewise, and forgets a deputy that is deposed: nobody shall hear of it any more.
    pub fn give_up(&mut self, core: &mut Core) {
        if matches!(self.deputy, Deputy::Deposed(_)) {
            core.deputy = None;
            core.drop_unsent(|frame| matches!(frame, Frame::Deputy { .. }));
        }
        self.do_without(core);
    }

    /// Handles the answer of a host that it does not support the deputy any more.
    pub fn deposed(&mut self, core: &mut Core, from: Tid, number: u64) {
        core.acks.received(from, Ack::Deposed);
        match &mut self.deputy {
            Deputy::Deposed(deposition) if number == self.sent => deposition.agree(from),
            _ => return,
        }
        self.count_agreed(core);
    }

    /// Goes on without the deputy if enough hosts agree, or gives up if too few are left.
    fn count_agreed(&mut self, core: &mut Core) {
        let Deputy::Deposed(deposition) = &self.deputy else { return };
        match deposition.verdict(|host| core.hosts.is_here(host) && core.links.has_session(host)) {
            Verdict::Open => {}
            Verdict::Agreed => {
                // It may hear this master until its host is removed.
                if !deposition.has_agreed(deposition.deputy) {
                    core.send_lost(deposition.deputy, Frame::Depose { deputy: deposition.deputy, number: self.sent });
                }
                self.give_up(core);
            }
            Verdict::Lost if core.halting => {}
            Verdict::Lost => core.raise(Event::MajorityLost),
        }
    }

    /// Sends changes to the deputy, with the answers of this step. What this step does waits until they are kept.
    pub fn send(&mut self, core: &mut Core, changes: Vec<Backup>) {
        let Some(deputy) = self.host() else { return };
        if self.has_all() {
            core.acks.expect(deputy, Ack::Backup, core.now);
        }
        let (mut bytes, mut changed) = (0, None);
        for change in changes.into_iter().chain(answers(core)) {
            bytes += weight(&change);
            if let Backup::Table { hosts, joining, .. } = &change {
                let joining = joining.iter().copied().collect();
                changed = Some(council(core.own_host(), deputy, hosts, &joining));
            }
            self.queue.push_back(change);
            if bytes >= MARK_BYTES {
                bytes = 0;
                self.mark(false);
            }
        }
        self.mark(true);
        self.councils.extend(changed.map(|council| (self.sent, council)));
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

    fn mark(&mut self, ends: bool) {
        self.sent += 1;
        self.queue.push_back(Backup::Mark { number: self.sent, ends });
    }

    /// Sends pieces until enough is on the way.
    fn send_queued(&mut self, core: &mut Core, deputy: Tid) {
        while self.on_way < WINDOW_BYTES {
            let Some(piece) = self.queue.pop_front() else { return };
            let bytes = weight(&piece);
            (self.on_way, self.since_mark) = (self.on_way + bytes, self.since_mark + bytes);
            if let Backup::Mark { number, .. } = piece {
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
        while self.councils.get(1).is_some_and(|(mark, _)| *mark <= number) {
            self.councils.pop_front();
        }
        self.send_queued(core, from);
        core.release(self.kept);
        if matches!(self.deputy, Deputy::Starting(_)) && self.has_all() {
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
        let number = self.sent + 1;
        *self = Deputies { sent: number, kept: number, ..Deputies::default() };
    }

    // ----- the deputy

    /// Takes a piece of what the master knows. It counts with the mark that ends its step: a change without the answer to who asked
    /// for it would be made again.
    pub fn keep(&mut self, core: &mut Core, piece: Backup) {
        if piece == Backup::Begin {
            self.standby = Standby::Keeps(Box::new(Shadow::new(core)));
        }
        let Standby::Keeps(shadow) = &mut self.standby else { return };
        match piece {
            Backup::Begin => {}
            Backup::Mark { number, ends } => {
                if ends {
                    std::mem::take(&mut shadow.step).into_iter().for_each(|piece| shadow.keep(core, piece));
                }
                core.send_urgently(core.hosts.master(), Frame::BackupKept { number });
            }
            // It belongs to no step.
            Backup::Released { .. } => shadow.keep(core, piece),
            piece => shadow.step.push(piece),
        }
    }

    /// Forgets the deputy of the former master.
    pub fn forget(&mut self, core: &mut Core) {
        core.deputy = None;
        self.standby = Standby::Off;
    }

    /// Handles the order of the master not to support a deputy any more.
    pub fn depose_here(&mut self, core: &mut Core, deputy: Tid, number: u64) {
        core.deputy.take_if(|known| *known == deputy);
        if deputy == core.own_host() {
            self.standby = Standby::Off;
        }
        core.send_urgently(core.hosts.master(), Frame::Deposed { number });
    }

    /// Stands as the next master. Returns whether this deputy can become it.
    pub fn stand(&mut self, core: &Core, loss: Loss) -> bool {
        let Standby::Keeps(shadow) = std::mem::take(&mut self.standby) else { return false };
        // The master may have gone on without this deputy, which it did not hear, and have died then.
        let heard = core.links.get(core.hosts.master()).map_or(Time::ZERO, |link| link.last_received);
        let was_silent = core.now > heard + core.settings.host_timeout / PROOFS_PER_TIMEOUT;
        let loss = match loss {
            Loss::Proven if was_silent => Loss::Silent("it has ended after a silence".into()),
            Loss::Proven if core.now < core.may_be_out_until => {
                Loss::Silent("it has ended while this host slept".into())
            }
            loss => loss,
        };
        if loss != Loss::Proven && !shadow.council(core).decides() {
            return false;
        }
        let until = core.now + core.settings.host_timeout / CANDIDACIES_PER_TIMEOUT;
        self.standby = Standby::Stands { shadow, loss, until };
        true
    }

    /// Returns what this deputy keeps. The master hands over to it.
    pub fn take_kept(&mut self) -> Option<Box<Shadow>> {
        match std::mem::take(&mut self.standby) {
            Standby::Keeps(shadow) => Some(shadow),
            Standby::Off | Standby::Stands { .. } => None,
        }
    }

    /// Returns what this deputy keeps, and how the master was lost, if a majority has lost that one.
    pub fn take_elected(&mut self, core: &Core) -> Option<(Box<Shadow>, Loss)> {
        let is_elected = match &self.standby {
            Standby::Stands { shadow, loss, .. } => {
                let (own, master) = (core.own_host(), core.hosts.master());
                let votes =
                    |host| host == own || core.links.follows_early(host) || host == master && *loss == Loss::Proven;
                shadow.council(core).has_majority(votes)
            }
            Standby::Off | Standby::Keeps(_) => false,
        };
        match is_elected.then(|| std::mem::take(&mut self.standby)) {
            Some(Standby::Stands { shadow, loss, .. }) => Some((shadow, loss)),
            _ => None,
        }
    }

    /// Returns until when this deputy waits for votes, if it does.
    pub fn next_wakeup(&self) -> Option<Time> {
        match self.standby {
            Standby::Stands { until, .. } => Some(until),
            Standby::Off | Standby::Keeps(_) => None,
        }
    }

    /// Stands no longer if no majority has followed this deputy in time. Then this host ends.
    pub fn on_time(&mut self, core: &mut Core) {
        if self.next_wakeup().is_some_and(|until| core.now >= until) {
            if let Standby::Stands { loss, .. } = std::mem::take(&mut self.standby) {
                core.raise(Event::MasterLost(format!("{loss}, and too few other hosts have lost it")));
            }
        }
    }
}

/// Returns the council of a master and its deputy.
fn council(master: Tid, deputy: Tid, hosts: &[HostEntry], joining: &BTreeSet<Tid>) -> Council {
    let hosts: Vec<Tid> = hosts.iter().map(|entry| entry.tid).filter(|host| !joining.contains(host)).collect();
    Council::of(&hosts, master, deputy)
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
            step: Vec::new(),
            answer_times: VecDeque::new(),
            answer_bytes: 0,
        }
    }

    /// Returns the council, at the deputy.
    fn council(&self, core: &Core) -> Council {
        council(core.hosts.master(), core.own_host(), &self.hosts, &self.joining)
    }

    /// Keeps a piece.
    fn keep(&mut self, core: &Core, piece: Backup) {
        match piece {
            Backup::Begin | Backup::Mark { .. } => {}
            Backup::State(state) => match *state {
                MasterState::Machine(machine) => self.machine = *machine,
                MasterState::Entry(entry) => self.mailboxes.take_entry(entry),
                MasterState::Group(group) => self.groups.take(group),
            },
            Backup::EntryGone { name, index } => self.mailboxes.drop_entry(&name, index),
            Backup::GroupChanged { id, name, change } => self.groups.change(id, &name, &change),
            Backup::BarrierEnded { id, ended, page } => self.groups.barrier_ended(id, &ended, page),
            Backup::Released { id, passed } => self.groups.released(id, passed),
            Backup::Table { version, hosts, joining } => {
                (self.version, self.hosts, self.joining) = (version, hosts, joining.into_iter().collect());
            }
            Backup::Servers(servers) => self.servers = servers,
            Backup::Answer { host, wait, reply } => self.keep_answer(core, (host, wait), reply),
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
