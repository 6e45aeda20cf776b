//! Receiving: reads the queues and hands arriving messages to the sink.

use super::borrowed;
use super::counting::Counting;
use super::dead_queue::DeadQueue;
use super::gaps;
use super::in_progress::receive_pipelined;
use super::packed::take_dropped;
use super::words::words_of;
use super::{
    BATCH, Endpoint, PROMPT_RELEASE_BYTES, RECENT_PEERS, RECENT_PROBES, Step, TOKENS_PER_RELEASE, WATCH_PEERS,
    WATCH_PROBES,
};
use crate::arrival::{Arrival, BodyInTransit, Inline, Outcome, Place, RendezvousSource, Sink, Transit, eager_body};
use crate::owner::{Keeping, Owner};
use crate::peer::{Inbound, Peer};
use crate::ports::PortView;
use crate::queue::{Entry, Kind};
use crate::remote::Remote;
use crate::rendezvous::{self, ReceiverAnswer, SenderState};
use crate::segment_layout::PeerRecord;
use crate::sync::{Ordering, ReadOnlyLoad};
use crate::{BODY_BYTES_MAX, INLINE_BYTES_MAX, Posted};
use std::cell::Cell;
use std::rc::Rc;

impl Endpoint {
    /// Passes arrived messages to `sink`, those of several peers in the order in which they were sent, up to a batch. If
    /// there are many peers, messages may be overlooked until one of those that sent lately has sent again, or their turn
    /// comes. Returns the number of messages, or 1 if a full batch contained only other entries. Between
    /// [`Endpoint::prepare_park`] and [`Endpoint::unpark`] all peers are polled, and 0 means that nothing has arrived.
    /// Makes no system call.
    #[inline]
    pub fn poll(&mut self, sink: &mut impl Sink) -> usize {
        (self.uncollected, self.shorts) = (0, 0);
        let count = self.poll_each(self.parked, sink);
        if count == 0 && (self.unpublished || self.dirty.get()) {
            self.idle();
        }
        count
    }

    /// Probes the queues of the most recent peers for some hundred nanoseconds, or until an entry is there; takes
    /// nothing. A waiting task calls this function between two polls: a poll goes through all the layers above, so it
    /// takes longer and would notice a message later.
    #[inline]
    pub fn watch(&self) {
        let watched = &self.order[..self.order.len().min(WATCH_PEERS)];
        for _ in 0..WATCH_PROBES / watched.len().max(1) {
            for &index in watched {
                let inbound = self.peers[index].as_ref().and_then(|peer| peer.inbound.as_ref());
                // SAFETY: the slice is used within this statement, the peer holds the mapping.
                if inbound.is_some_and(|inbound| inbound.reader.has_next(unsafe { inbound.slots() })) {
                    return;
                }
            }
            std::hint::spin_loop();
        }
    }

    /// Watches the most recent peer alone, unless tasks outnumber the cores. Returns whether that peer has sent again.
    #[inline(always)]
    pub fn watch_most_recent(&self) -> bool {
        let first = self.order.first().and_then(|&index| self.peers[index].as_ref());
        let Some(inbound) = first.and_then(|peer| peer.inbound.as_ref()).filter(|_| !self.crowded()) else {
            return false;
        };
        // SAFETY: the slice is used within this function, the peer holds the mapping.
        let ring = unsafe { inbound.slots() };
        (0..RECENT_PROBES).any(|_| {
            let there = inbound.reader.has_next(ring);
            if !there {
                // Polling without a pause would take the cache line from the writer before the writer has finished with
                // it.
                std::hint::spin_loop();
            }
            there
        })
    }

    /// Polls every peer, however many there are.
    pub fn poll_all(&mut self, sink: &mut impl Sink) -> usize {
        self.poll_each(true, sink)
    }

    #[inline]
    fn poll_each(&mut self, thoroughly: bool, sink: &mut impl Sink) -> usize {
        let sink = &mut Counting { sink, traffic: self.traffic.share() };
        // What a single peer has sent is in order.
        let [only] = self.order[..] else { return self.poll_messages(thoroughly, sink) };
        self.frame_order.stopped = false;
        self.look_for_queue(only, thoroughly);
        self.drain_peer(only, sink)
    }

