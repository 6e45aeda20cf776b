//! The shared memory of groups.
use crate::connections::Connections;
use pvm_core::machine::{Barrier, GroupAction, Machine};
use pvm_core::proto::ToTask;
use pvm_core::tid::Tid;
use pvm_core::time::Time;
use pvm_core::wire::{Taken, Waiting};
use pvm_fmp::{GroupMemory, Pending, TakenArrivals};
use std::collections::{BTreeMap, HashMap};

/// The memory of each group, by the group's number.
#[derive(Default)]
pub struct Groups(HashMap<u64, GroupMemory>);

impl Groups {
    /// Returns the tasks that wait in barriers, by group.
    pub fn waiting(&self) -> BTreeMap<u64, Waiting> {
        let waiting = |memory: &GroupMemory| {
            let (need, tids) = memory.waiting();
            Waiting { need, tids: tids.into_iter().map(Tid).collect() }
        };
        self.0.iter().map(|(group, memory)| (*group, waiting(memory))).collect()
    }

    /// Executes an action of the machine.
    pub fn execute(
        &mut self,
        group: u64,
        action: GroupAction,
        connections: &mut Connections,
        machine: &mut Machine,
        now: Time,
    ) {
        if action == GroupAction::Make {
            let memory = GroupMemory::new();
            let made = memory.is_ok();
            self.0.extend(memory.map(|memory| (group, memory)));
            return machine.handle_group_made(group, made);
        }
        let Some(memory) = self.0.get(&group) else { return };
        match action {
            GroupAction::Make => {}
            GroupAction::Joined { instance, tid } => memory.set(instance, tid.0),
            GroupAction::Gone { instance } => {
                memory.clear(instance);
                // The member may have ended before it rang the doorbells of all sleepers.
                wake(memory, connections);
            }
            GroupAction::Freeze => memory.freeze(),
            GroupAction::Break => memory.break_up(),
            GroupAction::Close => {
                memory.close();
                self.0.remove(&group);
            }
            GroupAction::Show { to, member: true } => {
                connections.send_with(
                    to,
                    &ToTask::Group { id: group },
                    &[memory.membership_page(), memory.barrier_page()],
                );
            }
            GroupAction::Show { to, member: false } => {
                connections.send_with(to, &ToTask::Group { id: group }, &[memory.membership_page()]);
            }
            GroupAction::Take => machine.handle_barrier_taken(group, taken(memory.take())),
            GroupAction::Release { opened } => {
                memory.release(opened);
                wake(memory, connections);
            }
            GroupAction::Give => memory.reopen(),
            GroupAction::Look => machine.handle_barrier(now, group, look(memory)),
            GroupAction::Fail(Barrier { generation, need, arrived, .. }) => {
                match memory.fail(Pending { generation, need, arrived }) {
                    true => {
                        wake(memory, connections);
                        machine.handle_barrier_failed(group);
                    }
                    false => machine.handle_barrier_changed(now, group),
                }
            }
        }
    }
}

fn look(memory: &GroupMemory) -> Barrier {
    let look = memory.look();
    let Pending { generation, need, arrived } = look.pending;
    Barrier { generation, need, arrived, absent: look.absent, arriving: look.arriving }
}

fn taken(TakenArrivals { pending, arrived_members, maybe_arrived }: TakenArrivals) -> Taken {
    let tids = |tids: Vec<u32>| tids.into_iter().map(Tid).collect();
    let arrived = if pending.need == 0 { 0 } else { pending.arrived };
    Taken { need: pending.need, arrived, arrived_members: tids(arrived_members), maybe_arrived: tids(maybe_arrived) }
}

fn wake(memory: &GroupMemory, connections: &Connections) {
    for tid in memory.sleepers() {
        connections.ring(Tid(tid));
    }
}
