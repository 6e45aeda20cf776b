//! What failed, told where it happens and once more at the end of a long test.
use crate::common::root;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Prints a failure. Adds it to the [`Record`], if this process or a parent has begun one.
pub fn tell(failure: impl fmt::Display) {
    let text = failure.to_string();
    let text = text.trim_end();
    println!("{text}");
    // Unit tests make failures up.
    if cfg!(test) {
        return;
    }
    // Without a record there is no file, and none is made.
    if let Ok(mut file) = OpenOptions::new().append(true).open(path()) {
        // The record is a convenience: a full disk must not turn into a second failure.
        let _ = writeln!(file, "{text}");
    }
}

/// The failures of one test run. Child processes of the run add theirs.
pub struct Record(PathBuf);

impl Record {
    /// Begins an empty record.
    pub fn begin() -> std::io::Result<Record> {
        let path = path();
        fs::create_dir_all(root().join("target"))?;
        fs::write(&path, "")?;
        Ok(Record(path))
    }
    /// Everything that has been told since.
    pub fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A record that stays is emptied by the next one.
        let _ = fs::remove_file(&self.0);
    }
}

fn path() -> PathBuf {
    root().join("target/failures.txt")
}