    /// Polls one peer alone, for messages that the sink picks ([`Sink::picks`]): it stops at the first other message, and at one
    /// that may be behind a gap. Those of other peers stay where they are.
    #[inline]
    pub fn poll_peer(&mut self, tid: u32, sink: &mut impl Sink) -> usize {
        let count = self.index_of(tid).map_or(0, |index| self.drain_picked(index, sink));
        if count == 0 && (self.unpublished || self.dirty.get()) {
            self.idle();
        }
        count
    }

    fn drain_picked(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let sink = &mut Counting { sink, traffic: self.traffic.share() };
        self.look_for_queue(index, self.parked);
        let mut count = 0;
        for _ in 0..BATCH {
            let Some(peer) = self.peers[index].as_ref() else { break };
            // SAFETY: the entry is used within this statement, during which the peer lives.
            let is_picked = match unsafe { peer.next() } {
                Ok(Some(entry)) => {
                    !entry.kind.is_message()
                        || sink.picks(peer.tid, &entry.meta()) && self.may_be_taken(false, index, entry.stamp())
                }
                Ok(None) => false,
                Err(_) => true,
            };
            if !is_picked {
                break;
            }
            match self.step(index, sink) {
                Some(Step::Message) => count += 1,
                Some(Step::Other) => {}
                Some(Step::Wait) | None => break,
                Some(Step::Damaged) => {
                    self.mark_damaged(index);
                    break;
                }
            }
            if sink.satisfied() {
                break;
            }
        }
        self.note_read(index);
        if self.dirty.get() {
            self.flush_releases(false);
        }
        count
    }

    /// Moves the peer at `place` to the front of the order, in a time that does not depend on the number of peers.
    pub(super) fn put_first(&mut self, place: usize) {
        let last = place.min(RECENT_PEERS - 1);
        self.order.swap(last, place);
        self.order[..=last].rotate_right(1);
    }

    /// Takes messages of one peer. Short messages, the hot path, are handled here.
    #[inline]
    fn drain_peer(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let peer = self.peers[index].as_mut().expect("ordered peers exist");
        if !sink.wants(peer.tid) {
            return 0;
        }
        let Some(inbound) = &mut peer.inbound else { return 0 };
        // SAFETY: the slice is used within this method, during which the peer keeps its mapping.
        let ring = unsafe { inbound.slots() };
        let mut count = 0;
        loop {
            match inbound.reader.next(ring) {
                Ok(None) if count == 0 => return 0,
                Ok(None) => break,
                Ok(Some(entry)) if entry.kind == Kind::Message && !entry.is_held() && count < BATCH => {
                    let (half_slots, stamp) = (entry.half_slots(), entry.stamp());
                    sink.arrived(peer.tid, entry.meta(), Arrival::Inline(Inline(entry)));
                    inbound.advance(half_slots, stamp);
                    count += 1;
                    if sink.satisfied() {
                        break;
                    }
                }
                _ if count < BATCH => return count + self.drain_some(index, sink),
                _ => break,
            }
        }
        self.unpublished = true;
        if inbound.should_publish() {
            self.publish(index);
        }
        count
    }

    /// Passes to the sink everything that a dead peer had sent, and what others had sent before that. Call it before
    /// [`Endpoint::peer_gone`].
    pub fn poll_dead(&mut self, tid: u32, sink: &mut impl Sink) -> usize {
        let Some(index) = self.index_of(tid) else { return 0 };
        let sink = &mut Counting { sink, traffic: self.traffic.share() };
        self.look_for_queue(index, true);
        // A task that has announced its end, but still runs, might write for ever. So no more entries are read than its
        // queue can have held when the task was declared dead.
        let mut dead_queue = DeadQueue::default();
        // Nor may others delay this for ever.
        let (mut others, mut blocked) = (BATCH * self.order.len(), vec![index]);
        let mut count = 0;
        while let Some(stamp) = self.peers[index].as_ref().and_then(|peer| peer.head()) {
            let earlier = if others > 0 { self.earliest_before(stamp, &blocked, sink) } else { None };
            others -= usize::from(earlier.is_some());
            let next = earlier.unwrap_or(index);
            let inbound = self.peers[index].as_ref().and_then(|peer| peer.inbound.as_ref());
            let step = match earlier.is_some() || inbound.is_none_or(|inbound| dead_queue.may_hold_next(inbound)) {
                true => self.step(next, sink),
                false => Some(Step::Damaged),
            };
            match step {
                Some(Step::Message) => count += 1,
                Some(Step::Other) => {}
                Some(Step::Damaged) => self.mark_damaged(next),
                Some(Step::Wait) | None if next == index => break,
                Some(Step::Wait) | None => blocked.push(next),
            }
        }
        count
    }

