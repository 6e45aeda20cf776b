//! Message handlers, and the actions before and after their calls (contract 2.4).
use super::State;
use super::system::SYSTEM_TAGS;
use crate::types::{ANY, HandlerCall};
use pvm_core::codes::{Code, SYSCTX_TC};

/// A handler: the messages that it takes, and its function. The library's own handlers have no function here.
struct Handler {
    src: i32,
    tag: i32,
    ctx: i32,
    function: Option<u64>,
}

impl Handler {
    fn accepts(&self, src: i32, tag: i32, ctx: i32) -> bool {
        let meets = |own: i32, other: i32| own == ANY || own == other;
        meets(self.tag, tag) && meets(self.ctx, ctx) && meets(self.src, src)
    }
    fn overlaps(&self, src: i32, tag: i32, ctx: i32) -> bool {
        let meets = |own: i32, other: i32| own == ANY || other == ANY || own == other;
        meets(self.tag, tag) && meets(self.ctx, ctx) && meets(self.src, src)
    }
}

/// The caller's buffers and context that were active when a handler began.
struct CallerState {
    mid: i32,
    send: i32,
    receive: i32,
    ctx: i32,
}

/// All handlers. A message for a handler stays in the queue until it would become visible, since handlers that run
/// earlier may add and delete handlers.
#[derive(Default)]
pub(crate) struct Handlers {
    /// The handlers, by id.
    list: Vec<Option<Handler>>,
    /// The number of handlers that are not the library's own.
    users: usize,
    /// The number of the first message that may not yet become visible or be taken by a handler.
    pub bound: u64,
    /// Senders that have fallen back from a direct link, and how many of their next messages are repeats: messages that
    /// have arrived on the link already. Also [`EVERYBODY`] and [`BEHIND_GAPS`], so that receives look at the list only if it
    /// is not empty.
    repeats: Vec<(i32, u32)>,
    running: Option<CallerState>,
}

/// Stands for all senders; no task has this tid.
const EVERYBODY: i32 = 0;
/// Stands for all senders while messages wait behind gaps.
const BEHIND_GAPS: i32 = -1;

impl Handlers {
    /// Returns whether there are user handlers, which may take messages.
    #[inline]
    pub fn has_user_handlers(&self) -> bool {
        self.users > 0
    }

    /// Returns whether there are user handlers, or repeats are still expected.
    #[inline]
    pub fn may_intercept(&self) -> bool {
        self.has_user_handlers() || !self.repeats.is_empty()
    }

    /// Returns whether a handler runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Adds the library's own handlers, at enrollment.
    pub fn enter_system(&mut self) {
        for tag in SYSTEM_TAGS {
            self.enter(Handler { src: ANY, tag, ctx: SYSCTX_TC, function: None });
        }
    }

    /// Returns the user handler that takes a message with this sender, tag and context, and the handler's function.
    pub fn find(&self, src: i32, tag: i32, ctx: i32) -> Option<(i32, u64)> {
        self.list.iter().enumerate().rev().find_map(|(id, handler)| {
            let handler = handler.as_ref().filter(|handler| handler.accepts(src, tag, ctx))?;
            Some((id as i32, handler.function?))
        })
    }

    /// Notes that the next `count` messages of a sender are repeats.
    pub fn expect_repeats(&mut self, src: i32, count: u32) {
        self.forget_repeats(src);
        if count > 0 {
            self.repeats.push((src, count));
        }
    }

    /// Notes that no more repeats arrive from a sender.
    pub fn forget_repeats(&mut self, src: i32) {
        self.repeats.retain(|(other, _)| *other != src);
    }

    /// Returns whether messages that arrive from this sender on the default route may be repeats, or must be queued.
    pub fn may_be_repeats(&self, src: i32) -> bool {
        self.repeats.iter().any(|(other, _)| *other == src || [EVERYBODY, BEHIND_GAPS].contains(other))
    }

    /// Lets all messages be queued from now on, or not any more, because they may belong behind a gap.
    pub fn queue_behind_gaps(&mut self, queue: bool) {
        self.forget_repeats(BEHIND_GAPS);
        if queue {
            self.repeats.push((BEHIND_GAPS, 0));
        }
    }

