//! Copies to and from shared memory.

/// The longest piece that the C library copies by vector instructions, in bytes. For more it takes
/// the processor's string instructions, which read what another core has just written at half the
/// speed.
const PIECE_BYTES: usize = 4 << 10;

/// Copies bytes.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`]; the bytes at `from` may change meanwhile.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(PIECE_BYTES);
        // SAFETY: a part of the ranges for which the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), count) };
        done += count;
    }
}
