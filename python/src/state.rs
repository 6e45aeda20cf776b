//! Which thread may call the library, and how waiting threads hear of messages that another thread has taken in.
//!
//! The library's active buffers and context belong to the process, so a thread holds [`State::run`]'s lock while it
//! uses them. It never waits for this lock while it holds the interpreter's lock. As long as one thread uses the
//! library, it waits inside `pvm_trecv`, which is fastest. Once two threads have met, each waits for the descriptor of
//! `pvm_getfds` without the lock, and whoever ends a call rings all that wait, since the call may have taken in their
//! message.
use crate::raw::{self, Calls};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long the process's first thread waits before it looks for signals such as Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);
/// The same for other threads. Python runs handlers in them only if a program in C has started Python there.
const SLICE_OF_OTHER_THREADS: Duration = Duration::from_secs(1);

/// Returns how long the calling thread waits before it looks for signals.
pub fn slice() -> Duration {
    let made = SLICE_HERE.get().unwrap_or_else(|| if raw::is_first_thread() { SLICE } else { SLICE_OF_OTHER_THREADS });
    SLICE_HERE.set(Some(made));
    made
}

/// Takes a message: one that is there if no time is given, otherwise one that comes within that time.
pub trait Take<T>: Fn(&mut Calls, Option<Duration>) -> Result<Option<T>, i32> {}
impl<T, F: Fn(&mut Calls, Option<Duration>) -> Result<Option<T>, i32>> Take<T> for F {}

/// The task of this process. A child of `fork` gets a new value.
pub struct State {
    calls: Mutex<Calls>,
    /// More than one thread, or an event loop, waits for messages.
    is_shared: AtomicBool,
    /// Events of the threads and loops that wait.
    waiting: Mutex<Vec<RawFd>>,
    /// Buffers whose Python objects are gone, and whether there are any.
    unused: Mutex<Vec<i32>>,
    has_unused: AtomicBool,
}

thread_local! {
    /// The event of a thread that has waited.
    static EVENT: RefCell<Option<Rc<Event>>> = const { RefCell::new(None) };
    /// What [`slice`] returns: to ask the kernel for each message would take as long as a short message.
    static SLICE_HERE: Cell<Option<Duration>> = const { Cell::new(None) };
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
    // The parent uses the same event.
    EVENT.take();
    // The thread that called `fork` is the first one of the child.
    SLICE_HERE.set(None);
}

impl State {
    fn new() -> Arc<State> {
        Arc::new(State {
            calls: Mutex::new(Calls::new()),
            is_shared: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
            unused: Mutex::new(Vec::new()),
            has_unused: AtomicBool::new(false),
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
        if self.has_unused.swap(false, Ordering::Relaxed) {
            for mid in std::mem::take(&mut *locked(&self.unused)) {
                raw::freebuf(&mut calls, mid);
            }
        }
        let before = context.map(|context| raw::setcontext(&mut calls, context));
        if let Some(code) = before.filter(|code| *code < 0) {
            return Err(code);
        }
        let result = work(&mut calls);
        if let Some(before) = before {
            raw::setcontext(&mut calls, before);
        }
        // A thread that waits has shared before it registered its event, and looks once more afterwards.
        if self.is_shared.load(Ordering::Relaxed) {
            for descriptor in locked(&self.waiting).iter().filter(|descriptor| **descriptor != except) {
                raw::ring(*descriptor);
            }
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
        self.has_unused.store(true, Ordering::Relaxed);
    }

    /// Takes a message by `take` if it is there; does not ring `except`.
    pub fn look<T>(&self, except: RawFd, context: Option<i32>, take: &impl Take<T>) -> Result<Option<T>, i32> {
        self.run_except(except, context, |calls| take(calls, None))?
    }

    /// Takes a message by `take`; waits at most `limit`, and returns earlier if the caller should look for signals.
    pub fn wait<T>(&self, limit: Duration, context: Option<i32>, take: &impl Take<T>) -> Result<Option<T>, i32> {
        if !self.is_shared.load(Ordering::Relaxed) {
            // With the lock, so another thread's first call waits as long.
            return self.run(context, |calls| take(calls, Some(limit.min(SLICE))))?;
        }
        let event = Event::of_this_thread()?;
        // Registered first: whoever takes the message in after the look rings this event.
        self.add(event.0);
        let result = self.look_and_wait(&event, limit, context, take);
        self.remove(event.0);
        result
    }

    fn look_and_wait<T>(
        &self,
        event: &Event,
        limit: Duration,
        context: Option<i32>,
        take: &impl Take<T>,
    ) -> Result<Option<T>, i32> {
        let (found, descriptor) = self.run_except(event.0, context, |calls| {
            // After `pvm_getfds`, senders ring the descriptor; before, a message between the two calls would not.
            let descriptor = raw::descriptor(calls);
            (take(calls, None), descriptor)
        })?;
        if let Some(found) = found? {
            return Ok(Some(found));
        }
        if raw::wait_for([descriptor?, event.0], limit)[1] {
            raw::silence(event.0);
        }
        self.look(event.0, context, take)
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
    fn of_this_thread() -> Result<Rc<Event>, i32> {
        EVENT.with_borrow_mut(|event| {
            if let Some(event) = event {
                return Ok(event.clone());
            }
            // PvmOutOfRes
            let made = Rc::new(raw::event().map(Event).map_err(|_| -27)?);
            *event = Some(made.clone());
            Ok(made)
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        raw::close(self.0);
    }
}
