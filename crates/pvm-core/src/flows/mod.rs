//! Messages between hosts on the default route, as flows. This module only decides what is sent: it does no I/O and
//! does not access bodies.
//!
//! At the sending daemon a **flow** is the queue of messages to one task of another host. A queued message is a handle;
//! its body stays in the sender's heap. [`Flows::next`] returns the next frame for the data link to a host. Flows take
//! turns, a long message is split into chunks, and a flow without credit waits. At the receiving daemon
//! [`InboundFlows`] reassembles the chunks, and returns credit when the receiving *task* has consumed the message.
//! Therefore no flow blocks another one, and the memory of each daemon is bounded.
//!
//! [`pacing`] limits what is under way to a host to which many hosts send.
//!
//! [`frames`] defines the format of frames on the link. [`RetransmitQueue`] and [`AckTracker`] count the bytes sent and
//! received, so that a broken connection can be remade without loss.

mod budget;
mod flow;
pub mod frames;
mod inbound;
pub mod multicast;
pub mod pacing;
#[cfg(test)]
mod random_tests;
mod retransmit;
#[cfg(test)]
mod tests;

pub use inbound::{Chunk, Credit, InboundFlows, MessageHeader, ProtocolViolation};
pub use retransmit::{AckTracker, RetransmitQueue};

use crate::tid::{GROUP_BIT, Tid};
use budget::SenderBudgets;
use flow::{Flow, Item, QueuedMessage, Transfer};
use multicast::{Advice, Announcement, Bodies, BodyKey, BodyRequest, Broadcasts, Choice, Delivery, McastRoute};
use pacing::{FIRST_LIMIT_BYTES, Pacing, SendLimit};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The bytes in flight from one host to one task: sent, but not yet consumed by the task. While a flow has few bytes in
/// flight, it may start one message of any length.
///
/// * Filled by: each other host, for each task
/// * Setting: none, both daemons use the same limit
/// * Reached: further messages wait in the memory of their senders; a host that sends them anyway is cut off
/// * Test: `a_host_that_sends_more_than_a_window_breaks_the_rules`
pub const FLOW_WINDOW_BYTES: u64 = 512 << 10;
/// The most credit that the receiver may withhold, in bytes. If a flow has at most this many bytes in flight, the
/// receiver may have consumed all of them already; so the flow may start a message of any length.
pub const FLOW_QUANTUM_BYTES: u64 = FLOW_WINDOW_BYTES / 4;
/// The most bytes of a body in one frame. Other flows wait while the frame is sent.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;
/// The cost of a message in addition to its body, in bytes.
pub const MESSAGE_BYTES: u64 = 64;
/// The memory of a daemon for messages that one task sends to other hosts: queued messages and short bodies.
///
/// * Filled by: each task
/// * Setting: none, the limit has no visible effect
/// * Reached: the daemon takes no more from the task's queue, which grows in the task's own memory
/// * Test: `a_sender_over_its_budget_is_paused_until_half_of_it_is_free`
pub const HELD_BYTES_MAX: u64 = 8 << 20;
/// If at most this many bytes precede a multicast in the flow of a member, the flows of the other members wait, so that
/// the body is sent to the host only once.
const MULTICAST_WAIT_BYTES_MAX: u64 = 4 << 20;

/// The daemon's own in-band frames that wait in the flows to one host.
///
/// * Filled by: each other host that asks for notices and does not receive them
/// * Setting: none, a living host receives them
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `a_host_that_receives_no_notices_is_detected`
pub const IN_BAND_QUEUED_BYTES_MAX: u64 = 256 << 20;

/// The pseudo-destination of a message from a task to its daemon. The message lists the destinations of the next
/// multicast: each is a tid of four bytes, in native byte order.
pub const LIST: u32 = GROUP_BIT;
/// The pseudo-destination of a multicast to the tasks in the preceding list.
pub const LISTED: u32 = GROUP_BIT | 1;

/// The words that travel with a message unchanged: context, tag, wait identifier, encoding and format.
pub type Meta = [u32; 5];

