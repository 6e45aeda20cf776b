//! Membership: hosts join and leave, links are watched, and lost hosts are removed. The master decides.
//!
//! * `joining`: hosts are added
//! * `control_links`: control links, whose connections may break
//! * `draining`: hosts that take no new tasks
//! * `moving`: the master moves to another host
//! * `data_links`: data links that break while the control link is up
//! * `suspicions`: which of two hosts that cannot reach each other is removed

mod control_links;
mod data_links;
mod draining;
mod joining;
mod moving;
mod suspicions;

pub(super) use data_links::DataLinks;
pub(super) use draining::Draining;
pub(super) use joining::{Asker, Joining, hosts_joined};
pub use joining::{KNOWN_AS, WELCOME_WAIT};
pub(super) use moving::{HeldRequest, Moving};

use self::suspicions::{Eviction, Hearing, LinkHealth, Suspicions};
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::host_table::HOSTS_MAX;
use super::links::{Link, State};
use super::pending_acks::{Ack, TIMEOUTS_MAX};
use crate::codes::{Code, SM_HOSTX};
use crate::encoding::Writer;
use crate::fabric::Wish;
use crate::proto::{ByteBuf, Reply, Request};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Frame, HostEntry, HostOptions, MachineSettings};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The number of beats that an idle host sends within the host timeout.
const BEATS_PER_TIMEOUT: u32 = 5;
/// A host that has sent nothing for this many beat intervals is suspect.
const LATE_BEATS: u32 = 2;
/// Lost hosts for which the reason of the loss is remembered.
///
/// * Filled by: each host of the machine
/// * Setting: none, `pvm run` asks for the reason as soon as one of its tasks is lost
/// * Reached: the oldest reason is forgotten; it is still in the log
/// * Test: `why_hosts_were_lost_is_remembered_for_a_while`
pub(super) const LOST_HOSTS_MAX: usize = 64;

/// The hosts that join, and the supervision of those that have joined.
#[derive(Default)]
pub(super) struct Membership {
    pub joining: Joining,
    pub draining: Draining,
    pub moving: Moving,
    /// At the master: requests to delete hosts, until all hosts follow it and none of those is its deputy. What a host is told
    /// before it follows does not reach it; and a deputy that is deleted must not take the end of its link for that of the master.
    deletions: Vec<HeldRequest>,
    pub data_links: DataLinks,
    suspicions: Suspicions,
    /// At the master: the reasons why hosts were lost most recently, the newest first.
    lost_hosts: VecDeque<String>,
}

impl SubMachine for Membership {
    fn name(&self) -> &'static str {
        "adds"
    }
    fn is_idle(&self) -> bool {
        self.is_idle_but_moving() && !self.moving.is_wanted()
    }
    /// Handles an event after all other sub-machines: they have already dropped their state of a lost host, or sent the
    /// notifies about a new host.
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::HostGone(host) if core.is_master() => {
                self.forget_held(|asker| asker.host() == *host);
                if !core.halting {
                    broadcast_table_change(core, &[], &[*host]);
                    if let Some(manager) = core.roles.manager {
                        core.tell(manager, 0, SM_HOSTX, 0, Writer::new().int(host.0 as i32).finish());
                    }
                }
                self.joining.host_gone(core, *host);
                self.draining.forget(|asker| asker.host() == *host);
                self.draining.answer(core);
            }
            Event::TaskLeft { tid, .. } | Event::ClientLeft { tid, .. } => {
                self.draining.forget(|asker| asker == *tid);
                self.forget_held(|asker| asker == *tid);
            }
            Event::HostsJoined(_) => self.joining.answer_add(core),
            Event::HosterGone => self.fail_add(core, Code::DSysErr),
            _ => {}
        }
    }
}

/// Returns whether a request to delete hosts has to wait.
fn must_wait(core: &Core, request: &Request) -> bool {
    let names_deputy = core.deputy.is_some_and(|deputy| deletes(core, request, deputy));
    names_deputy || core.awaits_hosts() && matches!(request, Request::DeleteHosts(_))
}

/// Returns whether a request is to delete a host, among others.
fn deletes(core: &Core, request: &Request, host: Tid) -> bool {
    matches!(request, Request::DeleteHosts(names) if names.iter().any(|name| core.hosts.find(name) == Some(host)))
}

/// Sends a change of the host table to all other hosts; at the master.
fn broadcast_table_change(core: &mut Core, added: &[HostEntry], removed: &[Tid]) {
    core.hosts.version += 1;
    (core.changes.table, core.changes.machine) = (true, true);
    let version = core.hosts.version;
    for host in core.hosts.others() {
        core.acks.expect(host, Ack::Table(version), core.now);
        core.send_host(host, Frame::Table { version, added: added.to_vec(), removed: removed.to_vec() });
    }
}

