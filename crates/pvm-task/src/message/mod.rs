//! One message: its header words, its body, and how far it has been unpacked.
mod convert;
pub(crate) mod queue;

use crate::types::{Encoding, Kind, Source};
pub(crate) use convert::items_converted;
use pvm_core::codes::{Code, ENC_IN_PLACE, ENC_TRACE, ENC_XDR, native_dsig};
use pvm_fmp::{Block, Endpoint, INLINE_BYTES_MAX, Meta, PackedCell, Remote, count_copy};
use queue::Links;

/// The longest body, in bytes: lengths are C `int`s.
pub(crate) const BODY_BYTES_MAX: usize = i32::MAX as usize;
/// Each further block of a growing body is twice as long as the one before, up to this size in bytes.
const FRAGMENT_GROWTH_BYTES_MAX: usize = 256 << 20;
/// Items that are strided or converted are copied in pieces of this size, in bytes: a multiple of every item's size.
pub(crate) const GATHER_BYTES: usize = 1024;
/// The data signature of what this library packs.
pub(crate) const OWN_DSIG: i32 = native_dsig();

/// The state of a slot of the message table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// The slot is free.
    Free,
    /// The slot holds a buffer of the user.
    Buffer,
    /// The slot holds a message that has arrived and has not been received.
    Queued,
}

/// The body of a message, if it does not fit in [`Message::small`].
pub(crate) enum Large {
    /// The body is in `small`.
    None,
    /// The body is in private memory.
    Bytes(Vec<u8>),
    /// The body is in blocks of this task's shared heap; each block with its used length.
    Blocks(Vec<(Block, usize)>),
    /// The body is in a cell of memory that this task shares with the task that will probably get the message.
    Cell(PackedCell),
    /// The body is in the sender's heap.
    Remote(Remote),
    /// The body is in the user's memory, which is read when the message is sent.
    Pieces(Vec<Box<dyn Source>>),
}

/// A message.
pub(crate) struct Message {
    pub ctx: i32,
    /// Lies next to `dst`, so that one store clears both fields for the next message.
    pub tag: i32,
    pub dst: i32,
    pub wid: i32,
    pub enc: i32,
    /// The data signature of the host that packed the message. It also determines the byte order of `ENC_XDR` bodies.
    pub format: i32,
    pub src: i32,
    pub state: SlotState,
    pub links: Links,
    /// The number of the message among all that were ever queued.
    pub number: u64,
    /// How many bytes of the body have been unpacked.
    pub position: usize,
    /// A short body. A free slot keeps this memory, so that the next message need not allocate any.
    pub small: Vec<u8>,
    pub large: Large,
}

impl Message {
    /// Returns the contents of a free slot.
    pub fn vacant() -> Message {
        Message {
            ctx: 0,
            tag: 0,
            wid: 0,
            enc: 0,
            format: OWN_DSIG,
            src: 0,
            dst: 0,
            state: SlotState::Free,
            links: Links::default(),
            number: 0,
            position: 0,
            small: Vec::new(),
            large: Large::None,
        }
    }

    /// Returns the length of the body in bytes; 0 for in-place bodies, as in PVM 3.4.
    pub fn len(&self) -> usize {
        match &self.large {
            Large::None => self.small.len(),
            Large::Bytes(bytes) => bytes.len(),
            Large::Blocks(blocks) => blocks.iter().map(|(_, used)| used).sum(),
            Large::Cell(cell) => cell.len(),
            Large::Remote(remote) => remote.len(),
            Large::Pieces(_) => 0,
        }
    }

    /// Returns how the items are written.
    pub fn encoding(&self) -> Encoding {
        match self.enc {
            ENC_XDR => Encoding::Default,
            OWN_DSIG => Encoding::Raw,
            ENC_IN_PLACE => Encoding::InPlace,
            ENC_TRACE => Encoding::Trace,
            _ => Encoding::Foreign,
        }
    }

    /// Returns whether items of this kind can be unpacked. Raw data of another format can be unpacked only as bytes.
    pub fn readable(&self, kind: Kind) -> bool {
        self.encoding() != Encoding::Foreign || kind == Kind::Byte
    }

    /// Returns whether the items are raw items of another format, as a one-call send on another host packs them.
    pub fn is_foreign_raw(&self) -> bool {
        self.encoding() == Encoding::Foreign && self.format != OWN_DSIG
    }

    /// Returns the number of bytes that have not been unpacked.
    pub fn remaining(&self) -> usize {
        self.len().saturating_sub(self.position)
    }

    /// Fills `data` with the bytes of the body from `offset` on. The body must have enough of them.
    pub fn copy_out(&self, offset: usize, data: &mut [u8]) {
        match &self.large {
            Large::None => data.copy_from_slice(&self.small[offset..offset + data.len()]),
            Large::Bytes(bytes) => {
                count_copy(data.len());
                data.copy_from_slice(&bytes[offset..offset + data.len()]);
            }
            Large::Blocks(blocks) => copy_out_of_blocks(blocks, offset, data),
            Large::Cell(cell) => cell.read(offset, data),
            Large::Remote(remote) => remote.read(offset, data),
            Large::Pieces(_) => debug_assert!(data.is_empty(), "pieces count as empty"),
        }
    }

