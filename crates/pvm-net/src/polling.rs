//! Waiting for descriptors, for the loops of daemons and tasks.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

/// Returns a duration in the form that the kernel expects. A duration that is too long for the kernel becomes the
/// longest possible one.
pub fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// Waits until a descriptor is ready for one of these events, has failed or was closed. Returns whether that happened
/// in time. A signal interrupts the wait.
pub fn poll_one(descriptor: impl AsFd, events: PollFlags, time: Duration) -> rustix::io::Result<bool> {
    poll(&mut [PollFd::new(&descriptor, events)], Some(&timespec(time))).map(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_ready_once_something_can_be_read() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(poll_one(&reader, PollFlags::IN, Duration::from_millis(1)), Ok(false));
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(poll_one(&reader, PollFlags::IN, Duration::MAX), Ok(true));
    }

    #[test]
    fn durations_keep_their_nanoseconds() {
        let time = timespec(Duration::new(3, 7));
        assert_eq!((time.tv_sec, time.tv_nsec), (3, 7));
        assert_eq!(timespec(Duration::MAX).tv_sec, i64::MAX);
    }
}
