//! The rules of the parallel virtual machine, without I/O, clock, threads or unsafe code.
//!
//! * [`codes`]: PVM's numbers: error codes, flags, options, reserved tags.
//! * [`tid`]: task identifiers.
//! * [`proto`]: the protocol between a task and its daemon on the control socket.
//! * [`encoding`]: the bodies of messages that a daemon makes itself.
//! * [`events`]: the trace events; [`trace`]: the format of trace messages.
//! * [`mod@format`]: how hosts represent numbers.
//! * [`flows`]: messages between hosts on the default route.
//! * [`session`]: frames on the control link of two daemons, over several connections.
//! * [`channel`]: the routes between two tasks of different hosts.
//! * [`state_line`]: what a task says of itself in shared memory; [`host_look`]: what a daemon sees of its tasks.
//! * [`jobs`]: which tasks were started together.
//! * [`waiting`]: who waits for whom, and why nothing comes.
//! * [`hostfile`]: the file that lists the hosts of a machine; [`ranges`]: lists such as `n[1-4]`.
//! * [`fabric`]: links between tasks on a fabric.
//! * [`datagram_error`]: why a datagram to all hosts is not used.
//! * [`dialogue`]: the dialogue between a master and a daemon that it starts.
//! * [`wire`]: the protocol between daemons.
//! * [`master_state`]: what only the master knows, for the next master.
//! * [`machine`]: the rules of the virtual machine, as the daemon of one host applies them.
#![forbid(unsafe_code)]

mod binomial;
pub mod channel;
pub mod codes;
pub mod datagram_error;
pub mod dialogue;
pub mod encoding;
mod error_codes;
pub mod events;
pub mod fabric;
pub mod flows;
pub mod format;
#[cfg(test)]
mod formats_tests;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod host_look;
pub mod hostfile;
pub mod jobs;
pub mod machine;
pub mod master_state;
#[cfg(test)]
mod prng;
pub mod proto;
pub mod ranges;
pub mod release;
pub mod session;
pub mod state_line;
mod task_info;
pub mod tid;
pub mod time;
pub mod trace;
pub mod waiting;
pub mod wire;
