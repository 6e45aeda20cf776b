//! The daemon.
#![forbid(unsafe_code)]
fn main() {}
