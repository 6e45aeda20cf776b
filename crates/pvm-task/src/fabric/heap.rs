//! Packed bodies lie in the task's heap, and peers read them there. The parts of the heap in which long ones lie are
//! registered, and stay so for the bodies that lie there next: so a packed body is not copied by its sender, and mostly not
//! registered either.
use pvm_fmp::Block;
use pvm_net::fabric::{Endpoint, Failure, Memory, RegionId};
use std::ops::Range;

/// This many parts of the heap stay registered while nothing is offered there.
const PARTS_MAX: usize = 32;

/// What registers memory: an endpoint, or a replacement for it in tests.
pub(super) trait Registry {
    /// Names registered memory.
    type Region: Copy + Eq;
    /// Registers the memory of a block.
    fn register_block(&mut self, block: &Block) -> Result<Self::Region, Failure>;
    /// Ends the registration of memory that no peer reads.
    fn unregister(&mut self, region: Self::Region);
    /// Ends the registration of memory that a peer may be reading.
    fn retire(&mut self, region: Self::Region);
}

impl Registry for Endpoint {
    type Region = RegionId;

    fn register_block(&mut self, block: &Block) -> Result<RegionId, Failure> {
        let no_memory = |_| Failure { call: "mmap", words: "the heap cannot be mapped once more".into() };
        let memory = block.with_file(|file, range| {
            Memory::shared_part(file, range.start, (range.end - range.start) as usize).map_err(no_memory)
        })?;
        self.register(memory)
    }

    fn unregister(&mut self, region: RegionId) {
        Endpoint::unregister(self, region);
    }

    fn retire(&mut self, region: RegionId) {
        Endpoint::retire(self, region);
    }
}

/// A registered part.
struct Part<R> {
    range: Range<u64>,
    region: R,
    /// How many bodies there are offered.
    offers: usize,
    /// Whether no further body is offered there.
    is_closed: bool,
    /// Whether a link has ended whose peer may be reading there.
    was_left: bool,
}

/// The registered parts of the heap, the one that was registered last at the end.
pub(super) struct HeapParts<R = RegionId> {
    parts: Vec<Part<R>>,
    /// How often the heap had given memory back when these parts were registered.
    losses: u64,
}

impl<R> Default for HeapParts<R> {
    fn default() -> HeapParts<R> {
        HeapParts { parts: Vec::new(), losses: 0 }
    }
}

impl<R: Copy + Eq> HeapParts<R> {
    /// Returns the region in which a block lies, and the block's position in it. The region is used until
    /// [`HeapParts::taken`] or [`HeapParts::left`], each once for a call of this function.
    pub fn offer(&mut self, block: &Block, registry: &mut impl Registry<Region = R>) -> Result<(R, usize), Failure> {
        if self.losses != block.heap_losses() {
            // A device keeps the pages that it was told of, but the heap has others now where it gave memory back.
            self.losses = block.heap_losses();
            self.close(registry);
        }
        let range = block.with_file(|_, range| range);
        let holds = |part: &Part<R>| !part.is_closed && part.range.start <= range.start && range.end <= part.range.end;
        if let Some(part) = self.parts.iter_mut().rfind(|part| holds(part)) {
            part.offers += 1;
            return Ok((part.region, (range.start - part.range.start) as usize));
        }
        if let Some(oldest) =
            self.parts.iter().position(|part| part.offers == 0).filter(|_| self.parts.len() >= PARTS_MAX)
        {
            self.parts[oldest].is_closed = true;
            self.free(registry);
        }
        let region = registry.register_block(block)?;
        self.parts.push(Part { range, region, offers: 1, is_closed: false, was_left: false });
        Ok((region, 0))
    }

    /// Notes that the peer has read a body there.
    pub fn taken(&mut self, region: R, registry: &mut impl Registry<Region = R>) {
        self.ended(region, false, registry);
    }

    /// Notes that a link has ended whose peer may be reading a body there, or may do so later: that peer knows the key.
    pub fn left(&mut self, region: R, registry: &mut impl Registry<Region = R>) {
        self.ended(region, true, registry);
    }

    fn ended(&mut self, region: R, was_left: bool, registry: &mut impl Registry<Region = R>) {
        let Some(part) = self.parts.iter_mut().find(|part| part.region == region) else { return };
        part.offers -= 1;
        part.is_closed |= was_left;
        part.was_left |= was_left;
        if part.is_closed {
            self.free(registry);
        }
    }

    /// Lets no further body be offered in these parts. Those in which nothing is offered are registered no more.
    pub fn close(&mut self, registry: &mut impl Registry<Region = R>) {
        self.parts.iter_mut().for_each(|part| part.is_closed = true);
        self.free(registry);
    }

