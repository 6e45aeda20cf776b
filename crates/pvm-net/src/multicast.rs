//! Datagrams to all hosts of a machine, by IP multicast.
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// How many routers a datagram may pass: it stays in the network of the sender's host.
const HOPS_MAX: u32 = 1;
/// The receive buffer that is asked for, in bytes. The system may grant less.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// The length of the headers of IP and UDP in bytes, for IPv4 and IPv6.
const V4_HEADERS_BYTES: usize = 20 + 8;
const V6_HEADERS_BYTES: usize = 40 + 8;
/// The longest datagram in bytes. A longer one would need no fewer system calls by much, and the loss of one costs more.
const DATAGRAM_BYTES_MAX: usize = 8 << 10;

/// A network of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The address of this host there.
    pub own: IpAddr,
    /// The index of the interface; needed for IPv6 only.
    pub interface: u32,
}

/// Returns the group of a machine in the address family of `own`. In IPv6 it is a transient group for the site (RFC 4291),
/// whose address ends with that of the IPv4 group.
pub fn group_for(group: SocketAddrV4, own: IpAddr) -> SocketAddr {
    let [high, low] = [group.ip().to_bits() >> 16, group.ip().to_bits() & 0xffff].map(|half| half as u16);
    match own {
        IpAddr::V4(_) => group.into(),
        IpAddr::V6(_) => (Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, high, low), group.port()).into(),
    }
}

/// A socket for the datagrams of a multicast group. It never blocks.
pub struct MulticastSocket {
    sender: UdpSocket,
    receiver: UdpSocket,
    datagram_bytes: usize,
}

impl MulticastSocket {
    /// Joins a group on those of the networks `joined` that have its address family, and sends on the network `from`.
    ///
    /// # Errors
    ///
    /// Those of the system. A network on which the group cannot be joined is left out.
    pub fn new(group: SocketAddr, from: Network, joined: &[Network]) -> io::Result<MulticastSocket> {
        let receiver = listen(group, joined)?;
        let _ = sockopt::set_socket_recv_buffer_size(&receiver, RECEIVE_BUFFER_BYTES);
        let sender = UdpSocket::bind((from.own, 0))?;
        sender.set_nonblocking(true)?;
        // The daemon does not want its own datagrams. Another daemon on this host does without them.
        match from.own {
            IpAddr::V4(own) => {
                sender.set_multicast_ttl_v4(HOPS_MAX)?;
                sender.set_multicast_loop_v4(false)?;
                sockopt::set_ip_multicast_if(&sender, &own)?;
            }
            IpAddr::V6(_) => {
                sockopt::set_ipv6_multicast_hops(&sender, HOPS_MAX)?;
                sender.set_multicast_loop_v6(false)?;
                sockopt::set_ipv6_multicast_if(&sender, from.interface)?;
            }
        }
        sender.connect(group)?;
        let packet_bytes = match from.own {
            IpAddr::V4(_) => (sockopt::ip_mtu(&sender)? as usize).saturating_sub(V4_HEADERS_BYTES),
            IpAddr::V6(_) => (sockopt::ipv6_mtu(&sender)? as usize).saturating_sub(V6_HEADERS_BYTES),
        };
        Ok(MulticastSocket { sender, receiver, datagram_bytes: packet_bytes.min(DATAGRAM_BYTES_MAX) })
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
    pub fn send_to(&self, datagram: &[u8], group: SocketAddr) -> io::Result<()> {
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
pub fn release_group(group: SocketAddr) -> SocketAddr {
    let port = if group.port() == u16::MAX { group.port() - 1 } else { group.port() + 1 };
    SocketAddr::new(group.ip(), port)
}

/// Returns a socket that receives the datagrams of a multicast group on those of the networks `joined` that have its
/// address family. It never blocks, and no child inherits it.
///
/// # Errors
///
/// Those of the system. A network on which the group cannot be joined is left out.
pub fn listen(group: SocketAddr, joined: &[Network]) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if group.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let receiver = socket_with(family, SocketType::DGRAM, flags, None)?;
    // Several processes of one host receive the datagrams of the group.
    sockopt::set_socket_reuseaddr(&receiver, true)?;
    rustix::net::bind(&receiver, &group)?;
    let receiver = UdpSocket::from(receiver);
    let join = |network: &&Network| match (group.ip(), network.own) {
        (IpAddr::V4(group), IpAddr::V4(own)) => receiver.join_multicast_v4(&group, &own).is_ok(),
        (IpAddr::V6(group), IpAddr::V6(_)) => receiver.join_multicast_v6(&group, network.interface).is_ok(),
        _ => false,
    };
    if joined.iter().filter(join).count() == 0 {
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
    use std::net::Ipv4Addr;

    #[test]
    fn datagrams_reach_all_sockets_of_the_group() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 5), 45_077);
        let network = Network { own: Ipv4Addr::LOCALHOST.into(), interface: 1 };
        let open = || MulticastSocket::new(group_for(group, network.own), network, &[network]);
        let sockets = [open().unwrap(), open().unwrap()];
        assert!(sockets[0].datagram_bytes() >= 1200, "{}", sockets[0].datagram_bytes());
        sockets[0].send(b"all").unwrap();
        // The loopback interface itself returns what it sends.
        for socket in &sockets {
            let mut bytes = [0; 10];
            assert_eq!((socket.receive(&mut bytes), &bytes[..3]), (Some(3), &b"all"[..]));
            assert_eq!(socket.receive(&mut bytes), None);
        }
        // A loopback network seldom has a route for groups of IPv6: the case `hosts_broadcast_six` sends there.
        assert_eq!(group_for(group, Ipv6Addr::LOCALHOST.into()).to_string(), "[ff15::efff:4d05]:45077");
        let elsewhere = Network { own: Ipv4Addr::new(192, 0, 2, 1).into(), interface: 0 };
        assert!(MulticastSocket::new(group.into(), elsewhere, &[elsewhere]).is_err(), "no network has this address");
    }
}
