//! How a task finds the daemon of its user, and how a daemon publishes its socket.
//!
//! The daemon writes the path of its socket to the rendezvous file `<tmp>/pvmd.<uid>[.<vmid>]`, and holds a lock on
//! that file while it lives. So a file whose lock is free is stale, unless the socket still accepts connections; and if
//! two daemons start at the same time, only one of them gets the file. A name that another user has taken is skipped;
//! daemon and tasks try the same further names in the same order.
use crate::{ControlError, ControlSocket};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The largest number of bytes that are read from a rendezvous file (the system's limit for the path of a socket is
/// 108).
const FILE_BYTES_MAX: u64 = 4096;
/// How long a task waits for a daemon that is just starting.
const STARTING_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a daemon waits for the lock of a stale file: a task may hold that lock for a moment.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(500);
/// The beginning of the name of a socket of PVM 3.4.6.
const LEGACY_SOCKET: &[u8] = b"pvmtmp";
/// How long a connection to a daemon of PVM 3.4.6 that listens on the network may take.
const LEGACY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Why no daemon was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindError {
    /// No daemon has published a socket.
    Absent,
    /// The daemon that has published a socket is dead.
    Dead,
    /// A daemon exists, but its socket fails.
    Socket(ControlError),
    /// A daemon of PVM 3.4.6 exists.
    Legacy(LegacyDaemon),
}

impl std::fmt::Display for FindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FindError::Absent => f.write_str("no pvmd is running"),
            FindError::Dead => f.write_str("pvmd has died"),
            FindError::Socket(error) => write!(f, "pvmd does not answer: {error}"),
            FindError::Legacy(legacy) => write!(f, "{legacy}"),
        }
    }
}
impl std::error::Error for FindError {}

/// A daemon of PVM 3.4.6 of this user, with its process id where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyDaemon(Option<i32>);

impl std::fmt::Display for LegacyDaemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.0.map_or_else(String::new, |process| format!(" (pid {process})"));
        write!(f, "PVM 3.4.6 runs here{process}: halt it, or set PVM_VMID")
    }
}

/// Why a daemon could not publish its socket.
#[derive(Debug)]
pub enum PublishError {
    /// Another daemon of this user runs. The two paths are its rendezvous file, and the path in that file.
    Running(PathBuf, PathBuf),
    /// A daemon of PVM 3.4.6 of this user runs.
    Legacy(LegacyDaemon),
    /// Other users have taken every name, or a system call has failed.
    System(PathBuf, Errno),
}

impl std::fmt::Display for PublishError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PublishError::Running(file, _) => write!(f, "already running ({})", file.display()),
            PublishError::Legacy(legacy) => write!(f, "{legacy}"),
            PublishError::System(file, Errno::FBIG) => {
                write!(
                    f,
                    "{}: the limit of the size of files forbids it; lift it (ulimit -f unlimited)",
                    file.display()
                )
            }
            PublishError::System(file, errno) => write!(f, "{}: {errno}", file.display()),
        }
    }
}
impl std::error::Error for PublishError {}

/// The places where daemons of this user with this `PVM_VMID` publish their sockets.
#[derive(Debug, Clone)]
pub struct Places {
    /// The rendezvous files, in the order in which they are tried.
    pub files: Vec<PathBuf>,
    /// The directory for temporary files: `PVM_TMP` or `/tmp`.
    pub temporary: PathBuf,
    /// The value of `PVMSOCK`, if it is an absolute path.
    pub socket: Option<PathBuf>,
}

/// Batch systems: the variable that is set within their jobs, the variable with the job's name, that with its number in
/// an array of jobs (if the name does not tell), and the beginning of the machine's name.
const JOBS: [(&str, &str, &str, &str); 5] = [
    ("SLURM_JOB_ID", "SLURM_JOB_ID", "", "slurm-"),
    ("PBS_JOBID", "PBS_JOBID", "", "pbs-"),
    ("LSB_JOBID", "LSB_JOBID", "LSB_JOBINDEX", "lsf-"),
    ("PE_HOSTFILE", "JOB_ID", "SGE_TASK_ID", "sge-"),
    ("FLUX_ENCLOSING_ID", "FLUX_ENCLOSING_ID", "", "flux-"),
];
/// What `LSB_JOBINDEX` and `SGE_TASK_ID` hold if the job is not in an array.
const NO_ARRAY: [&str; 2] = ["0", "undefined"];

