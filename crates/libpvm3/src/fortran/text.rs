//! CHARACTER variables: a place and a length, filled up with blanks, without a zero at the end.
use std::ffi::{CString, c_char, c_int};
use std::slice;

/// The bytes of a CHARACTER argument. They end early at a zero, which C programs could not read
/// past.
///
/// # Safety
/// `start` is null or points to that many bytes, which do not change while they are looked at.
unsafe fn characters<'a>(start: *const c_char, length: c_int) -> &'a [u8] {
    let length = usize::try_from(length).unwrap_or(0);
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller.
    let all = unsafe { slice::from_raw_parts(start.cast::<u8>(), length) };
    all.iter().position(|&byte| byte == 0).map_or(all, |zero| &all[..zero])
}

/// Without the blanks that fill up a CHARACTER variable.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

/// A CHARACTER argument as the C functions want it, without the blanks at its end.
///
/// # Safety
/// As [`characters`].
pub unsafe fn c_text(start: *const c_char, length: c_int) -> CString {
    // SAFETY: as promised by the caller.
    without_zero(trimmed(unsafe { characters(start, length) }))
}

/// A CHARACTER argument as a C string in its full length.
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

/// Gives a text to a CHARACTER argument: cut to its length, filled up with blanks.
///
/// # Safety
/// `start` is null or has room for that many bytes.
pub unsafe fn give(start: *mut c_char, length: c_int, text: &[u8]) {
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

/// `ftocstr`: a CHARACTER variable as a C string; 1 when it does not fit, 0 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftocstr(to: *mut c_char, room: c_int, from: *const c_char, length: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let text = trimmed(unsafe { characters(from, length) });
    let fits = usize::try_from(room).is_ok_and(|room| text.len() < room);
    let kept = if fits { text } else { &[] };
    // SAFETY: room for the text and the zero, or, even where none was said to be, for the zero alone.
    unsafe {
        to.copy_from(kept.as_ptr().cast(), kept.len());
        to.add(kept.len()).write(0);
    }
    c_int::from(!fits)
}

/// `ctofstr`: a C string as a CHARACTER variable, cut where it is too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctofstr(to: *mut c_char, length: c_int, from: *const c_char) -> c_int {
    // SAFETY: a C string and room for `length` bytes, as promised by the caller.
    unsafe { give(to, length, crate::memory::bytes(from).unwrap_or_default()) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ftocstr` makes of a variable in that much room.
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
