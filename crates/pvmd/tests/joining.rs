//! Daemons that join a machine whose master is played by the test, and masters whose joining daemons are played by the
//! test.
#![forbid(unsafe_code)]
mod common;

use common::{Client, Daemon, Directory, PATIENCE, text};
use pvm_core::dialogue::{self, Greeting, Line};
use pvm_core::proto::{Reply, Request};
use pvm_core::wire::Started;
use pvm_link::ControlSocket;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

const WORDS: [&str; 7] = ["-s", "-nh2", "1", "c0000201:0fa0", "4080", "2", "c0000201:0000"];

/// Starts a daemon as a remote shell does, and writes the greeting to it.
fn join(directory: &Directory, words: &[&str], greeting: &str) -> Child {
    let mut child = directory.command().args(words).stdin(Stdio::piped()).spawn().unwrap();
    // The write fails if the process has ended already.
    let _ = child.stdin.as_mut().unwrap().write_all(greeting.as_bytes());
    child
}

fn greeting() -> String {
    Greeting { key: Some([3; 32]), ..Greeting::default() }.text()
}

/// Returns the output and the errors of a process until its end.
fn output(child: &mut Child) -> (String, String) {
    let (mut out, mut err) = (String::new(), String::new());
    child.stdin = None;
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (out, err)
}

/// A daemon in the background, killed at the end of the test.
struct Background(Pid);

impl Background {
    fn of(directory: &Directory) -> Background {
        let socket = PathBuf::from(std::fs::read_to_string(directory.rendezvous()).unwrap());
        let link = ControlSocket::connect(&socket).unwrap();
        Background(Pid::from_raw(link.peer_process()).unwrap())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

fn started(line: &str) -> Started {
    match dialogue::read(line) {
        Line::Started(started) => started,
        other => panic!("{line:?} is {other:?}"),
    }
}

#[test]
fn a_daemon_that_joins_answers_and_goes_to_the_background() {
    let directory = Directory::new();
    let mut front = join(&directory, &WORDS, &greeting());
    let (out, err) = output(&mut front);
    let started = started(&out);
    assert_eq!((err.as_str(), started.arch.is_empty()), ("", false));
    assert!(started.addresses.iter().any(|address| address.ip().is_loopback()), "{started:?}");
    assert_ne!(started.key, [0; 32]);
    assert!(front.wait().unwrap().success());
    let daemon = Background::of(&directory);
    let (again, _) = output(&mut join(&directory, &WORDS, &greeting()));
    assert_eq!(again, "PvmDupHost\n");
    kill_process(daemon.0, Signal::TERM).unwrap();
    let end = Instant::now() + PATIENCE;
    while !directory.leftovers().is_empty() && Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(directory.leftovers(), Vec::<String>::new());
}

#[test]
fn a_daemon_whose_answer_nobody_has_read_ends_at_once() {
    let greeting = Greeting { key: Some([3; 32]), confirms: true, ..Greeting::default() }.text();
    let directory = Directory::new();
    for said in ["", "taken", "something else\n"] {
        let (out, err) = output(&mut join(&directory, &WORDS, &format!("{greeting}{said}")));
        assert!(out.starts_with("ddpro<2316> ") && err == "pvmd: nobody has read the answer\n", "{said:?}: {err}");
        assert_eq!(directory.leftovers(), Vec::<String>::new());
    }
    started(&output(&mut join(&directory, &WORDS, &format!("{greeting}taken\n"))).0);
    drop(Background::of(&directory));
}

#[test]
fn the_machine_of_the_master_is_that_of_the_daemon() {
    let directory = Directory::new();
    let text = Greeting { machine: Some("vm7".into()), key: Some([3; 32]), confirms: false }.text();
    let mut front = join(&directory, &WORDS, &text);
    started(&output(&mut front).0);
    let file = PathBuf::from(format!("{}.vm7", directory.rendezvous().display()));
    let socket = PathBuf::from(std::fs::read_to_string(file).unwrap());
    drop(Background(Pid::from_raw(ControlSocket::connect(&socket).unwrap().peer_process()).unwrap()));
}

#[test]
fn a_key_on_the_command_line_serves_where_no_greeting_comes() {
    let directory = Directory::new();
    let key = format!("-k{}", "03".repeat(32));
    let mut front = join(&directory, &[&[key.as_str()], WORDS.as_slice()].concat(), "");
    started(&output(&mut front).0);
    drop(Background::of(&directory));
}

#[test]
fn a_master_of_pvm_3_4_6_is_refused_in_words_that_it_knows() {
    let directory = Directory::new();
    let mut front = join(&directory, &WORDS, "PVM_VMID=x\n");
    let (out, err) = output(&mut front);
    assert!(out.starts_with("ddpro<0> arch<"), "{out}");
    assert_eq!(err, "pvmd: the master is not hpvm\n");
    assert!(directory.leftovers().is_empty());
}

#[test]
fn the_reason_why_a_host_was_not_started_reaches_the_asker() {
    let directory = Directory::new();
    let script = directory.0.join("rsh");
    std::fs::write(&script, "echo \"ssh: connect to host $1 port 22: Connection refused\" >&2; exit 255").unwrap();
    let mut command = directory.command();
    command.env("PVM_RSH", format!("/bin/sh {}", script.display()));
    let daemon = Daemon::run(&mut command);
    let mut task = Client::enroll(&daemon.socket);
    let reply = task.ask(Request::AddHosts(vec![text("192.0.2.7"), text("192.0.2.8 dx=my/pvmd lo=joe")]));
    let Reply::AddedHosts { count: 0, hosts, reasons } = reply else { panic!("{reply:?}") };
    assert_eq!(hosts, [-29, -29]);
    assert!(reasons[1].contains("-l joe 'my/pvmd -s -d0x0 -n192.0.2.8 1 "), "{reasons:?}");
    for (reason, host) in reasons.iter().zip(["192.0.2.7", "192.0.2.8"]) {
        assert!(reason.contains("exit status 255") && reason.contains("sshd"), "{reason}");
        assert!(reason.contains(&format!("ssh: connect to host {host} port 22: Connection refused")), "{reason}");
    }
    directory.wait_for_log("stderr@192.0.2.7: ssh: connect to host");
}
