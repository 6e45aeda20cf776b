//! `cargo xtask man`: checks the manual pages of the calls (`man/calls`) as far as a program can: every public name has a
//! page, synopses agree with the headers, examples compile and print the output on their page.
mod check;
mod examples;

use crate::build::build_unless_told;
use crate::common::Checks;
use crate::counts::Counts;
use anyhow::{Result, bail};
use xtask::man::page::Page;
use xtask::man::pages;

/// Runs the command: `man [--as-it-is] [--only NAME]...`, where NAME is a part of a page's name.
pub fn run(arguments: &[String]) -> Result<()> {
    build_unless_told(arguments)?;
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let pages = pages()?;
    let only: Vec<&String> =
        arguments.iter().skip_while(|word| *word != "--only").filter(|word| *word != "--only").collect();
    let chosen: Vec<&Page> =
        pages.iter().filter(|page| only.is_empty() || only.iter().any(|part| page.name.contains(&**part))).collect();
    if let Some(unknown) = only.iter().find(|part| !pages.iter().any(|page| page.name.contains(&***part))) {
        bail!("no page of man/calls has {unknown} in its name");
    }
    let mut checks = Checks::default();
    if only.is_empty() {
        check::all_pages(&mut checks, &pages)?;
    }
    check::each_page(&mut checks, &pages, &chosen)?;
    examples::check(&mut checks, &pages, &chosen)?;
    Ok(checks.counts())
}
