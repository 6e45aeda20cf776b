//! The default route: messages between tasks of this host and tasks of other hosts.
//!
//! The daemon is a peer of its tasks in shared memory. Messages that tasks queue for other hosts enter flows
//! (`pvm_core::flows`) as handles: a body stays in its sender's heap until the data link to the host takes the body.
//! Messages that arrive from other hosts are stored in the daemon's own heap and are lent to the receivers. This bounds
//! the daemon's memory: by `HELD_BYTES_MAX` for each sender, and by one window (or one long message) for each receiver
//! and each host that sends to it. A receiver can also keep one long message that it has read, while the daemon's heap is
//! empty enough.
//!
//! * `context`: what the route asks of the daemon; `clock`: the time;
//! * `data_link`: the data link to one host, with `receive` and `transmit` for its two directions;
//! * `read_progress`: what tasks have read, and the memory that is free again; `lent`: the blocks lent to a task;
//! * `egress`: puts the messages of tasks into flows;
//! * `delivery`: hands what has arrived to the receivers, and keeps the order of the sending host;
//! * `announced`: fetches and relays the bodies of multicasts along trees;
//! * `datagrams`: broadcasts and hears such bodies; `digests`: checks them.
mod announced;
#[cfg(test)]
mod breaking_tests;
mod clock;
mod context;
mod data_link;
mod datagrams;
#[cfg(test)]
mod datagrams_tests;
mod delivery;
mod digests;
mod egress;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lent;
mod link_failure;
mod read_progress;
mod receive;
#[cfg(any(test, fuzzing))]
mod test_context;
#[cfg(test)]
mod tests;
mod transmit;

use clock::Clock;
pub use context::RouteContext;
use data_link::DataLink;
use datagrams::Seals;
use delivery::{Message, Payload, Undelivered};
use digests::Digests;
use egress::{Egress, EgressFlows};
use lent::Lent;
use link_failure::LinkFailure;
use pvm_core::flows::multicast::{Advice, InOrder, LISTENERS_MIN};
use pvm_core::flows::pacing::{Pacer, Pacing};
use pvm_core::flows::{InboundFlows, ProtocolViolation};
use pvm_core::host_look::{HostLook, LinkLook};
use pvm_core::tid::Tid;
use pvm_core::wire::{Frame, decode, encode};
use pvm_fmp::ports::PortView;
use pvm_fmp::{Block, Endpoint, INLINE_BYTES_MAX};
use pvm_net::ByteStream;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// If there was no memory for a message, its delivery is tried again after this time.
pub const PAUSE: Duration = Duration::from_millis(20);

/// An event of the route.
#[derive(Debug, PartialEq)]
pub enum RouteEvent {
    /// A frame of another daemon has arrived in a flow.
    Frame { from: Tid, frame: Box<Frame> },
    /// The host has violated the protocol, or too many frames wait for it: its links are to be closed.
    Broken { host: Tid, why: String },
    /// The connection of a data link has ended. A new connection continues where the old one broke.
    Cut { host: Tid, why: String },
    /// A message or frame for this host waits, and there is no data link to the host.
    Wanted { host: Tid },
    /// A task could not be introduced, and a message for it is lost.
    Lost { task: Tid, why: String },
    /// A line for the log ([`RouteContext::traces_routes`]).
    Note(String),
    /// What the tasks of this host should know about multicasts.
    Advice(Advice),
}

/// The default route of this daemon.
pub struct Route {
    own: Tid,
    endpoint: Endpoint,
    egress_flows: EgressFlows,
    intake: InboundFlows<Option<Block>>,
    pacer: Pacer,
    clock: Clock,
    /// The blocks lent to each task.
    lent: HashMap<Tid, Lent>,
    /// For each task that is to ring the daemon's doorbell: the task rings when it has read up to this position.
    ring_positions: HashMap<Tid, u64>,
    /// What waits for memory, for all receivers in one order.
    undelivered: VecDeque<Undelivered>,
    /// Messages behind announced messages whose bodies are being fetched.
    held: InOrder<Message>,
    digests: Digests,
    seals: Seals,
    data_links: BTreeMap<Tid, DataLink>,
    /// Hosts to which links were requested.
    wanted: BTreeSet<Tid>,
    events: VecDeque<RouteEvent>,
    has_peers: bool,
    /// Whether a message was carried since the last [`Route::trim`].
    was_active: bool,
    /// Whether something has happened that the next [`Route::step`] has to see. While nothing has, tasks ring the
    /// daemon's doorbell when they send something.
    is_due: bool,
}

