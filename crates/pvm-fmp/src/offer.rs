//! The words by which a sender offers its own memory and takes the offer back.
//!
//! The sender writes `offer` (in its line for the receiver), the receiver writes `taken` (in its
//! line for the sender). Both hold the offer's number times two; the low bit says "moved to the
//! heap" in `offer` and "please move it" in `taken`.
//!
//! The sender may reuse its memory once it has seen `taken`, or once it has moved the body and
//! said so. The receiver copies first and looks at `offer` afterwards: it believes the copy only
//! if the offer still stood then.
use crate::sync::{AtomicU64, Ordering, fence};

/// Offers are numbered up to this: a word has room for twice the number, and one bit.
pub const NUMBER_MAX: u64 = u64::MAX / 2;

/// The length of a body that was moved nowhere: its offer is withdrawn.
pub const WITHDRAWN_BYTES: u64 = u64::MAX;

/// What the receiver sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The memory may be read.
    Standing,
    /// The body is in the heap.
    Moved,
    /// Not that offer: the sender broke the rules.
    Other,
}

/// What the sender sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Open,
    /// The receiver has the body.
    Taken,
    /// The receiver cannot copy it.
    PleaseMove,
}

/// The sender makes an offer; call before the entry is queued.
pub fn stand(offer: &AtomicU64, number: u64) {
    offer.store(number * 2, Ordering::Release);
}

/// The sender says that the body has moved; the place must have been written before. When this
/// returns, the offered memory may change.
pub fn moved(offer: &AtomicU64, number: u64) {
    // The release pairs with the acquire in `look`: who sees it sees the place of the body.
    offer.store(number * 2 + 1, Ordering::Release);
    // Orders this store before the owner's later writes to the offered memory; pairs with the
    // fence in `still_standing`: a copy that holds such a write finds the offer moved.
    fence(Ordering::SeqCst);
}

/// The sender looks for an answer.
pub fn answer(taken: &AtomicU64, number: u64) -> Answer {
    // Pairs with the release in `took`: the receiver's reads are over.
    match taken.load(Ordering::Acquire) {
        word if word == number * 2 => Answer::Taken,
        word if word == number * 2 + 1 => Answer::PleaseMove,
        _ => Answer::Open,
    }
}

/// The receiver looks at an offer.
pub fn look(offer: &AtomicU64, number: u64) -> Look {
    match offer.load(Ordering::Acquire) {
        word if word == number * 2 => Look::Standing,
        word if word == number * 2 + 1 => Look::Moved,
        _ => Look::Other,
    }
}

/// The receiver looks again after its copy: was the memory valid all the time?
pub fn still_standing(offer: &AtomicU64, number: u64) -> Look {
    fence(Ordering::SeqCst);
    look(offer, number)
}

/// The receiver has the body.
pub fn took(taken: &AtomicU64, number: u64) {
    taken.store(number * 2, Ordering::Release);
}

/// The receiver asks for the body in the heap.
pub fn please_move(taken: &AtomicU64, number: u64) {
    taken.store(number * 2 + 1, Ordering::Release);
}
