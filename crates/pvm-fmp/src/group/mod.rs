//! The shared memory of a group: its members and its barrier.
//!
//! The daemon makes two memfds for each group. It alone writes the **membership page**; every task that asks for the
//! group maps that page read-only. The **barrier page** holds the barrier, and all members write there. The barrier
//! stays consistent even if a member dies at any instruction: see `barrier`.

mod barrier;

#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod memory;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod view;

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(not(loom))]
pub use {
    barrier::{Arrival, Failed, Pending, Refused},
    layout::MEMBERS_MAX,
    memory::{GroupMemory, Look, TakenArrivals},
    view::GroupView,
};
