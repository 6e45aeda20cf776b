//! A barrier that not all members have reached.
use crate::tid::Tid;
use crate::time::Time;
use std::collections::BTreeSet;

/// A member that has arrived by way of its daemon.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arriver {
    /// By a request.
    Request { tid: Tid, wait: u32 },
    /// By the arrival with this number of the member's host.
    Combined { tid: Tid, turn: u64 },
}

impl Arriver {
    pub fn tid(&self) -> Tid {
        let (Arriver::Request { tid, .. } | Arriver::Combined { tid, .. }) = self;
        *tid
    }
}

/// A barrier at the master; at least one member has arrived.
pub(super) struct PendingBarrier {
    pub need: u32,
    pub arrived: u32,
    /// The members that have arrived, including those in the page of `page_host`.
    pub members: BTreeSet<Tid>,
    /// Members that may have arrived in the page before it was taken out of use.
    pub maybe_arrived: BTreeSet<Tid>,
    /// The time from which the members in `maybe_arrived` count as arrived.
    pub maybe_until: Time,
    /// Arrivals by way of the daemon.
    pub to_answer: Vec<Arriver>,
    /// The other hosts from which these arrivals came.
    pub senders: BTreeSet<Tid>,
    /// Whether a member has asked for a release by broadcast.
    pub lan: bool,
    /// The host, if any, in whose page some of the members wait until the master releases them.
    pub page_host: Option<Tid>,
}

impl PendingBarrier {
    /// Returns a barrier that members have reached whose arrivals came from these hosts, to choose the way of its
    /// release.
    pub fn reached_by(hosts: impl Iterator<Item = Tid>, lan: bool) -> PendingBarrier {
        PendingBarrier { senders: hosts.collect(), lan, ..PendingBarrier::new(0) }
    }

    /// Counts a member, once.
    pub fn count(&mut self, tid: Tid, arriver: Option<Arriver>, sender: Tid, lan: bool) {
        if self.members.insert(tid) {
            self.arrived += 1;
            self.to_answer.extend(arriver);
            self.senders.insert(sender);
            self.lan |= lan;
        }
    }

    pub fn new(need: u32) -> PendingBarrier {
        PendingBarrier {
            need,
            arrived: 0,
            members: BTreeSet::new(),
            maybe_arrived: BTreeSet::new(),
            maybe_until: Time::ZERO,
            to_answer: Vec::new(),
            senders: BTreeSet::new(),
            lan: false,
            page_host: None,
        }
    }
}