/// Returns the name of the machine: `PVM_VMID`, or else, within a job of a batch system, a name for that job, so that
/// two jobs of a user on the same hosts have two machines. `set` returns the value of an environment variable.
pub fn machine_id(set: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let set = |name: &str| set(name).filter(|value| !value.is_empty());
    let of_job = |(sign, name, number, start): (&str, &str, &str, &str)| {
        let mut id = OsString::from(start);
        id.push(set(sign).and_then(|_| set(name))?);
        if let Some(number) = set(number).filter(|number| !NO_ARRAY.iter().any(|none| number == none)) {
            id.push("-");
            id.push(number);
        }
        Some(id)
    };
    set("PVM_VMID").or_else(|| JOBS.into_iter().find_map(of_job))
}

/// Returns whether a machine has the name of a job, as [`machine_id`] makes it.
pub fn is_of_job(machine: &OsStr) -> bool {
    JOBS.iter().any(|(.., start)| machine.as_encoded_bytes().starts_with(start.as_bytes()))
}

impl Places {
    /// Reads the environment and the effective user.
    pub fn from_environment() -> Places {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        Places::new(rustix::process::geteuid().as_raw(), &OsString::from_vec(host), set)
    }

    /// Makes the places of a user. `set` returns the value of an environment variable.
    pub fn new(user: u32, host: &OsStr, set: impl Fn(&str) -> Option<OsString>) -> Places {
        let suffix = match machine_id(&set) {
            Some(id) => [b".", plain(&id).as_slice()].concat(),
            None => Vec::new(),
        };
        let name = |parts: &[&[u8]]| OsString::from_vec([&parts.concat(), suffix.as_slice()].concat());
        let user = user.to_string();
        let temporary = PathBuf::from(set("PVM_TMP").unwrap_or_else(|| "/tmp".into()));
        let mut files = vec![temporary.join(name(&[b"pvmd.", user.as_bytes()]))];
        if let Some(directory) = set("XDG_RUNTIME_DIR") {
            files.push(Path::new(&directory).join(name(&[b"pvmd.", user.as_bytes()])));
        }
        if let Some(home) = set("HOME") {
            files.push(Path::new(&home).join(name(&[b".pvmd.", user.as_bytes(), b".", &plain(host)])));
        }
        let socket = set("PVMSOCK").map(PathBuf::from).filter(|path| path.is_absolute());
        Places { files, temporary, socket }
    }

    /// Connects to the daemon: at `PVMSOCK`, else at the socket that the first trustworthy rendezvous file names.
    pub fn connect(&self) -> Result<ControlSocket, FindError> {
        // A task that a daemon of PVM 3.4.6 has started has the daemon's socket in its environment.
        if let Some(legacy) = self.socket.as_deref().and_then(|path| legacy_daemon(path.as_os_str().as_bytes())) {
            return Err(FindError::Legacy(legacy));
        }
        if let Some(socket) = self.socket.as_deref().and_then(|path| ControlSocket::connect(path).ok()) {
            return Ok(socket);
        }
        for file in &self.files {
            match connect_by(file) {
                Err(FindError::Absent) => {}
                result => return result,
            }
        }
        Err(FindError::Absent)
    }

    /// Returns the first rendezvous file and the path in it, even if its daemon is dead.
    pub fn published(&self) -> Option<(PathBuf, PathBuf)> {
        self.files.iter().find_map(|file| {
            let mut handle = open_own(file).ok()?;
            Some((file.clone(), text(&mut handle)?))
        })
    }

