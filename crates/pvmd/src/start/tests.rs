//! Starts through scripts that take the place of a remote shell.
use super::*;
use pvm_core::dialogue::LINE_BYTES_MAX;
use pvm_core::hostfile::parse_host;
use pvm_core::wire;
use pvm_net::polling::poll_one;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Time that a test waits for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }
    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// Makes a script that takes the place of the remote shell.
    pub fn shell(&self, text: &str) -> RemoteShell {
        self.script("rsh", text)
    }
    /// Makes another script.
    pub fn other_shell(&self, text: &str) -> RemoteShell {
        self.script("other", text)
    }
    fn script(&self, name: &str, text: &str) -> RemoteShell {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap();
        RemoteShell::Program(vec!["/bin/sh".into(), path.into()])
    }
}

pub fn starter(shell: RemoteShell, own: Option<&Path>) -> Starter {
    let master = Master {
        tid: Tid::host_number(1),
        address: "192.0.2.1:4000".parse().unwrap(),
        key: [7; 32],
        debug_mask: 0,
        machine: Some("vm".into()),
    };
    let mut starter = Starter::new(master, STARTS_MAX).unwrap();
    (starter.shell, starter.parent_shell) = (shell.clone(), shell);
    starter.own_program = own.map(Path::to_owned);
    starter.terminal = false;
    starter
}

pub fn host(index: usize, line: &str) -> HostStart {
    let addresses = vec!["192.0.2.9".parse().unwrap()];
    HostStart { index, tid: Tid::host_number(index as u32 + 2), line: parse_host(line).unwrap(), addresses }
}

