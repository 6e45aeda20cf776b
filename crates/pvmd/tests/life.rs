//! The life of the daemon: start, second start, strangers, end.
#![forbid(unsafe_code)]
mod common;

use common::{Client, Daemon, Directory, PATIENCE, catch_termination, eventually, spawn_of, text, wait_for};
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request, TaskKind, ToDaemon, ToTask};
use pvm_link::{ControlError, ControlSocket};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The id of another user, `nobody`.
const STRANGER: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn lives(process: i32) -> bool {
    rustix::process::test_kill_process(rustix::process::Pid::from_raw(process).unwrap()).is_ok()
}

#[test]
fn files_are_private_and_go_at_the_end() {
    let directory = Directory::new();
    let mut daemon = Daemon::start(&directory);
    assert_eq!(std::fs::read_to_string(directory.rendezvous()).unwrap(), daemon.socket.to_str().unwrap());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.rendezvous()), 0o600);
    assert_eq!(mode(daemon.socket.parent().unwrap()), 0o700);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(directory.leftovers(), [""; 0]);
    assert!(directory.log().contains("halted"));
}

#[test]
fn the_owner_may_use_the_files_whatever_the_umask() {
    let directory = Directory::new();
    let mut daemon = Daemon::run(&mut directory.command_after("umask 777"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory.rendezvous()), 0o600);
    assert_eq!(mode(&directory.log_file()), 0o600);
    assert_eq!(mode(daemon.socket.parent().unwrap()), 0o700);
    assert_eq!(mode(&daemon.socket), 0o700);
    Client::enroll(&daemon.socket);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code(), Some(0));
    assert_eq!(directory.leftovers(), [""; 0]);
}

#[test]
fn a_limit_of_file_sizes_that_forbids_the_files_is_named_and_leaves_none() {
    let directory = Directory::new();
    let refused = directory.command_after("ulimit -f 0").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("(ulimit -f unlimited)"), "{:?} {said}", refused.status);
    assert_eq!(directory.leftovers(), [""; 0]);
}

#[test]
fn a_second_daemon_says_so_and_ends_with_a_bad_status() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let second = directory.command().output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already running"));
    assert!(second.stdout.is_empty());
    Client::enroll(&daemon.socket);
    assert_eq!(directory.leftovers().len(), 2);
    let other = Daemon::run(directory.command().env("PVM_VMID", "other"));
    assert_ne!(other.socket, daemon.socket);
}

#[test]
fn of_many_started_at_once_one_serves() {
    let directory = Directory::new();
    let mut starts: Vec<_> = (0..6).map(|_| directory.command().spawn().unwrap()).collect();
    eventually("five refusals", || {
        let refused =
            |start: &mut std::process::Child| start.try_wait().unwrap().is_some_and(|end| end.code() == Some(1));
        starts.iter_mut().map(refused).filter(|refused| *refused).count() == 5
    });
    let places_socket = std::fs::read_to_string(directory.rendezvous()).unwrap();
    Client::enroll(places_socket.as_ref());
    for mut start in starts {
        let _ = start.kill();
        start.wait().unwrap();
    }
}

#[test]
fn after_a_kill_the_next_start_cleans_up() {
    let directory = Directory::new();
    let mut daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    daemon.signal(Signal::KILL);
    daemon.end();
    assert!(directory.rendezvous().exists());
    assert_eq!(wait_for(&mut task.link).unwrap_err(), ControlError::Closed);
    let mut next = Daemon::start(&directory);
    assert_eq!(Client::enroll(&next.socket).tid().0, 0x40001);
    assert_eq!(directory.leftovers().len(), 2, "{:?}", directory.leftovers());
    next.signal(Signal::INT);
    assert_eq!(next.end().code(), Some(0));
    assert_eq!(directory.leftovers(), [""; 0]);
}

#[test]
fn a_halt_ends_tasks_that_will_not_end() {
    let directory = Directory::new();
    let mut daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    let stubborn = "trap '' TERM; echo; while :; do sleep 0.1; done";
    let tids = task.spawn_with(spawn_of("/bin/sh", &["-c", stubborn], 2));
    let Reply::Tasks(list) = task.ask(Request::Tasks(pvm_core::tid::Tid::NONE)) else { panic!() };
    let processes: Vec<i32> = list.iter().filter(|one| tids.contains(&(one.tid.0 as i32))).map(|one| one.pid).collect();
    assert!(processes.iter().all(|process| lives(*process)));
    let flag = catch_termination();
    assert_eq!(task.ask(Request::Halt), Reply::Done);
    assert_eq!(task.next().0, ToTask::Halting(String::new()));
    assert_eq!(daemon.end().code(), Some(0));
    assert!(flag.load(std::sync::atomic::Ordering::Relaxed));
    assert!(!processes.iter().any(|process| lives(*process)));
    assert_eq!(wait_for(&mut task.link).unwrap_err(), ControlError::Closed);
    assert_eq!(directory.leftovers(), [""; 0]);
}

