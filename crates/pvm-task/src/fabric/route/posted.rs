//! One-call receives of long messages: the body is read from its sender's memory, or copied from its frames, straight to its
//! place.
//!
//! A receive that waits for a long message lends its memory to the fabric. It also tells the sender, if it names one, that it
//! waits: the sender may then lend the memory of its message (module `lent`).
use super::lent::LENT_BYTES_MIN;
use super::{FabricLink, FabricRoute, State, read_message};
use crate::message::OWN_DSIG;
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::target::Target;
use crate::task::Task;
use crate::types::{ANY, Delivered, Filter, Kind};
use pvm_core::codes::SYSCTX_TC;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::fabric::Lender;
use std::time::{Duration, Instant};

/// Only a receive with memory for at least this many bytes is posted: shorter bodies travel in frames.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// The length, in bytes, of the description of what a receive waits for: context, tag, and length of its memory.
pub(super) const WANTED_BYTES: usize = 16;
/// A body that has not arrived after this time, and a further microsecond for each byte, does not arrive: the fabric is left.
const FILL_TIME: Duration = Duration::from_secs(2);

/// Returns how long a body of this length may take.
pub(super) fn time_for(bytes: usize) -> Duration {
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
    bytes as u64 <= room && accepts(&filter, ANY, tag, ctx)
}
/// While a body comes in frames, the receive waits for the next one for this time. The rest of it may come much later: its
/// sender may compute before it sends more.
const FRAME_TIME: Duration = Duration::from_millis(1);
/// While a body arrives, the task polls without a pause for this time.
pub(super) const SPIN_TIME: Duration = Duration::from_millis(20);
/// While a body arrives, the task looks at this interval for what arrives by other ways.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl FabricRoute {
    /// Returns what lends memory for a receive, if messages may arrive on a fabric.
    fn lender(&self) -> Option<Lender> {
        match &self.state {
            State::Open(fabric) if self.links.iter().any(|link| link.lane.peer_has_switched() && !link.is_gone) => {
                Some(fabric.lender())
            }
            _ => None,
        }
    }

    /// Posts a receive for the messages that the filter accepts.
    fn post(&mut self, filter: &Filter) {
        let State::Open(fabric) = &mut self.state else { return };
        let (filter, peers) = (*filter, self.links.iter().map(|link| (link.name, link.peer)).collect::<Vec<_>>());
        fabric.post(Box::new(move |name, content| {
            let peer = peers.iter().find(|(link, _)| *link == name).map(|(_, peer)| *peer);
            let meta = read_message(content.to_vec(), Some(Vec::new())).map(|(meta, _)| meta);
            peer.zip(meta).is_some_and(|(peer, meta)| {
                let Envelope { src, tag, ctx, format, .. } = Envelope::new(peer.0, 0, meta);
                ctx != SYSCTX_TC && format == OWN_DSIG && accepts(&filter, src, tag, ctx)
            })
        }));
    }

    /// Tells this peer that a receive waits for its message.
    fn want(&mut self, from: Tid, filter: &Filter, room: usize) {
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
    fn filling(&self) -> Option<(Tid, usize)> {
        let State::Open(fabric) = &self.state else { return None };
        let (name, bytes) = fabric.filling()?;
        self.links.iter().find(|link| link.name == name).map(|link| (link.peer, bytes))
    }

    /// Returns how much of a body in frames is there, if the posted receive waits for the rest.
    fn copied(&self) -> Option<usize> {
        let State::Open(fabric) = &self.state else { return None };
        fabric.copied_to_room()
    }

    /// Ends the posted receive. Returns the message that has arrived in its memory, and the length of its body.
    fn end_posted(&mut self) -> Option<(Tid, Meta, usize)> {
        let State::Open(fabric) = &mut self.state else { return self.filled.take() };
        if let Some(at) = fabric.end_posted().and_then(|name| self.links.iter().position(|link| link.name == name)) {
            self.give_up(at);
        }
        self.filled.take()
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
    pub(super) fn discard(&mut self) {
        self.leave_fabric();
        self.state = State::Unopened;
    }
}

impl Task {
    /// Receives a long message from a fabric straight into the target's memory, if it is the next one that the filter
    /// accepts. Waits for its end once it has begun to arrive.
    pub(crate) fn deliver_in_place<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        self.member.as_ref().filter(|member| member.fabric.is_active())?;
        let room = target.room().filter(|room| room.len() >= ROOM_BYTES_MIN)?;
        if self.state.handlers.may_intercept() || self.state.output.collects_any() {
            return None;
        }
        let member = self.member.as_mut()?;
        member.check_before_fabric();
        // The fabric is asked with the memory at hand.
        member.fabric.was_polled = true;
        // What has arrived before is before it in the queue.
        let others = member.progress_direct_links(&mut self.state, 1, true);
        if others > 0 {
            self.note(others, 0);
            return self.deliver_queued(filter, kind, target);
        }
        let (lender, room_bytes) = (member.fabric.lender()?, room.len());
        let found = lender.lend(
            room,
            self,
            |task| task.member.iter_mut().for_each(|member| member.fabric.discard()),
            |task| task.fill(filter, room_bytes),
        );
        let member = self.member.as_mut()?;
        member.fabric.was_polled = true;
        let others = member.deliver_from_fabric(&mut self.state);
        let Some((peer, meta, bytes)) = found else {
            return match others {
                0 => None,
                _ => {
                    self.note(others, 0);
                    self.deliver_queued(filter, kind, target)
                }
            };
        };
        let envelope = Envelope::new(peer.0, self.own_tid(), meta);
        self.reveal_all();
        self.note(others, 0);
        Some(envelope.delivered(bytes))
    }

    /// Polls the fabric for a posted receive, until its body has arrived if it has begun to.
    fn fill(&mut self, filter: &Filter, room: usize) -> Option<(Tid, Meta, usize)> {
        let member = self.member.as_mut()?;
        member.fabric.post(filter);
        member.fabric.poll();
        if let Some((from, bytes)) = member.fabric.filling() {
            // The peer may have offered a first piece only. Whoever has called waits for the rest in any case.
            member.fabric.want(from, filter, room);
            self.wait_until_filled(time_for(bytes));
        }
        let member = self.member.as_mut()?;
        let filled = member.fabric.end_posted();
        // Not for a receive that only looks.
        if filled.is_none() && member.fabric.is_awaited && room >= LENT_BYTES_MIN && filter.src != ANY {
            member.fabric.want(Tid(filter.src as u32), filter, room);
        }
        filled
    }

    /// Polls until the body has arrived, or cannot arrive any more, but at most for this time. If it comes in frames, only as
    /// long as they come one soon after the other.
    fn wait_until_filled(&mut self, limit: Duration) {
        let begun = Instant::now();
        let (mut looked, mut moved, mut copied) = (begun, begun, None);
        while let Some(member) = self.member.as_mut().filter(|member| member.fabric.filling().is_some()) {
            let now = Instant::now();
            if now - begun > limit {
                return;
            }
            let copied_now = member.fabric.copied();
            if copied_now != copied {
                (copied, moved) = (copied_now, now);
            } else if copied.is_some() && now - moved > FRAME_TIME {
                return;
            }
            if now - begun > SPIN_TIME {
                member.fabric.rest();
            }
            if now - looked > LOOK_PAUSE {
                looked = now;
                self.take_in();
            } else {
                member.fabric.poll();
            }
        }
    }
}

impl FabricLink {
    /// Counts a message whose body is in the memory of a receive. Returns false if the peer sends it again, since it has
    /// fallen back.
    fn count_filled(&mut self) -> bool {
        let counts = self.lane.is_established() && !self.held.is_closed.get();
        if counts {
            self.lane.count_received();
        }
        counts
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
