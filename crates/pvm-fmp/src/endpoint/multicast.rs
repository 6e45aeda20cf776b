//! A message to several peers, which all of them see at the same instant.
//!
//! Its entries are held: they are there for their readers once the sender has stored their time as the last one that it has
//! committed. So no receiver can react to a message that another receiver does not have yet. If the sender dies before,
//! nobody gets the message.
//!
//! All receivers of two multicasts take them in the same order, that of their times. For that a receiver that has found one
//! waits for others that are being sent and have an earlier time. Such a wait is as short as the loop over the receivers;
//! if its sender is stopped in there, all wait for about a second, at most a few times.
use super::send::descriptor;
use super::wake::ring;
use super::{Endpoint, SEND_BYTES};
use crate::arrival::FRAGMENTS_MAX;
use crate::heap::Block;
use crate::peer::Peer;
use crate::remote::{BORROWED, KEEPABLE};
use crate::{INLINE_BYTES_MAX, Meta, NoMemory, SendError, Sent, is_daemon};
use std::time::Duration;

/// How often a receiver looks whether an earlier multicast is committed before it yields its core, and (`YIELDS_MAX`)
/// before it sleeps between two looks, for `PAUSE`.
const SPINS_MAX: u32 = 1000;
const YIELDS_MAX: u32 = 2000;
const PAUSE: Duration = Duration::from_micros(50);

/// The body of a message to several peers.
#[derive(Clone, Copy)]
pub enum SharedBody<'a> {
    /// At most [`INLINE_BYTES_MAX`] bytes.
    Bytes(&'a [u8]),
    /// Blocks of the sender's heap, each with its used length.
    Blocks(&'a [(Block, usize)]),
    /// The first bytes of a block that is lent (see [`Endpoint::send_borrowed`]), and whether receivers may keep it.
    Borrowed(&'a Block, usize, bool),
}

impl SharedBody<'_> {
    fn len(&self) -> usize {
        match self {
            SharedBody::Bytes(bytes) => bytes.len(),
            SharedBody::Blocks(blocks) => blocks.iter().map(|(_, used)| used).sum(),
            SharedBody::Borrowed(_, bytes, _) => *bytes,
        }
    }
}

impl Endpoint {
    /// Sends a message to several peers at the same instant, to each with its own header words. Returns the result for each, in
    /// their order.
    pub fn send_to_all(&mut self, to: &[(u32, Meta)], body: SharedBody<'_>) -> Vec<Result<Sent, SendError>> {
        let joined;
        let body = match body {
            SharedBody::Blocks(blocks) if blocks.len() > FRAGMENTS_MAX => match self.join(blocks) {
                Ok(block) => {
                    joined = [block];
                    SharedBody::Blocks(&joined)
                }
                Err(NoMemory) => return vec![Err(SendError::NoMemory); to.len()],
            },
            body => body,
        };
        // What precedes the message in the queues must not be later than it.
        let ready: Vec<_> = to.iter().map(|(to, _)| self.prepare_entry(*to)).collect();
        let time = self.heap.borrow().source().mapping.header().multicasts.0.begin(|| self.clock.next_later());
        let queued: Vec<_> = ready
            .into_iter()
            .zip(to)
            .map(|(ready, (_, meta))| ready?.map(|index| self.hold(index, time, meta, body)).transpose())
            .collect();
        self.heap.borrow().source().mapping.header().multicasts.0.commit(time);
        let finish = |index: Option<usize>| match index.and_then(|index| self.peers[index].as_deref()) {
            Some(peer) => ring(peer, self.barriers),
            None => Sent::Done,
        };
        let sent =
            queued.into_iter().zip(to).map(|(queued, (to, _))| self.counted(*to, body.len(), queued.map(finish)));
        sent.collect()
    }

    /// Returns the peer's index, with its queue ready for the next entry; `None` if the peer is dead.
    fn prepare_entry(&mut self, to: u32) -> Result<Option<usize>, SendError> {
        let index = self.index_of(to).ok_or(SendError::NotConnected)?;
        if self.ports.as_ref().is_some_and(|ports| !ports.alive(to)) {
            return Ok(None);
        }
        self.order_after_frames(index)?;
        Ok(Some(index))
    }

    /// Waits until no multicast is being sent that is earlier than the one with this stamp, which peer `index` has sent.
    pub(super) fn await_earlier_multicasts(&mut self, index: usize, stamp: u64) {
        let begun = self.clock.next();
        let mut tries = 0u32;
        while self.order.iter().any(|other| *other != index && self.may_multicast_before(*other, stamp)) {
            tries += 1;
            match tries {
                ..SPINS_MAX => std::hint::spin_loop(),
                _ if !self.clock.is_recent(begun) => return self.lose_patience(index, stamp),
                SPINS_MAX..YIELDS_MAX => std::thread::yield_now(),
                // Others must not wait for a daemon that waits.
                _ if is_daemon(self.tid) => return,
                // Its sender needs the core, or is stopped.
                _ => std::thread::sleep(PAUSE),
            }
        }
    }

    fn may_multicast_before(&self, index: usize, stamp: u64) -> bool {
        let lives = |tid| self.ports.as_ref().is_none_or(|ports| ports.alive(tid));
        let waits_for = |peer: &Peer| peer.patience > 0 && peer.may_multicast_before(stamp) && lives(peer.tid);
        self.peers[index].as_deref().is_some_and(waits_for)
    }

    /// Notes that it was in vain to wait for multicasts of other peers than `index`: a peer that is often stopped in one, or
    /// breaks the rules, is not waited for any more.
    #[cold]
    fn lose_patience(&mut self, index: usize, stamp: u64) {
        for other in self.order.clone() {
            if other != index && self.may_multicast_before(other, stamp) {
                if let Some(peer) = self.peers[other].as_mut() {
                    peer.patience -= 1;
                }
            }
        }
    }

    /// Queues a held entry to a peer. Returns the peer's index.
    fn hold(&mut self, index: usize, time: u64, meta: &Meta, body: SharedBody<'_>) -> Result<usize, SendError> {
        let peer = self.peers[index].as_mut().expect("connected");
        let (us, heap) = (self.tid, &self.heap);
        self.uncollected += SEND_BYTES;
        let pushed = match body {
            SharedBody::Bytes(bytes) => {
                debug_assert!(bytes.len() <= INLINE_BYTES_MAX);
                peer.push_held(us, heap, time, false, meta, bytes)
            }
            SharedBody::Borrowed(block, bytes, may_keep) => {
                let token = if may_keep { KEEPABLE } else { BORROWED };
                let bytes = descriptor::<24>(token, &[(block.clone(), bytes)]);
                peer.push_held(us, heap, time, true, meta, &bytes)
            }
            SharedBody::Blocks(blocks) => {
                let token = peer.outstanding.add(blocks.iter().map(|(block, _)| block.clone()));
                let bytes = descriptor::<{ 8 + 16 * FRAGMENTS_MAX }>(token, blocks);
                let pushed = peer.push_held(us, heap, time, true, meta, &bytes[..8 + 16 * blocks.len()]);
                if pushed.is_err() {
                    peer.outstanding.remove(token);
                }
                self.uncollected += blocks.iter().map(|(_, used)| used).sum::<usize>();
                pushed
            }
        };
        pushed.map(|()| index).map_err(|NoMemory| SendError::NoMemory)
    }
}
