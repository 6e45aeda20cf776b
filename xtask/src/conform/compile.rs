//! Compiles the C cases, once for both sides.
//!
//! They are compiled with Debian's header and linked to Debian's library, so that what runs on
//! hpvm is what runs on PVM: the same file, relinked by nothing but `LD_LIBRARY_PATH`.

use super::case::{Case, Kind};
use crate::common;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Where the compiled cases lie: it is on the daemons' search path.
pub fn folder() -> PathBuf {
    common::root().join("target/conform/bin")
}

/// The program of a case.
pub fn program(case: &Case) -> PathBuf {
    folder().join(&case.name)
}

/// Compiles every C case that is older than its source.
pub fn all(cases: &[Case]) -> Result<()> {
    std::fs::create_dir_all(folder())?;
    let header = common::root().join("tests/conform/case.h");
    for case in cases.iter().filter(|case| case.kind == Kind::Program) {
        let target = program(case);
        let newest = changed(&case.source).max(changed(&header));
        if changed(&target) > newest {
            continue;
        }
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wno-unused-function", "-I"])
            .arg(common::root().join("tests/conform"))
            .arg("-o")
            .arg(&target)
            .arg(&case.source)
            .args(["-lpvm3", "-lpthread"])
            .output()?;
        if !output.status.success() {
            bail!("{}:\n{}", case.source.display(), String::from_utf8_lossy(&output.stderr));
        }
        print!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}