/// Returns the cost of a message: how many bytes of its flow's window it takes.
pub fn cost(bytes: usize) -> u64 {
    bytes as u64 + MESSAGE_BYTES
}

/// A frame for the data link to a host.
#[derive(Debug)]
pub enum DataFrame<P> {
    /// A message, or the first chunk of one.
    Start {
        /// The number of the message, which its further chunks repeat. It can be reused after the last chunk.
        transfer: u32,
        /// The header of the message.
        header: MessageHeader,
        /// The number of bytes of the body in this frame.
        first: usize,
        /// The body.
        body: Rc<P>,
    },
    /// A further chunk of a message.
    Chunk {
        /// The number of the message.
        transfer: u32,
        /// The range of the body that the chunk holds.
        range: Range<usize>,
        /// The body.
        body: Rc<P>,
    },
    /// An in-band frame of the daemon.
    InBand {
        /// The task in whose flow the frame travels.
        dst: Tid,
        /// The frame.
        payload: Vec<u8>,
    },
    /// A multicast without its body, which follows in parts or is fetched from another host.
    Announce {
        /// The header of the message.
        header: MessageHeader,
        /// What the host must know about the body.
        announcement: Announcement,
    },
    /// A request or report about the body of a multicast.
    Request {
        /// The body.
        key: BodyKey,
        /// The request.
        request: BodyRequest,
    },
    /// A part of the body of a multicast that was announced.
    Part {
        /// The body, as hosts name it.
        key: BodyKey,
        /// The range of the body that the frame holds.
        range: Range<usize>,
        /// The body.
        body: Rc<P>,
    },
}

/// The flows to the tasks of one host.
struct HostFlows<P> {
    flows: HashMap<Tid, Flow<P>>,
    /// The flows whose next frame may be ready, in round-robin order.
    run_queue: VecDeque<Tid>,
    last_transfer: u32,
    /// The cost of the queued in-band frames.
    in_band_bytes: u64,
    limit: SendLimit,
}

impl<P> HostFlows<P> {
    fn new(limit_bytes: u64) -> HostFlows<P> {
        let (flows, run_queue, limit) = (HashMap::new(), VecDeque::new(), SendLimit::new(limit_bytes));
        HostFlows { flows, run_queue, last_transfer: 0, in_band_bytes: 0, limit }
    }

    fn schedule(&mut self, dst: Tid) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        if !flow.is_scheduled && flow.is_ready() {
            flow.is_scheduled = true;
            self.run_queue.push_back(dst);
        }
    }
}

/// The flows of one daemon to tasks of other hosts. `P` is the type of a handle of a body.
pub struct Flows<P> {
    hosts: HashMap<Tid, HostFlows<P>>,
    budgets: SenderBudgets,
    bodies: Bodies<P>,
    /// The bodies that will be sent to hosts without a request, see [`Flows::begin_pushes`].
    pushes: Vec<(Tid, BodyKey)>,
    broadcasts: Broadcasts,
    choice: Choice,
    /// The route of multicasts whose senders choose none.
    host_route: McastRoute,
    /// What tasks were told last.
    told_advice: Advice,
    now: Duration,
    /// Whether the last frame was a part of an announced body. Such parts and the flows to a host take turns.
    was_part: bool,
    /// The limit for hosts that have sent no grant.
    first_limit_bytes: u64,
}

impl<P> Default for Flows<P> {
    fn default() -> Self {
        Flows {
            hosts: HashMap::new(),
            budgets: SenderBudgets::default(),
            bodies: Bodies::default(),
            pushes: Vec::new(),
            broadcasts: Broadcasts::default(),
            choice: Choice::default(),
            host_route: McastRoute::Automatic,
            told_advice: Advice::default(),
            now: Duration::ZERO,
            was_part: false,
            first_limit_bytes: FIRST_LIMIT_BYTES,
        }
    }
}

impl<P> Flows<P> {
    /// Makes an empty set of flows.
    pub fn new() -> Flows<P> {
        Flows::default()
    }

