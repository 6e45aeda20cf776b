//! Tests `pvm bench`.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Returns a sandbox for `pvm bench`; builds the program of its tasks into the directory of `pvm`.
fn sandbox() -> Sandbox {
    static BUILT: OnceLock<()> = OnceLock::new();
    let sandbox = Sandbox::new();
    BUILT.get_or_init(|| {
        let profile = common::build("libpvm3");
        let root = Path::new("../..");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu99", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
        cc.arg(root.join("bench/pvmbench.c"))
            .arg(profile.join("libpvm3.a"))
            .arg("-o")
            .arg(profile.join("pvmbench.new"));
        assert!(cc.status().unwrap().success(), "pvmbench does not build");
        std::fs::rename(profile.join("pvmbench.new"), profile.join("pvmbench")).unwrap();
    });
    sandbox
}

#[test]
fn everything_is_measured_and_nothing_stays() {
    let sandbox = sandbox();
    let output = sandbox.run(&["bench", "--time", "1", "--sizes", "8,5000", "--tasks", "3", "--json"]);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&out(&output)).unwrap();
    let results = document["results"].as_array().unwrap();
    let measures = ["latency", "bandwidth", "bidirectional", "rate", "barrier", "bcast", "mcast"];
    for measure in measures.into_iter().chain(["reduce", "gather", "scatter", "spawn"]) {
        let rows: Vec<&Value> = results.iter().filter(|row| row["measure"] == measure).collect();
        assert_eq!(rows.len(), if ["barrier", "spawn"].contains(&measure) { 1 } else { 2 }, "{measure}");
        for row in rows {
            let [minimum, median, maximum] = ["minimum", "median", "maximum"].map(|name| row[name].as_f64().unwrap());
            assert!(0.0 < minimum && minimum <= median && median <= maximum, "{row}");
            assert!(row["repetitions"].as_u64().unwrap() >= 5);
            let tasks = if ["latency", "bandwidth", "bidirectional", "rate"].contains(&measure) { 2 } else { 3 };
            assert_eq!((row["tasks"].as_u64(), row["hosts"].as_array().unwrap().len()), (Some(tasks), tasks as usize));
        }
    }
    assert_eq!(results.len(), 20);
    assert_eq!(document["settings"]["route"], "default");
    assert_eq!(document["versions"]["hpvm"], env!("CARGO_PKG_VERSION"));
    assert!(document["machine"]["cores"].as_u64().unwrap() >= 1);
    assert!(!sandbox.has_daemon());
}

#[test]
fn a_table_has_the_columns_of_osu() {
    let sandbox = sandbox();
    let measures = ["latency", "mcast", "barrier", "--sizes", "1:4", "--encoding", "psend,default"];
    let output = sandbox.run(&[&["bench", "--time", "0.5"], &measures[..]].concat());
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    let text = out(&output);
    let tables: Vec<Vec<&str>> = text.trim_end().split("\n\n").map(|table| table.lines().collect()).collect();
    let head = |name: &str, end: &str| {
        let start = format!("# hpvm {} {name}, ", env!("CARGO_PKG_VERSION"));
        tables.iter().position(|table| table[0].starts_with(&start) && table[0].ends_with(end))
    };
    for (place, name, end) in [
        (0, "latency", ", route: default, encoding: psend"),
        (1, "latency", ", route: default, encoding: default"),
        (2, "barrier", ", route: default"),
        // One message to many tasks cannot be sent by pvm_psend.
        (3, "mcast", ", route: default, encoding: raw"),
        (4, "mcast", ", route: default, encoding: default"),
    ] {
        assert_eq!(head(name, end), Some(place), "{text}");
        let table = &tables[place];
        let first = if name == "barrier" { "# Tasks   " } else { "# Size    " };
        assert_eq!(table[1], format!("{first}      Latency (us)           Min           Max"));
        let sizes: Vec<&str> = table[2..].iter().map(|row| row.split_whitespace().next().unwrap()).collect();
        assert!(if name == "barrier" { sizes.len() == 1 } else { sizes == ["1", "2", "4"] }, "{text}");
        for row in &table[2..] {
            let values: Vec<f64> = row.split_whitespace().skip(1).map(|value| value.parse().unwrap()).collect();
            assert_eq!((values.len(), row.len()), (3, table[1].len()), "{text}");
        }
    }
    assert_eq!(tables.len(), 5);
}

