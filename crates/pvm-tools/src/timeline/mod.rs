//! `pvm run --trace`: writes the events of a run as a timeline in the JSON format that Chrome and Perfetto show. A host
//! is a process, a task is a thread, a call is a slice, and a message is an arrow from its send to its receive.
//!
//! A slice is written when its call ends, an arrow when both of its ends are known. At the end of the run the open
//! slices are closed, so that the file is complete, whatever happened to the tasks.
//!
//! Looks at the machine are events, too: `pvm monitor` shows them, other programs pass over them.
mod arguments;
mod flows;
pub mod looks;
pub mod patch;

use crate::look::Recent;
use flows::{Flows, Message, Point};
use looks::Looks;
use pvm_core::events::{self, Datum, Event, MASK_CHARACTERS};
use pvm_core::proto::Host;
use pvm_core::tid::{LOCAL_MASK, Tid};
use pvm_core::trace::{Moment, Part, Record, Stamp, UserItems, Value};
use pvm_core::waiting::{Look, report};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The number of bits of the local part of a tid.
const LOCAL_BITS: u32 = LOCAL_MASK.trailing_ones();

/// Returns the events that a timeline shows: all calls except those that pack and unpack, which are many and short.
pub fn mask() -> [u8; MASK_CHARACTERS] {
    let packs = |event: &Event| ["pk", "upk"].iter().any(|start| event.name().starts_with(start));
    events::mask(events::all().filter(|event| !packs(event)))
}

/// A call that has begun.
struct Open {
    event: Event,
    /// The time in microseconds.
    start: i64,
    record: Record,
}

/// The state of a task.
#[derive(Default)]
struct Track {
    open: Vec<Open>,
    /// The latest time of the task's events so far. If the clock has gone back, the next event gets this time, too.
    last: i64,
    context: i32,
    named: bool,
}

/// A timeline that is being written.
pub struct Timeline<W: Write> {
    out: W,
    /// The start of the timeline, in microseconds since 1970; in the file it is time 0.
    base: i64,
    first: bool,
    tracks: BTreeMap<Tid, Track>,
    flows: Flows,
    looks: Looks,
    recent: Recent,
}

impl<W: Write> Timeline<W> {
    /// Begins to write; times count from `start`.
    pub fn new(mut out: W, start: Stamp) -> io::Result<Timeline<W>> {
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        let base = start.microseconds();
        let (tracks, flows, looks) = (BTreeMap::new(), Flows::default(), Looks::default());
        let recent = Recent::default();
        let mut timeline = Timeline { out, base, first: true, tracks, flows, looks, recent };
        timeline.write(&start_event(base))?;
        Ok(timeline)
    }

    /// Names a host.
    pub fn host(&mut self, tid: Tid, name: &str) -> io::Result<()> {
        self.write(&json!({ "ph": "M", "name": "process_name", "pid": process(tid), "args": { "name": name } }))
    }

    /// Adds a look at the machine that was taken at this time.
    pub fn look(&mut self, look: Look, hosts: &[Host], taken: Stamp) -> io::Result<()> {
        let at = taken.microseconds() - self.base;
        let recent = self.recent.add(look);
        let Some(look) = recent.last() else { return Ok(()) };
        let event = self.looks.event((look, &report(recent)), hosts, at);
        self.write(&event)?;
        self.out.flush()
    }

    /// Adds what a task has printed: a part of a line, or several lines.
    pub fn output(&mut self, task: Tid, stream: &str, bytes: &[u8], taken: Stamp) -> io::Result<()> {
        let (pid, thread) = place(task);
        let at = taken.microseconds() - self.base;
        let text = String::from_utf8_lossy(bytes);
        self.write(&json!({
            "ph": "i", "s": "t", "cat": "output", "name": stream, "pid": pid, "tid": thread, "ts": at,
            "args": { "text": text },
        }))
    }

    /// Handles a part of a trace message from `from`.
    pub fn take(&mut self, from: Tid, part: Part) -> io::Result<()> {
        match part {
            Part::User(stamp, items) => self.user_event(from, stamp, &items),
            Part::Record(record) => match (record.event, record.moment) {
                (Event::Newtask, _) => self.name(record.tid, &record),
                (Event::Endtask, _) => self.end(record.tid, record.stamp),
                (Event::MhfInvoke, _) => self.handler(record),
                (_, Moment::Entry) => self.begin(record),
                (_, Moment::Exit) => self.finish_call(record),
                (_, Moment::Once) => Ok(()),
            },
        }
    }

