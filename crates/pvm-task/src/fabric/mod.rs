//! Links to tasks of other hosts on a fabric: joins an endpoint of `pvm-net` with the rules of `pvm-core`.
//!
//! The messages of a [`crate::Task`] travel here by the route in `route`; `cargo xtask fabric` also tests and measures the
//! links by themselves.
//!
//! A [`FabricLinks`] is driven by calls of [`FabricLinks::poll`]. Without a secret, messages travel in clear. With
//! secrets, every frame is sealed (AEGIS-128X2), and a long body is sealed piece by piece in other memory: what the
//! network carries, and what peers can read, is unreadable to others. What does not bear the seal is dropped, so it
//! cannot even disturb a link.
mod bodies;
mod eager;
mod heap;
mod look;
mod offers;
mod pauses;
mod pieces;
mod posted;
pub(crate) mod route;
mod sealed;
mod sending;

use eager::{Bodies, send_frame};
use heap::HeapParts;
pub use look::{Found, look};
pub use offers::Body;
use offers::Offer;
use pauses::Pauses;
pub use pauses::Wait;
use pieces::Pieces;
pub use posted::Accepts;
use posted::{EagerMemory, Posted};
use pvm_core::fabric::{ArrivedBody, Event, Header, Introduction, Link, ToRead, UNCOUNTED_MAX, Untaken};
use pvm_fmp::count_copy;
use pvm_net::fabric::{Endpoint, Event as Arrived, Fabric, Failure, Memory, Peer, PlaceId, RegionId, Slot, Waits};
pub use sealed::Secrets;
use sealed::{FRAME_SEAL_BYTES, Seals};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;

/// How many credits a peer gets: frames that it may have under way.
///
/// * Filled by: each task with a link to this one
/// * Setting: none, since the credits of all peers share the receive buffers of the endpoint
/// * Reached: the peer keeps further messages until it has new credits
/// * Test: `a_receiver_that_reads_nothing_stops_its_sender_at_the_credits`
const PEER_FRAMES_MAX: u32 = 14;

/// How many more receive buffers are in use: what arrives for links that have ended needs some.
const STRANGERS_FRAMES: usize = 16;

/// The longest body that is read from a peer, in bytes.
///
/// * Filled by: each task with a link to this one
/// * Setting: none, since a process can have no more memory
/// * Reached: the link ends
/// * Test: `a_peer_that_breaks_the_rules_is_found_out`
const BODY_BYTES_MAX: u64 = 1 << 46;

/// Names a link of this process.
pub type LinkName = u64;

/// Why a link has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The peer has broken the rules.
    Violation(pvm_core::fabric::Violation),
    /// The provider has failed, for example because the peer's process has ended.
    Provider(Failure),
    /// There is no memory for a body.
    NoMemory,
    /// A body has not the seal that it should have.
    Forged,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Violation(violation) => violation.fmt(f),
            Broken::Provider(failure) => failure.fmt(f),
            Broken::NoMemory => f.write_str("no memory for a body"),
            Broken::Forged => f.write_str("a forged body"),
        }
    }
}

/// What has happened on a link.
#[derive(Debug)]
pub enum FabricEvent {
    /// A message has arrived. The messages of a link arrive in the order in which they were sent.
    Message {
        /// The link.
        link: LinkName,
        /// The content that was sent in the frame.
        content: Vec<u8>,
        /// The body, if the frame did not hold it.
        body: Option<Vec<u8>>,
    },
    /// A message has arrived whose body is in the memory that was posted ([`FabricLinks::post`]).
    InPlace {
        /// The link.
        link: LinkName,
        /// The content that was sent in the frame.
        content: Vec<u8>,
        /// The length of the body.
        bytes: usize,
    },
    /// The peer has taken all messages of the link with smaller numbers.
    Sent(LinkName, u64),
    /// The link has ended. What the peer may not have is to be sent in another way.
    Broken(LinkName, Broken, Untaken),
}

/// A peer and the link to it.
struct Neighbour {
    peer: Peer,
    link: Link,
    seals: Option<Seals>,
    /// The memory of bodies that the peer may still read, with the numbers of their messages.
    offers: VecDeque<(u64, Offer)>,
    /// Bodies that are sent piece by piece.
    pieces: Pieces,
    /// Bodies that are read, by the numbers of their messages.
    places: BTreeMap<u64, PlaceId>,
    /// Eager bodies that are sent, and what is known of the speed of all that arrive.
    bodies: Bodies,
}

