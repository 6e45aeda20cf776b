//! The header of a message, and messages of links that the task has not taken over yet.
use crate::message::OWN_DSIG;
use crate::types::Delivered;
use pvm_core::proto::Message;
use pvm_core::tid::Tid;
use pvm_fmp::{Meta, is_daemon};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The header of a message: who sent it, and how its body is written.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub src: i32,
    pub dst: i32,
    pub ctx: i32,
    pub tag: i32,
    pub wid: i32,
    pub enc: i32,
    pub format: i32,
}

impl Envelope {
    #[inline]
    pub fn new(from: u32, own: i32, meta: Meta) -> Envelope {
        let [ctx, tag, wid, enc, format, far] = meta;
        let (ctx, tag, wid, enc, format) = (ctx as i32, tag as i32, wid as i32, enc as i32, format as i32);
        // Only the daemon sends messages on behalf of other tasks.
        let src = if is_daemon(from) { far } else { from } as i32;
        Envelope { src, dst: own, ctx, tag, wid, enc, format }
    }

    /// Returns the header of a message that the daemon has made or stored.
    pub fn of_daemon(message: &Message) -> Envelope {
        let Message { ctx, tag, wid, enc, format, .. } = *message;
        Envelope { src: message.src.0 as i32, dst: message.dst.0 as i32, ctx, tag, wid, enc, format }
    }

    /// Returns whether the sender's host has the data format of this host.
    #[inline(always)]
    pub(crate) fn is_native(&self) -> bool {
        self.format == OWN_DSIG
    }

    #[inline(always)]
    pub(crate) fn delivered(&self, len: usize) -> Delivered {
        Delivered { src: self.src, tag: self.tag, wid: self.wid, len, failure: None }
    }
}

/// A message that has been read completely.
pub(crate) struct LinkMessage {
    pub peer: Tid,
    pub meta: Meta,
    pub body: Vec<u8>,
}

/// Messages that have arrived on a fabric and that the task has not taken over yet. They go before all that the peer
/// sends on the default route.
#[derive(Default)]
pub(crate) struct HeldMessages {
    pub messages: RefCell<VecDeque<LinkMessage>>,
    /// Whether the peer has fallen back, so that no more messages count.
    pub is_closed: Cell<bool>,
}
