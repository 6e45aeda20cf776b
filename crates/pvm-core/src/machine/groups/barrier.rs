//! Barriers of groups from which members have gone (D5).
//!
//! Members meet without the daemon; it looks at a barrier when a member goes, and when a member
//! says that it waits for more than the group has. Then a barrier
//!
//! * that the members who are there can fill is left alone;
//! * that lacks one who has gone while it was pending fails, and so does every further one of that
//!   size, until somebody has joined in the place of the missing;
//! * that lacks members who had gone before it began fails when nobody has joined in their place for
//!   [`Settings::barrier_patience`](crate::machine::Settings): a program may start others for them;
//! * that was meant for more than the group ever had waits for others to join, as long as it takes.
use super::group::Freezing;
use super::{Groups, act};
use crate::machine::core::Core;
use crate::machine::group_page::{Barrier, GroupAction};
use crate::machine::settings::Time;
use crate::tid::Tid;
use std::time::Duration;

/// How soon a barrier is looked at again at which somebody is just arriving.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What a group lacks.
#[derive(Default)]
pub(super) struct Shortage {
    /// Members that have gone and have not been replaced.
    lost: usize,
    /// Members whose going has made a barrier fail, and who have not been replaced.
    missed: usize,
    /// How large the group was before somebody went, since the barrier was last judged.
    size_before: usize,
    /// A barrier, and how many had arrived there and gone then: they count as if they were there.
    gone: (u32, usize),
    look_at: Option<Time>,
    patience_ends: Option<Time>,
}

/// What is to be done about a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It can open, or waits for whoever joins.
    Leave,
    /// Somebody is just arriving.
    LookAgain,
    /// It lacks members who had gone before; others may come in their place.
    BePatient,
    Fail,
}

/// Judges a barrier. The group was large enough for needs up to `sure` until members went while
/// the barrier was pending, and up to `likely` until members went at all.
fn judge(barrier: &Barrier, sure: usize, likely: usize) -> Verdict {
    let need = usize::from(barrier.need);
    let missing = u32::from(barrier.need.saturating_sub(barrier.arrived));
    if need == 0 || missing <= barrier.absent || need > likely.max(sure) {
        Verdict::Leave
    } else if missing <= barrier.absent.saturating_add(barrier.arriving) {
        Verdict::LookAgain
    } else if need <= sure {
        Verdict::Fail
    } else {
        Verdict::BePatient
    }
}

impl Shortage {
    pub fn somebody_joined(&mut self) {
        if self.missed > 0 {
            self.missed -= 1;
        } else {
            self.lost = self.lost.saturating_sub(1);
        }
        self.patience_ends = None;
    }
    pub fn somebody_goes(&mut self, size: usize) {
        self.lost += 1;
        self.patience_ends = None;
        self.group_had(size);
    }
    /// The group had that many members before one went, or before one arrived.
    pub fn group_had(&mut self, size: usize) {
        self.size_before = self.size_before.max(size);
    }
    pub fn next_look(&self) -> Option<Time> {
        self.look_at
    }
    /// Members meet in another place: who has gone so far was judged in the old one.
    pub fn place_changes(&mut self) {
        self.size_before = 0;
    }

    pub fn judge(&mut self, now: Time, patience: Duration, size: usize, barrier: &Barrier) -> Verdict {
        let here = size.saturating_sub((barrier.absent + barrier.arriving) as usize);
        let gone = usize::from(barrier.arrived).saturating_sub(here);
        let gone_before = if self.gone.0 == barrier.generation { self.gone.1 } else { 0 };
        let sure = self.size_before.max(size + self.missed) + gone_before;
        let verdict = judge(barrier, sure, size + self.missed + self.lost.max(gone));
        self.look_at = match verdict {
            Verdict::LookAgain => Some(now + LOOK_AGAIN),
            Verdict::BePatient => {
                let end = *self.patience_ends.get_or_insert(now + patience);
                if now >= end {
                    return Verdict::Fail;
                }
                Some(end)
            }
            Verdict::Leave | Verdict::Fail => None,
        };
        if matches!(verdict, Verdict::Leave | Verdict::BePatient) {
            (self.size_before, self.gone) = (0, (barrier.generation, gone));
        }
        verdict
    }

    pub fn barrier_failed(&mut self) {
        self.missed += self.lost;
        (self.size_before, self.lost, self.patience_ends, self.look_at) = (0, 0, None, None);
    }

    /// Whether a freeze for which members wait can never be.
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
    /// A member waits for more than its group has; when it decided to, the group had `size`.
    pub fn check_barrier(&mut self, core: &mut Core, from: Tid, group: u64, size: u32) {
        let Some(found) = self.by_id(group).filter(|found| found.instance_of(from).is_some()) else { return };
        found.shortage.group_had(size as usize);
        self.look_at_barrier(core, group);
    }

    /// Looks whether the barrier of a group can still be reached, where its members meet.
    pub fn look_at_barrier(&mut self, core: &mut Core, group: u64) {
        match self.by_id(group).map(|found| (found.replica.meets_here, found.replica.is_made())) {
            Some((true, true)) => act(core, group, GroupAction::Look),
            Some((false, _)) => self.judge_here(core, group),
            Some((true, false)) | None => {}
        }
    }

    /// What the edge saw when it looked.
    pub fn looked(&mut self, core: &mut Core, now: Time, group: u64, barrier: Barrier) {
        let Some(found) = self.by_id(group) else { return };
        if found.broken {
            if barrier.need != 0 {
                act(core, group, GroupAction::Fail(barrier));
            }
            return;
        }
        let size = found.size();
        let verdict = found.shortage.judge(now, core.settings.barrier_patience, size, &barrier);
        self.note_look(group);
        if verdict == Verdict::Fail {
            act(core, group, GroupAction::Fail(barrier));
        }
    }

    /// The barrier was made to fail.
    pub fn failed(&mut self, group: u64) {
        if let Some(found) = self.by_id(group) {
            found.shortage.barrier_failed();
            self.note_look(group);
        }
    }

    /// The barrier was not made to fail, since somebody has arrived meanwhile. Not at once: a member
    /// that breaks the rules could keep the daemon busy.
    pub fn changed(&mut self, now: Time, group: u64) {
        if let Some(found) = self.by_id(group) {
            found.shortage.look_at = Some(now + LOOK_AGAIN);
            self.note_look(group);
        }
    }

    pub fn on_time(&mut self, core: &mut Core) {
        let mut ids = Vec::new();
        while let Some((_, id)) = self.next_look().filter(|(when, _)| *when <= core.now) {
            if let Some(group) = self.by_id(id) {
                group.shortage.look_at = None;
            }
            self.note_look(id);
            ids.push(id);
        }
        for id in ids {
            self.look_at_barrier(core, id);
        }
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
        assert_eq!(judge(&barrier(5, 2, 2, 1), 5, 5), Verdict::LookAgain);
        assert_eq!(judge(&barrier(5, 2, 2, 0), 4, 5), Verdict::BePatient);
    }
}
