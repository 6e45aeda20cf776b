//! The fallback from a direct link to the default route, when the link breaks or the task leaves.
//!
//! A task that falls back first sends a fallback message on the default route. This message contains the number of
//! messages that the peer has acknowledged. Then the task sends all messages of its send queue on the default route.
//! The first of these may be *repeats*: messages that the peer has received on the link but not acknowledged. The peer
//! compares the number in the fallback message with the number of messages that it has received, and drops the repeats.
//! The peer stops reading the link and falls back too. In this way no task waits for an answer, no message is lost or
//! arrives twice, and the order is kept (`docs/decisions/0023`).
use super::incoming::LinkMessage;
use super::link::GivenUp;
use super::send_queue::{QueuedBody, QueuedMessage};
use super::unasked::PEERS_MAX;
use super::{DirectLinks, RouteEvent, SEND_WAIT_MAX};
use crate::control::Member;
use crate::message::OWN_DSIG;
use crate::sinks::QueueSink;
use crate::system::TC_FALLBACK;
use crate::task::{State, Task};
use pvm_core::codes::{ENC_XDR, SYSCTX_TC};
use pvm_core::encoding::{Reader, Writer};
use pvm_core::tid::Tid;
use pvm_fmp::{Endpoint, FAR, Meta, SendError, Sent};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The pause before a link is requested again after it has broken, or could not be made, for the first time. Each pause
/// is twice as long as the one before.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The longest pause before a link is requested again that a task could not have because it, or its peer, had company.
const COMPANY_PAUSE_MAX: Duration = Duration::from_secs(10);
/// The time between two checks for stalled links.
const STALL_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// If at most this many bytes are unacknowledged on a link, a leaving task does not wait for acknowledgements, but
/// sends the unacknowledged messages again by the default route.
const REPEATED_BYTES_MAX: usize = 64 << 10;
/// The longest time that a leaving task waits for peers that have to acknowledge more than `REPEATED_BYTES_MAX` bytes.
const ACKNOWLEDGEMENT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The longest time that a leaving task waits for memory in which it can send its queued messages.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The length of one sleep of a leaving task that waits.
const LEAVE_PAUSE: Duration = Duration::from_millis(5);

/// When a link to a peer may be requested, or requested again.
#[derive(Default)]
pub(crate) struct Backoff {
    /// The earliest time of the next request; `None` after a request, until it fails or its link breaks.
    at: Option<Instant>,
    /// The length of the last pause; zero if there was none.
    pause: Duration,
    /// The length of the last pause because a task had company.
    company_pause: Duration,
}

impl Backoff {
    /// Returns whether a link may be requested now.
    pub fn may_request(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// Returns whether a link was requested, and the request has not failed, nor its link broken.
    pub fn is_requested(&self) -> bool {
        self.at.is_none()
    }

    /// Notes that a link has been requested.
    pub fn requested(&mut self) {
        self.at = None;
    }

    /// Begins a pause because a link was given up that has not broken. It is no longer than the last one.
    pub fn on_given_up(&mut self) {
        self.pause = self.pause.max(PAUSE_FIRST);
        self.at = Some(Instant::now() + self.pause);
    }

    /// Begins a pause because no program has asked for the link, and one of the two tasks is not alone on its host. It does
    /// not count among the pauses after breaks.
    pub fn on_company(&mut self) {
        self.company_pause = (2 * self.company_pause).clamp(PAUSE_FIRST, COMPANY_PAUSE_MAX);
        self.at = Some(Instant::now() + self.company_pause);
    }

    /// Notes that a link was made: both tasks are alone.
    pub fn on_made(&mut self) {
        self.company_pause = Duration::ZERO;
    }

    /// Begins a pause because a link has broken or could not be made. The cause may pass: a lost connection, too few
    /// descriptors, a peer that refuses links for some time.
    pub fn on_break(&mut self) {
        self.pause = (2 * self.pause).clamp(PAUSE_FIRST, PAUSE_MAX);
        self.at = Some(Instant::now() + self.pause);
    }
}

/// The pauses of all peers. A task is not told of the ends of all of them.
#[derive(Default)]
pub(crate) struct Backoffs(HashMap<Tid, Backoff>);

impl Backoffs {
    /// Returns the pauses of a peer. If there are too many peers, forgets those to which no link is open.
    pub fn of(&mut self, peer: Tid) -> &mut Backoff {
        if self.0.len() >= PEERS_MAX && !self.0.contains_key(&peer) {
            self.0.retain(|_, backoff| backoff.is_requested());
        }
        self.0.entry(peer).or_default()
    }

    pub fn get(&self, peer: Tid) -> Option<&Backoff> {
        self.0.get(&peer)
    }

    pub fn get_mut(&mut self, peer: Tid) -> Option<&mut Backoff> {
        self.0.get_mut(&peer)
    }

