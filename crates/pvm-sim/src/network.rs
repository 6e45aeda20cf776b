//! The network: links between daemons as pairs of channels, and the faults of these channels.
use crate::ids::NodeId;
use crate::prng::Prng;
use crate::program::QueuedMessage;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos};
use crate::scenario::Place;
use pvm_core::flows::{AckTracker, Credit, DataFrame, RetransmitQueue};
use pvm_core::machine::LinkBreak;
use pvm_core::session::Session;
use std::collections::VecDeque;
use std::rc::Rc;

/// The most bytes that may be on their way in a data channel.
pub const CHANNEL_BYTES_MAX: usize = 256 << 10;

/// The most times that the operating system sends a packet again.
const TRIES_MAX: usize = 12;

/// An item on a connection.
#[derive(Clone)]
pub enum Item {
    /// The connections are established.
    Up,
    /// An encoded frame.
    Frame(Vec<u8>),
    /// A whole message, a chunk of one, or an in-band frame, on the data link.
    Piece(Rc<DataFrame<QueuedMessage>>),
    /// Credit on the data link.
    Credit(Credit),
    /// A grant on the data link: this number of bytes of long messages may have been sent in all.
    Grant(u64),
    /// An acknowledgement: this number of items has arrived on the data link, or of bytes on the control link.
    Acknowledged(u64),
    /// An acknowledgement that is the first item on a new connection.
    Greeting(u64),
    /// The other side has closed the connection, in this way.
    Close(LinkBreak),
}

impl Item {
    /// Returns how many bytes the item takes on the data link.
    pub fn bytes(&self) -> usize {
        match self {
            Item::Piece(piece) => match &**piece {
                DataFrame::Start { first, .. } => 64 + first,
                DataFrame::Chunk { range, .. } => 16 + range.len(),
                DataFrame::InBand { payload, .. } => 16 + payload.len(),
                DataFrame::Part { range, .. } => 32 + range.len(),
                DataFrame::Announce { .. } | DataFrame::Request { .. } | DataFrame::Mark { .. } => 64,
            },
            _ => 32,
        }
    }
}

/// The two connections of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Control,
    Data,
}

/// One direction of a connection: first in, first out.
#[derive(Default)]
pub struct Channel {
    /// The items, each with the time at which it arrives unless a fault delays it.
    pub items: VecDeque<(Nanos, Item)>,
    last: Nanos,
    /// Whether the arrival of the first item is planned.
    pub planned: bool,
    /// The bytes on their way.
    pub bytes: usize,
}

impl Channel {
    /// Queues an item. Returns the time for which the caller must plan an arrival, or `None` if one is already planned.
    pub fn push(&mut self, arrival: Nanos, item: Item) -> Option<Nanos> {
        self.last = self.last.max(arrival);
        self.bytes += item.bytes();
        self.items.push_back((self.last, item));
        (!std::mem::replace(&mut self.planned, true)).then_some(self.last)
    }
    /// Removes and returns the first item.
    pub fn pop(&mut self) -> Option<Item> {
        let (_, item) = self.items.pop_front()?;
        self.bytes -= item.bytes();
        if self.items.is_empty() {
            // The queue then starts from the beginning of its memory, which is in the processor's cache.
            self.items.clear();
        }
        Some(item)
    }
    /// Drops everything on its way but the first `count` items.
    pub fn cut(&mut self, count: usize) {
        self.items.truncate(count);
        self.bytes = self.items.iter().map(|(_, item)| item.bytes()).sum();
    }
    /// Drops everything on its way.
    pub fn clear(&mut self) {
        self.items.clear();
        self.bytes = 0;
    }
}

/// The times at which one end of a connection sends packets again, in the past and in the future.
#[derive(Default)]
pub struct Retransmissions(Vec<Nanos>);

impl Retransmissions {
    /// Plans a retransmission.
    pub fn plan(&mut self, at: Nanos) {
        self.0.push(at);
    }
    /// Returns how many packets were sent again up to that time.
    pub fn until(&self, time: Nanos) -> u32 {
        self.0.iter().filter(|at| **at <= time).count() as u32
    }
}

/// Packets from or to a computer that are lost.
#[derive(Clone, Copy, Default)]
struct Loss {
    /// How many of a thousand.
    share: usize,
    /// The time at which the fault ends.
    until: Nanos,
}

/// An acknowledgement is sent each time that this number of items has arrived.
const ACKNOWLEDGE_EVERY: u64 = 16;

