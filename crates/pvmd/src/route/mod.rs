//! Messages between tasks of this host and those of others, on the default route.
//!
//! The daemon is a peer of its tasks in shared memory. What they queue for tasks of other hosts it
//! puts into flows (`pvm_core::flows`), as handles: the bodies stay in the senders' heaps until the
//! link to the host takes them. What arrives it puts into its own heap and lends to the receivers.
//! So the daemon's own memory is bounded: by `HELD_BYTES_MAX` for each sender, and for each receiver
//! by a window for each host (or one long message).
#[cfg(test)]
mod breaking_tests;
mod data_link;
mod egress;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use data_link::DataLink;
use egress::{Egress, EgressFlows};
use pvm_core::flows::{Flows, HELD_BYTES_MAX, Intake, Letter, MESSAGE_BYTES, Strange};
use pvm_core::tid::Tid;
use pvm_core::wire::{Frame, decode, encode};
use pvm_fmp::ports::PortView;
use pvm_fmp::{Block, Endpoint, INLINE_BYTES_MAX, Meta, SendError, Sent};
use pvm_net::{ByteStream, LinkError};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a message that finds no memory waits for its next try.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Messages taken of a task before the daemon heeds what the task says on its socket: as many as the
/// daemon holds for a task.
const TAKEN_MESSAGES_MAX: usize = (HELD_BYTES_MAX / MESSAGE_BYTES) as usize;

/// What the route has to know of the daemon context it.
pub trait RouteContext {
    /// Whether messages reach that task of this host, now or when it comes.
    fn accepts_messages(&self, task: Tid) -> bool;
    /// Whether the host belongs to the machine.
    fn is_member(&self, host: Tid) -> bool;
    /// Introduces a task of this host and the daemon to each other.
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()>;
    /// Rings a task's doorbell.
    fn ring(&mut self, task: Tid);
}

/// What the daemon has to deal with.
#[derive(Debug, PartialEq)]
pub enum RouteEvent {
    /// A frame came out of a flow.
    Frame { from: Tid, frame: Box<Frame> },
    /// The link to the host is of no use any more, nor is the host.
    Broken { host: Tid, why: String },
    /// The connection to the host has ended; with another one all goes on.
    Cut { host: Tid, why: String },
    /// There is something for a host to which there is no link.
    Wanted { host: Tid },
    /// A task could not be introduced; what was for it is lost.
    Lost { task: Tid, why: String },
}

/// A body that has arrived.
#[derive(Clone)]
enum Payload {
    Short(Vec<u8>),
    LongPiece(Block),
}

/// A message that found no room in the queue to its task.
struct Undelivered {
    from: Tid,
    dst: Tid,
    meta: Meta,
    bytes: usize,
    payload: Payload,
}

/// The daemon's part of the default route.
pub struct Route {
    own: Tid,
    endpoint: Endpoint,
    egress_flows: EgressFlows,
    intake: Intake<Option<Block>>,
    /// What each task was given, in order: the block that its body lies in.
    lent: HashMap<Tid, VecDeque<Option<Block>>>,
    /// Tasks that ring when they have read so far.
    noticed: HashMap<Tid, u64>,
    undelivered: VecDeque<Undelivered>,
    data_links: BTreeMap<Tid, DataLink>,
    /// Hosts to which links were asked for.
    wanted: BTreeSet<Tid>,
    events: VecDeque<RouteEvent>,
    has_peers: bool,
    /// Something has come since the last [`Route::trim`].
    was_active: bool,
}

/// A link that cannot go on, and why.
enum LinkFailure {
    Link(LinkError),
    ProtocolViolation,
}

impl From<LinkError> for LinkFailure {
    fn from(error: LinkError) -> LinkFailure {
        LinkFailure::Link(error)
    }
}

impl From<Strange> for LinkFailure {
    fn from(_: Strange) -> LinkFailure {
        LinkFailure::ProtocolViolation
    }
}

impl std::fmt::Display for LinkFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkFailure::Link(error) => write!(formatter, "{error}"),
            LinkFailure::ProtocolViolation => formatter.write_str("protocol violation on the data link"),
        }
    }
}

