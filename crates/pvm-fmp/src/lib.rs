//! Fast messages inside a host, through shared memory.
//!
//! Every task owns one segment (an anonymous memfd) that only it writes and its peers map
//! read-only: a header, a line for each peer, queues, and a heap. See `ARCHITECTURE.md`.
//! This crate moves bytes and a few opaque words; it never learns what a tag is.

pub mod ports;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Opaque words that travel with a message: the crate's users put context, tag and so on there.
pub type Meta = [u32; 5];

/// The longest body that travels in the queue itself, in bytes.
pub const INLINE_BYTES_MAX: usize = 504;

/// The segment can hold no more: its own limit or the host's memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

/// Why a message could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No peer of that tid is known: have the daemon introduce it, then try again.
    NotConnected,
    /// Nothing was sent.
    NoMemory,
}

/// What is left to do after a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Nothing.
    Done,
    /// The peer sleeps and its doorbell is not at hand: have the daemon ring it.
    RingByDaemon,
}

/// A piece of the own heap. Clones share it; it is freed with the last of them, receivers' claims
/// counted in.
#[derive(Clone)]
pub struct Block(());
impl Block {
    /// Bytes that fit.
    pub fn capacity(&self) -> usize { todo!() }
    /// Copies `data` to `offset`. Panics past the end.
    pub fn write(&self, _offset: usize, _data: &[u8]) { todo!() }
    /// Copies from `offset` to `data`. Panics past the end.
    pub fn read(&self, _offset: usize, _data: &mut [u8]) { todo!() }
}

/// A body that came in the queue; copy it out before returning from [`Sink::arrived`].
pub struct Inline<'a>(&'a ());
impl Inline<'_> {
    /// Bytes.
    pub fn len(&self) -> usize { todo!() }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
    /// Copies the first bytes, as many as fit; returns how many.
    pub fn copy_to(&self, _data: &mut [u8]) -> usize { todo!() }
}

/// A body that lies in the sender's heap. Keep it as long as needed; its drop lets the sender
/// reuse the memory.
pub struct Remote(());
impl Remote {
    /// Bytes.
    pub fn len(&self) -> usize { todo!() }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
    /// Copies `data.len()` bytes from `offset`. Panics past the end.
    pub fn read(&self, _offset: usize, _data: &mut [u8]) { todo!() }
}

/// A body that still lies in the sender's own memory, because the sender saw that this task waits
/// for it. Take it at once, into the final place if that is known, else into memory made for it.
pub struct Offer<'a>(&'a ());
impl Offer<'_> {
    /// Bytes.
    pub fn len(&self) -> usize { todo!() }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool { self.len() == 0 }
    /// Copies the first `data.len()` bytes (at most `len`) in one go; the sender may then go on.
    /// `Err` gives the body in another form: the sender had to move it to its heap, or the copy
    /// is forbidden here; or the sender died in between, then there is no message.
    pub fn take(self, _data: &mut [u8]) -> Result<(), OfferMissed> { todo!() }
}

/// Why an [`Offer`] was not taken.
pub enum OfferMissed {
    /// The body is here instead.
    Moved(Remote),
    /// The sender will send it once more, through its heap; this one does not count.
    Later,
    /// The sender died before it had sent the message completely.
    Lost,
}

/// How the body of an arrived message is to be had.
pub enum Arrival<'a> {
    /// In the queue.
    Inline(Inline<'a>),
    /// In the sender's heap.
    Remote(Remote),
    /// In the sender's own memory.
    Offer(Offer<'a>),
}

/// Takes what arrives.
pub trait Sink {
    /// A message of task `from`. Messages of one sender come in the order in which they were sent.
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>);
}

/// What a task waits for in one-call receives, so that a sender can hand long data over directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posted {
    /// The sender, or 0 for any.
    pub from: u32,
    /// Which bits of the meta words count.
    pub mask: Meta,
    /// Their values.
    pub value: Meta,
}

/// A task's place in the shared-memory layer: its segment, its peers.
pub struct Endpoint(());

impl Endpoint {
    /// Makes the segment (memfd) and the doorbell (eventfd).
    pub fn new() -> io::Result<Endpoint> { todo!() }
    /// The descriptors to hand to the daemon with `Hello`: the segment (read-only), the doorbell.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] { todo!() }
    /// Tells the own tid and the host's port table, once known.
    pub fn enrolled(&mut self, _tid: u32, _ports: ports::PortView) { todo!() }
    /// A peer that the daemon introduced (`ToTask::Peer`). A second introduction is ignored.
    pub fn connect(&mut self, _tid: u32, _segment: OwnedFd, _bell: OwnedFd) -> io::Result<()> { todo!() }
    /// Whether `send_*` to that tid can work.
    pub fn is_connected(&self, _tid: u32) -> bool { todo!() }
    /// The peer is dead (`ToTask::PeerGone`); call after a [`Endpoint::poll`] that followed the
    /// news. Bodies of it that are still held stay readable.
    pub fn peer_gone(&mut self, _tid: u32) { todo!() }
    /// A block of at least `bytes` in the own heap.
    pub fn allocate(&mut self, _bytes: usize) -> Result<Block, NoMemory> { todo!() }
    /// Sends bytes: in the queue when they are few, straight from `body` when they are many and
    /// the peer waits for them, else through the heap. `body` is free when the call returns.
    /// Never waits for the peer to receive.
    pub fn send_bytes(&mut self, _to: u32, _meta: Meta, _body: &[u8]) -> Result<Sent, SendError> { todo!() }
    /// Sends what lies in blocks (each with its used length), without a copy. The blocks may be
    /// sent again, to others too; what was sent must not be overwritten while a clone outside is
    /// the only reason to do so (append behind it instead).
    pub fn send_blocks(&mut self, _to: u32, _meta: Meta, _body: &[(Block, usize)]) -> Result<Sent, SendError> { todo!() }
    /// Hands everything that has arrived to `sink`. Returns how many messages. No system call.
    pub fn poll(&mut self, _sink: &mut impl Sink) -> usize { todo!() }
    /// Says what the task waits for in a one-call receive; `None` when it no longer does.
    pub fn post(&mut self, _posted: Option<Posted>) { todo!() }
    /// Before sleeping on the doorbell: senders ring from now on. The caller must [`Endpoint::poll`]
    /// once more before it sleeps.
    pub fn prepare_sleep(&mut self) { todo!() }
    /// After sleeping, or when the last poll brought something after all. Empties the doorbell.
    pub fn awake(&mut self) { todo!() }
    /// Whether tasks of this host outnumber its cores, so that waiting should sleep early.
    pub fn crowded(&self) -> bool { todo!() }
    /// Gives memory back that has not been used for a while. Cheap; call it when idle.
    pub fn tidy(&mut self) { todo!() }
}

/// How to wait: spin while cores are free, yield, then sleep (decision 9).
pub struct Spinner(());

/// What to do next while nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Poll again.
    Again,
    /// Sleep on the doorbell (`prepare_sleep`, `poll`, `poll(2)`, `awake`).
    Sleep,
}

impl Spinner {
    /// A new wait begins.
    pub fn new(_crowded: bool) -> Spinner { todo!() }
    /// Passes a little time, then says what to do.
    pub fn pause(&mut self) -> Wait { todo!() }
}
