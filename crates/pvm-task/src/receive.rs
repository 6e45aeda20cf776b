//! What arrives, and receiving it (contract 2.3).
use crate::Task;
use crate::direct::Wanted;
use crate::direct::back::Turn;
use crate::message::{Large, Message, OWN_DSIG, Place};
use crate::offers::{keep_offer, take_offer};
use crate::queue::accepts;
use crate::system::{TC_BACK, TC_TURN, is_system};
use crate::task::State;
use crate::types::{ANY, Delivered, Filter, Kind, PRIVATE_CONTEXTS};
use pvm_core::codes::SYSCTX_TC;
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use pvm_fmp::{Arrival, Endpoint, Meta, Posted, RecentShort, Sink, is_daemon};

/// Rounds of looking at all peers before [`Task::take_in_all`] gives up, while more comes.
const LOOKS_MAX: usize = 64;

/// The words of an arriving message.
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
        // Only the daemon speaks for others.
        let src = if is_daemon(from) { far } else { from } as i32;
        Envelope { src, dst: own, ctx, tag, wid, enc, format }
    }

    /// Whether it comes from a host of the own data format.
    #[inline(always)]
    fn is_native(&self) -> bool {
        self.format == OWN_DSIG
    }

    #[inline(always)]
    fn delivered(&self, len: usize) -> Delivered {
        Delivered { src: self.src, tag: self.tag, wid: self.wid, len, failure: None }
    }
}

/// Queues what comes out of shared memory.
pub(crate) struct Arriving<'a> {
    pub state: &'a mut State,
    pub own: i32,
}

impl Sink for Arriving<'_> {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        self.state.arrived(Envelope::new(from, self.own, meta), body);
    }
}

/// Where a one-call receive puts a message.
pub(crate) trait Target {
    /// Takes a body as it arrives; its true length, `None` when there is no message (yet).
    fn take(&mut self, wid: i32, body: Arrival<'_>) -> Option<usize>;
    /// Takes the body of a message that was queued.
    fn take_queued(&mut self, message: &Message);
    /// Where a body as it is may be put.
    fn room(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// The first bytes, as many as fit.
impl Target for [u8] {
    #[inline]
    fn take(&mut self, _wid: i32, body: Arrival<'_>) -> Option<usize> {
        match body {
            Arrival::Inline(inline) => {
                inline.copy_to(self);
                Some(inline.len())
            }
            Arrival::Remote(remote) => {
                let count = remote.len().min(self.len());
                remote.read(0, &mut self[..count]);
                Some(remote.len())
            }
            Arrival::InTransit(offer) => take_offer(offer, self),
        }
    }

    #[inline]
    fn take_queued(&mut self, message: &Message) {
        let count = message.len().min(self.len());
        message.copy_out(0, &mut self[..count]);
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }
}

/// Hands the first message that fits over to a waiting `pvm_precv`, queues the others.
struct Delivering<'a, T: ?Sized> {
    state: &'a mut State,
    own: i32,
    filter: &'a Filter,
    target: &'a mut T,
    delivered: Option<Delivered>,
}

impl<T: Target + ?Sized> Sink for Delivering<'_, T> {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let envelope = Envelope::new(from, self.own, meta);
        let fits = accepts(self.filter, envelope.src, envelope.tag, envelope.ctx);
        // What has to be converted is, out of the queue.
        if self.delivered.is_some() || !fits || !envelope.is_native() || self.state.is_special(&envelope) {
            return self.state.arrived(envelope, body);
        }
        let Some(len) = self.target.take(envelope.wid, body) else { return };
        self.state.store.queue.see_all(); // handlers have nothing to wait for, or it would be special
        self.delivered = Some(envelope.delivered(len));
    }

    /// The next `pvm_precv` finds the rest in the queues.
    #[inline]
    fn satisfied(&self) -> bool {
        self.delivered.is_some()
    }
}

/// Queues what comes, but for the first that fits: that one is received without passing the queue.
struct Receiving<'a> {
    state: &'a mut State,
    own: i32,
    filter: &'a Filter,
    found: Option<u32>,
}

