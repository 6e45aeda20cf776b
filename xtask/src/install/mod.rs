//! `cargo xtask install PREFIX` copies the distribution tree to its final place, and `cargo xtask uninstall PREFIX`
//! removes it. If `$DESTDIR` is set, it is put before the prefix; makers of packages need this.
#[cfg(test)]
mod clone_tests;
mod layout;
mod manifest;

use crate::build::{build, link, place};
use crate::common::{dist, root};
use anyhow::{Context, Result, bail, ensure};
pub use layout::Layout;
use manifest::Manifest;
use rustix::fs::{Access, access};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo xtask install [--build] PREFIX [--libdir DIRECTORY]";

/// Runs `install`. With `--build`, it first checks the prefix and then builds the distribution tree.
pub fn run(arguments: &[String]) -> Result<()> {
    let (builds, arguments) = match arguments {
        [option, rest @ ..] if option == "--build" => (true, rest),
        all => (false, all),
    };
    let (prefix, libraries) = match arguments {
        [prefix] => (prefix, layout::LIBRARIES),
        [prefix, option, libraries] if option == "--libdir" => (prefix, libraries.as_str()),
        _ => bail!(USAGE),
    };
    let layout = Layout::new(&absolute(prefix)?, libraries)?;
    let to = allowed_destination(&layout.prefix)?;
    is_writable(&to)?;
    if builds {
        build()?;
    }
    install(&dist(), &to, &layout)?;
    println!("installed to {}", to.display());
    Ok(())
}

/// Runs `uninstall`.
pub fn run_uninstall(arguments: &[String]) -> Result<()> {
    let [prefix] = arguments else { bail!("usage: cargo xtask uninstall PREFIX") };
    let from = allowed_destination(&absolute(prefix)?)?;
    uninstall(&from)?;
    println!("removed from {}", from.display());
    Ok(())
}

/// Returns a directory of the command line as an absolute path.
pub fn absolute(directory: &str) -> Result<PathBuf> {
    ensure!(!directory.is_empty(), "PREFIX is empty");
    ensure!(
        !directory.starts_with('~'),
        "{directory} begins with ~, which the shell has not replaced: write $HOME instead of ~"
    );
    Ok(std::path::absolute(directory)?)
}

/// Returns the directory for the files of a prefix. Without `$DESTDIR`, it must be outside the source tree.
pub fn allowed_destination(prefix: &Path) -> Result<PathBuf> {
    let to = destination(destdir(), prefix);
    if to == prefix {
        is_outside(&root(), prefix)?;
    }
    Ok(to)
}

/// Refuses a directory that this user may not write, before a build that takes minutes.
fn is_writable(directory: &Path) -> Result<()> {
    let there = directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    access(there, Access::WRITE_OK | Access::EXEC_OK).with_context(|| {
        let cure =
            "Name a directory of yours, for example PREFIX=$HOME/.local; or run make, and then sudo make install";
        format!("cannot write to {}. {cure}", there.display())
    })
}

/// Refuses a directory in the source tree: `uninstall` would remove headers of the sources.
fn is_outside(tree: &Path, directory: &Path) -> Result<()> {
    let is_there = |path: &Path| path.canonicalize().ok().map(|found| (found, path.to_path_buf()));
    let real = match directory.ancestors().find_map(is_there) {
        Some((found, shown)) => found.join(directory.strip_prefix(shown)?),
        None => directory.to_path_buf(),
    };
    let tree = tree.canonicalize().context("the source tree is gone")?;
    ensure!(
        !real.starts_with(&tree),
        "{} lies in the source tree of hpvm. Name another directory, for example PREFIX=$HOME/.local",
        directory.display()
    );
    Ok(())
}

/// Returns `$DESTDIR`.
pub fn destdir() -> Option<PathBuf> {
    std::env::var_os("DESTDIR").map(PathBuf::from)
}

