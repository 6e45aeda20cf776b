//! The network: links between daemons as pairs of channels, and what befalls them.
use crate::data::Data;
use crate::dice::Dice;
use crate::program::Parcel;
use crate::queue::{MICROSECOND, MILLISECOND, Nanos};
use crate::scenario::Place;
use pvm_core::flows::{Credit, DataFrame};
use std::collections::VecDeque;
use std::rc::Rc;

/// A daemon from its start to its end.
pub type NodeId = usize;
/// Two connections between two daemons, one for control, one for data.
pub type LinkId = usize;

/// What a data channel takes before it wants no more for now, in bytes.
pub const CHANNEL_BYTES_MAX: usize = 256 << 10;

/// How often the system sends something again at most.
const TRIES_MAX: u32 = 12;

/// What travels.
#[derive(Clone)]
pub enum Item {
    /// Both connections stand.
    Up,
    /// A frame, in its form on the wire.
    Frame(Vec<u8>),
    /// A piece of the data link.
    Piece(Rc<DataFrame<Parcel>>),
    /// Credit on the data link.
    Credit(Credit),
    /// So many items of the data link have come.
    Acknowledged(u64),
    /// The same, as the first on a new connection.
    Greeting(u64),
    /// The other side has closed.
    Close,
}

impl Item {
    /// What it counts on the data link.
    pub fn bytes(&self) -> usize {
        match self {
            Item::Piece(piece) => match &**piece {
                DataFrame::Start { first, .. } => 64 + first,
                DataFrame::Chunk { range, .. } => 16 + range.len(),
                DataFrame::InBand { payload, .. } => 16 + payload.len(),
            },
            _ => 32,
        }
    }
}

/// Which of the two connections of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Control,
    Data,
}

/// One direction of a connection: first in, first out.
#[derive(Default)]
pub struct Channel {
    /// When each item arrives, if nothing holds it up.
    pub items: VecDeque<(Nanos, Item)>,
    last: Nanos,
    /// Whether the arrival of the first item is planned.
    pub planned: bool,
    /// Bytes on their way.
    pub bytes: usize,
}

impl Channel {
    /// Queues an item; gives when to plan its arrival, if that is not planned.
    pub fn push(&mut self, arrival: Nanos, item: Item) -> Option<Nanos> {
        self.last = self.last.max(arrival);
        self.bytes += item.bytes();
        self.items.push_back((self.last, item));
        (!std::mem::replace(&mut self.planned, true)).then_some(self.last)
    }
    /// The first item.
    pub fn pop(&mut self) -> Option<Item> {
        let (_, item) = self.items.pop_front()?;
        self.bytes -= item.bytes();
        if self.items.is_empty() {
            // Begins again where memory is warm.
            self.items.clear();
        }
        Some(item)
    }
    /// Everything on its way is lost.
    pub fn clear(&mut self) {
        self.items.clear();
        self.bytes = 0;
    }
}

/// A link. Each end has its index: 0 is the one that connected.
pub struct Link {
    /// The daemons.
    pub ends: [NodeId; 2],
    /// Whether each daemon has heard that it stands.
    pub up: [bool; 2],
    /// Whether each daemon has closed it, or was told that it is closed.
    pub closed: [bool; 2],
    /// How often each end had to send something again on the control connection.
    pub sent_again: [u32; 2],
    /// The data link, whose connections may break.
    pub data: Data,
    /// What goes to each end, by kind.
    towards: [[Channel; 2]; 2],
}

impl Link {
    /// A link that is about to stand.
    pub fn new(ends: [NodeId; 2]) -> Link {
        let (sent_again, data) = ([0; 2], Data::default());
        Link { ends, up: [false; 2], closed: [false; 2], sent_again, data, towards: Default::default() }
    }
    /// What goes to that end.
    pub fn towards(&mut self, end: usize, kind: Kind) -> &mut Channel {
        &mut self.towards[end][kind as usize]
    }
    /// Which end that daemon is.
    pub fn end_of(&self, node: NodeId) -> usize {
        usize::from(self.ends[0] != node)
    }
    /// Whether nothing but signs of life can be on its way.
    pub fn is_quiet(&self) -> bool {
        let waiting = |item: &Item| match item {
            Item::Frame(frame) => frame.len() > 1,
            item => !matches!(item, Item::Acknowledged(_)),
        };
        self.towards.iter().flatten().all(|channel| !channel.items.iter().any(|(_, item)| waiting(item)))
    }
}

