//! `pvm_barrier` and `pvm_lanbarr`. If all members of the group are on one host, they meet in shared memory. Otherwise
//! every member arrives through its daemon.
use crate::groups::{Group, GroupWait};
use crate::member::Member;
use crate::task::Task;
use crate::types::Ticket;
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request, ToDaemon};
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use pvm_fmp::{Refused, Sent};
use std::cell::Cell;

/// The arrival of this task at a barrier.
pub struct BarrierArrival {
    group: Group,
    need: u32,
    at: ArrivedAt,
    /// Once the barrier has opened: what the task has taken in until then (`Backlog::end`).
    opened: Cell<Option<u64>>,
}

/// How the task has arrived.
enum ArrivedAt {
    /// In the shared memory of the group. `wait` is `None` if this arrival opened the barrier.
    SharedMemory { generation: u32, wait: Option<GroupWait> },
    /// Through the daemon, since the group has members on several hosts.
    Daemon(Ticket),
}

impl BarrierArrival {
    fn new(group: &Group, need: u32, at: ArrivedAt) -> BarrierArrival {
        BarrierArrival { group: group.clone(), need, at, opened: Cell::new(None) }
    }

    /// Returns the wait at the barrier, for the state line.
    pub fn call(&self) -> Call {
        Call::Barrier { group: self.group.0.label(), count: self.need }
    }

    /// Returns whether the task has arrived through its daemon, whose answer opens the barrier.
    pub fn is_through_daemon(&self) -> bool {
        matches!(self.at, ArrivedAt::Daemon(_))
    }
}

/// The count that stands for the size of the group at the time of the call.
const ALL: i32 = -1;

impl Task {
    /// Arrives at the group's barrier. Call [`Task::poll_barrier`] until it returns a result, then
    /// [`Task::end_barrier`]. Fails with `NotInGroup`, with `BadParam` for a count below 1 other than -1, with
    /// `Mismatch` if other members wait with another count, and with `NoGroup` if the group has ended.
    #[inline]
    pub fn begin_barrier(&mut self, group: &Group, count: i32) -> Result<BarrierArrival, Code> {
        self.begin_barrier_by(group, count, |group| Request::Barrier { group, count })
    }

    /// Like [`Task::begin_barrier`], but asks for a release by one datagram to all hosts (`pvm_lanbarr`).
    pub fn begin_lan_barrier(&mut self, group: &Group, count: i32) -> Result<BarrierArrival, Code> {
        self.begin_barrier_by(group, count, |group| Request::LanBarrier { group, count })
    }

