//! Tells the daemon when this task sleeps for long, and when it is awake again.
//!
//! While the tasks that are awake outnumber the cores, waits sleep early and long messages do not rely on a receiver that
//! runs at the same time. A master that waits for its workers, or a console, wants no core, so it should not count.
use super::Member;
use pvm_core::proto::ToDaemon;
use std::time::{Duration, Instant};

/// How long a task sleeps before it says so.
const PAUSE: Duration = Duration::from_millis(100);
/// The least time between two reports of sleep: each one, and the report of its end, cost the daemon a wake-up.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What this task has told the daemon.
#[derive(Default, Clone, Copy)]
pub(crate) struct Idleness {
    is_told: bool,
    /// Whether the task counts as sleeping whatever it does.
    always: bool,
    told_at: Option<Instant>,
}

impl Idleness {
    /// Returns when a task that has slept since then should say so.
    fn due(&self, since: Instant) -> Instant {
        let earliest = since + PAUSE;
        self.told_at.map_or(earliest, |told| earliest.max(told + REPORT_INTERVAL))
    }
}

impl Member {
    /// Called by a wait just before it sleeps; `since` is when it slept first. Tells the daemon that the task sleeps, if it
    /// has slept long enough. Returns how long the task must still sleep before it tells; `None` if there is nothing to tell.
    pub fn note_sleep(&mut self, since: &mut Option<Instant>) -> Option<Duration> {
        let now = Instant::now();
        let since = *since.get_or_insert(now);
        if self.idleness.is_told {
            return None;
        }
        let left = self.idleness.due(since).saturating_duration_since(now);
        // Tasks that this one has spawned may connect within this time, so the count is read only after it. A task that
        // connects later is noticed when this one next wakes.
        if !left.is_zero() {
            return Some(left);
        }
        if !self.endpoint.may_be_crowded() {
            return None;
        }
        self.idleness = Idleness { is_told: true, told_at: Some(now), ..self.idleness };
        self.send(&ToDaemon::Idle(true));
        None
    }

    /// Tells the daemon that this task is awake again, if it has told that it sleeps.
    #[cold]
    pub fn note_awake(&mut self) {
        if self.idleness.is_told && !self.idleness.always {
            self.idleness.is_told = false;
            self.send(&ToDaemon::Idle(false));
        }
    }

    /// Tells the daemon that this task never wants a core for long.
    pub fn never_compete(&mut self) {
        self.idleness = Idleness { is_told: true, always: true, told_at: None };
        self.send(&ToDaemon::Idle(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_sleeps_often_says_so_rarely() {
        let (start, mut idleness) = (Instant::now(), Idleness::default());
        assert_eq!(idleness.due(start), start + PAUSE);
        idleness.told_at = Some(start);
        assert_eq!(idleness.due(start + PAUSE), start + REPORT_INTERVAL);
        assert_eq!(idleness.due(start + REPORT_INTERVAL), start + REPORT_INTERVAL + PAUSE);
    }
}
