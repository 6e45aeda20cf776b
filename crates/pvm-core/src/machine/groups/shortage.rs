//! Barriers of groups from which members have gone (D5).
//!
//! Members synchronize without the daemon. The daemon examines a barrier when a member leaves the group or dies, and
//! when a member reports that it waits for more members than the group has. The result depends on which members the
//! barrier still needs:
//!
//! * If the present members can complete the barrier, the daemon does nothing.
//! * If the barrier lacks a member that left or died while the barrier was pending, the barrier fails. So does every
//!   later barrier of that size, until a task has joined in place of the missing member.
//! * If the barrier lacks members that had gone before the barrier began, the barrier fails unless tasks join in their
//!   place within [`Settings::barrier_patience`](crate::machine::Settings). During this time a program may start
//!   substitutes.
//! * If the barrier needs more members than the group ever had, it waits for tasks to join, without a time limit.
use super::{Freezing, Groups, act};
use crate::machine::core::Core;
use crate::machine::group_page::{Barrier, GroupAction};
use crate::master_state::GroupShortage;
use crate::tid::Tid;
use crate::time::Time;
use std::time::Duration;

/// The time after which a barrier is examined again because a member was just arriving.
const RECHECK_AFTER: Duration = Duration::from_millis(10);

/// The members that a group lacks.
#[derive(Default)]
pub(super) struct Shortage {
    /// Members that have gone and have not been replaced.
    lost: usize,
    /// Members whose loss has made a barrier fail, and which have not been replaced.
    missed: usize,
    /// The largest size of the group that was recorded since the last judgement of the barrier (other than
    /// [`Verdict::Recheck`]).
    size_before: usize,
    /// The generation of a barrier, and how many members have gone after they arrived at this barrier. Such members
    /// count as present.
    gone: (u32, usize),
    /// When the barrier is to be examined again.
    deadline: Option<Time>,
    /// When the barrier fails unless substitutes join.
    substitutes_until: Option<Time>,
}

/// The judgement of a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The barrier can open, or waits for tasks to join: do nothing.
    Leave,
    /// A member is just arriving.
    Recheck,
    /// The barrier lacks members that had gone before it began; others may join in their place.
    AwaitSubstitutes,
    Fail,
}

/// Judges a barrier. `sure`: the number of present members, of those that went while the barrier was pending, and of
/// those whose loss failed an earlier barrier. `likely`: the number of present members and of all that have gone and
/// have not been replaced. If too few members can still arrive, a barrier that needs at most `sure` members fails, and
/// a barrier that needs more, but at most `likely`, waits for substitutes.
fn judge(barrier: &Barrier, sure: usize, likely: usize) -> Verdict {
    let need = usize::from(barrier.need);
    let missing = u32::from(barrier.need.saturating_sub(barrier.arrived));
    if need == 0 || missing <= barrier.absent || need > likely.max(sure) {
        Verdict::Leave
    } else if missing <= barrier.absent.saturating_add(barrier.arriving) {
        Verdict::Recheck
    } else if need <= sure {
        Verdict::Fail
    } else {
        Verdict::AwaitSubstitutes
    }
}

