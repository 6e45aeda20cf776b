//! `pvm run`.
#![forbid(unsafe_code)]

mod common;

use common::{Nest, err, out, wait_until};
use rustix::process::{Pid, Signal};
use std::process::{Child, Stdio};
use std::time::Duration;

#[test]
fn a_program_runs_and_nothing_stays() {
    let nest = Nest::new();
    let program = nest.program("prog", "echo \"$1 $2\"; echo oops >&2; printf tail");
    let output = nest.run(&["run", &program, "a b", "-n"]);
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("a b -n\noops\ntail\n", ""));
    assert_eq!(output.status.code(), Some(0));
    assert!(!nest.has_daemon());
}

#[test]
fn a_machine_that_ran_goes_on() {
    let nest = Nest::new();
    nest.script("id\n");
    let output = nest.run(&["run", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(nest.has_daemon());
    assert!(out(&nest.script("id\n")).starts_with("pvmd already running.\npvm> id\n"));
}

#[test]
fn programs_that_run_at_the_same_time_share_a_machine_and_the_last_ends_it() {
    let nest = Nest::new();
    let children: Vec<_> = ["0.1", "0.4", "0.7"]
        .into_iter()
        .map(|time| nest.command(&["run", "sleep", time]).stdin(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert!(!nest.has_daemon());
}

#[test]
fn a_console_keeps_the_machine_of_a_run() {
    let nest = Nest::new();
    let program = nest.program("prog", "touch ready; sleep 0.5");
    let mut run = nest.command(&["run", &program]).stdin(Stdio::null()).spawn().unwrap();
    assert!(wait_until(|| nest.directory.join("ready").exists()));
    assert!(out(&nest.script("id\n")).starts_with("pvmd already running.\n"));
    assert!(run.wait().unwrap().success());
    assert!(nest.has_daemon());
}

#[test]
fn nobody_reads_the_output() {
    let nest = Nest::new();
    let mut child = nest.command(&["run", "yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(!nest.has_daemon());
}

/// Resident memory of a process and its children, in KiB.
fn memory(process: u32) -> u64 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let processes = children.split_ascii_whitespace().map(|child| child.parse().unwrap()).chain([process]);
    let resident = |process: u32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    processes.map(resident).sum()
}

#[test]
fn a_slow_reader_holds_the_tasks_back() {
    let nest = Nest::new();
    let mut child = nest.command(&["run", "yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let memory = memory(child.id());
    assert!(memory < 200_000, "{memory} KiB");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(!nest.has_daemon());
}

#[test]
fn the_status_is_that_of_the_program() {
    let nest = Nest::new();
    let program = nest.program("prog", "[ \"$1\" = kill ] && kill -9 $$; exit $1");
    for (argument, status) in [("0", 0), ("3", 3), ("kill", 137)] {
        assert_eq!(nest.run(&["run", "-n", "2", &program, argument]).status.code(), Some(status), "{argument}");
    }
}

#[test]
fn lines_can_bear_the_names_of_their_tasks() {
    let nest = Nest::new();
    nest.program("prog", "for i in 1 2 3; do echo line $i; done");
    let output = nest.run(&["run", "-n", "3", "--tag", "./prog"]);
    let text = out(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..3).flat_map(|task| (1..=3).map(move |line| format!("[prog.{task}] line {line}"))).collect();
    assert_eq!(lines, expected);
}

#[test]
fn long_lines_of_many_tasks_stay_whole() {
    let nest = Nest::new();
    let program = nest.program("prog", "for i in 1 2 3 4 5; do head -c 9999 /dev/zero | tr '\\0' $1; echo; done");
    let output = nest.run(&["run", "-n", "4", &program, "x"]);
    let text = out(&output);
    assert_eq!(text.lines().count(), 20);
    assert!(text.lines().all(|line| line.len() == 9999));
}

#[test]
fn tasks_have_the_directory_and_the_environment_of_the_caller() {
    let nest = Nest::new();
    nest.program("prog", "pwd; echo \"$XX\"; echo \"$PWD\"; cat");
    let mut command = nest.command(&["run", "./prog"]);
    let output = command.env("XX", "a  b").stdin(Stdio::null()).output().unwrap();
    let here = nest.directory.display();
    assert_eq!(out(&output), format!("{here}\na  b\n{here}\n"));
    let output = nest.run(&["run", "--wd", "home", "./prog"]);
    assert_eq!(out(&output), format!("{here}/home\n\n{here}/home\n"));
    let output = nest.run(&["run", "--wd", "nosuch", "./prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("nosuch"), "{}", err(&output));
    assert!(!nest.has_daemon());
}

#[test]
fn programs_are_found_where_a_user_expects_them() {
    let nest = Nest::new();
    nest.program("here", "echo here");
    std::fs::create_dir_all(nest.directory.join("home/pvm3/bin/LINUX64")).unwrap();
    nest.program("home/pvm3/bin/LINUX64/there", "echo there");
    assert_eq!(out(&nest.run(&["run", "there"])), "there\n");
    assert_eq!(out(&nest.run(&["run", "./here"])), "here\n");
    assert_eq!(out(&nest.run(&["run", "echo", "from PATH"])), "from PATH\n");
    for (program, hint) in [("here", "say ./here"), ("nosuch", "search path"), ("./nosuch", "No such file")] {
        let output = nest.run(&["run", program]);
        assert_eq!(output.status.code(), Some(127), "{program}");
        assert!(err(&output).contains(hint), "{program}: {}", err(&output));
        assert!(!nest.has_daemon());
    }
    assert_eq!(nest.run(&["run", "--bogus", "echo"]).status.code(), Some(2));
}

fn interrupt(process: &Child) {
    rustix::process::kill_process(Pid::from_child(process), Signal::INT).unwrap();
}

#[test]
fn an_interrupt_reaches_the_tasks_and_a_second_one_kills() {
    let nest = Nest::new();
    let ready = nest.directory.join("ready");
    let is_ready = || ready.exists();
    let polite = nest.program("polite", "trap 'echo bye; exit 7' INT; touch ready; while :; do sleep 0.05; done");
    let stubborn = nest.program("stubborn", "trap 'touch heard' INT; touch ready; while :; do sleep 0.05; done");

    let child = nest.command(&["run", &polite]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(is_ready));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((out(&output).as_str(), output.status.code()), ("bye\n", Some(7)));

    std::fs::remove_file(&ready).unwrap();
    let child = nest.command(&["run", &stubborn]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(is_ready));
    interrupt(&child);
    let heard = nest.directory.join("heard");
    assert!(wait_until(|| heard.exists()));
    interrupt(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(137));
    assert!(!nest.has_daemon());
}
