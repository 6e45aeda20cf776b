//! The clock that stamps entries of queues, so that a receiver can tell which of several senders was first.
//!
//! It is a hybrid logical clock (Kulkarni et al., 2014): a stamp is the time of the host, but always later than every
//! stamp that this task has taken before, and not earlier than those that it has given. So a message that another one has caused has the later stamp,
//! through any chain of messages and whatever the processors' counters show; and of independent messages the earlier
//! one has the earlier stamp, as exactly as those counters agree.
//!
//! The time is the processor's counter where every task can read it (x86-64, arm64), else the system's clock. All tasks
//! of a host have the same kind. Stamps wrap, and are compared by their difference: after 2^48 ticks (17 to 50 days)
//! a message that still waits may be taken for a later one.
use std::cell::Cell;
use std::rc::Rc;

/// The low bits of a stamp, which do not belong to the time: a queue keeps the other fields of an entry's first word
/// there ([`crate::queue`]).
pub const FIELDS: u64 = (1 << FIELD_BITS) - 1;
pub const FIELD_BITS: u32 = 15;
/// By how much a stamp may be ahead of this host's time, about a second. A task that is given stamps further ahead goes
/// by its own time again: the counter was set back, or another task lies, which must not stop the clock.
const AHEAD_MAX: u64 = 1 << 42;

/// The clock of one endpoint. Its queues share it.
#[derive(Debug, Default, Clone)]
pub struct Clock {
    /// The latest stamp that was given or taken.
    latest: Rc<Cell<u64>>,
}

impl Clock {
    /// Returns a stamp that is later than all that were taken, and not earlier than those that were given; its fields are 0.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        match self.next_by_time() {
            Some(now) => now,
            None => self.next_ahead(),
        }
    }

    /// Does what [`Clock::next`] does, unless the latest stamp is later than the time.
    #[inline(always)]
    pub fn next_by_time(&self) -> Option<u64> {
        let now = time() & !FIELDS;
        // A stamp that was taken has fields. So it is later than a stamp of the same time.
        if is_earlier(now, self.latest.get()) {
            return None;
        }
        self.latest.set(now);
        Some(now)
    }

    /// Returns a stamp that is later than all that were taken, and not earlier than those that were given, but whose time may be
    /// long ago. It is enough for the messages of a reader's only peer, and does not read the processor's counter.
    #[inline(always)]
    pub fn next_without_time(&self) -> u64 {
        let latest = self.latest.get();
        // A stamp that was given has no fields.
        let next = latest.wrapping_add(FIELDS) & !FIELDS;
        self.latest.set(next);
        next
    }

    /// Returns a stamp that is also later than all that were given.
    pub fn next_later(&self) -> u64 {
        self.latest.set(self.latest.get() | FIELDS);
        self.next()
    }

    /// Returns the next stamp if the latest one is later than the time.
    #[cold]
    fn next_ahead(&self) -> u64 {
        let (now, latest) = (time() & !FIELDS, self.latest.get());
        let next = if latest.wrapping_sub(now) > AHEAD_MAX { now } else { (latest | FIELDS).wrapping_add(1) };
        self.latest.set(next);
        next
    }

    /// Returns the latest stamp, without its fields.
    pub fn latest(&self) -> u64 {
        self.latest.get() & !FIELDS
    }

    /// Returns whether a stamp is at most about a second old, or later than the time.
    pub fn is_recent(&self, stamp: u64) -> bool {
        !is_earlier(stamp.wrapping_add(AHEAD_MAX), time())
    }

    /// Notes that an entry with this stamp was taken.
    #[inline(always)]
    pub fn observe(&self, stamp: u64) {
        if is_earlier(self.latest.get(), stamp) {
            self.latest.set(stamp);
        }
    }

    /// Notes that another task has done something before, of which this task has learnt otherwise than by an entry of a
    /// queue: stamps that follow are later than those that the other task had given.
    pub fn synchronize(&self) {
        fence();
        self.next();
    }
}

