//! Whether to try again what has failed several times.

/// After this number of failures in a row, only one of `ONE_IN` is tried.
const FAILURES_MAX: u32 = 4;
const ONE_IN: u32 = 32;

/// A circuit breaker: it opens after some failures in a row, and lets one try pass now and then, until one succeeds.
#[derive(Debug, Clone, Copy, Default)]
pub struct CircuitBreaker {
    /// How often in a row it has failed, or was not tried because of that.
    failures: u32,
}

impl CircuitBreaker {
    /// Returns whether few tries have failed in a row.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.failures < FAILURES_MAX
    }

    /// Returns whether to try. If so, [`CircuitBreaker::note`] says how it ended, unless it was never begun.
    #[inline]
    pub fn allows(&mut self) -> bool {
        let is_allowed = self.is_closed() || self.failures % ONE_IN == 0;
        self.failures = self.failures.wrapping_add(u32::from(!is_allowed));
        is_allowed
    }

    /// Notes whether a try has succeeded.
    #[inline]
    pub fn note(&mut self, has_succeeded: bool) {
        self.failures = if has_succeeded { 0 } else { self.failures.wrapping_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_seldom_tried() {
        let mut breaker = CircuitBreaker::default();
        let mut tried = |succeeds: Option<bool>| {
            let is_allowed = breaker.allows();
            succeeds.filter(|_| is_allowed).into_iter().for_each(|succeeds| breaker.note(succeeds));
            is_allowed
        };
        assert!((0..100).all(|_| tried(None)), "what was not begun has not failed");
        assert_eq!((0..10 * ONE_IN).filter(|_| tried(Some(false))).count(), FAILURES_MAX as usize + 9);
        while !tried(Some(true)) {}
        assert!((0..100).all(|_| tried(Some(true))));
    }
}
