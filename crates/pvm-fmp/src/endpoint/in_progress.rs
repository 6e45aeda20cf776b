//! Receives bodies that their senders may still be writing.
use super::Step;
use crate::arrival::{Arrival, BodyInTransit, Outcome, Place, Sink, Transit};
use crate::peer::Peer;
use crate::pipelined;
use crate::ports::PortView;
use crate::queue::Entry;
use std::cell::Cell;

/// Passes a pipelined body of `bytes` bytes to the sink. The sink gets an incomplete body only if more bytes have arrived
/// since the last poll, or the sender is dead.
pub(super) fn receive_pipelined(
    peer: &mut Peer,
    ports: &Option<PortView>,
    place: Place<'_>,
    bytes: u64,
    entry: &Entry<'_>,
    sink: &mut impl Sink,
) -> Step {
    let (from, owner, bytes) = (peer.tid, peer.owner.clone(), bytes as usize);
    let Some(inbound) = peer.inbound.as_mut() else { return Step::Damaged };
    let stalled = inbound.stalled.take();
    let Some(progress) = place.progress(&owner, bytes) else { return Step::Damaged };
    let there = pipelined::available(progress);
    if there == bytes {
        return receive_complete(peer, place, bytes as u64, entry, sink);
    }
    let sender_lives = || ports.as_ref().is_some_and(|ports| ports.alive(from));
    let now = Some((inbound.consumed, there));
    if stalled == now && sender_lives() {
        inbound.stalled = now;
        return Step::Wait;
    }
    let outcome = Cell::new(Outcome::Later);
    let transit = Transit::Pipelined(place);
    let body = BodyInTransit { owner: &owner, bytes, sender_lives: &sender_lives, outcome: &outcome, transit };
    sink.arrived(from, entry.meta(), Arrival::InTransit(body));
    match outcome.get() {
        Outcome::Taken => Step::Message,
        Outcome::Lost => Step::Other,
        Outcome::Later => {
            inbound.stalled = now;
            Step::Wait
        }
    }
}

/// Passes a complete body of `bytes` bytes to the sink.
pub(super) fn receive_complete(
    peer: &Peer,
    place: Place<'_>,
    bytes: u64,
    entry: &Entry<'_>,
    sink: &mut impl Sink,
) -> Step {
    let Some(remote) = place.complete(&peer.owner, bytes as usize) else { return Step::Damaged };
    sink.arrived(peer.tid, entry.meta(), Arrival::Remote(remote));
    Step::Message
}
