//! Tests the console on a real machine, and compares it with Debian's.
#![forbid(unsafe_code)]

mod common;

use common::{Sandbox, err, out, wait_until};
use std::process::Output;

/// What a console prints when its input ends.
const FAREWELL: &str = "pvm> quit\n\nConsole: exit handler called\npvmd still running.\n";

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn a_console_starts_a_machine_and_leaves_it_running() {
    let sandbox = Sandbox::new();
    let first = sandbox.run(&[]);
    assert_eq!((out(&first).as_str(), err(&first).as_str()), (FAREWELL, ""));
    assert_eq!(first.status.code(), Some(0));
    let second = sandbox.script("id\nconf\n");
    let host = host();
    assert_eq!(
        out(&second),
        format!(
            "pvmd already running.\npvm> id\nt40002\npvm> conf\n1 host, 1 data format\n\
             \x20                   HOST     DTID     ARCH   SPEED       DSIG\n\
             {host:>24}    40000  LINUX64    1000 0x00408c41\n{FAREWELL}"
        )
    );
}

#[test]
fn halt_ends_the_machine_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let sleeper = sandbox.program("sleeper", "exec sleep 100");
    let output = sandbox.script(&format!("spawn {sleeper}\nhalt\n"));
    assert_eq!(out(&output), format!("pvm> spawn {sleeper}\n1 successful\nt40002\npvm> halt\n"));
    assert_eq!(output.status.code(), Some(0));
    assert!(!sandbox.has_daemon());
    let again = sandbox.script("id\n");
    assert_eq!(out(&again), format!("pvm> id\nt40001\n{FAREWELL}"));
}

#[test]
fn commands_of_the_console_work_as_words_of_the_command_line() {
    let sandbox = Sandbox::new();
    for words in [&["halt"][..], &["spawn", "prog"], &["kill", "t40002"]] {
        let output = sandbox.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert_eq!(err(&output), "pvm: no virtual machine runs (start one with \"pvm\")\n");
    }
    assert_eq!(out(&sandbox.run(&["version"])), "3.4.6\n");
    assert!(out(&sandbox.run(&["help", "spawn"])).starts_with("spawn       Start tasks\nSyntax:"));
    assert!(!sandbox.has_daemon());
    sandbox.run(&[]);
    let program = sandbox.program("prog", "echo \"hello $1\"; exec sleep $2");
    let shown = sandbox.run(&["spawn", "->", &program, "a b", "0"]);
    let tid = out(&shown).lines().nth(2).unwrap().to_owned();
    let lines = format!("[1]\n1 successful\n{tid}\n[1:{tid}] hello a b\n[1:{tid}] EOF\n[1] finished\n");
    assert_eq!((out(&shown), shown.status.code()), (lines, Some(0)));
    let spawned = sandbox.run(&["spawn", &program, "x", "1000"]);
    let tid = out(&spawned).lines().nth(1).unwrap().to_owned();
    assert_eq!(out(&sandbox.run(&["pstat", &tid])).trim_end(), format!("{}  run", tid.replace('t', "t   ")));
    assert_eq!(sandbox.run(&["kill", &tid]).status.code(), Some(0));
    assert!(wait_until(|| sandbox.run(&["pstat", &tid]).status.code() == Some(1)));
    let nothing = sandbox.run(&["spawn", "no-such-program"]);
    assert_eq!((out(&nothing).as_str(), nothing.status.code()), ("0 successful\nNo such file\n", Some(1)));
    assert_eq!(sandbox.run(&["kill"]).status.code(), Some(1));
    let halt = sandbox.run(&["halt"]);
    assert_eq!((out(&halt), err(&halt), halt.status.code()), (String::new(), String::new(), Some(0)));
    assert!(!sandbox.has_daemon());
}

#[test]
fn a_word_that_is_no_command_and_no_hostfile_is_an_error_whether_a_machine_runs_or_not() {
    let sandbox = Sandbox::new();
    let told = "pvm: hlat: no such command and no such hostfile; did you mean pvm halt?\n";
    for _ in 0..2 {
        let output = sandbox.run(&["hlat"]);
        assert_eq!((err(&output).as_str(), output.status.code()), (told, Some(1)));
        assert_eq!(out(&sandbox.run(&["-d0x0", "hlat"])), "");
        sandbox.run(&[]);
    }
    std::fs::write(sandbox.path().join("hosts"), "").unwrap();
    let ignored = sandbox.run(&["hosts"]);
    assert_eq!(out(&ignored), format!("pvmd already running.\n{FAREWELL}"));
    assert!(err(&ignored).contains("pvm up --hostfile hosts adds hosts"), "{}", err(&ignored));
    assert!(out(&sandbox.script("hlat\n")).contains("hlat: not found (did you mean halt?)\n"));
}