    /// Publishes `socket`. The daemon must listen on it already.
    pub fn publish(&self, socket: &Path) -> Result<Published, PublishError> {
        let mut refused = None;
        for file in &self.files {
            match claim(file) {
                Ok((handle, stale)) => return Published::write(file, handle, stale, socket),
                Err(ClaimError::Running(socket)) => return Err(PublishError::Running(file.clone(), socket)),
                Err(ClaimError::Legacy(legacy)) => return Err(PublishError::Legacy(legacy)),
                Err(ClaimError::Stranger(errno)) => {
                    refused.get_or_insert((file.clone(), errno));
                }
                Err(ClaimError::System(errno)) => return Err(PublishError::System(file.clone(), errno)),
            }
        }
        let (file, errno) = refused.unwrap_or_else(|| (self.temporary.clone(), Errno::NOENT));
        Err(PublishError::System(file, errno))
    }
}

/// Replaces the slashes in a name, because a name with slashes could lead out of its directory.
fn plain(name: &OsStr) -> Vec<u8> {
    name.as_bytes().iter().map(|&byte| if byte == b'/' { b'_' } else { byte }).collect()
}

/// A rendezvous file of this daemon. Dropping this value removes the file.
pub struct Published {
    file: PathBuf,
    handle: File,
    stale: Option<PathBuf>,
}

