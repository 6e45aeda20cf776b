//! Borrowed payloads: messages from other hosts, on their way from the daemon to a task.
//!
//! The payload lies in the daemon's heap until the task has read the entry, and the task copies it out at once. So the
//! daemon learns from the read count of the queue which payloads are free. The task need not report this by an entry in
//! its own queue to the daemon, where the entry would wait behind messages of the task.

use super::Endpoint;
use super::send::{descriptor, ring};
use crate::heap::Block;
use crate::parker;
use crate::queue::Kind;
use crate::remote::BORROWED;
use crate::sync::{Ordering, ReadOnlyLoad};
use crate::{Meta, SendError, Sent};

impl Endpoint {
    /// Sends the first `bytes` of a block. The block must stay unchanged until [`Endpoint::read_by`] reaches the count
    /// that [`Endpoint::written`] returns right after this call.
    pub fn send_borrowed(&mut self, to: u32, meta: Meta, block: &Block, bytes: usize) -> Result<Sent, SendError> {
        let body = [(block.clone(), bytes)];
        self.queue(to, Kind::Blocks, &meta, &descriptor::<24>(BORROWED, &body))
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
        peer.our_record.get().notice.store(mark.unwrap_or(0), Ordering::Relaxed);
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
        let notice = peer.theirs(us).map_or(0, |record| record.notice.load_relaxed());
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
