//! Bytes between hosts: authenticated links over TCP.
//!
//! * [`KeyPair`], [`PublicKey`], [`Token`]: keys of daemons, and tokens for single connections;
//! * [`Link`]: a connection that carries frames, encrypted (TLS 1.3, both sides authenticated by raw Ed25519 keys) or
//!   in clear; never blocks;
//! * [`ByteStream`]: a connection without frames;
//! * [`Digest`]: the digest of a body that another host relays;
//! * [`MulticastSocket`], [`Seal`]: datagrams to all hosts of a machine;
//! * [`Connector`]: makes the links between daemons and refuses strangers;
//! * [`direct`]: functions with time limits for a link between two tasks;
//! * [`fabric`]: networks that are reached through libfabric;
//! * [`polling`]: waiting for descriptors.
//!
//! A link or a connector has no thread and never waits: the caller drives it from a loop around `poll`. Only `direct`
//! and `polling` wait. This crate does not interpret frames.
// Only the modules `raw` and `fabric::raw` allow unsafe code.
#![deny(unsafe_code)]

mod aegis;
mod buffer;
mod connector;
mod digest;
pub mod direct;
pub mod fabric;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod identity;
mod keys;
mod link;
mod multicast;
pub mod polling;
mod raw;
mod records;
mod seal;
mod socket;
mod tls;

pub use connector::{
    ConnectEvent, Connector, Failure, HALF_PAIRS_MAX, HANDSHAKE_TIME_MAX, Pair, Security, UNKNOWN_MAX, listener,
};
pub use digest::{Digest, one_way};
pub use identity::{Identity, Known};
pub use keys::{KEY_BYTES, KeyPair, NoRandomness, NotAKey, PublicKey, Token, Tokens};
pub use link::{ByteStream, FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX, HEADER_BYTES_MAX, Head, Lead, Link, LinkError};
pub use multicast::{MulticastSocket, Network, group_for, is_out_of_reach, listen, release_group};
pub use raw::Carried;
pub use seal::{SECRET_BYTES, SECRET_NAME_BYTES, Seal, TAG_BYTES};