    /// Unpacks the next `data.len()` bytes. The message must have at least this many left.
    pub fn take(&mut self, data: &mut [u8]) {
        self.copy_out(self.position, data);
        self.position += data.len();
    }

    /// Returns the whole body in private memory. In-place pieces are read now.
    pub fn body(&self) -> Result<Vec<u8>, Code> {
        if let Large::Pieces(pieces) = &self.large {
            return gather(pieces);
        }
        let mut bytes = zeroes(self.len())?;
        self.copy_out(0, &mut bytes);
        Ok(bytes)
    }

    /// Checks the length of an in-place body. Other bodies are checked when they are packed.
    pub fn check_length(&self) -> Result<(), Code> {
        let Large::Pieces(pieces) = &self.large else { return Ok(()) };
        let bytes: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
        if bytes > BODY_BYTES_MAX { Err(Code::NoMem) } else { Ok(()) }
    }

    /// Returns the header words of the message.
    #[inline]
    pub fn meta(&self) -> Meta {
        self.meta_with(self.ctx, self.tag)
    }

    #[inline(always)]
    pub fn meta_with(&self, ctx: i32, tag: i32) -> Meta {
        let enc = if self.enc == ENC_IN_PLACE { OWN_DSIG } else { self.enc };
        [ctx, tag, self.wid, enc, self.format, 0].map(|word| word as u32)
    }

    /// Adds bytes at the end.
    #[inline]
    pub fn append(&mut self, heap: Option<&mut Endpoint>, data: &[u8]) -> Result<(), Code> {
        match &mut self.large {
            Large::None if self.small.len() + data.len() <= INLINE_BYTES_MAX => {
                self.small.extend_from_slice(data);
                Ok(())
            }
            Large::Blocks(blocks) if has_room(blocks, data.len()) => {
                fill(blocks, data);
                Ok(())
            }
            Large::Cell(cell) if cell.has_room(data.len()) => {
                cell.append(data);
                Ok(())
            }
            _ => self.append_large(heap, data),
        }
    }

    #[cold]
    #[inline(never)]
    fn append_large(&mut self, mut heap: Option<&mut Endpoint>, data: &[u8]) -> Result<(), Code> {
        if self.len() + data.len() > BODY_BYTES_MAX {
            return Err(Code::NoMem);
        }
        if let (Large::Cell(_), Some(heap)) = (&self.large, heap.as_deref_mut()) {
            self.share(heap)?;
        }
        match (&mut self.large, heap) {
            (Large::Blocks(blocks), Some(heap)) => return append_to_blocks(blocks, heap, data),
            (Large::Bytes(bytes), _) => return append_to_bytes(bytes, data),
            (Large::Pieces(_), _) => return Err(Code::NotImpl),
            (Large::None, Some(heap)) => self.large = first_part(heap, &self.small, data)?,
            (Large::None, None) | (Large::Remote(_) | Large::Cell(_), _) | (Large::Blocks(_), None) => {
                let mut bytes = self.body()?;
                append_to_bytes(&mut bytes, data)?;
                self.large = Large::Bytes(bytes);
            }
        }
        self.small.clear();
        Ok(())
    }

    /// Moves a long body into the heap of this task, so that it can be sent any number of times. In-place pieces
    /// stay in place: they are read anew at each send.
    pub fn share(&mut self, heap: &mut Endpoint) -> Result<(), Code> {
        let block = match &self.large {
            Large::None | Large::Blocks(_) | Large::Pieces(_) => return Ok(()),
            Large::Bytes(bytes) => {
                let block = allocate(heap, bytes.len())?;
                block.write(0, bytes);
                (block, bytes.len())
            }
            Large::Cell(cell) => {
                cell.note_wrong_guess();
                copy_to_block(cell.len(), &|offset, data| cell.read(offset, data), heap)?
            }
            Large::Remote(remote) => copy_to_block(remote.len(), &|offset, data| remote.read(offset, data), heap)?,
        };
        self.large = Large::Blocks(vec![block]);
        Ok(())
    }

    /// Moves the body out of any shared memory into private memory.
    pub fn detach(&mut self) {
        if matches!(self.large, Large::Blocks(_) | Large::Cell(_) | Large::Remote(_)) {
            self.large = Large::Bytes(self.body().unwrap_or_default());
        }
    }

    /// Sets the whole body.
    pub fn set_body(&mut self, bytes: Vec<u8>) {
        if bytes.len() <= INLINE_BYTES_MAX {
            self.small.clear();
            self.small.extend_from_slice(&bytes);
            self.large = Large::None;
        } else {
            self.large = Large::Bytes(bytes);
        }
    }
}

