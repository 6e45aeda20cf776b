//! `cargo xtask compatibility`: writes docs/compatibility.md, a table of everything that the original has, with its
//! status in hpvm.
//!
//! Names come from the contract, differences from the manual pages and the conformance cases, evidence from the cases.
//! docs/compatibility.toml contains what none of these sources says.
mod evidence;
mod facts;
mod tables;

use crate::common::root;
use anyhow::{Context, Result, ensure};
use evidence::Evidence;
use facts::Facts;
use std::path::PathBuf;
use xtask::man;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    ensure!(arguments.is_empty(), "compatibility takes no arguments");
    let path = document();
    std::fs::write(&path, text()?).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that the document is what the command would write.
pub fn is_current() -> Result<()> {
    let written = std::fs::read_to_string(document()).unwrap_or_default();
    ensure!(written == text()?, "docs/compatibility.md is outdated: run cargo xtask compatibility");
    Ok(())
}

fn document() -> PathBuf {
    root().join("docs/compatibility.md")
}

fn text() -> Result<String> {
    let facts = Facts::read()?;
    let pages = man::pages()?;
    let evidence = Evidence::gather()?;
    facts.check(&evidence)?;
    Ok(tables::document(&facts, &pages, &evidence))
}
