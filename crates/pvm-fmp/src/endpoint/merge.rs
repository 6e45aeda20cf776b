//! Entries of several peers are taken in the order of their stamps ([`crate::clock`]), across all queues.
//!
//! What has caused an entry is in its queue before that entry is in another one. So the earliest entry that was found is
//! the next one only if another look at the queues that seemed empty, after it was found, shows nothing earlier.

use super::{BATCH, Endpoint, PROBE_PEERS, RECENT_PEERS, Step};
use crate::arrival::Sink;
use crate::clock::{FIELDS, is_earlier};
use crate::queue::is_held;

/// The first entries of the queues, during one poll.
#[derive(Default)]
pub(super) struct Heads {
    /// The latest entry first.
    found: Vec<Head>,
    /// The number of this poll; peers whose first entry is in `found` have it ([`crate::peer::Peer::listed`]).
    poll: u32,
    /// How many looks at all other queues there have been.
    looks: u32,
    /// Peers whose first entry cannot be taken yet, each with the number of entries that had been taken when that was
    /// tried last.
    blocked: Vec<(usize, usize)>,
    /// The peers whose entries were taken, the last one last.
    used: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Head {
    stamp: u64,
    /// The index of the peer, and its tid.
    index: usize,
    tid: u32,
    /// How many looks had begun when the entry was found; for a multicast, when no earlier one was being sent.
    seen: u32,
    /// Whether an earlier multicast may be being sent.
    has_rivals: bool,
}

impl Head {
    /// Returns whether this entry comes before another one. All receivers of two multicasts agree on that.
    fn is_before(&self, other: &Head) -> bool {
        match self.stamp & !FIELDS == other.stamp & !FIELDS {
            true => self.tid < other.tid,
            false => is_earlier(self.stamp, other.stamp),
        }
    }
}

impl Heads {
    fn begin(&mut self) {
        self.poll = self.poll.wrapping_add(1).max(1);
        self.looks = 0;
        self.found.clear();
        self.blocked.clear();
        self.used.clear();
    }

    fn insert(&mut self, stamp: u64, index: usize, tid: u32) {
        self.put(Head { stamp, index, tid, seen: self.looks, has_rivals: is_held(stamp) });
    }

    fn put(&mut self, head: Head) {
        let place = self.found.partition_point(|other| head.is_before(other));
        self.found.insert(place, head);
    }

    /// Returns whether the earliest entry was there before the last look at all queues.
    fn is_first_safe(&self) -> bool {
        self.found.last().is_some_and(|head| head.seen < self.looks)
    }

    fn note_used(&mut self, index: usize) {
        if self.used.last() != Some(&index) {
            self.used.retain(|other| *other != index);
            self.used.push(index);
        }
    }
}

/// What was taken in one poll.
#[derive(Default)]
pub(super) struct Taken {
    pub messages: usize,
    pub entries: usize,
}

impl Endpoint {
    /// Passes messages of all peers to the sink, the earliest first, up to a batch. Returns how many, or 1 if a full batch
    /// contained only other entries. `thoroughly`: see [`Endpoint::poll_in_order`].
    pub(super) fn poll_messages(&mut self, thoroughly: bool, sink: &mut impl Sink) -> usize {
        let taken = self.poll_in_order(thoroughly, None, sink);
        if taken.entries >= BATCH { taken.messages.max(1) } else { taken.messages }
    }

    /// Passes entries of all peers to the sink, the earliest first; none that is later than `until`. If there are many
    /// peers, first looks at some of them only, unless `thoroughly` says otherwise.
    pub(super) fn poll_in_order(&mut self, thoroughly: bool, until: Option<u64>, sink: &mut impl Sink) -> Taken {
        let mut taken = Taken::default();
        if !thoroughly && self.order.len() > PROBE_PEERS && !self.some_have_sent() {
            return taken;
        }
        self.frame_order.stopped = false;
        self.heads.begin();
        while taken.entries < BATCH {
            while !self.heads.is_first_safe() {
                self.look_for_heads(thoroughly, until, taken.entries, sink);
                if self.heads.found.is_empty() {
                    break;
                }
            }
            let Some(head) = self.heads.found.pop() else { break };
            if head.has_rivals {
                self.await_earlier_multicasts(head.index, head.stamp);
                let seen = self.heads.looks;
                self.heads.put(Head { seen, has_rivals: false, ..head });
                continue;
            }
            match self.step(head.index, sink) {
                Some(Step::Message) => taken.messages += 1,
                Some(Step::Other) => {}
                // The frame may be an earlier message, or introduce a peer that has sent one.
                Some(Step::Wait) if self.frame_order.stopped => break,
                Some(Step::Damaged) => {
                    self.mark_damaged(head.index);
                    continue;
                }
                Some(Step::Wait) | None => {
                    self.heads.blocked.retain(|(index, _)| *index != head.index);
                    self.heads.blocked.push((head.index, taken.entries));
                    self.list(head.index, false);
                    continue;
                }
            }
            taken.entries += 1;
            self.heads.note_used(head.index);
            let next = self.head_until(head.index, until);
            self.list(head.index, next.is_some());
            if let Some(stamp) = next {
                self.heads.insert(stamp, head.index, head.tid);
            }
            if taken.messages > 0 && sink.satisfied() {
                break;
            }
        }
        self.note_used();
        taken
    }

