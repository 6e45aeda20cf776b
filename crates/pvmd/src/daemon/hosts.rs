//! Other hosts: looking up their names, starting their daemons, joining a machine.
use super::Daemon;
use crate::addresses;
use crate::settings::{self, Settings};
use crate::source::Source;
use crate::start::job_watch::JobWatch;
use crate::start::{self, Master, StartEvent};
use pvm_core::machine::{HostStart, Rank};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use pvm_core::wire::{HostOptions, MachineSettings, StartNews, StartOrder, Started};
use rustix::event::epoll::{self, EventFlags};
use std::io::Write;
use std::time::{Duration, Instant};

/// The bit of the debug mask that makes the daemon log the start of hosts.
const DEBUG_START: i32 = 0x8;

/// Returns what new daemons learn about this daemon, their master.
pub fn introduction(settings: &Settings, own: Tid) -> crate::Result<Master> {
    let machine = &settings.machine;
    Ok(Master {
        tid: own,
        address: *machine.addresses.first().ok_or("this host has no address")?,
        key: machine.key,
        debug_mask: settings.debug_mask,
        machine: settings.machine_id.as_ref().map(|id| id.to_string_lossy().into_owned()),
    })
}

/// Returns the line that describes this daemon to the master.
fn description(settings: &Settings) -> String {
    let machine = &settings.machine;
    let started = Started {
        arch: machine.host.arch.clone(),
        dsig: machine.host.dsig,
        addresses: machine.addresses.clone(),
        key: machine.key,
        names: machine.aliases.clone(),
    };
    started.line()
}

impl Daemon {
    /// Tells the master that this daemon runs.
    pub fn answer(&mut self) -> crate::Result<()> {
        self.log_identity();
        self.log_complaints();
        let mut output = std::io::stdout();
        writeln!(output, "{}", description(&self.settings))?;
        output.flush()?;
        Ok(())
    }

    /// Adds the hosts of the hostfile.
    pub(super) fn add_hosts_at_start(&mut self) {
        self.holds_terminal = self.settings.needs_terminal();
        let hosts = std::mem::take(&mut self.settings.hosts);
        self.machine.add_hosts_at_start(hosts);
    }

    /// Returns whether tasks may connect from the start. A joining daemon must wait for the master's welcome.
    pub(super) fn is_open_to_tasks(&self) -> bool {
        self.settings.machine.rank == Rank::Master
    }

    // ----- host names

    /// Begins to look host names up.
    pub(super) fn look_up_hosts(&mut self, request: u32, names: &[ByteBuf]) {
        self.listen_for_hosts();
        let names: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        if let Some(answers) = self.name_lookups.begin(request, &names) {
            self.machine.handle_hosts_checked(request, answers);
        }
    }

    /// Opens a port, if this is the first daemon: other hosts call it to learn whether it still lives.
    fn listen_for_hosts(&mut self) {
        if self.host_links.port() != 0 {
            return;
        }
        match self.host_links.listen(settings::wanted_port()) {
            Ok(()) => self.machine.set_addresses(addresses::with_port(&addresses::own(), self.host_links.port())),
            Err(error) => self.log.line(&format!("cannot listen for other hosts: {error}")),
        }
    }

    /// Reads the answers of a look-up.
    pub(super) fn read_name_lookup(&mut self, request: u32) {
        if let Some(answers) = self.name_lookups.read(request) {
            self.machine.handle_hosts_checked(request, answers);
        }
    }

    // ----- starts

    /// Passes to the machine the commands with which the hoster starts the daemons.
    pub(super) fn tell_start_commands(&mut self, request: u32, hosts: &[HostStart]) {
        let command = |host: &HostStart| ByteBuf::from(self.starter.command_for_hoster(host).into_bytes());
        let commands = hosts.iter().map(|host| (host.index, command(host))).collect();
        self.machine.handle_start_commands(request, commands);
    }

    /// Starts daemons on hosts.
    pub(super) fn start_hosts(&mut self, request: u32, hosts: Vec<HostStart>) {
        self.starter.set_debug_mask(self.machine.debug_mask());
        for host in hosts {
            if self.machine.debug_mask() & DEBUG_START != 0 {
                self.log.line(&format!("host {} is to be {}", host.line.name(), host.tid));
            }
            self.starter.start(request, host);
        }
        self.step_starts();
    }

