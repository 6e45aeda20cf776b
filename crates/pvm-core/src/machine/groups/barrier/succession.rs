//! What the next master gets about barriers over several hosts.
use super::{OverHosts, Shared};
use crate::master_state::{GroupOfMaster, MachineState};
use crate::release::EndedArrival;

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
        (self.wishes, self.reach) = Default::default();
    }
}

impl OverHosts {
    pub fn has_arrivals(&self) -> bool {
        self.passage.has_arrivals()
    }

    /// Adds what the deputy is to know about the barrier.
    pub fn add_to(&self, state: GroupOfMaster) -> GroupOfMaster {
        let ended =
            self.ended.iter().map(|(tid, (turn, failure))| EndedArrival { tid: *tid, turn: *turn, failure: *failure });
        GroupOfMaster { passed: self.passed, ended: ended.collect(), ended_page: self.ended_page, ..state }
    }

    /// Drops what only the master knows.
    pub fn resign(&mut self) {
        let (passage, passed) = (std::mem::take(&mut self.passage), self.passed);
        *self = OverHosts { passage, passed, ..OverHosts::default() };
    }
}
