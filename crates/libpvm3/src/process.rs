//! The task that this process is: one state, behind one lock.
//!
//! Every call of the interface goes through [`enter`]. The holder of an [`Guard`] reaches the
//! state by short borrows; while code of the user runs ([`Guard::user_code`]) the lock is held but
//! nothing is borrowed, so that code may call the library again.
use crate::lists::Lists;
use crate::lock::{self, Acquired};
use crate::{at_exit, catchout, data, handlers, line_buffering, takeover, trace};
use pvm_core::codes::Code;
use pvm_core::events::MASK_EMPTY;
use pvm_task::{Environment, Task};
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A user's function that picks messages (`pvm_recvf`).
pub type Matcher = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

/// How often enrolment is tried when a daemon is there but does not answer.
const ENROLL_TRIES: u32 = 5;
/// Time between those tries.
const ENROLL_PAUSE: Duration = Duration::from_secs(1);

/// All that the process knows.
pub struct State {
    /// The task.
    pub task: Task,
    /// The user's matching function.
    pub matcher: Option<Matcher>,
    /// Where output of children goes; null for nowhere.
    pub output: *mut libc::FILE,
    /// Whether children's output or handlers want a look at the network in sends too.
    pub has_callbacks: bool,
    /// Whether `pvm_getfds` gave a descriptor away.
    pub watched: Option<crate::descriptors::Watch>,
    /// The name under which the task will show up.
    pub name: Vec<u8>,
    /// Memory for shares of reductions.
    pub scratch: Vec<u128>,
    /// Arrays that programs hold pointers to.
    pub lists: Lists,
    /// Which servers this task is.
    pub registered: crate::register::Registered,
    /// Traces are being sent, further out.
    pub sending_traces: bool,
    /// Its spawner wants traces of it.
    spawned_to_trace: bool,
    /// The process.
    process: u32,
    /// A daemon has started it: the task ends with it.
    spawned: bool,
}

