//! The mapping of a segment in this process, which is the segment's owner or a peer of the owner.
//!
//! A segment grows by **extents**, which its header lists. The first one is mapped at once; a peer maps a further one
//! when a descriptor points into it. A mapped extent never moves. A peer does not trust the header: before it touches a
//! page, it asks the system whether the file reaches that page.
use crate::segment_layout::{Apart, EXTENTS_MAX, FIRST_BYTES, HEAP_START, Header, MAGIC, PAGE_BYTES, PeerRecord};
use crate::segment_layout::{FIRST_RECORDS, PEERS_MAX, SEGMENT_BYTES_MAX, table_piece};
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use crate::{file, mapping};
use pvm_descriptor::OwnDescriptor;
use rustix::mm::ProtFlags;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A mapped part of a segment.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    bytes: u64,
    base: NonNull<c_void>,
}

impl Piece {
    #[inline]
    fn address(&self, offset: u64, count: u64) -> Option<NonNull<u8>> {
        let at = offset.checked_sub(self.start)?;
        // SAFETY: the range lies within the mapping.
        (at <= self.bytes && count <= self.bytes - at).then(|| unsafe { self.base.cast::<u8>().add(at as usize) })
    }
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
    fn last_page(&self) -> NonNull<c_void> {
        // SAFETY: a piece has at least one page.
        unsafe { self.base.byte_add((self.bytes - PAGE_BYTES) as usize) }
    }
}

/// How a mapping gets further parts of the segment.
enum Way {
    /// The owner maps each extent when it adds it.
    Own,
    /// A peer duplicates a mapped part, which needs no descriptor.
    Duplicate,
    /// A peer maps each part from the file, because the system cannot duplicate a mapped part.
    File(OwnDescriptor),
}

/// A mapping of a segment, in the process of its owner or of a peer.
pub struct Mapping {
    first: Piece,
    more: RefCell<Vec<Piece>>,
    /// The part that was accessed last: mostly the next access is in the same part.
    recent: Cell<Piece>,
    way: Way,
    /// Set when a part could not be mapped for lack of address space.
    starved: Cell<bool>,
    /// The inode number, which identifies this segment in /proc.
    pub inode: u64,
}

/// The magic number of the file system for huge pages. Its files are refused: if the system cannot provide a huge page,
/// an access to that page kills the reader.
const LARGE_PAGES_MAGIC: u64 = 0x9584_58f6;

/// Returns whether memory of a file system of this kind can be read safely.
fn is_plain_memory(kind: u64) -> bool {
    kind & 0xffff_ffff != LARGE_PAGES_MAGIC
}

/// Returns whether a file from another process can be mapped: it never shrinks, and its pages are ordinary ones.
pub fn is_safe(file: &OwnedFd) -> bool {
    file::keeps_length(file.as_fd())
        && rustix::fs::fstatfs(file).is_ok_and(|status| is_plain_memory(status.f_type as u64))
}

fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a segment")
}