/// Returns whether one stamp is earlier than another.
#[inline(always)]
pub fn is_earlier(one: u64, other: u64) -> bool {
    (one.wrapping_sub(other) as i64) < 0
}

/// Returns the host's time. Its unit is such that the bits above [`FIELDS`] count some 10 ns.
#[inline(always)]
fn time() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: reads a counter that every x86-64 processor has.
    return unsafe { std::arch::x86_64::_rdtsc() } << 10;
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    return counter() << 15;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", loom)))]
    return system_time() << 12;
    // A model has no time: the clock is a purely logical one there.
    #[cfg(loom)]
    return 0;
}

/// Returns the counter of the system, in units of some 10 to 40 ns.
#[cfg(all(target_arch = "aarch64", not(loom)))]
#[inline(always)]
fn counter() -> u64 {
    let (count, frequency): (u64, u64);
    // SAFETY: reads two registers that Linux lets every program read.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) count, out(reg) frequency,
            options(nomem, nostack, preserves_flags));
    }
    // Processors since Armv8.6 count nanoseconds.
    if frequency > 500_000_000 { count >> 3 } else { count }
}

/// Returns the system's clock in nanoseconds.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", loom)))]
fn system_time() -> u64 {
    monotonic_ns()
}

/// Returns the monotonic clock, which is the same in all processes of the host, in nanoseconds.
#[cfg(not(loom))]
pub fn monotonic_ns() -> u64 {
    system_clock(libc::CLOCK_MONOTONIC).map_or(0, |time| time.as_nanos() as u64)
}

/// Reads a clock of the system.
#[cfg(not(loom))]
pub fn system_clock(id: libc::clockid_t) -> Option<std::time::Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one time.
    let read = unsafe { libc::clock_gettime(id, &raw mut time) } == 0;
    read.then(|| std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Makes sure that the time is not read before earlier loads and fences are complete, as processors otherwise may.
#[inline(always)]
pub fn fence() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: changes nothing.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    // SAFETY: changes nothing.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_stamp_is_earlier_than_the_one_before() {
        let clock = Clock::default();
        let mut before = clock.next();
        for round in 0..10_000 {
            let next = if round % 2 == 0 { clock.next() } else { clock.next_later() };
            assert!(!is_earlier(next, before) && next & FIELDS == 0);
            assert!(next != before || round % 2 == 0);
            before = next;
        }
    }

    #[test]
    fn a_stamp_is_later_than_those_that_were_taken() {
        let (one, other) = (Clock::default(), Clock::default());
        let mut stamp = one.next().wrapping_add(AHEAD_MAX / 2);
        for clock in [&other, &one, &other] {
            // An entry's fields are part of the word that is observed.
            clock.observe(stamp | FIELDS);
            let next = clock.next();
            assert!(is_earlier(stamp | FIELDS, next));
            stamp = next;
        }
    }

    #[test]
    fn an_earlier_stamp_does_not_set_the_clock_back() {
        let clock = Clock::default();
        let stamp = clock.next();
        clock.observe(stamp.wrapping_sub(1 << 40));
        assert_eq!(clock.latest(), stamp);
        clock.synchronize();
        assert!(is_earlier(stamp, clock.latest()));
    }

    #[test]
    fn a_stamp_from_the_far_future_does_not_stop_the_clock() {
        let clock = Clock::default();
        let now = clock.next();
        clock.observe(now.wrapping_add(AHEAD_MAX << 2));
        let next = clock.next();
        assert!(is_earlier(now, next) && is_earlier(next, now.wrapping_add(AHEAD_MAX)));
    }

    #[test]
    fn stamps_are_compared_across_their_end() {
        assert!(is_earlier(u64::MAX - 5, 3) && !is_earlier(3, u64::MAX - 5) && !is_earlier(7, 7));
    }
}