    /// Lets all messages be queued that arrive from now on: messages that go before them were queued in the middle of a
    /// poll, after the receive had searched the queue.
    pub fn queue_all(&mut self) {
        if !self.repeats.iter().any(|(other, _)| *other == EVERYBODY) {
            self.repeats.push((EVERYBODY, 0));
        }
    }

    /// Lets receives take messages as they arrive again: the queue is searched, or has been.
    #[inline]
    pub fn stop_queueing(&mut self) {
        if !self.repeats.is_empty() {
            self.forget_repeats(EVERYBODY);
        }
    }

    /// Counts a message that has arrived from this sender on the default route. Returns whether the message is a
    /// repeat.
    #[inline]
    pub fn take_repeat(&mut self, src: i32) -> bool {
        let Some((_, count)) = self.repeats.iter_mut().find(|(other, _)| *other == src) else { return false };
        *count -= 1;
        if *count == 0 {
            self.forget_repeats(src);
        }
        true
    }

    fn enter(&mut self, handler: Handler) -> i32 {
        self.users += usize::from(handler.function.is_some());
        let id = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        if id == self.list.len() {
            self.list.push(None);
        }
        self.list[id] = Some(handler);
        id as i32
    }

    /// Adds a user handler. Fails with `Exists` if there is one that may take the same messages.
    pub fn add(&mut self, src: i32, tag: i32, ctx: i32, function: u64) -> Result<i32, Code> {
        if self.list.iter().flatten().any(|handler| handler.overlaps(src, tag, ctx)) {
            return Err(Code::Exists);
        }
        Ok(self.enter(Handler { src, tag, ctx, function: Some(function) }))
    }

    /// Deletes a handler.
    pub fn delete(&mut self, id: i32) -> Result<(), Code> {
        let id = usize::try_from(id).map_err(|_| Code::BadParam)?;
        let handler = self.list.get_mut(id).and_then(Option::take).ok_or(Code::NotFound)?;
        self.users -= usize::from(handler.function.is_some());
        Ok(())
    }

    /// Returns the handlers: id, sender, tag, context.
    pub fn all(&self) -> impl Iterator<Item = (i32, i32, i32, i32)> + '_ {
        let list = self.list.iter().enumerate();
        list.filter_map(|(id, handler)| handler.as_ref().map(|h| (id as i32, h.src, h.tag, h.ctx)))
    }
}

impl State {
    /// Begins the call of the handler that has to run next, if there is one. Until [`State::end_handler`], the active
    /// buffers and the context are those of the handler.
    pub fn begin_handler(&mut self) -> Option<HandlerCall> {
        self.reveal_more();
        let slot = self.store.queue.first_hidden()?;
        let message = &self.store.table[slot as usize];
        if message.number >= self.handlers.bound {
            return None;
        }
        let (handler, function) = self.handler_of(message)?;
        let (call, ctx) = (HandlerCall { handler, function, mid: slot as i32 + 1 }, message.ctx);
        self.store.take_out(slot);
        self.handlers.running = Some(CallerState {
            mid: call.mid,
            send: std::mem::replace(&mut self.store.send, 0),
            receive: std::mem::replace(&mut self.store.receive, call.mid),
            ctx: std::mem::replace(&mut self.context, ctx),
        });
        Some(call)
    }

    /// Ends a handler: frees its buffers and restores those of the caller. Returns whether one was running.
    pub fn end_handler(&mut self) -> bool {
        let Some(before) = self.handlers.running.take() else { return false };
        // Messages after the handler's message could not become visible before the handler had ended.
        self.reveal_more();
        // The message is freed unless the handler set it aside by `pvm_setrbuf(0)`.
        let store = &mut self.store;
        if store.send != 0 && store.send != before.send && store.send != before.receive {
            store.free(store.send);
        }
        if store.receive == before.mid {
            store.free(before.mid);
        }
        let kept = |mid: i32| if store.get(mid).is_ok() { mid } else { 0 };
        (store.send, store.receive) = (kept(before.send), kept(before.receive));
        self.context = before.ctx;
        true
    }
}
