//! Taking in messages, and receiving them (contract 2.3).
use super::Task;
use crate::envelope::Envelope;
use crate::message::{Large, SlotState};
use crate::state::{ReceiveSink, State};
use crate::types::{ANY, Filter};
use pvm_core::codes::SYSCTX_TC;
use pvm_fmp::{IMMEDIATE_BYTES, RecentMessage, is_daemon};

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
            let slot = state.store.new_message(&envelope);
            state.store.table[slot as usize].large = large;
            return Some(state.store.activate(slot));
        }
        let slot = state.store.new_message(&envelope);
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
        self.state.handlers.stop_queueing();
        let mut sink = ReceiveSink { state: &mut self.state, filter, found: None };
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
        let may_come = |from: u32| !is_daemon(from) && (filter.src == ANY || filter.src == from as i32);
        let wait = wait && member.endpoint.most_recent_peer().is_some_and(may_come);
        let of_any = filter.src == ANY;
        let recent = match wait {
            true => member.endpoint.await_recent(of_any),
            false => member.endpoint.probe_recent(of_any),
        }?;
        let envelope = Envelope::new(recent.from(), state.own, recent.meta());
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
}
