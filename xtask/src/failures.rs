//! Failures are reported when they happen, and once more at the end of a long test.
use crate::common::root;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// With this environment variable, failures are printed and not recorded.
pub const UNRECORDED: &str = "HPVM_FAILURES_UNRECORDED";

/// Prints a failure, and adds it to the [`Record`] that this process or its parent has begun, if there is one.
pub fn report(failure: impl fmt::Display) {
    let text = failure.to_string();
    let text = text.trim_end();
    println!("{text}");
    // The failures that unit tests report are invented, and are not recorded.
    if std::env::var_os(UNRECORDED).is_some() {
        return;
    }
    // Without a record the file does not exist, and this call does not create it.
    if let Ok(mut file) = OpenOptions::new().append(true).open(path()) {
        // The record is a convenience: a full disk must not cause a second failure.
        let _ = writeln!(file, "{text}");
    }
}

/// The failures of a test run. Child processes of the run add their failures, too.
pub struct Record(PathBuf);

impl Record {
    /// Begins an empty record.
    pub fn begin() -> std::io::Result<Record> {
        let path = path();
        fs::create_dir_all(root().join("target"))?;
        fs::write(&path, "")?;
        Ok(Record(path))
    }
    /// Returns all failures since the record began.
    pub fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // If the file cannot be removed, the next record empties it.
        let _ = fs::remove_file(&self.0);
    }
}

fn path() -> PathBuf {
    root().join("target/failures.txt")
}
