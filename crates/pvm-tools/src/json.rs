//! `--json`: the output of `conf`, `ps`, `jobs`, `up` and `down` as JSON, for programs.
use crate::shape;
use pvm_core::codes;
use pvm_core::proto::{GroupPlace, Host, Office, TaskInfo};
use pvm_core::tid::Tid;
use serde_json::{Value, json};

/// Returns the value for `conf`.
pub fn configuration(hosts: &[Host], formats: i32) -> Value {
    let hosts: Vec<Value> = hosts
        .iter()
        .map(|host| {
            json!({
                "name": host.name,
                "tid": host.tid.to_string(),
                "arch": host.arch,
                "speed": host.speed,
                "data_signature": format!("0x{:08x}", host.dsig),
                "draining": host.is_draining,
                "master": host.office == Office::Master,
                "office": host.office.name(),
            })
        })
        .collect();
    json!({ "hosts": hosts, "data_formats": formats })
}

/// Returns the value for `up`: that for `conf`, and the hosts that could not be added, each with a code and a reason.
pub fn added(hosts: &[Host], formats: i32, failures: &[(&str, i32, &str)]) -> Value {
    let failed: Vec<Value> = failures
        .iter()
        .map(|(name, code, reason)| json!({ "name": name, "error": codes::text(*code), "reason": reason }))
        .collect();
    let mut value = configuration(hosts, formats);
    value["failed"] = failed.into();
    value
}

/// Returns the value for `down` without hosts.
pub fn halted(done: bool) -> Value {
    json!({ "halted": done })
}

/// Returns the value for `down` with hosts.
pub fn deleted(names: &[String], results: &[i32]) -> Value {
    let hosts = names.iter().zip(results).map(|(name, code)| match *code >= 0 {
        true => json!({ "name": name, "deleted": true }),
        false => json!({ "name": name, "deleted": false, "error": codes::text(*code) }),
    });
    json!({ "hosts": hosts.collect::<Vec<Value>>() })
}

/// Returns the value for `conf -g`.
pub fn group_places(places: &[GroupPlace], hosts: &[Host]) -> Value {
    let value = |place: &GroupPlace| {
        json!({
            "name": String::from_utf8_lossy(&place.name),
            "members": place.members.len(),
            "frozen": place.is_frozen,
            "hosts": place.hosts,
            "barriers_at": shape::host_name(hosts, place.at),
        })
    };
    json!({ "groups": places.iter().map(value).collect::<Vec<Value>>() })
}

/// Returns the value for `ps`.
pub fn tasks(tasks: &[TaskInfo], hosts: &[Host]) -> Value {
    tasks.iter().map(|info| task(info, hosts)).collect()
}

fn task(task: &TaskInfo, hosts: &[Host]) -> Value {
    let parent = (task.parent > 0).then(|| Tid(task.parent as u32).to_string());
    json!({
        "tid": task.tid.to_string(),
        "host": shape::host_name(hosts, task.host),
        "parent": parent,
        "pid": task.pid,
        "flags": shape::task_flags(task.flags),
        "command": String::from_utf8_lossy(&task.name),
    })
}

/// Returns the value for `jobs`.
pub fn jobs(jobs: impl Iterator<Item = (i32, Vec<Tid>)>) -> Value {
    jobs.map(|(number, tids)| {
        let tids: Vec<String> = tids.iter().map(Tid::to_string).collect();
        json!({ "job": number, "tasks": tids })
    })
    .collect()
}

/// Returns the text to print.
pub fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
