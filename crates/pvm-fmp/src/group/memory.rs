//! The daemon's side of a group's memory.
use super::barrier::{ArrivalState, MemberSlot, Pending};
use super::layout::{BROKEN, BarrierPage, CLOSED, FROZEN, GONE, MEMBERS_MAX, Mapped, MembershipPage, present};
use crate::file::read_only;
use crate::sync::{Ordering, fence};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the daemon sees when it looks at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The state of the barrier; `need`, the number of members that must arrive, is 0 while nobody has arrived.
    pub pending: Pending,
    /// The number of members that have not arrived.
    pub absent: u32,
    /// The number of members that may have arrived or are about to arrive; if it is not 0, look again.
    pub arriving: u32,
}

/// The arrivals that the daemon has taken out of a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenArrivals {
    /// The state of the barrier; `need`, the number of members that must arrive, is 0 if nobody had arrived.
    pub pending: Pending,
    /// The tids of members that had arrived.
    pub arrived_members: Vec<u32>,
    /// The tids of members that either had arrived or will find that they cannot arrive here.
    pub maybe_arrived: Vec<u32>,
}

/// A group's shared memory.
pub struct GroupMemory {
    membership: Mapped<MembershipPage>,
    barrier_page: Mapped<BarrierPage>,
    readable_membership: OwnedFd,
    writable_barrier_page: OwnedFd,
}

impl GroupMemory {
    /// Makes the memory of a group without members.
    pub fn new() -> io::Result<GroupMemory> {
        let (membership, membership_file) = Mapped::make("hpvm-members", false)?;
        let (barrier_page, writable_barrier_page) = Mapped::make("hpvm-barrier", true)?;
        Ok(GroupMemory {
            membership,
            barrier_page,
            readable_membership: read_only(&membership_file)?,
            writable_barrier_page,
        })
    }

