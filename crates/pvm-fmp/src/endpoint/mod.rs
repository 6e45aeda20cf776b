//! A task's place in the shared-memory layer.
use crate::doorbell;
use crate::file;
use crate::heap::{Block, Heap, SharedHeap};
use crate::peer::Peer;
use crate::ports::PortView;
use crate::segment::Segment;
use crate::sync::Ordering;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

mod borrowed;
mod estate;
mod peers;
mod receive;
mod recent;
mod rendezvous;
mod send;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod late_write_tests;
#[cfg(test)]
mod recent_tests;
#[cfg(test)]
mod rendezvous_tests;

pub use recent::{RecentImmediate, RecentShort};

/// From this size on a body goes to a waiting peer by rendezvous, in bytes: one copy by the kernel, and no memory for a
/// second one. Below, two copies by two cores at the same time are faster. The environment variable `HPVM_OFFER_MIN`
/// (bytes) sets another size.
const RENDEZVOUS_BYTES_MIN: usize = 32 << 20;
/// From this size on a body is sent by a pipelined send, in bytes.
const PIPELINED_BYTES_MIN: usize = 12 << 10;
/// Doorbells kept open; the daemon rings those of further peers.
const BELLS_MAX: usize = 256;
/// Entries taken from one peer before the next one has its turn.
const BATCH: usize = 256;
/// Up to this number of peers a poll looks at all of them; with more, at the recent ones and some others.
const PROBE_PEERS: usize = 32;
/// Peers that are kept in the order in which they sent.
const RECENT_PEERS: usize = PROBE_PEERS / 2;
/// Peers whose queues a waiting task watches, and how often it probes them before it polls all peers. Mostly an answer
/// comes within one watch; then the processor learns what follows.
const WATCH_PEERS: usize = 4;
const WATCH_PROBES: usize = 16;
/// How often a receive probes the queue of the most recent peer before it waits by the long way.
const RECENT_PROBES: usize = 32;
/// How long a sender waits for the answer in a rendezvous, in addition to the time for the copy itself.
const RENDEZVOUS_PATIENCE: Duration = Duration::from_millis(2);
/// How long a sender keeps a rendezvous open for which the heap has no memory: the receiver has said that it waits for
/// this message.
///
/// * Filled by: a task that says so and does nothing, or is stopped
/// * Default: 30 s
/// * Setting: none, without a rendezvous the send would fail at once
/// * Reached: the rendezvous is withdrawn, `pvm_psend` returns `PvmNoMem`, and the receiver gets nothing
/// * Test: `a_rendezvous_that_nobody_takes_and_that_finds_no_memory_is_withdrawn`
const RENDEZVOUS_WAIT_MAX: Duration = Duration::from_secs(30);
/// The slowest copy that a sender waits for, in bytes a microsecond.
const RENDEZVOUS_BYTES_PER_MICROSECOND: usize = 500;
/// How long a sender of a long body waits for the peer to begin its receive.
const LINGER: Duration = Duration::from_micros(4);
/// Sends after which the sender should look for blocks that came back.
const SENDS_PER_POLL: u32 = 64;
/// Messages taken from the most recent peer by the shortest way before all peers have their turn.
const SHORTS_PER_POLL: u32 = 32;
/// Bytes sent through the heap after which it should.
const BYTES_PER_POLL: usize = 1 << 20;
/// Free memory from which on a sleep is interrupted to give it back, in bytes.
const EXCESS_BYTES: u64 = 8 << 20;
/// Tokens in one release entry (one slot).
const TOKENS_PER_RELEASE: usize = 8;
/// From this number of released bytes on they are reported at once.
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
    /// Peers. The first [`RECENT_PEERS`] are the last ones of which a poll took a message or that were introduced, the
    /// very last one first.
    order: Vec<usize>,
    /// The place in `order` where the next look at the less recent peers begins.
    next_probe: usize,
    /// Free records of our table, and how many were ever used.
    free_records: Vec<usize>,
    used_records: usize,
    /// The pieces of our table that lie in the heap.
    tables: Vec<Block>,
    bells: usize,
    /// A read count has not been published yet.
    unpublished: bool,
    /// Barriers on all cores reach this process, and it may make them.
    barriers: bool,
    parked: bool,
    sleep: u32,
    dirty: Rc<Cell<bool>>,
    /// A message to us could not be mapped for lack of address space.
    starved: bool,
    copy_allowed: Rc<Cell<bool>>,
    rendezvous_bytes_min: usize,
    rendezvous_wait_max: Duration,
    sends: u32,
    sent_bytes: usize,
    /// Messages taken by the shortest way since the last poll.
    shorts: u32,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.heap.borrow_mut().retire();
    }
}

/// What became of one entry.
enum Step {
    Message,
    Other,
    Wait,
    Damaged,
}

impl Endpoint {
    /// Makes the segment (memfd) and the doorbell.
    pub fn new() -> io::Result<Endpoint> {
        Endpoint::with(Segment::new()?, doorbell::new()?)
    }

