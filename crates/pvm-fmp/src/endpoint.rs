//! A task's place in the shared-memory layer.
use crate::arrival::{Arrival, FRAGMENTS_MAX, Inline, Offer, Outcome, Owner, Remote, Sink, moved_body};
use crate::heap::{Block, Heap, SharedHeap};
use crate::offer::{self, Answer, Look};
use crate::peer::{Inbound, Offers, Outstanding, OwnLine, Peer};
use crate::ports::PortView;
use crate::queue::{Entry, Kind};
use crate::segment::{Mapping, PEERS_MAX, PeerLine, Segment};
use crate::sync::{AtomicU32, Ordering};
use crate::{INLINE_BYTES_MAX, Meta, NoMemory, Posted, SendError, Sent};
use rustix::event::EventfdFlags;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bodies from this size on are offered to a waiting peer instead of copied twice, in bytes.
pub const OFFER_BYTES_MIN: usize = 16 << 10;
/// Doorbells kept open; those of further peers are rung by the daemon.
const BELLS_MAX: usize = 256;
/// Entries taken from one peer before the next one has its turn.
const BATCH: usize = 256;
/// Up to this many peers all are looked at in each poll; of more, the recent ones and some others.
const GLANCE_PEERS: usize = 32;
/// How long a sender waits for the answer to an offer, beside the time for the copy itself.
const OFFER_PATIENCE: Duration = Duration::from_millis(2);
/// The slowest copy that is still waited for, in bytes a microsecond.
const OFFER_BYTES_PER_MICROSECOND: usize = 500;
/// How long a sender of a long body waits for the peer to begin its receive.
const LINGER: Duration = Duration::from_micros(4);
/// Sends after which the sender should look for blocks that came back.
const SENDS_PER_POLL: u32 = 64;
/// Bytes sent through the heap after which it should.
const BYTES_PER_POLL: usize = 1 << 20;
/// Free memory that makes a nap worth interrupting to give it back, in bytes.
const EXCESS_BYTES: u64 = 8 << 20;
/// Tokens in one release entry (one line).
const TOKENS_PER_RELEASE: usize = 8;
/// Released bytes that are reported at once.
const PROMPT_RELEASE_BYTES: usize = 32 << 10;

/// A task's place in the shared-memory layer: its segment, its peers.
pub struct Endpoint {
    tid: u32,
    ports: Option<PortView>,
    heap: SharedHeap,
    bell: OwnedFd,
    /// Read by peers to make sure that our process id means us.
    _nonce: Box<u64>,
    peers: Vec<Option<Box<Peer>>>,
    /// Index into `peers`, plus one, by slot.
    by_slot: Vec<u32>,
    /// Peers, those that sent lately first.
    order: Vec<usize>,
    /// Where the next glance at the others begins.
    glance: usize,
    /// Free lines of our table, and how many were ever used.
    free_lines: Vec<usize>,
    used_lines: usize,
    bells: usize,
    /// Some reading has not been reported to its writer yet.
    unpublished: bool,
    napping: bool,
    nap: u32,
    dirty: Rc<Cell<bool>>,
    copy_allowed: Rc<Cell<bool>>,
    sends: u32,
    sent_bytes: usize,
}

/// What became of one entry.
enum Step {
    Message,
    Other,
    Wait,
    Damaged,
}

