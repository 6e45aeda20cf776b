//! Compares the heap with a simple model: a map of the blocks in use.
use super::*;
use std::cell::Cell;
use std::time::Duration;

/// A source that only counts its pages, and refuses more than `limit`.
struct Counting {
    taken: RefCell<BTreeSet<u64>>,
    limit: Cell<usize>,
    end: Cell<u64>,
    /// How many bytes have been committed in all.
    commits: Cell<u64>,
}

impl Source for Counting {
    fn commit(&self, offset: u64, bytes: u64) -> Result<(), NoMemory> {
        let mut taken = self.taken.borrow_mut();
        if taken.len() + (bytes / PAGE_BYTES) as usize > self.limit.get() {
            return Err(NoMemory);
        }
        for page in (offset..offset + bytes).step_by(PAGE_BYTES as usize) {
            assert!(taken.insert(page), "a page is taken once");
        }
        self.commits.set(self.commits.get() + bytes);
        Ok(())
    }
    fn give_back(&self, offset: u64, bytes: u64) {
        for page in (offset..offset + bytes).step_by(PAGE_BYTES as usize) {
            self.taken.borrow_mut().remove(&page);
        }
    }
    fn grow(&self, bytes: u64) -> Result<(u64, u64), NoMemory> {
        let start = self.end.get() + PAGE_BYTES;
        let more = bytes.max(1 << 20);
        if bytes > 1 << 30 {
            return Err(NoMemory);
        }
        self.end.set(start + more);
        Ok((start, more))
    }
}

fn heap(limit: usize) -> Heap<Counting> {
    Heap::new(Counting {
        taken: RefCell::default(),
        limit: Cell::new(limit),
        end: Cell::new(FIRST_BYTES),
        commits: Cell::new(0),
    })
}

#[test]
fn memory_is_given_back_when_the_task_is_idle() {
    let mut heap = heap(usize::MAX);
    let blocks: Vec<_> = (0..20_000).map(|index| heap.allocate(600 + index % 3000).unwrap()).collect();
    let large = heap.allocate(300 << 20).unwrap();
    heap.free(large.0, large.1);
    for (offset, size) in blocks {
        heap.free(offset, size);
    }
    heap.tidy();
    assert_eq!(heap.in_use_bytes(), 0);
    let kept = heap.source().taken.borrow().len() as u64 * PAGE_BYTES;
    assert!(kept <= 2 * KEEP_IDLE_BYTES + CLASSES as u64 * KEEP_IDLE_BYTES, "{kept} bytes stayed");
}

#[test]
fn too_much_is_an_error_and_harms_nothing() {
    let mut heap = heap(1000);
    let kept = heap.allocate(100_000).unwrap();
    assert_eq!(heap.allocate(2000 * PAGE_BYTES), Err(NoMemory));
    assert_eq!(heap.allocate(u64::MAX - 5), Err(NoMemory));
    assert!(heap.allocate(100_000).is_ok());
    heap.free(kept.0, kept.1);
}

#[test]
fn free_memory_elsewhere_is_used_before_a_refusal() {
    let mut heap = heap(1000);
    let first = heap.allocate(500 * PAGE_BYTES).unwrap();
    heap.free(first.0, first.1);
    assert!(heap.allocate(900 * PAGE_BYTES).is_ok());
}

#[test]
fn a_message_that_is_longer_than_what_is_kept_is_committed_again_only_in_part() {
    let mut heap = heap(usize::MAX);
    let bytes = KEEP_BYTES + 100;
    for turn in 0..5 {
        let before = heap.source().commits.get();
        let (offset, size) = heap.allocate(bytes).unwrap();
        let committed = heap.source().commits.get() - before;
        assert!(turn == 0 || committed == PAGE_BYTES, "{committed} bytes were committed in turn {turn}");
        heap.free(offset, size);
    }
    assert_eq!(heap.source().taken.borrow().len() as u64 * PAGE_BYTES, KEEP_BYTES);
}

