//! What no other crate offers without unsafe code.
#![allow(unsafe_code)]

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The longest pause between two retransmissions, in milliseconds; since Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Sets how long TCP pauses at most between two tries to get something through. Systems before Linux
/// 6.15 cannot.
pub fn set_retransmission_pause_max(socket: BorrowedFd<'_>, pause: Duration) -> Result<(), Errno> {
    let milliseconds = libc::c_int::try_from(pause.as_millis()).unwrap_or(libc::c_int::MAX);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const milliseconds).cast::<libc::c_void>();
    // SAFETY: the descriptor is open while it is borrowed; `value` points to an integer that lives
    // until the call has returned, and `length` is its size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_RTO_MAX_MS, value, length) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// What TCP knows of a connection.
pub struct TcpInfo {
    /// How long a round trip takes, as measured so far.
    pub round_trip: Duration,
    /// How many segments have been sent again since it stands.
    pub sent_again: u32,
}

/// What TCP knows of a connection.
pub fn tcp_info(socket: BorrowedFd<'_>) -> Result<TcpInfo, Errno> {
    // SAFETY: the structure has integers only, for which zeroes are values.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let value = (&raw mut info).cast::<libc::c_void>();
    // SAFETY: the descriptor is open while it is borrowed; `value` points to as many bytes as `length`
    // says, of which the system fills no more than it knows.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length) };
    if result == 0 {
        let round_trip = Duration::from_micros(u64::from(info.tcpi_rtt));
        Ok(TcpInfo { round_trip, sent_again: info.tcpi_total_retrans })
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_pause_is_set_where_the_system_knows_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let result = set_retransmission_pause_max(listener.as_fd(), Duration::from_secs(1));
        assert!(matches!(result, Ok(()) | Err(Errno::NOPROTOOPT)), "{result:?}");
        if result.is_ok() {
            // Out of its bounds.
            let result = set_retransmission_pause_max(listener.as_fd(), Duration::from_secs(1_000_000));
            assert_eq!(result, Err(Errno::INVAL));
        }
    }
}