    pub fn remove(&mut self, peer: Tid) {
        self.0.remove(&peer);
    }
}

/// What a task knows about a link, kept until the peer's fallback message arrives.
pub(crate) struct ReceivedOnLink {
    /// How many messages were received on the link.
    pub count: Rc<Cell<u32>>,
    /// Whether the peer has exited.
    pub ended: bool,
    /// On a fabric: what has arrived and is counted already.
    pub held: Option<Rc<HeldMessages>>,
}

/// Messages that have arrived on a fabric and that the task has not taken over yet. They go before all that the peer
/// sends on the default route.
#[derive(Default)]
pub(crate) struct HeldMessages {
    pub messages: RefCell<VecDeque<LinkMessage>>,
    /// Whether the peer has fallen back, so that no more messages count.
    pub is_closed: Cell<bool>,
}

/// A message on the default route in which a peer announces the route of its later messages.
pub(crate) enum RouteSwitch {
    /// Later messages of the peer arrive on the link.
    ToLink(Tid),
    /// Later messages of the peer arrive on the default route again.
    ToDefault {
        peer: Tid,
        /// Whether the peer needs no answer.
        answered: bool,
        /// Whether the peer has given up a link that has not broken.
        is_given_up: bool,
    },
}

/// What a fallback message says.
pub(crate) struct Fallback {
    /// How many messages the other side has acknowledged.
    pub acknowledged: u32,
    /// Whether the message answers another one: then the sender has no link, and has sent nothing on one.
    pub answers: bool,
    /// Whether the sender has given up a link that has not broken, so that a new one is no use at once.
    pub is_given_up: bool,
}

impl Fallback {
    /// The answer of a side that has no link.
    pub const ANSWER: Fallback = Fallback { acknowledged: 0, answers: true, is_given_up: false };
}

/// What the receiver of messages on the default route has to know about links.
#[derive(Default)]
pub(crate) struct RouteSwitches {
    /// The links on which messages were received, by peer.
    pub received: BTreeMap<i32, ReceivedOnLink>,
    /// Route switches that have to be handled.
    pub pending: Vec<RouteSwitch>,
}

impl RouteSwitches {
    /// Returns whether a peer may still have a link to this task, even if this task has none any more.
    pub fn is_open(&self, peer: Tid) -> bool {
        self.received.get(&(peer.0 as i32)).is_some_and(|received| !received.ended)
    }

    /// Returns what has arrived from a peer on a fabric, if there is such a link, and lets no more arrive.
    pub fn close_fabric(&mut self, peer: i32) -> Option<Rc<HeldMessages>> {
        let held = self.received.get(&peer)?.held.clone()?;
        held.is_closed.set(true);
        Some(held)
    }

    /// Takes in the fallback message of a peer. Returns how many of the messages that follow are repeats.
    pub fn on_fallback(&mut self, peer: i32, reader: &mut Reader<'_>) -> u32 {
        let (Some(acknowledged), Some(answers)) = (reader.int(), reader.int()) else { return 0 };
        let is_given_up = reader.int().is_some_and(|word| word != 0);
        let link = self.received.remove(&peer);
        let is_known = link.is_some() || answers != 0;
        let switch = RouteSwitch::ToDefault { peer: Tid(peer as u32), answered: is_known, is_given_up };
        self.pending.push(switch);
        // If the message is an answer, the peer has no link and has sent no messages on one.
        let repeats =
            link.filter(|_| answers == 0).map_or(0, |link| link.count.get().wrapping_sub(acknowledged as u32));
        // The peer claims more acknowledged messages than this task has received: a protocol violation.
        if repeats > i32::MAX as u32 { 0 } else { repeats }
    }
}

impl State {
    /// Takes over what has arrived on a fabric. Returns the number of messages.
    pub(crate) fn take_held(&mut self, held: &HeldMessages, own: i32) -> usize {
        let mut count = 0;
        loop {
            let Some(message) = held.messages.borrow_mut().pop_front() else { return count };
            self.on_message_bytes(message.envelope(own), message.body);
            count += 1;
        }
    }
}

/// Sends a queued message of a link to that peer on the default route.
pub(crate) fn send_again(
    endpoint: &mut Endpoint,
    daemon: Tid,
    peer: Tid,
    message: &QueuedMessage,
) -> Result<Sent, SendError> {
    let mut meta = message.meta;
    meta[FAR] = peer.0;
    match &message.body {
        QueuedBody::Bytes(bytes) => endpoint.send_bytes(daemon.0, meta, bytes),
        QueuedBody::Shared(bytes) => endpoint.send_bytes(daemon.0, meta, bytes),
        QueuedBody::Blocks(blocks) => endpoint.send_blocks(daemon.0, meta, blocks),
    }
}

impl DirectLinks {
    /// Returns whether a link to that peer was requested, and is neither made nor refused.
    pub fn has_requested(&self, peer: Tid) -> bool {
        self.backoffs.get(peer).is_some_and(Backoff::is_requested) && !self.has_link(peer)
    }

