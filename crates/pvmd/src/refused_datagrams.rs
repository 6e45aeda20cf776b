//! Counts the datagrams that are not used. A flood of them must not fill the log.
use pvm_core::datagram_error::DatagramError;

/// The counts since the daemon's start.
#[derive(Default)]
pub struct RefusedDatagrams {
    malformed: u64,
    forged: u64,
    unexpected: u64,
}

impl RefusedDatagrams {
    /// Counts a datagram. Returns a line for the log if the number of malformed and forged ones has become a power of
    /// two.
    pub fn count(&mut self, error: DatagramError) -> Option<String> {
        match error {
            DatagramError::Malformed => self.malformed += 1,
            DatagramError::Forged => self.forged += 1,
            DatagramError::Unexpected => {
                self.unexpected += 1;
                return None;
            }
        }
        (self.malformed + self.forged).is_power_of_two().then(|| self.text())
    }

    /// Returns the line for the log at the end, if there were malformed or forged datagrams.
    pub fn sum(&self) -> Option<String> {
        (self.malformed + self.forged > 0).then(|| self.text())
    }

    fn text(&self) -> String {
        let RefusedDatagrams { malformed, forged, unexpected } = self;
        format!("datagrams refused so far: {forged} forged, {malformed} malformed; {unexpected} for nobody here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_adds_few_lines_to_the_log() {
        let mut refused = RefusedDatagrams::default();
        assert!(refused.count(DatagramError::Unexpected).is_none() && refused.sum().is_none());
        let kinds = [DatagramError::Forged, DatagramError::Malformed].into_iter().cycle();
        let lines: Vec<String> = kinds.take(1_000_000).filter_map(|error| refused.count(error)).collect();
        assert_eq!(lines.len(), 20);
        assert_eq!(lines[0], "datagrams refused so far: 1 forged, 0 malformed; 1 for nobody here");
        let sum = "datagrams refused so far: 500000 forged, 500000 malformed; 1 for nobody here";
        assert_eq!(refused.sum().as_deref(), Some(sum));
    }
}
