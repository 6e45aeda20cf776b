//! Messages between tasks of this host and those of others, on the default route.
//!
//! The daemon is a peer of its tasks in shared memory. What they queue for tasks of other hosts it
//! puts into flows (`pvm_core::flows`), as handles: the bodies stay in the senders' heaps until the
//! link to the host takes them. What arrives it puts into its own heap and lends to the receivers.
//! So the daemon's own memory is bounded: by `HELD_BYTES_MAX` for each sender, and for each receiver
//! by a window for each host (or one long message).
#[cfg(test)]
mod breaking_tests;
mod cable;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod inlet;
mod outlet;
mod taking;
#[cfg(test)]
mod tests;

use cable::Cable;
use pvm_core::flows::{Flows, HELD_BYTES_MAX, Intake, Letter, MESSAGE_BYTES, Strange};
use pvm_core::tid::Tid;
use pvm_core::wire::{Frame, decode, encode};
use pvm_fmp::ports::PortView;
use pvm_fmp::{Block, Endpoint, INLINE_BYTES_MAX, Meta, SendError, Sent};
use pvm_net::{LinkError, Pipe};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use taking::{Departures, Taking};

/// How long a message that finds no memory waits for its next try.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Messages taken of a task before the daemon heeds what the task says on its socket: as many as the
/// daemon holds for a task.
const TAKEN_MESSAGES_MAX: usize = (HELD_BYTES_MAX / MESSAGE_BYTES) as usize;

/// What the route has to know of the daemon around it.
pub trait Around {
    /// Whether messages reach that task of this host, now or when it comes.
    fn takes(&self, task: Tid) -> bool;
    /// Whether the host belongs to the machine.
    fn knows(&self, host: Tid) -> bool;
    /// Introduces a task of this host and the daemon to each other.
    fn introduce(&mut self, task: Tid, endpoint: &mut Endpoint) -> io::Result<()>;
    /// Rings a task's doorbell.
    fn ring(&mut self, task: Tid);
}

/// What the daemon has to deal with.
#[derive(Debug, PartialEq)]
pub enum Event {
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
enum Cargo {
    Short(Vec<u8>),
    Long(Block),
}

/// A message that found no room in the queue to its task.
struct Undelivered {
    from: Tid,
    dst: Tid,
    meta: Meta,
    bytes: usize,
    cargo: Cargo,
}

/// The daemon's part of the default route.
pub struct Route {
    own: Tid,
    endpoint: Endpoint,
    departures: Departures,
    intake: Intake<Option<Block>>,
    /// What each task was given, in order: the block that its body lies in.
    lent: HashMap<Tid, VecDeque<Option<Block>>>,
    /// Tasks that ring when they have read so far.
    noticed: HashMap<Tid, u64>,
    undelivered: VecDeque<Undelivered>,
    cables: BTreeMap<Tid, Cable>,
    /// Hosts to which links were asked for.
    wanted: BTreeSet<Tid>,
    events: VecDeque<Event>,
    has_peers: bool,
    /// Something has come since the last [`Route::tidy`].
    stirred: bool,
}

/// A link that cannot go on, and why.
enum Failure {
    Link(LinkError),
    Strange,
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        Failure::Link(error)
    }
}