impl State {
    fn new(environment: &Environment) -> State {
        // An archive gives a program what it refers to.
        std::hint::black_box((&at_exit::AT_END, &line_buffering::AT_START));
        let mut task = Task::new(environment);
        task.watch_trace_settings(trace::invalidate);
        let masked = |mask: &Vec<u8>| mask.iter().any(|character| *character != MASK_EMPTY);
        State {
            task,
            matcher: None,
            output: std::ptr::null_mut(),
            has_callbacks: false,
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
}

struct Process {
    state: UnsafeCell<Option<State>>,
}
// SAFETY: the state is reached by the holder of the process lock only.
unsafe impl Sync for Process {}

static PROCESS: Process = Process { state: UnsafeCell::new(None) };
/// Whether the holder of the lock runs code of the user.
static USER_CODE: AtomicBool = AtomicBool::new(false);
/// Threads that wait for the one that sleeps on the descriptors; changed under the lock.
static JOINED: AtomicU32 = AtomicU32::new(0);
/// Changes when those have to look again.
static NEWS: AtomicU32 = AtomicU32::new(0);

/// The state of the process.
///
/// # Safety
/// The process has taken its lock before, holds it now, and nobody else borrows the state.
#[inline(always)]
pub unsafe fn state<'a>() -> &'a mut State {
    // SAFETY: `renew` filled it when the lock was taken first; the rest is the caller's promise.
    unsafe { (*PROCESS.state.get()).as_mut().unwrap_unchecked() }
}

/// Being inside the library, with the lock held.
pub struct Guard {
    /// Inside user code inside the library: the lock stays with the outer entry.
    nested: bool,
    not_send: PhantomData<*mut ()>,
}

/// Goes inside. `None` where a signal handler interrupted the library: nothing can be done there.
#[inline(always)]
pub fn enter() -> Option<Guard> {
    let guard = Guard { nested: false, not_send: PhantomData };
    match lock::acquire() {
        Acquired::Held => Some(guard),
        other => enter_slow(guard, other),
    }
}

/// Goes inside while the process ends, if it has ever been there and no other thread stays there for so
/// long. A child of `fork()` that has not called the library has never been there.
pub fn enter_timeout(limit: Duration) -> Option<Guard> {
    let taken = lock::acquire_timeout(limit)?;
    // SAFETY: the lock is held, and has been taken before; nobody borrows the state.
    if taken == Acquired::AfterFork && !unsafe { state() }.task.holds_back() {
        // Nothing is to be done, and a child may go on as this task.
        lock::release_untouched();
        return None;
    }
    enter_slow(Guard { nested: false, not_send: PhantomData }, taken)
}

#[cold]
fn enter_slow(mut guard: Guard, taken: Acquired) -> Option<Guard> {
    match taken {
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

/// Makes the state of a process that has none of its own: that of the parent whose place it takes, or a new one.
/// What a parent left is thrown away then, without a touch to what the parent shares with its daemon and peers.
fn renew() {
    USER_CODE.store(false, Relaxed);
    // Another thread of the parent may have waited.
    lock::wait_at(0);
    JOINED.store(0, Relaxed);
    trace::invalidate();
    // SAFETY: the lock is held and nobody borrows the state: a new process has no other thread,
    // and user code, the only place where a fork can happen inside, runs without a borrow.
    let state = unsafe { &mut *PROCESS.state.get() };
    let Some(mut inherited) = state.take() else {
        *state = Some(State::new(&Environment::from_process()));
        return;
    };
    let own = std::process::id();
    let open = inherited.task.is_connected() && !inherited.spawned;
    if open && takeover::claim(inherited.process) && inherited.task.inherit() {
        data::pvmmyupid.store(own as c_int, Relaxed);
        trace::refresh(&inherited.task);
        *state = Some(State { process: own, ..inherited });
        return;
    }
    takeover::begin_anew();
    data::begin_anew();
    // The place that a spawn made is the parent's.
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
            crate::descriptors::arm(self);
        }
        self.pass_news_on();
        lock::release();
    }
}

impl Guard {
    /// The state, for a moment.
    #[inline(always)]
    pub fn state(&mut self) -> &mut State {
        // SAFETY: the lock is held; the borrow of `self` keeps this entry from lending it twice,
        // and entries further out lend nothing while this one lives (`user_code` takes them by
        // `&mut`). `renew` filled it before the first entry of the process came to be.
        unsafe { state() }
    }

    /// The task, for a moment.
    #[inline(always)]
    pub fn task(&mut self) -> &mut Task {
        &mut self.state().task
    }

    /// Runs code of the user. It may call the library, and even fork.
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

    /// Does something long without the lock, if this entry can give it.
    pub fn unlocked<T>(&mut self, long: impl FnOnce() -> T) -> T {
        if self.nested {
            return long();
        }
        self.pass_news_on();
        let waiting = lock::wait_at(0);
        lock::release();
        let value = long();
        self.reacquire();
        lock::wait_at(waiting);
        value
    }

    fn reacquire(&mut self) {
        match lock::acquire() {
            Acquired::Held | Acquired::AfterFork | Acquired::Already => {}
            Acquired::First => renew(),
            Acquired::Interrupted => unreachable!("it has been given free"),
        }
    }

    /// Waits until the thread that sleeps on the descriptors has news.
    pub fn join(&mut self, limit: Option<Duration>) {
        if self.nested {
            // The lock stays here, so the sleeper could not tell: look again soon.
            std::thread::sleep(limit.unwrap_or(NESTED_PAUSE).min(NESTED_PAUSE));
            return;
        }
        let seen = NEWS.load(Relaxed);
        JOINED.fetch_add(1, Relaxed);
        self.unlocked(|| lock::futex_wait(&NEWS, seen, limit));
        let _ = JOINED.fetch_update(Relaxed, Relaxed, |joined| joined.checked_sub(1));
    }

    /// Wakes the threads that wait for news, if there are both.
    #[inline(always)]
    fn pass_news_on(&mut self) {
        if JOINED.load(Relaxed) != 0 && self.task().take_news() {
            self.wake_joined();
        }
    }

    /// Wakes the threads that wait for the sleeper: one of them becomes it.
    #[cold]
    pub fn wake_joined(&mut self) {
        NEWS.fetch_add(1, Relaxed);
        lock::futex_wake(&NEWS, i32::MAX);
    }

    /// Whether threads wait for the sleeper.
    pub fn others_wait(&self) -> bool {
        JOINED.load(Relaxed) != 0
    }

    /// Takes in what has come, and does what it asks for at once: handlers, output of children.
    #[inline(always)]
    pub fn progress(&mut self) {
        self.task().progress();
        self.run_callbacks();
    }

    /// Runs handlers and prints output of children, if there can be any.
    #[inline(always)]
    pub fn run_callbacks(&mut self) {
        if self.state().has_callbacks {
            self.run_callbacks_now();
        }
    }

    #[inline(never)]
    fn run_callbacks_now(&mut self) {
        handlers::run(self);
        catchout::print(self);
    }

    /// Makes sure that the process is a task.
    #[inline(always)]
    pub fn enrolled(&mut self) -> Result<(), Code> {
        if self.task().is_enrolled() { Ok(()) } else { self.enroll() }
    }

    #[cold]
    fn enroll(&mut self) -> Result<(), Code> {
        let mut tries = 0;
        loop {
            tries += 1;
            let name = self.state().name.clone();
            let environment = Environment { name, ..Environment::from_process() };
            let error = match self.task().enroll(&environment) {
                Ok(_) => break,
                Err(error) => error,
            };
            crate::errors::log_enroll_failure(&environment, &error);
            if !error.is_transient() || tries == ENROLL_TRIES {
                return Err(error.code());
            }
            self.unlocked(|| std::thread::sleep(ENROLL_PAUSE));
            if self.task().is_enrolled() {
                break; // another thread was faster
            }
        }
        self.publish_identity();
        Ok(())
    }

    /// Makes the process a task if there is a daemon; says nothing if there is none.
    #[cold]
    pub fn enroll_if_possible(&mut self) {
        let name = self.state().name.clone();
        let environment = Environment { name, ..Environment::from_process() };
        if self.task().enroll(&environment).is_ok() {
            self.publish_identity();
        }
    }

    /// Shows programs who the task is.
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

    /// Whether the spawner of this process wants traces of it.
    pub fn spawned_to_trace(&mut self) -> bool {
        self.state().spawned_to_trace
    }

    /// Makes the process a task, if that can be had without a word.
    pub fn enroll_silently(&mut self) -> bool {
        self.state().spawned_to_trace = false; // one try
        let name = self.state().name.clone();
        let enrolled = self.task().enroll(&Environment { name, ..Environment::from_process() }).is_ok();
        if enrolled {
            self.publish_identity();
        }
        enrolled
    }

    /// Shows programs where output and traces go.
    pub fn publish_settings(&mut self) {
        let task = self.task();
        trace::refresh(task);
        data::pvmtrc.publish(task.own_settings());
        data::pvmctrc.publish(task.child_settings());
    }
}

/// How long a call from user code waits before it looks again, while another thread sleeps on the
/// descriptors.
const NESTED_PAUSE: Duration = Duration::from_micros(200);