#[test]
fn the_commands_file_comes_first() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path().join("home/.pvmrc"), "# comment\nalias v version\n\nbogus\n").unwrap();
    let text = out(&sandbox.script("v\n"));
    assert_eq!(text, format!("# comment\nalias v version\n\nbogus\nbogus: not found\npvm> v\n3.4.6\n{FAREWELL}"));
}

#[test]
fn the_output_of_jobs_is_shown_as_it_comes() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "echo \"hello $1\"; echo oops >&2; printf tail");
    let mut console = sandbox.console(&[]);
    console.write(&format!("spawn -> {program} \"a b\"\n"));
    console.expect("[1] finished\n");
    console.write("jobs\n");
    assert_eq!(
        out(&console.end()),
        format!(
            "pvm> spawn -> {program} \"a b\"\n[1]\n1 successful\nt40002\n\
             pvm> [1:t40002] hello a b\n[1:t40002] oops\n[1:t40002] tail\n[1:t40002] EOF\n[1] finished\n\
             jobs\n{FAREWELL}"
        )
    );
}

#[test]
fn the_output_of_jobs_can_go_to_a_file() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "echo hello");
    let file = sandbox.path().join("out");
    let mut console = sandbox.console(&[]);
    for (number, arrow) in [(1, ">"), (2, ">>"), (3, ">")] {
        console.write(&format!("spawn -{arrow}{} {program}\n", file.display()));
        let line = format!("[{number}:t4000{}] EOF\n", number + 1);
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        assert!(wait_until(|| read().ends_with(&line)), "{}", read());
        let lines = if arrow == ">>" { 4 } else { 2 };
        assert_eq!(read().lines().count(), lines, "{}", read());
    }
    let text = out(&console.end());
    for number in 1..=3 {
        assert!(text.contains(&format!("[{number}] finished\n")), "{text}");
    }
}

#[test]
fn tasks_get_what_the_console_exports() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "echo \"$PVM_EXPORT:$XX:$PVM_ARCH:$PVMCTX:$PVMTMASK\"");
    let mut console = sandbox.console(&[]);
    console.write(&format!("setenv XX \"a  b\"\nexport XX\nspawn -> {program}\n"));
    console.expect("[1] finished\n");
    let text = out(&console.end());
    let mask = "FH@@HMDC@@HNAAB@@@@@@C@@@ICA@@@@@@@";
    assert!(text.contains(&format!("[1:t40002] XX:a  b:LINUX64:0x0:{mask}\n")), "{text}");
}

#[test]
fn a_reset_ends_tasks_but_not_consoles() {
    let sandbox = Sandbox::new();
    let sleeper = sandbox.program("sleeper", "exec sleep 100");
    let mut other = sandbox.console(&[]);
    other.expect("pvm> ");
    let text = out(&sandbox.script(&format!("spawn -2 {sleeper}\nput p 1 text\nreset\nps -a\nnames p\n")));
    let listed = text.split("FLAG 0x COMMAND\n").nth(1).unwrap().split("pvm> names p\n<p>:\n").next().unwrap();
    assert!(listed.lines().count() == 1 && listed.contains(" 40001 "), "{text}");
    other.write("id\n");
    let text = out(&other.end());
    assert!(text.starts_with("pvm> id\nt40001\n"), "{text}");
    // The owner of the mailbox entry has ended, so now a reset removes the entry.
    let text = out(&sandbox.script("names p\nreset info\nnames p\n"));
    assert!(text.contains("owner=0x0/0 flags=0x1\n\npvm> reset info\npvm> names p\npvm> quit\n"), "{text}");
}

#[test]
fn a_hostfile_that_cannot_be_read_is_told() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(&["/nonexistent/hosts"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("/nonexistent/hosts"), "{}", err(&output));
    // The daemon reports a hostfile that is a directory.
    let folder = sandbox.path().to_str().unwrap();
    let output = sandbox.run(&[folder]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("Console: Can't start pvmd"), "{}", err(&output));
    assert!(err(&output).contains(folder), "{}", err(&output));
    assert!(!sandbox.has_daemon());
}

