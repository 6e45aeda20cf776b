//! Waiting for something, with the lock given free while the thread sleeps.
use crate::lock;
use crate::process::Entry;
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_task::{Step, Waiter};
use std::time::Duration;

/// Tries until `attempt` gives something; `None` when the time is over first. Each attempt comes
/// after a look at what has arrived.
#[inline(always)]
pub fn wait<T>(
    entry: &mut Entry,
    limit: Option<Duration>,
    mut attempt: impl FnMut(&mut Entry) -> Option<T>,
) -> Option<T> {
    entry.progress();
    match attempt(entry) {
        None => wait_on(entry, limit, &mut |entry| {
            entry.progress();
            attempt(entry)
        }),
        found => found,
    }
}

/// Tries until `attempt` gives something; `None` when the time is over first. The attempt itself
/// looks at what has arrived.
#[inline(never)]
pub fn wait_on<T>(
    entry: &mut Entry,
    limit: Option<Duration>,
    attempt: &mut dyn FnMut(&mut Entry) -> Option<T>,
) -> Option<T> {
    if limit == Some(Duration::ZERO) {
        return None;
    }
    wait_by(entry, Waiter::new(limit), attempt)
}

/// [`wait_on`] in the way of that waiter.
pub fn wait_by<T>(
    entry: &mut Entry,
    mut waiter: Waiter,
    attempt: &mut dyn FnMut(&mut Entry) -> Option<T>,
) -> Option<T> {
    let place = 0u8;
    let outer = lock::wait_at((&raw const place).addr());
    let found = loop {
        if let Some(value) = attempt(entry) {
            break Some(value);
        }
        match waiter.next(entry.task()) {
            Step::Again => {}
            Step::Sleep(sleep) => {
                entry.outside(|| sleep.sleep());
                waiter.woke(entry.task());
            }
            Step::Join(limit) => entry.join(limit),
            Step::TimedOut => break None,
        }
    };
    waiter.finish(entry.task());
    lock::wait_at(outer);
    if entry.others_wait() {
        entry.wake_joined();
    }
    found
}

/// Asks the daemon and waits for its answer.
#[inline(never)]
pub fn request(entry: &mut Entry, request: Request) -> Result<Reply, Code> {
    entry.enrolled()?;
    let ticket = entry.task().begin(request)?;
    wait(entry, None, |entry| entry.task().poll_reply(&ticket)).unwrap_or(Err(Code::SysErr))
}

/// For an answer of a kind that the request does not have.
pub fn unexpected<T>(_: Reply) -> Result<T, Code> {
    Err(Code::BadMsg)
}