/// Returns the results of `count` hosts, and the lines for the log.
fn run(starter: &mut Starter, count: usize) -> (Vec<Result<Started, StartFailure>>, Vec<String>) {
    let (mut results, mut remarks, end) = (BTreeMap::new(), Vec::new(), Instant::now() + PATIENCE);
    while results.len() < count && Instant::now() < end {
        for event in starter.step() {
            match event {
                StartEvent::Ended => {}
                StartEvent::Log(text) => remarks.push(text),
                StartEvent::Order { .. } => panic!("there is nobody else"),
                StartEvent::Done { request, index, result } => {
                    assert_eq!(request, 5);
                    assert!(results.insert(index, result).is_none(), "{index} has ended twice");
                }
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (results.into_values().collect(), remarks)
}

fn started() -> Started {
    Started {
        arch: "LINUX64".into(),
        dsig: 7,
        addresses: vec!["10.0.0.9:77".parse().unwrap()],
        key: [9; 32],
        names: vec!["h2".into()],
    }
}

#[test]
fn a_daemon_gets_its_lines_and_is_found_behind_noise() {
    let folder = Folder::new();
    let notes = folder.file("notes");
    let shell = folder.shell(&format!(
        "echo \"$*\" >{0}; echo Welcome; echo careful >&2; while read line && [ \"$line\" != end ]; do\n\
         echo \"$line\" >>{0}; done; echo '{1}'; cat >>{0}; echo closed >>{0}\n",
        notes.display(),
        started().line()
    ));
    let mut starter = starter(shell, None);
    starter.start(5, host(0, "h2 lo=joe ip=h2x dx=my/pvmd"));
    let (results, remarks) = run(&mut starter, 1);
    let mut expected = started();
    expected.addresses.push("192.0.2.9:77".parse().unwrap());
    assert_eq!(results, [Ok(expected)]);
    assert!(remarks.contains(&"stdout@h2: Welcome".to_owned()), "{remarks:?}");
    assert!(remarks.contains(&"stderr@h2: careful".to_owned()), "{remarks:?}");
    let end = Instant::now() + PATIENCE;
    let mut text = String::new();
    while !text.ends_with("closed\n") && Instant::now() < end {
        text = std::fs::read_to_string(&notes).unwrap();
        starter.step();
    }
    let key = "07".repeat(32);
    let command = "h2x -l joe my/pvmd -s -d0x0 -nh2 1 c0000201:0fa0 4080 2 c0000201:0000";
    assert_eq!(text, format!("{command}\nPVM_VMID=vm\nhpvm 1\nkey {key}\nsays taken\ntaken\nclosed\n"));
}

#[test]
fn where_pvmd_is_not_found_other_places_are_tried() {
    let folder = Folder::new();
    let script = "case \"$2\" in /own/pvmd*) echo PvmDupHost;; *) echo \"sh: pvmd: not found\" >&2; exit 127;; esac";
    let mut first = starter(folder.shell(script), Some(Path::new("/own/pvmd")));
    first.start(5, host(0, "h2"));
    let (results, _) = run(&mut first, 1);
    assert!(matches!(&results[0], Err(failure) if failure.code == Code::DupHost), "{results:?}");
    let mut second = starter(folder.shell(script), None);
    second.start(5, host(0, "h2"));
    let (results, remarks) = run(&mut second, 1);
    let Err(StartFailure { code: Code::CantStart, reason }) = &results[0] else { panic!("{results:?}") };
    assert!(reason.contains("status 127") && reason.contains("sh: pvmd: not found"), "{reason}");
    assert!(reason.contains("tried: pvmd, /usr/lib/hpvm/bin/pvmd"), "{reason}");
    assert!(remarks.last().unwrap().starts_with("host h2: Can't start pvmd: "), "{remarks:?}");
}

#[test]
fn where_pvmd_is_of_pvm_3_4_6_other_places_are_tried_and_it_is_named() {
    let folder = Folder::new();
    let line = "ddpro<2316> arch<LINUX64> ip<c0000202:adc3> mtu<4080> dsig<4230209>";
    let script = |place: &str, then: &str| {
        format!(
            "case \"$2\" in {place}*) {then};; pvmd*) echo '{line}'; exec sleep 1000;; *) echo no >&2; exit 127;; esac"
        )
    };
    let shell = folder.shell(&script("/own/pvmd", &format!("echo '{}'", started().line())));
    let mut first = starter(shell, Some(Path::new("/own/pvmd")));
    let mut second = starter(folder.other_shell(&script("nothing", "true")), None);
    for starter in [&mut first, &mut second] {
        starter.start(5, host(0, "h2"));
        starter.running.values_mut().for_each(|running| {
            let job = &mut running.job;
            job.untried.retain(|daemon| daemon != &job.tried[0]);
        });
    }
    let (results, _) = run(&mut first, 1);
    assert!(results[0].is_ok(), "{results:?}");
    let (results, remarks) = run(&mut second, 1);
    let Err(StartFailure { code: Code::BadVersion, reason }) = &results[0] else { panic!("{results:?}") };
    assert!(reason.starts_with("pvmd on h2 is of PVM 3.4.6"), "{reason}");
    assert!(reason.contains("(tried: pvmd, /usr/lib/hpvm/bin/pvmd"), "{reason}");
    assert!(remarks[0].contains("trying /usr/lib/hpvm/bin/pvmd"), "{remarks:?}");
}

#[test]
fn a_host_whose_start_up_files_end_without_a_newline_is_added_and_another_key_is_not_to_be_accepted() {
    let folder = Folder::new();
    let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.";
    let script = format!(
        "case $1 in key) echo '{changed}' >&2; exit 255;; esac\n\
         printf '\\033[31mred\\033[0m\\nWelcome'; printf '\\033]0;x\\007\\033[2Jcare\\n' >&2; echo '{}'",
        started().line()
    );
    let mut starter = starter(folder.shell(&script), None);
    starter.start(5, host(0, "h2 dx=pvmd"));
    starter.start(5, host(1, "key dx=pvmd"));
    let (results, remarks) = run(&mut starter, 2);
    assert!(results[0].is_ok(), "{results:?}");
    assert!(remarks.contains(&"stdout@h2: red".to_owned()) && remarks.contains(&"stderr@h2: care".to_owned()));
    let Err(StartFailure { reason, .. }) = &results[1] else { panic!("{results:?}") };
    assert!(reason.contains("ssh-keygen -R key") && !reason.contains("accept"), "{reason}");
}

#[test]
fn each_failure_has_its_code() {
    let folder = Folder::new();
    let line = "ddpro<2316> arch<LINUX64> ip<c0000202:adc3> mtu<4080> dsig<4230209>";
    let later = started().line().replace(&format!("wire<{}>", wire::VERSION), "wire<77>");
    let script = format!("case $1 in old) echo '{line}';; dead) kill -9 $$;; silent) ;; later) echo '{later}';; esac");
    let mut starter = starter(folder.shell(&script), None);
    for (index, name) in ["old", "dead", "silent", "later"].iter().enumerate() {
        starter.start(5, host(index, &format!("{name} dx=pvmd")));
    }
    let (results, _) = run(&mut starter, 4);
    let failures: Vec<&StartFailure> = results.iter().map(|result| result.as_ref().unwrap_err()).collect();
    assert_eq!(failures[0].code, Code::BadVersion);
    assert!(failures[1].reason.contains("signal 9"), "{failures:?}");
    assert!(failures[2].reason.contains("exit status 0 and no pvmd"), "{failures:?}");
    assert_eq!(failures[3].code, Code::BadVersion);
    assert!(failures[3].reason.starts_with("the pvmd on later speaks version 77 "), "{failures:?}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let mut starter = starter(RemoteShell::Program(vec!["/nowhere/rsh".into()]), None);
    starter.start(5, host(0, "h2"));
    let (results, _) = run(&mut starter, 1);
    assert!(matches!(&results[0], Err(failure) if failure.reason.starts_with("/nowhere/rsh: ")), "{results:?}");
}

#[test]
fn a_silent_host_is_given_up_and_its_command_ended() {
    let folder = Folder::new();
    let process = folder.file("process");
    let shell = folder.shell(&format!("echo $$ >{}; sleep 1000", process.display()));
    let mut starter = starter(shell, None);
    starter.start(5, host(0, "h2"));
    let end = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&process).unwrap_or_default().is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(starter.next_wakeup().is_some_and(|when| when > Instant::now()));
    starter.running.values_mut().for_each(|running| running.job.deadline = Instant::now());
    let (results, _) = run(&mut starter, 1);
    assert!(matches!(&results[0], Err(failure) if failure.reason.starts_with("no answer within 60 s")), "{results:?}");
    let number = std::fs::read_to_string(&process).unwrap();
    // The system may need a moment to end it.
    let is_there = || Path::new(&format!("/proc/{}", number.trim())).exists();
    let end = Instant::now() + PATIENCE;
    while is_there() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!is_there());
    assert_eq!(starter.next_wakeup(), None);
}

#[test]
fn many_hosts_start_at_the_same_time_but_not_more_than_the_limit() {
    let folder = Folder::new();
    let script = format!("echo x; sleep 0.05; echo '{}'", started().line());
    let mut starter = starter(folder.shell(&script), None);
    let count = STARTS_MAX + 20;
    (0..count).for_each(|index| starter.start(5, host(index, &format!("h{index} dx=pvmd"))));
    assert_eq!((starter.active(), starter.waiting.len()), (STARTS_MAX, 20));
    let (results, _) = run(&mut starter, count);
    assert!(results.len() == count && results.iter().all(Result::is_ok));
}

#[test]
fn a_line_without_an_end_is_cut() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (mut pipe, mut lines) = (crate::background_command::OutputPipe::new(reader).unwrap(), Lines::default());
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut read = Vec::new();
    for _ in 0..40 {
        assert_eq!(rustix::io::write(&writer, &[b'x'; 4096]).unwrap(), 4096);
        read.extend(lines.read(&mut pipe));
    }
    let longest = read.iter().map(String::len).max();
    assert!(longest.is_some_and(|longest| longest > LINE_BYTES_MAX && longest <= LINE_BYTES_MAX + 4096), "{longest:?}");
}

fn is_ready(starter: &Starter) -> bool {
    poll_one(&starter.epoll, rustix::event::PollFlags::IN, Duration::ZERO).unwrap()
}

#[test]
fn a_command_that_has_ended_while_another_holds_its_output_keeps_nobody_awake() {
    let folder = Folder::new();
    let sleeper = folder.file("sleeper");
    let mut starter = starter(folder.shell(&format!("sleep 1000 & echo $! >{}; exit 0", sleeper.display())), None);
    starter.start(5, host(0, "h2 dx=pvmd"));
    let id = *starter.running.keys().next().unwrap();
    let has_ended = |starter: &mut Starter| match &mut starter.running.get_mut(&id).unwrap().runner {
        Runner::Local(command) => command.status().unwrap().is_some(),
        Runner::Remote { .. } => false,
    };
    let end = Instant::now() + PATIENCE;
    while !has_ended(&mut starter) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(starter.step().is_empty());
    // A process that another test forks holds a copy of the closed pidfd until its exec, and keeps it in the epoll.
    while is_ready(&starter) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!is_ready(&starter) && starter.running.contains_key(&id));
    // The command reaches its deadline and is killed with its children.
    starter.running.values_mut().for_each(|running| running.job.deadline = Instant::now());
    let (results, _) = run(&mut starter, 1);
    assert!(matches!(&results[0], Err(failure) if failure.reason.starts_with("no answer within 60 s")), "{results:?}");
    let process = std::fs::read_to_string(&sleeper).unwrap();
    let runs = || Path::new(&format!("/proc/{}/exe", process.trim())).exists();
    while runs() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(!runs());
}

