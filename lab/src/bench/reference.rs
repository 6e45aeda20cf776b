//! The reference run of the documentation: tables and picture.
use super::samples::Samples;
use super::systems::System;
use super::verdicts::Verdict;
use super::{about, picture, settings, tables, targets};
use crate::common::root;
use anyhow::Result;
use std::collections::BTreeSet;

/// Writes the results of a run as the reference run.
pub fn write(samples: &Samples, verdicts: &[Verdict], systems: &BTreeSet<System>) -> Result<()> {
    let folder = root().join("docs/benchmarks");
    std::fs::create_dir_all(&folder)?;
    let about = about(systems);
    picture::draw(samples, &about, &folder.join("reference.svg"))?;
    let text = format!(
        "# A reference run\n\nWritten by `cargo xtask bench --reference`. [Benchmarks](../benchmarks.md) explains the \
         measures.\n\n```\n{}\n```\n\n![All measures](reference.svg)\n\n## Settings\n\n```\n{}```\n\n## Tables\n\n\
         ```\n{}```\n\n## Targets\n\n```\n{}```\n",
        about.join("\n"),
        // Paths of this machine are of no use to others.
        settings(systems).replace(&format!("{}/", root().display()), ""),
        tables::all(samples).trim_start(),
        targets(verdicts),
    );
    let path = folder.join("reference.md");
    std::fs::write(&path, text)?;
    println!("{}", path.display());
    Ok(())
}
