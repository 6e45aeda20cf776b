//! An endpoint with its buffers.
mod loans;
mod reads;
mod regions;
mod spares;

use super::abi::{self, CqErrEntry, CqMsgEntry};
use super::library::Candidate;
use super::memory::Memory;
use super::objects::{Calls, Objects, Registration};
use crate::fabric::{Failure, Queues, providers};
use loans::Lent;
pub use loans::{Lender, LentRegionId, Room, Rooms, SourceLender};
use reads::{Place, Reading};
pub use reads::{PlaceId, ReadPart};
pub use regions::Start;
pub use spares::SpareBodies;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The length of the memory that a provider gets with each operation.
const CONTEXT_BYTES: usize = 64;
/// How many completions are read at a time.
const COMPLETIONS_AT_A_TIME: usize = 16;
/// The most bytes that one operation reads; a longer body is read in parts, one after the other.
const PART_BYTES_MAX: usize = 1 << 30;
/// The same for providers above datagrams. `udp;ofi_rxd` of libfabric 1.17 delivers wrong bytes or stalls when both sides read
/// about 1 MB or more at the same time: with whole bodies, most trials of 400 messages failed, with parts of 64 KiB one of 36, with
/// parts of this length none of 36 (docs/fabrics.md).
const DATAGRAMS_PART_BYTES_MAX: usize = 32 << 10;

/// There are this many places for each read that can be under way, since reads from dead peers may never end.
const READ_PLACES: usize = 8;

/// A peer whose address the provider knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(u64);

/// A receive buffer that holds a message.
#[derive(Debug)]
pub struct Slot {
    index: usize,
    bytes: usize,
}

/// Names registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionId(u64);

/// How a peer names memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The address: of the peer's memory, or in the registered region, as the provider wants it.
    pub address: u64,
    /// The key of the region.
    pub key: u64,
}

/// What has happened at an endpoint.
#[derive(Debug)]
pub enum Event {
    /// A message has arrived. Its buffer is to be returned by [`Endpoint::post`].
    Received(Slot),
    /// A body was read.
    Read {
        /// What the caller named the read by.
        ticket: u64,
        /// The body.
        body: Vec<u8>,
    },
    /// A part of a body was read.
    PartRead {
        /// What the caller named the read by.
        ticket: u64,
        /// The part.
        part: ReadPart,
    },
    /// A body, or a part of one, could not be read.
    ReadFailed {
        /// What the caller named the read by.
        ticket: u64,
        /// The provider's reason.
        failure: Failure,
    },
    /// A message could not be sent to this peer.
    SendFailed {
        /// The receiver.
        peer: Peer,
        /// The provider's reason.
        failure: Failure,
    },
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The queues are full: poll, then try again.
    Full,
    /// The message is longer than a buffer.
    TooLong,
    /// The provider refuses.
    Failed(Failure),
}

/// Why a read was not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// As many reads as possible are under way: poll, then try again.
    Full,
    /// There is no memory for the body.
    NoMemory,
    /// The provider refuses.
    Failed(Failure),
}

/// How a process waits for an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// By a descriptor, after [`Endpoint::may_sleep`] has said yes.
    Descriptor,
    /// By looking again after a while.
    Timer,
}

/// What an endpoint has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were sent, and those of them that the provider had copied at once.
    pub sent: u64,
    /// Messages that were sent by inject.
    pub injected: u64,
    /// Messages that arrived.
    pub received: u64,
    /// Bytes of bodies that were read from peers' memory.
    pub read_bytes: u64,
    /// Arrivals that the provider reported as failed, such as messages that are longer than a buffer.
    pub refused: u64,
}

