//! The atomics of this crate: the standard ones, or loom's when its model checker runs.
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// Loads of words in memory that is mapped for reading only, as all memory of peers is.
///
/// In such memory Rust guarantees only relaxed loads of at most the size of a pointer: an ordered load, or a 64-bit
/// load on a 32-bit processor, may be an instruction that writes. An acquire fence after a relaxed load orders as much
/// as an acquire load, and costs nothing on x86.
pub(crate) trait ReadOnlyLoad {
    type Value;
    /// Returns the value; orders nothing.
    fn load_relaxed(&self) -> Self::Value;
    /// Returns the value; later accesses see everything that was written before that value was stored with release.
    fn load_acquire(&self) -> Self::Value;
}

/// Defines [`ReadOnlyLoad::load_acquire`].
macro_rules! load_acquire {
    () => {
        #[inline(always)]
        fn load_acquire(&self) -> Self::Value {
            // ThreadSanitizer does not know fences. Builds for it set `one_mapping`: peers then use the owner's
            // mapping, which is writable, so an ordered load is possible.
            if cfg!(one_mapping) {
                return self.load(Ordering::Acquire);
            }
            let value = self.load_relaxed();
            fence(Ordering::Acquire);
            value
        }
    };
}

impl ReadOnlyLoad for AtomicU32 {
    type Value = u32;
    #[inline(always)]
    fn load_relaxed(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
    load_acquire!();
}

impl ReadOnlyLoad for AtomicU64 {
    type Value = u64;
    #[inline(always)]
    fn load_relaxed(&self) -> u64 {
        #[cfg(all(target_arch = "x86", not(loom)))]
        return load_by_floating_point_unit(self);
        #[cfg(not(all(target_arch = "x86", not(loom))))]
        self.load(Ordering::Relaxed)
    }
    load_acquire!();
}

/// Returns the value, as i386 hosts load it: in one access, which does not write. (The tests of x86-64 try it too.)
#[cfg(any(all(target_arch = "x86", not(loom)), all(test, target_arch = "x86_64", not(loom))))]
#[inline(always)]
fn load_by_floating_point_unit(word: &AtomicU64) -> u64 {
    let mut value = 0u64;
    // SAFETY: loads 8 aligned bytes, which the processor does in one access (since the Pentium), and stores them to
    // the stack; a number of 80 bits holds all 64. The registers are left as empty as they were.
    unsafe {
        std::arch::asm!(
            "fild qword ptr [{from}]",
            "fistp qword ptr [{to}]",
            from = in(reg) word.as_ptr(),
            to = in(reg) &raw mut value,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack, preserves_flags),
        );
    }
    value
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{file, mapping};
    use rustix::mm::ProtFlags;
    use std::os::fd::AsFd;

    /// Checks that loads through a read-only mapping see no torn word, while both halves of the word change together.
    fn loads_no_torn_word(load: fn(&AtomicU64) -> u64) {
        const LOADS: usize = 1_000_000;
        let memory = file::make("hpvm-test", 4096).unwrap();
        let map = |rights| mapping::map(memory.as_fd(), 0, 4096, rights).unwrap();
        let (written, read) = (map(ProtFlags::READ | ProtFlags::WRITE), map(ProtFlags::READ));
        // SAFETY: both are mapped, aligned, and live until they are unmapped below.
        let (word, seen) = unsafe { (written.cast::<AtomicU64>().as_ref(), read.cast::<AtomicU64>().as_ref()) };
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..u32::MAX).map(|number| u64::from(number.wrapping_mul(0x9e37_79b9))) {
                    word.store(number << 32 | number, Ordering::Relaxed);
                    if done.load(Ordering::Relaxed) != 0 {
                        break;
                    }
                }
            });
            let torn = (0..LOADS).map(|_| load(seen)).find(|value| value >> 32 != value & 0xffff_ffff);
            done.store(1, Ordering::Relaxed);
            assert_eq!(torn, None);
        });
        // SAFETY: made above, and no reference is used any more.
        unsafe {
            mapping::unmap(written, 4096);
            mapping::unmap(read, 4096);
        }
    }

    #[test]
    fn no_torn_word_is_loaded_from_memory_that_can_only_be_read() {
        loads_no_torn_word(AtomicU64::load_relaxed);
        loads_no_torn_word(AtomicU64::load_acquire);
    }

    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    #[test]
    fn a_host_of_i386_loads_no_torn_word() {
        loads_no_torn_word(load_by_floating_point_unit);
        for value in [0, 1, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, i64::MAX as u64, 0x0123_4567_89ab_cdef] {
            assert_eq!(load_by_floating_point_unit(&AtomicU64::new(value)), value);
        }
    }
}
