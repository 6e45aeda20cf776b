//! The trace events that daemons tell of (contract 2.12).
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event;
use super::index::{Index, tids_of};
use crate::events::Event;
use crate::proto::TraceSettings;
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
    /// What has been described, to whom.
    collectors: BTreeMap<Tid, Described>,
    /// Of which tasks of this host each collector of another host has heard, and the same from the
    /// other side. When none of them is left the collector is forgotten: nobody would tell of its end.
    heard_of: Index<Tid, Tid>,
    heard_by: Index<Tid, Tid>,
}

impl SubMachine for Traces {
    fn name(&self) -> &'static str {
        "traces"
    }
    fn is_idle(&self) -> bool {
        self.collectors.is_empty() && self.heard_of.is_empty() && self.heard_by.is_empty()
    }
    fn on_event(&mut self, core: &mut Core, event: &event::Event) {
        match event {
            event::Event::TaskEnrolled { tid, arrived: true } => self.arrived(core, *tid),
            event::Event::TaskGone { tid, task } => {
                let status = core.tasks.status_of(*tid);
                self.ended(core, *tid, &task.own, status);
                self.forget(*tid);
            }
            event::Event::HostGone(host) => self.forget_host(*host),
            _ => {}
        }
    }
}

impl Traces {
    /// The task is gone: its number will be another's.
    fn forget(&mut self, tid: Tid) {
        self.forget_collector(tid);
        for collector in self.heard_by.take(tid) {
            self.heard_of.remove(collector, tid);
            if self.heard_of.of(collector).next().is_none() {
                self.collectors.remove(&collector);
            }
        }
    }

    /// A collector is told of an event, as one of another host of an event of that task. Returns whether it has to be
    /// told what data there are, and what this event's are.
    fn introduce(&mut self, collector: Tid, event: Event, of: Option<Tid>) -> (bool, bool) {
        let introduce = !self.collectors.contains_key(&collector);
        if let Some(tid) = of {
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

    /// All tasks of that host are gone.
    fn forget_host(&mut self, host: Tid) {
        let gone: Vec<Tid> = self.collectors.range(tids_of(host)).map(|(tid, _)| *tid).collect();
        gone.into_iter().for_each(|collector| self.forget_collector(collector));
    }
}

impl Traces {
    fn trace(&mut self, core: &mut Core, to: &TraceSettings, event: Event, tid: Tid, values: Vec<Value>) {
        self.trace_of(core, to, event, tid, Some(tid), values);
    }

    /// Tells of an event of one task. `here` is a task of this host that has a part in it, if one lives.
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
        if !collector.is_task() || !core.may_take(collector) {
            return;
        }
        let (introduce, describe) = match (collector.host() == core.own_host(), here) {
            (true, _) => self.introduce(collector, event, None),
            (false, Some(here)) => self.introduce(collector, event, Some(here)),
            // Neither's end would be heard of here.
            (false, None) => (true, true),
        };
        let record = Record { event, moment: Moment::Once, stamp: Stamp::default(), tid, values };
        let (ctx, tag) = (to.trace_ctx, to.trace_tag);
        core.push(Action::Trace { to: collector, ctx, tag, record, describe, introduce });
    }

    /// A task was started here.
    pub fn started(&mut self, core: &mut Core, tid: Tid, flags: i32) {
        let Some(task) = core.tasks.get(tid) else { return };
        let (own, parent, name) = (task.own.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(core, &own, Event::Newtask, tid, vec![parent, Value::Int(flags), name]);
    }

    /// A task of this host has had one started, here or elsewhere. `wanted` is where it wants the traces.
    pub fn spawned(&mut self, core: &mut Core, tid: Tid, parent: i32, wanted: &TraceSettings) {
        let here = Some(Tid(parent as u32)).filter(|parent| core.tasks.exists(*parent));
        self.trace_of(core, wanted, Event::Spntask, tid, here, vec![Value::Int(parent)]);
    }

    /// A task came by itself.
    fn arrived(&mut self, core: &mut Core, tid: Tid) {
        let Some(own) = core.tasks.get(tid).map(|task| task.own.clone()) else { return };
        let unknown = Value::Int(CAME_BY_ITSELF);
        let values = vec![unknown.clone(), unknown, Value::Text(NO_NAME.to_vec())];
        self.trace(core, &own, Event::Newtask, tid, values);
    }

    /// `status` as of `waitpid`.
    fn ended(&mut self, core: &mut Core, tid: Tid, own: &TraceSettings, status: i32) {
        // How much time it took, the daemon does not know.
        let values = [status, 0, 0, 0, 0].map(Value::Int).to_vec();
        self.trace(core, own, Event::Endtask, tid, values);
    }

    /// A task that has traced as in `before` traces to somebody else from now on.
    pub fn moved(&mut self, core: &mut Core, tid: Tid, before: &TraceSettings) {
        self.ended(core, tid, before, 0);
        let Some(task) = core.tasks.get(tid) else { return };
        let (own, parent, name) = (task.own.clone(), Value::Int(task.parent), Value::Text(task.name.clone()));
        self.trace(core, &own, Event::Spntask, tid, vec![parent.clone()]);
        self.trace(core, &own, Event::Newtask, tid, vec![parent, Value::Int(0), name]);
    }
}