/// An endpoint: receives from all peers, sends to each, and reads their memory.
///
/// It has no thread and never waits. A child of `fork` must not use it, and must not drop it.
pub struct Endpoint {
    /// Declared first so that it is closed before the memory below is unmapped.
    objects: Objects,
    calls: Calls,
    queues: Queues,
    address: Vec<u8>,
    inject_bytes: usize,
    part_bytes: usize,
    /// Whether at most one part is read from each peer at a time.
    has_single_reads: bool,
    reads_begun: u64,
    /// Receive buffers, then send buffers.
    buffers: ManuallyDrop<Memory>,
    buffers_registration: Option<Registration>,
    buffers_description: *mut c_void,
    /// Memory for the provider: one context for each receive buffer, send buffer and read.
    contexts: ManuallyDrop<Memory>,
    /// How many receive buffers are in use: posted, or with a message.
    used_receives: usize,
    /// The others, and those that the provider had no room for. The last one was used last: its bytes are most likely in a
    /// cache.
    unposted: Vec<usize>,
    free_sends: Vec<usize>,
    /// The receivers of the messages in the send buffers.
    receivers: Vec<Peer>,
    readings: Vec<Option<Reading>>,
    /// Readings for which the provider had no room yet.
    delayed_readings: usize,
    places: BTreeMap<PlaceId, Place>,
    places_made: u64,
    /// Memory of earlier bodies, to be used again.
    spare_bodies: SpareBodies,
    /// Memory of callers: for a body that is read, and for peers.
    lent: Arc<Lent>,
    lent_source: Arc<Lent>,
    regions: BTreeMap<RegionId, (Option<Registration>, ManuallyDrop<Memory>)>,
    regions_made: u64,
    /// Regions whose registration was ended while a peer may have read them, and that still have pages.
    retired: Vec<RegionId>,
    events: VecDeque<Event>,
    counters: Counters,
}

// SAFETY: the objects may be used by any thread, as long as no two do so at the same time; `&mut` ensures that. The
// endpoint asks for no more than that (`FI_THREAD_DOMAIN`).
unsafe impl Send for Endpoint {}

impl Endpoint {
    /// Opens an endpoint. It receives nothing before [`Endpoint::use_receives`]. The queues are as long as the provider allows, at most as long
    /// as asked for ([`Endpoint::queues`]).
    pub fn open(candidate: Candidate, wanted: Queues) -> Result<Endpoint, Failure> {
        let has_single_reads = providers::is_above_datagrams(&candidate.provider);
        let part_bytes_max = if has_single_reads { DATAGRAMS_PART_BYTES_MAX } else { PART_BYTES_MAX };
        // SAFETY: the candidate's parts were checked when it was made.
        let (queues, inject_bytes, part_bytes) = unsafe {
            let info = &*candidate.info();
            let (rx, tx, ep) = (&*info.rx_attr, &*info.tx_attr, &*info.ep_attr);
            let at_most = |wanted: usize, size: usize| if size == 0 { wanted } else { wanted.min(size) };
            let receives = at_most(wanted.receives, rx.size);
            let sends = at_most(wanted.sends, tx.size);
            let is_registered = (*info.domain_attr).mr_mode & abi::FI_MR_LOCAL != 0;
            let most = if is_registered { wanted.registered_bytes_max } else { usize::MAX };
            let buffer_bytes = at_most(wanted.buffer_bytes.min(most), ep.max_msg_size);
            (
                Queues { receives, sends, buffer_bytes, ..wanted },
                tx.inject_size,
                at_most(part_bytes_max, ep.max_msg_size),
            )
        };
        let slots = queues.receives + queues.sends;
        let no_memory = |_| Failure { call: "mmap", words: "no memory for the buffers".into() };
        let contexts = Memory::anonymous((slots + queues.reads * READ_PLACES) * CONTEXT_BYTES).map_err(no_memory)?;
        let objects = Objects::open(candidate, queues.receives, queues.sends + queues.reads, slots + queues.reads)?;
        let map = if objects.registers_local() { Memory::anonymous } else { Memory::sparse };
        let buffers = map(slots * queues.buffer_bytes).map_err(no_memory)?;
        let mut endpoint = Endpoint {
            calls: objects.calls()?,
            address: objects.address()?,
            objects,
            queues,
            inject_bytes,
            part_bytes,
            has_single_reads,
            reads_begun: 0,
            buffers: ManuallyDrop::new(buffers),
            buffers_registration: None,
            buffers_description: std::ptr::null_mut(),
            contexts: ManuallyDrop::new(contexts),
            used_receives: 0,
            unposted: (0..queues.receives).rev().collect(),
            free_sends: (queues.receives..slots).rev().collect(),
            receivers: vec![Peer(abi::FI_ADDR_UNSPEC); queues.sends],
            readings: (0..queues.reads * READ_PLACES).map(|_| None).collect(),
            delayed_readings: 0,
            places: BTreeMap::new(),
            places_made: 0,
            spare_bodies: SpareBodies::default(),
            lent: Arc::default(),
            lent_source: Arc::default(),
            regions: BTreeMap::new(),
            regions_made: 0,
            retired: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        };
        endpoint.register_buffers()?;
        Ok(endpoint)
    }