    /// Notes that a link has broken, or was not made.
    pub(crate) fn on_break(&mut self, peer: Tid) {
        if let Some(backoff) = self.backoffs.get_mut(peer) {
            backoff.on_break();
        }
    }

    /// Notes that a link to a peer was made, here or on a fabric.
    pub(crate) fn on_made(&mut self, peer: Tid) {
        self.backoffs.get_mut(peer).into_iter().for_each(Backoff::on_made);
    }

    /// Notes that there can be no link, since one of the two tasks is not alone on its host.
    pub(crate) fn on_company(&mut self, peer: Tid) {
        self.backoffs.of(peer).on_company();
    }

    /// Begins a pause before a link is requested, even if this side has never done so.
    fn begin_pause(&mut self, peer: Tid) {
        self.backoffs.of(peer).on_given_up();
    }

    /// Notes that a link was given up that this side may have requested.
    pub(crate) fn on_given_up(&mut self, peer: Tid) {
        if let Some(backoff) = self.backoffs.get_mut(peer) {
            backoff.on_given_up();
        }
    }

    /// Starts the fallback from stalled links. Checks once a second.
    pub(super) fn close_stalled(&mut self) {
        let now = Instant::now();
        if self.stalls_checked.is_some_and(|seen| now.duration_since(seen) < STALL_CHECK_PAUSE) {
            return;
        }
        self.stalls_checked = Some(now);
        for at in (0..self.links.len()).rev() {
            let link = &mut self.links[at];
            let waits = self.draining == Some(link.peer);
            if link.has_stalled(waits, now) {
                match waits {
                    // The peer has exited: messages that have not arrived by now do not arrive any more.
                    true => self.remove(at),
                    false => link.falling_back = true,
                }
            }
        }
    }

    /// Begins the fallback from the link to a peer, if messages take that link. Returns whether they do.
    pub(crate) fn leave_for_fabric(&mut self, peer: Tid) -> bool {
        let link = self.find(peer).filter(|link| link.carries && !link.falling_back && !link.is_broken());
        link.map(|link| link.give_up(GivenUp::ForFabric)).is_some()
    }

    /// Waits while peers go on acknowledging, but for at most `ACKNOWLEDGEMENT_WAIT_MAX`. Does not wait for links with
    /// at most `REPEATED_BYTES_MAX` unacknowledged bytes.
    fn wait_for_acknowledgements(&mut self) {
        let begin = Instant::now();
        let (mut since, mut before) = (begin, 0);
        while begin.elapsed() < ACKNOWLEDGEMENT_WAIT_MAX && since.elapsed() < SEND_WAIT_MAX {
            self.links.iter_mut().for_each(|link| link.flush());
            let waiting =
                self.links.iter().filter(|link| !link.is_send_closed() && link.queue.bytes() > REPEATED_BYTES_MAX);
            let (mut count, mut progress) = (0, 0_u64);
            for link in waiting {
                count += 1;
                progress = progress
                    .wrapping_add(link.progress())
                    .wrapping_add(link.carried().acknowledged)
                    .wrapping_add(u64::from(link.queue.acknowledged()));
            }
            if count == 0 {
                return;
            }
            if progress != before {
                (since, before) = (Instant::now(), progress);
            }
            self.wait_for_room(None, LEAVE_PAUSE);
            // The program is ending and receives no more messages.
            self.arrived.clear();
        }
    }
}

impl Member {
    /// Sends the queued messages of broken links by the default route, until memory runs out.
    pub(crate) fn fall_back(&mut self) {
        for at in (0..self.direct.links.len()).rev() {
            let link = &mut self.direct.links[at];
            if link.is_broken() {
                link.falling_back = true;
            }
            if !link.falling_back {
                continue;
            }
            if link.owes_fallback() || !link.queue.is_empty() {
                self.fall_back_from(at);
            }
            let link = &self.direct.links[at];
            if link.fallback_sent && link.queue.is_empty() {
                self.direct.links[at].carries = false;
                self.direct.update_interest(at);
                if self.direct.links[at].read_closed {
                    self.direct.close_link(at);
                }
            }
        }
    }

