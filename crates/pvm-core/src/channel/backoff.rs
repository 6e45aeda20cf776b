//! The pauses between two requests for a lane to the same task.
use crate::time::Time;
use std::time::Duration;

/// The pause before a lane is requested again after it has broken, or could not be made, for the first time. Each pause
/// is twice as long as the one before.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The longest pause before a lane is requested again that a task could not have because it, or its peer, had company.
const COMPANY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// What is known of the requests for one kind of lane to one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// None was made since counting began.
    #[default]
    Never,
    /// One was made, and has neither failed nor has its lane broken.
    Requested,
    /// The next one may be made from this time on.
    PausedUntil(Time),
}

/// When a lane may be requested, or requested again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    state: State,
    /// The length of the last pause; zero if there was none.
    pause: Duration,
    /// The length of the last pause because a task had company.
    company_pause: Duration,
}

impl Backoff {
    /// Returns whether a lane may be requested now.
    pub fn may_request(&self, now: Time) -> bool {
        match self.state {
            State::Never => true,
            State::Requested => false,
            State::PausedUntil(time) => now >= time,
        }
    }

    /// Returns whether a lane was requested, and the request has not failed, nor its lane broken.
    pub fn is_requested(&self) -> bool {
        self.state == State::Requested
    }

    /// Returns whether no lane was requested yet.
    pub fn is_new(&self) -> bool {
        self.state == State::Never
    }

    /// Notes that a lane is requested.
    pub fn handle_request(&mut self) {
        self.state = State::Requested;
    }

    /// Begins a pause because a lane was given up that has not broken. It is no longer than the last one.
    pub fn handle_given_up(&mut self, now: Time) {
        self.pause = self.pause.max(PAUSE_FIRST);
        self.state = State::PausedUntil(now + self.pause);
    }

    /// Begins a pause because no program has asked for the lane, and one of the two tasks is not alone on its host. It does
    /// not count among the pauses after breaks.
    pub fn handle_company(&mut self, now: Time) {
        self.company_pause = (2 * self.company_pause).clamp(PAUSE_FIRST, COMPANY_PAUSE_MAX);
        self.state = State::PausedUntil(now + self.company_pause);
    }

    /// Notes that a lane was made: both tasks are alone.
    pub fn handle_made(&mut self) {
        self.company_pause = Duration::ZERO;
    }

    /// Begins a pause because a lane has broken or could not be made. The cause may pass: a lost connection, too few
    /// descriptors, a peer that refuses lanes for some time.
    pub fn handle_break(&mut self, now: Time) {
        self.pause = (2 * self.pause).clamp(PAUSE_FIRST, PAUSE_MAX);
        self.state = State::PausedUntil(now + self.pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long the pause is that has begun at `now`.
    fn pause(backoff: &Backoff, now: Time) -> Duration {
        let State::PausedUntil(time) = backoff.state else { panic!("there is no pause") };
        assert!(!backoff.may_request(now) && backoff.may_request(time));
        time - now
    }

    #[test]
    fn a_lane_is_requested_again_after_ever_longer_pauses() {
        let (mut backoff, now) = (Backoff::default(), Duration::from_secs(7));
        assert!(backoff.may_request(now) && backoff.is_new());
        backoff.handle_request();
        assert!(!backoff.may_request(now) && backoff.is_requested());
        let pauses: Vec<Duration> = (0..12).map(|_| (backoff.handle_break(now), pause(&backoff, now)).1).collect();
        assert_eq!((pauses[0], pauses[1], pauses[11]), (PAUSE_FIRST, 2 * PAUSE_FIRST, PAUSE_MAX));
        backoff.handle_given_up(now);
        assert_eq!(pause(&backoff, now), PAUSE_MAX, "as long as the last one");
    }

    #[test]
    fn pauses_because_of_company_stay_short_and_begin_anew_with_a_lane() {
        let (mut backoff, now) = (Backoff::default(), Duration::ZERO);
        let next = |backoff: &mut Backoff| (backoff.handle_company(now), pause(backoff, now)).1.as_secs();
        assert_eq!([(); 6].map(|()| next(&mut backoff)), [1, 2, 4, 8, 10, 10]);
        backoff.handle_made();
        assert_eq!(next(&mut backoff), 1);
        backoff.handle_break(now);
        assert_eq!(pause(&backoff, now), PAUSE_FIRST, "these pauses do not count among those after breaks");
    }
}
