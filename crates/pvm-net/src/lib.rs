//! Bytes between hosts: authenticated links over TCP.
//!
//! * [`KeyPair`], [`PublicKey`], [`Token`]: who is who;
//! * [`Link`]: one connection that carries frames, encrypted (TLS 1.3, both sides known by raw
//!   Ed25519 keys) or in clear; never blocks;
//! * [`Pipe`]: the same without frames;
//! * [`Gate`]: where links between daemons come to be, and where strangers are turned away;
//! * [`direct`]: waiting for a link between two tasks;
//! * [`polling`]: waiting for descriptors.
//!
//! No threads and no waiting: everything is driven by a loop of the caller's around `poll`. What a
//! frame means is the caller's business.
// The one module that must, `raw`, says so.
#![deny(unsafe_code)]

mod buffer;
pub mod direct;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gate;
mod keys;
mod link;
mod pipe;
pub mod polling;
mod raw;
mod socket;
mod tls;

pub use gate::{Event, Gate, HALVES_MAX, HANDSHAKE_TIME_MAX, Pair, Security, UNKNOWN_MAX, listener};
pub use keys::{KEY_BYTES, KeyPair, NoRandomness, NotAKey, PublicKey, Token, Tokens};
pub use link::{FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, HEADER_BYTES_MAX, Head, Link, LinkError};
pub use pipe::Pipe;
pub use raw::Carried;
pub use tls::{Identity, Known};
