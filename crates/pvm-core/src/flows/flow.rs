//! A flow: the queue of messages to one task of another host.
use super::marks::MARKS_MAX;
use super::multicast::Relayed;
use super::pacing::SendLimit;
use super::{FLOW_QUANTUM_BYTES, FLOW_WINDOW_BYTES, Meta, cost};
use crate::tid::Tid;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A message in a flow.
pub(super) struct QueuedMessage<P> {
    pub src: Tid,
    pub meta: Meta,
    pub bytes: usize,
    /// The cost of the message in the sender's budget, in bytes.
    pub held: u64,
    pub body: Rc<P>,
    /// For a multicast: the members to which the message must still be sent, each with the position at which the
    /// message ends in that member's flow. Otherwise empty.
    pub members: RefCell<Vec<(Tid, u64)>>,
    /// For a multicast along a tree: what all hosts share. Otherwise absent.
    pub relayed: Option<Rc<Relayed>>,
}

pub(super) enum Item<P> {
    Message(QueuedMessage<P>),
    Shared(Rc<QueuedMessage<P>>),
    InBand(Vec<u8>),
}

impl<P> Item<P> {
    pub fn message(&self) -> Option<&QueuedMessage<P>> {
        match self {
            Item::Message(message) => Some(message),
            Item::Shared(message) => Some(message),
            Item::InBand(_) => None,
        }
    }
    pub fn cost(&self) -> u64 {
        match self {
            Item::InBand(payload) => cost(payload.len()),
            other => other.message().map_or(0, |message| cost(message.bytes)),
        }
    }
}

/// The transfer of a message that has been sent only in part.
pub(super) struct Transfer {
    pub number: u32,
    pub at: usize,
    /// The other flows for which this flow sends the message. The message is the first one in each of them.
    pub others: Vec<Tid>,
}

/// Where a flow is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    Nowhere,
    Ready(u64),
    Overtakable(u64),
}

/// The queue of messages to one task.
pub(super) struct Flow<P> {
    pub items: VecDeque<Item<P>>,
    /// The place of each item in the order of the host.
    places: VecDeque<u64>,
    /// How many of the first items the receiver's daemon knows of, because they are begun or marked.
    known: usize,
    /// How many messages of each mark have not begun, in order.
    marks: VecDeque<u32>,
    /// Where the flow is listed.
    pub listed: Listed,
    pub in_flight: u64,
    pub transfer: Option<Transfer>,
    /// Whether the first message of this flow is a multicast that another flow sends for this flow, too.
    pub carried: bool,
    /// Whether the flow is in the run queue, to send a chunk.
    pub is_scheduled: bool,
    /// The total cost of all items that were ever queued in this flow (`queued`), and of those among them that the flow
    /// has begun to send (`begun`).
    pub queued: u64,
    pub begun: u64,
    /// If a multicast is being measured: the position at which it ends, and the number of the measurement.
    pub measured: Option<(u64, u32)>,
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        Flow {
            items: VecDeque::new(),
            places: VecDeque::new(),
            known: 0,
            marks: VecDeque::new(),
            listed: Listed::Nowhere,
            in_flight: 0,
            transfer: None,
            carried: false,
            is_scheduled: false,
            queued: 0,
            begun: 0,
            measured: None,
        }
    }
}

impl<P> Flow<P> {
    pub fn has_credit(&self, cost: u64) -> bool {
        self.in_flight <= FLOW_QUANTUM_BYTES || self.in_flight + cost <= FLOW_WINDOW_BYTES
    }
    /// Returns whether the next frame can be sent.
    pub fn is_ready(&self) -> bool {
        match self.items.front() {
            _ if self.carried => false,
            None => false,
            Some(_) if self.transfer.is_some() => true,
            Some(Item::InBand(_)) => true,
            Some(item) => self.has_credit(item.cost()),
        }
    }
    pub fn push(&mut self, place: u64, item: Item<P>) {
        self.queued += item.cost();
        self.items.push_back(item);
        self.places.push_back(place);
    }
    /// Removes the first item.
    pub fn pop(&mut self) -> Option<Item<P>> {
        self.places.pop_front();
        self.known = self.known.saturating_sub(1);
        self.items.pop_front()
    }
    /// Returns the place of the first item that is neither begun nor marked, if messages may be marked.
    pub fn first_unmarked(&self) -> Option<u64> {
        self.places.get(self.known).copied().filter(|_| self.marks.len() < MARKS_MAX)
    }
    /// Marks the next messages that are neither begun nor marked, up to an in-band frame. Returns how many they are.
    pub fn mark(&mut self) -> u32 {
        let count = self.items.range(self.known..).take_while(|item| item.message().is_some()).count();
        self.known += count;
        self.marks.push_back(count as u32);
        count as u32
    }
    /// Removes an in-band frame that only begun and marked messages precede.
    pub fn take_in_band(&mut self) -> Option<Vec<u8>> {
        let Some(Item::InBand(_)) = self.items.get(self.known) else { return None };
        self.places.remove(self.known);
        let Some(Item::InBand(payload)) = self.items.remove(self.known) else { return None };
        self.begun += cost(payload.len());
        Some(payload)
    }
    /// Returns where the flow is to be listed.
    pub fn to_be_listed(&self) -> Listed {
        let can_begin = self.transfer.is_none() && self.is_ready();
        match self.places.front().filter(|_| can_begin) {
            Some(place) => Listed::Ready(*place),
            None => self.first_unmarked().map_or(Listed::Nowhere, Listed::Overtakable),
        }
    }
    /// Returns whether the next frame is a chunk that waits for a grant.
    pub fn waits_for_grant(&self, limit: &SendLimit) -> bool {
        self.transfer.is_some() && self.first_message().is_some_and(|message| limit.holds(message.bytes))
    }
    pub fn first_message(&self) -> Option<&QueuedMessage<P>> {
        self.items.front().and_then(Item::message)
    }
    /// Returns how many bytes of the message that is being sent are left.
    pub fn left(&self) -> usize {
        let at = self.transfer.as_ref().map_or(0, |transfer| transfer.at);
        self.first_message().map_or(0, |message| message.bytes - at)
    }
    /// Returns whether the next frame begins a multicast along a tree.
    pub fn begins_along_tree(&self) -> bool {
        self.transfer.is_none() && self.first_message().is_some_and(|message| message.relayed.is_some())
    }
    /// Counts credit. Returns the number of the measurement of a multicast that the task has consumed thereby, if there is
    /// one.
    pub fn credit(&mut self, bytes: u64) -> Option<u32> {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        let consumed = self.begun.saturating_sub(self.in_flight);
        self.measured.take_if(|(end, _)| consumed >= *end).map(|(_, number)| number)
    }
    /// Counts the first message as in flight. Returns how many marks end with it.
    pub fn begin(&mut self, cost: u64) -> usize {
        self.begun += cost;
        self.in_flight += cost;
        self.known = self.known.max(1);
        let Some(left) = self.marks.front_mut() else { return 0 };
        *left -= 1;
        let ends = *left == 0;
        if ends {
            self.marks.pop_front();
        }
        usize::from(ends)
    }
    pub fn is_idle(&self) -> bool {
        self.items.is_empty() && self.in_flight == 0
    }
    /// Returns whether the flow is sending a message or can send its next one.
    pub fn makes_progress(&self) -> bool {
        self.carried || self.transfer.is_some() || self.is_ready()
    }
    pub fn holds_first(&self, message: &Rc<QueuedMessage<P>>) -> bool {
        matches!(self.items.front(), Some(Item::Shared(first)) if Rc::ptr_eq(first, message))
    }
}
