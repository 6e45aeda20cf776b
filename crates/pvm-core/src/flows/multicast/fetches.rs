//! The bodies of announced multicasts that this host fetches.
use super::super::{Chunk, MessageHeader, ProtocolViolation};
use super::parts::Parts;
use super::{Announcement, BodyKey, BodyRequest, DIGEST_BYTES, PART_BYTES_MIN, Stored};
use crate::tid::Tid;
use std::collections::{BTreeMap, VecDeque};

/// A relay that sends fewer bytes in a tick than this, and than a part of the body, is left: so it can delay a body by a
/// limited time only.
const PROGRESS_BYTES_MIN: usize = 16 << 10;
const PROGRESS_PARTS: usize = 1024;

/// A body that this host fetches.
struct Fetch<B> {
    header: MessageHeader,
    digest: [u8; DIGEST_BYTES],
    block: B,
    /// How many bytes have arrived.
    at: usize,
    /// The host that sends the body.
    source: Tid,
    /// Whether another host can have made bytes that have arrived, so that the digest is to be checked.
    is_doubtful: bool,
    /// The parts that have arrived, if the sender's host broadcasts the body.
    heard: Option<Heard>,
    /// How many bytes had arrived at the last tick, or `None` if the host fetches from this source only since then.
    at_tick: Option<usize>,
}

/// What was heard of a broadcast body.
struct Heard {
    parts: Parts,
    /// The last round about which this host has reported.
    round: u32,
}

impl<B> Fetch<B> {
    /// Notes a tick. Returns whether enough bytes have arrived since the last one.
    fn tick(&mut self) -> bool {
        let before = self.at_tick.replace(self.at);
        let least = PROGRESS_BYTES_MIN.max(self.header.bytes / PROGRESS_PARTS);
        before.is_none_or(|before| self.at - before >= least)
    }
}

/// The bodies that this host fetches. `B` is the type of the memory for a body.
pub struct Fetches<B> {
    open: BTreeMap<BodyKey, Fetch<B>>,
    requests: VecDeque<(Tid, BodyKey, BodyRequest)>,
}

impl<B> Default for Fetches<B> {
    fn default() -> Self {
        Fetches { open: BTreeMap::new(), requests: VecDeque::new() }
    }
}

impl<B> Fetches<B> {
    /// Begins to fetch the body of a message that was announced. `has_parent`: whether the parent is another host that
    /// this one knows; if not, the body comes from the sender's host. The announcement of a body that is being fetched is
    /// a violation.
    pub fn begin(
        &mut self,
        header: MessageHeader,
        announcement: &Announcement,
        has_parent: bool,
        block: B,
    ) -> Result<(), ProtocolViolation> {
        let Announcement { key, digest, parent, part_bytes, .. } = *announcement;
        let are_short = part_bytes.is_some_and(|part_bytes| (part_bytes as usize) < PART_BYTES_MIN);
        if self.open.contains_key(&key) || header.bytes == 0 || are_short {
            return Err(ProtocolViolation);
        }
        let heard = part_bytes.map(|bytes| Heard { parts: Parts::new(header.bytes, bytes as usize), round: 0 });
        let source = if has_parent { parent } else { key.origin };
        let request = match heard {
            Some(_) => Some(BodyRequest::Ready),
            // The sender's host sends the body without a request to the hosts whose parent it is.
            None if parent == key.origin => None,
            None => Some(BodyRequest::Fetch { at: 0 }),
        };
        let is_doubtful = source != key.origin || heard.is_some();
        self.open.insert(key, Fetch { header, digest, block, at: 0, source, is_doubtful, heard, at_tick: None });
        self.requests.extend(request.map(|request| (source, key, request)));
        Ok(())
    }

