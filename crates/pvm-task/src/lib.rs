//! One task of the parallel virtual machine: buffers, packing, matching, requests.
//!
//! [`Task`] is a plain value without locks and threads. Its methods do not block, except
//! [`Task::enroll`], which waits for the daemon's welcome. They call no code of the user. A caller that
//! has to wait calls [`Task::progress`] and tries again, paced by a [`Waiter`]; [`Session`] does this for
//! single-threaded programs.
#![forbid(unsafe_code)]

mod backlog;
mod buffers;
mod channel;
mod clock;
mod company;
mod control;
mod convert;
mod direct;
mod environment;
pub mod fabric;
mod fast_path;
mod fmp;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod groups;
mod handlers;
mod idleness;
mod in_transit;
mod introductions;
mod local_notify;
mod message;
mod options;
mod output;
mod pack;
mod posting;
mod queue;
mod receive;
mod requests;
mod send;
mod session;
mod sinks;
mod system;
mod target;
mod task;
#[cfg(test)]
mod test_daemon;
pub mod trace;
mod types;
mod unpack;
mod visibility;
mod wait;

pub use environment::{EnrollError, Environment};
pub use fast_path::FastSend;
pub use fmp::{FmpFound, FmpReceived, FmpSide};
pub use groups::{BarrierArrival, Collective, Group, GroupMember, GroupWait, InPlace};
pub use options::OptionNumber;
pub use output::{OutputEvent, OutputKind};
pub use session::{Received, Session};
pub use task::Task;
pub use types::{ANY, Delivered, Encoding, Filter, HandlerCall, Kind, MessageInfo, Source, Submit, Ticket};
pub use wait::{Sleep, Step, Waiter};
