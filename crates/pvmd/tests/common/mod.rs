//! A separate daemon for a test, and a client that speaks the control protocol.
#![allow(dead_code)] // each test program uses a part
pub mod file_server;

use pvm_core::codes::Code;
use pvm_core::encoding::Reader;
use pvm_core::proto::{
    ByteBuf, Hello, Message, Reply, Request, Spawn, TaskKind, ToDaemon, ToTask, TraceSettings, VERSION, Welcome,
};
use pvm_core::tid::Tid;
use pvm_link::{ControlError, ControlSocket};
use pvm_net::polling::poll_one;
use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time that one step of a test may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the path of the daemon under test, which lies beside the directory of this test.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("pvmd")
}

/// A directory of one test: its path, and the guard that removes it at the end.
pub struct Directory(pub PathBuf, TempDir);

impl Directory {
    pub fn new() -> Directory {
        let directory = TempDir::new().unwrap();
        Directory(directory.path().to_owned(), directory)
    }
    pub fn command(&self) -> Command {
        self.prepared(Command::new(program()))
    }
    /// Returns a command for a shell that runs `first` and then becomes the daemon (bash, since dash does not pass an
    /// ignored SIGCHLD on).
    pub fn command_after(&self, first: &str) -> Command {
        let mut shell = Command::new("/bin/bash");
        shell.args(["-c", &format!("{first}; exec \"$0\"")]).arg(program());
        self.prepared(shell)
    }
    /// Sets this directory as the command's `PVM_TMP` and home, and returns the command.
    pub fn prepared(&self, mut command: Command) -> Command {
        for name in [
            "PVM_VMID",
            "PVMSOCK",
            "XDG_RUNTIME_DIR",
            "PVM_ROOT",
            "PVM_PATH",
            "PVM_WD",
            "PVMHOSTFILE",
            "SLURM_JOB_NODELIST",
        ] {
            command.env_remove(name);
        }
        // No real host may be called.
        command.env("PVM_RSH", "/bin/false");
        command.env("PVM_TMP", &self.0).env("HOME", &self.0).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
    pub fn rendezvous(&self) -> PathBuf {
        self.0.join(format!("pvmd.{}", rustix::process::geteuid().as_raw()))
    }
    pub fn log_file(&self) -> PathBuf {
        self.0.join(format!("pvml.{}", rustix::process::geteuid().as_raw()))
    }
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
    /// Waits until the log has that text.
    pub fn wait_for_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "no {text:?} in {}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    /// Returns the names of the daemon's files other than the log.
    pub fn leftovers(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).filter(|name| name.starts_with("pvmd")).collect()
    }
}

/// Catches SIGTERM. A daemon that ends sends SIGTERM to its tasks, and the tasks of a test run in the test's own
/// process.
pub fn catch_termination() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, flag.clone()).unwrap();
    flag
}

/// A running daemon, killed at the end.
pub struct Daemon {
    pub process: Child,
    pub socket: PathBuf,
    output: BufReader<ChildStdout>,
}

impl Daemon {
    pub fn start(directory: &Directory) -> Daemon {
        Daemon::run(&mut directory.command())
    }

