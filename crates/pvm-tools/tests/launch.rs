//! Tests the options of `pvm run` that say what runs where, `--json`, and the hosts of jobs.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, copy_program, err, out, pvm, wait_until};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// The id of another user, `nobody`.
const STRANGER: u32 = 65534;

fn sorted(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = out(output).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", out(output), err(output)))
}

/// Runs a command whose input is a text.
fn with_input(mut command: Command, text: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Nobody reads the input if no task does.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn tasks_know_their_place() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo $HPVM_TASK_INDEX/$HPVM_TASK_COUNT $HPVM_LOCAL_INDEX/$HPVM_LOCAL_COUNT [$HPVM_RUN]");
    let mut command = sandbox.command(&["run", "-n", "3", "./prog"]);
    let output = command.env("HPVM_TASK_INDEX", "9").env("HPVM_RUN", "first=7").stdin(Stdio::null()).output().unwrap();
    assert_eq!(sorted(&output), ["0/3 0/3 []", "1/3 1/3 []", "2/3 2/3 []"], "{}", err(&output));
    sandbox.program("mpi", "echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK");
    assert_eq!(sorted(&sandbox.run(&["run", "-n", "2", "--mpi-names", "./mpi"])), ["0 2 0", "1 2 1"]);
    assert_eq!(sorted(&sandbox.run(&["run", "./mpi"])), [""]);
}

#[test]
fn several_programs_are_one_run() {
    let sandbox = Sandbox::new();
    sandbox.program("one", "echo one $HPVM_TASK_INDEX/$HPVM_TASK_COUNT $1 $A $(basename $PWD)");
    sandbox.program("two", "echo two $HPVM_TASK_INDEX/$HPVM_TASK_COUNT $1 $A $(basename $PWD)");
    let line = ["run", "--tag", "-n", "2", "-x", "A=x", "./one", "a", ":", "-x", "A=y", "--wd", "home", "./two", "b"];
    let output = sandbox.run(&line);
    let here = sandbox.path().file_name().unwrap().to_str().unwrap();
    let expected = [
        format!("[one.0] one 0/3 a x {here}"),
        format!("[one.1] one 1/3 a x {here}"),
        "[two.2] two 2/3 b y home".into(),
    ];
    assert_eq!(sorted(&output), expected, "{}", err(&output));
    // When a later program does not exist, the tasks of the earlier ones end.
    let began = std::time::Instant::now();
    let output = sandbox.run(&["run", "sleep", "60", ":", "./nosuch"]);
    assert_eq!((output.status.code(), began.elapsed().as_secs() < 30), (Some(127), true));
    assert!(err(&output).contains("nosuch: No such file"), "{}", err(&output));
    assert!(wait_until(|| !sandbox.has_daemon()));
    let output = sandbox.run(&["run", "true", ":"]);
    assert_eq!((output.status.code(), err(&output).contains("after a colon")), (Some(2), true), "{}", err(&output));
}

#[test]
fn variables_can_be_set_and_go_on_to_tasks_of_tasks() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo $A $B $HOSTNAME; echo $PVM_EXPORT");
    let mut command = sandbox.command(&["run", "-x", "A=1 2", "-x", "B", "-x", "HOSTNAME", "./prog"]);
    let output = command.env("B", "3").env("HOSTNAME", "here").stdin(Stdio::null()).output().unwrap();
    assert_eq!(out(&output), "1 2 3 here\nA:B:HOSTNAME\n", "{}", err(&output));
    let output = sandbox.run(&["run", "-x", "NO_SUCH_VARIABLE", "./prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("-x NO_SUCH_VARIABLE: the variable is not set here"), "{}", err(&output));
    let output = sandbox.run(&["run", "-x", "PVMEPID=1", "./prog"]);
    assert_eq!((output.status.code(), err(&output).contains("its own PVMEPID")), (Some(2), true));
}

#[test]
fn the_input_goes_to_the_chosen_tasks() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo $HPVM_TASK_INDEX $(wc -c)");
    let run = |arguments: &[&str], text: &str| with_input(sandbox.command(arguments), text);
    let text = "0123456789\n".repeat(50_000);
    for (option, sizes) in [
        ("--stdin", ["0 550000", "1 0", "2 0"]),
        ("--stdin=2", ["0 0", "1 0", "2 550000"]),
        ("--stdin=all", ["0 550000", "1 550000", "2 550000"]),
        ("--stdin=none", ["0 0", "1 0", "2 0"]),
    ] {
        let output = run(&["run", option, "-n", "3", "./prog"], &text);
        assert_eq!(sorted(&output), sizes, "{option} {}", err(&output));
    }
    let output = run(&["run", "--stdin", "1", "./prog", ":", "-n", "2", "./prog"], "abc");
    assert_eq!(sorted(&output), ["0 0", "1 3", "2 0"], "{}", err(&output));
    // A task that reads nothing and ends does not stop the others.
    sandbox.program("some", "[ $HPVM_TASK_INDEX = 0 ] || wc -c");
    assert_eq!(sorted(&run(&["run", "--stdin", "all", "-n", "2", "./some"], &text)), ["550000"]);
    assert_eq!(sandbox.run(&["run", "--stdin", "3", "-n", "3", "./prog"]).status.code(), Some(2));
}

