//! One-call receives (`pvm_precv`): the body of the message goes straight to its place, where that is possible.
use super::Task;
use crate::direct::PostedReceive;
use crate::envelope::Envelope;
use crate::fabric::route::{Patience, SPIN_TIME, time_for};
use crate::message::Message;
use crate::state::DeliverSink;
use crate::target::Target;
use crate::types::{ANY, Delivered, Filter, Kind};
use pvm_core::tid::Tid;
use pvm_fmp::{Endpoint, Meta, Posted};
use std::time::{Duration, Instant};

/// Only a receive with memory for at least this many bytes is posted: shorter bodies travel in frames.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// While a body comes in frames, the receive waits for the next one for this time. The rest of it may come much later: its
/// sender may compute before it sends more.
const FRAME_TIME: Duration = Duration::from_millis(1);
/// While a body arrives, the task looks at this interval for what arrives by other ways.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Task {
    /// Posts a one-call receive of `room` bytes, so that senders can deliver long data directly. [`Task::end_precv`]
    /// ends the receive.
    #[inline]
    pub fn begin_precv(&mut self, filter: &Filter, room: usize) {
        if self.member.as_ref().is_some_and(|member| room >= member.endpoint.rendezvous_bytes_min()) {
            self.post(filter);
        }
    }

    /// Notes that the posted receive waits until its message comes, so that a sender on a fabric may wait for it.
    #[inline]
    pub fn stay_posted(&mut self) {
        if let Some(member) = &mut self.member {
            member.fabric.is_awaited = true;
        }
    }

    fn post(&mut self, filter: &Filter) {
        let Some(member) = &mut self.member else { return };
        let counts = |value: i32| if value == ANY { 0 } else { u32::MAX };
        member.posted = true;
        member.endpoint.post(Some(Posted {
            from: if filter.src == ANY { 0 } else { filter.src as u32 },
            mask: [counts(filter.ctx), counts(filter.tag), 0, 0, 0, 0],
            value: [filter.ctx as u32, filter.tag as u32, 0, 0, 0, 0],
        }));
    }

    /// Ends the receive that [`Task::begin_precv`] has posted.
    #[inline]
    pub fn end_precv(&mut self) {
        let Some(member) = &mut self.member else { return };
        member.fabric.is_awaited = false;
        if std::mem::take(&mut member.posted) {
            member.endpoint.post(None);
        }
    }

    /// Tries once to receive for `pvm_precv`; polls the peers if the message is not queued yet. Copies the first bytes
    /// of the oldest message that the filter accepts into `data`. Raw items in the format of another host are
    /// converted; they must all be of the given kind.
    #[inline(always)]
    pub fn try_precv(&mut self, filter: &Filter, kind: Kind, data: &mut [u8]) -> Option<Delivered> {
        if let Some(delivered) = self.precv_at_once(filter, data) {
            return Some(delivered);
        }
        self.try_precv_into(filter, kind, data)
    }

    /// Does what [`Task::try_precv`] does, for a caller that has just tried [`Task::precv_at_once`].
    #[inline]
    pub fn try_precv_by_poll(&mut self, filter: &Filter, kind: Kind, data: &mut [u8]) -> Option<Delivered> {
        self.try_precv_into(filter, kind, data)
    }

    /// Does the work of [`Task::try_precv`] for any target.
    #[inline]
    pub(crate) fn try_precv_into<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        self.deliver(filter, kind, target, |endpoint, sink| endpoint.poll(sink))
    }

    /// As [`Task::try_precv`], for a filter that names the sender: if the sender's next message is not the wanted one, all
    /// messages are taken in, in the order in which they were sent; otherwise those of others stay in their queues.
    #[inline]
    pub(crate) fn try_precv_from<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        let (from, own) = (Tid(filter.src as u32), Tid(self.own_tid() as u32));
        let peer = if from.host() == own.host() { from } else { own.host() };
        // It may have arrived already, and wait for messages that the daemon will queue.
        let may_wait = self.state.backlog.is_open();
        self.deliver(filter, kind, target, |endpoint, sink| match endpoint.poll_peer(peer.0, sink) {
            0 if may_wait || endpoint.has_sent_to_us(peer.0) => endpoint.poll(sink),
            count => count,
        })
    }

    #[inline]
    fn deliver<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
        poll: impl FnOnce(&mut Endpoint, &mut DeliverSink<'_, T>) -> usize,
    ) -> Option<Delivered> {
        if let Some(delivered) = self.deliver_queued(filter, kind, target) {
            return Some(delivered);
        }
        let member = self.member.as_mut()?;
        self.state.handlers.stop_queueing();
        let mut sink = DeliverSink { state: &mut self.state, filter, target: &mut *target, delivered: None };
        let count = poll(&mut member.endpoint, &mut sink);
        if let Some(delivered) = sink.delivered {
            self.note(count, 1);
            return Some(delivered);
        }
        let mut polls_links = true;
        if count == 0 && member.may_receive_in_place() {
            polls_links = member.direct.is_poll_due();
            let in_place = self.deliver_in_place(filter, kind, target);
            if in_place.is_some() {
                return in_place;
            }
            if polls_links && target.room().is_some() {
                let from_link = self.deliver_from_link(filter, kind, target);
                if from_link.is_some() {
                    return from_link;
                }
                polls_links = false;
            }
        }
        match self.progress_control(count, polls_links) {
            0 => None,
            _ => self.deliver_queued(filter, kind, target),
        }
    }

    /// Receives from a direct link, without a copy where possible.
    #[cold]
    #[inline(never)]
    fn deliver_from_link<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        let room = target.room()?;
        let member = self.member.as_mut().filter(|member| member.direct.is_active())?;
        let state = &mut self.state;
        member.handle_route_switches(state);
        let is_intercepted = |envelope: &Envelope| !envelope.is_native() || state.is_intercepted(envelope);
        let mut posted = PostedReceive { filter, own: state.own, room, is_intercepted: &is_intercepted, found: None };
        member.direct.receive_posted(&mut posted);
        let found = posted.found;
        let others = member.deliver_from_links(state);
        match found {
            Some((envelope, len)) => {
                self.state.reveal_all();
                self.note(others + 1, 1);
                Some(envelope.delivered(len))
            }
            None if others > 0 => {
                self.note(others, 0);
                self.deliver_queued(filter, kind, target)
            }
            None => None,
        }
    }

    #[inline]
    fn deliver_queued<T: Target + ?Sized>(&mut self, filter: &Filter, kind: Kind, target: &mut T) -> Option<Delivered> {
        let slot = self.state.find(filter)?;
        let message = &mut self.state.store.table[slot as usize];
        let failure = if message.is_foreign_raw() { message.make_native(kind).err() } else { None };
        let Message { src, tag, wid, .. } = *message;
        let delivered = Delivered { src, tag, wid, len: message.len(), failure };
        if target.accepts_queued(delivered.len) {
            target.take_queued(message);
            self.state.store.free(slot as i32 + 1);
        }
        Some(delivered)
    }

    /// Receives a long message from a fabric straight into the target's memory, if it is the next one that the filter
    /// accepts. Waits for its end once it has begun to arrive.
    fn deliver_in_place<T: Target + ?Sized>(
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
        member.fabric.end_posted(filter, room)
    }

    /// Polls until the body has arrived, or cannot arrive any more, but at most for this time. If it comes in frames, only as
    /// long as they come one soon after the other.
    fn wait_until_filled(&mut self, limit: Duration) {
        let begun = Instant::now();
        let mut patience = Patience::new(limit, begun);
        let (mut looked, mut moved, mut copied) = (begun, begun, None);
        while let Some(member) = self.member.as_mut().filter(|member| member.fabric.filling().is_some()) {
            let now = Instant::now();
            if patience.is_over(now) {
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
