//! The receiving side: which host may send how much.
use super::path::Path;
use super::{FIRST_LIMIT_BYTES, Pacing, is_paced};
use crate::flows::CHUNK_BYTES_MAX;
use crate::tid::Tid;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// The room for a grant is at least this part of the bytes that should be under way, so that grants are few.
const GRANT_PARTS: u64 = 4;
/// The hosts together may send one of this number of parts of the bytes that should be under way without a grant.
const ALLOWANCE_PARTS: u64 = 4;
/// One of this number of grants goes to the host with the oldest message.
const OLDEST_EVERY: u64 = 8;
/// The connections are checked for lost packets at this interval at most.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// A host is late if its bytes have not arrived after this time and twice the expected time. A daemon on a busy machine
/// can be without a processor for about as long.
const LATE_AFTER: Duration = Duration::from_millis(10);

/// With [`Pacing::OnLoss`], pacing begins when one in this number of the sending hosts, and at least two, have lost packets
/// within this time: then the port before this host overflows. A cable that loses a packet now and then, or a shared wire
/// on which frames collide, loses those of single hosts, and a grant there only costs time.
const LOSING_PARTS: usize = 4;
const LOSING_TIME: Duration = Duration::from_millis(100);
/// Losses in this time after pacing began do not count: they are packets of the burst before it. TCP
/// finds the last of them after its least timeout of 200 ms, and may find it twice.
const LOSSES_OF_BURST: Duration = Duration::from_millis(500);
/// With [`Pacing::OnLoss`], pacing ends when no two hosts have sent at the same time for this long.
const CALM: Duration = Duration::from_secs(10);

/// A new limit for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The host.
    pub host: Tid,
    /// The number of bytes of long messages that the host may have sent in all.
    pub up_to: u64,
}

/// A message that has begun to arrive.
struct Transfer {
    left: u64,
    /// The age: the number of messages that began before.
    number: u64,
}

/// What is known of a host that sends long messages. Positions count the bytes of these messages from the first one on.
struct SendingHost {
    /// The position up to which bytes have arrived.
    arrived: u64,
    /// The position at the end of all messages that have begun.
    announced: u64,
    /// The position up to which the host may send.
    limit: u64,
    transfers: HashMap<u32, Transfer>,
    /// The transfers by the number of bytes that are left, and by age.
    by_left: BTreeSet<(u64, u32)>,
    by_age: BTreeSet<(u64, u32)>,
    /// The position that should have arrived by this time.
    due: Option<(u64, Time)>,
    is_late: bool,
    /// A grant to the host while almost nothing of it was under way: the position from which on it counts, its time, and
    /// how many bytes were under way from all hosts.
    timed: Option<(u64, Time, u64)>,
}

impl SendingHost {
    fn new(limit: u64) -> SendingHost {
        SendingHost {
            arrived: 0,
            announced: 0,
            limit,
            transfers: HashMap::new(),
            by_left: BTreeSet::new(),
            by_age: BTreeSet::new(),
            due: None,
            is_late: false,
            timed: None,
        }
    }

    /// Returns how many bytes are under way: granted, announced, and not arrived.
    fn under_way(&self) -> u64 {
        self.limit.min(self.announced).saturating_sub(self.arrived)
    }

    /// Returns how many announced bytes have no grant.
    fn demand(&self) -> u64 {
        self.announced.saturating_sub(self.limit.max(self.arrived))
    }

    fn count(&mut self, transfer: u32, bytes: u64) -> u64 {
        let Some(one) = self.transfers.get_mut(&transfer) else { return 0 };
        let bytes = bytes.min(one.left);
        self.by_left.remove(&(one.left, transfer));
        one.left -= bytes;
        if one.left > 0 {
            self.by_left.insert((one.left, transfer));
        } else {
            self.by_age.remove(&(one.number, transfer));
            self.transfers.remove(&transfer);
        }
        self.arrived += bytes;
        bytes
    }
}

