//! Bytes between hosts: authenticated links over TCP.
//!
//! * [`KeyPair`], [`PublicKey`], [`Token`]: who is who;
//! * [`Link`]: one connection that carries frames, encrypted (TLS 1.3, both sides known by raw
//!   Ed25519 keys) or in clear; never blocks;
//! * [`ByteStream`]: the same without frames;
//! * [`Connector`]: where links between daemons come to be, and where strangers are turned away;
//! * [`direct`]: waiting for a link between two tasks.
//!
//! No threads and no waiting: everything is driven by a loop of the caller's around `poll`. What a
//! frame means is the caller's business.
// The one module that must, `raw`, says so.
#![deny(unsafe_code)]

mod buffer;
mod byte_stream;
mod connector;
pub mod direct;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keys;
mod link;
mod raw;
mod socket;
mod tls;

pub use byte_stream::ByteStream;
pub use connector::{
    ConnectEvent, Connector, HALF_PAIRS_MAX, HANDSHAKE_TIME_MAX, Pair, Security, UNKNOWN_MAX, listener,
};
pub use keys::{KEY_BYTES, KeyPair, NoRandomness, NotAKey, PublicKey, Token, Tokens};
pub use link::{FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, HEADER_BYTES_MAX, Head, Link, LinkError};
pub use raw::Carried;
pub use tls::{Identity, Known};
