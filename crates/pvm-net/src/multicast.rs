//! Datagrams to all hosts of a machine, by IP multicast.
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// How many routers a datagram may pass: it stays in the network of the sender's host.
const HOPS_MAX: u32 = 1;
/// The receive buffer that is asked for, in bytes. The system may grant less.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The length of the headers of IPv4 and UDP in bytes.
const HEADERS_BYTES: usize = 20 + 8;
/// The longest datagram in bytes. A longer one would need no fewer system calls by much, and the loss of one costs more.
const DATAGRAM_BYTES_MAX: usize = 8 << 10;

/// A socket for the datagrams of a multicast group. It never blocks.
pub struct MulticastSocket {
    sender: UdpSocket,
    receiver: UdpSocket,
    datagram_bytes: usize,
}

impl MulticastSocket {
    /// Joins a group on the networks of `joined`, and sends on the network of `from`: addresses of this host.
    ///
    /// # Errors
    ///
    /// Those of the system. A network on which the group cannot be joined is left out.
    pub fn new(group: SocketAddrV4, from: Ipv4Addr, joined: &[Ipv4Addr]) -> io::Result<MulticastSocket> {
        let receiver = listen(group, joined)?;
        let _ = sockopt::set_socket_recv_buffer_size(&receiver, RECEIVE_BUFFER_BYTES);
        let sender = UdpSocket::bind(SocketAddrV4::new(from, 0))?;
        sender.set_nonblocking(true)?;
        sender.set_multicast_ttl_v4(HOPS_MAX)?;
        // The daemon does not want its own datagrams. Another daemon on this host does without them.
        sender.set_multicast_loop_v4(false)?;
        sockopt::set_ip_multicast_if(&sender, &from)?;
        sender.connect(group)?;
        let mtu = sockopt::ip_mtu(&sender)? as usize;
        let datagram_bytes = mtu.saturating_sub(HEADERS_BYTES).min(DATAGRAM_BYTES_MAX);
        Ok(MulticastSocket { sender, receiver, datagram_bytes })
    }

    /// Returns the length of the longest datagram that leaves the host in one packet, in bytes.
    pub fn datagram_bytes(&self) -> usize {
        self.datagram_bytes
    }

    /// Sends a datagram to the group.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: the network adapter has as much to send as it takes. Others: those of the system.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.sender.send(datagram).map(|_| ())
    }

    /// Sends a datagram to the same group at another port.
    ///
    /// # Errors
    ///
    /// As [`MulticastSocket::send`].
    pub fn send_to(&self, datagram: &[u8], group: SocketAddrV4) -> io::Result<()> {
        self.sender.send_to(datagram, group).map(|_| ())
    }

    /// Receives a datagram, from anybody. Returns its length, or `None` if there is none now.
    pub fn receive(&self, into: &mut [u8]) -> Option<usize> {
        // Errors of this socket concern single datagrams.
        self.receiver.recv(into).ok()
    }

    /// Returns the descriptor that becomes writable.
    pub fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Returns the descriptor that becomes readable.
    pub fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Returns where releases of barriers are sent. They have a port of their own, so that parts of bodies wake no task, and
/// releases no daemon.
pub fn release_group(group: SocketAddrV4) -> SocketAddrV4 {
    let port = if group.port() == u16::MAX { group.port() - 1 } else { group.port() + 1 };
    SocketAddrV4::new(*group.ip(), port)
}

/// Returns a socket that receives the datagrams of a multicast group on the networks of `joined`, addresses of this host.
/// It never blocks, and no child inherits it.
///
/// # Errors
///
/// Those of the system. A network on which the group cannot be joined is left out.
pub fn listen(group: SocketAddrV4, joined: &[Ipv4Addr]) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let receiver = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // Several processes of one host receive the datagrams of the group.
    sockopt::set_socket_reuseaddr(&receiver, true)?;
    rustix::net::bind(&receiver, &group)?;
    let receiver = UdpSocket::from(receiver);
    let is_joined = |address: &&Ipv4Addr| receiver.join_multicast_v4(group.ip(), address).is_ok();
    if joined.iter().filter(is_joined).count() == 0 {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    Ok(receiver)
}

/// Returns whether an error says that a network or the group is out of reach, not that there is no room.
pub fn is_out_of_reach(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        && Errno::from_io_error(error) != Some(Errno::NOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_reach_all_sockets_of_the_group() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 5), 45_077);
        let open = || MulticastSocket::new(group, Ipv4Addr::LOCALHOST, &[Ipv4Addr::LOCALHOST]);
        let sockets = [open().unwrap(), open().unwrap()];
        assert!(sockets[0].datagram_bytes() >= 1200, "{}", sockets[0].datagram_bytes());
        sockets[0].send(b"all").unwrap();
        // The loopback interface itself returns what it sends.
        for socket in &sockets {
            let mut bytes = [0; 10];
            assert_eq!((socket.receive(&mut bytes), &bytes[..3]), (Some(3), &b"all"[..]));
            assert_eq!(socket.receive(&mut bytes), None);
        }
        let elsewhere = MulticastSocket::new(group, Ipv4Addr::LOCALHOST, &[Ipv4Addr::new(192, 0, 2, 1)]);
        assert!(elsewhere.is_err(), "no network has this address");
    }
}