impl Endpoint {
    /// Makes the segment (memfd) and the doorbell (eventfd).
    pub fn new() -> io::Result<Endpoint> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Endpoint::with(Segment::new()?, bell)
    }

    /// Takes over what the daemon made for this task before it came ([`crate::Blank`]).
    pub fn adopt(segment: OwnedFd, bell: OwnedFd) -> io::Result<Endpoint> {
        Endpoint::with(Segment::adopt(segment)?, bell)
    }

    fn with(segment: Segment, bell: OwnedFd) -> io::Result<Endpoint> {
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        let nonce = Box::new(u64::from_ne_bytes(bytes));
        let header = segment.mapping.header();
        header.nonce.store(*nonce, Ordering::Relaxed);
        header.nonce_address.store(&raw const *nonce as u64, Ordering::Relaxed);
        Ok(Endpoint {
            tid: 0,
            ports: None,
            heap: Rc::new(RefCell::new(Heap::new(segment))),
            bell,
            _nonce: nonce,
            peers: Vec::new(),
            by_slot: Vec::new(),
            order: Vec::new(),
            glance: 0,
            free_lines: Vec::new(),
            used_lines: 0,
            bells: 0,
            unpublished: false,
            napping: false,
            nap: 0,
            dirty: Rc::default(),
            copy_allowed: Rc::new(Cell::new(true)),
            sends: 0,
            sent_bytes: 0,
        })
    }

    /// Duplicates of the descriptors to hand to the daemon with `Hello`: the segment
    /// (read-only), the doorbell.
    pub fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        let heap = self.heap.borrow();
        Ok([heap.source().descriptor().try_clone_to_owned()?, self.bell.try_clone()?])
    }
    /// The own doorbell, readable when a peer rang.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
    /// Tells the own tid and the host's port table, once known.
    pub fn enrolled(&mut self, tid: u32, ports: PortView) {
        self.tid = tid;
        self.ports = Some(ports);
    }
    /// The port table.
    pub fn ports(&self) -> Option<&PortView> {
        self.ports.as_ref()
    }
    /// Whether tasks of this host outnumber its cores, so that waiting should sleep early.
    pub fn crowded(&self) -> bool {
        self.ports.as_ref().is_some_and(PortView::crowded)
    }

    // ----- peers

    /// A peer that the daemon introduced (`ToTask::Peer`). A second introduction is ignored.
    pub fn connect(&mut self, tid: u32, segment: OwnedFd, bell: OwnedFd) -> io::Result<()> {
        if self.is_connected(tid) {
            return Ok(());
        }
        let mapping = Mapping::of_peer(segment)?;
        let our_line = self.take_line(tid).ok_or(io::ErrorKind::OutOfMemory)?;
        let our_line = OwnLine::new(&self.heap, our_line);
        let owner = Owner { mapping, released: RefCell::default(), released_bytes: Cell::new(0), dirty: self.dirty.clone() };
        let keep_bell = self.bells < BELLS_MAX;
        self.bells += usize::from(keep_bell);
        let peer = Box::new(Peer {
            tid,
            owner: Rc::new(owner),
            bell: keep_bell.then_some(bell),
            rung: Cell::new(0),
            our_line,
            their_line: None,
            searched: None,
            out: None,
            inbound: None,
            outstanding: Outstanding::default(),
            offers: Offers::default(),
        });
        let index = match self.peers.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.peers.push(None);
                self.peers.len() - 1
            }
        };
        self.peers[index] = Some(peer);
        let slot = slot_of(tid);
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, 0);
        }
        self.by_slot[slot] = index as u32 + 1;
        self.order.insert(0, index);
        Ok(())
    }

    /// A line of our table for the peer.
    fn take_line(&mut self, tid: u32) -> Option<usize> {
        let index = self.free_lines.pop().or_else(|| {
            (self.used_lines < PEERS_MAX).then(|| {
                self.used_lines += 1;
                self.used_lines - 1
            })
        })?;
        let heap = self.heap.borrow();
        let (header, line) = (heap.source().mapping.header(), heap.source().mapping.peer_line(index));
        for word in [&line.ring, &line.offer, &line.consumed, &line.taken] {
            word.store(0, Ordering::Relaxed);
        }
        // Pairs with the acquire in `Peer::find_line`: who finds the line finds it clean.
        line.tid.store(tid, Ordering::Release);
        header.peers.0.store(self.used_lines as u32, Ordering::Release);
        header.table_version.fetch_add(1, Ordering::Release);
        Some(index)
    }

    /// Whether `send_*` to that tid can work.
    pub fn is_connected(&self, tid: u32) -> bool {
        self.index_of(tid).is_some()
    }

    #[inline]
    fn index_of(&self, tid: u32) -> Option<usize> {
        let index = (*self.by_slot.get(slot_of(tid))?).checked_sub(1)? as usize;
        (self.peers[index].as_ref()?.tid == tid).then_some(index)
    }

    /// The peer is dead (`ToTask::PeerGone`); call after a [`Endpoint::poll`] that followed the
    /// news. Bodies of it that are still held stay readable.
    pub fn peer_gone(&mut self, tid: u32) {
        let Some(index) = self.index_of(tid) else { return };
        let peer = self.peers[index].take().expect("found just now");
        self.by_slot[slot_of(tid)] = 0;
        self.order.retain(|other| *other != index);
        self.bells -= usize::from(peer.bell.is_some());
        peer.our_line.get().tid.store(0, Ordering::Release);
        self.free_lines.push(peer.our_line.index);
    }

    // ----- sending

    /// A block of at least `bytes` in the own heap.
    pub fn allocate(&mut self, bytes: usize) -> Result<Block, NoMemory> {
        Block::allocate(&self.heap, bytes)
    }

    /// Sends bytes: in the queue when they are few, straight from `body` when they are many and
    /// the peer waits for them, else through the heap. `body` is free when the call returns.
    /// Never waits for the peer to receive.
    #[inline]
    pub fn send_bytes(&mut self, to: u32, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        if body.len() <= INLINE_BYTES_MAX {
            return self.queue(to, Kind::Message, &meta, body);
        }
        self.send_long(to, meta, body)
    }

    fn send_long(&mut self, to: u32, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        if body.len() >= OFFER_BYTES_MIN && self.peer_waits_for(index, &meta) {
            return self.send_offer(index, meta, body);
        }
        let block = self.allocate(body.len()).map_err(|_| SendError::NoMemory)?;
        block.write(0, body);
        self.send_blocks(to, meta, &[(block, body.len())])
    }

    /// Sends what lies in blocks (each with its used length), without a copy. The blocks may be
    /// sent again, to others too; what was sent must not be overwritten as long as somebody may
    /// read it (append behind it instead).
    pub fn send_blocks(&mut self, to: u32, meta: Meta, body: &[(Block, usize)]) -> Result<Sent, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        let bytes = body.iter().map(|(_, used)| used).sum::<usize>();
        if body.len() > FRAGMENTS_MAX {
            return self.send_joined(to, meta, body, bytes);
        }
        let peer = self.peers[index].as_mut().expect("connected");
        let token = peer.outstanding.add(body.iter().map(|(block, _)| block.clone()).collect());
        let mut descriptor = [0u8; 8 + 16 * FRAGMENTS_MAX];
        descriptor[..4].copy_from_slice(&token.to_ne_bytes());
        descriptor[4..8].copy_from_slice(&(body.len() as u32).to_ne_bytes());
        for ((block, used), place) in body.iter().zip(descriptor[8..].chunks_exact_mut(16)) {
            place[..8].copy_from_slice(&block.offset().to_ne_bytes());
            place[8..].copy_from_slice(&(*used as u64).to_ne_bytes());
        }
        let sent = self.queue(to, Kind::Blocks, &meta, &descriptor[..8 + 16 * body.len()]);
        if sent.is_err() {
            self.peers[index].as_mut().expect("connected").outstanding.remove(token);
        }
        self.sent_bytes += bytes;
        sent
    }

    /// Too many fragments for a descriptor: one block instead.
    fn send_joined(&mut self, to: u32, meta: Meta, body: &[(Block, usize)], bytes: usize) -> Result<Sent, SendError> {
        let whole = self.allocate(bytes).map_err(|_| SendError::NoMemory)?;
        let mut done = 0;
        for (block, used) in body {
            whole.fill_from(done, block, *used);
            done += used;
        }
        self.send_blocks(to, meta, &[(whole, bytes)])
    }

    /// Puts an entry into the queue to `to` and wakes it.
    #[inline]
    fn queue(&mut self, to: u32, kind: Kind, meta: &Meta, body: &[u8]) -> Result<Sent, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
            return Ok(Sent::Done);
        }
        self.sends += 1;
        let peer = self.peers[index].as_mut().expect("connected");
        peer.push(self.tid, &self.heap, kind, meta, body).map_err(|NoMemory| SendError::NoMemory)?;
        Ok(ring(peer))
    }

    /// Whether enough has been sent since the last [`Endpoint::poll`] that blocks should be
    /// collected which receivers have returned.
    pub fn should_poll(&self) -> bool {
        self.sends >= SENDS_PER_POLL || self.sent_bytes >= BYTES_PER_POLL
    }

    /// Whether the peer is in a one-call receive for a message like this.
    fn peer_waits_for(&mut self, index: usize, meta: &Meta) -> bool {
        let crowded = self.crowded();
        let (us, peer) = (self.tid, self.peers[index].as_mut().expect("connected"));
        if peer.offers.refused || !settle(peer, us) {
            return false;
        }
        let owner = peer.owner.clone();
        let posted = &owner.mapping.header().posted.0;
        let waits = || {
            let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
            posted.active.load(Ordering::Acquire) != 0
                && [0, us].contains(&word(&posted.from))
                && (0..5).all(|at| meta[at] & word(&posted.mask[at]) == word(&posted.value[at]))
        };
        if waits() {
            return true;
        }
        if crowded || peer.offers.linger == 0 {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < LINGER {
            if waits() {
                peer.offers.linger = 4;
                return true;
            }
            std::hint::spin_loop();
        }
        peer.offers.linger -= 1;
        false
    }

    /// Offers `body` to the waiting peer; after a while without answer it goes through the heap.
    fn send_offer(&mut self, index: usize, meta: Meta, body: &[u8]) -> Result<Sent, SendError> {
        let us = self.tid;
        let peer = self.peers[index].as_mut().expect("connected");
        let ours = peer.our_line;
        peer.offers.number += 1;
        let number = peer.offers.number;
        let mut words = [0u8; 24];
        for (place, word) in words.chunks_exact_mut(8).zip([body.as_ptr() as u64, body.len() as u64, number]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        offer::stand(&ours.get().offer, number);
        let to = peer.tid;
        let sent = self.queue(to, Kind::Offer, &meta, &words)?;
        let patience = OFFER_PATIENCE + Duration::from_micros((body.len() / OFFER_BYTES_PER_MICROSECOND) as u64);
        if sent == Sent::RingByDaemon {
            // The caller rings when we return, so there is nothing to wait for.
            self.move_offer(index, number, body)?;
            return Ok(sent);
        }
        let start = Instant::now();
        let mut spins = 0u32;
        loop {
            let peer = self.peers[index].as_mut().expect("connected");
            let answer = peer.theirs(us).map_or(Answer::Open, |line| offer::answer(&line.taken, number));
            match answer {
                Answer::Taken => {
                    peer.offers.linger = 4;
                    return Ok(sent);
                }
                Answer::PleaseMove => {
                    peer.offers.refused = true;
                    break;
                }
                Answer::Open => {}
            }
            spins += 1;
            if spins % 64 == 0 {
                if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
                    return Ok(sent);
                }
                if start.elapsed() > patience {
                    break;
                }
                if spins > 20_000 || self.crowded() {
                    std::thread::yield_now();
                }
            }
            std::hint::spin_loop();
        }
        self.move_offer(index, number, body)?;
        Ok(sent)
    }

    /// Moves an offered body to the heap and tells the peer. Where there is no memory the offer
    /// stands until the peer takes it: it has said that it waits for it.
    fn move_offer(&mut self, index: usize, number: u64, body: &[u8]) -> Result<(), SendError> {
        let (heap, us) = (self.heap.clone(), self.tid);
        let block = loop {
            match Block::allocate(&heap, body.len()) {
                Ok(block) => break block,
                Err(NoMemory) => {
                    let peer = self.peers[index].as_mut().expect("connected");
                    let taken = peer.theirs(us).is_some_and(|line| offer::answer(&line.taken, number) == Answer::Taken);
                    let lives = self.ports.as_ref().is_none_or(|ports| ports.alive(peer.tid));
                    if taken || !lives {
                        return Ok(());
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        };
        block.write(0, body);
        let peer = self.peers[index].as_mut().expect("connected");
        let line = peer.our_line;
        let offset = block.offset();
        let token = peer.outstanding.add(vec![block]);
        line.get().moved_offset.store(offset, Ordering::Relaxed);
        line.get().moved_bytes.store(body.len() as u64, Ordering::Relaxed);
        line.get().moved_token.store(u64::from(token), Ordering::Relaxed);
        offer::moved(&line.get().offer, number);
        peer.offers.moved = Some(token);
        Ok(())
    }

    // ----- receiving

    /// Hands everything that has arrived to `sink`. Returns how many messages. No system call.
    #[inline]
    pub fn poll(&mut self, sink: &mut impl Sink) -> usize {
        (self.sends, self.sent_bytes) = (0, 0);
        let count = if self.napping || self.order.len() <= GLANCE_PEERS {
            (0..self.order.len()).map(|place| self.drain(place, sink)).sum()
        } else {
            self.poll_some(sink)
        };
        if count == 0 && (self.unpublished || self.dirty.get()) {
            self.idle();
        }
        count
    }

    /// With many peers: those that sent lately, and some of the others.
    fn poll_some(&mut self, sink: &mut impl Sink) -> usize {
        let recent = GLANCE_PEERS / 2;
        let mut count = (0..recent).map(|place| self.drain(place, sink)).sum();
        for _ in 0..GLANCE_PEERS - recent {
            self.glance = if self.glance + 1 >= self.order.len() { recent } else { self.glance + 1 };
            let got = self.drain(self.glance, sink);
            if got > 0 {
                self.order[..=self.glance].rotate_right(1);
                count += got;
            }
        }
        count
    }

    /// Takes what one peer has sent.
    #[inline]
    fn drain(&mut self, place: usize, sink: &mut impl Sink) -> usize {
        let index = self.order[place];
        let peer = self.peers[index].as_mut().expect("ordered peers exist");
        let Some(inbound) = &peer.inbound else { return self.find_queue(index, sink) };
        // SAFETY: the slice is used within this statement, the peer holds the mapping.
        if matches!(inbound.reader.next(unsafe { inbound.lines() }), Ok(None)) {
            return 0;
        }
        self.drain_some(index, sink)
    }

    /// The peer had no queue to us when we last looked.
    #[cold]
    fn find_queue(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let us = self.tid;
        let peer = self.peers[index].as_mut().expect("ordered peers exist");
        let Some(line) = peer.find_line(us) else { return 0 };
        peer.inbound = Inbound::find(&peer.owner, peer.owner.mapping.peer_line(line));
        if peer.inbound.is_some() { self.drain_some(index, sink) } else { 0 }
    }

    fn drain_some(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let mut count = 0;
        for _ in 0..BATCH {
            match self.step(index, sink) {
                Some(Step::Message) => count += 1,
                Some(Step::Other) => {}
                Some(Step::Wait) | None => break,
                Some(Step::Damaged) => {
                    self.shun(index);
                    break;
                }
            }
        }
        if self.peers[index].as_ref().and_then(|peer| peer.inbound.as_ref()).is_some_and(Inbound::should_publish) {
            self.publish(index);
        } else {
            self.unpublished = true;
        }
        if self.dirty.get() {
            self.flush_releases(false);
        }
        count
    }

    /// Says how far we have read.
    fn publish(&mut self, index: usize) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        if let Some(inbound) = peer.inbound.as_mut().filter(|inbound| inbound.consumed != inbound.published) {
            inbound.published = inbound.consumed;
            // Pairs with the acquire in `Peer::consumed`: our reads of those lines are over.
            peer.our_line.get().consumed.store(inbound.consumed, Ordering::Release);
        }
    }

    /// Nothing has arrived: time for what can wait.
    #[cold]
    fn idle(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            (0..self.peers.len()).for_each(|index| self.publish(index));
        }
        if self.dirty.get() {
            self.flush_releases(true);
        }
    }

    /// A peer whose queue is damaged is not listened to any more.
    fn shun(&mut self, index: usize) {
        self.order.retain(|other| *other != index);
    }

    /// Handles the next entry of a peer's queue.
    #[inline]
    fn step(&mut self, index: usize, sink: &mut impl Sink) -> Option<Step> {
        let peer = self.peers[index].as_mut().expect("connected");
        let inbound = peer.inbound.as_mut()?;
        // SAFETY: the slice is used within this method, during which the peer keeps its mapping.
        let ring = unsafe { inbound.lines() };
        let entry = match inbound.reader.next(ring) {
            Ok(entry) => entry?,
            Err(_) => return Some(Step::Damaged),
        };
        let lines = entry.lines();
        let step = match entry.kind {
            Kind::Message => {
                sink.arrived(peer.tid, entry.meta(), Arrival::Inline(Inline(entry)));
                Step::Message
            }
            Kind::Link => {
                inbound.consumed += lines as u64;
                return Some(follow_link(peer, &entry));
            }
            _ => self.step_long(index, &entry, sink),
        };
        if matches!(step, Step::Message | Step::Other) {
            let inbound = self.peers[index].as_mut()?.inbound.as_mut()?;
            inbound.consumed += lines as u64;
            inbound.reader.advance(lines);
        }
        Some(step)
    }

    /// Entries whose matter lies elsewhere.
    fn step_long(&mut self, index: usize, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
        let peer = self.peers[index].as_mut().expect("connected");
        let owner = peer.owner.clone();
        match entry.kind {
            Kind::Blocks => {
                let mut descriptor = [0u8; INLINE_BYTES_MAX];
                let bytes = entry.copy_to(&mut descriptor);
                match Remote::from_descriptor(&owner, &descriptor[..bytes]) {
                    Some(remote) => {
                        sink.arrived(peer.tid, entry.meta(), Arrival::Remote(remote));
                        Step::Message
                    }
                    None => Step::Damaged,
                }
            }
            Kind::Offer => {
                let lives = self.ports.as_ref().is_some_and(|ports| ports.alive(peer.tid));
                let Some(line) = peer.find_line(self.tid) else { return Step::Damaged };
                let (theirs, ours) = (owner.mapping.peer_line(line), peer.our_line);
                receive_offer(peer.tid, &owner, theirs, ours.get(), &self.copy_allowed, lives, entry, sink)
            }
            _ => {
                let mut tokens = [0u8; 4 * TOKENS_PER_RELEASE];
                let bytes = entry.copy_to(&mut tokens);
                for token in tokens[..bytes].chunks_exact(4) {
                    peer.outstanding.remove(u32::from_ne_bytes(token.try_into().expect("four")));
                }
                Step::Other
            }
        }
    }

    /// Tells senders which of their blocks are no longer read.
    fn flush_releases(&mut self, all: bool) {
        self.dirty.set(false);
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            let count = peer.owner.released.borrow().len();
            if count == 0 {
                continue;
            }
            if !all && count < TOKENS_PER_RELEASE && peer.owner.released_bytes.get() < PROMPT_RELEASE_BYTES {
                self.dirty.set(true);
                continue;
            }
            let tokens = std::mem::take(&mut *peer.owner.released.borrow_mut());
            peer.owner.released_bytes.set(0);
            for group in tokens.chunks(TOKENS_PER_RELEASE) {
                let mut body = [0u8; 4 * TOKENS_PER_RELEASE];
                for (place, token) in body.chunks_exact_mut(4).zip(group) {
                    place.copy_from_slice(&token.to_ne_bytes());
                }
                let pushed = peer.push(self.tid, &self.heap, Kind::Release, &[0; 5], &body[..4 * group.len()]);
                if pushed.is_err() {
                    // No memory for the news: it waits for the next time.
                    peer.owner.released.borrow_mut().extend_from_slice(group);
                    self.dirty.set(true);
                }
            }
        }
    }

    /// Says what the task waits for in a one-call receive; `None` when it no longer does.
    #[inline]
    pub fn post(&mut self, wanted: Option<Posted>) {
        let heap = self.heap.borrow();
        let words = &heap.source().mapping.header().posted.0;
        let Some(wanted) = wanted else {
            return words.active.store(0, Ordering::Release);
        };
        words.active.store(0, Ordering::Relaxed);
        words.from.store(wanted.from, Ordering::Relaxed);
        for at in 0..5 {
            words.mask[at].store(wanted.mask[at], Ordering::Relaxed);
            words.value[at].store(wanted.value[at] & wanted.mask[at], Ordering::Relaxed);
        }
        words.active.store(1, Ordering::Release);
    }

    // ----- waiting and tidying

    /// Before sleeping on the doorbell: senders ring from now on. The caller must [`Endpoint::poll`]
    /// once more before it sleeps.
    pub fn prepare_sleep(&mut self) {
        self.nap = self.nap.wrapping_add(1).max(1);
        self.napping = true;
        let heap = self.heap.borrow();
        crate::bell::lie_down(&heap.source().mapping.header().waiting.0, self.nap);
    }

    /// After sleeping, or when the last poll brought something after all. Empties the doorbell.
    pub fn awake(&mut self) {
        if !std::mem::take(&mut self.napping) {
            return;
        }
        self.heap.borrow().source().mapping.header().waiting.0.store(0, Ordering::Relaxed);
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    /// Whether so much free memory is held that an idle task should give it back: sleep a tenth of
    /// a second at first, and when nothing came [`Endpoint::tidy`].
    pub fn has_excess(&self) -> bool {
        self.heap.borrow().free_bytes() > EXCESS_BYTES
    }

    /// Gives memory back that has not been used for a while.
    pub fn tidy(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            peer.tidy(self.tid, &self.heap);
            settle(peer, self.tid);
        }
        self.heap.borrow_mut().tidy();
    }
}

