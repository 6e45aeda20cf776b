//! Which thread may call the library, and how waiting threads hear of messages that another thread has taken in.
//!
//! The library's active buffers and context belong to the process, so a thread holds [`State::run`]'s lock while it
//! uses them. It never waits for this lock while it holds the interpreter's lock. As long as one thread uses the
//! library, it waits inside `pvm_trecv`, which is fastest. Once two threads have met, each waits for the descriptor of
//! `pvm_getfds` without the lock, and whoever ends a call rings all that wait, since the call may have taken in their
//! message.
use crate::raw::{self, Calls, Envelope};
use pyo3::prelude::*;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a thread waits before it looks for signals such as Ctrl-C.
pub const SLICE: Duration = Duration::from_millis(50);

/// The task of this process. A child of `fork` gets a new value.
pub struct State {
    calls: Mutex<Calls>,
    /// More than one thread, or an event loop, waits for messages.
    is_shared: AtomicBool,
    /// Events of the threads and loops that wait.
    waiting: Mutex<Vec<RawFd>>,
    /// Buffers whose Python objects are gone.
    unused: Mutex<Vec<i32>>,
}

/// The current value. It is locked only while the interpreter's lock is held, so a `fork` finds it unlocked.
static CURRENT: Mutex<Option<Arc<State>>> = Mutex::new(None);

/// Locks, whatever a thread that panicked has left.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns this process's state.
pub fn state(_: Python<'_>) -> Arc<State> {
    locked(&CURRENT).get_or_insert_with(State::new).clone()
}

/// Begins anew: for a child of `fork`, where a thread that no longer exists may hold the lock.
pub fn begin_anew(_: Python<'_>) {
    *locked(&CURRENT) = Some(State::new());
}

impl State {
    fn new() -> Arc<State> {
        Arc::new(State {
            calls: Mutex::new(Calls::new()),
            is_shared: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
            unused: Mutex::new(Vec::new()),
        })
    }

    /// From now on, no thread waits inside the library.
    pub fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// Calls `work` with the library, in a context if one is given. `except` is not rung.
    fn run_except<T>(&self, except: RawFd, context: Option<i32>, work: impl FnOnce(&mut Calls) -> T) -> Result<T, i32> {
        let mut calls = match self.calls.try_lock() {
            Ok(calls) => calls,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.share();
                locked(&self.calls)
            }
        };
        for mid in std::mem::take(&mut *locked(&self.unused)) {
            raw::freebuf(&mut calls, mid);
        }
        let before = context.map(|context| raw::setcontext(&mut calls, context));
        if let Some(code) = before.filter(|code| *code < 0) {
            return Err(code);
        }
        let result = work(&mut calls);
        if let Some(before) = before {
            raw::setcontext(&mut calls, before);
        }
        for descriptor in locked(&self.waiting).iter().filter(|descriptor| **descriptor != except) {
            raw::ring(*descriptor);
        }
        Ok(result)
    }

    /// Calls `work` with the library, in a context if one is given.
    pub fn run<T>(&self, context: Option<i32>, work: impl FnOnce(&mut Calls) -> T) -> Result<T, i32> {
        self.run_except(-1, context, work)
    }

    /// Frees a buffer at the next call. Never waits.
    pub fn discard(&self, mid: i32) {
        locked(&self.unused).push(mid);
    }

    /// Takes a message if it is there; does not ring `except`.
    pub fn look(&self, except: RawFd, context: Option<i32>, tid: i32, tag: i32) -> Result<Option<Envelope>, i32> {
        self.run_except(except, context, |calls| raw::take(calls, tid, tag, None))?
    }

    /// Takes a message; waits at most `limit`, and returns earlier if the caller should look for signals.
    pub fn wait(&self, limit: Duration, context: Option<i32>, tid: i32, tag: i32) -> Result<Option<Envelope>, i32> {
        if !self.is_shared.load(Ordering::Relaxed) {
            return self.run(context, |calls| raw::take(calls, tid, tag, Some(limit)))?;
        }
        let event = Event::new()?;
        // Registered first: whoever takes the message in after the look rings this event.
        locked(&self.waiting).push(event.0);
        let result = self.look_and_wait(&event, limit, context, tid, tag);
        locked(&self.waiting).retain(|descriptor| *descriptor != event.0);
        result
    }

    fn look_and_wait(
        &self,
        event: &Event,
        limit: Duration,
        context: Option<i32>,
        tid: i32,
        tag: i32,
    ) -> Result<Option<Envelope>, i32> {
        let (found, descriptor) = self.run_except(event.0, context, |calls| {
            // After `pvm_getfds`, senders ring the descriptor; before, a message between the two calls would not.
            let descriptor = raw::descriptor(calls);
            (raw::take(calls, tid, tag, None), descriptor)
        })?;
        if let Some(found) = found? {
            return Ok(Some(found));
        }
        raw::wait_for([descriptor?, event.0], limit);
        self.look(event.0, context, tid, tag)
    }

    /// Adds the event of a loop that waits.
    pub fn add(&self, event: RawFd) {
        self.share();
        locked(&self.waiting).push(event);
    }

    /// Removes the event of a loop.
    pub fn remove(&self, event: RawFd) {
        locked(&self.waiting).retain(|descriptor| *descriptor != event);
    }
}

/// The event of one waiting thread.
struct Event(RawFd);

impl Event {
    fn new() -> Result<Event, i32> {
        // PvmOutOfRes
        raw::event().map(Event).map_err(|_| -27)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        raw::close(self.0);
    }
}
