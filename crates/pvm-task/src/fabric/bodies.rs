//! Bodies of messages that arrive: each is read from its sender's memory, in one or more pieces.
use super::{Broken, FabricLinks, LinkName, Neighbour};
use pvm_core::fabric::ToRead;
use pvm_net::fabric::{Failure, ReadError, ReadPart, Remote, providers};
use std::time::{Duration, Instant};

/// A process polls without a pause for this time after a body has begun to travel, or something has arrived meanwhile.
const ACTIVE_TIME: Duration = Duration::from_millis(20);

impl FabricLinks {
    /// Takes back the memory of a body that nobody needs any more, for bodies that arrive later. Without this, each of
    /// them needs new memory, which takes longer to make than a fast network needs to fill it.
    pub fn recycle(&mut self, body: Vec<u8>) {
        self.endpoint.recycle(body);
    }

    /// Frees the memory of earlier bodies, which was kept for the next ones, and ends the registration of the heap's parts.
    pub fn forget_spare_bodies(&mut self) {
        self.endpoint.forget_spare_bodies();
        self.heap.close(&mut self.endpoint);
    }

    /// Begins to read a piece, after those that wait.
    pub(super) fn read(&mut self, name: LinkName, read: ToRead) {
        self.waiting_reads.push_back((name, read));
        self.read_waiting();
    }

    /// Begins the reads for which there is room now.
    pub(super) fn read_waiting(&mut self) {
        while !self.waiting_reads.is_empty() && self.endpoint.can_read() {
            if let Some((name, read)) = self.waiting_reads.pop_front() {
                match self.begin(name, read) {
                    Ok(()) => {}
                    Err(ReadError::Full) => return self.waiting_reads.push_front((name, read)),
                    Err(ReadError::NoMemory) => self.give_up(name, Broken::NoMemory),
                    Err(ReadError::Failed(failure)) => self.give_up(name, Broken::Provider(failure)),
                }
            }
        }
    }

    fn begin(&mut self, name: LinkName, read: ToRead) -> Result<(), ReadError> {
        let length = |bytes: u64| usize::try_from(bytes).map_err(|_| ReadError::NoMemory);
        let Some(from) = self.neighbours.get(&name) else { return Ok(()) };
        let place = match from.places.get(&read.message) {
            Some(place) => *place,
            None => {
                let bytes = length(read.piece.body_bytes)?;
                match self.place_in_room(name, read.message, bytes)? {
                    Some(place) => place,
                    None => self.endpoint.make_place(bytes)?,
                }
            }
        };
        let Some(from) = self.neighbours.get_mut(&name) else { return Ok(()) };
        from.places.insert(read.message, place);
        let offered = read.piece.place;
        let remote = Remote { address: offered.address, key: offered.key };
        self.endpoint.read_next(place, from.peer, remote, length(offered.bytes)?, self.reads_made)?;
        self.reads.insert(self.reads_made, (name, read));
        self.reads_made += 1;
        self.active_at = Some(Instant::now());
        Ok(())
    }

    /// Opens a piece that was read, and records it.
    pub(super) fn piece_arrived(&mut self, ticket: u64, part: &ReadPart) {
        // The read of a link that has ended.
        let Some((name, read)) = self.reads.remove(&ticket) else { return };
        let Some(from) = self.neighbours.get_mut(&name) else { return };
        if let Some(seals) = &from.seals {
            let piece = self.endpoint.read_part_mut(part);
            if !piece.is_some_and(|piece| seals.open_piece(read.number, read.piece.tag, piece)) {
                return self.give_up(name, Broken::Forged);
            }
        }
        from.link.piece_arrived(read.message, read.number);
        if !self.untold.contains(&name) {
            self.untold.push(name);
        }
        self.mark_due(name);
        self.take_link_events(name);
    }

    /// Takes the body of a message.
    pub(super) fn take_body(&mut self, name: LinkName, message: u64) -> Result<Option<Vec<u8>>, Failure> {
        let place = self.neighbours.get_mut(&name).and_then(|from| from.places.remove(&message));
        place.map(|place| self.endpoint.take_body(place)).transpose()
    }

    /// Notes that something has arrived, if a body is under way.
    pub(super) fn note_activity(&mut self) {
        if self.active_at.is_some() {
            let is_reading = !self.reads.is_empty() || !self.waiting_reads.is_empty();
            let is_busy = is_reading || self.neighbours.values().any(Neighbour::offers_bodies);
            self.active_at = is_busy.then(Instant::now);
        }
    }

    /// Returns whether bodies are under way, and not for too long: providers in software move them only while they are
    /// polled, and have no event before the end. Not so those above datagrams: with a peer that polls without a pause, too,
    /// `udp;ofi_rxd` of libfabric 1.17 stalled in two of five exchanges.
    pub(super) fn carries_bodies(&self, now: Instant) -> bool {
        let is_new = self.active_at.is_some_and(|at| now.saturating_duration_since(at) < ACTIVE_TIME);
        let is_steady = !providers::is_above_datagrams(&self.provider);
        is_steady && is_new && (!self.reads.is_empty() || self.neighbours.values().any(Neighbour::offers_bodies))
    }
}
