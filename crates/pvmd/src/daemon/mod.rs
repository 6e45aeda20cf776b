//! The daemon's loop: waits for events, passes them to the machine, executes the machine's actions.
//!
//! * `execute`: one arm for each action of the machine;
//! * `accepting`: connections of tasks;
//! * `host_links`: events of links to other hosts;
//! * `routing`: messages between tasks of different hosts;
//! * `direct`: direct links between tasks;
//! * `hosts`: looking up, starting and joining hosts;
//! * `processes`: processes of tasks; `output`: what they print;
//! * `successors`: tasks that continue in another process;
//! * `pending_work`, `upkeep`: work that is done without an event.
use crate::broadcast::Broadcast;
use crate::connections::{Connections, Descriptors};
use crate::direct_links::DirectLinks;
use crate::fabric_complaints::FabricComplaints;
use crate::frame_budget::FrameBudget;
use crate::groups::Groups;
use crate::host_links::HostLinks;
use crate::log::Log;
use crate::name_lookups::NameLookups;
use crate::processes::Processes;
use crate::processes::spawner::ProcessSpawner;
use crate::program_searches::ProgramSearches;
use crate::refused_datagrams::RefusedDatagrams;
use crate::route::Route;
use crate::settings::Settings;
use crate::socket_directory::{self, SocketDirectory};
use crate::source::Source;
use crate::start::Starter;
use crate::start::job_keeper;
use crate::start::job_watch::JobWatch;
use crate::start::remote_starts::RemoteStarts;
use crate::terminal;
use crate::watchdog::Watchdog;
use pending_work::PendingWork;
use pvm_core::codes::Code;
use pvm_core::machine::{Connection, Machine};
use pvm_core::proto::{Hello, ToDaemon, ToTask};
use pvm_core::tid::{DAEMON_BIT, Tid};
use pvm_core::time::Time;
use pvm_link::{ControlError, rendezvous};
use pvm_net::Connector;
use pvm_net::polling::timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};
use upkeep::Upkeep;

mod accepting;
mod direct;
mod execute;
mod host_links;
mod hosts;
mod output;
mod pending_work;
mod processes;
mod routing;
mod successors;
#[cfg(test)]
mod tests;
mod upkeep;

/// Events taken from `epoll` at a time.
const EVENTS_MAX: usize = 256;

/// The bit of the debug mask that makes the daemon log when tasks enroll and leave.
const DEBUG_TASKS: i32 = 0x4;

/// The daemon.
pub struct Daemon {
    settings: Settings,
    socket_directory: SocketDirectory,
    log: Log,
    machine: Machine,
    connections: Connections,
    route: Route,
    groups: Groups,
    processes: Processes,
    name_lookups: NameLookups,
    program_searches: ProgramSearches,
    starter: Starter,
    remote_starts: RemoteStarts,
    job_watch: JobWatch,
    /// Whether the terminal is still needed, so that a person can start hosts.
    holds_terminal: bool,
    host_links: HostLinks,
    broadcast: Broadcast,
    refused_datagrams: RefusedDatagrams,
    direct_links: DirectLinks,
    fabric_complaints: FabricComplaints,
    epoll: Rc<OwnedFd>,
    signals: UnixStream,
    /// Whether a signal has asked the daemon to end.
    was_signalled: bool,
    started: Instant,
    upkeep: Upkeep,
    pending: PendingWork,
    watchdog: Watchdog,
    stopped: bool,
}

/// Catches signals. Returns a socket that becomes readable when a signal asks the daemon to end.
pub fn catch_signals() -> crate::Result<UnixStream> {
    let (signals, sender) = UnixStream::pair()?;
    signals.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, sender.try_clone()?)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, sender)?;
    // These are caught, not ignored: tasks would inherit an ignored signal. A job may send the last two to all its steps
    // as a sign to save state.
    for signal in [signal_hook::consts::SIGHUP, signal_hook::consts::SIGUSR1, signal_hook::consts::SIGUSR2] {
        signal_hook::flag::register(signal, Default::default())?;
    }
    // The program that started this daemon may have ignored this signal. Then the system would not keep the status of
    // children that have ended.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Default::default())?;
    Ok(signals)
}

