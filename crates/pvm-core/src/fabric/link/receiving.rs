//! What a frame of the peer does.
use super::super::frame::{read_eager, read_part};
use super::{
    Arrival, ArrivedBody, BTreeMap, EAGER_BYTES_MAX, Event, Header, Kind, Link, PIECES_UNTOLD_MAX, Piece, ToRead,
    Transfer, UNCOUNTED_MAX, UNTOLD_BYTES_MAX, Violation,
};

/// The memory of eager bodies.
pub trait BodyMemory {
    /// Returns the place of a body of this length: [`ArrivedBody::Here`] with an empty vector, or [`ArrivedBody::Placed`].
    /// Returns `None` if there is no memory. `next`: the number and the content of the message; `None` if other messages of the
    /// link may be delivered before it.
    fn reserve(&mut self, bytes: usize, next: Option<(u64, &[u8])>) -> Option<ArrivedBody>;

    /// Returns where bytes of the body whose place is [`ArrivedBody::Placed`] go, from this position on. Returns `None` if the
    /// place is not there any more.
    fn part(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]>;
}

/// Memory that always becomes the link's.
impl<F: FnMut(usize) -> Option<Vec<u8>>> BodyMemory for F {
    fn reserve(&mut self, bytes: usize, _: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
        self(bytes).map(ArrivedBody::Here)
    }

    fn part(&mut self, _: usize, _: usize) -> Option<&mut [u8]> {
        unreachable!("the body is here")
    }
}

type Memory<'a> = &'a mut dyn BodyMemory;

impl Link {
    /// How many more frames the peer may be allowed than it knows of.
    pub(super) fn grantable(&self) -> u64 {
        self.counted_received + u64::from(self.credits) - self.told_allowed
    }

    /// How many further credits are worth a grant. With less than half, more than [`UNCOUNTED_MAX`] could be under way.
    pub(super) fn grant_step(&self) -> u64 {
        u64::from(self.credits).div_ceil(2)
    }

    /// Lets the next frame report what was taken, even if there is nothing else to send. To be called before the owner
    /// sleeps, so that the peer need not keep its messages.
    pub fn report_taken(&mut self) {
        self.owes_taken |= self.pieces_taken() > self.told_taken;
    }

    /// Does the same if pieces were taken, whose memory the peer would like to use again.
    pub fn report_taken_pieces(&mut self) {
        self.owes_taken |= self.has_untold_piece && self.pieces_taken() > self.told_taken;
    }

    /// Returns how many pieces were taken.
    pub(super) fn pieces_taken(&self) -> u64 {
        let Some(first) = self.arrivals.front() else { return self.pieces_received };
        match first.awaited.keys().next() {
            Some(awaited) => *awaited,
            None if first.bytes_to_come > 0 => self.pieces_received,
            // A message that is held does not count as taken.
            None => first.last_piece,
        }
    }

    /// Takes a frame of the peer in. After an error the link is useless. `memory`: where eager bodies get their memory.
    pub fn receive(&mut self, frame: &[u8], memory: Memory<'_>) -> Result<(), Violation> {
        let (header, _) = Header::read(frame).ok_or(Violation::NoFrame)?;
        if !self.awaits(header.serial) {
            return Err(Violation::Serial);
        }
        if header.serial != self.frames_received {
            self.early.insert(header.serial, frame.to_vec());
            return Ok(());
        }
        self.take(frame, memory)?;
        self.take_early(memory)
    }

    /// Takes a frame of the peer in whose bytes were written to [`Link::room_for`].
    pub fn receive_written(&mut self, header: &Header, bytes: usize, memory: Memory<'_>) -> Result<(), Violation> {
        self.frames_received += 1;
        self.count(header)?;
        self.bytes_came(bytes);
        self.deliver();
        self.take_early(memory)
    }

    fn take_early(&mut self, memory: Memory<'_>) -> Result<(), Violation> {
        while let Some(next) = self.early.remove(&self.frames_received) {
            self.take(&next, memory)?;
        }
        Ok(())
    }

