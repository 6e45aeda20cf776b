//! Counts the messages that arrive ([`crate::traffic`]).
use crate::arrival::Outcome;
use crate::traffic::{Traffic, route_by};
use crate::{Arrival, Meta, Sink};

/// A sink that counts what it passes on.
pub(super) struct Counting<'a, S: ?Sized> {
    pub sink: &'a mut S,
    pub traffic: Traffic,
}

impl<S: Sink> Sink for Counting<'_, S> {
    #[inline(always)]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let (bytes, outcome) = (body.len(), body.outcome());
        self.sink.arrived(from, meta, body);
        // A body that was not taken arrives again.
        if outcome.is_none_or(|outcome| outcome.get() == Outcome::Taken) {
            self.traffic.received(route_by(from), bytes);
        }
    }

    #[inline(always)]
    fn gap(&mut self, host: u32, count: u32) {
        self.sink.gap(host, count);
    }

    #[inline(always)]
    fn no_more(&mut self, host: u32) -> bool {
        self.sink.no_more(host)
    }

    #[inline(always)]
    fn picks(&self, from: u32, meta: &Meta) -> bool {
        self.sink.picks(from, meta)
    }

    #[inline(always)]
    fn satisfied(&self) -> bool {
        self.sink.satisfied()
    }

    #[inline(always)]
    fn wants(&self, from: u32) -> bool {
        self.sink.wants(from)
    }
}
