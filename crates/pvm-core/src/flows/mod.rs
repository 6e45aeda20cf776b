//! Messages between hosts on the default route, as flows: pure, without links or memory.
//!
//! At the sending daemon a **flow** is a queue for each task of another host. Its messages wait
//! there as handles; the bodies stay where they lie (in the senders' heaps). [`Flows::next`] gives
//! the next frame that the link to a host should carry: flows take turns, a long message goes in
//! chunks, and a flow that has used up its window waits for credit. At the receiving daemon
//! [`InboundFlows`] puts the chunks together and returns credit once the receiving *task* has taken the
//! message. So no flow waits for another one, and each daemon holds a bounded amount.
//!
//! [`frames`] is the form of all that on the link. What has been put on the link and what has come of it is
//! counted ([`RetransmitQueue`], [`AckTracker`]), so that its connection can break and be made again.

mod budget;
pub mod frames;
mod inbound;
#[cfg(test)]
mod random_tests;
mod retransmit;
#[cfg(test)]
mod tests;

pub use inbound::{Chunk, Credit, InboundFlows, MessageHeader, ProtocolViolation};
pub use retransmit::{AckTracker, RetransmitQueue};

use crate::tid::{GROUP_BIT, Tid};
use budget::SenderBudgets;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// What is on its way to one task from one host: sent, but not taken by the task. With little on its way, one
/// message of any length.
///
/// * Filled by: each other host, for each task
/// * Setting: none, both daemons count by the same number
/// * Reached: the rest waits in its senders' memory; a host that sends it all the same is cut off
/// * Test: `a_host_that_sends_more_than_a_window_is_found_out`
pub const FLOW_WINDOW_BYTES: u64 = 512 << 10;
/// Credit that the receiver may keep back, in bytes: with no more than this on its way a flow may
/// start any message, however long it is.
pub const FLOW_QUANTUM_BYTES: u64 = FLOW_WINDOW_BYTES / 4;
/// The longest frame of a message, in bytes: for so long others wait.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;
/// What a message counts beside its body, in bytes.
pub const MESSAGE_BYTES: u64 = 64;
/// What a daemon holds for one task that sends to other hosts: entries of flows and short bodies.
///
/// * Filled by: each task
/// * Setting: none, nobody notices it
/// * Reached: the task's queue is left alone, and grows in the task's own memory
/// * Test: `a_sender_is_left_alone_above_the_bound_and_taken_from_again_below_half_of_it`
pub const HELD_BYTES_MAX: u64 = 8 << 20;
/// A multicast waits for a member whose flow has no more than this ahead of it, in bytes, so that
/// its body crosses to the host once.
const MULTICAST_PATIENCE_BYTES: u64 = 4 << 20;

/// What the daemon's own frames count that wait along the flows to one host.
///
/// * Filled by: each other host that asks for news and does not take them
/// * Setting: none, one that lives takes them
/// * Reached: the link to the host is closed, and the host lost
/// * Test: `a_host_that_takes_no_news_is_found_out`
pub const IN_BAND_QUEUED_BYTES_MAX: u64 = 256 << 20;

/// In the place of a receiver, from a task to its daemon: the message is the list of those who get
/// the next one (tids of four native bytes each).
pub const LIST: u32 = GROUP_BIT;
/// In the place of a receiver: the message is for those on the list.
pub const LISTED: u32 = GROUP_BIT | 1;

/// The words that travel with a message; the same on both hosts.
pub type Meta = [u32; 5];

/// What a message counts in its window.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + MESSAGE_BYTES
}

/// What the link to a host has to carry next.
#[derive(Debug)]
pub enum DataFrame<P> {
    /// A message, or its beginning.
    Start {
        /// Names the message in its further chunks; free again after the last one.
        transfer: u32,
        /// The message.
        header: MessageHeader,
        /// How many bytes of the body come with it.
        first: usize,
        /// The body.
        body: Rc<P>,
    },
    /// More of a message.
    Chunk {
        /// Which one.
        transfer: u32,
        /// Which bytes of its body.
        range: Range<usize>,
        /// The body.
        body: Rc<P>,
    },
    /// A frame of the daemon's own.
    InBand {
        /// The task that it is about.
        dst: Tid,
        /// Its bytes.
        payload: Vec<u8>,
    },
}

/// A message in a flow.
struct QueuedMessage<P> {
    src: Tid,
    meta: Meta,
    bytes: usize,
    /// What it counts for its sender.
    held: u64,
    body: Rc<P>,
    /// Whom a multicast still has to reach, and where it stands in their flows. Empty for others.
    members: RefCell<Vec<(Tid, u64)>>,
}

