//! Temporary directories that are named by their purpose and by the process that made them.
use crate::processes;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// Makes an empty directory, which is removed with its contents when the value is dropped.
pub fn directory(purpose: &str) -> Result<TempDir> {
    let start = format!("hpvm-{purpose}-{}-", std::process::id());
    tempfile::Builder::new().prefix(&start).tempdir().with_context(|| format!("cannot make a directory {start}*"))
}

/// Returns the directories of this purpose whose process was killed and could not remove them.
pub fn abandoned(purpose: &str) -> Vec<PathBuf> {
    let start = format!("hpvm-{purpose}-");
    let is_abandoned = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(&start).and_then(|rest| rest.split('-').next()?.parse().ok());
        owner.is_some_and(|owner| !processes::exists(owner))
    };
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    entries.filter(is_abandoned).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_directory_is_abandoned_when_its_process_has_ended() {
        let own = directory("scratch").unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let start = format!("hpvm-scratch-{}-", child.id());
        let other = tempfile::Builder::new().prefix(&start).tempdir().unwrap();
        let abandoned = abandoned("scratch");
        assert!(abandoned.contains(&other.path().to_path_buf()) && !abandoned.contains(&own.path().to_path_buf()));
    }
}