/// The decisions of a receiving daemon about its senders.
pub struct Pacer {
    pacing: Pacing,
    /// Whether hosts have limits now.
    is_pacing: bool,
    /// When pacing began, with losses that this host has seen.
    began: Option<Time>,
    /// When two hosts sent at the same time last.
    last_contention: Time,
    /// When each host lost packets last, while nothing is paced.
    losses: BTreeMap<Tid, Time>,
    hosts: BTreeMap<Tid, SendingHost>,
    /// The hosts with messages that have not arrived wholly.
    pub(super) active: BTreeSet<Tid>,
    /// The host that has a limit far ahead, because it was the only active one.
    favourite: Option<Tid>,
    pub(super) path: Path,
    /// Hosts from which bytes have arrived since the last decision.
    touched: BTreeSet<Tid>,
    /// Hosts from which bytes have arrived since their connections were last checked for losses.
    unchecked: BTreeSet<Tid>,
    grants: BTreeMap<Tid, u64>,
    last_number: u64,
    turns: u64,
    wakeup: Option<Time>,
    /// When the hosts were last checked for losses.
    checked: Time,
}

impl Default for Pacer {
    fn default() -> Self {
        Pacer {
            pacing: Pacing::Always,
            is_pacing: true,
            began: None,
            last_contention: Time::ZERO,
            losses: BTreeMap::new(),
            hosts: BTreeMap::new(),
            active: BTreeSet::new(),
            favourite: None,
            path: Path::default(),
            touched: BTreeSet::new(),
            unchecked: BTreeSet::new(),
            grants: BTreeMap::new(),
            last_number: 0,
            turns: 0,
            wakeup: None,
            checked: Time::ZERO,
        }
    }
}

impl Pacer {
    /// Makes a pacer without senders.
    pub fn new() -> Pacer {
        Pacer::default()
    }

