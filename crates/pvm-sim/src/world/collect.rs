//! Output and traces: the tasks that print, the messages that daemons make of output and traces, the collectors, and
//! the task that has registered as the tracer of the machine.
use crate::event::Event;
use crate::ids::NodeId;
use crate::ids::TaskId;
use crate::world::World;
use pvm_core::encoding::Writer;
use pvm_core::proto::{Message, Request, Role, RunSettings, TraceSettings};
use pvm_core::tid::Tid;
use pvm_core::trace::Record;

/// The context in which output is collected.
pub const OUTPUT_CONTEXT: i32 = 71;
/// The context in which traces are collected.
pub const TRACE_CONTEXT: i32 = 72;
/// The most lines that a program prints at once.
const LINES_MAX: usize = 3;
/// The length of a line in bytes. A line contains only its number.
pub const LINE_BYTES: usize = 8;

/// Returns settings with which output and traces are sent to the collector.
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
    /// Returns the destination of the output and traces of a task's children: the task itself, its own collector, or
    /// the tracer if there is one.
    pub fn settings_of_children(&mut self, task: TaskId) -> TraceSettings {
        let one = &mut self.tasks[task];
        match one.prng.below(3) {
            0 => all_to(one.tid),
            1 => one.own.clone(),
            _ => TraceSettings::default(),
        }
    }

    /// Lets a program print. The daemon reads the output only of processes that it has started.
    pub fn print_lines(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        if one.cookie.is_some() {
            one.printed += 1 + one.prng.below(LINES_MAX) as u64;
            let late = self.short_time();
            self.queue.push(self.now + late, Event::Output(task));
        }
        self.plan_step(task);
    }

    /// Lets the daemon read what a process has printed.
    pub fn read_output(&mut self, node: NodeId, task: TaskId) {
        let one = &mut self.tasks[task];
        let lines = std::mem::replace(&mut one.read, one.printed)..one.printed;
        let data: Vec<u8> = lines.flat_map(u64::to_le_bytes).collect();
        if !data.is_empty() {
            self.nodes[node].machine.handle_output(one.tid, &data);
        }
    }

    /// Lets the daemon make the message about a trace event.
    pub fn make_trace(&mut self, node: NodeId, place: (Tid, i32, i32), record: &Record, describe: bool) {
        let (dst, ctx, tag) = place;
        let body = Writer::new().int(record.event as i32).int(record.tid.0 as i32).int(i32::from(describe));
        let body = body.int(self.nodes[node].tid.0 as i32).finish();
        let message = Message::new(Tid::DAEMON, dst, ctx, tag, body);
        self.nodes[node].machine.handle_messages_made([message]);
    }

    /// Lets a program become the tracer of the machine, change the trace settings, or resign.
    pub fn change_tracer(&mut self, task: TaskId) {
        let one = &mut self.tasks[task];
        let request = match (one.is_tracer, one.prng.below(3)) {
            (false, _) => Request::Register { role: Role::Tracer, on: true },
            (true, 0) => {
                one.is_tracer = false;
                Request::Register { role: Role::Tracer, on: false }
            }
            (true, _) => Request::SetTracer(all_to(one.tid)),
        };
        self.ask(task, request);
    }

    /// Notes that the program has become the tracer of the machine.
    pub fn became_tracer(&mut self, task: TaskId) {
        self.tasks[task].is_tracer = true;
        self.serves_alone(task);
    }
}