/// Returns the directory for the files of a prefix.
pub fn destination(destdir: Option<PathBuf>, prefix: &Path) -> PathBuf {
    match destdir {
        Some(destdir) if !destdir.as_os_str().is_empty() => destdir.join(prefix.strip_prefix("/").unwrap_or(prefix)),
        _ => prefix.to_path_buf(),
    }
}

/// Installs a distribution tree to the directory `to`. Removes what an earlier version has installed there and this
/// version lacks. The list of the files is written first, so an installation that fails midway can be uninstalled.
pub fn install(tree: &Path, to: &Path, layout: &Layout) -> Result<()> {
    if !tree.join("lib").join(crate::build::SONAME).exists() {
        bail!("{} is not complete; cargo xtask build makes it", tree.display());
    }
    let earlier = Manifest::read(to)?;
    let (mut new, mut both) = (Manifest::default(), Manifest::default());
    let mut files = Vec::new();
    walk(tree, Path::new(""), &mut files)?;
    for file in &files {
        let target = to.join(layout.place(file));
        // A directory of somebody else is not replaced by a file.
        ensure!(target.is_symlink() || !target.is_dir(), "{} is a directory", target.display());
        new.add_file(to, layout.place(file));
    }
    both.adopt(&new);
    earlier.iter().for_each(|earlier| both.adopt(earlier));
    if let Err(error) = both.write(to) {
        // The error that matters is the first one.
        let _ = both.remove_empty_directories(to);
        return Err(error);
    }
    copy_files(tree, &files, to, layout).with_context(|| {
        format!("the installation is not complete; make uninstall PREFIX={} removes it", layout.prefix.display())
    })?;
    if let Some(earlier) = earlier {
        earlier.remove_what_is_not_in(to, &new)?;
    }
    new.adopt_directories(&both);
    new.write(to)
}

/// Copies the files of a distribution tree to their places.
fn copy_files(tree: &Path, files: &[PathBuf], to: &Path, layout: &Layout) -> Result<()> {
    for file in files {
        let (source, target) = (tree.join(file), to.join(layout.place(file)));
        manifest::make_directories(target.parent().unwrap_or(to))?;
        let data = source.symlink_metadata()?;
        if data.is_symlink() {
            link(layout.link_target(file, &fs::read_link(&source)?), &target)?;
        } else if let Some(text) = layout.adapted(file, &source)? {
            let adapted = crate::scratch::directory("install")?;
            let path = adapted.path().join("file");
            fs::write(&path, text)?;
            place(&path, &target, 0o644)?;
        } else {
            // Everybody may read the files, whatever the umask of the build was.
            place(&source, &target, if data.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 })?;
        }
    }
    Ok(())
}

/// Removes what [`install`] has put into the directory `from`: nothing else, and no directory that existed before or
/// has other files.
pub fn uninstall(from: &Path) -> Result<()> {
    let manifest = Manifest::read(from)?.with_context(|| {
        format!(
            "no hpvm is installed in {}: {} is missing. Name the PREFIX of the installation, for example: make \
             uninstall PREFIX=/usr/local",
            from.display(),
            from.join(manifest::PATH).display()
        )
    })?;
    manifest.remove_all(from)
}

