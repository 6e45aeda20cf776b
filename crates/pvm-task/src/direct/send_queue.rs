//! What was sent on a direct link, kept until the other side's library has acknowledged it.
//!
//! A connection delivers in order, so a message needs no number of its own: both sides count. What the socket has
//! not taken yet waits here too, behind what it has taken.
use crate::direct::Body;
use pvm_core::codes::Code;
use pvm_fmp::{Block, Meta};
use std::collections::VecDeque;

/// Bytes of a body in the heap that are sent at a time.
const STEP_BYTES: usize = 64 << 10;
/// Whenever so much more is kept, it is seen whether the system has memory to spare, in bytes.
const LARGE_BYTES: usize = 1 << 20;

/// Copies from so many bytes on are made where others have been.
const SPARE_BYTES_MIN: usize = 4 << 10;
/// Bytes of memory held for that.
const SPARES_BYTES_MAX: usize = 8 << 20;
/// How many of them are looked at.
const SPARES_LOOKED_AT: usize = 8;

impl<'b> Body<'b> {
    /// Bytes from that offset on, some of them at least where there are any. Those of blocks are copied to `step`.
    pub fn from<'s>(&self, mut offset: usize, step: &'s mut Vec<u8>) -> &'s [u8]
    where
        'b: 's,
    {
        let blocks = match self {
            Body::Bytes(bytes) => return &bytes[offset..],
            Body::Blocks(blocks) => blocks,
        };
        for (block, used) in *blocks {
            if offset < *used {
                step.resize(STEP_BYTES.min(used - offset), 0);
                block.read(offset, step);
                return step;
            }
            offset -= used;
        }
        &[]
    }
}

/// Copies that have been made and are not needed any more; their memory is for the next ones, warm as it is.
#[derive(Default)]
pub(crate) struct BufferPool {
    copies: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    /// Memory for so many bytes.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let last = self.copies.len().saturating_sub(SPARES_LOOKED_AT);
        match self.copies[last..].iter().position(|copy| (bytes..=2 * bytes).contains(&copy.capacity())) {
            Some(place) if bytes >= SPARE_BYTES_MIN => {
                let copy = self.copies.swap_remove(last + place);
                self.bytes -= copy.capacity();
                copy
            }
            _ => Vec::new(),
        }
    }

    fn put_back(&mut self, body: QueuedBody) {
        let QueuedBody::Bytes(mut copy) = body else { return };
        if copy.capacity() < SPARE_BYTES_MIN || copy.capacity() > SPARES_BYTES_MAX {
            return;
        }
        if self.bytes + copy.capacity() > SPARES_BYTES_MAX {
            *self = BufferPool::default();
        }
        copy.clear();
        self.bytes += copy.capacity();
        self.copies.push(copy);
    }
}

/// A body as it is kept: blocks by reference, other bytes as a copy.
pub(crate) enum QueuedBody {
    Bytes(Vec<u8>),
    Blocks(Vec<(Block, usize)>),
}

impl QueuedBody {
    /// Takes the memory for a copy, which [`QueuedBody::fill`] makes. So what has been begun can be kept.
    pub fn reserve(body: Body<'_>, pool: &mut BufferPool) -> Result<QueuedBody, Code> {
        let bytes = match body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Blocks(blocks) => return Ok(QueuedBody::Blocks(blocks.to_vec())),
        };
        let mut copy = pool.take(bytes);
        copy.try_reserve_exact(bytes).map_err(|_| Code::NoMem)?;
        Ok(QueuedBody::Bytes(copy))
    }

    /// Copies what is the caller's, once.
    pub fn fill(&mut self, body: Body<'_>) {
        if let (QueuedBody::Bytes(copy), Body::Bytes(bytes)) = (self, body) {
            if copy.is_empty() {
                copy.extend_from_slice(bytes);
            }
        }
    }

    pub fn body(&self) -> Body<'_> {
        match self {
            QueuedBody::Bytes(bytes) => Body::Bytes(bytes),
            QueuedBody::Blocks(blocks) => Body::Blocks(blocks),
        }
    }
}

/// A message that is kept.
pub(crate) struct QueuedMessage {
    pub meta: Meta,
    pub body: QueuedBody,
    /// Bytes of the body, also before it is copied.
    pub length: usize,
}

/// What is kept of one link, oldest first.
#[derive(Default)]
pub(crate) struct SendQueue {
    messages: VecDeque<QueuedMessage>,
    /// So many of them the link has taken.
    written: usize,
    /// Messages that have been acknowledged, from the link's beginning on. Wraps.
    acknowledged: u32,
    bytes: usize,
    pub pool: BufferPool,
}

impl SendQueue {
    /// One more message, behind all others. `written`: the link has taken it, and all before it.
    pub fn push(&mut self, message: QueuedMessage, written: bool) {
        assert!(!written || self.written == self.messages.len(), "a message has been written before its turn");
        self.bytes += message.length;
        self.written += usize::from(written);
        self.messages.push_back(message);
    }

    /// The next message that the link has to take.
    pub fn next_unwritten(&mut self) -> Option<&mut QueuedMessage> {
        self.messages.get_mut(self.written)
    }

    /// The link has taken that one.
    pub fn mark_written(&mut self) {
        self.written += 1;
        assert!(self.written <= self.messages.len());
    }

    pub fn all_written(&self) -> bool {
        self.written == self.messages.len()
    }

    /// The other side has taken in so many messages altogether. Says whether it can have.
    #[must_use]
    pub fn acknowledge(&mut self, count: u32) -> bool {
        let more = count.wrapping_sub(self.acknowledged) as usize;
        if more > self.written {
            return false;
        }
        for message in self.messages.drain(..more) {
            self.bytes -= message.length;
            self.pool.put_back(message.body);
        }
        self.written -= more;
        self.acknowledged = count;
        true
    }

    /// How many messages have been acknowledged.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged
    }

    /// How many messages have been sent, acknowledged or not.
    pub fn sent_count(&self) -> u32 {
        self.acknowledged.wrapping_add(self.messages.len() as u32)
    }

    /// The last one.
    pub fn last(&mut self) -> Option<&mut QueuedMessage> {
        self.messages.back_mut()
    }

    /// The oldest one, to be sent another way.
    pub fn first(&self) -> Option<&QueuedMessage> {
        self.messages.front()
    }

    /// The oldest one has been sent another way.
    pub fn pop_front(&mut self) {
        if let Some(message) = self.messages.pop_front() {
            self.bytes -= message.length;
            self.written = self.written.saturating_sub(1);
        }
    }

    /// Whether there is memory for so many bytes more. The system is asked once a while.
    pub fn has_room(&self, length: usize) -> bool {
        self.bytes / LARGE_BYTES == (self.bytes + length) / LARGE_BYTES || pvm_fmp::can_have(length as u64)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages are kept.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
