//! Copies to and from shared memory, and how much this process has copied.
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// The longest piece that the C library copies by vector instructions, in bytes. For longer pieces it uses the
/// processor's string instructions, which are half as fast if another core has just written the bytes.
const PIECE_BYTES: usize = 4 << 10;

/// How bytes are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Through the caches, by the C library's copy.
    #[default]
    Cached,
    /// Past the caches, by non-temporal stores.
    Past,
    /// By the processor's string instruction. Many processors then do not read the lines that they overwrite.
    String,
}

/// The shortest copy for which [`is_a_little_ahead`] matters, in bytes.
const AHEAD_BYTES_MIN: usize = 1 << 10;
/// The size of a line of the cache, in bytes.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
/// The size of a page, and how far a target is ahead of its source within a page if it is [`is_a_little_ahead`], both
/// in bytes.
const PAGE_BYTES: usize = 4 << 10;
const AHEAD_BYTES: usize = 32;

/// The shortest copy that is counted, in bytes. Counting a shorter one would take a noticeable part of its time.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// The bytes of all counted copies of this process.
static COPIED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts a copy of data of messages. If two threads count at the same time, one copy may be missed: an exact count
/// would need a slower instruction.
#[inline(always)]
pub fn count_copy(bytes: usize) {
    if bytes >= COUNTED_BYTES_MIN {
        COPIED_BYTES.store(COPIED_BYTES.load(Relaxed) + bytes as u64, Relaxed);
    }
}

/// Returns how many bytes of long messages this process has copied. Copies by the kernel between a socket and memory are
/// not counted.
pub fn copied_bytes() -> u64 {
    COPIED_BYTES.load(Relaxed)
}

/// Reads one byte of each page. Of memory that faults, the program's handler may repair the page, or leave the call by
/// `longjmp`: it does so here, where nobody has been told of the message yet, and not in the middle of the copy.
#[inline(never)]
pub fn touch_pages(bytes: &[u8]) {
    bytes.chunks(PAGE_BYTES).for_each(touch_ends);
}

/// Does what [`touch_pages`] does, for bytes that are in two pages at most.
#[inline(always)]
pub fn touch_ends(bytes: &[u8]) {
    if let [first, .., last] = bytes {
        // SAFETY: references can be read.
        unsafe {
            std::ptr::read_volatile(first);
            std::ptr::read_volatile(last);
        }
    }
}

/// Copies bytes.
///
/// # Safety
/// `bytes` bytes can be read at `from` and written at `to`; the two ranges do not overlap, nobody writes to the first
/// range meanwhile, and no reference to the second range is used. Neither range has to be aligned or initialised.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    count_copy(bytes);
    if bytes >= AHEAD_BYTES_MIN && is_a_little_ahead(from, to) {
        // SAFETY: as the caller promises.
        unsafe { copy_by_lines(from, to, bytes) };
        return;
    }
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(PIECE_BYTES);
        // SAFETY: a part of the ranges for which the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), count) };
        done += count;
    }
}

/// Returns whether the target lies less than [`AHEAD_BYTES`] ahead of the source, not counting whole pages. Wide stores
/// then delay the wide loads that follow: until it knows the whole address, a processor takes a load from the same place
/// of another page for a load of what it has just stored. The C library's copy takes 1.5 to 2.4 times as long on an
/// AMD Zen 4. It is no rare case: the C library places each long array 16 bytes behind the start of a page, and a body
/// in shared memory begins with a page.
#[inline(always)]
fn is_a_little_ahead(from: *const u8, to: *mut u8) -> bool {
    let ahead = to.addr().wrapping_sub(from.addr()) % PAGE_BYTES;
    cfg!(target_arch = "x86_64") && ahead != 0 && ahead < AHEAD_BYTES
}

/// Copies by loads and stores of 16 bytes, a line of the cache at a time: where the C library's wider ones do not delay
/// each other, they are up to 1.4 times as fast.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_by_lines(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    let whole = {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
        let whole = bytes / LINE_BYTES * LINE_BYTES;
        for at in (0..whole).step_by(LINE_BYTES) {
            // SAFETY: parts of the ranges for which the caller promises; SSE2 is part of x86-64.
            unsafe {
                let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
                let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
                for (word, value) in words.into_iter().enumerate() {
                    _mm_storeu_si128(to.add(word), value);
                }
            }
        }
        whole
    };
    #[cfg(not(target_arch = "x86_64"))]
    let whole = 0;
    // SAFETY: the rest of the ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole) };
}

/// Copies bytes out of memory of a peer.
///
/// Another process that breaks the rules may change the bytes at `from` meanwhile; then the copy holds arbitrary bytes.
/// Rust has no copy that allows this, since its rules do not know other processes; all programs that share memory have
/// this problem. In practice only one thing could go wrong: the compiler, which sees nobody write to `from`, could read
/// `from` a second time where the program reads the copy, and get other bytes than those that were checked. The fence
/// prevents this: it makes the compiler assume that the bytes at `from` have changed since.
///
/// # Safety
/// As for [`copy`], except that other processes may write to the first range.
#[inline]
pub unsafe fn copy_shared(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy(from, to, bytes) };
    compiler_fence(Ordering::SeqCst);
}

