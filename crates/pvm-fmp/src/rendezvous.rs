//! The words by which a sender offers its own memory and takes the offer back.
//!
//! The sender writes `offer` (in its line for the receiver), the receiver writes `taken` (in its
//! line for the sender). Both hold the offer's number times four, and what became of it.
//!
//! The sender may reuse its memory once it has seen `taken`, or once it has moved the body and
//! said so. The receiver copies first and looks at `offer` afterwards: it believes the copy only
//! if the offer still stood then.
//!
//! A body that is moved can be had in both places, so nobody has to know which one the receiver record. An
//! offer that is withdrawn cannot: the sender first says that it is in doubt, then looks whether the receiver
//! has claimed it, and decides. A receiver that finds its claim in doubt waits for that decision. One
//! compare-exchange would do, if the two could write the same word; neither can write what the other does.
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad, fence, yield_now};

/// RendezvousState are numbered up to this: a word has room for four times the number, and two bits.
pub const NUMBER_MAX: u64 = u64::MAX / 4;

/// What `offer` says beside the number: the body is where it was offered.
const OPEN: u64 = 0;
/// It lies in the heap.
const EAGER: u64 = 1;
/// It was moved nowhere, and the sender is about to decide whether it takes the offer back.
pub const IN_DOUBT: u64 = 2;
/// It cannot be had any more.
const WITHDRAWN: u64 = 3;

/// What `taken` says beside the number: the receiver has the body.
const TAKEN: u64 = 0;
/// It cannot copy it.
const WANTS_EAGER: u64 = 1;

/// What the receiver sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderState {
    /// The memory may be read.
    Open,
    /// The body is in the heap.
    Eager,
    /// The sender is about to decide.
    InDoubt,
    /// There is no body any more.
    Withdrawn,
    /// Not that offer: the sender broke the rules.
    Other,
}

/// What the sender sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverAnswer {
    /// Nothing yet.
    None,
    /// The receiver has the body.
    Taken,
    /// The receiver cannot copy it.
    WantsEager,
}

/// The sender makes an offer; call before the entry is queued.
pub fn open(offer: &AtomicU64, number: u64) {
    // Pair `offer stands`: who sees it may read the offered memory.
    offer.store(number * 4 + OPEN, Ordering::Release);
}

/// The sender says that the body has moved; the place must have been written before. When this
/// returns, the offered memory may change.
pub fn fall_back_to_eager(offer: &AtomicU64, number: u64) {
    // Pair `offer stands`: who sees that it was moved sees the place of the body.
    offer.store(number * 4 + EAGER, Ordering::Release);
    // Pair `copied or changed`: this store comes before the owner's later writes to the offered memory, so a
    // copy that holds such a write finds the offer moved.
    fence(Ordering::SeqCst);
}

/// The sender takes the offer back, unless `answer` tells that the receiver has the body. Says whether it did:
/// then the receiver gets nothing of it. When this returns, the offered memory may change.
pub fn withdraw(offer: &AtomicU64, number: u64, answer: impl FnOnce() -> ReceiverAnswer) -> bool {
    offer.store(number * 4 + IN_DOUBT, Ordering::Relaxed);
    // Pairs `copied or changed` and `claim or doubt`: the first as where a body is moved; by the second either we see
    // the claim, or the receiver sees the doubt.
    fence(Ordering::SeqCst);
    let withdrawn = answer() != ReceiverAnswer::Taken;
    // Pair `offer stands`. Who waits for the decision acts on nothing but this word.
    offer.store(number * 4 + if withdrawn { WITHDRAWN } else { OPEN }, Ordering::Release);
    withdrawn
}

/// The sender looks for an answer.
pub fn receiver_answer(taken: &AtomicU64, number: u64) -> ReceiverAnswer {
    // Pair `offer answered`: the receiver's reads are over.
    match taken.load_acquire() {
        word if word == number * 4 + TAKEN => ReceiverAnswer::Taken,
        word if word == number * 4 + WANTS_EAGER => ReceiverAnswer::WantsEager,
        _ => ReceiverAnswer::None,
    }
}

/// The receiver looks at an offer.
pub fn sender_state(offer: &AtomicU64, number: u64) -> SenderState {
    // Pair `offer stands`.
    match offer.load_acquire().checked_sub(number * 4) {
        Some(OPEN) => SenderState::Open,
        Some(EAGER) => SenderState::Eager,
        Some(IN_DOUBT) => SenderState::InDoubt,
        Some(WITHDRAWN) => SenderState::Withdrawn,
        _ => SenderState::Other,
    }
}

/// The receiver, after its copy: says that it has the body, if the memory was valid all the time. Standing means
/// that the copy counts, and the sender knows or will; else it does not, whatever the offer has become.
/// `patient` tells whether to wait on for a sender that is about to decide.
pub fn claim(offer: &AtomicU64, taken: &AtomicU64, number: u64, mut patient: impl FnMut() -> bool) -> SenderState {
    // Pair `copied or changed`.
    fence(Ordering::SeqCst);
    let state_after_copy = sender_state(offer, number);
    if state_after_copy != SenderState::Open {
        return state_after_copy;
    }
    // Pair `offer answered`: our reads are over.
    taken.store(number * 4 + TAKEN, Ordering::Release);
    // Pair `claim or doubt`: either the sender sees the claim, or we see its doubt.
    fence(Ordering::SeqCst);
    loop {
        match sender_state(offer, number) {
            SenderState::Withdrawn => return SenderState::Withdrawn,
            SenderState::InDoubt if patient() => yield_now(),
            // Also a body that has just moved: the copy was good before. And also the next offer: a sender
            // that has withdrawn one makes no other. And a doubt that never ends, for want of anything better:
            // a sender that was stopped just there finds the claim.
            _ => return SenderState::Open,
        }
    }
}

/// The receiver asks for the body in the heap.
pub fn request_eager(taken: &AtomicU64, number: u64) {
    // Pair `offer answered`: our reads are over.
    taken.store(number * 4 + WANTS_EAGER, Ordering::Release);
}
