//! Looks at the machine as events of a timeline. The first one tells the whole state of the machine as an object; each later one
//! only what has changed, as a merge patch. `docs/guide/src/monitoring.md` names the fields.
use super::patch;
use crate::look::{TICKS_PER_SECOND, state_name};
use crate::why;
use pvm_core::host_look::{Count, HostLook, TaskLook};
use pvm_core::proto::{GroupPlace, Host};
use pvm_core::tid::Tid;
use pvm_core::waiting::{Look, Outlook, Report, TaskReport};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The looks of a timeline.
#[derive(Default)]
pub struct Looks {
    /// What has been told.
    told: Map<String, Value>,
    /// When the waits of tasks began: by the clock of the host, and in the timeline.
    waits: BTreeMap<Tid, (u64, i64)>,
}

impl Looks {
    /// Returns what a look tells that was taken at this time, in microseconds of the timeline. `report`: what is known from it and the
    /// look before.
    pub fn event(&mut self, (look, report): (&Look, &Report), hosts: &[Host], at: i64) -> Value {
        let state = self.state((look, report), hosts, at);
        let told = Value::Object(std::mem::take(&mut self.told));
        let patch = patch::difference(&told, &state).unwrap_or_else(|| json!({}));
        if let Value::Object(state) = state {
            self.told = state;
        }
        event(patch, at)
    }

    fn state(&mut self, (look, report): (&Look, &Report), hosts: &[Host], at: i64) -> Value {
        let looks: BTreeMap<Tid, &TaskLook> =
            look.hosts.values().flat_map(|host| host.tasks.iter().map(|task| (task.info.tid, task))).collect();
        let earlier = std::mem::take(&mut self.waits);
        let mut tasks = Map::new();
        for task in &report.tasks {
            let mut value = task_value(task, looks.get(&task.info.tid).copied());
            if let Some(wait) = task.state.wait() {
                let since = match earlier.get(&task.info.tid) {
                    Some((clock, since)) if *clock == wait.since_ns => *since,
                    _ => at - (task.waited_ns / 1000) as i64,
                };
                self.waits.insert(task.info.tid, (wait.since_ns, since));
                value["wait"]["since"] = json!(since);
            }
            tasks.insert(task.info.tid.to_string(), value);
        }
        json!({
            "hosts": hosts.iter().map(|host| (host.tid.to_string(), host_value(host, look.hosts.get(&host.tid)))).collect::<Map<_, _>>(),
            "tasks": tasks,
            "groups": look.groups.iter().map(group).collect::<Map<_, _>>(),
            "deadlocks": deadlocks(report),
        })
    }
}

/// Returns the event of a look that tells this.
pub fn event(patch: Value, at: i64) -> Value {
    json!({ "ph": "i", "s": "g", "cat": "look", "name": "look", "pid": 0, "tid": 0, "ts": at, "args": patch })
}

/// Returns the event that tells the whole state at a time before which nothing is known any more.
pub fn state_event(state: Value, at: i64) -> Value {
    let mut event = event(state, at);
    event["name"] = json!("state");
    event
}

/// Returns what an event of a look tells; `None` if it is another event.
pub fn told(event: &mut Value) -> Option<Value> {
    (event["cat"] == "look").then(|| event["args"].take())
}

fn host_value(host: &Host, look: Option<&HostLook>) -> Value {
    let mut value = json!({
        "name": host.name,
        "arch": host.arch,
        "office": host.office.name(),
        "draining": host.is_draining,
        "silent": look.is_none(),
    });
    if let Some(look) = look {
        value["cores"] = json!(look.load.cores);
        value["load"] = json!(f64::from(look.load.running_hundredths) / 100.0);
        value["memory"] = json!(look.load.memory_bytes);
        // Rounded, so that it does not change all the time.
        value["available"] = json!(look.load.memory_available_bytes >> 20 << 20);
        let link = |link: &pvm_core::host_look::LinkLook| (link.host.to_string(), json!([link.received, link.sent]));
        value["links"] = look.links.iter().map(link).collect::<Map<_, _>>().into();
    }
    value
}

