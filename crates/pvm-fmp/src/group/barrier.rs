//! The barrier: one word that members change only by compare-exchange.
//!
//! The word holds the generation of the barrier, the count at which it opens (`need`) and the number of arrivals. The
//! first arrival sets the need; the exchange of the last arrival also moves the word to the next generation. So a
//! member that dies at any instruction leaves the word consistent, and a waiter goes on as soon as it sees a generation
//! other than its own.
//!
//! The daemon can make a generation fail. With one exchange it replaces the need and the arrivals by a **mark**. From
//! then on every member that reads the word finishes the failure: the member notes the generation as failed, then moves
//! the word to the next generation. So the daemon, too, may die at any instruction.
//!
//! The daemon can also **take** the arrivals of a generation, when members of other hosts take part and the arrivals
//! are counted elsewhere. Once an exchange has done this, nobody arrives here until the daemon gives the word back.
//! Members that have already arrived wait until the daemon moves the word to the next generation.
//!
//! Besides, each member has a **slot**, which no other member writes. It holds the generation at which the member is
//! arriving or has arrived, so that the daemon can find the missing members; and whether the member sleeps.
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Each failure is remembered for at least this number of generations. A waiter would miss the failure of its own
/// generation only if this number of later generations failed before it ran again, and each failure needs another
/// member that ends.
const FAILURES: usize = if cfg!(loom) { 2 } else { 512 };
/// A generation is older than another one if it lies less than this number behind that one.
const OLDER_MAX: u32 = 1 << 31;
/// The number of generations after which old notes are removed, because generation numbers wrap.
const SWEEP_INTERVAL: u32 = 1 << 30;
/// The age in generations above which a note is removed.
const NOTE_AGE_MAX: u32 = 1 << 29;
/// The largest number of failures that one call finishes. Without this limit, a member that breaks the rules could keep
/// the call busy for ever by writing new marks.
const FINISHES_MAX: u32 = 1000;
/// How often a member tries to arrive. A try fails only if another member arrives at the same time, or if a member
/// breaks the rules. After so many failed tries a member must be breaking the rules, and the group is useless.
const ARRIVAL_TRIES_MAX: u32 = 1 << 20;
/// The value that stands in place of the number of arrivals while the daemon has taken the arrivals.
const TAKEN: u16 = u16::MAX - 1;
/// A bit that is set in every noted generation: otherwise a note of generation 0 would look like no note.
const NOTED: u64 = 1 << 32;

/// The state of the barrier at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The number of generations before this one; it wraps.
    pub generation: u32,
    /// How many must arrive; 0 before the first arrival.
    pub need: u16,
    /// How many have arrived.
    pub arrived: u16,
}

impl Pending {
    fn of(word: u64) -> Pending {
        Pending { generation: (word >> 32) as u32, need: (word >> 16) as u16, arrived: word as u16 }
    }
    fn word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.need) << 16 | u64::from(self.arrived)
    }
    /// Returns the state of a generation without arrivals.
    fn fresh(generation: u32) -> Pending {
        Pending { generation, need: 0, arrived: 0 }
    }
    /// Returns the mark of a generation that has failed and is about to be replaced by the next one.
    fn mark(generation: u32) -> Pending {
        Pending { generation, need: 0, arrived: u16::MAX }
    }
    fn is_mark(self) -> bool {
        self.need == 0 && self.arrived == u16::MAX
    }
    /// Returns the state of a generation whose arrivals the daemon has taken: nobody arrives here.
    fn taken(generation: u32) -> Pending {
        Pending { generation, need: 0, arrived: TAKEN }
    }
    /// See [`Barrier::take`].
    pub(crate) fn is_taken(self) -> bool {
        self.need == 0 && self.arrived == TAKEN
    }
    fn next(self) -> Pending {
        Pending::fresh(self.generation.wrapping_add(1))
    }
    /// Returns the state with one more arrival.
    fn with_one_more(self, need: u16) -> Pending {
        match self.arrived.saturating_add(1) {
            arrived if arrived >= need => self.next(),
            arrived => Pending { generation: self.generation, need, arrived },
        }
    }
}

/// The arrival of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The generation of the barrier.
    pub generation: u32,
    /// Set for the last arrival: all members may go on, and this one must ring the doorbells of the sleepers.
    pub last: bool,
    /// Set if the group has too few members for this barrier to open. The group may still grow, or it has just shrunk:
    /// the daemon must be notified, since it may have checked the barrier before this arrival.
    pub short: bool,
}

/// Why a member could not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Other members have arrived with another count.
    Mismatch,
    /// The group has ended, or is frozen and broken.
    Closed,
    /// The daemon has taken the arrivals: the member must send its arrival to the daemon.
    Elsewhere,
    /// This task has no barrier page, because it was no member when it asked for the group; or the page is too short to
    /// have a slot for the task.
    NotMember,
}

/// The barrier cannot open any more: members are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// Whether a member has arrived at a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalState {
    /// It has not arrived, and is not arriving.
    Away,
    /// It may have arrived.
    Arriving,
    /// It has arrived.
    Arrived,
}