#[test]
fn the_daemon_ends_when_its_files_vanish() {
    for socket in [true, false] {
        let directory = Directory::new();
        let mut daemon = Daemon::start(&directory);
        match socket {
            true => std::fs::remove_dir_all(daemon.socket.parent().unwrap()).unwrap(),
            false => std::fs::remove_file(directory.rendezvous()).unwrap(),
        }
        assert_eq!(daemon.end().code(), Some(0));
        assert_eq!(directory.leftovers(), [""; 0]);
    }
}

#[test]
fn garbage_ends_a_connection_and_nothing_else() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    for garbage in [&[0xff; 64][..], &[3, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9], &[0; 8]] {
        let mut stream = UnixStream::connect(&daemon.socket).unwrap();
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut rest).unwrap_or_default();
        assert!(rest.is_empty());
    }
    // The task sends a request before the hello, then a hello without descriptors.
    let mut link = ControlSocket::connect(&daemon.socket).unwrap();
    link.send_to_daemon(&ToDaemon::Bye, &[]).unwrap();
    assert_eq!(wait_for(&mut link).unwrap_err(), ControlError::Closed);
    let mut link = ControlSocket::connect(&daemon.socket).unwrap();
    let hello = pvm_core::proto::Hello { version: 1, pid: 1, cookie: None, name: text(""), kind: TaskKind::Program };
    link.send_to_daemon(&ToDaemon::Hello(hello), &[]).unwrap();
    assert_eq!(wait_for(&mut link).unwrap().0, ToTask::Refused(Code::OutOfRes));
    // A client sends half a frame, then nothing for a while.
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.write_all(&[200, 0]).unwrap();
    assert!(matches!(task.ask(Request::Config), Reply::Hosts { .. }));
}

#[test]
fn hundreds_of_connections_are_no_trouble() {
    let directory = Directory::new();
    let limit = "ulimit -Sn 256; exec \"$0\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", limit]).arg(common::program()).env("PVM_TMP", &directory.0);
    command.stdout(std::process::Stdio::piped()).stdin(std::process::Stdio::null());
    let daemon = Daemon::run(&mut command);
    let tasks: Vec<Client> = (0..150).map(|_| Client::enroll(&daemon.socket)).collect();
    assert_eq!(tasks[149].tid().0, 0x40000 + 150);
}

#[test]
fn a_hostfile_names_the_search_path_and_bad_ones_are_diagnosed() {
    let directory = Directory::new();
    let file = directory.0.join("hosts");
    std::fs::write(&file, "* ep=/nowhere\nlocalhost ep=/usr/bin:/bin sp=500 wd=/\nbad xx=1\n").unwrap();
    let daemon = Daemon::run(directory.command().arg(&file));
    let mut task = Client::enroll(&daemon.socket);
    let Reply::Hosts { hosts, .. } = task.ask(Request::Config) else { panic!() };
    assert_eq!(hosts[0].speed, 500);
    assert_eq!(task.output_of(spawn_of("pwd", &[], 1)), "/\n");
    directory.wait_for_log("hostfile line 3: unknown option 'xx=1'");
    let other = Directory::new();
    for arguments in [&["/no/such/file"][..], &["/dev/zero"], &["-x"], &["a", "b"], &["-s"]] {
        let output = other.command().args(arguments).output().unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty(), "{arguments:?}");
    }
    assert_eq!(other.leftovers(), [""; 0]);
    for argument in ["-t", "--help", "--version"] {
        let output = other.command().arg(argument).output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("pvmd"), "{argument}");
    }
}

#[test]
fn the_daemon_outlives_its_starter_and_holds_none_of_its_files() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let process = daemon.process.id();
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let session = status.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, process.to_string());
    for number in 0..3 {
        eventually("standard files", || {
            std::fs::read_link(format!("/proc/{process}/fd/{number}")).unwrap() == std::path::Path::new("/dev/null")
        });
    }
    // A job system may send the last two to all steps of a job.
    [Signal::HUP, Signal::USR1, Signal::USR2].into_iter().for_each(|signal| daemon.signal(signal));
    std::thread::sleep(Duration::from_millis(100));
    Client::enroll(&daemon.socket);
}

