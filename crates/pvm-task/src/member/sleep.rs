//! The sleep of a thread on the task's descriptors. Only one thread sleeps; it does so for all threads of the task.
use super::Member;
use pvm_descriptor::OwnDescriptor;
use pvm_fmp::doorbell;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep; after it the task polls even if nobody has rung. Every peer has the task's doorbell, so a peer
/// that breaks the rules can silence the doorbell after another peer has rung it.
pub(crate) const SLEEP_MAX: Duration = Duration::from_secs(5);
/// The longest sleep of a task whose descriptors the process cannot open.
const UNWOKEN_PAUSE: Duration = Duration::from_millis(100);
/// The number of descriptors on which the task itself sleeps.
const OWN_DESCRIPTORS_MAX: usize = 5;

/// The descriptors on which a thread sleeps. The sleeper keeps them open.
struct Descriptors {
    /// The daemon's socket; `None` if the daemon is gone.
    socket: Option<OwnDescriptor>,
    bell: OwnDescriptor,
    /// An epoll descriptor of all direct links.
    links: Option<OwnDescriptor>,
    /// The socket on which the task hears releases of barriers.
    releases: Option<OwnDescriptor>,
    /// A doorbell. Other threads of this process ring it to wake the sleeper.
    wake: OwnDescriptor,
}

/// What tells threads of this process apart that live at the same time, without a system call: where a variable of the
/// thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ThreadMark(usize);

impl ThreadMark {
    /// No thread's mark.
    const OTHER: ThreadMark = ThreadMark(0);

    /// Returns the mark of the calling thread.
    fn own() -> ThreadMark {
        thread_local! {
            static PLACE: u8 = const { 0 };
        }
        ThreadMark(PLACE.with(|place| (&raw const *place).addr()))
    }
}

/// Parks the thread that sleeps for all threads of the task.
#[derive(Default)]
pub(crate) struct Parker {
    descriptors: Option<Arc<Descriptors>>,
    /// The thread that sleeps. Only other threads rely on its sleep: the same thread may park again, in a signal
    /// handler or after a jump out of its wait.
    sleeper: Option<ThreadMark>,
    /// How often a thread has parked.
    parks: u32,
}

impl Parker {
    /// Wakes the sleeper. The next sleeper makes new descriptors, since the task's descriptors have changed.
    pub fn forget_descriptors(&mut self) {
        self.wake();
        self.descriptors = None;
    }

    /// Wakes the sleeper if there is one.
    #[inline]
    pub fn wake(&self) {
        if self.sleeper.is_some() {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if let Some(descriptors) = &self.descriptors {
            doorbell::ring(descriptors.wake.as_fd());
        }
    }

    /// Empties the doorbell that [`Parker::wake`] has rung.
    fn clear_wake(&self) {
        if let Some(descriptors) = &self.descriptors {
            doorbell::empty(descriptors.wake.as_fd());
        }
    }
}

/// The descriptors that may have ended a sleep; only these have to be emptied.
#[derive(Clone, Copy)]
pub struct WokenBy {
    /// The doorbell, which other tasks and the daemon ring.
    bell: bool,
    /// Another thread of this task.
    thread: bool,
    /// The socket on which the task hears releases of barriers.
    release: bool,
    /// The daemon's socket.
    socket: bool,
    /// The program has closed one of the descriptors.
    closed: bool,
}

impl WokenBy {
    /// Any of the descriptors.
    pub(crate) const ANY: WokenBy = WokenBy { bell: true, thread: true, release: true, socket: true, closed: false };
}

/// A sleep on the task's descriptors. It does not borrow the task.
#[derive(Default)]
pub struct Sleep {
    descriptors: Option<Arc<Descriptors>>,
    writing: bool,
    /// Whether the sleep ignores the daemon's socket, because no frames are taken in now.
    ignore_socket: bool,
    /// Whether a release of a barrier ends the sleep.
    hears: bool,
    timeout: Option<Duration>,
}

impl Sleep {
    /// Returns a sleep that nothing but the time ends.
    pub(crate) fn limited(timeout: Option<Duration>, limit: Duration) -> Sleep {
        Sleep { timeout: Some(timeout.map_or(limit, |time| time.min(limit))), ..Sleep::default() }
    }