/// One end of a data link.
pub struct DataEnd {
    /// The items that have been queued or sent, but not acknowledged.
    pub sent: RetransmitQueue<Item>,
    /// The items that have arrived.
    pub receipts: AckTracker,
    /// The connection that this end uses; 0 for none. This end may not have noticed yet that the connection has ended.
    pub connection: u64,
    /// Whether the other end has sent the position up to which it has received.
    pub greeted: bool,
    /// The number of bytes that this end has written since its connection broke. They are lost.
    pub lost_bytes: usize,
}

impl DataEnd {
    fn new() -> DataEnd {
        let (sent, receipts) = (RetransmitQueue::default(), AckTracker::new(ACKNOWLEDGE_EVERY));
        DataEnd { sent, receipts, connection: 1, greeted: true, lost_bytes: 0 }
    }
}

/// The data link of two daemons.
pub struct Data {
    /// See [`Link::ends`].
    pub ends: [DataEnd; 2],
    /// The newest connection, and whether it is established.
    pub newest: u64,
    pub is_established: bool,
}

impl Default for Data {
    fn default() -> Data {
        Data { ends: [DataEnd::new(), DataEnd::new()], newest: 1, is_established: true }
    }
}

impl Data {
    /// Returns whether the given end uses the newest connection, and this connection is established.
    pub fn reaches(&self, end: usize) -> bool {
        self.is_established && self.ends[end].connection == self.newest
    }
}

/// The most bytes that a session keeps.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// One end of a control link.
pub struct ControlEnd {
    /// The frames.
    pub session: Session,
    /// The connection that this end uses; 0 for none. This end may not have noticed yet that the connection has ended.
    pub connection: u64,
    /// How many packets this end had sent again before that connection.
    pub sent_again_before: u32,
}

/// The control link of two daemons.
pub struct Control {
    /// See [`Link::ends`].
    pub ends: [ControlEnd; 2],
    /// The newest connection, and whether it is established.
    pub newest: u64,
    pub is_established: bool,
}

impl Default for Control {
    fn default() -> Control {
        let end = || ControlEnd { session: Session::new(KEPT_BYTES_MAX), connection: 0, sent_again_before: 0 };
        Control { ends: [end(), end()], newest: 1, is_established: true }
    }
}

impl Control {
    /// Returns whether the given end uses the newest connection, and this connection is established.
    pub fn reaches(&self, end: usize) -> bool {
        self.is_established && self.ends[end].connection == self.newest
    }
    /// Returns whether the given end uses the newest connection, which may have broken.
    pub fn is_newest(&self, end: usize) -> bool {
        self.ends[end].connection == self.newest
    }
    /// Returns whether all frames have been sent, on a connection that both ends use.
    fn is_quiet(&self) -> bool {
        [0, 1].iter().all(|end| self.reaches(*end) && self.ends[*end].session.is_all_written())
    }
}

/// A link. Each end has an index: 0 is the end that connected.
pub struct Link {
    /// The daemons.
    pub ends: [NodeId; 2],
    /// Whether each daemon knows that the link is established.
    pub up: [bool; 2],
    /// Whether each daemon has closed the link, or has learnt that the link is closed.
    pub closed: [bool; 2],
    /// The packets that each end has to send again on control connections.
    pub retransmissions: [Retransmissions; 2],
    /// The control link, whose connections may break.
    pub control: Control,
    /// The data link, whose connections may break.
    pub data: Data,
    /// The channels towards each end, by kind.
    towards: [[Channel; 2]; 2],
}

impl Link {
    /// Makes a link that is not established yet.
    pub fn new(ends: [NodeId; 2]) -> Link {
        let (retransmissions, control, data) = (Default::default(), Control::default(), Data::default());
        Link { ends, up: [false; 2], closed: [false; 2], retransmissions, control, data, towards: Default::default() }
    }
    /// Returns the channel towards that end.
    pub fn towards(&mut self, end: usize, kind: Kind) -> &mut Channel {
        &mut self.towards[end][kind as usize]
    }
    /// Returns the index of the end that belongs to a daemon.
    pub fn end_of(&self, node: NodeId) -> usize {
        usize::from(self.ends[0] != node)
    }
    /// Returns whether nothing but heartbeats and acknowledgements is on its way.
    pub fn is_quiet(&self) -> bool {
        let waiting = |item: &Item| match item {
            Item::Frame(frame) => frame.len() > 1,
            item => !matches!(item, Item::Acknowledged(_)),
        };
        self.control.is_quiet()
            && self.towards.iter().flatten().all(|channel| !channel.items.iter().any(|(_, item)| waiting(item)))
    }
}