    /// Returns a read-only descriptor of the membership page, for all tasks.
    pub fn membership_page(&self) -> BorrowedFd<'_> {
        self.readable_membership.as_fd()
    }

    /// Returns a descriptor of the barrier page, for members.
    pub fn barrier_page(&self) -> BorrowedFd<'_> {
        self.writable_barrier_page.as_fd()
    }

    /// Makes a task the member of that instance number. Panics if the number is too large.
    pub fn set(&self, instance: u32, tid: u32) {
        if let Some(slot) = self.barrier_page.slot(instance as usize) {
            slot.clear();
        }
        self.change(instance, tid);
    }

    /// Removes the member of that instance number. The caller must then check the barrier and ring the doorbells of the
    /// [`GroupMemory::sleepers`].
    pub fn clear(&self, instance: u32) {
        let tid = self.membership.tids.0[instance as usize].load(Ordering::Relaxed);
        let frozen = self.membership.state.load(Ordering::Relaxed) & FROZEN != 0;
        self.change(instance, if frozen && tid != 0 { tid | GONE } else { 0 });
    }

    fn change(&self, instance: u32, word: u32) {
        let membership = &self.membership;
        // Pair `membership changed`: readers discard what they have read if the version was odd, or has changed
        // meanwhile.
        let version = membership.version.0.load(Ordering::Relaxed);
        membership.version.0.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let before = membership.tids.0[instance as usize].load(Ordering::Relaxed);
        membership.tids.0[instance as usize].store(word, Ordering::Relaxed);
        let [is, was] = [word, before].map(|word| u32::from(present(word).is_some()));
        let size = membership.size.load(Ordering::Relaxed) + is - was;
        membership.size.store(size, Ordering::Relaxed);
        membership.places.store(self.places_with(instance), Ordering::Relaxed);
        // Pair `membership changed`.
        membership.version.0.store(version.wrapping_add(2), Ordering::Release);
        // Pair `arrive or change`: either the member sees that the group is smaller, or the next `look` sees its
        // arrival.
        fence(Ordering::SeqCst);
    }

    /// Returns the highest instance in use plus one, after a change of `instance`.
    fn places_with(&self, instance: u32) -> u32 {
        let mut places = self.membership.places.load(Ordering::Relaxed).max(instance + 1);
        while places > 0 && self.membership.tids.0[places as usize - 1].load(Ordering::Relaxed) == 0 {
            places -= 1;
        }
        places
    }

    /// Freezes the group: members stay as they are from now on.
    pub fn freeze(&self) {
        self.set_state_bit(FROZEN);
    }

    /// Notes that a member of the frozen group has gone: from now on nobody can arrive at a barrier. The caller must
    /// then make the pending barrier fail and ring the doorbells of the [`GroupMemory::sleepers`].
    pub fn break_up(&self) {
        self.set_state_bit(BROKEN);
    }

    /// Notes that the group has ended.
    pub fn close(&self) {
        self.set_state_bit(CLOSED);
    }

    fn set_state_bit(&self, bit: u32) {
        // Pair `group state`: whoever sees the bit sees which members had gone before.
        self.membership.state.fetch_or(bit, Ordering::Release);
        // Pair `arrive or change`: either the member sees the bit, or the next `look` sees its arrival.
        fence(Ordering::SeqCst);
    }

    fn members(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let places = (self.membership.places.load(Ordering::Relaxed) as usize).min(MEMBERS_MAX);
        let tid = |instance: usize| present(self.membership.tids.0[instance].load(Ordering::Relaxed));
        (0..places).filter_map(move |instance| Some((instance, tid(instance)?)))
    }

    /// Returns whether a member has arrived at a generation; a member without a slot never arrives.
    fn arrival_state(&self, instance: usize, generation: u32) -> ArrivalState {
        self.barrier_page.slot(instance).map_or(ArrivalState::Away, |slot| slot.arrival_state(generation))
    }

    /// Returns the state of the barrier.
    pub fn look(&self) -> Look {
        let mut pending = self.barrier_page.barrier.pending();
        if pending.is_taken() {
            pending.arrived = 0;
        }
        let mut look = Look { pending, absent: 0, arriving: 0 };
        for (instance, _) in self.members() {
            match self.arrival_state(instance, pending.generation) {
                ArrivalState::Away => look.absent += 1,
                ArrivalState::Arriving => look.arriving += 1,
                ArrivalState::Arrived => {}
            }
        }
        look
    }

    /// Returns how many members must arrive at the barrier (0 before the first arrival), and the tids of members that
    /// have arrived.
    pub fn waiting(&self) -> (u16, Vec<u32>) {
        let pending = self.barrier_page.barrier.pending();
        let arrived = |(instance, _): &(usize, u32)| {
            pending.need != 0 && self.arrival_state(*instance, pending.generation) == ArrivalState::Arrived
        };
        (pending.need, self.members().filter(arrived).map(|(_, tid)| tid).collect())
    }

    /// Takes the arrivals out of the barrier: from now on members arrive through the daemon.
    pub fn take(&self) -> TakenArrivals {
        let pending = self.barrier_page.barrier.take();
        let mut taken = TakenArrivals { pending, arrived_members: Vec::new(), maybe_arrived: Vec::new() };
        if pending.need == 0 {
            return taken;
        }
        for (instance, tid) in self.members() {
            match self.arrival_state(instance, pending.generation) {
                ArrivalState::Away => {}
                ArrivalState::Arriving => taken.maybe_arrived.push(tid),
                ArrivalState::Arrived => taken.arrived_members.push(tid),
            }
        }
        taken
    }

    /// Releases the members whose arrivals were taken. `opened`: whether the barrier has opened; otherwise it has
    /// failed. The caller must then ring the doorbells of the [`GroupMemory::sleepers`].
    pub fn release(&self, opened: bool) {
        self.barrier_page.barrier.release(opened);
    }

    /// Lets members arrive here again.
    pub fn reopen(&self) {
        self.barrier_page.barrier.reopen();
    }

    /// Makes the barrier fail, if nobody has arrived since [`GroupMemory::look`] returned `pending`. The caller must
    /// then ring the doorbells of the [`GroupMemory::sleepers`].
    pub fn fail(&self, pending: Pending) -> bool {
        self.barrier_page.barrier.fail(pending)
    }

    /// Returns the tids of the members that sleep until their doorbells are rung.
    pub fn sleepers(&self) -> Vec<u32> {
        // Pair `park or open`: either we see the sleeper, or the sleeper sees our change.
        fence(Ordering::SeqCst);
        let asleep =
            |(instance, _): &(usize, u32)| self.barrier_page.slot(*instance).is_some_and(MemberSlot::is_asleep);
        self.members().filter(asleep).map(|(_, tid)| tid).collect()
    }
}
