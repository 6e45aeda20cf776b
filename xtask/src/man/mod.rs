//! The manual pages of the calls, which are made from `man/calls`.
pub mod markup;
pub mod page;
pub mod render;

use crate::common::root;
use anyhow::{Context, Result};
use page::Page;
use std::fs;
use std::path::Path;

/// The section of the manual with the calls.
pub const SECTION: &str = "3";

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
