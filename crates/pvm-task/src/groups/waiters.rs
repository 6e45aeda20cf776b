//! The waits of a task for other members of its groups in shared memory. At a barrier over several hosts it waits for its
//! daemon's answer, or for a release (`releases`).
use super::CachedGroup;
use std::rc::Rc;

/// How often one call of `watch` polls the barrier's word in shared memory. These polls together take some hundred
/// nanoseconds.
const WATCH_POLLS: u32 = 64;

/// A wait for other members. [`Task::end_group_wait`](crate::Task::end_group_wait) ends the wait.
#[must_use]
pub struct GroupWait(u32);

impl GroupWait {
    /// The wait of a task that has left the machine. This wait is in no list.
    pub(crate) const NONE: GroupWait = GroupWait(0);
}

/// A thread of the task that waits for other members.
struct GroupWaiter {
    number: u32,
    group: Rc<CachedGroup>,
    instance: u32,
    /// The generation of the barrier for which the thread waits; `None` in a collective operation.
    generation: Option<u32>,
}

impl GroupWaiter {
    /// Returns whether the barrier has opened or failed. Such a waiter can still be in the list, because its thread may
    /// have left the wait by `longjmp`.
    fn is_over(&self) -> bool {
        self.generation.is_some_and(|generation| self.group.view.passed(generation).is_some())
    }

    fn prepare_park(&self) {
        self.group.view.prepare_park(self.instance);
    }
}

/// The threads of a task that wait for other members.
#[derive(Default)]
pub(crate) struct GroupWaiters {
    waiters: Vec<GroupWaiter>,
    last_number: u32,
}

impl GroupWaiters {
    /// Adds a wait. `asleep`: whether another thread already sleeps for all threads of the task, so that the other
    /// members must ring the task from now on.
    pub fn add(&mut self, group: &Rc<CachedGroup>, instance: u32, generation: Option<u32>, asleep: bool) -> GroupWait {
        self.last_number = self.last_number.wrapping_add(1);
        let waiter = GroupWaiter { number: self.last_number, group: group.clone(), instance, generation };
        if asleep {
            waiter.prepare_park();
        }
        self.waiters.push(waiter);
        GroupWait(self.last_number)
    }

    /// Ends a wait.
    #[inline]
    pub fn remove(&mut self, wait: &GroupWait) {
        self.waiters.retain(|waiter| waiter.number != wait.0);
    }

    /// Drops waits for barriers that have opened. Their callers are about to return, or have jumped out of the wait.
    /// Called when a wait begins to spin, so that waits that were left by a jump do not accumulate.
    pub fn forget_passed(&mut self) {
        self.waiters.retain(|waiter| !waiter.is_over());
    }

    /// Spins for a moment, or until the barrier of the last wait opens. Returns `false` if the caller should watch for
    /// messages instead: the task waits for no members, or it waits in a collective operation and there are enough
    /// cores for all tasks.
    #[inline]
    pub fn watch(&self, crowded: bool) -> bool {
        let Some(waiter) = self.waiters.last() else { return false };
        let Some(generation) = waiter.generation else { return crowded };
        // If there are more tasks than cores, the other members need this core to reach the barrier.
        let looks = if crowded { 0 } else { WATCH_POLLS };
        for _ in 0..looks {
            if waiter.group.view.passed(generation).is_some() {
                break;
            }
            std::hint::spin_loop();
        }
        true
    }

    /// Makes other members ring this task from now on when one of its waits is over, since this task is about to sleep.
    pub fn prepare_park(&self) {
        self.waiters.iter().for_each(GroupWaiter::prepare_park);
    }

    /// Makes the other members stop ringing this task, after it has slept. Returns whether the ring may have been for a
    /// thread other than the one that slept.
    pub fn unpark(&self) -> bool {
        self.waiters.iter().for_each(|waiter| waiter.group.view.unpark(waiter.instance));
        self.waiters.len() > 1
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }
}
