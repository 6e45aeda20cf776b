//! Tasks, spawns, and messages of the daemon: over the real socket, with real processes.
#![forbid(unsafe_code)]
mod common;

use common::file_server::{FileServer, FileSystem, INIT, OPEN};
use common::{Client, Daemon, Directory, eventually, program, spawn_of, text};
use pvm_core::codes::{Code, NOTIFY_TASK_EXIT, TASK_DEBUG, TASK_HOST};
use pvm_core::proto::{Message, Reply, Request, Spawn, TaskEnd, ToDaemon, ToTask};
use pvm_core::tid::Tid;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Instant;

#[test]
fn tids_follow_one_another_and_self_enrolled_tasks_have_no_parent() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let tasks: Vec<Client> = (0..3).map(|_| Client::enroll(&daemon.socket)).collect();
    assert_eq!(tasks.iter().map(|task| task.tid().0).collect::<Vec<_>>(), [0x40001, 0x40002, 0x40003]);
    assert_eq!(tasks[0].welcome.parent, 0);
    assert_eq!(tasks[0].welcome_descriptors.len(), 1);
}

#[test]
fn the_configuration_names_this_host() {
    let directory = Directory::new();
    let daemon = Daemon::run(directory.command().arg("-nalfa"));
    let mut task = Client::enroll(&daemon.socket);
    let Reply::Hosts { hosts, formats } = task.ask(Request::Config) else { panic!() };
    assert_eq!((hosts[0].name.as_str(), hosts[0].tid, hosts[0].speed, formats), ("alfa", Tid(0x40000), 1000, 1));
    let Reply::Clock { seconds, .. } = task.ask(Request::HostSync(Tid(0x40000))) else { panic!() };
    assert!(seconds > 1_600_000_000);
}

#[test]
fn peers_get_each_others_descriptors_once_and_hear_of_the_end() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let (mut one, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    assert_eq!(one.ask(Request::Connect(other.tid())), Reply::Done);
    let (frame, descriptors) = one.inbox.remove(0);
    assert_eq!((frame, descriptors.len()), (ToTask::Peer(other.tid()), 2));
    let (frame, descriptors) = other.next();
    assert_eq!((frame, descriptors.len()), (ToTask::Peer(one.tid()), 2));
    // The second descriptor is the peer's doorbell.
    rustix::io::write(&descriptors[1], &[1]).unwrap();
    assert_eq!(rustix::io::read(one.bell.as_fd(), &mut [0; 8]), Ok(1));
    assert_eq!(other.ask(Request::Connect(one.tid())), Reply::Done);
    assert!(other.inbox.is_empty());
    let gone = other.tid();
    drop(other);
    assert_eq!(one.next().0, ToTask::PeerGone(gone));
    assert_eq!(one.ask(Request::Connect(gone)), Reply::Error(Code::NoTask));
}

#[test]
fn the_daemon_rings_for_a_task() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let (mut one, other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    one.link.send_to_daemon(&ToDaemon::Ring(other.tid()), &[]).unwrap();
    eventually("the bell", || rustix::io::read(other.bell.as_fd(), &mut [0; 8]).is_ok());
}

#[test]
fn a_task_can_be_sent_to_before_it_comes() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut parent = Client::enroll(&daemon.socket);
    // The child publishes its cookie and sleeps. The test then enrolls in its place, with the cookie.
    let go = directory.0.join("go");
    let script = format!("echo $PVMEPID > {0}.tmp; mv {0}.tmp {0}; exec sleep 3", go.display());
    let child = Tid(parent.spawn("/bin/sh", &["-c", &script])[0] as u32);
    assert_eq!(parent.ask(Request::Connect(child)), Reply::Done);
    let (frame, descriptors) = parent.inbox.remove(0);
    assert_eq!((frame, descriptors.len()), (ToTask::Peer(child), 2));
    eventually("the cookie", || go.exists());
    let cookie = std::fs::read_to_string(&go).unwrap().trim().parse().unwrap();
    let mut task = Client::claim(&daemon.socket, Some(cookie)).unwrap();
    assert_eq!((task.tid(), task.welcome.parent), (child, parent.tid().0 as i32));
    assert_eq!(task.welcome_descriptors.len(), 3);
    let segment = |descriptor: &std::os::fd::OwnedFd| rustix::fs::fstat(descriptor).unwrap().st_ino;
    assert_eq!(segment(&task.welcome_descriptors[1]), segment(&descriptors[0]));
    assert_eq!(task.next().0, ToTask::Peer(parent.tid()));
}

