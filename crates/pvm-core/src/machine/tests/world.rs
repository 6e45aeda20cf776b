//! One `Machine` for unit tests; each test makes all inputs itself.
use super::group_members::Boards;
use super::*;
use crate::encoding::{Reader, Writer};
use crate::proto::{Spawn, TaskEnd, TraceSettings, VERSION};

pub(in crate::machine) const ONE: Tid = Tid(0x40001);
pub(in crate::machine) const TWO: Tid = Tid(0x40002);
pub(in crate::machine) const THREE: Tid = Tid(0x40003);
pub(in crate::machine) const NOW: Time = Duration::from_secs(100);
pub(in crate::machine) const PATIENCE: Duration = Duration::from_secs(10);

/// A machine whose programs are found unless they are called "missing", and whose processes are
/// numbered from 500.
pub(in crate::machine) struct World {
    pub machine: Machine,
    connections: u64,
    processes: i32,
    pub starts: Vec<Start>,
    pub boards: Boards,
    pub seen: Vec<Action>,
}

impl World {
    pub fn new() -> World {
        let host = HostSettings {
            name: "alfa".into(),
            arch: "LINUX64".into(),
            speed: 1000,
            node: None,
            groups: None,
            dsig: 7,
        };
        let settings = Settings { tasks_max: 1000, barrier_patience: PATIENCE, ..Settings::new(host) };
        let machine = Machine::new(settings);
        let (starts, boards) = (Vec::new(), Boards::default());
        World { machine, connections: 0, processes: 500, starts, boards, seen: Vec::new() }
    }

    fn start(&mut self, start: &Start) {
        if start.path.as_slice() == b"sticks" {
            return;
        }
        if start.path.as_slice() == b"broken" {
            return self.machine.handle_started(Time::ZERO, start.tid, Err(Code::OutOfRes));
        }
        self.processes += 1;
        self.starts.push(start.clone());
        self.machine.handle_started(Time::ZERO, start.tid, Ok(self.processes));
    }

    /// Executes the actions of the machine, and records them.
    pub fn run(&mut self) {
        while let Some(action) = self.machine.poll_action() {
            match &action {
                Action::Find { spawn, file, .. } if file.as_slice() == b"missing" => {
                    self.machine.handle_found(Time::ZERO, *spawn, Err(Code::NoFile));
                }
                Action::Find { file, .. } if file.as_slice() == b"hangs" => {}
                Action::Find { spawn, file, .. } => {
                    let found = Found { path: file.clone(), debugger: None };
                    self.machine.handle_found(Time::ZERO, *spawn, Ok(found));
                }
                Action::Start(starts) => starts.iter().for_each(|start| self.start(start)),
                Action::ListBarriers { listing } => {
                    let waiting = self.boards.waiting();
                    self.machine.handle_barriers_listed(*listing, waiting);
                }
                Action::StartHosts { request, hosts, by_hoster: true } => {
                    let commands = hosts.iter().map(|host| (host.index, text("pvmd"))).collect();
                    self.machine.handle_start_commands(*request, commands);
                }
                Action::StartHosts { request, hosts, .. } => {
                    for host in hosts {
                        let failure = Err(Code::CantStart.into());
                        self.machine.handle_host_started(NOW, *request, host.index, failure);
                    }
                }
                Action::Group { group, action } => self.boards.act(NOW, *group, action, &mut self.machine),
                _ => {}
            }
            self.seen.push(action);
        }
    }

    /// Returns the actions since the last call.
    pub fn take_seen(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.seen)
    }

    pub fn hello(&mut self, process: i32, cookie: Option<u32>) -> Welcome {
        self.connections += 1;
        let hello = Hello { version: VERSION, pid: 1, cookie, name: ByteBuf::new(), kind: TaskKind::Program };
        self.machine.handle_hello(self.connections, process, &hello);
        self.run();
        let welcomes = self.seen.iter().rev().find_map(|action| match action {
            Action::Welcome { welcome, .. } => Some(welcome.clone()),
            _ => None,
        });
        welcomes.expect("let in")
    }

    /// Enrolls a new task that is started by hand.
    pub fn task(&mut self) -> Tid {
        let tid = self.hello(99, None).tid;
        self.seen.clear();
        tid
    }

    pub fn tasks(&mut self, count: usize) {
        for _ in 0..count {
            self.task();
        }
    }

    /// Sends a request; returns the answer, if there is one.
    pub fn ask(&mut self, from: Tid, request: Request) -> Option<Reply> {
        self.seen.clear();
        self.machine.handle_frame(NOW, from, ToDaemon::Request { wait: 42, request });
        self.run();
        self.replies(from).into_iter().next()
    }

    pub fn forget_seen(&mut self) {
        self.seen.clear();
    }

    /// Returns the lines of the log with that tid.
    pub fn logged(&self, under: Tid) -> Vec<String> {
        let line = |action: &Action| match action {
            Action::Log { tid, line } if *tid == under => Some(String::from_utf8_lossy(line).into_owned()),
            _ => None,
        };
        self.seen.iter().filter_map(line).collect()
    }

    pub fn frames(&self, to: Tid) -> Vec<ToTask> {
        let frame = |action: &Action| match action {
            Action::Send { to: receiver, frame } if *receiver == to => Some(frame.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(frame).collect()
    }

    pub fn replies(&self, to: Tid) -> Vec<Reply> {
        let reply = |frame| match frame {
            ToTask::Reply { wait: 42, reply } => Some(reply),
            _ => None,
        };
        self.frames(to).into_iter().filter_map(reply).collect()
    }

    pub fn messages(&self, to: Tid) -> Vec<Message> {
        let message = |frame| match frame {
            ToTask::Message(message) => Some(message),
            _ => None,
        };
        self.frames(to).into_iter().filter_map(message).collect()
    }

    pub fn message(&mut self, from: Tid, tag: i32, wid: i32, body: Writer) {
        self.seen.clear();
        let body = body.finish();
        let message = Message { wid, ..Message::new(from, Tid::DAEMON, 0, tag, body) };
        self.machine.handle_frame(NOW, from, ToDaemon::Message(message));
        self.run();
    }

    pub fn spawn(&mut self, from: Tid, spawn: Spawn) -> Vec<i32> {
        match self.ask(from, Request::Spawn(spawn)) {
            Some(Reply::Tids(tids)) => tids,
            other => panic!("{other:?}"),
        }
    }

    pub fn ends(&mut self, tid: Tid, status: i32) {
        self.seen.clear();
        self.machine.handle_process_end(tid, TaskEnd { status, ..TaskEnd::default() });
        self.run();
    }

    pub fn disconnects(&mut self, tid: Tid) {
        self.seen.clear();
        self.machine.handle_disconnect(tid);
        self.run();
    }
}

pub(in crate::machine) fn spawn_of(file: &str, count: i32) -> Spawn {
    Spawn {
        file: ByteBuf::from(file.as_bytes().to_vec()),
        arguments: Vec::new(),
        flags: 0,
        place: ByteBuf::new(),
        count,
        environment: Vec::new(),
        children: TraceSettings::default(),
    }
}

pub(in crate::machine) fn ints(body: &[u8]) -> Vec<i32> {
    let mut reader = Reader::new(body);
    std::iter::from_fn(|| reader.int()).collect()
}

pub(in crate::machine) fn text(text: &str) -> ByteBuf {
    ByteBuf::from(text.as_bytes().to_vec())
}
