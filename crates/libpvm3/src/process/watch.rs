//! The epoll descriptor that a program polls.
use pvm_descriptor::{OwnDescriptor, above_standard};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The epoll descriptor that a program polls.
pub struct Watch(pub OwnDescriptor);

impl Watch {
    /// Returns an epoll descriptor that watches the descriptors `watched`.
    pub fn new(watched: &[impl AsRawFd]) -> Option<Watch> {
        // SAFETY: has no preconditions.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: it was made just now and has no other owner.
        let descriptor = above_standard(unsafe { OwnedFd::from_raw_fd(descriptor) }).ok()?;
        for one in watched {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: three valid arguments; the event is copied.
            if unsafe { libc::epoll_ctl(descriptor.as_raw_fd(), add, one.as_raw_fd(), &mut event) } < 0 {
                return None;
            }
        }
        Some(Watch(descriptor.into()))
    }
}
