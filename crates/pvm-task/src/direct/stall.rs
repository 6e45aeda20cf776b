//! Stalled connections: they are open, but carry nothing.
use pvm_net::Carried;
use std::time::{Duration, Instant};

/// If a connection carries nothing for this time, the link is given up.
pub(super) const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Measures how long a connection has carried nothing.
#[derive(Default)]
pub(super) struct Stall {
    /// When the stall began, and what the connection had carried until then.
    since: Option<(Instant, Carried)>,
}

impl Stall {
    /// Ends a stall.
    pub fn reset(&mut self) {
        self.since = None;
    }

    /// Returns whether a stall has lasted too long. There is no stall while the system retransmits nothing: either no
    /// data is in flight, or the peer's system reports that its task does not read. `waits`: whether this task waits
    /// for data; then there can be a stall without retransmissions too.
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
