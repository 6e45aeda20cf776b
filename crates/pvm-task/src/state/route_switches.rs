//! What peers announce on the default route about links, until it is handled.
use crate::envelope::HeldMessages;
use pvm_core::channel::{Fallback, Receipts};
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use std::rc::Rc;

/// A message on the default route in which a peer announces the route of its later messages.
pub(crate) enum RouteSwitch {
    /// Later messages of the peer arrive on the link.
    ToLink(Tid),
    /// Later messages of the peer arrive on the default route again.
    ToDefault {
        peer: Tid,
        /// Whether the peer needs no answer.
        answered: bool,
        /// Whether the peer has given up a link that has not broken.
        is_given_up: bool,
    },
}

/// What the receiver of messages on the default route has to know about links.
#[derive(Default)]
pub(crate) struct RouteSwitches {
    /// What was received on links, with what has arrived on a fabric.
    pub receipts: Receipts<Option<Rc<HeldMessages>>>,
    /// Route switches that have to be handled.
    pub pending: Vec<RouteSwitch>,
}

impl RouteSwitches {
    /// Returns what has arrived from a peer on a fabric, if there is such a link, and lets no more arrive.
    pub fn close_fabric(&mut self, peer: Tid) -> Option<Rc<HeldMessages>> {
        let held = self.receipts.get_mut(peer)?.held.clone()?;
        held.is_closed.set(true);
        Some(held)
    }

    /// Takes in the fallback message of a peer. Returns how many of the messages that follow are repeats.
    pub fn on_fallback(&mut self, peer: Tid, reader: &mut Reader<'_>) -> u32 {
        let Some(fallback) = Fallback::decode(reader) else { return 0 };
        let (repeats, answered) = self.receipts.handle_fallback(peer, fallback);
        self.pending.push(RouteSwitch::ToDefault { peer, answered, is_given_up: fallback.is_given_up });
        repeats
    }
}