impl Route {
    /// Makes the route of a host's daemon. `ports`: a descriptor of the port table.
    pub fn new(own: Tid, ports: OwnedFd) -> io::Result<Route> {
        let mut endpoint = Endpoint::new()?;
        endpoint.enrolled(own.0, PortView::new(ports)?);
        Ok(Route {
            own,
            endpoint,
            egress_flows: EgressFlows::new(own),
            intake: InboundFlows::new(),
            pacer: Pacer::new(),
            clock: Clock::new(),
            lent: HashMap::new(),
            ring_positions: HashMap::new(),
            undelivered: VecDeque::new(),
            held: InOrder::default(),
            digests: Digests::default(),
            seals: Seals::default(),
            data_links: BTreeMap::new(),
            wanted: BTreeSet::new(),
            events: VecDeque::new(),
            has_peers: false,
            was_active: false,
            is_due: true,
        })
    }

    /// Returns what decides about the senders of long messages to this host.
    pub fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Sets when receivers pace, as the machine has it. To be called before any data link is attached.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        self.pacer.set_pacing(pacing);
        self.egress_flows.flows.set_pacing(pacing);
    }

    /// Returns the daemon's segment and doorbell, for tasks.
    pub fn descriptors(&mut self) -> io::Result<[OwnedFd; 2]> {
        self.endpoint.descriptors()
    }

    /// Returns the daemon's doorbell.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.endpoint.bell()
    }

    /// Returns the daemon's endpoint in shared memory, for introductions.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.is_due = true;
        self.has_peers = true;
        &mut self.endpoint
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<RouteEvent> {
        self.events.pop_front()
    }

    /// Returns whether [`Route::step`] has any work now.
    pub fn is_due(&self) -> bool {
        let has_work = self.is_due || !self.events.is_empty() || self.waits_for_memory();
        let is_time = || self.time_to_next_step().is_some_and(|time| time.is_zero());
        let is_used = self.has_peers || !self.data_links.is_empty() || !self.events.is_empty();
        is_used && (has_work || is_time())
    }

    // ----- hosts

    /// Adds the first data link to a host.
    pub fn attach(&mut self, host: Tid, stream: ByteStream) {
        self.is_due = true;
        self.wanted.remove(&host);
        self.data_links.insert(host, DataLink::new(Some(stream)));
    }

    /// Continues the data link to a host on a new connection, after the last byte that the other side has received.
    pub fn resume(&mut self, host: Tid, stream: ByteStream) {
        self.is_due = true;
        self.wanted.remove(&host);
        self.data_links.entry(host).or_insert_with(|| DataLink::new(None)).reconnect(stream);
    }

    /// Drops the connection to a host. Another one may follow.
    pub fn disconnect(&mut self, host: Tid) {
        self.is_due = true;
        if let Some(data_link) = self.data_links.get_mut(&host) {
            data_link.disconnect();
        }
    }

    /// Removes the data link to a host. Messages for the host stay queued.
    pub fn detach(&mut self, host: Tid) {
        self.is_due = true;
        self.data_links.remove(&host);
    }

    /// Forgets a host that does not belong to the machine any more.
    pub fn forget_host(&mut self, host: Tid) {
        self.is_due = true;
        self.data_links.remove(&host);
        self.wanted.remove(&host);
        self.egress_flows.flows.host_gone(host);
        let with_gaps = self.intake.host_gone(host);
        self.undelivered.extend(with_gaps.into_iter().map(|dst| Undelivered::NoMore { dst, host }));
        self.pacer.host_gone(host);
        self.held.host_gone(host);
        self.send_body_requests();
    }

    /// Returns whether this host has links to as many hosts as a broadcast is worth.
    pub fn is_broadcaster(&self) -> bool {
        self.data_links.len() >= LISTENERS_MIN
    }

    /// Notes that the socket of a data link has become ready. `epoll` reports this only once. `ended`: the other side
    /// has closed.
    pub fn on_socket_ready(&mut self, host: Tid, readable: bool, writable: bool, ended: bool) {
        self.is_due = true;
        if let Some(data_link) = self.data_links.get_mut(&host) {
            data_link.receive.ended |= ended;
            data_link.receive.readable |= readable | ended;
            data_link.transmit.writable |= writable;
        }
    }

    /// Notes that datagrams can be sent again.
    pub fn on_datagram_room(&mut self) {
        self.is_due = true;
    }

    /// Sends a frame of the daemon to a task of another host, behind the messages that were sent to the task before.
    pub fn send_along(&mut self, to: Tid, frame: &Frame) {
        self.is_due = true;
        self.egress_flows.flows.send_in_band(to, encode(frame));
        self.sent_in_band(to.host());
    }

    /// Sends a fence to a host if one is needed before the next frame on the control link. Returns whether it was.
    pub fn fence(&mut self, host: Tid) -> bool {
        let is_sent = self.egress_flows.flows.fence(host, || encode(&Frame::Fence));
        if is_sent {
            self.is_due = true;
            self.sent_in_band(host);
        }
        is_sent
    }

    fn sent_in_band(&mut self, host: Tid) {
        if self.egress_flows.flows.is_overrun(host) {
            let why = "it does not take what it has asked for".to_owned();
            self.egress_flows.flows.host_gone(host);
            self.data_links.remove(&host);
            return self.events.push_back(RouteEvent::Broken { host, why });
        }
        self.request_link(host);
    }

    fn request_link(&mut self, host: Tid) {
        if !self.data_links.contains_key(&host) && self.wanted.insert(host) {
            self.events.push_back(RouteEvent::Wanted { host });
        }
    }

    // ----- tasks

    /// Takes the messages that tasks have sent until now, so that they precede everything that a task causes in another way: it
    /// may know of messages of others.
    pub fn take_from_all(&mut self, context: &dyn RouteContext) {
        if self.has_peers {
            let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
            egress.egress_flows.flows.note_time(self.clock.now());
            self.is_due |= self.endpoint.poll_all_through(&mut egress) > 0;
            self.request_missing_links();
        }
    }

    /// Takes all messages that a task has sent before its end, and those that others have sent until then. Bodies stay
    /// mapped until they have been sent.
    pub fn drain(&mut self, task: Tid, context: &dyn RouteContext) {
        let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
        egress.egress_flows.flows.note_time(self.clock.now());
        self.endpoint.poll_all_through(&mut egress);
        if self.endpoint.is_connected(task.0) {
            self.endpoint.poll_through(task.0, &mut egress);
        }
        self.is_due = true;
        self.request_missing_links();
    }

    /// Forgets a task whose messages [`Route::drain`] has taken.
    pub fn forget_task(&mut self, task: Tid) {
        self.is_due = true;
        self.endpoint.peer_gone(task.0);
        self.egress_flows.lists.remove(&task);
        self.lent.remove(&task);
        self.ring_positions.remove(&task);
        self.forget_undelivered(task);
        self.intake.task_gone(task);
    }

    /// Requests links to the hosts for which messages wait.
    pub(super) fn request_missing_links(&mut self) {
        let flows = &self.egress_flows.flows;
        let lacks = |host: &Tid| !self.data_links.contains_key(host) && !self.wanted.contains(host);
        let hosts: Vec<Tid> = flows.hosts().filter(|host| lacks(host) && flows.has_items(*host)).collect();
        hosts.into_iter().for_each(|host| self.request_link(host));
    }

    // ----- the loop

    /// Prepares to sleep: from now on, tasks ring the daemon's doorbell. Returns whether the loop may sleep; otherwise
    /// another step is due.
    pub fn prepare_park(&mut self, context: &dyn RouteContext) -> bool {
        if !self.has_peers {
            return true;
        }
        self.endpoint.prepare_park();
        let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
        // Just before this call, a task may have reached the position at which it is to ring. Such a task has not rung,
        // since the daemon was awake.
        let has_work = self.endpoint.poll(&mut egress) > 0 || !self.tasks_past_notice().is_empty();
        if has_work {
            self.endpoint.unpark_unrung();
            self.is_due = true;
        }
        !has_work
    }

    /// Handles the end of a sleep. `rung`: the doorbell is readable.
    pub fn wake(&mut self, rung: bool) {
        if rung {
            self.is_due = true;
            self.endpoint.unpark();
        } else {
            self.endpoint.unpark_unrung();
        }
    }

    /// Returns whether a message waits for memory.
    fn waits_for_memory(&self) -> bool {
        !self.undelivered.is_empty() || self.data_links.values().any(|data_link| data_link.receive.stalled)
    }

    /// Returns the time after which [`Route::step`] is due even if nothing happens.
    pub fn time_to_next_step(&self) -> Option<Duration> {
        let pacing = self.pacer.next_wakeup().map(|when| when.saturating_sub(self.clock.now()));
        let broadcast = self.egress_flows.flows.next_wakeup().map(|when| when.saturating_sub(self.clock.now()));
        pacing.into_iter().chain(broadcast).chain(self.waits_for_memory().then_some(PAUSE)).min()
    }

    /// Shows what this daemon has received from other hosts, and whether some of it has not been delivered yet.
    pub fn show_received(&self, look: &mut HostLook) {
        let link = |(host, link): (&Tid, &DataLink)| LinkLook {
            host: *host,
            received: link.receive.receipts.received(),
            sent: 0,
        };
        look.links = self.data_links.iter().map(link).collect();
        look.carries_more |= self.intake.arriving() > 0 || !self.held.is_empty() || !self.undelivered.is_empty();
    }

    /// Shows what this daemon has sent to other hosts, and for whom it holds messages.
    pub fn show_sent(&self, look: &mut HostLook) {
        let flows = &self.egress_flows.flows;
        look.set_under_way(flows.receivers().collect());
        look.carries_more |= flows.has_multicasts();
        for link in &mut look.links {
            link.sent = self.data_links.get(&link.host).map_or(0, |link| link.transmit.end());
        }
    }

    /// Makes the acknowledgement of all received bytes due, so that other hosts need not keep these bytes.
    pub fn acknowledge(&mut self) {
        self.is_due = true;
        self.data_links.values_mut().for_each(|data_link| data_link.receive.receipts.make_due());
    }

    /// Frees unused memory if nothing was carried since the last call. Returns whether nothing was carried.
    pub fn trim(&mut self) -> bool {
        if std::mem::take(&mut self.was_active) {
            return false;
        }
        for data_link in self.data_links.values_mut() {
            if let Some((stream, _, transmit)) = data_link.connection() {
                stream.release();
                transmit.release();
            }
        }
        self.free_kept();
        if self.endpoint.has_excess() {
            self.endpoint.tidy();
        }
        true
    }

    /// Takes the messages that wait and carries them as far as possible. Returns whether the caller should call this
    /// again at once. If not, tasks may have sent something meanwhile: [`Route::prepare_park`] checks that before the
    /// daemon sleeps.
    pub fn step(&mut self, context: &mut dyn RouteContext) -> bool {
        self.is_due = false;
        let more = self.carry(context);
        self.is_due |= more;
        more
    }

    fn carry(&mut self, context: &mut dyn RouteContext) -> bool {
        self.egress_flows.flows.note_time(self.clock.now());
        let mut egress = Egress { egress_flows: &mut self.egress_flows, context: &*context };
        self.was_active |= self.endpoint.poll(&mut egress) > 0;
        self.events.extend(self.egress_flows.notes.drain(..).map(RouteEvent::Note));
        let mut more = false;
        self.request_missing_links();
        self.retry_undelivered(context);
        self.update_all_read_progress();
        let hosts: Vec<Tid> = self.data_links.keys().copied().collect();
        for host in &hosts {
            let ready = self.data_links.get_mut(host).map_or(Ok(()), DataLink::continue_handshake);
            match ready.and_then(|()| self.receive_from(*host, context)) {
                Ok(again) => more |= again,
                Err(failure) => self.on_link_failure(*host, &failure),
            }
        }
        more |= self.send_datagrams(context);
        self.send_body_requests();
        while let Some(credit) = self.intake.poll_credit() {
            if let Some(data_link) = self.data_links.get_mut(&credit.host) {
                data_link.transmit.add_credit(&credit);
            }
        }
        self.pace();
        for host in &hosts {
            let connection = self.data_links.get_mut(host).and_then(DataLink::connection);
            let Some((stream, receive, transmit)) = connection else { continue };
            match transmit.write(stream, *host, &mut self.egress_flows.flows, &mut receive.receipts) {
                Ok(again) => more |= again,
                Err(failure) => self.on_link_failure(*host, &failure),
            }
        }
        self.events.extend(self.egress_flows.flows.take_new_advice().map(RouteEvent::Advice));
        more |= self.egress_flows.flows.begin_pushes();
        more | !self.egress_flows.flows.take_freed().is_empty() | !self.events.is_empty()
    }

    /// Lets the pacer decide about what has arrived, and passes its grants to the links.
    fn pace(&mut self) {
        let now = self.clock.now();
        for host in self.pacer.hosts_to_check(now) {
            if self.data_links.get_mut(&host).is_some_and(DataLink::has_new_losses) {
                self.pacer.handle_loss(now, host);
            }
        }
        self.pacer.handle_time(now);
        while let Some(grant) = self.pacer.poll_grant() {
            if let Some(data_link) = self.data_links.get_mut(&grant.host) {
                data_link.transmit.set_grant(grant.up_to);
            }
        }
    }

    /// Handles the failure of a link: a lost connection is replaced, a protocol violation ends the link.
    fn on_link_failure(&mut self, host: Tid, failure: &LinkFailure) {
        let why = failure.to_string();
        match failure {
            LinkFailure::Link(_) => {
                self.disconnect(host);
                self.events.push_back(RouteEvent::Cut { host, why });
            }
            LinkFailure::ProtocolViolation => {
                self.data_links.remove(&host);
                self.events.push_back(RouteEvent::Broken { host, why });
            }
        }
    }

    // ----- what has arrived

    fn on_frame(&mut self, from: Tid, bytes: &[u8]) -> Result<(), ProtocolViolation> {
        let frame = decode(bytes).ok_or(ProtocolViolation)?;
        self.events.push_back(RouteEvent::Frame { from, frame: Box::new(frame) });
        Ok(())
    }
}

/// Returns whether a body of this length travels in the queue itself.
fn is_short(bytes: usize) -> bool {
    bytes <= INLINE_BYTES_MAX
}