    /// Continues the fallback from one link.
    fn fall_back_from(&mut self, at: usize) {
        let (peer, daemon) = (self.direct.links[at].peer, self.tid.host());
        if !self.has_default_route() {
            return;
        }
        if !self.direct.links[at].fallback_sent {
            let acknowledged = self.direct.links[at].queue.acknowledged();
            let given_up = self.direct.links[at].given_up;
            let is_given_up = given_up.is_some_and(|why| why != GivenUp::ByPeer);
            if !self.send_fallback(peer, Fallback { acknowledged, answers: false, is_given_up }) {
                return;
            }
            self.direct.links[at].fallback_sent = true;
            self.direct.events.push(RouteEvent::Ended(peer));
            match given_up {
                // It is worth its cost again after as many messages as before.
                Some(GivenUp::Burst) => self.direct.backoffs.remove(peer),
                Some(GivenUp::Company) => self.direct.on_company(peer),
                // The side that asks for the fabric does so before a direct link can be requested again.
                Some(GivenUp::ForFabric) => self.direct.begin_pause(peer),
                Some(GivenUp::ByPeer) if self.fabric.has_lost(peer) => self.direct.begin_pause(peer),
                Some(GivenUp::ByPeer | GivenUp::Unheard) => self.direct.on_given_up(peer),
                Some(GivenUp::Unread) | None => self.direct.on_break(peer),
            }
        }
        while let Some(message) = self.direct.links[at].queue.first() {
            let sent = send_again(&mut self.endpoint, daemon, peer, message);
            if self.finish_send(daemon, sent).is_err() {
                return;
            }
            self.direct.links[at].queue.pop_front();
        }
    }

    /// Sends the fallback message on the default route. Returns `false` if there was no memory for it.
    pub(crate) fn send_fallback(&mut self, peer: Tid, fallback: Fallback) -> bool {
        let daemon = self.tid.host();
        let mut meta: Meta = [SYSCTX_TC, TC_FALLBACK, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let Fallback { acknowledged, answers, is_given_up } = fallback;
        let words = [acknowledged as i32, i32::from(answers), i32::from(is_given_up)];
        let body = words.into_iter().fold(Writer::new(), Writer::int).finish();
        let sent = self.endpoint.send_bytes(daemon.0, meta, &body);
        self.finish_send(daemon, sent).is_ok()
    }

    /// Handles the fallback message of a peer. Returns `false` if the peer waits for an answer that cannot be sent now.
    pub(super) fn on_peer_fallback(&mut self, peer: Tid, answered: bool, is_given_up: bool) -> bool {
        if self.on_fabric_fallback(peer, answered, is_given_up) {
            return true;
        }
        self.direct.arrived.retain(|arrived| arrived.peer != peer);
        match self.direct.position(peer) {
            Ok(at) => {
                let link = &mut self.direct.links[at];
                if is_given_up {
                    link.give_up(GivenUp::ByPeer);
                }
                (link.falling_back, link.read_closed) = (true, true);
                link.read_ahead.clear();
                self.direct.pacing.remove(peer);
                if self.direct.draining == Some(peer) {
                    self.direct.draining = None;
                }
                true
            }
            // This side has no link. If the peer needs an answer, it gets a fallback message.
            Err(_) => answered || (self.has_default_route() && self.send_fallback(peer, Fallback::ANSWER)),
        }
    }

    /// Hands over to the daemon the messages that peers have not acknowledged, by sending them on the default route.
    /// Called before the task or its process ends.
    pub(crate) fn hand_over_links(&mut self, state: &mut State) {
        self.direct.wait_for_acknowledgements();
        self.wait_for_fabric();
        let deadline = Instant::now() + LEAVE_WAIT_MAX;
        loop {
            for link in &mut self.direct.links {
                link.falling_back |= !link.queue.is_empty();
            }
            self.fall_back();
            let is_done = self.hand_over_fabric() && self.direct.links.iter().all(|link| link.queue.is_empty());
            if self.daemon.is_none() || is_done || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(LEAVE_PAUSE);
            // The next attempt may succeed: the daemon frees memory as it relays messages, or introduces itself to this
            // task now.
            self.poll(state);
            self.read_control(state);
        }
    }
}

impl Task {
    /// Returns whether messages that were sent are still in this process (see [`Task::hand_over`]).
    pub fn holds_back(&self) -> bool {
        let holds = |member: &Member| {
            member.daemon.as_ref().is_some_and(|socket| socket.wants_write())
                || member.direct.links.iter().any(|link| !link.queue.is_empty())
                || member.fabric.holds_messages()
        };
        self.member.as_ref().is_some_and(holds)
    }

    /// Hands over to the daemon the sent messages that are still in this process. Called before the process ends, even
    /// if the task has not left the machine.
    pub fn hand_over(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.hand_over_links(&mut self.state);
        member.send_last_frames();
    }
}

impl Member {
    /// Takes in the messages that have arrived on the default route, and handles route switches.
    pub(crate) fn poll_default_route(&mut self, state: &mut State) {
        self.endpoint.poll_through(self.tid.host().0, &mut QueueSink { state, own: self.tid.0 as i32 });
        self.handle_route_switches(state);
        self.fall_back();
    }
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
