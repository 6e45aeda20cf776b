//! The trace that a task makes of its own calls (contract 1.6, 2.9, 2.12).
//!
//! [`Task::traces`] returns whether anything is traced; callers check this first. Records become messages to the
//! collector. The messages wait in a queue until [`Task::send_traces`] has sent them: the first message may have to
//! wait until the daemon has introduced the collector.
mod tally;
mod user;

pub(crate) use user::{begin_user_event, frame_items, kind_number};

use crate::Task;
use crate::types::Submit;
use pvm_core::codes::{Code, ENC_TRACE, ENC_XDR};
use pvm_core::events::{Event, all, mark};
use pvm_core::proto::TraceSettings;
use pvm_core::tid::Tid;
use pvm_core::trace::{Described, Moment, Record, Stamp, Value, write_int};
use std::collections::VecDeque;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tally::Tally;

/// A value of `PvmTraceOptions`: trace each event with a record.
const FULL: i32 = 1;
/// A value of `PvmTraceOptions`: trace how often each event happened, and how long it took.
const TIME: i32 = 2;
/// A value of `PvmTraceOptions`: trace how often each event happened.
const COUNT: i32 = 3;

/// Returns the time of day.
pub fn stamp() -> Stamp {
    Stamp::since_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The collector of traces: tid, context, tag.
type Collector = (i32, i32, i32);

fn collector(own: &TraceSettings) -> Collector {
    (own.trace_tid, own.trace_ctx, own.trace_tag)
}

/// The part of a task's trace that has not been sent.
#[derive(Default)]
pub(crate) struct Tracer {
    /// The collector to which the descriptions in `described` have been sent.
    collector: Collector,
    described: Described,
    /// Records that wait until they fill `trace_buffer` bytes.
    buffer: Vec<u8>,
    /// Messages that are ready to be sent.
    ready: VecDeque<(Collector, Vec<u8>)>,
    tally: Tally,
    /// Called when the daemon or another task changes the settings.
    pub changed: Option<fn()>,
}

impl Tracer {
    /// Adds a record. `buffer_bytes`: how many bytes of records may wait.
    fn add(&mut self, to: Collector, record: &Record, buffer_bytes: usize) {
        if self.collector != to {
            self.flush();
            (self.collector, self.described) = (to, Described::default());
        }
        let describe = self.described.first(record.event, record.moment);
        if buffer_bytes == 0 {
            self.flush();
            let mut body = Vec::new();
            record.write(describe, &mut body);
            self.ready.push_back((to, body));
            return;
        }
        if self.buffer.is_empty() {
            write_int(&mut self.buffer, mark::BUFFER);
        }
        record.write(describe, &mut self.buffer);
        if self.buffer.len() >= buffer_bytes {
            self.flush();
        }
    }

    /// Puts the waiting records into one message.
    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            write_int(&mut self.buffer, mark::BUFFER_END);
            self.ready.push_back((self.collector, std::mem::take(&mut self.buffer)));
        }
    }
}

/// Traces.
impl Task {
    /// Returns whether any event of this task is traced.
    pub fn traces(&self) -> bool {
        self.is_connected() && self.has_collector() && all().any(|event| event.chosen_by(self.own_mask()))
    }

    /// Returns whether events of this kind are traced.
    pub fn traces_event(&self, event: Event) -> bool {
        self.is_connected() && self.has_collector() && event.chosen_by(self.own_mask())
    }

    fn own_mask(&self) -> &[u8] {
        &self.state.settings.own.mask
    }

    /// Returns whether another task collects the traces of this task, and `PvmTraceOptions` has a known value. No task
    /// traces to itself.
    fn has_collector(&self) -> bool {
        let own = &self.state.settings.own;
        own.trace_tid > 0 && own.trace_tid != self.own_tid() && (FULL..=COUNT).contains(&own.trace_options)
    }

    /// Makes the library call `changed` whenever the daemon or another task changes what is traced.
    pub fn watch_trace_settings(&mut self, changed: fn()) {
        self.state.tracer.changed = Some(changed);
    }

    /// Traces an event. `values`: the event's data, in the order in which `pvm_core::events` lists them. `since`: when
    /// the traced function began, if `moment` is its exit.
    pub fn trace(&mut self, event: Event, moment: Moment, at: Stamp, since: Option<Instant>, values: Vec<Value>) {
        let tid = self.tid().unwrap_or(Tid::NONE);
        let own = &self.state.settings.own;
        match own.trace_options {
            TIME | COUNT => self.state.tracer.tally.add(event, since.map(|since| since.elapsed())),
            _ => {
                let buffer_bytes = usize::try_from(own.trace_buffer).unwrap_or(0);
                let record = Record { event, moment, stamp: at, tid, values };
                self.state.tracer.add(collector(own), &record, buffer_bytes);
            }
        }
    }

    /// Makes messages of all traces, including the events that were only counted. Called before the task leaves.
    pub fn finish_traces(&mut self) {
        if self.has_collector() {
            let tid = self.tid().unwrap_or(Tid::NONE);
            let own = &self.state.settings.own;
            let tally = std::mem::take(&mut self.state.tracer.tally);
            let told = match own.trace_options {
                TIME => Some((Event::Timing, tally.times())),
                COUNT => Some((Event::Profiling, tally.counts())),
                _ => None,
            };
            if let Some((event, values)) = told {
                let record = Record { event, moment: Moment::Once, stamp: stamp(), tid, values };
                self.state.tracer.add(collector(own), &record, 0);
            }
        }
        self.state.tracer.flush();
    }

    /// Sends the messages that are ready. Returns `Again` as other sends do. Without a daemon, the messages are
    /// dropped.
    pub fn send_traces(&mut self) -> Submit {
        while let Some(((to, ctx, tag), body)) = self.state.tracer.ready.pop_front() {
            match self.send_body(Tid(to as u32), ctx, tag, 0, &body) {
                Ok(Submit::Again) => {
                    self.state.tracer.ready.push_front(((to, ctx, tag), body));
                    return Submit::Again;
                }
                // If the collector is gone, or there is no room for the message, the trace is lost.
                Ok(Submit::Done) | Err(_) => {}
            }
        }
        Submit::Done
    }

    /// Sends the active send buffer as a trace event of the program, if such events are collected.
    #[cold]
    pub(crate) fn send_user_event(&mut self) -> Result<Submit, Code> {
        let own = &self.state.settings.own;
        let (to, ctx, tag) = collector(own);
        let message = self.state.store.sending()?;
        if to <= 0 || !Event::UserDefined.chosen_by(&own.mask) {
            return Ok(Submit::Done);
        }
        let mut body = message.body()?;
        if message.enc == ENC_TRACE {
            pvm_core::trace::write_user_end(&mut body);
        }
        let enc = if message.enc == ENC_TRACE { ENC_TRACE } else { ENC_XDR };
        self.send_encoded(Tid(to as u32), [ctx, tag, 0, enc], &body)
    }
}
