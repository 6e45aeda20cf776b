//! Blocking waits: the lock is released while the thread sleeps.
use crate::process::Guard;
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_core::state_line::Call;
use pvm_task::{Step, Waiter, call_of};
use std::time::Duration;

/// Calls `attempt` until it returns a value; returns `None` on timeout. `call` says what is waited for. Before each attempt, takes in the messages that
/// have arrived.
#[inline(always)]
pub fn wait<T>(
    guard: &mut Guard,
    call: Call,
    limit: Option<Duration>,
    mut attempt: impl FnMut(&mut Guard) -> Option<T>,
) -> Option<T> {
    guard.progress();
    match attempt(guard) {
        None => wait_on(guard, call, limit, &mut |guard| {
            guard.progress();
            attempt(guard)
        }),
        found => found,
    }
}

/// Calls `attempt` until it returns a value; returns `None` on timeout. `attempt` itself takes in the messages that
/// have arrived.
#[inline(never)]
pub fn wait_on<T>(
    guard: &mut Guard,
    call: Call,
    limit: Option<Duration>,
    attempt: &mut dyn FnMut(&mut Guard) -> Option<T>,
) -> Option<T> {
    if limit == Some(Duration::ZERO) {
        return None;
    }
    if limit.is_some() {
        guard.task().expect_messages();
    }
    wait_by(guard, Waiter::new(call, limit), attempt)
}

/// As [`wait_on`], with that waiter.
pub fn wait_by<T>(
    guard: &mut Guard,
    mut waiter: Waiter,
    attempt: &mut dyn FnMut(&mut Guard) -> Option<T>,
) -> Option<T> {
    let found = loop {
        if let Some(value) = attempt(guard) {
            break Some(value);
        }
        match waiter.next(guard.task()) {
            Step::Again => {}
            Step::Sleep(sleep) => {
                let by = guard.unlocked(|| sleep.sleep());
                waiter.woke(guard.task(), by);
            }
            Step::Join(limit) => guard.wait_for_sleeper(limit),
            Step::TimedOut => break None,
        }
    };
    waiter.finish(guard.task());
    if guard.others_wait() {
        guard.wake_waiters();
    }
    found
}

/// Sends a request to the daemon and waits for the reply.
#[inline(never)]
pub fn request(guard: &mut Guard, request: Request) -> Result<Reply, Code> {
    guard.enrolled()?;
    let call = call_of(&request);
    let ticket = guard.task().begin(request)?;
    wait(guard, call, None, |guard| guard.task().poll_reply(&ticket)).unwrap_or(Err(Code::SysErr))
}

/// Returns the error for a reply whose kind does not belong to the request.
pub fn wrong_reply<T>(_: Reply) -> Result<T, Code> {
    Err(Code::BadMsg)
}