    /// Returns whether the frame with this serial number has not arrived yet, and may be under way.
    pub fn awaits(&self, serial: u64) -> bool {
        let end = self.frames_received + u64::from(self.credits + UNCOUNTED_MAX);
        (self.frames_received..end).contains(&serial) && !self.early.contains_key(&serial)
    }

    /// Takes the next frame in.
    fn take(&mut self, frame: &[u8], memory: Memory<'_>) -> Result<(), Violation> {
        let (header, rest) = Header::read(frame).ok_or(Violation::NoFrame)?;
        self.frames_received += 1;
        self.count(&header)?;
        match header.kind {
            Kind::Grant => return Ok(()),
            Kind::Several => {
                let mut rest = rest;
                while !rest.is_empty() {
                    let (kind, part, after) = read_part(rest).ok_or(Violation::NoFrame)?;
                    self.take_kind(kind, part)?;
                    rest = after;
                }
            }
            Kind::Piece => self.take_piece(Piece::read(rest).ok_or(Violation::NoFrame)?.0, false)?,
            Kind::Eager => {
                let (body_bytes, content, body) = read_eager(rest).ok_or(Violation::NoFrame)?;
                if self.take_eager(body_bytes, content, memory)? {
                    self.take_more(body, memory)?;
                }
            }
            Kind::More => self.take_more(rest, memory)?,
            Kind::Wanted => self.take_wanted(rest)?,
            Kind::Taken => {}
            kind => self.take_kind(kind, rest)?,
        }
        self.deliver();
        Ok(())
    }

    /// Takes the counters of a frame over, and counts it if it uses a credit.
    fn count(&mut self, header: &Header) -> Result<(), Violation> {
        let news = self.take_counters(header)?;
        if header.kind == Kind::Grant {
            return if news >= u64::from(self.peer_credits).div_ceil(2) { Ok(()) } else { Err(Violation::Grant) };
        }
        if self.counted_received == self.told_allowed {
            return Err(Violation::NoCredit);
        }
        self.counted_received += 1;
        Ok(())
    }

    /// Takes a message in.
    fn take_kind(&mut self, kind: Kind, rest: &[u8]) -> Result<(), Violation> {
        match kind {
            Kind::Short => self.take_message(rest, None),
            Kind::Offer => {
                let (piece, content) = Piece::read(rest).ok_or(Violation::NoFrame)?;
                self.take_message(content, Some(piece))
            }
            _ => Err(Violation::NoFrame),
        }
    }

    /// Takes the content of a message in, and the first piece of its body if it has one.
    fn take_message(&mut self, content: &[u8], piece: Option<Piece>) -> Result<(), Violation> {
        let bytes_to_come = piece.map_or(0, |piece| piece.body_bytes);
        if bytes_to_come > self.body_bytes_max {
            return Err(Violation::Length);
        }
        let body = if piece.is_some() { ArrivedBody::Read } else { ArrivedBody::None };
        self.begin_message(content, body, bytes_to_come)?;
        match piece {
            Some(piece) => {
                self.begin_body(piece.body_bytes, Transfer::Read);
                self.take_piece(piece, true)
            }
            None => {
                self.pieces_received += 1;
                Ok(())
            }
        }
    }

    fn begin_message(&mut self, content: &[u8], body: ArrivedBody, bytes_to_come: u64) -> Result<(), Violation> {
        if self.arrivals.back().is_some_and(|last| last.bytes_to_come > 0) {
            return Err(Violation::Piece);
        }
        let (content, last_piece) = (content.to_vec(), self.pieces_received);
        self.arrivals.push_back(Arrival { content, body, awaited: BTreeMap::new(), bytes_to_come, last_piece });
        Ok(())
    }

    fn begin_body(&mut self, bytes: u64, transfer: Transfer) {
        self.events.push_back(Event::Begun { message: self.last_message(), bytes, transfer });
    }

    /// Returns the number of the last message that has arrived, or has begun to.
    fn last_message(&self) -> u64 {
        self.taken + (self.arrivals.len() as u64).saturating_sub(1)
    }