#[test]
fn a_hostfile_with_many_bad_lines_is_complained_of_in_a_few() {
    let sandbox = Sandbox::new();
    // More than a pipe holds.
    let lines = format!("localhost {}\n", "x".repeat(200)).repeat(900);
    std::fs::write(sandbox.path().join("hosts"), lines).unwrap();
    let output = sandbox.run(&["hosts"]);
    let said = err(&output);
    assert!(output.status.success() && said.contains("hostfile has 880 more such lines"), "{said}");
    assert_eq!(said.matches("unknown option").count(), 20, "{said}");
}

#[test]
fn a_console_whose_machine_ends_says_so() {
    let sandbox = Sandbox::new();
    let console = sandbox.console(&[]);
    console.expect("pvm> ");
    sandbox.script("halt\n");
    let output = console.end();
    assert_ne!(output.status.code(), Some(0));
}

#[test]
fn lists_are_there_for_programs() {
    let sandbox = Sandbox::new();
    let absent = sandbox.run(&["conf", "--json"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(err(&absent).contains("no virtual machine runs"), "{}", err(&absent));
    let sleeper = sandbox.program("sleeper", "exec sleep 100");
    sandbox.script(&format!("spawn {sleeper}\n"));
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = sandbox.run(arguments);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", out(&output)))
    };
    assert_eq!(json(&["conf", "--json"])["hosts"][0]["arch"], "LINUX64");
    let tasks = json(&["ps", "-a", "--json"]);
    assert_eq!(tasks[0]["tid"], "t40002");
    assert_eq!(tasks[0]["command"], sleeper.as_str());
    assert!(tasks[0]["pid"].as_i64().is_some_and(|pid| pid > 0));
    assert_eq!(json(&["jobs", "--json"])[0]["tasks"][0], "t40002");
    let table = out(&sandbox.run(&["ps", "-al"]));
    assert!(table.contains("    40002        - ") && !table.contains("ffffffdd"), "{table}");
    assert_eq!(out(&sandbox.run(&["jobs"])), " 1: t40002\n");
    let text = out(&sandbox.script("jobs --json\n"));
    assert!(text.contains("pvm> jobs --json\n[]\n"), "{text}");
}

/// Lines for which both consoles must print the same text.
const BOTH: &str = "\
conf
id
version
alias
alias c conf
alias e echo hi
c
e  there
alias a b
alias b a
a
unalias a
alias
echo a  \"b  c\" d#e #f
echo \"a'b\" 'a\"b' a\\ b
bogus
sig 0
conf x
help x y
jobs x
ps
ps -a
ps -al
ps -x
ps xq
ps -nfoo
ps -a -l
getopt
getopt PvmRoute
getopt bogus
setopt bogus 1
setopt PvmShowTids 0
setopt PvmFragSize 8000
setopt PvmRoute 0
setopt PvmAutoErr 0
setopt PvmTraceOptions 9
mstat . nosuch
pstat t40001 t40002 40000 1 zz t80000000
export
export FOO BAR FOO
export
unexport FOO
export
setenv FOO
setenv FOO a b
setenv FOO
tickle 0
tickle 5
tickle 6 2
tickle 0x5
tickle 9
tickle 1 2 3 4 5 6 7 8 9 10 11 12 13
trace
trace - send recv
trace + foo
trace buf
trace buf 100
trace buf
trace opt
trace opt time
trace opt
trace opt foo
put a 0
put a 0 hello
put b 2 hello
put b 2 again
put \"\" 0 x
names
names b
names zz
names *
reset foo
reset info b
reset info b 1 2
spawn
spawn -2
spawn -3 nosuch
spawn -nohost /bin/true
spawn -FOO /bin/true
spawn -> nosuch
kill -c t40033
kill -q t40033
kill -c
kill t40044
sig 9 t40044
sig foo t40044
delete nosuch other
idump
names a
";

#[test]
fn scripts_print_the_same_on_both_consoles() {
    let Some(debian) = Sandbox::of_debian() else { return };
    let theirs = debian.script_slowly(BOTH);
    let ours = Sandbox::new().script(BOTH);
    let (theirs, ours) = (out(&theirs), out(&ours));
    for (place, (their, our)) in theirs.lines().zip(ours.lines()).enumerate() {
        assert_eq!(our, their, "line {place}\n{ours}\n--- theirs ---\n{theirs}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}

#[test]
fn errors_are_printed_the_same_on_both_consoles() {
    let script = "pstat zz\nsetopt PvmRoute 9\nkill zz\nmstat \"\"\nput \"\" 0 x\nspawn -0 x\nsig 9 x\n";
    let Some(debian) = Sandbox::of_debian() else { return };
    let errors = |output: Output| err(&output);
    assert_eq!(errors(Sandbox::new().script(script)), errors(debian.script_slowly(script)));
}