#[test]
fn a_daemon_that_is_refused_is_not_told_that_it_was_taken() {
    let folder = Folder::new();
    let notes = folder.file("notes");
    let later = started().line().replace(&format!("wire<{}>", wire::VERSION), "wire<77>");
    let script = format!(
        "while read line && [ \"$line\" != end ]; do :; done; echo '{later}'; cat >{0}; echo closed >>{0}",
        notes.display()
    );
    let mut starter = starter(folder.shell(&script), None);
    starter.start(5, host(0, "h2 dx=pvmd"));
    let (results, _) = run(&mut starter, 1);
    assert!(matches!(&results[0], Err(failure) if failure.code == Code::BadVersion), "{results:?}");
    let end = Instant::now() + PATIENCE;
    let mut text = String::new();
    while !text.ends_with("closed\n") && Instant::now() < end {
        text = std::fs::read_to_string(&notes).unwrap_or_default();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(text, "closed\n");
}

/// This variable is set when the test below runs a second time, with a terminal.
const AT_TERMINAL: &str = "HPVM_TEST_AT_TERMINAL";

#[test]
fn at_a_terminal_a_command_can_ask_for_a_password() {
    if std::env::var_os(AT_TERMINAL).is_some() {
        // The script reads a password from the terminal, as ssh does.
        let folder = Folder::new();
        let shell =
            folder.shell(&format!("read word </dev/tty; [ \"$word\" = secret ] && echo '{}'", started().line()));
        let master = starter(shell.clone(), None).master.clone();
        let mut starter = Starter::new(master, STARTS_MAX).unwrap();
        starter.shell = shell;
        starter.start(5, host(0, "h2 dx=pvmd"));
        let (results, _) = run(&mut starter, 1);
        return println!("result: {}", results.first().is_some_and(Result::is_ok));
    }
    let name = "start::tests::at_a_terminal_a_command_can_ask_for_a_password";
    let this = std::env::current_exe().unwrap();
    let command = format!("'{}' --exact {name} --nocapture", this.display());
    let mut script = std::process::Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env(AT_TERMINAL, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write;
    // The terminal exists only as long as the process that made it.
    let mut input = script.stdin.take().unwrap();
    input.write_all(b"secret\n").unwrap();
    let said = script.wait_with_output().unwrap();
    drop(input);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("result: true"), "{said}");
}

#[test]
fn the_command_for_a_person_names_the_machine() {
    let mut starter = starter(RemoteShell::Srun, None);
    let mut typed = |line: &str| {
        starter.start(5, host(0, line));
        let (_, running) = starter.running.pop_last().unwrap();
        running.job.words.last().unwrap().to_string_lossy().into_owned()
    };
    assert!(typed("h2 so=ms").starts_with("env PVM_VMID=vm pvmd -S "));
    assert!(typed("h2 so=ms id=a'b dx=/x/pvmd").starts_with(r"env PVM_VMID='a'\''b' /x/pvmd -S "));
}
