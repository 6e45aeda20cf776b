//! `cargo xtask install PREFIX`: copies the distribution tree to its final place. If `$DESTDIR` is set, it is put
//! before the prefix; makers of packages need this.
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
}
