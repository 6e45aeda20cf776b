//! `pvm_barrier`.
use super::{Group, GroupWait};
use crate::{Task, Ticket};
use pvm_core::codes::Code;
use pvm_core::proto::{Request, ToDaemon};
use pvm_core::tid::Tid;
use pvm_fmp::{Refused, Sent};

/// A barrier at which this task has arrived.
pub struct BarrierArrival {
    group: Group,
    at: ArrivedAt,
}

/// Where it has.
enum ArrivedAt {
    /// In the memory of the group; without a wait if the barrier has opened at once.
    SharedMemory { generation: u32, wait: Option<GroupWait> },
    /// By the daemon, since members live on several hosts.
    Daemon(Ticket),
}

/// Stands for the size of the group at the time of the call.
const ALL: i32 = -1;

impl Task {
    /// Arrives at the group's barrier. Then [`Task::poll_barrier`] until it says something, and
    /// [`Task::end_barrier`]. `NotInGroup`; `BadParam` for a count that nobody can mean;
    /// `Mismatch` where others wait for another count; `NoGroup` where the group is no more.
    #[inline]
    pub fn begin_barrier(&mut self, group: &Group, count: i32) -> Result<BarrierArrival, Code> {
        self.check_connected()?;
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let known = &group.0;
        let not_member = if known.view.is_broken() { Code::NoGroup } else { Code::NotInGroup };
        let instance = known.instance.ok_or(not_member)?;
        let size = known.view.size();
        let need = match count {
            ALL => size.max(1),
            count => u32::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::BadParam)?,
        };
        let arrival = match known.view.arrive(instance, need) {
            Ok(arrival) => arrival,
            Err(Refused::Mismatch) => return Err(Code::Mismatch),
            Err(Refused::NotMember) => return Err(Code::NotInGroup),
            Err(Refused::Closed) => return Err(Code::NoGroup),
            Err(Refused::Elsewhere) => return self.arrive_by_daemon(group, count),
        };
        let generation = arrival.generation;
        if arrival.last {
            self.release(group, generation);
            return Ok(BarrierArrival { group: group.clone(), at: ArrivedAt::SharedMemory { generation, wait: None } });
        }
        let wait = self.wait_in(known, instance, Some(generation));
        if arrival.short {
            self.report_too_few(known.id, size);
        }
        Ok(BarrierArrival { group: group.clone(), at: ArrivedAt::SharedMemory { generation, wait: Some(wait) } })
    }

    /// The daemon knows how many there are.
    #[cold]
    fn arrive_by_daemon(&mut self, group: &Group, count: i32) -> Result<BarrierArrival, Code> {
        let ticket = self.begin(Request::Barrier { group: group.0.id, count })?;
        Ok(BarrierArrival { group: group.clone(), at: ArrivedAt::Daemon(ticket) })
    }

    /// The barrier is behind this task, whatever came of it.
    #[inline]
    pub fn end_barrier(&mut self, barrier: BarrierArrival) {
        match barrier.at {
            ArrivedAt::SharedMemory { wait, .. } => wait.into_iter().for_each(|wait| self.end_group_wait(wait)),
            ArrivedAt::Daemon(ticket) => self.forget(ticket),
        }
    }

    /// Wakes those who sleep at a barrier that has opened.
    #[inline]
    fn release(&mut self, group: &Group, generation: u32) {
        for tid in group.0.view.sleepers(generation) {
            self.wake(tid);
        }
    }

    /// Rings another task, should it sleep.
    pub fn wake(&mut self, tid: u32) {
        let Some(member) = &mut self.member else { return };
        let near = Tid(tid).host() == member.tid.host() && tid != member.tid.0;
        if near && member.endpoint.wake(tid) == Sent::RingByDaemon {
            member.send(&ToDaemon::Ring(Tid(tid)));
            // The next time its doorbell is at hand.
            member.introduce(Tid(tid));
        }
    }

    #[cold]
    fn report_too_few(&mut self, group: u64, size: u32) {
        if let Some(member) = &mut self.member {
            member.send(&ToDaemon::CheckBarrier { group, size });
        }
    }

    /// What has become of a barrier; `None` while others are missing. When it can no longer be
    /// reached: `NoTask`, or `NoGroup` in a group that has ended with that.
    #[inline]
    pub fn poll_barrier(&mut self, barrier: &BarrierArrival) -> Option<Result<(), Code>> {
        let known = &barrier.group.0;
        let generation = match &barrier.at {
            ArrivedAt::SharedMemory { generation, .. } => *generation,
            ArrivedAt::Daemon(ticket) => return self.poll_reply(ticket).map(|answer| answer.map(|_| ())),
        };
        match known.view.passed(generation) {
            Some(Ok(())) => Some(Ok(())),
            Some(Err(_)) => Some(Err(known.loss())),
            None => self.check_connected().err().map(Err),
        }
    }
}
