//! The lock of the process.
//!
//! The lock word is in a page that the kernel fills with zeros in a child of `fork()` (`MADV_WIPEONFORK`). So one load
//! of the word answers three questions: whether this process has a state of its own, whether the lock is held, and
//! whether other threads wait for it. While the process has one thread, acquiring and releasing the lock are plain
//! stores.
use super::takeover;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

/// The value in a wiped page: this process is new or the child of a fork, and has not acquired the lock yet.
const FRESH: u32 = 0;
const FREE: u32 = 1;
const HELD: u32 = 2;
/// Held, and other threads may sleep on the word, or signals are postponed.
const CONTENDED: u32 = 3;
/// Free, and not acquired since this process last forked: a child may take over the task.
const FORKED: u32 = 4;

/// The pause between two tries of [`acquire_timeout`].
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// The lock word until the page exists.
static NO_PAGE: AtomicU32 = AtomicU32::new(FRESH);
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NO_PAGE).cast_mut());

/// What a thread knows about its ownership of the lock, in a process with several threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ownership {
    None,
    /// The thread is acquiring or releasing the lock: a signal handler cannot tell whether the thread holds it.
    Changing,
    /// The thread holds the lock.
    Holder,
}

thread_local! {
    static OWNERSHIP: Cell<Ownership> = const { Cell::new(Ownership::None) };
}

fn ownership() -> Ownership {
    OWNERSHIP.try_with(Cell::get).unwrap_or(Ownership::None)
}

/// Sets the ownership. The compiler must not move memory accesses across this store, since a signal handler may read
/// the ownership at any point.
fn set_ownership(ownership: Ownership) {
    compiler_fence(SeqCst);
    let _ = OWNERSHIP.try_with(|own| own.set(ownership));
    compiler_fence(SeqCst);
}

/// The result of acquiring the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// The lock was free.
    Held,
    /// The lock was free, and this process uses it for the first time.
    First,
    /// The lock was free, and had not been acquired since the process forked.
    AfterFork,
    /// This thread holds the lock already.
    Already,
    /// The caller is a signal handler that interrupted this thread while the thread acquired or released the lock.
    Interrupted,
}

fn word() -> &'static AtomicU32 {
    // SAFETY: points to `NO_PAGE` or to a page that is never unmapped.
    // Pair `page made`.
    unsafe { &*WORD.load(Acquire) }
}

unsafe extern "C" {
    fn hpvm_single_threaded_byte() -> *mut AtomicU8;
}

/// The byte of the C library that is set while the process has only one thread.
static SINGLE_THREADED: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const MANY_THREADS).cast_mut());
static MANY_THREADS: AtomicU8 = AtomicU8::new(0);

/// Returns whether this thread is the only one. If so, no other thread can acquire the lock between two instructions.
#[inline(always)]
fn is_single_threaded() -> bool {
    // SAFETY: it points to a static or to the C library's byte, which always exists. Another thread writes that byte
    // only while this thread is in the C library too, where it starts a thread or waits for the end of one.
    let byte = unsafe { &*SINGLE_THREADED.load(Relaxed) };
    byte.load(Relaxed) != 0
}

/// Acquires the lock, unless this thread holds it.
#[inline(always)]
pub fn acquire() -> Acquired {
    let word = word();
    if is_single_threaded() && word.load(Relaxed) == FREE {
        word.store(HELD, Relaxed);
        note_frame();
        return Acquired::Held;
    }
    acquire_slow()
}

