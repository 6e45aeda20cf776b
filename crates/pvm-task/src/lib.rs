//! One task of the parallel virtual machine: buffers, packing, matching, requests.
//!
//! [`Task`] is a plain value without locks and threads. Its methods do not block, except
//! [`Task::enroll`], which waits for the daemon's welcome. They call no code of the user. A caller that
//! has to wait calls [`Task::progress`] and tries again, paced by a [`Waiter`]; [`Session`] does this for
//! single-threaded programs.
//!
//! A task has three layers, lowest first: `state` (what needs no machine), `member` (the membership of the machine), `task`
//! (what a program calls). A layer uses only the layers below it, and the other modules. Of the other modules, only `session`
//! uses a layer.
#![forbid(unsafe_code)]

mod clock;
mod direct;
mod envelope;
mod environment;
pub mod fabric;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod groups;
mod introductions;
mod member;
mod message;
mod options;
mod output;
mod requests;
mod session;
mod state;
mod store;
mod target;
mod task;
#[cfg(test)]
mod test_daemon;
pub mod trace;
mod types;

pub use environment::{EnrollError, Environment};
pub use groups::{Group, GroupWait, InPlace};
pub use member::Sleep;
pub use options::OptionNumber;
pub use output::{OutputEvent, OutputKind};
pub use session::{Received, Requests, Session};
pub use task::{
    BarrierArrival, Collective, FastSend, FmpFound, FmpReceived, FmpSide, GroupMember, Step, Task, Waiter, call_of,
};
pub use types::{ANY, Delivered, Encoding, Filter, HandlerCall, Kind, MessageInfo, Source, Submit, Ticket};
