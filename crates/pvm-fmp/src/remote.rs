//! Bodies that lie in the sender's heap, or in a cell of pair memory.
use crate::BODY_BYTES_MAX;
use crate::copy::{self, CopyMode};
use crate::heap::{CopyOrder, length_and_order};
use crate::owner::Owner;
use crate::pair_memory::ArrivedCell;
use crate::pipelined;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// The size, in bytes, of the pieces that [`Remote::use_pieces`] makes of a body in fragments.
const COPIED_BYTES: usize = 64 * pipelined::UNIT_BYTES;

/// The shortest piece, in bytes, that is copied out in the mode for which the sender asks.
const ORDERED_BYTES_MIN: usize = 16 << 10;

/// The token of a borrowed payload that the task must not keep. It never appears in a release entry: the block is free as soon as the entry has
/// been read.
pub(crate) const BORROWED: u32 = u32::MAX;

/// The token of a borrowed payload that the task may keep in the daemon's heap (`endpoint/borrowed.rs`).
pub(crate) const KEEPABLE: u32 = u32::MAX - 2;

/// The token of every body in a cell of pair memory. It never appears in a release entry either: the cell belongs to
/// the receiver.
const PASSED: u32 = u32::MAX - 1;

/// The token of the borrowed payload that this task keeps. It appears in no entry.
const KEPT: u32 = u32::MAX - 3;

#[derive(Clone, Copy)]
pub(crate) struct Fragment {
    pub address: *const u8,
    bytes: u32,
    /// How the sender asks for it to be copied, and whether the sender wants to know the time of that copy.
    order: CopyOrder,
}

// No body is longer than these words can say, and each message holds them.
const _: () = assert!(BODY_BYTES_MAX <= u32::MAX as usize);

impl Fragment {
    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// A body that lies in the sender's heap, or in a cell of pair memory. The memory may be reused as soon as this value is
/// dropped.
pub struct Remote {
    owner: Rc<Owner>,
    token: u32,
    bytes: u32,
    first: Fragment,
    rest: Vec<Fragment>,
    /// How many bytes of the timed fragment were copied out, and for how long, in ns.
    timed: Cell<(u32, u32)>,
    /// Keeps the cell in which the body lies.
    _cell: Option<ArrivedCell>,
}

impl Remote {
    /// Reads a descriptor. Returns `None` if it points outside the sender's heap, or if the body is longer than any
    /// message can be.
    pub(crate) fn from_descriptor(owner: &Rc<Owner>, descriptor: &[u8]) -> Option<Remote> {
        let (head, list) = descriptor.split_first_chunk::<8>()?;
        let token = u32::from_ne_bytes(head[..4].try_into().ok()?);
        let count = u32::from_ne_bytes(head[4..].try_into().ok()?) as usize;
        if count == 0 || list.len() != count * 16 {
            return None;
        }
        let mut fragments = list.chunks_exact(16).map(|words| {
            let word = |from: usize| u64::from_ne_bytes(words[from..from + 8].try_into().expect("eight"));
            let (bytes, order) = length_and_order(word(8));
            fragment(owner, word(0), bytes).map(|fragment| Fragment { order, ..fragment })
        });
        let first = fragments.next()??;
        let rest = fragments.collect::<Option<Vec<_>>>()?;
        let bytes = rest.iter().fold(first.bytes(), |sum, fragment| sum.saturating_add(fragment.bytes()));
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes as usize <= BODY_BYTES_MAX)?;
        let mut remote = Remote::of(owner, token, first);
        (remote.rest, remote.bytes) = (rest, bytes);
        Some(remote)
    }

    /// Returns the body of one fragment.
    fn of(owner: &Rc<Owner>, token: u32, first: Fragment) -> Remote {
        let (owner, rest, bytes, timed) = (owner.clone(), Vec::new(), first.bytes, Cell::new((0, 0)));
        Remote { owner, token, bytes, first, rest, timed, _cell: None }
    }

    /// Returns the body that lies at `offset` in one piece.
    pub(crate) fn from_place(owner: &Rc<Owner>, token: u32, offset: u64, bytes: u64) -> Option<Remote> {
        Some(Remote::of(owner, token, fragment(owner, offset, bytes)?))
    }

    /// Returns the body of `bytes` bytes in a cell, which has room for it.
    pub(crate) fn in_cell(owner: &Rc<Owner>, cell: ArrivedCell, bytes: usize) -> Remote {
        let address = cell.memory.body(cell.cell);
        let first = Fragment { address, bytes: bytes as u32, order: CopyOrder::default() };
        let mut remote = Remote::of(owner, PASSED, first);
        remote._cell = Some(cell);
        remote
    }

    /// Returns the body whose first `bytes` bytes lie in a cell, which has room for them, and whose rest lies in the
    /// sender's heap: under a token, at an offset, with a length.
    pub(crate) fn in_cell_and_heap(
        owner: &Rc<Owner>,
        cell: ArrivedCell,
        bytes: usize,
        rest: Option<(u32, u64, u64)>,
    ) -> Option<Remote> {
        let mut remote = Remote::in_cell(owner, cell, bytes);
        if let Some((token, offset, more)) = rest {
            remote.rest.push(fragment(owner, offset, more)?);
            remote.token = token;
            remote.bytes += more as u32;
        }
        Some(remote)
    }

