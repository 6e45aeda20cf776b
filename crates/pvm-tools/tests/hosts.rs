//! Tests machines of several hosts. The daemons of all these hosts run on this computer, each in its own directory.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, wait_until};
use rustix::process::{Pid, Signal};
use std::process::{Output, Stdio};

/// Returns the names of the hosts in the output of `pvm conf`.
fn names(output: &Output) -> Vec<String> {
    out(output).lines().skip(2).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn sorted(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = out(output).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_machine_goes_up_over_hosts_and_down() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let output = sandbox.run(&["up", "$127.0.0.[2-3]", "$h4 ip=127.0.0.4 lo=joe"]);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    assert_eq!(names(&output)[1..], ["127.0.0.2", "127.0.0.3", "h4"]);
    let started = sandbox.started();
    assert!(started.iter().any(|line| line.contains("127.0.0.4") && line.contains(" -s -d0x0 -nh4 1 ")), "{started:?}");
    assert_eq!(names(&sandbox.run(&["conf"])).len(), 4);
    let output = sandbox.run(&["down", "127.0.0.2", "h4"]);
    let rows = "               127.0.0.2  deleted\n                      h4  deleted\n";
    assert_eq!(out(&output), format!("2 successful\n                    HOST  STATUS\n{rows}"));
    assert!(wait_until(|| !sandbox.has_daemon_on("127.0.0.2")));
    assert_eq!(names(&sandbox.run(&["conf"])).len(), 2);
    let output = sandbox.run(&["down"]);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
    assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.3")));
    assert!(err(&sandbox.run(&["down"])).starts_with("pvm down: no virtual machine runs"));
}

#[test]
fn tasks_have_the_time_to_end_that_the_first_daemon_was_told() {
    for (grace, is_enough) in [("6", true), ("0.5", false)] {
        let sandbox = Sandbox::new();
        sandbox.remote_shell();
        let path = sandbox.path().display();
        let program = sandbox.program(
            "saves",
            &format!(
                "trap 'sleep 3; echo >{path}/$$.saved; exit' TERM\necho >{path}/$$.ready\nwhile :; do sleep 0.1; done"
            ),
        );
        let mut up = sandbox.command(&["up", "$127.0.0.2"]);
        assert!(up.env("HPVM_HALT_GRACE", grace).stdin(Stdio::null()).output().unwrap().status.success());
        sandbox.run(&["spawn", "-2", &program]);
        let files = |end: &str| {
            let entries = std::fs::read_dir(sandbox.path()).unwrap();
            entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(end)).count()
        };
        assert!(wait_until(|| files(".ready") == 2));
        assert!(sandbox.run(&["down"]).status.success());
        assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2")));
        assert_eq!(files(".saved"), if is_enough { 2 } else { 0 }, "HPVM_HALT_GRACE={grace}");
    }
}

#[test]
fn hosts_that_cannot_be_added_are_explained() {
    let sandbox = Sandbox::new();
    sandbox.program("rsh", "echo 'ssh: connect to host port 22: No route to host' >&2; exit 255");
    let output = sandbox.run(&["up", "nosuch.invalid", "192.0.2.7", "localhost"]);
    assert_eq!((output.status.code(), names(&output).len()), (Some(1), 1));
    let text = err(&output);
    assert!(text.starts_with("localhost: it is in the machine already, as "), "{text}");
    assert!(text.contains("\nnosuch.invalid: No such host\n    try: "), "{text}");
    assert!(text.contains("192.0.2.7: the command ended with exit status 255"), "{text}");
    assert!(text.contains("last words: ssh: connect to host port 22: No route to host\n    command: /"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("    try: see whether the host is up"), "{text}");
    let output = sandbox.script("add 192.0.2.7\n");
    let text = out(&output);
    let table =
        "0 successful\n                    HOST     DTID\n               192.0.2.7 Can't start pvmd\n192.0.2.7: the";
    assert!(text.contains(table), "{text}");
}

#[test]
fn a_program_runs_on_the_hosts_that_were_named_and_they_go_with_it() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.program("prog", "echo $HOSTNAME");
    let output = sandbox.run(&["run", "-n", "5", "--hosts", "$127.0.0.2:2,$127.0.0.3", "./prog"]);
    assert_eq!(sorted(&output), [["127.0.0.2"; 4].as_slice(), &["127.0.0.3"]].concat(), "{}", err(&output));
    assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2")));
    // A machine that existed before the run keeps its hosts.
    sandbox.run(&["up", "$127.0.0.2"]);
    let output = sandbox.run(&["run", "-n", "2", "--hosts", "$127.0.0.3,$127.0.0.4", "./prog"]);
    assert_eq!(sorted(&output), ["127.0.0.3", "127.0.0.4"], "{}", err(&output));
    assert!(wait_until(|| !sandbox.has_daemon_on("127.0.0.3") && !sandbox.has_daemon_on("127.0.0.4")));
    assert_eq!(names(&sandbox.run(&["conf"]))[1..], ["127.0.0.2"]);
}

