//! What tasks report about a fabric that the user has named and that cannot be used.
use crate::log::Log;
use pvm_core::dialogue::plain;
use std::collections::BTreeSet;

/// Different reports that are logged. Usually all tasks of a host report the same.
///
/// * Filled by: tasks of this host
/// * Setting: none, since more reports help nobody
/// * Reached: further reports are not logged
/// * Test: `each_report_is_logged_once_and_only_a_few_are`
const REPORTS_MAX: usize = 8;
/// The bytes of a report that are logged.
const REPORT_BYTES: usize = 1000;

/// The reports that were logged.
#[derive(Default)]
pub struct FabricComplaints {
    logged: BTreeSet<String>,
}

impl FabricComplaints {
    /// Returns the line to log, if such a report was not logged before.
    fn line(&mut self, reason: &[u8]) -> Option<String> {
        let reason = plain(&String::from_utf8_lossy(&reason[..reason.len().min(REPORT_BYTES)]));
        let is_new = self.logged.len() < REPORTS_MAX && self.logged.insert(reason.clone());
        is_new.then(|| format!("no fabric: {reason}"))
    }

    /// Logs a report.
    pub fn log(&mut self, log: &mut Log, reason: &[u8]) {
        if let Some(line) = self.line(reason) {
            log.line(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_report_is_logged_once_and_only_a_few_are() {
        let mut complaints = FabricComplaints::default();
        assert_eq!(complaints.line(b"looked\x1b[1m for it"), Some("no fabric: looked for it".into()));
        assert_eq!(complaints.line(b"looked\x1b[1m for it"), None);
        let lines = (0..100).filter_map(|number| complaints.line(format!("{number}").as_bytes())).count();
        assert_eq!(lines, REPORTS_MAX - 1);
        assert!(FabricComplaints::default().line(&[b'x'; 5000]).unwrap().len() < 2 * REPORT_BYTES);
    }
}
