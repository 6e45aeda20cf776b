//! Tests `pvm run --trace` with a program that is linked to the library.
#![forbid(unsafe_code)]
mod common;
use common::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The number of rounds of the program. In each, the parent sends a message to both of its children, and each child
/// answers.
const ROUNDS: usize = 50;

/// Compiles the program and links it to the archive that is built beside `pvm`. Returns its path.
fn program(sandbox: &Sandbox) -> PathBuf {
    let source = std::env::current_dir().unwrap();
    let profile = pvm().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "libpvm3", "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "libpvm3 does not build");
    let program = sandbox.path().join("family");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(source.join("../../include"));
    cc.arg(source.join("tests/programs/family.c")).arg("-o").arg(&program);
    cc.arg(profile.join("libpvm3.a")).args(["-lpthread", "-lgcc_s", "-lm", "-ldl"]);
    assert!(cc.status().unwrap().success());
    program
}

fn number(event: &Value, name: &str) -> i64 {
    event[name].as_i64().unwrap_or_else(|| panic!("{name} in {event}"))
}

/// Checks that the slices of one thread are nested or do not overlap.
fn assert_nested(slices: &[&Value]) {
    let mut spans: Vec<(i64, i64)> =
        slices.iter().map(|slice| (number(slice, "ts"), number(slice, "ts") + number(slice, "dur"))).collect();
    spans.sort_by_key(|(start, end)| (*start, -*end));
    let mut open: Vec<i64> = Vec::new();
    for (start, end) in spans {
        open.retain(|outer| *outer > start);
        assert!(end >= start && open.last().is_none_or(|outer| end <= *outer), "{start} to {end} in {open:?}");
        open.push(end);
    }
}

#[test]
fn a_run_with_killed_tasks_is_a_whole_timeline() {
    let sandbox = Sandbox::new();
    let program = program(&sandbox);
    let output = sandbox.run(&["run", "--trace", "run.json", program.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read(sandbox.path().join("run.json")).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let of_kind = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);

    let mut threads: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
    of_kind("X").for_each(|slice| threads.entry(number(slice, "tid")).or_default().push(slice));
    assert_eq!(threads.len(), 3);
    threads.values().for_each(|slices| assert_nested(slices));
    let count = |name: &str| of_kind("X").filter(|slice| slice["name"] == name).count();
    assert_eq!((count("pvm_mcast"), count("pvm_psend")), (ROUNDS, 2 * ROUNDS + 2));
    assert_eq!(count("pvm_pkint"), 0);
    assert!(of_kind("X").filter(|slice| slice["name"] == "pvm_psend").all(|slice| slice["args"]["bytes"] == 4));

    // Both killed tasks were in a receive.
    let unfinished: Vec<_> = of_kind("X").filter(|slice| slice["args"]["unfinished"] == true).collect();
    let receives = unfinished.iter().filter(|slice| slice["name"] == "pvm_recv").count();
    assert_eq!((receives, unfinished.len()), (2, 3), "{unfinished:?}"); // and the parent's pvm_exit

    let by_id = |kind| of_kind(kind).map(|event| (number(event, "id"), event)).collect::<BTreeMap<_, _>>();
    let (starts, ends) = (by_id("s"), by_id("f"));
    assert_eq!(starts.len(), 4 * ROUNDS + 2 + 2);
    assert!(starts.keys().eq(ends.keys()));
    for (id, start) in &starts {
        assert!(number(start, "ts") <= number(ends[id], "ts"));
        assert_ne!(start["tid"], ends[id]["tid"]);
    }
    let inside = |event: &Value| {
        let (at, slices) = (number(event, "ts"), &threads[&number(event, "tid")]);
        slices.iter().any(|slice| (number(slice, "ts")..=number(slice, "ts") + number(slice, "dur")).contains(&at))
    };
    assert!(starts.values().chain(ends.values()).all(|event| inside(event)), "an arrow without a slice");

    let user: Vec<_> = of_kind("i").filter(|event| event["name"] == "user event").collect();
    assert_eq!((user.len(), &user[0]["args"]["0"]), (1, &Value::from(7)));
    // The start of the timeline, and the names of a host and three tasks.
    assert_eq!(of_kind("M").count(), 5);
    assert!(of_kind("i").any(|event| event["cat"] == "look"), "no look at the machine");
}

#[test]
fn a_timeline_that_cannot_be_written_is_said_before_anything_runs() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "touch ran");
    let output = sandbox.run(&["run", "--trace", "no/such/place.json", "./prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no/such/place.json"));
    assert!(!sandbox.path().join("ran").exists());
}

#[test]
fn a_program_that_is_no_task_gives_an_empty_timeline() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "exit 3");
    assert_eq!(sandbox.run(&["run", "--trace", "run.json", "./prog"]).status.code(), Some(3));
    let text = std::fs::read(sandbox.path().join("run.json")).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    assert!(file["traceEvents"].as_array().unwrap().iter().all(|event| event["ph"] == "M"));
}