#[test]
fn what_is_written_is_there_by_whichever_way_it_went() {
    const PIECE_BYTES: usize = 16 << 10;
    const BYTES: usize = 3 * PIECE_BYTES + 4097;
    let heap = Rc::new(RefCell::new(Heap::new(Segment::new().unwrap())));
    let data: Vec<u8> = (0..BYTES).map(|at| (at * 7 + (at >> 8)) as u8).collect();
    for is_slow in [false, true] {
        for offset in [0, 3, 64] {
            let block = Block::allocate(&heap, BYTES + 64).unwrap();
            for mode in [CopyMode::Past; 100].into_iter().chain([CopyMode::Cached; 100]) {
                let time = Duration::from_secs(u64::from(is_slow && mode == CopyMode::Cached));
                heap.borrow_mut().copy_policy.record(mode, PIECE_BYTES, time + Duration::from_micros(1));
            }
            // The copies below are timed, too, so what is best may change with each.
            assert_eq!(heap.borrow().copy_policy.best() == CopyMode::Past, is_slow);
            let mut done = 0;
            for piece in data.chunks(PIECE_BYTES) {
                block.write(offset + done, piece);
                done += piece.len();
            }
            let mut copy = vec![0; BYTES];
            block.read(offset, &mut copy);
            assert!(copy == data, "slow {is_slow}, offset {offset}");
        }
    }
}

fn block_of(data: &[u8]) -> Block {
    let block = Block::allocate(&Rc::new(RefCell::new(Heap::new(Segment::new().unwrap()))), data.len()).unwrap();
    block.write(0, data);
    block
}

#[test]
fn a_lent_block_is_read_where_it_lies_and_can_be_written_again_afterwards() {
    let block = block_of(b"0123456789");
    let [one, other] = [block.lend(2..6), block.lend(5..10)];
    assert_eq!((&*one, &*other), (&b"2345"[..], &b"56789"[..]));
    let copy = &mut [0; 3];
    block.read(4, copy);
    assert_eq!(copy, b"456");
    drop((one, other));
    block.clone().write(3, b"x");
    assert_eq!(&*block.lend(2..5), b"2x4");
}

#[test]
#[should_panic(expected = "a lent block is written")]
fn a_lent_block_is_not_written() {
    let block = block_of(b"0123456789");
    let _lent = block.lend(0..1);
    block.clone().write(9, b"x");
}

#[test]
#[should_panic(expected = "assertion failed")]
fn nothing_behind_a_block_is_lent() {
    let block = block_of(&[1; 1000]);
    let _lent = block.lend(0..block.capacity() + 1);
}

/// These tests have one thread, so ThreadSanitizer (`--cfg one_mapping`) has nothing to find in them.
#[cfg(not(one_mapping))]
mod generated {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_in_use_never_overlap_and_are_backed(steps in proptest::collection::vec((0u8..5, 1u64..400_000, any::<usize>()), 1..300)) {
            let mut heap = heap(20_000);
            let mut used: Vec<(u64, u64)> = Vec::new();
            for (what, bytes, which) in steps {
                match what {
                    0..=2 => {
                        let bytes = if what == 0 { bytes } else { bytes % 9000 + 1 };
                        if let Ok((offset, size)) = heap.allocate(bytes) {
                            prop_assert!(size >= bytes);
                            prop_assert!(used.iter().all(|&(o, s)| offset + size <= o || o + s <= offset));
                            used.push((offset, size));
                        }
                    }
                    3 if !used.is_empty() => {
                        let (offset, size) = used.swap_remove(which % used.len());
                        heap.free(offset, size);
                    }
                    _ => heap.tidy(),
                }
                prop_assert_eq!(heap.in_use_bytes(), used.iter().map(|u| u.1).sum::<u64>());
                let taken = heap.source().taken.borrow();
                for &(offset, size) in &used {
                    prop_assert!(taken.contains(&(offset / PAGE_BYTES * PAGE_BYTES)));
                    prop_assert!(taken.contains(&((offset + size - 1) / PAGE_BYTES * PAGE_BYTES)));
                }
            }
        }
    }
}
