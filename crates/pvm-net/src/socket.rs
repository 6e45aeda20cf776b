//! What every TCP socket of ours is told.
use crate::raw;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketType, sendmsg, sockopt};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Silence after which the kernel asks the other side whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// How often it asks within the time after which a peer counts as silent. One that has forgotten the connection says so.
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

/// A round trip up to this is one within a cluster.
const NEAR: Duration = Duration::from_millis(1);
/// How the names of the congestion controls begin that send by a clock.
const PACED: &str = "bbr";
/// What takes their place near by: what most systems have, else what all have.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// A new socket, not yet connected, will not send by a clock.
///
/// Messages come in bursts with pauses between. A control that sends at the rate which it has measured
/// has the processor sleep between the packets of a burst, measures that too, and slows down further.
/// A connection that has begun with a clock keeps it; so this comes first, and [`tune`] takes it back
/// where it is far to the peer.
pub(crate) fn avoid_pacing(socket: BorrowedFd<'_>) {
    if sockopt::tcp_congestion(socket).is_ok_and(|name| name.starts_with(PACED)) {
        // Where the system allows none of them all stays as it is.
        let _ = UNPACED.iter().any(|name| sockopt::set_tcp_congestion(socket, name).is_ok());
    }
}

/// Over a long way the system's own choice is the right one.
fn restore_pacing(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let fresh = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let usual = sockopt::tcp_congestion(&fresh)?;
    if usual.starts_with(PACED) { sockopt::set_tcp_congestion(socket, &usual) } else { Ok(()) }
}

/// By when TCP itself gives a peer up: in effect never, as far as the system can say so. Whether the peer lives is said on
/// another connection; while it does, what has been sent is still wanted. The usual limit counts tries, and with
/// short pauses between them those would be over after seconds.
const GIVEN_UP: u32 = i32::MAX as u32;

/// Small frames leave at once; what the network has lost goes out again as soon as it can, however long that takes,
/// and a peer that does not read for a long time is not given up.
pub(crate) fn tune(socket: impl AsFd, timeout: Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    if raw::round_trip(socket).is_ok_and(|time| time > NEAR) {
        // Slower at worst.
        let _ = restore_pacing(socket);
    }
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    let interval = (timeout / KEEPALIVE_COUNT).max(Duration::from_secs(1));
    sockopt::set_tcp_keepintvl(socket, interval)?;
    // Where the system cannot do that, a few tries at least come without growing pauses.
    if raw::set_retransmission_pause_max(socket, (timeout / TRIES).max(PAUSE_LEAST)).is_err() {
        let _ = sockopt::set_tcp_thin_linear_timeouts(socket, true);
    }
    sockopt::set_tcp_user_timeout(socket, GIVEN_UP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn nothing_is_sent_by_a_clock_but_over_a_long_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _other = listener.accept().unwrap();
        let usual = sockopt::tcp_congestion(&stream).unwrap();
        // Where the system has one that does.
        let paced = sockopt::set_tcp_congestion(&stream, PACED).is_ok();
        avoid_pacing(stream.as_fd());
        let near = sockopt::tcp_congestion(&stream).unwrap();
        assert!(if paced { UNPACED.contains(&near.as_str()) } else { near == usual }, "{near}");
        assert!(raw::round_trip(stream.as_fd()).unwrap() < Duration::from_secs(1));
        assert_eq!(raw::carried(stream.as_fd()).unwrap().sent_again, 0);
        restore_pacing(stream.as_fd()).unwrap();
        let far = sockopt::tcp_congestion(&stream).unwrap();
        assert_eq!(far, if usual.starts_with(PACED) { usual } else { near });
    }
}