enum Item<P> {
    Message(QueuedMessage<P>),
    Shared(Rc<QueuedMessage<P>>),
    InBand(Vec<u8>),
}

impl<P> Item<P> {
    fn message(&self) -> Option<&QueuedMessage<P>> {
        match self {
            Item::Message(message) => Some(message),
            Item::Shared(message) => Some(message),
            Item::InBand(_) => None,
        }
    }
    fn cost(&self) -> u64 {
        match self {
            Item::InBand(payload) => cost(payload.len()),
            other => other.message().map_or(0, |message| cost(message.bytes)),
        }
    }
}

/// A message that has started and has not been carried to its end.
struct Transfer {
    number: u32,
    at: usize,
    /// The flows, beside the one that carries it, whose first message it is too.
    others: Vec<Tid>,
}

/// The queue to one task.
struct Flow<P> {
    items: VecDeque<Item<P>>,
    in_flight: u64,
    transfer: Option<Transfer>,
    /// Another flow carries the first message.
    carried: bool,
    /// It stands among those that take run_queue.
    is_scheduled: bool,
    /// Bytes ever queued, and ever begun.
    queued: u64,
    begun: u64,
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        let items = VecDeque::new();
        Flow { items, in_flight: 0, transfer: None, carried: false, is_scheduled: false, queued: 0, begun: 0 }
    }
}

impl<P> Flow<P> {
    fn has_credit(&self, cost: u64) -> bool {
        self.in_flight <= FLOW_QUANTUM_BYTES || self.in_flight + cost <= FLOW_WINDOW_BYTES
    }
    /// Whether its next frame can go.
    fn can_go(&self) -> bool {
        match self.items.front() {
            _ if self.carried => false,
            None => false,
            Some(_) if self.transfer.is_some() => true,
            Some(Item::InBand(_)) => true,
            Some(item) => self.has_credit(item.cost()),
        }
    }
    fn push(&mut self, item: Item<P>) {
        self.queued += item.cost();
        self.items.push_back(item);
    }
    /// The first message starts.
    fn begin(&mut self, cost: u64) {
        self.begun += cost;
        self.in_flight += cost;
    }
    fn is_idle(&self) -> bool {
        self.items.is_empty() && self.in_flight == 0
    }
    fn holds_first(&self, message: &Rc<QueuedMessage<P>>) -> bool {
        matches!(self.items.front(), Some(Item::Shared(first)) if Rc::ptr_eq(first, message))
    }
}

/// The flows to the tasks of one host.
struct HostFlows<P> {
    flows: HashMap<Tid, Flow<P>>,
    /// Flows whose next frame may be able to go, in turn.
    run_queue: VecDeque<Tid>,
    last_transfer: u32,
    /// The cost of the in-band frames that wait.
    in_band_bytes: u64,
}

impl<P> Default for HostFlows<P> {
    fn default() -> Self {
        HostFlows { flows: HashMap::new(), run_queue: VecDeque::new(), last_transfer: 0, in_band_bytes: 0 }
    }
}

impl<P> HostFlows<P> {
    fn schedule(&mut self, dst: Tid) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        if !flow.is_scheduled && flow.can_go() {
            flow.is_scheduled = true;
            self.run_queue.push_back(dst);
        }
    }
}

/// What waits at one daemon for tasks of other hosts. `P` is a handle of a body.
pub struct Flows<P> {
    hosts: HashMap<Tid, HostFlows<P>>,
    budgets: SenderBudgets,
}

impl<P> Default for Flows<P> {
    fn default() -> Self {
        Flows { hosts: HashMap::new(), budgets: SenderBudgets::default() }
    }
}

impl<P> Flows<P> {
    /// No flows yet.
    pub fn new() -> Flows<P> {
        Flows::default()
    }

    // ----- what comes in

    /// A message of a local task. `held`: the bytes of its body that are in the daemon's own memory.
    pub fn send(&mut self, src: Tid, dst: Tid, meta: Meta, bytes: usize, held: usize, body: P) {
        let held = self.budgets.charge(src, held);
        let message = QueuedMessage { src, meta, bytes, held, body: Rc::new(body), members: RefCell::default() };
        self.push(dst, Item::Message(message));
    }

