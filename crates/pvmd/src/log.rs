//! The log file (contract 5.2): `<tmp>/pvml.<uid>`.
//!
//! A new daemon empties the log of this user's previous daemon (D23). A full log is kept as `.old` (D59). If another
//! user has taken the name, the next possible name is tried.
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The log. Nothing is written if no file could be opened.
pub struct Log {
    file: Option<File>,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
    file_bytes_max: u64,
    prefix: String,
    /// Whether the log holds what tasks have printed.
    is_printed_to: bool,
}

impl Log {
    /// Opens the log. To each possible name of the rendezvous file belongs a name of the log; the first usable one is
    /// taken.
    pub fn open(rendezvous: &[PathBuf], temporary: &Path, bytes_max: u64) -> Log {
        let prefix = format!("[pvmd pid{}]", std::process::id());
        let file_bytes_max = pvm_fmp::file_bytes_max();
        let bytes_max = bytes_max.min(file_bytes_max);
        let path = temporary.join("pvml");
        let mut log = Log { file: None, path, bytes: 0, bytes_max, file_bytes_max, prefix, is_printed_to: false };
        for path in rendezvous.iter().filter_map(|file| log_name(file)) {
            if let Some(file) = open_own(&path) {
                (log.file, log.path) = (Some(file), path);
                break;
            }
        }
        log
    }

    /// Sets the daemon's tid. All further lines begin with this tid.
    pub fn set_tid(&mut self, daemon: pvm_core::tid::Tid) {
        self.prefix = format!("[{daemon}]");
    }

    /// Writes a line of text.
    pub fn line(&mut self, text: &str) {
        self.bytes_line(text.as_bytes());
    }

    /// Returns the log's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line that a task has printed. Returns whether it is the first.
    pub fn printed_line(&mut self, text: &[u8]) -> bool {
        self.bytes_line(text);
        !std::mem::replace(&mut self.is_printed_to, true)
    }

    /// Removes the log, unless it holds what tasks have printed.
    pub fn remove_unless_printed_to(&mut self) {
        if self.file.is_some() && !self.is_printed_to {
            self.file = None;
            remove(&self.path);
        }
    }

    /// Writes a line of bytes.
    pub fn bytes_line(&mut self, text: &[u8]) {
        if self.file.is_none() {
            return;
        }
        let time = jiff::Zoned::now().strftime("%m/%d %H:%M:%S").to_string();
        let line = [self.prefix.as_bytes(), b" ", time.as_bytes(), b" ", text, b"\n"].concat();
        if self.bytes + line.len() as u64 > self.bytes_max {
            self.rotate();
        }
        // Neither a full disk nor the signal at the limit of file sizes (`ulimit -f`) may end the daemon.
        let fits = self.bytes + line.len() as u64 <= self.file_bytes_max;
        if let Some(file) = self.file.as_mut().filter(|_| fits) {
            let _ = file.write_all(&line);
            self.bytes += line.len() as u64;
        }
    }

    fn rotate(&mut self) {
        if std::fs::rename(&self.path, old(&self.path)).is_err() {
            // The old log's name belongs to another user: empty the current file instead.
            let _ = self.file.as_ref().map(|file| file.set_len(0));
        }
        // If no new file can be opened, the current one stays in use.
        if let Some(file) = open_own(&self.path) {
            self.file = Some(file);
        }
        self.bytes = 0;
    }
}

/// Removes a log and the previous log.
pub fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(old(path));
}

/// Returns the name of the previous log.
fn old(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old.into()
}

/// Returns `pvml.…` for `pvmd.…`, and `.pvml.…` for `.pvmd.…`.
fn log_name(rendezvous: &Path) -> Option<PathBuf> {
    let name = rendezvous.file_name()?.to_str()?;
    Some(rendezvous.with_file_name(name.replacen("pvmd.", "pvml.", 1)))
}

/// Opens and empties the file, if it is new or a regular file of this user.
fn open_own(path: &Path) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file: File = match rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Ok(file) => {
            // The umask may have taken rights of the owner.
            rustix::fs::fchmod(&file, mode).ok()?;
            file.into()
        }
        Err(_) => {
            let file = rustix::fs::open(path, flags, mode).ok()?;
            let status = rustix::fs::fstat(&file).ok()?;
            let own = status.st_uid == rustix::process::geteuid().as_raw() && status.st_nlink == 1;
            (own && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile).then_some(file)?.into()
        }
    };
    file.set_len(0).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_begins_afresh_and_is_turned_over_when_full() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        let rendezvous = [directory.join("pvmd.7")];
        let path = directory.join("pvml.7");
        std::fs::write(&path, "old").unwrap();
        let mut log = Log::open(&rendezvous, directory, 100);
        log.set_tid(pvm_core::tid::Tid(0x8004_0000));
        log.line("first");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("[t80040000] ") && text.ends_with(" first\n"), "{text}");
        assert_eq!(text.len(), "[t80040000] MM/DD hh:mm:ss first\n".len());
        for _ in 0..5 {
            log.line("more");
        }
        assert!(std::fs::read(directory.join("pvml.7.old")).unwrap().len() <= 100);
        assert!(std::fs::read(&path).unwrap().len() <= 100);
    }

    #[test]
    fn a_log_is_removed_unless_a_task_has_printed_into_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pvml.7");
        let open = || Log::open(&[folder.path().join("pvmd.7")], folder.path(), 100);
        let mut log = open();
        (0..5).for_each(|_| log.line("ready"));
        log.remove_unless_printed_to();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut log = open();
        log.printed_line(b"a result");
        log.remove_unless_printed_to();
        assert!(std::fs::read_to_string(path).unwrap().contains("a result"));
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        std::fs::write(directory.join("target"), "keep").unwrap();
        std::os::unix::fs::symlink(directory.join("target"), directory.join("pvml.7")).unwrap();
        let mut log = Log::open(&[directory.join("pvmd.7")], directory, 100);
        log.line("text");
        assert!(log.file.is_none());
        assert_eq!(std::fs::read(directory.join("target")).unwrap(), b"keep");
    }
}