    /// Reads the answer of a daemon that a hoster has started.
    pub(super) fn read_answer(&mut self, request: u32, index: usize, line: &[u8]) {
        let now = self.now();
        self.machine.handle_host_started(now, request, index, start::reason::read_answer(line));
    }

    /// Executes an order of the master for a remote start.
    pub(super) fn order_start(&mut self, number: u64, order: StartOrder) {
        if let Some(news) = self.remote_starts.order(number, order) {
            self.machine.report_start(number, news);
        }
    }

    /// Handles news of a remote start that another host runs.
    pub(super) fn on_start_news(&mut self, host: Tid, number: u64, news: StartNews) {
        self.starter.handle_news(host, number, news);
        self.step_starts();
    }

    /// Continues the starts of daemons that are in progress.
    pub(super) fn step_starts(&mut self) {
        if self.holds_terminal && self.starter.is_idle() {
            self.holds_terminal = false;
            // The daemon did not call `setsid` at its start, since the start of hosts needed the terminal until now.
            let _ = rustix::process::setsid();
        }
        for event in self.starter.step() {
            match event {
                StartEvent::Log(text) => self.log.line(&text),
                StartEvent::Done { request, index, result } => {
                    let now = self.now();
                    self.machine.handle_host_started(now, request, index, result);
                }
                StartEvent::Order { parent, number, order } => self.machine.order_start(parent, number, order),
                StartEvent::Ended => self.job_watch.daemon_ended(),
            }
        }
        if let Some(job) = self.job_watch.step() {
            self.log.line(&format!("job {job} of Slurm is over"));
            self.machine.halt(self.started.elapsed());
        }
    }

    /// Notes whether a host can be a parent in the tree spawn, that is, whether the host has a link to the master.
    pub(super) fn set_tree_spawn_parent(&mut self, host: Tid, is_available: bool) {
        if !self.machine.is_master() {
            return;
        }
        match is_available {
            true => self.starter.add_parent(host),
            false => self.starter.remove_parent(host),
        }
        self.step_starts();
    }

    /// Reports the progress of remote starts to the master.
    pub(super) fn step_remote_starts(&mut self) {
        for (number, news) in self.remote_starts.step() {
            self.machine.report_start(number, news);
        }
    }

    /// Returns the time after which [`Daemon::step_starts`] is due even if no event occurs.
    pub(super) fn time_to_next_start(&self) -> Option<Duration> {
        let next = [self.starter.next_wakeup(), self.job_watch.next_wakeup()].into_iter().flatten().min();
        next.map(|when| when.saturating_duration_since(Instant::now()))
    }

    /// Begins or stops to do what only the master does.
    pub(super) fn on_master_changed(&mut self) {
        let is_master = self.machine.is_master();
        for host in self.host_links.linked() {
            match is_master {
                true => self.starter.add_parent(host),
                false => self.starter.remove_parent(host),
            }
        }
        // The master may have died because the job is over, and the next one, too: then this daemon ends by itself.
        self.job_watch = JobWatch::of_daemon(true, self.settings.machine_id.as_ref());
        self.job_watch.daemon_ended();
    }

    // ----- joining

    /// Takes over the settings of the machine that this host has joined, and lets tasks connect.
    pub(super) fn on_joined(&mut self, shared: &MachineSettings, options: &HostOptions) {
        self.host_links.set_shared(shared.trusted, Duration::from_millis(shared.host_timeout_ms));
        self.route.set_pacing(shared.pacing);
        self.broadcast.set_group(shared.broadcast);
        self.settings.apply_host_options(options);
        self.route.set_mcast_route(self.settings.mcast_route);
        let _ = std::env::set_current_dir(&self.settings.program_search.directory);
        for complaint in std::mem::take(&mut self.settings.complaints) {
            self.log.line(&complaint);
        }
        // Tasks that connected earlier have waited to be accepted.
        let _ = epoll::add(&self.epoll, &self.socket_directory.listener, Source::Listener.data(), EventFlags::IN);
        self.log.line("joined");
    }
}
