//! The shared memory of a group.
use crate::ids::TaskId;
use pvm_core::machine::Barrier;
use pvm_core::tid::Tid;
use std::collections::BTreeMap;

/// The memory that a host keeps for a group.
#[derive(Default)]
pub struct GroupMemory {
    /// The members by instance number.
    pub members: BTreeMap<u32, Tid>,
    pub generation: u32,
    pub need: u16,
    pub arrived: u16,
    /// The members on this host that have arrived at the barrier and wait.
    pub here: BTreeMap<u32, TaskId>,
    /// Whether members must send a request to the daemon to arrive at a barrier.
    pub uses_daemon: bool,
}

impl GroupMemory {
    pub fn seen(&self) -> Barrier {
        let absent = self.members.len() as u32 - self.here.len() as u32;
        Barrier { generation: self.generation, need: self.need, arrived: self.arrived, absent, arriving: 0 }
    }
    pub fn tids(&self) -> Vec<Tid> {
        self.here.keys().filter_map(|instance| self.members.get(instance)).copied().collect()
    }
}
