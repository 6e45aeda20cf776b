//! Tests `pvm run`.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, wait_until};
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

#[test]
fn a_program_runs_and_nothing_stays() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "echo \"$1 $2\"; echo oops >&2; printf tail");
    let output = sandbox.run(&["run", &program, "a b", "-n"]);
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("a b -n\ntail", "oops\n"));
    assert_eq!(output.status.code(), Some(0));
    assert!(!sandbox.has_daemon());
}

#[test]
fn a_machine_that_ran_goes_on() {
    let sandbox = Sandbox::new();
    sandbox.script("id\n");
    let output = sandbox.run(&["run", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(sandbox.has_daemon());
    assert!(out(&sandbox.script("id\n")).starts_with("pvmd already running.\npvm> id\n"));
}

#[test]
fn programs_that_run_at_the_same_time_share_a_machine_and_the_last_ends_it() {
    let sandbox = Sandbox::new();
    let children: Vec<_> = ["0.1", "0.4", "0.7"]
        .into_iter()
        .map(|time| sandbox.command(&["run", "sleep", time]).stdin(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert!(!sandbox.has_daemon());
}

#[test]
fn a_console_keeps_the_machine_of_a_run() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "touch ready; sleep 0.5");
    let mut run = sandbox.command(&["run", &program]).stdin(Stdio::null()).spawn().unwrap();
    assert!(wait_until(|| sandbox.path().join("ready").exists()));
    assert!(out(&sandbox.script("id\n")).starts_with("pvmd already running.\n"));
    assert!(run.wait().unwrap().success());
    assert!(sandbox.has_daemon());
}

#[test]
fn nobody_reads_the_output() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.command(&["run", "yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(!sandbox.has_daemon());
}

/// Returns the resident memory of a process and its children, in KiB.
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
    let sandbox = Sandbox::new();
    let mut child = sandbox.command(&["run", "yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let memory = memory(child.id());
    assert!(memory < 200_000, "{memory} KiB");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert!(!sandbox.has_daemon());
}

#[test]
fn the_status_is_that_of_the_program() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "[ \"$1\" = kill ] && kill -9 $$; exit $1");
    for (argument, status) in [("0", 0), ("3", 3), ("kill", 137)] {
        assert_eq!(sandbox.run(&["run", "-n", "2", &program, argument]).status.code(), Some(status), "{argument}");
    }
}

#[test]
fn lines_can_bear_the_names_of_their_tasks() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "for i in 1 2 3; do echo line $i; done");
    let output = sandbox.run(&["run", "-n", "3", "--tag", "./prog"]);
    let text = out(&output);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..3).flat_map(|task| (1..=3).map(move |line| format!("[prog.{task}] line {line}"))).collect();
    assert_eq!(lines, expected);
}

#[test]
fn long_lines_of_many_tasks_stay_whole() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "for i in 1 2 3 4 5; do head -c 9999 /dev/zero | tr '\\0' $1; echo; done");
    let output = sandbox.run(&["run", "-n", "4", &program, "x"]);
    let text = out(&output);
    assert_eq!(text.lines().count(), 20);
    assert!(text.lines().all(|line| line.len() == 9999));
}

