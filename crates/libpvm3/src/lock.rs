//! The lock of the process.
//!
//! Its word lies in a page that the kernel wipes in a child of `fork()`, so one look at the word
//! says three things: whether this process has set itself up, whether somebody is inside, and
//! whether others wait. While the process has one thread, taking and giving it is a plain store.
use crate::takeover;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};
use std::time::{Duration, Instant};

/// The process is new, or the child of a fork: the word of a wiped page.
const FRESH: u32 = 0;
const FREE: u32 = 1;
const HELD: u32 = 2;
/// Held, and somebody sleeps on the word.
const CONTENDED: u32 = 3;
/// Free, and not taken since the process has forked: a child may go on as what this process was.
const FORKED: u32 = 4;

/// How often [`acquire_timeout`] looks whether another thread has gone.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// What the word is before there is a page.
static NO_PAGE: AtomicU32 = AtomicU32::new(FRESH);
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NO_PAGE).cast_mut());

/// What a thread has to do with the lock, where more than one could take it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ownership {
    None,
    /// It has it or not, and the handler of a signal cannot know.
    Changing,
    /// It has it.
    Holder,
}

thread_local! {
    static OWNERSHIP: Cell<Ownership> = const { Cell::new(Ownership::None) };
}

fn ownership() -> Ownership {
    OWNERSHIP.try_with(Cell::get).unwrap_or(Ownership::None)
}

/// Nothing is moved past this, as far as the thread itself sees it: a handler of a signal may run at any place.
fn set_ownership(ownership: Ownership) {
    compiler_fence(SeqCst);
    let _ = OWNERSHIP.try_with(|own| own.set(ownership));
    compiler_fence(SeqCst);
}

/// How the lock was had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquired {
    /// It was free.
    Held,
    /// It was free, and this process uses it for the first time.
    First,
    /// It was free, and has not been taken since the process has forked.
    AfterFork,
    /// This thread has it already.
    Already,
    /// The handler of a signal has interrupted this thread while it took the lock or gave it free.
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

/// Where the C library says whether the process has one thread.
static SINGLE_THREADED: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const MANY_THREADS).cast_mut());
static MANY_THREADS: AtomicU8 = AtomicU8::new(0);

/// Whether this thread is the only one, so that nobody can take the lock between two instructions.
#[inline(always)]
fn is_single_threaded() -> bool {
    // SAFETY: points to a static or to the C library's byte, which is there for ever. Where another thread writes that,
    // this one is in the C library as well: it starts a thread, or waits for one to end.
    let byte = unsafe { &*SINGLE_THREADED.load(Relaxed) };
    byte.load(Relaxed) != 0
}

/// Takes the lock, unless this thread has it.
#[inline(always)]
pub fn acquire() -> Acquired {
    let word = word();
    if is_single_threaded() && word.load(Relaxed) == FREE {
        word.store(HELD, Relaxed);
        return Acquired::Held;
    }
    acquire_slow()
}

/// Takes the lock of a process that has used it before, waiting at most so long for another thread.
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

/// What this thread has to do with a lock that is not free to take.
fn reentered(word: &AtomicU32) -> Option<Acquired> {
    let state = word.load(Relaxed);
    match ownership() {
        // What a parent had to do with it is no matter of its child.
        _ if state == FRESH => None,
        Ownership::Changing => Some(Acquired::Interrupted),
        _ if state == FREE || state == FORKED => None,
        Ownership::Holder => Some(Acquired::Already),
        Ownership::None => is_single_threaded().then_some(Acquired::Already),
    }
}

/// Takes the lock if it is free and this thread is the only one.
#[inline(always)]
pub fn try_acquire_single() -> bool {
    let word = word();
    let free = is_single_threaded() && word.load(Relaxed) == FREE;
    if free {
        word.store(HELD, Relaxed);
    }
    free
}

/// Gives the lock free after [`try_acquire_single`], where nothing between the two runs code of the user or
/// starts a thread.
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
                // Meanwhile handlers may call: somebody else has the lock, and gives it free.
                set_ownership(Ownership::None);
                futex_wait(word, CONTENDED, None);
                held = CONTENDED; // others may sleep too
            }
        }
    }
}

fn acquired(how: Acquired) -> Acquired {
    // Where nobody else can take it, the word says all.
    set_ownership(if is_single_threaded() { Ownership::None } else { Ownership::Holder });
    how
}

/// Where on its stack the thread that holds the lock waits; 0 where it does not. Written by that thread alone.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The least that the system puts on a stack below what a signal interrupts, on any processor.
const SIGNAL_FRAME_BYTES_MIN: usize = 1024;

