//! The loop: waits for what happens, tells the machine, does what the machine says.
use crate::connections::{Connections, Descriptors};
use crate::frame_budget::FrameBudget;
use crate::groups::Groups;
use crate::host_links::HostLinks;
use crate::log::Log;
use crate::process_spawner::ProcessSpawner;
use crate::route::{self, Route};
use crate::settings::Settings;
use crate::socket_directory::SocketDirectory;
use crate::source::{Source, Stream};
use crate::start::Starter;
use crate::start::remote_starts::RemoteStarts;
use pvm_core::codes::Code;
use pvm_core::machine::{Connection, Machine, Time};
use pvm_core::proto::{Hello, ToDaemon, ToTask};
use pvm_core::tid::{DAEMON_BIT, Tid};
use pvm_link::{ControlError, ControlSocket, DESCRIPTOR_PAUSE};
use pvm_net::Connector;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::Pid;
use rustix::time::Timespec;
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::rc::Rc;
use std::time::{Duration, Instant};

mod direct_links;
mod execute;
mod host_links;
mod hosts;
mod inputs;
mod processes;
mod routing;
mod successors;

/// How often the daemon looks whether its socket and its rendezvous file still stand.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Free memory goes back to the system at the second look in a row that finds nothing carried, and every so many
/// after that: questions alone leave some as well.
const CALM_LOOKS: u32 = 60;
/// How often the rendezvous file is made to look fresh.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);
/// Events taken in one go.
const EVENTS_MAX: usize = 256;
/// Connections accepted before others have their turn.
const ACCEPTS_IN_TURN_MAX: usize = 64;
/// Pause when there is no descriptor left for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of output read in one go.
const OUTPUT_BYTES: usize = 64 << 10;
/// The same of output that nobody but the log takes.
const LOGGED_BYTES: usize = 4 << 10;
/// Bytes of output read of a task that has ended. No pipe holds more.
const OUTPUT_IN_TURN_MAX: usize = 16 * OUTPUT_BYTES;
/// What waits for a collector of output.
///
/// * Filled by: each task whose output is collected
/// * Setting: `HPVM_BACKLOG_MAX`, of which it is half at most
/// * Reached: what its tasks print stays in their pipes, and they wait when they print more
/// * Test: `a_collector_that_takes_nothing_costs_the_daemon_little`
const COLLECTOR_BACKLOG_BYTES_MAX: usize = 16 << 20;
/// What is printed on other hosts than the master's for the log, on its way to the master.
///
/// * Filled by: each task whose output nobody collects
/// * Setting: none, it is as much as a pipe can hold
/// * Reached: what is printed stays in the pipes, and tasks wait when they print more
/// * Test: `output_for_the_log_waits_for_the_link_to_the_master`
const LOG_BACKLOG_BYTES_MAX: usize = 1 << 20;

/// The bit of the debug mask for the coming and going of tasks.
const DEBUG_TASKS: i32 = 0x4;

/// The process of a task.
struct Running {
    child: Child,
    /// Readable when it has ended.
    pidfd: OwnedFd,
}

/// The daemon.
pub struct Daemon {
    settings: Settings,
    socket_directory: SocketDirectory,
    log: Log,
    machine: Machine,
    connections: Connections,
    route: Route,
    groups: Groups,
    process_spawner: ProcessSpawner,
    running: HashMap<Tid, Running>,
    /// What tasks print. Can outlive the process, when that was a script that started the task.
    outputs: HashMap<(Tid, Stream), OwnedFd>,
    /// Those of them that are not read now, because their collector does not keep up.
    held_back: Vec<(Tid, Stream)>,
    /// Standard inputs of tasks that take what comes by requests.
    inputs: HashMap<Tid, inputs::Input>,
    /// Process groups of tasks, until the task is gone.
    groups_led: HashMap<Tid, Pid>,
    name_lookups: HashMap<u32, hosts::NameLookup>,
    starter: Starter,
    remote_starts: RemoteStarts,
    /// The starter's terminal is needed yet, to have a person start hosts.
    holds_terminal: bool,
    links: HostLinks,
    direct_links: direct_links::DirectLinks,
    epoll: Rc<OwnedFd>,
    signals: UnixStream,
    started: Instant,
    next_look: Instant,
    /// Looks in a row that have found nothing carried.
    calm_looks: u32,
    next_refresh: Instant,
    /// Connections from which more frames were read than handled in their turn.
    unfinished: BTreeSet<Connection>,
    /// The same for hosts.
    unfinished_hosts: BTreeSet<Tid>,
    /// Connections that take no descriptors now, and when to try again.
    descriptor_limited: BTreeSet<Connection>,
    next_descriptor_try: Instant,
    stopped: bool,
}

