//! Tests `pvm run` when something fails.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

/// Writes a program. One of its tasks runs `first`; the others wait for ever. Each task starts a background process
/// that also waits, and leaves the process ids of both as file names in the directory `pids`.
fn program(sandbox: &Sandbox, first: &str) -> String {
    std::fs::create_dir(sandbox.path().join("pids")).unwrap();
    sandbox.program(
        "prog",
        &format!(
            "sleep 1000 & touch pids/$$ pids/$!\necho line 1; echo line 2 >&2\n\
             mkdir first 2>/dev/null && {{ while [ $(ls pids | wc -l) -lt 6 ]; do sleep 0.01; done; {first}; }}\n\
             wait"
        ),
    )
}

/// Returns whether all processes whose ids are in the directory `pids` have ended.
fn all_are_gone(sandbox: &Sandbox) -> bool {
    let names = std::fs::read_dir(sandbox.path().join("pids")).unwrap().flatten();
    let pids: Vec<String> = names.map(|name| name.file_name().into_string().unwrap()).collect();
    assert_eq!(pids.len(), 6, "not all have begun");
    pids.iter().all(|pid| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    })
}

fn start(sandbox: &Sandbox, arguments: &[&str]) -> Child {
    let mut command = sandbox.command(&[&["run"], arguments].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts a run, waits until all its processes have begun, and then calls `act` with the run.
fn when_all_run(sandbox: &Sandbox, arguments: &[&str], act: impl FnOnce(&Child)) -> Output {
    let child = start(sandbox, arguments);
    let pids = sandbox.path().join("pids");
    assert!(wait_until(|| std::fs::read_dir(&pids).unwrap().count() == 6));
    act(&child);
    child.wait_with_output().unwrap()
}

fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

#[test]
fn a_crash_is_told_and_ends_the_others_with_all_that_they_have_started() {
    let sandbox = Sandbox::new();
    let program = program(&sandbox, "kill -SEGV $$");
    let output = start(&sandbox, &["-n", "3", &program]).wait_with_output().unwrap();
    let text = err(&output);
    assert_eq!(output.status.code(), Some(139), "{text}");
    assert_eq!(out(&output), "line 1\nline 1\nline 1\n");
    for part in [" (prog, t4", " on ", "was ended by signal 11 (segmentation fault", " after the start\n"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(text.contains("printed:\n    line 1\n    line 2\n") || text.contains("    line 2\n    line 1\n"), "{text}");
    assert!(text.contains("ending the other 2 tasks"), "{text}");
    assert!(wait_until(|| all_are_gone(&sandbox)) && !sandbox.has_daemon());
}

#[test]
fn what_becomes_of_the_others_can_be_chosen() {
    let sandbox = Sandbox::new();
    let crash = sandbox.program("crash", "mkdir $1 && kill -SEGV $$; sleep 0.3; echo end");
    let output = sandbox.run(&["run", "-n", "3", "--on-failure", "wait", &crash, "a"]);
    assert_eq!((out(&output).as_str(), output.status.code()), ("end\nend\n", Some(139)), "{}", err(&output));
    let fail = sandbox.program("fail", "mkdir $1 && exit 3; sleep 0.3; echo end");
    let output = sandbox.run(&["run", "-n", "3", &fail, "b"]);
    assert_eq!((out(&output).as_str(), output.status.code()), ("end\nend\n", Some(3)));
    assert!(err(&output).contains("has ended with exit code 3"), "{}", err(&output));
    let output = sandbox.run(&["run", "-n", "3", "--on-failure", "abort", &fail, "c"]);
    assert_eq!((out(&output).as_str(), output.status.code()), ("", Some(3)), "{}", err(&output));
}

#[test]
fn a_time_can_be_set() {
    let sandbox = Sandbox::new();
    let program = program(&sandbox, "trap '' TERM");
    let output = start(&sandbox, &["-n3", "--timeout", "1", &program]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    let text = err(&output);
    assert!(text.contains("not ended after 1.") && text.contains("    task 2 (prog, "), "{text}");
    assert!(wait_until(|| all_are_gone(&sandbox)) && !sandbox.has_daemon());
}

#[test]
fn nothing_stays_after_a_second_interrupt_a_quit_a_hangup_or_a_kill() {
    for (signals, status) in [
        (&[Signal::INT, Signal::INT][..], Some(137)),
        (&[Signal::TERM, Signal::INT], Some(137)),
        (&[Signal::QUIT], Some(137)),
        (&[Signal::HUP], Some(137)),
        (&[Signal::KILL], None),
    ] {
        let sandbox = Sandbox::new();
        // These tasks ignore signals that ask them to end.
        let program = program(&sandbox, "true; trap '' INT TERM QUIT HUP; while :; do sleep 1; done");
        let text = std::fs::read_to_string(&program).unwrap().replacen(
            "sleep 1000",
            "trap '' INT TERM QUIT HUP; sleep 1000",
            1,
        );
        std::fs::write(&program, text).unwrap();
        let output = when_all_run(&sandbox, &["-n", "3", &program], |run| {
            for signal in signals {
                send(run, *signal);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        assert_eq!(output.status.code(), status, "{signals:?}: {}", err(&output));
        assert!(wait_until(|| all_are_gone(&sandbox)), "{signals:?}");
        assert!(wait_until(|| !sandbox.has_daemon()), "{signals:?}");
    }
}

#[test]
fn a_killed_run_leaves_a_machine_that_was_there() {
    let sandbox = Sandbox::new();
    sandbox.script("id\n");
    let program = program(&sandbox, "true");
    when_all_run(&sandbox, &["-n", "3", &program], |run| send(run, Signal::KILL));
    assert!(wait_until(|| all_are_gone(&sandbox)) && sandbox.has_daemon());
    assert!(wait_until(|| out(&sandbox.run(&["ps"])).lines().count() == 1));
}

#[test]
fn a_lost_host_is_told_with_its_cause() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let program = sandbox.program("prog", "touch ready.$HOSTNAME; sleep 30");
    let child = start(&sandbox, &["-n", "2", "--hosts", "$127.0.0.2,$127.0.0.3", &program]);
    assert!(wait_until(|| ["127.0.0.2", "127.0.0.3"]
        .iter()
        .all(|host| sandbox.path().join(format!("ready.{host}")).exists())));
    // Kills the daemon of a host.
    let daemons = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let place = format!("PVM_TMP={}/127.0.0.3", sandbox.path().display());
        let program = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        program.ends_with("pvmd") && environment.split(|byte| *byte == 0).any(|variable| variable == place.as_bytes())
    });
    for daemon in daemons {
        let pid = daemon.file_name().to_str().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let text = err(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("on 127.0.0.3) is lost with its host, "), "{text}");
    assert!(text.contains(" is out of the machine: "), "{text}");
    assert!(text.contains("ending the other task"), "{text}");
    assert!(!sandbox.has_daemon());
}

/// Returns the processes of a daemon's program whose files are in this directory.
fn daemons(directory: &std::path::Path) -> Vec<Pid> {
    let wanted = format!("PVM_TMP={}\0", directory.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let is_daemon = read("comm")? == "pvmd\n" && read("environ")?.contains(&wanted);
        Pid::from_raw(number).filter(|_| is_daemon)
    });
    processes.collect()
}

#[test]
fn a_run_on_another_host_goes_on_when_the_first_host_dies() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    assert!(sandbox.run(&["up", "$127.0.0.2"]).status.success());
    let (other, go) = (sandbox.path().join("127.0.0.2"), sandbox.path().join("go"));
    let program = sandbox.program("waits", &format!("until [ -e {} ]; do sleep 0.05; done; echo over", go.display()));
    let mut command = sandbox.command(&["run", "--hosts", "127.0.0.2", &program]);
    command.env("PVM_TMP", &other).stdin(Stdio::null());
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(|| out(&sandbox.run(&["ps", "-a"])).contains("waits")));
    for daemon in daemons(sandbox.path()) {
        kill_process(daemon, Signal::KILL).unwrap();
    }
    let conf = || {
        let mut command = sandbox.command(&["conf", "-v"]);
        out(&command.env("PVM_TMP", &other).env("HOSTNAME", "127.0.0.2").stdin(Stdio::null()).output().unwrap())
    };
    assert!(wait_until(|| conf().lines().any(|line| line.contains(" 127.0.0.2 ") && line.ends_with(" master"))));
    std::fs::write(&go, "").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "over\n"), "{}", err(&output));
    let mut halt = sandbox.command(&["down"]);
    assert!(halt.env("PVM_TMP", &other).env("HOSTNAME", "127.0.0.2").status().unwrap().success());
}
