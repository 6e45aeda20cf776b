//! The report as JSON.
use super::place::Place;
use super::{Deadlock, Found};
use crate::look::state_name;
use crate::shape;
use pvm_core::state_line::{Call, Label, Wait, Wanted};
use pvm_core::tid::Tid;
use pvm_core::waiting::{Obstacle, Outlook, Peer, TaskReport};
use serde_json::{Value, json};

impl Found {
    /// Returns the report as JSON.
    pub fn value(&self) -> Value {
        let names = |tids: &[Tid]| tids.iter().map(Tid::to_string).collect::<Vec<_>>();
        let deadlock = |deadlock: Deadlock<'_>| json!({ "tasks": names(deadlock.cause), "waiting_for_them": names(&deadlock.victims) });
        let deadlocks: Vec<Value> = self.deadlocks().map(deadlock).collect();
        let silent: Vec<String> =
            self.report.silent.iter().map(|host| shape::host_name(&self.hosts, *host).to_string()).collect();
        json!({
            "tasks": self.tasks().map(|task| self.task(task)).collect::<Vec<_>>(),
            "deadlocks": deadlocks,
            "silent_hosts": silent,
            "sure": !self.report.is_unsure,
        })
    }

    fn task(&self, task: &TaskReport) -> Value {
        let mut value = json!({
            "tid": task.info.tid.to_string(),
            "host": shape::host_name(&self.hosts, task.info.host),
            "command": String::from_utf8_lossy(&task.info.name),
            "state": state_name(&task.state),
            "unread": task.unread,
            "deadlock": matches!(task.outlook, Outlook::Stuck { .. }),
        });
        if let Some(wait) = task.state.wait() {
            value["wait"] = call(wait);
            value["seconds"] = json!(task.waited_ns as f64 / 1e9);
            value["at"] = self.places.get(&task.info.tid).map_or(Value::Null, Place::value);
            value["because"] = task.obstacles.iter().map(obstacle).collect();
        }
        value
    }
}

/// Returns the call in which a task waits, and for what.
pub fn call(wait: &Wait) -> Value {
    let text = |label: &Label| String::from_utf8_lossy(label.name()).into_owned();
    let mut value = match &wait.call {
        Call::Receive(wanted) => receive("recv", wanted),
        Call::PostedReceive(wanted, bytes) => {
            let mut value = receive("precv", wanted);
            value["bytes"] = json!(bytes);
            value
        }
        Call::Matching => json!({ "call": "recvf" }),
        Call::Send => json!({ "call": "send" }),
        Call::Barrier { group, count } => json!({ "call": "barrier", "group": text(group), "count": count }),
        Call::Freeze { group, count } => json!({ "call": "freezegroup", "group": text(group), "count": count }),
        Call::Collective { group, of } => json!({ "call": "collective", "group": text(group), "from": of.to_string() }),
        Call::Mailbox(name) => json!({ "call": "recvinfo", "name": text(name) }),
        Call::Spawn => json!({ "call": "spawn" }),
        Call::Hosts => json!({ "call": "hosts" }),
        Call::Output => json!({ "call": "output" }),
        Call::Daemon => json!({ "call": "request" }),
        Call::Pause => json!({ "call": "pause" }),
    };
    value["timed"] = json!(wait.is_timed);
    value
}

fn receive(name: &str, wanted: &Wanted) -> Value {
    let from = wanted.from.map(|tid| tid.to_string());
    json!({ "call": name, "from": from, "tag": wanted.tag, "context": wanted.context })
}

fn obstacle(obstacle: &Obstacle) -> Value {
    match obstacle {
        Obstacle::Peer(tid, doing) => json!({ "task": tid.to_string(), "does": peer(doing) }),
        Obstacle::OtherMessages(kinds) => {
            let kind = |kind: &pvm_core::state_line::Unread| json!({ "from": kind.from.to_string(), "tag": kind.tag, "context": kind.context, "count": kind.count });
            json!({ "unread": kinds.iter().map(kind).collect::<Vec<_>>() })
        }
        Obstacle::Anybody { running } => json!({ "others_that_run": running }),
        Obstacle::Members { count, size, is_frozen, missing, .. } => {
            let missing: Vec<Value> =
                missing.iter().map(|(tid, doing)| json!({ "task": tid.to_string(), "does": peer(doing) })).collect();
            json!({ "needs": count, "members": size, "frozen": is_frozen, "missing": missing })
        }
        Obstacle::Group(label) => json!({ "group": String::from_utf8_lossy(label.name()) }),
    }
}

fn peer(doing: &Peer) -> &'static str {
    match doing {
        Peer::Itself => "itself",
        Peer::Gone => "ended",
        Peer::Hidden => "unknown",
        Peer::Is(other) => state_name(other),
    }
}