    /// Sets when receivers pace, before any message is queued.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        self.first_limit_bytes = pacing.first_limit();
    }

    /// Sets the route of multicasts whose senders choose none.
    pub fn set_host_route(&mut self, route: McastRoute) {
        self.host_route = route;
    }

    // ----- input

    /// Queues a message of a local task. `held` is how many bytes of the body are in the daemon's own memory.
    pub fn send(&mut self, src: Tid, dst: Tid, meta: Meta, bytes: usize, held: usize, body: P) {
        let held = self.budgets.charge(src, held);
        let (body, members) = (Rc::new(body), RefCell::default());
        self.push(dst, Item::Message(QueuedMessage { src, meta, bytes, held, body, members, relayed: None }));
    }

    /// Queues a message of a local task for several tasks. The caller must not name a task twice. The body is sent to
    /// each host once, unless some receivers there have credit for it and others have none. See
    /// [`Flows::plan_multicast`] for `delivery`.
    pub fn multicast(
        &mut self,
        src: Tid,
        dsts: &[Tid],
        meta: Meta,
        (bytes, held): (usize, usize),
        body: P,
        delivery: Delivery,
    ) {
        let mut dsts = dsts.to_vec();
        dsts.sort_unstable();
        let (body, relayed) = (Rc::new(body), delivery.relayed.map(Rc::new));
        if let Some(relayed) = &relayed {
            self.keep_body(src, relayed, bytes, &body);
        }
        for group in dsts.chunk_by(|one, other| one.host() == other.host()) {
            let held = self.budgets.charge(src, held);
            let (body, members) = (body.clone(), RefCell::new(Vec::with_capacity(group.len())));
            let relayed = relayed.clone();
            let message = Rc::new(QueuedMessage { src, meta, bytes, held, body, members, relayed });
            for dst in group {
                self.push(*dst, Item::Shared(message.clone()));
                let end = self.flow(*dst).map_or(0, |flow| flow.queued);
                message.members.borrow_mut().push((*dst, end));
                message.relayed.iter().for_each(|relayed| relayed.note_end(*dst, end));
            }
        }
        if let Some(number) = delivery.measurement {
            self.measure(&dsts, number);
        }
    }

    /// Queues an in-band frame for a task. The frame is sent after the messages that are already queued for that task.
    pub fn send_in_band(&mut self, dst: Tid, payload: Vec<u8>) {
        self.host_flows(dst.host()).in_band_bytes += cost(payload.len());
        self.push(dst, Item::InBand(payload));
    }

    fn push(&mut self, dst: Tid, item: Item<P>) {
        let host_flows = self.host_flows(dst.host());
        host_flows.flows.entry(dst).or_default().push(item);
        host_flows.schedule(dst);
    }

    fn host_flows(&mut self, host: Tid) -> &mut HostFlows<P> {
        self.hosts.entry(host).or_insert_with(|| HostFlows::new(self.first_limit_bytes))
    }

    fn flow(&self, dst: Tid) -> Option<&Flow<P>> {
        self.hosts.get(&dst.host())?.flows.get(&dst)
    }

    /// Handles credit from the receiver's daemon.
    pub fn credit(&mut self, dst: Tid, bytes: u64) {
        let Some(host_flows) = self.hosts.get_mut(&dst.host()) else { return };
        let Some(flow) = host_flows.flows.get_mut(&dst) else { return };
        if let Some(number) = flow.credit(bytes) {
            self.choice.consumed(self.now, number);
        }
        if flow.is_idle() && !flow.is_scheduled {
            host_flows.flows.remove(&dst);
        } else {
            host_flows.schedule(dst);
        }
    }

    /// Handles a grant from a host: `up_to` bytes of long messages may be sent to it in all.
    pub fn grant(&mut self, host: Tid, up_to: u64) {
        let Some(host_flows) = self.hosts.get_mut(&host) else { return };
        host_flows.limit.set(up_to);
        let mut waiting = std::mem::take(&mut host_flows.limit.waiting);
        // The message that is nearest to its end comes first.
        waiting.sort_by_key(|dst| host_flows.flows.get(dst).map_or(0, Flow::left));
        waiting.into_iter().for_each(|dst| host_flows.schedule(dst));
    }

    /// Drops the flows to a host that has gone.
    pub fn host_gone(&mut self, host: Tid) {
        self.forget_body_host(host);
        let Some(host_flows) = self.hosts.remove(&host) else { return };
        let measured = host_flows.flows.values().filter_map(|flow| flow.measured);
        measured.for_each(|(_, number)| self.choice.give_up(number));
        for item in host_flows.flows.into_values().flat_map(|flow| flow.items) {
            match item {
                Item::Message(message) => self.budgets.release(message.src, message.held),
                // The cost of a multicast is released with the last flow that contains it.
                Item::Shared(message) => {
                    if let Some(message) = Rc::into_inner(message) {
                        self.budgets.release(message.src, message.held);
                    }
                }
                Item::InBand(_) => {}
            }
        }
    }

    // ----- queries

    /// Returns whether the budget of a local sender allows more messages.
    pub fn may_take(&self, src: Tid) -> bool {
        self.budgets.may_take(src)
    }

    /// Returns the senders whose budget allows messages again.
    pub fn take_freed(&mut self) -> Vec<Tid> {
        self.budgets.take_freed()
    }

    /// Returns whether more in-band frames wait for a host than the limit allows.
    pub fn is_overrun(&self, host: Tid) -> bool {
        self.hosts.get(&host).is_some_and(|host_flows| host_flows.in_band_bytes > IN_BAND_QUEUED_BYTES_MAX)
    }

    /// Returns the hosts to which flows exist or have existed, or that exchange bodies of multicasts with this one.
    pub fn hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        self.hosts.keys().copied().chain(self.bodies.hosts().filter(|host| !self.hosts.contains_key(host)))
    }

    /// Returns whether any message waits for that host, with or without credit.
    pub fn has_items(&self, host: Tid) -> bool {
        let has_items = |host_flows: &HostFlows<P>| host_flows.flows.values().any(|flow| !flow.items.is_empty());
        self.hosts.get(&host).is_some_and(has_items) || self.bodies.has_items(host)
    }

    /// Returns how many bytes the daemon holds for all senders.
    pub fn held_bytes(&self) -> u64 {
        self.budgets.total()
    }

    /// Returns whether no state is left.
    pub fn is_idle(&self) -> bool {
        let has_flows = self.hosts.values().any(|host_flows| !host_flows.flows.is_empty());
        self.budgets.total() == 0 && !has_flows && self.bodies.is_idle() && self.broadcasts.is_idle()
    }

    // ----- output

    /// Returns the next frame for the link to that host, if one is ready. Call this only when the link has room: until
    /// then, a long body can stay in the memory of its sender.
    pub fn next(&mut self, host: Tid) -> Option<DataFrame<P>> {
        if let Some((key, request)) = self.bodies.next_request(host) {
            return Some(DataFrame::Request { key, request });
        }
        let mut frame = None;
        for is_part in [!self.was_part, self.was_part] {
            frame = frame.or_else(|| match is_part {
                true => self.bodies.next_part(host).map(DataFrame::from),
                false => self.next_of_flows(host),
            });
        }
        self.was_part = matches!(frame, Some(DataFrame::Part { .. }));
        frame
    }

    fn next_of_flows(&mut self, host: Tid) -> Option<DataFrame<P>> {
        // Try each flow at most once, because a flow that waits for other members of a multicast is put back into the
        // run queue.
        let mut host_flows = self.hosts.get_mut(&host)?;
        for _ in 0..host_flows.run_queue.len() {
            let dst = host_flows.run_queue.pop_front()?;
            let Some(flow) = host_flows.flows.get_mut(&dst) else { continue };
            flow.is_scheduled = false;
            if !flow.is_ready() {
                // Another flow has sent the last message of this flow, and the credit for that message has arrived.
                if flow.is_idle() {
                    host_flows.flows.remove(&dst);
                }
                continue;
            }
            if flow.waits_for_grant(&host_flows.limit) {
                host_flows.limit.wait(dst);
                continue;
            }
            let mut near = Vec::new();
            if flow.begins_along_tree() {
                near = self.near_parents(dst);
                host_flows = self.hosts.get_mut(&host)?;
            }
            let frame = match host_flows.advance(dst, &near, &mut self.budgets) {
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
            if let DataFrame::Announce { announcement: Announcement { key, parent, part_bytes: None, .. }, .. } = &frame
            {
                if *parent == key.origin {
                    self.pushes.push((host, *key));
                }
            }
            return Some(frame);
        }
        None
    }
}

