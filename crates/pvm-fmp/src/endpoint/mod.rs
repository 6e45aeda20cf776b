//! A task's endpoint in the shared-memory layer.
use crate::clock::Clock;
use crate::doorbell;
use crate::file;
use crate::heap::{Block, Heap, SharedHeap};
use crate::packed_cell::Guesses;
use crate::pair_memory::PairMemory;
use crate::parker::SleepRate;
use crate::peer::Peer;
use crate::ports::PortView;
use crate::segment::Segment;
use crate::sync::Ordering;
use crate::traffic::Traffic;
use frame_order::FrameOrder;
use merge::Heads;
use pvm_descriptor::OwnDescriptor;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};

mod borrowed;
mod counting;
mod dead_queue;
mod frame_order;
mod gaps;
mod in_progress;
mod merge;
mod multicast;
mod packed;
mod passed;
mod peers;
mod receive;
mod recent;
mod rendezvous;
mod send;
mod streamed;
mod surroundings;
mod wake;
mod words;
pub use surroundings::Company;

#[cfg(test)]
mod borrowed_tests;
#[cfg(test)]
mod frame_order_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod late_write_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod packed_cell_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod passed_tests;
#[cfg(test)]
mod recent_tests;
#[cfg(test)]
mod rendezvous_tests;
#[cfg(test)]
mod streamed_tests;

pub use multicast::SharedBody;
pub use recent::{RecentImmediate, RecentMessage};

/// The shortest body that goes to a waiting peer by rendezvous, in bytes, unless it is streamed. A rendezvous needs only one copy, by the
/// kernel, and no memory in the heap. For shorter bodies, two copies by two cores at the same time are faster. Decision
/// 7 has the measurements. The environment variable `HPVM_OFFER_MIN` (bytes) sets another size.
const RENDEZVOUS_BYTES_MIN: usize = 32 << 20;
/// The shortest body that is sent by a pipelined send, in bytes.
const PIPELINED_BYTES_MIN: usize = 12 << 10;
/// The number of peers' doorbells that an endpoint keeps open; the daemon rings the doorbells of further peers.
const BELLS_MAX: usize = 256;
/// The number of entries that a poll takes from one peer before it goes on to the next peer.
const BATCH: usize = 256;
/// With at most this number of peers a poll probes all of them; with more, only the recent ones and some others.
const PROBE_PEERS: usize = 32;
/// The number of peers that are kept in the order in which they last sent.
const RECENT_PEERS: usize = PROBE_PEERS / 2;
/// The number of peers that a waiting task watches, and (`WATCH_PROBES`) the number of probes of their queues in one
/// watch, before the task polls all peers. If an answer arrives within one watch, as it mostly does, the processor can
/// learn to predict the branches that follow.
const WATCH_PEERS: usize = 4;
const WATCH_PROBES: usize = 16;
/// How often a receive probes the queue of the most recent peer before it waits for a message of any peer.
const RECENT_PROBES: usize = 32;
/// How long a sender waits for the answer in a rendezvous, in addition to the time for the copy itself.
const RENDEZVOUS_PATIENCE: Duration = Duration::from_millis(2);
/// How long a sender keeps a rendezvous open if its heap has no memory for the body. The sender waits because the
/// receiver has announced that it waits for this message.
///
/// * Filled by: a task that announces that it waits, and then does not receive, or is stopped
/// * Default: 30 s
/// * Setting: none, without a rendezvous the send would fail at once
/// * Reached: the rendezvous is withdrawn, `pvm_psend` returns `PvmNoMem`, and the receiver gets nothing
/// * Test: `a_rendezvous_that_nobody_takes_and_that_finds_no_memory_is_withdrawn`
const RENDEZVOUS_WAIT_MAX: Duration = Duration::from_secs(30);
/// The speed of the slowest copy that a sender waits for, in bytes a microsecond.
const RENDEZVOUS_BYTES_PER_MICROSECOND: usize = 500;
/// The memory that a task makes for messages that it exchanges with its peers, in bytes. For further pairs, all long
/// bodies go through the heaps.
const PAIR_BYTES_MAX: usize = 16 << 20;
/// How long a sender of a long body waits for the peer to begin its receive. A peer that is an interpreter needs some
/// tens of microseconds for this after a long copy, which has emptied its caches; the copy itself takes milliseconds.
const LINGER: Duration = Duration::from_micros(50);
/// The number of messages that are taken from the most recent peer by the shortest path before all peers are polled.
const SHORTS_PER_POLL: u32 = 32;
/// The number of bytes sent through the heap after which the sender should collect the blocks that receivers have released.
const BYTES_PER_POLL: usize = 1 << 20;
/// For how many of these bytes each send counts: after 64 sends, too, the sender should do so.
const SEND_BYTES: usize = BYTES_PER_POLL / 64;
/// The shortest payload from another host that a task may keep in the daemon's heap while it reads it, in bytes.
const KEPT_BYTES_MIN: usize = 64 << 10;
/// Tasks may keep payloads in the daemon's heap while at most one part in this number of its memory is in use, so that they do
/// not fill it.
///
/// * Filled by: each task that keeps a long message of another host, one message each
/// * Setting: `HPVM_HEAP_MAX` bounds the memory; without it there is no such limit
/// * Reached: a task copies the message when it receives it
/// * Test: `one_long_payload_may_be_kept_after_its_entry_was_read`
const KEPT_HEAP_SHARE: u64 = 4;
/// The number of free bytes above which a task interrupts its sleep to give memory back.
const EXCESS_BYTES: u64 = 8 << 20;
/// Tokens in one release entry (one slot).
const TOKENS_PER_RELEASE: usize = 8;
/// When this number of bytes has been released, the release is reported at once.
const PROMPT_RELEASE_BYTES: usize = 32 << 10;

