//! Message handlers and what runs around them (contract 2.4).
use crate::Task;
use crate::message::Place;
use crate::system::SYSTEM_TAGS;
use crate::types::{ANY, HandlerCall};
use pvm_core::codes::{Code, SYSCTX_TC};
use std::collections::VecDeque;

/// A handler: which messages it takes, and the function, if it is not one of the library's own.
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

/// What the caller had active when a handler began.
struct Interrupted {
    mid: i32,
    send: i32,
    receive: i32,
    ctx: i32,
}

/// A message that has come behind one for a handler. Whose it is shows when its turn has come: what runs before may
/// add handlers and delete them.
struct Due {
    mid: i32,
    src: i32,
    tag: i32,
    ctx: i32,
}

/// All handlers, and the messages that wait for them.
#[derive(Default)]
pub(crate) struct Handlers {
    /// By id.
    list: Vec<Option<Handler>>,
    /// Handlers that are not the library's own, and senders of repeats.
    special: usize,
    /// Senders that went back from a direct link, and how many of their next messages have come already.
    repeats: Vec<(i32, u32)>,
    due: VecDeque<Due>,
    running: Option<Interrupted>,
}

impl Handlers {
    /// Whether any message can be for a user handler, or wait behind one, or be a repeat.
    #[inline]
    pub fn any(&self) -> bool {
        self.special > 0 || !self.due.is_empty()
    }

    /// Enters the library's own handlers, at enrolment.
    pub fn enter_system(&mut self) {
        for tag in SYSTEM_TAGS {
            self.enter(Handler { src: ANY, tag, ctx: SYSCTX_TC, function: None });
        }
    }

    /// Whether such a message that comes now is for a user handler, or has to wait for one.
    pub fn take(&self, src: i32, tag: i32, ctx: i32) -> bool {
        !self.due.is_empty() || self.running.is_some() || self.find(src, tag, ctx).is_some()
    }

    /// The user handler that takes such a message.
    fn find(&self, src: i32, tag: i32, ctx: i32) -> Option<(i32, u64)> {
        self.list.iter().enumerate().rev().find_map(|(id, handler)| {
            let handler = handler.as_ref().filter(|handler| handler.accepts(src, tag, ctx))?;
            Some((id as i32, handler.function?))
        })
    }

    /// A message has arrived that they [`Handlers::take`].
    pub fn arrived(&mut self, mid: i32, src: i32, tag: i32, ctx: i32) {
        self.due.push_back(Due { mid, src, tag, ctx });
    }

    /// So many messages that come from there next have come already.
    pub fn expect_repeats(&mut self, src: i32, count: u32) {
        self.forget_repeats(src);
        if count > 0 {
            self.repeats.push((src, count));
            self.special += 1;
        }
    }

    /// Nothing that was sent before comes from there any more.
    pub fn forget_repeats(&mut self, src: i32) {
        let before = self.repeats.len();
        self.repeats.retain(|(other, _)| *other != src);
        self.special -= before - self.repeats.len();
    }

    /// Whether a message from there that comes by the default route may be a repeat.
    pub fn repeats(&self, src: i32) -> bool {
        self.repeats.iter().any(|(other, _)| *other == src)
    }

    /// A message comes from there by the default route. Says whether it has come already.
    pub fn take_repeat(&mut self, src: i32) -> bool {
        let Some((_, count)) = self.repeats.iter_mut().find(|(other, _)| *other == src) else { return false };
        *count -= 1;
        if *count == 0 {
            self.forget_repeats(src);
        }
        true
    }

    fn enter(&mut self, handler: Handler) -> i32 {
        self.special += usize::from(handler.function.is_some());
        let id = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        if id == self.list.len() {
            self.list.push(None);
        }
        self.list[id] = Some(handler);
        id as i32
    }
}

/// Message handlers (contract 2.4).
impl Task {
    /// `pvm_addmhf`; `function` is given back in [`HandlerCall`].
    pub fn add_handler(&mut self, src: i32, tag: i32, ctx: i32, function: u64) -> Result<i32, Code> {
        let handlers = &mut self.state.handlers;
        if handlers.list.iter().flatten().any(|handler| handler.overlaps(src, tag, ctx)) {
            return Err(Code::Exists);
        }
        Ok(handlers.enter(Handler { src, tag, ctx, function: Some(function) }))
    }

    /// `pvm_delmhf`.
    pub fn delete_handler(&mut self, id: i32) -> Result<(), Code> {
        let id = usize::try_from(id).map_err(|_| Code::BadParam)?;
        let handlers = &mut self.state.handlers;
        let handler = handlers.list.get_mut(id).and_then(Option::take).ok_or(Code::NotFound)?;
        handlers.special -= usize::from(handler.function.is_some());
        Ok(())
    }

    /// A handler that has to run. `None` while one runs. Buffers and context are those of the
    /// handler until [`Task::handler_done`].
    #[inline]
    pub fn next_handler_call(&mut self) -> Option<HandlerCall> {
        if self.state.handlers.due.is_empty() {
            return None;
        }
        self.enter_handler()
    }

    fn enter_handler(&mut self) -> Option<HandlerCall> {
        if self.state.handlers.running.is_some() {
            return None;
        }
        let call = loop {
            let Due { mid, src, tag, ctx } = self.state.handlers.due.pop_front()?;
            if let Some((handler, function)) = self.state.handlers.find(src, tag, ctx) {
                break HandlerCall { handler, function, mid };
            }
            self.state.store.table[mid as usize - 1].place = Place::Queued;
            self.state.store.enqueue(mid as u32 - 1);
            self.note_news();
        };
        let state = &mut self.state;
        let ctx = state.store.get(call.mid).map_or(state.context, |message| message.ctx);
        state.handlers.running = Some(Interrupted {
            mid: call.mid,
            send: std::mem::replace(&mut state.store.send, 0),
            receive: std::mem::replace(&mut state.store.receive, call.mid),
            ctx: std::mem::replace(&mut state.context, ctx),
        });
        Some(call)
    }

    /// The handler has run: its buffers are freed, the caller's are back.
    pub fn handler_done(&mut self) {
        let state = &mut self.state;
        let Some(before) = state.handlers.running.take() else { return };
        // The message goes unless the handler set it aside by `pvm_setrbuf(0)`.
        let store = &mut state.store;
        if store.send != 0 && store.send != before.send && store.send != before.receive {
            store.free(store.send);
        }
        if store.receive == before.mid {
            store.free(before.mid);
        }
        let kept = |mid: i32| if store.get(mid).is_ok() { mid } else { 0 };
        (store.send, store.receive) = (kept(before.send), kept(before.receive));
        state.context = before.ctx;
    }

    /// Whether a handler runs: blocking calls give `NotImpl`, nrecv and probe 0.
    pub fn in_handler(&self) -> bool {
        self.state.handlers.running.is_some()
    }

    /// The handlers: id, sender, tag, context (for `pvmdisplaymhfinfo`).
    pub fn handlers(&self) -> impl Iterator<Item = (i32, i32, i32, i32)> + '_ {
        let list = self.state.handlers.list.iter().enumerate();
        list.filter_map(|(id, handler)| handler.as_ref().map(|h| (id as i32, h.src, h.tag, h.ctx)))
    }
}