impl Mapping {
    /// Maps the first extent of this process's segment.
    pub fn of_owner(segment: BorrowedFd<'_>) -> io::Result<Mapping> {
        Mapping::new(segment, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn new(segment: BorrowedFd<'_>, protection: ProtFlags) -> io::Result<Mapping> {
        let status = rustix::fs::fstat(segment)?;
        if (status.st_size as u64) < FIRST_BYTES {
            return Err(wrong());
        }
        let base = mapping::map(segment, 0, FIRST_BYTES as usize, protection)?;
        let first = Piece { start: 0, bytes: FIRST_BYTES, base };
        let (more, starved) = (RefCell::default(), Cell::new(false));
        Ok(Mapping { first, more, recent: Cell::new(first), way: Way::Own, starved, inode: status.st_ino })
    }

    /// Maps a peer's segment for reading; refuses any other file.
    pub fn of_peer(segment: &OwnedFd) -> io::Result<Mapping> {
        if !is_safe(segment) {
            return Err(wrong());
        }
        let mut mapping = Mapping::new(segment.as_fd(), ProtFlags::READ)?;
        if !mapping.is_segment() {
            return Err(wrong());
        }
        // SAFETY: a page of the mapping just made.
        let behind = unsafe { mapping::can_map_behind(mapping.first.base) };
        mapping.way = if behind { Way::Duplicate } else { Way::File(file::duplicate(segment.as_fd())?.into()) };
        Ok(mapping)
    }

    /// Does what [`Mapping::of_peer`] does, but keeps the descriptor and maps from the file, as on systems without
    /// [`Way::Duplicate`].
    #[cfg(test)]
    pub fn of_peer_by_file(segment: OwnedFd) -> io::Result<Mapping> {
        let mut mapping = Mapping::of_peer(&segment)?;
        mapping.way = Way::File(segment.into());
        Ok(mapping)
    }

    /// Returns whether the header is that of a segment.
    pub fn is_segment(&self) -> bool {
        self.header().magic.load_relaxed() == MAGIC
    }

    /// Returns the header.
    #[inline(always)]
    pub fn header(&self) -> &Header {
        // SAFETY: the first extent is mapped, is page-aligned, begins with a header, and a header is made of
        // atomics, for which every bit pattern is a value.
        unsafe { self.first.base.cast::<Header>().as_ref() }
    }

    /// Returns the address of `count` bytes at `offset`; `None` if there is no such part of a heap, or no address space
    /// for it ([`Mapping::take_starved`] tells which).
    #[inline]
    pub fn reach(&self, offset: u64, count: u64) -> Option<NonNull<u8>> {
        if offset < HEAP_START {
            return None;
        }
        self.recent.get().address(offset, count).or_else(|| self.reach_elsewhere(offset, count))
    }

    #[inline(never)]
    fn reach_elsewhere(&self, offset: u64, count: u64) -> Option<NonNull<u8>> {
        let holds = |piece: &&Piece| piece.address(offset, count).is_some();
        let known = [&self.first].into_iter().chain(&*self.more.borrow()).find(holds).copied();
        let piece = match known {
            Some(piece) => piece,
            None => self.map_more(offset, count)?,
        };
        self.recent.set(piece);
        piece.address(offset, count)
    }

    /// Returns the address of memory that this process has allocated. Panics if it is not mapped.
    pub fn address(&self, offset: u64, count: u64) -> *mut u8 {
        self.reach(offset, count).expect("the owner maps all that it adds").as_ptr()
    }

    /// Returns a piece of the peer table, if there is one.
    pub fn table(&self, piece: usize) -> Option<&[PeerRecord]> {
        let (first, count) = table_piece(piece);
        let bytes = (count * size_of::<PeerRecord>()) as u64;
        let address = match piece {
            // SAFETY: it lies behind the header, in the first extent.
            0 => unsafe { self.first.base.cast::<u8>().add(size_of::<Header>()) },
            _ => {
                // Pair `table piece made`: whoever sees the offset of the piece sees clean records.
                let offset = self.header().tables.get(piece)?.load_acquire();
                let aligned = first < PEERS_MAX && offset % align_of::<PeerRecord>() as u64 == 0;
                self.reach(offset, bytes).filter(|_| aligned)?
            }
        };
        // SAFETY: `bytes` bytes lie there for as long as `self` lives, aligned, and records are made of atomics.
        Some(unsafe { std::slice::from_raw_parts(address.cast::<PeerRecord>().as_ptr(), count) })
    }

    /// Returns a record of the peer table, if there is one.
    pub fn peer_record(&self, index: usize) -> Option<&PeerRecord> {
        let piece = if index < FIRST_RECORDS { 0 } else { (index / FIRST_RECORDS).ilog2() as usize + 1 };
        self.table(piece)?.get(index - table_piece(piece).0)
    }

    /// Returns whether, since the last call, a part could not be mapped for lack of address space. If so, the
    /// descriptor that points to this part is not wrong, and the caller may try again.
    pub fn take_starved(&self) -> bool {
        self.starved.take()
    }

    // ----- growth

    /// Makes the segment longer, maps the new extent, and publishes it. Only the owner of the segment calls this.
    pub fn add_extent(&self, segment: BorrowedFd<'_>, start: u64, bytes: u64) -> io::Result<()> {
        let number = self.extents().count();
        let place = self.header().ends.0.get(number).ok_or(io::ErrorKind::OutOfMemory)?;
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let base = mapping::map(segment, start, length, ProtFlags::READ | ProtFlags::WRITE)?;
        if let Err(error) = file::lengthen(segment, start + bytes) {
            // SAFETY: nobody has seen the mapping.
            unsafe { mapping::unmap(base, length) };
            return Err(error);
        }
        self.more.borrow_mut().push(Piece { start, bytes, base });
        // Pair `extent made`: whoever sees the end can rely on the file reaching it.
        place.store(start + bytes, Ordering::Release);
        Ok(())
    }

    /// Returns start and end of each extent behind the first one, up to the first invalid entry of the header.
    fn extents(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let Apart::<[AtomicU64; EXTENTS_MAX]>(ends) = &self.header().ends;
        let mut start = FIRST_BYTES;
        ends.iter().map_while(move |end| {
            // Pair `extent made`.
            let end = end.load_acquire();
            let makes_sense = end > start && end <= SEGMENT_BYTES_MAX && end % PAGE_BYTES == 0;
            makes_sense.then(|| (std::mem::replace(&mut start, end), end))
        })
    }

    /// Returns the end of the last extent.
    pub fn end(&self) -> u64 {
        self.extents().last().map_or(FIRST_BYTES, |(_, end)| end)
    }

    /// Maps the extent that holds the range; if there is no address space for the extent, maps only the range.
    #[cold]
    fn map_more(&self, offset: u64, count: u64) -> Option<Piece> {
        let end = offset.checked_add(count)?;
        let extent = self.extents().find(|(start, until)| (*start..*until).contains(&offset) && end <= *until)?;
        let first_page = offset / PAGE_BYTES * PAGE_BYTES;
        let pages = (first_page, end.max(first_page + 1).next_multiple_of(PAGE_BYTES));
        for (start, until) in [extent, pages] {
            match self.map_piece(start, until - start) {
                Ok(piece) => {
                    self.more.borrow_mut().push(piece);
                    return Some(piece);
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return None,
                Err(_) => {}
            }
        }
        self.starved.set(true);
        None
    }

    fn map_piece(&self, start: u64, bytes: u64) -> io::Result<Piece> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let base = match &self.way {
            Way::Own => return Err(wrong()),
            Way::File(file) => {
                if (rustix::fs::fstat(file)?.st_size as u64) < start + bytes {
                    return Err(wrong());
                }
                mapping::map(file.as_fd(), start, length, ProtFlags::READ)?
            }
            Way::Duplicate => {
                let near = self.nearest(start);
                // SAFETY: the last page of a piece, which is mapped as long as `self` lives.
                unsafe { mapping::map_behind(near.last_page(), (start + PAGE_BYTES - near.end()) as usize, length)? }
            }
        };
        let piece = Piece { start, bytes, base };
        if matches!(self.way, Way::Duplicate) && !mapping::is_there(piece.last_page()) {
            // SAFETY: nobody has seen the mapping.
            unsafe { mapping::unmap(base, length) };
            return Err(wrong());
        }
        Ok(piece)
    }

    /// Returns the mapped piece whose end is the nearest one before `start`.
    fn nearest(&self, start: u64) -> Piece {
        let more = self.more.borrow();
        let before = more.iter().filter(|piece| piece.end() <= start).max_by_key(|piece| piece.end());
        before.copied().unwrap_or(self.first)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for piece in self.more.get_mut().iter().chain([&self.first]) {
            // SAFETY: each was mapped by this value, and nobody holds a reference beyond `self`.
            unsafe { mapping::unmap(piece.base, piece.bytes as usize) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;

    /// Returns two mappings of a segment, one for each way in which a peer can map it.
    fn peers(segment: &Segment) -> [Mapping; 2] {
        let descriptor = || segment.descriptor().try_clone_to_owned().unwrap();
        let behind = Mapping::of_peer(&descriptor()).unwrap();
        assert_eq!(matches!(behind.way, Way::Duplicate), !cfg!(one_mapping));
        [behind, Mapping::of_peer_by_file(descriptor()).unwrap()]
    }

    /// Writes a value as the owner of the segment, and reads it as a peer. Returns whether the peer sees it.
    fn passes(segment: &Segment, peer: &Mapping, offset: u64, value: u8) -> bool {
        segment.commit(offset / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES).unwrap();
        let (own, far) = (segment.mapping.address(offset, 1), peer.reach(offset, 1).unwrap());
        // SAFETY: both are mapped, and nobody else uses them.
        unsafe {
            own.write_volatile(value);
            far.read_volatile() == value
        }
    }

    fn mapped_bytes(mapping: &Mapping) -> u64 {
        mapping.first.bytes + mapping.more.borrow().iter().map(|piece| piece.bytes).sum::<u64>()
    }

    #[test]
    fn a_segment_grows_and_peers_map_what_they_are_led_to() {
        let segment = Segment::new().unwrap();
        let peers = peers(&segment);
        let (small, _) = segment.grow(1).unwrap();
        let (long, bytes) = segment.grow(1 << 30).unwrap();
        let (last, more) = segment.grow(1).unwrap();
        assert!(small < long && long < last && bytes >= 1 << 30 && more >= 1 << 30);
        assert!(segment.mapping.address(long, bytes) != segment.mapping.address(last, more));
        for peer in &peers {
            assert_eq!(mapped_bytes(peer), FIRST_BYTES);
            assert!(passes(&segment, peer, HEAP_START, 1) && passes(&segment, peer, FIRST_BYTES - 1, 2));
            assert!(passes(&segment, peer, small, 3) && mapped_bytes(peer) < 1 << 20);
            // The last extent is mapped before the one in front of it; no mapped part moves.
            let known = peer.reach(small, 1).unwrap();
            assert!(passes(&segment, peer, last, 4) && passes(&segment, peer, last + more - 1, 5));
            assert!(passes(&segment, peer, long, 6) && passes(&segment, peer, long + bytes - 1, 7));
            assert_eq!(peer.reach(small, 1), Some(known));
            assert!(mapped_bytes(peer) <= segment.mapping.end());
            // No body lies in two extents, nor behind the last one, nor in the header.
            for (offset, count) in [(long - 2 * PAGE_BYTES, 2 * PAGE_BYTES), (last + more, 1), (0, 1), (u64::MAX, 2)] {
                assert_eq!(peer.reach(offset, count), None);
            }
            assert!(!peer.take_starved());
        }
    }

    #[test]
    fn what_a_liar_says_to_lie_beyond_its_file_is_not_touched() {
        let segment = Segment::new().unwrap();
        let (start, more) = segment.grow(1 << 20).unwrap();
        let peers = peers(&segment);
        let ends = &segment.mapping.header().ends.0;
        let (place, end) = (segment.mapping.extents().count(), start + more);
        for liar in [end + PAGE_BYTES, end + (1 << 30), SEGMENT_BYTES_MAX, SEGMENT_BYTES_MAX + PAGE_BYTES, u64::MAX, 5]
        {
            ends[place].store(liar, Ordering::Relaxed);
            for peer in &peers {
                assert_eq!((peer.reach(end, 1), peer.take_starved()), (None, false), "{liar}");
            }
        }
        // Real extents can still be mapped; a piece of the table that lies in no extent is not found.
        segment.mapping.header().tables[1].store(end, Ordering::Relaxed);
        for peer in &peers {
            assert!(passes(&segment, peer, start, 3) && peer.table(1).is_none() && peer.peer_record(40).is_none());
        }
    }

    #[test]
    fn large_pages_are_no_memory_for_segments() {
        assert!(!is_plain_memory(LARGE_PAGES_MAGIC) && !is_plain_memory(LARGE_PAGES_MAGIC as i32 as u64));
        let segment = Segment::new().unwrap();
        assert!(is_plain_memory(rustix::fs::fstatfs(segment.descriptor()).unwrap().f_type as u64));
    }
}
