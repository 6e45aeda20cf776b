//! The tools.
#![forbid(unsafe_code)]
fn main() {}