#[test]
fn spawned_programs_run_in_the_promised_surroundings() {
    let directory = Directory::new();
    let daemon = Daemon::run(directory.command().env("PVM_ROOT", "/the/root").env("GREETING", "hello"));
    let mut task = Client::enroll(&daemon.socket);
    let script = "echo $GREETING $PVM_ARCH $PVM_ROOT $X $#; echo $PVMSOCK >&2; pwd; ls /proc/self/fd | wc -l; \
                  readlink /proc/self/fd/0; ulimit -n; cut -d' ' -f3 /proc/self/status | head -0; printf end";
    let environment = vec![text("PVM_EXPORT=X"), text("X=exported")];
    let spawn = Spawn { environment, ..spawn_of("/bin/sh", &["-c", script, "sh", "a b", "c"], 1) };
    let output = task.output_of(spawn);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    let expected = format!(
        "hello {} /the/root exported 2\n{}\n{}\n4\n/dev/null\n{limit}\nend",
        if cfg!(target_pointer_width = "64") { "LINUX64" } else { "LINUX" },
        daemon.socket.display(),
        directory.0.display()
    );
    assert_eq!(output, expected);
}

#[test]
fn more_tasks_than_the_soft_limit_of_descriptors_run_and_have_that_limit() {
    let directory = Directory::new();
    let daemon = Daemon::run(&mut directory.command_after("ulimit -Sn 128"));
    let mut task = Client::enroll(&daemon.socket);
    let tids = task.spawn_with(spawn_of("/bin/sleep", &["1000"], 300));
    assert!(tids.len() == 300 && tids.iter().all(|tid| *tid > 0), "{tids:?}");
    assert_eq!(task.output_of(spawn_of("/bin/sh", &["-c", "ulimit -Sn; ls /proc/self/fd | wc -l"], 1)), "128\n4\n");
}

/// A daemon whose search path and remote shell are on a file system of ours, or `None` if no file system can be mounted here.
fn daemon_on_a_file_system(directory: &Directory) -> Option<(Daemon, FileSystem)> {
    let place = directory.0.join("stopped");
    std::fs::create_dir(&place).unwrap();
    let mount = format!("mount -i -t fuse none {} -o fd=0,rootmode=40000,user_id=0,group_id=0", place.display());
    let mounted = |system: &FileSystem, then: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "/bin/bash", "-c", &format!("{mount} && {then}"), program().to_str().unwrap()]);
        let mut command = directory.prepared(command);
        command.env("PVM_PATH", &place).env("PVM_RSH", place.join("program")).stdin(system.descriptor());
        command
    };
    if !FileSystem::new().is_some_and(|system| mounted(&system, "true").status().unwrap().success()) {
        eprintln!("skipped: no file system can be mounted here");
        return None;
    }
    let system = FileSystem::new().unwrap();
    let daemon = Daemon::run(&mut mounted(&system, "exec \"$0\" < /dev/null"));
    Some((daemon, system))
}

