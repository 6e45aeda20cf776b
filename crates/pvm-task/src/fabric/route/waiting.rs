//! How a task waits for its fabric.
use super::{FabricRoute, State};
use crate::fabric::Wait;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The longest time that a sender sleeps before it looks again.
const REST_MAX: Duration = Duration::from_millis(1);
/// The last messages of a peer that has ended have arrived when nothing has arrived for this time; while a body is read,
/// for the second time.
const QUIET: Duration = Duration::from_millis(20);
const READING: Duration = Duration::from_secs(2);
/// A sleeping task that has had no long message for this time keeps no memory for the next ones.
const BODIES_KEPT_TIME: Duration = Duration::from_millis(100);
/// How often a task looks for the last messages of a peer.
const DRAIN_PAUSE: Duration = Duration::from_millis(2);
/// How the fabric's descriptor is told from the sockets of direct links, which bear the tids of tasks.
const FABRIC_MARK: u64 = u64::MAX;

/// The time between two looks counts as at most this much of a [`Patience`].
const LOOK_MAX: Duration = Duration::from_millis(100);

/// How long a loop still polls. While the process does not run it cannot look, so that time hardly counts.
pub(crate) struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    pub fn new(limit: Duration, now: Instant) -> Patience {
        Patience { left: limit, looked: now }
    }

    /// Called before each look. Returns whether it has waited for so long.
    pub fn is_over(&mut self, now: Instant) -> bool {
        let since = now.duration_since(std::mem::replace(&mut self.looked, now));
        self.left = self.left.saturating_sub(since.min(LOOK_MAX));
        self.left.is_zero()
    }
}

/// Returns whether nothing more arrives from a peer whose end became known `begun` ago and from which the last message
/// arrived `since` ago. `is_reading`: whether a body is read from its memory.
pub(super) fn is_drained(begun: Duration, since: Duration, is_reading: bool) -> bool {
    if is_reading { since >= READING } else { since.min(begun) >= QUIET }
}

/// Waits in this way, but not long.
pub(super) fn pause(wait: Wait, descriptor: Option<BorrowedFd<'_>>) {
    match (wait, descriptor) {
        (Wait::Not, _) => std::thread::yield_now(),
        (Wait::Descriptor, Some(descriptor)) => {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(REST_MAX.subsec_nanos()) };
            // After an error or a signal the caller looks again in any case.
            let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout));
        }
        (Wait::Descriptor, None) => std::thread::sleep(REST_MAX),
        (Wait::For(time), _) => std::thread::sleep(time.min(REST_MAX)),
    }
}

impl FabricRoute {
    /// Lets the descriptor of all links watch that of the fabric, or not.
    pub(super) fn watch(&mut self, epoll: Option<BorrowedFd<'_>>, wanted: bool) {
        let State::Open(fabric) = &self.state else { return };
        let (Some(epoll), Some(descriptor)) = (epoll, fabric.endpoint().descriptor()) else { return };
        if wanted != self.is_watched {
            let done = match wanted {
                true => epoll::add(epoll, descriptor, EventData::new_u64(FABRIC_MARK), EventFlags::IN),
                false => epoll::delete(epoll, descriptor),
            };
            self.is_watched = done.is_ok() == wanted;
        }
    }

    /// Prepares a sleep of the program on the descriptor of all links, without the library. Returns whether the program
    /// must not sleep: something has arrived, or the provider has no descriptor.
    pub fn arm(&mut self, epoll: Option<BorrowedFd<'_>>) -> bool {
        let is_used = self.links.iter().any(|link| !link.is_gone);
        let State::Open(fabric) = &mut self.state else { return false };
        if !is_used {
            return false;
        }
        let is_busy = fabric.how_to_wait(Instant::now()) == Wait::Not;
        self.watch(epoll, true);
        is_busy || !self.is_watched || self.is_draining()
    }

    /// Prepares a sleep on the task's descriptors, after the last poll has found nothing. `epoll`: the descriptor of all
    /// links. Returns the longest time that the task may sleep, if that is limited.
    pub fn prepare_sleep(&mut self, epoll: Option<BorrowedFd<'_>>) -> Option<Duration> {
        let State::Open(fabric) = &mut self.state else { return None };
        let kept_for = self.bodies_used_at.map(|used| BODIES_KEPT_TIME.saturating_sub(used.elapsed()));
        if kept_for == Some(Duration::ZERO) {
            self.bodies_used_at = None;
            fabric.forget_spare_bodies();
            self.links.iter_mut().for_each(|link| link.queue.pool.clear());
        }
        let wait = match self.links.iter().any(|link| !link.is_gone) {
            true => fabric.how_to_wait(Instant::now()),
            false => Wait::For(Duration::MAX),
        };
        // A descriptor that is always readable must not wake the task.
        self.watch(epoll, wait == Wait::Descriptor);
        let limit = match wait {
            Wait::Not => Some(Duration::ZERO),
            Wait::Descriptor if self.is_watched => None,
            Wait::Descriptor => Some(REST_MAX),
            Wait::For(Duration::MAX) => None,
            Wait::For(time) => Some(time),
        };
        let drain = self.draining.map(|_| DRAIN_PAUSE);
        [limit, drain, kept_for.filter(|time| !time.is_zero())].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_over_after_its_time_but_not_because_the_process_did_not_run() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut patience = Patience::new(Duration::from_millis(2500), begin);
        assert_eq!((1..).find(|look| patience.is_over(at(look * 50))), Some(50));
        let mut patience = Patience::new(Duration::from_millis(2500), begin);
        assert!(!patience.is_over(at(5_000)) && !patience.is_over(at(60_000)));
        assert_eq!((1..).find(|look| patience.is_over(at(60_000 + look * 50))), Some(46));
    }

    #[test]
    fn the_messages_of_a_dead_peer_are_awaited_as_long_as_they_arrive() {
        let time = Duration::from_millis;
        assert!(!is_drained(time(0), time(0), false));
        assert!(!is_drained(time(500), time(19), false));
        assert!(is_drained(time(20), time(20), false));
        assert!(!is_drained(time(500), time(500), true) && is_drained(time(2500), time(2000), true));
    }
}
