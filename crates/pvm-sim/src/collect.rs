//! Output and traces: who prints, what the daemon makes of it, who collects, and the task that has
//! registered as the tracer of the machine.
use crate::network::NodeId;
use crate::program::TaskId;
use crate::world::{Event, World};
use pvm_core::encoding::Writer;
use pvm_core::proto::{Message, Request, Role, RunSettings, TraceSettings};
use pvm_core::tid::Tid;
use pvm_core::trace::Record;

/// The contexts in which output and traces are collected.
pub const OUTPUT_CONTEXT: i32 = 71;
/// See `OUTPUT_CONTEXT`.
pub const TRACE_CONTEXT: i32 = 72;
/// Lines that a program prints at once, at most.
const LINES_MAX: usize = 3;
/// Bytes of a line: its number.
pub const LINE_BYTES: usize = 8;

/// Settings of one who wants everything.
fn all_to(collector: Tid) -> TraceSettings {
    let tid = collector.0 as i32;
    TraceSettings {
        output_tid: tid,
        output_ctx: OUTPUT_CONTEXT,
        trace_tid: tid,
        trace_ctx: TRACE_CONTEXT,
        run: RunSettings { group: true, ..RunSettings::default() },
        ..TraceSettings::default()
    }
}

impl World {
    /// Where the children of a task print and trace to: to itself, to where it does so itself, or to
    /// the tracer, if there is one.
    pub fn settings_of_children(&mut self, task: TaskId) -> TraceSettings {
        let one = &mut self.tasks[task];
        match one.dice.roll(3) {
            0 => all_to(one.tid),
            1 => one.own.clone(),
            _ => TraceSettings::default(),
        }
    }

    /// A program prints. Only what a daemon has started prints to it.
    pub fn some_output(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        if one.cookie.is_some() {
            one.printed += 1 + one.dice.roll(LINES_MAX) as u64;
            let late = self.moment();
            self.queue.push(self.now + late, Event::Output(task));
        }
        self.plan_step(task);
    }

    /// The daemon reads what a process has printed.
    pub fn read_output(&mut self, node: NodeId, task: TaskId) {
        let one = &mut self.tasks[task];
        let lines = std::mem::replace(&mut one.read, one.printed)..one.printed;
        let data: Vec<u8> = lines.flat_map(u64::to_le_bytes).collect();
        if !data.is_empty() {
            self.nodes[node].machine.handle_output(one.tid, &data);
        }
    }

    /// The daemon makes a message of an event.
    pub fn make_trace(&mut self, node: NodeId, place: (Tid, i32, i32), record: &Record, describe: bool) {
        let (dst, ctx, tag) = place;
        let body = Writer::new().int(record.event as i32).int(record.tid.0 as i32).int(i32::from(describe));
        let body = body.int(self.nodes[node].tid.0 as i32).finish();
        let message = Message::new(Tid::DAEMON, dst, ctx, tag, body);
        self.nodes[node].machine.handle_messages_made([message]);
    }

    /// A program becomes the tracer of the machine, says what it wants, or is it no more.
    pub fn some_tracer(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let request = match (one.serves, one.dice.roll(3)) {
            (false, _) => Request::Register { role: Role::Tracer, on: true },
            (true, 0) => {
                one.serves = false;
                Request::Register { role: Role::Tracer, on: false }
            }
            (true, _) => Request::SetTracer(all_to(one.tid)),
        };
        self.ask(task, request);
    }

    /// The program is the tracer of the machine.
    pub fn became_tracer(&mut self, task: TaskId) {
        self.tasks[task].serves = true;
        self.serves_alone(task);
    }
}
