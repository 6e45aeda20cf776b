//! What is kept between runs: one file for each finished experiment, so that an interrupted run can continue.

use super::Form;
use super::sheet::Cells;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// The file that exists while a run is not finished.
const UNFINISHED: &str = "unfinished";

/// The results of an experiment.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub struct Record {
    pub experiment: String,
    /// How long the experiment took.
    pub seconds: f64,
    /// Lines with the versions, the day and the machine.
    pub about: Vec<String>,
    pub cells: Cells,
}

/// The directory of a run's files.
pub struct Store {
    pub directory: PathBuf,
}

impl Store {
    /// Opens the directory of a form of the report.
    pub fn open(form: Form) -> Result<Store> {
        let all = crate::common::root().join("target/papers");
        let directory = if form == Form::Short { all.join("short") } else { all };
        fs::create_dir_all(directory.join("results"))
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Store { directory })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join("results").join(name).with_extension("json")
    }

    fn unfinished(&self) -> PathBuf {
        self.directory.join(UNFINISHED)
    }

    /// Returns whether the last run was interrupted.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished().exists()
    }

    /// Begins a run. `keeps`: whether the results of finished experiments are kept.
    pub fn begin(&self, keeps: bool) -> Result<()> {
        if !keeps {
            for entry in fs::read_dir(self.directory.join("results"))?.flatten() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(fs::write(self.unfinished(), "")?)
    }

    /// Notes that the run is finished.
    pub fn end(&self) -> Result<()> {
        Ok(fs::remove_file(self.unfinished())?)
    }

    /// Keeps the results of an experiment. The file appears as a whole, so an interrupt leaves no half of it.
    pub fn put(&self, record: &Record) -> Result<()> {
        let file = self.file(&record.experiment);
        let part = file.with_extension("part");
        fs::write(&part, serde_json::to_string_pretty(record)?)?;
        Ok(fs::rename(&part, &file)?)
    }

    /// Returns the results of an experiment, if it has been finished.
    pub fn get(&self, name: &str) -> Option<Record> {
        serde_json::from_str(&fs::read_to_string(self.file(name)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        let mut cells = Cells::default();
        cells.add("sheet", "row", "column", 1.5);
        Record { experiment: name.into(), seconds: 2.0, about: vec!["a machine".into()], cells }
    }

    #[test]
    fn a_run_that_keeps_nothing_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("results")).unwrap();
        let store = Store { directory: folder.path().into() };
        store.begin(false).unwrap();
        store.put(&record("one")).unwrap();
        assert!(store.is_unfinished());
        store.begin(true).unwrap();
        assert_eq!((store.get("one"), store.get("two")), (Some(record("one")), None));
        store.end().unwrap();
        assert!(!store.is_unfinished());
        store.begin(false).unwrap();
        assert_eq!(store.get("one"), None);
    }
}
