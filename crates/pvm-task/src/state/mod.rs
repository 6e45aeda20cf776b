//! The part of a task that needs no machine, and how it takes in messages, whichever way they have come.
mod backlog;
mod handlers;
mod notifies;
mod sinks;
mod system;
mod told;
mod visibility;

pub(crate) use notifies::OWN_NOTIFY;
pub(crate) use sinks::{DeliverSink, OnePerPeer, ReceiveSink};
pub(crate) use system::{RouteSwitch, TC_FALLBACK, TC_OUTPUT, TC_ROUTE_SWITCH};

use crate::Environment;
use crate::envelope::{Envelope, HeldMessages, LinkMessage};
use crate::message::{Large, Message, SlotState};
use crate::options::Settings;
use crate::output::Output;
use crate::store::Store;
use crate::trace::Tracer;
use crate::types::PRIVATE_CONTEXTS;
use backlog::Backlog;
use handlers::Handlers;
use notifies::LocalNotifies;
use pvm_core::codes::SYSCTX_TC;
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use pvm_fmp::{Arrival, Waits};
use system::{RouteSwitches, is_system};
use told::Told;

/// The part of a task that needs no machine.
pub(crate) struct State {
    /// The tid of the task as messages carry it; 0 while it is not enrolled.
    pub own: i32,
    pub store: Store,
    pub handlers: Handlers,
    pub context: i32,
    pub settings: Settings,
    pub output: Output,
    pub notifies: LocalNotifies,
    pub tracer: Tracer,
    /// Route switches of direct links that have arrived on the default route.
    pub route_switches: RouteSwitches,
    /// What has arrived behind gaps.
    pub backlog: Backlog,
    /// The sender of the last message that has arrived by the default route, until links on the fabric are told.
    pub heard: Option<Tid>,
    /// Whether messages or events have arrived since the program was last told (`Task::take_news`).
    pub news: bool,
    /// Whether the task has synchronized with others: the next search sees all that they have sent before.
    pub synchronized: bool,
    /// How long a wait for a message or an answer spins and yields before the thread sleeps.
    pub waits: Waits,
    /// What the state line tells of the waits of this task.
    pub told: Told,
}

impl State {
    /// Returns the state of a task that is not enrolled.
    pub fn new(environment: &Environment) -> State {
        let mut settings = Settings::new(environment.debug_mask.unwrap_or(0));
        settings.inherit_environment(environment);
        State {
            own: 0,
            store: Store::new(),
            handlers: Handlers::default(),
            context: environment.context.unwrap_or(0),
            settings,
            output: Output::default(),
            notifies: LocalNotifies::default(),
            tracer: Tracer::default(),
            route_switches: RouteSwitches::default(),
            backlog: Backlog::default(),
            heard: None,
            news: false,
            synchronized: false,
            waits: Waits::default(),
            told: Told::default(),
        }
    }

    /// Drops what belongs to the task's membership, which ends: queued messages, handlers, notifies.
    pub fn leave(&mut self) {
        self.clear_backlog();
        self.store.clear_queue();
        for message in &mut self.store.table {
            message.detach();
        }
        self.handlers = Handlers::default();
        self.output = Output::default();
        self.notifies = LocalNotifies::default();
        self.route_switches = RouteSwitches::default();
        self.settings.no_reset = None;
        self.settings.own.trace_tid = 0;
        (self.own, self.news) = (0, true);
    }

    /// Returns whether the message goes to a handler or to the library itself, or is output of a child.
    #[inline]
    pub fn is_intercepted(&self, envelope: &Envelope) -> bool {
        if !self.handlers.may_intercept() && !self.output.collects_any() && envelope.ctx != SYSCTX_TC {
            return false;
        }
        let Envelope { src, tag, ctx, .. } = *envelope;
        if self.handlers.may_be_repeats(src) {
            return true;
        }
        if PRIVATE_CONTEXTS.contains(&ctx) {
            return false;
        }
        self.is_for_library(ctx, tag) || self.handlers.has_user_handlers() && self.is_for_handlers(envelope)
    }

    /// Returns whether a message with this context and tag is for the library itself.
    fn is_for_library(&self, ctx: i32, tag: i32) -> bool {
        self.output.takes((ctx, tag)) || (ctx == SYSCTX_TC && is_system(tag))
    }

    /// Takes in a message out of shared memory.
    #[inline]
    pub fn on_message(&mut self, envelope: Envelope, body: Arrival<'_>) {
        let Some(slot) = self.take_in(&envelope, body) else { return };
        if self.backlog.is_open() {
            return self.add_to_backlog(&envelope, slot);
        }
        self.accept_message(&envelope, slot);
    }

