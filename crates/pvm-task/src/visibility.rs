//! Which of the messages that have been taken in the program may see (`docs/decisions/0027`).
//!
//! A call that does not wait sees one message more at most, when none fits of those that it could see before. So who
//! polls for the second message of a task and then for the first one, in turn, has the first one first. A call that
//! waits sees all that comes until what it waits for is there. Messages are taken in by what is quick, some at a
//! time and from several senders, and stand in one queue in the order in which they came; what is *seen* is a mark
//! there. A message handler takes its message when it would be seen.
use crate::Task;
use crate::message::Message;
use crate::queue::fits;
use crate::receive::{Envelope, QueueSink};
use crate::task::State;
use crate::types::{Filter, PRIVATE_CONTEXTS};
use pvm_fmp::{Arrival, Meta, Sink};

/// Rounds of looking at all peers before a call that does not wait gives up, while they have other things than
/// messages to take.
const LOOKS_MAX: usize = 64;

/// Takes one message of each peer, so that all have their turn.
struct OnePerPeer<'a>(QueueSink<'a>);

impl Sink for OnePerPeer<'_> {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        self.0.arrived(from, meta, body);
    }

    fn satisfied(&self) -> bool {
        true
    }
}

impl State {
    /// Lets the program see all that has been taken in. Where a handler has to run first, what comes behind its
    /// message is seen when it has run.
    #[inline]
    pub(crate) fn reveal_all(&mut self) {
        match self.handlers.any() {
            false => self.store.queue.reveal_all(),
            true => {
                self.handlers.bound = self.store.queue.pushed();
                self.reveal_more();
            }
        }
    }

    /// Lets the program see the first message that it has not; a handler may take it instead.
    fn reveal_next(&mut self) -> Option<u32> {
        let slot = self.store.queue.first_hidden()?;
        if self.handlers.any() {
            self.handlers.bound = self.store.table[slot as usize].number + 1;
            self.reveal_more();
            return self.store.queue.is_visible(&self.store.table, slot).then_some(slot);
        }
        self.store.queue.reveal_through(&self.store.table, slot);
        Some(slot)
    }

    /// Sees as far as [`Handlers::bound`](crate::handlers::Handlers) lets it, up to a message for a handler. That
    /// one's turn it is then.
    #[cold]
    pub(crate) fn reveal_more(&mut self) {
        while let Some(slot) = self.store.queue.first_hidden() {
            let message = &self.store.table[slot as usize];
            if message.number >= self.handlers.bound || self.handlers.run() || self.handler_of(message).is_some() {
                return;
            }
            self.store.queue.reveal_through(&self.store.table, slot);
        }
    }

    /// The user handler that takes that message, and its function.
    pub(crate) fn handler_of(&self, message: &Message) -> Option<(i32, u64)> {
        let Message { src, tag, ctx, .. } = *message;
        if PRIVATE_CONTEXTS.contains(&ctx) { None } else { self.handlers.find(src, tag, ctx) }
    }

    /// Whether a message that comes now may not pass the queue: a handler takes it, or one before it.
    pub(crate) fn is_for_handlers(&self, envelope: &Envelope) -> bool {
        let Envelope { src, tag, ctx, .. } = *envelope;
        let waits = self.handlers.run() || self.store.queue.first_hidden().is_some();
        waits || self.handlers.find(src, tag, ctx).is_some()
    }

    /// The oldest message that fits among all that have been taken in, for a call that waits: it sees that one and
    /// what came before.
    #[inline]
    pub(crate) fn find(&mut self, filter: &Filter) -> Option<u32> {
        // What the library tells itself is nobody's to see.
        if PRIVATE_CONTEXTS.contains(&filter.ctx) {
            return self.store.find(filter);
        }
        if self.handlers.any() {
            return self.find_before_handlers(filter);
        }
        let slot = self.store.find(filter)?;
        self.store.queue.reveal_through(&self.store.table, slot);
        Some(slot)
    }

    /// [`State::find`] where handlers take messages: it looks no further than to the first of those.
    #[cold]
    fn find_before_handlers(&mut self, filter: &Filter) -> Option<u32> {
        let mut found = self.store.find_visible(filter);
        while found.is_none() {
            found = self.reveal_next().map(Some)?.filter(|slot| fits(&self.store.table[*slot as usize], filter));
        }
        found
    }
}

/// Receiving without a wait.
impl Task {
    /// `pvm_nrecv`: the oldest message that fits becomes the active receive buffer.
    #[inline]
    pub fn receive_at_once(&mut self, filter: &Filter) -> Option<i32> {
        match self.receive_short(filter) {
            None => self.find_at_once(filter).map(|slot| self.state.store.receive(slot)),
            found => found,
        }
    }

    /// `pvm_probe`: the oldest message that fits; it stays queued.
    pub fn probe_at_once(&mut self, filter: &Filter) -> Option<i32> {
        self.find_at_once(filter).map(|slot| slot as i32 + 1)
    }

    fn find_at_once(&mut self, filter: &Filter) -> Option<u32> {
        self.catch_up();
        match self.state.store.find_visible(filter) {
            None => self.reveal_one().filter(|slot| fits(&self.state.store.table[*slot as usize], filter)),
            found => found,
        }
    }

    /// The queued messages that have been seen, in the order of their arrival: mid, sender, tag (for `pvm_recvf`).
    pub fn queued(&self) -> impl Iterator<Item = (i32, i32, i32)> + '_ {
        let table: &[Message] = &self.state.store.table;
        let walk = self.state.store.queue.walk_visible(table);
        let walk = walk.filter(|slot| !PRIVATE_CONTEXTS.contains(&table[*slot as usize].ctx));
        walk.map(|slot| (slot as i32 + 1, table[slot as usize].src, table[slot as usize].tag))
    }

    /// Lets the program see one message more, if there is one: taken in before, or now. `None` also where a handler
    /// takes it.
    pub fn reveal_one(&mut self) -> Option<u32> {
        if self.state.store.queue.first_hidden().is_none() {
            self.take_in_some();
        }
        self.state.reveal_next()
    }

    /// Lets the program see all that has been taken in: it has waited for something.
    #[inline]
    pub fn reveal_all(&mut self) {
        self.state.reveal_all();
    }

    /// This task has met others, who may have sent before: the next call that does not wait sees all that has come
    /// until then.
    #[inline]
    pub fn note_synchronized(&mut self) {
        self.state.synchronized = true;
    }

    /// Before a call that does not wait looks at what has been seen.
    #[inline]
    pub fn catch_up(&mut self) {
        if std::mem::take(&mut self.state.synchronized) {
            self.take_in_all();
            self.reveal_all();
        }
    }

    /// Takes in something, if anything has come from whomever.
    fn take_in_some(&mut self) {
        let Some(member) = &mut self.member else { return };
        let mut arriving = OnePerPeer(QueueSink { state: &mut self.state, own: member.tid.0 as i32 });
        let mut count = member.endpoint.poll(&mut arriving);
        for _ in 0..LOOKS_MAX {
            if arriving.0.state.store.queue.first_hidden().is_some() {
                break;
            }
            // It has looked at those that sent lately; now at the others.
            match member.endpoint.poll_all(&mut arriving) {
                0 => break,
                more => count += more,
            }
        }
        self.progress_control(count);
    }
}

#[cfg(test)]
#[path = "visibility_tests.rs"]
mod tests;
