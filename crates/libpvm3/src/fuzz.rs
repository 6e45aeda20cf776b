//! Fuzz target: the formats of `pvm_packf` and `pvm_unpackf` (docs/testing.md).
//!
//! A format determines which arguments a call must have. So the target itself reads the format, by the rules of the
//! manual page, and makes those arguments. The library must read the format in the same way.
//!
//! The target makes argument lists without a C compiler. For that it must know the layout of `va_list`, so it works on
//! x86-64 only.
use crate::buffers::{pvm_freebuf, pvm_getsbuf, pvm_initsend, pvm_setrbuf};
use crate::data::pvmautoerr;
use pvm_core::codes::{Code, DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW};
use pvm_fuzz::{Target, Unstructured, file, part};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// The decoders of this crate.
pub const TARGETS: &[Target] = &[Target {
    name: "packf-formats",
    run: packf_formats,
    decoder: &[
        file("crates/libpvm3/shim/format.c"),
        part(
            "crates/libpvm3/src/pack.rs",
            &[
                "checked_count",
                "pack",
                "unpack",
                "pack_strided",
                "unpack_strided",
                "gather",
                "scatter",
                "unpack_string",
                "hpvm_shim_pack",
                "hpvm_shim_unpack",
                "hpvm_shim_pack_string",
                "hpvm_shim_unpack_string",
            ],
        ),
    ],
}];

/// The address that is passed for an array lies in the middle of memory: this number of bytes lies before it, and the
/// same number after it, because strides may be negative.
const ROOM_BYTES: i64 = 4096;
/// The most items of one format.
const ITEMS_MAX: usize = 16;
/// The room for an unpacked string, in bytes: more than the longest string that a message of [`ITEMS_MAX`] items can
/// contain.
const STRING_BYTES: usize = ITEMS_MAX * 4 * ROOM_BYTES as usize;
/// The string that is packed.
const TEXT: &[u8] = b"a string\0";

/// `va_list` of the System V ABI for x86-64. When all registers are marked as used, each argument of at most eight
/// bytes, floats included, takes the next eight bytes of `overflow`.
#[repr(C)]
struct List {
    integers: u32,
    floats: u32,
    overflow: *const u64,
    registers: *const c_void,
}

/// The most arguments after the format in a variadic call.
const ARGUMENTS_MAX: usize = 24;
/// The most `*` arguments of one item: its count and its stride.
const STARS_MAX: usize = 2;

unsafe extern "C" {
    fn pvm_packf(format: *const c_char, ...) -> c_int;
    fn pvm_unpackf(format: *const c_char, ...) -> c_int;
    fn pvm_vpackf(format: *const c_char, list: *mut List) -> c_int;
    fn pvm_vunpackf(format: *const c_char, list: *mut List) -> c_int;
}

/// An item of a format, with its arguments.
struct Item {
    letter: u8,
    bytes: i64,
    count: i64,
    stride: i64,
    by_value: bool,
    /// The number that is passed for each `*`.
    stars: Vec<u64>,
    /// Whether the pointer that is passed for the item is null.
    is_null: bool,
}

impl Item {
    /// Returns whether all elements of the item lie in the memory of an argument.
    fn fits(&self) -> bool {
        let last = (self.count - 1).max(0).saturating_mul(self.stride).saturating_mul(self.bytes);
        self.count.saturating_mul(self.bytes) <= ROOM_BYTES && last.abs() <= ROOM_BYTES - self.bytes
    }

    /// Returns the offset of each element in the memory of the argument.
    fn places(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|index| (ROOM_BYTES + index * self.stride * self.bytes) as usize)
    }

    /// Returns whether the item's argument is passed in a register for floats.
    fn is_float(&self) -> bool {
        self.by_value && self.letter == b'f'
    }

    /// Returns whether the library must refuse the item.
    fn is_refused(&self) -> bool {
        self.is_null && !self.by_value && (self.letter == b's' || self.count > 0)
    }

    /// Returns the argument of an item that is passed by value, and the bytes that the library must pack for it.
    fn value(&self, place: usize) -> (u64, Vec<u8>) {
        let value = 1000 * place as i64 - 77;
        match (self.letter, self.bytes) {
            (b'f', 4) => ((value as f64).to_bits(), (value as f32).to_ne_bytes().into()),
            (b'f', _) => ((value as f64).to_bits(), (value as f64).to_ne_bytes().into()),
            (_, bytes) => (value as u64, value.to_ne_bytes()[..bytes as usize].into()),
        }
    }
}

/// A format, as the target has read it.
struct Reading {
    items: Vec<Item>,
    /// The code that the library must return.
    code: c_int,
}

