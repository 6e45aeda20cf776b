//! What a hostile neighbour does with cells of memory that two tasks share.
use super::{Hostile, Looking, words_of};
use crate::Endpoint;
use crate::heap::Heap;
use crate::pair_memory::{CELL_BYTES_MIN, CELLS, Offer, PACKED_CELLS, PairMemory};
use crate::queue::Kind;
use crate::segment::Segment;
use crate::sync::Ordering;
use pvm_fuzz::Unstructured;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The number of long messages in each direction after which the victim has offered memory to its peer.
const TURNS: usize = 10;
/// The length of these messages in bytes: too long for the queue.
const TURN_BYTES: usize = 20_000;

/// Memory that the neighbour has offered.
pub(super) struct Cells {
    memory: PairMemory,
    _file: OwnedFd,
}

/// Does one action of the neighbour.
pub(super) fn action(
    choice: u8,
    from: &mut Unstructured<'_>,
    hostile: &mut Hostile,
    value: u64,
) -> pvm_fuzz::Result<()> {
    let generation = value >> 1 & 3;
    let words = match choice {
        0 => return offer(from, hostile, generation as u32),
        // The answer to an offer, often the right one.
        1 => {
            hostile.write(Kind::Answer, &[0; 6], &words_of(&[generation << 32 | value & 1]));
            return Ok(());
        }
        // A message in a cell, complete or not, of the length that the cell tells or of another one; the sender may keep the
        // cell, and gives up others.
        2 => {
            let (cell, bytes) = (value & 1, u64::from(from.arbitrary::<u16>()?));
            let told = (value >> 5 & 1) << 16 | (value >> 6 & 7) << 8;
            if let Some(cells) = &hostile.cells {
                let there = if value & 8 == 0 { bytes } else { from.arbitrary::<u16>()?.into() };
                cells.memory.progress(cell as u32).store(there, Ordering::Relaxed);
            }
            [generation << 32 | told | cell, bytes, value >> 4 & 1]
        }
        _ => [value, from.arbitrary::<u32>()?.into(), value >> 4 & 1],
    };
    hostile.write(Kind::Passed, &[1, 2, 3, 4, 5, 6], &words_of(&words));
    Ok(())
}

/// Offers memory that exists; what is said of it is sometimes wrong.
fn offer(from: &mut Unstructured<'_>, hostile: &mut Hostile, generation: u32) -> pvm_fuzz::Result<()> {
    let lie: u8 = from.arbitrary()?;
    let heap = Rc::new(RefCell::new(Heap::new(Segment::new().expect("memory for a segment"))));
    let bytes = CELL_BYTES_MIN << (lie % 2);
    let cells = if lie & 64 == 0 { CELLS } else { PACKED_CELLS };
    let made = PairMemory::make(&heap, &Rc::default(), usize::MAX, (cells, bytes), generation);
    let Some((memory, file, offer)) = made else { return Ok(()) };
    let Offer { mut descriptor, mut nonce, mut cells, mut capacity, .. } = offer;
    match lie / 2 % 16 {
        0 => nonce ^= 1,
        1 => capacity *= 2,
        2 => descriptor = from.arbitrary::<u8>()?.into(),
        3 => cells = from.arbitrary::<u8>()?.into(),
        _ => {}
    }
    hostile.segment.mapping.header().pid.store(std::process::id(), Ordering::Relaxed);
    let words =
        [u64::from(generation) << 32 | u64::from(descriptor), nonce, u64::from(cells) << 32 | u64::from(capacity)];
    hostile.write(Kind::Offer, &[0; 6], &words_of(&words));
    hostile.cells = Some(Cells { memory, _file: file });
    Ok(())
}

/// Exchanges long messages until the victim offers memory. Chance alone would hardly lead to this.
pub(super) fn take_turns(hostile: &mut Hostile, victim: &mut Endpoint, attacker: u32, sink: &mut Looking) {
    for _ in 0..TURNS {
        let place = hostile.first_ring() + super::RINGS_BYTES;
        hostile.write(Kind::Blocks, &[1, 2, 3, 4, 5, 6], &words_of(&[1 << 32, place, TURN_BYTES as u64]));
        victim.poll(sink);
        if victim.send_bytes(attacker, [1, 2, 3, 4, 5, 0], &[3; TURN_BYTES]).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ATTACKER;
    use super::super::tests::neighbours;
    use super::*;
    #[test]
    fn the_actions_lead_to_cells_that_both_sides_use() {
        let (_table, mut victim, mut hostile) = neighbours();
        let mut sink = Looking::default();
        take_turns(&mut hostile, &mut victim, ATTACKER, &mut sink);
        assert_eq!(victim.cells_held(), 0);
        // The answer to the victim's first offer: from now on the victim sends in cells.
        action(1, &mut Unstructured::new(&[]), &mut hostile, 3).unwrap();
        victim.poll(&mut sink);
        assert_eq!(victim.cells_held(), CELLS as usize);
        victim.send_bytes(ATTACKER, [1; 6], &[1; TURN_BYTES]).map(|_| ()).unwrap();
        assert_eq!(victim.cells_held(), CELLS as usize - 1);
        // The neighbour offers memory, and sends two messages in it; the victim then holds their cells.
        action(0, &mut Unstructured::new(&[255]), &mut hostile, 4).unwrap();
        for cell in 0..2 {
            action(2, &mut Unstructured::new(&[100, 0, 100, 0]), &mut hostile, 4 | cell | 8 << cell).unwrap();
        }
        assert_eq!(victim.poll(&mut sink), 2);
        assert_eq!(victim.cells_held(), CELLS as usize);
    }
}