/// What passes, and how fast.
pub struct Network {
    base: Nanos,
    jitter: Nanos,
    /// Groups of computers that are cut off from the others.
    cuts: Vec<(u64, Vec<bool>)>,
    /// Pairs between which nothing passes.
    parts: Vec<(u64, Place, Place)>,
    /// Pairs between which no data link can be made.
    snapped: Vec<(u64, Place, Place)>,
    /// What is added for a computer.
    slow: Vec<Nanos>,
    /// Of a thousand things that come from or go to a computer, how many are lost at the first try.
    lossy: Vec<usize>,
    last: u64,
}

impl Network {
    /// A network of so many computers.
    pub fn new(dice: &mut Dice, places: usize) -> Network {
        let base = [20 * MICROSECOND, 100 * MICROSECOND, MILLISECOND, 20 * MILLISECOND][dice.weighted(&[3, 3, 2, 1])];
        let jitter = if dice.chance(700) { base } else { 20 * base };
        let (cuts, parts, snapped) = (Vec::new(), Vec::new(), Vec::new());
        let (slow, lossy) = (vec![0; places + 1], vec![0; places + 1]);
        Network { base, jitter, cuts, parts, snapped, slow, lossy, last: 0 }
    }
    /// How long something takes between two computers.
    pub fn latency(&self, dice: &mut Dice, one: Place, other: Place) -> Nanos {
        self.base + dice.span(0, self.jitter) + self.slow[one] + self.slow[other]
    }
    /// Whether anything passes between two computers.
    pub fn passes(&self, one: Place, other: Place) -> bool {
        one == other
            || (self.cuts.iter().all(|(_, cut)| cut[one] == cut[other])
                && !self.parts.iter().any(|(_, a, b)| (*a, *b) == (one, other) || (*a, *b) == (other, one)))
    }
    /// Cuts off these computers; gives a number to mend it.
    pub fn cut(&mut self, places: &[Place]) -> u64 {
        let mut cut = vec![false; self.slow.len()];
        places.iter().for_each(|place| cut[*place] = true);
        self.last += 1;
        self.cuts.push((self.last, cut));
        self.last
    }
    /// Parts two computers; gives a number to mend it.
    pub fn part(&mut self, one: Place, other: Place) -> u64 {
        self.last += 1;
        self.parts.push((self.last, one, other));
        self.last
    }
    /// What anything takes at least.
    pub fn base(&self) -> Nanos {
        self.base
    }
    /// Whether a data link between two computers can be made.
    pub fn joins(&self, one: Place, other: Place) -> bool {
        !self.snapped.iter().any(|(_, a, b)| (*a, *b) == (one, other) || (*a, *b) == (other, one))
    }
    /// No data link between two computers can be made; gives a number to mend it.
    pub fn snap(&mut self, one: Place, other: Place) -> u64 {
        self.last += 1;
        self.snapped.push((self.last, one, other));
        self.last
    }
    /// Mends what has that number.
    pub fn mend(&mut self, number: u64) {
        self.snapped.retain(|(other, _, _)| *other != number);
        self.cuts.retain(|(other, _)| *other != number);
        self.parts.retain(|(other, _, _)| *other != number);
    }
    /// Mends everything.
    pub fn mend_all(&mut self) {
        self.cuts.clear();
        self.parts.clear();
        self.snapped.clear();
        self.slow.fill(0);
        self.lossy.fill(0);
    }
    /// Makes a computer's connections lose so many of a thousand things, or (0) nothing any more.
    pub fn lose(&mut self, place: Place, share: usize) {
        self.lossy[place] = share;
    }
    /// How often something between two computers has to be sent again, and how long that takes.
    pub fn sent_again(&self, dice: &mut Dice, one: Place, other: Place) -> (u32, Nanos) {
        let share = if one == other { 0 } else { self.lossy[one].max(self.lossy[other]) };
        let (mut count, mut time, mut pause) = (0, 0, 200 * MILLISECOND);
        while share > 0 && count < TRIES_MAX && dice.chance(share) {
            (count, time, pause) = (count + 1, time + pause, 2 * pause);
        }
        (count, time)
    }
    /// Makes a computer's connections slower, or (0) as fast as they were.
    pub fn slow(&mut self, place: Place, delay: Nanos) {
        self.slow[place] = delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_parts_a_group_from_the_others_until_it_is_mended() {
        let mut network = Network::new(&mut Dice::new(1, 1), 4);
        let (cut, part) = (network.cut(&[2, 3]), network.part(1, 4));
        assert!(network.passes(2, 3) && !network.passes(1, 2) && !network.passes(3, 4) && !network.passes(4, 1));
        network.mend(cut);
        assert!(network.passes(1, 2) && !network.passes(1, 4));
        network.mend(part);
        assert!(network.passes(1, 4));
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
