//! CHARACTER variables: an address and a length, padded with blanks, without a closing zero.
use std::ffi::{CString, c_char, c_int};
use std::slice;

/// Returns the bytes of a CHARACTER argument; if they contain a zero, only those before it, since a C string ends
/// there.
///
/// # Safety
/// `start` is null or points to `length` bytes, which do not change while they are borrowed.
unsafe fn characters<'a>(start: *const c_char, length: c_int) -> &'a [u8] {
    let length = usize::try_from(length).unwrap_or(0);
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller.
    let all = unsafe { slice::from_raw_parts(start.cast::<u8>(), length) };
    all.iter().position(|&byte| byte == 0).map_or(all, |zero| &all[..zero])
}

/// Returns a CHARACTER variable without its padding.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

/// Returns a CHARACTER argument as a C string, without its padding.
///
/// # Safety
/// As [`characters`].
pub unsafe fn c_text(start: *const c_char, length: c_int) -> CString {
    // SAFETY: as promised by the caller.
    without_zero(trimmed(unsafe { characters(start, length) }))
}

/// Returns a CHARACTER argument as a C string, with its padding.
///
/// # Safety
/// As [`characters`].
pub unsafe fn c_text_with_blanks(start: *const c_char, length: c_int) -> CString {
    // SAFETY: as promised by the caller.
    without_zero(unsafe { characters(start, length) })
}

fn without_zero(text: &[u8]) -> CString {
    CString::new(text).expect("it ends before its first zero")
}

/// Stores a text in a CHARACTER argument; cuts it or pads it with blanks to the length of the argument.
///
/// # Safety
/// `start` is null or has room for `length` bytes.
pub unsafe fn store_text(start: *mut c_char, length: c_int, text: &[u8]) {
    let length = usize::try_from(length).unwrap_or(0);
    if start.is_null() {
        return;
    }
    for index in 0..length {
        let byte = text.get(index).copied().unwrap_or(b' ');
        // SAFETY: as promised by the caller.
        unsafe { start.add(index).write(byte as c_char) };
    }
}

/// `ftocstr`: converts a CHARACTER variable to a C string; returns 1 if it does not fit, otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftocstr(to: *mut c_char, room: c_int, from: *const c_char, length: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let text = trimmed(unsafe { characters(from, length) });
    let fits = usize::try_from(room).is_ok_and(|room| text.len() < room);
    let kept = if fits { text } else { &[] };
    // SAFETY: there is room for the text and the zero, or at least for the zero, even if `room` is 0.
    unsafe {
        to.copy_from(kept.as_ptr().cast(), kept.len());
        to.add(kept.len()).write(0);
    }
    c_int::from(!fits)
}

/// `ctofstr`: converts a C string to a CHARACTER variable; cuts it if it is too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctofstr(to: *mut c_char, length: c_int, from: *const c_char) -> c_int {
    // SAFETY: a C string and room for `length` bytes, as promised by the caller.
    unsafe { store_text(to, length, crate::memory::bytes(from).unwrap_or_default()) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of `ftocstr` for a buffer of `room` bytes, and the bytes written.
    fn to_c(room: usize, variable: &[u8]) -> (c_int, Vec<u8>) {
        let mut place = [b'#'; 16];
        // SAFETY: the variable is as long as said, the room is there.
        let code = unsafe {
            ftocstr(place.as_mut_ptr().cast(), room as c_int, variable.as_ptr().cast(), variable.len() as c_int)
        };
        (code, place[..place.iter().position(|&byte| byte == b'#').unwrap_or(16)].to_vec())
    }

    #[test]
    fn a_character_variable_loses_its_blanks_and_has_to_fit() {
        assert_eq!(to_c(8, b"abc   "), (0, b"abc\0".to_vec()));
        assert_eq!(to_c(4, b"abc   "), (0, b"abc\0".to_vec()));
        assert_eq!(to_c(3, b"abc   "), (1, b"\0".to_vec()));
        assert_eq!(to_c(8, b" ab "), (0, b" ab\0".to_vec()));
        assert_eq!(to_c(1, b"   "), (0, b"\0".to_vec()));
        assert_eq!(to_c(0, b"   "), (1, b"\0".to_vec()));
        assert_eq!(to_c(8, b"ab\0cd"), (0, b"ab\0".to_vec()));
    }

    #[test]
    fn a_c_string_is_cut_or_filled_up_with_blanks() {
        for (length, expected) in
            [(8, b"abc     ####"), (3, b"abc#########"), (2, b"ab##########"), (0, b"############")]
        {
            let mut place = [b'#'; 12];
            // SAFETY: a C string, and the room is there.
            assert_eq!(unsafe { ctofstr(place.as_mut_ptr().cast(), length, c"abc".as_ptr()) }, 0);
            assert_eq!(&place, expected);
        }
    }
}