#[test]
fn tasks_have_the_directory_and_the_environment_of_the_caller() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "pwd; echo \"$XX\"; echo \"$PWD\"; cat");
    let mut command = sandbox.command(&["run", "./prog"]);
    let output = command.env("XX", "a  b").stdin(Stdio::null()).output().unwrap();
    let here = sandbox.path().display();
    assert_eq!(out(&output), format!("{here}\na  b\n{here}\n"));
    let output = sandbox.run(&["run", "--wd", "home", "./prog"]);
    assert_eq!(out(&output), format!("{here}/home\n\n{here}/home\n"));
    let output = sandbox.run(&["run", "--wd", "nosuch", "./prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("nosuch"), "{}", err(&output));
    assert!(!sandbox.has_daemon());
}

#[test]
fn programs_are_found_where_a_user_expects_them() {
    let sandbox = Sandbox::new();
    sandbox.program("here", "echo here");
    std::fs::create_dir_all(sandbox.path().join("home/pvm3/bin/LINUX64")).unwrap();
    sandbox.program("home/pvm3/bin/LINUX64/there", "echo there");
    assert_eq!(out(&sandbox.run(&["run", "there"])), "there\n");
    assert_eq!(out(&sandbox.run(&["run", "./here"])), "here\n");
    assert_eq!(out(&sandbox.run(&["run", "here"])), "here\n");
    assert_eq!(out(&sandbox.run(&["run", "echo", "from PATH"])), "from PATH\n");
    // A program is looked for in the search path, then in PATH, then in the current directory.
    sandbox.program("echo", "echo mine");
    assert_eq!(out(&sandbox.run(&["run", "echo", "from PATH"])), "from PATH\n");
    sandbox.program("home/pvm3/bin/LINUX64/echo", "echo the search path");
    assert_eq!(out(&sandbox.run(&["run", "echo", "from PATH"])), "the search path\n");
    for (program, hint) in [("nosuch", "search path"), ("./nosuch", "No such file")] {
        let output = sandbox.run(&["run", program]);
        assert_eq!(output.status.code(), Some(127), "{program}");
        assert!(err(&output).contains(hint), "{program}: {}", err(&output));
        assert!(!sandbox.has_daemon());
    }
    assert_eq!(sandbox.run(&["run", "--bogus", "echo"]).status.code(), Some(2));
}

fn interrupt(process: &Child) {
    rustix::process::kill_process(Pid::from_child(process), Signal::INT).unwrap();
}

#[test]
fn an_interrupt_reaches_the_tasks_and_a_second_one_kills() {
    let sandbox = Sandbox::new();
    let ready = sandbox.path().join("ready");
    let is_ready = || ready.exists();
    let polite = sandbox.program("polite", "trap 'echo bye; exit 7' INT; touch ready; while :; do sleep 0.05; done");
    let stubborn = sandbox.program("stubborn", "trap 'touch heard' INT; touch ready; while :; do sleep 0.05; done");

    let child = sandbox.command(&["run", &polite]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(is_ready));
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!((out(&output).as_str(), output.status.code()), ("bye\n", Some(7)));

    std::fs::remove_file(&ready).unwrap();
    let child = sandbox.command(&["run", &stubborn]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(is_ready));
    interrupt(&child);
    let heard = sandbox.path().join("heard");
    assert!(wait_until(|| heard.exists()));
    interrupt(&child);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(137));
    assert!(!sandbox.has_daemon());
}

#[test]
fn standard_input_goes_to_the_first_task_when_that_is_wanted() {
    let sandbox = Sandbox::new();
    let run = |options: &[&str], input: &[u8]| {
        let mut child = sandbox.command(&[&["run"], options, &["--", "cat"]].concat());
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut pipe, input) = (child.stdin.take().unwrap(), input.to_vec());
        let writer = std::thread::spawn(move || pipe.write_all(&input));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output
    };
    assert!(run(&[], b"text").stdout.is_empty());
    assert_eq!(run(&["--stdin", "-n2"], b"text").stdout, b"text");
    let long: Vec<u8> = (0..1_000_000_u32).flat_map(|number| number.to_be_bytes()).collect();
    assert!(run(&["--stdin"], &long).stdout == long);
    // A task that does not read its input does not delay the end of the run.
    let child = sandbox.command(&["run", "--stdin", "true"]).stdin(Stdio::piped()).output().unwrap();
    assert!(child.status.success());
}

#[test]
fn a_terminal_makes_lines_come_and_changes_no_byte() {
    let sandbox = Sandbox::new();
    let program =
        sandbox.program("prog", "test -t 1 && echo terminal; test -t 2 && echo errors; printf 'a\\r\\n\\004b\\t'");
    assert_eq!(out(&sandbox.run(&["run", "--pty", &program])), "terminal\na\r\n\x04b\t");
    assert_eq!(out(&sandbox.run(&["run", "--no-pty", &program])), "a\r\n\x04b\t");
    assert_eq!(out(&sandbox.run(&["run", &program])), "a\r\n\x04b\t");
    let text = sandbox.program("much", "head -c 300000 /dev/zero | tr '\\0' x; echo end");
    assert_eq!(out(&sandbox.run(&["run", "--pty", &text])).len(), 300_004);
}

