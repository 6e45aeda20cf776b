//! The send queue of a link: messages that the peer's library has not acknowledged, and the memory of their bodies.
//! Messages that the link has not taken yet are in the queue too, after those that it has taken.
use crate::direct::Body;
use pvm_core::channel::Unacknowledged;
use pvm_core::codes::Code;
use pvm_fmp::{Block, Lent, Meta, count_copy};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Whenever the queue grows by this size, in bytes, the task checks whether the system has memory to spare.
const LARGE_BYTES: usize = 1 << 20;

/// Copies of at least this size, in bytes, reuse the memory of earlier copies.
const SPARE_BYTES_MIN: usize = 4 << 10;
/// The most memory that a pool keeps for reuse, in bytes, unless it was made for more.
const SPARES_BYTES_MAX: usize = 8 << 20;
/// How many pooled buffers are considered for reuse.
const SPARES_TRIED_MAX: usize = 8;

/// The most pieces of a body that lies in one piece: those of the frames that are written at once.
const SIMPLE_PIECES_MAX: usize = 8;

impl<'a> Body<'a> {
    /// Calls `write` with the bytes to write, where they lie: for each piece its lead, and the bytes of the body in its
    /// range.
    pub fn with_pieces<T>(
        &self,
        pieces: impl Iterator<Item = (&'a [u8], Range<usize>)>,
        write: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        let blocks = match self {
            Body::Bytes(bytes) => {
                let (mut parts, mut count) = ([&[][..]; SIMPLE_PIECES_MAX], 0);
                for (lead, range) in pieces.take(SIMPLE_PIECES_MAX / 2) {
                    [parts[count], parts[count + 1]] = [lead, &bytes[range]];
                    count += 2;
                }
                return write(&parts[..count]);
            }
            Body::Blocks(blocks) => blocks,
        };
        let pieces: Vec<(&[u8], Range<usize>)> = pieces.collect();
        let mut lent: Vec<Vec<Lent<'_>>> = Vec::with_capacity(pieces.len());
        for (_, range) in &pieces {
            lent.push(lend(blocks, range.clone()));
        }
        let mut parts: Vec<&[u8]> = Vec::new();
        for ((lead, _), lent) in pieces.iter().zip(&lent) {
            parts.push(lead);
            parts.extend(lent.iter().map(|part| &**part));
        }
        write(&parts)
    }
}

/// Returns the parts of a body in blocks that lie in a range.
fn lend(blocks: &[(Block, usize)], range: Range<usize>) -> Vec<Lent<'_>> {
    let (mut lent, mut first) = (Vec::new(), 0);
    for (block, used) in blocks {
        let (from, to) = (range.start.max(first), range.end.min(first + used));
        if from < to {
            lent.push(block.lend(from - first..to - first));
        }
        first += used;
    }
    lent
}

/// Memory of acknowledged copies, kept for later copies: it is mapped already, and may be in the caches.
pub(crate) struct BufferPool {
    copies: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
}

impl Default for BufferPool {
    fn default() -> BufferPool {
        BufferPool::new(SPARES_BYTES_MAX)
    }
}

impl BufferPool {
    /// Returns an empty pool that keeps at most this number of bytes.
    pub fn new(bytes_max: usize) -> BufferPool {
        BufferPool { copies: Vec::new(), bytes: 0, bytes_max }
    }

    /// Frees the memory that is kept.
    pub fn clear(&mut self) {
        *self = BufferPool::new(self.bytes_max);
    }

    /// Returns an empty buffer: if the pool has a suitable one, a buffer with a capacity of at least `bytes`; otherwise
    /// a new one without memory.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let last = self.copies.len().saturating_sub(SPARES_TRIED_MAX);
        match self.copies[last..].iter().position(|copy| (bytes..=2 * bytes).contains(&copy.capacity())) {
            Some(place) if bytes >= SPARE_BYTES_MIN => {
                let copy = self.copies.swap_remove(last + place);
                self.bytes -= copy.capacity();
                copy
            }
            _ => Vec::new(),
        }
    }

    /// Keeps the memory of a copy.
    fn put_back(&mut self, body: QueuedBody) {
        let mut copy = match body {
            QueuedBody::Bytes(copy) => copy,
            QueuedBody::Shared(copy) => Arc::try_unwrap(copy).unwrap_or_default(),
            QueuedBody::Blocks(_) => return,
        };
        if copy.capacity() < SPARE_BYTES_MIN || copy.capacity() > self.bytes_max {
            return;
        }
        if self.bytes + copy.capacity() > self.bytes_max {
            self.clear();
        }
        copy.clear();
        self.bytes += copy.capacity();
        self.copies.push(copy);
    }
}

