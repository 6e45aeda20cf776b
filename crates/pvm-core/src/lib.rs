//! The rules of the parallel virtual machine, without I/O, clock, threads or unsafe code.
//!
//! * [`codes`]: PVM's numbers: error codes, flags, options, reserved tags.
//! * [`tid`]: task identifiers.
//! * [`proto`]: what task and daemon say to each other over the control socket.
//! * [`encoding`]: the bodies of messages that the daemon itself makes.
#![forbid(unsafe_code)]

pub mod codes;
pub mod encoding;
pub mod proto;
pub mod tid;
