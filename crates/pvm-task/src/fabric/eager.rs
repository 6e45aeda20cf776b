//! Eager bodies on their way to the provider; and how long bodies take, so that the peer learns which of its bodies should be
//! eager.
use super::pieces::{Source, replace_lent};
use super::sealed::{FRAME_SEAL_BYTES, Seals};
use pvm_core::fabric::{Ready, Transfer, Transfers, Wishes};
use pvm_net::fabric::{Endpoint, Peer, SendError, Start};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A body that has begun to arrive.
struct Begun {
    message: u64,
    bytes: usize,
    transfer: Transfer,
    at: Instant,
}

/// The bodies of one link.
pub(super) struct Bodies {
    /// Eager bodies that are not handed over to their ends.
    pub eager: VecDeque<Source>,
    transfers: Transfers,
    begun: VecDeque<Begun>,
    /// When the last body was complete.
    last_end: Option<Instant>,
}

impl Bodies {
    /// `eager_bytes`: before anything was measured, bodies that are no longer than this are eager.
    pub fn new(eager_bytes: usize) -> Bodies {
        Bodies {
            eager: VecDeque::new(),
            transfers: Transfers::new(eager_bytes),
            begun: VecDeque::new(),
            last_end: None,
        }
    }

    /// Returns how the peer is to send its bodies.
    pub fn wishes(&self) -> Wishes {
        self.transfers.wishes()
    }

    /// Replaces the memory that is lent by a copy of the body.
    pub fn keep(&mut self, copy: &Arc<Vec<u8>>) {
        replace_lent(&mut self.eager, copy);
    }

    /// Notes that a body begins to arrive.
    pub fn begin(&mut self, message: u64, bytes: u64, transfer: Transfer) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.begun.push_back(Begun { message, bytes, transfer, at: Instant::now() });
    }

    /// Notes that a message is complete. Returns whether its body was measured.
    pub fn end(&mut self, message: u64) -> bool {
        if self.begun.front().is_none_or(|body| body.message != message) {
            return false;
        }
        let Some(body) = self.begun.pop_front() else { return false };
        let now = Instant::now();
        // While several are under way, each counts from the end of the one before it, so that all together count once.
        let since = self.last_end.map_or(body.at, |end| end.max(body.at));
        let ns = now.saturating_duration_since(since).as_nanos();
        self.transfers.record(body.bytes, body.transfer, u64::try_from(ns).unwrap_or(u64::MAX));
        self.last_end = Some(now);
        true
    }
}

/// Sends a frame. `source`: where its part of an eager body is, if it has one.
pub(super) fn send_frame(
    endpoint: &mut Endpoint,
    peer: Peer,
    seals: Option<&Seals>,
    ready: &Ready<'_>,
    source: Option<&Source>,
) -> Result<(), SendError> {
    let (head, content) = (ready.head(), ready.content);
    let mut send = |bytes: &[u8], rest: Option<(Start, usize)>| {
        let Some(seals) = seals else {
            return match rest {
                Some((start, bytes)) => endpoint.send_from(peer, &[head, content], start, bytes),
                None => endpoint.send(peer, &[head, content, bytes]),
            };
        };
        let rest_bytes = rest.map_or(bytes.len(), |(_, bytes)| bytes);
        let frame_bytes = head.len() + content.len() + rest_bytes + FRAME_SEAL_BYTES;
        endpoint.send_made(peer, frame_bytes, rest, |frame, rest| {
            seals.seal_frame(ready.serial, [head, content, if rest.is_empty() { bytes } else { rest }], frame);
        })
    };
    match source.zip(ready.body) {
        Some((source, part)) => {
            source.with_bytes(part.at, part.bytes, |bytes, start| send(bytes, start.map(|start| (start, part.bytes))))
        }
        None => send(&[], None),
    }
}