    /// Looks for the first entries of all queues of which none is known. `taken`: how many entries this poll has taken.
    fn look_for_heads(&mut self, thoroughly: bool, until: Option<u64>, taken: usize, sink: &impl Sink) {
        // Once something was found, no queue may be overlooked.
        let thoroughly = thoroughly || !self.heads.found.is_empty();
        self.heads.looks += 1;
        for place in 0..self.order.len() {
            let index = self.order[place];
            self.look_for_queue(index, thoroughly);
            let peer = self.peers[index].as_ref().expect("ordered peers exist");
            if peer.listed == self.heads.poll || !sink.wants(peer.tid) || self.heads.blocked.contains(&(index, taken)) {
                continue;
            }
            if let Some(stamp) = self.head_until(index, until) {
                let tid = peer.tid;
                self.list(index, true);
                self.heads.insert(stamp, index, tid);
            }
        }
    }

    /// Returns the stamp of a peer's first entry, unless it is later than `until`.
    fn head_until(&self, index: usize, until: Option<u64>) -> Option<u64> {
        let stamp = self.peers[index].as_ref()?.head()?;
        until.is_none_or(|until| !is_earlier(until, stamp)).then_some(stamp)
    }

    /// Notes whether a peer's first entry is in the list.
    fn list(&mut self, index: usize, is_listed: bool) {
        let poll = self.heads.poll;
        if let Some(peer) = self.peers[index].as_mut() {
            peer.listed = if is_listed { poll } else { 0 };
        }
    }

    /// Publishes how far the queues were read. Moves the peers that have sent to the front of the order, in a poll of few
    /// peers only the last one.
    fn note_used(&mut self) {
        let used = std::mem::take(&mut self.heads.used);
        for (place, index) in used.iter().enumerate() {
            self.note_read(*index);
            let is_last = place + 1 == used.len();
            let place = self.order.iter().position(|other| other == index);
            if let Some(place) = place.filter(|place| (is_last && *place > 0) || *place >= RECENT_PEERS) {
                self.put_first(place);
            }
        }
        self.heads.used = used;
        if self.dirty.get() {
            self.flush_releases(false);
        }
    }

    /// Returns whether no other peer than that one has sent anything earlier that is still in its queue.
    #[inline(never)]
    pub(super) fn is_earliest(&self, index: usize, stamp: u64) -> bool {
        let is_later = |other: &usize| {
            *other == index || self.peers[*other].as_ref().is_none_or(|peer| peer.has_nothing_before(stamp))
        };
        self.order.iter().all(is_later)
    }

    /// Returns the peer with the earliest entry before `stamp`, except `blocked` ones.
    pub(super) fn earliest_before(&mut self, stamp: u64, blocked: &[usize], sink: &impl Sink) -> Option<usize> {
        let mut earliest = (stamp, None);
        loop {
            let before = earliest;
            for place in 0..self.order.len() {
                let index = self.order[place];
                self.look_for_queue(index, true);
                let peer = self.peers[index].as_ref().expect("ordered peers exist");
                if blocked.contains(&index) || !sink.wants(peer.tid) {
                    continue;
                }
                if let Some(head) = peer.head().filter(|head| is_earlier(*head, earliest.0)) {
                    earliest = (head, Some(index));
                }
            }
            if before == earliest {
                return earliest.1;
            }
        }
    }

    /// Returns whether one of the peers that sent lately, or one of some others, has sent something. The others take turns.
    fn some_have_sent(&mut self) -> bool {
        let mut has_sent = (0..RECENT_PEERS).any(|place| self.has_sent(place));
        for _ in RECENT_PEERS..PROBE_PEERS {
            self.next_probe = if self.next_probe + 1 >= self.order.len() { RECENT_PEERS } else { self.next_probe + 1 };
            has_sent = has_sent || self.has_sent(self.next_probe);
        }
        has_sent
    }

    /// Returns whether the next entry of a peer's queue is there.
    #[inline]
    pub fn has_sent_to_us(&mut self, tid: u32) -> bool {
        let Some(index) = self.index_of(tid) else { return false };
        self.look_for_queue(index, true);
        self.peers[index].as_ref().is_some_and(|peer| peer.head().is_some())
    }

    fn has_sent(&mut self, place: usize) -> bool {
        let index = self.order[place];
        self.look_for_queue(index, false);
        self.peers[index].as_ref().is_some_and(|peer| peer.head().is_some())
    }

    /// Looks for the queue of a peer that had none so far.
    #[inline]
    pub(super) fn look_for_queue(&mut self, index: usize, thoroughly: bool) {
        let peer = self.peers[index].as_mut().expect("ordered peers exist");
        if peer.inbound.is_none() && !peer.find_queue(self.tid, thoroughly) && peer.owner.mapping.take_starved() {
            peer.searched = None;
            self.note_starved(index);
        }
    }
}
