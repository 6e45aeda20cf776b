//! `cargo xtask man`: makes the manual pages of the calls from `man/calls`, and checks them as far as a program can:
//! every public name has a page, synopses agree with the headers, examples compile and print the output on their page.
mod check;
mod examples;
mod markup;
mod page;
mod render;

use crate::build::build_unless_told;
use crate::common::{Checks, root};
use crate::counts::Counts;
use anyhow::{Context, Result, bail};
pub use page::Page;
use std::fs;
use std::path::Path;

/// The section of the manual with the calls.
const SECTION: &str = "3";

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

/// Returns all pages, sorted by name.
pub fn pages() -> Result<Vec<Page>> {
    page::read_all(&root().join("man/calls"))
}

/// Writes all pages, and links for their further names, into a directory that has no other files.
pub fn write(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut wanted = Vec::new();
    for page in pages()? {
        wanted.push((page.name.clone(), render::page(&page)));
        let link = format!(".so man{SECTION}/{}.{SECTION}\n", page.name);
        wanted.extend(page.further_names().into_iter().map(|name| (name, link.clone())));
    }
    let wanted: Vec<(String, String)> =
        wanted.into_iter().map(|(name, text)| (format!("{name}.{SECTION}"), text)).collect();
    for entry in directory.read_dir()? {
        let path = entry?.path();
        if !wanted.iter().any(|(name, _)| path.ends_with(name)) {
            fs::remove_file(path)?;
        }
    }
    for (name, text) in wanted {
        let path = directory.join(name);
        if fs::read_to_string(&path).ok().as_deref() != Some(&*text) {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
