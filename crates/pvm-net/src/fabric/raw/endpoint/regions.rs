//! Memory of this process that peers read.
use super::super::memory::Memory;
use super::{Endpoint, LentRegionId, RegionId, Remote, abi};
use crate::fabric::Failure;
use std::mem::ManuallyDrop;

/// Where bytes begin that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// In a region, at this position.
    InRegion(RegionId, usize),
    /// In memory that is lent for peers, at this position. It is there as long as the loan lasts.
    Lent(LentRegionId, usize),
}

impl Start {
    /// Returns the place behind the first bytes.
    pub fn after(self, bytes: usize) -> Start {
        match self {
            Start::InRegion(region, offset) => Start::InRegion(region, offset + bytes),
            Start::Lent(loan, offset) => Start::Lent(loan, offset + bytes),
        }
    }
}

impl Endpoint {
    /// Registers memory so that peers can read it.
    pub fn register(&mut self, memory: Memory) -> Result<RegionId, Failure> {
        self.discard_retired();
        if self.objects.needs_pages() {
            memory.fetch_pages();
        }
        // SAFETY: the memory is kept with its registration, and unmapped after it.
        let registration = unsafe { self.objects.register(memory.start(), memory.len(), abi::FI_REMOTE_READ)? };
        let id = RegionId(self.regions_made);
        self.regions_made += 1;
        self.regions.insert(id, (Some(registration), ManuallyDrop::new(memory)));
        Ok(id)
    }

    /// Returns how peers name a part of a region; `None` if there is no such region or part.
    pub fn remote(&self, region: RegionId, offset: usize, bytes: usize) -> Option<Remote> {
        let (registration, memory) = self.regions.get(&region)?;
        let registration = registration.as_ref()?;
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= memory.len());
        is_inside
            .then(|| Remote { address: self.objects.remote_address(memory.start(), offset), key: registration.key })
    }

    /// Returns the length of a region in bytes; 0 if there is no such region.
    pub fn region_bytes(&self, region: RegionId) -> usize {
        self.regions.get(&region).map_or(0, |(_, memory)| memory.len())
    }

    /// Lets `make` write to memory that was registered for this process alone, at an offset, from as many bytes elsewhere.
    /// Returns `None` if one of the places is not there, or both are in the same region, where they might overlap.
    pub fn write_part_with<T>(
        &mut self,
        from: Start,
        (region, offset): (RegionId, usize),
        bytes: usize,
        make: impl FnOnce(&mut [u8], &[u8]) -> T,
    ) -> Option<T> {
        if matches!(from, Start::InRegion(source, _) if source == region) {
            return None;
        }
        let to = self.private_part(region, offset, bytes)?;
        // SAFETY: as in `part_mut`; the source is in another region.
        let to = unsafe { std::slice::from_raw_parts_mut(to, bytes) };
        self.with_bytes(from, bytes, |source| make(to, source))
    }

    /// Returns a part of memory that was registered for this process alone. A peer that was told of it may read it at any
    /// time. Returns `None` if there is no such part.
    pub fn part_mut(&mut self, region: RegionId, offset: usize, bytes: usize) -> Option<&mut [u8]> {
        let start = self.private_part(region, offset, bytes)?;
        // SAFETY: the memory has this many bytes, which were written when it was made. Only this value has access to it,
        // except for providers, which read it during their calls, or by hardware.
        Some(unsafe { std::slice::from_raw_parts_mut(start, bytes) })
    }

    /// Calls `read` with these bytes. Shared memory is copied first, since other processes may write to it: a byte that they
    /// write meanwhile may be the old or the new one. Returns `None` if the bytes are not there.
    pub(super) fn with_bytes<T>(&self, from: Start, bytes: usize, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let start = self.readable(from, bytes)?;
        if !self.is_shared(from) {
            // SAFETY: the place has this many bytes, and nobody writes to it: it is lent, or belongs to this process alone.
            return Some(read(unsafe { std::slice::from_raw_parts(start, bytes) }));
        }
        let mut copy = Vec::<u8>::with_capacity(bytes);
        // SAFETY: the place has this many bytes, and the vector room for them, where nobody else writes.
        unsafe {
            std::ptr::copy_nonoverlapping(start, copy.as_mut_ptr(), bytes);
            copy.set_len(bytes);
        }
        Some(read(&copy))
    }

    /// Returns the address of bytes that are sent, if they are there.
    pub(super) fn readable(&self, start: Start, bytes: usize) -> Option<*const u8> {
        let address = match start {
            Start::InRegion(region, offset) => self.region_part(region, offset, bytes)?,
            Start::Lent(loan, offset) => self.lent_source.part(loan, offset, bytes)?,
        };
        Some(address.cast_const())
    }

    /// Returns whether other processes may write to these bytes.
    fn is_shared(&self, start: Start) -> bool {
        match start {
            Start::InRegion(region, _) => self.regions.get(&region).is_some_and(|(_, memory)| memory.is_shared()),
            Start::Lent(..) => false,
        }
    }

    fn region_part(&self, region: RegionId, offset: usize, bytes: usize) -> Option<*mut u8> {
        self.regions.get(&region)?.1.part(offset, bytes)
    }

    fn private_part(&self, region: RegionId, offset: usize, bytes: usize) -> Option<*mut u8> {
        let (_, memory) = self.regions.get(&region)?;
        memory.part(offset, bytes).filter(|_| memory.is_private())
    }

    /// Ends the registration of memory that a peer may be reading, for example one that has died. A read that begins later
    /// fails. The memory stays mapped until the endpoint is closed, since a provider that reads in software may go on sending
    /// from it; but it keeps no pages once nobody else needs its bytes.
    pub fn retire(&mut self, region: RegionId) {
        if let Some(registration) = self.regions.get_mut(&region).and_then(|of| of.0.take()) {
            self.objects.unregister(registration);
            self.retired.push(region);
        }
        self.discard_retired();
    }

    fn discard_retired(&mut self) {
        let regions = &mut self.regions;
        self.retired.retain(|region| regions.get_mut(region).is_some_and(|(_, memory)| !memory.discard_pages()));
    }

    /// Ends the registration of memory that no peer reads any more, and unmaps it.
    pub fn unregister(&mut self, region: RegionId) {
        if let Some((registration, memory)) = self.regions.remove(&region) {
            // The provider may send from lent memory whose registration was ended in the middle (`retire`).
            let (is_lent, was_retired) = (memory.is_lent(), registration.is_none());
            if registration.is_none_or(|registration| self.objects.unregister(registration)) {
                drop(ManuallyDrop::into_inner(memory));
                if is_lent && !was_retired {
                    self.lent_source.use_ends();
                }
            }
        }
    }
}
