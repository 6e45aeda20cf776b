//! Functions with time limits that send and receive on a link between two tasks.
//!
//! A caller that also waits for other events must poll the link's socket itself.
use crate::link::{Head, Link, LinkError};
use crate::polling::poll_one;
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Sleeps until data has arrived, or until the socket has room for bytes that wait. Returns false if the time is over.
pub fn wait(link: &Link, timeout: Duration) -> Result<bool, LinkError> {
    let writes = if link.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
    wait_for(link, PollFlags::IN | writes, timeout)
}

/// Sleeps until the socket has room for more of a body. Returns false if the time is over.
pub fn wait_to_write(link: &Link, timeout: Duration) -> Result<bool, LinkError> {
    wait_for(link, PollFlags::OUT, timeout)
}

fn wait_for(link: &Link, flags: PollFlags, timeout: Duration) -> Result<bool, LinkError> {
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll_one(link, flags, left) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Repeats an action until it has a result or the time is over. Sleeps between the attempts.
fn within<T>(
    link: &mut Link,
    timeout: Duration,
    mut action: impl FnMut(&mut Link) -> Result<Option<T>, LinkError>,
) -> Result<Option<T>, LinkError> {
    let end = Instant::now() + timeout;
    loop {
        let result = action(link)?;
        let left = end.saturating_duration_since(Instant::now());
        if result.is_some() || left.is_zero() {
            return Ok(result);
        }
        wait(link, left)?;
    }
}

/// Writes all bytes that wait for the socket. Returns false if the time is over.
pub fn flush(link: &mut Link, timeout: Duration) -> Result<bool, LinkError> {
    let done = |link: &mut Link| {
        link.flush()?;
        Ok((!link.wants_write()).then_some(()))
    };
    Ok(within(link, timeout, done)?.is_some())
}

/// Returns the beginning of the next frame, if it arrives within the time.
pub fn receive(link: &mut Link, timeout: Duration) -> Result<Option<Head>, LinkError> {
    within(link, timeout, |link| {
        link.flush()?;
        link.receive()
    })
}

/// Sends a frame without copying its body. Returns false if the time is over; the caller must then still push the rest
/// of the body.
pub fn send(link: &mut Link, kind: u8, header: &[u8], body: &[u8], timeout: Duration) -> Result<bool, LinkError> {
    let end = Instant::now() + timeout;
    let mut sent = link.begin(kind, header, body.len(), body)?;
    while sent < body.len() || link.wants_write() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !wait_to_write(link, left)? {
            return Ok(false);
        }
        sent += link.push(&body[sent..])?;
    }
    Ok(true)
}

/// Reads the current frame's body. Returns how many bytes arrived in time.
pub fn take(link: &mut Link, into: &mut [u8], timeout: Duration) -> Result<usize, LinkError> {
    let wanted = into.len().min(link.body_left());
    let mut done = 0;
    within(link, timeout, |link| {
        link.flush()?;
        done += link.take(&mut into[done..wanted])?;
        Ok((done == wanted).then_some(()))
    })?;
    Ok(done)
}
