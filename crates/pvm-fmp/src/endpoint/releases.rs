//! Releases: which blocks of a sender the receiver no longer reads, and how long the receiver's copies took.

use super::{Endpoint, PROMPT_RELEASE_BYTES, WORDS_PER_RELEASE};
use crate::copies::{Order, Trial, WITH_TIME};
use crate::copy_policy::{CopyPolicy, CopyWay};
use crate::queue::{Entry, Kind};
use std::time::Duration;

impl Endpoint {
    /// Frees the blocks that a peer has released.
    pub(super) fn take_releases(&mut self, index: usize, entry: &Entry<'_>) {
        let mut bytes = [0u8; 4 * WORDS_PER_RELEASE];
        let count = entry.copy_to(&mut bytes);
        let mut words = bytes[..count].chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("four")));
        while let Some(word) = words.next() {
            let time = if word & WITH_TIME != 0 { words.next() } else { None };
            let peer = self.peers[index].as_mut().expect("connected");
            let trial = peer.outstanding.remove(word & !WITH_TIME);
            if let (Some(trial), Some(time)) = (trial, time) {
                self.record(index, &trial, Duration::from_nanos(time.into()));
            }
        }
    }

    fn record(&mut self, index: usize, trial: &Trial, time: Duration) {
        match trial.order {
            Order::Following => trial.record(&mut self.heap.borrow_mut().copy_policy, time),
            Order::Overlapping => trial.record(self.copy_policy_of(index), time),
        }
    }

    /// Returns the copy policy for one-call messages to a peer.
    pub(super) fn copy_policy_of(&mut self, index: usize) -> &mut CopyPolicy {
        self.peers[index].as_mut().expect("connected").copy_policy.get_or_insert_default()
    }

    /// Returns the ways of copying that are the best so far for one-call messages of these lengths to the peer to which
    /// most copies were timed; `None` where nothing is known.
    pub fn one_call_ways(&self, lengths: &[usize]) -> Vec<Option<CopyWay>> {
        let policies = self.peers.iter().flatten().filter_map(|peer| peer.copy_policy.as_ref());
        let most_timed = policies.max_by_key(|policy| policy.recorded());
        lengths.iter().map(|bytes| most_timed?.best(*bytes)).collect()
    }

    /// Returns the same for messages that are packed, whichever task receives them.
    pub fn packed_ways(&self, lengths: &[usize]) -> Vec<Option<CopyWay>> {
        lengths.iter().map(|bytes| self.heap.borrow().copy_policy.best(*bytes)).collect()
    }

    /// Tells senders which of their blocks we no longer read.
    pub(super) fn flush_releases(&mut self, all: bool) {
        self.dirty.set(false);
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else { continue };
            let count = peer.owner.released.borrow().len();
            if count == 0 {
                continue;
            }
            if !all && count < WORDS_PER_RELEASE && peer.owner.released_bytes.get() < PROMPT_RELEASE_BYTES {
                self.dirty.set(true);
                continue;
            }
            let words = std::mem::take(&mut *peer.owner.released.borrow_mut());
            peer.owner.released_bytes.set(0);
            let mut rest = &words[..];
            while !rest.is_empty() {
                let (group, tail) = rest.split_at(entry_words(rest));
                rest = tail;
                let mut body = [0u8; 4 * WORDS_PER_RELEASE];
                for (place, word) in body.chunks_exact_mut(4).zip(group) {
                    place.copy_from_slice(&word.to_ne_bytes());
                }
                let pushed = peer.push(self.tid, &self.heap, Kind::Release, &[0; 6], &body[..4 * group.len()]);
                if pushed.is_err() {
                    // There is no memory for the release: the words wait for the next call.
                    peer.owner.released.borrow_mut().extend_from_slice(group);
                    self.dirty.set(true);
                }
            }
        }
    }
}

/// Returns how many of the words go into the next entry: as many as fit, without a token whose time does not fit.
fn entry_words(words: &[u32]) -> usize {
    let mut count = 0;
    while let Some(word) = words.get(count) {
        let next = count + if word & WITH_TIME != 0 { 2 } else { 1 };
        if next > WORDS_PER_RELEASE {
            break;
        }
        count = next;
    }
    count.min(words.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_and_its_time_go_into_one_entry() {
        let timed = |token: u32| [token | WITH_TIME, 77];
        assert_eq!(entry_words(&[1, 2, 3]), 3);
        assert_eq!(entry_words(&[0; 20]), WORDS_PER_RELEASE);
        let odd = [&[5][..], &timed(1), &timed(2), &timed(3), &timed(4)].concat();
        assert_eq!(entry_words(&odd), 7);
        assert_eq!(entry_words(&odd[7..]), 2);
        assert_eq!(entry_words(&[]), 0);
    }
}