/// Begins more spawns on the file system than there are threads at first, and looks what else goes on while it does not
/// answer the operation `held`.
fn the_file_system_holds_up_only_who_needs_it(daemon: &Daemon, server: FileServer, held: u32) {
    let (mut one, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let mut begin = |count| (one.begin(Request::Spawn(spawn_of("program", &[], count))), count as usize);
    let requests = [1, 1, 1, 7, 1, 100, 1].map(&mut begin);
    eventually("a request that is not answered", || server.has_held(held));
    assert_eq!(other.output_of(spawn_of("/bin/echo", &["well"], 1)), "well\n");
    let several = other.spawn_with(spawn_of("/bin/true", &[], 20));
    assert!(several.iter().all(|tid| *tid > 0), "{several:?}");
    assert!(one.inbox.is_empty());
    drop(server);
    // The answers come in any order.
    let answers = requests.map(|_| one.next().0);
    for (number, count) in requests {
        let codes = answers.iter().find_map(|answer| match answer {
            ToTask::Reply { wait, reply: Reply::Tids(codes) } if *wait == number => Some(codes),
            _ => None,
        });
        assert!(codes.is_some_and(|codes| codes.len() == count && codes.iter().all(|code| *code < 0)), "{answers:?}");
    }
    assert_eq!(other.output_of(spawn_of("/bin/echo", &["well"], 1)), "well\n");
}

#[test]
fn a_file_system_that_does_not_answer_holds_up_only_who_needs_it() {
    let directory = Directory::new();
    let Some((daemon, system)) = daemon_on_a_file_system(&directory) else { return };
    the_file_system_holds_up_only_who_needs_it(&daemon, system.serve(|_| false), INIT);
}

#[test]
fn a_program_that_cannot_be_read_holds_up_only_who_needs_it() {
    let directory = Directory::new();
    let Some((daemon, system)) = daemon_on_a_file_system(&directory) else { return };
    the_file_system_holds_up_only_who_needs_it(&daemon, system.serve(|operation| operation != OPEN), OPEN);
}

#[test]
fn a_remote_shell_that_cannot_be_read_holds_up_only_who_adds_a_host() {
    let directory = Directory::new();
    let Some((daemon, system)) = daemon_on_a_file_system(&directory) else { return };
    let server = system.serve(|operation| operation != OPEN);
    let (mut one, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let request = one.begin(Request::AddHosts(vec![text("192.0.2.7")]));
    eventually("a request that is not answered", || server.has_held(OPEN));
    assert_eq!(other.output_of(spawn_of("/bin/echo", &["well"], 1)), "well\n");
    assert!(one.inbox.is_empty());
    drop(server);
    let ToTask::Reply { wait, reply: Reply::AddedHosts { count: 0, reasons, .. } } = one.next().0 else { panic!() };
    assert!(wait == request && reasons[0].contains("program"), "{reasons:?}");
}

#[test]
fn as_many_tasks_are_granted_as_can_come_and_the_log_names_the_limit() {
    let directory = Directory::new();
    let daemon = Daemon::run(&mut directory.command_after("ulimit -n 200"));
    let mut parent = Client::enroll(&daemon.socket);
    let script = format!("cd {}; echo $PVMEPID > $$.tmp; mv $$.tmp $$.cookie; exec sleep 1000", directory.0.display());
    let tids = parent.spawn_with(spawn_of("/bin/sh", &["-c", &script], 100));
    let granted = tids.iter().filter(|tid| **tid > 0).count();
    assert!((10..100).contains(&granted), "{tids:?}");
    assert!(tids[granted..].iter().all(|code| *code == Code::OutOfRes.number()), "{tids:?}");
    directory.wait_for_log("the limit of open files of pvmd is 200");
    directory.wait_for_log("ulimit -Hn");
    for tid in &tids[..granted] {
        assert_eq!(parent.ask(Request::Connect(Tid(*tid as u32))), Reply::Done);
    }
    let cookies = || -> Vec<u32> {
        let files = std::fs::read_dir(&directory.0).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "cookie"));
        files.map(|path| std::fs::read_to_string(path).unwrap().trim().parse().unwrap()).collect()
    };
    eventually("the cookies", || cookies().len() == granted);
    let come: Vec<_> = cookies().into_iter().map(|cookie| Client::claim(&daemon.socket, Some(cookie))).collect();
    assert!(come.iter().all(Result::is_ok));
}

#[test]
fn a_working_directory_is_obeyed_and_a_missing_one_is_no_file() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    std::fs::create_dir(directory.0.join("sub")).unwrap();
    let place = |place: &str| Spawn {
        place: text(place),
        flags: TASK_HOST,
        ..spawn_of("/bin/sh", &["-c", "pwd; echo $PVMSPAWNWD"], 1)
    };
    assert_eq!(task.output_of(place(".:/")), "/\n/\n");
    assert_eq!(task.output_of(place(".:sub")), format!("{}/sub\nsub\n", directory.0.display()));
    assert_eq!(task.spawn_with(place(".:/nowhere")), [Code::NoFile.number()]);
}

#[test]
fn programs_are_searched_for_and_failures_are_reported_at_once() {
    let directory = Directory::new();
    let bin = directory.0.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("plain"), "no program").unwrap();
    std::fs::write(bin.join("broken"), "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("broken"), mode).unwrap();
    let search = format!("/nowhere:{}:/bin", bin.display());
    let daemon = Daemon::run(directory.command().env("PVM_PATH", search));
    let mut task = Client::enroll(&daemon.socket);
    assert!(task.spawn("true", &[])[0] > 0);
    assert!(task.spawn("/bin/true", &[])[0] > 0);
    for file in ["plain", "broken", "bin/plain", "/bin", "no-such-program", "/no/such/program", ""] {
        assert_eq!(task.spawn(file, &[]), [Code::NoFile.number()], "{file}");
    }
    let spawn = Spawn { flags: TASK_DEBUG, ..spawn_of("true", &[], 1) };
    assert_eq!(task.spawn_with(spawn), [Code::NoFile.number()]);
}

