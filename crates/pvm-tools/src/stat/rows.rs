//! The numbers of hosts and tasks, out of one look or two.
use crate::look::{TICKS_PER_SECOND, state_name};
use crate::shape;
use pvm_core::host_look::{Count, HostLoad, TaskLook, Traffic};
use pvm_core::proto::{Host, TaskInfo};
use pvm_core::tid::Tid;
use pvm_core::waiting::{Look, Outlook, TaskReport, report};
use std::collections::BTreeMap;
use std::time::Duration;

/// All numbers.
#[derive(Default)]
pub struct Stat {
    pub hosts: Vec<HostRow>,
    pub tasks: Vec<TaskRow>,
    /// The names of the hosts that have not answered.
    pub silent: Vec<String>,
    /// Over which time rates are taken, if there was a look before.
    pub interval: Option<Duration>,
}

/// The numbers of a host.
pub struct HostRow {
    pub name: String,
    pub load: HostLoad,
    pub tasks: usize,
    pub waiting: usize,
}

/// The numbers of a task.
pub struct TaskRow {
    pub info: TaskInfo,
    pub host: String,
    pub state: &'static str,
    /// Whether two looks show that it can never go on.
    pub is_stuck: bool,
    /// `None` if its daemon cannot see the process.
    pub process: Option<Process>,
    pub unread: u32,
    pub traffic: Traffic,
    /// `None` if it was not there at the look before.
    pub rates: Option<Rates>,
}

/// What the process of a task uses: seconds of processor time, and bytes of memory.
pub struct Process {
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
}

/// What a task has done since the look before, for each second: the part of a processor that it has used, the part of the time for
/// which it has slept in calls, messages, bytes.
pub struct Rates {
    pub cpu: f64,
    pub waiting: f64,
    pub sent: [f64; 2],
    pub received: [f64; 2],
}

impl TaskRow {
    /// Returns the name of its program, without directories.
    pub fn program(&self) -> String {
        let name = String::from_utf8_lossy(&self.info.name);
        name.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Returns the word for what it does.
    pub fn state_shown(&self) -> &'static str {
        if self.is_stuck { "STUCK" } else { self.state }
    }
}

impl Stat {
    /// Makes the numbers out of a look, or of two with the time between both, the older one first.
    pub fn new(looks: &[Look], hosts: &[Host], interval: Option<Duration>) -> Stat {
        let [before @ .., look] = looks else { return Stat::default() };
        let earlier: BTreeMap<Tid, (&TaskLook, u64)> = before.iter().flat_map(tasks_of).collect();
        let reports: BTreeMap<Tid, TaskReport> =
            report(looks).tasks.into_iter().map(|task| (task.info.tid, task)).collect();
        let row = |(tid, (task, now_ns)): (Tid, (&TaskLook, u64))| {
            let rates = earlier.get(&tid).zip(interval);
            // Only programs have one.
            let report = reports.get(&tid)?;
            Some(TaskRow {
                info: task.info.clone(),
                host: shape::host_name(hosts, task.info.host),
                state: state_name(&report.state),
                is_stuck: matches!(report.outlook, Outlook::Stuck { .. }),
                process: task.process.map(|process| Process {
                    cpu_seconds: process.ticks as f64 / TICKS_PER_SECOND,
                    memory_bytes: process.memory_bytes,
                }),
                unread: task.line.as_ref().map_or(0, |line| line.unread),
                traffic: task.traffic,
                rates: rates.map(|(earlier, interval)| Rates::new((task, now_ns), *earlier, interval)),
            })
        };
        let tasks: Vec<TaskRow> = tasks_of(look).collect::<BTreeMap<_, _>>().into_iter().filter_map(row).collect();
        let host_row = |(tid, host): (&Tid, &pvm_core::host_look::HostLook)| {
            let own = || tasks.iter().filter(|task| task.info.host == *tid);
            HostRow {
                name: shape::host_name(hosts, *tid),
                load: host.load,
                tasks: own().count(),
                waiting: own().filter(|task| task.state == "waits").count(),
            }
        };
        Stat {
            hosts: look.hosts.iter().map(host_row).collect(),
            silent: look.silent.iter().map(|host| shape::host_name(hosts, *host)).collect(),
            tasks,
            interval,
        }
    }

    /// Puts the tasks into this order, in which each place stands once.
    pub fn reorder(&mut self, places: &[usize]) {
        let mut tasks: Vec<Option<TaskRow>> = std::mem::take(&mut self.tasks).into_iter().map(Some).collect();
        self.tasks = places.iter().filter_map(|place| tasks.get_mut(*place)?.take()).collect();
    }

    /// Returns how much all tasks have sent by each route.
    pub fn sent_by_route(&self) -> Vec<Count> {
        let routes = Traffic::default().sent.len();
        let sent = |route: usize| {
            let counts: Vec<Count> = self.tasks.iter().map(|task| task.traffic.sent[route]).collect();
            Count::sum(&counts)
        };
        (0..routes).map(sent).collect()
    }
}

/// Returns the tasks of a look, each with the clock of its host.
fn tasks_of(look: &Look) -> impl Iterator<Item = (Tid, (&TaskLook, u64))> {
    look.hosts.values().flat_map(|host| host.tasks.iter().map(|task| (task.info.tid, (task, host.now_ns))))
}

/// Returns for how long a task has slept in calls, in nanoseconds.
fn waited_ns((task, now_ns): (&TaskLook, u64)) -> u64 {
    let Some(line) = &task.line else { return 0 };
    let present = line.wait.filter(|_| task.is_asleep).map_or(0, |wait| now_ns.saturating_sub(wait.since_ns));
    line.waited_ns.saturating_add(present)
}

impl Rates {
    fn new(now: (&TaskLook, u64), before: (&TaskLook, u64), interval: Duration) -> Rates {
        let ticks = |(task, _): (&TaskLook, u64)| task.process.map_or(0, |process| process.ticks);
        let waited = rate(waited_ns(now), waited_ns(before), interval);
        let counts = |way: fn(&Traffic) -> &[Count]| {
            let [now, before] = [now, before].map(|(task, _)| Count::sum(way(&task.traffic)));
            [rate(now.messages, before.messages, interval), rate(now.bytes, before.bytes, interval)]
        };
        Rates {
            cpu: rate(ticks(now), ticks(before), interval) / TICKS_PER_SECOND,
            // Both looks and their answers take some time.
            waiting: (waited / 1e9).min(1.0),
            sent: counts(|traffic| &traffic.sent),
            received: counts(|traffic| &traffic.received),
        }
    }
}

/// Returns a rate for each second.
fn rate(now: u64, before: u64, interval: Duration) -> f64 {
    now.saturating_sub(before) as f64 / interval.as_secs_f64().max(f64::MIN_POSITIVE)
}
