//! Traces of the task's own calls (contract 1.6, 2.9, 2.12).
use super::Task;
use crate::trace::{collector, is_collected};
use crate::types::Submit;
use pvm_core::codes::{Code, ENC_TRACE, ENC_XDR};
use pvm_core::events::{Event, all};
use pvm_core::tid::Tid;
use pvm_core::trace::{Moment, Record, Stamp, Value};
use std::time::Instant;

impl Task {
    /// Returns whether any event of this task is traced.
    pub fn traces(&self) -> bool {
        self.traced_events().is_some_and(|mask| all().any(|event| event.chosen_by(mask)))
    }

    /// Returns whether events of this kind are traced.
    pub fn traces_event(&self, event: Event) -> bool {
        self.traced_events().is_some_and(|mask| event.chosen_by(mask))
    }

    /// Returns the mask of the events to trace, if a collector gets them.
    fn traced_events(&self) -> Option<&[u8]> {
        let own = &self.state.settings.own;
        (self.is_connected() && is_collected(own, self.own_tid())).then_some(&own.mask)
    }

    /// Makes the library call `changed` whenever the daemon or another task changes what is traced.
    pub fn watch_trace_settings(&mut self, changed: fn()) {
        self.state.tracer.changed = Some(changed);
    }

    /// Traces an event. `values`: the event's data, in the order in which `pvm_core::events` lists them. `since`: when
    /// the traced function began, if `moment` is its exit.
    pub fn trace(&mut self, event: Event, moment: Moment, at: Stamp, since: Option<Instant>, values: Vec<Value>) {
        let tid = self.tid().unwrap_or(Tid::NONE);
        let record = Record { event, moment, stamp: at, tid, values };
        self.state.tracer.trace(&self.state.settings.own, &record, since);
    }

    /// Makes messages of all traces, including the events that were only counted. Called before the task leaves.
    pub fn finish_traces(&mut self) {
        let tid = self.tid().unwrap_or(Tid::NONE);
        self.state.tracer.finish(&self.state.settings.own, tid);
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