    /// Sets when to pace, before any message arrives.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        (self.pacing, self.is_pacing) = (pacing, pacing == Pacing::Always);
    }

    /// Returns when it paces.
    pub fn pacing(&self) -> Pacing {
        self.pacing
    }

    /// Returns whether senders have limits now.
    pub fn is_pacing(&self) -> bool {
        self.is_pacing
    }

    /// Returns whether there is a grant to send, or [`Pacer::handle_time`] may have something to do, now or later.
    pub fn is_waiting(&self) -> bool {
        !self.touched.is_empty() || self.wakeup.is_some() || !self.grants.is_empty()
    }

    // ----- input

    /// Begins to pace, because packets of several senders to this host were lost a short time ago. Does nothing if
    /// pacing is off.
    pub fn begin(&mut self, now: Time) {
        if self.pacing != Pacing::Off && !self.is_pacing {
            self.begin_pacing(now);
        }
    }

    /// Adds a sender that has not sent anything. Returns how many bytes of long messages it may send before its first
    /// grant.
    pub fn add_sender(&mut self, from: Tid) -> u64 {
        let limit = if self.is_pacing && self.pacing != Pacing::Off { FIRST_LIMIT_BYTES } else { u64::MAX };
        self.hosts.insert(from, SendingHost::new(limit));
        limit
    }

    /// Notes that a message of this length begins to arrive.
    pub fn handle_start(&mut self, from: Tid, transfer: u32, bytes: usize) {
        if self.pacing == Pacing::Off || !is_paced(bytes) {
            return;
        }
        let first_limit = self.pacing.first_limit();
        let host = self.hosts.entry(from).or_insert_with(|| SendingHost::new(first_limit));
        // A number in use is a violation, which `InboundFlows` finds.
        if host.transfers.contains_key(&transfer) {
            return;
        }
        self.last_number += 1;
        let (left, number) = (bytes as u64, self.last_number);
        host.transfers.insert(transfer, Transfer { left, number });
        host.by_left.insert((left, transfer));
        host.by_age.insert((number, transfer));
        host.announced += left;
        let (announced, is_unlimited) = (host.announced, host.limit == u64::MAX);
        self.active.insert(from);
        self.touched.insert(from);
        if self.is_pacing && is_unlimited {
            self.set_limit(from, announced + self.allowance_bytes());
        }
    }

    /// Counts bytes of a message that have arrived.
    pub fn handle_bytes(&mut self, from: Tid, transfer: u32, bytes: usize) {
        let Some(host) = self.hosts.get_mut(&from) else { return };
        let counted = host.count(transfer, bytes as u64);
        if counted == 0 {
            return;
        }
        if host.transfers.is_empty() {
            self.active.remove(&from);
        }
        self.path.count(counted);
        self.touched.insert(from);
    }

    /// Returns the hosts whose connections the caller should check for lost packets now: hosts that have sent while
    /// others send too. To be called before [`Pacer::handle_time`].
    pub fn hosts_to_check(&mut self, now: Time) -> Vec<Tid> {
        self.unchecked.extend(&self.touched);
        if self.active.len() < 2 || self.unchecked.is_empty() || now < self.checked + CHECK_INTERVAL {
            return Vec::new();
        }
        self.checked = now;
        std::mem::take(&mut self.unchecked).into_iter().collect()
    }

    /// Handles the loss of packets of a host that sends while others send too: if others lose packets as well, from now on
    /// less is under way.
    pub fn handle_loss(&mut self, now: Time, from: Tid) {
        let begins = !self.is_pacing;
        let is_of_burst = self.began.is_some_and(|began| now < began + LOSSES_OF_BURST);
        if begins && !self.is_loss_of_many(now, from) || !begins && is_of_burst {
            return;
        }
        self.path.handle_loss(now);
        match begins {
            true => {
                self.began = Some(now);
                self.begin_pacing(now);
            }
            false => self.reduce(now, |host| host.announced),
        }
    }

    /// Sets a limit for all hosts. Hosts stop also in the middle of a message.
    fn begin_pacing(&mut self, now: Time) {
        self.is_pacing = true;
        self.reduce(now, |host| host.arrived);
    }

    /// Lowers limits that are too far ahead of the position that `base` returns.
    fn reduce(&mut self, now: Time, base: impl Fn(&SendingHost) -> u64) {
        self.last_contention = now;
        let allowance = self.allowance_bytes();
        let too_high = |(from, host): (&Tid, &SendingHost)| {
            let most = base(host) + allowance;
            (self.favourite != Some(*from) && host.limit > most).then_some((*from, most))
        };
        let reduced: Vec<(Tid, u64)> = self.hosts.iter().filter_map(too_high).collect();
        reduced.into_iter().for_each(|(from, limit)| self.set_limit(from, limit));
    }

    /// Notes a loss. Returns whether enough of the sending hosts have lost packets at about the same time.
    fn is_loss_of_many(&mut self, now: Time, from: Tid) -> bool {
        self.losses.insert(from, now);
        self.losses.retain(|_, when| now <= *when + LOSING_TIME);
        let is_enough = self.losses.len() >= self.active.len().div_ceil(LOSING_PARTS).max(2);
        if is_enough {
            self.losses.clear();
        }
        is_enough
    }

    /// Forgets a host that has gone. What it was granted is granted to others.
    pub fn host_gone(&mut self, host: Tid) {
        if self.hosts.remove(&host).is_some() {
            self.active.remove(&host);
            self.touched.remove(&host);
            self.unchecked.remove(&host);
            self.grants.remove(&host);
            self.losses.remove(&host);
            self.favourite = self.favourite.filter(|favourite| *favourite != host);
            // The next call decides, however early it is.
            self.wakeup = Some(Time::ZERO);
        }
    }

    /// Decides, if anything has arrived or a host is late. To be called after all that has arrived was counted.
    pub fn handle_time(&mut self, now: Time) {
        if self.touched.is_empty() && self.wakeup.is_none_or(|wakeup| wakeup > now) {
            return;
        }
        self.wakeup = None;
        self.measure(now);
        let touched = std::mem::take(&mut self.touched);
        if self.active.len() > 1 {
            self.last_contention = now;
        } else if self.pacing == Pacing::OnLoss && self.is_pacing && now > self.last_contention + CALM {
            self.end_pacing();
        }
        if !self.is_pacing {
            let is_busy = !self.active.is_empty();
            return self.path.handle_time(now, is_busy);
        }
        match self.active.len() {
            0 => {}
            1 => self.serve_only_host(now),
            _ => self.share(now),
        }
        touched.into_iter().for_each(|host| self.refill(host));
        self.path.handle_time(now, self.active.iter().any(|host| self.hosts[host].under_way() > 0));
    }

    /// Returns the time at which [`Pacer::handle_time`] is due even if nothing arrives.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.wakeup
    }

    /// Returns whether all messages that have begun have arrived wholly.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns the next grant to send. A host has at most one grant here.
    pub fn poll_grant(&mut self) -> Option<Grant> {
        self.grants.pop_first().map(|(host, up_to)| Grant { host, up_to })
    }

    // ----- decisions

    /// Measures the path by what has arrived.
    fn measure(&mut self, now: Time) {
        for from in &self.touched {
            let Some(host) = self.hosts.get_mut(from) else { continue };
            if let Some((_, since, ahead)) = host.timed.filter(|(position, ..)| host.arrived > *position) {
                host.timed = None;
                self.path.grant_took(now.saturating_sub(since), ahead);
            }
        }
    }

    /// Returns how many bytes of long messages each host may send without a grant, at most. Together, these are few of
    /// those that should be under way: all hosts may send them at once, while others send what they were granted.
    fn allowance_bytes(&self) -> u64 {
        let share = self.path.target_bytes() / ALLOWANCE_PARTS / self.hosts.len().max(1) as u64;
        share.clamp(FIRST_LIMIT_BYTES, CHUNK_BYTES_MAX as u64)
    }

    fn end_pacing(&mut self) {
        (self.is_pacing, self.favourite) = (false, None);
        let hosts: Vec<Tid> = self.hosts.keys().copied().collect();
        hosts.into_iter().for_each(|from| self.set_limit(from, u64::MAX));
    }

    fn set_limit(&mut self, from: Tid, limit: u64) {
        if let Some(host) = self.hosts.get_mut(&from).filter(|host| host.limit != limit) {
            host.limit = limit;
            self.grants.insert(from, limit);
        }
    }

    /// Serves the only host with messages that have not arrived wholly.
    fn serve_only_host(&mut self, now: Time) {
        let Some(from) = self.active.first().copied() else { return };
        let needs_grant = self.hosts[&from].demand() > 0;
        if self.favourite != Some(from) && needs_grant {
            self.end_favour();
            self.favourite = Some(from);
            self.note_grant(from, now, 0);
            self.refill(from);
        }
    }

    /// Lets the limit of a host follow what has arrived from it.
    fn refill(&mut self, from: Tid) {
        let Some(host) = self.hosts.get(&from) else { return };
        let (arrived, announced, limit) = (host.arrived, host.announced, host.limit);
        if self.favourite == Some(from) {
            let lead = self.path.lead_bytes();
            if limit < arrived + lead / 2 {
                self.set_limit(from, arrived + lead);
            }
        } else if host.transfers.is_empty() && limit < announced + self.allowance_bytes() / 2 {
            self.set_limit(from, announced + self.allowance_bytes());
        }
    }

    /// Takes the lead from the host that has it: the host may send what it has announced, and little more.
    fn end_favour(&mut self) {
        let Some(from) = self.favourite.take() else { return };
        let most = self.hosts.get(&from).map_or(0, |host| host.announced) + self.allowance_bytes();
        if self.hosts.get(&from).is_some_and(|host| host.limit > most) {
            self.set_limit(from, most);
        }
    }

    /// Shares what may be under way among several hosts.
    fn share(&mut self, now: Time) {
        self.end_favour();
        let target = self.path.target_bytes();
        let mut under_way = self.count_under_way(now);
        let may_be_granted = |host: &SendingHost| !host.is_late && host.demand() > 0;
        let active = self.active.iter().copied();
        let mut candidates: BTreeSet<Tid> = active.filter(|from| may_be_granted(&self.hosts[from])).collect();
        while let Some(from) = self.next_in_turn(&candidates) {
            let host = &self.hosts[&from];
            let room = target.saturating_sub(under_way);
            let demand = host.demand();
            if room < demand.min(target / GRANT_PARTS) {
                self.wakeup = self.active.iter().filter_map(|host| self.deadline(host)).min();
                return;
            }
            self.turns += 1;
            let shortest = host.by_left.first().map_or(0, |(left, _)| *left);
            let count = demand.min(room).min(shortest.max(target / GRANT_PARTS));
            let limit = host.limit.max(host.arrived) + count;
            self.note_grant(from, now, under_way);
            let is_all = count == demand;
            self.set_limit(from, if is_all { limit + self.allowance_bytes() } else { limit });
            under_way += count;
            self.expect_arrival(from, now, under_way);
            if is_all {
                candidates.remove(&from);
            }
        }
    }

    /// Returns how many bytes are under way, without those of late hosts.
    fn count_under_way(&mut self, now: Time) -> u64 {
        let mut total = 0;
        let active: Vec<Tid> = self.active.iter().copied().collect();
        for from in &active {
            let Some(host) = self.hosts.get_mut(from) else { continue };
            if host.due.is_some_and(|(position, _)| host.arrived >= position) {
                (host.due, host.is_late) = (None, false);
            }
            total += if host.is_late { 0 } else { host.under_way() };
        }
        let overdue = active.iter().copied().find(|from| self.deadline(from).is_some_and(|when| when <= now));
        if let Some(late) = overdue {
            total -= self.hosts[&late].under_way();
            self.give_up_on(late, now + self.patience(total));
        }
        active.into_iter().for_each(|from| self.expect_arrival(from, now, total));
        total
    }

    /// Marks a host as late. The others have until the given time at least: if packets were lost, all may be overdue at
    /// once, and grants to all hosts in their place would make it worse.
    fn give_up_on(&mut self, late: Tid, until: Time) {
        for (from, host) in &mut self.hosts {
            host.is_late |= *from == late;
            if let Some((_, when)) = &mut host.due {
                *when = until.max(*when);
            }
        }
    }

    /// Returns the time after which a host is late, if this number of bytes is under way.
    fn patience(&self, bytes: u64) -> Duration {
        LATE_AFTER + 2 * self.path.expected(bytes)
    }

    /// Notes when the granted bytes of a host should have arrived. `total` is how many bytes are under way.
    fn expect_arrival(&mut self, from: Tid, now: Time, total: u64) {
        let when = now + self.patience(total);
        let Some(host) = self.hosts.get_mut(&from) else { return };
        if host.due.is_none() && host.under_way() > 0 {
            host.due = Some((host.limit.min(host.announced), when));
        }
    }

    fn deadline(&self, from: &Tid) -> Option<Time> {
        let host = self.hosts.get(from).filter(|host| !host.is_late && host.under_way() > 0)?;
        host.due.map(|(_, when)| when)
    }

    /// Returns the host that is granted bytes next: the one whose message is nearest to its end, in some turns the one
    /// with the oldest message.
    fn next_in_turn(&self, candidates: &BTreeSet<Tid>) -> Option<Tid> {
        let first = |from: &Tid| {
            let host = &self.hosts[from];
            match (self.turns + 1) % OLDEST_EVERY {
                0 => host.by_age.first().map(|(number, _)| *number),
                _ => host.by_left.first().map(|(left, _)| *left),
            }
        };
        candidates.iter().copied().min_by_key(first)
    }

    /// Notes the time of a grant if the host has been waiting for it.
    fn note_grant(&mut self, from: Tid, now: Time, ahead: u64) {
        if let Some(host) = self.hosts.get_mut(&from).filter(|host| host.under_way() <= FIRST_LIMIT_BYTES) {
            host.timed = Some((host.arrived.max(host.limit), now, ahead));
        }
    }
}
