//! Other hosts: looking their names up, having their daemons started, becoming one of them.
use super::Daemon;
use crate::source::Source;
use crate::start::{self, Master, StartEvent};
use crate::{resolve, slave};
use pvm_core::machine::{HostStart, Rank};
use pvm_core::proto::ByteBuf;
use pvm_core::tid::Tid;
use pvm_core::wire::{HostOptions, Shared, StartNews, StartOrder};
use rustix::event::epoll::{self, EventFlags};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// The bit of the debug mask for the start of hosts.
const DEBUG_START: i32 = 0x8;

/// A look-up of host names under way.
pub struct NameLookup {
    child: Child,
    text: Vec<u8>,
    /// How many names.
    count: usize,
}

/// What new daemons get to know of this one.
pub fn introduction(settings: &crate::settings::Settings, own: Tid) -> crate::Result<Master> {
    let machine = &settings.machine;
    Ok(Master {
        tid: own,
        address: *machine.addresses.first().ok_or("this host has no address")?,
        key: machine.key,
        debug_mask: settings.debug_mask,
        machine: settings.machine_id.as_ref().map(|id| id.to_string_lossy().into_owned()),
    })
}

impl Daemon {
    /// Tells the master that this daemon is there.
    pub fn answer(&mut self) -> crate::Result<()> {
        self.log_identity();
        self.log_complaints();
        let mut output = std::io::stdout();
        writeln!(output, "{}", slave::answer(&self.settings))?;
        output.flush()?;
        Ok(())
    }

    /// Begins with the hosts of the hostfile.
    pub(super) fn add_hosts_at_start(&mut self) {
        self.holds_terminal = self.settings.needs_terminal();
        let hosts = std::mem::take(&mut self.settings.hosts);
        self.machine.add_hosts_at_start(hosts);
    }

    /// Whether tasks may come: a daemon that joins knows too little before it has been welcomed.
    pub(super) fn is_open_to_tasks(&self) -> bool {
        self.settings.machine.rank == Rank::Master
    }

    // ----- host names

    pub(super) fn check_hosts(&mut self, request: u32, names: &[ByteBuf]) {
        let names: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let Ok(child) = resolve::command(&names).spawn() else {
            return self.machine.handle_hosts_checked(request, Vec::new());
        };
        let output = child.stdout.as_ref().expect("asked for").as_fd();
        let watched = epoll::add(&self.epoll, output, Source::NameLookup(request).data(), EventFlags::IN);
        self.name_lookups.insert(request, NameLookup { child, text: Vec::new(), count: names.len() });
        if watched.is_err() {
            self.read_name_lookup(request);
        }
    }

    pub(super) fn read_name_lookup(&mut self, request: u32) {
        let Some(lookup) = self.name_lookups.get_mut(&request) else { return };
        let mut data = [0; 4096];
        let count = lookup.child.stdout.as_mut().map_or(0, |output| output.read(&mut data).unwrap_or(0));
        lookup.text.extend_from_slice(&data[..count]);
        if count == 0 {
            let mut lookup = self.name_lookups.remove(&request).expect("looked up above");
            let _ = lookup.child.wait();
            self.machine.handle_hosts_checked(request, resolve::read_answers(&lookup.text, lookup.count));
        }
    }

    // ----- starts

    /// Answers with the commands by which the hoster starts the daemons.
    pub(super) fn tell_start_commands(&mut self, request: u32, hosts: &[HostStart]) {
        let command = |host: &HostStart| ByteBuf::from(self.starter.command_for_hoster(host).into_bytes());
        let commands = hosts.iter().map(|host| (host.index, command(host))).collect();
        self.machine.handle_start_commands(request, commands);
    }

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

    /// What a daemon printed that a hoster had started.
    pub(super) fn read_answer(&mut self, request: u32, index: usize, line: &[u8]) {
        let now = self.now();
        self.machine.handle_host_started(now, request, index, start::reason::read_answer(line));
    }

    /// The master orders something of a command that starts a daemon elsewhere.
    pub(super) fn order_start(&mut self, number: u64, order: StartOrder) {
        if let Some(news) = self.remote_starts.order(number, order) {
            self.machine.report_start(number, news);
        }
    }

    /// A host has news of such a command.
    pub(super) fn on_start_news(&mut self, host: Tid, number: u64, news: StartNews) {
        self.starter.heard(host, number, news);
        self.step_starts();
    }

    /// This daemon has become a host of a machine.
    pub(super) fn on_joined(&mut self, shared: &Shared, options: &HostOptions) {
        self.links.set_shared(shared.trusted, Duration::from_millis(shared.host_timeout_ms));
        self.joined(options);
    }

    /// Looks what has become of the daemons that are being started.
    pub(super) fn step_starts(&mut self) {
        if self.holds_terminal && self.starter.is_idle() {
            self.holds_terminal = false;
            // The same as at the start of a daemon that needs nobody to start others.
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
            }
        }
    }

    /// A link to a host has come or gone, and with it one that can start others for the master.
    pub(super) fn parent(&mut self, host: Tid, is_there: bool) {
        if self.settings.machine.rank != Rank::Master {
            return;
        }
        match is_there {
            true => self.starter.add_parent(host),
            false => self.starter.remove_parent(host),
        }
        self.step_starts();
    }

    /// Tells the master what has come of its commands.
    pub(super) fn step_remote_starts(&mut self) {
        for (number, news) in self.remote_starts.step() {
            self.machine.report_start(number, news);
        }
    }

    /// When the starts request_link to be looked at without anything having come.
    pub(super) fn next_start_limit(&self) -> Option<Duration> {
        self.starter.next_wakeup().map(|when| when.saturating_duration_since(Instant::now()))
    }

    // ----- joining

    /// This host has become one of the machine.
    fn joined(&mut self, options: &HostOptions) {
        self.settings.work_at(options);
        let _ = std::env::set_current_dir(&self.settings.program_search.directory);
        for complaint in std::mem::take(&mut self.settings.complaints) {
            self.log.line(&complaint);
        }
        // What has connected meanwhile has waited.
        let _ = epoll::add(&self.epoll, &self.socket_directory.listener, Source::Listener.data(), EventFlags::IN);
        self.log.line("joined");
    }
}
