//! Control frames between a task and the daemon of its host.
//!
//! * [`ControlSocket`]: frames over a Unix stream socket, with descriptors; never blocks.
//! * [`rendezvous`]: how a task finds the daemon, and how a daemon publishes its socket.
//! * [`read_bounded`]: reads a file that a user names.
//! * [`remote_shell`]: how commands are run on other hosts, and where the daemon may be installed there.
//!
//! A frame is a head of eight bytes (the length of the body and the number of descriptors, as little-endian `u32`s) and
//! the body. Descriptors travel with the first byte of their frame. Nothing that a peer sends makes this side panic, or
//! allocate much more memory than the bytes that have arrived take.
#![forbid(unsafe_code)]

mod control_socket;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod legacy;
pub mod remote_shell;
pub mod rendezvous;

pub use control_socket::{ControlError, ControlSocket, DESCRIPTOR_PAUSE, DESCRIPTORS_MAX, Received};
pub use files::read_bounded;