    /// Takes a batch of entries of any kind. Returns the number of messages, but at least 1 if more entries may be
    /// there.
    fn drain_some(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let (mut count, mut entries) = (0, 0);
        while entries < BATCH {
            match self.step(index, sink) {
                Some(Step::Message) => {
                    count += 1;
                    if sink.satisfied() {
                        break;
                    }
                }
                Some(Step::Other) => {}
                Some(Step::Wait) | None => break,
                Some(Step::Damaged) => {
                    self.mark_damaged(index);
                    break;
                }
            }
            entries += 1;
        }
        if entries == BATCH {
            count = count.max(1);
        }
        self.note_read(index);
        if self.dirty.get() {
            self.flush_releases(false);
        }
        count
    }

    /// Publishes how far a peer's queue was read, at once or later.
    pub(super) fn note_read(&mut self, index: usize) {
        // After long bodies, the read count is published at once: their sender may be waiting until the first ones have
        // been read.
        let peer = self.peers[index].as_ref();
        let long = peer.is_some_and(|peer| peer.released_bytes() >= PROMPT_RELEASE_BYTES || crate::is_daemon(peer.tid));
        let inbound = self.peers[index].as_ref().and_then(|peer| peer.inbound.as_ref());
        if long || inbound.is_some_and(Inbound::should_publish) {
            self.publish(index);
        } else {
            self.unpublished = true;
        }
    }