impl Sink for Receiving<'_> {
    #[inline]
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let envelope = Envelope::new(from, self.own, meta);
        let fits = accepts(self.filter, envelope.src, envelope.tag, envelope.ctx);
        if self.found.is_none() && fits && !self.state.is_special(&envelope) {
            self.state.store.queue.see_all();
            self.found = self.state.take_in(&envelope, body);
            return;
        }
        self.state.arrived(envelope, body);
    }

    /// A program may add a handler because of the message, for those that follow.
    #[inline]
    fn satisfied(&self) -> bool {
        self.found.is_some()
    }
}

impl State {
    /// Whether the message goes to a handler, to the library itself, or is output of a child.
    #[inline]
    fn is_special(&self, envelope: &Envelope) -> bool {
        if !self.handlers.are_special() && !self.output.any() && envelope.ctx != SYSCTX_TC {
            return false;
        }
        let Envelope { src, tag, ctx, .. } = *envelope;
        if self.handlers.repeats(src) {
            return true;
        }
        if PRIVATE_CONTEXTS.contains(&ctx) {
            return false;
        }
        self.is_ours(ctx, tag) || self.handlers.any() && self.is_for_handlers(envelope)
    }

    /// Whether such a message is for the library itself.
    fn is_ours(&self, ctx: i32, tag: i32) -> bool {
        self.output.takes((ctx, tag)) || (ctx == SYSCTX_TC && is_system(tag))
    }

    /// A message has come out of shared memory.
    #[inline]
    fn arrived(&mut self, envelope: Envelope, body: Arrival<'_>) {
        let Some(entry) = self.take_in(&envelope, body) else { return };
        // Some of what comes this way may have come on a link.
        if self.handlers.take_repeat(envelope.src) {
            return self.store.free(entry as i32 + 1);
        }
        self.settle(&envelope, entry);
    }

    /// A message has come some other way.
    pub(crate) fn arrived_bytes(&mut self, envelope: Envelope, body: Vec<u8>) {
        let entry = self.new_message(&envelope);
        self.store.table[entry as usize].set_body(body);
        self.settle(&envelope, entry);
    }

    /// Puts a message where it belongs.
    #[inline]
    fn settle(&mut self, envelope: &Envelope, entry: u32) {
        if (self.output.any() || envelope.ctx == SYSCTX_TC) && self.is_ours(envelope.ctx, envelope.tag) {
            return self.dispatch(envelope, entry);
        }
        self.store.table[entry as usize].place = Place::Queued;
        self.store.enqueue(entry);
    }

    #[cold]
    fn dispatch(&mut self, envelope: &Envelope, entry: u32) {
        let Envelope { src, tag, ctx, .. } = *envelope;
        let message = &self.store.table[entry as usize];
        let (body, format) = (message.body(), message.format);
        self.store.free(entry as i32 + 1);
        match body {
            Ok(_) if ctx == SYSCTX_TC && tag == TC_TURN => self.turns.said.push(Turn::Onto(Tid(src as u32))),
            Ok(body) if ctx == SYSCTX_TC && tag == TC_BACK => {
                let repeats = self.turns.back(src, &mut Reader::of(&body, format));
                self.handlers.expect_repeats(src, repeats);
            }
            Ok(body) if ctx == SYSCTX_TC => self.obey(tag, Reader::of(&body, format)),
            Ok(body) => self.output.arrived((ctx, tag), Reader::of(&body, format)),
            Err(_) => {}
        }
    }

    #[inline]
    fn new_message(&mut self, envelope: &Envelope) -> u32 {
        let entry = self.store.take_entry(Place::Buffer);
        let message = &mut self.store.table[entry as usize];
        (message.src, message.dst) = (envelope.src, envelope.dst);
        (message.ctx, message.tag, message.wid) = (envelope.ctx, envelope.tag, envelope.wid);
        (message.enc, message.format) = (envelope.enc, envelope.format);
        entry
    }