/// A queued body: blocks by reference, other bytes as a copy.
pub(crate) enum QueuedBody {
    Bytes(Vec<u8>),
    /// A copy that a fabric sends from, too.
    Shared(Arc<Vec<u8>>),
    Blocks(Vec<(Block, usize)>),
}

impl QueuedBody {
    /// Reserves memory for a copy, which [`QueuedBody::fill`] makes. Since the memory is reserved, a partly written
    /// message can always be queued.
    pub fn reserve(body: Body<'_>, pool: &mut BufferPool) -> Result<QueuedBody, Code> {
        let bytes = match body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Blocks(blocks) => return Ok(QueuedBody::Blocks(blocks.to_vec())),
        };
        let mut copy = pool.take(bytes);
        copy.try_reserve_exact(bytes).map_err(|_| Code::NoMem)?;
        Ok(QueuedBody::Bytes(copy))
    }

    /// Copies a body, to be queued and sent from the same memory.
    pub fn shared(body: Body<'_>, pool: &mut BufferPool) -> Result<Arc<Vec<u8>>, Code> {
        let bytes = body.len();
        let mut copy = pool.take(bytes);
        copy.try_reserve_exact(bytes).map_err(|_| Code::NoMem)?;
        count_copy(bytes);
        body.with_pieces([(&[][..], 0..bytes)].into_iter(), |parts| {
            parts.iter().for_each(|part| copy.extend_from_slice(part));
        });
        Ok(Arc::new(copy))
    }

    /// Copies the caller's bytes, if they have not been copied yet.
    pub fn fill(&mut self, body: Body<'_>) {
        if let (QueuedBody::Bytes(copy), Body::Bytes(bytes)) = (self, body) {
            if copy.is_empty() {
                count_copy(bytes.len());
                copy.extend_from_slice(bytes);
            }
        }
    }

    /// Lets a fabric send from the copy, too. Returns `None` if there is none.
    pub fn share(&mut self) -> Option<Arc<Vec<u8>>> {
        if let QueuedBody::Bytes(copy) = self {
            *self = QueuedBody::Shared(Arc::new(std::mem::take(copy)));
        }
        if let QueuedBody::Shared(copy) = self { Some(copy.clone()) } else { None }
    }

    pub fn body(&self) -> Body<'_> {
        match self {
            QueuedBody::Bytes(bytes) => Body::Bytes(bytes),
            QueuedBody::Shared(bytes) => Body::Bytes(bytes),
            QueuedBody::Blocks(blocks) => Body::Blocks(blocks),
        }
    }
}

/// A queued message.
pub(crate) struct QueuedMessage {
    pub meta: Meta,
    pub body: QueuedBody,
    /// The length of the body in bytes, even while the body is not copied yet.
    pub length: usize,
}

/// The messages of one link that have not been acknowledged, oldest first.
#[derive(Default)]
pub(crate) struct SendQueue {
    messages: Unacknowledged<QueuedMessage>,
    bytes: usize,
    pub pool: BufferPool,
}

impl Deref for SendQueue {
    type Target = Unacknowledged<QueuedMessage>;
    fn deref(&self) -> &Unacknowledged<QueuedMessage> {
        &self.messages
    }
}

impl SendQueue {
    /// Returns an empty queue with this memory for copies.
    pub fn with_pool(pool: BufferPool) -> SendQueue {
        SendQueue { pool, ..SendQueue::default() }
    }

    /// Adds a message. `written`: whether the link has taken this message and all before it.
    pub fn push(&mut self, message: QueuedMessage, written: bool) {
        self.bytes += message.length;
        self.messages.push(message, written);
    }

    /// Returns the next message to write.
    pub fn next_unwritten(&mut self) -> Option<&mut QueuedMessage> {
        self.messages.next_unwritten()
    }

    /// Notes that the link has taken the next message.
    pub fn mark_written(&mut self) {
        self.messages.mark_written();
    }

    /// Returns how many messages have been sent or queued.
    pub fn sent_count(&self) -> u32 {
        self.messages.sent_count()
    }