/// Notes where this thread, which has the lock, waits, as an address; returns where it did before. To be set to 0
/// whenever the lock is released.
#[inline]
pub fn wait_at(place: usize) -> usize {
    let before = WAITING.load(Relaxed);
    WAITING.store(place, Relaxed);
    before
}

/// Whether this thread, which has the lock, has jumped out of the wait in which it took it: then it is not below that
/// wait, as the handler of a signal would be. `false` where that cannot be told.
#[cold]
pub fn has_jumped() -> bool {
    let here = 0u8;
    let waiting = WAITING.load(Relaxed);
    if waiting == 0 || (&raw const here).addr() + SIGNAL_FRAME_BYTES_MIN < waiting || on_other_stack() {
        return false;
    }
    wait_at(0);
    true
}

/// Whether a signal is handled on a stack of its own.
fn on_other_stack() -> bool {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only, and there is room for the answer.
    let asked = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) } == 0;
    // SAFETY: zeroes are one, and the system has filled it.
    !asked || unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

/// Gives the lock free. Does nothing in the child of a fork that happened inside.
#[inline(always)]
pub fn release() {
    let word = word();
    if is_single_threaded() && word.load(Relaxed) == HELD {
        word.store(FREE, Relaxed);
        return;
    }
    release_slow(word);
}

#[cold]
#[inline(never)]
fn release_slow(word: &AtomicU32) {
    if word.load(Relaxed) == FRESH {
        return;
    }
    set_ownership(Ownership::Changing);
    // Pair `lock released`.
    if word.swap(FREE, Release) == CONTENDED {
        futex_wake(word, 1);
    }
    set_ownership(Ownership::None);
}

/// Before code of the user runs inside: says who is inside, should that code start threads.
pub fn announce_owner() {
    set_ownership(Ownership::Holder);
}

/// Releases the lock after [`Acquired::AfterFork`] where nothing was done with the task.
pub fn release_untouched() {
    set_ownership(Ownership::Changing);
    // Pair `lock released`.
    if word().swap(FORKED, Release) == CONTENDED {
        futex_wake(word(), 1);
    }
    set_ownership(Ownership::None);
}

/// Whether this process is new, or the child of a fork that has not taken the lock.
pub fn is_fresh() -> bool {
    word().load(Relaxed) == FRESH
}

/// The process is about to fork: whoever takes the lock next says so to the child. Returns whether nobody holds it,
/// so that the child may go on with what it finds.
pub fn mark_fork() -> bool {
    let word = word();
    word.load(Relaxed) == FORKED || word.compare_exchange(FREE, FORKED, Relaxed, Relaxed).is_ok()
}

/// After code of the user ran inside: takes the lock back where that code forked and this is the
/// child. `true` if the child has no state of its own yet.
pub fn reclaim() -> bool {
    let word = word();
    if is_single_threaded() {
        // As whoever takes the lock while nobody else can.
        set_ownership(Ownership::None);
    }
    match word.load(Relaxed) {
        FRESH => word.compare_exchange(FRESH, HELD, Relaxed, Relaxed).is_ok(),
        FREE | FORKED => acquire() == Acquired::First,
        _ => false,
    }
}

/// Makes the page at the first call of the process.
fn make_page() {
    static MAKING: Mutex<()> = Mutex::new(());
    if !std::ptr::eq(word(), &NO_PAGE) {
        return;
    }
    let _making = MAKING.lock();
    if !std::ptr::eq(word(), &NO_PAGE) {
        return;
    }
    // SAFETY: has no preconditions; the pointer it gives is valid for ever.
    SINGLE_THREADED.store(unsafe { hpvm_single_threaded_byte() }, Relaxed);
    let page = match wiped_page() {
        Some(page) => {
            takeover::watch_forks();
            page
        }
        None => word_wiped_by_handler(),
    };
    // Pair `page made`.
    WORD.store(page, Release);
}

/// A page that the kernel wipes in children.
fn wiped_page() -> Option<*mut AtomicU32> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let page = unsafe { libc::mmap(null_mut(), size_of::<AtomicU32>(), prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page was mapped just above and belongs to nobody else.
    let wiped = unsafe { libc::madvise(page, size_of::<AtomicU32>(), libc::MADV_WIPEONFORK) } == 0;
    wiped.then_some(page.cast())
}

/// Where the kernel cannot wipe: a handler that the C library runs in children.
fn word_wiped_by_handler() -> *mut AtomicU32 {
    static PLAIN: AtomicU32 = AtomicU32::new(FRESH);
    extern "C" fn wipe() {
        PLAIN.store(FRESH, Relaxed);
    }
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    (&raw const PLAIN).cast_mut()
}

/// Sleeps while `word` is `value`, at most that long; may return early.
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

/// Wakes that many who sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: waking touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count) };
}