    /// An entry with the body of an arrival; `None` when there is no message (yet).
    #[inline]
    fn take_in(&mut self, envelope: &Envelope, body: Arrival<'_>) -> Option<u32> {
        let entry = self.new_message(envelope);
        let message = &mut self.store.table[entry as usize];
        match body {
            Arrival::Inline(inline) => {
                message.small.resize(inline.len(), 0);
                inline.copy_to(&mut message.small);
            }
            Arrival::Remote(remote) => message.large = Large::Remote(remote),
            Arrival::InTransit(offer) => match keep_offer(offer, &mut self.store) {
                Some(large) => self.store.table[entry as usize].large = large,
                None => {
                    self.store.free(entry as i32 + 1);
                    return None;
                }
            },
        }
        Some(entry)
    }
}

/// Receiving. None of these waits: [`Task::progress`], try, wait ([`crate::Waiter`]), again.
impl Task {
    /// For who waits: takes in what has come, and lets the program see it. Says how many messages, replies and so
    /// on came.
    #[inline]
    pub fn progress(&mut self) -> usize {
        let count = self.take_in();
        self.see_all();
        count
    }

    /// Takes in what has come: messages from the shared memory, frames from the daemon. No system
    /// call when nothing has come. Says how many messages, replies and so on came.
    #[inline]
    pub fn take_in(&mut self) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        let count = member.poll(&mut self.state);
        self.progress_control(count)
    }

    /// [`Task::take_in`] for who will not try again: takes in all that has come until now, from
    /// however many peers. Others that send on and on do not hold it up.
    pub fn take_in_all(&mut self) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        let mut arriving = Arriving { state: &mut self.state, own: member.tid.0 as i32 };
        let mut count = 0;
        for _ in 0..LOOKS_MAX {
            match member.endpoint.poll_all(&mut arriving) {
                0 => break,
                more => count += more,
            }
        }
        self.progress_control(count)
    }

    /// The next look at what has come includes the daemon's frames, whatever the port table says.
    pub(crate) fn look_at_socket(&mut self) {
        if let Some(member) = &mut self.member {
            member.look_at_socket = true;
        }
    }

    /// The second half: the daemon's frames, and who has to know.
    #[inline]
    pub(crate) fn progress_control(&mut self, mut count: usize) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        // Also one without links may hear of one that the other side still has.
        if member.direct.is_active() || !self.state.turns.said.is_empty() {
            count += member.progress_direct(&mut self.state, count);
        }
        if member.control_stirs() {
            count += member.read_control(&mut self.state);
            self.tell_own_settings();
        }
        self.note(count, 0);
        count
    }

    /// So much has come by the last look; of that, so much is in the caller's hands already.
    #[inline]
    fn note(&mut self, count: usize, delivered: usize) {
        if let Some(member) = &mut self.member {
            member.stirring |= count > delivered;
            if count > 0 {
                member.idle_since = None;
            }
        }
        if count > delivered {
            self.note_news();
        }
    }

    /// The program may see what it could not before: nobody sleeps before another look.
    pub(crate) fn note_seen(&mut self) {
        self.note(1, 0);
    }

    /// Something came: other threads of the process may have waited for it.
    #[inline]
    pub(crate) fn note_news(&mut self) {
        self.state.news = true;
        if let Some(member) = &self.member {
            member.bed.nudge();
        }
    }

    /// Whether anything came since this was last asked (to wake other waiting threads).
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.state.news)
    }

    /// The filter for a receive in the current context.
    pub fn filter(&self, src: i32, tag: i32) -> Filter {
        Filter { src, tag, ctx: self.state.context }
    }

    /// Frees the active receive buffer, as `pvm_recv`, `pvm_nrecv`, `pvm_trecv` do first.
    #[inline]
    pub fn drop_receive_buffer(&mut self) {
        if self.state.store.receive != 0 {
            self.state.store.free(self.state.store.receive);
        }
    }

    /// Takes the oldest message that fits out of the queue and makes it the active receive buffer.
    #[inline]
    pub fn receive(&mut self, filter: &Filter) -> Option<i32> {
        let entry = self.state.find(filter)?;
        Some(self.state.store.receive(entry))
    }

    /// The message that came the shortest way.
    #[inline]
    pub(crate) fn receive_short(&mut self, filter: &Filter) -> Option<i32> {
        let (envelope, short, state) = self.probe_recent_short(filter, false)?;
        let entry = state.new_message(&envelope);
        let message = &mut state.store.table[entry as usize];
        message.small.resize(short.len(), 0);
        short.take(&mut message.small);
        Some(state.store.activate(entry))
    }

    /// One try of a call that waits: [`Task::receive`] that takes in what has come (like [`Task::take_in`]) if no
    /// queued message fits, but not more than it takes to find one.
    #[inline]
    pub fn try_receive(&mut self, filter: &Filter) -> Option<i32> {
        if let Some(mid) = self.receive_short(filter) {
            return Some(mid);
        }
        if let Some(mid) = self.receive(filter) {
            return Some(mid);
        }
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        let mut sink = Receiving { state: &mut self.state, own, filter, found: None };
        let count = member.endpoint.poll(&mut sink);
        if let Some(entry) = sink.found {
            self.note(count, 1);
            return Some(self.state.store.activate(entry));
        }
        match self.progress_control(count) {
            0 => None,
            _ => self.receive(filter),
        }
    }

    /// The oldest message that has been taken in and fits; it stays queued.
    pub fn probe(&mut self, filter: &Filter) -> Option<i32> {
        self.state.find(filter).map(|entry| entry as i32 + 1)
    }

    /// Takes that message out of the queue and makes it the active receive buffer.
    pub fn take_queued(&mut self, mid: i32) -> bool {
        let store = &mut self.state.store;
        let queued = store.get(mid).is_ok_and(|message| message.place == Place::Queued);
        if queued {
            store.receive(mid as u32 - 1);
        }
        queued
    }

    /// Says that `pvm_precv` waits for `room` bytes, so that senders can hand long data over
    /// directly. Ends with [`Task::end_precv`].
    #[inline]
    pub fn begin_precv(&mut self, filter: &Filter, room: usize) {
        if self.member.as_ref().is_some_and(|member| room >= member.endpoint.rendezvous_bytes_min()) {
            self.post(filter);
        }
    }

    fn post(&mut self, filter: &Filter) {
        let Some(member) = &mut self.member else { return };
        let counts = |value: i32| if value == ANY { 0 } else { u32::MAX };
        member.posted = true;
        member.endpoint.post(Some(Posted {
            from: if filter.src == ANY { 0 } else { filter.src as u32 },
            mask: [counts(filter.ctx), counts(filter.tag), 0, 0, 0, 0],
            value: [filter.ctx as u32, filter.tag as u32, 0, 0, 0, 0],
        }));
    }

    /// The message to be received next, if it came the shortest way and the filter accepts it: no
    /// other is queued before it, and nobody else may want it.
    #[inline(always)]
    fn probe_recent_short(
        &mut self,
        filter: &Filter,
        only_native: bool,
    ) -> Option<(Envelope, RecentShort<'_>, &mut State)> {
        let state = &mut self.state;
        if !state.store.queue.is_empty() || state.handlers.are_special() || state.output.any() {
            return None;
        }
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        let short = member.endpoint.probe_recent_short()?;
        let envelope = Envelope::new(short.from, own, short.meta());
        if !accepts(filter, envelope.src, envelope.tag, envelope.ctx) || envelope.ctx == SYSCTX_TC {
            return None;
        }
        if only_native && !envelope.is_native() {
            return None;
        }
        member.idle_since = None;
        Some((envelope, short, state))
    }

    /// Waits for some hundred nanoseconds whether the peer that sent last sends again.
    #[inline(always)]
    pub fn watch_most_recent(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.endpoint.watch_most_recent())
    }

    /// One try of `pvm_precv` (it polls by itself): the oldest fitting message, its first bytes
    /// into `data`. Raw items of another host's format are converted: those of that kind.
    #[inline(always)]
    pub fn try_precv(&mut self, filter: &Filter, kind: Kind, data: &mut [u8]) -> Option<Delivered> {
        if let Some((envelope, short, _)) = self.probe_recent_short(filter, true) {
            return Some(envelope.delivered(short.take(data)));
        }
        self.try_precv_any(filter, kind, data)
    }

    fn try_precv_any(&mut self, filter: &Filter, kind: Kind, data: &mut [u8]) -> Option<Delivered> {
        if let Some(delivered) = self.deliver_queued(filter, kind, data) {
            return Some(delivered);
        }
        self.deliver(filter, kind, data, |endpoint, sink| endpoint.poll(sink))
    }

    /// [`Task::try_precv`] for a filter that names the sender: what others have sent stays in their
    /// queues.
    #[inline]
    pub(crate) fn try_precv_from<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        if let Some(delivered) = self.deliver_queued(filter, kind, target) {
            return Some(delivered);
        }
        let (from, own) = (Tid(filter.src as u32), Tid(self.own_tid() as u32));
        let peer = if from.host() == own.host() { from } else { own.host() };
        self.deliver(filter, kind, target, |endpoint, sink| endpoint.poll_peer(peer.0, sink))
    }

    #[inline]
    fn deliver<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
        poll: impl FnOnce(&mut Endpoint, &mut Delivering<'_, T>) -> usize,
    ) -> Option<Delivered> {
        let member = self.member.as_mut()?;
        let own = member.tid.0 as i32;
        let mut sink = Delivering { state: &mut self.state, own, filter, target: &mut *target, delivered: None };
        let count = poll(&mut member.endpoint, &mut sink);
        if let Some(delivered) = sink.delivered {
            self.note(count, 1);
            return Some(delivered);
        }
        if count == 0 && member.direct.is_active() {
            if let Some(delivered) = self.deliver_direct(filter, kind, target) {
                return Some(delivered);
            }
        }
        match self.progress_control(count) {
            0 => None,
            _ => self.deliver_queued(filter, kind, target),
        }
    }

    /// A message that a link brings may go straight to its place.
    #[cold]
    #[inline(never)]
    fn deliver_direct<T: Target + ?Sized>(&mut self, filter: &Filter, kind: Kind, target: &mut T) -> Option<Delivered> {
        let room = target.room()?;
        let member = self.member.as_mut()?;
        let (state, own) = (&mut self.state, member.tid.0 as i32);
        member.heed_turns(state);
        let is_special = |envelope: &Envelope| !envelope.is_native() || state.is_special(envelope);
        let mut wanted = Wanted { filter, own, room, is_special: &is_special, found: None };
        member.direct.receive_straight(&mut wanted);
        let found = wanted.found;
        let others = member.settle_directs(state);
        match found {
            Some((envelope, len)) => {
                self.state.store.queue.see_all();
                self.note(others + 1, 1);
                Some(envelope.delivered(len))
            }
            None if others > 0 => {
                self.note(others, 0);
                self.deliver_queued(filter, kind, target)
            }
            None => None,
        }
    }

    #[inline]
    fn deliver_queued<T: Target + ?Sized>(&mut self, filter: &Filter, kind: Kind, target: &mut T) -> Option<Delivered> {
        let entry = self.state.find(filter)?;
        let message = &mut self.state.store.table[entry as usize];
        let failure = if message.is_foreign_raw() { message.make_native(kind).err() } else { None };
        let Message { src, tag, wid, .. } = *message;
        let delivered = Delivered { src, tag, wid, len: message.len(), failure };
        target.take_queued(message);
        self.state.store.free(entry as i32 + 1);
        Some(delivered)
    }

    /// See [`Task::begin_precv`].
    #[inline]
    pub fn end_precv(&mut self) {
        if let Some(member) = self.member.as_mut().filter(|member| member.posted) {
            member.posted = false;
            member.endpoint.post(None);
        }
    }
}
