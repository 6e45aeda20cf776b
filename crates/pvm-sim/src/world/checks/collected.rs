//! Invariant: the output and the traces of a task arrive at their collectors completely and in order, and the end of
//! the output and the end of the traces are each reported exactly once.
use super::{Checks, Unsettled};
use crate::program::Stage;
use crate::world::World;
use crate::world::collect::{LINE_BYTES, OUTPUT_CONTEXT, TRACE_CONTEXT};
use pvm_core::encoding::Reader;
use pvm_core::events::Event;
use pvm_core::proto::Message;
use pvm_core::tid::Tid;
use std::collections::{HashMap, HashSet};

/// What a collector has received from a task.
#[derive(Default)]
struct Collected {
    lines: u64,
    ended: bool,
    traces_ended: bool,
}

/// Everything that was collected.
#[derive(Default)]
pub struct Collections {
    /// What each collector has received from each task, by collector and task.
    tasks: HashMap<(Tid, Tid), Collected>,
    /// The events that each daemon has described to each collector.
    described: HashSet<(Tid, Tid, i32)>,
}

impl Collections {
    fn output(&mut self, collector: Tid, body: &mut Reader<'_>) -> Result<(), String> {
        let (tid, length) = (Tid(body.int().unwrap_or(0) as u32), body.int().unwrap_or(0));
        let known = self.tasks.entry((collector, tid)).or_default();
        if length < 0 {
            // A negative length announces a task. Another host may send this announcement at any time.
            return Ok(());
        }
        if known.ended {
            return Err(format!("{collector} hears of {tid} after the end of its output"));
        }
        known.ended = length == 0;
        for line in body.rest()[..length as usize].chunks(LINE_BYTES) {
            let number = line.try_into().map(u64::from_le_bytes).ok();
            if number != Some(known.lines) {
                return Err(format!("{collector} gets line {number:?} of {tid} where {} was to come", known.lines));
            }
            known.lines += 1;
        }
        Ok(())
    }

    fn trace(&mut self, collector: Tid, body: &mut Reader<'_>) -> Result<(), String> {
        let [event, tid, describes, host] = [(); 4].map(|()| body.int().unwrap_or(0));
        let (tid, host) = (Tid(tid as u32), Tid(host as u32));
        // A second description is no error: a daemon that has reported nothing for a while may describe the event
        // again.
        if self.described.insert((host, collector, event)) && describes == 0 {
            return Err(format!("{host} tells {collector} of event {event} without having described it"));
        }
        if event == Event::Spntask as i32 {
            // The spawner's daemon may report this event at any time, even after the end of the task.
            return Ok(());
        }
        let ends = event == Event::Endtask as i32;
        let known = self.tasks.entry((collector, tid)).or_default();
        let ended = known.traces_ended;
        known.traces_ended |= ends;
        match ended {
            true => Err(format!("{collector} hears of event {event} of {tid} after its end")),
            false => Ok(()),
        }
    }
}

impl Checks {
    /// Handles a message of a daemon. Returns whether the message is for a collector.
    pub fn collected(&mut self, collector: Tid, message: &Message) -> bool {
        let body = &mut Reader::new(&message.body);
        let result = match message.ctx {
            OUTPUT_CONTEXT => self.collections.output(collector, body),
            TRACE_CONTEXT => self.collections.trace(collector, body),
            _ => return false,
        };
        self.take("collected", result, &[collector]);
        true
    }
}

impl World {
    /// Checks that living collectors have received everything that tasks have printed, and know which tasks have ended.
    pub fn output_arrived(&self) -> Unsettled {
        for (_, task) in self.tasks.iter().enumerate().filter(|(number, _)| self.in_machine(*number)) {
            let ended = task.stage == Stage::Dead;
            if task.tid == Tid::NONE {
                continue;
            }
            let lives = |collector: &Tid| {
                let other = self.by_tid.get(collector);
                other.is_some_and(|other| self.tasks[*other].is_enrolled() && self.in_machine(*other))
            };
            let of = |collector: Tid| self.checks.collections.tasks.get(&(collector, task.tid));
            let collector = Tid(task.own.output_tid as u32);
            let lines = of(collector).map_or((0, false), |known| (known.lines, known.ended));
            if lives(&collector) && lines != (task.printed, ended) {
                let text = format!("{collector} has {lines:?} of {} lines of {} ({ended})", task.printed, task.tid);
                return Err((text, vec![task.tid.host(), collector.host()]));
            }
            let collector = Tid(task.own.trace_tid as u32);
            let traces = of(collector).is_some_and(|known| known.traces_ended);
            if lives(&collector) && traces != ended {
                let text = format!("{collector} knows wrongly of the end of {}: {traces}", task.tid);
                return Err((text, vec![task.tid.host(), collector.host()]));
            }
        }
        Ok(())
    }
}
