//! Descriptors that wake waiting threads, and which thread it is.
use libc::c_int;
use std::os::fd::RawFd;
use std::time::Duration;

/// Makes a descriptor that another thread can make readable.
pub fn event() -> std::io::Result<RawFd> {
    // SAFETY: has no preconditions.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 { Err(std::io::Error::last_os_error()) } else { Ok(descriptor) }
}

/// Makes a descriptor of [`event`] readable.
pub fn ring(descriptor: RawFd) {
    let one = 1u64;
    // SAFETY: eight bytes; a full or closed descriptor is no harm.
    unsafe { libc::write(descriptor, (&raw const one).cast(), 8) };
}

/// Makes a descriptor of [`event`] unreadable.
pub fn silence(descriptor: RawFd) {
    let mut count = 0u64;
    // SAFETY: room for eight bytes.
    unsafe { libc::read(descriptor, (&raw mut count).cast(), 8) };
}

/// Waits until one of two descriptors is readable, a signal comes, or the time is over. Returns which are readable.
pub fn wait_for(descriptors: [RawFd; 2], limit: Duration) -> [bool; 2] {
    let one = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut list = descriptors.map(one);
    // SAFETY: an array of two entries.
    unsafe { libc::poll(list.as_mut_ptr(), 2, limit.as_millis().max(1) as c_int) };
    list.map(|one| one.revents != 0)
}

/// Closes a descriptor of [`event`].
pub fn close(descriptor: RawFd) {
    // SAFETY: the caller owns the descriptor.
    unsafe { libc::close(descriptor) };
}

/// Returns whether the calling thread is the process's first one.
pub fn is_first_thread() -> bool {
    // SAFETY: both have no preconditions.
    unsafe { libc::gettid() == libc::getpid() }
}