impl Daemon {
    /// Makes a daemon that does not serve yet. `signals` becomes readable when the daemon is to end.
    pub fn new(
        mut settings: Settings,
        socket_directory: SocketDirectory,
        mut log: Log,
        connector: Connector,
        signals: UnixStream,
    ) -> crate::Result<Daemon> {
        let spawner = ProcessSpawner::new(socket_directory.socket())?;
        settings.limit_tasks(spawner.tasks_max(), spawner.descriptor_limit());
        let mut machine = Machine::new(settings.machine.clone());
        machine.set_debug_mask(settings.debug_mask);
        log.set_tid(Tid(DAEMON_BIT | machine.own_host().0));
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let host_links = host_links::new_links(&settings, connector, epoll.clone())?;
        let starter = Starter::new(hosts::introduction(&settings, machine.own_host())?, settings.starts_max)?;
        epoll::add(&epoll, starter.descriptor(), Source::Starts.data(), EventFlags::IN)?;
        let remote_starts = RemoteStarts::new()?;
        epoll::add(&epoll, remote_starts.descriptor(), Source::RemoteStarts.data(), EventFlags::IN)?;
        epoll::add(&epoll, &signals, Source::Signals.data(), EventFlags::IN)?;
        let job_watch = JobWatch::of_daemon(machine.is_master(), settings.machine_id.as_ref());
        let mut connections = Connections::new(machine.own_host())?;
        let mut route = Route::new(machine.own_host(), connections.ports()?)?;
        route.set_pacing(settings.machine.pacing);
        route.set_mcast_route(settings.mcast_route);
        connections.set_daemon(route.descriptors()?);
        connections.limit_backlog(settings.backlog_bytes_max);
        epoll::add(&epoll, route.bell(), Source::Bell.data(), EventFlags::IN)?;
        let watchdog = Watchdog::new(log.path().to_owned());
        let broadcast = Broadcast::new(epoll.clone(), settings.machine.broadcast);
        let daemon = Daemon {
            settings,
            socket_directory,
            log,
            machine,
            connections,
            route,
            groups: Groups::default(),
            processes: Processes::new(spawner, epoll.clone())?,
            name_lookups: NameLookups::new(epoll.clone()),
            program_searches: ProgramSearches::new(&epoll)?,
            starter,
            remote_starts,
            job_watch,
            holds_terminal: false,
            host_links,
            broadcast,
            refused_datagrams: RefusedDatagrams::default(),
            direct_links: DirectLinks::new(epoll.clone()),
            fabric_complaints: FabricComplaints::default(),
            epoll,
            signals,
            was_signalled: false,
            started: Instant::now(),
            upkeep: Upkeep::new(Instant::now()),
            pending: PendingWork::new(),
            watchdog,
            stopped: false,
        };
        if daemon.is_open_to_tasks() {
            epoll::add(&daemon.epoll, &daemon.socket_directory.listener, Source::Listener.data(), EventFlags::IN)?;
        }
        Ok(daemon)
    }

    /// Prints the path of the socket for the program that started this daemon, then releases the terminal.
    pub fn announce(&mut self) -> crate::Result<()> {
        self.log_identity();
        self.log_complaints();
        for helper in std::mem::take(&mut self.settings.helpers) {
            self.machine.start_helper(&helper.split_ascii_whitespace().collect::<Vec<_>>());
        }
        self.add_hosts_at_start();
        self.execute_actions();
        self.start_job_keeper();
        let mut output = std::io::stdout();
        // The daemon serves even if nobody reads this.
        let _ = writeln!(output, "{}", self.socket_directory.socket().display()).and_then(|()| output.flush());
        terminal::release()?;
        self.log.line("ready");
        Ok(())
    }

