//! Waiting, split into steps so that the caller's lock need not be held while the thread sleeps.
//!
//! ```text
//! let mut waiter = Waiter::new(call, timeout);
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
use super::Task;
use super::publish::Waiting;
use crate::member::{Member, SLEEP_MAX, Sleep, WokenBy};
use pvm_core::state_line::Call;
use pvm_fmp::{Company, Spinner, doorbell};
use std::time::{Duration, Instant};

/// The length of the first sleep of a task that holds much free memory. If nothing arrives meanwhile, the task frees
/// memory.
const TIDY_PAUSE: Duration = Duration::from_millis(100);
/// The longest single sleep of a task that is not enrolled.
const DISCONNECTED_PAUSE: Duration = Duration::from_secs(1);
/// How long a thread relies on another thread that sleeps and does not wake up. That thread may have ended its wait
/// unnoticed: a signal handler can jump out of the wait.
const JOIN_MAX: Duration = SLEEP_MAX.saturating_mul(2);

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
    /// The call, for the state line.
    call: Call,
    patient: bool,
    /// Whether the wait sleeps at once.
    asleep: bool,
    deadline: Option<Instant>,
    /// When the wait slept first ([`Member::note_sleep`]).
    slept_at: Option<Instant>,
    /// Whether the state line tells of this wait.
    is_told: bool,
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
    /// Begins a wait of that call; `None` waits forever. Without a timeout the clock is not read.
    #[inline]
    pub fn new(call: Call, timeout: Option<Duration>) -> Waiter {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (phase, slept_at, relied_on) = (Phase::New, None, None);
        Waiter { phase, call, patient: false, asleep: false, deadline, slept_at, is_told: false, relied_on }
    }

    /// Begins a wait for other members of a group.
    #[inline]
    pub fn for_members(call: Call, timeout: Option<Duration>) -> Waiter {
        Waiter { patient: true, ..Waiter::new(call, timeout) }
    }

    /// Begins a wait for a datagram. A waiter that does not sleep does not notice its arrival.
    #[inline]
    pub fn asleep(call: Call, timeout: Option<Duration>) -> Waiter {
        Waiter { asleep: true, ..Waiter::new(call, timeout) }
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
                self.tell(task);
                Step::Sleep(task.park(left))
            }
        }
    }

    /// Tells in the state line that this wait sleeps next.
    fn tell(&mut self, task: &mut Task) {
        let (call, is_timed, is_told) = (self.call, self.deadline.is_some(), self.is_told);
        let since = *self.slept_at.get_or_insert_with(Instant::now);
        self.is_told = true;
        task.publish_wait(&Waiting { call, is_timed, since, is_told });
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
        task.publish_awake();
        task.unpark_by(by);
        self.phase = Phase::Asleep;
    }

    /// Ends the wait, whatever its result. Must be called.
    #[inline]
    pub fn finish(self, task: &mut Task) {
        if let Some(since) = self.slept_at.filter(|_| !task.another_thread_sleeps()) {
            task.member.as_mut().map(Member::note_awake);
            task.publish_end(since);
        }
        match &self.phase {
            Phase::Prepared if !task.another_thread_sleeps() => task.unpark(),
            Phase::Spinning(spinner) if self.learns() => task.state.waits.learn(spinner, false),
            _ => {}
        }
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
        self.member.as_ref().and_then(Member::parks_of_another)
    }

    /// Makes the task believe that another thread sleeps, for single-threaded tests.
    #[doc(hidden)]
    pub fn take_sleeper_for_another(&mut self) {
        self.member.as_mut().map(Member::take_sleeper_for_another);
    }

    /// Makes senders ring this task from now on.
    pub(crate) fn prepare_park(&mut self) {
        self.member.as_mut().map(Member::prepare_park);
    }

    /// Leaves the task in the state of a sleeping task, so that senders ring it. Used for programs that watch the
    /// task's descriptors themselves. Rings the task's own doorbell if messages have been taken in that the program has not
    /// seen.
    pub fn arm(&mut self) {
        // If another thread sleeps, that thread has prepared the task already, and a doorbell that was rung for that
        // thread must stay rung.
        if !self.another_thread_sleeps() {
            self.unpark();
            self.prepare_park();
        }
        self.request_socket_poll();
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
        match &mut self.member {
            Some(member) => member.park(timeout),
            None => Sleep::limited(timeout, DISCONNECTED_PAUSE),
        }
    }

    /// Ends a sleep, or, if the task has not slept, the preparation by [`Task::prepare_park`].
    pub(crate) fn unpark(&mut self) {
        self.unpark_by(WokenBy::ANY);
    }

    /// Ends a sleep that `by` has ended.
    pub(crate) fn unpark_by(&mut self, by: WokenBy) {
        if let Some(member) = &mut self.member {
            self.state.news |= member.unpark_by(by);
        }
    }
}
