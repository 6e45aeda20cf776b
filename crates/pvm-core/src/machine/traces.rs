//! Traces: what the registered tracer wants of later tasks, and the events that daemons tell of
//! (contract 2.12).
use super::index::Index;
use super::remote::tids_of;
use super::{Action, Machine};
use crate::codes::Code;
use crate::events::Event;
use crate::proto::{Reply, TraceSettings};
use crate::tid::Tid;
use crate::trace::{Described, Moment, Record, Stamp, Value};
use std::collections::BTreeMap;

/// In place of parent and flags of a task that came by itself.
const CAME_BY_ITSELF: i32 = -1;
/// Its name.
const NO_NAME: &[u8] = b"-";

/// What is known of traces.
#[derive(Default)]
pub(super) struct Traces {
    /// Where later tasks trace to that nobody else traces.
    wish: Option<TraceSettings>,
    /// What has been described, to whom.
    collectors: BTreeMap<Tid, Described>,
    /// Of which tasks of this host each collector of another host has heard, and the same from the
    /// other side. When none of them is left the collector is forgotten: nobody would tell of its end.
    heard_of: Index<Tid, Tid>,
    heard_by: Index<Tid, Tid>,
}

impl Traces {
    pub fn is_idle(&self) -> bool {
        self.wish.is_none() && self.collectors.is_empty() && self.heard_of.is_empty() && self.heard_by.is_empty()
    }

    /// The tracer serves no more.
    pub fn drop_wish(&mut self) {
        self.wish = None;
    }

    /// The task is gone: its number will be another's.
    pub fn forget(&mut self, tid: Tid) {
        self.forget_collector(tid);
        for collector in self.heard_by.take(tid) {
            self.heard_of.remove(collector, tid);
            if self.heard_of.of(collector).next().is_none() {
                self.collectors.remove(&collector);
            }
        }
    }

    /// A collector is told of an event of a task: whether it has to be told what data there are, and
    /// what this event's are.
    fn tell(&mut self, own: Tid, collector: Tid, event: Event, tid: Tid) -> (bool, bool) {
        let introduce = !self.collectors.contains_key(&collector);
        if collector.host() != own {
            self.heard_of.insert(collector, tid);
            self.heard_by.insert(tid, collector);
        }
        (introduce, self.collectors.entry(collector).or_default().first(event, Moment::Once))
    }

    fn forget_collector(&mut self, collector: Tid) {
        self.collectors.remove(&collector);
        for tid in self.heard_of.take(collector) {
            self.heard_by.remove(tid, collector);
        }
    }

    /// So are all tasks of that host.
    pub fn forget_host(&mut self, host: Tid) {
        let gone: Vec<Tid> = self.collectors.range(tids_of(host)).map(|(tid, _)| *tid).collect();
        gone.into_iter().for_each(|collector| self.forget_collector(collector));
    }

    /// What the tracer of the machine wants.
    pub fn wish(&self) -> Option<&TraceSettings> {
        self.wish.as_ref()
    }
    pub fn set_wish(&mut self, wish: Option<TraceSettings>) {
        self.wish = wish;
    }

    /// Where a new task traces and prints to: the tracer, as far as nobody else wants it.
    pub fn settle(&self, own: &mut TraceSettings) {
        let Some(wish) = &self.wish else { return };
        if own.trace_tid <= 0 {
            (own.trace_tid, own.trace_ctx, own.trace_tag) = (wish.trace_tid, wish.trace_ctx, wish.trace_tag);
            (own.mask, own.trace_buffer, own.trace_options) =
                (wish.mask.clone(), wish.trace_buffer, wish.trace_options);
        }
        if own.output_tid <= 0 {
            (own.output_tid, own.output_ctx, own.output_tag) = (wish.output_tid, wish.output_ctx, wish.output_tag);
        }
    }
}

impl Machine {
    /// The registered tracer says what it wants.
    pub(super) fn set_tracer(&mut self, from: Tid, wish: TraceSettings) -> Result<Reply, Code> {
        if self.servers.tracer != Some(from) {
            return Err(Code::Denied);
        }
        self.traces.wish = Some(wish);
        self.spread_servers();
        Ok(Reply::Done)
    }

    fn trace(&mut self, to: &TraceSettings, event: Event, tid: Tid, values: Vec<Value>) {
        self.trace_of(to, event, tid, tid, values);
    }

    /// The event of one task in which another has a part, of this host.
    fn trace_of(&mut self, to: &TraceSettings, event: Event, tid: Tid, part: Tid, values: Vec<Value>) {
        let collector = Tid(to.trace_tid as u32);
        if !collector.is_task() || !self.may_take(collector) {
            return;
        }
        let own = self.own_host();
        let (introduce, describe) = match collector.host() == own || self.tasks.get(part).is_some() {
            true => self.traces.tell(own, collector, event, part),
            // Neither's end would be heard of here.
            false => (true, true),
        };
        let record = Record { event, moment: Moment::Once, stamp: Stamp::default(), tid, values };
        let (ctx, tag) = (to.trace_ctx, to.trace_tag);
        self.actions.push_back(Action::Trace { to: collector, ctx, tag, record, describe, introduce });
    }

    /// A task was started here.
    pub(super) fn trace_start(&mut self, tid: Tid, flags: i32) {
        let Some(task) = self.tasks.get(tid) else { return };
        let (own, parent, name) = (task.own.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(&own, Event::Newtask, tid, vec![parent, Value::Int(flags), name]);
    }

    /// A task of this host has had one started, here or elsewhere. `wanted` is where it wants the traces.
    pub(super) fn trace_spawn(&mut self, tid: Tid, parent: i32, wanted: &TraceSettings) {
        self.trace_of(wanted, Event::Spntask, tid, Tid(parent as u32), vec![Value::Int(parent)]);
    }

    /// A task came by itself.
    pub(super) fn trace_arrival(&mut self, tid: Tid) {
        let Some(own) = self.tasks.get(tid).map(|task| task.own.clone()) else { return };
        let unknown = Value::Int(CAME_BY_ITSELF);
        let values = vec![unknown.clone(), unknown, Value::Text(NO_NAME.to_vec())];
        self.trace(&own, Event::Newtask, tid, values);
    }

    /// A task has gone.
    pub(super) fn trace_end(&mut self, tid: Tid) {
        let Some(own) = self.tasks.get(tid).map(|task| task.own.clone()) else { return };
        self.tell_end(tid, &own, self.tasks.status_of(tid));
    }

    /// `status` as of `waitpid`.
    fn tell_end(&mut self, tid: Tid, own: &TraceSettings, status: i32) {
        // How much time it took, the daemon does not know.
        let values = [status, 0, 0, 0, 0].map(Value::Int).to_vec();
        self.trace(own, Event::Endtask, tid, values);
    }

    /// A task that has traced as in `before` traces to somebody else from now on.
    pub(super) fn trace_moved(&mut self, tid: Tid, before: &TraceSettings) {
        self.tell_end(tid, before, 0);
        let Some(task) = self.tasks.get(tid) else { return };
        let (own, parent, name) = (task.own.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(&own, Event::Spntask, tid, vec![parent.clone()]);
        self.trace(&own, Event::Newtask, tid, vec![parent, Value::Int(0), name]);
    }
}
