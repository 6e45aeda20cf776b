//! The sender's side of a rendezvous: a long body goes straight to a receiver that waits for it.

use super::wake::{Ringer, ring};
use super::{Endpoint, LINGER, RENDEZVOUS_BYTES_PER_MICROSECOND, RENDEZVOUS_PATIENCE};
use crate::cross_memory;
use crate::heap::Block;
use crate::peer::Peer;
use crate::queue::Kind;
use crate::rendezvous::{self, ReceiverAnswer};
use crate::sync::{AtomicU32, Ordering, ReadOnlyLoad};
use crate::ways;
use crate::{Meta, NoMemory, SendError, Sent};
use std::time::{Duration, Instant};

impl Endpoint {
    /// Returns whether the peer is in a one-call receive that a message with these meta words matches.
    pub(super) fn peer_waits_for(&mut self, index: usize, meta: &Meta) -> bool {
        let crowded = self.crowded();
        let (us, peer) = (self.tid, self.peers[index].as_mut().expect("connected"));
        if peer.rendezvous.refused || !settle(peer, us) {
            return false;
        }
        let owner = peer.owner.clone();
        let posted = &owner.mapping.header().posted.0;
        let waits = || {
            let word = |word: &AtomicU32| word.load_relaxed();
            // Pair `receive posted`.
            posted.active.load_acquire() != 0
                && [0, us].contains(&word(&posted.from))
                && (0..6).all(|at| meta[at] & word(&posted.mask[at]) == word(&posted.value[at]))
        };
        if waits() {
            return true;
        }
        if crowded || !peer.rendezvous.linger.is_closed() {
            return false;
        }
        let start = Instant::now();
        while start.elapsed() < LINGER {
            if waits() {
                peer.rendezvous.linger.note(true);
                return true;
            }
            std::hint::spin_loop();
        }
        peer.rendezvous.linger.note(false);
        false
    }

    /// Opens a rendezvous with the waiting peer; after a while without an answer, falls back to eager.
    pub(super) fn send_rendezvous(
        &mut self,
        index: usize,
        meta: Meta,
        body: &[u8],
        ringer: Ringer<'_>,
    ) -> Result<Sent, SendError> {
        let us = self.tid;
        let peer = self.peers[index].as_mut().expect("connected");
        let ours = peer.our_record;
        peer.rendezvous.number += 1;
        let number = peer.rendezvous.number;
        let mut words = [0u8; 24];
        for (place, word) in words.chunks_exact_mut(8).zip([body.as_ptr() as u64, body.len() as u64, number]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        cross_memory::begin(ours.get());
        rendezvous::open(&ours.get().rendezvous, number);
        let to = peer.tid;
        let sent = self.queue(to, Kind::Rendezvous, &meta, &words)?;
        let patience =
            RENDEZVOUS_PATIENCE + Duration::from_micros((body.len() / RENDEZVOUS_BYTES_PER_MICROSECOND) as u64);
        if let (Sent::RingByDaemon, Some(ring_by_daemon)) = (sent, ringer) {
            // The daemon must ring now: after our return it would be too late, since we wait here until the peer takes
            // the body.
            ring_by_daemon();
        }
        let start = Instant::now();
        let (mut spins, mut helped) = (0u32, false);
        loop {
            let peer = self.peers[index].as_mut().expect("connected");
            let answer = peer
                .theirs(us)
                .map_or(ReceiverAnswer::None, |record| rendezvous::receiver_answer(&record.taken, number));
            match answer {
                ReceiverAnswer::Taken => {
                    peer.rendezvous.linger.note(true);
                    ways::note_rendezvous();
                    return Ok(Sent::Done);
                }
                ReceiverAnswer::WantsEager => {
                    peer.rendezvous.refused = true;
                    break;
                }
                // Once `help` has copied, it is not called again: a second call would begin at the end of the body
                // again.
                ReceiverAnswer::None => helped = helped || peer.help(us, number, body),
            }
            spins += 1;
            if spins % 64 == 0 {
                if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
                    return Ok(Sent::Done);
                }
                if start.elapsed() > patience {
                    break;
                }
                if spins > 20_000 || self.crowded() {
                    std::thread::yield_now();
                }
            }
            std::hint::spin_loop();
        }
        self.fall_back_to_eager(index, number, body)
    }

    /// Copies the body of a rendezvous to the heap, and publishes this fall-back to the peer. If there is no memory,
    /// the rendezvous stays open for a while, because the peer has announced that it waits for the message.
    fn fall_back_to_eager(&mut self, index: usize, number: u64, body: &[u8]) -> Result<Sent, SendError> {
        let (heap, us, start) = (self.heap.clone(), self.tid, Instant::now());
        let block = loop {
            match Block::allocate(&heap, body.len()) {
                Ok(block) => break block,
                Err(NoMemory) => {
                    let peer = self.peers[index].as_mut().expect("connected");
                    let taken = peer.theirs(us).is_some_and(|record| {
                        rendezvous::receiver_answer(&record.taken, number) == ReceiverAnswer::Taken
                    });
                    let lives = self.ports.as_ref().is_none_or(|ports| ports.alive(peer.tid));
                    if taken || !lives {
                        return Ok(Sent::Done);
                    }
                    if start.elapsed() > self.rendezvous_wait_max {
                        return self.withdraw_rendezvous(index, number);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        };
        block.write(0, body);
        let peer = self.peers[index].as_mut().expect("connected");
        let record = peer.our_record;
        let offset = block.offset();
        let token = peer.outstanding.add([block]);
        record.get().eager_offset.store(offset, Ordering::Relaxed);
        record.get().eager_bytes.store(body.len() as u64, Ordering::Relaxed);
        record.get().eager_token.store(u64::from(token), Ordering::Relaxed);
        rendezvous::fall_back_to_eager(&record.get().rendezvous, number);
        peer.rendezvous.eager_token = Some(token);
        // The peer may have gone to sleep because it could not take the rendezvous.
        Ok(ring(peer, self.barriers))
    }

    /// Withdraws a rendezvous whose body does not fit in the heap: the peer then ignores the entry, unless it has taken
    /// the body at the last moment.
    fn withdraw_rendezvous(&mut self, index: usize, number: u64) -> Result<Sent, SendError> {
        let us = self.tid;
        let peer = self.peers[index].as_mut().expect("connected");
        let record = peer.our_record;
        let answer = || {
            peer.theirs(us).map_or(ReceiverAnswer::None, |record| rendezvous::receiver_answer(&record.taken, number))
        };
        if !rendezvous::withdraw(&record.get().rendezvous, number, answer) {
            return Ok(Sent::Done);
        }
        // No other rendezvous may be opened: until the peer has read this entry, it would mistake the words of a new
        // rendezvous for those of this one.
        peer.rendezvous.refused = true;
        Err(SendError::NoMemory)
    }
}

/// Settles a rendezvous that has fallen back to eager: if the peer has taken the body from our own memory at the last
/// moment, it does not release the copy in the heap, so this function does. Returns whether the next rendezvous may be
/// opened.
pub(super) fn settle(peer: &mut Peer, us: u32) -> bool {
    let Some(token) = peer.rendezvous.eager_token else { return true };
    let number = peer.rendezvous.number;
    let Some(record) = peer.theirs(us) else { return false };
    let taken = rendezvous::receiver_answer(&record.taken, number) == ReceiverAnswer::Taken;
    if taken {
        peer.outstanding.remove(token);
    }
    let settled = taken || !peer.outstanding.holds(token);
    if settled {
        peer.rendezvous.eager_token = None;
    }
    settled
}
