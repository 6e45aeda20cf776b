//! Tests the operators for each type, on whole arrays and on pieces of them.
use super::*;

const OPERATORS: [Combine; 4] = [PvmMax, PvmMin, PvmSum, PvmProduct];
/// The numbers of the data types, from bytes to unsigned longs, and one number that is no data type.
const TYPES: std::ops::Range<c_int> = 1..13;
const COUNT: usize = 1001;

/// Returns small numbers of a type, with one byte before them, so that they are not aligned.
fn numbers(data_type: c_int, seed: usize) -> Vec<u8> {
    let value = |at: usize| (at * 7 + seed) % 23;
    let bytes = |at: usize| -> Vec<u8> {
        let value = value(at);
        match data_type {
            1 => vec![value as u8],
            2 => (value as i16 - 9).to_ne_bytes().to_vec(),
            3 => (value as i32 - 9).to_ne_bytes().to_vec(),
            4 => (value as f32 - 9.5).to_ne_bytes().to_vec(),
            5 => [value as f32 - 9.5, at as f32].map(f32::to_ne_bytes).concat(),
            6 => (value as f64 - 9.5).to_ne_bytes().to_vec(),
            7 => [value as f64 - 9.5, at as f64].map(f64::to_ne_bytes).concat(),
            _ => (value as i64 - 9).to_ne_bytes().to_vec(),
        }
    };
    std::iter::once(0).chain((0..COUNT).flat_map(bytes)).collect()
}

/// Copies bytes to memory that is aligned for all types.
fn aligned(bytes: &[u8]) -> Vec<u128> {
    let mut memory = vec![0u128; bytes.len().div_ceil(size_of::<u128>())];
    // SAFETY: the memory has that size.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.as_mut_ptr().cast(), bytes.len()) };
    memory
}

/// Calls an operator as `pvm_reduce` calls a user's function.
fn called(function: Combine, data_type: c_int, x: &[u8], y: &[u8]) -> Result<Vec<u128>, c_int> {
    let (mut x, mut y) = (aligned(x), aligned(y));
    let (count, mut info) = (COUNT as c_int, 1);
    // SAFETY: both arrays hold that number of items.
    unsafe { function(&data_type, x.as_mut_ptr().cast(), y.as_mut_ptr().cast(), &count, &mut info) };
    if info < 0 { Err(info) } else { Ok(x) }
}

#[test]
fn pieces_have_the_result_of_the_whole() {
    for (function, data_type) in OPERATORS.into_iter().flat_map(|function| TYPES.map(move |number| (function, number)))
    {
        let (x, y) = (numbers(data_type, 3), numbers(data_type, 8));
        let whole = called(function, data_type, &x[1..], &y[1..]);
        let Some(combine) = combiner(function, data_type) else {
            assert_eq!(whole, Err(Code::BadParam.number()), "type {data_type}");
            continue;
        };
        let item = (x.len() - 1) / COUNT;
        let mut result = aligned(&x[1..]);
        for (at, piece) in y[1..].chunks(192).enumerate() {
            let into = result.as_mut_ptr().cast::<u8>().wrapping_add(at * 192);
            // SAFETY: both arrays hold that number of items, those of `y` at odd addresses.
            unsafe { combine(into.cast(), piece.as_ptr().cast(), piece.len() / item) };
        }
        assert_eq!(whole, Ok(result), "type {data_type}");
    }
}

#[test]
fn only_two_operators_take_bytes_as_numbers() {
    assert_eq!(OPERATORS.map(|operator| combiner(operator, 1).is_some()), [true, true, false, false]);
    assert_eq!(OPERATORS.map(|operator| combiner(operator, 6).is_some()), [true; 4]);
}

#[test]
fn a_function_of_the_user_is_no_operator_of_the_library() {
    unsafe extern "C" fn theirs(_: *const c_int, _: *mut c_void, _: *mut c_void, _: *const c_int, _: *mut c_int) {}
    assert!(combiner(theirs, 6).is_none());
}
