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
mod rendezvous_tests;

pub use recent::{RecentImmediate, RecentShort};

/// Bodies from this size on are offered to a waiting peer, in bytes: one copy by the kernel, and no
/// memory for a second one. Below, two copies by two cores at the same time are faster. The
/// environment's `HPVM_OFFER_MIN` (bytes) sets another size.
const RENDEZVOUS_BYTES_MIN: usize = 32 << 20;
/// Bodies from this size on are sent while they are still being written, in bytes.
const PIPELINED_BYTES_MIN: usize = 12 << 10;
/// Doorbells kept open; those of further peers are rung by the daemon.
const BELLS_MAX: usize = 256;
/// Entries taken from one peer before the next one has its turn.
const BATCH: usize = 256;
/// Up to this many peers all are looked at in each poll; of more, the recent ones and some others.
const PROBE_PEERS: usize = 32;
/// Peers whose queues a waiting task watches, and how many looks it takes before it polls them all.
/// So many that an answer mostly comes within one watch: then the processor learns what follows.
const WATCH_PEERS: usize = 4;
const WATCH_PROBES: usize = 16;
/// Looks at the queue of the peer that sent last, before a receive takes the long way to wait.
const RECENT_PROBES: usize = 32;
/// How long a sender waits for the answer to an offer, beside the time for the copy itself.
const RENDEZVOUS_PATIENCE: Duration = Duration::from_millis(2);
/// How long a sender whose offer finds no memory in the heap waits for the receiver, which has said that it
/// waits for just that.
///
/// * Filled by: a task that says so and does nothing, or is stopped
/// * Default: 30 s
/// * Setting: none, without such an offer the send would fail at once
/// * Reached: the offer is withdrawn, `pvm_psend` says `PvmNoMem`, and the receiver gets nothing of it
/// * Test: `a_rendezvous_that_nobody_takes_and_that_finds_no_memory_is_withdrawn`
const RENDEZVOUS_WAIT_MAX: Duration = Duration::from_secs(30);
/// The slowest copy that is still waited for, in bytes a microsecond.
const RENDEZVOUS_BYTES_PER_MICROSECOND: usize = 500;
/// How long a sender of a long body waits for the peer to begin its receive.
const LINGER: Duration = Duration::from_micros(4);
/// Sends after which the sender should look for blocks that came back.
const SENDS_PER_POLL: u32 = 64;
/// Messages taken by the shortest way before all peers have their turn.
const SHORTS_PER_POLL: u32 = 32;
/// Bytes sent through the heap after which it should.
const BYTES_PER_POLL: usize = 1 << 20;
/// Free memory that makes a park_number worth interrupting to give it back, in bytes.
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
    /// Where the next next_probe at the others begins.
    next_probe: usize,
    /// Free lines of our table, and how many were ever used.
    free_records: Vec<usize>,
    used_records: usize,
    /// The pieces of our table that lie in the heap.
    tables: Vec<Block>,
    bells: usize,
    /// Some reading has not been reported to its writer yet.
    unpublished: bool,
    /// Barriers on all cores reach this process, and it may make them.
    barriers: bool,
    parked: bool,
    park_number: u32,
    dirty: Rc<Cell<bool>>,
    /// Something that has been sent to us could not be mapped for want of address space.
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

    /// Takes over what the daemon made for this task before it came ([`crate::PreallocatedEndpoint`]).
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
            park_number: 0,
            dirty: Rc::default(),
            copy_allowed: Rc::new(Cell::new(true)),
            rendezvous_bytes_min: rendezvous_bytes_min(),
            rendezvous_wait_max: RENDEZVOUS_WAIT_MAX,
            sends: 0,
            sent_bytes: 0,
            shorts: 0,
        })
    }

    /// The process is the child of the one that made this, and takes its place.
    pub fn inherit(&mut self) {
        self.barriers = crate::parker::register();
        self.heap.borrow().source().mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
        self.unpark();
    }

    /// The descriptors to hand to the daemon with `Hello`: the segment (read-only), the doorbell.
    pub fn descriptors(&self) -> io::Result<[OwnedFd; 2]> {
        let heap = self.heap.borrow();
        Ok([file::duplicate(heap.source().descriptor())?, doorbell::again(self.bell())?])
    }
    /// From which size on a one-call receive should be announced ([`Endpoint::post`]), in bytes.
    #[inline]
    pub fn rendezvous_bytes_min(&self) -> usize {
        self.rendezvous_bytes_min
    }
    /// The own doorbell, readable when a peer rang; not to be handed out.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
    /// Tells the own tid and the host's port table, once known.
    pub fn enrolled(&mut self, tid: u32, ports: PortView) {
        self.tid = tid;
        self.ports = Some(ports);
    }
    /// The own tid.
    #[cfg(test)]
    pub fn tid(&self) -> u32 {
        self.tid
    }
    /// The port table.
    pub fn ports(&self) -> Option<&PortView> {
        self.ports.as_ref()
    }
    /// Whether tasks of this host outnumber its cores, so that waiting should sleep early.
    #[inline]
    pub fn crowded(&self) -> bool {
        self.ports.as_ref().is_some_and(PortView::crowded)
    }

    /// Before sleeping on the doorbell: senders ring from now on. The caller must [`Endpoint::poll`]
    /// once more before it sleeps.
    pub fn prepare_park(&mut self) {
        let crowded = self.crowded();
        self.park_number = self.park_number.wrapping_add(1).max(1);
        self.parked = true;
        let heap = self.heap.borrow();
        let parker = &heap.source().mapping.header().parker.0;
        // The daemon sleeps so often that its senders fence.
        parker.choose(self.barriers && !crowded && !crate::is_daemon(self.tid));
        parker.prepare_park(self.park_number);
    }

    /// Whether [`Endpoint::prepare_park`] was called, and [`Endpoint::unpark`] was not.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// After sleeping, or when the last poll brought something after all. Empties the doorbell.
    pub fn unpark(&mut self) {
        if !std::mem::take(&mut self.parked) {
            return;
        }
        self.heap.borrow().source().mapping.header().parker.0.unpark();
        doorbell::hush(self.bell());
    }

    /// [`Endpoint::unpark`] for who knows that the doorbell has not rung.
    pub fn unpark_unrung(&mut self) {
        if std::mem::take(&mut self.parked) {
            self.heap.borrow().source().mapping.header().parker.0.unpark();
        }
    }

    /// Whether a message has come that cannot be had for want of address space, since the last call. It is looked
    /// at again with the next [`Endpoint::poll`].
    pub fn take_starved(&mut self) -> bool {
        std::mem::take(&mut self.starved)
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
            rendezvous::settle(peer, self.tid);
        }
        self.heap.borrow_mut().tidy();
    }
}

fn rendezvous_bytes_min() -> usize {
    let set = std::env::var("HPVM_OFFER_MIN").ok().and_then(|text| text.parse().ok());
    set.map_or(RENDEZVOUS_BYTES_MIN, |bytes: usize| bytes.max(crate::INLINE_BYTES_MAX + 1))
}