/// Does what [`copy_shared`] does, in that mode.
///
/// # Safety
/// As for [`copy_shared`].
#[inline]
pub unsafe fn copy_shared_by(mode: CopyMode, from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy_by(mode, from, to, bytes) };
    compiler_fence(Ordering::SeqCst);
}

/// Does what [`copy`] does, in that mode.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_by(mode: CopyMode, from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match mode {
            CopyMode::Cached => copy(from, to, bytes),
            CopyMode::Past => copy_non_temporal(from, to, bytes),
            CopyMode::String => copy_by_string(from, to, bytes),
        }
    }
}

/// Copies by the processor's string instruction, except where that is slow: if the target [`is_a_little_ahead`], an AMD
/// Zen 4 copies 3.5 GB/s in this way.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_by_string(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if !is_a_little_ahead(from, to) {
        count_copy(bytes);
        // SAFETY: the ranges for which the caller promises. The instruction changes these three registers and the target,
        // no flag, and copies upwards, since the calling convention clears the direction flag.
        unsafe {
            std::arch::asm!("rep movsb", inout("rcx") bytes => _, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags));
        }
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { copy(from, to, bytes) };
}

/// Copies bytes that another core will read, by non-temporal stores: that core reads bytes faster from memory than from
/// modified lines in this core's cache.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub unsafe fn copy_non_temporal(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _MM_HINT_NTA, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128};
        /// How far ahead the source is prefetched, in bytes; this kind of prefetch displaces nothing else in the
        /// caches.
        const AHEAD: usize = 1024;
        let head = (to.addr().next_multiple_of(LINE_BYTES) - to.addr()).min(bytes);
        let whole = head + (bytes - head) / LINE_BYTES * LINE_BYTES;
        // SAFETY: a part of the ranges for which the caller promises.
        unsafe { copy(from, to, head) };
        count_copy(whole - head);
        for at in (head..whole).step_by(LINE_BYTES) {
            // SAFETY: parts of the ranges for which the caller promises, the target aligned; SSE2
            // is part of x86-64.
            unsafe {
                // This also prefetches behind the end of the source, which does no harm.
                _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(at + AHEAD).cast());
                let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
                let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(from.add(word)));
                for (word, value) in words.into_iter().enumerate() {
                    _mm_stream_si128(to.add(word), value);
                }
            }
        }
        // SAFETY: the rest of the ranges. The fence orders these stores before those that follow; a release store alone
        // does not order non-temporal stores.
        unsafe {
            copy(from.add(whole), to.add(whole), bytes - whole);
            _mm_sfence();
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        copy(from, to, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_copy_is_counted_once() {
        let (from, mut to) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
        for mode in [CopyMode::Cached, CopyMode::Past, CopyMode::String] {
            let before = copied_bytes();
            // SAFETY: both ranges are the whole vectors.
            unsafe { copy_shared_by(mode, from.as_ptr(), to.as_mut_ptr(), from.len()) };
            // Other tests may copy at the same time.
            assert!(copied_bytes() >= before + (1 << 20) - 128);
        }
    }

    #[test]
    fn a_copy_is_a_copy_at_every_distance_within_a_page() {
        let from: Vec<u8> = (0..9000u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut memory = vec![0u8; from.len() + PAGE_BYTES];
        for distance in (0..=AHEAD_BYTES + 1).chain([PAGE_BYTES / 2, PAGE_BYTES - 1]) {
            let start = from.as_ptr().addr().wrapping_sub(memory.as_ptr().addr()).wrapping_add(distance) % PAGE_BYTES;
            let is_ahead = is_a_little_ahead(from.as_ptr(), memory[start..].as_mut_ptr());
            assert_eq!(is_ahead, cfg!(target_arch = "x86_64") && (1..AHEAD_BYTES).contains(&distance));
            for bytes in [0, 63, 64, AHEAD_BYTES_MIN - 1, AHEAD_BYTES_MIN, AHEAD_BYTES_MIN + 1, 4159, from.len()] {
                for mode in [CopyMode::Cached, CopyMode::String] {
                    memory.fill(0);
                    // SAFETY: both ranges lie in their vectors.
                    unsafe { copy_by(mode, from.as_ptr(), memory[start..].as_mut_ptr(), bytes) };
                    assert_eq!(memory[start..start + bytes], from[..bytes]);
                    assert!(memory[..start].iter().chain(&memory[start + bytes..]).all(|byte| *byte == 0));
                }
            }
        }
    }

    #[test]
    fn a_non_temporal_copy_is_a_copy_wherever_it_begins_and_ends() {
        let from: Vec<u8> = (0..1000u32).map(|at| (at * 7) as u8).collect();
        for (start, bytes) in [(0, 0), (0, 64), (0, 1000), (1, 63), (3, 20), (60, 900), (63, 66), (64, 640)] {
            let mut memory = vec![[0u8; 64]; 32];
            let to = memory.as_flattened_mut();
            let start = start + to.as_ptr().align_offset(64);
            // SAFETY: both ranges lie in their slices, which do not overlap.
            unsafe { copy_non_temporal(from.as_ptr(), to.as_mut_ptr().add(start), bytes) };
            assert_eq!(to[start..start + bytes], from[..bytes]);
            assert!(to[..start].iter().chain(&to[start + bytes..]).all(|byte| *byte == 0));
        }
    }
}
