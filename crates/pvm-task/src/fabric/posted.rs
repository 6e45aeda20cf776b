//! A posted receive: a long body that arrives for it is read or copied into its memory at once. Its task tells the peer of
//! it, which may then offer memory that it lends for this message alone.
use super::offers::{Body, Offer};
use super::{Broken, FabricEvent, FabricLinks, LinkName, no_region};
use pvm_core::fabric::{ArrivedBody, BodyMemory};
use pvm_fmp::count_copy;
use pvm_net::fabric::{Failure, Lender, PlaceId, ReadError, Room, Rooms, SourceLender, SpareBodies, providers};
use std::sync::Arc;
use std::time::Instant;

/// Returns whether a message of that link with this content is the one for which the receive waits.
pub type Accepts = Box<dyn Fn(LinkName, &[u8]) -> bool>;

/// The receive.
#[derive(Default)]
pub(super) struct Posted {
    /// Which message it accepts; `None` if there is no receive, or it may accept only what has arrived before.
    accepts: Option<Accepts>,
    /// The message whose body is arriving in its memory.
    filling: Option<Filling>,
}

/// A message whose body is arriving in the memory of the receive.
struct Filling {
    link: LinkName,
    message: u64,
    bytes: usize,
    /// The memory, if the body is copied there from frames; otherwise it is read.
    room: Option<Room>,
}

/// Where the eager bodies of a link go: to the memory of the posted receive if it waits for them, or to memory of their own.
pub(super) struct EagerMemory<'a> {
    pub link: LinkName,
    pub posted: &'a mut Posted,
    pub spares: &'a mut SpareBodies,
    pub rooms: Rooms<'a>,
}

impl BodyMemory for EagerMemory<'_> {
    fn reserve(&mut self, bytes: usize, next: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
        let accepts = |content| self.posted.accepts.as_ref().is_some_and(|accepts| accepts(self.link, content));
        if let Some((message, _)) = next.filter(|(_, content)| accepts(content)) {
            if let Some(room) = self.rooms.take(bytes) {
                self.posted.fill(Filling { link: self.link, message, bytes, room: Some(room) });
                return Some(ArrivedBody::Placed { bytes });
            }
        }
        self.spares.take(bytes).map(ArrivedBody::Here)
    }

    fn part(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
        count_copy(bytes);
        let filling = self.posted.filling.as_mut().filter(|filling| filling.link == self.link);
        filling.and_then(|filling| filling.room.as_mut()).and_then(|room| self.rooms.part_mut(room, at, bytes))
    }
}

impl Posted {
    /// Notes that a message has arrived in another way: it may be the one for which the receive waits.
    pub fn close(&mut self) {
        self.accepts = None;
    }

    fn fill(&mut self, filling: Filling) {
        *self = Posted { accepts: None, filling: Some(filling) };
    }

    /// Returns the length of the body of this message if it has arrived in the memory of the receive.
    pub fn take_filled(&mut self, link: LinkName, message: u64) -> Option<usize> {
        match self.filling.take_if(|filling| (filling.link, filling.message) == (link, message)) {
            Some(filling) => Some(filling.bytes),
            None => {
                self.close();
                None
            }
        }
    }

    /// Forgets the message of a link that has ended.
    pub fn forget(&mut self, link: LinkName) {
        self.filling.take_if(|filling| filling.link == link);
    }
}

impl FabricLinks {
    /// Returns what lends memory for a posted receive.
    pub fn lender(&self) -> Lender {
        self.endpoint.lender()
    }

    /// Posts a receive. The body of the next message that it accepts is read or copied into the memory that is lent, unless
    /// another message arrives first.
    pub fn post(&mut self, accepts: Accepts) {
        let has_message = self.events.iter().any(|event| matches!(event, FabricEvent::Message { .. }));
        self.posted = Posted { accepts: (!has_message).then_some(accepts), filling: None };
    }

    /// Returns the link whose body is arriving in the memory of the posted receive, and the body's length, if there is one.
    pub fn filling(&self) -> Option<(LinkName, usize)> {
        self.posted.filling.as_ref().map(|filling| (filling.link, filling.bytes))
    }

    /// Returns how many bytes have been copied into the memory of the posted receive, if its body comes in frames and has not
    /// arrived wholly.
    pub fn copied_to_room(&self) -> Option<usize> {
        let filling = self.posted.filling.as_ref().filter(|filling| filling.room.is_some())?;
        self.neighbours.get(&filling.link)?.link.placed().map(|(arrived, _)| arrived)
    }

