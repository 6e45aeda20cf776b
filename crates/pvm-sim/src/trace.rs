//! The events of a run: a hash of all events, and, if requested, readable lines about the last events.
use crate::queue::{Nanos, SECOND};
use pvm_core::tid::Tid;
use std::collections::VecDeque;

/// The most lines that are kept.
const LINES_MAX: usize = 200_000;

struct Line {
    at: Nanos,
    host: Tid,
    text: String,
}

/// The trace of a run.
pub struct Trace {
    hash: u64,
    lines: Option<VecDeque<Line>>,
}

impl Trace {
    /// Makes a trace, which keeps readable lines if `readable` is set.
    pub fn new(readable: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: readable.then(VecDeque::new) }
    }

    /// Returns the hash. Runs with the same seed and scenario have the same hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a number to the hash.
    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds bytes to the hash.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.number(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        self.number(words.remainder().iter().fold(bytes.len() as u64, |sum, byte| sum << 8 | u64::from(*byte)));
    }

    /// Keeps a line about a host, if lines are kept.
    pub fn line(&mut self, at: Nanos, host: Tid, text: impl FnOnce() -> String) {
        let Some(lines) = &mut self.lines else { return };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(Line { at, host, text: text() });
    }

    /// Returns the last lines about these hosts, or about all hosts if `hosts` is empty.
    pub fn last(&self, count: usize, hosts: &[Tid]) -> Vec<String> {
        let wanted = |line: &&Line| hosts.is_empty() || hosts.contains(&line.host);
        let lines = self.lines.iter().flatten().rev().filter(wanted).take(count);
        let mut last: Vec<String> = lines
            .map(|line| {
                let seconds = line.at as f64 / SECOND as f64;
                format!("{seconds:12.6} {:7} {}", line.host.to_string(), line.text)
            })
            .collect();
        last.reverse();
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_and_so_does_the_order() {
        let hash = |parts: &[&[u8]]| {
            let mut trace = Trace::new(false);
            parts.iter().for_each(|part| trace.bytes(part));
            trace.hash()
        };
        assert_eq!(hash(&[b"one", b"twelve bytes"]), hash(&[b"one", b"twelve bytes"]));
        assert_ne!(hash(&[b"one", b"two"]), hash(&[b"two", b"one"]));
        assert_ne!(hash(&[b"a\0"]), hash(&[b"a"]));
    }

    #[test]
    fn lines_are_found_by_their_host() {
        let mut trace = Trace::new(true);
        let (one, two) = (Tid::host_number(1), Tid::host_number(2));
        (0..4u64).for_each(|at| trace.line(at, if at % 2 == 0 { one } else { two }, || format!("event {at}")));
        let last = trace.last(1, &[one]);
        assert!(last.len() == 1 && last[0].ends_with("event 2"), "{last:?}");
        assert_eq!(trace.last(9, &[]).len(), 4);
    }
}
