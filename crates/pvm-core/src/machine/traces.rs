//! Trace events that daemons generate (contract 2.12).
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event;
use super::index::{PairIndex, tids_of};
use crate::events::Event;
use crate::proto::TraceSettings;
use crate::tid::Tid;
use crate::trace::{Described, Moment, Record, Stamp, Value};
use std::collections::BTreeMap;

/// In trace events: the parent and the flags of a task that was started by hand.
const STARTED_BY_HAND: i32 = -1;
/// In trace events: the name of a task that was started by hand.
const NO_NAME: &[u8] = b"-";

/// Which events have been described to which collectors.
#[derive(Default)]
pub(super) struct Traces {
    /// The events that have been described to each collector.
    collectors: BTreeMap<Tid, Described>,
    /// For each collector on another host, the tasks of this host whose events the collector received. The second index
    /// holds the same pairs by task. A collector without such tasks is forgotten, because its end would not be reported
    /// here.
    tasks_by_collector: PairIndex<Tid, Tid>,
    collectors_by_task: PairIndex<Tid, Tid>,
}

impl SubMachine for Traces {
    fn name(&self) -> &'static str {
        "traces"
    }
    fn is_idle(&self) -> bool {
        self.collectors.is_empty() && self.tasks_by_collector.is_empty() && self.collectors_by_task.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &event::Event) {
        match event {
            event::Event::TaskEnrolled { tid, arrived: true } => self.arrived(core, *tid),
            event::Event::TaskGone { tid, task } => {
                let status = core.tasks.end_of(*tid).unwrap_or_default().status;
                self.ended(core, *tid, &task.trace_settings, status);
                self.forget(*tid);
            }
            event::Event::HostGone(host) => self.forget_host(*host),
            _ => {}
        }
    }
}

impl Traces {
    /// Forgets a task that has ended.
    fn forget(&mut self, tid: Tid) {
        self.forget_collector(tid);
        for collector in self.collectors_by_task.take(tid) {
            self.tasks_by_collector.remove(collector, tid);
            if self.tasks_by_collector.of(collector).next().is_none() {
                self.collectors.remove(&collector);
            }
        }
    }

    /// Records that a collector gets an event. If `of` is a task of this host, the collector is on another host, and is
    /// remembered as long as `of` lives. Returns whether the collector must first receive the list of data, and whether
    /// it must first receive the description of this event.
    fn introduce(&mut self, collector: Tid, event: Event, of: Option<Tid>) -> (bool, bool) {
        let introduce = !self.collectors.contains_key(&collector);
        if let Some(tid) = of {
            self.tasks_by_collector.insert(collector, tid);
            self.collectors_by_task.insert(tid, collector);
        }
        (introduce, self.collectors.entry(collector).or_default().first(event, Moment::Once))
    }

    /// Forgets a collector.
    fn forget_collector(&mut self, collector: Tid) {
        self.collectors.remove(&collector);
        for tid in self.tasks_by_collector.take(collector) {
            self.collectors_by_task.remove(tid, collector);
        }
    }

    /// Forgets the collectors on a lost host.
    fn forget_host(&mut self, host: Tid) {
        let gone: Vec<Tid> = self.collectors.range(tids_of(host)).map(|(tid, _)| *tid).collect();
        gone.into_iter().for_each(|collector| self.forget_collector(collector));
    }

    /// Sends an event of a task of this host to the task's collector.
    fn trace(&mut self, core: &mut Core, to: &TraceSettings, event: Event, tid: Tid, values: Vec<Value>) {
        self.trace_of(core, to, event, tid, Some(tid), values);
    }

    /// Sends an event of a task to the task's collector. `here` is a living task of this host that takes part in the
    /// event, if there is one.
    fn trace_of(
        &mut self,
        core: &mut Core,
        to: &TraceSettings,
        event: Event,
        tid: Tid,
        here: Option<Tid>,
        values: Vec<Value>,
    ) {
        let collector = Tid(to.trace_tid as u32);
        if !collector.is_task() || !core.can_receive(collector) {
            return;
        }
        let (introduce, describe) = match (collector.host() == core.own_host(), here) {
            (true, _) => self.introduce(collector, event, None),
            (false, Some(here)) => self.introduce(collector, event, Some(here)),
            // Neither the end of the collector nor the end of the task would be reported here, so nothing is
            // remembered.
            (false, None) => (true, true),
        };
        let record = Record { event, moment: Moment::Once, stamp: Stamp::default(), tid, values };
        let (ctx, tag) = (to.trace_ctx, to.trace_tag);
        core.push(Action::Trace { to: collector, ctx, tag, record, describe, introduce });
    }

    /// Traces that a task was started here.
    pub fn started(&mut self, core: &mut Core, tid: Tid, flags: i32) {
        let Some(task) = core.tasks.get(tid) else { return };
        let (settings, parent, name) =
            (task.trace_settings.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(core, &settings, Event::Newtask, tid, vec![parent, Value::Int(flags), name]);
    }

    /// Traces that a task of this host has spawned another task, here or on another host. `wanted` says where the
    /// traces go.
    pub fn spawned(&mut self, core: &mut Core, tid: Tid, parent: i32, wanted: &TraceSettings) {
        let here = Some(Tid(parent as u32)).filter(|parent| core.tasks.exists(*parent));
        self.trace_of(core, wanted, Event::Spntask, tid, here, vec![Value::Int(parent)]);
    }

    /// Traces that a task started by hand has enrolled.
    fn arrived(&mut self, core: &mut Core, tid: Tid) {
        let Some(settings) = core.tasks.get(tid).map(|task| task.trace_settings.clone()) else { return };
        let unknown = Value::Int(STARTED_BY_HAND);
        let values = vec![unknown.clone(), unknown, Value::Text(NO_NAME.to_vec())];
        self.trace(core, &settings, Event::Newtask, tid, values);
    }

    /// Traces that a task has ended; `status` is its status from `waitpid`.
    fn ended(&mut self, core: &mut Core, tid: Tid, settings: &TraceSettings, status: i32) {
        // The daemon does not know the CPU times of the task.
        let values = [status, 0, 0, 0, 0].map(Value::Int).to_vec();
        self.trace(core, settings, Event::Endtask, tid, values);
    }

    /// Traces a change of collector: the traces of a task go to its present collector from now on, no longer to the one
    /// in `before`.
    pub fn collector_changed(&mut self, core: &mut Core, tid: Tid, before: &TraceSettings) {
        self.ended(core, tid, before, 0);
        let Some(task) = core.tasks.get(tid) else { return };
        let (settings, parent, name) =
            (task.trace_settings.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(core, &settings, Event::Spntask, tid, vec![parent.clone()]);
        self.trace(core, &settings, Event::Newtask, tid, vec![parent, Value::Int(0), name]);
    }
}
