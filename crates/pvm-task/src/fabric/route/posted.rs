//! One-call receives of long messages: the body is read from its sender's memory, or copied from its frames, straight to its
//! place.
//!
//! A receive that waits for a long message lends its memory to the fabric. It also tells the sender, if it names one, that it
//! waits: the sender may then lend the memory of its message (module `lent`).
use super::{FabricRoute, State, read_message};
use crate::envelope::Envelope;
use crate::message::OWN_DSIG;
use crate::types::{ANY, Filter};
use pvm_core::codes::SYSCTX_TC;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::fabric::Lender;
use std::time::Duration;

/// The shortest message in clear for which a sender lends its memory to be read, in bytes: shorter ones are copied in less time
/// than the receive takes to tell that it waits.
pub(super) const LENT_BYTES_MIN: usize = 256 << 10;
/// The length, in bytes, of the description of what a receive waits for: context, tag, and length of its memory.
pub(super) const WANTED_BYTES: usize = 16;
/// A body that has not arrived after this time, and a further microsecond for each byte, does not arrive: the fabric is left.
const FILL_TIME: Duration = Duration::from_secs(2);

/// Returns how long a body of this length may take.
pub(crate) fn time_for(bytes: usize) -> Duration {
    FILL_TIME + Duration::from_micros(bytes as u64)
}

/// Returns the words for a receive with this filter and memory of this length.
fn wanted(filter: &Filter, room: usize) -> [u8; WANTED_BYTES] {
    let mut words = [0; WANTED_BYTES];
    words[..4].copy_from_slice(&filter.ctx.to_le_bytes());
    words[4..8].copy_from_slice(&filter.tag.to_le_bytes());
    words[8..].copy_from_slice(&(room as u64).to_le_bytes());
    words
}

/// Returns whether a receive that has told these words accepts a message of this length.
pub(super) fn is_wanted(words: &[u8], meta: &Meta, bytes: usize) -> bool {
    let Ok(words) = <[u8; WANTED_BYTES]>::try_from(words) else { return false };
    let int = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    let Some(room) = words.last_chunk().map(|room| u64::from_le_bytes(*room)) else { return false };
    let filter = Filter { src: ANY, ctx: int(0), tag: int(4) };
    let [ctx, tag, ..] = meta.map(|word| word as i32);
    bytes as u64 <= room && filter.accepts(ANY, tag, ctx)
}
/// While a body arrives, the task polls without a pause for this time.
pub(crate) const SPIN_TIME: Duration = Duration::from_millis(20);

impl FabricRoute {
    /// Returns what lends memory for a receive, if messages may arrive on a fabric.
    pub fn lender(&self) -> Option<Lender> {
        match &self.state {
            State::Open(fabric) if self.links.iter().any(|link| link.lane.peer_has_switched() && !link.is_gone) => {
                Some(fabric.lender())
            }
            _ => None,
        }
    }

    /// Posts a receive for the messages that the filter accepts.
    pub fn post(&mut self, filter: &Filter) {
        let State::Open(fabric) = &mut self.state else { return };
        let (filter, peers) = (*filter, self.links.iter().map(|link| (link.name, link.peer)).collect::<Vec<_>>());
        fabric.post(Box::new(move |name, content| {
            let peer = peers.iter().find(|(link, _)| *link == name).map(|(_, peer)| *peer);
            let meta = read_message(content.to_vec(), Some(Vec::new())).map(|(meta, _)| meta);
            peer.zip(meta).is_some_and(|(peer, meta)| {
                let Envelope { src, tag, ctx, format, .. } = Envelope::new(peer.0, 0, meta);
                ctx != SYSCTX_TC && format == OWN_DSIG && filter.accepts(src, tag, ctx)
            })
        }));
    }

    /// Tells this peer that a receive waits for its message.
    pub fn want(&mut self, from: Tid, filter: &Filter, room: usize) {
        let (Ok(at), State::Open(fabric)) = (self.position(from), &mut self.state) else { return };
        let link = &mut self.links[at];
        let wanted = (link.lane.received(), wanted(filter, room));
        if link.lane.peer_has_switched()
            && !link.lane.falls_back()
            && link.told_wanted != Some(wanted)
            && fabric.want(link.name, &wanted.1)
        {
            link.told_wanted = Some(wanted);
        }
    }

    /// Returns the peer whose body is arriving in the memory of the posted receive, and the body's length, if there is one.
    pub fn filling(&self) -> Option<(Tid, usize)> {
        let State::Open(fabric) = &self.state else { return None };
        let (name, bytes) = fabric.filling()?;
        self.links.iter().find(|link| link.name == name).map(|link| (link.peer, bytes))
    }

    /// Returns how much of a body in frames is there, if the posted receive waits for the rest.
    pub fn copied(&self) -> Option<usize> {
        let State::Open(fabric) = &self.state else { return None };
        fabric.copied_to_room()
    }

    /// Ends the posted receive, which has this filter and memory of this length. Returns the message that has arrived in its
    /// memory, and the length of its body.
    pub fn end_posted(&mut self, filter: &Filter, room: usize) -> Option<(Tid, Meta, usize)> {
        if let State::Open(fabric) = &mut self.state {
            if let Some(at) = fabric.end_posted().and_then(|name| self.links.iter().position(|link| link.name == name))
            {
                self.give_up(at);
            }
        }
        let filled = self.filled.take();
        // Not for a receive that only looks.
        if filled.is_none() && self.is_awaited && room >= LENT_BYTES_MIN && filter.src != ANY {
            self.want(Tid(filter.src as u32), filter, room);
        }
        filled
    }

    /// Handles the arrival of a message whose body is in the memory of the posted receive.
    pub(super) fn on_filled(&mut self, at: usize, content: Vec<u8>, bytes: usize) {
        let link = &mut self.links[at];
        match read_message(content, Some(Vec::new())) {
            Some((meta, _)) if link.count_filled() => self.filled = Some((link.peer, meta, bytes)),
            Some(_) => {}
            None => self.give_up(at),
        }
    }

    /// Closes the fabric: a read that has not ended must not write to memory that is the program's again. The next link opens
    /// it anew.
    pub fn discard(&mut self) {
        self.leave_fabric();
        self.state = State::Unopened;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_tells_what_it_waits_for() {
        let meta = |ctx: i32, tag: i32| [ctx as u32, tag as u32, 0, OWN_DSIG as u32, OWN_DSIG as u32, 0];
        let words = wanted(&Filter { src: 5, ctx: 3, tag: 7 }, 1000);
        assert!(is_wanted(&words, &meta(3, 7), 1000) && is_wanted(&words, &meta(3, 7), 0));
        assert!(!is_wanted(&words, &meta(3, 8), 10) && !is_wanted(&words, &meta(4, 7), 10));
        assert!(!is_wanted(&words, &meta(3, 7), 1001) && !is_wanted(&words[1..], &meta(3, 7), 10));
        let any_tag = wanted(&Filter { src: 5, ctx: 3, tag: ANY }, usize::MAX);
        assert!(is_wanted(&any_tag, &meta(3, 8), 1 << 40) && !is_wanted(&any_tag, &meta(4, 8), 10));
    }
}