/// Returns the status in the answer to [`Request::ExitStatus`].
fn status(reply: Reply) -> i32 {
    let Reply::Ended(TaskEnd { status, usage }) = reply else { panic!("{reply:?}") };
    assert!(usage.memory_max_bytes > 0);
    status
}

#[test]
fn the_end_of_a_process_is_noticed_with_its_status_after_its_output() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    let child = Tid(task.spawn("/bin/sh", &["-c", "read x < /dev/tty; sleep 0.2; echo last words; exit 3"])[0] as u32);
    let notify = |tid| Request::Notify { what: NOTIFY_TASK_EXIT, ctx: 9, tag: 5, count: 1, tids: vec![tid] };
    assert_eq!(task.ask(notify(child)), Reply::Done);
    let wait = task.begin(Request::ExitStatus(child));
    assert_eq!(status(task.finish(wait)), 3 << 8);
    let (message, ints) = task.message();
    assert_eq!((message.src, message.ctx, message.tag, ints), (Tid::DAEMON, 9, 5, vec![child.0 as i32]));
    directory.wait_for_log(&format!("[{child}] last words\n"));
    let killed = Tid(task.spawn("/bin/sleep", &["100"])[0] as u32);
    task.ask(Request::Signal { tid: killed, signal: 9 });
    assert_eq!(status(task.ask(Request::ExitStatus(killed))), 9);
}

#[test]
fn the_end_of_a_process_is_noticed_though_the_starter_of_the_daemon_ignored_such() {
    let directory = Directory::new();
    let daemon = Daemon::run(&mut directory.command_after("trap '' CHLD"));
    let mut task = Client::enroll(&daemon.socket);
    let child = Tid(task.spawn("/bin/sh", &["-c", "exit 3"])[0] as u32);
    assert_eq!(status(task.ask(Request::ExitStatus(child))), 3 << 8);
}

#[test]
fn many_tasks_start_fast_and_leave_nothing_behind() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    let descriptors = || {
        let list = std::fs::read_dir(format!("/proc/{}/fd", daemon.process.id())).unwrap();
        // A descriptor can be closed between the listing and the reading.
        let mut list: Vec<_> = list.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect();
        list.sort();
        list
    };
    fn wait_for_the_end(task: &mut Client) {
        eventually(
            "the end of all",
            || matches!(task.ask(Request::Tasks(Tid::NONE)), Reply::Tasks(list) if list.len() == 1),
        );
    }
    let idle = descriptors().len();
    // The first spawn of several tasks also starts the threads that start processes; each keeps a socket.
    let first = task.spawn_with(spawn_of("/bin/true", &[], 2));
    assert_eq!(first, [0x40002, 0x40003]);
    wait_for_the_end(&mut task);
    eventually("the descriptors of the threads", || descriptors().len() <= idle + 4);
    let before = descriptors();
    let started = Instant::now();
    let tids = task.spawn_with(spawn_of("/bin/true", &[], 200));
    println!("200 spawns in {:?}", started.elapsed());
    assert_eq!(tids, (0x40004..0x40004 + 200).collect::<Vec<_>>());
    wait_for_the_end(&mut task);
    eventually("descriptors as before", || descriptors() == before);
}

#[test]
fn mailboxes_keep_long_messages() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let (mut one, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let body: Vec<u8> = (0..5_000_000_u32).map(|number| number as u8).collect();
    let message = Message { wid: 3, enc: 4, ..Message::new(one.tid(), Tid::DAEMON, 1, 2, body) };
    let waiting =
        other.begin(Request::RecvInfo { name: text("box"), index: 0, flags: pvm_core::codes::MBOX_WAIT_FOR_INFO });
    let put = Request::PutInfo { name: text("box"), flags: 0, message: message.clone() };
    assert_eq!(one.ask(put), Reply::Int(0));
    assert!(other.finish(waiting) == Reply::Info(message));
    drop(one);
    eventually("the owner's end", || {
        other.ask(Request::RecvInfo { name: text("box"), index: 0, flags: 0 }) == Reply::Error(Code::NotFound)
    });
}

