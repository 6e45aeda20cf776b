//! A segment and a doorbell for a task that has been started but has not come yet.
//!
//! Its peers can be introduced to it and send at once; when it comes it takes both over
//! ([`crate::Endpoint::adopt`]) and finds what was sent.
use crate::segment::Segment;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::OwnedFd;

/// What the daemon makes for such a task.
pub struct Blank {
    /// The segment, for the task itself.
    pub segment: OwnedFd,
    /// The segment, read-only, for its peers.
    pub readable: OwnedFd,
    /// The doorbell.
    pub bell: OwnedFd,
}

impl Blank {
    /// Makes both.
    pub fn new() -> io::Result<Blank> {
        let (segment, readable) = Segment::new()?.into_descriptors();
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Blank { segment, readable, bell })
    }
}
