//! The numbers as JSON.
use super::rows::{HostRow, Stat, TaskRow};
use pvm_core::host_look::{Count, ROUTE_NAMES};
use serde_json::{Map, Value, json};

/// Returns the numbers as JSON.
pub fn value(stat: &Stat) -> Value {
    json!({
        "seconds": stat.interval.map(|interval| interval.as_secs_f64()),
        "hosts": stat.hosts.iter().map(host).collect::<Vec<_>>(),
        "silent_hosts": stat.silent,
        "tasks": stat.tasks.iter().map(task).collect::<Vec<_>>(),
    })
}

fn host(host: &HostRow) -> Value {
    json!({
        "name": host.name,
        "cores": host.load.cores,
        "load": f64::from(host.load.running_hundredths) / 100.0,
        "memory_bytes": host.load.memory_bytes,
        "memory_available_bytes": host.load.memory_available_bytes,
        "tasks": host.tasks,
        "waiting": host.waiting,
    })
}

fn task(task: &TaskRow) -> Value {
    let process = task.process.as_ref();
    let mut value = json!({
        "tid": task.info.tid.to_string(),
        "host": task.host,
        "command": String::from_utf8_lossy(&task.info.name),
        "state": task.state,
        "deadlock": task.is_stuck,
        "cpu_seconds": process.map(|process| process.cpu_seconds),
        "memory_bytes": process.map(|process| process.memory_bytes),
        "unread": task.unread,
        "sent": counts(&task.traffic.sent),
        "received": counts(&task.traffic.received),
    });
    if let Some(rates) = &task.rates {
        let pair = |[messages, bytes]: [f64; 2]| json!({ "messages": messages, "bytes": bytes });
        value["per_second"] = json!({
            "cpu": rates.cpu, "waiting": rates.waiting, "sent": pair(rates.sent), "received": pair(rates.received),
        });
    }
    value
}

/// Returns the counts by route, and their sum.
fn counts(counts: &[Count]) -> Value {
    let value = |count: &Count| json!({ "messages": count.messages, "bytes": count.bytes });
    let routes = ROUTE_NAMES.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), value(count)));
    let routes: Map<String, Value> = routes.collect();
    let mut sum = value(&Count::sum(counts));
    sum["routes"] = Value::Object(routes);
    sum
}
