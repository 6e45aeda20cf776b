//! The receiver's side of a streamed send ([`crate::stream`]).
use crate::copy;
use crate::not_taken::NotTaken;
use crate::owner::Owner;
use crate::pair_memory::{ArrivedCell, PairMemory};
use crate::pipelined::{SPINS_MAX, UNIT_BYTES};
use crate::remote::Remote;
use crate::stream::{Spill, Stream, WITHDRAWN};
use crate::ways;
use std::cell::RefCell;
use std::rc::Rc;

/// The number of bytes after which room is given back to the sender.
const STEP_BYTES: usize = 32 << 10;

/// A streamed body that arrives.
pub(crate) struct StreamedBody<'a> {
    pub owner: &'a Rc<Owner>,
    pub memory: &'a Rc<PairMemory>,
    pub cell: u32,
    /// What the sender asks for ([`crate::ways`]).
    pub order: u64,
    pub bytes: usize,
    /// The beginning of the body, as far as its room was given back before the sender stalled.
    pub saved: &'a RefCell<Vec<u8>>,
    pub sender_lives: &'a dyn Fn() -> bool,
}

impl StreamedBody<'_> {
    fn stream(&self) -> Stream<'_> {
        self.memory.stream(self.cell)
    }

    /// Returns the body if it lies there as a whole: its beginning in the cell, the rest in the sender's heap.
    pub fn complete(&self) -> Option<Remote> {
        let stream = self.stream();
        if !self.saved.borrow().is_empty() || stream.available() != self.bytes as u64 {
            return None;
        }
        let spill = stream.spilled();
        let in_cell = spill.map_or(self.bytes, |spill| usize::try_from(spill.start).unwrap_or(usize::MAX));
        if in_cell > stream.capacity || in_cell > self.bytes {
            return None;
        }
        let rest = spill.map(|spill| (spill.token, spill.offset, (self.bytes - in_cell) as u64));
        let cell = ArrivedCell { memory: self.memory.clone(), cell: self.cell };
        Remote::in_cell_and_heap(self.owner, cell, in_cell, rest)
    }

    /// Copies the first `data.len()` bytes. If the sender stalls, returns [`NotTaken::Later`]; then the body arrives
    /// again, from its start.
    pub fn take(&self, data: &mut [u8]) -> Result<(), NotTaken> {
        let saved = self.saved.take();
        let mut done = saved.len();
        let count = done.min(data.len());
        data[..count].copy_from_slice(&saved[..count]);
        // If a part of the body is not copied, its room must not be given back: the body may arrive again, for another
        // receive that wants all of it.
        let is_whole = data.len() == self.bytes;
        let mode = ways::way_of(self.order).copy_out;
        loop {
            let each = &mut |at: usize, from: *const u8, count: usize| {
                let count = count.min(data.len().saturating_sub(at));
                if count > 0 {
                    // SAFETY: `count` bytes lie there, to which no reference exists; they may be anything.
                    unsafe { copy::copy_shared_by(mode, from, data[at..at + count].as_mut_ptr(), count) }
                }
            };
            let result = self.follow(&mut done, is_whole, each);
            if result.is_ok() {
                ways::finish(self.memory.finished(true), self.order);
            }
            if !matches!(result, Err(NotTaken::Later)) {
                return result;
            }
            if !is_whole {
                self.saved.replace(saved);
                return result;
            }
            let mut copied = Vec::new();
            // Without memory for what was copied, the receiver can only wait for the rest.
            if copied.try_reserve_exact(done).is_ok() {
                copied.extend_from_slice(&data[..done]);
                self.saved.replace(copied);
                return result;
            }
            std::thread::yield_now();
        }
    }

    /// Passes bytes from `done` on to `each`, as [`crate::BodyInTransit::use_pieces`] does. No room is given back, since
    /// nobody keeps the bytes.
    pub fn use_pieces(&self, done: &mut usize, each: &mut dyn FnMut(usize, *const u8, usize)) -> Result<(), NotTaken> {
        let saved = self.saved.take();
        if let Some(rest) = saved.get(*done..).filter(|rest| !rest.is_empty()) {
            each(*done, rest.as_ptr(), rest.len());
            *done = saved.len();
        }
        let result = self.follow(done, false, each);
        if matches!(result, Err(NotTaken::Later)) {
            self.saved.replace(saved);
        }
        result
    }

    /// Passes the bytes from `done` on to `each` as the sender writes them, and gives their room back if `gives_back` is
    /// set.
    fn follow(
        &self,
        done: &mut usize,
        gives_back: bool,
        each: &mut dyn FnMut(usize, *const u8, usize),
    ) -> Result<(), NotTaken> {
        let stream = self.stream();
        let mut spins = 0u32;
        loop {
            let available = stream.available();
            if available == WITHDRAWN {
                return self.end(Err(NotTaken::Lost));
            }
            let there = usize::try_from(available).unwrap_or(self.bytes).min(self.bytes);
            let whole = if there == self.bytes { there } else { there / UNIT_BYTES * UNIT_BYTES };
            while *done < whole {
                let Some((from, count)) = self.piece(&stream, *done, whole) else {
                    return self.end(Err(NotTaken::Lost));
                };
                each(*done, from, count);
                (*done, spins) = (*done + count, 0);
                if gives_back {
                    stream.give_back(*done);
                }
            }
            if there == self.bytes {
                return self.end(Ok(()));
            }
            spins += 1;
            if spins > SPINS_MAX {
                let lost = !(self.sender_lives)() && stream.available() != self.bytes as u64;
                return if lost { self.end(Err(NotTaken::Lost)) } else { Err(NotTaken::Later) };
            }
            std::hint::spin_loop();
        }
    }

    /// Returns where bytes `from..end` lie, or the first of them; `None` if the sender breaks the rules.
    fn piece(&self, stream: &Stream<'_>, from: usize, end: usize) -> Option<(*const u8, usize)> {
        let count = (end - from).min(STEP_BYTES - from % STEP_BYTES);
        match stream.spilled() {
            Some(Spill { start, .. }) if start % UNIT_BYTES as u64 != 0 => None,
            Some(Spill { start, offset, .. }) if from as u64 >= start => {
                let at = offset.checked_add(from as u64 - start)?;
                let address = self.owner.mapping.reach(at, count as u64)?;
                Some((address.as_ptr().cast_const(), count))
            }
            spill => {
                let count = spill.map_or(count, |spill| count.min((spill.start - from as u64) as usize));
                // The capacity is a multiple of a step, so the piece does not go beyond the end of the cell.
                Some((self.memory.body(self.cell).wrapping_add(from % stream.capacity).cast_const(), count))
            }
        }
    }

    /// Ends the arrival: the cell belongs to this task now, and the spilled part is released.
    fn end(&self, result: Result<(), NotTaken>) -> Result<(), NotTaken> {
        drop(ArrivedCell { memory: self.memory.clone(), cell: self.cell });
        if let Some(spill) = self.stream().spilled() {
            self.owner.release(spill.token, self.bytes.saturating_sub(spill.start as usize));
        }
        result
    }
}