    /// Arrives at the group's barrier; through the daemon by that request.
    #[inline]
    fn begin_barrier_by(
        &mut self,
        group: &Group,
        count: i32,
        by_daemon: impl FnOnce(u64) -> Request,
    ) -> Result<BarrierArrival, Code> {
        self.check_connected()?;
        if self.in_handler() {
            return Err(Code::NotImpl);
        }
        let state = &group.0;
        let not_member = if state.view.is_broken() { Code::NoGroup } else { Code::NotInGroup };
        let instance = state.instance.ok_or(not_member)?;
        let size = state.view.size();
        let need = match count {
            ALL => size.max(1),
            count => u32::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::BadParam)?,
        };
        // A member that this arrival releases may send messages, too.
        self.member.as_mut().map(Member::leave_links_in_company);
        let arrival = match state.view.arrive(instance, need) {
            Ok(arrival) => arrival,
            Err(Refused::Mismatch) => return Err(Code::Mismatch),
            Err(Refused::NotMember) => return Err(Code::NotInGroup),
            Err(Refused::Closed) => return Err(Code::NoGroup),
            Err(Refused::Elsewhere) => return self.arrive_by_daemon(group, need, by_daemon(group.0.id)),
        };
        let generation = arrival.generation;
        if arrival.last {
            self.release(group, generation);
            return Ok(BarrierArrival::new(group, need, ArrivedAt::SharedMemory { generation, wait: None }));
        }
        let wait = self.begin_group_wait(state, instance, Some(generation));
        if arrival.short {
            self.report_too_few(state.id, size);
        }
        Ok(BarrierArrival::new(group, need, ArrivedAt::SharedMemory { generation, wait: Some(wait) }))
    }

    /// Arrives through the daemon, which counts the arrivals of all hosts.
    #[cold]
    fn arrive_by_daemon(&mut self, group: &Group, need: u32, request: Request) -> Result<BarrierArrival, Code> {
        let heard = self.member.as_mut().and_then(|member| member.releases.begin_wait(group.0.id));
        let request = match (request, heard) {
            (Request::Barrier { group, count }, Some(heard)) => {
                Request::NextBarrier { group, count, lan: false, heard }
            }
            (Request::LanBarrier { group, count }, Some(heard)) => {
                Request::NextBarrier { group, count, lan: true, heard }
            }
            (request, _) => request,
        };
        let ticket = self.begin(request).inspect_err(|_| self.end_release_wait(group))?;
        Ok(BarrierArrival::new(group, need, ArrivedAt::Daemon(ticket)))
    }

    /// Ends an arrival, whatever its result.
    #[inline]
    pub fn end_barrier(&mut self, barrier: BarrierArrival) {
        match barrier.at {
            ArrivedAt::SharedMemory { wait, .. } => wait.into_iter().for_each(|wait| self.end_group_wait(wait)),
            ArrivedAt::Daemon(ticket) => {
                let releases = self.member.as_ref().map(|member| &member.releases);
                let has_come = releases.is_some_and(|releases| releases.has_come(barrier.group.0.id));
                self.end_release_wait(&barrier.group);
                // The daemon answers nobody who has heard the release.
                if has_come { self.cancel(ticket) } else { self.forget(ticket) }
            }
        }
    }

    /// Returns whether the task hears the release of the barrier itself.
    pub fn hears_release(&self, barrier: &BarrierArrival) -> bool {
        self.member.as_ref().is_some_and(|member| member.releases.is_awaited(barrier.group.0.id))
    }

    fn end_release_wait(&mut self, group: &Group) {
        if let Some(member) = &mut self.member {
            member.releases.end_wait(group.0.id);
        }
    }

    /// Wakes the members that sleep at a barrier that has opened.
    #[inline]
    fn release(&mut self, group: &Group, generation: u32) {
        for tid in group.0.view.sleepers(generation) {
            self.wake(tid);
        }
    }

    /// Wakes the receiver of a message. Fails with `SysErr` if that showed that the program has closed descriptors.
    pub fn wake_receiver(&mut self, tid: u32) -> Result<(), Code> {
        self.wake(tid);
        self.member.as_ref().map_or(Ok(()), Member::check_descriptors)
    }

    /// Rings another task of this host if that task sleeps.
    pub fn wake(&mut self, tid: u32) {
        let Some(member) = &mut self.member else { return };
        let near = Tid(tid).host() == member.tid.host() && tid != member.tid.0;
        if near && member.endpoint.wake(tid) == Sent::RingByDaemon {
            member.send(&ToDaemon::Ring(Tid(tid)));
            // After the introduction, this task can ring the other task itself.
            member.introduce(Tid(tid));
        }
    }

    /// Reports to the daemon that the group had fewer members than the barrier needs. Only the daemon knows whether the
    /// missing members have left.
    #[cold]
    fn report_too_few(&mut self, group: u64, size: u32) {
        if let Some(member) = &mut self.member {
            member.send(&ToDaemon::CheckBarrier { group, size });
        }
    }

    /// Returns the result of a barrier at which the task has arrived through its daemon: the daemon answers, or the task
    /// itself hears the release.
    #[cold]
    fn poll_daemon(&mut self, group: u64, ticket: &Ticket) -> Option<Result<(), Code>> {
        if let Some(answer) = self.poll_reply(ticket) {
            if let (Ok(Reply::Released(release)), Some(member)) = (&answer, &mut self.member) {
                member.releases.told(group, release.clone());
            }
            return Some(answer.map(|_| ()));
        }
        let member = self.member.as_ref()?;
        member.releases.has_come(group).then_some(Ok(()))
    }

    /// Returns the result of a barrier, or `None` while members are missing. If the barrier can no longer open, the
    /// result is the error `NoTask`, or `NoGroup` if the group was frozen or has ended.
    #[inline]
    pub fn poll_barrier(&mut self, barrier: &BarrierArrival) -> Option<Result<(), Code>> {
        let state = &barrier.group.0;
        let outcome = match &barrier.at {
            _ if barrier.opened.get().is_some() => Some(Ok(())),
            ArrivedAt::SharedMemory { generation, .. } => match state.view.passed(*generation) {
                Some(passed) => Some(passed.map_err(|_| state.loss())),
                None => self.check_connected().err().map(Err),
            },
            ArrivedAt::Daemon(ticket) => self.poll_daemon(state.id, ticket),
        };
        if outcome == Some(Ok(())) && self.is_behind_gap(barrier) { None } else { outcome }
    }

    /// Returns whether messages of other hosts are missing that come before the opening of the barrier. A program that looks for
    /// them after the barrier finds them.
    #[inline]
    fn is_behind_gap(&mut self, barrier: &BarrierArrival) -> bool {
        let Some(member) = self.member.as_mut() else { return false };
        let may_be = self.state.backlog.is_open()
            || member.endpoint.has_sent_to_us(member.tid.host().0)
            // The daemon may just have introduced itself, and then have queued the first gap.
            || member.control_may_be_ready();
        may_be && self.take_in_gaps(barrier)
    }

    #[cold]
    fn take_in_gaps(&mut self, barrier: &BarrierArrival) -> bool {
        self.take_in_all();
        let end = barrier.opened.get().unwrap_or_else(|| self.state.backlog.end());
        barrier.opened.set(Some(end));
        !self.state.backlog.is_released(end)
    }
}

#[cfg(test)]
#[path = "barrier_tests.rs"]
mod tests;
