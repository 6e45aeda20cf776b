//! Which of the queued messages the program can see (`docs/decisions/0027`).
//!
//! A call that does not wait reveals at most one more message, and only if no visible message fits. For example, a
//! program that polls alternately for the second and for the first message of a task receives the first one first. A
//! call that waits reveals all messages up to the one for which it waits. Messages are taken in several at a time, from
//! several senders, into one queue in the order of their arrival; the visible ones are those below a mark. A message
//! handler takes its message at the time when the message would become visible.
use crate::Task;
use crate::message::Message;
use crate::queue::fits;
use crate::receive::{Envelope, POLLS_MAX};
use crate::sinks::QueueSink;
use crate::task::State;
use crate::types::{FMP_CONTEXT, Filter, PRIVATE_CONTEXTS};
use pvm_fmp::{Arrival, Meta, Sink};

/// A sink that takes only one message of each peer, so that every peer gets its turn.
struct OnePerPeer<'a>(QueueSink<'a>);

impl Sink for OnePerPeer<'_> {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        self.0.arrived(from, meta, body);
    }

    fn gap(&mut self, host: u32, count: u32) {
        self.0.gap(host, count);
    }

    fn no_more(&mut self, host: u32) -> bool {
        self.0.no_more(host)
    }

    fn satisfied(&self) -> bool {
        true
    }
}

impl State {
    /// Reveals all queued messages. Messages behind a message for a handler become visible only when the handler has
    /// run.
    #[inline]
    pub(crate) fn reveal_all(&mut self) {
        match self.handlers.has_user_handlers() {
            false => self.store.queue.reveal_all(),
            true => {
                self.handlers.bound = self.store.queue.pushed();
                self.reveal_more();
            }
        }
    }

    /// Reveals the messages of FMP that are older than all hidden messages of PVM: calls of PVM pass them over.
    fn reveal_fmp(&mut self) {
        while let Some(slot) = self.store.queue.first_hidden() {
            if self.store.table[slot as usize].ctx != FMP_CONTEXT {
                return;
            }
            self.store.queue.reveal_through(&self.store.table, slot);
        }
    }

    /// Reveals one more message; a handler may take it instead.
    fn reveal_next(&mut self) -> Option<u32> {
        self.reveal_fmp();
        let slot = self.store.queue.first_hidden()?;
        if self.handlers.has_user_handlers() {
            self.handlers.bound = self.store.table[slot as usize].number + 1;
            self.reveal_more();
            return self.store.queue.is_visible(&self.store.table, slot).then_some(slot);
        }
        self.store.queue.reveal_through(&self.store.table, slot);
        Some(slot)
    }

    /// Reveals messages up to [`Handlers::bound`](crate::handlers::Handlers). Stops at a message for a handler: the
    /// handler has to run first.
    #[cold]
    pub(crate) fn reveal_more(&mut self) {
        while let Some(slot) = self.store.queue.first_hidden() {
            let message = &self.store.table[slot as usize];
            let is_held = message.number >= self.handlers.bound || self.handlers.is_running();
            if is_held || self.handler_of(message).is_some() {
                return;
            }
            self.store.queue.reveal_through(&self.store.table, slot);
        }
    }

    /// Returns the user handler that takes the message, and its function.
    pub(crate) fn handler_of(&self, message: &Message) -> Option<(i32, u64)> {
        let Message { src, tag, ctx, .. } = *message;
        if PRIVATE_CONTEXTS.contains(&ctx) { None } else { self.handlers.find(src, tag, ctx) }
    }

    /// Returns whether a message that arrives now has to be queued, because a handler takes this message or may take an
    /// earlier one, or because a handler runs.
    pub(crate) fn is_for_handlers(&self, envelope: &Envelope) -> bool {
        let Envelope { src, tag, ctx, .. } = *envelope;
        let waits = self.handlers.is_running() || self.store.queue.first_hidden().is_some();
        waits || self.handlers.find(src, tag, ctx).is_some()
    }

    /// For a call that waits: returns the oldest queued message that the filter accepts, and reveals it and all
    /// messages before it.
    #[inline]
    pub(crate) fn find(&mut self, filter: &Filter) -> Option<u32> {
        // The program never sees the library's own messages.
        if PRIVATE_CONTEXTS.contains(&filter.ctx) {
            return self.store.find(filter);
        }
        if self.handlers.has_user_handlers() {
            return self.find_before_handlers(filter);
        }
        let found = self.store.find(filter);
        match found {
            Some(slot) => {
                self.store.queue.reveal_through(&self.store.table, slot);
                self.store.queue.note_search();
            }
            None => self.store.queue.note_vain_search(),
        }
        found
    }

    /// Does the work of [`State::find`] if there are handlers: searches only up to the first message that a handler
    /// takes.
    #[cold]
    fn find_before_handlers(&mut self, filter: &Filter) -> Option<u32> {
        let mut found = self.store.find_visible(filter);
        while found.is_none() {
            self.store.queue.note_search();
            found = self.reveal_next().map(Some)?.filter(|slot| fits(&self.store.table[*slot as usize], filter));
        }
        self.store.queue.note_search();
        found
    }
}