/// Leaves standard input and output to others.
pub fn release_terminal() -> crate::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

impl Daemon {
    /// A daemon that has not begun to serve.
    pub fn new(
        mut settings: Settings,
        socket_directory: SocketDirectory,
        mut log: Log,
        connector: Connector,
    ) -> crate::Result<Daemon> {
        let process_spawner = ProcessSpawner::new(socket_directory.socket())?;
        settings.limit_tasks(process_spawner.tasks_max(), process_spawner.descriptor_limit());
        let mut machine = Machine::new(settings.machine.clone());
        machine.set_debug_mask(settings.debug_mask);
        log.name(Tid(DAEMON_BIT | machine.own_host().0));
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let links = host_links::links(&settings, connector, epoll.clone())?;
        let (signals, sender) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, sender.try_clone()?)?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, sender)?;
        // Caught, not ignored: what is ignored would stay so in tasks.
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Default::default())?;
        // Whoever started this daemon may have ignored it, and then the system tells nobody how a child ended.
        signal_hook::flag::register(signal_hook::consts::SIGCHLD, Default::default())?;
        let starter = Starter::new(hosts::introduction(&settings, machine.own_host())?, settings.starts_max)?;
        epoll::add(&epoll, starter.descriptor(), Source::Starts.data(), EventFlags::IN)?;
        let remote_starts = RemoteStarts::new()?;
        epoll::add(&epoll, remote_starts.descriptor(), Source::RemoteStarts.data(), EventFlags::IN)?;
        epoll::add(&epoll, &signals, Source::Signals.data(), EventFlags::IN)?;
        let mut connections = Connections::new(machine.own_host())?;
        let mut route = Route::new(machine.own_host(), connections.ports()?)?;
        connections.set_daemon(route.descriptors()?);
        connections.limit_backlog(settings.backlog_bytes_max);
        epoll::add(&epoll, route.bell(), Source::Bell.data(), EventFlags::IN)?;
        let daemon = Daemon {
            settings,
            socket_directory,
            log,
            machine,
            connections,
            route,
            groups: Groups::default(),
            process_spawner,
            running: HashMap::new(),
            outputs: HashMap::new(),
            held_back: Vec::new(),
            inputs: HashMap::new(),
            groups_led: HashMap::new(),
            name_lookups: HashMap::new(),
            starter,
            remote_starts,
            holds_terminal: false,
            links,
            direct_links: direct_links::DirectLinks::new(epoll.clone()),
            epoll,
            signals,
            started: Instant::now(),
            next_look: Instant::now() + LOOK_INTERVAL,
            calm_looks: 0,
            next_refresh: Instant::now() + REFRESH_INTERVAL,
            unfinished: BTreeSet::new(),
            unfinished_hosts: BTreeSet::new(),
            descriptor_limited: BTreeSet::new(),
            next_descriptor_try: Instant::now(),
            stopped: false,
        };
        if daemon.is_open_to_tasks() {
            epoll::add(&daemon.epoll, &daemon.socket_directory.listener, Source::Listener.data(), EventFlags::IN)?;
        }
        Ok(daemon)
    }

    /// Tells the starter where the socket is, then lets go of the terminal.
    pub fn announce(&mut self) -> crate::Result<()> {
        self.log_identity();
        self.log_complaints();
        for helper in std::mem::take(&mut self.settings.helpers) {
            self.machine.start_helper(&helper.split_ascii_whitespace().collect::<Vec<_>>());
        }
        self.add_hosts_at_start();
        self.execute_actions();
        let mut output = std::io::stdout();
        // A starter that does not listen is no reason not to serve.
        let _ = writeln!(output, "{}", self.socket_directory.socket().display()).and_then(|()| output.flush());
        release_terminal()?;
        self.log.line("ready");
        Ok(())
    }

    fn log_identity(&mut self) {
        let (host, socket) = (&self.settings.machine.host, self.socket_directory.socket().display());
        let version = crate::arguments::version();
        let port = match self.links.port() {
            0 => String::new(),
            port => format!(", port {port}"),
        };
        self.log.line(&format!("{} ({socket}{port}) {} {}", host.name, host.arch, version.trim()));
    }

    /// Tells starter and log what is wrong with the settings.
    fn log_complaints(&mut self) {
        for complaint in std::mem::take(&mut self.settings.complaints) {
            // Nobody may be there to read it.
            let _ = writeln!(std::io::stderr(), "pvmd: {complaint}");
            self.log.line(&complaint);
        }
    }

    /// Serves until the machine has halted.
    pub fn run(&mut self) -> crate::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.stopped {
            events.clear();
            let timeout = if self.step_route() { self.timeout() } else { Timespec::default() };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            self.route.wake(events.iter().any(|event| Source::of(event.data) == Source::Bell));
            for event in &events {
                self.dispatch(Source::of(event.data), event.flags);
                self.execute_actions();
            }
            for connection in std::mem::take(&mut self.unfinished) {
                self.receive(connection, FrameBudget::new());
                self.execute_actions();
            }
            for host in std::mem::take(&mut self.unfinished_hosts) {
                self.receive_from_host(host);
            }
            self.pass_time();
        }
        self.links.finish();
        self.log.line("halted");
        Ok(())
    }

    fn now(&self) -> Time {
        self.started.elapsed()
    }

    fn timeout(&self) -> Timespec {
        if !(self.unfinished.is_empty() && self.unfinished_hosts.is_empty()) {
            return Timespec::default();
        }
        let look = self.next_look.saturating_duration_since(Instant::now());
        let wakeup = self.machine.next_wakeup().map(|when| when.saturating_sub(self.now()));
        let limits = self.next_start_limit().into_iter().chain(self.next_link_limit());
        let limits = limits.chain(self.route.waits_for_memory().then_some(route::PAUSE));
        let limits = limits.chain((!self.descriptor_limited.is_empty()).then_some(DESCRIPTOR_PAUSE));
        let wait = wakeup.into_iter().chain(limits).fold(look, Duration::min);
        // A little late is better than a little early, and once more.
        let wait = wait + Duration::from_millis(1);
        Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
    }

    fn pass_time(&mut self) {
        let now = self.now();
        if self.machine.next_wakeup().is_some_and(|when| when <= now) {
            self.machine.handle_time(now);
            self.execute_actions();
        }
        if self.next_start_limit() == Some(Duration::ZERO) {
            self.step_starts();
            self.execute_actions();
        }
        if self.next_link_limit() == Some(Duration::ZERO) {
            self.step_links();
            self.execute_actions();
        }
        if !self.descriptor_limited.is_empty() && Instant::now() >= self.next_descriptor_try {
            self.next_descriptor_try = Instant::now() + DESCRIPTOR_PAUSE;
            std::mem::take(&mut self.descriptor_limited).into_iter().for_each(|connection| self.flush(connection));
            self.execute_actions();
        }
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + LOOK_INTERVAL;
            self.release_outputs();
            self.route.acknowledge();
            self.calm_looks = if self.route.trim() { self.calm_looks.wrapping_add(1) } else { 0 };
            if self.calm_looks % CALM_LOOKS == 2 {
                pvm_fmp::release_free();
            }
            if Instant::now() >= self.next_refresh {
                self.next_refresh = Instant::now() + REFRESH_INTERVAL;
                self.socket_directory.refresh();
            }
            if !self.socket_directory.stands() {
                self.log.line("socket or rendezvous file has vanished");
                self.machine.halt(now);
                self.execute_actions();
            }
        }
    }

    fn dispatch(&mut self, source: Source, flags: EventFlags) {
        match source {
            Source::Listener => self.accept(),
            Source::Signals => self.on_signal(),
            Source::Client(connection) => {
                if flags.contains(EventFlags::OUT) {
                    self.flush(connection);
                }
                let came = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
                // One turn for each.
                if came && !self.unfinished.contains(&connection) {
                    self.receive(connection, FrameBudget::new());
                }
            }
            Source::Peer(connection) => self.on_peer_ended(connection),
            Source::Output(tid, stream) => self.take_output(tid, stream),
            Source::Input(tid) => self.write_input(tid),
            Source::Process(tid) => self.on_process_ended(tid),
            Source::NameLookup(request) => self.read_name_lookup(request),
            // The loop looks anyway.
            Source::Bell => {}
            Source::Data(host) => self.on_data_ready(host, flags),
            Source::Direct(number) => self.direct_links.ready(number),
            Source::Connector => self.step_links(),
            Source::Control(host) => self.on_control_ready(host, flags),
            Source::Starts => self.step_starts(),
            Source::RemoteStarts => self.step_remote_starts(),
        }
    }

    fn on_signal(&mut self) {
        let mut bytes = [0; 64];
        if self.signals.read(&mut bytes).is_ok_and(|count| count > 0) {
            self.log.line("signalled to end");
            self.machine.halt(self.now());
        }
    }

    // ----- connections

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_IN_TURN_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.socket_directory.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return std::thread::sleep(ACCEPT_PAUSE);
                }
                Err(_) => return,
            };
            // Strangers are sent away here.
            let Ok(link) = ControlSocket::new(socket) else { continue };
            let connection = self.connections.add(link);
            let client = self.connections.get_mut(connection).expect("added just now");
            if epoll::add(&self.epoll, client.socket.as_fd(), Source::Client(connection).data(), EventFlags::IN)
                .is_err()
            {
                self.connections.close(connection);
            }
        }
    }

    /// Takes frames of a connection.
    fn receive(&mut self, connection: Connection, mut budget: FrameBudget) {
        while budget.take() {
            let Some(client) = self.connections.get_mut(connection) else { return };
            match client.socket.receive_from_task() {
                Ok(None) => return,
                Ok(Some((ToDaemon::Hello(hello), descriptors))) => self.on_hello(connection, &hello, descriptors),
                Ok(Some((ToDaemon::Heir, descriptors))) => self.on_successor(connection, descriptors),
                Ok(Some((frame, _))) => match client.tid {
                    Some(tid) => {
                        match frame {
                            ToDaemon::Bye => {
                                self.drain(tid);
                                self.direct_links.end_links_of_task(tid);
                            }
                            _ => self.take_from(tid),
                        }
                        self.machine.handle_frame(self.now(), tid, frame);
                    }
                    None => return self.close(connection),
                },
                Err(ControlError::LegacyLibrary) => return self.refuse_legacy_library(connection),
                Err(error) => {
                    if error != ControlError::Closed {
                        let who = client.tid.unwrap_or(Tid::NONE);
                        self.log.line(&format!("{who}: {error}, disconnected"));
                    }
                    return self.close(connection);
                }
            }
            self.execute_actions();
        }
        if self.connections.get_mut(connection).is_some_and(|client| client.socket.has_frame()) {
            self.unfinished.insert(connection);
        }
    }

    fn on_hello(&mut self, connection: Connection, hello: &Hello, descriptors: Vec<OwnedFd>) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        if client.tid.is_some() {
            return;
        }
        let Ok([segment, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            self.log.line(&format!("a task was refused: {}", self.process_spawner.descriptor_limit()));
            return self.refuse(connection, Code::OutOfRes);
        };
        if !pvm_fmp::doorbell::is_bell(bell.as_fd()) {
            return self.refuse(connection, Code::BadParam);
        }
        client.offered = Some(Descriptors { segment, bell });
        let process = client.socket.peer_process();
        self.machine.handle_hello(connection, process, hello);
    }

    /// Logs the fate of a task if the debug mask says so.
    fn log_task_event(&mut self, tid: Tid, fate: &str) {
        if self.machine.debug_mask() & DEBUG_TASKS != 0 {
            self.log.line(&format!("{tid} {fate}"));
        }
    }

    fn refuse(&mut self, connection: Connection, code: Code) {
        if let Some(client) = self.connections.get_mut(connection) {
            // A peer that is gone needs no refusal.
            let _ = client.socket.send_to_task(&ToTask::Refused(code), &[]);
        }
        self.close(connection);
    }

    fn close(&mut self, connection: Connection) {
        if let Some(tid) = self.connections.close(connection) {
            if !self.running.contains_key(&tid) {
                self.read_outputs(tid);
            }
            self.drain(tid);
            self.machine.handle_disconnect(tid);
            self.route.forget_task(tid);
            self.direct_links.end_links_of_task(tid);
        }
    }

    fn flush(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        if client.socket.flush().is_err() {
            client.write_closed = true;
        }
        self.watch_write(connection);
        self.on_collector_progress(connection);
        self.release_outputs();
    }

    /// Has `epoll` tell when the socket can be written exactly while something waits for it.
    fn watch_write(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        let descriptor_limited = client.socket.is_descriptor_limited() && !client.write_closed;
        let wanted = client.socket.wants_write() && !client.write_closed && !descriptor_limited;
        if descriptor_limited {
            self.descriptor_limited.insert(connection);
        }
        if wanted != client.watches_write {
            client.watches_write = wanted;
            let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = Source::Client(connection).data();
            if epoll::modify(&self.epoll, client.socket.as_fd(), data, flags).is_err() {
                self.close(connection);
            }
        }
    }

    // ----- what the machine says

    fn execute_actions(&mut self) {
        loop {
            // Links can break when something is sent, and then there is more to do.
            while let Some(action) = self.machine.poll_action() {
                self.execute(action);
                self.dispatch_link_events();
            }
            let (overrun, touched) = (self.connections.take_overrun(), self.connections.take_touched());
            if overrun.is_empty() && touched.is_empty() {
                return;
            }
            for connection in overrun {
                let who = self.connections.get_mut(connection).and_then(|client| client.tid).unwrap_or(Tid::NONE);
                self.log.line(&format!("{who} takes nothing of what it is sent, disconnected"));
                self.close(connection);
            }
            for connection in touched {
                self.watch_write(connection);
                self.on_collector_progress(connection);
            }
        }
    }
}