#[test]
fn hosts_that_are_in_the_machine_go_by_any_name_and_need_none_that_is_known_elsewhere() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.program("prog", "echo ${HOSTNAME:-here}");
    // A daemon like one on another host: it has its own address, and a name that cannot be looked up.
    sandbox.run(&["up", "$h2.invalid ip=127.0.0.2"]);
    let up = sandbox.run(&["up", "localhost", "h2.invalid"]);
    assert_eq!((up.status.code(), names(&up).len()), (Some(0), 2));
    let own = &names(&up)[0];
    assert_eq!(err(&up), format!("localhost: it is in the machine already, as {own}\n"));
    let run = |hosts: &[&str]| {
        let lists = hosts.iter().flat_map(|list| ["--hosts", list]);
        let words: Vec<&str> = ["run", "-n", "2"].into_iter().chain(lists).chain(["./prog"]).collect();
        let output = sandbox.run(&words);
        (sorted(&output), err(&output))
    };
    let lines = |lines: [&str; 2]| (lines.map(str::to_owned).to_vec(), String::new());
    assert_eq!(run(&["h2.invalid"]), lines(["127.0.0.2"; 2]));
    assert_eq!(run(&["$h2.invalid", "$h2.invalid"]), lines(["127.0.0.2"; 2]));
    assert_eq!(run(&["$h2.invalid", "localhost"]), lines(["127.0.0.2", "here"]));
    assert_eq!(run(&["localhost", "$127.0.0.3"]), lines(["127.0.0.3", "here"]));
    assert!(wait_until(|| !sandbox.has_daemon_on("127.0.0.3")));
    assert_eq!(names(&sandbox.run(&["conf"]))[1..], ["h2.invalid"]);
}

#[test]
fn a_hostfile_names_the_hosts_of_a_run_and_of_a_console() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.program("prog", "echo ${HOSTNAME:-here}");
    std::fs::write(sandbox.path().join("hosts"), "# two\nlocalhost slots=1\n$127.0.0.2 slots=3\n&later\n").unwrap();
    let mut command = sandbox.command(&["run", "-n", "4", "--hostfile", "hosts", "./prog"]);
    let output = command.env_remove("HOSTNAME").stdin(Stdio::null()).output().unwrap();
    assert_eq!(sorted(&output), ["127.0.0.2", "127.0.0.2", "127.0.0.2", "here"], "{}", err(&output));
    assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2")));
    std::fs::write(sandbox.path().join("bad"), "a\nb what\n").unwrap();
    let output = sandbox.run(&["run", "--hostfile", "bad", "./prog"]);
    assert_eq!((output.status.code(), err(&output).contains("bad line 2: unknown option 'what'")), (Some(2), true));
    let output = sandbox.run(&["hosts"]);
    assert!(out(&output).contains("pvmd still running."), "{}", err(&output));
    assert_eq!(names(&sandbox.run(&["conf"]))[1..], ["127.0.0.2"]);
}

#[test]
fn a_console_tells_which_hosts_of_its_hostfile_are_missing() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("hosts"), "nosuch.invalid\n192.0.2.7\n").unwrap();
    let text = err(&sandbox.run(&["hosts"]));
    assert!(text.contains("host nosuch.invalid: No such host\n"), "{text}");
    assert!(text.contains("host 192.0.2.7: Can't start pvmd\n    the command ended"), "{text}");
}

#[test]
fn inside_of_a_slurm_job_its_hosts_are_found_and_started_by_srun() {
    let sandbox = Sandbox::new();
    let shell = sandbox.remote_shell();
    // When this replacement for `srun` ends, the programs that it has started end too, as with the real `srun`.
    let report = sandbox.path().join("srun");
    let tools = sandbox.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let srun =
        sandbox.program("tools/srun", &format!("echo \"$@\" >>{}; exec {shell} \"$7\" \"${{10}}\"", report.display()));
    sandbox.program("prog", "echo $HOSTNAME");
    let command = |arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env_remove("PVM_RSH").env("SLURM_JOB_NODELIST", "$127.0.0.[2-3]");
        command.stdin(Stdio::null()).output().unwrap()
    };
    assert!(srun.ends_with("srun"));
    let output = command(&["run", "-n", "4", "./prog"]);
    assert_eq!(sorted(&output), ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"], "{}", err(&output));
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("--nodes=1 --ntasks=1 ") && report.contains("-w 127.0.0.2 sh -c exec "), "{report}");
    assert!(report.contains(" -s -f -d0x0 -n127.0.0.2 "), "{report}");
    assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2")));
    assert_eq!(names(&command(&["up"]))[1..], ["127.0.0.2", "127.0.0.3"]);
}

