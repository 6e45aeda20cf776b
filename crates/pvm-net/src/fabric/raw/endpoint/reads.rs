//! Reads of peers' memory.
use super::super::memory::PAGE_BYTES_MIN;
use super::super::objects::Registration;
use super::spares::SpareBodies;
use super::{Endpoint, Event, Peer, ReadError, Remote, abi};
use crate::fabric::Failure;
use std::mem::ManuallyDrop;

/// This many reads may be under way, however long they are.
const LONG_READS_MAX: usize = 4;
/// Further ones only while fewer bytes than these are under way: more would not find room in a cache.
const UNDER_WAY_BYTES_MAX: usize = 1 << 20;

/// Names the place of a body that is read part by part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceId(u64);

/// A part of a body that was read.
#[derive(Debug)]
pub struct ReadPart {
    place: PlaceId,
    at: usize,
    bytes: usize,
}

/// The place of a body.
pub(super) struct Place {
    /// Without length until the end. The provider writes there, so it is not touched before.
    pub body: ManuallyDrop<Vec<u8>>,
    start: *mut u8,
    bytes: usize,
    /// How many bytes are read or being read, and how many were read.
    begun: usize,
    done: usize,
    /// How many reads are under way.
    reads: usize,
    pub registration: Option<Registration>,
    /// Whether nobody waits for the body any more.
    is_given_up: bool,
    /// The loan, if the place is in memory that is lent ([`super::Lender`]). `body` is empty then.
    loan: Option<u64>,
}

/// A read that is under way.
pub(super) struct Reading {
    ticket: u64,
    /// The number of reads that were begun before.
    number: u64,
    peer: Peer,
    remote: Remote,
    place: PlaceId,
    at: usize,
    bytes: usize,
    done: usize,
    /// The length of the part that is under way; 0 if the provider had no room for it yet.
    part: usize,
    /// Whether the read was asked for as a whole body.
    is_whole: bool,
    /// Whether nobody waits for the body any more.
    is_abandoned: bool,
}

impl Endpoint {
    /// Returns whether there is room for one more read.
    pub fn can_read(&self) -> bool {
        self.free_reading().is_some()
    }

    fn free_reading(&self) -> Option<usize> {
        let waited_for = || self.readings.iter().flatten().filter(|reading| !reading.is_abandoned);
        let (count, bytes) = (waited_for().count(), waited_for().map(|reading| reading.bytes).sum::<usize>());
        let is_room = count < self.queues.reads && (count < LONG_READS_MAX || bytes < UNDER_WAY_BYTES_MAX);
        self.readings.iter().position(Option::is_none).filter(|_| is_room)
    }

    /// Begins to read this many bytes of a peer's memory into new memory. The end is reported as an event with this
    /// ticket.
    pub fn read(&mut self, peer: Peer, remote: Remote, bytes: usize, ticket: u64) -> Result<(), ReadError> {
        let free = self.free_reading().ok_or(ReadError::Full)?;
        let place = self.make_place(bytes)?;
        self.begin_read(free, place, peer, remote, bytes, ticket);
        self.reading_mut(free).is_whole = true;
        self.read_part(free);
        Ok(())
    }

    /// Makes the place of a body, which is then filled by [`Endpoint::read_next`] and taken by [`Endpoint::take_body`].
    pub fn make_place(&mut self, bytes: usize) -> Result<PlaceId, ReadError> {
        let mut body = ManuallyDrop::new(self.spare_bodies.take(bytes).ok_or(ReadError::NoMemory)?);
        let start: *mut u8 = body.as_mut_ptr();
        let registration = match self.register_body(start, bytes) {
            Ok(registration) => registration,
            Err(failure) => {
                drop(ManuallyDrop::into_inner(body));
                return Err(ReadError::Failed(failure));
            }
        };
        Ok(self.add_place(ManuallyDrop::into_inner(body), start, bytes, registration, None))
    }

    pub(super) fn add_place(
        &mut self,
        body: Vec<u8>,
        start: *mut u8,
        bytes: usize,
        registration: Option<Registration>,
        loan: Option<u64>,
    ) -> PlaceId {
        let (id, body) = (PlaceId(self.places_made), ManuallyDrop::new(body));
        self.places_made += 1;
        let place = Place { body, start, bytes, begun: 0, done: 0, reads: 0, registration, is_given_up: false, loan };
        self.places.insert(id, place);
        id
    }

    /// Begins to read the next part of a body. The end is reported as an event with this ticket.
    ///
    /// # Panics
    /// If there is no such place, or it is shorter.
    pub fn read_next(
        &mut self,
        place: PlaceId,
        peer: Peer,
        remote: Remote,
        bytes: usize,
        ticket: u64,
    ) -> Result<(), ReadError> {
        let free = self.free_reading().ok_or(ReadError::Full)?;
        if !self.is_there(place) {
            let words = "the memory is the caller's again".into();
            return Err(ReadError::Failed(Failure { call: "fi_read", words }));
        }
        self.begin_read(free, place, peer, remote, bytes, ticket);
        self.read_part(free);
        Ok(())
    }

