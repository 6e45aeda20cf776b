//! How long to wait for a fabric.
use std::time::{Duration, Instant};

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: poll again.
    Not,
    /// Until the descriptor is readable.
    Descriptor,
    /// This long.
    For(Duration),
}

/// How often a provider without a descriptor is polled before the first pause: for about as long as a short message takes.
const SPINS: u32 = 100;
/// The first pause, and the longest one while a wait is short. In a longer wait a pause may take this part of the time that
/// has passed, up to a limit. So a task that waits uses less than 1 % of a processor.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const SHORT_PAUSE_MAX: Duration = Duration::from_millis(5);
const PAUSE_DIVISOR: u32 = 20;
const LONG_PAUSE_MAX: Duration = Duration::from_millis(20);
/// A descriptor that wakes the process at once and for nothing, this many times, is left alone. That of `tcp` in
/// libfabric 1.17 stays readable.
const FALSE_ALARMS_MAX: u32 = 8;
/// A wait on the descriptor that ends after less than this time was ended by the descriptor.
const AT_ONCE: Duration = Duration::from_millis(1);

/// What has happened since the last event.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Waits by time, or polls before the first one.
    waits: u32,
    /// The sum of the waits by time.
    waited: Duration,
    false_alarms: u32,
    last: Option<Instant>,
}

impl Pauses {
    /// Returns the next way to wait. The last one has not led to an event.
    pub fn next(&mut self, now: Instant, has_descriptor: bool) -> Wait {
        if has_descriptor && self.false_alarms < FALSE_ALARMS_MAX {
            let was_at_once = self.last.is_some_and(|last| now.saturating_duration_since(last) < AT_ONCE);
            self.false_alarms = if was_at_once { self.false_alarms + 1 } else { 0 };
            self.last = Some(now);
            return Wait::Descriptor;
        }
        self.waits += 1;
        match self.waits.checked_sub(SPINS) {
            None if !has_descriptor => Wait::Not,
            done => {
                let short = (FIRST_PAUSE * 2_u32.pow(done.unwrap_or(0).min(10))).min(SHORT_PAUSE_MAX);
                let pause = short.max((self.waited / PAUSE_DIVISOR).min(LONG_PAUSE_MAX));
                self.waited += pause;
                Wait::For(pause)
            }
        }
    }

    /// Records that something has happened.
    pub fn reset(&mut self) {
        *self = Pauses::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_without_a_descriptor_is_polled_for_a_while_and_then_at_longer_and_longer_times() {
        let (mut pauses, now) = (Pauses::default(), Instant::now());
        let spins = (0..1000).take_while(|_| pauses.next(now, false) == Wait::Not).count();
        assert_eq!(spins + 1, SPINS as usize);
        let next: Vec<Wait> = (0..8).map(|_| pauses.next(now, false)).collect();
        assert_eq!(next[0], Wait::For(2 * FIRST_PAUSE));
        assert_eq!(next[7], Wait::For(SHORT_PAUSE_MAX));
        let pause = |wait| if let Wait::For(pause) = wait { pause } else { Duration::ZERO };
        let mut waited = next.into_iter().map(pause).sum::<Duration>();
        while waited < 60 * LONG_PAUSE_MAX {
            let pause = pause(pauses.next(now, false));
            assert!(pause <= SHORT_PAUSE_MAX.max(waited / 19).min(LONG_PAUSE_MAX), "{pause:?} after {waited:?}");
            waited += pause;
        }
        assert_eq!(pauses.next(now, false), Wait::For(LONG_PAUSE_MAX));
        pauses.reset();
        assert_eq!(pauses.next(now, false), Wait::Not);
    }

    #[test]
    fn a_descriptor_that_wakes_for_nothing_is_left_alone_until_something_happens() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        for _ in 0..100 {
            now += Duration::from_millis(10);
            assert_eq!(pauses.next(now, true), Wait::Descriptor, "ended by its time");
        }
        let at_once = (0..100).take_while(|_| pauses.next(now, true) == Wait::Descriptor).count();
        assert_eq!(at_once, FALSE_ALARMS_MAX as usize);
        assert!(matches!(pauses.next(now, true), Wait::For(_)));
        pauses.reset();
        assert_eq!(pauses.next(now, true), Wait::Descriptor);
    }
}