/// Returns `bytes` bytes of zeroed memory, or `NoMem`.
pub(crate) fn zeroes(bytes: usize) -> Result<Vec<u8>, Code> {
    let mut data = Vec::new();
    data.try_reserve_exact(bytes).map_err(|_| Code::NoMem)?;
    data.resize(bytes, 0);
    Ok(data)
}

fn allocate(heap: &mut Endpoint, bytes: usize) -> Result<Block, Code> {
    heap.allocate(bytes).map_err(|_| Code::NoMem)
}

/// Returns a long body that begins with these two parts.
fn first_part(heap: &mut Endpoint, first: &[u8], second: &[u8]) -> Result<Large, Code> {
    let bytes = first.len() + second.len();
    if let Some(mut cell) = heap.allocate_cell(bytes) {
        cell.append(first);
        cell.append(second);
        return Ok(Large::Cell(cell));
    }
    let mut blocks = vec![(allocate(heap, bytes)?, 0)];
    fill(&mut blocks, first);
    fill(&mut blocks, second);
    Ok(Large::Blocks(blocks))
}

fn append_to_bytes(bytes: &mut Vec<u8>, data: &[u8]) -> Result<(), Code> {
    bytes.try_reserve(data.len()).map_err(|_| Code::NoMem)?;
    count_copy(data.len());
    bytes.extend_from_slice(data);
    Ok(())
}

/// Returns whether `bytes` more bytes fit into the last block and do not make the body too long.
#[inline]
fn has_room(blocks: &[(Block, usize)], bytes: usize) -> bool {
    let total: usize = blocks.iter().map(|(_, used)| used).sum();
    total + bytes <= BODY_BYTES_MAX && blocks.last().is_some_and(|(block, used)| block.capacity() - used >= bytes)
}

/// Appends data. Adds a block if the last one is full.
fn append_to_blocks(blocks: &mut Vec<(Block, usize)>, heap: &mut Endpoint, data: &[u8]) -> Result<(), Code> {
    let room = blocks.last().map_or(0, |(block, used)| block.capacity() - used);
    if data.len() <= room {
        fill(blocks, data);
        return Ok(());
    }
    let last = blocks.last().map_or(0, |(block, _)| block.capacity());
    let more = allocate(heap, (data.len() - room).max((2 * last).min(FRAGMENT_GROWTH_BYTES_MAX)))?;
    fill(blocks, &data[..room]);
    blocks.push((more, 0));
    fill(blocks, &data[room..]);
    Ok(())
}

/// Appends data to the last block, which must have room for it.
#[inline]
fn fill(blocks: &mut [(Block, usize)], data: &[u8]) {
    if let Some((block, used)) = blocks.last_mut() {
        block.write(*used, data);
        *used += data.len();
    }
}

fn copy_out_of_blocks(blocks: &[(Block, usize)], mut offset: usize, mut data: &mut [u8]) {
    for (block, used) in blocks {
        if offset >= *used {
            offset -= used;
            continue;
        }
        let count = data.len().min(used - offset);
        let (head, rest) = data.split_at_mut(count);
        block.read(offset, head);
        data = rest;
        offset = 0;
        if data.is_empty() {
            return;
        }
    }
    debug_assert!(data.is_empty(), "read past the end of a body");
}

/// Returns pieces as one body in private memory.
pub(crate) fn gather(pieces: &[Box<dyn Source>]) -> Result<Vec<u8>, Code> {
    let mut bytes = Vec::new();
    let length = pieces.iter().map(|piece| piece.bytes().len()).sum();
    bytes.try_reserve_exact(length).map_err(|_| Code::NoMem)?;
    for piece in pieces {
        count_copy(piece.bytes().len());
        bytes.extend_from_slice(piece.bytes());
    }
    Ok(bytes)
}

/// Returns pieces as one body in a block of the heap.
pub(crate) fn gather_in_block(pieces: &[Box<dyn Source>], heap: &mut Endpoint) -> Result<(Block, usize), Code> {
    let length = pieces.iter().map(|piece| piece.bytes().len()).sum();
    let block = allocate(heap, length)?;
    let mut offset = 0;
    for piece in pieces {
        block.write(offset, piece.bytes());
        offset += piece.bytes().len();
    }
    Ok((block, length))
}

/// Copies a body of `bytes` bytes, which `read` reads, in steps that are small enough to stay in the cache.
fn copy_to_block(bytes: usize, read: &dyn Fn(usize, &mut [u8]), heap: &mut Endpoint) -> Result<(Block, usize), Code> {
    const STEP_BYTES: usize = 16 << 10;
    let block = allocate(heap, bytes)?;
    let mut step = zeroes(STEP_BYTES.min(bytes))?;
    let mut offset = 0;
    while offset < bytes {
        let count = STEP_BYTES.min(bytes - offset);
        read(offset, &mut step[..count]);
        block.write(offset, &step[..count]);
        offset += count;
    }
    Ok((block, bytes))
}
