//! Output of children that is sent to this task (contract 2.8).
//!
//! A collected channel is a context and a tag. Each message to it names a task and carries text of the task, or a
//! length below 1 that stands for an event.
use pvm_core::encoding::Reader;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, VecDeque};

/// A length that stands for the end of the output.
const AT_END: i32 = 0;
/// A length that stands for the spawner's announcement of the task.
const ANNOUNCED: i32 = -1;
/// A length that stands for the creation of the task.
const CREATED: i32 = -2;

/// An event of the output of a collected task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputEvent {
    /// The task.
    pub task: Tid,
    /// The context of the channel to which the task's output goes.
    pub ctx: i32,
    /// The tag of that channel.
    pub tag: i32,
    /// The event.
    pub kind: OutputKind,
}

/// The kind of an output event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputKind {
    /// The first message of the task (`[tXXXXX] BEGIN`).
    Begin,
    /// A whole line without its newline. At the end of the output, also text that no newline ended.
    Line(Vec<u8>),
    /// The end of the output (`[tXXXXX] EOF`).
    End,
    /// Bytes of a raw channel, as they arrived ([`Task::collect_raw_output`](crate::Task::collect_raw_output)).
    Raw(Vec<u8>),
}

/// A context and a tag.
type Channel = (i32, i32);

/// A task whose output is sent to this task.
#[derive(Default)]
struct Collected {
    /// The beginning of a line whose newline has not arrived.
    line: Vec<u8>,
    announced: bool,
    ended: bool,
}

/// The collected output of tasks.
#[derive(Default)]
pub(crate) struct Output {
    channels: Vec<Channel>,
    /// The channels whose text is passed on as it arrives.
    raw: Vec<Channel>,
    tasks: BTreeMap<(Channel, Tid), Collected>,
    events: VecDeque<OutputEvent>,
}

impl Output {
    /// Returns whether any channel is collected.
    #[inline]
    pub fn collects_any(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Returns whether messages to that channel are output.
    pub fn takes(&self, channel: Channel) -> bool {
        self.channels.contains(&channel)
    }

    /// Collects a channel from now on.
    pub fn collect(&mut self, channel: Channel) {
        if !self.takes(channel) {
            self.channels.push(channel);
        }
    }

    /// Collects a channel from now on, and passes its bytes on without splitting them into lines.
    pub fn collect_raw(&mut self, channel: Channel) {
        self.collect(channel);
        self.raw.push(channel);
    }

    /// Returns the oldest event.
    pub fn next(&mut self) -> Option<OutputEvent> {
        self.events.pop_front()
    }

    /// Returns for how many tasks the end of the output or the spawner's announcement is missing.
    pub fn collecting(&self) -> usize {
        self.tasks.len()
    }

    /// Takes in a message about the output of a task.
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

    /// Passes a message on as an event. Keeps no record of the task; a caller that needs a record must keep one itself.
    fn on_raw_message(&mut self, channel: Channel, task: Tid, length: i32, mut reader: Reader<'_>) {
        let kind = match usize::try_from(length) {
            Ok(0) => OutputKind::End,
            Ok(length) => OutputKind::Raw(reader.bytes(length).unwrap_or_default().to_vec()),
            Err(_) => OutputKind::Begin,
        };
        self.report(channel, task, kind);
    }

    /// Splits text into lines.
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

    /// Ends the output of a task.
    fn end(&mut self, channel: Channel, task: Tid) {
        let Some(collected) = self.tasks.get_mut(&(channel, task)) else { return };
        let rest = std::mem::take(&mut collected.line);
        if !rest.is_empty() {
            self.report(channel, task, OutputKind::Line(rest));
        }
        self.report(channel, task, OutputKind::End);
        self.mark(channel, task, |collected| collected.ended = true);
    }

    /// Changes the record of a task, and drops it once the task is announced and its output has ended.
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

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
