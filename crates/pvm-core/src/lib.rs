//! The rules of the parallel virtual machine, without I/O, clock, threads or unsafe code.
//!
//! * [`codes`]: PVM's numbers: error codes, flags, options, reserved tags.
//! * [`tid`]: task identifiers.
//! * [`proto`]: what task and daemon say to each other over the control socket.
//! * [`encoding`]: the bodies of messages that the daemon itself makes.
//! * [`format`]: how hosts write numbers.
//! * [`flows`]: messages between hosts on the default route.
//! * [`hostfile`]: the file that lists the hosts of a machine; [`ranges`]: lists such as `n[1-4]`.
//! * [`dialogue`]: what a master and a daemon that it starts tell each other.
//! * [`wire`]: what daemons say to each other.
//! * [`machine`]: the rules of the virtual machine as one host's daemon applies them.
#![forbid(unsafe_code)]

pub mod codes;
pub mod dialogue;
pub mod encoding;
pub mod events;
pub mod flows;
pub mod format;
#[cfg(test)]
mod formats_tests;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod hostfile;
pub mod machine;
#[cfg(test)]
mod prng;
pub mod proto;
pub mod ranges;
pub mod tid;
pub mod trace;
pub mod wire;
