//! A body that is packed into a cell of [`crate::pair_memory`].
//!
//! While a body is packed, nobody knows its receiver. So the cell is one of the memory that this task shares with the task
//! that has sent last, which will probably get the answer. If the message then goes elsewhere, or a second time to the same
//! task, the body is copied to the heap first; [`Guesses`] makes this rare.
use crate::copy::CopyMode;
use crate::pair_memory::PairMemory;
use std::cell::Cell;
use std::rc::Rc;

/// The largest number of bodies in a row that go to the heap after wrong guesses.
const PAUSE_MAX: u32 = 64;

/// How well receivers were guessed.
#[derive(Default)]
pub struct Guesses {
    /// The number of bodies that go to the heap after the next wrong guess, and how many more of them there are now.
    pause: Cell<u32>,
    left: Cell<u32>,
}

impl Guesses {
    /// Returns whether the next body should be packed into a cell.
    pub fn may_guess(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }

    fn was_right(&self) {
        self.pause.set(self.pause.get().saturating_sub(1));
    }

    fn was_wrong(&self) {
        self.pause.set((2 * self.pause.get() + 2).min(PAUSE_MAX));
        self.left.set(self.pause.get());
    }
}

/// The body of a send buffer, in a cell. Dropping it gives the cell back or, once the cell was passed, tells the peer with
/// the next message that the cell is the peer's alone.
pub struct PackedCell {
    memory: Rc<PairMemory>,
    cell: u32,
    /// The task that shares the memory.
    to: u32,
    used: usize,
    is_passed: bool,
    guesses: Rc<Guesses>,
}

impl PackedCell {
    pub(crate) fn new(to: u32, (memory, cell): (Rc<PairMemory>, u32), guesses: &Rc<Guesses>) -> PackedCell {
        PackedCell { memory, cell, to, used: 0, is_passed: false, guesses: guesses.clone() }
    }

    /// Returns the length of the body in bytes.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns whether `bytes` more bytes can be appended.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        !self.is_passed && self.memory.capacity() - self.used >= bytes
    }

    /// Appends bytes. Panics without [`PackedCell::has_room`].
    pub fn append(&mut self, data: &[u8]) {
        assert!(self.has_room(data.len()));
        self.memory.write(self.cell, self.used, data, CopyMode::Cached);
        self.used += data.len();
    }

    /// Copies `data.len()` bytes from `offset` on. Panics past the end.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.used));
        self.memory.read_from(self.cell, offset, data);
    }

    /// Notes that the body has to be copied to the heap, so that it can be sent.
    pub fn note_wrong_guess(&self) {
        self.guesses.was_wrong();
    }

    /// Returns the cell if it can be passed to a task that shares `memory`.
    pub(crate) fn cell_for(&self, to: u32, memory: &Rc<PairMemory>) -> Option<u32> {
        (Rc::ptr_eq(memory, &self.memory) && self.to == to && !self.is_passed).then_some(self.cell)
    }

    /// Notes that the cell was passed.
    pub(crate) fn note_passed(&mut self) {
        self.is_passed = true;
        self.guesses.was_right();
    }
}

impl Drop for PackedCell {
    fn drop(&mut self) {
        if self.is_passed {
            self.memory.drop_cells(1 << self.cell);
        } else {
            self.memory.keep(self.cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_guesses_become_rare_and_are_forgotten() {
        let guesses = Guesses::default();
        // All guesses are wrong: the heap gets nearly all bodies.
        let wrong = (0..1000).filter(|_| guesses.may_guess()).inspect(|_| guesses.was_wrong()).count();
        assert!((15..30).contains(&wrong), "{wrong}");
        while !guesses.may_guess() {}
        // All are right: no body goes to the heap any more, and after a while a wrong one costs little.
        (0..100).for_each(|_| {
            assert!(guesses.may_guess());
            guesses.was_right();
        });
        guesses.was_wrong();
        assert!(!guesses.may_guess() && !guesses.may_guess() && guesses.may_guess());
    }
}