fn task_value(task: &TaskReport, look: Option<&TaskLook>) -> Value {
    let mut value = json!({
        "host": task.info.host.to_string(),
        "parent": Tid(u32::try_from(task.info.parent).unwrap_or(0)).to_string(),
        "pid": task.info.pid,
        "command": String::from_utf8_lossy(&task.info.name),
        "state": state_name(&task.state),
        "stuck": matches!(task.outlook, Outlook::Stuck { .. }),
        "unread": task.unread,
    });
    if let Some(look) = look {
        let counts =
            |counts: &[Count]| counts.iter().map(|count| json!([count.messages, count.bytes])).collect::<Value>();
        value["sent"] = counts(&look.traffic.sent);
        value["received"] = counts(&look.traffic.received);
        // The time of earlier waits: that of the present one follows from its begin.
        value["waited"] = json!(look.line.as_ref().map_or(0, |line| line.waited_ns) / 1000);
    }
    if let Some(process) = look.and_then(|look| look.process) {
        value["cpu"] = json!(process.ticks as f64 / TICKS_PER_SECOND);
        value["memory"] = json!(process.memory_bytes);
    }
    if let Some(wait) = task.state.wait() {
        value["wait"] = without_nulls(why::call(wait));
        value["says"] = json!(why::sentence(task));
        value["awaits"] = why::awaited(task).iter().map(Tid::to_string).collect();
    }
    value
}

/// Returns an object without its nulls, which mean something else in a patch.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

fn group(group: &GroupPlace) -> (String, Value) {
    let value = json!({
        "members": group.members.iter().map(Tid::to_string).collect::<Vec<_>>(),
        "frozen": group.is_frozen,
        "at": group.at.to_string(),
    });
    (String::from_utf8_lossy(&group.name).into_owned(), value)
}

fn deadlocks(report: &Report) -> Value {
    let names = |tids: &[Tid]| tids.iter().map(Tid::to_string).collect::<Vec<_>>();
    let value = |deadlock: why::Deadlock<'_>| json!({ "text": deadlock.text(), "tasks": names(deadlock.cause), "victims": names(&deadlock.victims) });
    why::deadlocks(report, |_| true).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Recent;
    use crate::look::samples::{HOST, host, task};
    use pvm_core::state_line::{Call, Wanted};
    use pvm_core::waiting::report;

    fn look(tasks: Vec<TaskLook>) -> Look {
        let mut look = Look::default();
        look.hosts.insert(HOST, HostLook { now_ns: 3_000_000_000, tasks, ..HostLook::default() });
        look
    }

    fn receive(from: u32) -> Option<Call> {
        Some(Call::Receive(Wanted::new((HOST.0 | from) as i32, 7, 0)))
    }

    #[test]
    fn the_first_look_tells_all_and_later_ones_what_has_changed() {
        let hosts = [host(1, "here")];
        let (mut looks, mut recent) = (Looks::default(), Recent::default());
        let mut take = |tasks: Vec<TaskLook>, at: i64| {
            let seen = recent.add(look(tasks));
            looks.event((&seen[seen.len() - 1], &report(seen)), &hosts, at)
        };
        let first = take(vec![task(1, receive(2)), task(2, None)], 5_000_000);
        let state = &first["args"];
        assert_eq!((&first["ts"], &first["cat"]), (&json!(5_000_000), &json!("look")));
        assert_eq!(state["hosts"]["t40000"]["name"], "here");
        let waits = &state["tasks"]["t40001"];
        assert_eq!((&waits["wait"]["call"], &waits["wait"]["tag"]), (&json!("recv"), &json!(7)));
        assert_eq!((&waits["wait"]["since"], &waits["awaits"]), (&json!(3_000_000), &json!(["t40002"])));
        assert_eq!(state["tasks"]["t40002"]["state"], "computes");

        // One clock may have gone on by less than the other: a wait goes on where it began.
        let same = take(vec![task(1, receive(2)), task(2, None)], 6_000_123);
        assert_eq!(same["args"], json!({}));

        let stuck = take(vec![task(1, receive(2)), task(2, receive(1))], 7_000_000);
        assert_eq!(stuck["args"]["tasks"]["t40002"]["state"], "waits");
        let stuck = take(vec![task(1, receive(2)), task(2, receive(1))], 8_000_000);
        assert_eq!(stuck["args"]["tasks"]["t40001"], json!({ "stuck": true }));
        let deadlock = &stuck["args"]["deadlocks"][0];
        assert!(deadlock["text"].as_str().unwrap().starts_with("DEADLOCK: a circle of waits:"), "{deadlock}");

        let gone = take(vec![task(1, receive(2))], 9_000_000);
        assert_eq!(gone["args"]["tasks"]["t40002"], Value::Null);
        assert!(gone["args"]["tasks"].as_object().unwrap().contains_key("t40002"));
    }
}
