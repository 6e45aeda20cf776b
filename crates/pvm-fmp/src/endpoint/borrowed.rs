//! Borrowed payloads: messages from other hosts, on their way from the daemon to a task.
//!
//! The payload lies in the daemon's heap until the task has read the entry, and mostly the task copies it out at once. So
//! the daemon learns from the read count of the queue which payloads are free. The task need not report this by an entry
//! in its own queue to the daemon, where the entry would wait behind messages of the task.
//!
//! A task can keep one long payload beyond that, where the daemon allows it, which saves a copy. It says so in its
//! record for the daemon before it publishes the read count. The payload counts as read in all other respects.

use super::send::descriptor;
use super::wake::ring;
use super::{Endpoint, KEPT_BYTES_MIN, KEPT_HEAP_SHARE};
use crate::heap::Block;
use crate::parker;
use crate::peer::Peer;
use crate::queue::Kind;
use crate::remote::{BORROWED, KEEPABLE};
use crate::sync::{Ordering, ReadOnlyLoad};
use crate::{Meta, SendError, Sent};

impl Endpoint {
    /// Sends the first `bytes` of a block. The block must stay unchanged until [`Endpoint::read_by`] reaches the count
    /// that [`Endpoint::written`] returns right after this call. If the task `may_keep` the payload, the block must also
    /// stay unchanged while [`Endpoint::kept_by`] returns that count then.
    pub fn send_borrowed(
        &mut self,
        to: u32,
        meta: Meta,
        block: &Block,
        bytes: usize,
        may_keep: bool,
    ) -> Result<Sent, SendError> {
        let body = [(block.clone(), bytes)];
        let token = if may_keep { KEEPABLE } else { BORROWED };
        self.queue(to, Kind::Blocks, &meta, &descriptor::<24>(token, &body))
    }

    /// Returns whether a task should be allowed to keep a payload of this length: whether it is long, and the heap is empty
    /// enough.
    pub fn may_be_kept(&self, bytes: usize) -> bool {
        let heap = self.heap.borrow();
        bytes >= KEPT_BYTES_MIN && heap.in_use_bytes() <= heap.source().allowance.limit_bytes() / KEPT_HEAP_SHARE
    }

    /// Returns the end of the entry whose payload a peer keeps, as [`Endpoint::written`] counts; `None` if it keeps none.
    /// Must be called after [`Endpoint::read_by`] or [`Endpoint::want_notice`].
    pub fn kept_by(&mut self, to: u32) -> Option<u64> {
        let us = self.tid;
        let peer = self.index_of(to).and_then(|index| self.peers[index].as_mut())?;
        // Pair `payload kept`: if the peer has moved on, its reads are over.
        let mark = peer.theirs(us)?.mark.load_acquire();
        (mark > 0).then_some(mark)
    }

    /// Returns how many half-slots of our queue to a peer have been read, according to the count that the peer last
    /// published.
    pub fn read_by(&mut self, to: u32) -> u64 {
        let us = self.tid;
        let peer = self.index_of(to).and_then(|index| self.peers[index].as_mut());
        peer.map_or(0, |peer| peer.consumed_lately(us))
    }

    /// Asks the peer to ring when it has read `mark` half-slots; `None` withdraws the request. Returns whether the peer
    /// has read that many already; in this case the peer does not necessarily ring.
    pub fn want_notice(&mut self, to: u32, mark: Option<u64>) -> bool {
        let us = self.tid;
        let Some(peer) = self.index_of(to).and_then(|index| self.peers[index].as_mut()) else { return false };
        peer.our_record.get().mark.store(mark.unwrap_or(0), Ordering::Relaxed);
        // Pair `wanted or read`: either the reader sees our request, or we see how far the reader has read.
        parker::full_fence();
        mark.is_some_and(|mark| peer.consumed(us) >= mark)
    }

    /// Rings the daemon if the daemon has asked for that ([`Endpoint::want_notice`]) and this task has read the
    /// daemon's queue far enough.
    pub(super) fn notify_daemon(&mut self, index: usize) {
        let us = self.tid;
        let Some(peer) = self.peers[index].as_mut() else { return };
        let published = peer.inbound.as_ref().map_or(0, |inbound| inbound.published);
        // Pair `wanted or read`.
        parker::full_fence();
        let notice = peer.theirs(us).map_or(0, |record| record.mark.load_relaxed());
        if notice != 0 && published >= notice {
            // The result is always `Done`, because this task always keeps the daemon's doorbell.
            let _ = ring(peer, false);
        }
    }

    /// Passes to the sink everything that a peer has sent until now, whether the sink wants it or not. The peer may
    /// send further messages meanwhile.
    pub fn poll_through(&mut self, tid: u32, sink: &mut impl crate::Sink) -> usize {
        let count = self.poll_dead(tid, sink);
        if let Some(index) = self.index_of(tid) {
            self.publish(index);
        }
        count
    }
}

/// Tells the daemon that this task keeps the payload of the entry that ends at this position, or none.
pub(super) fn store_kept(peer: &Peer, end: Option<u64>) {
    // Pair `payload kept`: our reads of the payload that was kept before are over. A reader of the read count, which is
    // published later, sees which payload is kept.
    peer.our_record.get().mark.store(end.unwrap_or(0), Ordering::Release);
}