/// Returns the time between beats of an idle host.
fn beat_interval(core: &Core) -> Duration {
    core.settings.host_timeout / BEATS_PER_TIMEOUT
}

/// Returns the health of the master's own link to a host.
fn link_health(core: &Core, host: Tid) -> LinkHealth {
    let link = core.links.get(host).filter(|link| link.state.has_session());
    let interval = beat_interval(core);
    let hearing = match link {
        Some(Link { state: State::Broken(_), .. }) => Hearing::Remade,
        Some(link) if core.now <= link.last_received + LATE_BEATS * interval => Hearing::InTime,
        _ => Hearing::Late,
    };
    LinkHealth {
        bad_beats: link.map_or(0, |link| link.quality.bad()),
        hearing,
        alive_at: link.map_or(Time::ZERO, |link| link.last_received.saturating_sub(interval)),
    }
}

impl Membership {
    // ----- time

    /// Restarts the timers of suspicions, because this daemon was suspended.
    pub fn restart_timers(&mut self, now: Time) {
        self.suspicions.restart_timers(now);
    }

    /// Returns when [`Membership::on_time`] must be called next.
    pub fn next_wakeup(&self, core: &Core) -> Option<Time> {
        let links = core.links.next_wakeup().into_iter().chain(self.data_links.next_wakeup());
        let acks = core.acks.oldest().map(|(since, _)| since + core.settings.host_timeout * TIMEOUTS_MAX);
        let eviction = self.suspicions.next_decision(core.settings.host_timeout).filter(|_| !core.halting);
        links.chain(joining::waits_for_master(core)).chain(acks).chain(eviction).min()
    }

    /// Handles the timers that have expired.
    pub fn on_time(&mut self, core: &mut Core) {
        if joining::waits_for_master(core).is_some_and(|when| core.now >= when) {
            core.raise(Event::MasterLost("it has not connected".into()));
        }
        while let Some(host) = core.links.take_due(core.now) {
            core.expire_fences(host);
            self.watch_link(core, host);
        }
        self.data_links.on_time(core);
        self.remove_overdue(core);
        self.settle_suspicions(core);
    }

    /// Removes hosts whose acknowledgements are overdue.
    fn remove_overdue(&mut self, core: &mut Core) {
        while let Some((since, host)) = core.acks.oldest() {
            if since + core.settings.host_timeout * TIMEOUTS_MAX > core.now {
                return;
            }
            core.acks.forget(host);
            let seconds = (core.now - since).as_secs();
            self.lose_host(core, host, &format!("it has not said for {seconds} s that it knows what it has been told"));
        }
    }

    // ----- suspicions

    /// Handles a host's report that it cannot reach another host.
    pub fn suspected(&mut self, core: &mut Core, from: Tid, host: Tid) {
        // A joining host is judged by the master's link alone: other hosts have no link to it yet.
        let member = |host: Tid| host.is_host() && host != core.own_host() && core.hosts.is_here(host);
        if core.is_master() && !core.halting && from != host && member(from) && member(host) {
            let named = |host: Tid| (host, core.hosts.plain_name_of(host));
            self.suspicions.report(named(from), named(host), core.now);
            self.settle_suspicions(core);
        }
    }

    /// Removes hosts that are to blame for missing links, if this can be decided now.
    fn settle_suspicions(&mut self, core: &mut Core) {
        while !core.halting {
            let eviction = self.suspicions.decide(core.now, core.settings.host_timeout, |host| link_health(core, host));
            let Some(Eviction { evicted, kept, reason }) = eviction else { return };
            let kept = core.hosts.name_of(kept);
            self.lose_host(core, evicted, &format!("it and {kept} cannot reach each other; {reason}"));
        }
    }

    // ----- loss and removal of hosts

    /// Removes a host that does not answer, or has announced its end.
    pub fn lose_host(&mut self, core: &mut Core, host: Tid, why: &str) {
        if core.hosts.joining(host).is_some() {
            self.joining.host_failed(core, host, why);
            return self.data_links.forget_unlinked(core);
        }
        if core.hosts.is_here(host) {
            if !core.halting {
                let text = self.remember_loss(core, host, why);
                core.log(text);
            }
            self.forget_host(core, host);
        }
    }

    /// Returns the text that reports the loss of a host, and remembers it for
    /// [`Request::LostHosts`].
    pub fn remember_loss(&mut self, core: &mut Core, host: Tid, why: &str) -> String {
        let text = format!("host {} is out of the machine: {why}", core.hosts.name_of(host));
        self.lost_hosts.truncate(LOST_HOSTS_MAX - 1);
        self.lost_hosts.push_front(text.clone());
        core.changes.machine = true;
        text
    }