    /// Adopts what the daemon made for this task before it enrolled ([`crate::PreallocatedEndpoint`]).
    pub fn adopt(segment: OwnedFd, bell: OwnedFd) -> io::Result<Endpoint> {
        Endpoint::with(Segment::adopt(segment)?, bell)
    }

    fn with(segment: Segment, bell: OwnedFd) -> io::Result<Endpoint> {
        let mut bytes = [0u8; 8];
        crate::random_bytes(&mut bytes)?;
        let nonce = Box::new(u64::from_ne_bytes(bytes));
        let barriers = crate::parker::register();
        let header = segment.mapping.header();
        header.parker.0.choose(barriers);
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
            next_probe: 0,
            free_records: Vec::new(),
            used_records: 0,
            tables: Vec::new(),
            starved: false,
            bells: 0,
            unpublished: false,
            barriers,
            parked: false,
            sleep: 0,
            dirty: Rc::default(),
            copy_allowed: Rc::new(Cell::new(true)),
            rendezvous_bytes_min: rendezvous_bytes_min(),
            rendezvous_wait_max: RENDEZVOUS_WAIT_MAX,
            sends: 0,
            sent_bytes: 0,
            shorts: 0,
        })
    }

    /// Takes the place of the parent process, which made this.
    pub fn inherit(&mut self) {
        self.barriers = crate::parker::register();
        self.heap.borrow().source().mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
        self.unpark();
    }

    /// Returns the descriptors to hand to the daemon with `Hello`: the segment (read-only), the doorbell.
    pub fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        let heap = self.heap.borrow();
        Ok([file::duplicate(heap.source().descriptor())?, doorbell::again(self.bell())?])
    }
    /// Returns from which size on a one-call receive should be posted ([`Endpoint::post`]), in bytes.
    #[inline]
    pub fn rendezvous_bytes_min(&self) -> usize {
        self.rendezvous_bytes_min
    }
    /// Returns this endpoint's doorbell, which is readable when a peer has rung. Do not hand it out.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
    /// Sets this endpoint's tid and the host's port table, once they are known.
    pub fn enrolled(&mut self, tid: u32, ports: PortView) {
        self.tid = tid;
        self.ports = Some(ports);
    }
    /// Returns this endpoint's tid.
    #[cfg(test)]
    pub fn tid(&self) -> u32 {
        self.tid
    }
    /// Returns the port table.
    pub fn ports(&self) -> Option<&PortView> {
        self.ports.as_ref()
    }
    /// Returns whether tasks of this host outnumber its cores, so that a wait should sleep early.
    #[inline]
    pub fn crowded(&self) -> bool {
        self.ports.as_ref().is_some_and(PortView::crowded)
    }

    /// Has senders ring from now on. The caller must [`Endpoint::poll`] once more before it sleeps on the doorbell.
    pub fn prepare_park(&mut self) {
        let crowded = self.crowded();
        self.sleep = self.sleep.wrapping_add(1).max(1);
        self.parked = true;
        let heap = self.heap.borrow();
        let parker = &heap.source().mapping.header().parker.0;
        // The daemon sleeps so often that its senders had better pass the fence.
        parker.choose(self.barriers && !crowded && !crate::is_daemon(self.tid));
        parker.prepare_park(self.sleep);
    }

    /// Returns whether [`Endpoint::prepare_park`] was called, and [`Endpoint::unpark`] was not.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Has senders ring no more, and empties the doorbell: after the sleep, or when the last poll brought something.
    pub fn unpark(&mut self) {
        if !std::mem::take(&mut self.parked) {
            return;
        }
        self.heap.borrow().source().mapping.header().parker.0.unpark();
        doorbell::empty(self.bell());
    }

    /// Does what [`Endpoint::unpark`] does, for a caller that knows that the doorbell has not rung.
    pub fn unpark_unrung(&mut self) {
        if std::mem::take(&mut self.parked) {
            self.heap.borrow().source().mapping.header().parker.0.unpark();
        }
    }

    /// Returns whether a message could not be mapped for lack of address space since the last call. The next
    /// [`Endpoint::poll`] tries again.
    pub fn take_starved(&mut self) -> bool {
        std::mem::take(&mut self.starved)
    }

    /// Returns whether an idle task holds so much free memory that it should give it back: sleep for a tenth of a
    /// second first, and call [`Endpoint::tidy`] if nothing came.
    pub fn has_excess(&self) -> bool {
        self.heap.borrow().free_bytes() > EXCESS_BYTES
    }

    /// Gives unused memory back to the system.
    pub fn tidy(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            peer.tidy(self.tid, &self.heap);
            rendezvous::settle(peer, self.tid);
        }
        self.heap.borrow_mut().tidy();
    }
}

fn rendezvous_bytes_min() -> usize {
    let set = std::env::var("HPVM_OFFER_MIN").ok().and_then(|text| text.parse().ok());
    set.map_or(RENDEZVOUS_BYTES_MIN, |bytes: usize| bytes.max(crate::INLINE_BYTES_MAX + 1))
}