    /// Drops the messages that this count acknowledges. Returns `false` if the count cannot be true.
    #[must_use]
    pub fn acknowledge(&mut self, count: u32) -> bool {
        let Some(messages) = self.messages.acknowledge(count) else { return false };
        for message in messages {
            self.bytes -= message.length;
            self.pool.put_back(message.body);
        }
        true
    }

    /// Returns the newest message.
    pub fn last(&mut self) -> Option<&mut QueuedMessage> {
        self.messages.last()
    }

    /// Drops the oldest message, which has been sent by the default route.
    pub fn pop_front(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.length;
        }
    }

    /// Returns whether there is memory for `length` more bytes. Asks the system only from time to time.
    pub fn has_room(&self, length: usize) -> bool {
        self.bytes / LARGE_BYTES == (self.bytes + length) / LARGE_BYTES || pvm_fmp::can_have(length as u64)
    }

    /// Returns the length of all bodies in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_fmp::Endpoint;

    #[test]
    fn a_shared_copy_is_used_again_when_nobody_else_has_it() {
        let body = vec![7; SPARE_BYTES_MIN];
        for has_other in [false, true] {
            let mut queue = SendQueue::default();
            let copy = QueuedBody::shared(Body::Bytes(&body), &mut queue.pool).unwrap();
            let (place, other) = (copy.as_ptr(), has_other.then(|| copy.clone()));
            queue.push(
                QueuedMessage { meta: Meta::default(), body: QueuedBody::Shared(copy), length: body.len() },
                true,
            );
            assert!(queue.acknowledge(1));
            let next = QueuedBody::shared(Body::Bytes(&body), &mut queue.pool).unwrap();
            assert_eq!(next.as_ptr() == place, !has_other);
            assert!(other.is_none_or(|other| *other == body));
        }
    }

    #[test]
    fn a_pool_that_was_full_keeps_its_limit() {
        let mut pool = BufferPool::new(3 * SPARES_BYTES_MAX);
        for _ in 0..5 {
            pool.put_back(QueuedBody::Bytes(Vec::with_capacity(SPARES_BYTES_MAX)));
        }
        // The fourth one found it full.
        assert_eq!((pool.bytes, pool.copies.len()), (2 * SPARES_BYTES_MAX, 2));
        pool.put_back(QueuedBody::Bytes(Vec::with_capacity(SPARES_BYTES_MAX)));
        assert_eq!((pool.bytes, pool.bytes_max), (3 * SPARES_BYTES_MAX, 3 * SPARES_BYTES_MAX));
    }

    #[test]
    fn a_copy_is_shared_with_a_fabric_as_it_is() {
        let body = vec![7; SPARE_BYTES_MIN];
        let mut queue = SendQueue::default();
        let mut copy = QueuedBody::reserve(Body::Bytes(&body), &mut queue.pool).unwrap();
        copy.fill(Body::Bytes(&body));
        let QueuedBody::Bytes(bytes) = &copy else { panic!("it is a copy") };
        let place = bytes.as_ptr();
        let shared = [copy.share().unwrap(), copy.share().unwrap()];
        assert!(shared.iter().all(|bytes| **bytes == body && bytes.as_ptr() == place));
        let mut heap = Endpoint::new().unwrap();
        assert!(QueuedBody::Blocks(vec![(heap.allocate(100).unwrap(), 100)]).share().is_none());
    }

    #[test]
    fn a_body_is_written_from_where_it_lies() {
        let mut heap = Endpoint::new().unwrap();
        let blocks = [&b"abc"[..], b"defgh", b"i"].map(|bytes| {
            let block = heap.allocate(100).unwrap();
            block.write(0, bytes);
            (block, bytes.len())
        });
        for (from, to) in (0..=9).flat_map(|from| (from..=9).map(move |to| (from, to))) {
            let pieces = || [(&b"head"[..], from..to), (&b"next"[..], to..9)].into_iter();
            let expected = [&b"head"[..], &b"abcdefghi"[from..to], b"next", &b"abcdefghi"[to..9]].concat();
            for body in [Body::Bytes(b"abcdefghi"), Body::Blocks(&blocks)] {
                assert_eq!(body.with_pieces(pieces(), |parts| parts.concat()), expected);
            }
        }
        Body::Blocks(&blocks).with_pieces([(&b""[..], 5..9)].into_iter(), |parts| {
            assert_eq!(parts[1].as_ptr(), blocks[1].0.lend(2..5).as_ptr());
        });
    }
}