impl<P> HostFlows<P> {
    /// Returns the next frame of a ready flow, or `None` if the flow's multicast waits for other members. `near`: see
    /// [`Flows::near_parents`].
    fn advance(&mut self, dst: Tid, near: &[Tid], budgets: &mut SenderBudgets) -> Option<DataFrame<P>> {
        let flow = self.flows.get_mut(&dst)?;
        if let Some(transfer) = &mut flow.transfer {
            let message = flow.items.front().and_then(Item::message).expect("a transfer has a message");
            let count = self.limit.take(message.bytes, CHUNK_BYTES_MAX.min(message.bytes - transfer.at));
            let range = transfer.at..transfer.at + count;
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
            Item::Message(_) => Some(self.start(dst, Vec::new(), None, budgets)),
            Item::Shared(message) => {
                let message = message.clone();
                let others = self.companions(dst, &message)?;
                let announcement = message.relayed.as_ref().and_then(|relayed| relayed.announce(dst.host(), near));
                Some(self.start(dst, others, announcement, budgets))
            }
        }
    }

    /// Returns the members that receive a multicast together with `dst`, or `None` if the multicast should wait because
    /// further members will be ready soon.
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
            // Do not wait for a member whose flow itself waits with a multicast: the two flows could wait for each
            // other forever.
            let at_multicast = matches!(flow.items.front(), Some(Item::Shared(_)));
            let makes_progress = flow.makes_progress() && !(flow.transfer.is_none() && !flow.carried && at_multicast);
            if makes_progress && end - flow.begun <= MULTICAST_WAIT_BYTES_MAX + cost(message.bytes) {
                return None;
            }
        }
        Some(others)
    }

    /// Starts the first message in the flow of `dst`, which is also the first message in the flows of `others`, or
    /// announces it.
    fn start(
        &mut self,
        dst: Tid,
        others: Vec<Tid>,
        announcement: Option<Announcement>,
        budgets: &mut SenderBudgets,
    ) -> DataFrame<P> {
        self.last_transfer = self.last_transfer.wrapping_add(1);
        let number = self.last_transfer;
        for other in &others {
            let flow = self.flows.get_mut(other).expect("the flow was found before");
            let cost = flow.items.front().map_or(0, Item::cost);
            flow.begin(cost);
            flow.carried = true;
        }
        let flow = self.flows.get_mut(&dst).expect("the flow has its turn");
        let message = flow.items.front().and_then(Item::message).expect("the first item is a message");
        let header =
            MessageHeader { src: message.src, dst, others: others.clone(), meta: message.meta, bytes: message.bytes };
        let body = message.body.clone();
        flow.begin(cost(header.bytes));
        // An announcement contains no bytes of the body, so they do not count.
        let first = match announcement {
            Some(_) => 0,
            None => self.limit.take(header.bytes, header.bytes.min(CHUNK_BYTES_MAX)),
        };
        flow.transfer = Some(Transfer { number, at: first, others });
        if let Some(announcement) = announcement {
            self.finish(dst, budgets);
            return DataFrame::Announce { header, announcement };
        }
        if first == header.bytes {
            self.finish(dst, budgets);
        }
        DataFrame::Start { transfer: number, header, first, body }
    }

    /// Removes a message that was sent completely from the flow of `dst`, which sent it, and from the other flows for
    /// which it was sent.
    fn finish(&mut self, dst: Tid, budgets: &mut SenderBudgets) {
        let Some(flow) = self.flows.get_mut(&dst) else { return };
        let Some(transfer) = flow.transfer.take() else { return };
        for other in transfer.others {
            let flow = self.flows.get_mut(&other).expect("a flow with a carried message is not removed");
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