/// Reads a format. Returns `None` if an argument needs more memory than [`ROOM_BYTES`] allow, or if there are too many
/// items.
fn read(mut rest: &[u8], from: &mut Unstructured<'_>) -> Option<Reading> {
    let mut reading = Reading { items: Vec::new(), code: 0 };
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let Some((item, after)) = read_item(&rest[at + 1..], from) else {
            reading.code = Code::BadParam.number();
            break;
        };
        if !item.fits() || reading.items.len() == ITEMS_MAX {
            return None;
        }
        rest = after;
        let refused = item.is_refused();
        reading.items.push(item);
        if refused {
            reading.code = Code::BadParam.number();
            break;
        }
    }
    Some(reading)
}

fn read_item<'a>(rest: &'a [u8], from: &mut Unstructured<'_>) -> Option<(Item, &'a [u8])> {
    let mut stars = Vec::new();
    let (count, rest) = match rest.first() {
        Some(byte) if *byte == b'*' || byte.is_ascii_digit() => {
            let (number, rest) = read_number(rest, from, &mut stars);
            (Some(number), rest)
        }
        _ => (None, rest),
    };
    let (stride, rest) = match rest.strip_prefix(b".") {
        Some(rest) => {
            let (number, rest) = read_number(rest, from, &mut stars);
            (Some(number), rest)
        }
        None => (None, rest),
    };
    let end = rest.iter().position(|byte| !b"hlu".contains(byte)).unwrap_or(rest.len());
    let (marks, rest) = rest.split_at(end);
    let (&letter, rest) = rest.split_first()?;
    let bytes = match (letter, marks.contains(&b'l'), marks.contains(&b'h')) {
        (b'c' | b's', ..) => 1,
        (b'd', false, true) => 2,
        (b'd' | b'f', false, _) => 4,
        (b'd' | b'f', true, _) | (b'x', false, _) => 8,
        (b'x', true, _) => 16,
        _ => return None,
    };
    let by_value = count.is_none() && stride.is_none() && b"cdf".contains(&letter);
    let is_null = from.arbitrary::<u8>().unwrap_or(0) == u8::MAX;
    let (count, stride) = if letter == b's' { (1, 1) } else { (count.unwrap_or(1).max(0), stride.unwrap_or(1)) };
    Some((Item { letter, bytes, count, stride, by_value, stars, is_null }, rest))
}

/// Reads the digits of a number; for a `*`, takes a number from the fuzz input and notes it as an argument.
fn read_number<'a>(rest: &'a [u8], from: &mut Unstructured<'_>, stars: &mut Vec<u64>) -> (i64, &'a [u8]) {
    if let Some(rest) = rest.strip_prefix(b"*") {
        let number = i64::from(from.arbitrary::<i8>().unwrap_or(0));
        stars.push(number as u64);
        return (number, rest);
    }
    let end = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    let more = |value: i64, digit: &u8| (10 * value + i64::from(digit - b'0')).min(c_int::MAX.into());
    (digits.iter().fold(0, more), rest)
}

/// The input: a format for packing, a zero byte, a format for unpacking (if empty, the first format), a zero byte, and
/// the bytes from which numbers are taken.
fn packf_formats(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (packs, unpacks, from) = (part(), part(), &mut Unstructured::new(part()));
    pvmautoerr.store(0, Relaxed);
    if packs.is_empty() {
        // SAFETY: a null format must be refused.
        let codes = unsafe { [pvm_packf(std::ptr::null()), pvm_unpackf(std::ptr::null())] };
        assert_eq!(codes, [Code::BadParam.number(); 2]);
    }
    let encodings = [DATA_DEFAULT, DATA_RAW, DATA_IN_PLACE, -1];
    let encoding = encodings[usize::from(from.arbitrary::<u8>().unwrap_or(0)) % encodings.len()];
    let begins = packs.starts_with(b"%+");
    let same = if begins { &packs[2..] } else { packs };
    let Some(packed) = read(same, from) else { return };
    let unpacked = if unpacks.is_empty() { None } else { Some(read(unpacks, from)) };
    assert!(pvm_initsend(if begins || encoding < 0 { DATA_DEFAULT } else { encoding }) > 0);
    let in_place = encoding == DATA_IN_PLACE;
    pack(packs, begins.then_some(encoding), in_place, &packed);
    if in_place || (begins && encoding < 0) {
        // The memory that `pack` packed in place is freed by now; a new send buffer drops the references to it.
        assert!(pvm_initsend(DATA_DEFAULT) > 0);
        return;
    }
    let mid = pvm_getsbuf();
    assert!(pvm_setrbuf(mid) >= 0);
    match unpacked {
        None => unpack(same, &packed, true),
        Some(Some(reading)) => unpack(unpacks, &reading, false),
        Some(None) => {}
    }
    assert_eq!(pvm_freebuf(mid), 0);
}

