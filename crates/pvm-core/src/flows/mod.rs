//! Messages between hosts on the default route, as flows. This module only decides what is sent: it does no I/O and
//! does not access bodies.
//!
//! At the sending daemon a **flow** is the queue of messages to one task of another host. A queued message is a handle;
//! its body stays in the sender's heap. [`Flows::next`] returns the next frame for the data link to a host. Flows take
//! turns, a long message is split into chunks, and a flow without credit waits. At the receiving daemon
//! [`InboundFlows`] reassembles the chunks, and returns credit when the receiving *task* has consumed the message.
//! Therefore no flow blocks another one, and the memory of each daemon is bounded. [`Arrivals`] keeps the order between the
//! flows: a task that learns of a message by another one finds the earlier one in its queue, or a gap for it.
//!
//! [`pacing`] limits what is under way to a host to which many hosts send.
//!
//! [`frames`] defines the format of frames on the link. [`RetransmitQueue`] and [`AckTracker`] count the bytes sent and
//! received, so that a broken connection can be remade without loss.

mod arrivals;
mod budget;
mod flow;
pub mod frames;
mod host_flows;
mod inbound;
mod marks;
mod message;
pub mod multicast;
mod multicasting;
pub mod pacing;
#[cfg(test)]
mod random_tests;
mod retransmit;
#[cfg(test)]
mod tests;

pub use arrivals::{Arrivals, Gap};
pub use inbound::{Credit, InboundFlows};
pub use marks::{MARKS_MAX, MARKS_OF_HOST_MAX};
pub use message::{Chunk, MessageHeader, ProtocolViolation};
pub use multicasting::Datagram;
pub use retransmit::{AckTracker, RetransmitQueue};

use crate::tid::{GROUP_BIT, Tid};
use budget::SenderBudgets;
use flow::{Flow, Item, QueuedMessage};
use host_flows::{HostFlows, Turn};
use multicast::{Advice, Announcement, Bodies, BodyKey, BodyRequest, Broadcasts, Choice, Delivery, McastRoute};
use pacing::{FIRST_LIMIT_BYTES, Pacing};
use std::cell::RefCell;
use std::collections::HashMap;
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
    /// The number of further messages of a flow that come before everything that follows to other tasks of the host.
    Mark {
        /// The receiver of the flow.
        dst: Tid,
        /// The number of messages.
        count: u32,
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
            let place = self.host_flows(group[0].host()).next_place();
            for dst in group {
                self.push_at(place, *dst, Item::Shared(message.clone()));
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

    /// Queues an in-band frame for the daemon of a host if anything was queued for that host after the last such frame. Returns
    /// whether it was.
    pub fn fence(&mut self, host: Tid, payload: impl FnOnce() -> Vec<u8>) -> bool {
        let is_needed = self.hosts.get(&host).is_some_and(HostFlows::lacks_fence);
        if is_needed {
            self.send_in_band(host, payload());
            self.host_flows(host).note_fence();
        }
        is_needed
    }

    fn push(&mut self, dst: Tid, item: Item<P>) {
        let place = self.host_flows(dst.host()).next_place();
        self.push_at(place, dst, item);
    }

    fn push_at(&mut self, place: u64, dst: Tid, item: Item<P>) {
        let host_flows = self.host_flows(dst.host());
        host_flows.flows.entry(dst).or_default().push(place, item);
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
        host_flows.schedule(dst);
        host_flows.remove_idle(dst);
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

    /// Returns the receivers of messages that have not been handed to a link as a whole.
    pub fn receivers(&self) -> impl Iterator<Item = Tid> + '_ {
        let flows = self.hosts.values().flat_map(|host_flows| &host_flows.flows);
        flows.filter(|(_, flow)| !flow.items.is_empty() || flow.transfer.is_some()).map(|(dst, _)| *dst)
    }

    /// Returns whether a multicast is under way.
    pub fn has_multicasts(&self) -> bool {
        !self.bodies.is_idle() || !self.broadcasts.is_idle()
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
        let mut host_flows = self.hosts.get_mut(&host)?;
        let (frame, dst) = match host_flows.next_turn()? {
            Turn::Mark(dst) => return host_flows.mark(dst),
            Turn::Chunk(dst) => (host_flows.chunk(dst, &mut self.budgets)?, dst),
            Turn::Begin { dst, others } => {
                let mut near = Vec::new();
                if host_flows.flows.get(&dst).is_some_and(Flow::begins_along_tree) {
                    near = self.near_parents(dst);
                    host_flows = self.hosts.get_mut(&host)?;
                }
                (host_flows.begin(dst, others, &near, &mut self.budgets)?, dst)
            }
        };
        host_flows.schedule(dst);
        host_flows.remove_idle(dst);
        if let DataFrame::Announce { announcement: Announcement { key, parent, part_bytes: None, .. }, .. } = &frame {
            if *parent == key.origin {
                self.pushes.push((host, *key));
            }
        }
        Some(frame)
    }
}
