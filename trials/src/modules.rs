//! House rule: a module with submodules is `x/mod.rs`, never `x.rs` with a folder `x`.
use crate::common::root;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};

/// Fails if one of these source files is an `x.rs` whose submodules are in a folder `x`.
pub fn have_one_convention(sources: &[PathBuf]) -> Result<()> {
    let wrong: Vec<String> = misplaced(sources).iter().map(|path| path.display().to_string()).collect();
    ensure!(wrong.is_empty(), "to be moved to NAME/mod.rs: {}", wrong.join(" "));
    Ok(())
}

/// Returns the files `x.rs` beside a folder `x` with source files, relative to the root of the tree.
fn misplaced(sources: &[PathBuf]) -> Vec<&Path> {
    let is_source = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "rs");
    let has_folder = |path: &Path| {
        let folder = path.with_extension("");
        sources.iter().filter(is_source).any(|other| other.parent() == Some(&folder))
    };
    let files = sources.iter().filter(is_source).map(|path| path.strip_prefix(root()).unwrap_or(path));
    files.filter(|path| has_folder(path) || has_folder(&root().join(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_beside_the_folder_of_its_parts_is_misplaced() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let wrong = paths(&["a/src/x.rs", "a/src/x/y.rs", "a/src/z/mod.rs", "a/src/z/w.rs"]);
        assert_eq!(misplaced(&wrong), [Path::new("a/src/x.rs")]);
        // The C programs of an integration test are no modules.
        assert!(misplaced(&paths(&["a/tests/programs.rs", "a/tests/programs/start.c"])).is_empty());
        assert!(have_one_convention(&wrong).unwrap_err().to_string().contains("a/src/x.rs"));
    }
}
