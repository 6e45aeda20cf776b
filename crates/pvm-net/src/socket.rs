//! What every TCP socket of ours is told.
use crate::raw;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;

/// Silence after which the kernel asks the other side whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// Questions without an answer before the connection is given up.
const KEEPALIVE_COUNT: u32 = 3;

/// While nothing gets through TCP tries again this often within the time after which the peer is
/// given up, so that a network that is mended late is still noticed in time.
const TRIES: u32 = 10;
/// The least pause between tries that the system takes.
const PAUSE_LEAST: Duration = Duration::from_secs(1);

/// Writes once. To a peer that is gone that is an error and no signal: the process may be a user's, which
/// the signal would end.
pub(crate) fn write(socket: impl AsFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

/// What has been sent must be taken within the time, else the connection is given up. Only for links
/// that are always read: a peer that has no room for what it is sent counts as one that is not there.
pub(crate) fn limit_unread(socket: impl AsFd, timeout: Duration) -> Result<(), Errno> {
    let milliseconds = timeout.as_millis().min(u128::from(u32::MAX)) as u32;
    sockopt::set_tcp_user_timeout(socket, milliseconds)
}

/// Small frames leave at once; a peer that the network has lost is noticed, one that does not read
/// for a long time is not given up.
pub(crate) fn tune(socket: impl AsFd, timeout: Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    let interval = (timeout / KEEPALIVE_COUNT).max(Duration::from_secs(1));
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    // Where the system cannot do that, a few tries at least come without growing pauses.
    if raw::set_retransmission_pause_max(socket, (timeout / TRIES).max(PAUSE_LEAST)).is_err() {
        let _ = sockopt::set_tcp_thin_linear_timeouts(socket, true);
    }
    Ok(())
}