    fn start_job_keeper(&self) {
        let (directory, Some(rendezvous)) = self.socket_directory.files() else { return };
        if self.is_of_job() {
            if self.machine.debug_mask() != 0 {
                socket_directory::keep_log(directory);
            }
            let files = job_keeper::Files { directory, rendezvous, log: self.log.path() };
            let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
            job_keeper::start(variable, &files);
        }
    }

    /// Removes the files of a machine that belongs to a job before the tasks end. The job may be over, and the job
    /// system may kill this daemon at any moment.
    fn withdraw(&mut self) {
        if self.is_of_job() {
            // The next daemon opens the same log as soon as the name is free.
            self.remove_log();
            self.socket_directory.withdraw();
        }
    }

    /// Removes the log of a machine that belongs to a job, unless somebody may read it. Each job has a log of its own,
    /// and nobody else would remove it.
    fn remove_log(&mut self) {
        if self.is_of_job() && self.machine.debug_mask() == 0 {
            self.log.remove_unless_printed_to();
        }
    }

    /// Returns whether the machine has the name of a job.
    fn is_of_job(&self) -> bool {
        self.settings.machine_id.as_ref().is_some_and(|name| rendezvous::is_of_job(name))
    }

    fn log_identity(&mut self) {
        let (host, socket) = (&self.settings.machine.host, self.socket_directory.socket().display());
        let version = crate::arguments::version();
        let port = match self.host_links.port() {
            0 => String::new(),
            port => format!(", port {port}"),
        };
        self.log.line(&format!("{} ({socket}{port}) {} {}", host.name, host.arch, version.trim()));
    }

    /// Reports on standard error and in the log what is wrong with the settings.
    fn log_complaints(&mut self) {
        for complaint in std::mem::take(&mut self.settings.complaints) {
            // There may be no reader.
            let _ = writeln!(std::io::stderr(), "pvmd: {complaint}");
            self.log.line(&complaint);
        }
    }