#[test]
fn a_question_without_an_end_is_shown_before_it_is_answered() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "printf 'name? '; read name; echo \"hello $name\"");
    let mut child = sandbox.command(&["run", "--stdin", &program]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut question = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut question).unwrap();
    assert_eq!(&question, b"name? ");
    child.stdin.take().unwrap().write_all(b"you\n").unwrap();
    assert_eq!(out(&child.wait_with_output().unwrap()), "hello you\n");
}

#[test]
fn file_names_may_be_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let sandbox = Sandbox::new();
    let name = std::ffi::OsStr::from_bytes(b"pro\xffg");
    std::fs::rename(sandbox.program("prog", "printf '%s %s' \"$1\" \"$PWD\""), sandbox.path().join(name)).unwrap();
    let place = sandbox.path().join(std::ffi::OsStr::from_bytes(b"d\xfe"));
    std::fs::create_dir(&place).unwrap();
    for program in [name.to_owned(), sandbox.path().join(name).into_os_string()] {
        let mut command = sandbox.command(&["run", "--wd"]);
        let output = command.arg(&place).arg(&program).arg(std::ffi::OsStr::from_bytes(b"\xc3(")).output().unwrap();
        assert_eq!(output.stdout, [b"\xc3( ", place.as_os_str().as_bytes()].concat(), "{}", err(&output));
    }
}

#[test]
fn what_one_run_has_started_is_one_job() {
    let sandbox = Sandbox::new();
    sandbox.script("id\n");
    let program = sandbox.program("prog", "touch ready.$PVMEPID; sleep 100");
    let mut run = sandbox.command(&["run", "-np", "6", &program]).stdin(Stdio::null()).spawn().unwrap();
    let count = || std::fs::read_dir(sandbox.path()).unwrap().flatten();
    let is_ready = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("ready");
    assert!(wait_until(|| count().filter(is_ready).count() == 6));
    let jobs = out(&sandbox.run(&["jobs"]));
    assert_eq!((jobs.lines().count(), jobs.matches(" t4").count()), (1, 6), "{jobs}");
    let tasks = out(&sandbox.run(&["ps", "-l"]));
    assert!(tasks.contains(" pvm run") && !tasks.contains("ffffffdd"), "{tasks}");
    interrupt(&run);
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn what_tasks_spawn_is_found_in_the_search_path_and_beside_the_first_program() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path().join("home/pvm3/bin/LINUX64")).unwrap();
    std::fs::create_dir(sandbox.path().join("tools")).unwrap();
    let (console, found) = (common::pvm().display(), sandbox.path().join("found"));
    // The console ends when two programs have been found, and everything that it has started ends too.
    let wait = format!("while [ $(cat {0} 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.05; done", found.display());
    let spawn =
        |names: &str| format!("({{ for name in {names}; do echo \"spawn -> $name\"; done; {wait}; }}) | {console}");
    let first = sandbox.program("tools/first", &spawn("helper second stranger"));
    // A spawned task also passes the directory of the first program on to the tasks that it spawns.
    sandbox.program("tools/second", &spawn("helper"));
    sandbox.program("tools/helper", &format!("echo beside >>{}", found.display()));
    sandbox.program("stranger", &format!("echo here >>{}", found.display()));
    let lines = || std::fs::read_to_string(&found).unwrap();
    let output = sandbox.run(&["run", "--timeout", "30", "--wd", "home", &first]);
    assert_eq!((lines().as_str(), output.status.code()), ("beside\nbeside\n", Some(0)), "{}", out(&output));
    std::fs::remove_file(&found).unwrap();
    sandbox.program("home/pvm3/bin/LINUX64/helper", &format!("echo first >>{}", found.display()));
    let output = sandbox.run(&["run", "--timeout", "30", "--wd", "home", &first]);
    assert_eq!((lines().as_str(), output.status.code()), ("first\nfirst\n", Some(0)), "{}", out(&output));
}
