//! Waiting, split so that the state need not stay locked while the thread sleeps.
//!
//! ```text
//! let mut waiter = Waiter::new(timeout);
//! loop {
//!     task.progress();                               // state locked
//!     if let Some(result) = attempt(&mut task) { waiter.finish(&mut task); break result }
//!     match waiter.next(&mut task) {
//!         Step::Again => {}
//!         Step::Sleep(sleep) => { unlock; sleep.sleep(); lock; waiter.woke(&mut task) }
//!         Step::Join(timeout) => { wait on a condition variable that `task.take_news()` fires }
//!         Step::TimedOut => { waiter.finish(&mut task); break nothing }
//!     }
//! }
//! ```
//!
//! Only one thread sleeps on the descriptors; the others wait for it on a condition variable of
//! the caller (`Join`). After each lock-holding stretch in which [`Task::take_news`] says true,
//! and when the sleeper ends its wait, the caller wakes all of them. A call by another thread that
//! brings news while one sleeps wakes the sleeper by itself.
use crate::control::Member;
use crate::task::Task;
use pvm_fmp::descriptor::above_standard;
use pvm_fmp::{Spinner, Wait};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::thread::{Pid, gettid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first sleep of a task that holds much free memory; when nothing comes, it gives memory back.
const TIDY_PAUSE: Duration = Duration::from_millis(100);
/// How long a task without a daemon and without messages sleeps at a time.
const LONELY_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep until the task looks again by itself. Every peer has its doorbell, so one that breaks
/// the rules can swallow what another has rung.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How long a thread relies on another one that sleeps and does not wake up. Its wait may be over without a word:
/// the handler of a signal has jumped out of it.
const RELIANCE_MAX: Duration = SLEEP_MAX.saturating_mul(2);
/// The descriptors of the task itself on which it sleeps.
const OWN_DESCRIPTORS_MAX: usize = 4;

/// The descriptors on which a thread sleeps, kept open by the sleeper.
struct Descriptors {
    /// Absent when the daemon is gone.
    socket: Option<OwnedFd>,
    bell: OwnedFd,
    /// Stands for all direct links.
    links: Option<OwnedFd>,
    /// Rung by other threads of this process.
    nudge: OwnedFd,
}

/// Where a thread of the task sleeps.
#[derive(Default)]
pub(crate) struct Bed {
    descriptors: Option<Arc<Descriptors>>,
    /// Who sleeps. When that thread comes to sleep again, it does so from the handler of a signal, or has jumped out
    /// of its wait: then the bed is its own to use.
    sleeper: Option<Pid>,
    /// How often somebody lay down.
    naps: u32,
}

impl Bed {
    /// The descriptors have changed.
    pub fn clear(&mut self) {
        self.nudge();
        self.descriptors = None;
    }

    /// Wakes the sleeper, if there is one.
    #[inline]
    pub fn nudge(&self) {
        if self.sleeper.is_some() {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        if let Some(descriptors) = &self.descriptors {
            // Fails only when the counter is full; then it is readable all the same.
            let _ = rustix::io::write(&descriptors.nudge, &1u64.to_ne_bytes());
        }
    }

    fn hush(&self) {
        if let Some(descriptors) = &self.descriptors {
            let _ = rustix::io::read(&descriptors.nudge, &mut [0u8; 8]);
        }
    }

    fn make(
        &mut self,
        socket: Option<BorrowedFd<'_>>,
        bell: BorrowedFd<'_>,
        links: Option<BorrowedFd<'_>>,
    ) -> io::Result<Arc<Descriptors>> {
        if let Some(descriptors) = &self.descriptors {
            return Ok(descriptors.clone());
        }
        let descriptors = Arc::new(Descriptors {
            socket: socket.map(|socket| socket.try_clone_to_owned()).transpose()?,
            bell: bell.try_clone_to_owned()?,
            links: links.map(|links| links.try_clone_to_owned()).transpose()?,
            nudge: above_standard(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?,
        });
        self.descriptors = Some(descriptors.clone());
        Ok(descriptors)
    }
}

enum Phase {
    /// Not begun.
    New,
    Spinning(Spinner),
    /// Senders ring from now on; one more try before sleeping.
    Prepared,
    Asleep,
}

/// One blocking call's way of waiting: spin, yield, sleep.
pub struct Waiter {
    phase: Phase,
    patient: bool,
    deadline: Option<Instant>,
    /// Which sleep of another thread this one relies on, and since when.
    relies: Option<(u32, Instant)>,
}

/// What to do after an attempt that found nothing.
pub enum Step {
    /// Try again.
    Again,
    /// Give the state free, [`Sleep::sleep`], take it again, [`Waiter::woke`], try again.
    Sleep(Sleep),
    /// Another thread sleeps already: wait until it has news, at most that long.
    Join(Option<Duration>),
    /// The time is over.
    TimedOut,
}

impl Waiter {
    /// A wait begins; `None` waits for ever. The clock is not read without a timeout.
    #[inline]
    pub fn new(timeout: Option<Duration>) -> Waiter {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Waiter { phase: Phase::New, patient: false, deadline, relies: None }
    }

    /// A wait for other members of a group.
    #[inline]
    pub fn for_members(timeout: Option<Duration>) -> Waiter {
        Waiter { patient: true, ..Waiter::new(timeout) }
    }

    /// What to do now.
    #[inline]
    pub fn next(&mut self, task: &mut Task) -> Step {
        if self.deadline.is_none() {
            if let Phase::Spinning(spinner) = &mut self.phase {
                if spinner.pause() == Wait::Again {
                    task.watch();
                    return Step::Again;
                }
            }
        }
        self.next_slowly(task)
    }

    #[cold]
    fn next_slowly(&mut self, task: &mut Task) -> Step {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Step::TimedOut;
        }
        match &mut self.phase {
            Phase::New | Phase::Asleep => {
                if let Some(member) = &mut task.member {
                    member.groups.forget_passed();
                }
                let crowded = task.member.as_mut().is_none_or(Member::leaves_the_core);
                let spinner = if self.patient { Spinner::patient(crowded) } else { Spinner::new(crowded) };
                self.phase = Phase::Spinning(spinner);
                Step::Again
            }
            Phase::Spinning(spinner) => {
                if self.deadline.is_some() && spinner.pause() == Wait::Again {
                    return Step::Again;
                }
                if let Some(naps) = task.nap_of_another() {
                    let (seen, since) = self.relies.unwrap_or((naps, Instant::now()));
                    if seen != naps || since.elapsed() < RELIANCE_MAX {
                        self.relies = Some((naps, if seen == naps { since } else { Instant::now() }));
                        return Step::Join(Some(left.map_or(RELIANCE_MAX, |left| left.min(RELIANCE_MAX))));
                    }
                }
                task.prepare_park();
                self.phase = Phase::Prepared;
                Step::Again
            }
            Phase::Prepared if task.member.as_ref().is_some_and(Member::cannot_sleep) => {
                task.rise();
                self.phase = Phase::New;
                Step::Again
            }
            Phase::Prepared => {
                self.phase = Phase::Asleep;
                task.state.store.tidy();
                let left = Waiter::leave_time_to_tidy(task, left);
                Step::Sleep(task.lie_down(left))
            }
        }
    }

    /// A task that holds much free memory sleeps shortly, and gives it back once nothing has come
    /// for so long, in however many calls: a program may wait by many short timeouts.
    fn leave_time_to_tidy(task: &mut Task, left: Option<Duration>) -> Option<Duration> {
        let Some(member) = task.member.as_mut().filter(|member| member.endpoint.has_excess()) else { return left };
        if member.idle_since.get_or_insert_with(Instant::now).elapsed() >= TIDY_PAUSE {
            member.endpoint.tidy();
            return left;
        }
        Some(left.map_or(TIDY_PAUSE, |left| left.min(TIDY_PAUSE)))
    }

    /// After [`Sleep::sleep`].
    pub fn woke(&mut self, task: &mut Task) {
        task.rise();
        self.phase = Phase::Asleep;
    }

    /// The wait is over, whatever came of it. Must be called.
    #[inline]
    pub fn finish(self, task: &mut Task) {
        if matches!(self.phase, Phase::Prepared) && !task.someone_sleeps() {
            task.rise();
        }
    }
}

/// A sleep on the task's descriptors, free of the task itself.
pub struct Sleep {
    descriptors: Option<Arc<Descriptors>>,
    writing: bool,
    /// What the daemon says has to wait.
    deaf: bool,
    timeout: Option<Duration>,
}

impl Sleep {
    /// Sleeps until something comes, a signal arrives, or the time is over. Takes no memory and gives none
    /// back: the handler of a signal that arrives now may call the library, and must not have interrupted
    /// the allocator.
    pub fn sleep(&self) {
        let Some(descriptors) = &self.descriptors else {
            self.poll(&mut []);
            return;
        };
        let (mut list, count) = self.own(descriptors);
        self.poll(&mut list[..count]);
    }

    /// Sleeps on other descriptors too; says which of them are ready.
    pub(crate) fn sleep_with(&self, others: &[BorrowedFd<'_>]) -> Vec<bool> {
        let mut list: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        if let Some(descriptors) = &self.descriptors {
            let (own, count) = self.own(descriptors);
            list.extend(own.into_iter().take(count));
        }
        let success = self.poll(&mut list);
        list[..others.len()].iter().map(|fd| success && !fd.revents().is_empty()).collect()
    }

    /// The descriptors of the task, in the first places of the list, and how many they are.
    fn own<'a>(&self, descriptors: &'a Descriptors) -> ([PollFd<'a>; OWN_DESCRIPTORS_MAX], usize) {
        let mut list = [const { None }; OWN_DESCRIPTORS_MAX];
        let mut count = 0;
        let mut add = |descriptor: &'a OwnedFd, wanted| {
            list[count] = Some(PollFd::new(descriptor, wanted));
            count += 1;
        };
        add(&descriptors.bell, PollFlags::IN);
        add(&descriptors.nudge, PollFlags::IN);
        if let Some(links) = &descriptors.links {
            add(links, PollFlags::IN);
        }
        if let Some(socket) = descriptors.socket.as_ref().filter(|_| !self.deaf) {
            add(socket, if self.writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN });
        }
        (list.map(|place| place.unwrap_or(PollFd::new(&descriptors.bell, PollFlags::empty()))), count)
    }

    /// Whether it ended otherwise than by a signal.
    fn poll(&self, list: &mut [PollFd<'_>]) -> bool {
        let timeout = self.timeout.map(|time| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        rustix::event::poll(list, timeout.as_ref()).is_ok()
    }
}

impl Member {
    /// Whether others have a better use for the core than a wait: there are more of them than cores, or
    /// the daemon carries a long message of ours. Its answer cannot come soon, and a core that seems
    /// busy is not given to those who carry it.
    fn leaves_the_core(&mut self) -> bool {
        std::mem::take(&mut self.carried) || self.endpoint.crowded()
    }

    /// Whether something has come since the task was about to sleep: one look does not take everything.
    /// Or a handler that ran meanwhile has slept itself: then nobody rings any more.
    fn cannot_sleep(&self) -> bool {
        self.stirring || !self.endpoint.is_parked()
    }
}

impl Task {
    /// Passes a moment, or less when a message comes.
    #[inline]
    fn watch(&self) {
        let Some(member) = &self.member else { return };
        if !member.groups.watch(member.endpoint.crowded()) {
            member.endpoint.watch();
        }
    }

    /// Whether a waiter is about to sleep: what it does not see now, it sees when it is rung.
    #[inline]
    pub fn is_about_to_sleep(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.endpoint.is_parked())
    }

    /// Whether another thread sleeps for this one too.
    pub(crate) fn someone_sleeps(&self) -> bool {
        self.nap_of_another().is_some()
    }

    fn nap_of_another(&self) -> Option<u32> {
        let bed = &self.member.as_ref()?.bed;
        bed.sleeper.filter(|sleeper| *sleeper != gettid()).map(|_| bed.naps)
    }

    /// For tests, which have one thread: who sleeps is another thread from now on.
    #[doc(hidden)]
    pub fn take_sleeper_for_another(&mut self) {
        if let Some(sleeper) = self.member.as_mut().and_then(|member| member.bed.sleeper.as_mut()) {
            *sleeper = Pid::INIT;
        }
    }

    /// Senders ring from now on.
    pub(crate) fn prepare_park(&mut self) {
        if let Some(member) = &mut self.member {
            member.stirring = false;
            member.endpoint.prepare_park();
            member.groups.lie_down();
        }
    }

    /// Leaves the task as if it slept, for programs that watch its descriptors themselves: senders
    /// ring. What has come meanwhile rings too, for the program has not heard of it.
    pub fn arm(&mut self) {
        // Who sleeps has done so, and what has rung is for him to hear.
        if !self.someone_sleeps() {
            self.rise();
            self.prepare_park();
        }
        if let Some(member) = &mut self.member {
            member.look_at_socket = true;
        }
        if self.take_in() > 0 || self.state.store.queue.first_unseen().is_some() {
            if let Some(member) = &self.member {
                pvm_fmp::doorbell::pull(member.endpoint.bell());
            }
        }
    }

    /// The descriptors to sleep on, after a last look.
    pub(crate) fn lie_down(&mut self, timeout: Option<Duration>) -> Sleep {
        let lonely = Some(timeout.map_or(LONELY_PAUSE, |time| time.min(LONELY_PAUSE)));
        let Some(member) = &mut self.member else {
            return Sleep { descriptors: None, writing: false, deaf: false, timeout: lonely };
        };
        let socket = member.link.as_ref().map(|link| link.as_fd());
        // Where there is no room for descriptors, short naps take the place of being woken.
        let Ok(descriptors) = member.bed.make(socket, member.endpoint.bell().as_fd(), member.direct.watched()) else {
            let nap = Some(timeout.map_or(TIDY_PAUSE, |time| time.min(TIDY_PAUSE)));
            return Sleep { descriptors: None, writing: false, deaf: false, timeout: nap };
        };
        member.bed.sleeper = Some(gettid());
        member.bed.naps = member.bed.naps.wrapping_add(1);
        let crowded = member.link.as_ref().is_some_and(|link| link.is_crowded());
        let writing = member.link.as_ref().is_some_and(|link| link.wants_write()) && !crowded;
        let deaf = member.direct.waits_for.is_some();
        let longest = if crowded { pvm_link::CROWDED_PAUSE } else { SLEEP_MAX };
        let timeout = Some(timeout.map_or(longest, |time| time.min(longest)));
        Sleep { descriptors: Some(descriptors), writing, deaf, timeout }
    }

    /// After sleeping, or when it was not needed after all.
    pub(crate) fn rise(&mut self) {
        if let Some(member) = &mut self.member {
            member.endpoint.unpark();
            self.state.news |= member.groups.rise();
            if member.bed.sleeper.take().is_some() {
                member.bed.hush();
                member.look_at_socket = true;
            }
        }
    }
}
