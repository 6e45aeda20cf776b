//! FMP, Fast Message Passing: the layer below PVM in the papers (`docs/papers.md`), here for messages inside a host
//! through shared memory.
//!
//! Every task owns one segment, a memfd that grows. Only the task writes there; its peers map the segment read-only. A
//! segment has a header, a record for each peer, queues, and a heap. Groups have memory of their own: a list of members
//! and a barrier. See `ARCHITECTURE.md`. This crate moves bytes and a few opaque words; it never learns what a tag is.
//!
//! An [`Endpoint`] is one task's side. It sends to connected peers, and passes the messages that arrive to a [`Sink`].
//! Programs use this layer through `libfmp` (`docs/fmp.md`), which adds tags, matching, waiting, and messages between
//! hosts. In the example, one process plays the daemon and both tasks:
//!
//! ```
//! use pvm_fmp::ports::{PortTable, PortView};
//! use pvm_fmp::{Arrival, Endpoint, Meta, Sent, Sink};
//!
//! #[derive(Default)]
//! struct Received(Vec<(u32, Meta, Vec<u8>)>);
//!
//! impl Sink for Received {
//!     fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
//!         let mut bytes = Vec::new();
//!         match body {
//!             Arrival::Inline(inline) => {
//!                 bytes.resize(inline.len(), 0);
//!                 inline.copy_to(&mut bytes);
//!             }
//!             Arrival::Remote(remote) => remote.append_to(&mut bytes),
//!             // Only a receiver that has posted a receive gets a body in transit.
//!             Arrival::InTransit(_) => return,
//!         }
//!         self.0.push((from, meta, bytes));
//!     }
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! // The daemon's part: the table of the tasks of this host, and the introduction of the two tasks.
//! const TASKS: [u32; 2] = [0x40001, 0x40002];
//! let table = PortTable::new(2)?;
//! TASKS.map(|tid| table.set(tid));
//! let (mut one, mut other) = (Endpoint::new()?, Endpoint::new()?);
//! for (endpoint, tid) in [(&mut one, TASKS[0]), (&mut other, TASKS[1])] {
//!     endpoint.enrolled(tid, PortView::new(table.descriptor().try_clone_to_owned()?)?);
//! }
//! let ([segment_of_one, bell_of_one], [segment, bell]) = (one.descriptors()?, other.descriptors()?);
//! one.connect(TASKS[1], segment, bell)?;
//! other.connect(TASKS[0], segment_of_one, bell_of_one)?;
//!
//! // A short message travels in the queue, a long one in the heap of its sender.
//! for body in [&b"short"[..], &[7; 100_000]] {
//!     let sent = one.send_bytes(TASKS[1], [1, 2, 3, 4, 5, 0], body);
//!     assert_eq!(sent, Ok(Sent::Done));
//! }
//! let mut received = Received::default();
//! while received.0.len() < 2 {
//!     other.poll(&mut received);
//! }
//! assert_eq!(received.0[0], (TASKS[0], [1, 2, 3, 4, 5, 0], b"short".to_vec()));
//! assert_eq!(received.0[1].2, [7; 100_000]);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(loom, allow(dead_code))] // loom's models use only parts of the modules

mod clock;
mod group;
mod immediate;
mod message;
mod multicasts;
mod parker;
mod pipelined;
mod queue;
mod rendezvous;
mod slots;
pub mod state_line;
#[cfg(not(loom))]
pub mod state_reading;
mod stream;
mod sync;

#[cfg(not(loom))]
mod arrival;
#[cfg(not(loom))]
mod control_group;
#[cfg(not(loom))]
mod copies_in;
mod copy;
#[cfg(not(loom))]
mod copy_policy;
#[cfg(not(loom))]
mod cross_memory;
#[cfg(not(loom))]
#[cfg(not(loom))]
pub mod doorbell;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod extents;
#[cfg(not(loom))]
mod file;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;
#[cfg(not(loom))]
mod gather;
#[cfg(not(loom))]
mod heap;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod not_taken;
#[cfg(not(loom))]
mod outstanding;
#[cfg(not(loom))]
mod owner;
#[cfg(not(loom))]
mod packed_cell;
#[cfg(not(loom))]
mod pair_memory;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
pub mod ports;
#[cfg(not(loom))]
mod preallocated;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod process_start;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod segment_layout;
#[cfg(not(loom))]
mod signals;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
mod streamed_body;
#[cfg(not(loom))]
pub mod traffic;
mod two_sided_copy;
#[cfg(not(loom))]
mod wait_policy;
#[cfg(not(loom))]
mod way_policy;
#[cfg(not(loom))]
mod ways;

#[cfg(all(test, not(loom), not(one_mapping)))]
mod limits_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use {
    arrival::{Arrival, BodyInTransit, Inline, Sink},
    copy::{copied_bytes, count_copy, touch_pages},
    endpoint::{Company, Endpoint, RecentImmediate, RecentMessage, SharedBody},
    file::{bytes_max as file_bytes_max, make as make_file, seal as seal_file},
    gather::GatherList,
    group::{
        Arrival as BarrierArrival, Failed, GroupMemory, GroupView, Look, MEMBERS_MAX, Pending, Refused, TakenArrivals,
    },
    heap::{Block, Lent},
    memory::{can_have, release_free},
    not_taken::NotTaken,
    packed_cell::PackedCell,
    preallocated::PreallocatedEndpoint,
    process::{Addressee, ChildEnd, end_of_child, send_signal},
    random::random_bytes,
    remote::Remote,
    stack::has_stack,
    wait_policy::{Spinner, Waits},
    ways::last_way,
};

pub use immediate::{IMMEDIATE_BYTES, Immediate};
pub use message::{BODY_BYTES_MAX, FAR, INLINE_BYTES_MAX, Meta, NoMemory, Posted, SendError, Sent};
pub use queue::WELL_KNOWN_HEADERS;
pub use slots::{SLOTS, is_daemon};
