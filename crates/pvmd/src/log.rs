//! The log file (contract 5.2): `<tmp>/pvml.<uid>`.
//!
//! A new daemon empties the log of this user's previous daemon (D23). A full log is kept as `.old` (D59). If another
//! user has taken the name, the next possible name is tried. A thread writes it, since the daemon must not wait for a disk
//! that does not answer.
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Bytes of lines that are not written yet.
///
/// * Filled by: all tasks and hosts of the machine
/// * Setting: none, since the lines are written at once unless the disk does not answer
/// * Reached: further lines are lost, and the log says how many; what tasks of this host print waits in their pipes before
/// * Test: `a_log_that_takes_nothing_holds_nobody_up_and_tells_how_many_lines_were_lost`
pub const LOG_QUEUE_BYTES_MAX: usize = 1 << 20;
/// Bytes that are written at a time, unless a line is longer.
const WRITE_BYTES: usize = 64 << 10;
/// How long the end of the daemon waits for the last lines.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);
/// The stack of the thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// The log. Nothing is written if no file could be opened.
pub struct Log {
    work: Option<Sender<Work>>,
    /// The bytes that are not written yet.
    queued: Arc<AtomicUsize>,
    /// The lines that were lost since the last one that was taken.
    lost: u64,
    path: PathBuf,
    prefix: String,
    /// Whether the log holds what tasks have printed.
    is_printed_to: bool,
}

/// Work of the thread that writes.
enum Work {
    Line(Vec<u8>),
    Remove,
    /// All work before has been done.
    Tell(SyncSender<()>),
}

impl Log {
    /// Opens the log. To each possible name of the rendezvous file belongs a name of the log; the first usable one is
    /// taken.
    pub fn open(rendezvous: &[PathBuf], temporary: &Path, bytes_max: u64) -> Log {
        let file_bytes_max = pvm_fmp::file_bytes_max();
        let names = rendezvous.iter().filter_map(|file| log_name(file));
        match names.into_iter().find_map(|path| Some((open_own(&path)?, path))) {
            Some((file, path)) => {
                Log::of(LogFile { file, path, bytes: 0, bytes_max: bytes_max.min(file_bytes_max), file_bytes_max })
            }
            None => Log::without(temporary.join("pvml")),
        }
    }

    /// Starts the thread that writes to a file.
    fn of(mut file: LogFile) -> Log {
        let (sender, work) = channel();
        let mut log = Log::without(file.path.clone());
        let queued = log.queued.clone();
        let write = move || file.serve(&work, &queued);
        log.work = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(write).ok().map(|_| sender);
        log
    }

    fn without(path: PathBuf) -> Log {
        let prefix = format!("[pvmd pid{}]", std::process::id());
        Log { work: None, queued: Arc::default(), lost: 0, path, prefix, is_printed_to: false }
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
        if !self.is_printed_to {
            self.work.iter().for_each(|work| _ = work.send(Work::Remove));
        }
    }

    /// Writes a line of bytes.
    pub fn bytes_line(&mut self, text: &[u8]) {
        if self.work.is_none() {
            return;
        }
        self.tell_lost();
        let line = self.complete(text);
        match self.lost == 0 && self.queued_bytes() + line.len() <= LOG_QUEUE_BYTES_MAX {
            true => self.queue(line),
            false => self.lost += 1,
        }
    }

