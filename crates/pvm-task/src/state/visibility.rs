//! Which of the queued messages the program can see (`docs/decisions/0027`).
//!
//! A call that does not wait reveals at most one more message, and only if no visible message fits. For example, a
//! program that polls alternately for the second and for the first message of a task receives the first one first. A
//! call that waits reveals all messages up to the one for which it waits. Messages are taken in several at a time, from
//! several senders, into one queue in the order of their arrival; the visible ones are those below a mark. A message
//! handler takes its message at the time when the message would become visible.
use super::State;
use crate::envelope::Envelope;
use crate::message::Message;
use crate::message::queue::fits;
use crate::types::{FMP_CONTEXT, Filter, PRIVATE_CONTEXTS};

impl State {
    /// Reveals all queued messages. Messages behind a message for a handler become visible only when the handler has
    /// run.
    #[inline]
    pub fn reveal_all(&mut self) {
        match self.handlers.has_user_handlers() {
            false => self.store.queue.reveal_all(),
            true => {
                self.handlers.bound = self.store.queue.pushed();
                self.reveal_more();
            }
        }
    }

    /// Reveals the messages of FMP that are older than all hidden messages of PVM: calls of PVM pass them over.
    pub fn reveal_fmp(&mut self) {
        while let Some(slot) = self.store.queue.first_hidden() {
            if self.store.table[slot as usize].ctx != FMP_CONTEXT {
                return;
            }
            self.store.queue.reveal_through(&self.store.table, slot);
        }
    }

    /// Reveals one more message; a handler may take it instead.
    pub fn reveal_next(&mut self) -> Option<u32> {
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

    /// Reveals messages up to [`Handlers::bound`](super::handlers::Handlers). Stops at a message for a handler: the
    /// handler has to run first.
    #[cold]
    pub fn reveal_more(&mut self) {
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
    pub fn handler_of(&self, message: &Message) -> Option<(i32, u64)> {
        let Message { src, tag, ctx, .. } = *message;
        if PRIVATE_CONTEXTS.contains(&ctx) { None } else { self.handlers.find(src, tag, ctx) }
    }

    /// Returns whether a message that arrives now has to be queued, because a handler takes this message or may take an
    /// earlier one, or because a handler runs.
    pub fn is_for_handlers(&self, envelope: &Envelope) -> bool {
        let Envelope { src, tag, ctx, .. } = *envelope;
        let waits = self.handlers.is_running() || self.store.queue.first_hidden().is_some();
        waits || self.handlers.find(src, tag, ctx).is_some()
    }

    /// For a call that waits: returns the oldest queued message that the filter accepts, and reveals it and all
    /// messages before it.
    #[inline]
    pub fn find(&mut self, filter: &Filter) -> Option<u32> {
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
