//! An error for a sanitizer to find: `planted none|use-after-free`.

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("none") => nothing_wrong(),
        Some("use-after-free") => planted_use_after_free(),
        _ => panic!("planted none|use-after-free"),
    }
}

fn nothing_wrong() {
    let numbers: Vec<Box<u32>> = (0..1000).map(Box::new).collect();
    assert_eq!(numbers.iter().map(|number| **number).sum::<u32>(), 499_500);
}

#[inline(never)]
fn planted_use_after_free() {
    let number = Box::into_raw(Box::new(1));
    // SAFETY: the first two lines are sound, the third is not.
    unsafe {
        *number += 1;
        drop(Box::from_raw(number));
        println!("{}", number.read_volatile());
    }
}
