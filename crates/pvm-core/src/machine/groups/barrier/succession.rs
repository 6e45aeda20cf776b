//! Barriers over several hosts when another host becomes the master. They meet at no coordinator then.
use super::meeting::{Pending, Turn};
use super::{Group, OverHosts, Place, Shared};
use crate::codes::Code;
use crate::machine::core::Core;
use crate::master_state::{BarrierPlace, GroupOfMaster, MachineState};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::GroupChange;

impl Shared {
    pub fn machine_state(&self) -> MachineState {
        MachineState {
            group_hosts: self.wishes.all(),
            last_change: self.last_change,
            last_chain: self.last_chain,
            ..MachineState::default()
        }
    }
    pub fn take_machine_state(&mut self, state: &MachineState) {
        self.wishes.take(&state.group_hosts);
        self.last_change = self.last_change.max(state.last_change);
        self.last_chain = self.last_chain.max(state.last_chain);
    }
    /// Skips numbers that the former master may have given.
    pub fn skip_numbers(&mut self) {
        self.last_change = self.last_change.wrapping_add(1 << 32);
        self.last_chain = self.last_chain.wrapping_add(1 << 16);
    }
    pub fn resign(&mut self) {
        self.is_moving = false;
        (self.wishes, self.reach) = Default::default();
    }
}

impl OverHosts {
    /// Returns whether no report of another host is awaited.
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty() && matches!(self.place, Place::Nowhere | Place::PageOf(_) | Place::Master)
    }
    pub fn has_arrivals(&self) -> bool {
        self.passage.has_arrivals()
    }

    /// Adds what the master knows about the barrier.
    pub fn add_to(&self, state: GroupOfMaster) -> GroupOfMaster {
        let place = match self.place {
            Place::PageOf(host) => BarrierPlace::PageOf(host),
            Place::Master => BarrierPlace::Master,
            _ => BarrierPlace::Nowhere,
        };
        let turns = self.turns.iter().map(|(tid, turn)| (*tid, turn.since, turn.last)).collect();
        let pending = self.pending.as_ref().map(Pending::state);
        GroupOfMaster { place, pending, generation: self.generation, turns, ..state }
    }

    /// Takes over what the former master knew about the barrier.
    pub fn take_over(&mut self, now: Time, state: GroupOfMaster) {
        self.place = match state.place {
            BarrierPlace::Nowhere => Place::Nowhere,
            BarrierPlace::PageOf(host) => Place::PageOf(host),
            BarrierPlace::Master => Place::Master,
        };
        self.pending = state.pending.map(|pending| Pending::of_former_master(pending, now));
        self.generation = state.generation;
        self.turns = state.turns.into_iter().map(|(tid, since, last)| (tid, Turn { since, last })).collect();
    }

    /// Begins at a master whose predecessor has died. Nobody waits, since those who waited got an error.
    pub fn resume_without(&mut self, members: &[Tid]) {
        self.place = if members.is_empty() { Place::Nowhere } else { Place::Master };
        (self.pending, self.queue, self.releases) = Default::default();
        self.turns = members.iter().map(|tid| (*tid, Turn { since: 0, last: 0 })).collect();
    }

    /// Drops what only the master knows.
    pub fn resign(&mut self) {
        let passage = std::mem::take(&mut self.passage);
        *self = OverHosts { passage, ..OverHosts::default() };
    }
}

impl Group {
    /// Sends all unanswered arrivals of this host's members to the master. The releases of the former master are over.
    pub fn repeat_arrivals(&mut self, core: &mut Core, shared: &mut Shared) {
        let arrivals = self.barrier.passage.all_again();
        if !arrivals.is_empty() {
            self.send_to_master(core, shared, arrivals);
        }
    }

    /// Answers all arrivals of this host's members with an error, because the master has died and nobody knows who has passed.
    pub fn fail_arrivals(&mut self, core: &mut Core, code: Code) {
        for (tid, wait) in self.barrier.passage.take_waiting() {
            core.reply(tid, wait, Err(code));
        }
        if let Place::Coordinator(_) = self.barrier.place {
            self.barrier.resign();
        }
    }

    /// At a master whose predecessor has died: handles a host's news whether members meet in its page.
    pub fn page_told(&mut self, core: &mut Core, shared: &mut Shared, host: Tid, meets_there: bool) {
        match (self.only_host() == Some(host), meets_there) {
            (true, true) => {
                self.barrier.place = Place::PageOf(host);
                self.replica.meets_here |= host == core.own_host();
            }
            (true, false) => {
                self.barrier.place = Place::PageOf(host);
                self.order_page(core, shared, host, GroupChange::Release { opened: false });
                self.order_page(core, shared, host, GroupChange::Give);
            }
            (false, true) => self.move_to_master(core, shared, host),
            // Members may wait there whose arrivals the former master had taken.
            (false, false) => self.order_page(core, shared, host, GroupChange::Release { opened: false }),
        }
    }
}
