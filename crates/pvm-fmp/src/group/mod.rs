//! The shared memory of a group: who its members are, and its barrier.
//!
//! The daemon makes two memfds a group. The **list** of members is written by the daemon alone;
//! everybody who asks for the group maps it read-only. The **board** holds the barrier, and all
//! members write there: see `barrier` for why a death at any instruction leaves it whole.

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