/// Returns the contents of an array argument for packing.
fn content(place: usize) -> Vec<u8> {
    (0..2 * ROOM_BYTES).map(|at| (at % 251) as u8 ^ place as u8).collect()
}

fn pack(format: &[u8], encoding: Option<c_int>, in_place: bool, reading: &Reading) {
    let mut slots: Vec<u64> = encoding.iter().map(|encoding| i64::from(*encoding) as u64).collect();
    let rooms: Vec<Vec<u8>> = (0..reading.items.len()).map(content).collect();
    for (place, item) in reading.items.iter().enumerate() {
        slots.extend(&item.stars);
        slots.push(match item.letter {
            _ if item.by_value => item.value(place).0,
            _ if item.is_null => 0,
            b's' => TEXT.as_ptr() as u64,
            _ => rooms[place].as_ptr() as u64 + ROOM_BYTES as u64,
        });
    }
    // SAFETY: the slots hold an argument of the right kind for each item.
    let code = unsafe { call(true, format, &mut slots, reading.items.iter().any(Item::is_float)) };
    if encoding.is_some_and(|encoding| encoding < 0) {
        assert!(code < 0);
        return;
    }
    // In-place packing refuses more formats.
    assert!(code == reading.code || (in_place && code == Code::NotImpl.number()), "{code}");
}

/// Unpacks. `same` means that the message was packed with this format; if so, the unpacked data must equal the packed
/// data.
fn unpack(format: &[u8], reading: &Reading, same: bool) {
    let mut slots = Vec::new();
    let bytes = |item: &Item| if item.letter == b's' { STRING_BYTES } else { 2 * ROOM_BYTES as usize };
    let mut rooms: Vec<Vec<u8>> = reading.items.iter().map(|item| vec![0; bytes(item)]).collect();
    for (item, room) in reading.items.iter().zip(&mut rooms) {
        let start = if item.letter == b's' { 0 } else { ROOM_BYTES as u64 };
        slots.extend(&item.stars);
        slots.push(if item.is_null && !item.by_value { 0 } else { room.as_mut_ptr() as u64 + start });
    }
    // SAFETY: the slots hold a pointer to enough room for each item.
    let code = unsafe { call(false, format, &mut slots, false) };
    if !same {
        return;
    }
    assert_eq!(code, reading.code);
    for (place, (item, room)) in
        reading.items.iter().zip(&rooms).enumerate().filter(|(_, (item, _))| !item.is_refused())
    {
        let (first, content) = (ROOM_BYTES as usize, content(place));
        match item.letter {
            _ if item.by_value => assert_eq!(room[first..first + item.bytes as usize], item.value(place).1),
            b's' => assert_eq!(room[..TEXT.len()], *TEXT),
            _ => item.places().for_each(|at| {
                let item = at..at + item.bytes as usize;
                assert_eq!(room[item.clone()], content[item]);
            }),
        }
    }
}

/// Calls the library with these arguments and some spare zeros: as a variadic function, or with a `va_list`.
///
/// # Safety
/// The arguments are those that the format requires. If a float is among them, `floats` is set.
unsafe fn call(packs: bool, format: &[u8], slots: &mut Vec<u64>, floats: bool) -> c_int {
    // At an invalid item, the library stops after it has read that item's `*` arguments, which are not in `slots`.
    slots.extend([0; STARS_MAX + 1]);
    let format = CString::new(format).expect("zero bytes end it");
    if floats || slots.len() > ARGUMENTS_MAX {
        let mut list = List { integers: 48, floats: 176, overflow: slots.as_ptr(), registers: std::ptr::null() };
        let function = if packs { pvm_vpackf } else { pvm_vunpackf };
        // SAFETY: a string, and a list whose registers are used up; the slots are the caller's promise.
        return unsafe { function(format.as_ptr(), &raw mut list) };
    }
    slots.resize(ARGUMENTS_MAX, 0);
    let (f, s) = (format.as_ptr(), slots.as_slice());
    macro_rules! with_all {
        ($function:ident) => {
            $function(
                f, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14],
                s[15], s[16], s[17], s[18], s[19], s[20], s[21], s[22], s[23],
            )
        };
    }
    // SAFETY: a string and more arguments than it requires, all of them integers or pointers.
    unsafe { if packs { with_all!(pvm_packf) } else { with_all!(pvm_unpackf) } }
}

#[cfg(test)]
mod tests {
    #[test]
    fn inputs_that_fuzzing_has_found_do_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