    fn register_buffers(&mut self) -> Result<(), Failure> {
        if self.objects.registers_local() {
            let access = abi::FI_SEND | abi::FI_RECV;
            let (start, bytes) = (self.buffers.start(), self.buffers.len());
            // SAFETY: the buffers are unmapped only after the endpoint has been closed.
            let registration = unsafe { self.objects.register(start, bytes, access)? };
            self.buffers_description = registration.description;
            self.buffers_registration = Some(registration);
        }
        Ok(())
    }

    /// Returns the lengths of the queues and buffers.
    pub fn queues(&self) -> Queues {
        self.queues
    }

    /// Returns the address of this endpoint, for its peers.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// Returns what the endpoint has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Makes a peer's address known. An address of another length than that of this endpoint is refused.
    pub fn insert(&mut self, address: &[u8]) -> Result<Peer, Failure> {
        if address.len() != self.address.len() {
            let words = format!("the peer's address has {} bytes, not {}", address.len(), self.address.len());
            return Err(Failure { call: "fi_av_insert", words });
        }
        self.objects.insert(address).map(Peer)
    }

    /// Forgets a peer. The ends of reads from it are no longer reported; if the provider never reports them, each keeps
    /// its place and its memory until the endpoint is closed.
    pub fn remove(&mut self, peer: Peer) {
        self.abandon_reads(peer);
        self.objects.remove(peer.0);
    }

    /// Sends a message that consists of these parts. The bytes are copied.
    pub fn send(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), SendError> {
        let (index, bytes) = self.fill(parts, 0)?;
        self.submit(peer, index, bytes)
    }

    /// Does the same, and this number of bytes follows from another place. Others may write to shared memory meanwhile; the
    /// message then holds some of either.
    pub fn send_from(&mut self, peer: Peer, parts: &[&[u8]], from: Start, bytes: usize) -> Result<(), SendError> {
        let absent = || Failure { call: "fi_send", words: "there are no such bytes".into() };
        let from = self.readable(from, bytes).ok_or_else(|| SendError::Failed(absent()))?;
        let (index, before) = self.fill(parts, bytes)?;
        // SAFETY: the place has this many bytes, and the buffer room for them, since `fill` has checked the sum. They are in
        // different mappings.
        unsafe { std::ptr::copy_nonoverlapping(from, self.buffer(index).add(before), bytes) };
        self.submit(peer, index, before + bytes)
    }

    /// Sends a message of this length that `make` writes to its place, from bytes that begin at `from` and have this number, if
    /// there is such a place.
    pub fn send_made(
        &mut self,
        peer: Peer,
        bytes: usize,
        from: Option<(Start, usize)>,
        make: impl FnOnce(&mut [u8], &[u8]),
    ) -> Result<(), SendError> {
        let (index, _) = self.fill(&[], bytes)?;
        // SAFETY: the buffer has this many bytes, and no operation uses it.
        let message = unsafe { std::slice::from_raw_parts_mut(self.buffer(index), bytes) };
        let is_made = match from {
            Some((from, bytes)) => self.with_bytes(from, bytes, |source| make(message, source)).is_some(),
            None => {
                make(message, &[]);
                true
            }
        };
        if !is_made {
            self.free_sends.push(index);
            let absent = Failure { call: "fi_send", words: "there are no such bytes".into() };
            return Err(SendError::Failed(absent));
        }
        self.submit(peer, index, bytes)
    }