    /// Closes the open slices and the file.
    pub fn finish(mut self) -> io::Result<()> {
        for tid in self.tracks.keys().copied().collect::<Vec<_>>() {
            let last = self.tracks[&tid].last;
            self.close(tid, 0, last)?;
        }
        write!(self.out, "\n]}}\n")?;
        self.out.flush()
    }

    fn write(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    /// Returns the state of a task, and the time of an event in the file, in microseconds.
    fn at(&mut self, tid: Tid, stamp: Stamp) -> (&mut Track, i64) {
        let at = stamp.microseconds() - self.base;
        let track = self.tracks.entry(tid).or_default();
        track.last = track.last.max(at);
        let last = track.last;
        (track, last)
    }

    fn name(&mut self, tid: Tid, record: &Record) -> io::Result<()> {
        let (track, _) = self.at(tid, record.stamp);
        if std::mem::replace(&mut track.named, true) {
            return Ok(());
        }
        let program = match record.value(Datum::TN) {
            Some(Value::Text(name)) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        };
        let program = program.rsplit('/').next().unwrap_or_default();
        let name = format!("{tid} {program}");
        let place = place(tid);
        self.write(
            &json!({ "ph": "M", "name": "thread_name", "pid": place.0, "tid": place.1, "args": { "name": name } }),
        )
    }

    fn begin(&mut self, record: Record) -> io::Result<()> {
        let (track, start) = self.at(record.tid, record.stamp);
        track.open.push(Open { event: record.event, start, record });
        Ok(())
    }

    /// Ends a call, and the calls inside it whose ends were not reported.
    fn finish_call(&mut self, record: Record) -> io::Result<()> {
        let (track, end) = self.at(record.tid, record.stamp);
        let Some(depth) = track.open.iter().rposition(|open| open.event == record.event) else { return Ok(()) };
        self.close(record.tid, depth + 1, end)?;
        let Some(open) = self.tracks.get_mut(&record.tid).and_then(|track| track.open.pop()) else { return Ok(()) };
        let mut told = arguments::of(&open.record);
        told.append(&mut arguments::of(&record));
        self.slice(record.tid, &open, end, told)?;
        self.follow_messages(&open, &record, end)
    }

    /// Closes the open calls of a task that are nested at this depth or deeper.
    fn close(&mut self, tid: Tid, depth: usize, end: i64) -> io::Result<()> {
        while let Some(open) = self.tracks.get_mut(&tid).filter(|track| track.open.len() > depth) {
            let Some(open) = open.open.pop() else { break };
            let mut told = arguments::of(&open.record);
            told.insert("unfinished".into(), true.into());
            self.slice(tid, &open, end, told)?;
        }
        Ok(())
    }

    fn slice(&mut self, tid: Tid, open: &Open, end: i64, told: Map<String, serde_json::Value>) -> io::Result<()> {
        let (pid, thread) = place(tid);
        let name = format!("pvm_{}", open.event.name());
        let time = end - open.start;
        self.write(&json!({
            "ph": "X", "name": name, "cat": "call", "pid": pid, "tid": thread, "ts": open.start, "dur": time, "args": told,
        }))
    }

    fn end(&mut self, tid: Tid, stamp: Stamp) -> io::Result<()> {
        let (_, at) = self.at(tid, stamp);
        self.close(tid, 0, at)
    }

    fn instant(&mut self, tid: Tid, at: i64, name: &str, told: Map<String, serde_json::Value>) -> io::Result<()> {
        let (pid, thread) = place(tid);
        self.write(&json!({
            "ph": "i", "s": "t", "name": name, "cat": "event", "pid": pid, "tid": thread, "ts": at, "args": told,
        }))
    }

    fn user_event(&mut self, from: Tid, stamp: Stamp, items: &[UserItems]) -> io::Result<()> {
        let (_, at) = self.at(from, stamp);
        self.instant(from, at, "user event", arguments::of_items(items))
    }

    /// Adds the receive of a message by a message handler.
    fn handler(&mut self, record: Record) -> io::Result<()> {
        let (_, at) = self.at(record.tid, record.stamp);
        self.instant(record.tid, at, "message handler", arguments::of(&record))?;
        self.received(&record, at)
    }

    /// Adds the messages that a call has sent or received. The call has ended.
    fn follow_messages(&mut self, open: &Open, exit: &Record, end: i64) -> io::Result<()> {
        let entry = &open.record;
        match exit.event {
            Event::Send | Event::Psend | Event::Mcast | Event::Bcast => {
                let receivers = receivers(entry, exit);
                self.sent(entry, exit, &receivers, open.start)
            }
            Event::Recv | Event::Nrecv | Event::Trecv if exit.int(Datum::MB) > Some(0) => self.received(exit, end),
            Event::Precv if exit.int(Datum::CC) >= Some(0) => self.received(exit, end),
            Event::Setcontext => {
                let (track, _) = self.at(exit.tid, exit.stamp);
                track.context = entry.int(Datum::CXS).unwrap_or(track.context);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sent(&mut self, entry: &Record, exit: &Record, receivers: &[Tid], start: i64) -> io::Result<()> {
        if exit.int(Datum::CC).is_none_or(|code| code < 0) {
            return Ok(());
        }
        let context = self.tracks.get(&entry.tid).map_or(0, |track| track.context);
        let (tag, ctx) = (entry.int(Datum::MC).unwrap_or(0), entry.int(Datum::MCX).unwrap_or(context));
        let src = entry.tid;
        for dst in receivers.iter().copied().filter(|dst| dst.is_task()) {
            let message = Message { src, dst, ctx, tag };
            if let Some(end) = self.flows.sent(message, start) {
                self.arrow(message, start, end)?;
            }
        }
        Ok(())
    }

    fn received(&mut self, record: &Record, at: i64) -> io::Result<()> {
        let (Some(src), Some(tag)) = (record.int(Datum::SRC), record.int(Datum::MC)) else { return Ok(()) };
        let (src, ctx) = (Tid(src as u32), record.int(Datum::MCX).unwrap_or(0));
        let message = Message { src, dst: record.tid, ctx, tag };
        match self.flows.received(message, at) {
            Some(start) if src.is_task() => self.arrow(message, start, at),
            _ => Ok(()),
        }
    }

    fn arrow(&mut self, message: Message, start: Point, end: Point) -> io::Result<()> {
        let id = self.flows.next_number();
        let (from, to) = (place(message.src), place(message.dst));
        self.write(&json!({
            "ph": "s", "id": id, "name": "message", "cat": "message", "pid": from.0, "tid": from.1, "ts": start,
            "args": { "tag": message.tag },
        }))?;
        // The clocks of two hosts may differ, but an arrow must not go back in time.
        let end = end.max(start);
        self.write(&json!({
            "ph": "f", "bp": "e", "id": id, "name": "message", "cat": "message", "pid": to.0, "tid": to.1, "ts": end,
        }))
    }
}

/// Returns the event that says when a timeline starts, in microseconds since 1970.
pub fn start_event(base: i64) -> serde_json::Value {
    json!({ "ph": "M", "name": "start", "pid": 0, "args": { "microseconds": base } })
}

/// Returns the receivers of the message that a call sends.
fn receivers(entry: &Record, exit: &Record) -> Vec<Tid> {
    match (entry.int(Datum::DST), entry.value(Datum::MDL).or(exit.value(Datum::MDL))) {
        (Some(one), _) => vec![Tid(one as u32)],
        // Each task in the list gets one message, even if listed twice; the sender gets none.
        (None, Some(Value::Ints(many))) => {
            let many: std::collections::BTreeSet<Tid> = many.iter().map(|tid| Tid(*tid as u32)).collect();
            many.into_iter().filter(|tid| *tid != entry.tid).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the number of the process that represents a host.
fn process(tid: Tid) -> u32 {
    tid.host().0 >> LOCAL_BITS
}

/// Returns process and thread of a task.
fn place(tid: Tid) -> (u32, u32) {
    (process(tid), tid.0 & LOCAL_MASK)
}

#[cfg(test)]
mod tests;
