//! Output of children (contract 2.8).
use super::Task;
use crate::output::OutputEvent;
use crate::state::TC_OUTPUT;
use pvm_core::codes::SYSCTX_TC;

impl Task {
    /// Treats messages to this context and tag as output of children from now on: they are not queued;
    /// [`Task::next_output`] returns their contents. Does not change where children's output goes.
    pub fn collect_output(&mut self, ctx: i32, tag: i32) {
        self.state.output.collect((ctx, tag));
    }

    /// As [`Task::collect_output`], with `OutputKind::Raw` in place of lines. A task may cause more than one
    /// `OutputKind::Begin` and `OutputKind::End`.
    pub fn collect_raw_output(&mut self, ctx: i32, tag: i32) {
        self.state.output.collect_raw((ctx, tag));
    }

    /// `pvm_catchout(non-NULL)`: children that are spawned from now on send their output here.
    pub fn catch_output(&mut self) {
        self.collect_output(SYSCTX_TC, TC_OUTPUT);
        let tid = self.own_tid();
        let children = &mut self.state.settings.children;
        (children.output_tid, children.output_ctx, children.output_tag) = (tid, SYSCTX_TC, TC_OUTPUT);
        children.run = children.run.for_others();
    }

    /// `pvm_catchout(NULL)`: children that are spawned from now on do not send their output here.
    pub fn stop_catching_output(&mut self) {
        let children = &mut self.state.settings.children;
        (children.output_tid, children.output_ctx, children.output_tag) = (0, 0, 0);
        children.run = children.run.for_others();
    }

    /// Returns the oldest event of the output of children.
    pub fn next_output(&mut self) -> Option<OutputEvent> {
        self.state.output.next()
    }

    /// Returns for how many collected tasks the end of the output or the spawner's announcement is missing.
    pub fn collecting(&self) -> usize {
        self.state.output.collecting()
    }
}