/// All links of a process on one fabric.
pub struct FabricLinks {
    endpoint: Endpoint,
    provider: String,
    neighbours: BTreeMap<LinkName, Neighbour>,
    /// Receive buffers that no peer has been promised.
    free_buffers: usize,
    /// What is read, by the tickets of the reads.
    reads: BTreeMap<u64, (LinkName, ToRead)>,
    reads_made: u64,
    /// Reads for which the endpoint had no room.
    waiting_reads: VecDeque<(LinkName, ToRead)>,
    /// Links that may have something to send.
    due: Vec<LinkName>,
    /// The memory of the list of due links that was handled last.
    spare_due: Vec<LinkName>,
    /// Links whose peers may not know yet that their pieces were taken.
    untold: Vec<LinkName>,
    /// Memory for sealed pieces, of links that have ended.
    spare_stages: Vec<RegionId>,
    /// The parts of the task's heap that peers read.
    heap: HeapParts,
    events: VecDeque<FabricEvent>,
    /// Frames that were dropped, because they name no link, or have not its seal.
    pub dropped: u64,
    pauses: Pauses,
    /// The receive that waits for a long body, with memory for it.
    posted: Posted,
    /// When a body last began to travel, or something arrived.
    active_at: Option<Instant>,
}

impl FabricLinks {
    /// Takes over an open fabric.
    pub fn new(fabric: Fabric) -> FabricLinks {
        FabricLinks {
            free_buffers: fabric.endpoint.queues().receives,
            endpoint: fabric.endpoint,
            provider: fabric.provider,
            neighbours: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_made: 0,
            waiting_reads: VecDeque::new(),
            due: Vec::new(),
            spare_due: Vec::new(),
            untold: Vec::new(),
            spare_stages: Vec::new(),
            heap: HeapParts::default(),
            events: VecDeque::new(),
            dropped: 0,
            pauses: Pauses::default(),
            posted: Posted::default(),
            active_at: None,
        }
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Registers memory, for [`Body::InRegion`].
    pub fn register(&mut self, memory: Memory) -> Result<RegionId, Failure> {
        self.endpoint.register(memory)
    }

    /// Makes what a peer must know to send to this process. Returns `None` if all receive buffers are promised to others,
    /// or there are no random numbers.
    pub fn introduce(&mut self) -> Option<Introduction> {
        let buffers = (PEER_FRAMES_MAX + UNCOUNTED_MAX) as usize;
        let mut name = [0; 8];
        pvm_net::fabric::fill_random(&mut name)?;
        self.free_buffers = self.free_buffers.checked_sub(buffers)?;
        self.use_buffers().ok()?;
        Some(Introduction {
            provider: self.provider.clone(),
            address: self.endpoint.address().to_vec(),
            link: u64::from_le_bytes(name),
            credits: PEER_FRAMES_MAX,
            frame_bytes: self.endpoint.queues().buffer_bytes as u32,
        })
    }

    /// Takes back an introduction to which no link was made.
    pub fn withdraw(&mut self, _ours: &Introduction) {
        self.free_promised();
    }

    fn free_promised(&mut self) {
        self.free_buffers += (PEER_FRAMES_MAX + UNCOUNTED_MAX) as usize;
        // If the provider takes no more buffers, that is noticed with the next message.
        let _ = self.use_buffers();
    }

    /// Uses the buffers that peers were promised, and some for what nobody should send.
    fn use_buffers(&mut self) -> Result<(), Failure> {
        let promised = self.endpoint.queues().receives - self.free_buffers;
        self.endpoint.use_receives(promised + STRANGERS_FRAMES)
    }

    /// Makes a link to a peer that knows `ours`. `secrets` seal what is sent and what arrives.
    pub fn connect(
        &mut self,
        ours: &Introduction,
        theirs: &Introduction,
        secrets: Option<&Secrets>,
    ) -> Result<LinkName, Failure> {
        let unfit = || Failure { call: "introduction", words: "the peer uses another provider, or has no room".into() };
        let mut link = Link::new(ours, theirs, BODY_BYTES_MAX).ok_or_else(unfit)?;
        let peer = self.endpoint.insert(&theirs.address)?;
        let seals = secrets.map(Seals::new);
        let (offers, pieces, places) = (VecDeque::new(), Pieces::default(), BTreeMap::new());
        // At first, those that need no further credits.
        let bodies = Bodies::new(ours.credits as usize * ours.frame_bytes as usize);
        link.wish(bodies.wishes());
        self.neighbours.insert(ours.link, Neighbour { peer, link, seals, offers, pieces, places, bodies });
        Ok(ours.link)
    }

    /// Delivers only this number of messages of a link until [`FabricLinks::release`].
    pub fn hold_after(&mut self, name: LinkName, messages: u64) {
        if let Some(from) = self.neighbours.get_mut(&name) {
            from.link.hold_after(messages);
        }
    }

    /// Delivers the messages of a link that were held, and later ones.
    pub fn release(&mut self, name: LinkName) {
        if let Some(from) = self.neighbours.get_mut(&name) {
            from.link.release();
            self.take_link_events(name);
        }
    }

    /// Returns whether a body of a message of this link is being read, or waits to be read.
    pub fn is_reading(&self, name: LinkName) -> bool {
        self.reads.values().any(|(link, _)| *link == name) || self.waiting_reads.iter().any(|(link, ..)| *link == name)
    }

    /// Ends a link, and returns the messages that the peer may not have.
    pub fn disconnect(&mut self, name: LinkName) -> Option<Untaken> {
        let neighbour = self.neighbours.remove(&name)?;
        self.posted.forget(name);
        let memory = (&mut self.endpoint, &mut self.heap, &mut self.spare_stages);
        let offers = neighbour.offers.into_iter().map(|(_, offer)| offer);
        Neighbour::free_bodies(offers, neighbour.pieces, neighbour.seals.is_some(), memory);
        for place in neighbour.places.into_values() {
            self.endpoint.give_up_body(place);
        }
        self.endpoint.remove(neighbour.peer);
        self.waiting_reads.retain(|(link, ..)| *link != name);
        self.reads.retain(|_, (link, _)| *link != name);
        self.free_promised();
        Some(neighbour.link.into_untaken())
    }

    fn give_up(&mut self, name: LinkName, why: Broken) {
        if let Some(untaken) = self.disconnect(name) {
            self.events.push_back(FabricEvent::Broken(name, why, untaken));
        }
    }

    /// Lets everything proceed, and returns the next event. After an error the fabric is useless.
    pub fn poll(&mut self) -> Result<Option<FabricEvent>, Failure> {
        while self.events.is_empty() {
            self.proceed()?;
            // Pieces are sealed one by one, so that the provider sends each before the next one is ready.
            if !self.can_make_piece() {
                break;
            }
        }
        Ok(self.events.pop_front())
    }

    /// Returns whether [`FabricLinks::poll`] has something to do even if the provider has nothing new.
    pub fn has_more(&self) -> bool {
        !self.events.is_empty() || self.endpoint.has_events() || !self.waiting_reads.is_empty()
    }

    fn proceed(&mut self) -> Result<(), Failure> {
        while let Some(arrived) = self.endpoint.poll()? {
            self.pauses.reset();
            self.note_activity();
            match arrived {
                Arrived::Received(slot) => self.receive(slot)?,
                Arrived::PartRead { ticket, part } => self.piece_arrived(ticket, &part),
                Arrived::Read { .. } => unreachable!("all bodies are read by parts"),
                Arrived::ReadFailed { ticket, failure } => {
                    if let Some((link, _)) = self.reads.remove(&ticket) {
                        self.give_up(link, Broken::Provider(failure));
                    }
                }
                Arrived::SendFailed { peer, failure } => {
                    let names = self.neighbours.iter().filter(|(_, to)| to.peer == peer).map(|(name, _)| *name);
                    for name in names.collect::<Vec<_>>() {
                        self.give_up(name, Broken::Provider(failure.clone()));
                    }
                }
            }
            if !self.events.is_empty() {
                break;
            }
        }
        if self.events.is_empty() {
            // Not before: the owner may first give back the body that it gets, whose memory is then in a cache.
            self.read_waiting();
        }
        if self.reads.is_empty() && self.waiting_reads.is_empty() {
            // Nothing more of the peers' memory is on its way: they may use it again.
            for name in std::mem::take(&mut self.untold) {
                if let Some(from) = self.neighbours.get_mut(&name) {
                    from.link.report_taken_pieces();
                    self.mark_due(name);
                }
            }
        }
        let has_events = !self.events.is_empty();
        let mut due = std::mem::replace(&mut self.due, std::mem::take(&mut self.spare_due));
        for name in due.drain(..) {
            match self.neighbours.get(&name) {
                // The owner may answer an event, and the answer grants the same.
                Some(to) if has_events && to.link.can_wait() => self.mark_due(name),
                _ => self.transmit(name),
            }
        }
        self.spare_due = due;
        Ok(())
    }

    fn receive(&mut self, mut slot: Slot) -> Result<(), Failure> {
        let name = Header::link_of(self.endpoint.message(&slot));
        let known = name.and_then(|name| self.neighbours.get_mut(&name).map(|from| (name, from)));
        let Some((name, from)) = known else {
            self.dropped += 1;
            return self.endpoint.post(slot);
        };
        let (frame, spares, rooms) = self.endpoint.message_mut(&mut slot);
        let mut memory = EagerMemory { link: name, posted: &mut self.posted, spares, rooms };
        let result = match &from.seals {
            Some(seals) => seals.take_in(frame, &mut from.link, &mut memory),
            None => Some(from.link.receive(frame, &mut memory)),
        };
        self.endpoint.post(slot)?;
        match result {
            None => self.dropped += 1,
            Some(Ok(())) => {
                from.pieces.taken(&from.link);
                self.mark_due(name);
                self.take_link_events(name);
            }
            Some(Err(violation)) => self.give_up(name, Broken::Violation(violation)),
        }
        Ok(())
    }

    fn take_link_events(&mut self, name: LinkName) {
        while let Some(event) = self.neighbours.get_mut(&name).and_then(|from| from.link.poll_event()) {
            match event {
                Event::Message { number, content, body } => {
                    let filled = self.posted.take_filled(name, number);
                    let body = match body {
                        ArrivedBody::None | ArrivedBody::Placed { .. } => Ok(None),
                        ArrivedBody::Read => self.take_body(name, number),
                        ArrivedBody::Here(body) => {
                            count_copy(body.len());
                            Ok(Some(body))
                        }
                    };
                    self.body_ended(name, number);
                    match (body, filled) {
                        (Ok(_), Some(bytes)) => {
                            self.events.push_back(FabricEvent::InPlace { link: name, content, bytes });
                        }
                        (Ok(body), None) => self.events.push_back(FabricEvent::Message { link: name, content, body }),
                        (Err(failure), _) => self.give_up(name, Broken::Provider(failure)),
                    }
                }
                Event::Read(read) => self.read(name, read),
                Event::Taken(number) => self.taken(name, number),
                Event::Begun { message, bytes, transfer } => {
                    if let Some(from) = self.neighbours.get_mut(&name) {
                        from.bodies.begin(message, bytes, transfer);
                    }
                }
                Event::NoMemory => self.give_up(name, Broken::NoMemory),
            }
        }
    }

    /// Notes how long the body of a message has taken, if it has one, and what the peer is to do with the next ones.
    fn body_ended(&mut self, name: LinkName, message: u64) {
        if let Some(from) = self.neighbours.get_mut(&name) {
            if from.bodies.end(message) {
                from.link.wish(from.bodies.wishes());
            }
        }
    }

    /// Says how to wait for the next event, after [`FabricLinks::poll`] has returned none. Reports before what has
    /// arrived, so that no peer keeps its messages longer than necessary.
    pub fn how_to_wait(&mut self, now: Instant) -> Wait {
        for name in self.neighbours.keys().copied().collect::<Vec<_>>() {
            if let Some(to) = self.neighbours.get_mut(&name) {
                to.link.report_taken();
            }
            self.transmit(name);
        }
        if !self.events.is_empty()
            || !self.waiting_reads.is_empty()
            || self.can_make_piece()
            || self.carries_bodies(now)
        {
            return Wait::Not;
        }
        let can_sleep = match self.endpoint.waits() {
            Waits::Descriptor if !self.endpoint.may_sleep() => return Wait::Not,
            Waits::Descriptor => true,
            Waits::Timer => false,
        };
        self.pauses.next(now, can_sleep)
    }

    /// Returns whether everything was handed over to the provider: what is left is sent by later calls of
    /// [`FabricLinks::poll`].
    pub fn is_all_sent(&self, name: LinkName) -> bool {
        self.neighbours.get(&name).is_none_or(|to| to.link.is_all_sent())
    }

    /// Returns whether the peer has taken everything that was sent on a link.
    pub fn is_all_taken(&self, name: LinkName) -> bool {
        self.neighbours.get(&name).is_none_or(|to| to.link.is_all_taken())
    }
}

impl Neighbour {
    /// Returns whether the peer has bodies to read, or parts of them are on their way to it.
    fn offers_bodies(&self) -> bool {
        !self.offers.is_empty() || self.pieces.is_used() || !self.bodies.eager.is_empty()
    }

    fn frame_seal_bytes(&self) -> usize {
        if self.seals.is_some() { FRAME_SEAL_BYTES } else { 0 }
    }
}

fn no_region() -> Failure {
    Failure { call: "fi_mr_reg", words: "there is no such region".into() }
}
