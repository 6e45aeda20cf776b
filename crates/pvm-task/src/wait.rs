//! Waiting, split into steps so that the caller's lock need not be held while the thread sleeps.
//!
//! ```text
//! let mut waiter = Waiter::new(timeout);
//! loop {
//!     task.progress();                               // state locked
//!     if let Some(result) = attempt(&mut task) { waiter.finish(&mut task); break result }
//!     match waiter.next(&mut task) {
//!         Step::Again => {}
//!         Step::Sleep(sleep) => { unlock; let by = sleep.sleep(); lock; waiter.woke(&mut task, by) }
//!         Step::Join(timeout) => { wait on a condition variable that the sleeper signals }
//!         Step::TimedOut => { waiter.finish(&mut task); break nothing }
//!     }
//! }
//! ```
//!
//! Only one thread sleeps on the descriptors. The other threads wait for this thread on a condition variable of the
//! caller (`Join`). The caller wakes all of them when the sleeper ends its wait, and whenever it releases the lock and
//! [`Task::take_news`] returns true. If a call of another thread takes in messages or events, this call itself wakes
//! the sleeper.
use crate::control::Member;
use crate::task::Task;
use pvm_descriptor::OwnDescriptor;
use pvm_fmp::{Company, Spinner, doorbell};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The length of the first sleep of a task that holds much free memory. If nothing arrives meanwhile, the task frees
/// memory.
const TIDY_PAUSE: Duration = Duration::from_millis(100);
/// The longest single sleep of a task that is not enrolled.
const DISCONNECTED_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep; after it the task polls even if nobody has rung. Every peer has the task's doorbell, so a peer
/// that breaks the rules can silence the doorbell after another peer has rung it.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How long a thread relies on another thread that sleeps and does not wake up. That thread may have ended its wait
/// unnoticed: a signal handler can jump out of the wait.
const JOIN_MAX: Duration = SLEEP_MAX.saturating_mul(2);
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

enum Phase {
    /// The wait has not begun.
    New,
    Spinning(Spinner),
    /// Senders ring from now on. The caller tries once more before the sleep.
    Prepared,
    Asleep,
}

/// The wait of one blocking call: it spins, yields, sleeps.
pub struct Waiter {
    phase: Phase,
    patient: bool,
    /// Whether the wait sleeps at once.
    asleep: bool,
    deadline: Option<Instant>,
    /// When the wait slept first ([`crate::idleness`]).
    slept_at: Option<Instant>,
    /// If this thread relies on the sleep of another thread: the number of that sleep, and since when this thread
    /// relies on it.
    relied_on: Option<(u32, Instant)>,
}

/// What the caller does after an attempt that found nothing.
pub enum Step {
    /// Try again.
    Again,
    /// Release the lock, call [`Sleep::sleep`], acquire the lock, call [`Waiter::woke`], try again.
    Sleep(Sleep),
    /// Another thread sleeps already: wait until it signals, but at most for the given time.
    Join(Option<Duration>),
    /// The time is over.
    TimedOut,
}

impl Waiter {
    /// Begins a wait; `None` waits forever. Without a timeout the clock is not read.
    #[inline]
    pub fn new(timeout: Option<Duration>) -> Waiter {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Waiter { phase: Phase::New, patient: false, asleep: false, deadline, slept_at: None, relied_on: None }
    }

    /// Begins a wait for other members of a group.
    #[inline]
    pub fn for_members(timeout: Option<Duration>) -> Waiter {
        Waiter { patient: true, ..Waiter::new(timeout) }
    }

    /// Begins a wait for a datagram. A waiter that does not sleep does not notice its arrival.
    #[inline]
    pub fn asleep(timeout: Option<Duration>) -> Waiter {
        Waiter { asleep: true, ..Waiter::new(timeout) }
    }

    /// Returns whether the wait learns from its spins and yields, and later waits from it.
    fn learns(&self) -> bool {
        !self.patient && !self.asleep
    }

    /// Returns what to do now.
    #[inline]
    pub fn next(&mut self, task: &mut Task) -> Step {
        if self.deadline.is_none() {
            if let Phase::Spinning(spinner) = &mut self.phase {
                if task.pause(spinner) {
                    task.watch();
                    return Step::Again;
                }
            }
        }
        self.next_slow(task)
    }

