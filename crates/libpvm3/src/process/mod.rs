//! The state of the process, behind one lock.
//!
//! Every call of the interface goes through [`enter`], which returns a [`Guard`]. Through the guard, the caller borrows
//! the state for short times. While code of the user runs ([`Guard::user_code`]), the lock is held but nothing is
//! borrowed, so that this code may call the library again.
mod at_exit;
pub mod lock;
pub mod postponed;
pub mod takeover;
mod watch;

pub use watch::Watch;

use crate::lists::Lists;
use crate::messages::log_enroll_failure;
use crate::{at_start, data, trace_mode};
use lock::Acquired;
use pvm_core::codes::Code;
use pvm_core::events::MASK_EMPTY;
use pvm_task::{EnrollError, Environment, Task};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A user's matching function (`pvm_recvf`).
pub type Matcher = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

/// How many times a process tries to enroll while a daemon does not answer.
const ENROLL_TRIES: u32 = 5;
/// The pause between two tries.
const ENROLL_PAUSE: Duration = Duration::from_secs(1);

/// The server roles that this task has registered for. Each call of `pvm_reg_hoster`, `pvm_reg_tasker` or
/// `pvm_reg_tracer` toggles one role.
#[derive(Default)]
pub struct Registered {
    pub hoster: bool,
    pub tasker: bool,
    pub tracer: bool,
}

/// The state of the process.
pub struct State {
    /// The task.
    pub task: Task,
    /// The user's matching function.
    pub matcher: Option<Matcher>,
    /// The stream to which output of children is printed; null if it is not printed.
    pub output: *mut libc::FILE,
    /// Runs message handlers and prints output of children; absent if there are no handlers and nothing is printed. If
    /// it is there, even sends take in messages.
    pub callbacks: Option<fn(&mut Guard)>,
    /// Whether no call may take the fast path, see [`State::choose_path`].
    pub ordinary_only: bool,
    /// The descriptor that `pvm_getfds` has returned, if it was called.
    pub watched: Option<Watch>,
    /// The name under which the task will be listed.
    pub name: Vec<u8>,
    /// Scratch memory for the shares of the other members in a reduction.
    pub scratch: Vec<u128>,
    /// The arrays that calls have returned; the program may still point to them.
    pub lists: Lists,
    /// The server roles that this task has registered for.
    pub registered: Registered,
    /// Whether an outer call is sending traces.
    pub sending_traces: bool,
    /// Whether the spawner of this process requests its traces and the process has not yet tried to enroll for that.
    spawned_to_trace: bool,
    /// The process id.
    process: u32,
    /// Whether a daemon has started the process; such a daemon ends the process when the task ends.
    spawned: bool,
}

impl State {
    fn new(environment: &Environment) -> State {
        // From a static library the linker takes only objects that are referenced, so refer to these two.
        std::hint::black_box((&at_exit::AT_END, &at_start::AT_START));
        let mut task = Task::new(environment);
        task.watch_trace_settings(trace_mode::invalidate);
        let masked = |mask: &Vec<u8>| mask.iter().any(|character| *character != MASK_EMPTY);
        State {
            task,
            matcher: None,
            output: std::ptr::null_mut(),
            callbacks: None,
            ordinary_only: false,
            watched: None,
            name: Vec::new(),
            scratch: Vec::new(),
            lists: Lists::default(),
            registered: Default::default(),
            sending_traces: false,
            spawned_to_trace: environment.cookie.is_some() && environment.trace_mask.as_ref().is_some_and(masked),
            process: std::process::id(),
            spawned: environment.cookie.is_some(),
        }
    }

    /// Chooses the path of calls. Must be called after a change of what decides. All calls take the ordinary path if the
    /// program has message handlers, collects the output of children, watches the epoll descriptor of the library, or
    /// has set `PvmBackoff`: then even a send takes in messages.
    pub fn choose_path(&mut self) {
        self.ordinary_only = self.callbacks.is_some() || self.watched.is_some() || self.task.backs_off();
    }
}