/// Acquires the lock if this process has acquired it before. Waits at most `limit` for another thread to release it.
pub fn acquire_timeout(limit: Duration) -> Option<Acquired> {
    let (word, end) = (word(), Instant::now() + limit);
    if let Some(own) = reentered(word) {
        return Some(own).filter(|own| *own == Acquired::Already);
    }
    loop {
        set_ownership(Ownership::Changing);
        // Pair `lock released`.
        let state = match word.compare_exchange(FREE, HELD, Acquire, Relaxed) {
            Ok(_) => return Some(acquired(Acquired::Held)),
            Err(FORKED) if word.compare_exchange(FORKED, HELD, Acquire, Relaxed).is_ok() => {
                return Some(acquired(Acquired::AfterFork));
            }
            Err(state) => state,
        };
        set_ownership(Ownership::None);
        if state == FRESH || Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Returns [`Acquired::Already`] or [`Acquired::Interrupted`] if this call runs inside another call of the same thread;
/// `None` if the thread has to acquire the lock.
fn reentered(word: &AtomicU32) -> Option<Acquired> {
    let state = word.load(Relaxed);
    match ownership() {
        // In a child that has not acquired the lock yet, the stored ownership is the parent's.
        _ if state == FRESH => None,
        Ownership::Changing => Some(Acquired::Interrupted),
        _ if state == FREE || state == FORKED => None,
        Ownership::Holder => Some(Acquired::Already),
        Ownership::None => is_single_threaded().then_some(Acquired::Already),
    }
}

/// Acquires the lock if it is free and this thread is the only one.
#[inline(always)]
pub fn try_acquire_single() -> bool {
    let word = word();
    let free = is_single_threaded() && word.load(Relaxed) == FREE;
    if free {
        word.store(HELD, Relaxed);
        note_frame();
    }
    free
}

/// Releases the lock after [`try_acquire_single`]. Between the two calls no code of the user may run and no thread may
/// start.
#[inline(always)]
pub fn release_single() {
    word().store(FREE, Relaxed);
}

#[cold]
#[inline(never)]
fn acquire_slow() -> Acquired {
    make_page();
    let word = word();
    if let Some(own) = reentered(word) {
        return own;
    }
    let mut held = HELD;
    loop {
        set_ownership(Ownership::Changing);
        // Pair `lock released`.
        match word.compare_exchange(FREE, held, Acquire, Relaxed) {
            Ok(_) => return acquired(Acquired::Held),
            Err(FRESH) if word.compare_exchange(FRESH, HELD, Acquire, Relaxed).is_ok() => {
                return acquired(Acquired::First);
            }
            Err(FRESH) => {}
            Err(FORKED) if word.compare_exchange(FORKED, held, Acquire, Relaxed).is_ok() => {
                takeover::used();
                return acquired(Acquired::Held);
            }
            Err(FORKED) => {}
            Err(HELD) => {
                let _ = word.compare_exchange(HELD, CONTENDED, Relaxed, Relaxed);
            }
            Err(_) => {
                // A signal handler of this thread may acquire the lock now: another thread holds it and will release
                // it.
                set_ownership(Ownership::None);
                futex_wait(word, CONTENDED, None);
                held = CONTENDED; // others may sleep too
            }
        }
    }
}

fn acquired(how: Acquired) -> Acquired {
    // In a single-threaded process the word alone shows the owner.
    set_ownership(if is_single_threaded() { Ownership::None } else { Ownership::Holder });
    note_frame();
    how
}

/// The stack address of the call that has acquired the lock last. Only the holder writes it.
static HOLDER_FRAME: AtomicUsize = AtomicUsize::new(0);

/// The smallest stack frame that the kernel makes for a signal handler, on any processor, in bytes.
const SIGNAL_FRAME_BYTES_MIN: usize = 1024;

/// Notes where on the stack the call is that has acquired the lock.
#[inline(always)]
fn note_frame() {
    set_holder_frame(stack_address());
}

/// Returns an address in the stack frame of the caller. A local variable would cost the shortest calls a frame.
#[inline(always)]
fn stack_address() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let here: usize;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
        here
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let here = 0u8;
        (&raw const here).addr()
    }
}

/// Returns the stack address of the call that holds the lock.
pub fn holder_frame() -> usize {
    HOLDER_FRAME.load(Relaxed)
}

/// Sets the stack address of the call that holds the lock, after it has released the lock and acquired it again.
#[inline(always)]
pub fn set_holder_frame(frame: usize) {
    HOLDER_FRAME.store(frame, Relaxed);
}

/// Returns whether this thread, which holds the lock, has left the call that acquired it by `longjmp` from a signal
/// handler. A call from a handler that still runs has its stack frame below that call; a call after the jump does not.
/// Returns `false` on an alternate signal stack, where the addresses do not show this, and in a function that is called
/// from deeper than the call that was left.
#[cold]
pub fn has_jumped() -> bool {
    let jumped = stack_address() + SIGNAL_FRAME_BYTES_MIN >= holder_frame() && !on_other_stack();
    if jumped {
        note_frame();
    }
    jumped
}

/// Returns whether this code runs on an alternate signal stack.
fn on_other_stack() -> bool {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: a query, with memory for the answer.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) } == 0;
    // SAFETY: all zeroes are valid, and the system has filled it.
    !asked || unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

/// Releases the lock. If the lock was held during a fork, does nothing in the child. Returns whether signals may have been
/// postponed while the lock was held.
#[inline(always)]
#[must_use]
pub fn release() -> bool {
    let word = word();
    if is_single_threaded() && word.load(Relaxed) == HELD {
        word.store(FREE, Relaxed);
        return false;
    }
    release_slow(word)
}

