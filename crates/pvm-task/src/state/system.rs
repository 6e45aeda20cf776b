//! System messages that every task understands (contract 2.12): context `SYSCTX_TC`.
use super::State;
use crate::envelope::HeldMessages;
use pvm_core::channel::{Fallback, Receipts};
use pvm_core::codes::{SYSCTX_TC, TC_FIRST};
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use serde_bytes::ByteBuf;
use std::rc::Rc;

/// Output of a child.
pub(crate) const TC_OUTPUT: i32 = TC_FIRST + 4;
const TC_SETTRACE: i32 = TC_FIRST + 5;
const TC_SETTMASK: i32 = TC_FIRST + 6;
const TC_SETTRCBUF: i32 = TC_FIRST + 7;
const TC_SETTRCOPT: i32 = TC_FIRST + 8;
const TC_SIBLINGS: i32 = TC_FIRST + 11;
/// The route switch: later messages of the sender arrive on the direct link.
pub(crate) const TC_ROUTE_SWITCH: i32 = TC_FIRST + 12;
/// The fallback: later messages of the sender arrive on the default route again. The body holds the number of messages
/// on the link that the receiver has acknowledged, and two flags ([`Fallback`](pvm_core::channel::Fallback)).
pub(crate) const TC_FALLBACK: i32 = TC_FIRST + 13;
/// The last of the library's tags.
const TC_LAST: i32 = TC_FALLBACK;

/// The tags for which the library has handlers of its own, by handler id: connection request and answer, exit,
/// no-operation, settings, siblings.
pub(crate) const SYSTEM_TAGS: [i32; 9] = [
    TC_FIRST,
    TC_FIRST + 1,
    TC_FIRST + 2,
    TC_FIRST + 3,
    TC_SETTRACE,
    TC_SETTMASK,
    TC_SETTRCBUF,
    TC_SETTRCOPT,
    TC_SIBLINGS,
];

/// Returns whether a message of `SYSCTX_TC` with that tag is for the library.
pub(super) fn is_system(tag: i32) -> bool {
    (TC_FIRST..=TC_LAST).contains(&tag)
}

/// A message on the default route in which a peer announces the route of its later messages.
pub(crate) enum RouteSwitch {
    /// Later messages of the peer arrive on the link.
    ToLink(Tid),
    /// Later messages of the peer arrive on the default route again.
    ToDefault {
        peer: Tid,
        /// Whether the peer needs no answer.
        answered: bool,
        /// Whether the peer has given up a link that has not broken.
        is_given_up: bool,
    },
}

/// What the receiver of messages on the default route has to know about links.
#[derive(Default)]
pub(crate) struct RouteSwitches {
    /// What was received on links, with what has arrived on a fabric.
    pub receipts: Receipts<Option<Rc<HeldMessages>>>,
    /// Route switches that have to be handled.
    pub pending: Vec<RouteSwitch>,
}

impl RouteSwitches {
    /// Returns what has arrived from a peer on a fabric, if there is such a link, and lets no more arrive.
    pub fn close_fabric(&mut self, peer: Tid) -> Option<Rc<HeldMessages>> {
        let held = self.receipts.get_mut(peer)?.held.clone()?;
        held.is_closed.set(true);
        Some(held)
    }

    /// Takes in the fallback message of a peer. Returns how many of the messages that follow are repeats.
    pub fn on_fallback(&mut self, peer: Tid, reader: &mut Reader<'_>) -> u32 {
        let Some(fallback) = Fallback::decode(reader) else { return 0 };
        let (repeats, answered) = self.receipts.handle_fallback(peer, fallback);
        self.pending.push(RouteSwitch::ToDefault { peer, answered, is_given_up: fallback.is_given_up });
        repeats
    }
}

impl State {
    /// Acts on a system message. A message that cannot be read, or has no meaning here, is dropped.
    pub fn on_system_message(&mut self, tag: i32, mut reader: Reader<'_>) {
        if let (TC_SETTRACE..=TC_SETTRCOPT, Some(changed)) = (tag, self.tracer.changed) {
            changed();
        }
        match tag {
            TC_OUTPUT => self.output.on_message((SYSCTX_TC, tag), reader),
            TC_SETTRACE => {
                self.set_trace(&mut reader);
            }
            TC_SETTMASK => {
                if let Some(mask) = reader.string() {
                    self.settings.own.mask = ByteBuf::from(mask);
                }
            }
            TC_SETTRCBUF => {
                if let Some(bytes) = reader.int() {
                    self.settings.own.trace_buffer = bytes;
                }
            }
            TC_SETTRCOPT => {
                if let Some(options) = reader.int() {
                    self.settings.own.trace_options = options;
                }
            }
            _ => {}
        }
    }

    /// Sets where traces and output of this task go. A negative tid changes nothing.
    fn set_trace(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let mut own = self.settings.own.clone();
        let trace = (reader.int()?, reader.int()?, reader.int()?);
        let output = (reader.int()?, reader.int()?, reader.int()?);
        if trace.0 >= 0 {
            (own.trace_tid, own.trace_ctx, own.trace_tag) = trace;
        }
        if output.0 >= 0 {
            (own.output_tid, own.output_ctx, own.output_tag) = output;
        }
        own.mask = ByteBuf::from(reader.string()?);
        (own.trace_buffer, own.trace_options) = (reader.int()?, reader.int()?);
        self.settings.change_own(own);
        Some(())
    }
}
