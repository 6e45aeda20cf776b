//! The line that shows how far `pvm bench` is, if standard error is a terminal.
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The characters that move the cursor to the start of the line and clear the line.
const CLEAR: &str = "\r\x1b[K";

/// The time that is left, and the line that shows it.
pub struct Progress {
    is_shown: bool,
    end: Instant,
    all: usize,
    done: usize,
}

impl Progress {
    /// Begins; `all` is the number of rows to measure within the time.
    pub fn new(all: usize, time: Duration) -> Progress {
        Progress { is_shown: io::stderr().is_terminal(), end: Instant::now() + time, all, done: 0 }
    }

    /// Returns the time for the next row: its share of the time that is left.
    pub fn share(&self) -> Duration {
        let rows = u32::try_from(self.all.saturating_sub(self.done).max(1)).unwrap_or(u32::MAX);
        self.end.saturating_duration_since(Instant::now()) / rows
    }

    /// Shows what is measured now.
    pub fn show(&self, what: &str) {
        if self.is_shown {
            self.write(&format!("{CLEAR}{}", self.text(what, Instant::now())));
        }
    }

    fn text(&self, what: &str, now: Instant) -> String {
        let left = self.end.saturating_duration_since(now).as_secs_f64().ceil();
        format!("{what}: {} of {} measured, {left:.0} s left", self.done, self.all)
    }

    /// Notes that a row has been measured, and removes the line, so that the row can be printed.
    pub fn step(&mut self) {
        self.done += 1;
        self.clear();
    }

    /// Removes the line.
    pub fn clear(&self) {
        if self.is_shown {
            self.write(CLEAR);
        }
    }

    fn write(&self, text: &str) {
        let mut terminal = io::stderr().lock();
        // If the line cannot be shown, the measurement continues without it.
        let _ = terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_shared_among_the_rows_that_are_left() {
        let mut progress = Progress::new(4, Duration::from_secs(100));
        let share = progress.share();
        assert!(share > Duration::from_secs(24) && share <= Duration::from_secs(25), "{share:?}");
        (0..3).for_each(|_| progress.step());
        assert!(progress.share() > Duration::from_secs(99));
        progress.step();
        assert!(progress.share() > Duration::from_secs(99));
        let now = progress.end - Duration::from_millis(11_500);
        assert_eq!(progress.text("latency, 8 bytes", now), "latency, 8 bytes: 4 of 4 measured, 12 s left");
    }
}
