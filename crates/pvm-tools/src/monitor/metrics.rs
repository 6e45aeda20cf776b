//! The numbers of the machine in the OpenMetrics text format, for Prometheus and others.
use crate::look::state_name;
use crate::shape;
use pvm_core::host_look::{Count, ROUTE_NAMES, Traffic};
use pvm_core::proto::Host;
use pvm_core::tid::Tid;
use pvm_core::waiting::{Look, Outlook, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The states of tasks, in the order in which they are told.
const STATES: [&str; 5] = ["computes", "waits", "starts", "stopped", "left"];

/// Counts what has happened since it began to look.
#[derive(Default)]
pub struct Metrics {
    hosts: BTreeSet<Tid>,
    hosts_lost: u64,
    /// The counts of the tasks that are there.
    present: BTreeMap<Tid, Spent>,
    /// The sums of those that have ended.
    ended: Spent,
    tasks_ended: u64,
}

/// What a task has sent and received, and for how long it has waited, in nanoseconds.
#[derive(Default, Clone, Copy)]
struct Spent {
    traffic: Traffic,
    waited_ns: u64,
}

impl Spent {
    fn add(&mut self, other: &Spent) {
        let add = |sums: &mut [Count], counts: &[Count]| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = Count::sum(&[*sum, *count]));
        };
        add(&mut self.traffic.sent, &other.traffic.sent);
        add(&mut self.traffic.received, &other.traffic.received);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }
}

impl Metrics {
    /// Takes a look, and what is known from it and the look before. Returns the text.
    pub fn take(&mut self, (look, report): (&Look, &Report), hosts: &[Host]) -> String {
        let now: BTreeSet<Tid> = hosts.iter().map(|host| host.tid).collect();
        self.hosts_lost += self.hosts.difference(&now).count() as u64;
        self.hosts = now;
        let tasks = look.hosts.values().flat_map(|host| &host.tasks);
        let spent = |task: &pvm_core::host_look::TaskLook| Spent {
            traffic: task.traffic,
            waited_ns: task.line.as_ref().map_or(0, |line| line.waited_ns),
        };
        let present: BTreeMap<Tid, Spent> = tasks.map(|task| (task.info.tid, spent(task))).collect();
        for (tid, spent) in std::mem::replace(&mut self.present, present) {
            // The tasks of a host that has not answered are still there.
            if look.silent.contains(&tid.host()) {
                self.present.insert(tid, spent);
            } else if !self.present.contains_key(&tid) {
                self.ended.add(&spent);
                self.tasks_ended += 1;
            }
        }
        self.text((look, report), hosts)
    }

