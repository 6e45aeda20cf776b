//! Packed messages in cells of memory that two tasks share ([`crate::packed_cell`]).
use super::passed::{COMPLETE, CellWord, entry_of};
use super::words::words_of;
use super::{Endpoint, Step};
use crate::packed_cell::PackedCell;
use crate::pair_memory::{PACKED_BYTES_MAX, PACKED_CELLS};
use crate::peer::Peer;
use crate::queue::{Entry, Kind};
use crate::{Meta, SendError, Sent};

impl Endpoint {
    /// Returns a cell for a body that is being packed and has `bytes` bytes or more: one of those that this task holds of the
    /// memory that it shares with the task that has sent last.
    pub fn allocate_cell(&mut self, bytes: usize) -> Option<PackedCell> {
        let &index = self.order.first()?;
        let peer = self.peers[index].as_mut()?;
        // A longer body is probably as long as the one before.
        let bytes = bytes.max(self.packed_bytes);
        let is_possible = peer.pair.current.as_ref()?.cells() == PACKED_CELLS && bytes <= PACKED_BYTES_MAX;
        if !is_possible || !self.guesses.may_guess() {
            return None;
        }
        Some(PackedCell::new(peer.tid, peer.pair.take(bytes)?, &self.guesses))
    }

    /// Sends a packed body in its cell, if the task shares the memory of that cell and the cell was not passed before. The
    /// receiver may read it at once, but not write to it as long as `packed` exists.
    pub fn send_cell(&mut self, to: u32, meta: &Meta, packed: &mut PackedCell) -> Option<Result<Sent, SendError>> {
        let index = self.index_of(to)?;
        let memory = self.peers[index].as_ref()?.pair.current.clone()?;
        let cell = packed.cell_for(to, &memory)?;
        let word = CellWord::new(&memory, cell, true);
        let sent = self.queue(to, Kind::Passed, meta, &entry_of(word, packed.len(), COMPLETE));
        match &sent {
            Ok(_) => {
                packed.note_passed();
                self.packed_bytes = packed.len();
            }
            Err(_) => memory.drop_cells(word.dropped),
        }
        Some(self.counted(to, packed.len(), sent))
    }

    /// Notes that a packed body of `bytes` bytes went to a task through the heap. If the two tasks answer each other with such
    /// bodies again and again, offers memory to the peer.
    pub fn note_packed(&mut self, to: u32, bytes: usize) {
        self.packed_bytes = bytes;
        if let Some(index) = self.index_of(to).filter(|_| bytes <= PACKED_BYTES_MAX && !crate::is_daemon(to)) {
            self.tell_dropped(index);
            self.note_unpassed(index, bytes, PACKED_CELLS);
        }
    }

    /// Tells a peer which cells this task has dropped, in an entry of its own: no message in a cell will tell it, since this
    /// task may have no cell left.
    fn tell_dropped(&mut self, index: usize) {
        let Some(peer) = self.peers[index].as_mut() else { return };
        let Some(memory) = peer.pair.current.clone() else { return };
        let word = CellWord::new(&memory, 0, false);
        if word.dropped != 0
            && peer.push(self.tid, &self.heap, Kind::Dropped, &[0; 6], &word.to_word().to_ne_bytes()).is_err()
        {
            memory.drop_cells(word.dropped);
        }
    }
}

/// Notes which cells a peer has dropped.
pub(super) fn take_dropped(peer: &mut Peer, entry: &Entry<'_>) -> Step {
    let [word, ..] = words_of(entry);
    let word = CellWord::from_word(word);
    if let Some(memory) = peer.pair.of(word.generation) {
        memory.note_dropped(word.dropped);
    }
    Step::Other
}