#[test]
fn output_goes_to_files_or_bears_the_time() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo out $HPVM_TASK_INDEX; printf 'no end'; echo err >&2");
    let output = sandbox.run(&["run", "-n", "2", "--output-dir", "new/logs", "./prog"]);
    assert_eq!((out(&output), err(&output), output.status.code()), (String::new(), String::new(), Some(0)));
    let read = |name: &str| std::fs::read_to_string(sandbox.path().join("new/logs").join(name)).unwrap();
    assert_eq!(read("prog.0.out"), "out 0\nno end");
    assert_eq!((read("prog.1.out"), read("prog.1.err")), ("out 1\nno end".into(), "err\n".into()));
    std::fs::write(sandbox.path().join("file"), "").unwrap();
    let output = sandbox.run(&["run", "--output-dir", "file/logs", "./prog"]);
    assert_eq!((output.status.code(), err(&output).contains("file/logs")), (Some(1), true), "{}", err(&output));
    let output = sandbox.run(&["run", "--timestamp", "--tag", "./prog"]);
    let text = out(&output);
    let lines: Vec<(&str, &str)> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(lines.iter().all(|(time, _)| time.len() == 24 && time.starts_with("20") && time.ends_with('Z')), "{text}");
    assert_eq!(lines.iter().map(|line| line.1).collect::<Vec<_>>(), ["[prog.0] out 0", "[prog.0] no end"]);
}

/// Returns the processors that a list such as `0-2,5` names.
fn processors(list: &str) -> usize {
    let size = |range: &str| match range.split_once('-') {
        Some((first, last)) => last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1,
        None => 1,
    };
    list.trim().split(',').map(size).sum()
}

#[test]
fn tasks_can_be_bound_to_cores() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "grep Cpus_allowed_list /proc/self/status | cut -f2; sleep 1");
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let free = sandbox.run(&["run", "./prog"]);
    assert_eq!(out(&free).trim(), own.trim(), "{}", err(&free));
    let count = processors(own);
    let output = sandbox.run(&["run", "--bind-to", "core", "-n", "2", "./prog"]);
    let lists = sorted(&output);
    assert_eq!(lists.len(), 2, "{}", err(&output));
    if count == 1 {
        return println!("skipped: one processor only");
    }
    assert!(lists.iter().all(|list| processors(list) < count || count == 2 && lists[0] == own.trim()), "{lists:?}");
    // Two threads of one core would be one place for both tasks.
    let siblings = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    if siblings.is_ok_and(|list| processors(&list) < count) {
        assert_ne!(lists[0], lists[1]);
    }
    assert_eq!(sandbox.run(&["run", "--bind-to", "socket", "./prog"]).status.code(), Some(2));
}

#[test]
fn hosts_get_blocks_of_tasks_or_turns() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.program("prog", "echo $HPVM_TASK_INDEX $HOSTNAME $HPVM_LOCAL_INDEX/$HPVM_LOCAL_COUNT");
    let run = |map: &str| {
        sandbox.run(&["run", "--map-by", map, "--hosts", "$127.0.0.2,$127.0.0.3", "--tag", "-n", "5", "./prog"])
    };
    let output = run("slot");
    let lines = [
        "[prog.0] 0 127.0.0.2 0/3",
        "[prog.1] 1 127.0.0.2 1/3",
        "[prog.2] 2 127.0.0.2 2/3",
        "[prog.3] 3 127.0.0.3 0/2",
        "[prog.4] 4 127.0.0.3 1/2",
    ];
    assert_eq!(sorted(&output), lines, "{}", err(&output));
    let output = run("node");
    let lines = [
        "[prog.0] 0 127.0.0.2 0/3",
        "[prog.1] 1 127.0.0.3 0/2",
        "[prog.2] 2 127.0.0.2 1/3",
        "[prog.3] 3 127.0.0.3 1/2",
        "[prog.4] 4 127.0.0.2 2/3",
    ];
    assert_eq!(sorted(&output), lines, "{}", err(&output));
    let line = ["run", "--map-by", "node", "--hosts", "$127.0.0.2,$127.0.0.3", "./prog", ":", "-n", "2", "./prog"];
    let output = sandbox.run(&line);
    assert_eq!(sorted(&output), ["0 127.0.0.2 0/1", "1 127.0.0.3 0/1", "2 127.0.0.2 0/1"], "{}", err(&output));
}