struct Process {
    state: UnsafeCell<Option<State>>,
}
// SAFETY: the state is reached by the holder of the process lock only.
unsafe impl Sync for Process {}

static PROCESS: Process = Process { state: UnsafeCell::new(None) };
/// Whether the holder of the lock runs code of the user.
static USER_CODE: AtomicBool = AtomicBool::new(false);
/// How many threads wait for the sleeper, the one thread that sleeps on the descriptors; changed under the lock.
static WAITERS: AtomicU32 = AtomicU32::new(0);
/// A futex word that changes when the threads that wait for the sleeper must retry their calls.
static WAKE_COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns the state of the process.
///
/// # Safety
/// The process has acquired its lock before and holds it now, and the state is not borrowed.
#[inline(always)]
pub unsafe fn state<'a>() -> &'a mut State {
    // SAFETY: `renew` filled it when the lock was acquired first; the rest is the caller's promise.
    unsafe { (*PROCESS.state.get()).as_mut().unwrap_unchecked() }
}

/// Holds the lock of the process while a call runs.
pub struct Guard {
    /// Whether code of the user has made this call inside another call; if so, the outer guard keeps the lock.
    nested: bool,
    not_send: PhantomData<*mut ()>,
}

/// Acquires the lock. Returns `None` in a signal handler that has interrupted a call of the library: there the library
/// cannot be used.
#[inline(always)]
pub fn enter() -> Option<Guard> {
    let guard = Guard { nested: false, not_send: PhantomData };
    match lock::acquire() {
        Acquired::Held => Some(guard),
        other => enter_slow(guard, other),
    }
}

/// Acquires the lock at the end of the process, if the process has ever used the library and other threads release the
/// lock in time. In a child of `fork()`, only the child's own calls count as use.
pub fn enter_timeout(limit: Duration) -> Option<Guard> {
    let acquired = lock::acquire_timeout(limit)?;
    // SAFETY: the lock is held and was acquired before; the state is not borrowed.
    if acquired == Acquired::AfterFork && !unsafe { state() }.task.holds_back() {
        // Nothing is left to send. Acquiring the lock here is not a use of the task, so a child may still take the task
        // over.
        lock::release_untouched();
        return None;
    }
    enter_slow(Guard { nested: false, not_send: PhantomData }, acquired)
}

#[cold]
fn enter_slow(mut guard: Guard, acquired: Acquired) -> Option<Guard> {
    match acquired {
        Acquired::Held => Some(guard),
        Acquired::AfterFork => {
            takeover::used();
            Some(guard)
        }
        Acquired::First => {
            renew();
            Some(guard)
        }
        Acquired::Already => {
            if USER_CODE.swap(false, Relaxed) {
                guard.nested = true;
                return Some(guard);
            }
            if lock::has_jumped() {
                guard.task().left_by_jump();
                return Some(guard);
            }
            mem::forget(guard);
            None
        }
        Acquired::Interrupted => {
            mem::forget(guard);
            None
        }
    }
}

/// Makes the state of a process that has none of its own. If the process takes over its parent's task, the copy of the
/// parent's state becomes its own. Otherwise a new state replaces that copy, and everything that the parent shares with
/// its daemon and peers stays untouched.
fn renew() {
    USER_CODE.store(false, Relaxed);
    postponed::forget();
    // A waiting thread of the parent may have set this value.
    WAITERS.store(0, Relaxed);
    trace_mode::invalidate();
    // SAFETY: the lock is held and the state is not borrowed: a new process has no other thread, and code of the
    // user, the only place where a fork can happen within a call, runs without a borrow.
    let state = unsafe { &mut *PROCESS.state.get() };
    let Some(mut inherited) = state.take() else {
        *state = Some(State::new(&Environment::from_process()));
        return;
    };
    let own = std::process::id();
    let open = inherited.task.is_connected() && !inherited.spawned;
    if open && takeover::claim(inherited.process) && inherited.task.inherit() {
        data::pvmmyupid.store(own as c_int, Relaxed);
        trace_mode::refresh(&inherited.task);
        *state = Some(State { process: own, ..inherited });
        return;
    }
    takeover::begin_anew();
    data::begin_anew();
    // `PVMEPID` in the environment belongs to the parent, so the child does not use it.
    let mut own = State::new(&Environment { cookie: None, ..Environment::from_process() });
    own.matcher = inherited.matcher;
    data::pvmmyctx.store(own.task.context(), Relaxed);
    *state = Some(own);
    inherited.task.abandon();
    mem::forget(inherited.lists); // the program may still hold pointers into them
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.nested {
            USER_CODE.store(true, Relaxed);
            return;
        }
        if self.state().watched.is_some() {
            self.arm();
        }
        self.pass_news_on();
        release();
    }
}