#[test]
fn a_host_that_is_drained_leaves_when_its_tasks_have_ended_and_gets_no_new_ones() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let go = sandbox.path().join("go");
    let program = sandbox.program("waits", &format!("until [ -e {} ]; do sleep 0.05; done", go.display()));
    sandbox.run(&["up"]);
    let first = names(&sandbox.run(&["conf"])).remove(0);
    let output = sandbox.run(&["drain", &first]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("is the only host of the machine; `pvm down` ends"), "{}", err(&output));
    sandbox.run(&["up", "$h2 ip=127.0.0.2", "$h3 ip=127.0.0.3"]);
    sandbox.run(&["spawn", "-2", "-h2", &program]);
    let output = sandbox.run(&["drain", "--timeout", "1", "nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("nowhere: No such host; `pvm conf` lists the hosts"), "{}", err(&output));

    let child = sandbox.command(&["drain", "h2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(|| out(&sandbox.run(&["conf"])).contains(" draining\n")));
    sandbox.run(&["spawn", "-4", &program]);
    let tasks = out(&sandbox.run(&["ps", "-a"]));
    assert_eq!(tasks.lines().filter(|line| line.split_whitespace().next() == Some("h2")).count(), 2, "{tasks}");
    let output = sandbox.run(&["spawn", "-1", "-h2", &program]);
    assert!(out(&output).contains("No such host"), "{}", out(&output));
    std::fs::write(&go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), names(&sandbox.run(&["conf"])).len()), (Some(0), 2), "{}", err(&output));
    assert!(out(&output).contains("h2  deleted") && err(&output).contains("2 tasks ("), "{}", err(&output));
    assert!(wait_until(|| !sandbox.has_daemon_on("127.0.0.2")));
}

#[test]
fn a_drain_ends_tasks_after_its_time_and_can_be_taken_back() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let program = sandbox.program("stays", "while :; do sleep 0.1; done");
    sandbox.run(&["up", "$h2 ip=127.0.0.2"]);
    sandbox.run(&["spawn", "-h2", &program]);
    let mut child = sandbox.command(&["drain", "h2"]).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(|| out(&sandbox.run(&["conf", "--json"])).contains("\"draining\": true")));
    rustix::process::kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it ends by the signal");
    assert!(out(&sandbox.run(&["conf"])).contains(" draining\n"));
    assert_eq!(sandbox.run(&["drain", "--undo", "h2"]).status.code(), Some(0));
    assert!(!out(&sandbox.run(&["conf"])).contains(" draining\n"));
    sandbox.run(&["spawn", "-h2", &program]);
    let output = sandbox.run(&["drain", "--timeout", "0.5", "--json", "h2"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("are ended, since the time is over"), "{}", err(&output));
    assert!(out(&output).contains("\"deleted\": true"), "{}", out(&output));
}

#[test]
fn a_host_that_is_drained_may_be_named_twice_and_stays_if_it_takes_tasks_again() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let program = sandbox.program("stays", "while :; do sleep 0.1; done");
    sandbox.run(&["up", "$h2 ip=127.0.0.2", "$h3 ip=127.0.0.3"]);
    let output = sandbox.run(&["drain", "--json", "."]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("say which host"), "{}", err(&output));
    assert!(out(&output).contains("\"deleted\": false") && !out(&sandbox.run(&["conf"])).contains(" draining\n"));
    let output = sandbox.run(&["drain", "h3", "h3"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(names(&sandbox.run(&["conf"])).len(), 2);
    sandbox.run(&["spawn", "-h2", &program]);
    let child = sandbox.command(&["drain", "h2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(|| out(&sandbox.run(&["conf"])).contains(" draining\n")));
    sandbox.run(&["drain", "--undo", "h2"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), names(&sandbox.run(&["conf"])).len()), (Some(1), 2));
    assert!(err(&output).contains("h2 takes tasks again, so it stays"), "{}", err(&output));
}

#[test]
fn the_first_host_can_be_drained_and_the_others_go_on() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.run(&["up", "$h2 ip=127.0.0.2", "$h3 ip=127.0.0.3"]);
    let first = names(&sandbox.run(&["conf"])).remove(0);
    assert!(out(&sandbox.run(&["conf", "-v"])).lines().nth(2).is_some_and(|line| line.ends_with(" master")));
    let output = sandbox.run(&["drain", &first]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains(&format!("{first}  deleted")), "{}", out(&output));
    assert!(wait_until(|| sandbox.run(&["conf"]).status.code() != Some(0)), "its daemon has ended");
    assert!(sandbox.has_daemon_on("127.0.0.2") && sandbox.has_daemon_on("127.0.0.3"));
}
