//! The state line of a task: a few words in its segment that say what it does, for its daemon to read at any time.
//!
//! Only the owner writes, and only when a call is about to sleep, so a task that does not wait writes nothing. The
//! daemon reads the words through the descriptor of the segment, without the task's help: also while the program
//! computes, is stopped, or has closed everything. What the words mean is not this crate's business; the daemon treats them as
//! bytes of a stranger.
//!
//! The words are a sequence lock: the owner makes the version odd, writes, and makes it even again. A reader that finds the
//! same even version before and after has a whole line.
/// The clock of state lines.
#[cfg(not(loom))]
pub use crate::clock::monotonic_ns;
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad, fence};

/// The number of words in a state line.
pub const STATE_WORDS: usize = 48;

/// A state line in the segment of its owner. The number of words is a parameter for the model checker alone.
#[repr(C)]
pub struct StateWords<const WORDS: usize = STATE_WORDS> {
    /// Even, and another one after each change; odd while the owner writes. 0 if there was no line yet.
    version: AtomicU64,
    /// The version with which the owner sleeps; another value while it is awake.
    asleep: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// A state line that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLine<const WORDS: usize = STATE_WORDS> {
    pub(crate) version: u64,
    /// Whether the owner slept when the line was read: the last thing it did was to look for what it waits for.
    pub is_asleep: bool,
    /// The words.
    pub words: [u64; WORDS],
}

impl<const WORDS: usize> StateWords<WORDS> {
    #[cfg(loom)]
    pub fn new() -> StateWords<WORDS> {
        let word = || AtomicU64::new(0);
        StateWords { version: word(), asleep: word(), words: std::array::from_fn(|_| word()) }
    }

    /// Publishes the first words of the line; later ones keep their values. `asleep`: whether the owner sleeps next.
    pub fn write(&self, words: &[u64], asleep: bool) {
        let version = (self.version.load_relaxed() | 1).wrapping_add(1).max(2);
        self.version.store(version - 1, Ordering::Relaxed);
        // Pair `whole line`: a reader that sees one of the words sees that the version was odd.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        self.asleep.store(if asleep { version } else { 0 }, Ordering::Relaxed);
        // Pair `line written`: a reader that sees the version sees the words.
        self.version.store(version, Ordering::Release);
    }

    /// Notes that the owner has woken up. What woke it must not be taken away before.
    pub fn wake(&self) {
        self.asleep.store(0, Ordering::Relaxed);
        // Pair `awake`: whoever sees the doorbell emptied sees that the owner is awake.
        fence(Ordering::Release);
    }

    /// Reads the line through a mapping. `None` if it is being written, or was never written.
    #[cfg(any(test, loom))]
    pub(crate) fn read(&self) -> Option<StateLine<WORDS>> {
        // Pair `line written`.
        let version = self.version.load_acquire();
        let asleep = self.asleep.load_relaxed();
        let words = std::array::from_fn(|at| self.words[at].load_relaxed());
        // Pair `whole line`.
        fence(Ordering::Acquire);
        line(version, self.version.load_relaxed(), asleep, words)
    }
}

/// Returns the line, if it is whole.
pub(crate) fn line<const WORDS: usize>(
    before: u64,
    after: u64,
    asleep: u64,
    words: [u64; WORDS],
) -> Option<StateLine<WORDS>> {
    let is_whole = before == after && before % 2 == 0 && before != 0;
    is_whole.then_some(StateLine { version: before, is_asleep: asleep == before, words })
}