    /// Takes the content of a message in whose body is eager. It counts as one piece. Returns false if there is no memory for
    /// it.
    fn take_eager(&mut self, body_bytes: u64, content: &[u8], memory: Memory<'_>) -> Result<bool, Violation> {
        let bytes = usize::try_from(body_bytes).ok().filter(|bytes| *bytes <= EAGER_BYTES_MAX);
        let bytes = bytes.ok_or(Violation::Length)?;
        let is_delivered_before = |event: &Event| matches!(event, Event::Message { .. });
        let is_next =
            self.arrivals.is_empty() && self.taken < self.deliverable && !self.events.iter().any(is_delivered_before);
        let Some(body) = memory.reserve(bytes, is_next.then_some((self.taken, content))) else {
            self.events.push_back(Event::NoMemory);
            return Ok(false);
        };
        self.begin_message(content, body, body_bytes)?;
        self.begin_body(body_bytes, Transfer::Eager);
        if let Some(last) = self.arrivals.back_mut() {
            last.awaited.insert(self.pieces_received, 0);
        }
        self.pieces_received += 1;
        Ok(true)
    }

    /// Takes the next bytes of an eager body in.
    fn take_more(&mut self, bytes: &[u8], memory: Memory<'_>) -> Result<(), Violation> {
        let last = self.arrivals.back_mut().filter(|last| last.bytes_to_come > 0).ok_or(Violation::Piece)?;
        if bytes.is_empty() || last.bytes_to_come < bytes.len() as u64 {
            return Err(Violation::Piece);
        }
        match &mut last.body {
            ArrivedBody::Here(body) => body.extend_from_slice(bytes),
            ArrivedBody::Placed { bytes: all } => match memory.part(*all - last.bytes_to_come as usize, bytes.len()) {
                Some(place) => place.copy_from_slice(bytes),
                None => self.events.push_back(Event::NoMemory),
            },
            ArrivedBody::None | ArrivedBody::Read => return Err(Violation::Piece),
        }
        self.bytes_came(bytes.len());
        Ok(())
    }

    /// Counts the next bytes of an eager body, which are in their place.
    fn bytes_came(&mut self, bytes: usize) {
        if let Some(last) = self.arrivals.back_mut() {
            last.bytes_to_come -= bytes as u64;
            if last.bytes_to_come == 0 {
                last.awaited.clear();
            }
        }
    }

    /// Returns where the bytes of a frame go that has this header and this many bytes: if it is the next frame, and has only
    /// bytes of an eager body that has begun. They may be written there before [`Link::receive_written`]; if they are not,
    /// [`Link::forget_room`] is to be called.
    pub fn room_for<'a>(&'a mut self, header: &Header, bytes: usize, memory: Memory<'a>) -> Option<&'a mut [u8]> {
        let last = self.arrivals.back_mut().filter(|last| last.bytes_to_come >= bytes as u64)?;
        if header.kind != Kind::More || header.serial != self.frames_received || bytes == 0 {
            return None;
        }
        match &mut last.body {
            ArrivedBody::Here(body) => {
                let at = body.len();
                body.resize(at + bytes, 0);
                Some(&mut body[at..])
            }
            ArrivedBody::Placed { bytes: all } => memory.part(*all - last.bytes_to_come as usize, bytes),
            ArrivedBody::None | ArrivedBody::Read => None,
        }
    }

    /// Takes back the room for this many bytes.
    pub fn forget_room(&mut self, bytes: usize) {
        if let Some(ArrivedBody::Here(body)) = self.arrivals.back_mut().map(|last| &mut last.body) {
            body.truncate(body.len().saturating_sub(bytes));
        }
    }

    /// Returns how many bytes of the body that the owner has placed have arrived, and its length, if it is not complete.
    pub fn placed(&self) -> Option<(usize, usize)> {
        let last = self.arrivals.back().filter(|last| last.bytes_to_come > 0)?;
        match last.body {
            ArrivedBody::Placed { bytes } => Some((bytes - last.bytes_to_come as usize, bytes)),
            _ => None,
        }
    }

    /// Replaces the place of this body by memory with a copy of the bytes that have arrived.
    pub fn replace_placed(&mut self, body: Vec<u8>) {
        let arrived = self.placed().map(|(arrived, _)| arrived);
        assert_eq!(arrived, Some(body.len()), "the copy has what has arrived");
        if let Some(last) = self.arrivals.back_mut() {
            last.body = ArrivedBody::Here(body);
        }
    }

