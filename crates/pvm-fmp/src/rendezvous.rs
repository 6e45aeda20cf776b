//! A rendezvous: the receiver copies a body straight out of the sender's own memory, or the sender falls back to eager.
//!
//! The sender writes its word (`rendezvous`, in its record for the receiver), the receiver writes its answer (`taken`,
//! in its record for the sender). Both words hold the number of the rendezvous, times four, plus its state.
//!
//! The sender may reuse its memory once it has seen the answer *taken*, or once it has fallen back to eager, that is,
//! once the body lies in the sender's heap and the sender's word says so. The receiver copies first and reads the
//! sender's word afterwards: the copy counts only if the rendezvous was still open then.
//!
//! After a fall-back the body exists in both places, so it does not matter which one the receiver took. After a
//! withdrawal it exists in neither place. So the sender first says that the rendezvous is in doubt, then checks whether
//! the receiver has claimed the body, and then decides. A receiver that finds the rendezvous in doubt after its claim
//! waits for that decision. A single compare-exchange would be enough if both could write the same word, but neither
//! can write the other's words.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad, fence, yield_now};

/// The largest number of a rendezvous: a word holds the number, times four, and a state of two bits.
pub const NUMBER_MAX: u64 = u64::MAX / 4;

/// A state in the sender's word: the body is in the sender's own memory.
const OPEN: u64 = 0;
/// The sender has fallen back to eager: the body lies in its heap.
const EAGER: u64 = 1;
/// The sender is about to decide whether it withdraws; the heap has no memory for the body.
pub const IN_DOUBT: u64 = 2;
/// The sender has withdrawn.
const WITHDRAWN: u64 = 3;

/// A state in the receiver's answer: the receiver has the body.
const TAKEN: u64 = 0;
/// The receiver has not copied the body, and asks for it in the heap.
const WANTS_EAGER: u64 = 1;

/// The state of a rendezvous, according to the sender's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderState {
    /// The sender's memory may be read.
    Open,
    /// The body is in the sender's heap.
    Eager,
    /// The sender is about to decide whether it withdraws.
    InDoubt,
    /// The sender has withdrawn: the message was not sent.
    Withdrawn,
    /// The word is that of another rendezvous: the sender broke the rules.
    Other,
}

/// The receiver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverAnswer {
    /// None yet.
    None,
    /// The receiver has the body.
    Taken,
    /// The receiver wants the body in the heap.
    WantsEager,
}

/// Opens a rendezvous; for the sender, before it queues the entry.
pub fn open(word: &AtomicU64, number: u64) {
    // Pair `rendezvous state`: whoever sees that it is open may read the sender's memory.
    word.store(number * 4 + OPEN, Ordering::Release);
}

/// Publishes that the body lies in the heap; for the sender, which must have published the body's offset before. When
/// this function returns, the sender may reuse its memory.
pub fn fall_back_to_eager(word: &AtomicU64, number: u64) {
    // Pair `rendezvous state`: whoever sees the fall-back sees the place of the body.
    word.store(number * 4 + EAGER, Ordering::Release);
    // Pair `copied or changed`: this store comes before the sender's later writes to its memory. So a receiver whose
    // copy holds such a write sees the fall-back.
    fence(Ordering::SeqCst);
}

/// Withdraws, unless `answer` says that the receiver has the body; for the sender. Returns whether it has withdrawn; if
/// so, the receiver gets nothing. When this function returns, the sender may reuse its memory.
pub fn withdraw(word: &AtomicU64, number: u64, answer: impl FnOnce() -> ReceiverAnswer) -> bool {
    word.store(number * 4 + IN_DOUBT, Ordering::Relaxed);
    // Pairs `copied or changed` and `claim or doubt`: the first as in `fall_back_to_eager`; the second means that
    // either we see the claim, or the receiver sees the doubt.
    fence(Ordering::SeqCst);
    let withdrawn = answer() != ReceiverAnswer::Taken;
    // Pair `rendezvous state`: a receiver that has seen IN_DOUBT waits for this store, and reads nothing else to learn
    // whether the sender has withdrawn. So the store publishes no other word; it is Release only because the other
    // stores of this pair are.
    word.store(number * 4 + if withdrawn { WITHDRAWN } else { OPEN }, Ordering::Release);
    withdrawn
}

/// Returns the receiver's answer; for the sender.
pub fn receiver_answer(taken: &AtomicU64, number: u64) -> ReceiverAnswer {
    // Pair `rendezvous answered`: the receiver's reads are over.
    match taken.load_acquire() {
        word if word == number * 4 + TAKEN => ReceiverAnswer::Taken,
        word if word == number * 4 + WANTS_EAGER => ReceiverAnswer::WantsEager,
        _ => ReceiverAnswer::None,
    }
}

/// Returns the state of a rendezvous; for the receiver.
pub fn sender_state(word: &AtomicU64, number: u64) -> SenderState {
    // Pair `rendezvous state`.
    match word.load_acquire().checked_sub(number * 4) {
        Some(OPEN) => SenderState::Open,
        Some(EAGER) => SenderState::Eager,
        Some(IN_DOUBT) => SenderState::InDoubt,
        Some(WITHDRAWN) => SenderState::Withdrawn,
        _ => SenderState::Other,
    }
}

/// Claims the body after the copy, if the sender's memory was valid until the end of the copy; for the receiver. The
/// result *open* means that the copy counts, and that the sender knows this or will learn it; any other result means
/// that the copy does not count. `may_wait` returns whether to go on waiting for a sender that is about to decide.
pub fn claim(word: &AtomicU64, taken: &AtomicU64, number: u64, mut may_wait: impl FnMut() -> bool) -> SenderState {
    // Pair `copied or changed`.
    fence(Ordering::SeqCst);
    let state_after_copy = sender_state(word, number);
    if state_after_copy != SenderState::Open {
        return state_after_copy;
    }
    // Pair `rendezvous answered`: our reads are over.
    taken.store(number * 4 + TAKEN, Ordering::Release);
    // Pair `claim or doubt`: either the sender sees the claim, or we see its doubt.
    fence(Ordering::SeqCst);
    loop {
        match sender_state(word, number) {
            SenderState::Withdrawn => return SenderState::Withdrawn,
            SenderState::InDoubt if may_wait() => yield_now(),
            // The copy also counts if the sender has fallen back just now: the copy was complete before that. It counts
            // if the word is that of the next rendezvous: a sender that has withdrawn one opens no other. And it counts
            // if the sender is still in doubt when `may_wait` returns false: a sender that was stopped after it had
            // stored its doubt and before it read the answer will find the claim.
            _ => return SenderState::Open,
        }
    }
}

/// Asks for the body in the heap; for the receiver.
pub fn request_eager(taken: &AtomicU64, number: u64) {
    // Pair `rendezvous answered`: our reads are over.
    taken.store(number * 4 + WANTS_EAGER, Ordering::Release);
}