    fn text(&self, (look, report): (&Look, &Report), hosts: &[Host]) -> String {
        let mut out = Text::default();
        out.family("hpvm_hosts", "gauge", "Hosts of the machine.");
        out.sample("hpvm_hosts", &[], hosts.len());
        out.family("hpvm_hosts_lost", "counter", "Hosts that have left the machine or were lost.");
        out.sample("hpvm_hosts_lost_total", &[], self.hosts_lost);
        out.family("hpvm_tasks", "gauge", "Tasks by what they do.");
        for state in STATES {
            let count = report.tasks.iter().filter(|task| state_name(&task.state) == state).count();
            out.sample("hpvm_tasks", &[("state", state)], count);
        }
        out.family("hpvm_tasks_stuck", "gauge", "Tasks that can never go on.");
        let is_stuck = |outlook: &Outlook| matches!(outlook, Outlook::Stuck { .. });
        out.sample("hpvm_tasks_stuck", &[], report.tasks.iter().filter(|task| is_stuck(&task.outlook)).count());
        out.family("hpvm_tasks_ended", "counter", "Tasks that have ended.");
        out.sample("hpvm_tasks_ended_total", &[], self.tasks_ended);
        out.family("hpvm_unread_messages", "gauge", "Messages that tasks have not received.");
        out.sample("hpvm_unread_messages", &[], report.tasks.iter().map(|task| u64::from(task.unread)).sum::<u64>());

        let mut all = self.ended;
        self.present.values().for_each(|spent| all.add(spent));
        out.family("hpvm_waiting_seconds", "counter", "Time that tasks have slept in calls that have ended.");
        out.sample("hpvm_waiting_seconds_total", &[], all.waited_ns as f64 / 1e9);
        let Traffic { sent, received } = all.traffic;
        for (way, what, counts) in [("sent", "sent", sent), ("received", "received", received)] {
            for (unit, get) in
                [("messages", (|count| count.messages) as fn(&Count) -> u64), ("bytes", |count| count.bytes)]
            {
                let name = format!("hpvm_{unit}_{way}");
                out.family(
                    &name,
                    "counter",
                    &format!(
                        "{} that tasks have {what}, by route.",
                        if unit == "bytes" { "Bytes" } else { "Messages" }
                    ),
                );
                for (route, count) in ROUTE_NAMES.iter().zip(&counts) {
                    out.sample(&format!("{name}_total"), &[("route", *route)], get(count));
                }
            }
        }
        let names: Vec<(String, _)> =
            look.hosts.iter().map(|(tid, seen)| (shape::host_name(hosts, *tid), seen.load)).collect();
        for (name, help, get) in [
            (
                "hpvm_host_load",
                "Processes that ran or wanted to, in the last minute.",
                (|load| f64::from(load.running_hundredths) / 100.0) as fn(&pvm_core::host_look::HostLoad) -> f64,
            ),
            ("hpvm_host_cores", "Processors.", |load| f64::from(load.cores)),
            ("hpvm_host_memory_bytes", "Memory.", |load| load.memory_bytes as f64),
            ("hpvm_host_memory_available_bytes", "Memory that is available.", |load| {
                load.memory_available_bytes as f64
            }),
        ] {
            out.family(name, "gauge", help);
            names.iter().for_each(|(host, load)| out.sample(name, &[("host", host)], get(load)));
        }
        out.family("hpvm_host_up", "gauge", "Whether the host answers.");
        for host in hosts {
            out.sample("hpvm_host_up", &[("host", &host.name)], u8::from(!look.silent.contains(&host.tid)));
        }
        out.0 + "# EOF\n"
    }
}

/// The text that is being written.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Recent;
    use crate::look::samples::{HOST, host, task};
    use pvm_core::host_look::HostLook;
    use pvm_core::waiting::report;

    fn look(tasks: &[(u32, u64)]) -> Look {
        let one = |(local, messages): &(u32, u64)| {
            let mut task = task(*local, None);
            task.traffic.sent[0] = Count { messages: *messages, bytes: 10 * messages };
            task
        };
        let mut look = Look::default();
        let tasks = tasks.iter().map(one).collect();
        look.hosts.insert(HOST, HostLook { tasks, ..HostLook::default() });
        look
    }

    #[test]
    fn counters_never_fall() {
        let (mut metrics, mut recent) = (Metrics::default(), Recent::default());
        let mut take = |look: Look, hosts: &[Host]| {
            let seen = recent.add(look);
            metrics.take((&seen[seen.len() - 1], &report(seen)), hosts)
        };
        take(look(&[(1, 5), (2, 7)]), &[host(1, "a\"b"), host(2, "c")]);
        let text = take(look(&[(2, 8)]), &[host(1, "a\"b")]);
        for line in [
            "hpvm_hosts 1",
            "hpvm_hosts_lost_total 1",
            "hpvm_tasks{state=\"computes\"} 1",
            "hpvm_tasks_ended_total 1",
            "hpvm_messages_sent_total{route=\"memory\"} 13",
            "hpvm_bytes_sent_total{route=\"memory\"} 130",
            "hpvm_host_up{host=\"a\\\"b\"} 1",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
        // A host that does not answer has lost no tasks.
        let mut silent = Look::default();
        silent.silent.insert(HOST);
        let text = take(silent, &[host(1, "a")]);
        assert!(text.contains("hpvm_tasks_ended_total 1\n") && text.contains("hpvm_host_up{host=\"a\"} 0\n"), "{text}");
    }
}