    /// Publishes how far we have read.
    pub(super) fn publish(&mut self, index: usize) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        if let Some(inbound) = peer.inbound.as_mut().filter(|inbound| inbound.consumed != inbound.published) {
            inbound.published = inbound.consumed;
            // Pair `read so far`: our reads of those slots are over.
            peer.our_record.get().consumed.store(inbound.consumed, Ordering::Release);
            if crate::is_daemon(peer.tid) {
                self.notify_daemon(index);
            }
        }
    }

    /// Does the work that can wait until nothing arrives: publishes read counts, and releases blocks.
    #[cold]
    fn idle(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            (0..self.peers.len()).for_each(|index| self.publish(index));
        }
        if self.dirty.get() {
            self.flush_releases(true);
        }
    }

    /// Stops reading the damaged queue of a peer. The peer keeps its place in the order, because a caller may be
    /// iterating over the order.
    pub(super) fn mark_damaged(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].as_mut() {
            (peer.damaged, peer.inbound) = (true, None);
        }
    }

    /// Handles the next entry of a peer's queue.
    #[inline]
    pub(super) fn step(&mut self, index: usize, sink: &mut impl Sink) -> Option<Step> {
        let peer = self.peers[index].as_mut().expect("connected");
        // SAFETY: the entry is used within this method, during which the peer lives.
        let entry = match unsafe { peer.next() } {
            Ok(entry) => entry?,
            Err(_) => return Some(Step::Damaged),
        };
        let (half_slots, stamp) = (entry.half_slots(), entry.stamp());
        let step = match entry.kind {
            Kind::Message => {
                sink.arrived(peer.tid, entry.meta(), Arrival::Inline(Inline(entry)));
                Step::Message
            }
            Kind::Continuation => {
                let followed = follow_continuation(peer, &entry, half_slots);
                return Some(self.unless_starved(index, followed));
            }
            _ => {
                let step = self.step_long(index, &entry, sink);
                if let (Step::Message, Some(peer)) = (&step, self.peers[index].as_mut()) {
                    peer.pair.note_arrival();
                }
                self.unless_starved(index, step)
            }
        };
        if matches!(step, Step::Message | Step::Other) {
            self.peers[index].as_mut()?.inbound.as_mut()?.advance(half_slots, stamp);
        }
        Some(step)
    }

    /// Turns [`Step::Damaged`] into [`Step::Wait`], if the only cause is that memory could not be mapped now.
    #[inline]
    fn unless_starved(&mut self, index: usize, step: Step) -> Step {
        let starved = |peer: &Peer| matches!(step, Step::Damaged) && peer.owner.mapping.take_starved();
        if !self.peers[index].as_deref().is_some_and(starved) {
            return step;
        }
        self.note_starved(index);
        Step::Wait
    }

    /// Notes that a message of a peer, or its queue, could not be mapped now.
    #[cold]
    pub(super) fn note_starved(&mut self, index: usize) {
        let from = self.peers[index].as_ref().expect("connected").tid;
        if !self.starved.contains(&from) {
            self.starved.push(from);
        }
    }

    /// Handles a release, or an entry whose body lies outside the queue.
    fn step_long(&mut self, index: usize, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
        let peer = self.peers[index].as_mut().expect("connected");
        let owner = peer.owner.clone();
        match entry.kind {
            Kind::Blocks => {
                let mut descriptor = [0u8; INLINE_BYTES_MAX];
                let bytes = entry.copy_to(&mut descriptor);
                match Remote::from_descriptor(&owner, &descriptor[..bytes]) {
                    Some(remote) if remote.is_borrowed() => receive_borrowed(peer, &owner, &remote, entry, sink),
                    Some(remote) => {
                        sink.arrived(peer.tid, entry.meta(), Arrival::Remote(remote));
                        Step::Message
                    }
                    None => Step::Damaged,
                }
            }
            Kind::Rendezvous => {
                let (ports, tid) = (&self.ports, peer.tid);
                let lives = || ports.as_ref().is_some_and(|ports| ports.alive(tid));
                let Some(record) = peer.find_record(self.tid) else { return Step::Damaged };
                let ours = peer.our_record;
                receive_rendezvous(tid, &owner, record.get(), ours.get(), &self.copy_allowed, &lives, entry, sink)
            }
            Kind::Pipelined => {
                let [token, offset, bytes] = words_of(entry);
                let place = Place::Heap { token: token as u32, offset };
                receive_pipelined(peer, &self.ports, place, bytes, entry, sink)
            }
            Kind::Passed => self.receive_passed(index, entry, sink),
            Kind::Streamed => self.receive_streamed(index, entry, sink),
            Kind::Offer => self.take_offer(index, entry),
            Kind::Answer => self.take_answer(index, entry),
            Kind::Dropped => take_dropped(peer, entry),
            Kind::Gap | Kind::NoMore => gaps::take(peer.tid, entry, sink),
            Kind::AfterFrame => {
                let last = PortView::last_message(self.ports.as_ref(), self.tid).load_relaxed();
                self.frame_order.step(words_of(entry)[0] as u32, last as u32)
            }
            Kind::CopyTime => {
                let [word, ..] = words_of(entry);
                peer.outstanding.record_copied_out(word as u32, word >> 32);
                Step::Other
            }
            _ => {
                let mut tokens = [0u8; 4 * TOKENS_PER_RELEASE];
                let bytes = entry.copy_to(&mut tokens);
                for token in tokens[..bytes].chunks_exact(4) {
                    peer.outstanding.remove(u32::from_ne_bytes(token.try_into().expect("four")));
                }
                Step::Other
            }
        }
    }

    /// Tells senders which of their blocks we no longer read.
    pub(super) fn flush_releases(&mut self, all: bool) {
        self.dirty.set(false);
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            if peer.owner.kept.get() == Keeping::Over {
                peer.owner.kept.set(Keeping::None);
                borrowed::store_kept(peer, None);
            }
            let count = peer.owner.released.borrow().len();
            if count == 0 {
                continue;
            }
            if !all && count < TOKENS_PER_RELEASE && peer.owner.released_bytes.get() < PROMPT_RELEASE_BYTES {
                self.dirty.set(true);
                continue;
            }
            if let Some((token, ns)) = peer.owner.timed.take() {
                let word = u64::from(ns) << 32 | u64::from(token);
                // Without memory for it, the sender learns from another message.
                let _ = peer.push(self.tid, &self.heap, Kind::CopyTime, &[0; 6], &word.to_ne_bytes());
            }
            let tokens = std::mem::take(&mut *peer.owner.released.borrow_mut());
            peer.owner.released_bytes.set(0);
            for group in tokens.chunks(TOKENS_PER_RELEASE) {
                let mut body = [0u8; 4 * TOKENS_PER_RELEASE];
                for (place, token) in body.chunks_exact_mut(4).zip(group) {
                    place.copy_from_slice(&token.to_ne_bytes());
                }
                let pushed = peer.push(self.tid, &self.heap, Kind::Release, &[0; 6], &body[..4 * group.len()]);
                if pushed.is_err() {
                    // There is no memory for the release: the tokens wait for the next call.
                    peer.owner.released.borrow_mut().extend_from_slice(group);
                    self.dirty.set(true);
                }
            }
        }
    }

    /// Posts what the task waits for in a one-call receive; `None` when it waits no longer.
    #[inline]
    pub fn post(&mut self, wanted: Option<Posted>) {
        let heap = self.heap.borrow();
        let words = &heap.source().mapping.header().posted.0;
        let Some(wanted) = wanted else {
            // This store needs no ordering: the rendezvous of a sender that still sees the old value is no problem.
            return words.active.store(0, Ordering::Relaxed);
        };
        words.active.store(0, Ordering::Relaxed);
        words.from.store(wanted.from, Ordering::Relaxed);
        for at in 0..6 {
            words.mask[at].store(wanted.mask[at], Ordering::Relaxed);
            words.value[at].store(wanted.value[at] & wanted.mask[at], Ordering::Relaxed);
        }
        // Pair `receive posted`: whoever sees `active` sees what the task waits for.
        words.active.store(1, Ordering::Release);
    }
}