impl From<Strange> for Failure {
    fn from(_: Strange) -> Failure {
        Failure::Strange
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Link(error) => write!(formatter, "{error}"),
            Failure::Strange => formatter.write_str("the data link makes no sense"),
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
            departures: Departures { own, flows: Flows::new(), lists: HashMap::new() },
            intake: Intake::new(),
            lent: HashMap::new(),
            noticed: HashMap::new(),
            undelivered: VecDeque::new(),
            cables: BTreeMap::new(),
            wanted: BTreeSet::new(),
            events: VecDeque::new(),
            has_peers: false,
            stirred: false,
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
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether there is anything to do at all.
    pub fn is_needed(&self) -> bool {
        self.has_peers || !self.cables.is_empty() || !self.events.is_empty()
    }

    // ----- hosts

    /// The link to a host is there.
    pub fn attach(&mut self, host: Tid, pipe: Pipe) {
        self.wanted.remove(&host);
        self.cables.insert(host, Cable::new(Some(pipe)));
    }

    /// There is another connection to a host: all goes on where the other side has got to.
    pub fn resume(&mut self, host: Tid, pipe: Pipe) {
        self.wanted.remove(&host);
        self.cables.entry(host).or_insert_with(|| Cable::new(None)).plug(pipe);
    }

    /// The connection to a host is of no use any more; another one may come.
    pub fn unplug(&mut self, host: Tid) {
        if let Some(cable) = self.cables.get_mut(&host) {
            cable.unplug();
        }
    }

    /// The link to a host is gone. What was for it waits.
    pub fn detach(&mut self, host: Tid) {
        self.cables.remove(&host);
    }

    /// The host is no more.
    pub fn forget_host(&mut self, host: Tid) {
        self.cables.remove(&host);
        self.wanted.remove(&host);
        self.departures.flows.host_gone(host);
        self.intake.host_gone(host);
    }

    /// The socket of the link to a host has become ready, as `epoll` tells once.
    /// `ended`: there will be no more.
    pub fn ready(&mut self, host: Tid, readable: bool, writable: bool, ended: bool) {
        if let Some(cable) = self.cables.get_mut(&host) {
            cable.inlet.ended |= ended;
            cable.inlet.readable |= readable | ended;
            cable.outlet.writable |= writable;
        }
    }

    /// A frame of the daemon's own for a task of another host, behind what the task was sent before.
    pub fn along(&mut self, to: Tid, frame: &Frame) {
        let host = to.host();
        self.departures.flows.along(to, encode(frame));
        if self.departures.flows.is_overrun(host) {
            let why = "it does not take what it has asked for".to_owned();
            self.departures.flows.host_gone(host);
            self.cables.remove(&host);
            return self.events.push_back(Event::Broken { host, why });
        }
        self.want(host);
    }

    fn want(&mut self, host: Tid) {
        if !self.cables.contains_key(&host) && self.wanted.insert(host) {
            self.events.push_back(Event::Wanted { host });
        }
    }

    // ----- tasks

    /// Takes what a task has sent until now, so that it comes before what follows from a frame of it.
    pub fn take_from(&mut self, task: Tid, around: &dyn Around) {
        if self.endpoint.is_connected(task.0) {
            let mut taking = Taking { departures: &mut self.departures, around };
            let mut taken = 0;
            // Each look takes a batch; a task that writes on and on is not read for ever.
            while taken < TAKEN_MESSAGES_MAX {
                match self.endpoint.poll_peer(task.0, &mut taking) {
                    0 => break,
                    count => taken += count,
                }
            }
            self.ask_for_links();
        }
    }

    /// The task ends: takes all that it has sent. Bodies stay mapped until they have gone out.
    pub fn drain(&mut self, task: Tid, around: &dyn Around) {
        if self.endpoint.is_connected(task.0) {
            let mut taking = Taking { departures: &mut self.departures, around };
            self.endpoint.poll_through(task.0, &mut taking);
            self.ask_for_links();
        }
    }

    /// The task is no more (it was drained before).
    pub fn forget_task(&mut self, task: Tid) {
        self.endpoint.peer_gone(task.0);
        self.departures.lists.remove(&task);
        self.lent.remove(&task);
        self.noticed.remove(&task);
        self.undelivered.retain(|message| message.dst != task);
        self.intake.task_gone(task);
    }

    /// What was sent to hosts without a link.
    fn ask_for_links(&mut self) {
        let flows = &self.departures.flows;
        let lacks = |host: &Tid| !self.cables.contains_key(host) && !self.wanted.contains(host);
        let hosts: Vec<Tid> = flows.hosts().filter(|host| lacks(host) && flows.has_items(*host)).collect();
        hosts.into_iter().for_each(|host| self.want(host));
    }

    // ----- the loop

    /// Before the loop sleeps: from now on tasks ring. Says whether it may sleep; else it should take
    /// another turn.
    pub fn lie_down(&mut self, around: &dyn Around) -> bool {
        if !self.has_peers {
            return true;
        }
        self.endpoint.prepare_park();
        let mut taking = Taking { departures: &mut self.departures, around };
        // Who was told to ring may have read so far, and not rung, just before.
        let stirs = self.endpoint.poll(&mut taking) > 0 || !self.heard().is_empty();
        if stirs {
            self.endpoint.unpark_unrung();
        }
        !stirs
    }

    /// After the loop has slept; `rung`: the doorbell can be read.
    pub fn rise(&mut self, rung: bool) {
        if rung {
            self.endpoint.unpark();
        } else {
            self.endpoint.unpark_unrung();
        }
    }

    /// Whether something waits for memory: then [`Route::turn`] again after [`PAUSE`].
    pub fn waits_for_memory(&self) -> bool {
        !self.undelivered.is_empty() || self.cables.values().any(|cable| cable.inlet.stalled)
    }

    /// A while has passed: other hosts hear of all that has come from them, so that they need not keep it.
    pub fn acknowledge(&mut self) {
        self.cables.values_mut().for_each(|cable| cable.inlet.receipts.hurry());
    }

    /// Gives memory back if nothing has been carried since the last time; says whether that is so.
    pub fn tidy(&mut self) -> bool {
        if std::mem::take(&mut self.stirred) {
            return false;
        }
        for cable in self.cables.values_mut() {
            if let Some((pipe, _, outlet)) = cable.connection() {
                pipe.release();
                outlet.release();
            }
        }
        if self.endpoint.has_excess() {
            self.endpoint.tidy();
        }
        true
    }

    /// Takes what there is and carries it as far as it goes, each in its turn. Says whether there may
    /// be more at once, beside what [`Route::lie_down`] sees.
    pub fn turn(&mut self, around: &mut dyn Around) -> bool {
        let mut taking = Taking { departures: &mut self.departures, around: &*around };
        self.stirred |= self.endpoint.poll(&mut taking) > 0;
        let mut more = false;
        self.ask_for_links();
        self.deliver_again(around);
        self.hear_all();
        let hosts: Vec<Tid> = self.cables.keys().copied().collect();
        for host in &hosts {
            let greeted = self.cables.get_mut(host).map_or(Ok(()), Cable::greet);
            match greeted.and_then(|()| self.pull(*host, around)) {
                Ok(again) => more |= again,
                Err(failure) => self.failed(*host, &failure),
            }
        }
        while let Some(credit) = self.intake.poll_credit() {
            if let Some(cable) = self.cables.get_mut(&credit.host) {
                cable.outlet.add_credit(&credit);
            }
        }
        for host in &hosts {
            let connection = self.cables.get_mut(host).and_then(Cable::connection);
            let Some((pipe, inlet, outlet)) = connection else { continue };
            match outlet.push(pipe, *host, &mut self.departures.flows, &mut inlet.receipts) {
                Ok(again) => more |= again,
                Err(failure) => self.failed(*host, &failure),
            }
        }
        more | !self.departures.flows.take_freed().is_empty() | !self.events.is_empty()
    }

    /// A connection that ends is not the end of the link; a host that makes no sense is.
    fn failed(&mut self, host: Tid, failure: &Failure) {
        let why = failure.to_string();
        match failure {
            Failure::Link(_) => {
                self.unplug(host);
                self.events.push_back(Event::Cut { host, why });
            }
            Failure::Strange => {
                self.cables.remove(&host);
                self.events.push_back(Event::Broken { host, why });
            }
        }
    }

    // ----- what has arrived

    fn frame(&mut self, from: Tid, bytes: &[u8]) -> Result<(), Failure> {
        let frame = decode(bytes).ok_or(Failure::Strange)?;
        self.events.push_back(Event::Frame { from, frame: Box::new(frame) });
        Ok(())
    }

    /// Gives a whole message to those for whom it is.
    fn deliver(&mut self, from: Tid, letter: &Letter, cargo: &Cargo, around: &mut dyn Around) {
        self.stirred = true;
        let [ctx, tag, wid, enc, format] = letter.meta;
        let meta = [ctx, tag, wid, enc, format, letter.src.0];
        for dst in letter.receivers() {
            if !around.takes(dst) || !self.is_introduced(dst, around) {
                self.intake.dropped(dst, from, letter.bytes);
                continue;
            }
            let message = Undelivered { from, dst, meta, bytes: letter.bytes, cargo: cargo.clone() };
            let waits = self.undelivered.iter().any(|other| other.dst == dst);
            if waits || !self.hand_over(&message, around) {
                self.undelivered.push_back(message);
            }
        }
    }

    fn is_introduced(&mut self, task: Tid, around: &mut dyn Around) -> bool {
        if self.endpoint.is_connected(task.0) {
            return true;
        }
        self.has_peers = true;
        if let Err(error) = around.introduce(task, &mut self.endpoint) {
            self.events.push_back(Event::Lost { task, why: error.to_string() });
        }
        self.endpoint.is_connected(task.0)
    }

    /// Queues a message to its task; `false` when there is no memory.
    fn hand_over(&mut self, message: &Undelivered, around: &mut dyn Around) -> bool {
        let Undelivered { from, dst, meta, bytes, ref cargo } = *message;
        let sent = match cargo {
            Cargo::Short(body) => self.endpoint.send_bytes(dst.0, meta, body),
            Cargo::Long(block) => self.endpoint.send_borrowed(dst.0, meta, block, bytes),
        };
        match sent {
            Err(SendError::NoMemory) => return false,
            Err(SendError::NotConnected) => self.intake.dropped(dst, from, bytes),
            Ok(sent) => {
                if sent == Sent::RingByDaemon {
                    around.ring(dst);
                }
                let block = match cargo {
                    Cargo::Short(_) => None,
                    Cargo::Long(block) => Some(block.clone()),
                };
                self.lent.entry(dst).or_default().push_back(block);
                self.intake.handed(dst, from, bytes, self.endpoint.written(dst.0));
                // A task that is to tell of something anyway is left alone until then.
                if !self.noticed.contains_key(&dst) {
                    self.hear(dst);
                }
            }
        }
        true
    }

    fn deliver_again(&mut self, around: &mut dyn Around) {
        while let Some(message) = self.undelivered.pop_front() {
            if !self.hand_over(&message, around) {
                self.undelivered.push_front(message);
                return;
            }
        }
    }

    // ----- what tasks have read

    /// Looks how far a task has read, and says of what it is to tell.
    fn hear(&mut self, task: Tid) {
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

    fn hear_all(&mut self) {
        self.heard().into_iter().for_each(|task| self.hear(task));
    }

    /// Tasks that have read as far as they are to tell.
    fn heard(&mut self) -> Vec<Tid> {
        let endpoint = &mut self.endpoint;
        let noticed = self.noticed.iter();
        noticed.filter(|(task, mark)| endpoint.read_by(task.0) >= **mark).map(|(task, _)| *task).collect()
    }
}

/// A body that goes in the queue to its task.
fn is_short(bytes: usize) -> bool {
    bytes <= INLINE_BYTES_MAX
}