/// Collects the files and links below a directory, relative to the tree.
fn walk(tree: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let directory = tree.join(below);
    let entries = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let path = below.join(name);
        if tree.join(&path).symlink_metadata()?.is_dir() {
            walk(tree, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
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

    /// Makes a small tree, complete for [`install`].
    fn tree(place: &Path, extra: &[&str]) -> PathBuf {
        let tree = place.join("tree");
        let _ = fs::remove_dir_all(&tree);
        for file in ["lib/libpvm3.so.3", "bin/pvm"].iter().chain(extra) {
            fs::create_dir_all(tree.join(file).parent().unwrap()).unwrap();
            fs::write(tree.join(file), file).unwrap();
        }
        tree
    }

    fn files(of: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        walk(of, Path::new(""), &mut files).unwrap();
        files
    }

    #[test]
    fn destdir_goes_before_the_prefix() {
        let prefix = Path::new("/usr");
        assert_eq!(destination(Some("/tmp/package".into()), prefix), Path::new("/tmp/package/usr"));
        assert_eq!(destination(Some("".into()), prefix), Path::new("/usr"));
        assert_eq!(destination(None, prefix), Path::new("/usr"));
    }

    #[test]
    fn a_prefix_in_the_source_tree_or_with_a_tilde_is_refused() {
        let place = crate::scratch::directory("prefix").unwrap();
        let tree = place.path().join("hpvm");
        fs::create_dir(&tree).unwrap();
        std::os::unix::fs::symlink(&tree, place.path().join("link")).unwrap();
        for inside in ["hpvm", "hpvm/new/directory", "link", "link/new"] {
            assert!(is_outside(&tree, &place.path().join(inside)).is_err(), "{inside}");
        }
        for outside in ["", "hpvm2", "new/directory"] {
            is_outside(&tree, &place.path().join(outside)).unwrap();
        }
        assert!(absolute("~/hpvm").is_err() && absolute("").is_err() && absolute("/opt/~").is_ok());
    }

    #[test]
    fn an_installation_that_fails_midway_can_be_uninstalled() {
        let place = crate::scratch::directory("uninstall").unwrap();
        let prefix = place.path().join("prefix");
        let layout = Layout::new(&prefix, "lib").unwrap();
        let tree = tree(place.path(), &["share/page"]);
        // What cannot be copied is as good as a full disk; `bin` comes before it.
        fs::remove_file(tree.join("share/page")).unwrap();
        std::os::unix::net::UnixListener::bind(tree.join("share/page")).unwrap();
        let error = install(&tree, &prefix, &layout).unwrap_err().to_string();
        assert!(error.contains("make uninstall PREFIX="), "{error}");
        assert!(prefix.join("bin/pvm").exists());
        uninstall(&prefix).unwrap();
        assert!(!prefix.exists());
    }

    #[test]
    fn everybody_may_read_an_installation() {
        let place = crate::scratch::directory("uninstall").unwrap();
        let prefix = place.path().join("new/prefix");
        let tree = tree(place.path(), &["bin/tool"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        fs::set_permissions(tree.join("bin/pvm"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(tree.join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();
        install(&tree, &prefix, &Layout::new(&prefix, "lib").unwrap()).unwrap();
        let all = ["..", "", "bin", "bin/pvm", "bin/tool"].map(|path| mode(&prefix.join(path)));
        assert_eq!(all, [0o755, 0o755, 0o755, 0o644, 0o755]);
    }

    #[test]
    fn uninstall_leaves_what_others_have_put_there() {
        let place = crate::scratch::directory("uninstall").unwrap();
        let prefix = place.path().join("prefix");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        fs::write(prefix.join("bin/other"), "").unwrap();
        let layout = Layout::new(&prefix, "lib").unwrap();
        install(&tree(place.path(), &[]), &prefix, &layout).unwrap();
        assert!(prefix.join("bin/pvm").exists());
        fs::write(prefix.join("lib/theirs"), "").unwrap();
        uninstall(&prefix).unwrap();
        assert_eq!(files(&prefix), [Path::new("bin/other"), Path::new("lib/theirs")]);
        assert!(!prefix.join("share").exists());
        assert!(uninstall(&prefix).unwrap_err().to_string().contains("no hpvm is installed"));
    }

    #[test]
    fn a_second_installation_removes_what_only_the_first_had() {
        let place = crate::scratch::directory("uninstall").unwrap();
        let prefix = place.path().join("prefix");
        let layout = Layout::new(&prefix, "lib").unwrap();
        install(&tree(place.path(), &["share/old/page"]), &prefix, &layout).unwrap();
        install(&tree(place.path(), &["share/new/page"]), &prefix, &layout).unwrap();
        assert!(!prefix.join("share/old").exists() && prefix.join("share/new/page").exists());
        uninstall(&prefix).unwrap();
        assert!(!prefix.exists(), "the directories of the first installation are ours, too");
    }
}
