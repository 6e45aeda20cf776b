//! How much of its stack a thread has left.
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

thread_local! {
    /// The lowest address of this thread's stack, and its length in bytes; 0 if unknown.
    static STACK: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// Returns whether at least `bytes` bytes of the stack are left. Returns `false` if that is not known, as on the stack of a
/// coroutine or of a signal handler.
pub fn has_stack(bytes: usize) -> bool {
    let here = stack_pointer();
    let (start, length) = STACK.get().unwrap_or_else(|| {
        let stack = own_stack().unwrap_or_default();
        STACK.set(Some(stack));
        stack
    });
    here.checked_sub(start).is_some_and(|left| left >= bytes && left <= length)
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer() -> usize {
    // Not the address of a variable: a sanitizer may keep variables elsewhere.
    let here: usize;
    // SAFETY: only reads a register.
    unsafe { std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    here
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
fn stack_pointer() -> usize {
    let local = 0u8;
    std::hint::black_box(&raw const local).addr()
}

fn own_stack() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: fills the attributes of this thread, if it returns 0.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut start, mut length) = (null_mut(), 0);
    // SAFETY: filled just now.
    let result = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut length) };
    // SAFETY: filled, and not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (result == 0).then_some((start.addr(), length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::Builder;

    #[test]
    fn a_thread_knows_what_is_left_of_its_stack() {
        let left = |bytes: usize| {
            let thread = Builder::new().stack_size(256 << 10).spawn(move || has_stack(bytes));
            thread.unwrap().join().unwrap()
        };
        assert_eq!([64 << 10, 200 << 10, 300 << 10].map(left), [true, true, false]);
    }
}
