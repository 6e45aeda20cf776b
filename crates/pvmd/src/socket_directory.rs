//! The daemon's socket in a private directory, and the file that names the socket.
use pvm_link::rendezvous::{LegacyDaemon, Places, PublishError, Published};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The socket's name in its directory.
const SOCKET: &str = "s";
/// A file beside the socket. If it exists, a keeper (`start::job_keeper`) does not remove the log.
const KEEPS_LOG: &str = "keep-log";
/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// The number of random bytes in the directory's name.
const NAME_BYTES: usize = 6;

/// The private directory with the listening socket. Dropping it removes the files.
pub struct SocketDirectory {
    /// Accepts connections.
    pub listener: OwnedFd,
    directory: PathBuf,
    socket: PathBuf,
    identity: (u64, u64),
    is_withdrawn: bool,
    published: Option<Published>,
}

/// Why the socket directory could not be made.
#[derive(Debug)]
pub enum SocketDirectoryError {
    /// A daemon of this user and machine runs. The path is its rendezvous file.
    Running(PathBuf),
    /// A daemon of PVM 3.4.6 of this user runs.
    Legacy(LegacyDaemon),
    /// Another error.
    Other(String),
}

impl std::fmt::Display for SocketDirectoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SocketDirectoryError::Running(file) => write!(f, "already running ({} names its socket)", file.display()),
            SocketDirectoryError::Legacy(legacy) => write!(f, "{legacy}"),
            SocketDirectoryError::Other(text) => f.write_str(text),
        }
    }
}
impl std::error::Error for SocketDirectoryError {}

impl SocketDirectory {
    /// Makes the directory and the socket, and publishes the socket.
    pub fn create(places: &Places) -> Result<SocketDirectory, SocketDirectoryError> {
        let mut socket_directory =
            SocketDirectory::in_directory(places).map_err(|error| SocketDirectoryError::Other(error.to_string()))?;
        let published = places.publish(&socket_directory.socket).map_err(|error| match error {
            PublishError::Running(file, _) => SocketDirectoryError::Running(file),
            PublishError::Legacy(legacy) => SocketDirectoryError::Legacy(legacy),
            error => SocketDirectoryError::Other(error.to_string()),
        })?;
        if let Some(stale) = published.stale_socket() {
            remove_stale(stale);
        }
        socket_directory.published = Some(published);
        Ok(socket_directory)
    }

    fn in_directory(places: &Places) -> crate::Result<SocketDirectory> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let bases = [Some(std::path::absolute(&places.temporary)?), runtime, Some("/tmp".into())];
        let mut problem = None;
        for base in bases.into_iter().flatten() {
            match SocketDirectory::try_in(&base) {
                Ok(socket_directory) => return Ok(socket_directory),
                Err(error) => {
                    problem.get_or_insert(format!("{}: {error}", base.display()));
                }
            }
        }
        Err(problem.unwrap_or_default().into())
    }

    fn try_in(base: &Path) -> Result<SocketDirectory, Errno> {
        let mut random = [0; NAME_BYTES];
        pvm_fmp::random_bytes(&mut random).map_err(|_| Errno::IO)?;
        let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let directory = base.join(format!("{}{random}", directory_prefix()));
        let socket = directory.join(SOCKET);
        // A path that is too long (D36) fails here, before anything is made.
        let address = SocketAddrUnix::new(&socket)?;
        rustix::fs::mkdir(&directory, Mode::RWXU)?;
        match allow_owner(&directory).and_then(|()| listen(&address, &socket)) {
            Ok((listener, identity)) => {
                Ok(SocketDirectory { listener, directory, socket, identity, is_withdrawn: false, published: None })
            }
            Err(errno) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(errno)
            }
        }
    }

    /// Returns the directory, and the rendezvous file if the socket is published.
    pub fn files(&self) -> (&Path, Option<&Path>) {
        (&self.directory, self.published.as_ref().map(Published::file))
    }

    /// Returns the socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets a new modification time of the rendezvous file, so that programs that remove old files do not remove it.
    pub fn refresh(&self) {
        if let Some(published) = &self.published {
            published.refresh();
        }
    }

    /// Removes the files before the daemon ends.
    pub fn withdraw(&mut self) {
        self.is_withdrawn = true;
        // The rendezvous file is removed first, so that nobody finds a socket that is about to vanish.
        self.published = None;
        let _ = std::fs::remove_file(&self.socket);
        remove(&self.directory);
    }

    /// Returns whether the socket and the rendezvous file that this daemon made still exist, or were withdrawn.
    pub fn exists(&self) -> bool {
        if self.is_withdrawn {
            return true;
        }
        let socket =
            rustix::fs::lstat(&self.socket).is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity);
        socket && self.published.as_ref().is_none_or(Published::is_current)
    }
}

/// Sets the mode to 0700. The umask may have taken rights of the owner (`umask 777`).
fn allow_owner(path: &Path) -> Result<(), Errno> {
    match rustix::fs::lstat(path)?.st_mode & 0o777 {
        0o700 => Ok(()),
        _ => rustix::fs::chmod(path, Mode::RWXU),
    }
}

fn listen(address: &SocketAddrUnix, path: &Path) -> Result<(OwnedFd, (u64, u64)), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&listener, address)?;
    allow_owner(path)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let status = rustix::fs::lstat(path)?;
    Ok((listener, (status.st_dev, status.st_ino)))
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Notes in the directory of a daemon that the log is to stay.
pub fn keep_log(directory: &Path) {
    // Without the note, the log of a daemon that is killed may be removed. A link is not followed.
    let _ = std::fs::File::create_new(directory.join(KEEPS_LOG));
}

/// Returns whether this is a directory of this user.
pub fn is_own(directory: &Path) -> bool {
    rustix::fs::lstat(directory).is_ok_and(|status| {
        status.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(status.st_mode) == FileType::Directory
    })
}

/// Returns whether the log is to stay.
pub fn keeps_log(directory: &Path) -> bool {
    directory.join(KEEPS_LOG).exists()
}

/// Removes a directory whose socket is gone.
fn remove(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(KEEPS_LOG));
    let _ = std::fs::remove_dir(directory);
}

fn directory_prefix() -> String {
    format!("pvmd-{}-", rustix::process::geteuid().as_raw())
}

/// Removes the socket and the directory of a daemon that was killed, if their names have the form that this program
/// gives them.
fn remove_stale(socket: &Path) {
    let Some(directory) = socket.parent() else { return };
    let named = directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&directory_prefix()));
    let own = rustix::fs::lstat(socket).is_ok_and(|status| {
        status.st_uid == rustix::process::geteuid().as_raw()
            && FileType::from_raw_mode(status.st_mode) == FileType::Socket
    });
    if named && own && socket.ends_with(SOCKET) {
        let _ = std::fs::remove_file(socket);
        remove(directory);
    }
}