/// The queue goes on in another ring.
#[cold]
fn follow_link(peer: &mut Peer, entry: &Entry<'_>) -> Step {
    let mut body = [0u8; 16];
    entry.copy_to(&mut body);
    let followed = peer.inbound.as_mut().and_then(|inbound| inbound.follow(&peer.owner, &body));
    if followed.is_some() { Step::Other } else { Step::Damaged }
}

/// Offers an entry's body to the sink.
#[allow(clippy::too_many_arguments)] // the pieces of one borrow
fn receive_offer(
    from: u32,
    owner: &Rc<Owner>,
    theirs: &PeerLine,
    ours: &PeerLine,
    allowed: &Cell<bool>,
    sender_lives: bool,
    entry: &Entry<'_>,
    sink: &mut impl Sink,
) -> Step {
    let mut words = [0u8; 24];
    entry.copy_to(&mut words);
    let word = |from: usize| u64::from_ne_bytes(words[from..from + 8].try_into().expect("eight"));
    let number = word(16);
    match offer::look(&theirs.offer, number) {
        Look::Moved => match moved_body(owner, theirs) {
            Some(remote) => {
                sink.arrived(from, entry.meta(), Arrival::Remote(remote));
                Step::Message
            }
            None => Step::Damaged,
        },
        Look::Standing => {
            let outcome = Cell::new(Outcome::Later);
            let bytes = word(8) as usize;
            let offer = Offer { owner, theirs, ours, number, address: word(0), bytes, sender_lives, allowed, outcome: &outcome };
            sink.arrived(from, entry.meta(), Arrival::Offer(offer));
            match outcome.get() {
                Outcome::Taken => Step::Message,
                Outcome::Lost => Step::Other,
                Outcome::Later => {
                    offer::please_move(&ours.taken, number);
                    Step::Wait
                }
            }
        }
        Look::Other => Step::Damaged,
    }
}

/// Clears up after an offer that was moved: the peer may have taken it in the last moment, then
/// its token does not come back. Returns whether all is clear for the next offer.
fn settle(peer: &mut Peer, us: u32) -> bool {
    let Some(token) = peer.offers.moved else { return true };
    let number = peer.offers.number;
    let Some(line) = peer.theirs(us) else { return false };
    let taken = offer::answer(&line.taken, number) == Answer::Taken;
    if taken {
        peer.outstanding.remove(token);
    }
    let settled = taken || !peer.outstanding.holds(token);
    if settled {
        peer.offers.moved = None;
    }
    settled
}

/// Wakes the peer if it sleeps.
#[inline]
fn ring(peer: &Peer) -> Sent {
    let Some(nap) = crate::bell::sleeper(&peer.owner.mapping.header().waiting.0) else { return Sent::Done };
    if peer.rung.replace(nap) == nap {
        return Sent::Done;
    }
    match &peer.bell {
        Some(bell) => {
            // A full counter has rung already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            Sent::Done
        }
        None => Sent::RingByDaemon,
    }
}

fn slot_of(tid: u32) -> usize {
    tid as usize % crate::ports::SLOTS
}