/// A task's endpoint in the shared-memory layer: its segment, its doorbell, its peers.
pub struct Endpoint {
    tid: u32,
    ports: Option<PortView>,
    heap: SharedHeap,
    clock: Clock,
    bell: OwnDescriptor,
    /// A random number, which peers read to make sure that our process id means this process.
    _nonce: Box<u64>,
    peers: Vec<Option<Box<Peer>>>,
    /// By the slot of a tid: the index into `peers`, plus one; 0 for no peer.
    by_slot: Vec<u32>,
    /// Indices into `peers`. The first [`RECENT_PEERS`] are the peers that sent or were introduced last, the latest one
    /// first.
    order: Vec<usize>,
    /// The place in `order` where the next poll of the less recent peers begins.
    next_probe: usize,
    /// Free records of our table, and (`used_records`) how many records were ever used.
    free_records: Vec<usize>,
    used_records: usize,
    /// The pieces of our table that lie in the heap.
    tables: Vec<Block>,
    bells: usize,
    /// Set when some read count has not been published yet.
    unpublished: bool,
    /// Set if barriers on all cores (`membarrier(2)`) reach this process, and this process may make such barriers.
    barriers: bool,
    sleep_rate: SleepRate,
    parked: bool,
    sleep: u32,
    dirty: Rc<Cell<bool>>,
    frame_order: FrameOrder,
    heads: Heads,
    /// The peers that have sent a message whose memory could not be mapped for lack of address space.
    starved: Vec<u32>,
    copy_allowed: Rc<Cell<bool>>,
    rendezvous_bytes_min: usize,
    /// Set if the user has set `rendezvous_bytes_min`: then no rendezvous is left out for a stream.
    rendezvous_is_set: bool,
    rendezvous_wait_max: Duration,
    /// The bytes of all memory that this endpoint has made for pairs.
    pair_bytes: Rc<Cell<usize>>,
    /// The length of the last packed body that was too long for the queue, in bytes, and how well the receivers of such
    /// bodies are guessed.
    packed_bytes: usize,
    guesses: Rc<Guesses>,
    traffic: Traffic,
    /// The bytes that were sent since the last poll; see [`SEND_BYTES`].
    uncollected: usize,
    /// The number of messages taken by the shortest path since the last poll.
    shorts: u32,
    /// The cell through which a streamed body goes at present.
    open_stream: Option<(Rc<PairMemory>, u32)>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.heap.borrow_mut().retire();
    }
}

