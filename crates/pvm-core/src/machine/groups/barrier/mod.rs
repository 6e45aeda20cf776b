//! Barriers of a group with members on several hosts. [`OverHosts`] owns the state of such a barrier, on each host that
//! keeps the group, and [`Shared`] what the barriers of all groups have in common there; nobody else in a daemon knows them.
//! (A task knows only the release that it has heard last, and members that arrived in a page before the group grew wait
//! there.) Every barrier goes the same way: a member arrives, its host sends the arrival to where the barrier meets,
//! arrivals are counted there, and each host learns how the barrier has ended. The modules, in this order:
//!
//! * `arrivals`: the members of this host arrive, and learn how the barrier has ended. Their arrivals go to where the barrier
//!   meets, those of one host combined.
//! * `meeting`: arrivals are counted, at the master or at a coordinator.
//! * `release`: the hosts learn that the barrier has ended: by a frame for each, or by one datagram. `chain`
//!   proves who has made a release.
//! * `elsewhere`: the master lets barriers meet at a coordinator, and takes them back.
//! * `succession`: another host becomes the master, and gets what the former one knew. `census`: it asks the hosts who waits.
//!
//! While all members live on one host, they meet in the page of that host, and no daemon takes part.

mod arrivals;
mod census;
mod chain;
mod elsewhere;
mod meeting;
mod release;
mod succession;

use self::arrivals::Passage;
pub use self::arrivals::{End, Report};
use self::census::Census;
use self::elsewhere::{Appointment, Pauses, Recall, Wishes};
use self::meeting::{Pending, Turn};
use self::release::{Reach, Releases};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::groups::Group;
use crate::release::{EndedPage, Passed, Release};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{Arrival, Waiting};
use std::collections::{BTreeMap, VecDeque};

/// Where the members of a group meet. The master knows it; another host knows only whether there is a coordinator.
#[derive(Default)]
enum Place {
    /// At the master: there are no members. On another host: where the master says, but at no coordinator.
    #[default]
    Nowhere,
    /// In the page of that host.
    PageOf(Tid),
    /// At the master, as soon as that host has sent the arrivals from its page.
    Moving(Tid),
    /// At the master.
    Master,
    /// At another host than the master.
    Coordinator(Appointment),
    /// At the master, as soon as the hosts have reported who waits at the coordinator.
    TakenBack(Recall),
    /// At the master, as soon as the hosts have said who waits: it is new.
    Counted(Census),
}

impl Place {
    /// Returns whether that host has yet to say who waits there.
    fn awaits_report(&self, host: Tid) -> bool {
        match self {
            Place::TakenBack(recall) => recall.awaits(host),
            Place::Counted(census) => census.awaits(host),
            _ => false,
        }
    }
}

/// A barrier over several hosts, as one host knows it.
#[derive(Default)]
pub(super) struct OverHosts {
    place: Place,
    /// The arrivals of this host's members.
    passage: Passage,
    /// Where the barrier meets: the members that have arrived.
    pending: Option<Pending>,
    /// At the master: how many barriers have ended.
    generation: u32,
    /// The barrier of the whole group that was released last, as far as this host knows.
    passed: Passed,
    /// At the master: how the last barrier of another kind has ended, by member and for a page. So does the deputy know it.
    ended: BTreeMap<Tid, (u64, Option<Code>)>,
    ended_page: Option<EndedPage>,
    /// At the master: arrivals that wait until it knows who has arrived elsewhere.
    queue: VecDeque<Arrival>,
    /// At the master: what it knows about the arrivals of each member.
    turns: BTreeMap<Tid, Turn>,
    /// Where the barrier meets: the way back.
    releases: Releases,
    /// At the master: when there may be a coordinator.
    pauses: Pauses,
    /// Arrivals that came before the news that this host is the coordinator, by member, and the chain for which they came.
    early: BTreeMap<Tid, (u32, Arrival)>,
}

/// What the barriers of all groups share on this host.
#[derive(Default)]
pub struct Shared {
    last_turn: u64,
    last_chain: u32,
    last_change: u64,
    pub reach: Reach,
    pub wishes: Wishes,
}

impl Shared {
    /// Returns a number for an order that hosts acknowledge.
    pub fn next_change(&mut self) -> u64 {
        self.last_change += 1;
        self.last_change
    }
    /// Returns a number for a new chain.
    fn next_chain(&mut self) -> u32 {
        self.last_chain = self.last_chain.wrapping_add(1);
        self.last_chain
    }
}

impl OverHosts {
    /// Returns how many members the barrier that meets here needs, and which have arrived, for the group server.
    pub fn waiting(&self) -> Option<Waiting> {
        let pending = self.pending.as_ref()?;
        let need = u16::try_from(pending.need).unwrap_or(u16::MAX);
        Some(Waiting { need, tids: pending.members.iter().copied().collect() })
    }
    /// Notes that a barrier of the whole group was released.
    pub fn note_passed(&mut self, passed: Passed) {
        self.passed = self.passed.max(passed);
    }
    /// Returns the coordinator, if there is one.
    fn coordinator(&self) -> Option<Tid> {
        match &self.place {
            Place::Coordinator(appointment) => Some(appointment.by),
            _ => None,
        }
    }
    /// Returns the host in whose page, or at which, members meet, unless they meet at the master.
    pub fn meets_on(&self) -> Option<Tid> {
        match &self.place {
            Place::PageOf(host) => Some(*host),
            _ => self.coordinator(),
        }
    }
    /// Returns whether members meet in the page of that host.
    pub fn meets_in_page_of(&self, host: Tid) -> bool {
        matches!(self.place, Place::PageOf(at) if at == host)
    }
    /// Returns the host that knows who waits, if it is not the master.
    pub fn known_to(&self) -> Option<Tid> {
        match &self.place {
            Place::Moving(host) => Some(*host),
            _ => self.meets_on(),
        }
    }
    /// Returns the last release of the master's chain.
    pub fn chain(&self) -> Option<Release> {
        self.releases.last_of_chain().cloned()
    }
    /// Returns when [`Group::barrier_on_time`] must be called next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.passage.next_deadline().into_iter().chain(self.releases.next_deadline()).min()
    }
}

impl Group {
    /// Does what is due.
    pub fn barrier_on_time(&mut self, core: &mut Core, shared: &mut Shared) {
        self.arrivals_on_time(core, shared);
        if self.barrier.releases.next_deadline().is_some_and(|when| when <= core.now) {
            self.repeat_release(core);
        }
        if self.shortage.take_due(core.now) {
            self.examine_barrier(core, shared);
        }
    }

    /// Handles a change of the members. The master calls this before it tells the change, another host when it learns of it.
    /// Other members are expected from now on, and the chain of releases ends.
    pub fn barrier_members_changed(&mut self, core: &mut Core, shared: &mut Shared) {
        self.send_held(core, shared);
        // The release is repeated now, because hosts do not accept it after this change.
        self.repeat_release(core);
        self.version += 1;
        self.barrier.passage.begin_anew(None);
        self.barrier.releases.end_chain();
    }

    /// Handles the loss of a host: it may coordinate, owe a report, or have a page with arrivals.
    pub fn barrier_host_gone(&mut self, core: &mut Core, shared: &mut Shared, host: Tid) {
        self.coordination_host_gone(core, shared, host);
        self.page_host_gone(core, shared, host);
    }
}