/// The words of one member.
#[repr(C, align(64))]
pub(crate) struct MemberSlot {
    /// A generation in the lower half; `ARRIVING` or `ARRIVED` in the upper half.
    state: AtomicU64,
    asleep: AtomicU32,
}

const ARRIVING: u64 = 1 << 32;
const ARRIVED: u64 = 2 << 32;

impl MemberSlot {
    #[cfg(loom)]
    pub fn new() -> MemberSlot {
        MemberSlot { state: AtomicU64::new(0), asleep: AtomicU32::new(0) }
    }
    /// Clears the words that an earlier member of this instance number has left.
    pub fn clear(&self) {
        self.state.store(0, Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
    }
    /// Returns whether the member has arrived at a generation.
    pub fn arrival_state(&self, generation: u32) -> ArrivalState {
        // Pair `member stands`: whoever sees the arrival sees the barrier's word as the member saw it, or a later one.
        match self.state.load(Ordering::Acquire) {
            state if state == ARRIVING | u64::from(generation) => ArrivalState::Arriving,
            state if state == ARRIVED | u64::from(generation) => ArrivalState::Arrived,
            _ => ArrivalState::Away,
        }
    }
    /// Returns whether the member sleeps or is about to, and so must be woken.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }
    /// Notes that the member is awake.
    pub fn unpark(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// The words that all members share.
#[repr(C, align(64))]
pub(crate) struct Barrier {
    word: AtomicU64,
    /// The newest generation in which a member has gone to sleep, with [`NOTED`] set; 0 for none.
    sleeping: AtomicU64,
    #[cfg(not(loom))]
    _pad: [AtomicU64; 6],
    /// Element `n`: the newest failed generation that is `n` modulo [`FAILURES`], with [`NOTED`] set; 0 for none.
    failed: [AtomicU64; FAILURES],
}

impl Barrier {
    #[cfg(loom)]
    pub fn new() -> Barrier {
        let zeroes = || std::array::from_fn(|_| AtomicU64::new(0));
        Barrier { word: AtomicU64::new(0), sleeping: AtomicU64::new(0), failed: zeroes() }
    }

    /// Returns the present state. If a failure is under way, finishes it first.
    pub fn pending(&self) -> Pending {
        // Pair `barrier moved`: whoever sees the word sees what members did before they changed it.
        let mut pending = Pending::of(self.word.load(Ordering::Acquire));
        for _ in 0..FINISHES_MAX {
            if !pending.is_mark() {
                return pending;
            }
            pending = self.finish_failure(pending);
        }
        Pending::fresh(pending.generation)
    }

    /// Arrives as a member. `guess` is the generation that the member expects next: if the guess is right, the word's
    /// cache line is fetched once instead of twice.
    #[inline]
    pub fn arrive(&self, slot: &MemberSlot, need: u16, guess: u32) -> Result<Arrival, Refused> {
        let mut before = Pending::fresh(guess);
        for _ in 0..ARRIVAL_TRIES_MAX {
            if before.is_mark() {
                before = self.finish_failure(before);
            }
            if before.is_taken() {
                slot.state.store(0, Ordering::Relaxed);
                return Err(Refused::Elsewhere);
            }
            if before.need != 0 && before.need != need {
                // The need is not 0, so `before` was read from the word: a guess has the need 0.
                slot.state.store(0, Ordering::Relaxed);
                return Err(Refused::Mismatch);
            }
            let after = before.with_one_more(need);
            // Pair `member stands`. Stored before the exchange: whoever sees the effect of the exchange must see that
            // this member may have made it.
            slot.state.store(ARRIVING | u64::from(before.generation), Ordering::Release);
            // Pair `barrier moved`.
            let result = self.word.compare_exchange(before.word(), after.word(), Ordering::AcqRel, Ordering::Acquire);
            match result {
                Ok(_) => {
                    // Pair `member stands`.
                    slot.state.store(ARRIVED | u64::from(before.generation), Ordering::Release);
                    let last = after.generation != before.generation;
                    if last && after.generation % SWEEP_INTERVAL == 0 {
                        self.forget_old(after.generation);
                    }
                    return Ok(Arrival { generation: before.generation, last, short: false });
                }
                Err(found) => before = Pending::of(found),
            }
        }
        slot.state.store(0, Ordering::Relaxed);
        Err(Refused::Closed)
    }

    /// Returns the result of a generation at which the caller has arrived; `None` while it is open.
    #[inline]
    pub fn passed(&self, generation: u32) -> Option<Result<(), Failed>> {
        // Pair `barrier moved`: the word was moved by the last arrival, or by the process that finished a failure or
        // released the arrivals.
        let now = self.word.load(Ordering::Acquire);
        if now >> 32 == u64::from(generation) && !Pending::of(now).is_mark() {
            None
        } else {
            Some(self.fate(generation))
        }
    }

    fn fate(&self, generation: u32) -> Result<(), Failed> {
        if self.pending().generation == generation {
            // Only a member that breaks the rules can set the word back to an earlier generation.
            return Err(Failed);
        }
        let noted = self.failed[generation as usize % FAILURES].load(Ordering::Relaxed);
        if noted == NOTED | u64::from(generation) { Err(Failed) } else { Ok(()) }
    }

    /// Makes the barrier fail if nobody has arrived since `seen` was read.
    pub fn fail(&self, seen: Pending) -> bool {
        let mark = Pending::mark(seen.generation);
        // Pair `barrier moved`.
        let result = self.word.compare_exchange(seen.word(), mark.word(), Ordering::AcqRel, Ordering::Acquire);
        if result.is_ok() {
            self.finish_failure(mark);
        }
        result.is_ok()
    }

    /// Takes the arrivals: from now on nobody arrives here. Returns the state before that, or a state without arrivals
    /// if the daemon had taken them already.
    pub fn take(&self) -> Pending {
        for _ in 0..FINISHES_MAX {
            let seen = self.pending();
            if seen.is_taken() {
                return Pending::fresh(seen.generation);
            }
            let taken = Pending::taken(seen.generation).word();
            // Pair `barrier moved`.
            if self.word.compare_exchange(seen.word(), taken, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return seen;
            }
        }
        // Only a member that breaks the rules changes the word so often. The arrivals of this generation are lost.
        // Pair `barrier moved`.
        let generation = self.pending().generation.wrapping_add(1);
        self.word.store(Pending::taken(generation).word(), Ordering::Release);
        Pending::fresh(generation)
    }

    /// Releases the members whose arrivals were taken. `opened`: whether the barrier has opened; otherwise it has
    /// failed.
    pub fn release(&self, opened: bool) {
        let seen = self.pending();
        if !seen.is_taken() {
            return;
        }
        if !opened {
            note_newer(&self.failed[seen.generation as usize % FAILURES], seen.generation);
        }
        let next = seen.generation.wrapping_add(1);
        // Pair `barrier moved`: whoever sees the word sees the note, and what members did before they arrived.
        self.word.store(Pending::taken(next).word(), Ordering::Release);
        if next % SWEEP_INTERVAL == 0 {
            self.forget_old(next);
        }
    }

    /// Lets members arrive here again.
    pub fn reopen(&self) {
        let seen = self.pending();
        if seen.is_taken() {
            // Pair `barrier moved`.
            self.word.store(Pending::fresh(seen.generation).word(), Ordering::Release);
        }
    }

    /// Notes the failure, then moves the word to the next generation, unless another process has done so. A note never
    /// becomes false, so it may be written late and more than once.
    #[cold]
    fn finish_failure(&self, mark: Pending) -> Pending {
        let entry = &self.failed[mark.generation as usize % FAILURES];
        note_newer(entry, mark.generation);
        // Pair `barrier moved`: whoever sees the next generation sees the note.
        let result = self.word.compare_exchange(mark.word(), mark.next().word(), Ordering::AcqRel, Ordering::Acquire);
        match result {
            Ok(_) => mark.next(),
            Err(found) => Pending::of(found),
        }
    }

    #[cold]
    fn forget_old(&self, now: u32) {
        for entry in self.failed.iter().chain([&self.sleeping]) {
            let noted = entry.load(Ordering::Relaxed);
            if now.wrapping_sub(noted as u32) > NOTE_AGE_MAX {
                // If this fails, a newer generation has been noted meanwhile, and that note stays.
                let _ = entry.compare_exchange(noted, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Notes that the member is about to sleep: the caller checks once more after this ([`Barrier::passed`]), then
    /// sleeps.
    pub fn prepare_park(&self, slot: &MemberSlot) {
        slot.asleep.store(1, Ordering::Relaxed);
        // A later generation may already have sleepers: our note must not replace theirs.
        note_newer(&self.sleeping, Pending::of(self.word.load(Ordering::Relaxed)).generation);
        // Pair `park or open`: either the releaser sees us, or we see its exchange.
        fence(Ordering::SeqCst);
    }

    /// Returns whether some member may be asleep; for the last arrival of a generation.
    #[inline]
    pub fn has_sleepers(&self, generation: u32) -> bool {
        // Pair `park or open`.
        fence_after_exchange();
        // Pair `sleeper noted`: whoever sees the note sees the sleeper's own word.
        let noted = self.sleeping.load(Ordering::Acquire);
        noted != 0 && (noted as u32).wrapping_sub(generation) < OLDER_MAX
    }
}

/// Writes a generation to `entry`, unless `entry` holds a newer one.
fn note_newer(entry: &AtomicU64, generation: u32) {
    let mut noted = entry.load(Ordering::Relaxed);
    while noted == 0 || generation.wrapping_sub(noted as u32).wrapping_sub(1) < OLDER_MAX {
        let new = NOTED | u64::from(generation);
        // Pair `sleeper noted`. This function also notes failures; they are published by the barrier's word.
        match entry.compare_exchange(noted, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => noted = found,
        }
    }
}

/// Orders an exchange that has just been made before the loads that follow. On x86-64 the exchange itself orders them.
#[inline]
pub(crate) fn fence_after_exchange() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // Pairs `park or open` and `arrive or change`: the exchanges are those of the callers.
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}