/// Follows the queue to its next ring.
#[cold]
fn follow_continuation(peer: &mut Peer, entry: &Entry<'_>, half_slots: usize) -> Step {
    let mut body = [0u8; 16];
    entry.copy_to(&mut body);
    let followed = peer.inbound.as_mut().and_then(|inbound| inbound.follow(&peer.owner, &body, half_slots));
    if followed.is_some() { Step::Other } else { Step::Damaged }
}

/// Passes the body of a rendezvous to the sink.
#[allow(clippy::too_many_arguments)] // parts of an endpoint that is already borrowed
fn receive_rendezvous(
    from: u32,
    owner: &Rc<Owner>,
    theirs: &PeerRecord,
    ours: &PeerRecord,
    allowed: &Cell<bool>,
    sender_lives: &dyn Fn() -> bool,
    entry: &Entry<'_>,
    sink: &mut impl Sink,
) -> Step {
    let [address, bytes, number] = words_of(entry);
    if bytes > BODY_BYTES_MAX as u64 || number > rendezvous::NUMBER_MAX {
        return Step::Damaged;
    }
    match rendezvous::sender_state(&theirs.rendezvous, number) {
        SenderState::Eager => match eager_body(owner, theirs) {
            Some(remote) => {
                sink.arrived(from, entry.meta(), Arrival::Remote(remote));
                Step::Message
            }
            None => Step::Damaged,
        },
        SenderState::Withdrawn => Step::Other,
        // A dead sender decides nothing any more: the message was not sent.
        SenderState::InDoubt if !sender_lives() => Step::Other,
        SenderState::InDoubt => Step::Wait,
        // The sender was asked to fall back to eager, and will do so: another attempt to copy would only cost time.
        SenderState::Open
            if rendezvous::receiver_answer(&ours.taken, number) == ReceiverAnswer::WantsEager && sender_lives() =>
        {
            Step::Wait
        }
        SenderState::Open => {
            let outcome = Cell::new(Outcome::Later);
            let memory = RendezvousSource { theirs, ours, number, address, allowed };
            let (bytes, transit) = (bytes as usize, Transit::Rendezvous(memory));
            let body = BodyInTransit { owner, bytes, sender_lives, outcome: &outcome, transit };
            sink.arrived(from, entry.meta(), Arrival::InTransit(body));
            match outcome.get() {
                Outcome::Taken => Step::Message,
                Outcome::Lost => Step::Other,
                Outcome::Later => {
                    rendezvous::request_eager(&ours.taken, number);
                    Step::Wait
                }
            }
        }
        SenderState::Other => Step::Damaged,
    }
}

/// Passes a borrowed payload to the sink as a body in transit: unless the sink keeps it, the payload lies in the daemon's
/// heap only until the entry has been read.
fn receive_borrowed(peer: &Peer, owner: &Rc<Owner>, remote: &Remote, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
    let (outcome, had) = (Cell::new(Outcome::Later), owner.kept.get());
    let (bytes, transit) = (remote.len(), Transit::Borrowed(remote));
    let body = BodyInTransit { owner, bytes, sender_lives: &|| true, outcome: &outcome, transit };
    sink.arrived(peer.tid, entry.meta(), Arrival::InTransit(body));
    if outcome.get() != Outcome::Taken {
        return Step::Wait;
    }
    if had != Keeping::Reading && owner.kept.get() == Keeping::Reading {
        let read = peer.inbound.as_ref().map_or(0, |inbound| inbound.consumed);
        borrowed::store_kept(peer, Some(read + entry.half_slots() as u64));
    }
    Step::Message
}