    /// Returns the place for a broadcast part of a body, or `None` if the part is not wanted.
    pub fn place_heard(&self, key: BodyKey, part: u32, bytes: usize) -> Option<Chunk<'_, B>> {
        let fetch = self.open.get(&key)?;
        let parts = &fetch.heard.as_ref()?.parts;
        let range = parts.range(part).filter(|range| range.len() == bytes && !parts.contains(part))?;
        Some(Chunk { block: &fetch.block, at: range.start })
    }

    /// Notes that a broadcast part of a body is in its place. Each receiver of the body could have made the part, so the
    /// digest is to be checked.
    pub fn placed_heard(&mut self, key: BodyKey, part: u32) -> Stored {
        let Some(fetch) = self.open.get_mut(&key) else { return Stored::Unwanted };
        let Some(heard) = &mut fetch.heard else { return Stored::Unwanted };
        heard.parts.insert(part);
        fetch.at = heard.parts.leading_bytes();
        match heard.parts.is_complete() {
            false => Stored::Partial(fetch.at),
            true => Stored::Complete(Some(fetch.digest)),
        }
    }

    /// Reports which of the first `sent` parts of a body are missing at the end of a round.
    pub fn report(&mut self, key: BodyKey, round: u32, sent: u32) {
        let heard = self.open.get_mut(&key).and_then(|fetch| fetch.heard.as_mut());
        let Some(heard) = heard.filter(|heard| round > heard.round) else { return };
        heard.round = round;
        let missing = heard.parts.missing(sent);
        self.requests.push_back((key.origin, key, BodyRequest::Report { round, missing }));
    }

    /// Returns whether this host listens to the broadcast of a body.
    pub fn listens(&self, key: BodyKey) -> bool {
        self.open.get(&key).is_some_and(|fetch| fetch.heard.is_some())
    }

    /// Returns the place for a part of a body, or `None` if the part is not wanted: the body comes from another host
    /// now, or the part is not the next one.
    pub fn place(&self, from: Tid, key: BodyKey, at: u64, bytes: usize) -> Option<Chunk<'_, B>> {
        let is_next = |fetch: &&Fetch<B>| fetch.source == from && fetch.heard.is_none() && fetch.at as u64 == at;
        let fetch = self.open.get(&key).filter(is_next)?;
        (1..=fetch.header.bytes - fetch.at).contains(&bytes).then_some(Chunk { block: &fetch.block, at: fetch.at })
    }

    /// Notes that a part is in its place. Meanwhile the body may have been dropped, or come from another host.
    pub fn placed(&mut self, from: Tid, key: BodyKey, at: usize, bytes: usize) -> Stored {
        let is_next = |fetch: &&mut Fetch<B>| fetch.source == from && fetch.heard.is_none() && fetch.at == at;
        let Some(fetch) = self.open.get_mut(&key).filter(is_next) else { return Stored::Unwanted };
        fetch.at += bytes;
        match fetch.at == fetch.header.bytes {
            false => Stored::Partial(fetch.at),
            true => Stored::Complete(fetch.is_doubtful.then_some(fetch.digest)),
        }
    }

    /// Returns whether another host than the sender's can have made bytes of a body.
    pub fn is_doubtful(&self, key: BodyKey) -> bool {
        self.open.get(&key).is_some_and(|fetch| fetch.is_doubtful)
    }

    /// Returns the header and the memory of a body that is being fetched.
    pub fn get(&self, key: BodyKey) -> Option<(&MessageHeader, &B)> {
        self.open.get(&key).map(|fetch| (&fetch.header, &fetch.block))
    }

    /// Ends the fetch of a complete body whose digest is right, or which comes from the sender's host.
    pub fn finish(&mut self, key: BodyKey) -> Option<(MessageHeader, B)> {
        let Fetch { header, block, .. } = self.open.remove(&key)?;
        self.requests.push_back((key.origin, key, BodyRequest::Received));
        Some((header, block))
    }

    /// Fetches a body again whose digest is wrong, from the sender's host.
    pub fn discard(&mut self, key: BodyKey) {
        if let Some(fetch) = self.open.get_mut(&key) {
            fetch.at = 0;
            Self::turn_to_origin(&mut self.requests, key, fetch);
        }
    }

    /// Reports the receipt of a body that no task of this host wants any more.
    pub fn decline(&mut self, key: BodyKey) {
        self.requests.push_back((key.origin, key, BodyRequest::Received));
    }

    /// Handles the report that a host does not send a body.
    pub fn unavailable(&mut self, from: Tid, key: BodyKey) {
        let is_other = |fetch: &Fetch<B>| from != key.origin || fetch.heard.is_some();
        if let Some(fetch) = self.open.get_mut(&key).filter(|fetch| fetch.source == from && is_other(fetch)) {
            Self::turn_to_origin(&mut self.requests, key, fetch);
        }
    }

    /// Drops the bodies from a host that has gone, and fetches from the senders' hosts what it was to relay.
    pub fn host_gone(&mut self, host: Tid) {
        self.open.retain(|key, _| key.origin != host);
        self.requests.retain(|(to, _, _)| *to != host);
        for (key, fetch) in self.open.iter_mut().filter(|(_, fetch)| fetch.source == host) {
            Self::turn_to_origin(&mut self.requests, *key, fetch);
        }
    }

    /// Fetches the bodies whose arrival is too slow from the senders' hosts instead. The daemon calls this about once a
    /// second.
    pub fn tick(&mut self) {
        for (key, fetch) in &mut self.open {
            if !fetch.tick() && fetch.source != key.origin {
                self.requests.push_back((fetch.source, *key, BodyRequest::Cancel));
                Self::turn_to_origin(&mut self.requests, *key, fetch);
            }
        }
    }

    fn turn_to_origin(requests: &mut VecDeque<(Tid, BodyKey, BodyRequest)>, key: BodyKey, fetch: &mut Fetch<B>) {
        (fetch.source, fetch.at_tick, fetch.heard) = (key.origin, None, None);
        fetch.is_doubtful &= fetch.at > 0;
        requests.push_back((key.origin, key, BodyRequest::Fetch { at: fetch.at as u64 }));
    }

    /// Returns the next request to send, and its host.
    pub fn poll_request(&mut self) -> Option<(Tid, BodyKey, BodyRequest)> {
        self.requests.pop_front()
    }

    /// Returns the number of bodies that are being fetched.
    pub fn count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: Tid = Tid(0x80000);
    const RELAY: Tid = Tid(0xc0000);

    fn fetches(bytes: usize) -> (Fetches<()>, BodyKey) {
        let key = BodyKey { origin: ORIGIN, secret: [1; 16] };
        let header = MessageHeader { src: Tid(0x80001), dst: Tid(0x40001), others: Vec::new(), meta: [0; 5], bytes };
        let mut fetches = Fetches::default();
        let announcement = Announcement { key, digest: [2; 32], parent: RELAY, children: 0, part_bytes: None };
        assert_eq!(fetches.begin(header.clone(), &announcement, true, ()), Ok(()));
        assert_eq!(fetches.begin(header, &announcement, true, ()), Err(ProtocolViolation), "announced twice");
        assert_eq!(fetches.poll_request(), Some((RELAY, key, BodyRequest::Fetch { at: 0 })));
        (fetches, key)
    }

    #[test]
    fn a_relay_that_sends_too_little_is_left() {
        let (mut fetches, key) = fetches(100_000);
        let mut at = 0;
        for bytes in [0, PROGRESS_BYTES_MIN, PROGRESS_BYTES_MIN, 10] {
            if bytes > 0 {
                assert!(fetches.place(RELAY, key, at as u64, bytes).is_some());
                assert_eq!(fetches.placed(RELAY, key, at, bytes), Stored::Partial(at + bytes));
                at += bytes;
            }
            fetches.tick();
        }
        assert_eq!(fetches.poll_request(), Some((RELAY, key, BodyRequest::Cancel)));
        assert_eq!(fetches.poll_request(), Some((ORIGIN, key, BodyRequest::Fetch { at: at as u64 })));
        // The sender's host may be as slow as it likes: nobody else has the body.
        (0..3).for_each(|_| fetches.tick());
        assert_eq!(fetches.poll_request(), None);
        assert!(fetches.place(RELAY, key, at as u64, 10).is_none(), "the relay is not the source any more");
    }

    #[test]
    fn the_digest_is_checked_if_any_byte_came_from_another_host() {
        let (mut fetches, key) = fetches(1000);
        assert_eq!(fetches.placed(RELAY, key, 0, 400), Stored::Partial(400));
        fetches.unavailable(RELAY, key);
        assert_eq!(fetches.poll_request(), Some((ORIGIN, key, BodyRequest::Fetch { at: 400 })));
        assert_eq!(fetches.placed(ORIGIN, key, 400, 600), Stored::Complete(Some([2; 32])));
        fetches.discard(key);
        assert_eq!(fetches.placed(ORIGIN, key, 0, 1000), Stored::Complete(None));
    }

    #[test]
    fn parts_that_do_not_fit_are_not_wanted() {
        let (mut fetches, key) = fetches(1000);
        for (at, bytes) in [(0, 0), (0, 1001), (1, 10), (u64::MAX, 1)] {
            assert!(fetches.place(RELAY, key, at, bytes).is_none(), "{at} {bytes}");
        }
        assert!(fetches.place(ORIGIN, key, 0, 10).is_none(), "not from there");
        assert_eq!(fetches.placed(RELAY, key, 0, 1000), Stored::Complete(Some([2; 32])));
        fetches.discard(key);
        assert_eq!(fetches.poll_request(), Some((ORIGIN, key, BodyRequest::Fetch { at: 0 })));
        assert_eq!(fetches.placed(ORIGIN, key, 0, 1000), Stored::Complete(None));
        assert!(fetches.finish(key).is_some() && fetches.count() == 0);
        assert_eq!(fetches.poll_request(), Some((ORIGIN, key, BodyRequest::Received)));
    }
}
