//! A preallocated endpoint: segment and doorbell of a task that has been started but has not enrolled yet.
//!
//! The task's peers can be introduced to it, and can send at once. When the task enrolls, it adopts segment and
//! doorbell ([`crate::Endpoint::adopt`]), and finds what was sent.
use crate::doorbell;
use crate::segment::Segment;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The descriptors that the daemon makes for such a task.
pub struct PreallocatedEndpoint {
    /// For the task itself: the segment and the doorbell.
    pub own: [OwnedFd; 2],
    /// For its peers: the segment, read-only, and the doorbell with other flags than the task's.
    pub shown: [OwnedFd; 2],
}

impl PreallocatedEndpoint {
    /// Makes a segment and a doorbell.
    pub fn new() -> io::Result<PreallocatedEndpoint> {
        let (segment, readable) = Segment::new()?.into_descriptors().ok_or(io::ErrorKind::NotFound)?;
        let bell = doorbell::new()?;
        let shown = [readable, doorbell::again(bell.as_fd())?];
        Ok(PreallocatedEndpoint { own: [segment, bell], shown })
    }
}
