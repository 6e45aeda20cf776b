//! The calls of libfabric: the only unsafe code of the fabric layer.
#![allow(unsafe_code)]

mod abi;
#[cfg(test)]
mod abi_tests;
mod endpoint;
#[cfg(test)]
mod endpoint_tests;
#[cfg(test)]
mod feigned;
mod library;
mod memory;
mod objects;

pub use endpoint::{Counters, Endpoint, Event, Peer, ReadError, RegionId, Remote, SendError, Slot, Waits};
pub use library::{Candidate, Library};
pub use memory::{Memory, MemoryError};