    /// Returns the bytes that are not written yet.
    pub fn queued_bytes(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Waits until all lines are written. Returns whether they are; gives up after a while.
    pub fn flush(&self) -> bool {
        let Some(work) = &self.work else { return true };
        let (done, is_done) = sync_channel(1);
        work.send(Work::Tell(done)).is_ok() && is_done.recv_timeout(LAST_LINES_WAIT).is_ok()
    }

    /// Adds prefix, time and line feed.
    fn complete(&self, text: &[u8]) -> Vec<u8> {
        let time = jiff::Zoned::now().strftime("%m/%d %H:%M:%S").to_string();
        [self.prefix.as_bytes(), b" ", time.as_bytes(), b" ", text, b"\n"].concat()
    }

    fn queue(&self, line: Vec<u8>) {
        let Some(work) = &self.work else { return };
        self.queued.fetch_add(line.len(), Ordering::Relaxed);
        // The thread ends only with the log.
        let _ = work.send(Work::Line(line));
    }

    /// Writes how many lines were lost, if half of the queue is free.
    fn tell_lost(&mut self) {
        if self.lost > 0 && self.queued_bytes() <= LOG_QUEUE_BYTES_MAX / 2 {
            let text = format!("{} lines were lost: the log took nothing", std::mem::take(&mut self.lost));
            self.queue(self.complete(text.as_bytes()));
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.flush() {
            self.tell_lost();
            self.flush();
        }
    }
}

/// The file, in the thread that writes.
struct LogFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
    file_bytes_max: u64,
}

impl LogFile {
    /// Writes until the daemon ends.
    fn serve(&mut self, work: &Receiver<Work>, queued: &AtomicUsize) {
        let mut lines = Vec::new();
        while let Ok(first) = work.recv() {
            for work in std::iter::once(first).chain(work.try_iter()) {
                match work {
                    Work::Line(line) => {
                        if lines.len() + line.len() > WRITE_BYTES || !self.has_room(lines.len() + line.len()) {
                            self.write(&mut lines, queued);
                        }
                        if !self.has_room(line.len()) {
                            self.rotate();
                        }
                        lines.extend(line);
                    }
                    Work::Remove => {
                        self.write(&mut lines, queued);
                        remove(&self.path);
                    }
                    Work::Tell(done) => {
                        self.write(&mut lines, queued);
                        let _ = done.send(());
                    }
                }
            }
            self.write(&mut lines, queued);
        }
    }

    fn has_room(&self, count: usize) -> bool {
        self.bytes + count as u64 <= self.bytes_max
    }

    fn write(&mut self, lines: &mut Vec<u8>, queued: &AtomicUsize) {
        // Neither a full disk nor the signal at the limit of file sizes (`ulimit -f`) may end the daemon.
        if self.bytes + lines.len() as u64 <= self.file_bytes_max {
            let _ = self.file.write_all(lines);
            self.bytes += lines.len() as u64;
        }
        queued.fetch_sub(lines.len(), Ordering::Relaxed);
        lines.clear();
    }

    fn rotate(&mut self) {
        if std::fs::rename(&self.path, old(&self.path)).is_err() {
            // The old log's name belongs to another user: empty the current file instead.
            let _ = self.file.set_len(0);
        }
        // If no new file can be opened, the current one stays in use.
        if let Some(file) = open_own(&self.path) {
            self.file = file;
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
        assert!(log.flush());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("[t80040000] ") && text.ends_with(" first\n"), "{text}");
        assert_eq!(text.len(), "[t80040000] MM/DD hh:mm:ss first\n".len());
        for _ in 0..5 {
            log.line("more");
        }
        assert!(log.flush());
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
        assert!(log.flush());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut log = open();
        log.printed_line(b"a result");
        log.remove_unless_printed_to();
        drop(log);
        assert!(std::fs::read_to_string(path).unwrap().contains("a result"));
    }

    #[test]
    fn a_log_that_takes_nothing_holds_nobody_up_and_tells_how_many_lines_were_lost() {
        // A pipe that nobody reads is like a disk that does not answer.
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let (mut reader, file) = (File::from(reader), File::from(writer));
        let path = PathBuf::from("/nowhere/pvml.7");
        let mut log = Log::of(LogFile { file, path, bytes: 0, bytes_max: u64::MAX, file_bytes_max: u64::MAX });
        let text = "x".repeat(1000);
        let lines = LOG_QUEUE_BYTES_MAX / 1000 + 200;
        (0..lines).for_each(|_| log.line(&text));
        assert!(!log.flush(), "the pipe holds less");
        assert!(log.queued_bytes() <= LOG_QUEUE_BYTES_MAX && log.lost > 0);
        let lost = log.lost;
        let all = std::thread::spawn(move || {
            let mut all = String::new();
            std::io::Read::read_to_string(&mut reader, &mut all).map(|_| all)
        });
        while !log.flush() {}
        log.line("end");
        drop(log);
        let all = all.join().unwrap().unwrap();
        let said = format!(" {lost} lines were lost: the log took nothing\n");
        assert!(all.contains(&said) && all.ends_with(" end\n"), "{said} {}", &all[all.len() - 200..]);
        assert_eq!(all.lines().count() as u64, lines as u64 - lost + 2);
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        std::fs::write(directory.join("target"), "keep").unwrap();
        std::os::unix::fs::symlink(directory.join("target"), directory.join("pvml.7")).unwrap();
        let mut log = Log::open(&[directory.join("pvmd.7")], directory, 100);
        log.line("text");
        assert!(log.work.is_none());
        assert_eq!(std::fs::read(directory.join("target")).unwrap(), b"keep");
    }
}
