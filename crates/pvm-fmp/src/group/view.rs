//! A task's side of a group's memory.
use super::barrier::{self, Arrival, Barrier, Failed, MemberSlot, Refused};
use super::layout::{BROKEN, BarrierPage, CLOSED, FROZEN, GONE, MEMBERS_MAX, Mapped, MembershipPage, present};
use crate::sync::{Ordering, ReadOnlyLoad, fence};
use rustix::mm::ProtFlags;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

/// How often the membership page is read again while the daemon is changing it. There is a limit because the daemon may
/// die during a change.
const RETRIES_MAX: u32 = 10_000;

/// A group as a task sees it.
pub struct GroupView {
    membership: Mapped<MembershipPage>,
    barrier_page: Option<Mapped<BarrierPage>>,
    /// The number of the next barrier (its generation), as far as this member knows.
    guess: Cell<u32>,
}

impl GroupView {
    /// Maps the pages that arrived with `ToTask::Group`: the membership page, and for members the barrier page.
    pub fn open(membership: OwnedFd, barrier_page: Option<OwnedFd>) -> io::Result<GroupView> {
        let membership = Mapped::open(&membership, ProtFlags::READ)?;
        let barrier_page = barrier_page
            .map(|barrier_page| Mapped::open(&barrier_page, ProtFlags::READ | ProtFlags::WRITE))
            .transpose()?;
        Ok(GroupView { membership, barrier_page, guess: Cell::new(0) })
    }

    /// Returns whether this task has the barrier page, as members do.
    pub fn has_barrier_page(&self) -> bool {
        self.barrier_page.is_some()
    }
    /// Returns how many members there are.
    #[inline]
    pub fn size(&self) -> u32 {
        self.membership.size.load_relaxed()
    }
    /// Returns the number of changes of membership; wraps.
    #[inline]
    pub fn version(&self) -> u32 {
        // Pair `membership changed`.
        self.membership.version.0.load_acquire()
    }
    /// Returns whether the group is frozen: its members do not change any more.
    pub fn is_frozen(&self) -> bool {
        // Pair `group state`.
        self.membership.state.load_acquire() & FROZEN != 0
    }
    /// Returns whether members of the frozen group have gone, so that no barrier of the group can open any more.
    pub fn is_broken(&self) -> bool {
        // Pair `group state`.
        self.membership.state.load_acquire() & BROKEN != 0
    }
    /// Returns whether the group has ended. A new group of the same name may exist: ask the daemon.
    #[inline]
    pub fn is_closed(&self) -> bool {
        // Pair `group state`.
        self.membership.state.load_acquire() & CLOSED != 0
    }
    /// Returns the highest instance in use, plus one.
    #[inline]
    pub fn places(&self) -> u32 {
        self.membership.places.load_relaxed().min(MEMBERS_MAX as u32)
    }
    /// Returns the member of that instance number.
    #[inline]
    pub fn tid_of(&self, instance: u32) -> Option<u32> {
        present(self.word_of(instance)?)
    }

    #[inline]
    fn word_of(&self, instance: u32) -> Option<u32> {
        Some(self.membership.tids.0.get(instance as usize)?.load_relaxed())
    }

    /// Returns the instance number of that member.
    pub fn instance_of(&self, tid: u32) -> Option<u32> {
        (0..self.places()).find(|instance| tid != 0 && self.tid_of(*instance) == Some(tid))
    }

    /// Returns the instance and the tid of each member; the whole list is as it was at one moment.
    pub fn members(&self) -> Vec<(u32, u32)> {
        self.read(present)
    }

    /// Returns all members as they were when the group was frozen, also those that have gone since.
    pub fn frozen_members(&self) -> Vec<(u32, u32)> {
        self.read(|word| Some(word & !GONE).filter(|tid| *tid != 0))
    }

    fn read(&self, tid: impl Fn(u32) -> Option<u32>) -> Vec<(u32, u32)> {
        let read_now = || {
            let member = |instance| Some((instance, tid(self.word_of(instance)?)?));
            (0..self.places()).filter_map(member).collect()
        };
        for _ in 0..RETRIES_MAX {
            let version = self.version();
            if version % 2 == 0 {
                let members = read_now();
                // Pair `membership changed`: what was read before belongs to this version, or the version has changed.
                fence(Ordering::Acquire);
                if self.membership.version.0.load_relaxed() == version {
                    return members;
                }
            }
            std::thread::yield_now();
        }
        // The daemon has died during a change, and nothing that the caller does with this list can succeed.
        read_now()
    }

    #[inline]
    fn is_of_no_use(&self) -> bool {
        self.membership.state.load_relaxed() & (BROKEN | CLOSED) != 0
    }

    /// Returns the barrier, and the slot of the member of that instance number. Panics for an instance that no group
    /// can have.
    #[inline]
    fn own(&self, instance: u32) -> Option<(&Barrier, &MemberSlot)> {
        self.barrier_page
            .as_ref()
            .and_then(|barrier_page| Some((&barrier_page.barrier, barrier_page.slot(instance as usize)?)))
    }

    /// Arrives at the barrier as the member of that instance number. `need` must be at least 1; no group ever has more
    /// than [`MEMBERS_MAX`] members, so all larger needs mean the same.
    #[inline]
    pub fn arrive(&self, instance: u32, need: u32) -> Result<Arrival, Refused> {
        let (barrier, slot) = self.own(instance).ok_or(Refused::NotMember)?;
        debug_assert!(need > 0);
        if self.is_of_no_use() {
            return Err(Refused::Closed);
        }
        let need = u16::try_from(need).unwrap_or(u16::MAX);
        let mut arrival = barrier.arrive(slot, need, self.guess.get())?;
        self.guess.set(arrival.generation.wrapping_add(1));
        if !arrival.last {
            // Pair `arrive or change`.
            barrier::fence_after_exchange();
            if self.is_of_no_use() {
                return Err(Refused::Closed);
            }
            arrival.short = self.membership.size.load_relaxed() < u32::from(need);
        }
        Ok(arrival)
    }

    /// Returns the result of a barrier; `None` while it is open for arrivals.
    #[inline]
    pub fn passed(&self, generation: u32) -> Option<Result<(), Failed>> {
        match &self.barrier_page {
            Some(barrier_page) => barrier_page.barrier.passed(generation),
            None => Some(Err(Failed)),
        }
    }

    /// Notes that the member is about to sleep, in the barrier or while it waits for another member's message. Other
    /// members and the daemon then ring this member when the barrier opens or fails; the daemon also does so when a
    /// member leaves. The caller checks once more after this, then sleeps.
    pub fn prepare_park(&self, instance: u32) {
        if let Some((barrier, slot)) = self.own(instance) {
            barrier.prepare_park(slot);
        }
    }

    /// Notes that the member is awake.
    pub fn unpark(&self, instance: u32) {
        if let Some((_, slot)) = self.own(instance) {
            slot.unpark();
        }
    }

    /// Returns the tids of members that may be asleep: the last arrival of a generation must ring them.
    #[inline]
    pub fn sleepers(&self, generation: u32) -> Vec<u32> {
        match &self.barrier_page {
            Some(barrier_page) if barrier_page.barrier.has_sleepers(generation) => self.asleep(barrier_page),
            _ => Vec::new(),
        }
    }

    #[cold]
    fn asleep(&self, barrier_page: &Mapped<BarrierPage>) -> Vec<u32> {
        let asleep = |instance: &u32| barrier_page.slot(*instance as usize).is_some_and(MemberSlot::is_asleep);
        (0..self.places()).filter(asleep).filter_map(|instance| self.tid_of(instance)).collect()
    }
}