    pub(crate) fn fragments(&self) -> impl Iterator<Item = &Fragment> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns whether this is a borrowed payload, which is released when its entry has been read.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.token == BORROWED || self.token == KEEPABLE
    }

    /// Returns the borrowed payload for a task that keeps it where it lies, if the daemon allows that. The caller marks
    /// the owner's payload as kept; the drop of the result ends that.
    pub(crate) fn kept(&self) -> Option<Remote> {
        let may_keep = self.token == KEEPABLE && self.rest.is_empty();
        may_keep.then(|| Remote::of(&self.owner, KEPT, self.first))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes as usize
    }
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Passes the body to `each` without a copy, as [`crate::BodyInTransit::use_pieces`] does. A body in fragments is an
    /// exception: it is copied in small pieces, because a packed number may be split between two fragments.
    pub fn use_pieces(&self, done: &mut usize, each: &mut dyn FnMut(usize, *const u8, usize)) {
        if *done > self.len() {
            return; // the sender has announced a shorter body than before
        }
        if self.rest.is_empty() {
            // The fragment was checked to lie in the mapping, which `owner` keeps.
            each(*done, self.first.address.wrapping_add(*done), self.len() - *done);
            *done = self.len();
            return;
        }
        let mut piece = [0u8; COPIED_BYTES];
        while *done < self.len() {
            let piece = &mut piece[..COPIED_BYTES.min(self.len() - *done)];
            self.read(*done, piece);
            each(*done, piece.as_ptr(), piece.len());
            *done += piece.len();
        }
    }

    /// Copies the whole body to the end of `data`.
    pub fn append_to(&self, data: &mut Vec<u8>) {
        data.reserve(self.len());
        for fragment in self.fragments() {
            let (address, bytes) = (fragment.address, fragment.bytes());
            let room = data.spare_capacity_mut();
            debug_assert!(room.len() >= bytes);
            // SAFETY: the fragment was checked to lie in the mapping, which `owner` keeps; no reference into it exists,
            // and its bytes may be anything. The room for all fragments was reserved, and its bytes are written before
            // the length includes them.
            unsafe {
                copy::copy_shared(address, room.as_mut_ptr().cast(), bytes);
                data.set_len(data.len() + bytes);
            }
        }
    }

    /// Copies `data.len()` bytes from `offset`. Panics past the end.
    pub fn read(&self, mut offset: usize, mut data: &mut [u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.len()));
        for fragment in self.fragments() {
            if offset >= fragment.bytes() {
                offset -= fragment.bytes();
                continue;
            }
            let count = data.len().min(fragment.bytes() - offset);
            let (piece, tail) = data.split_at_mut(count);
            self.read_piece(fragment, offset, piece);
            (data, offset) = (tail, 0);
            if data.is_empty() {
                return;
            }
        }
    }
}

impl Remote {
    /// Copies a piece of a fragment, from `offset` on, as the sender has asked for it. Panics past the end.
    #[inline]
    fn read_piece(&self, fragment: &Fragment, offset: usize, piece: &mut [u8]) {
        assert!(offset.checked_add(piece.len()).is_some_and(|end| end <= fragment.bytes()));
        let CopyOrder { mode, is_timed } = fragment.order;
        let is_long = piece.len() >= ORDERED_BYTES_MIN;
        let start = (is_timed && is_long).then(Instant::now);
        let (from, to, mode) =
            (fragment.address.wrapping_add(offset), piece.as_mut_ptr(), if is_long { mode } else { CopyMode::Cached });
        // SAFETY: the fragment was checked to lie in the mapping, which `owner` keeps; no
        // reference into it exists, and its bytes may be anything.
        unsafe { copy::copy_shared_by(mode, from, to, piece.len()) };
        if let Some(start) = start {
            let (bytes, ns) = self.timed.get();
            let elapsed = u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX);
            self.timed.set((bytes.saturating_add(piece.len() as u32), ns.saturating_add(elapsed)));
        }
    }

    /// Notes for the sender how long the copies of the timed fragment have taken, if it was copied once and in long pieces.
    #[cold]
    fn report_time(&self) {
        let (bytes, ns) = self.timed.get();
        let timed = self.fragments().find(|fragment| fragment.order.is_timed);
        if timed.is_some_and(|fragment| fragment.bytes == bytes) {
            self.owner.timed.set(Some((self.token, ns)));
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.timed.get().0 > 0 {
            self.report_time();
        }
        match self.token {
            BORROWED | KEEPABLE | PASSED => {}
            KEPT => self.owner.end_keeping(),
            _ => self.owner.release(self.token, self.len()),
        }
    }
}

fn fragment(owner: &Rc<Owner>, offset: u64, bytes: u64) -> Option<Fragment> {
    let order = CopyOrder::default();
    if bytes > BODY_BYTES_MAX as u64 {
        return None;
    }
    owner.mapping.reach(offset, bytes).map(|address| Fragment { address: address.as_ptr(), bytes: bytes as u32, order })
}
