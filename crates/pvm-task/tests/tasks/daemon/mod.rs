//! A small daemon for tests of tasks: it enrolls and introduces tasks, and notifies them of exits.
use pvm_core::codes::{Code, DSIG_X86_64};
use pvm_core::encoding::Writer;
use pvm_core::fabric::Wish;
use pvm_core::proto::{Message, Order, Reply, Request, ToDaemon, ToTask, TraceSettings, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::ports::PortTable;
use pvm_link::ControlSocket;
use pvm_task::Environment;
use rustix::event::{PollFd, PollFlags};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST_TID: u32 = 0x40001;
/// The number of cores that the tasks are told.
pub const CORES: u32 = 2;

struct Client {
    tid: Tid,
    link: ControlSocket,
    descriptors: [OwnedFd; 2],
    introduced: Vec<Tid>,
    /// Registered notifies of exits: tid, context, tag.
    watched: Vec<(Tid, i32, i32)>,
    is_idle: bool,
}

struct Daemon {
    listener: UnixListener,
    stop: OwnedFd,
    ports: PortTable,
    clients: Vec<Client>,
    next: u32,
    reports: Arc<[AtomicU32; 2]>,
}

/// A daemon in a thread of its own. It ends when this value is dropped.
pub struct Running {
    directory: PathBuf,
    stop: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
    #[allow(dead_code, reason = "the example that includes this file does not count reports")]
    reports: Arc<[AtomicU32; 2]>,
}

impl Running {
    pub fn start() -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("pvm-task-test.{}.{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let listener = UnixListener::bind(directory.join("socket")).unwrap();
        let (stop, stopped) = rustix::pipe::pipe().map(|(read, write)| (write, read)).unwrap();
        let reports: Arc<[AtomicU32; 2]> = Arc::default();
        let counters = reports.clone();
        let thread = std::thread::spawn(move || {
            let ports = PortTable::new(CORES).unwrap();
            let clients = Vec::new();
            Daemon { listener, stop: stopped, ports, clients, next: FIRST_TID, reports: counters }.serve();
        });
        Running { directory, stop: Some(stop), thread: Some(thread), reports }
    }

    /// Returns how often tasks have told the daemon that they are awake again, and that they sleep.
    #[allow(dead_code, reason = "see the field")]
    pub fn reports(&self) -> [u32; 2] {
        [0, 1].map(|is_idle| self.reports[is_idle].load(Ordering::Relaxed))
    }

    /// Returns an environment with the path of this daemon's socket.
    pub fn environment(&self) -> Environment {
        let socket = self.directory.join("socket");
        let tmp = self.directory.clone();
        Environment::from_lookup(move |name| match name {
            "PVMSOCK" => Some(OsString::from(&socket)),
            "PVM_TMP" => Some(OsString::from(&tmp)),
            _ => None,
        })
    }

    /// Ends the daemon.
    pub fn kill(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Daemon {
    fn serve(mut self) {
        loop {
            let fds: Vec<BorrowedFd<'_>> = [self.stop.as_fd(), self.listener.as_fd()]
                .into_iter()
                .chain(self.clients.iter().map(|client| client.link.as_fd()))
                .collect();
            let mut list: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            rustix::event::poll(&mut list, None).unwrap();
            let ready: Vec<bool> = list.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            for at in (0..self.clients.len()).rev() {
                if ready[at + 2] {
                    self.read(at);
                }
            }
            if ready[1] {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        let (socket, _) = self.listener.accept().unwrap();
        let mut link = ControlSocket::new(socket.into()).unwrap();
        let (hello, descriptors) = loop {
            if let Some(frame) = link.receive_from_task().unwrap() {
                break frame;
            }
        };
        assert!(matches!(hello, ToDaemon::Hello(_)));
        let tid = Tid(self.next);
        self.next += 1;
        self.ports.set(tid.0);
        let welcome = Welcome {
            tid,
            parent: 0,
            dsig: DSIG_X86_64,
            own: TraceSettings::default(),
            resource_manager: Tid::NONE,
            fabric: Wish::default(),
            order: Order::Hosts,
        };
        link.send_to_task(&ToTask::Welcome(welcome), &[self.ports.descriptor()]).unwrap();
        let descriptors = descriptors.try_into().unwrap();
        self.clients.push(Client {
            tid,
            link,
            descriptors,
            introduced: Vec::new(),
            watched: Vec::new(),
            is_idle: false,
        });
        self.count_tasks();
    }

    fn count_tasks(&self) {
        let awake = self.clients.iter().filter(|client| !client.is_idle).count();
        self.ports.set_tasks(self.clients.len() as u32, awake as u32);
    }

    fn read(&mut self, at: usize) {
        loop {
            match self.clients[at].link.receive_from_task() {
                Ok(Some((ToDaemon::Request { wait, request }, _))) => {
                    if let Some(reply) = self.answer(at, request) {
                        self.send(at, &ToTask::Reply { wait, reply });
                    }
                }
                Ok(Some((ToDaemon::Bye, _))) | Err(_) => return self.bury(at),
                Ok(Some((ToDaemon::Ring(tid), _))) => {
                    let client = self.clients.iter().find(|client| client.tid == tid).unwrap();
                    rustix::io::write(&client.descriptors[1], &1u64.to_ne_bytes()).unwrap();
                }
                Ok(Some((ToDaemon::Message(message), _))) => {
                    // The daemon sends the message back, so that a test can check it.
                    self.send(at, &ToTask::Message(Message { src: Tid::DAEMON, ..message }));
                }
                Ok(Some((ToDaemon::Idle(is_idle), _))) => {
                    self.reports[usize::from(is_idle)].fetch_add(1, Ordering::Relaxed);
                    self.clients[at].is_idle = is_idle;
                    self.count_tasks();
                }
                Ok(Some(_)) => panic!("not expected"),
                Ok(None) => return,
            }
        }
    }

    fn answer(&mut self, at: usize, request: Request) -> Option<Reply> {
        match request {
            Request::Connect(peer) => Some(self.connect(at, peer)),
            Request::Notify { what: 1, ctx, tag, tids, .. } => {
                self.clients[at].watched.extend(tids.iter().map(|tid| (*tid, ctx, tag)));
                Some(Reply::Done)
            }
            Request::NewContext => Some(Reply::Int(0x40001)),
            // This request is never answered, for tests of a request that waits.
            Request::RecvInfo { .. } => None,
            Request::PutInfo { message, .. } => Some(Reply::Info(message)),
            Request::SetOwn(_) => Some(Reply::Done),
            _ => Some(Reply::Error(Code::NotImpl)),
        }
    }

    fn connect(&mut self, at: usize, peer: Tid) -> Reply {
        let Some(other) = self.clients.iter().position(|client| client.tid == peer) else {
            return Reply::Error(Code::NoTask);
        };
        for (to, whom) in [(at, other), (other, at)] {
            let tid = self.clients[whom].tid;
            if !self.clients[to].introduced.contains(&tid) {
                self.clients[to].introduced.push(tid);
                let descriptors: Vec<OwnedFd> =
                    self.clients[whom].descriptors.iter().map(|fd| fd.try_clone().unwrap()).collect();
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                self.clients[to].link.send_to_task(&ToTask::Peer(tid), &borrowed).unwrap();
                self.ports.frame_sent(self.clients[to].tid.0);
            }
        }
        Reply::Done
    }

    fn send(&mut self, at: usize, frame: &ToTask) {
        // A failure to send is ignored: the daemon notices the end of a task when it reads the task's socket.
        let _ = self.clients[at].link.send_to_task(frame, &[]);
        self.ports.frame_sent(self.clients[at].tid.0);
    }

    fn bury(&mut self, at: usize) {
        let dead = self.clients.remove(at).tid;
        self.ports.clear(dead.0);
        self.count_tasks();
        for at in 0..self.clients.len() {
            if self.clients[at].introduced.contains(&dead) {
                self.send(at, &ToTask::PeerGone(dead));
            }
            let watched: Vec<_> = self.clients[at].watched.iter().filter(|(tid, ..)| *tid == dead).copied().collect();
            for (_, ctx, tag) in watched {
                let body = Writer::new().int(dead.0 as i32).finish();
                let dst = self.clients[at].tid;
                let message = Message::new(Tid::DAEMON, dst, ctx, tag, body);
                self.send(at, &ToTask::Message(message));
            }
        }
    }
}
