//! Calls of groups (contract 2.11): look-ups, barriers ([`barrier`]), collective operations ([`collective`]).
mod barrier;
mod collective;

pub use barrier::BarrierArrival;
pub use collective::{Collective, GroupMember};

use super::Task;
use crate::groups::{CachedGroup, Group, GroupWait};
use pvm_core::codes::Code;
use pvm_core::proto::Reply;
use std::rc::Rc;

/// Groups. The requests to the daemon are [`Request::JoinGroup`](pvm_core::proto::Request) and similar ones.
impl Task {
    /// Returns the group with this name, if it is cached and still exists. Otherwise send `Request::Group` to the
    /// daemon and pass its reply to [`Task::enter_group`].
    #[inline]
    pub fn group(&mut self, name: &[u8]) -> Option<Group> {
        self.member.as_mut()?.groups.get(name)
    }

    /// Takes in the reply to `JoinGroup` or `Group`. Fails with `OutOfRes` if there was no room for the group's
    /// descriptors or memory; a task that has joined must then leave the group.
    pub fn enter_group(&mut self, name: &[u8], reply: Reply) -> Result<Group, Code> {
        let Reply::Group { id, instance } = reply else { return Err(Code::BadMsg) };
        let groups = &mut self.member.as_mut().ok_or(Code::SysErr)?.groups;
        groups.enter(name, id, u32::try_from(instance).ok())
    }

    /// Notes that this task has joined the group.
    pub fn joined_group(&mut self, group: &Group) {
        if let (Some(member), Some(instance)) = (&mut self.member, group.0.instance) {
            member.groups.joined.push((group.0.id, instance));
        }
    }

    /// Returns the instance of this task in the group that it has joined last, of those that it has not left.
    pub fn last_instance(&self) -> Option<u32> {
        Some(self.member.as_ref()?.groups.joined.last()?.1)
    }

    /// Notes that `pvm_freezegroup` of this task has succeeded.
    pub fn froze_group(&mut self, name: &[u8]) {
        if let Some(group) = self.member.as_ref().and_then(|member| member.groups.by_name(name)) {
            group.keep_frozen();
        }
    }

    /// Returns a frozen group that no longer exists at the daemon, if this task continues with its members.
    pub fn former_group(&self, name: &[u8]) -> Option<Group> {
        self.member.as_ref()?.groups.former(name)
    }

    /// Notes that this task has left the group.
    pub fn left_group(&mut self, name: &[u8]) {
        if let Some(group) = self.member.as_mut().and_then(|member| member.groups.remove(name)) {
            self.drop_all_shares(&group);
        }
    }

    /// Returns the receivers of `pvm_bcast`: all members but this task. Fails with `NoInst` if there are none. The
    /// caller passes them to [`Task::multicast`].
    pub fn group_receivers(&self, group: &Group) -> Result<Vec<i32>, Code> {
        let own = self.own_tid();
        let mut receivers = group.tids();
        receivers.retain(|tid| *tid != own);
        if receivers.is_empty() { Err(Code::NoInst) } else { Ok(receivers) }
    }

    /// Begins a wait for other members, which ring this task's doorbell when they have done their part.
    fn begin_group_wait(&mut self, group: &Rc<CachedGroup>, instance: u32, generation: Option<u32>) -> GroupWait {
        let asleep = self.another_thread_sleeps();
        match &mut self.member {
            Some(member) => member.groups.waiters.add(group, instance, generation, asleep),
            None => GroupWait::NONE,
        }
    }

    /// Ends a wait for other members.
    #[inline]
    pub fn end_group_wait(&mut self, wait: GroupWait) {
        if let Some(member) = &mut self.member {
            member.groups.waiters.remove(&wait);
        }
    }

    /// Fails if the daemon is gone: a wait for other members must then end, since only the daemon notices that a member
    /// has died.
    pub(crate) fn check_connected(&self) -> Result<(), Code> {
        if self.is_connected() { Ok(()) } else { Err(Code::SysErr) }
    }
}
