//! Socket options that no other crate offers without unsafe code.
#![allow(unsafe_code)]

use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The option for the longest pause between two retransmissions, in milliseconds; since Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Sets the longest pause that TCP makes between two retransmissions. Fails before Linux 6.15.
pub fn set_retransmission_pause_max(socket: BorrowedFd<'_>, pause: Duration) -> Result<(), Errno> {
    set_number(socket, TCP_RTO_MAX_MS, libc::c_int::try_from(pause.as_millis()).unwrap_or(libc::c_int::MAX))
}

/// Limits the bytes that one segment carries, TCP's own options included, in both directions. The socket must not be
/// connected yet.
pub fn set_segment_bytes_max(socket: BorrowedFd<'_>, bytes: u16) -> Result<(), Errno> {
    set_number(socket, libc::TCP_MAXSEG, bytes.into())
}

fn set_number(socket: BorrowedFd<'_>, option: libc::c_int, number: libc::c_int) -> Result<(), Errno> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const number).cast::<libc::c_void>();
    // SAFETY: the descriptor is open while it is borrowed; `value` points to an integer that lives
    // until the call has returned, and `length` is its size.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, value, length) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// Returns the round-trip time of a connection, as TCP has measured it.
pub fn round_trip(socket: BorrowedFd<'_>) -> Result<Duration, Errno> {
    Ok(Duration::from_micros(u64::from(information(socket)?.tcpi_rtt)))
}

/// Returns the length of the longest segment that a connection sends, in bytes without options.
#[cfg(test)]
pub fn segment_bytes(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    Ok(information(socket)?.tcpi_snd_mss)
}

/// Counters of a connection, as the systems of both sides know them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that were sent and that the other side's system has acknowledged.
    pub acknowledged: u64,
    /// Bytes received.
    pub received: u64,
    /// Whether there are bytes that were not acknowledged in time, were sent again, and are still not acknowledged. A
    /// receiver that merely does not read does not cause this, since its system acknowledges the bytes.
    pub retries: bool,
    /// Segments that were sent again since the connection was made.
    pub retransmissions: u32,
    /// Segments that arrived out of order since the connection was made: segments before them were lost, or took
    /// another path.
    pub out_of_order: u32,
}

/// Returns the counters of a connection.
pub fn carried(socket: BorrowedFd<'_>) -> Result<Carried, Errno> {
    let info = information(socket)?;
    Ok(Carried {
        acknowledged: info.tcpi_bytes_acked,
        received: info.tcpi_bytes_received,
        retries: info.tcpi_unacked > 0 && info.tcpi_retransmits > 0,
        retransmissions: info.tcpi_total_retrans,
        out_of_order: info.tcpi_rcv_ooopack,
    })
}

/// Returns TCP's information about a connection.
fn information(socket: BorrowedFd<'_>) -> Result<libc::tcp_info, Errno> {
    // SAFETY: the structure has integers only, for which zeroes are values.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let value = (&raw mut info).cast::<libc::c_void>();
    // SAFETY: the descriptor is open while it is borrowed; `value` points to as many bytes as `length` says, and the
    // system writes at most that many.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut length) };
    if result == 0 {
        Ok(info)
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
            // Beyond the option's range.
            let result = set_retransmission_pause_max(listener.as_fd(), Duration::from_secs(1_000_000));
            assert_eq!(result, Err(Errno::INVAL));
        }
    }

    #[test]
    fn what_is_acknowledged_is_counted_and_an_idle_connection_retries_nothing() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        one.write_all(&[7; 5000]).unwrap();
        other.read_exact(&mut [0; 5000]).unwrap();
        let before = carried(one.as_fd()).unwrap();
        assert!((5000..=5001).contains(&before.acknowledged) && !before.retries, "{before:?}");
        assert_eq!(carried(other.as_fd()).unwrap().received, 5000);
        let pipe = rustix::pipe::pipe().unwrap();
        assert_eq!(carried(pipe.0.as_fd()), Err(Errno::NOTSOCK));
    }
}