#[test]
fn a_task_that_does_not_read_hinders_nobody() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let (mut slow, mut other) = (Client::enroll(&daemon.socket), Client::enroll(&daemon.socket));
    let message = |dst| Message { enc: 0, ..Message::new(Tid::NONE, dst, 0, 1, vec![7; 100_000]) };
    for _ in 0..100 {
        other.link.send_to_daemon(&ToDaemon::Message(message(slow.tid())), &[]).unwrap();
    }
    assert_eq!(other.ask(Request::TaskStatus(slow.tid())), Reply::Code(0));
    for _ in 0..100 {
        let (message, _) = slow.message();
        assert_eq!((message.src, message.body.len()), (other.tid(), 100_000));
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    let waits: Vec<u32> = (0..1000).map(|_| task.begin(Request::TaskStatus(Tid(0x40001)))).collect();
    assert!(waits.into_iter().all(|wait| task.finish(wait) == Reply::Code(0)));
}

#[test]
fn hosts_that_cannot_be_added_get_a_code_each() {
    let directory = Directory::new();
    let daemon = Daemon::start(&directory);
    let mut task = Client::enroll(&daemon.socket);
    let names = ["127.0.0.1", "192.0.2.7", "x y z", "no such.invalid"].map(text).to_vec();
    let Reply::AddedHosts { count: 0, hosts, .. } = task.ask(Request::AddHosts(names)) else { panic!() };
    assert_eq!(hosts, [-28, -29, -2, -2]);
    let reply = task.ask(Request::AddHosts(vec![text("no-such-host.invalid")]));
    assert_eq!(reply, Reply::AddedHosts { count: 0, hosts: vec![-6], reasons: vec![String::new()] });
}

/// This is not a test by itself: it is the second process of the next test.
#[test]
fn helper_that_enrolls_and_leaves_a_child_behind() {
    let Some(socket) = std::env::var_os("TEST_SOCKET") else { return };
    let task = Client::enroll(socket.as_ref());
    // The child inherits the connection.
    let held = rustix::io::fcntl_dupfd_cloexec(task.link.as_fd(), 100).unwrap();
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap();
    let child =
        std::process::Command::new("/bin/sleep").arg("100").stdout(std::process::Stdio::null()).spawn().unwrap();
    let numbers = format!("{} {}", task.tid().0, child.id());
    std::fs::write(std::env::var_os("TEST_NUMBERS").unwrap(), numbers).unwrap();
    std::process::exit(0);
}

#[test]
fn a_task_is_left_alone_while_a_child_of_its_process_holds_the_socket() {
    let directory = Directory::new();
    let daemon = Daemon::run(directory.command().arg("-d4"));
    let mut task = Client::enroll(&daemon.socket);
    let mut helper = std::process::Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "helper_that_enrolls_and_leaves_a_child_behind"]).stdout(std::process::Stdio::null());
    let file = directory.0.join("numbers");
    assert!(helper.env("TEST_SOCKET", &daemon.socket).env("TEST_NUMBERS", &file).status().unwrap().success());
    let numbers = std::fs::read_to_string(&file).unwrap();
    let mut numbers = numbers.split(' ').map(|number| number.parse::<u32>().unwrap());
    let (tid, child) = (Tid(numbers.next().unwrap()), numbers.next().unwrap());
    // The test has read the exit status of the helper, so the helper's process id may belong to another process from
    // now on. The daemon must send no signal to this id.
    let process = |task: &mut Client| match task.ask(Request::Tasks(tid)) {
        Reply::Tasks(tasks) => tasks.first().map(|task| task.pid),
        other => panic!("{other:?}"),
    };
    eventually("no process", || process(&mut task) == Some(0));
    assert_eq!(task.ask(Request::TaskStatus(tid)), Reply::Code(0));
    let child = rustix::process::Pid::from_raw(child as i32).unwrap();
    assert!(rustix::process::kill_process(child, rustix::process::Signal::KILL).is_ok());
    eventually("the end", || task.ask(Request::TaskStatus(tid)) == Reply::Code(Code::NoTask.number()));
    directory.wait_for_log(&format!("{tid} is gone"));
}
