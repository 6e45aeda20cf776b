//! The trace that a task makes of its own calls (contract 1.6, 2.9, 2.12).
//!
//! [`Task::traces`](crate::Task::traces) returns whether anything is traced; callers check this first. Records become
//! messages to the collector. The messages wait in a queue until the task has sent them: the first message may have to
//! wait until the daemon has introduced the collector.
mod tally;
mod user;

pub(crate) use user::{begin_user_event, frame_items, kind_number};

use pvm_core::events::{Event, mark};
use pvm_core::proto::TraceSettings;
use pvm_core::tid::Tid;
use pvm_core::trace::{Described, Moment, Record, Stamp, write_int};
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

/// Returns the collector that these settings name.
pub(crate) fn collector(own: &TraceSettings) -> Collector {
    (own.trace_tid, own.trace_ctx, own.trace_tag)
}

/// Returns whether another task collects the traces of the task `own_tid`, and `PvmTraceOptions` has a known value. No
/// task traces to itself.
pub(crate) fn is_collected(own: &TraceSettings, own_tid: i32) -> bool {
    own.trace_tid > 0 && own.trace_tid != own_tid && (FULL..=COUNT).contains(&own.trace_options)
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
    pub ready: VecDeque<(Collector, Vec<u8>)>,
    tally: Tally,
    /// Called when the daemon or another task changes the settings.
    pub changed: Option<fn()>,
}

impl Tracer {
    /// Traces an event in the way that the settings name. `since`: when the traced function began, if the record is of its
    /// exit.
    pub fn trace(&mut self, own: &TraceSettings, record: &Record, since: Option<Instant>) {
        match own.trace_options {
            TIME | COUNT => self.tally.add(record.event, since.map(|since| since.elapsed())),
            _ => self.add(collector(own), record, usize::try_from(own.trace_buffer).unwrap_or(0)),
        }
    }

    /// Makes messages of all that was traced by the task `tid`, and, if it is collected, of the events that were only
    /// counted.
    pub fn finish(&mut self, own: &TraceSettings, tid: Tid) {
        if is_collected(own, tid.0 as i32) {
            let tally = std::mem::take(&mut self.tally);
            let told = match own.trace_options {
                TIME => Some((Event::Timing, tally.times())),
                COUNT => Some((Event::Profiling, tally.counts())),
                _ => None,
            };
            if let Some((event, values)) = told {
                let record = Record { event, moment: Moment::Once, stamp: stamp(), tid, values };
                self.add(collector(own), &record, 0);
            }
        }
        self.flush();
    }

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