#[test]
fn a_report_names_each_task_and_its_end() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo hello; [ $HPVM_TASK_INDEX = 1 ] && exit 3; exit 0");
    let output = sandbox.run(&["run", "--report", "-n", "2", "./prog"]);
    let text = err(&output);
    assert!(text.contains("pvm run: 2 tasks on 1 host, ") && text.contains("exit status 3\n"), "{text}");
    let line = |task: &str| text.lines().find(|line| line.trim_start().starts_with(task)).unwrap_or_default();
    assert!(line("0  prog").ends_with("has ended with exit code 0"), "{text}");
    assert!(line("1  prog").ends_with("has ended with exit code 3"), "{text}");
    assert!(line("1  prog").contains(" MiB "), "{text}");
    let output = sandbox.run(&["run", "--json", "-n", "2", "./prog"]);
    let value = json(&output);
    assert_eq!((value["status"].as_i64(), output.status.code()), (Some(3), Some(3)));
    assert_eq!([&value["tasks"][0]["exit_code"], &value["tasks"][1]["exit_code"]], [0, 3]);
    assert_eq!(value["tasks"][1]["program"], "prog");
    let used = |name: &str| value["tasks"][1][name].as_f64().unwrap();
    assert!(used("memory_max_bytes") > 1e5 && used("user_seconds") + used("system_seconds") < 60.0, "{value}");
    assert_eq!(err(&output).lines().filter(|line| *line == "hello").count(), 2);
    let value = json(&sandbox.run(&["run", "--json", "./nosuch"]));
    assert!(value["status"] == 127 && value["error"].as_str().unwrap().contains("nosuch"), "{value}");
}

#[test]
fn a_dry_run_starts_nothing() {
    let sandbox = Sandbox::new();
    let line =
        ["run", "--dry-run", "--map-by", "node", "--hosts", "a,b", "-n", "3", "./prog", "x y", ":", "--wd", "/", "q"];
    let output = sandbox.run(&line);
    let here = sandbox.path().display();
    let expected = format!(
        "a machine is started and halted\nhosts are added and removed: a b\n\
         task 0 on a in {here}: ./prog 'x y'\ntask 1 on b in {here}: ./prog 'x y'\n\
         task 2 on a in {here}: ./prog 'x y'\ntask 3 on b in /: q\n"
    );
    assert_eq!((out(&output), err(&output)), (expected, String::new()));
    assert!(!sandbox.has_daemon());
    let value = json(&sandbox.run(&["run", "--dry-run", "--json", "-n", "2", "prog", "x"]));
    assert_eq!((&value["machine_runs"], &value["tasks"][1]["command"][1]), (&false.into(), &"x".into()));
    assert_eq!(sandbox.run(&["run", "--dry-run", "--wd", "nosuch", "prog"]).status.code(), Some(2));
}

#[test]
fn a_directory_that_may_not_be_entered_is_the_cause() {
    // The test may run as root, who may enter every directory, and another user may not enter that of the build.
    let programs = Sandbox::new();
    let program = programs.path().join("pvm");
    copy_program(pvm(), &program);
    let sandbox = Sandbox::of(&program);
    std::fs::create_dir(sandbox.path().join("closed")).unwrap();
    for (path, mode) in [(programs.path(), 0o755), (sandbox.path(), 0o755), (&sandbox.path().join("closed"), 0o600)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let mut command = sandbox.command(&["run", "--dry-run", "--wd", "closed", "true"]);
    if rustix::process::geteuid().is_root() {
        command.uid(STRANGER).gid(STRANGER);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("closed (the directory of the tasks, see --wd): Permission denied"), "{output:?}");
}

#[test]
fn hosts_are_added_and_removed_with_documents_for_programs() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    let output = sandbox.run(&["up", "--json", "$127.0.0.2", "nosuch.invalid"]);
    let value = json(&output);
    assert_eq!((output.status.code(), &value["hosts"][1]["name"]), (Some(1), &"127.0.0.2".into()));
    assert_eq!(
        (&value["failed"][0]["name"], &value["failed"][0]["error"]),
        (&"nosuch.invalid".into(), &"No such host".into())
    );
    let value = json(&sandbox.run(&["down", "--json", "127.0.0.2", "nosuch"]));
    assert_eq!((&value["hosts"][0]["deleted"], &value["hosts"][1]["deleted"]), (&true.into(), &false.into()));
    assert_eq!(json(&sandbox.run(&["down", "--json"]))["halted"], true);
}