/// Releases the lock, and sends the signals that were postponed while it was held.
#[inline(always)]
fn release() {
    if lock::release() {
        postponed::send_after_release();
    }
}

impl Guard {
    /// Borrows the state.
    #[inline(always)]
    pub fn state(&mut self) -> &mut State {
        // SAFETY: the lock is held. The borrow of `self` prevents a second borrow through this guard; outer guards
        // are borrowed mutably while this one lives (`user_code`). `renew` filled the state before the first guard
        // was made.
        unsafe { state() }
    }

    /// Borrows the task.
    #[inline(always)]
    pub fn task(&mut self) -> &mut Task {
        &mut self.state().task
    }

    /// Runs code of the user, which may call the library and even fork.
    pub fn user_code<T>(&mut self, code: impl FnOnce() -> T) -> T {
        lock::announce_owner();
        USER_CODE.store(true, Relaxed);
        let value = code();
        USER_CODE.store(false, Relaxed);
        if lock::reclaim() {
            renew();
        }
        value
    }

    /// Runs a long operation, and releases the lock meanwhile if this guard holds the lock.
    pub fn unlocked<T>(&mut self, long: impl FnOnce() -> T) -> T {
        if self.nested {
            return long();
        }
        self.pass_news_on();
        let frame = lock::holder_frame();
        release();
        let value = long();
        self.reacquire();
        lock::set_holder_frame(frame);
        value
    }

    /// Acquires the lock again.
    fn reacquire(&mut self) {
        match lock::acquire() {
            Acquired::Held | Acquired::AfterFork | Acquired::Already => {}
            Acquired::First => renew(),
            Acquired::Interrupted => unreachable!("the lock was released"),
        }
    }

    /// Marks the task as parked, before control returns to a program that polls the epoll descriptor.
    #[cold]
    fn arm(&mut self) {
        if self.task().is_enrolled() {
            self.task().arm();
        }
    }

    /// Waits until the sleeper signals.
    pub fn wait_for_sleeper(&mut self, limit: Option<Duration>) {
        if self.nested {
            // The outer call keeps the lock, so the sleeper cannot signal; the caller retries after a short pause.
            std::thread::sleep(limit.unwrap_or(NESTED_PAUSE).min(NESTED_PAUSE));
            return;
        }
        let seen = WAKE_COUNT.load(Relaxed);
        WAITERS.fetch_add(1, Relaxed);
        self.unlocked(|| lock::futex_wait(&WAKE_COUNT, seen, limit));
        let _ = WAITERS.fetch_update(Relaxed, Relaxed, |waiters| waiters.checked_sub(1));
    }

    /// Wakes the threads that wait for the sleeper, if messages have arrived.
    #[inline(always)]
    fn pass_news_on(&mut self) {
        if WAITERS.load(Relaxed) != 0 && self.task().take_news() {
            self.wake_waiters();
        }
    }

    /// Wakes the threads that wait for the sleeper: one of them becomes the next sleeper.
    #[cold]
    pub fn wake_waiters(&mut self) {
        WAKE_COUNT.fetch_add(1, Relaxed);
        lock::futex_wake(&WAKE_COUNT, i32::MAX);
    }

    /// Returns whether threads wait for the sleeper.
    pub fn others_wait(&self) -> bool {
        WAITERS.load(Relaxed) != 0
    }

