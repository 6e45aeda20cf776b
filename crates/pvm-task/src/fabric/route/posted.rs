//! One-call receives of long messages: the body is read from its sender's memory straight to its place.
use super::{FabricLink, FabricRoute, State, read_message};
use crate::message::OWN_DSIG;
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::target::Target;
use crate::task::Task;
use crate::types::{Delivered, Filter, Kind};
use pvm_core::codes::SYSCTX_TC;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::fabric::Lender;
use std::time::{Duration, Instant};

/// Only a receive with memory for at least this many bytes is posted: shorter bodies travel in frames.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// A body that has not arrived after this time, and a further microsecond for each byte, does not arrive: the fabric is left.
const FILL_TIME: Duration = Duration::from_secs(2);
/// While a body arrives, the task polls without a pause for this time.
const SPIN_TIME: Duration = Duration::from_millis(20);
/// While a body arrives, the task looks at this interval for what arrives by other ways.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl FabricRoute {
    /// Returns what lends memory for a receive, if messages may arrive on a fabric.
    fn lender(&self) -> Option<Lender> {
        match &self.state {
            State::Open(fabric) if self.links.iter().any(|link| link.peer_switched && !link.is_gone) => {
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

    /// Returns the length of the body that is being read into the memory of the posted receive, if there is one.
    fn filling_bytes(&self) -> Option<usize> {
        match &self.state {
            State::Open(fabric) => fabric.filling_bytes(),
            State::Unopened | State::Absent => None,
        }
    }

    /// Ends the posted receive. Returns the message that was read into its memory, and the length of its body.
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
    fn discard(&mut self) {
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
        // What has arrived before is before it in the queue.
        let others = member.progress_direct_links(&mut self.state, 1);
        if others > 0 {
            self.note(others, 0);
            return self.deliver_queued(filter, kind, target);
        }
        let lender = member.fabric.lender()?;
        let found = lender.lend(
            room,
            self,
            |task| task.member.iter_mut().for_each(|member| member.fabric.discard()),
            |task| task.fill(filter),
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
    fn fill(&mut self, filter: &Filter) -> Option<(Tid, Meta, usize)> {
        let member = self.member.as_mut()?;
        member.fabric.post(filter);
        member.fabric.poll();
        if let Some(bytes) = member.fabric.filling_bytes() {
            self.wait_until_filled(FILL_TIME + Duration::from_micros(bytes as u64));
        }
        self.member.as_mut()?.fabric.end_posted()
    }

    /// Polls until the body has arrived, or cannot arrive any more, but at most for this time.
    fn wait_until_filled(&mut self, limit: Duration) {
        let begun = Instant::now();
        let mut looked = begun;
        while let Some(member) = self.member.as_mut().filter(|member| member.fabric.filling_bytes().is_some()) {
            let now = Instant::now();
            if now - begun > limit {
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
        let counts = self.hello_received && !self.held.is_closed.get();
        if counts {
            self.received.set(self.received.get().wrapping_add(1));
        }
        counts
    }
}
