//! A program with deliberate errors that the sanitizers must find: `planted none|use-after-free|race`.
use std::cell::UnsafeCell;
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::thread::scope;

/// How many times each thread increments the counter.
const ROUNDS: u32 = 1000;

struct Shared(UnsafeCell<u32>);

// SAFETY: it is deliberately unsound.
unsafe impl Sync for Shared {}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("none") => nothing_wrong(),
        Some("use-after-free") => planted_use_after_free(),
        Some("race") => planted_race(),
        _ => panic!("planted none|use-after-free|race"),
    }
}

/// Synchronizes threads in each way of Rust's standard library that the tests use.
fn nothing_wrong() {
    let count = Mutex::new(Box::new(0));
    let (sender, receiver) = channel::<Box<u32>>();
    scope(|scope| {
        for number in 0..4 {
            let (sender, count) = (sender.clone(), &count);
            scope.spawn(move || {
                (0..ROUNDS).for_each(|_| **count.lock().unwrap() += 1);
                sender.send(Box::new(number)).unwrap();
            });
        }
    });
    drop(sender);
    assert_eq!(receiver.iter().map(|number| *number).sum::<u32>(), 6);
    assert_eq!(**count.lock().unwrap(), 4 * ROUNDS);
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

#[inline(never)]
fn planted_race() {
    let shared = Shared(UnsafeCell::new(0));
    // Both threads start at this barrier; otherwise one of them could end before the other begins.
    let both = Barrier::new(2);
    let (shared, both) = (&shared, &both);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                both.wait();
                // SAFETY: it is not sound: both threads write without an order.
                (0..ROUNDS).for_each(|_| unsafe { *shared.0.get() += 1 });
            });
        }
    });
}