    /// Takes in the messages that have arrived, runs message handlers and prints output of children.
    #[inline(always)]
    pub fn progress(&mut self) {
        self.task().progress();
        self.run_callbacks();
    }

    /// Runs message handlers and prints output of children, if the program has asked for either.
    #[inline(always)]
    pub fn run_callbacks(&mut self) {
        if let Some(run) = self.state().callbacks {
            run(self);
        }
    }

    /// Enrolls the process unless it is a task already. If that fails, prints the reason.
    #[inline(always)]
    pub fn enrolled(&mut self) -> Result<(), Code> {
        if self.task().is_enrolled() { Ok(()) } else { self.enroll(log_enroll_failure) }
    }

    /// Enrolls the process unless it is a task already; prints nothing.
    #[inline(always)]
    pub fn enrolled_silently(&mut self) -> Result<(), Code> {
        if self.task().is_enrolled() { Ok(()) } else { self.enroll(|_, _| ()) }
    }

    #[cold]
    fn enroll(&mut self, report: fn(&Environment, &EnrollError)) -> Result<(), Code> {
        let mut tries = 0;
        loop {
            tries += 1;
            let name = self.state().name.clone();
            let environment = Environment { name, ..Environment::from_process() };
            let error = match self.task().enroll(&environment) {
                Ok(_) => break,
                Err(error) => error,
            };
            report(&environment, &error);
            if !error.is_transient() || tries == ENROLL_TRIES {
                return Err(error.code());
            }
            self.unlocked(|| std::thread::sleep(ENROLL_PAUSE));
            if self.task().is_enrolled() {
                break; // another thread has enrolled meanwhile
            }
        }
        self.publish_identity();
        Ok(())
    }

    /// Enrolls the process if there is a daemon; if there is none, prints nothing.
    #[cold]
    pub fn enroll_if_possible(&mut self) {
        let name = self.state().name.clone();
        let environment = Environment { name, ..Environment::from_process() };
        if self.task().enroll(&environment).is_ok() {
            self.publish_identity();
        }
    }

    /// Sets the data symbols that identify the task.
    fn publish_identity(&mut self) {
        let task = self.task();
        let tid = task.tid().map_or(-1, |tid| tid.0 as c_int);
        let parent = match task.parent() {
            Ok(parent) => parent.0 as c_int,
            Err(Code::ParentNotSet) => Code::ParentNotSet.number(),
            Err(_) => 0,
        };
        data::pvmmytid.store(tid, Relaxed);
        data::pvmmyptid.store(parent, Relaxed);
        data::pvmmyupid.store(std::process::id() as c_int, Relaxed);
        data::pvmmydsig.store(task.dsig(), Relaxed);
        data::pvmschedtid.store(task.resource_manager().0 as c_int, Relaxed);
        data::pvmmyctx.store(task.context(), Relaxed);
        // SAFETY: has no preconditions.
        data::pvm_useruid.store(unsafe { libc::geteuid() } as c_int, Relaxed);
        self.publish_settings();
    }

    /// Returns whether the process must still try to enroll because its spawner requests its traces.
    pub fn spawned_to_trace(&mut self) -> bool {
        self.state().spawned_to_trace
    }

    /// Tries once to enroll the process, so that it can be traced; prints nothing.
    pub fn enroll_silently(&mut self) -> bool {
        self.state().spawned_to_trace = false; // one try
        let name = self.state().name.clone();
        let enrolled = self.task().enroll(&Environment { name, ..Environment::from_process() }).is_ok();
        if enrolled {
            self.publish_identity();
        }
        enrolled
    }

    /// Sets the data symbols that name the receivers of output and traces.
    pub fn publish_settings(&mut self) {
        let task = self.task();
        trace_mode::refresh(task);
        data::pvmtrc.publish(task.own_settings());
        data::pvmctrc.publish(task.child_settings());
    }
}

/// The pause between two tries of a nested call (a call that code of the user makes inside another call) while another
/// thread sleeps on the descriptors.
const NESTED_PAUSE: Duration = Duration::from_micros(200);