    /// A message of a local task for several, each named once. Its body crosses to each host once,
    /// but where a member cannot take it while others can.
    pub fn multicast(&mut self, src: Tid, dsts: &[Tid], meta: Meta, bytes: usize, held: usize, body: P) {
        let mut dsts = dsts.to_vec();
        dsts.sort_unstable();
        let body = Rc::new(body);
        for group in dsts.chunk_by(|one, other| one.host() == other.host()) {
            let held = self.budgets.charge(src, held);
            let (body, members) = (body.clone(), RefCell::new(Vec::with_capacity(group.len())));
            let message = Rc::new(QueuedMessage { src, meta, bytes, held, body, members });
            for dst in group {
                self.push(*dst, Item::Shared(message.clone()));
                message.members.borrow_mut().push((*dst, self.flow(*dst).map_or(0, |flow| flow.queued)));
            }
        }
    }

    /// A frame of the daemon's own for a task: it stays behind what is queued for that task already.
    pub fn send_in_band(&mut self, dst: Tid, payload: Vec<u8>) {
        let host_flows = self.hosts.entry(dst.host()).or_default();
        host_flows.in_band_bytes += cost(payload.len());
        self.push(dst, Item::InBand(payload));
    }

    fn push(&mut self, dst: Tid, item: Item<P>) {
        let host_flows = self.hosts.entry(dst.host()).or_default();
        host_flows.flows.entry(dst).or_default().push(item);
        host_flows.schedule(dst);
    }

    fn flow(&self, dst: Tid) -> Option<&Flow<P>> {
        self.hosts.get(&dst.host())?.flows.get(&dst)
    }

    /// The receiver's daemon returns credit.
    pub fn credit(&mut self, dst: Tid, bytes: u64) {
        let Some(host_flows) = self.hosts.get_mut(&dst.host()) else { return };
        let Some(flow) = host_flows.flows.get_mut(&dst) else { return };
        flow.in_flight = flow.in_flight.saturating_sub(bytes);
        if flow.is_idle() && !flow.is_scheduled {
            host_flows.flows.remove(&dst);
        } else {
            host_flows.schedule(dst);
        }
    }

    /// The host is no more: nothing goes there.
    pub fn host_gone(&mut self, host: Tid) {
        let Some(host_flows) = self.hosts.remove(&host) else { return };
        for item in host_flows.flows.into_values().flat_map(|flow| flow.items) {
            match item {
                Item::Message(message) => self.budgets.release(message.src, message.held),
                // The last one that holds a multicast gives back what it counts.
                Item::Shared(message) => {
                    if let Some(message) = Rc::into_inner(message) {
                        self.budgets.release(message.src, message.held);
                    }
                }
                Item::InBand(_) => {}
            }
        }
    }

    // ----- what can be asked

    /// Whether more may be taken from that local sender.
    pub fn may_take(&self, src: Tid) -> bool {
        self.budgets.may_take(src)
    }

    /// Senders from which more may be taken again.
    pub fn take_freed(&mut self) -> Vec<Tid> {
        self.budgets.take_freed()
    }

    /// Whether more frames wait along the flows to a host than a host can ask for that keeps to the rules.
    pub fn is_overrun(&self, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|host_flows| host_flows.in_band_bytes > IN_BAND_QUEUED_BYTES_MAX)
    }

    /// Hosts for which something was sent, now or lately.
    pub fn hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        self.hosts.keys().copied()
    }

    /// Whether anything waits for that host, now or for credit.
    pub fn has_items(&self, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|host_flows| host_flows.flows.values().any(|flow| !flow.items.is_empty()))
    }

    /// Bytes that are held, over all senders.
    pub fn held_bytes(&self) -> u64 {
        self.budgets.total()
    }

    /// Whether nothing is remembered of anybody.
    pub fn is_idle(&self) -> bool {
        self.budgets.total() == 0 && self.hosts.values().all(|host_flows| host_flows.flows.is_empty())
    }

    // ----- what goes out

    /// The next frame for the link to that host, if any can go now. Take one only when the link has
    /// room: what is not taken costs nobody's memory but its sender's.
    pub fn next(&mut self, host: Tid) -> Option<DataFrame<P>> {
        let host_flows = self.hosts.get_mut(&host)?;
        // Each flow has one turn at most: one that waits for others of a multicast keeps its place.
        for _ in 0..host_flows.run_queue.len() {
            let dst = host_flows.run_queue.pop_front()?;
            let Some(flow) = host_flows.flows.get_mut(&dst) else { continue };
            flow.is_scheduled = false;
            if !flow.can_go() {
                // Another one has carried its last message, and the credit for that has come.
                if flow.is_idle() {
                    host_flows.flows.remove(&dst);
                }
                continue;
            }
            let frame = match host_flows.advance(dst, &mut self.budgets) {
                Some(frame) => frame,
                None => {
                    host_flows.schedule(dst);
                    continue;
                }
            };
            host_flows.schedule(dst);
            if host_flows.flows.get(&dst).is_some_and(Flow::is_idle) {
                host_flows.flows.remove(&dst);
            }
            return Some(frame);
        }
        None
    }
}