impl Route {
    /// Of the daemon of that host; `ports`: a descriptor of the port table.
    pub fn new(own: Tid, ports: OwnedFd) -> io::Result<Route> {
        let mut endpoint = Endpoint::new()?;
        endpoint.enrolled(own.0, PortView::new(ports)?);
        Ok(Route {
            own,
            endpoint,
            egress_flows: EgressFlows { own, flows: Flows::new(), lists: HashMap::new() },
            intake: Intake::new(),
            lent: HashMap::new(),
            noticed: HashMap::new(),
            undelivered: VecDeque::new(),
            data_links: BTreeMap::new(),
            wanted: BTreeSet::new(),
            events: VecDeque::new(),
            has_peers: false,
            was_active: false,
        })
    }

    /// The daemon's segment and doorbell, for tasks.
    pub fn descriptors(&mut self) -> io::Result<[OwnedFd; 2]> {
        self.endpoint.descriptors()
    }

    /// The daemon's doorbell.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.endpoint.bell()
    }

    /// The daemon's place in shared memory, for introductions.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.has_peers = true;
        &mut self.endpoint
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<RouteEvent> {
        self.events.pop_front()
    }

    /// Whether there is anything to do at all.
    pub fn is_needed(&self) -> bool {
        self.has_peers || !self.data_links.is_empty() || !self.events.is_empty()
    }

    // ----- hosts

    /// The link to a host is there.
    pub fn attach(&mut self, host: Tid, pipe: ByteStream) {
        self.wanted.remove(&host);
        self.data_links.insert(host, DataLink::new(Some(pipe)));
    }

    /// There is another connection to a host: all goes on where the other side has got to.
    pub fn resume(&mut self, host: Tid, pipe: ByteStream) {
        self.wanted.remove(&host);
        self.data_links.entry(host).or_insert_with(|| DataLink::new(None)).reconnect(pipe);
    }

    /// The connection to a host is of no use any more; another one may come.
    pub fn disconnect(&mut self, host: Tid) {
        if let Some(data_link) = self.data_links.get_mut(&host) {
            data_link.disconnect();
        }
    }

    /// The link to a host is gone. What was for it waits.
    pub fn detach(&mut self, host: Tid) {
        self.data_links.remove(&host);
    }

    /// The host is no more.
    pub fn forget_host(&mut self, host: Tid) {
        self.data_links.remove(&host);
        self.wanted.remove(&host);
        self.egress_flows.flows.host_gone(host);
        self.intake.host_gone(host);
    }

    /// The socket of the link to a host has become ready, as `epoll` tells once.
    /// `ended`: there will be no more.
    pub fn on_socket_ready(&mut self, host: Tid, readable: bool, writable: bool, ended: bool) {
        if let Some(data_link) = self.data_links.get_mut(&host) {
            data_link.receive.ended |= ended;
            data_link.receive.readable |= readable | ended;
            data_link.transmit.writable |= writable;
        }
    }

    /// A frame of the daemon's own for a task of another host, behind what the task was sent before.
    pub fn send_along(&mut self, to: Tid, frame: &Frame) {
        let host = to.host();
        self.egress_flows.flows.along(to, encode(frame));
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

    /// Takes what a task has sent until now, so that it comes before what follows from a frame of it.
    pub fn take_from(&mut self, task: Tid, context: &dyn RouteContext) {
        if self.endpoint.is_connected(task.0) {
            let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
            let mut taken = 0;
            // Each look takes a batch; a task that writes on and on is not read for ever.
            while taken < TAKEN_MESSAGES_MAX {
                match self.endpoint.poll_peer(task.0, &mut egress) {
                    0 => break,
                    count => taken += count,
                }
            }
            self.request_missing_links();
        }
    }

    /// The task ends: takes all that it has sent. Bodies stay mapped until they have gone out.
    pub fn drain(&mut self, task: Tid, context: &dyn RouteContext) {
        if self.endpoint.is_connected(task.0) {
            let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
            self.endpoint.poll_through(task.0, &mut egress);
            self.request_missing_links();
        }
    }

    /// The task is no more (it was drained before).
    pub fn forget_task(&mut self, task: Tid) {
        self.endpoint.peer_gone(task.0);
        self.egress_flows.lists.remove(&task);
        self.lent.remove(&task);
        self.noticed.remove(&task);
        self.undelivered.retain(|message| message.dst != task);
        self.intake.task_gone(task);
    }

    /// What was sent to hosts without a link.
    fn request_missing_links(&mut self) {
        let flows = &self.egress_flows.flows;
        let lacks = |host: &Tid| !self.data_links.contains_key(host) && !self.wanted.contains(host);
        let hosts: Vec<Tid> = flows.hosts().filter(|host| lacks(host) && flows.has_items(*host)).collect();
        hosts.into_iter().for_each(|host| self.request_link(host));
    }

    // ----- the loop

    /// Before the loop sleeps: from now on tasks ring. Says whether it may sleep; else it should take
    /// another turn.
    pub fn prepare_sleep(&mut self, context: &dyn RouteContext) -> bool {
        if !self.has_peers {
            return true;
        }
        self.endpoint.prepare_sleep();
        let mut egress = Egress { egress_flows: &mut self.egress_flows, context };
        // Who was told to ring may have read so far, and not rung, just before.
        let stirs = self.endpoint.poll(&mut egress) > 0 || !self.tasks_past_notice().is_empty();
        if stirs {
            self.endpoint.awake_unrung();
        }
        !stirs
    }

    /// After the loop has slept; `rung`: the doorbell can be read.
    pub fn wake(&mut self, rung: bool) {
        if rung {
            self.endpoint.awake();
        } else {
            self.endpoint.awake_unrung();
        }
    }

    /// Whether something waits for memory: then [`Route::step`] again after [`PAUSE`].
    pub fn waits_for_memory(&self) -> bool {
        !self.undelivered.is_empty() || self.data_links.values().any(|data_link| data_link.receive.stalled)
    }

    /// A while has passed: other hosts update_read_progress of all that has come from them, so that they need not keep it.
    pub fn acknowledge(&mut self) {
        self.data_links.values_mut().for_each(|data_link| data_link.receive.receipts.hurry());
    }

    /// Gives memory back if nothing has been carried since the last time; says whether that is so.
    pub fn trim(&mut self) -> bool {
        if std::mem::take(&mut self.was_active) {
            return false;
        }
        for data_link in self.data_links.values_mut() {
            if let Some((pipe, _, transmit)) = data_link.connection() {
                pipe.release();
                transmit.release();
            }
        }
        if self.endpoint.has_excess() {
            self.endpoint.tidy();
        }
        true
    }

    /// Takes what there is and carries it as far as it goes, each in its turn. Says whether there may
    /// be more at once, beside what [`Route::prepare_sleep`] sees.
    pub fn step(&mut self, context: &mut dyn RouteContext) -> bool {
        let mut egress = Egress { egress_flows: &mut self.egress_flows, context: &*context };
        self.was_active |= self.endpoint.poll(&mut egress) > 0;
        let mut more = false;
        self.request_missing_links();
        self.retry_undelivered(context);
        self.update_all_read_progress();
        let hosts: Vec<Tid> = self.data_links.keys().copied().collect();
        for host in &hosts {
            let greeted = self.data_links.get_mut(host).map_or(Ok(()), DataLink::greet);
            match greeted.and_then(|()| self.receive_from(*host, context)) {
                Ok(again) => more |= again,
                Err(failure) => self.on_link_failure(*host, &failure),
            }
        }
        while let Some(credit) = self.intake.poll_credit() {
            if let Some(data_link) = self.data_links.get_mut(&credit.host) {
                data_link.transmit.add_credit(&credit);
            }
        }
        for host in &hosts {
            let connection = self.data_links.get_mut(host).and_then(DataLink::connection);
            let Some((pipe, receive, transmit)) = connection else { continue };
            match transmit.write(pipe, *host, &mut self.egress_flows.flows, &mut receive.receipts) {
                Ok(again) => more |= again,
                Err(failure) => self.on_link_failure(*host, &failure),
            }
        }
        more | !self.egress_flows.flows.take_freed().is_empty() | !self.events.is_empty()
    }

    /// A connection that ends is not the end of the link; a host that makes no sense is.
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

    fn on_frame(&mut self, from: Tid, bytes: &[u8]) -> Result<(), LinkFailure> {
        let frame = decode(bytes).ok_or(LinkFailure::ProtocolViolation)?;
        self.events.push_back(RouteEvent::Frame { from, frame: Box::new(frame) });
        Ok(())
    }

    /// Gives a whole message to those for whom it is.
    fn deliver(&mut self, from: Tid, letter: &Letter, payload: &Payload, context: &mut dyn RouteContext) {
        self.was_active = true;
        let [ctx, tag, wid, enc, format] = letter.meta;
        let meta = [ctx, tag, wid, enc, format, letter.src.0];
        for dst in letter.receivers() {
            if !context.accepts_messages(dst) || !self.is_introduced(dst, context) {
                self.intake.dropped(dst, from, letter.bytes);
                continue;
            }
            let message = Undelivered { from, dst, meta, bytes: letter.bytes, payload: payload.clone() };
            let waits = self.undelivered.iter().any(|other| other.dst == dst);
            if waits || !self.queue_to_task(&message, context) {
                self.undelivered.push_back(message);
            }
        }
    }

    fn is_introduced(&mut self, task: Tid, context: &mut dyn RouteContext) -> bool {
        if self.endpoint.is_connected(task.0) {
            return true;
        }
        self.has_peers = true;
        if let Err(error) = context.introduce(task, &mut self.endpoint) {
            self.events.push_back(RouteEvent::Lost { task, why: error.to_string() });
        }
        self.endpoint.is_connected(task.0)
    }

    /// Queues a message to its task; `false` when there is no memory.
    fn queue_to_task(&mut self, message: &Undelivered, context: &mut dyn RouteContext) -> bool {
        let Undelivered { from, dst, meta, bytes, ref payload } = *message;
        let sent = match payload {
            Payload::Short(body) => self.endpoint.send_bytes(dst.0, meta, body),
            Payload::LongPiece(block) => self.endpoint.send_lent(dst.0, meta, block, bytes),
        };
        match sent {
            Err(SendError::NoMemory) => return false,
            Err(SendError::NotConnected) => self.intake.dropped(dst, from, bytes),
            Ok(sent) => {
                if sent == Sent::RingByDaemon {
                    context.ring(dst);
                }
                let block = match payload {
                    Payload::Short(_) => None,
                    Payload::LongPiece(block) => Some(block.clone()),
                };
                self.lent.entry(dst).or_default().push_back(block);
                self.intake.handed(dst, from, bytes, self.endpoint.written(dst.0));
                // A task that is to tell of something anyway is left alone until then.
                if !self.noticed.contains_key(&dst) {
                    self.update_read_progress(dst);
                }
            }
        }
        true
    }

    fn retry_undelivered(&mut self, context: &mut dyn RouteContext) {
        while let Some(message) = self.undelivered.pop_front() {
            if !self.queue_to_task(&message, context) {
                self.undelivered.push_front(message);
                return;
            }
        }
    }

    // ----- what tasks have read

    /// Looks how far a task has read, and says of what it is to tell.
    fn update_read_progress(&mut self, task: Tid) {
        loop {
            let count = self.intake.came_to(task, self.endpoint.read_by(task.0));
            if let Some(lent) = self.lent.get_mut(&task) {
                lent.drain(..count.min(lent.len()));
                if lent.is_empty() {
                    self.lent.remove(&task);
                }
            }
            let mark = self.intake.mark_of_interest(task);
            match mark {
                Some(mark) => self.noticed.insert(task, mark),
                None => self.noticed.remove(&task),
            };
            if !self.endpoint.want_notice(task.0, mark) {
                return;
            }
        }
    }

    fn update_all_read_progress(&mut self) {
        self.tasks_past_notice().into_iter().for_each(|task| self.update_read_progress(task));
    }

    /// Tasks that have read as far as they are to tell.
    fn tasks_past_notice(&mut self) -> Vec<Tid> {
        let endpoint = &mut self.endpoint;
        let noticed = self.noticed.iter();
        noticed.filter(|(task, mark)| endpoint.read_by(task.0) >= **mark).map(|(task, _)| *task).collect()
    }
}

/// A body that goes in the queue to its task.
fn is_short(bytes: usize) -> bool {
    bytes <= INLINE_BYTES_MAX
}
