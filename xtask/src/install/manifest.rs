//! The list of what an installation has made, so that `uninstall` removes that and nothing else.
use crate::build::place;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The place of the list, relative to the prefix. Each line is `file PATH` or `directory PATH`.
pub const PATH: &str = "share/hpvm/installed";

/// The files and links of an installation, and the directories that it has made. Paths are relative to the prefix; the
/// empty path is the prefix.
#[derive(Default)]
pub struct Manifest {
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Manifest {
    /// Reads the list of the installation in this directory. Returns `None` if there is none.
    pub fn read(prefix: &Path) -> Result<Option<Manifest>> {
        let path = prefix.join(PATH);
        match fs::read_to_string(&path) {
            Ok(text) => Manifest::parse(&text).with_context(|| path.display().to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn parse(text: &str) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        for line in text.lines() {
            let (kind, path) = line.split_once(' ').with_context(|| format!("no path in {line:?}"))?;
            let path = PathBuf::from(path);
            // The list is a file that others may have changed; nothing outside the prefix is ever removed.
            ensure!(path.components().all(|part| matches!(part, Component::Normal(_))), "{line:?} leads elsewhere");
            match kind {
                "file" => manifest.files.insert(path),
                "directory" => manifest.directories.insert(path),
                _ => anyhow::bail!("neither file nor directory: {line:?}"),
            };
        }
        Ok(manifest)
    }

    /// Writes the list, which contains itself.
    pub fn write(&mut self, prefix: &Path) -> Result<()> {
        let path = prefix.join(PATH);
        self.add_file(prefix, PathBuf::from(PATH));
        let line = |kind: &'static str| move |path: &PathBuf| format!("{kind} {}\n", path.display());
        let directories = self.directories.iter().map(line("directory"));
        let text: String = directories.chain(self.files.iter().map(line("file"))).collect();
        make_directories(path.parent().unwrap_or(prefix))?;
        // The list that is there stays whole if the disk is full.
        let written = crate::scratch::directory("installed")?;
        let new = written.path().join("list");
        fs::write(&new, text).with_context(|| format!("cannot write {}", new.display()))?;
        place(&new, &path, 0o644)
    }

    /// Notes that the installation has this file, and the directories that it makes for it.
    pub fn add_file(&mut self, prefix: &Path, path: PathBuf) {
        let missing = path.ancestors().skip(1).filter(|directory| !prefix.join(directory).is_dir());
        self.directories.extend(missing.map(Path::to_path_buf));
        self.files.insert(path);
    }

    /// Notes the directories that an earlier installation has made.
    pub fn adopt_directories(&mut self, earlier: &Manifest) {
        self.directories.extend(earlier.directories.iter().cloned());
    }

    /// Notes the files and the directories of an earlier installation.
    pub fn adopt(&mut self, earlier: &Manifest) {
        self.files.extend(earlier.files.iter().cloned());
        self.adopt_directories(earlier);
    }

    /// Removes the files that `new` lacks, and the directories that are empty then.
    pub fn remove_what_is_not_in(&self, prefix: &Path, new: &Manifest) -> Result<()> {
        let list = Path::new(PATH);
        self.files
            .difference(&new.files)
            .filter(|file| *file != list)
            .try_for_each(|file| remove(&prefix.join(file)))?;
        self.remove_empty_directories(prefix)
    }

    /// Removes all files, and the directories that are empty then.
    pub fn remove_all(&self, prefix: &Path) -> Result<()> {
        self.files.iter().try_for_each(|file| remove(&prefix.join(file)))?;
        self.remove_empty_directories(prefix)
    }

    /// Removes the directories that are empty.
    pub fn remove_empty_directories(&self, prefix: &Path) -> Result<()> {
        // In reverse order, a directory comes before its parent.
        for directory in self.directories.iter().rev() {
            let path = prefix.join(directory);
            match fs::remove_dir(&path) {
                Err(error) if !matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Makes a directory and its parents, which everybody may enter whatever the umask says, as everybody may read the
/// files.
pub fn make_directories(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), make_directories)?;
    let made = fs::create_dir(path).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)));
    made.with_context(|| format!("cannot make {}", path.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_leads_out_of_the_prefix_is_refused() {
        for line in ["file ../etc/passwd", "file /etc/passwd", "directory bin/../..", "link bin/pvm", "file"] {
            assert!(Manifest::parse(line).is_err(), "{line}");
        }
        let manifest = Manifest::parse("directory \ndirectory bin\nfile bin/pvm\n").unwrap();
        assert_eq!((manifest.files.len(), manifest.directories.len()), (1, 2));
    }
}