    /// Serves until the machine has halted.
    pub fn run(&mut self) -> crate::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.stopped {
            self.step(&mut events, None)?;
        }
        self.host_links.close_all();
        if let Some(line) = self.refused_datagrams.sum() {
            self.log.line(&line);
        }
        self.log.line("halted");
        self.remove_log();
        Ok(())
    }

    /// Waits for events and handles them. Sleeps for `sleep_max` at most.
    fn step(&mut self, events: &mut Vec<epoll::Event>, sleep_max: Option<Duration>) -> crate::Result<()> {
        events.clear();
        self.watchdog.works();
        let may_sleep = self.step_route();
        self.flush_links();
        let timeout = if may_sleep { self.timeout(sleep_max) } else { Timespec::default() };
        self.watchdog.waits();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // While the route has nothing to do, it stays prepared to sleep.
        if events.iter().any(|event| Source::of(event.data) == Source::Bell) {
            self.route.wake(true);
        }
        for event in events.iter() {
            self.watchdog.handles(Source::of(event.data));
            self.dispatch(Source::of(event.data), event.flags);
            self.execute_actions();
        }
        self.watchdog.works();
        for connection in self.pending.take_connections() {
            self.receive(connection, FrameBudget::new());
            self.execute_actions();
        }
        for host in self.pending.take_hosts() {
            self.receive_from_host(host);
        }
        for (connection, hello, descriptors) in self.pending.take_hellos() {
            self.on_hello(connection, &hello, descriptors);
            self.execute_actions();
        }
        self.handle_time();
        // Frames on control links precede the frames that the next step writes to data links.
        self.flush_links();
        self.watchdog.waits();
        Ok(())
    }

    fn now(&self) -> Time {
        self.started.elapsed()
    }

    fn timeout(&self, sleep_max: Option<Duration>) -> Timespec {
        let pending = self.pending.sleep_max();
        if pending == Some(Duration::ZERO) {
            return Timespec::default();
        }
        let check = self.upkeep.next_check().saturating_duration_since(Instant::now());
        let wakeup = self.machine.next_wakeup().map(|when| when.saturating_sub(self.now()));
        let limits = self.time_to_next_start().into_iter().chain(self.time_to_next_link_step()).chain(pending);
        let limits = limits.chain(self.route.time_to_next_step()).chain(sleep_max);
        let wait = wakeup.into_iter().chain(limits).fold(check, Duration::min);
        // It is better to wake up a little late than to wake up too early and have to wait a second time.
        timespec(wait + Duration::from_millis(1))
    }

    /// Does the work that is due by now.
    fn handle_time(&mut self) {
        let now = self.now();
        if self.machine.next_wakeup().is_some_and(|when| when <= now) {
            self.machine.handle_time(now);
            self.execute_actions();
        }
        if self.time_to_next_start() == Some(Duration::ZERO) {
            self.step_starts();
            self.execute_actions();
        }
        if self.time_to_next_link_step() == Some(Duration::ZERO) {
            self.step_links();
            self.execute_actions();
        }
        let limited = self.pending.take_descriptor_limited(Instant::now());
        if !limited.is_empty() {
            limited.into_iter().for_each(|connection| self.flush(connection));
            self.execute_actions();
        }
        if self.pending.resume_accepting(Instant::now()) {
            self.watch_listener(EventFlags::IN);
        }
        if self.upkeep.begin_check(Instant::now()) {
            self.check(now);
        }
    }

    fn check(&mut self, now: Time) {
        self.resume_outputs();
        self.end_closed_outputs();
        // A thread may not have told what it has started before it met a file system that does not answer.
        self.on_started();
        self.execute_actions();
        self.processes.bury();
        self.route.acknowledge();
        self.route.tick();
        let is_quiet = self.route.trim();
        if self.upkeep.should_release_memory(is_quiet) {
            pvm_fmp::release_free();
        }
        if self.upkeep.begin_refresh(Instant::now()) {
            self.socket_directory.refresh();
        }
        if !self.socket_directory.exists() {
            self.log.line("socket or rendezvous file has vanished");
            self.machine.leave(now);
            self.execute_actions();
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
                let is_readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
                // Each connection has one frame budget in a step.
                if is_readable && !self.pending.has_connection(connection) {
                    self.receive(connection, FrameBudget::new());
                }
            }
            Source::Peer(connection) => self.on_peer_ended(connection),
            Source::Output(tid, stream) => self.read_output(tid, stream),
            Source::Input(tid) => self.continue_input(tid),
            Source::Process(tid) => self.on_process_ended(tid),
            Source::NameLookup(request) => self.read_name_lookup(request),
            // The next step of the route polls all queues anyway.
            Source::Bell => {}
            Source::Data(host) => self.on_data_ready(host, flags),
            Source::Direct(number) => self.direct_links.on_ready(number),
            Source::Connector => self.step_links(),
            Source::Control(host) => self.on_control_ready(host, flags),
            Source::Datagrams => self.receive_datagrams(),
            Source::Releases => self.receive_release(),
            // The next step of the route sends more datagrams.
            Source::DatagramRoom => self.route.on_datagram_room(),
            Source::Starts => self.step_starts(),
            Source::RemoteStarts => self.step_remote_starts(),
            Source::Searches => self.on_searches_ended(),
            Source::Started => self.on_started(),
        }
    }

    fn on_signal(&mut self) {
        let mut bytes = [0; 64];
        if self.signals.read(&mut bytes).is_ok_and(|count| count > 0) {
            let now = self.now();
            if std::mem::replace(&mut self.was_signalled, true) {
                self.log.line("signalled to end again");
                return self.machine.halt(now);
            }
            self.log.line("signalled to end");
            self.machine.leave(now);
        }
    }

    // ----- connections

    /// Handles frames of a connection, as many as the budget allows.
    fn receive(&mut self, connection: Connection, mut budget: FrameBudget) {
        if let Some(client) = self.connections.get_mut(connection) {
            client.socket.expect_more();
        }
        while budget.take() {
            let Some(client) = self.connections.get_mut(connection) else { return };
            match client.socket.receive_from_task() {
                Ok(None) => return,
                Ok(Some((ToDaemon::Hello(hello), descriptors))) => self.on_hello(connection, &hello, descriptors),
                Ok(Some((ToDaemon::TakeOver, descriptors))) => self.on_successor(connection, descriptors),
                Ok(Some((ToDaemon::Overflow, _))) => self.direct_links.on_overflow(),
                Ok(Some((ToDaemon::Idle(is_idle), _))) => self.connections.set_idle(connection, is_idle),
                Ok(Some((ToDaemon::NoFabric(reason), _))) => self.fabric_complaints.log(&mut self.log, &reason),
                Ok(Some((frame, _))) => match client.tid {
                    Some(tid) => self.on_frame(tid, frame),
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
            self.pending.add_connection(connection);
        }
    }

    /// Handles a frame of a task, after all messages that the task sent before the frame.
    fn on_frame(&mut self, tid: Tid, frame: ToDaemon) {
        match frame {
            ToDaemon::Bye => {
                self.drain(tid);
                self.direct_links.end_links_of_task(tid);
            }
            _ => self.take_from_all(),
        }
        self.machine.handle_frame(self.now(), tid, frame);
    }

    fn on_hello(&mut self, connection: Connection, hello: &Hello, descriptors: Vec<OwnedFd>) {
        if hello.cookie.is_some_and(|cookie| self.has_no_result_yet(cookie)) {
            return self.pending.add_hello(connection, hello.clone(), descriptors);
        }
        let Some(client) = self.connections.get_mut(connection) else { return };
        if client.tid.is_some() {
            return;
        }
        let Ok([segment, bell]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            self.log.line(&format!("a task was refused: {}", self.processes.descriptor_limit()));
            return self.refuse(connection, Code::OutOfRes);
        };
        if !pvm_fmp::doorbell::is_bell(bell.as_fd()) {
            return self.refuse(connection, Code::BadParam);
        }
        client.offered = Some(Descriptors { segment, bell });
        let process = client.socket.peer_process();
        self.machine.handle_hello(connection, process, hello);
    }

    /// Logs an event of a task if the debug mask asks for that.
    fn log_task_event(&mut self, tid: Tid, event: &str) {
        if self.machine.debug_mask() & DEBUG_TASKS != 0 {
            self.log.line(&format!("{tid} {event}"));
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
            if self.processes.id_of(tid).is_none() {
                self.read_all_outputs(tid);
            }
            self.drain(tid);
            self.machine.handle_disconnect(tid);
            self.route.forget_task(tid);
            self.direct_links.end_links_of_task(tid);
        }
    }

    fn flush(&mut self, connection: Connection) {
        self.connections.flush(connection);
        self.watch_write(connection);
        self.on_collector_progress(connection);
        self.resume_outputs();
    }

    /// Watches a socket for room, but only while frames wait for the socket.
    fn watch_write(&mut self, connection: Connection) {
        let Some(client) = self.connections.get_mut(connection) else { return };
        let limited = client.socket.is_descriptor_limited() && !client.write_closed;
        let wanted = client.socket.wants_write() && !client.write_closed && !limited;
        if limited {
            self.pending.add_descriptor_limited(connection);
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

    // ----- actions of the machine

    fn execute_actions(&mut self) {
        loop {
            // If a send breaks a link, further events and actions follow.
            while let Some(action) = self.machine.poll_action() {
                self.execute(action);
                self.dispatch_link_events();
            }
            if self.machine.handle_unfenced() {
                continue;
            }
            let (to_close, touched) = (self.connections.take_to_close(), self.connections.take_touched());
            if to_close.is_empty() && touched.is_empty() {
                return;
            }
            for connection in to_close {
                let who = self.connections.get_mut(connection).and_then(|client| client.tid).unwrap_or(Tid::NONE);
                self.log.line(&format!("{who} does not read what it is sent, disconnected"));
                self.close(connection);
            }
            for connection in touched {
                self.watch_write(connection);
                self.on_collector_progress(connection);
            }
        }
    }
}