    /// Answers the request for the reasons why hosts were lost.
    pub fn lost_hosts(&self) -> Reply {
        Reply::Failures(self.lost_hosts.iter().cloned().collect())
    }

    /// Removes a host, and raises an event that makes all sub-machines drop their state of that host.
    fn forget_host(&mut self, core: &mut Core, host: Tid) {
        if core.hosts.remove(host).is_none() {
            return;
        }
        core.let_follow(host, None);
        core.links.remove(host);
        core.acks.forget(host);
        core.requests.forget_host(host);
        core.drop_answers(host);
        core.clients.retain(|client| client.host() != host);
        self.data_links.remove(host);
        self.suspicions.forget(host);
        core.push(Action::ForgetHost { host });
        core.raise(Event::HostGone(host));
    }

    /// Handles `pvm_delhosts`.
    pub fn delete_hosts(&mut self, core: &mut Core, from: Tid, wait: u32, names: &[ByteBuf]) {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return core.reply(from, wait, Err(Code::BadParam));
        }
        let (own, mut seen) = (core.own_host(), BTreeSet::new());
        let mut code = |name: &ByteBuf| match core.hosts.find(name) {
            None => Code::NoHost.number(),
            Some(tid) if !seen.insert(tid) => Code::DupHost.number(),
            Some(tid) if tid == own => Code::BadParam.number(),
            Some(_) => 0,
        };
        let codes: Vec<i32> = names.iter().map(&mut code).collect();
        core.reply(from, wait, Ok(Reply::Codes(codes)));
        for host in seen.into_iter().filter(|host| *host != own) {
            let name = core.hosts.name_of(host);
            core.log(format!("host {name} is deleted"));
            core.send_host(host, Frame::Leave);
            self.forget_host(core, host);
        }
    }

    /// Fails a request to add hosts as a whole, and abandons the daemons that it has started.
    pub fn fail_add(&mut self, core: &mut Core, code: Code) {
        self.joining.fail(core, code);
        self.data_links.forget_unlinked(core);
    }

    // ----- another master

    /// Takes a request if it has to wait, because the master moves or has just moved; otherwise returns it.
    pub fn hold(&mut self, core: &Core, from: Tid, wait: u32, request: Request) -> Option<Request> {
        if core.is_master() && !core.halting && must_wait(core, &request) {
            self.deletions.push((from, wait, request));
            return None;
        }
        self.moving.hold(core, &self.joining, from, wait, request)
    }
    /// Takes the requests to delete hosts that need not wait any more.
    pub fn take_deletions(&mut self, core: &Core) -> Vec<HeldRequest> {
        match self.deletions.iter().any(|(.., request)| must_wait(core, request)) {
            true => Vec::new(),
            false => std::mem::take(&mut self.deletions),
        }
    }
    pub fn has_deletions(&self) -> bool {
        !self.deletions.is_empty()
    }
    /// Returns whether a request that waits is to delete this host.
    pub fn is_to_leave(&self, core: &Core, host: Tid) -> bool {
        self.deletions.iter().any(|(.., request)| deletes(core, request, host))
    }
    /// Forgets the requests of tasks that have gone.
    fn forget_held(&mut self, is_gone: impl Fn(Tid) -> bool) {
        self.deletions.retain(|(task, ..)| !is_gone(*task));
        self.moving.forget(is_gone);
    }

    /// Adds hosts at the order of a resource manager. While the master is about to move, it must ask again.
    pub fn add_managed_hosts(&mut self, core: &mut Core, asker: Asker, names: Vec<ByteBuf>) {
        match self.moving.is_wanted() {
            true => joining::refuse_add(core, asker, Code::Already),
            false => self.joining.add_hosts(core, asker, names),
        }
    }

    /// Returns whether nothing is under way but the move of the master.
    pub fn is_idle_but_moving(&self) -> bool {
        self.joining.is_idle() && self.draining.is_idle() && self.deletions.is_empty()
    }
    /// Returns why hosts were lost, the newest first.
    pub fn lost_host_reasons(&self) -> Vec<String> {
        self.lost_hosts.iter().cloned().collect()
    }
    /// Takes over the failures that the former master remembered.
    pub fn take_failures(&mut self, add_failures: Vec<String>, lost_hosts: Vec<String>) {
        self.joining.set_failures(add_failures);
        self.lost_hosts = lost_hosts.into();
    }
    /// Drops what only the master knows. Returns the requests that were held.
    pub fn resign(&mut self) -> Vec<HeldRequest> {
        self.suspicions = Suspicions::default();
        self.joining.set_failures(Vec::new());
        self.lost_hosts.clear();
        self.moving.take_held()
    }
    /// Judges the links of this host as the master.
    pub fn take_office(&mut self, core: &mut Core) {
        for host in core.links.failed() {
            self.lose_host(core, host, "the link is lost");
        }
    }
    /// Reports to a new master what the former one may not have handled.
    pub fn report_again(&mut self, core: &mut Core) {
        let (own, master) = (core.own_host(), core.hosts.master());
        for host in core.links.failed() {
            core.send_master(Frame::Suspect(host));
        }
        for host in core.links.wanted().into_iter().filter(|host| own > *host && *host != master) {
            core.send_master(Frame::PleaseConnect { to: host, from: own });
        }
    }

    // ----- frames from the master

    /// Applies a change of the host table.
    pub fn table_changed(&mut self, core: &mut Core, version: u64, added: Vec<HostEntry>, removed: Vec<Tid>) {
        core.hosts.version = version;
        for entry in added {
            if core.hosts.record(entry.tid).is_some() {
                core.hosts.set_draining(entry.tid, entry.is_draining);
                continue;
            }
            core.push(Action::KnowHost { host: entry.tid, key: entry.key });
            core.hosts.add(entry, false);
        }
        let own = core.own_host();
        removed.into_iter().filter(|host| *host != own).for_each(|host| self.forget_host(core, host));
    }

    /// Replaces the host table. Hosts in `joining` have not joined yet.
    pub fn table_replaced(&mut self, core: &mut Core, version: u64, hosts: Vec<HostEntry>, joining: &BTreeSet<Tid>) {
        let (own, master) = (core.own_host(), core.hosts.master());
        let listed: BTreeSet<Tid> = hosts.iter().map(|entry| entry.tid).collect();
        let gone: Vec<Tid> = core.hosts.others().into_iter().filter(|host| !listed.contains(host)).collect();
        gone.into_iter().filter(|host| *host != master).for_each(|host| self.forget_host(core, host));
        let mut joined = Vec::new();
        for entry in hosts {
            let known = core.hosts.record(entry.tid).map(|record| record.joined || entry.tid == own);
            joined.extend((known != Some(true) && !joining.contains(&entry.tid)).then_some(entry.tid));
            match known {
                Some(_) => _ = core.hosts.set_draining(entry.tid, entry.is_draining),
                None => {
                    core.push(Action::KnowHost { host: entry.tid, key: entry.key });
                    core.hosts.add(entry, false);
                }
            }
        }
        core.hosts.version = version;
        if !joined.is_empty() {
            hosts_joined(core, &joined);
        }
    }

    /// Handles the master's welcome: this host belongs to the machine.
    pub fn welcomed(
        &mut self,
        core: &mut Core,
        version: u64,
        hosts: Vec<HostEntry>,
        joining: &[Tid],
        shared: &MachineSettings,
        options: HostOptions,
    ) {
        let (own, master) = (core.own_host(), core.hosts.master());
        for entry in hosts.iter().filter(|entry| entry.tid != own && entry.tid != master) {
            core.push(Action::KnowHost { host: entry.tid, key: entry.key });
        }
        core.hosts.replace(hosts, joining);
        core.hosts.version = version;
        core.settings.host_timeout = Duration::from_millis(shared.host_timeout_ms);
        core.settings.halt_grace = Duration::from_millis(shared.halt_grace_ms);
        core.settings.trusted = shared.trusted;
        core.settings.pacing = shared.pacing;
        core.settings.order = shared.order;
        core.settings.barrier_broadcast_hosts = shared.barrier_broadcast_hosts.try_into().unwrap_or(usize::MAX);
        core.settings.broadcast = shared.broadcast;
        let of_hostfile = Wish { setting: options.fabric.clone(), never_clear: false };
        core.settings.fabric = core.settings.fabric.or(&of_hostfile).or(&shared.fabric);
        core.settings.limits.host_watches = usize::try_from(shared.host_watches).unwrap_or(usize::MAX);
        core.debug_mask = shared.debug_mask;
        core.push(Action::Joined { shared: shared.clone(), options });
    }
}

/// Handles the request of `asking_host` that host `to` connect to `asking_host`: of two hosts, only the one with the
/// lower number connects. The master passes the request on to `to`.
pub(super) fn connect_requested(core: &mut Core, from: Tid, to: Tid, asking_host: Tid) {
    let own = core.own_host();
    if to != own && core.is_master() && asking_host == from {
        core.send_host(to, Frame::PleaseConnect { to, from: asking_host });
    } else if to == own && from == core.hosts.master() && own < asking_host {
        core.want_link(asking_host);
    }
}
