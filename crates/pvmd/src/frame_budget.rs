//! Limits how many frames of one peer are handled in one step of the loop.
use std::time::{Duration, Instant};

/// The number of frames.
const FRAMES_MAX: usize = 64;
/// The time limit of a step. A request may be expensive: a list of all mailboxes takes milliseconds.
const TIME_MAX: Duration = Duration::from_millis(1);

/// The budget of a peer.
pub struct FrameBudget {
    frames: usize,
    end: Option<Instant>,
}

impl FrameBudget {
    /// Makes a budget that begins now.
    pub fn new() -> FrameBudget {
        FrameBudget { frames: FRAMES_MAX, end: Some(Instant::now() + TIME_MAX) }
    }

    /// Makes a budget without limits.
    pub fn unlimited() -> FrameBudget {
        FrameBudget { frames: usize::MAX, end: None }
    }

    /// Returns whether another frame may be handled. The first one always may.
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