#[test]
fn hosts_are_added_for_the_measures_and_a_machine_that_ran_goes_on() {
    let sandbox = sandbox();
    sandbox.remote_shell();
    sandbox.run(&["up"]);
    let hosts = |output: &str| {
        let document: Value = serde_json::from_str(output).unwrap();
        let rows = document["results"].as_array().unwrap().clone();
        let names = |row: &Value| -> Vec<String> {
            row["hosts"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        rows.iter().map(|row| names(row).join(" ")).collect::<Vec<_>>()
    };
    let bench = ["bench", "--time", "0.5", "--sizes", "8", "--json", "latency", "gather", "spawn", "--tasks", "4"];
    let run = |more: &[&str]| {
        let output = sandbox.run(&[&bench, more].concat());
        assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
        hosts(&out(&output))
    };
    let (a, b) = ("127.0.0.2", "127.0.0.3");
    let many = format!("{a} {b} {a} {b}");
    assert_eq!(run(&["--hosts", "$127.0.0.2,$127.0.0.3"]), [format!("{a} {b}"), many.clone(), many]);
    assert!(wait_until(|| !sandbox.has_daemon_on(a) && !sandbox.has_daemon_on(b)));
    assert!(sandbox.has_daemon());
    // Hosts of the machine are measured without being named.
    sandbox.run(&["up", "$127.0.0.2"]);
    let pairs = run(&["--route", "direct"]);
    let own = pairs[0].split(' ').next().unwrap();
    let many = format!("{own} {a} {own} {a}");
    assert_eq!(pairs, [format!("{own} {own}"), format!("{own} {a}"), many.clone(), many]);
    assert!(sandbox.has_daemon_on(a));
}

#[test]
fn wrong_words_are_explained() {
    let sandbox = sandbox();
    for (words, text) in [
        (&["latncy"][..], "a similar value exists: 'latency'"),
        (&["barrier", "--tasks", "1"], "a collective call needs at least 2 tasks"),
        (&["--sizes", "8,x"], "\"x\": a size is a number of bytes from 1 to 1G"),
        (&["--encoding", "xdr"], "invalid value 'xdr'"),
        (&["--hosts", "n[1-"], "n[1-"),
    ] {
        let output = sandbox.run(&[&["bench"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(err(&output).contains(text), "{words:?}: {}", err(&output));
    }
    let output = sandbox.run(&["bench", "--hosts", "nosuch.invalid", "latency"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).starts_with("pvm bench: nosuch.invalid: No such host\n    try: "), "{}", err(&output));
    assert!(!sandbox.has_daemon());
}

/// Starts measures that take long, and waits until the tasks run. Returns the process ids of the tasks, the director
/// first.
fn start(sandbox: &Sandbox, tasks: usize) -> (Child, Vec<Pid>) {
    let count = tasks.to_string();
    let words = ["bench", "barrier", "gather", "--time", "100", "--sizes", "8", "--tasks", &count];
    let mut command = sandbox.command(&words);
    let bench = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut processes = Vec::new();
    assert!(wait_until(|| {
        let text = out(&sandbox.run(&["ps", "--json"]));
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let all = list.as_array().cloned().unwrap_or_default();
        let mut ours: Vec<&Value> = all.iter().filter(|task| task["parent"].is_string()).collect();
        ours.sort_by_key(|task| task["tid"].as_str().unwrap().to_owned());
        let director = ours.first().map(|task| task["parent"].clone());
        let director = all.iter().find(|task| Some(&task["tid"]) == director.as_ref());
        // A task that is being started has no process yet.
        let pid = |task: &Value| task["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
        processes = director.into_iter().chain(ours).filter_map(pid).collect();
        processes.len() == tasks
    }));
    (bench, processes)
}

fn is_gone(process: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

#[test]
fn a_task_that_dies_ends_the_measures_with_an_error() {
    let sandbox = sandbox();
    for (victim, texts) in [
        (2, [": task t4", " has ended; the log of that host's daemon"]),
        (0, [": pvmbench, task t4", "was ended by signal 9 (kill)"]),
    ] {
        let (bench, processes) = start(&sandbox, 3);
        kill_process(processes[victim], Signal::KILL).unwrap();
        let output = bench.wait_with_output().unwrap();
        let text = err(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with("pvm bench: ") && texts.iter().all(|part| text.contains(part)), "{text}");
        assert!(wait_until(|| processes.iter().all(|process| is_gone(*process))));
        assert!(!sandbox.has_daemon());
    }
}

#[test]
fn an_interrupt_and_the_end_of_the_command_end_the_tasks() {
    let sandbox = sandbox();
    let (bench, processes) = start(&sandbox, 3);
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    assert_eq!(bench.wait_with_output().unwrap().status.code(), Some(130));
    assert!(wait_until(|| processes.iter().all(|process| is_gone(*process))));
    assert!(!sandbox.has_daemon());
    let (mut bench, processes) = start(&sandbox, 3);
    kill_process(Pid::from_child(&bench), Signal::KILL).unwrap();
    bench.wait().unwrap();
    assert!(wait_until(|| processes.iter().all(|process| is_gone(*process))));
    assert!(wait_until(|| !sandbox.has_daemon()));
}