impl Published {
    fn write(file: &Path, handle: File, stale: Option<PathBuf>, socket: &Path) -> Result<Published, PublishError> {
        let mut published = Published { file: file.to_owned(), handle, stale };
        published.put(socket).map_err(|error| {
            PublishError::System(file.to_owned(), Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        Ok(published)
    }

    fn put(&mut self, socket: &Path) -> std::io::Result<()> {
        // A write beyond the limit of file sizes would end the daemon by a signal, with its files left.
        if pvm_fmp::file_bytes_max() < socket.as_os_str().len() as u64 {
            return Err(Errno::FBIG.into());
        }
        self.handle.set_len(0)?;
        self.handle.rewind()?;
        self.handle.write_all(socket.as_os_str().as_bytes())
    }

    /// Returns the file's path.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the path of a dead daemon's socket, if this daemon has taken over the dead daemon's file.
    pub fn stale_socket(&self) -> Option<&Path> {
        self.stale.as_deref()
    }

    /// Sets the time of the file to now, so that programs that remove old files do not remove it.
    pub fn refresh(&self) {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        // At worst, a failure lets such a program remove the file.
        let _ = rustix::fs::futimens(&self.handle, &times);
    }

    /// Returns whether the path still leads to the file that this daemon has written.
    pub fn is_current(&self) -> bool {
        is_at(&self.handle, &self.file)
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.is_current() {
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

enum ClaimError {
    Running(PathBuf),
    Legacy(LegacyDaemon),
    Stranger(Errno),
    System(Errno),
}

/// Creates the file or takes a stale one over, and holds its lock. Also returns the path in the stale file, if there
/// was one.
fn claim(file: &Path) -> Result<(File, Option<PathBuf>), ClaimError> {
    let deadline = Instant::now() + LOCK_WAIT_MAX;
    loop {
        let mut handle = match create(file) {
            Ok(handle) => handle,
            Err(Errno::EXIST) => match open_own(file) {
                Ok(handle) => handle,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(ClaimError::Stranger(errno)),
            },
            Err(errno) => return Err(ClaimError::System(errno)),
        };
        let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok();
        if let Some(legacy) = bytes(&mut handle).and_then(|text| legacy_daemon(&text)) {
            return Err(ClaimError::Legacy(legacy));
        }
        let path = text(&mut handle);
        // A daemon that holds no lock is alive if its socket accepts a connection.
        if let Some(path) = path.as_deref().filter(|path| alive(path)) {
            return Err(ClaimError::Running(path.to_owned()));
        }
        if locked && is_at(&handle, file) {
            return Ok((handle, path));
        }
        if Instant::now() > deadline {
            return Err(ClaimError::Running(path.unwrap_or_default()));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// Opens a rendezvous file whose daemon had its socket in this directory, if no other daemon has taken the file over.
/// Until the result is dropped, none does. `runs`: whether that daemon still runs, and so holds the lock itself.
pub fn hold(file: &Path, directory: &Path, runs: bool) -> Option<File> {
    let mut handle = open_own(file).ok()?;
    let locked = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok();
    let is_its = text(&mut handle).is_some_and(|socket| socket.starts_with(directory));
    ((locked || runs) && is_its && is_at(&handle, file)).then_some(handle)
}

/// Returns whether a daemon that must not be replaced listens on the socket. A daemon of another user counts, too: it
/// is better not to start than to take its place.
fn alive(socket: &Path) -> bool {
    matches!(ControlSocket::connect(socket), Ok(_) | Err(ControlError::Stranger))
}

fn create(file: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let made = rustix::fs::open(file, flags, mode)?;
    // The umask may have taken rights of the owner.
    rustix::fs::fchmod(&made, mode)?;
    Ok(made.into())
}

/// Opens a file only if it is regular, belongs to this user, and has only one name. A file with two names is refused
/// because another user may have made this name as a hard link to any file of this user.
fn open_own(file: &Path) -> Result<File, Errno> {
    // With NONBLOCK, the call does not wait for the other end of a pipe that another user may have put there.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let status = rustix::fs::lstat(file)?;
    let own = |status: &rustix::fs::Stat| {
        status.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_nlink == 1
    };
    if !own(&status) {
        return Err(Errno::PERM);
    }
    let handle = rustix::fs::open(file, flags, Mode::empty())?;
    if !own(&rustix::fs::fstat(&handle)?) {
        return Err(Errno::PERM);
    }
    Ok(handle.into())
}

/// Returns whether the name still leads to the open file.
fn is_at(handle: &File, file: &Path) -> bool {
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(handle), rustix::fs::lstat(file)) else { return false };
    (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)
}

/// Returns the content of the file.
fn bytes(handle: &mut File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    handle.rewind().ok()?;
    Read::take(&mut *handle, FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes.trim_ascii().to_vec())
}

/// Returns the path in the file, or `None` if it holds no path.
pub(crate) fn text(handle: &mut File) -> Option<PathBuf> {
    let path = PathBuf::from(OsString::from_vec(bytes(handle)?));
    path.is_absolute().then_some(path)
}

/// Returns the daemon of PVM 3.4.6 that serves at an address, if there is one. The socket of such a daemon is called
/// `pvmtmp<pid>.<n>`; if the daemon was built without such sockets, the address is a network address (`7f000001:8a3c`).
fn legacy_daemon(address: &[u8]) -> Option<LegacyDaemon> {
    let path = Path::new(OsStr::from_bytes(address));
    if path.is_absolute() {
        let is_legacy = path.file_name().is_some_and(|name| name.as_bytes().starts_with(LEGACY_SOCKET));
        let socket = is_legacy.then(|| ControlSocket::connect(path).ok())?;
        return socket.map(|socket| LegacyDaemon(Some(socket.peer_process()).filter(|process| *process > 0)));
    }
    let (ip, port) = std::str::from_utf8(address).ok()?.split_once(':')?;
    let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok().filter(|_| ip.len() == 8)?);
    let port = u16::from_str_radix(port, 16).ok().filter(|_| port.len() == 4)?;
    TcpStream::connect_timeout(&SocketAddr::from((ip, port)), LEGACY_WAIT_MAX).ok().map(|_| LegacyDaemon(None))
}

/// Connects to the daemon that the file names. Waits for a daemon that is just starting.
fn connect_by(file: &Path) -> Result<ControlSocket, FindError> {
    let deadline = Instant::now() + STARTING_WAIT_MAX;
    loop {
        let Ok(mut handle) = open_own(file) else { return Err(FindError::Absent) };
        if let Some(legacy) = bytes(&mut handle).and_then(|text| legacy_daemon(&text)) {
            return Err(FindError::Legacy(legacy));
        }
        let result = match text(&mut handle) {
            Some(path) => ControlSocket::connect(&path),
            None => Err(ControlError::Closed),
        };
        match result {
            Ok(socket) => return Ok(socket),
            Err(ControlError::Closed | ControlError::System(Errno::CONNREFUSED | Errno::NOENT)) => {}
            Err(error) => return Err(FindError::Socket(error)),
        }
        let starting = rustix::fs::flock(&handle, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN);
        if !starting || Instant::now() > deadline {
            return Err(FindError::Dead);
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

#[cfg(test)]
mod tests;
