//! Reads of peers' memory.
use super::super::memory::PAGE_BYTES_MIN;
use super::super::objects::Registration;
use super::{Endpoint, Event, Peer, ReadError, Remote, abi};
use crate::fabric::Failure;
use std::mem::ManuallyDrop;

/// A read that is under way.
pub(super) struct Reading {
    ticket: u64,
    peer: Peer,
    remote: Remote,
    /// The place of the body, without length until the end. The provider writes there, so it is not touched before.
    pub body: ManuallyDrop<Vec<u8>>,
    start: *mut u8,
    pub bytes: usize,
    pub done: usize,
    /// The length of the part that is under way; 0 if the provider had no room for it yet.
    pub part: usize,
    pub registration: Option<Registration>,
    /// Whether nobody waits for the body any more.
    is_abandoned: bool,
}

impl Endpoint {
    /// Returns whether there is room for one more read.
    pub fn can_read(&self) -> bool {
        let waited_for = self.readings.iter().flatten().filter(|reading| !reading.is_abandoned).count();
        waited_for < self.queues.reads && self.readings.iter().any(Option::is_none)
    }

    /// Begins to read this many bytes of a peer's memory into new memory. The end is reported as an event with this
    /// ticket.
    pub fn read(&mut self, peer: Peer, remote: Remote, bytes: usize, ticket: u64) -> Result<(), ReadError> {
        let free = self.readings.iter().position(Option::is_none).filter(|_| self.can_read()).ok_or(ReadError::Full)?;
        let mut body = Vec::new();
        body.try_reserve_exact(bytes).map_err(|_| ReadError::NoMemory)?;
        if bytes == 0 {
            self.events.push_back(Event::Read { ticket, body });
            return Ok(());
        }
        let mut body = ManuallyDrop::new(body);
        let start: *mut u8 = body.as_mut_ptr();
        let registration = match self.register_body(start, bytes) {
            Ok(registration) => registration,
            Err(failure) => {
                drop(ManuallyDrop::into_inner(body));
                return Err(ReadError::Failed(failure));
            }
        };
        self.readings[free] = Some(Reading {
            ticket,
            peer,
            remote,
            body,
            start,
            bytes,
            done: 0,
            part: 0,
            registration,
            is_abandoned: false,
        });
        self.read_part(free);
        Ok(())
    }

    /// Registers the place of a body, which stays until its read has ended, if the provider asks for that.
    fn register_body(&mut self, start: *mut u8, bytes: usize) -> Result<Option<Registration>, Failure> {
        if !self.objects.registers_local() {
            return Ok(None);
        }
        if self.objects.needs_pages() {
            // New memory has no pages before it is written to.
            for offset in (0..bytes).step_by(PAGE_BYTES_MIN).chain([bytes - 1]) {
                // SAFETY: the body has room for this many bytes, more than none.
                unsafe { start.add(offset).write_volatile(0) };
            }
        }
        // SAFETY: the body is kept until its registration and the operation have ended.
        unsafe { self.objects.register(start, bytes, abi::FI_READ) }.map(Some)
    }

    /// Lets nobody wait for the reads from a peer. Those without a part under way end at once.
    pub(super) fn abandon_reads(&mut self, peer: Peer) {
        for index in 0..self.readings.len() {
            let Some(reading) = self.readings[index].as_mut().filter(|reading| reading.peer == peer) else { continue };
            reading.is_abandoned = true;
            self.continue_read(index);
        }
    }

    /// Begins the next part of a read if none is under way, or ends the read if nobody waits for it. The provider no
    /// longer knows the peer of such a read.
    pub(super) fn continue_read(&mut self, index: usize) {
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
        let Some(reading) = &mut self.readings[index] else { return };
        let part = (reading.bytes - reading.done).min(self.part_bytes);
        let description = reading.registration.as_ref().map_or(std::ptr::null_mut(), |of| of.description);
        // SAFETY: the endpoint is open; body and context stay until the operation has completed.
        let result = unsafe {
            (self.calls.read)(
                self.objects.ep,
                reading.start.add(reading.done).cast(),
                part,
                description,
                reading.peer.0,
                reading.remote.address.wrapping_add(reading.done as u64),
                reading.remote.key,
                context,
            )
        };
        match result {
            0 => reading.part = part,
            busy if busy == -(libc::EAGAIN as isize) => reading.part = 0,
            error => {
                let failure = self.objects.failure("fi_read", error as i64);
                self.end_read(index, Some(failure));
            }
        }
    }

    /// Ends a read, and reports the end if somebody waits for it.
    pub(super) fn end_read(&mut self, index: usize, failure: Option<Failure>) {
        let Some(mut reading) = self.readings[index].take() else { return };
        if failure.is_none() {
            // SAFETY: the vector has room for this many bytes, and the provider has written all of them.
            unsafe { reading.body.set_len(reading.bytes) };
        }
        let (ticket, is_abandoned) = (reading.ticket, reading.is_abandoned);
        let is_free = reading.registration.is_none_or(|registration| self.objects.unregister(registration));
        let event = match failure {
            None if is_free => Event::Read { ticket, body: ManuallyDrop::into_inner(reading.body) },
            // If the provider does not let go of the memory, it stays allocated for ever.
            None => {
                let words = "the registration cannot be ended".to_owned();
                Event::ReadFailed { ticket, failure: Failure { call: "fi_close", words } }
            }
            Some(failure) => {
                if is_free {
                    drop(ManuallyDrop::into_inner(reading.body));
                }
                Event::ReadFailed { ticket, failure }
            }
        };
        if !is_abandoned {
            self.events.push_back(event);
        }
    }
}