#[cold]
#[inline(never)]
fn release_slow(word: &AtomicU32) -> bool {
    if word.load(Relaxed) == FRESH {
        return false;
    }
    set_ownership(Ownership::Changing);
    // Pair `lock released`.
    if word.swap(FREE, Release) == CONTENDED {
        futex_wake(word, 1);
    }
    set_ownership(Ownership::None);
    true
}

/// Lets the holder of the lock send the postponed signals when it releases the lock.
pub fn ask_holder_to_send() {
    let _ = word().compare_exchange(HELD, CONTENDED, Relaxed, Relaxed);
}

/// Notes that this thread holds the lock. Called before code of the user runs, since that code may start threads.
pub fn announce_owner() {
    set_ownership(Ownership::Holder);
}

/// Releases the lock after [`Acquired::AfterFork`], if the caller has not used the task: a child may still take it
/// over.
pub fn release_untouched() {
    set_ownership(Ownership::Changing);
    // Pair `lock released`.
    if word().swap(FORKED, Release) == CONTENDED {
        futex_wake(word(), 1);
    }
    set_ownership(Ownership::None);
}

/// Returns whether this process is new, or the child of a fork that has not acquired the lock.
pub fn is_fresh() -> bool {
    word().load(Relaxed) == FRESH
}

/// Marks the lock before a fork, so that its next acquisition is counted as a use of the task. Returns whether the lock
/// is free; if it is, the child may use its copy of the task.
fn mark_fork() -> bool {
    let word = word();
    word.load(Relaxed) == FORKED || word.compare_exchange(FREE, FORKED, Relaxed, Relaxed).is_ok()
}

/// Registers a handler that the C library calls before each fork.
fn watch_forks() {
    extern "C" fn before_fork() {
        // A child that has not used the library is no task, and its children may take over the task of its parent.
        if !is_fresh() {
            takeover::before_fork(mark_fork);
        }
    }
    // SAFETY: the handler takes no lock and allocates nothing.
    unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
}

/// Acquires the lock again, after code of the user has run, if that code has forked and this process is the child.
/// Returns `true` if the child has no state of its own yet.
pub fn reclaim() -> bool {
    let word = word();
    if is_single_threaded() {
        // An acquisition in a single-threaded process sets the same value.
        set_ownership(Ownership::None);
    }
    match word.load(Relaxed) {
        FRESH => word.compare_exchange(FRESH, HELD, Relaxed, Relaxed).is_ok(),
        FREE | FORKED => acquire() == Acquired::First,
        _ => false,
    }
}

/// Makes the page of the lock word, at the first call of the process.
fn make_page() {
    static MAKING: Mutex<()> = Mutex::new(());
    if !std::ptr::eq(word(), &NO_PAGE) {
        return;
    }
    let _making = MAKING.lock();
    if !std::ptr::eq(word(), &NO_PAGE) {
        return;
    }
    // SAFETY: it has no preconditions, and its result is always valid.
    SINGLE_THREADED.store(unsafe { hpvm_single_threaded_byte() }, Relaxed);
    let page = match wiped_page() {
        Some(page) => {
            watch_forks();
            page
        }
        None => word_wiped_by_handler(),
    };
    // Pair `page made`.
    WORD.store(page, Release);
}

/// Maps a page that the kernel fills with zeros in children.
fn wiped_page() -> Option<*mut AtomicU32> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let page = unsafe { libc::mmap(null_mut(), size_of::<AtomicU32>(), prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was mapped just above and is used nowhere else.
    let wiped = unsafe { libc::madvise(page, size_of::<AtomicU32>(), libc::MADV_WIPEONFORK) } == 0;
    wiped.then_some(page.cast())
}

/// Returns a word that a `pthread_atfork` handler resets in children, for kernels without `MADV_WIPEONFORK`.
fn word_wiped_by_handler() -> *mut AtomicU32 {
    static PLAIN: AtomicU32 = AtomicU32::new(FRESH);
    extern "C" fn wipe() {
        PLAIN.store(FRESH, Relaxed);
    }
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    (&raw const PLAIN).cast_mut()
}

/// Sleeps while `word` is `value`, at most `limit`; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().min(libc::time_t::MAX as u64) as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    });
    let limit: *const libc::timespec = limit.as_ref().map_or(std::ptr::null(), |limit| limit);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: word and time limit live until the call returns.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
}

/// Wakes up to `count` threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count) };
}
