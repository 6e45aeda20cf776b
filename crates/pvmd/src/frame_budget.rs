//! How much of one peer is handled before others have their turn.
use std::time::{Duration, Instant};

/// The most frames.
const FRAMES_MAX: usize = 64;
/// The longest time. A request may be dear: a list of all mailboxes takes milliseconds.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The turn of a peer.
pub struct FrameBudget {
    frames: usize,
    end: Option<Instant>,
}

impl FrameBudget {
    /// One that begins now.
    pub fn new() -> FrameBudget {
        FrameBudget { frames: FRAMES_MAX, end: Some(Instant::now() + TIME_MAX) }
    }

    /// One that lasts as long as there is something.
    pub fn unlimited() -> FrameBudget {
        FrameBudget { frames: usize::MAX, end: None }
    }

    /// Whether another frame may be taken. The first one may in any case.
    pub fn take(&mut self) -> bool {
        let first = self.frames == FRAMES_MAX;
        if self.frames == 0 || !first && self.end.is_some_and(|end| Instant::now() >= end) {
            return false;
        }
        self.frames -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_after_a_number_of_frames_or_after_a_time() {
        let count = |mut budget: FrameBudget| (0..2 * FRAMES_MAX).take_while(|_| budget.take()).count();
        let far = Some(Instant::now() + Duration::from_secs(1000));
        assert_eq!(count(FrameBudget { end: far, ..FrameBudget::new() }), FRAMES_MAX);
        assert_eq!(count(FrameBudget { end: Some(Instant::now()), ..FrameBudget::new() }), 1);
        assert_eq!(count(FrameBudget::unlimited()), 2 * FRAMES_MAX);
    }
}
