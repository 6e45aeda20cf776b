//! Connections that stand and carry nothing.
use pvm_net::Carried;
use std::time::{Duration, Instant};

/// How long nothing gets through until a link is given up.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection carries nothing.
#[derive(Default)]
pub(super) struct Stall {
    /// Since when, and what it had carried until then.
    since: Option<(Instant, Carried)>,
}

impl Stall {
    pub fn reset(&mut self) {
        self.since = None;
    }

    /// Whether that is too long now. While nothing is tried again there is no stall: either nothing is under way, or the
    /// other side's system says that its task does not read. One who waits for what comes cannot know.
    pub fn is_expired(&mut self, carried: Carried, waits: bool, now: Instant) -> bool {
        if !carried.retries && !waits {
            self.reset();
            return false;
        }
        let (since, before) = *self.since.get_or_insert((now, carried));
        if carried.acknowledged != before.acknowledged || (waits && carried.received != before.received) {
            self.since = Some((now, carried));
            return false;
        }
        now.duration_since(since) >= STALL_LIMIT
    }
}
