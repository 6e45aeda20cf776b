//! `cargo xtask install PREFIX`: copies the distribution tree to its final place. If `$DESTDIR` is set, it is put
//! before the prefix; makers of packages need this. `cargo xtask uninstall PREFIX` removes what was copied.
use crate::build::{link, place};
use crate::common::dist;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let [prefix] = arguments else { bail!("usage: cargo xtask install PREFIX") };
    let prefix = std::path::absolute(prefix)?;
    let tree = dist();
    if !tree.join("lib").join(crate::build::SONAME).exists() {
        bail!("{} is not complete; cargo xtask build makes it", tree.display());
    }
    let to = destination(std::env::var_os("DESTDIR").map(PathBuf::from), &prefix);
    copy_tree(&tree, &to)?;
    println!("installed to {}", to.display());
    Ok(())
}

/// Runs `uninstall`: removes the files of the distribution tree from the prefix, and then the directories that are
/// empty.
pub fn run_uninstall(arguments: &[String]) -> Result<()> {
    let [prefix] = arguments else { bail!("usage: cargo xtask uninstall PREFIX") };
    let prefix = std::path::absolute(prefix)?;
    let tree = dist();
    if !tree.join("lib").join(crate::build::SONAME).exists() {
        bail!("{} is not complete; cargo xtask build makes the list of what was installed", tree.display());
    }
    let from = destination(std::env::var_os("DESTDIR").map(PathBuf::from), &prefix);
    let count = remove_tree(&tree, &from)?;
    println!("removed {count} files from {}", from.display());
    Ok(())
}

/// Removes from `at` the files that `tree` has. Returns how many there were. Other files stay, and so do the
/// directories that hold them.
fn remove_tree(tree: &Path, at: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in tree.read_dir().with_context(|| format!("cannot read {}", tree.display()))? {
        let entry = entry?;
        let path = at.join(entry.file_name());
        let Ok(there) = fs::symlink_metadata(&path) else { continue };
        if entry.file_type()?.is_dir() {
            if there.is_dir() {
                count += remove_tree(&entry.path(), &path)?;
                // This fails if the directory holds other files.
                let _ = fs::remove_dir(&path);
            }
        } else if !there.is_dir() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            count += 1;
        }
    }
    Ok(count)
}

fn destination(destdir: Option<PathBuf>, prefix: &Path) -> PathBuf {
    match destdir {
        Some(destdir) if !destdir.as_os_str().is_empty() => destdir.join(prefix.strip_prefix("/").unwrap_or(prefix)),
        _ => prefix.to_path_buf(),
    }
}

/// Copies a tree, and symbolic links as links.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in from.read_dir().with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&from, &to)?;
        } else if kind.is_symlink() {
            link(fs::read_link(&from)?, &to)?;
        } else {
            place(&from, &to, entry.metadata()?.permissions().mode() & 0o777)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_goes_before_the_prefix() {
        let prefix = Path::new("/usr");
        assert_eq!(destination(Some("/tmp/package".into()), prefix), Path::new("/tmp/package/usr"));
        assert_eq!(destination(Some("".into()), prefix), Path::new("/usr"));
        assert_eq!(destination(None, prefix), Path::new("/usr"));
    }

    #[test]
    fn what_was_installed_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, at) = (folder.path().join("tree"), folder.path().join("at"));
        fs::create_dir_all(tree.join("lib/deep")).unwrap();
        fs::create_dir_all(at.join("share")).unwrap();
        fs::write(tree.join("lib/deep/a"), "").unwrap();
        fs::create_dir_all(tree.join("share")).unwrap();
        link("deep/a", &tree.join("lib/b")).unwrap();
        copy_tree(&tree, &at).unwrap();
        fs::write(at.join("share/other"), "").unwrap();
        assert_eq!(remove_tree(&tree, &at).unwrap(), 2);
        assert!(!at.join("lib").exists() && at.join("share/other").exists());
        assert_eq!(remove_tree(&tree, &at).unwrap(), 0);
    }
}
