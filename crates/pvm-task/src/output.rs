//! Output of children that comes to this task (contract 2.8).
use crate::Task;
use crate::system::TC_OUTPUT;
use pvm_core::codes::SYSCTX_TC;
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, VecDeque};

/// In place of a length: the output is at its end.
const AT_END: i32 = 0;
/// In place of a length: the spawner has announced the task.
const ANNOUNCED: i32 = -1;
/// In place of a length: the task was made.
const CREATED: i32 = -2;

/// Something happened to the output of a collected task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputEvent {
    /// The task.
    pub task: Tid,
    /// The context and tag to which its output goes: which collection it belongs to.
    pub ctx: i32,
    /// See `ctx`.
    pub tag: i32,
    /// What happened.
    pub kind: OutputKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputKind {
    /// The first news of the task (`[tXXXXX] BEGIN`).
    Begin,
    /// A whole line without its newline; at the end of the output also what was left without one.
    Line(Vec<u8>),
    /// No more comes (`[tXXXXX] EOF`).
    End,
    /// Bytes as they came, of a channel that is collected as it comes ([`Task::collect_raw_output`]).
    Raw(Vec<u8>),
}

/// A context and a tag.
type Channel = (i32, i32);

/// A task whose output comes here.
#[derive(Default)]
struct Collected {
    line: Vec<u8>,
    announced: bool,
    ended: bool,
}

/// Collects output.
#[derive(Default)]
pub(crate) struct Output {
    channels: Vec<Channel>,
    /// Those of them that are told as they come.
    raw: Vec<Channel>,
    tasks: BTreeMap<(Channel, Tid), Collected>,
    events: VecDeque<OutputEvent>,
}

impl Output {
    /// Whether messages outside the system context are output.
    #[inline]
    pub fn any(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Whether messages of that context and tag are output.
    pub fn takes(&self, channel: Channel) -> bool {
        self.channels.contains(&channel)
    }

    /// Takes a message of the raw protocol.
    pub fn on_message(&mut self, channel: Channel, mut reader: Reader<'_>) {
        if !self.takes(channel) {
            return;
        }
        let (Some(task), Some(length)) = (reader.int(), reader.int()) else { return };
        let task = Tid(task as u32);
        if self.raw.contains(&channel) {
            return self.on_raw_message(channel, task, length, reader);
        }
        let known = self.tasks.contains_key(&(channel, task));
        if !known {
            self.tasks.insert((channel, task), Collected::default());
            self.report(channel, task, OutputKind::Begin);
        }
        match length {
            AT_END => self.end(channel, task),
            ANNOUNCED => self.mark(channel, task, |collected| collected.announced = true),
            CREATED => {}
            _ => {
                let text = usize::try_from(length).ok().and_then(|length| reader.bytes(length));
                self.text(channel, task, text.unwrap_or_default());
            }
        }
    }

    /// Nothing is remembered of the task, who collects does that.
    fn on_raw_message(&mut self, channel: Channel, task: Tid, length: i32, mut reader: Reader<'_>) {
        let kind = match usize::try_from(length) {
            Ok(0) => OutputKind::End,
            Ok(length) => OutputKind::Raw(reader.bytes(length).unwrap_or_default().to_vec()),
            Err(_) => OutputKind::Begin,
        };
        self.report(channel, task, kind);
    }

    fn text(&mut self, channel: Channel, task: Tid, mut text: &[u8]) {
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let Some(collected) = self.tasks.get_mut(&(channel, task)) else { return };
            let mut line = std::mem::take(&mut collected.line);
            line.extend_from_slice(&text[..end]);
            self.report(channel, task, OutputKind::Line(line));
            text = &text[end + 1..];
        }
        self.mark(channel, task, |collected| collected.line.extend_from_slice(text));
    }

    fn end(&mut self, channel: Channel, task: Tid) {
        let Some(collected) = self.tasks.get_mut(&(channel, task)) else { return };
        let rest = std::mem::take(&mut collected.line);
        if !rest.is_empty() {
            self.report(channel, task, OutputKind::Line(rest));
        }
        self.report(channel, task, OutputKind::End);
        self.mark(channel, task, |collected| collected.ended = true);
    }

    /// Changes what is known of the task; forgets it when it is announced and at its end.
    fn mark(&mut self, channel: Channel, task: Tid, change: impl FnOnce(&mut Collected)) {
        let Some(collected) = self.tasks.get_mut(&(channel, task)) else { return };
        change(collected);
        if collected.announced && collected.ended {
            self.tasks.remove(&(channel, task));
        }
    }

    fn report(&mut self, (ctx, tag): Channel, task: Tid, kind: OutputKind) {
        self.events.push_back(OutputEvent { task, ctx, tag, kind });
    }
}

/// Output of children (contract 2.8).
impl Task {
    /// From now on, messages to this context and tag are output of children: they are
    /// not queued but come by [`Task::next_output`]. Does not change where children's output goes.
    pub fn collect_output(&mut self, ctx: i32, tag: i32) {
        if !self.state.output.takes((ctx, tag)) {
            self.state.output.channels.push((ctx, tag));
        }
    }

    /// The same, with [`OutputKind::Raw`] in place of lines; a task may begin and end more than once.
    pub fn collect_raw_output(&mut self, ctx: i32, tag: i32) {
        self.collect_output(ctx, tag);
        self.state.output.raw.push((ctx, tag));
    }

    /// `pvm_catchout(non-NULL)`: children spawned from now on send their output here.
    pub fn catch_output(&mut self) {
        self.collect_output(SYSCTX_TC, TC_OUTPUT);
        let tid = self.own_tid();
        let children = &mut self.state.settings.children;
        (children.output_tid, children.output_ctx, children.output_tag) = (tid, SYSCTX_TC, TC_OUTPUT);
        children.run = children.run.for_others();
    }

    /// `pvm_catchout(NULL)`: later children do not.
    pub fn stop_catching_output(&mut self) {
        let children = &mut self.state.settings.children;
        (children.output_tid, children.output_ctx, children.output_tag) = (0, 0, 0);
        children.run = children.run.for_others();
    }

    /// What came of the output of children.
    pub fn next_output(&mut self) -> Option<OutputEvent> {
        self.state.output.events.pop_front()
    }

    /// How many collected tasks have not ended.
    pub fn collecting(&self) -> usize {
        self.state.output.tasks.len()
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
