//! Options of all TCP sockets.
use crate::raw;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketType, sendmsg, sockopt};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The time of silence after which the kernel checks whether the other side exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The number of these checks, which are spread over the time after which a peer counts as silent. A peer that has
/// forgotten the connection answers with an error.
const KEEPALIVE_COUNT: u32 = 3;

/// The number of retransmissions, which are spread over the time after which a peer counts as silent. So a recovery of
/// the network is noticed even if it happens late in this time.
const TRIES: u32 = 10;
/// The shortest limit that the system accepts for the pauses between retransmissions.
const PAUSE_LEAST: Duration = Duration::from_secs(1);

/// Writes once. If the peer is gone, this returns an error and causes no signal, which would end the user's process.
pub(crate) fn write(socket: impl AsFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

/// Makes a connection fail when sent data stays unread for `timeout`. A peer without room for data then counts as
/// absent, and after several short outages Linux ends connections that have carried data in between: only for links that
/// are made again.
pub(crate) fn limit_unread(socket: impl AsFd, timeout: Duration) -> Result<(), Errno> {
    let milliseconds = timeout.as_millis().min(u128::from(u32::MAX)) as u32;
    sockopt::set_tcp_user_timeout(socket, milliseconds)
}

/// The longest segment that every path carries in one packet: IPv4 promises 576 bytes, 40 of them for headers.
const SEGMENT_BYTES_EVERYWHERE: u16 = 536;

/// Keeps the packets of a socket that is not connected yet so short that every path carries them, in both directions.
///
/// A path may lose all packets above some length without a word, for example where a tunnel begins. A connection that
/// must show whether the peer lives must not depend on the length of what else it carries.
pub(crate) fn keep_packets_short(socket: impl AsFd) -> Result<(), Errno> {
    raw::set_segment_bytes_max(socket.as_fd(), SEGMENT_BYTES_EVERYWHERE)
}

/// The longest round trip within a cluster.
const NEAR: Duration = Duration::from_millis(1);
/// The beginning of the names of congestion controls that pace packets.
const PACED: &str = "bbr";
/// The congestion controls that replace the pacing ones within a cluster: first the usual one, then one that every
/// system has.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Replaces the congestion control of a socket that is not connected yet, if this control paces packets.
///
/// Messages are sent in bursts with pauses between them. A control that paces packets makes the processor sleep between
/// the packets of a burst, includes these sleeps in its measurements, and slows down further. A connection that was
/// begun with pacing keeps the pacing. So pacing is avoided before the connection is made, and [`tune`] restores the
/// system's choice if the peer is far away.
pub(crate) fn avoid_pacing(socket: BorrowedFd<'_>) {
    if sockopt::tcp_congestion(socket).is_ok_and(|name| name.starts_with(PACED)) {
        // If the system allows none of these controls, its choice stays.
        let _ = UNPACED.iter().any(|name| sockopt::set_tcp_congestion(socket, name).is_ok());
    }
}

/// Restores the system's choice of congestion control, which is right for a long distance.
fn restore_pacing(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let fresh = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let usual = sockopt::tcp_congestion(&fresh)?;
    if usual.starts_with(PACED) { sockopt::set_tcp_congestion(socket, &usual) } else { Ok(()) }
}

/// The time after which TCP gives a peer up: the longest that the system accepts, which means never. Another connection
/// shows whether the peer lives; as long as the peer lives, sent data is still wanted. The default limit is a number of
/// retransmissions; with short pauses, this number would be reached within seconds.
const GIVEN_UP: u32 = i32::MAX as u32;

/// Sets options: small frames leave at once, lost packets are sent again at short intervals for as long as necessary,
/// and a peer that does not read for a long time is not given up.
pub(crate) fn tune(socket: impl AsFd, timeout: Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    if raw::round_trip(socket).is_ok_and(|time| time > NEAR) {
        // If this fails, the connection is slower at worst.
        let _ = restore_pacing(socket);
    }
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    let interval = (timeout / KEEPALIVE_COUNT).max(Duration::from_secs(1));
    sockopt::set_tcp_keepintvl(socket, interval)?;
    // If the system does not have this option, at least the pauses between the first retransmissions do not grow.
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
    fn a_connection_with_short_packets_has_them_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = |is_short: bool| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            if is_short {
                keep_packets_short(&socket).unwrap();
            }
            rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
            let other = listener.accept().unwrap().0;
            [raw::segment_bytes(socket.as_fd()).unwrap(), raw::segment_bytes(other.as_fd()).unwrap()]
        };
        let limit = u32::from(SEGMENT_BYTES_EVERYWHERE);
        assert!(connected(true).iter().all(|bytes| *bytes <= limit), "{:?}", connected(true));
        assert!(connected(false).iter().all(|bytes| *bytes > limit), "{:?}", connected(false));
    }

    #[test]
    fn nothing_is_sent_by_a_clock_but_over_a_long_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _other = listener.accept().unwrap();
        let usual = sockopt::tcp_congestion(&stream).unwrap();
        // True if the system has a congestion control that paces packets.
        let paced = sockopt::set_tcp_congestion(&stream, PACED).is_ok();
        avoid_pacing(stream.as_fd());
        let near = sockopt::tcp_congestion(&stream).unwrap();
        assert!(if paced { UNPACED.contains(&near.as_str()) } else { near == usual }, "{near}");
        assert!(raw::round_trip(stream.as_fd()).unwrap() < Duration::from_secs(1));
        assert_eq!(raw::carried(stream.as_fd()).unwrap().retransmissions, 0);
        restore_pacing(stream.as_fd()).unwrap();
        let far = sockopt::tcp_congestion(&stream).unwrap();
        assert_eq!(far, if usual.starts_with(PACED) { usual } else { near });
    }
}
