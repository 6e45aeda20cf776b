//! Receives bodies that their senders may still be writing.
use super::Step;
use crate::arrival::{Arrival, BodyInTransit, Outcome, Place, Sink, Transit};
use crate::peer::{Inbound, Peer};
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
    let Some(progress) = place.progress(&owner, bytes) else { return Step::Damaged };
    let there = pipelined::available(progress);
    if there == bytes {
        return receive_complete(peer, place, bytes as u64, entry, sink);
    }
    let Some(inbound) = peer.inbound.as_mut() else { return Step::Damaged };
    let sender_lives = || ports.as_ref().is_some_and(|ports| ports.alive(from));
    let (outcome, transit) = (Cell::new(Outcome::Later), Transit::Pipelined(place));
    let body = BodyInTransit { owner: &owner, bytes, sender_lives: &sender_lives, outcome: &outcome, transit };
    receive_in_transit(inbound, from, there, body, entry, sink)
}

/// Passes a body to the sink if more bytes have arrived since the last poll, or the sender is dead. `there` counts the
/// bytes that have arrived.
pub(super) fn receive_in_transit(
    inbound: &mut Inbound,
    from: u32,
    there: usize,
    body: BodyInTransit<'_>,
    entry: &Entry<'_>,
    sink: &mut impl Sink,
) -> Step {
    let now = Some((inbound.consumed, there));
    if inbound.stalled.take() == now && (body.sender_lives)() {
        inbound.stalled = now;
        return Step::Wait;
    }
    let outcome = body.outcome;
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