/// The result of handling one entry.
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

    /// Adopts the segment and the doorbell that the daemon made for this task before the task enrolled
    /// ([`crate::PreallocatedEndpoint`]).
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
        let traffic = Traffic::of(&header.traffic.0);
        let heap = Rc::new(RefCell::new(Heap::new(segment)));
        Ok(Endpoint {
            tid: 0,
            ports: None,
            traffic,
            heap,
            clock: Clock::default(),
            bell: bell.into(),
            _nonce: nonce,
            peers: Vec::new(),
            by_slot: Vec::new(),
            order: Vec::new(),
            next_probe: 0,
            free_records: Vec::new(),
            used_records: 0,
            tables: Vec::new(),
            frame_order: FrameOrder::default(),
            heads: Heads::default(),
            starved: Vec::new(),
            bells: 0,
            unpublished: false,
            barriers,
            sleep_rate: SleepRate::default(),
            parked: false,
            sleep: 0,
            dirty: Rc::default(),
            copy_allowed: Rc::new(Cell::new(true)),
            rendezvous_bytes_min: rendezvous_bytes_set().unwrap_or(RENDEZVOUS_BYTES_MIN),
            rendezvous_is_set: rendezvous_bytes_set().is_some(),
            rendezvous_wait_max: RENDEZVOUS_WAIT_MAX,
            pair_bytes: Rc::default(),
            packed_bytes: 0,
            guesses: Rc::default(),
            uncollected: 0,
            shorts: 0,
            open_stream: None,
        })
    }

    /// Takes the endpoint over from the parent process, in a child that takes its parent's place.
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
    /// Returns the size in bytes from which on a one-call receive should be posted ([`Endpoint::post`]).
    #[inline]
    pub fn rendezvous_bytes_min(&self) -> usize {
        self.rendezvous_bytes_min
    }
    /// Returns whether the program has closed this endpoint's doorbell.
    pub fn is_bell_closed(&self) -> bool {
        !self.bell.is_open()
    }
    /// Returns this endpoint's doorbell, which is readable when a peer has rung. Do not pass it to other processes.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
    /// Sets this endpoint's tid and the host's port table, once they are known.
    pub fn enrolled(&mut self, tid: u32, ports: PortView) {
        self.tid = tid;
        self.ports = Some(ports);
        for peer in self.peers.iter_mut().flatten() {
            peer.last_message = NonNull::from(PortView::last_message(self.ports.as_ref(), peer.tid));
        }
    }
    /// Returns this endpoint's tid.
    #[cfg(test)]
    pub fn tid(&self) -> u32 {
        self.tid
    }
    /// Notes that this task has learnt what others have done before, otherwise than by an entry of a queue: what it sends
    /// from now on is later than what they had sent.
    pub fn synchronize(&self) {
        self.clock.synchronize();
    }
    /// Returns the port table.
    pub fn ports(&self) -> Option<&PortView> {
        self.ports.as_ref()
    }
    /// Returns whether tasks of this host that are awake outnumber its cores, so that a wait should sleep early.
    #[inline]
    pub fn crowded(&self) -> bool {
        self.ports.as_ref().is_some_and(PortView::crowded)
    }
    /// Returns whether tasks of this host outnumber its cores if those that sleep count, too.
    pub fn may_be_crowded(&self) -> bool {
        self.ports.as_ref().is_some_and(PortView::may_be_crowded)
    }

    /// Makes senders ring from now on. The caller must [`Endpoint::poll`] once more before it sleeps on the doorbell.
    pub fn prepare_park(&mut self) {
        // The daemon sleeps often: a barrier on all cores for each sleep would cost more than its senders' fences.
        let may_be_asymmetric = self.barriers && !self.crowded() && !crate::is_daemon(self.tid);
        let began = may_be_asymmetric.then(Instant::now).filter(|began| self.sleep_rate.is_low(*began));
        self.sleep = self.sleep.wrapping_add(1).max(1);
        self.parked = true;
        let heap = self.heap.borrow();
        let parker = &heap.source().mapping.header().parker.0;
        parker.choose(began.is_some());
        parker.prepare_park(self.sleep);
        if let Some(began) = began {
            self.sleep_rate.record_cost(began.elapsed());
        }
    }

    /// Publishes what this task does ([`crate::state_line`]). `asleep`: whether it sleeps next.
    pub fn publish_state(&self, words: &[u64], asleep: bool) {
        self.heap.borrow().source().mapping.header().state.0.write(words, asleep);
    }

    /// Returns the counts of this task's messages.
    #[inline(always)]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Publishes that this task does not sleep any more. Call it before [`Endpoint::unpark`].
    pub fn publish_awake(&self) {
        self.heap.borrow().source().mapping.header().state.0.wake();
    }

    /// Returns whether [`Endpoint::prepare_park`] was called, and [`Endpoint::unpark`] has not been called since.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Makes senders stop ringing, and empties the doorbell. Call it after the sleep, or when the last poll before the
    /// sleep has found a message.
    pub fn unpark(&mut self) {
        if self.parked {
            self.unpark_unrung();
            self.empty_bell();
        }
    }

    /// Empties the doorbell. Returns `false` if the program has closed it.
    pub fn empty_bell(&self) -> bool {
        let is_open = self.bell.is_open();
        if is_open {
            doorbell::empty(self.bell.unchecked());
        }
        is_open
    }

    /// Does what [`Endpoint::unpark`] does, for a caller that knows that the doorbell has not rung.
    pub fn unpark_unrung(&mut self) {
        if std::mem::take(&mut self.parked) {
            self.heap.borrow().source().mapping.header().parker.0.unpark();
        }
    }

    /// Returns the tids of peers. Since the last call, a message of each could not be mapped for lack of address space. The
    /// next [`Endpoint::poll`] tries again.
    #[inline]
    pub fn take_starved(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.starved)
    }

    /// Returns whether the task has so much free memory that it should give some back when idle: it should sleep for a
    /// tenth of a second first, and call [`Endpoint::tidy`] if no message has arrived by then.
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

/// Returns what the user has set as the length of the shortest body that goes by rendezvous, in bytes.
fn rendezvous_bytes_set() -> Option<usize> {
    let bytes: usize = std::env::var("HPVM_OFFER_MIN").ok()?.parse().ok()?;
    Some(bytes.max(crate::INLINE_BYTES_MAX + 1))
}
