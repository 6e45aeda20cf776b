//! Waking a peer that sleeps.
use crate::Sent;
use crate::doorbell;
use crate::peer::Peer;

/// A function that makes the daemon ring the receiver during a send; `None` if the caller can do this only after the
/// send.
pub(super) type Ringer<'a> = Option<&'a mut dyn FnMut()>;

/// Wakes the peer if it sleeps. Returns whether the daemon must still ring the peer's doorbell.
#[inline(always)]
pub(super) fn ring(peer: &Peer, reached: bool) -> Sent {
    match peer.owner.mapping.header().parker.0.parked(reached) {
        None => Sent::Done,
        Some(sleep) => wake(peer, sleep),
    }
}

#[cold]
fn wake(peer: &Peer, sleep: u32) -> Sent {
    if peer.rung.replace(sleep) == sleep {
        return Sent::Done;
    }
    match &peer.bell {
        Some(bell) if bell.is_open() => {
            doorbell::ring(bell.unchecked());
            Sent::Done
        }
        _ => Sent::RingByDaemon,
    }
}