/// The faults and delays of the network: which traffic arrives, and how fast.
pub struct Network {
    base: Nanos,
    jitter: Nanos,
    /// The groups of computers that are cut off from the other computers.
    cuts: Vec<(u64, Vec<bool>)>,
    /// Pairs of computers between which nothing passes.
    parts: Vec<(u64, Place, Place)>,
    /// Pairs of computers between which no data link can be made.
    without_data_links: Vec<(u64, Place, Place)>,
    /// Pairs of computers between which no control link can be made again.
    without_control_links: Vec<(u64, Place, Place)>,
    /// The additional delay of each computer.
    slow: Vec<Nanos>,
    /// The losses of each computer.
    lossy: Vec<Loss>,
    /// How many of a thousand datagrams are lost on any way.
    datagram_loss: usize,
    /// The computers that no datagram reaches.
    deaf: Vec<bool>,
    /// The computers that withhold what they report about broadcast bodies.
    late: Vec<bool>,
    last: u64,
}

impl Network {
    /// Makes a network with this number of computers.
    pub fn new(prng: &mut Prng, places: usize) -> Network {
        let base = [20 * MICROSECOND, 100 * MICROSECOND, MILLISECOND, 20 * MILLISECOND][prng.weighted(&[3, 3, 2, 1])];
        let jitter = if prng.chance(700) { base } else { 20 * base };
        let (cuts, parts) = (Vec::new(), Vec::new());
        let (without_data_links, without_control_links) = (Vec::new(), Vec::new());
        let (slow, lossy) = (vec![0; places + 1], vec![Loss::default(); places + 1]);
        let datagram_loss = [0, 10, 50, 200][prng.below(4)];
        let deaf = (0..=places).map(|_| prng.chance(100)).collect();
        let late = (0..=places).map(|_| prng.chance(100)).collect();
        Network {
            base,
            jitter,
            cuts,
            parts,
            without_data_links,
            without_control_links,
            slow,
            lossy,
            datagram_loss,
            deaf,
            late,
            last: 0,
        }
    }
    /// Returns the delay between two computers.
    pub fn latency(&self, prng: &mut Prng, one: Place, other: Place) -> Nanos {
        self.base + prng.span(0, self.jitter) + self.slow[one] + self.slow[other]
    }
    /// Returns whether traffic can pass between two computers.
    pub fn passes(&self, one: Place, other: Place) -> bool {
        one == other
            || (self.cuts.iter().all(|(_, cut)| cut[one] == cut[other])
                && !self.parts.iter().any(|(_, a, b)| (*a, *b) == (one, other) || (*a, *b) == (other, one)))
    }
    /// Cuts off these computers. Returns a number for [`Network::remove_fault`].
    pub fn cut(&mut self, places: &[Place]) -> u64 {
        let mut cut = vec![false; self.slow.len()];
        places.iter().for_each(|place| cut[*place] = true);
        self.last += 1;
        self.cuts.push((self.last, cut));
        self.last
    }
    /// Separates two computers. Returns a number for [`Network::remove_fault`].
    pub fn part(&mut self, one: Place, other: Place) -> u64 {
        self.last += 1;
        self.parts.push((self.last, one, other));
        self.last
    }
    /// Returns the least delay.
    pub fn base(&self) -> Nanos {
        self.base
    }
    /// Returns whether a data link between two computers can be made.
    pub fn joins(&self, one: Place, other: Place) -> bool {
        !self.without_data_links.iter().any(|(_, a, b)| (*a, *b) == (one, other) || (*a, *b) == (other, one))
    }
    /// Prevents data links between two computers. Returns a number for [`Network::remove_fault`].
    pub fn block_data_links(&mut self, one: Place, other: Place) -> u64 {
        self.last += 1;
        self.without_data_links.push((self.last, one, other));
        self.last
    }
    /// Returns whether a control link between two computers can be made again.
    pub fn joins_control(&self, one: Place, other: Place) -> bool {
        !self.without_control_links.iter().any(|(_, a, b)| (*a, *b) == (one, other) || (*a, *b) == (other, one))
    }
    /// Prevents new connections of control links between two computers. Returns a number for [`Network::remove_fault`].
    pub fn block_control_links(&mut self, one: Place, other: Place) -> u64 {
        self.last += 1;
        self.without_control_links.push((self.last, one, other));
        self.last
    }
    /// Removes the fault with that number.
    pub fn remove_fault(&mut self, number: u64) {
        self.without_control_links.retain(|(other, _, _)| *other != number);
        self.without_data_links.retain(|(other, _, _)| *other != number);
        self.cuts.retain(|(other, _)| *other != number);
        self.parts.retain(|(other, _, _)| *other != number);
    }
    /// Removes all faults.
    pub fn remove_all_faults(&mut self) {
        self.cuts.clear();
        self.parts.clear();
        self.without_data_links.clear();
        self.without_control_links.clear();
        self.slow.fill(0);
        self.lossy.fill(Loss::default());
    }
    /// Lets a computer's connections lose a share of the packets, in thousandths, until the time `until`.
    pub fn lose(&mut self, place: Place, share: usize, until: Nanos) {
        self.lossy[place] = Loss { share, until };
    }
    /// Returns how many of a thousand packets between two computers are lost at that time.
    fn loss(&self, one: Place, other: Place, at: Nanos) -> usize {
        let share = |loss: Loss| if at < loss.until { loss.share } else { 0 };
        share(self.lossy[one]).max(share(self.lossy[other]))
    }
    /// Returns after which pauses a packet between two computers, sent now, is sent again. The last of these arrives,
    /// unless there are as many as the operating system tries. Each try meets the losses of its own time.
    pub fn retransmissions(&self, prng: &mut Prng, one: Place, other: Place, now: Nanos) -> Vec<Nanos> {
        let (mut tries, mut time, mut pause) = (Vec::new(), 0, 200 * MILLISECOND);
        while one != other && tries.len() < TRIES_MAX {
            let share = self.loss(one, other, now + time);
            if share == 0 || !prng.chance(share) {
                break;
            }
            (time, pause) = (time + pause, 2 * pause);
            tries.push(time);
        }
        tries
    }
    /// Returns how many of a thousand datagrams between two computers are lost at that time.
    pub fn datagram_loss(&self, one: Place, other: Place, now: Nanos) -> usize {
        self.datagram_loss.max(self.loss(one, other, now))
    }
    /// Returns whether no datagram reaches a computer.
    pub fn is_deaf(&self, place: Place) -> bool {
        self.deaf[place]
    }
    /// Returns whether a computer withholds its reports about broadcast bodies.
    pub fn is_late(&self, place: Place) -> bool {
        self.late[place]
    }
    /// Sets the additional delay of a computer's connections.
    pub fn slow(&mut self, place: Place, delay: Nanos) {
        self.slow[place] = delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_parts_a_group_from_the_others_until_it_is_mended() {
        let mut network = Network::new(&mut Prng::new(1, 1), 4);
        let (cut, part) = (network.cut(&[2, 3]), network.part(1, 4));
        assert!(network.passes(2, 3) && !network.passes(1, 2) && !network.passes(3, 4) && !network.passes(4, 1));
        network.remove_fault(cut);
        assert!(network.passes(1, 2) && !network.passes(1, 4));
        network.remove_fault(part);
        assert!(network.passes(1, 4));
    }

    #[test]
    fn a_packet_that_is_sent_again_after_the_losses_arrives() {
        let (mut network, mut prng) = (Network::new(&mut Prng::new(1, 1), 3), Prng::new(2, 1));
        network.lose(2, 1000, 500 * MILLISECOND);
        assert_eq!(network.retransmissions(&mut prng, 1, 3, 0), []);
        // The third try, 600 ms after the first, is the first after the losses.
        assert_eq!(network.retransmissions(&mut prng, 1, 2, 0), [200 * MILLISECOND, 600 * MILLISECOND]);
        assert_eq!(network.retransmissions(&mut prng, 3, 2, 400 * MILLISECOND), [200 * MILLISECOND]);
        assert_eq!(network.retransmissions(&mut prng, 2, 1, 500 * MILLISECOND), []);
        network.lose(2, 1000, Nanos::MAX);
        assert_eq!(network.retransmissions(&mut prng, 1, 2, 0).len(), TRIES_MAX);
        network.remove_all_faults();
        assert_eq!(network.retransmissions(&mut prng, 1, 2, 0), []);
    }

    #[test]
    fn retransmissions_are_counted_when_they_happen() {
        let mut packets = Retransmissions::default();
        [5, 3, 9].into_iter().for_each(|at| packets.plan(at));
        assert_eq!([2, 3, 8, 8, 9].map(|now| packets.until(now)), [0, 1, 2, 2, 3]);
    }

    #[test]
    fn a_channel_never_turns_the_order_round() {
        let mut channel = Channel::default();
        assert_eq!(channel.push(10, Item::Frame(vec![1])), Some(10));
        assert_eq!(channel.push(5, Item::Frame(vec![2])), None);
        assert!(channel.items.iter().all(|(at, _)| *at == 10) && channel.bytes == 64);
        assert!(matches!(channel.pop(), Some(Item::Frame(frame)) if frame == [1]));
    }
}
