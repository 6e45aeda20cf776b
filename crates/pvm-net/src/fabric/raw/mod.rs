//! The calls of libfabric: the only unsafe code of the fabric layer.
#![allow(unsafe_code)]

mod abi;
mod endpoint;
mod library;
mod memory;
mod objects;
#[cfg(test)]
mod tests;

pub use endpoint::{
    Counters, Endpoint, Event, Lender, LentRegionId, Peer, PlaceId, ReadError, ReadPart, RegionId, Remote, Room, Rooms,
    SendError, Slot, SourceLender, SpareBodies, Start, Waits,
};
pub use library::{Candidate, Library};
pub use memory::{Memory, MemoryError};