impl Shortage {
    /// Returns what the next master has to know.
    pub fn state(&self) -> GroupShortage {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        GroupShortage {
            lost: count(self.lost),
            missed: count(self.missed),
            size_before: count(self.size_before),
            gone: (self.gone.0, count(self.gone.1)),
        }
    }
    /// Takes over what the former master knew. A wait for substitutes begins anew.
    pub fn take(&mut self, state: GroupShortage) {
        let GroupShortage { lost, missed, size_before, gone } = state;
        (self.lost, self.missed, self.size_before) = (lost as usize, missed as usize, size_before as usize);
        self.gone = (gone.0, gone.1 as usize);
    }
    /// Records a join.
    pub fn member_joined(&mut self) {
        if self.missed > 0 {
            self.missed -= 1;
        } else {
            self.lost = self.lost.saturating_sub(1);
        }
        self.substitutes_until = None;
    }
    /// Records that a member has gone from a group that had `size` members.
    pub fn member_left(&mut self, size: usize) {
        self.lost += 1;
        self.substitutes_until = None;
        self.note_size(size);
    }
    /// Records how many members the group had before a member went, or when a member arrived at the barrier.
    pub fn note_size(&mut self, size: usize) {
        self.size_before = self.size_before.max(size);
    }
    /// Returns when the barrier is to be examined again.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadline
    }
    /// Returns whether the barrier is to be examined again now.
    pub fn take_due(&mut self, now: Time) -> bool {
        self.deadline.take_if(|when| *when <= now).is_some()
    }
    /// Records that members arrive at barriers in another place from now on: in the page of a host, or at the master.
    /// Forgets the recorded size, because earlier losses were judged in the old place.
    pub fn place_changed(&mut self) {
        self.size_before = 0;
    }

    /// Judges a barrier, and sets the next deadline.
    pub fn judge(&mut self, now: Time, patience: Duration, size: usize, barrier: &Barrier) -> Verdict {
        let here = size.saturating_sub((barrier.absent + barrier.arriving) as usize);
        let gone = usize::from(barrier.arrived).saturating_sub(here);
        let gone_before = if self.gone.0 == barrier.generation { self.gone.1 } else { 0 };
        let sure = self.size_before.max(size + self.missed) + gone_before;
        let verdict = judge(barrier, sure, size + self.missed + self.lost.max(gone));
        self.deadline = match verdict {
            Verdict::Recheck => Some(now + RECHECK_AFTER),
            Verdict::AwaitSubstitutes => {
                let end = *self.substitutes_until.get_or_insert(now + patience);
                if now >= end {
                    return Verdict::Fail;
                }
                Some(end)
            }
            Verdict::Leave | Verdict::Fail => None,
        };
        if matches!(verdict, Verdict::Leave | Verdict::AwaitSubstitutes) {
            (self.size_before, self.gone) = (0, (barrier.generation, gone));
        }
        verdict
    }

    /// Records that the barrier has failed.
    pub fn barrier_failed(&mut self) {
        self.missed += self.lost;
        (self.size_before, self.lost, self.substitutes_until, self.deadline) = (0, 0, None, None);
    }

    /// Returns whether a pending freeze can never complete.
    pub fn prevents(&self, freezing: &Freezing, size: usize) -> bool {
        let callers = freezing.callers.len();
        let absent = size.saturating_sub(callers) as u32;
        let clamp = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let (need, arrived) = (clamp(freezing.need as usize), clamp(callers));
        let waiting = Barrier { generation: 0, need, arrived, absent, arriving: 0 };
        let sure = self.size_before.max(size + self.missed + self.lost);
        judge(&waiting, sure, sure) == Verdict::Fail
    }
}

impl Groups {
    /// Handles the report of a member that it waits for more members than the group has. The group had `size` members
    /// when the member arrived.
    pub fn check_barrier(&mut self, core: &mut Core, from: Tid, group: u64, size: u32) {
        self.with(group, |found, shared| {
            if found.instance_of(from).is_some() {
                found.shortage.note_size(size as usize);
                found.examine_barrier(core, shared);
            }
        });
    }

    /// Judges a barrier by the state that the daemon read in the page.
    pub fn barrier_seen(&mut self, core: &mut Core, now: Time, group: u64, barrier: Barrier) {
        self.with(group, |found, _| {
            let (size, patience) = (found.size(), core.settings.barrier_patience);
            let fails = match found.broken {
                true => barrier.need != 0,
                false => found.shortage.judge(now, patience, size, &barrier) == Verdict::Fail,
            };
            if fails {
                act(core, group, GroupAction::Fail(barrier));
            }
        });
    }

    /// Handles the news that the daemon has made the barrier fail.
    pub fn barrier_failed(&mut self, group: u64) {
        self.with(group, |found, _| found.shortage.barrier_failed());
    }

    /// Handles the news that a member arrived before the daemon could make the barrier fail. The barrier is examined
    /// again after a pause; otherwise a misbehaving member could keep the daemon busy.
    pub fn barrier_changed(&mut self, now: Time, group: u64) {
        self.with(group, |found, _| found.shortage.deadline = Some(now + RECHECK_AFTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(need: u16, arrived: u16, absent: u32, arriving: u32) -> Barrier {
        Barrier { generation: 7, need, arrived, absent, arriving }
    }

    #[test]
    fn a_barrier_that_members_can_fill_is_left_alone() {
        assert_eq!(judge(&barrier(0, 0, 5, 0), 9, 9), Verdict::Leave);
        assert_eq!(judge(&barrier(5, 2, 3, 0), 5, 5), Verdict::Leave);
        assert_eq!(judge(&barrier(5, 2, 3, 2), 5, 5), Verdict::Leave);
    }

    #[test]
    fn a_barrier_that_was_too_large_from_the_start_waits_for_others() {
        assert_eq!(judge(&barrier(6, 2, 1, 0), 5, 5), Verdict::Leave);
    }

    #[test]
    fn a_barrier_that_lacks_members_fails() {
        assert_eq!(judge(&barrier(5, 2, 2, 0), 5, 5), Verdict::Fail);
        assert_eq!(judge(&barrier(5, 2, 1, 1), 5, 5), Verdict::Fail);
        assert_eq!(judge(&barrier(5, 2, 2, 1), 5, 5), Verdict::Recheck);
        assert_eq!(judge(&barrier(5, 2, 2, 0), 4, 5), Verdict::AwaitSubstitutes);
    }
}