    /// Copies these parts to a free send buffer, in which `more` bytes will follow. Returns its index, and their length.
    fn fill(&mut self, parts: &[&[u8]], more: usize) -> Result<(usize, usize), SendError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes.checked_add(more).is_none_or(|all| all > self.queues.buffer_bytes) {
            return Err(SendError::TooLong);
        }
        let index = self.free_sends.pop().ok_or(SendError::Full)?;
        let mut at = self.buffer(index);
        for part in parts {
            // SAFETY: the buffer is long enough for all parts, and no operation uses it.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
                at = at.add(part.len());
            }
        }
        Ok((index, bytes))
    }

    /// Sends the first bytes of a send buffer that was taken out of the free ones.
    fn submit(&mut self, peer: Peer, index: usize, bytes: usize) -> Result<(), SendError> {
        let start = self.buffer(index);
        let inject = self.calls.inject.filter(|_| bytes <= self.inject_bytes);
        // SAFETY: the endpoint is open; buffer and context stay until the operation has completed, the buffer of an
        // injected message until the call returns.
        let result = unsafe {
            match inject {
                Some(inject) => inject(self.objects.ep, start.cast(), bytes, peer.0),
                None => (self.calls.send)(
                    self.objects.ep,
                    start.cast(),
                    bytes,
                    self.buffers_description,
                    peer.0,
                    self.context(index),
                ),
            }
        };
        if result != 0 || inject.is_some() {
            self.free_sends.push(index);
        } else {
            self.receivers[index - self.queues.receives] = peer;
        }
        match result {
            0 => {
                self.counters.sent += 1;
                self.counters.injected += u64::from(inject.is_some());
                Ok(())
            }
            busy if busy == -(libc::EAGAIN as isize) => Err(SendError::Full),
            error => Err(SendError::Failed(self.objects.failure("fi_send", error as i64))),
        }
    }

    /// Returns the message in a receive buffer.
    pub fn message(&self, slot: &Slot) -> &[u8] {
        // SAFETY: the buffer is not posted while the slot exists, so nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.buffer(slot.index), slot.bytes) }
    }

    /// Returns the message in a receive buffer, to be changed in place, and where its body may go: memory of earlier bodies, and
    /// the memory that is lent.
    pub fn message_mut(&mut self, slot: &mut Slot) -> (&mut [u8], &mut SpareBodies, Rooms<'_>) {
        // SAFETY: as in `message`; the slot is borrowed too, so there is no second reference.
        let message = unsafe { std::slice::from_raw_parts_mut(self.buffer(slot.index), slot.bytes) };
        (message, &mut self.spare_bodies, Rooms(&self.lent))
    }

    /// Returns where a body may go: memory of earlier bodies, and the memory that is lent.
    pub fn body_memory(&mut self) -> (&mut SpareBodies, Rooms<'_>) {
        (&mut self.spare_bodies, Rooms(&self.lent))
    }

    /// Posts a receive buffer again.
    pub fn post(&mut self, slot: Slot) -> Result<(), Failure> {
        self.unposted.push(slot.index);
        self.post_all()
    }

    /// Lets this number of receive buffers be in use: as many as peers may send to, since few buffers stay in a cache. Those
    /// that are posted stay so.
    pub fn use_receives(&mut self, count: usize) -> Result<(), Failure> {
        self.used_receives = count.min(self.queues.receives);
        self.post_all()
    }

    fn may_post(&self) -> bool {
        self.queues.receives - self.unposted.len() < self.used_receives
    }

    fn post_all(&mut self) -> Result<(), Failure> {
        while let Some(index) = self.unposted.last().copied().filter(|_| self.may_post()) {
            // SAFETY: the endpoint is open; buffer and context stay until the operation has completed, and nobody
            // reads or writes the buffer meanwhile.
            let result = unsafe {
                (self.calls.recv)(
                    self.objects.ep,
                    self.buffer(index).cast(),
                    self.queues.buffer_bytes,
                    self.buffers_description,
                    abi::FI_ADDR_UNSPEC,
                    self.context(index),
                )
            };
            match result {
                0 => drop(self.unposted.pop()),
                busy if busy == -(libc::EAGAIN as isize) => return Ok(()),
                error => return Err(self.objects.failure("fi_recv", error as i64)),
            }
        }
        Ok(())
    }

    /// Lets the provider work and returns the next event, if there is one. After an error the endpoint is useless.
    pub fn poll(&mut self) -> Result<Option<Event>, Failure> {
        if self.events.is_empty() {
            self.take_completions()?;
            self.post_all()?;
            self.continue_reads();
        }
        Ok(self.events.pop_front())
    }

    /// Returns whether [`Endpoint::poll`] has an event without asking the provider.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    fn take_completions(&mut self) -> Result<(), Failure> {
        let empty = CqMsgEntry { op_context: std::ptr::null_mut(), flags: 0, len: 0 };
        let mut entries = [empty; COMPLETIONS_AT_A_TIME];
        // SAFETY: the queue is open, and the array has room for as many entries as are asked for.
        let count =
            unsafe { (self.calls.completions)(self.objects.cq, entries.as_mut_ptr().cast(), COMPLETIONS_AT_A_TIME) };
        match count {
            0.. => entries.iter().take(count as usize).for_each(|entry| self.completed(entry)),
            none if none == -(libc::EAGAIN as isize) || none == -(libc::EINTR as isize) => {}
            error if error == -abi::FI_EAVAIL => self.take_failure()?,
            error => return Err(self.objects.failure("fi_cq_read", error as i64)),
        }
        Ok(())
    }

    fn completed(&mut self, entry: &CqMsgEntry) {
        let (receives, slots) = (self.queues.receives, self.queues.receives + self.queues.sends);
        match self.index_of(entry.op_context) {
            Some(index) if index < receives => {
                self.counters.received += 1;
                let bytes = entry.len.min(self.queues.buffer_bytes);
                self.events.push_back(Event::Received(Slot { index, bytes }));
            }
            Some(index) if index < slots => self.free_sends.push(index),
            Some(index) => self.part_completed(index - slots),
            // Not an operation of ours, for example the end of a connection.
            None => {}
        }
    }

    fn take_failure(&mut self) -> Result<(), Failure> {
        // SAFETY: zeroes are a value of this structure of numbers and pointers.
        let mut entry: CqErrEntry = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is open, and the structure has room for members of later versions. `err_data_size` of 0
        // asks for no further data.
        let result = unsafe { (self.calls.failure)(self.objects.cq, &raw mut entry, 0) };
        match result {
            0.. => {}
            none if none == -(libc::EAGAIN as isize) => return Ok(()),
            error => return Err(self.objects.failure("fi_cq_readerr", error as i64)),
        }
        let (receives, slots) = (self.queues.receives, self.queues.receives + self.queues.sends);
        match self.index_of(entry.op_context) {
            Some(index) if index < receives => {
                self.counters.refused += 1;
                self.unposted.push(index);
            }
            Some(index) if index < slots => {
                self.free_sends.push(index);
                let failure = self.objects.failure("fi_send", entry.err.into());
                self.events.push_back(Event::SendFailed { peer: self.receivers[index - receives], failure });
            }
            Some(index) => {
                let failure = self.objects.failure("fi_read", entry.err.into());
                self.end_read(index - slots, Some(failure));
            }
            None => {}
        }
        Ok(())
    }

    /// Returns how a process waits for this endpoint.
    pub fn waits(&self) -> Waits {
        if self.objects.wait.is_some() { Waits::Descriptor } else { Waits::Timer }
    }

    /// Returns the descriptor that becomes readable when something happens, if the provider has one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the queue, which is open as long as the endpoint.
        self.objects.wait.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Returns whether the process may sleep on the descriptor now. Must be asked before each sleep, after the last
    /// event has been taken.
    pub fn may_sleep(&mut self) -> bool {
        self.events.is_empty() && self.objects.wait.is_some() && self.objects.may_sleep()
    }

    fn buffer(&self, index: usize) -> *mut u8 {
        // SAFETY: there is a buffer for each index of a receive or send.
        unsafe { self.buffers.start().add(index * self.queues.buffer_bytes) }
    }

    fn context(&self, index: usize) -> *mut c_void {
        // SAFETY: there is a context for each index.
        unsafe { self.contexts.start().add(index * CONTEXT_BYTES).cast() }
    }

    /// Returns the index of a context, if the pointer leads to one.
    fn index_of(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.contexts.start() as usize)?;
        (offset < self.contexts.len()).then_some(offset / CONTEXT_BYTES)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut are_free = true;
        let registrations = self.buffers_registration.take().into_iter();
        let of_reads = self.places.values_mut().filter_map(|place| place.registration.take());
        let of_regions = self.regions.values_mut().filter_map(|region| region.0.take());
        let all: Vec<Registration> = registrations.chain(of_reads).chain(of_regions).collect();
        for registration in all {
            are_free &= self.objects.unregister(registration);
        }
        let is_closed = self.objects.close();
        if is_closed {
            self.lent.forget_uses();
            self.lent_source.forget_uses();
        }
        if !(is_closed && are_free) {
            // The provider may still write to the memory, so it stays allocated.
            return;
        }
        // SAFETY: each value is dropped once, since this value ends here, and nobody uses the memory any more.
        unsafe {
            ManuallyDrop::drop(&mut self.buffers);
            ManuallyDrop::drop(&mut self.contexts);
            for (_, memory) in self.regions.values_mut() {
                ManuallyDrop::drop(memory);
            }
            for place in self.places.values_mut() {
                ManuallyDrop::drop(&mut place.body);
            }
        }
    }
}
