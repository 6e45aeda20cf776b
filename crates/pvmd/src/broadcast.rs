//! Datagrams to all hosts of the machine at once: parts of bodies, and, at a port of their own, releases of barriers.
use crate::addresses;
use crate::source::Source;
use pvm_net::{MulticastSocket, Network, group_for, is_out_of_reach, listen, release_group};
use rustix::event::epoll::{self, EventFlags};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The longest datagram that is received, in bytes.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// What became of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramSent {
    /// The system has it.
    Done,
    /// There is no room for it now. [`Source::DatagramRoom`] reports when there is.
    NoRoom,
    /// This host cannot send to all hosts.
    Never,
}

/// The state of the socket.
enum State {
    Closed,
    Open(MulticastSocket),
    /// The socket could not be opened, or could not send.
    Failed,
}

/// The multicast group of the machine.
pub struct Broadcast {
    epoll: Rc<OwnedFd>,
    group: Option<SocketAddrV4>,
    /// The address of this host in the network on which it sends.
    network: Option<IpAddr>,
    state: State,
    /// Whether the loop waits until the socket can take more.
    watches_room: bool,
    /// Where the daemon receives releases, if a task cannot.
    releases: Option<UdpSocket>,
    /// The reason of a failure that was not logged yet.
    complaint: Option<String>,
    /// Room for the longest datagram.
    buffer: Vec<u8>,
}

impl Broadcast {
    /// Makes the closed socket of a machine that broadcasts to this group, or never.
    pub fn new(epoll: Rc<OwnedFd>, group: Option<SocketAddrV4>) -> Broadcast {
        Broadcast {
            epoll,
            group,
            network: None,
            state: State::Closed,
            watches_room: false,
            releases: None,
            complaint: None,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
        }
    }

    /// Sets the group of the machine that this host has joined.
    pub fn set_group(&mut self, group: Option<SocketAddrV4>) {
        self.group = group;
    }

    /// Notes the address that this host has on its link to another one. The first one decides on which network this
    /// host sends; as long as nothing was sent, IPv4 goes before IPv6, since hosts of one family do not hear the other.
    pub fn note_link(&mut self, address: Option<IpAddr>) {
        let is_better = match self.network {
            None => true,
            Some(before) => before.is_ipv6() && address.is_some_and(|address| address.is_ipv4()),
        };
        if is_better && address.is_some() && matches!(self.state, State::Closed) {
            self.network = address;
        }
    }

    /// Returns the group in the address family of this host's network.
    fn address(&self) -> Option<SocketAddr> {
        Some(group_for(self.group?, self.network.unwrap_or(Ipv4Addr::UNSPECIFIED.into())))
    }

    /// Opens the socket if it is closed. Returns whether it is open.
    pub fn open(&mut self) -> bool {
        if let (State::Closed, Some(group), Some(network)) = (&self.state, self.address(), self.network) {
            self.state = match self.make_socket(group, network) {
                Ok(socket) => State::Open(socket),
                Err(error) => {
                    self.complaint = Some(format!("no broadcast to {group} from {network}: {error}"));
                    State::Failed
                }
            };
        }
        matches!(self.state, State::Open(_))
    }

    /// Returns the length of the longest datagram in bytes, or `None` if the socket is not open.
    pub fn datagram_bytes(&self) -> Option<usize> {
        match &self.state {
            State::Open(socket) => Some(socket.datagram_bytes()),
            State::Closed | State::Failed => None,
        }
    }

    fn make_socket(&self, group: SocketAddr, own: IpAddr) -> io::Result<MulticastSocket> {
        let networks = addresses::networks();
        let named = networks.iter().find(|network| network.own == own).copied();
        let socket = MulticastSocket::new(group, named.unwrap_or(Network { own, interface: 0 }), &networks)?;
        epoll::add(&self.epoll, socket.receiver(), Source::Datagrams.data(), EventFlags::IN)?;
        epoll::add(&self.epoll, socket.sender(), Source::DatagramRoom.data(), EventFlags::empty())?;
        Ok(socket)
    }

    /// Returns why the socket has failed, once.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// Sends a datagram to all hosts, if the socket is open.
    pub fn send(&mut self, datagram: &[u8]) -> DatagramSent {
        let State::Open(socket) = &self.state else { return DatagramSent::Never };
        let sent = match socket.send(datagram) {
            Ok(()) => DatagramSent::Done,
            Err(error) if is_out_of_reach(&error) => {
                self.complaint = Some(format!("broadcasts end: {error}"));
                self.state = State::Failed;
                DatagramSent::Never
            }
            Err(_) => DatagramSent::NoRoom,
        };
        self.watch_room(sent == DatagramSent::NoRoom);
        sent
    }

    /// Watches the socket for room, but only while a datagram waits for that: the system reports room for each datagram
    /// that leaves the host, and each report would wake the daemon.
    fn watch_room(&mut self, wanted: bool) {
        let State::Open(socket) = &self.state else { return };
        if wanted != self.watches_room {
            self.watches_room = wanted;
            let flags = if wanted { EventFlags::OUT | EventFlags::ET } else { EventFlags::empty() };
            // Fails only for a socket that is not watched.
            let _ = epoll::modify(&self.epoll, socket.sender(), Source::DatagramRoom.data(), flags);
        }
    }

    /// Receives a datagram into this buffer ([`Broadcast::take_buffer`]). Anybody may have sent it.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let State::Open(socket) = &self.state else { return None };
        let count = socket.receive(buffer)?;
        Some(&mut buffer[..count])
    }

    // ----- releases of barriers

    /// Sends a release to all hosts, if the socket is open. It may be lost.
    pub fn send_release(&mut self, datagram: &[u8]) {
        let (State::Open(socket), Some(group)) = (&self.state, self.address().map(release_group)) else { return };
        if let Err(error) = socket.send_to(datagram, group) {
            if is_out_of_reach(&error) {
                self.complaint = Some(format!("broadcasts end: {error}"));
                self.state = State::Failed;
            }
        }
    }

    /// Returns a socket that receives releases, for a task.
    ///
    /// # Errors
    ///
    /// Those of the system, and `NotFound` if the machine does not broadcast.
    pub fn release_socket(&self) -> io::Result<UdpSocket> {
        listen(self.address().map(release_group).ok_or(io::ErrorKind::NotFound)?, &addresses::networks())
    }

    /// Receives releases from now on ([`Broadcast::receive_release`]).
    ///
    /// # Errors
    ///
    /// As [`Broadcast::release_socket`].
    pub fn hear_releases(&mut self) -> io::Result<()> {
        if self.releases.is_none() {
            let socket = self.release_socket()?;
            epoll::add(&self.epoll, &socket, Source::Releases.data(), EventFlags::IN)?;
            self.releases = Some(socket);
        }
        Ok(())
    }

    /// Receives a release into this buffer. Anybody may have sent it.
    pub fn receive_release<'a>(&self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let count = self.releases.as_ref()?.recv(buffer).ok()?;
        Some(&buffer[..count])
    }

    /// Lends the buffer for datagrams.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Takes the buffer back.
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }
}
