//! Barriers over several hosts when another host becomes the master. They meet at no coordinator then.
use super::meeting::{Pending, Turn};
use super::{Group, OverHosts, Place, Shared};
use crate::machine::core::Core;
use crate::master_state::{BarrierPlace, GroupOfMaster, MachineState};
use crate::release::EndedArrival;
use crate::time::Time;

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
        let ended =
            self.ended.iter().map(|(tid, (turn, failure))| EndedArrival { tid: *tid, turn: *turn, failure: *failure });
        let (generation, passed, ended, ended_page) = (self.generation, self.passed, ended.collect(), self.ended_page);
        GroupOfMaster { place, pending, generation, passed, turns, ended, ended_page, ..state }
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
        self.note_passed(state.passed);
        self.ended = state.ended.into_iter().map(|one| (one.tid, (one.turn, one.failure))).collect();
        self.ended_page = state.ended_page;
        self.turns = state.turns.into_iter().map(|(tid, since, last)| (tid, Turn { since, last })).collect();
    }

    /// Drops what only the master knows.
    pub fn resign(&mut self) {
        let (passage, passed) = (std::mem::take(&mut self.passage), self.passed);
        *self = OverHosts { passage, passed, ..OverHosts::default() };
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
}