    /// Ends the posted receive. What has arrived of a body in frames is copied to other memory, where the rest follows. Returns
    /// the link whose body is read and has not arrived wholly: it is to be ended, and the peer sends the message again.
    pub fn end_posted(&mut self) -> Option<LinkName> {
        self.posted.close();
        let Filling { link, room, .. } = self.posted.filling.take()?;
        let Some(room) = room else { return Some(link) };
        let from = self.neighbours.get_mut(&link)?;
        let (arrived, bytes) = from.link.placed()?;
        let (spares, rooms) = self.endpoint.body_memory();
        match rooms.read(&room, arrived).zip(spares.take(bytes)) {
            // The whole body is counted when it is delivered.
            Some((part, mut body)) => {
                body.extend_from_slice(part);
                from.link.replace_placed(body);
            }
            None => self.give_up(link, Broken::NoMemory),
        }
        None
    }

    /// Returns the place of this body in the memory of the posted receive, if the receive waits for it.
    pub(super) fn place_in_room(
        &mut self,
        name: LinkName,
        message: u64,
        bytes: usize,
    ) -> Result<Option<PlaceId>, ReadError> {
        let Some(accepts) = &self.posted.accepts else { return Ok(None) };
        let next = self.neighbours.get(&name).and_then(|from| from.link.next_to_deliver());
        if !next.is_some_and(|(number, content)| number == message && accepts(name, content)) {
            return Ok(None);
        }
        let place = self.endpoint.make_place_in_room(bytes)?;
        if place.is_some() {
            self.posted.fill(Filling { link: name, message, bytes, room: None });
        }
        Ok(place)
    }

    /// Tells the peer that the next message of this link is waited for, with these words, unless the peer could do nothing
    /// with that any more. Returns whether it is told. Nothing is told on a sealed link: its bodies are copied in any case.
    pub fn want(&mut self, name: LinkName, words: &[u8]) -> bool {
        let Some(from) = self.neighbours.get_mut(&name).filter(|from| from.seals.is_none()) else { return false };
        let is_told = from.link.want(words);
        self.transmit(name);
        is_told
    }

    /// Returns whether the provider allows to lend memory that peers read.
    pub fn may_lend(&self) -> bool {
        providers::may_lend(&self.provider)
    }

    /// Returns the words of the peer if it waits for the message that is sent next.
    pub fn wanted_by_peer(&self, name: LinkName) -> Option<&[u8]> {
        self.neighbours.get(&name).filter(|to| to.seals.is_none())?.link.wanted_by_peer()
    }

    /// Returns the words of the peer if it waits for the message with this number.
    pub fn wanted_of(&self, name: LinkName, message: u64) -> Option<&[u8]> {
        self.neighbours.get(&name).filter(|to| to.seals.is_none())?.link.wanted_of(message)
    }

    /// Returns what lends memory for a message.
    pub fn source_lender(&self) -> SourceLender {
        self.endpoint.source_lender()
    }

    /// Sends a message whose body is in the memory that is lent. `is_wanted`: the peer waits for it and reads it there.
    /// Otherwise it is sent from there as from a body of the task, but of a body in clear that the peer reads only the
    /// first piece, until [`FabricLinks::offer_lent`] or [`FabricLinks::keep_lent`]. Returns the number of the message, or
    /// `None` if there is no such link.
    pub fn send_lent(&mut self, name: LinkName, content: Vec<u8>, is_wanted: bool) -> Result<Option<u64>, Failure> {
        if !is_wanted {
            let (loan, bytes) = self.endpoint.source_loan().ok_or_else(no_region)?;
            return self.send_long(name, content, Body::Lent(loan, bytes));
        }
        let region = self.endpoint.register_lent(0)?.ok_or_else(no_region)?;
        let bytes = self.endpoint.region_bytes(region);
        let to = self.neighbours.get_mut(&name).zip(self.endpoint.remote(region, 0, bytes));
        let Some((to, remote)) = to else {
            self.endpoint.unregister(region);
            return Err(no_region());
        };
        let number = to.offer(content, remote, bytes, Offer::Own(region));
        self.active_at = Some(Instant::now());
        self.transmit(name);
        Ok(Some(number))
    }

    /// Lets the peer read the rest of the body in the memory that is lent, since it waits for it. Returns false if that is not
    /// possible yet.
    pub fn offer_lent(&mut self, name: LinkName) -> Result<bool, Failure> {
        let Some(to) = self.neighbours.get_mut(&name) else { return Ok(false) };
        let is_offered = to.pieces.offer_lent(&mut to.link, &mut self.endpoint, &mut to.offers)?;
        self.transmit(name);
        Ok(is_offered)
    }

    /// Sends what is left of the body in the memory that is lent from this copy.
    pub fn keep_lent(&mut self, name: LinkName, copy: &Arc<Vec<u8>>) {
        if let Some(to) = self.neighbours.get_mut(&name) {
            to.pieces.keep(copy);
            to.bodies.keep(copy);
            self.transmit(name);
        }
    }

    /// Returns a number that grows when pieces of bodies are sent to the peer, or taken by it.
    pub fn pieces_moved(&self, name: LinkName) -> u64 {
        self.neighbours.get(&name).map_or(0, |to| to.link.pieces_sent() + to.link.pieces_taken_by_peer())
    }
}