/// Receiving without a wait.
impl Task {
    /// As [`Task::take_in`], for a caller that does not try again: takes in everything that has arrived until now, from
    /// all peers. Stops after `POLLS_MAX` polls, even if peers go on sending.
    pub fn take_in_all(&mut self) -> usize {
        let mut all = 0;
        for _ in 0..POLLS_MAX {
            let Some(member) = &mut self.member else { return all };
            let mut arriving = QueueSink { state: &mut self.state, own: member.tid.0 as i32 };
            let mut count = 0;
            for _ in 0..POLLS_MAX {
                match member.endpoint.poll_all(&mut arriving) {
                    0 => break,
                    more => count += more,
                }
            }
            let waits_for_frame = member.endpoint.waits_for_frame();
            let more = self.progress_control(count, true);
            all += more;
            // Messages may have waited for the frames.
            if !waits_for_frame || more == count {
                break;
            }
        }
        // A fabric may have more than it was asked for.
        for _ in 0..POLLS_MAX {
            if !self.member.as_ref().is_some_and(|member| member.fabric.is_active()) {
                break;
            }
            match self.progress_control(0, true) {
                0 => break,
                more => all += more,
            }
        }
        all
    }

    /// `pvm_nrecv`: the oldest message that the filter accepts becomes the active receive buffer.
    #[inline]
    pub fn receive_at_once(&mut self, filter: &Filter) -> Option<i32> {
        match self.receive_short(filter) {
            None => self.find_at_once(filter).map(|slot| self.state.store.receive(slot)),
            found => found,
        }
    }

    /// `pvm_probe`: returns the oldest message that the filter accepts; the message stays queued.
    pub fn probe_at_once(&mut self, filter: &Filter) -> Option<i32> {
        self.find_at_once(filter).map(|slot| slot as i32 + 1)
    }

    fn find_at_once(&mut self, filter: &Filter) -> Option<u32> {
        self.catch_up();
        let found = match self.state.store.find_visible(filter) {
            None => self.reveal_one().filter(|slot| fits(&self.state.store.table[*slot as usize], filter)),
            found => found,
        };
        self.state.store.queue.note_search();
        found
    }

    /// Returns the visible queued messages in the order of their arrival: mid, sender, tag (for `pvm_recvf`).
    pub fn queued(&self) -> impl Iterator<Item = (i32, i32, i32)> + '_ {
        let table: &[Message] = &self.state.store.table;
        let walk = self.state.store.queue.walk_visible(table);
        let walk = walk.filter(|slot| !PRIVATE_CONTEXTS.contains(&table[*slot as usize].ctx));
        walk.map(|slot| (slot as i32 + 1, table[slot as usize].src, table[slot as usize].tag))
    }

    /// Reveals one more message, if one is queued or can be taken in now. Returns `None` also if a handler takes the
    /// message.
    pub fn reveal_one(&mut self) -> Option<u32> {
        self.state.reveal_fmp();
        if self.state.store.queue.first_hidden().is_none() {
            self.state.handlers.stop_queueing();
            self.take_in_some();
        }
        self.state.reveal_next()
    }

    /// Reveals all queued messages, for example at the end of a receive that has waited and found none that fits.
    #[inline]
    pub fn reveal_all(&mut self) {
        self.state.reveal_all();
    }

    /// Notes that this task has synchronized with other tasks, which may have sent messages before: the next call that
    /// does not wait sees all messages that have arrived until then.
    #[inline]
    pub fn note_synchronized(&mut self) {
        self.state.synchronized = true;
        if let Some(member) = &self.member {
            member.endpoint.synchronize();
        }
    }

    /// Takes in and reveals what others have sent before this task synchronized with them. A call that does not wait
    /// must call this function before it searches the visible messages.
    #[inline]
    pub fn catch_up(&mut self) {
        if std::mem::take(&mut self.state.synchronized) {
            self.take_in_all();
            self.reveal_all();
        }
    }

    /// Takes in at least one message, if any peer has sent one.
    fn take_in_some(&mut self) {
        for _ in 0..POLLS_MAX {
            let Some(member) = &mut self.member else { return };
            let mut arriving = OnePerPeer(QueueSink { state: &mut self.state, own: member.tid.0 as i32 });
            let mut count = member.endpoint.poll(&mut arriving);
            for _ in 0..POLLS_MAX {
                arriving.0.state.reveal_fmp();
                if arriving.0.state.store.queue.first_hidden().is_some() {
                    break;
                }
                // The peers that sent lately have been polled; now all peers are polled.
                match member.endpoint.poll_all(&mut arriving) {
                    0 => break,
                    more => count += more,
                }
            }
            let waits_for_frame = member.endpoint.waits_for_frame();
            let has_frames = self.progress_control(count, true) > count;
            // The frames may have been for the library itself, and a message may have waited for them.
            if !waits_for_frame || !has_frames || self.state.store.queue.first_hidden().is_some() {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "visibility_tests.rs"]
mod tests;
