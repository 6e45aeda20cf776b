//! Datagrams to the machine's multicast group that no daemon has sent. Everybody on the network can send them.
use fastrand::Rng;
use pvm_core::flows::multicast::datagram::{BODY_PART, DatagramHead, HEAD_BYTES, NAME_BYTES};
use pvm_net::{MulticastSocket, Network, Seal, listen, release_group};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// The number of datagrams that are remembered, so that they can be repeated.
const HEARD_MAX: usize = 512;
/// The longest datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// The length of most datagrams whose contents are random, in bytes.
const NOISE_BYTES_MAX: usize = 1500;
/// The most datagrams that a stranger sends in a row, and its pause after them.
const STRANGERS_BURST: usize = 64;
const STRANGERS_PAUSE: Duration = Duration::from_millis(10);

/// The multicast group of a machine.
pub struct Group {
    socket: MulticastSocket,
    /// Where releases of barriers are sent, and a socket that hears them.
    release_group: SocketAddr,
    releases: UdpSocket,
    heard: VecDeque<Vec<u8>>,
}

impl Group {
    /// Joins a group on the network where this host has the address `own`.
    pub fn join(group: SocketAddrV4, own: Ipv4Addr) -> io::Result<Group> {
        let network = Network { own: own.into(), interface: 0 };
        let socket = MulticastSocket::new(group.into(), network, &[network])?;
        let release_group = release_group(group.into());
        Ok(Group { socket, release_group, releases: listen(release_group, &[network])?, heard: VecDeque::new() })
    }

    /// Receives the datagrams that have arrived. Returns the heads of those with parts of bodies.
    pub fn listen(&mut self) -> Vec<DatagramHead> {
        let (mut heads, mut bytes) = (Vec::new(), vec![0; DATAGRAM_BYTES_MAX]);
        while let Some(count) = self.socket.receive(&mut bytes).filter(|_| heads.len() < HEARD_MAX) {
            heads.extend(DatagramHead::read(&bytes[..count]));
            self.heard.push_back(bytes[..count].to_vec());
        }
        let releases = std::iter::from_fn(|| self.releases.recv(&mut bytes).ok().map(|count| bytes[..count].to_vec()));
        self.heard.extend(releases.take(HEARD_MAX));
        let excess = self.heard.len().saturating_sub(HEARD_MAX);
        self.heard.drain(..excess);
        heads
    }

    /// Sends a datagram. If there is no room for it, it is lost.
    pub fn send(&self, datagram: &[u8]) {
        let _ = self.socket.send(datagram);
        let _ = self.socket.send_to(datagram, self.release_group);
    }

    /// Sends this number of datagrams without knowing any secret: repeated, changed, truncated, longer, and invented ones.
    pub fn send_without_secret(&self, prng: &mut Rng, count: usize) {
        for _ in 0..count {
            let heard = match self.heard.len() {
                0 => Vec::new(),
                len => self.heard[prng.usize(..len)].clone(),
            };
            self.send(&false_datagram(prng, heard));
        }
    }
}

/// Makes a datagram out of one that was heard.
fn false_datagram(prng: &mut Rng, mut heard: Vec<u8>) -> Vec<u8> {
    let is_empty = heard.is_empty();
    match prng.u32(..7) {
        0 if !is_empty => {}
        1 if !is_empty => {
            let at = prng.usize(..heard.len());
            heard[at] ^= 1 << prng.u32(..8);
        }
        2 if !is_empty => heard.truncate(prng.usize(..heard.len())),
        3 => heard.resize(prng.usize(heard.len()..=DATAGRAM_BYTES_MAX), 7),
        4 if heard.len() >= HEAD_BYTES => {
            // A head that seems to belong to an open body: another part, another round.
            let fields = 1 + NAME_BYTES..HEAD_BYTES;
            heard[fields].iter_mut().for_each(|byte| *byte = prng.u8(..));
        }
        _ => {
            let kind = [0, BODY_PART, BODY_PART + 1, prng.u8(..)][prng.usize(..4)];
            heard = vec![0; prng.usize(1..NOISE_BYTES_MAX)];
            prng.fill(&mut heard);
            heard[0] = kind;
        }
    }
    heard
}

/// Returns a datagram with wrong bytes in the place of a part of a body, sealed with the body's secret.
pub fn forged_part(prng: &mut Rng, seal: &Seal, part_bytes: usize, parts: u32) -> Vec<u8> {
    let part = prng.u32(..parts);
    let sent = [part + 1, parts, u32::MAX, 0][prng.usize(..4)];
    let round = [0, 0, 1, prng.u32(..100), prng.u32(..)][prng.usize(..5)];
    // The sender's serial numbers begin at 0.
    let head = DatagramHead { name: seal.name(), serial: prng.u64(1 << 40..), part, sent, round };
    let mut datagram = Vec::new();
    head.write(&mut datagram);
    let bytes = [part_bytes, 0, prng.usize(..NOISE_BYTES_MAX)][prng.usize(..3)];
    datagram.resize(HEAD_BYTES + bytes, 9);
    seal.seal(head.serial, HEAD_BYTES, &mut datagram);
    datagram
}

/// Sends false datagrams as a stranger, who is no host of the machine, until the standard input ends. `words` are the
/// group, the own address and the seed. Returns the number of datagrams.
pub fn be_a_stranger(words: &[String]) -> Result<usize, crate::Error> {
    let [group, own, seed] = words else { return Err("a stranger needs a group, an address and a seed".into()) };
    let (mut group, mut prng) = (Group::join(group.parse()?, own.parse()?)?, Rng::with_seed(seed.parse()?));
    let mut count = 0;
    let pause = pvm_net::polling::timespec(STRANGERS_PAUSE);
    // There is no input, so the only event is its end.
    while poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&pause))? == 0 {
        group.listen();
        let burst = prng.usize(..STRANGERS_BURST);
        group.send_without_secret(&mut prng, burst);
        count += burst;
    }
    Ok(count)
}