    pub fn run(command: &mut Command) -> Daemon {
        catch_termination();
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the daemon says {line:?}");
        Daemon { process, socket: line.trim_end().into(), output }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Waits for the daemon's end.
    pub fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A task without shared memory.
pub struct Client {
    pub link: ControlSocket,
    pub welcome: Welcome,
    pub bell: OwnedFd,
    /// The descriptors that arrived with the welcome.
    pub welcome_descriptors: Vec<OwnedFd>,
    /// Frames that arrived before the test asked for them.
    pub inbox: Vec<(ToTask, Vec<OwnedFd>)>,
    last_wait: u32,
}

impl Client {
    pub fn enroll(socket: &Path) -> Client {
        Client::claim(socket, None).unwrap()
    }

    pub fn claim(socket: &Path, cookie: Option<u32>) -> Result<Client, Code> {
        let mut link = ControlSocket::connect(socket).unwrap();
        let segment = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let bell = pvm_fmp::doorbell::new().unwrap();
        let hello =
            Hello { version: VERSION, pid: std::process::id(), cookie, name: ByteBuf::new(), kind: TaskKind::Program };
        link.send_to_daemon(&ToDaemon::Hello(hello), &[segment.as_fd(), bell.as_fd()]).unwrap();
        match wait_for(&mut link).unwrap() {
            (ToTask::Welcome(welcome), welcome_descriptors) => {
                Ok(Client { link, welcome, bell, welcome_descriptors, inbox: Vec::new(), last_wait: 0 })
            }
            (ToTask::Refused(code), _) => Err(code),
            (other, _) => panic!("{other:?}"),
        }
    }

    pub fn tid(&self) -> Tid {
        self.welcome.tid
    }

    pub fn begin(&mut self, request: Request) -> u32 {
        self.last_wait += 1;
        self.link.send_to_daemon(&ToDaemon::Request { wait: self.last_wait, request }, &[]).unwrap();
        self.last_wait
    }

    pub fn finish(&mut self, wanted: u32) -> Reply {
        loop {
            match wait_for(&mut self.link).unwrap() {
                (ToTask::Reply { wait, reply }, _) if wait == wanted => return reply,
                other => self.inbox.push(other),
            }
        }
    }

    pub fn ask(&mut self, request: Request) -> Reply {
        let wait = self.begin(request);
        self.finish(wait)
    }

    /// Returns the next frame that is not an answer.
    pub fn next(&mut self) -> (ToTask, Vec<OwnedFd>) {
        if !self.inbox.is_empty() {
            return self.inbox.remove(0);
        }
        wait_for(&mut self.link).unwrap()
    }

    /// Returns the next message and the integers in it.
    pub fn message(&mut self) -> (Message, Vec<i32>) {
        loop {
            if let (ToTask::Message(message), _) = self.next() {
                let mut reader = Reader::new(&message.body);
                let ints = std::iter::from_fn(|| reader.int()).collect();
                return (message, ints);
            }
        }
    }

    pub fn spawn(&mut self, file: &str, arguments: &[&str]) -> Vec<i32> {
        self.spawn_with(spawn_of(file, arguments, 1))
    }

    pub fn spawn_with(&mut self, spawn: Spawn) -> Vec<i32> {
        match self.ask(Request::Spawn(spawn)) {
            Reply::Tids(tids) => tids,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a shell script as a task and returns what it prints.
    pub fn output_of(&mut self, spawn: Spawn) -> String {
        let children = TraceSettings { output_tid: self.tid().0 as i32, output_tag: 77, ..Default::default() };
        let tids = self.spawn_with(Spawn { children, ..spawn });
        assert!(tids[0] > 0, "{tids:?}");
        let mut text = Vec::new();
        loop {
            let (message, ints) = self.message();
            assert_eq!((message.tag, ints[0]), (77, tids[0]));
            match ints[1] {
                0 => return String::from_utf8(text).unwrap(),
                length if length > 0 => text.extend_from_slice(&message.body[8..8 + length as usize]),
                _ => {}
            }
        }
    }
}

pub fn spawn_of(file: &str, arguments: &[&str], count: i32) -> Spawn {
    Spawn {
        file: text(file),
        arguments: arguments.iter().map(|argument| text(argument)).collect(),
        flags: 0,
        place: ByteBuf::new(),
        count,
        environment: Vec::new(),
        children: TraceSettings::default(),
    }
}

pub fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}

/// Returns the next frame, or why there is none.
pub fn wait_for(link: &mut ControlSocket) -> Result<(ToTask, Vec<OwnedFd>), ControlError> {
    let end = Instant::now() + PATIENCE;
    loop {
        link.flush()?;
        if let Some(frame) = link.receive_from_daemon()? {
            return Ok(frame);
        }
        assert!(Instant::now() < end, "the daemon does not answer");
        let events = if link.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        poll_one(link.as_fd(), events, Duration::from_secs(1)).unwrap();
    }
}

/// Waits until `check` returns true.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !check() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