    /// Returns whether the memory of a place may be used: for ever, or as long as it is lent.
    fn is_there(&self, place: PlaceId) -> bool {
        let loan = self.places.get(&place).and_then(|place| place.loan);
        loan.is_none_or(|loan| self.lent.is_in(loan))
    }

    /// Returns a part of a body that was read, to be changed in place, as long as the body is not taken or given up.
    pub fn read_part_mut(&mut self, part: &ReadPart) -> Option<&mut [u8]> {
        if !self.is_there(part.place) {
            return None;
        }
        let place = self.places.get_mut(&part.place)?;
        // SAFETY: the provider has written these bytes and no longer writes there: no two reads of a place have bytes in
        // common.
        Some(unsafe { std::slice::from_raw_parts_mut(place.start.add(part.at), part.bytes) })
    }

    /// Takes a body, which is empty if the place was in memory that is lent. Fails if not all of it was read; it is then to be
    /// given up.
    pub fn take_body(&mut self, place: PlaceId) -> Result<Vec<u8>, Failure> {
        let is_done = self.places.get(&place).is_some_and(|place| place.done == place.bytes && place.reads == 0);
        let taken = if is_done { self.places.remove(&place) } else { None };
        let place = taken.ok_or(Failure { call: "fi_read", words: "the body was not read".into() })?;
        if place.loan.is_some() {
            // Nothing writes there any more, even if the provider does not let go of it.
            place.registration.map(|registration| self.objects.unregister(registration));
            return Ok(ManuallyDrop::into_inner(place.body));
        }
        let mut body = place.body;
        // SAFETY: the vector has room for this many bytes, and the provider has written all of them.
        unsafe { body.set_len(place.bytes) };
        if place.registration.is_none_or(|registration| self.objects.unregister(registration)) {
            return Ok(ManuallyDrop::into_inner(body));
        }
        // The provider does not let go of the memory, so it stays allocated for ever.
        Err(Failure { call: "fi_close", words: "the registration cannot be ended".into() })
    }

    /// Lets nobody wait for a body any more. Its memory is kept until the last read has ended.
    pub fn give_up_body(&mut self, place: PlaceId) {
        if let Some(of) = self.places.get_mut(&place) {
            of.is_given_up = true;
            self.free_if_unused(place);
        }
    }

    /// Takes the memory of a body back that nobody needs any more, to be used for later ones.
    pub fn recycle(&mut self, body: Vec<u8>) {
        self.spare_bodies.put(body);
    }

    /// Frees the memory of earlier bodies, which was kept for the next ones.
    pub fn forget_spare_bodies(&mut self) {
        self.spare_bodies = SpareBodies::default();
    }

    /// Registers the place of a body, which stays until its last read has ended, if the provider asks for that.
    pub(super) fn register_body(&mut self, start: *mut u8, bytes: usize) -> Result<Option<Registration>, Failure> {
        if !self.objects.registers_local() || bytes == 0 {
            return Ok(None);
        }
        if self.objects.needs_pages() {
            // New memory has no pages before it is written to.
            for offset in (0..bytes).step_by(PAGE_BYTES_MIN).chain([bytes - 1]) {
                // SAFETY: the body has room for this many bytes, more than none.
                unsafe { start.add(offset).write_volatile(0) };
            }
        }
        // SAFETY: the body is kept until its registration and the operations have ended.
        unsafe { self.objects.register(start, bytes, abi::FI_READ) }.map(Some)
    }

    fn begin_read(&mut self, free: usize, place: PlaceId, peer: Peer, remote: Remote, bytes: usize, ticket: u64) {
        let of = self.places.get_mut(&place).expect("the place was made and not taken");
        assert!(bytes <= of.bytes - of.begun, "the place has room for the part");
        let at = of.begun;
        of.begun += bytes;
        of.reads += 1;
        if of.loan.is_some() {
            self.lent.use_begins();
        }
        self.delayed_readings += 1;
        self.reads_begun += 1;
        self.readings[free] = Some(Reading {
            ticket,
            number: self.reads_begun,
            peer,
            remote,
            place,
            at,
            bytes,
            done: 0,
            part: 0,
            is_whole: false,
            is_abandoned: false,
        });
    }

    fn reading_mut(&mut self, index: usize) -> &mut Reading {
        self.readings[index].as_mut().expect("the read was begun")
    }