/// Returns a command that starts a daemon of another user, in a directory that all may write to. Only root can run it.
fn daemon_of_a_stranger(directory: &Directory) -> Command {
    let home = directory.0.join("home");
    if !home.exists() {
        std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(0o1777)).unwrap();
        std::fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    }
    // The other user may have no access to the build directory.
    let program = directory.0.join("program");
    // A process that this one starts meanwhile would keep a descriptor for writing, so another process copies: a
    // program that is open for writing cannot be started.
    assert!(Command::new("cp").arg(common::program()).arg(&program).status().unwrap().success());
    let mut command = directory.prepared(Command::new(program));
    command.env("HOME", &home).current_dir(&home).uid(STRANGER).gid(STRANGER);
    command
}

#[test]
fn files_made_in_advance_do_not_keep_a_daemon_from_starting() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let mut command = daemon_of_a_stranger(&directory);
    for name in ["pvmd", "pvml"] {
        std::fs::write(directory.0.join(format!("{name}.{STRANGER}")), "/tmp/trap").unwrap();
    }
    let daemon = Daemon::run(&mut command);
    let home = directory.0.join("home");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let rendezvous = home.join(format!(".pvmd.{STRANGER}.{host}"));
    assert_eq!(std::fs::read_to_string(&rendezvous).unwrap(), daemon.socket.to_str().unwrap());
    assert_eq!(std::fs::metadata(&rendezvous).unwrap().uid(), STRANGER);
    assert!(home.join(format!(".pvml.{STRANGER}.{host}")).exists());
    assert_eq!(std::fs::read_to_string(directory.0.join(format!("pvml.{STRANGER}"))).unwrap(), "/tmp/trap");
}

#[test]
fn another_user_gets_nowhere() {
    if !is_root() {
        return;
    }
    let directory = Directory::new();
    let daemon = Daemon::run(&mut daemon_of_a_stranger(&directory));
    // Root may open every file, so only the daemon and the client can refuse the connection.
    assert_eq!(ControlSocket::connect(&daemon.socket).err(), Some(ControlError::Stranger));
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut byte = [0];
    assert_eq!(std::io::Read::read(&mut stream, &mut byte).unwrap_or(0), 0);
    // Another user cannot even see the socket.
    let own = Directory::new();
    let own_daemon = Daemon::start(&own);
    let script =
        format!("test -e {} && exit 1; cat {}; exit 0", own_daemon.socket.display(), own.rendezvous().display());
    let output = Command::new("/bin/sh").args(["-c", &script]).uid(STRANGER).gid(STRANGER).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_library_of_pvm_3_4_is_told_that_it_is_one() {
    // The first packet of the library of PVM 3.4.6. The test reads the answer as that library reads it.
    const FIRST: [u32; 13] =
        [0x8000_0000, 0xffff_ffff, 36, 0x0300_0000, 0x1000_0000, 0x8001_0001, 0x7fffe, 0, 7, 0, 0, 0, 1318];
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut socket = UnixStream::connect(&daemon.socket).unwrap();
    socket.write_all(&FIRST.map(u32::to_be_bytes).concat()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let words: Vec<u32> = answer.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    let [head, message, protocol] = [&words[..4], &words[4..12], &words[12..]];
    assert_eq!(head, [0xffff_ffff, 0x8000_0000, 36, 0x0300_0000]);
    assert_eq!(message, &FIRST[4..12], "the answer to that request");
    assert_eq!(protocol, [0], "a protocol that it does not speak");
    let own = std::env::current_exe().unwrap();
    let said = format!("{own:?} (process {}) has the library of PVM 3.4", std::process::id());
    eventually("a word in the log", || directory.log().contains(&said));
    Client::enroll(&daemon.socket);
}

#[test]
fn a_core_dump_of_the_daemon_holds_no_keys() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let filter = |process: &str| std::fs::read_to_string(format!("/proc/{process}/coredump_filter")).unwrap();
    let number = |text: &str| u32::from_str_radix(text.trim(), 16).unwrap();
    assert_eq!(number(&filter(&daemon.process.id().to_string())), 0, "no kind of memory");
    let mut client = Client::enroll(&daemon.socket);
    let printed = client.output_of(spawn_of("/bin/cat", &["/proc/self/coredump_filter"], 1));
    assert_eq!(number(&printed), number(&filter("self")), "tasks have what the daemon began with");
}

#[test]
fn few_descriptors_are_enough_and_too_few_are_named() {
    let directory = Directory::new();
    let limited = |limit: &str| directory.command_after(&format!("ulimit -n {limit}"));
    let refused = limited("12").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("limit of open files is 12 (ulimit -n)"), "{said}");
    drop(Daemon::run(&mut limited("22")));
    let daemon = Daemon::run(&mut limited("27"));
    Client::enroll(&daemon.socket);
}