    fn free(&mut self, registry: &mut impl Registry<Region = R>) {
        self.parts.retain(|part| {
            let is_kept = !part.is_closed || part.offers > 0;
            match (is_kept, part.was_left) {
                (true, _) => {}
                (false, true) => registry.retire(part.region),
                (false, false) => registry.unregister(part.region),
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers registrations, and notes how they end.
    #[derive(Default)]
    struct Counted {
        made: u32,
        unregistered: Vec<u32>,
        retired: Vec<u32>,
    }

    impl Registry for Counted {
        type Region = u32;

        fn register_block(&mut self, _: &Block) -> Result<u32, Failure> {
            self.made += 1;
            Ok(self.made)
        }

        fn unregister(&mut self, region: u32) {
            self.unregistered.push(region);
        }

        fn retire(&mut self, region: u32) {
            self.retired.push(region);
        }
    }

    const BYTES: usize = 1 << 20;

    #[test]
    fn bodies_at_the_same_place_are_offered_in_one_region() {
        let mut heap = pvm_fmp::Endpoint::new().unwrap();
        let (mut parts, mut registry) = (HeapParts::default(), Counted::default());
        let first = heap.allocate(BYTES).unwrap();
        assert_eq!(parts.offer(&first, &mut registry), Ok((1, 0)));
        assert_eq!(parts.offer(&first, &mut registry), Ok((1, 0)));
        let place = first.with_file(|_, range| range);
        drop(first);
        parts.taken(1, &mut registry);
        parts.taken(1, &mut registry);
        // The next blocks lie where that one was.
        let blocks = [(); 2].map(|()| heap.allocate(BYTES / 2).unwrap());
        for block in &blocks {
            let offset = block.with_file(|_, range| range.start) - place.start;
            assert_eq!(parts.offer(block, &mut registry), Ok((1, offset as usize)));
        }
        let longer = heap.allocate(2 * BYTES).unwrap();
        assert_eq!(parts.offer(&longer, &mut registry), Ok((2, 0)));
        assert_eq!((registry.made, &registry.unregistered[..]), (2, &[][..]));
        // An idle task keeps none, but those that are offered end later.
        parts.taken(2, &mut registry);
        parts.close(&mut registry);
        assert_eq!(registry.unregistered, [2]);
        assert_eq!(parts.offer(&blocks[0], &mut registry), Ok((3, 0)), "the closed region gets no further bodies");
        parts.taken(1, &mut registry);
        parts.taken(1, &mut registry);
        assert_eq!(registry.unregistered, [2, 1]);
    }

    #[test]
    fn pages_that_the_heap_has_given_back_are_registered_anew() {
        let mut heap = pvm_fmp::Endpoint::new().unwrap();
        let (mut parts, mut registry) = (HeapParts::default(), Counted::default());
        let kept = heap.allocate(BYTES).unwrap();
        let mut offer = |block: &Block| {
            let (region, _) = parts.offer(block, &mut registry).unwrap();
            parts.taken(region, &mut registry);
            region
        };
        assert_eq!((offer(&kept), offer(&kept)), (1, 1));
        let long = heap.allocate(64 * BYTES).unwrap();
        let losses = kept.heap_losses();
        assert_eq!(offer(&long), 2);
        drop(long);
        heap.tidy();
        assert!(kept.heap_losses() > losses, "an idle task keeps less");
        let next = heap.allocate(64 * BYTES).unwrap();
        assert_eq!((offer(&next), offer(&kept)), (3, 4));
        assert_eq!(registry.unregistered, [1, 2]);
    }

    #[test]
    fn who_has_left_may_read_until_nothing_else_is_offered_there() {
        let mut heap = pvm_fmp::Endpoint::new().unwrap();
        let (mut parts, mut registry) = (HeapParts::default(), Counted::default());
        let block = heap.allocate(BYTES).unwrap();
        (0..2).for_each(|_| assert_eq!(parts.offer(&block, &mut registry), Ok((1, 0))));
        parts.left(1, &mut registry);
        assert_eq!(parts.offer(&block, &mut registry), Ok((2, 0)), "the peer that has left knows the old key");
        parts.taken(1, &mut registry);
        assert_eq!((&registry.unregistered[..], &registry.retired[..]), (&[][..], &[1][..]));
    }

    #[test]
    fn only_so_many_parts_stay_registered_without_a_body() {
        let mut heap = pvm_fmp::Endpoint::new().unwrap();
        let (mut parts, mut registry) = (HeapParts::default(), Counted::default());
        let blocks: Vec<Block> = (0..PARTS_MAX + 5).map(|_| heap.allocate(64 << 10).unwrap()).collect();
        for block in &blocks {
            let (region, _) = parts.offer(block, &mut registry).unwrap();
            parts.taken(region, &mut registry);
        }
        assert_eq!(registry.unregistered, [1, 2, 3, 4, 5]);
    }
}
