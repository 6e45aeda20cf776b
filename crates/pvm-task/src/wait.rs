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
use crate::task::Task;
use std::time::Duration;

/// One blocking call's way of waiting: spin, yield, sleep.
pub struct Waiter(());

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
    pub fn new(_timeout: Option<Duration>) -> Waiter {
        todo!()
    }
    /// What to do now.
    pub fn next(&mut self, _task: &mut Task) -> Step {
        todo!()
    }
    /// After [`Sleep::sleep`].
    pub fn woke(&mut self, _task: &mut Task) {
        todo!()
    }
    /// The wait is over, whatever came of it. Must be called.
    pub fn finish(self, _task: &mut Task) {
        todo!()
    }
}

/// A sleep on the task's descriptors, free of the task itself.
pub struct Sleep(());

impl Sleep {
    /// Sleeps until something comes, a signal arrives, or the time is over.
    pub fn sleep(&self) {
        todo!()
    }
}