    /// Sleeps until a message, a frame or a signal arrives or the time is over. Allocates and frees no memory: a signal
    /// handler that runs during the sleep may call the library, so the handler must not interrupt the allocator.
    pub fn sleep(&self) -> WokenBy {
        let Some(descriptors) = &self.descriptors else {
            self.poll(&mut []);
            return WokenBy::ANY;
        };
        let (own, count) = self.own(descriptors);
        let mut list = own.map(|(descriptor, wanted)| PollFd::from_borrowed_fd(descriptor.unchecked(), wanted));
        let woken = self.poll(&mut list[..count]);
        if woken { self.woken_by(&own[..count], &list[..count]) } else { WokenBy::ANY }
    }

    /// Sleeps on other descriptors too. Returns which of `others` are ready, and what has ended the sleep.
    pub(crate) fn sleep_with(&self, others: &[BorrowedFd<'_>]) -> (Vec<bool>, WokenBy) {
        let mut list: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let own = self.descriptors.as_ref().map(|descriptors| self.own(descriptors));
        let own = own.as_ref().map_or(&[][..], |(own, count)| &own[..*count]);
        list.extend(own.iter().map(|(descriptor, wanted)| PollFd::from_borrowed_fd(descriptor.unchecked(), *wanted)));
        let woken = self.poll(&mut list);
        let (others, ready) = list.split_at(others.len());
        let by = if woken && !own.is_empty() { self.woken_by(own, ready) } else { WokenBy::ANY };
        (others.iter().map(|fd| woken && !fd.revents().is_empty()).collect(), by)
    }

    /// Returns which descriptors have ended the sleep.
    fn woken_by(&self, own: &[(&OwnDescriptor, PollFlags)], list: &[PollFd<'_>]) -> WokenBy {
        let is_ready = |place: usize| !list[place].revents().is_empty();
        // If nothing is ready, the time is over.
        let late = !(0..list.len()).any(is_ready);
        // A file of the program in the place of a descriptor may end each sleep, or none. A doorbell that has rung is checked
        // when it is emptied.
        let is_asked = |place: &usize| late || (*place > 0 && is_ready(*place));
        let closed = (0..list.len()).filter(is_asked).any(|place| !own[place].0.is_open());
        WokenBy {
            bell: is_ready(0),
            thread: is_ready(1),
            release: self.hears && is_ready(2),
            // The socket is the last one, if it is there.
            socket: late || is_ready(list.len() - 1),
            closed,
        }
    }

    /// Returns the descriptors of the task, and what to wait for, at the beginning of the list, and their number.
    fn own<'a>(&self, descriptors: &'a Descriptors) -> ([(&'a OwnDescriptor, PollFlags); OWN_DESCRIPTORS_MAX], usize) {
        let mut list = [(&descriptors.bell, PollFlags::IN); OWN_DESCRIPTORS_MAX];
        let mut count = 1;
        let mut add = |descriptor: &'a OwnDescriptor, wanted| {
            list[count] = (descriptor, wanted);
            count += 1;
        };
        add(&descriptors.wake, PollFlags::IN);
        if let Some(releases) = descriptors.releases.as_ref().filter(|_| self.hears) {
            add(releases, PollFlags::IN);
        }
        if let Some(links) = &descriptors.links {
            add(links, PollFlags::IN);
        }
        if let Some(socket) = descriptors.socket.as_ref().filter(|_| !self.ignore_socket) {
            add(socket, if self.writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN });
        }
        (list, count)
    }

    /// Sleeps. Returns `false` if a signal ended the sleep.
    fn poll(&self, list: &mut [PollFd<'_>]) -> bool {
        let timeout = self.timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        rustix::event::poll(list, timeout.as_ref()).is_ok()
    }
}

impl Member {
    /// Returns the descriptors to sleep on.
    fn sleep_descriptors(&mut self) -> io::Result<Arc<Descriptors>> {
        if let Some(descriptors) = &self.parker.descriptors {
            return Ok(descriptors.clone());
        }
        let copy = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned().map(OwnDescriptor::from);
        let descriptors = Arc::new(Descriptors {
            socket: self.daemon.as_ref().map(|socket| copy(socket.as_fd())).transpose()?,
            bell: copy(self.endpoint.bell())?,
            links: self.direct.watched().map(copy).transpose()?,
            releases: self.releases.socket().map(OwnDescriptor::try_clone).transpose()?,
            wake: doorbell::new()?.into(),
        });
        self.parker.descriptors = Some(descriptors.clone());
        Ok(descriptors)
    }

    /// Empties the doorbell, through the sleeper's copy of its descriptor. Returns `false` if the program has closed that copy.
    fn silence_bell(&mut self) -> bool {
        let copy = self.parker.descriptors.as_ref().map(|descriptors| &descriptors.bell);
        if let Some(copy) = copy.filter(|copy| copy.is_open()) {
            doorbell::empty(copy.unchecked());
            return true;
        }
        let is_copy_closed = copy.is_some();
        if !self.endpoint.empty_bell() {
            self.lose_daemon();
        }
        !is_copy_closed
    }

    /// Returns whether the wait should yield the core at once: there are more tasks than cores, or the daemon relays a
    /// long message of this task. The answer to such a message takes long, and the daemon needs a core.
    pub fn should_yield_core(&mut self) -> bool {
        std::mem::take(&mut self.relay_pending) || self.endpoint.crowded()
    }

    /// Returns whether the task must poll again before it sleeps. Either messages have arrived since it prepared to
    /// sleep, and one poll does not take in all of them; or a handler that ran meanwhile has slept itself, so that
    /// senders do not ring any more.
    pub fn must_not_sleep(&self) -> bool {
        self.may_have_more || !self.endpoint.is_parked()
    }

    /// Returns the number of parks if another thread sleeps.
    pub fn parks_of_another(&self) -> Option<u32> {
        self.parker.sleeper.filter(|sleeper| *sleeper != ThreadMark::own()).map(|_| self.parker.parks)
    }

    /// Makes the task believe that another thread sleeps, for single-threaded tests.
    pub fn take_sleeper_for_another(&mut self) {
        if let Some(sleeper) = &mut self.parker.sleeper {
            *sleeper = ThreadMark::OTHER;
        }
    }

    /// Makes senders ring this task from now on.
    pub fn prepare_park(&mut self) {
        self.may_have_more = false;
        self.endpoint.prepare_park();
        self.groups.waiters.prepare_park();
    }

    /// Returns the sleep that the caller begins when its last try has found nothing.
    pub fn park(&mut self, timeout: Option<Duration>) -> Sleep {
        // If the process cannot open the descriptors, nothing can wake the task: it sleeps only for a short time.
        let Ok(descriptors) = self.sleep_descriptors() else {
            if self.has_closed_descriptors() {
                self.lose_daemon();
            }
            return Sleep::limited(timeout, UNWOKEN_PAUSE);
        };
        self.parker.sleeper = Some(ThreadMark::own());
        self.parker.parks = self.parker.parks.wrapping_add(1);
        let descriptor_limited = self.daemon.as_ref().is_some_and(|socket| socket.is_descriptor_limited());
        let writing = self.daemon.as_ref().is_some_and(|socket| socket.wants_write()) && !descriptor_limited;
        let ignore_socket = self.is_draining();
        let longest = if descriptor_limited { pvm_link::DESCRIPTOR_PAUSE } else { SLEEP_MAX };
        let longest = self.direct.pause().map_or(longest, |pause| pause.min(longest));
        let longest = self.fabric.prepare_sleep(self.direct.watched()).map_or(longest, |pause| pause.min(longest));
        let timeout = Some(timeout.map_or(longest, |time| time.min(longest)));
        let hears = self.releases.are_awaited();
        Sleep { descriptors: Some(descriptors), writing, ignore_socket, hears, timeout }
    }

    /// Ends a sleep that `by` has ended. Returns whether something has arrived for another thread.
    pub fn unpark_by(&mut self, by: WokenBy) -> bool {
        // A message on a link may have ended the sleep.
        self.direct.expect_messages();
        let was_parked = self.endpoint.is_parked();
        self.endpoint.unpark_unrung();
        let closed = by.closed || (by.bell && was_parked && !self.silence_bell());
        let mut has_news = self.groups.waiters.unpark();
        if by.release && self.releases.are_awaited() {
            has_news |= self.releases.read();
        }
        if closed {
            // The next sleep makes new ones, from those that are still open.
            self.parker.forget_descriptors();
        }
        if self.parker.sleeper.take().is_some() {
            if by.thread {
                self.parker.clear_wake();
            }
            if by.socket {
                self.request_socket_poll();
            }
        }
        has_news
    }
}