    /// Takes a piece of the last message's body in.
    fn take_piece(&mut self, piece: Piece, is_first: bool) -> Result<(), Violation> {
        let message = self.last_message();
        let last = self.arrivals.back_mut().filter(|last| last.bytes_to_come > 0 || is_first);
        let last = last.filter(|last| last.body == ArrivedBody::Read).ok_or(Violation::Piece)?;
        let is_empty = piece.place.bytes == 0 && piece.body_bytes > 0;
        last.bytes_to_come =
            last.bytes_to_come.checked_sub(piece.place.bytes).filter(|_| !is_empty).ok_or(Violation::Piece)?;
        last.awaited.insert(self.pieces_received, piece.place.bytes);
        last.last_piece = self.pieces_received;
        self.events.push_back(Event::Read(ToRead { message, number: self.pieces_received, piece }));
        self.pieces_received += 1;
        Ok(())
    }

    /// Takes over the counters of a frame. Returns how many further frames it allows.
    fn take_counters(&mut self, header: &Header) -> Result<u64, Violation> {
        let further = u64::from(header.allowed.wrapping_sub(self.allowed as u32));
        if self.allowed + further > self.counted_sent + u64::from(self.peer_credits) {
            return Err(Violation::Grant);
        }
        let taken = u64::from(header.taken.wrapping_sub(self.pieces_taken_by_peer as u32));
        if self.pieces_taken_by_peer + taken > self.pieces_sent {
            return Err(Violation::Taken);
        }
        self.allowed += further;
        self.wishes_of_peer = header.wishes;
        self.pieces_taken_by_peer += taken;
        let messages = self.ends.iter().take_while(|end| **end <= self.pieces_taken_by_peer).count();
        if messages > 0 {
            self.ends.drain(..messages);
            self.kept.drain(..messages);
            self.in_flight -= messages;
            self.taken_by_peer += messages as u64;
            self.events.push_back(Event::Taken(self.taken_by_peer));
        }
        Ok(further)
    }

    /// Records that a piece was read.
    pub fn piece_arrived(&mut self, message: u64, number: u64) {
        let index = message.checked_sub(self.taken).and_then(|index| usize::try_from(index).ok());
        let arrival = index.and_then(|index| self.arrivals.get_mut(index));
        let Some(bytes) = arrival.and_then(|arrival| arrival.awaited.remove(&number)) else { return };
        self.has_untold_piece = true;
        self.untold_bytes += bytes;
        self.deliver();
        // Only a sender that has more pieces to make is short of memory.
        let makes_more = self.arrivals.back().is_some_and(|last| last.bytes_to_come > 0);
        let untold = self.pieces_taken() - self.told_taken;
        self.owes_taken |=
            untold >= PIECES_UNTOLD_MAX || (untold > 0 && makes_more && self.untold_bytes >= UNTOLD_BYTES_MAX);
    }

    /// Delivers only this number of messages of the peer until [`Link::release`]. Later ones wait, and do not count as taken.
    pub fn hold_after(&mut self, messages: u64) {
        self.deliverable = messages;
    }

    /// Delivers the messages that were held, and later ones.
    pub fn release(&mut self) {
        self.deliverable = u64::MAX;
        self.deliver();
    }

    /// Returns the number and the content of the message that is delivered next, if it has begun to arrive and may be
    /// delivered.
    pub fn next_to_deliver(&self) -> Option<(u64, &[u8])> {
        let first = self.arrivals.front().filter(|_| self.taken < self.deliverable)?;
        Some((self.taken, &first.content))
    }

    /// Delivers the messages whose turn has come.
    fn deliver(&mut self) {
        let is_complete = |arrival: &Arrival| arrival.awaited.is_empty() && arrival.bytes_to_come == 0;
        while self.taken < self.deliverable && self.arrivals.front().is_some_and(is_complete) {
            let Some(Arrival { content, body, .. }) = self.arrivals.pop_front() else { return };
            self.events.push_back(Event::Message { number: self.taken, content, body });
            self.taken += 1;
        }
    }
}