impl<P> HostFlows<P> {
    /// The next frame of a flow that can go; `None` when it waits for others after all.
    fn advance(&mut self, dst: Tid, budgets: &mut SenderBudgets) -> Option<DataFrame<P>> {
        let flow = self.flows.get_mut(&dst)?;
        if let Some(transfer) = &mut flow.transfer {
            let message = flow.items.front().and_then(Item::message).expect("it is being carried");
            let range = transfer.at..message.bytes.min(transfer.at + CHUNK_BYTES_MAX);
            transfer.at = range.end;
            let frame = DataFrame::Chunk { transfer: transfer.number, range, body: message.body.clone() };
            if transfer.at == message.bytes {
                self.finish(dst, budgets);
            }
            return Some(frame);
        }
        match flow.items.front()? {
            Item::InBand(_) => {
                let Some(Item::InBand(payload)) = flow.items.pop_front() else { return None };
                flow.begun += cost(payload.len());
                self.in_band_bytes -= cost(payload.len());
                Some(DataFrame::InBand { dst, payload })
            }
            Item::Message(_) => Some(self.start(dst, Vec::new(), budgets)),
            Item::Shared(message) => {
                let message = message.clone();
                let others = self.companions(dst, &message)?;
                Some(self.start(dst, others, budgets))
            }
        }
    }

    /// The members of a multicast that take it together with `dst`; `None`: some will come soon.
    fn companions(&self, dst: Tid, message: &Rc<QueuedMessage<P>>) -> Option<Vec<Tid>> {
        let mut others = Vec::new();
        for (member, end) in message.members.borrow().iter().filter(|(member, _)| *member != dst) {
            let Some(flow) = self.flows.get(member) else { continue };
            if flow.holds_first(message) {
                if !flow.carried && flow.transfer.is_none() && flow.has_credit(cost(message.bytes)) {
                    others.push(*member);
                }
                continue;
            }
            // Flows that wait at a multicast themselves are not waited for: that could be a circle.
            let at_multicast = matches!(flow.items.front(), Some(Item::Shared(_)));
            let moves = flow.carried || flow.transfer.is_some() || (flow.can_go() && !at_multicast);
            if moves && end - flow.begun <= MULTICAST_PATIENCE_BYTES + cost(message.bytes) {
                return None;
            }
        }
        Some(others)
    }

    /// The first message of `dst`, which is that of `others` too, begins.
    fn start(&mut self, dst: Tid, others: Vec<Tid>, budgets: &mut SenderBudgets) -> DataFrame<P> {
        self.last_transfer = self.last_transfer.wrapping_add(1);
        let number = self.last_transfer;
        for other in &others {
            let flow = self.flows.get_mut(other).expect("found just now");
            let cost = flow.items.front().map_or(0, Item::cost);
            flow.begin(cost);
            flow.carried = true;
        }
        let flow = self.flows.get_mut(&dst).expect("has its turn");
        let message = flow.items.front().and_then(Item::message).expect("a message is first");
        let header =
            MessageHeader { src: message.src, dst, others: others.clone(), meta: message.meta, bytes: message.bytes };
        let (body, first) = (message.body.clone(), message.bytes.min(CHUNK_BYTES_MAX));
        flow.begin(cost(header.bytes));
        flow.transfer = Some(Transfer { number, at: first, others });
        if first == header.bytes {
            self.finish(dst, budgets);
        }
        DataFrame::Start { transfer: number, header, first, body }
    }

    /// The message that `dst` carries has gone out.
    fn finish(&mut self, dst: Tid, budgets: &mut SenderBudgets) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        let Some(transfer) = flow.transfer.take() else { return };
        for other in transfer.others {
            let flow = self.flows.get_mut(&other).expect("nobody else removes a carried flow");
            flow.carried = false;
            if let Some(Item::Shared(message)) = flow.items.pop_front() {
                message.members.borrow_mut().retain(|(member, _)| *member != other);
            }
            self.schedule(other);
        }
        let Some(item) = self.flows.get_mut(&dst).and_then(|flow| flow.items.pop_front()) else { return };
        match item {
            Item::Message(message) => budgets.release(message.src, message.held),
            Item::Shared(message) => {
                message.members.borrow_mut().retain(|(member, _)| *member != dst);
                if message.members.borrow().is_empty() {
                    budgets.release(message.src, message.held);
                }
            }
            Item::InBand(_) => {}
        }
    }
}