#[test]
fn the_hosts_of_a_job_are_those_of_its_batch_system() {
    let sandbox = Sandbox::new();
    sandbox.remote_shell();
    sandbox.program("prog", "echo $HOSTNAME");
    let flux = sandbox.path().join("tools");
    std::fs::create_dir(&flux).unwrap();
    sandbox.program("tools/flux", "[ \"$*\" = 'getattr hostlist' ] && echo '$127.0.0.[2-3]'");
    let path = format!("{}:{}", flux.display(), std::env::var("PATH").unwrap());
    let file = |name: &str, text: &str| {
        std::fs::write(sandbox.path().join(name), text).unwrap();
        sandbox.path().join(name).display().to_string()
    };
    let three = ["127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3"];
    let two = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"];
    let lines = "$127.0.0.2\n$127.0.0.3\n$127.0.0.3\n$127.0.0.3\n";
    for (variables, expected) in [
        (vec![("PBS_NODEFILE", file("pbs", lines)), ("PBS_JOBID", "7.server".into())], three),
        (vec![("LSB_DJOB_HOSTFILE", file("lsf", lines)), ("LSB_JOBID", "8".into())], three),
        (vec![("LSB_MCPU_HOSTS", "$127.0.0.2 1 $127.0.0.3 3".into())], three),
        (vec![("PE_HOSTFILE", file("sge", "$127.0.0.2 1 q@a UNDEFINED\n$127.0.0.3 3 q@b UNDEFINED\n"))], three),
        (vec![("FLUX_URI", "local:///x".into()), ("FLUX_ENCLOSING_ID", "f1".into()), ("PATH", path)], two),
    ] {
        let mut command = sandbox.command(&["run", "-n", "4", "./prog"]);
        let output = command.envs(variables.clone()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(sorted(&output), expected, "{variables:?} {}", err(&output));
        assert!(wait_until(|| !sandbox.has_daemon() && !sandbox.has_daemon_on("127.0.0.2")));
    }
    let mut command = sandbox.command(&["up"]);
    let output = command.env("PBS_NODEFILE", "/no/such/file").stdin(Stdio::null()).output().unwrap();
    assert!(err(&output).contains("PBS_NODEFILE: /no/such/file: "), "{}", err(&output));
}

#[test]
fn each_job_has_a_machine_of_its_own() {
    let sandbox = Sandbox::new();
    sandbox.program("prog", "echo \"$PVM_VMID\"");
    let run = |job: Option<&str>, name: Option<&str>| {
        let mut command = sandbox.command(&["run", "./prog"]);
        command.envs(job.map(|job| ("SLURM_JOB_ID", job))).envs(name.map(|name| ("PVM_VMID", name)));
        out(&command.stdin(Stdio::null()).output().unwrap())
    };
    // A machine outside of jobs does not matter to them.
    sandbox.script("id\n");
    assert_eq!([run(Some("11"), None), run(Some("12"), None)], ["slurm-11\n", "slurm-12\n"]);
    assert_eq!([run(None, None), run(Some("11"), Some("mine"))], ["\n", "mine\n"]);
}

#[test]
fn shells_read_the_completions() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = sandbox.run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let file = sandbox.path().join(shell);
        std::fs::write(&file, &output.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&file).status() {
            Ok(status) => assert!(status.success(), "{shell}"),
            Err(_) => println!("skipped: there is no {shell}"),
        }
    }
    let script = "source ./bash; COMP_WORDS=(pvm run --out); COMP_CWORD=2; _pvm pvm --out run; echo ${COMPREPLY[@]}";
    match Command::new("bash").args(["-c", script]).current_dir(sandbox.path()).output() {
        Ok(output) => assert_eq!(out(&output), "--output-dir\n", "{}", err(&output)),
        Err(_) => println!("skipped: there is no bash"),
    }
    assert_eq!(sandbox.run(&["completions", "tcsh"]).status.code(), Some(2));
}
