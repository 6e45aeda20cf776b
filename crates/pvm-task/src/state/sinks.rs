//! What takes in the messages of a poll: queues them, or delivers one of them to a receive.
use super::State;
use crate::envelope::Envelope;
use crate::target::Target;
use crate::types::{Delivered, Filter};
use pvm_core::tid::Tid;
use pvm_fmp::{Arrival, Meta, Sink};

/// Queues the messages from shared memory.
impl Sink for State {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let envelope = Envelope::new(from, self.own, meta);
        self.heard = Some(Tid(envelope.src as u32));
        self.on_message(envelope, body);
    }

    fn gap(&mut self, host: u32, count: u32) {
        self.on_gap(Tid(host), count);
    }

    fn no_more(&mut self, host: u32) -> bool {
        self.on_no_more(Tid(host))
    }
}

/// A sink that delivers the first message that the filter accepts to a one-call receive, and queues all other messages.
pub(crate) struct DeliverSink<'a, T: ?Sized> {
    pub state: &'a mut State,
    pub filter: &'a Filter,
    pub target: &'a mut T,
    pub delivered: Option<Delivered>,
}

impl<T: Target + ?Sized> Sink for DeliverSink<'_, T> {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let envelope = Envelope::new(from, self.state.own, meta);
        self.state.heard = Some(Tid(envelope.src as u32));
        let fits = self.filter.accepts(envelope.src, envelope.tag, envelope.ctx);
        // A message that has to be converted is queued first, and converted when it is taken from the queue.
        if self.delivered.is_some()
            || !fits
            || !envelope.is_native()
            || self.state.is_intercepted(&envelope)
            || !self.target.accepts(&body)
        {
            if self.delivered.is_none() && fits {
                // The caller searches the queue next; nothing later may be delivered before.
                self.state.handlers.queue_all();
            }
            return self.state.on_message(envelope, body);
        }
        let Some(len) = self.target.take(envelope.wid, body) else { return };
        // A message in a private context passes messages for which a handler waits.
        self.state.reveal_all();
        self.delivered = Some(envelope.delivered(len));
    }

    fn gap(&mut self, host: u32, count: u32) {
        self.state.gap(host, count);
    }

    fn no_more(&mut self, host: u32) -> bool {
        self.state.no_more(host)
    }

    /// Returns whether this is the message that is wanted, of a task that the filter names: it need not wait for its turn.
    #[inline]
    fn picks(&self, from: u32, meta: &Meta) -> bool {
        let envelope = Envelope::new(from, self.state.own, *meta);
        self.delivered.is_none()
            && self.filter.accepts(envelope.src, envelope.tag, envelope.ctx)
            && envelope.is_native()
            && !self.state.is_intercepted(&envelope)
    }

    /// Returns whether the message has arrived. Later messages stay in the peers' queues for the next one-call receive.
    #[inline]
    fn satisfied(&self) -> bool {
        self.delivered.is_some()
    }
}

/// A sink that delivers the first message that the filter accepts to a receive, and queues all other messages.
pub(crate) struct ReceiveSink<'a> {
    pub state: &'a mut State,
    pub filter: &'a Filter,
    pub found: Option<u32>,
}

impl Sink for ReceiveSink<'_> {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let envelope = Envelope::new(from, self.state.own, meta);
        let fits = self.filter.accepts(envelope.src, envelope.tag, envelope.ctx);
        if self.found.is_none() && fits && !self.state.is_intercepted(&envelope) {
            self.state.store.queue.reveal_all();
            self.found = self.state.take_in(&envelope, body);
            return;
        }
        self.state.on_message(envelope, body);
    }

    fn gap(&mut self, host: u32, count: u32) {
        self.state.gap(host, count);
    }

    fn no_more(&mut self, host: u32) -> bool {
        self.state.no_more(host)
    }

    /// Returns whether the message has arrived. Later messages are not taken in: in response to this message, the
    /// program may add a handler for them.
    #[inline]
    fn satisfied(&self) -> bool {
        self.found.is_some()
    }
}

/// A sink that takes only one message of each peer, so that every peer gets its turn.
pub(crate) struct OnePerPeer<'a>(pub &'a mut State);

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