    #[cold]
    fn next_slow(&mut self, task: &mut Task) -> Step {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Step::TimedOut;
        }
        match &mut self.phase {
            Phase::New | Phase::Asleep => {
                if let Some(member) = &mut task.member {
                    member.groups.waiters.forget_passed();
                    // What has come before this wait does not count.
                    member.direct.takes_in_fast();
                }
                let crowded = task.member.as_mut().is_none_or(Member::should_yield_core);
                let history = &mut task.state.waits;
                let spinner = match self.asleep {
                    true => Spinner::none(),
                    false if self.patient => Spinner::patient(crowded),
                    false => Spinner::new(crowded, history),
                };
                self.phase = Phase::Spinning(spinner);
                Step::Again
            }
            Phase::Spinning(spinner) => {
                if self.deadline.is_some() && task.pause(spinner) {
                    return Step::Again;
                }
                let takes_in_fast = task.member.as_mut().is_some_and(|member| member.direct.takes_in_fast());
                if takes_in_fast && spinner.extend() {
                    return Step::Again;
                }
                if !self.patient && !self.asleep {
                    task.state.waits.learn(spinner, true);
                }
                if let Some(parks) = task.parks_of_another() {
                    let (seen, since) = self.relied_on.unwrap_or((parks, Instant::now()));
                    if seen != parks || since.elapsed() < JOIN_MAX {
                        self.relied_on = Some((parks, if seen == parks { since } else { Instant::now() }));
                        return Step::Join(Some(left.map_or(JOIN_MAX, |left| left.min(JOIN_MAX))));
                    }
                }
                task.prepare_park();
                self.phase = Phase::Prepared;
                Step::Again
            }
            Phase::Prepared if task.member.as_ref().is_some_and(Member::must_not_sleep) => {
                task.unpark();
                self.phase = Phase::New;
                Step::Again
            }
            Phase::Prepared => {
                self.phase = Phase::Asleep;
                task.state.store.tidy();
                let left = Waiter::leave_time_to_tidy(task, left);
                let untold = task.member.as_mut().and_then(|member| member.note_sleep(&mut self.slept_at));
                let left = [left, untold].into_iter().flatten().min();
                Step::Sleep(task.park(left))
            }
        }
    }

    /// If the task holds much free memory, frees this memory once nothing has arrived for [`TIDY_PAUSE`]. Until then,
    /// limits the sleep to `TIDY_PAUSE`. The time without arrivals is measured across calls, since a program may wait
    /// with many short timeouts.
    fn leave_time_to_tidy(task: &mut Task, left: Option<Duration>) -> Option<Duration> {
        let store = &mut task.state.store;
        let has_excess = |member: &&mut Member| member.endpoint.has_excess() || store.has_excess();
        let Some(member) = task.member.as_mut().filter(has_excess) else { return left };
        if member.idle_since.get_or_insert_with(Instant::now).elapsed() >= TIDY_PAUSE {
            member.endpoint.tidy();
            store.free_excess();
            return left;
        }
        Some(left.map_or(TIDY_PAUSE, |left| left.min(TIDY_PAUSE)))
    }

    /// Ends the sleep. Must be called after [`Sleep::sleep`], with what that returned.
    pub fn woke(&mut self, task: &mut Task, by: WokenBy) {
        task.unpark_by(by);
        self.phase = Phase::Asleep;
    }

    /// Ends the wait, whatever its result. Must be called.
    #[inline]
    pub fn finish(self, task: &mut Task) {
        if self.slept_at.is_some() && !task.another_thread_sleeps() {
            task.member.as_mut().map(Member::note_awake);
        }
        match &self.phase {
            Phase::Prepared if !task.another_thread_sleeps() => task.unpark(),
            Phase::Spinning(spinner) if self.learns() => task.state.waits.learn(spinner, false),
            _ => {}
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
    const ANY: WokenBy = WokenBy { bell: true, thread: true, release: true, socket: true, closed: false };
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
    fn should_yield_core(&mut self) -> bool {
        std::mem::take(&mut self.relay_pending) || self.endpoint.crowded()
    }

    /// Returns whether the task must poll again before it sleeps. Either messages have arrived since it prepared to
    /// sleep, and one poll does not take in all of them; or a handler that ran meanwhile has slept itself, so that
    /// senders do not ring any more.
    fn must_not_sleep(&self) -> bool {
        self.may_have_more || !self.endpoint.is_parked()
    }
}

impl Task {
    /// Lets a little time of a wait pass. Returns `false` if the task should sleep.
    #[inline]
    fn pause(&mut self, spinner: &mut Spinner) -> bool {
        Company(self.member.as_ref().map(|member| &member.endpoint)).pause(spinner, &mut self.state.waits)
    }

    /// Spins for a moment, or until a message arrives.
    #[inline]
    fn watch(&self) {
        let Some(member) = &self.member else { return };
        if !member.groups.waiters.watch(member.endpoint.crowded()) {
            member.endpoint.watch();
        }
    }

    /// Returns whether a waiter is about to sleep. If so, senders ring this task, and a message that the waiter misses
    /// will wake it.
    #[inline]
    pub fn is_about_to_sleep(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.endpoint.is_parked())
    }

    /// Returns whether another thread sleeps for this one too.
    pub(crate) fn another_thread_sleeps(&self) -> bool {
        self.parks_of_another().is_some()
    }

    /// Returns the number of parks if another thread sleeps.
    fn parks_of_another(&self) -> Option<u32> {
        let parker = &self.member.as_ref()?.parker;
        parker.sleeper.filter(|sleeper| *sleeper != ThreadMark::own()).map(|_| parker.parks)
    }

    /// Makes the task believe that another thread sleeps, for single-threaded tests.
    #[doc(hidden)]
    pub fn take_sleeper_for_another(&mut self) {
        if let Some(sleeper) = self.member.as_mut().and_then(|member| member.parker.sleeper.as_mut()) {
            *sleeper = ThreadMark::OTHER;
        }
    }

    /// Makes senders ring this task from now on.
    pub(crate) fn prepare_park(&mut self) {
        if let Some(member) = &mut self.member {
            member.may_have_more = false;
            member.endpoint.prepare_park();
            member.groups.waiters.prepare_park();
        }
    }

    /// Leaves the task in the state of a sleeping task, so that senders ring it. Used for programs that watch the
    /// task's descriptors themselves. If there are messages of which the program does not know, whichever call has taken
    /// them in, rings the task's own doorbell.
    pub fn arm(&mut self) {
        // If another thread sleeps, that thread has prepared the task already, and a doorbell that was rung for that
        // thread must stay rung.
        if !self.another_thread_sleeps() {
            self.unpark();
            self.prepare_park();
        }
        if let Some(member) = &mut self.member {
            member.request_socket_poll();
        }
        self.take_in();
        let has_arrived = self.state.store.queue.has_news(&self.state.store.table);
        let may_arrive = self.member.as_mut().is_some_and(|member| member.fabric.arm(member.direct.watched()));
        if has_arrived || may_arrive {
            if let Some(member) = &self.member {
                doorbell::ring(member.endpoint.bell());
            }
        }
    }

    /// Returns the sleep that the caller begins when its last try has found nothing.
    pub(crate) fn park(&mut self, timeout: Option<Duration>) -> Sleep {
        let disconnected = Some(timeout.map_or(DISCONNECTED_PAUSE, |time| time.min(DISCONNECTED_PAUSE)));
        let Some(member) = &mut self.member else {
            return Sleep { timeout: disconnected, ..Sleep::default() };
        };
        // If the process cannot open the descriptors, nothing can wake the task: it sleeps only for a short time.
        let Ok(descriptors) = member.sleep_descriptors() else {
            if member.has_closed_descriptors() {
                member.lose_daemon();
            }
            let pause = Some(timeout.map_or(TIDY_PAUSE, |time| time.min(TIDY_PAUSE)));
            return Sleep { timeout: pause, ..Sleep::default() };
        };
        member.parker.sleeper = Some(ThreadMark::own());
        member.parker.parks = member.parker.parks.wrapping_add(1);
        let descriptor_limited = member.daemon.as_ref().is_some_and(|socket| socket.is_descriptor_limited());
        let writing = member.daemon.as_ref().is_some_and(|socket| socket.wants_write()) && !descriptor_limited;
        let ignore_socket = member.is_draining();
        let longest = if descriptor_limited { pvm_link::DESCRIPTOR_PAUSE } else { SLEEP_MAX };
        let longest = member.direct.pause().map_or(longest, |pause| pause.min(longest));
        let longest = member.fabric.prepare_sleep(member.direct.watched()).map_or(longest, |pause| pause.min(longest));
        let timeout = Some(timeout.map_or(longest, |time| time.min(longest)));
        let hears = member.releases.are_awaited();
        Sleep { descriptors: Some(descriptors), writing, ignore_socket, hears, timeout }
    }

    /// Ends a sleep, or, if the task has not slept, the preparation by [`Task::prepare_park`].
    pub(crate) fn unpark(&mut self) {
        self.unpark_by(WokenBy::ANY);
    }

    /// Ends a sleep that `by` has ended.
    pub(crate) fn unpark_by(&mut self, by: WokenBy) {
        if let Some(member) = &mut self.member {
            // A message on a link may have ended the sleep.
            member.direct.expect_messages();
            let was_parked = member.endpoint.is_parked();
            member.endpoint.unpark_unrung();
            let closed = by.closed || (by.bell && was_parked && !member.silence_bell());
            self.state.news |= member.groups.waiters.unpark();
            if by.release && member.releases.are_awaited() {
                self.state.news |= member.releases.read();
            }
            if closed {
                // The next sleep makes new ones, from those that are still open.
                member.parker.forget_descriptors();
            }
            if member.parker.sleeper.take().is_some() {
                if by.thread {
                    member.parker.clear_wake();
                }
                if by.socket {
                    member.request_socket_poll();
                }
            }
        }
    }
}