    /// Lets nobody wait for the reads from a peer. Those without a part under way end at once.
    pub(super) fn abandon_reads(&mut self, peer: Peer) {
        for index in 0..self.readings.len() {
            let Some(reading) = self.readings[index].as_mut().filter(|reading| reading.peer == peer) else { continue };
            reading.is_abandoned = true;
            self.continue_read(index);
        }
    }

    /// Begins the next parts of reads for which the provider had no room.
    pub(super) fn continue_reads(&mut self) {
        if self.delayed_readings > 0 {
            for index in 0..self.readings.len() {
                self.continue_read(index);
            }
        }
    }

    /// Begins the next part of a read if none is under way, or ends the read if nobody waits for it. The provider no
    /// longer knows the peer of such a read.
    fn continue_read(&mut self, index: usize) {
        let Some(reading) = self.readings[index].as_ref().filter(|reading| reading.part == 0) else { return };
        if reading.is_abandoned {
            self.end_read(index, Some(Failure { call: "fi_read", words: "the peer was removed".into() }));
        } else {
            self.read_part(index);
        }
    }

    /// Begins the next part of a read, if the provider has room.
    fn read_part(&mut self, index: usize) {
        let context = self.context(self.queues.receives + self.queues.sends + index);
        let must_wait = self.must_wait(index);
        let Some(reading) = &mut self.readings[index] else { return };
        if reading.bytes == 0 {
            return self.end_read(index, None);
        }
        if must_wait {
            return;
        }
        let part = (reading.bytes - reading.done).min(self.part_bytes);
        let Some(place) = self.places.get(&reading.place) else { return };
        let description = place.registration.as_ref().map_or(std::ptr::null_mut(), |of| of.description);
        // SAFETY: the endpoint is open; body and context stay until the operation has completed. The part is inside the
        // body.
        let result = unsafe {
            (self.calls.read)(
                self.objects.ep,
                place.start.add(reading.at + reading.done).cast(),
                part,
                description,
                reading.peer.0,
                reading.remote.address.wrapping_add(reading.done as u64),
                reading.remote.key,
                context,
            )
        };
        match result {
            0 => {
                reading.part = part;
                self.delayed_readings -= 1;
            }
            busy if busy == -(libc::EAGAIN as isize) => {}
            error => {
                let failure = self.objects.failure("fi_read", error as i64);
                self.end_read(index, Some(failure));
            }
        }
    }

    /// Returns whether the next part of a read has to wait for the end of an earlier read from the same peer.
    fn must_wait(&self, index: usize) -> bool {
        let Some(reading) = self.readings[index].as_ref().filter(|_| self.has_single_reads) else { return false };
        let is_before =
            |other: &Reading| other.number < reading.number && other.peer == reading.peer && !other.is_abandoned;
        self.readings.iter().flatten().any(is_before)
    }

    /// Records that the part under way was read.
    pub(super) fn part_completed(&mut self, index: usize) {
        let Some(reading) = self.readings[index].as_mut().filter(|reading| reading.part > 0) else { return };
        self.counters.read_bytes += reading.part as u64;
        reading.done += reading.part;
        reading.part = 0;
        self.delayed_readings += 1;
        if reading.done == reading.bytes {
            self.end_read(index, None);
        }
    }

    /// Ends a read, and reports the end if somebody waits for it.
    pub(super) fn end_read(&mut self, index: usize, failure: Option<Failure>) {
        let Some(reading) = self.readings[index].take() else { return };
        self.delayed_readings -= usize::from(reading.part == 0);
        let Reading { ticket, place, at, bytes, is_whole, .. } = reading;
        if let Some(of) = self.places.get_mut(&place) {
            of.reads -= 1;
            if of.loan.is_some() {
                self.lent.use_ends();
            }
            of.done += if failure.is_none() { bytes } else { 0 };
        }
        let event = match (failure, is_whole) {
            (None, false) => Event::PartRead { ticket, part: ReadPart { place, at, bytes } },
            (None, true) => match self.take_body(place) {
                Ok(body) => Event::Read { ticket, body },
                Err(failure) => Event::ReadFailed { ticket, failure },
            },
            (Some(failure), _) => {
                if is_whole {
                    self.give_up_body(place);
                }
                Event::ReadFailed { ticket, failure }
            }
        };
        if !reading.is_abandoned {
            self.events.push_back(event);
        }
        self.free_if_unused(place);
    }

    /// Frees the memory of a body that nobody waits for, once no read is under way.
    fn free_if_unused(&mut self, id: PlaceId) {
        if self.places.get(&id).is_none_or(|place| !place.is_given_up || place.reads > 0) {
            return;
        }
        let Some(place) = self.places.remove(&id) else { return };
        // If the provider does not let go of the memory, it stays allocated for ever.
        if place.registration.is_none_or(|registration| self.objects.unregister(registration)) {
            drop(ManuallyDrop::into_inner(place.body));
        }
    }
}