    /// Accepts a message that has waited behind gaps.
    pub fn accept(&mut self, slot: u32) {
        self.accept_message(&self.envelope_of(slot), slot);
    }

    /// Accepts a message that the daemon has made or stored, and that has waited behind gaps.
    pub fn accept_of_daemon(&mut self, slot: u32) {
        self.dispatch(&self.envelope_of(slot), slot);
    }

    pub fn envelope_of(&self, slot: u32) -> Envelope {
        let Message { src, dst, ctx, tag, wid, enc, format, .. } = self.store.table[slot as usize];
        Envelope { src, dst, ctx, tag, wid, enc, format }
    }

    #[inline]
    fn accept_message(&mut self, envelope: &Envelope, slot: u32) {
        // A message that was sent again by the default route may have arrived on a direct link before.
        if self.handlers.take_repeat(envelope.src) {
            return self.store.free(slot as i32 + 1);
        }
        self.dispatch(envelope, slot);
    }

    /// Takes in a message that has arrived by another route than shared memory.
    pub fn on_message_bytes(&mut self, envelope: Envelope, body: Vec<u8>) {
        let slot = self.store.new_message(&envelope);
        self.store.table[slot as usize].set_body(body);
        self.dispatch(&envelope, slot);
    }

    /// Takes in a message that was read from a link.
    pub fn on_link_message(&mut self, message: LinkMessage) {
        self.on_message_bytes(Envelope::new(message.peer.0, self.own, message.meta), message.body);
    }

    /// Takes in a message that the daemon has made or stored.
    pub fn on_message_of_daemon(&mut self, envelope: Envelope, body: Vec<u8>) {
        if !self.backlog.is_open() {
            return self.on_message_bytes(envelope, body);
        }
        let slot = self.store.new_message(&envelope);
        self.store.table[slot as usize].set_body(body);
        self.add_to_backlog_end(slot);
    }

    /// Queues a message, or passes it to the part of the library for which it is meant.
    #[inline]
    fn dispatch(&mut self, envelope: &Envelope, slot: u32) {
        if (self.output.collects_any() || envelope.ctx == SYSCTX_TC) && self.is_for_library(envelope.ctx, envelope.tag)
        {
            return self.dispatch_to_library(envelope, slot);
        }
        self.store.table[slot as usize].state = SlotState::Queued;
        self.store.enqueue(slot);
    }

    /// Acts on a message for the library itself.
    #[cold]
    fn dispatch_to_library(&mut self, envelope: &Envelope, slot: u32) {
        let Envelope { src, tag, ctx, .. } = *envelope;
        let message = &self.store.table[slot as usize];
        let (body, format) = (message.body(), message.format);
        self.store.free(slot as i32 + 1);
        match body {
            Ok(_) if ctx == SYSCTX_TC && tag == TC_ROUTE_SWITCH => {
                self.route_switches.pending.push(RouteSwitch::ToLink(Tid(src as u32)))
            }
            Ok(body) if ctx == SYSCTX_TC && tag == TC_FALLBACK => {
                if let Some(held) = self.route_switches.close_fabric(Tid(src as u32)) {
                    if self.take_held(&held) > 0 {
                        self.handlers.queue_all();
                    }
                }
                let repeats = self.route_switches.on_fallback(Tid(src as u32), &mut Reader::of(&body, format));
                self.handlers.expect_repeats(src, repeats);
            }
            Ok(body) if ctx == SYSCTX_TC => self.on_system_message(tag, Reader::of(&body, format)),
            Ok(body) => self.output.on_message((ctx, tag), Reader::of(&body, format)),
            Err(_) => {}
        }
    }

    /// Returns a slot with a message from shared memory; `None` if there is no message (yet).
    #[inline]
    pub fn take_in(&mut self, envelope: &Envelope, body: Arrival<'_>) -> Option<u32> {
        let slot = self.store.new_message(envelope);
        let message = &mut self.store.table[slot as usize];
        match body {
            Arrival::Inline(inline) => {
                message.small.resize(inline.len(), 0);
                inline.copy_to(&mut message.small);
            }
            Arrival::Remote(remote) => message.large = Large::Remote(remote),
            Arrival::InTransit(body) => match self.store.keep_in_transit(body) {
                Some(large) => self.store.table[slot as usize].large = large,
                None => {
                    self.store.free(slot as i32 + 1);
                    return None;
                }
            },
        }
        Some(slot)
    }

    /// Takes over what has arrived on a fabric. Returns the number of messages.
    pub fn take_held(&mut self, held: &HeldMessages) -> usize {
        let mut count = 0;
        loop {
            let Some(message) = held.messages.borrow_mut().pop_front() else { return count };
            self.on_link_message(message);
            count += 1;
        }
    }
}
