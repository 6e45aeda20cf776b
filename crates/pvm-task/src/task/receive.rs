//! Taking in messages, and receiving them (contract 2.3).
use super::Task;
use crate::direct::PostedReceive;
use crate::envelope::Envelope;
use crate::message::{Large, Message, SlotState};
use crate::state::{DeliverSink, ReceiveSink, State};
use crate::target::Target;
use crate::types::{ANY, Delivered, Filter, Kind};
use pvm_core::codes::SYSCTX_TC;
use pvm_core::tid::Tid;
use pvm_fmp::{Endpoint, IMMEDIATE_BYTES, RecentMessage, is_daemon};

/// Receiving. None of these calls waits. To wait, repeat: [`Task::progress`], try to receive, wait ([`crate::Waiter`]).
impl Task {
    /// Takes in what has arrived and lets the program see it, for a call that waits. Returns how many messages, replies
    /// and other events have arrived.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let count = self.take_in();
        self.reveal_all();
        count
    }

    /// Takes in what has arrived: messages from shared memory, frames from the daemon. Makes no system call if nothing
    /// has arrived. Returns how many messages, replies and other events have arrived.
    #[inline]
    pub fn take_in(&mut self) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        let count = member.poll(&mut self.state);
        self.progress_control(count, true)
    }

    /// Makes the next poll read the daemon's socket, even if the port table shows no new frame.
    pub(crate) fn request_socket_poll(&mut self) {
        if let Some(member) = &mut self.member {
            member.request_socket_poll();
        }
    }

    /// Takes in frames of the daemon and messages that have arrived on direct links. `count`: how many messages have
    /// arrived in shared memory. `polls_links`: whether to poll direct links if these are none.
    #[inline]
    pub(crate) fn progress_control(&mut self, mut count: usize, polls_links: bool) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        // A peer may still have its side of a link that this task no longer has, and send route switches.
        if member.direct.is_active() || member.fabric.is_active() || !self.state.route_switches.pending.is_empty() {
            count += member.progress_direct_links(&mut self.state, count, polls_links);
        }
        if member.control_may_be_ready() {
            count += member.read_control(&mut self.state);
            self.tell_own_settings();
        }
        if self.state.backlog.is_open() {
            count += self.member.as_mut().map_or(0, |member| member.continue_backlog(&mut self.state));
        }
        self.note(count, 0);
        count
    }

    /// Notes that `count` messages have arrived; the caller has received `delivered` of them already.
    #[inline]
    pub(crate) fn note(&mut self, count: usize, delivered: usize) {
        if let Some(member) = &mut self.member {
            member.may_have_more |= count > delivered;
            if count > 0 {
                member.idle_since = None;
            }
        }
        if count > delivered {
            self.note_news();
        }
    }

    /// Notes that more messages are visible. Then no thread sleeps before it has searched again.
    pub(crate) fn note_revealed(&mut self) {
        self.note(1, 0);
    }

    /// Notes that messages or events have arrived, perhaps for another thread. Wakes the one waiting thread that sleeps
    /// on the parker; the caller wakes the others ([`Task::take_news`]).
    #[inline]
    pub(crate) fn note_news(&mut self) {
        self.state.news = true;
        if let Some(member) = &self.member {
            member.parker.wake();
        }
    }

    /// Returns whether anything has arrived since the last call; if so, the caller wakes the other waiting threads.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.state.news)
    }

    /// Returns the filter for a receive in the current context.
    pub fn filter(&self, src: i32, tag: i32) -> Filter {
        Filter { src, tag, ctx: self.state.context }
    }

    /// Frees the active receive buffer, as `pvm_recv`, `pvm_nrecv` and `pvm_trecv` do first.
    #[inline]
    pub fn drop_receive_buffer(&mut self) {
        if self.state.store.receive != 0 {
            self.state.store.free(self.state.store.receive);
        }
    }

    /// Receives the oldest queued message that the filter accepts: it becomes the active receive buffer.
    #[inline]
    pub fn receive(&mut self, filter: &Filter) -> Option<i32> {
        let slot = self.state.find(filter)?;
        Some(self.state.store.receive(slot))
    }

    /// Receives a message in the queue or in a cell directly from the peer that sent last, if this message is next and the
    /// filter accepts it.
    #[inline]
    pub(crate) fn receive_short(&mut self, filter: &Filter) -> Option<i32> {
        let (envelope, recent, state) = self.probe_recent(filter, false, false)?;
        if !recent.is_in_queue() {
            // The memory of such a body is kept, not copied.
            let large = Large::Remote(recent.keep()?);
            let slot = state.new_message(&envelope);
            state.store.table[slot as usize].large = large;
            return Some(state.store.activate(slot));
        }
        let slot = state.new_message(&envelope);
        let message = &mut state.store.table[slot as usize];
        // With this capacity, `Task::receive_fast` can refill the buffer in place.
        message.small.reserve(IMMEDIATE_BYTES);
        message.small.resize(recent.len(), 0);
        let taken = recent.take(&mut message.small);
        debug_assert!(taken.is_some(), "a body in the queue is complete");
        Some(state.store.activate(slot))
    }

    /// Tries once to receive, for a call that waits: as [`Task::receive`], but if the filter accepts no queued message,
    /// takes in what has arrived, up to the first message that the filter accepts.
    #[inline]
    pub fn try_receive(&mut self, filter: &Filter) -> Option<i32> {
        if let Some(mid) = self.receive_short(filter) {
            return Some(mid);
        }
        if let Some(mid) = self.receive(filter) {
            return Some(mid);
        }
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        self.state.handlers.stop_queueing();
        let mut sink = ReceiveSink { state: &mut self.state, own, filter, found: None };
        let count = member.endpoint.poll(&mut sink);
        if let Some(slot) = sink.found {
            self.note(count, 1);
            return Some(self.state.store.activate(slot));
        }
        let polls_links = count == 0 && member.direct.is_active() && member.direct.is_poll_due();
        match self.progress_control(count, polls_links) {
            0 => None,
            _ => self.receive(filter),
        }
    }

    /// Returns the oldest queued message that the filter accepts; the message stays queued.
    pub fn probe(&mut self, filter: &Filter) -> Option<i32> {
        self.state.find(filter).map(|slot| slot as i32 + 1)
    }

    /// Makes a queued message the active receive buffer. Returns `false` if it is not queued.
    pub fn take_queued(&mut self, mid: i32) -> bool {
        let store = &mut self.state.store;
        let queued = store.get(mid).is_ok_and(|message| message.state == SlotState::Queued);
        if queued {
            store.receive(mid as u32 - 1);
        }
        queued
    }

    /// Returns the next message of the peer that sent last, if its whole body is there, the filter accepts it, no message is
    /// queued before it, and no handler or collector can intercept it. If `wait` says so and that peer is a task from which
    /// the filter accepts messages, waits some hundred nanoseconds for the message.
    #[inline(always)]
    pub(crate) fn probe_recent(
        &mut self,
        filter: &Filter,
        only_native: bool,
        wait: bool,
    ) -> Option<(Envelope, RecentMessage<'_>, &mut State)> {
        let state = &mut self.state;
        if !state.store.queue.is_empty() || state.handlers.may_intercept() || state.output.collects_any() {
            return None;
        }
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        let may_come = |from: u32| !is_daemon(from) && (filter.src == ANY || filter.src == from as i32);
        let wait = wait && member.endpoint.most_recent_peer().is_some_and(may_come);
        let of_any = filter.src == ANY;
        let recent = match wait {
            true => member.endpoint.await_recent(of_any),
            false => member.endpoint.probe_recent(of_any),
        }?;
        let envelope = Envelope::new(recent.from(), own, recent.meta());
        if !filter.accepts(envelope.src, envelope.tag, envelope.ctx) || envelope.ctx == SYSCTX_TC {
            return None;
        }
        if only_native && !envelope.is_native() {
            return None;
        }
        member.idle_since = None;
        Some((envelope, recent, state))
    }

    /// Waits for some hundred nanoseconds for another message of the peer that sent last.
    #[inline(always)]
    pub fn watch_most_recent(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.endpoint.watch_most_recent())
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
        if let Some(delivered) = self.deliver_queued(filter, kind, target) {
            return Some(delivered);
        }
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
        if let Some(delivered) = self.deliver_queued(filter, kind, target) {
            return Some(delivered);
        }
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
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        self.state.handlers.stop_queueing();
        let mut sink = DeliverSink { state: &mut self.state, own, filter, target: &mut *target, delivered: None };
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
        let (state, own) = (&mut self.state, member.tid.0 as i32);
        member.handle_route_switches(state);
        let is_intercepted = |envelope: &Envelope| !envelope.is_native() || state.is_intercepted(envelope);
        let mut posted = PostedReceive { filter, own, room, is_intercepted: &is_intercepted, found: None };
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
    pub(crate) fn deliver_queued<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
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
}
