//! Message handlers (contract 2.4).
use super::Task;
use crate::types::HandlerCall;
use pvm_core::codes::Code;

impl Task {
    /// `pvm_addmhf`: adds a handler. When the handler has to run, `function` is returned in [`HandlerCall`].
    pub fn add_handler(&mut self, src: i32, tag: i32, ctx: i32, function: u64) -> Result<i32, Code> {
        self.state.handlers.add(src, tag, ctx, function)
    }

    /// `pvm_delmhf`.
    pub fn delete_handler(&mut self, id: i32) -> Result<(), Code> {
        self.state.handlers.delete(id)
    }

    /// Returns the call of a handler that has to run, or `None` if there is none or a handler runs already. Until
    /// [`Task::handler_done`], the active buffers and the context are those of the handler.
    #[inline]
    pub fn next_handler_call(&mut self) -> Option<HandlerCall> {
        if !self.state.handlers.has_user_handlers() || self.state.handlers.is_running() {
            return None;
        }
        self.state.begin_handler()
    }

    /// Ends a handler: frees its buffers and restores those of the caller.
    pub fn handler_done(&mut self) {
        if self.state.end_handler() {
            // More messages are visible: no thread sleeps before it has searched again.
            self.note(1, 0);
        }
    }

    /// Returns whether a handler runs. While one runs, blocking calls return `NotImpl`, and `pvm_nrecv` and `pvm_probe`
    /// return 0.
    pub fn in_handler(&self) -> bool {
        self.state.handlers.is_running()
    }

    /// Returns the handlers: id, sender, tag, context (for `pvmdisplaymhfinfo`).
    pub fn handlers(&self) -> impl Iterator<Item = (i32, i32, i32, i32)> + '_ {
        self.state.handlers.all()
    }
}
