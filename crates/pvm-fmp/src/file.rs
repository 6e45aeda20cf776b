//! Files of memory: tasks and daemons share memory by passing descriptors of such files.
//!
//! Such a file is a memfd, sealed against shrinking, so that a process that has mapped it never faults. Where a sandbox
//! forbids memfds, it is an ordinary file whose name has been removed.
use pvm_descriptor::above_standard;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The zeroes that one write stores: on systems that have no call to commit memory, the memory is filled with zeroes
/// instead.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Returns whether the error means that the system lacks or forbids the call.
fn is_forbidden(errno: Errno) -> bool {
    [Errno::PERM, Errno::NOSYS, Errno::ACCESS, Errno::OPNOTSUPP].contains(&errno)
}

/// Returns an error that names the call.
pub fn failed(call: &str, errno: Errno) -> io::Error {
    io::Error::new(errno.kind(), format!("{call}: {errno}"))
}

/// Makes a file of memory of that length. Its name is visible only in /proc.
pub fn make(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let file = match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING) {
        Err(errno) if is_forbidden(errno) => without_name(name).map_err(|_| failed("memfd_create", errno))?,
        made => made.map_err(|errno| failed("memfd_create", errno))?,
    };
    let file = above_standard(file)?;
    lengthen(file.as_fd(), bytes)?;
    Ok(file)
}

/// Makes a file in /dev/shm or, failing that, in a directory for temporary files, and removes its name.
fn without_name(name: &str) -> io::Result<OwnedFd> {
    let own = std::env::var_os("PVM_TMP").map(PathBuf::from);
    let folders = [Some(PathBuf::from("/dev/shm")), own, Some(PathBuf::from("/tmp"))];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders.iter().flatten() {
        match in_folder(folder, name) {
            Ok(file) => return Ok(file),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn in_folder(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let mut random = [0; 8];
    crate::random_bytes(&mut random)?;
    let path = folder.join(format!(".{name}.{:016x}", u64::from_ne_bytes(random)));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Returns the limit on the size of files (`ulimit -f`), in bytes.
pub fn bytes_max() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Makes a file longer. Returns an error if the limit on the size of files (`ulimit -f`) forbids the new length; the
/// system would send a signal instead.
pub fn lengthen(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let limit = bytes_max();
    if limit < bytes {
        let text = format!("a file of {bytes} bytes is beyond the limit of {limit} (ulimit -f)");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    rustix::fs::ftruncate(file, bytes).map_err(|errno| failed("ftruncate", errno))
}

/// Seals a file, if it is of a kind that can be sealed.
pub fn seal(file: &OwnedFd, seals: SealFlags) -> io::Result<()> {
    match rustix::fs::fcntl_add_seals(file, seals | SealFlags::SEAL) {
        // The file is no memfd, or the system lacks the call. In both cases a receiver of the file cannot ask for its
        // seals either, and accepts the file because it has no name (`keeps_length`).
        Err(errno) if is_nameless(file.as_fd()) && (errno == Errno::INVAL || is_forbidden(errno)) => Ok(()),
        other => other.map_err(|errno| failed("fcntl(F_ADD_SEALS)", errno)),
    }
}

/// Seals a file so that it can be written only through the mapping that its maker has made before: whoever gets a
/// descriptor can only read, even after opening the file again. Before Linux 5.1 there is no such seal, and only the
/// length is sealed.
pub fn seal_for_readers(file: &OwnedFd) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    match rustix::fs::fcntl_add_seals(file, size | SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
        Ok(()) => Ok(()),
        Err(_) => seal(file, size),
    }
}

/// Returns whether a file from another process cannot shrink. A file that cannot be sealed is trusted if it belongs to
/// the same user and has no name: where memfds are forbidden, all files of memory are like that.
pub fn keeps_length(file: BorrowedFd<'_>) -> bool {
    match rustix::fs::fcntl_get_seals(file) {
        Ok(seals) => seals.contains(SealFlags::SHRINK) || (seals == SealFlags::SEAL && is_nameless(file)),
        Err(errno) => (errno == Errno::INVAL || is_forbidden(errno)) && is_nameless(file),
    }
}

fn is_nameless(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file).is_ok_and(|status| {
        let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
        kind.is_file() && status.st_nlink == 0 && status.st_uid == rustix::process::geteuid().as_raw()
    })
}

/// The largest number of bytes that one call commits. A call that a signal interrupts is repeated from its start, so it
/// should be short.
const TAKEN_AT_ONCE_BYTES: u64 = 32 << 20;

/// Commits memory for a range of a file. Returns an error if there is too little memory; if the memory were not
/// committed here, this lack would kill the process at a later access.
pub fn take_memory(file: BorrowedFd<'_>, mut offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset + bytes;
    while offset < end {
        let count = (end - offset).min(TAKEN_AT_ONCE_BYTES);
        let take = || rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, count);
        match rustix::io::retry_on_intr(take) {
            Err(errno) if is_forbidden(errno) => return write_zeroes(file, offset, end - offset),
            other => other?,
        }
        offset += count;
    }
    Ok(())
}

fn write_zeroes(file: BorrowedFd<'_>, mut offset: u64, bytes: u64) -> io::Result<()> {
    let end = offset + bytes;
    while offset < end {
        let piece = &ZEROES[..ZEROES.len().min((end - offset) as usize)];
        offset += rustix::io::retry_on_intr(|| rustix::io::pwrite(file, piece, offset))? as u64;
    }
    Ok(())
}

/// Gives the memory of a range of a file back to the system. A failure costs only memory.
pub fn give_memory_back(file: BorrowedFd<'_>, offset: u64, bytes: u64) {
    let _ = rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes);
}

/// Opens a file of memory again, for reading only; where /proc is missing, returns a plain duplicate.
pub fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    reopen(file.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC).or_else(|_| duplicate(file.as_fd()))
}

/// Opens the file of a descriptor once more, with flags and a position of its own.
pub fn reopen(file: BorrowedFd<'_>, flags: OFlags) -> io::Result<OwnedFd> {
    above_standard(rustix::fs::open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?)
}

/// Duplicates a descriptor, also where `fcntl` is forbidden.
pub fn duplicate(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match rustix::io::fcntl_dupfd_cloexec(file, 3) {
        Err(errno) if is_forbidden(errno) => {
            let copy = rustix::io::dup(file)?;
            rustix::io::ioctl_fioclex(&copy)?;
            Ok(copy)
        }
        other => Ok(other?),
    }
}
