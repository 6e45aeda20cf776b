//! Addition of hosts (contract 2.7): the master decides, one add at a time.
//!
//! Names are resolved, daemons started and links opened, independently for each host. When each new host has either
//! succeeded or failed, the master sends the new entries to all hosts, and the whole table to the new hosts. When all
//! hosts have acknowledged this, the new hosts have joined, all hosts are notified, and the add is answered. So no host
//! is ever contacted by a host that it does not know.
use super::broadcast_table_change;
use crate::codes::{Code, SM_ADDACK, SPEED_DEFAULT};
use crate::encoding::Writer;
use crate::hostfile::{self, HostLine, Options};
use crate::machine::action::{Action, HostStart};
use crate::machine::core::Core;
use crate::machine::event::Event;
use crate::machine::host_table::HOSTS_MAX;
use crate::machine::pending_acks::Ack;
use crate::machine::settings::Rank;
use crate::proto::{ByteBuf, Reply};
use crate::tid::Tid;
use crate::time::Time;
use crate::wire::{self, Frame, HostEntry, HostOptions, MachineSettings, ResolvedHost, StartFailure, Started};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// How long a started daemon waits for its master before it ends.
pub const WELCOME_WAIT: Duration = Duration::from_secs(60);

/// The origin of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum Asker {
    /// This daemon, for the hosts of its hostfile.
    Daemon,
    /// A task, which sent a request.
    Task { tid: Tid, wait: u32 },
    /// The resource manager, which sent a message.
    Manager { tid: Tid, wid: i32, ctx: i32 },
}

/// The state of a host that is being added.
enum JoinState {
    /// Its name is being resolved, or its daemon started.
    Starting,
    /// Its daemon runs; there is no link yet.
    Started,
    Linked,
    Failed(StartFailure),
}

/// A host that is being added.
struct JoiningHost {
    /// The host's line of the hostfile or the call; `None` if it could not be parsed.
    line: Option<HostLine>,
    state: JoinState,
    /// `Tid::NONE` until it is assigned.
    tid: Tid,
    /// The addresses to which its name resolved.
    resolved: Vec<IpAddr>,
    /// Other names that the resolver returned.
    aliases: Vec<String>,
    /// The entry for the host table, known as soon as the host's daemon runs.
    entry: Option<HostEntry>,
}

/// An add in progress.
struct PendingAdd {
    request: u32,
    asker: Asker,
    hosts: Vec<JoiningHost>,
    /// The index of each host with an assigned tid.
    by_tid: BTreeMap<Tid, usize>,
    /// The version of the table with the new hosts, and the hosts that have not acknowledged it.
    unacknowledged: Option<(u64, BTreeSet<Tid>)>,
}

/// The add in progress, and the remains of earlier adds.
#[derive(Default)]
pub(in crate::machine) struct Joining {
    last_request: u32,
    adding: Option<PendingAdd>,
    /// An add whose hosts have joined. The add is answered when all sub-machines have handled the event that announces
    /// these hosts.
    joined: Option<PendingAdd>,
    /// Requests that wait until no add is in progress: task and wait id.
    add_waiters: Vec<(Tid, u32)>,
    /// Failures of the hosts of the hostfile, until a task asks for them.
    failures: Vec<String>,
}

impl Joining {
    pub fn is_idle(&self) -> bool {
        self.adding.is_none() && self.joined.is_none()
    }
}

impl PendingAdd {
    /// Returns whether there is a host that has neither failed nor got a link.
    fn is_open(&self) -> bool {
        self.hosts.iter().any(|host| matches!(host.state, JoinState::Starting | JoinState::Started))
    }
    /// Returns the hosts with a link.
    fn linked(&self) -> impl Iterator<Item = &JoiningHost> {
        self.hosts.iter().filter(|host| matches!(host.state, JoinState::Linked))
    }
}

impl JoiningHost {
    fn new(line: Option<HostLine>) -> JoiningHost {
        let state = if line.is_some() { JoinState::Starting } else { JoinState::Failed(Code::BadParam.into()) };
        JoiningHost { line, state, tid: Tid::NONE, resolved: Vec::new(), aliases: Vec::new(), entry: None }
    }
    /// Records that the daemon of the host runs. Returns the host's tid and key.
    fn started(&mut self, started: Started) -> Option<(Tid, wire::Key)> {
        let line = self.line.as_ref()?;
        let Started { arch, dsig, mut addresses, key, names } = started;
        // The resolved addresses come first, because the daemon was started through one of them.
        addresses.sort_by_key(|address| !self.resolved.contains(&address.ip()));
        let mut aliases = std::mem::take(&mut self.aliases);
        aliases.extend(self.resolved.iter().map(IpAddr::to_string).chain(names));
        let speed = line.options.speed.unwrap_or(SPEED_DEFAULT);
        let (tid, name) = (self.tid, line.name().to_owned());
        let Options { node, groups, tasks, .. } = line.options.clone();
        let is_draining = tasks == Some(false);
        let entry = HostEntry { tid, name, aliases, arch, speed, node, groups, is_draining, dsig, addresses, key };
        self.entry = Some(entry);
        self.state = JoinState::Started;
        Some((tid, key))
    }
    fn options(&self) -> HostOptions {
        let options = self.line.as_ref().map(|line| line.options.clone()).unwrap_or_default();
        let Options { path, directory, debugger, mcast, fabric, .. } = options;
        HostOptions { path, directory, debugger, mcast: mcast.unwrap_or_default(), fabric }
    }
    /// Returns the tid of the host, or the code of its failure.
    fn number(&self) -> i32 {
        match self.state {
            JoinState::Linked => self.tid.0 as i32,
            JoinState::Failed(ref failure) => failure.code.number(),
            JoinState::Starting | JoinState::Started => Code::CantStart.number(),
        }
    }

    /// Returns the reason for the host's failure, as text.
    fn reason(&self) -> String {
        match &self.state {
            JoinState::Failed(failure) => failure.reason.clone(),
            _ => String::new(),
        }
    }

    /// Adds the host to the answer to a resource manager.
    fn describe(&self, body: Writer) -> Writer {
        let body = body.int(self.number());
        match &self.entry {
            Some(entry) if matches!(self.state, JoinState::Linked) => {
                let body = body.string(entry.name.as_bytes()).string(entry.arch.as_bytes());
                body.int(entry.speed).int(entry.dsig)
            }
            _ => body.string(b"").string(b"").int(0).int(0),
        }
    }
}

/// The beginning of the reason for refusing a host that belongs to the machine already. The name of that host in the
/// machine follows.
pub const KNOWN_AS: &str = "it is in the machine already, as ";

/// Returns the failure for a host that belongs to the machine already, under that name.
fn already_known(name: &str) -> StartFailure {
    let reason = format!("{KNOWN_AS}{name}\ntry: $NAME for a second pvmd on the same host");
    StartFailure { code: Code::DupHost, reason }
}

impl Joining {
    /// Handles `pvm_addhosts`.
    pub fn add_hosts(&mut self, core: &mut Core, asker: Asker, names: Vec<ByteBuf>) {
        let refusal = match names.len() {
            0 => Some(Code::BadParam),
            count if count > HOSTS_MAX => Some(Code::BadParam),
            _ if core.halting => Some(Code::SysErr),
            _ if !self.is_idle() => Some(Code::Already),
            _ => None,
        };
        if let Some(code) = refusal {
            return refuse_add(core, asker, code);
        }
        let file = &core.settings.hostfile;
        let parse = |line: &ByteBuf| hostfile::parse_host(&String::from_utf8_lossy(line)).ok();
        let lines = names.iter().map(|name| parse(name).map(|line| file.complete(line))).collect();
        self.begin_add(core, asker, lines);
    }

    /// Adds the hosts of the hostfile that are to be started together with the master.
    pub fn add_hosts_at_start(&mut self, core: &mut Core, lines: Vec<HostLine>) {
        if !lines.is_empty() && self.is_idle() && !core.halting {
            self.begin_add(core, Asker::Daemon, lines.into_iter().map(Some).collect());
        }
    }

    /// Begins an add: the host names are resolved first.
    fn begin_add(&mut self, core: &mut Core, asker: Asker, lines: Vec<Option<HostLine>>) {
        self.last_request = self.last_request.wrapping_add(1);
        let request = self.last_request;
        let check = lines.iter().flatten().map(|host| ByteBuf::from(host.address().as_bytes().to_vec())).collect();
        let hosts = lines.into_iter().map(JoiningHost::new).collect();
        self.adding = Some(PendingAdd { request, asker, hosts, by_tid: BTreeMap::new(), unacknowledged: None });
        core.push(Action::CheckHosts { request, names: check });
    }

    fn adding(&mut self, request: u32) -> Option<&mut PendingAdd> {
        self.adding.as_mut().filter(|adding| adding.request == request)
    }

    /// Handles the results of the resolution of the names, in the order of the names.
    pub fn hosts_checked(&mut self, core: &mut Core, request: u32, checked: Vec<Result<ResolvedHost, Code>>) {
        if self.adding(request).is_none_or(|adding| !adding.by_tid.is_empty()) {
            return;
        }
        let Some(mut adding) = self.adding.take() else { return };
        let mut checked = checked.into_iter();
        let mut starts = Vec::new();
        for index in 0..adding.hosts.len() {
            if !matches!(adding.hosts[index].state, JoinState::Starting) {
                continue;
            }
            let result = checked.next().unwrap_or(Err(Code::CantStart));
            match assign_number(core, &adding, index, result) {
                Ok((tid, ResolvedHost { aliases, addresses })) => {
                    let host = &mut adding.hosts[index];
                    (host.tid, host.aliases, host.resolved) = (tid, aliases, addresses.clone());
                    adding.by_tid.insert(tid, index);
                    let line = host.line.clone().expect("open ones have a line");
                    starts.push(HostStart { index, tid, line, addresses });
                }
                Err(failure) => adding.hosts[index].state = JoinState::Failed(failure),
            }
        }
        self.adding = Some(adding);
        if !starts.is_empty() {
            let by_hoster = core.roles.hoster.is_some();
            core.push(Action::StartHosts { request, hosts: starts, by_hoster });
        }
        self.settle_add(core);
    }

    /// Handles the result of starting the daemon of a host.
    pub fn host_started(&mut self, core: &mut Core, request: u32, index: usize, result: Result<Started, StartFailure>) {
        let Some(adding) = self.adding(request) else { return };
        let Some(host) = adding.hosts.get_mut(index) else { return };
        // A host without a tid cannot have a result yet: the tid is assigned before the daemon is started.
        if !matches!(host.state, JoinState::Starting) || host.tid == Tid::NONE {
            return;
        }
        let started = match result {
            Ok(started) => {
                let known = host.started(started);
                host.entry.iter().for_each(|entry| core.hosts.add_joining(entry.clone()));
                known
            }
            Err(failure) => {
                host.state = JoinState::Failed(failure);
                None
            }
        };
        if let Some((host, key)) = started {
            core.push(Action::KnowHost { host, key });
            core.want_link(host);
        }
        self.settle_add(core);
    }

    /// Fails all hosts whose daemons are being started.
    pub fn fail_starts(&mut self, core: &mut Core, request: u32, code: Code) {
        if let Some(adding) = self.adding(request) {
            for host in adding.hosts.iter_mut().filter(|host| matches!(host.state, JoinState::Starting)) {
                host.state = JoinState::Failed(code.into());
            }
            self.settle_add(core);
        }
    }

    /// Returns the tid and the line of a host whose daemon is to be started.
    pub fn host_to_start(&self, request: u32, index: usize) -> Option<(Tid, &HostLine)> {
        let adding = self.adding.as_ref().filter(|adding| adding.request == request)?;
        let host = adding.hosts.get(index).filter(|host| matches!(host.state, JoinState::Starting))?;
        Some((host.tid, host.line.as_ref()?))
    }

    /// Handles the news that a link is up; a joining host can then join.
    pub(super) fn host_linked(&mut self, core: &mut Core, tid: Tid) {
        if core.hosts.joining(tid).is_none() {
            return;
        }
        let Some(adding) = &mut self.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        if matches!(host.state, JoinState::Started) {
            host.state = JoinState::Linked;
            self.settle_add(core);
        }
    }

    /// Handles the loss of a joining host.
    pub(super) fn host_failed(&mut self, core: &mut Core, tid: Tid, why: &str) {
        let name = core.hosts.name_of(tid);
        core.log(format!("host {name} has not joined: {why}"));
        core.links.remove(tid);
        core.hosts.remove_joining(tid);
        core.push(Action::ForgetHost { host: tid });
        let Some(adding) = &mut self.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        let failure = StartFailure { code: Code::CantStart, reason: why.to_owned() };
        (host.state, host.entry) = (JoinState::Failed(failure), None);
        self.settle_add(core);
    }

    /// When each new host has succeeded or failed, adds those that have succeeded to the table.
    fn settle_add(&mut self, core: &mut Core) {
        if self.adding.as_ref().is_none_or(|adding| adding.unacknowledged.is_some() || adding.is_open()) {
            return;
        }
        let Some(mut adding) = self.adding.take() else { return };
        let added: Vec<HostEntry> = adding.linked().filter_map(|host| host.entry.clone()).collect();
        let new: Vec<Tid> = added.iter().map(|entry| entry.tid).collect();
        if !new.is_empty() {
            broadcast_table_change(core, &added, &[]);
        }
        let version = core.hosts.version;
        core.hosts.forget_joining();
        for host in adding.linked() {
            let Some(entry) = host.entry.clone() else { continue };
            core.hosts.add(entry, false);
            if let Some(record) = core.hosts.record_mut(host.tid) {
                record.resolved = host.resolved.clone();
            }
        }
        let unacknowledged = if new.is_empty() { BTreeSet::new() } else { core.hosts.others().into_iter().collect() };
        let options: Vec<_> = adding.linked().map(|host| (host.tid, host.options())).collect();
        adding.unacknowledged = Some((version, unacknowledged));
        self.adding = Some(adding);
        for (tid, options) in options {
            welcome_host(core, tid, &new, options);
            if let Some(host) = core.deputy {
                core.send_host(tid, Frame::Deputy { host });
            }
        }
        self.finish_add(core);
    }

    /// Handles the news that a host knows the table up to that version.
    pub fn table_acknowledged(&mut self, core: &mut Core, host: Tid, version: u64) {
        core.acks.received_tables(host, version);
        if let Some((wanted, unacknowledged)) = self.adding.as_mut().and_then(|adding| adding.unacknowledged.as_mut()) {
            if version >= *wanted {
                unacknowledged.remove(&host);
                self.finish_add(core);
            }
        }
    }

    /// Handles the removal of a host: its acknowledgement is no longer awaited.
    pub(super) fn host_gone(&mut self, core: &mut Core, tid: Tid) {
        let Some(adding) = &mut self.adding else { return };
        if let Some(index) = adding.by_tid.get(&tid) {
            adding.hosts[*index].state = JoinState::Failed(Code::CantStart.into());
        }
        if let Some((_, unacknowledged)) = &mut adding.unacknowledged {
            unacknowledged.remove(&tid);
            self.finish_add(core);
        }
    }

    /// Finishes an add when all hosts have acknowledged the table.
    fn finish_add(&mut self, core: &mut Core) {
        let ready = |adding: &PendingAdd| {
            adding.unacknowledged.as_ref().is_some_and(|(_, unacknowledged)| unacknowledged.is_empty())
        };
        if !self.adding.as_ref().is_some_and(ready) {
            return;
        }
        let Some(adding) = self.adding.take() else { return };
        let new: Vec<Tid> = adding.linked().map(|host| host.tid).collect();
        self.joined = Some(adding);
        if new.is_empty() {
            return self.answer_add(core);
        }
        for host in core.hosts.others() {
            core.send_host(host, Frame::Joined { hosts: new.clone() });
        }
        hosts_joined(core, &new);
    }

    /// Answers an add whose hosts have joined, after the notifies about them have been sent.
    pub(super) fn answer_add(&mut self, core: &mut Core) {
        let Some(adding) = self.joined.take() else { return };
        match adding.asker {
            Asker::Daemon => adding.hosts.iter().for_each(|host| self.log_failure(core, host)),
            Asker::Task { tid, wait } => {
                let count = adding.linked().count() as i32;
                let hosts = adding.hosts.iter().map(JoiningHost::number).collect();
                let reasons = adding.hosts.iter().map(JoiningHost::reason).collect();
                core.reply(tid, wait, Ok(Reply::AddedHosts { count, hosts, reasons }));
            }
            Asker::Manager { tid, wid, ctx } => {
                let body = Writer::new().int(adding.hosts.len() as i32);
                let body = adding.hosts.iter().fold(body, |body, host| host.describe(body));
                core.tell(tid, ctx, SM_ADDACK, wid, body.finish());
            }
        }
        self.answer_add_waiters(core);
    }

    /// Returns the failures of the hosts of the hostfile that no task has asked for.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }
    pub(super) fn set_failures(&mut self, failures: Vec<String>) {
        self.failures = failures;
    }

    /// Logs the failure of a host of the hostfile, and keeps the failure for the first task that asks.
    fn log_failure(&mut self, core: &mut Core, host: &JoiningHost) {
        let (Some(line), JoinState::Failed(failure)) = (&host.line, &host.state) else { return };
        let mut text = format!("host {}: {}", line.name(), failure.code);
        match failure.reason.as_str() {
            "" => core.log(text.clone()),
            // A failure with a reason was logged when it happened.
            reason => text = format!("{text}\n{reason}"),
        }
        self.failures.push(text);
        core.changes.machine = true;
    }

    /// Answers the task as soon as no add is in progress.
    pub fn await_hosts(&mut self, core: &mut Core, from: Tid, wait: u32) {
        self.add_waiters.push((from, wait));
        self.answer_add_waiters(core);
    }

    /// Answers the tasks that wait for the end of the add, if it has ended.
    fn answer_add_waiters(&mut self, core: &mut Core) {
        if self.is_idle() {
            for (tid, wait) in std::mem::take(&mut self.add_waiters) {
                let failures = std::mem::take(&mut self.failures);
                core.changes.machine |= !failures.is_empty();
                core.reply(tid, wait, Ok(Reply::Failures(failures)));
            }
        }
    }

    /// Fails an add as a whole, and abandons the daemons that it has started.
    pub(super) fn fail(&mut self, core: &mut Core, code: Code) {
        let Some(adding) = self.adding.take() else { return };
        for host in adding.hosts.iter().filter(|host| matches!(host.state, JoinState::Started | JoinState::Linked)) {
            core.links.remove(host.tid);
            core.push(Action::ForgetHost { host: host.tid });
        }
        core.hosts.forget_joining();
        refuse_add(core, adding.asker, code);
        self.answer_add_waiters(core);
    }
}

/// Sends the table and the shared settings to a new host.
fn welcome_host(core: &mut Core, tid: Tid, new: &[Tid], options: HostOptions) {
    let shared = MachineSettings {
        host_timeout_ms: core.settings.host_timeout.as_millis() as u64,
        halt_grace_ms: core.settings.halt_grace.as_millis() as u64,
        trusted: core.settings.trusted,
        servers: core.roles.common(),
        debug_mask: core.debug_mask,
        host_watches: core.settings.limits.host_watches as u64,
        pacing: core.settings.pacing,
        barrier_broadcast_hosts: u32::try_from(core.settings.barrier_broadcast_hosts).unwrap_or(u32::MAX),
        broadcast: core.settings.broadcast,
        fabric: core.settings.fabric.clone(),
        order: core.settings.order,
    };
    let (version, hosts) = (core.hosts.version, core.hosts.entries());
    let joining = new.to_vec();
    core.acks.expect(tid, Ack::Table(version), core.now);
    core.send_host(tid, Frame::Welcome { wire: wire::VERSION, version, hosts, joining, shared, options });
}

/// Makes new hosts usable, because all hosts know them now.
pub(in crate::machine) fn hosts_joined(core: &mut Core, hosts: &[Tid]) {
    for host in hosts {
        if let Some(record) = core.hosts.record_mut(*host) {
            record.joined = true;
        }
    }
    core.changes.table = true;
    core.raise(Event::HostsJoined(hosts.to_vec()));
}

/// Returns the deadline for the master to connect to this host, if the master has not connected yet.
pub(super) fn waits_for_master(core: &Core) -> Option<Time> {
    let waits = matches!(core.settings.rank, Rank::Slave { .. })
        && !core.hosts.is_welcomed()
        && !core.links.has_session(core.hosts.master())
        && !core.halting;
    waits.then_some(WELCOME_WAIT)
}

/// Answers an add that fails as a whole.
pub(super) fn refuse_add(core: &mut Core, asker: Asker, code: Code) {
    match asker {
        Asker::Daemon => core.log(format!("no hosts are added: {code}")),
        Asker::Task { tid, wait } => core.reply(tid, wait, Err(code)),
        Asker::Manager { tid, wid, ctx } => {
            core.tell(tid, ctx, SM_ADDACK, wid, Writer::new().int(code.number()).finish());
        }
    }
}

/// Assigns a tid to a host, unless it belongs to the machine or is being added.
fn assign_number(
    core: &mut Core,
    adding: &PendingAdd,
    index: usize,
    checked: Result<ResolvedHost, Code>,
) -> Result<(Tid, ResolvedHost), StartFailure> {
    let line = adding.hosts[index].line.as_ref().ok_or(Code::BadParam)?;
    let own_name = || core.hosts.plain_name_of(core.own_host());
    let checked = match checked {
        // A second daemon may run even on the master's computer, at the same address.
        Err(Code::DupHost) if line.overload => ResolvedHost::default(),
        Err(Code::DupHost) => return Err(already_known(&own_name())),
        // A host whose name is in the table already is recognized even if the name cannot be resolved.
        Err(_) if !line.overload && core.hosts.find(line.name().as_bytes()).is_some() => ResolvedHost::default(),
        other => other?,
    };
    let taken = |host: &JoiningHost| host.tid != Tid::NONE && !matches!(host.state, JoinState::Failed(_));
    let meets = |host: &JoiningHost| {
        host.resolved.iter().any(|address| checked.addresses.contains(address))
            || host.line.as_ref().is_some_and(|other| other.name() == line.name())
    };
    let here = core.hosts.find(line.name().as_bytes()).or_else(|| core.hosts.at_address(&checked.addresses));
    let joining_host = || adding.hosts.iter().find(|host| taken(host) && meets(host))?.line.as_ref();
    let name =
        here.map(|tid| core.hosts.plain_name_of(tid)).or_else(|| joining_host().map(|line| line.name().to_owned()));
    if let Some(name) = name.filter(|_| !line.overload) {
        return Err(already_known(&name));
    }
    let tid = core.hosts.new_number(|tid| adding.by_tid.contains_key(&tid)).ok_or(Code::OutOfRes)?;
    core.changes.machine = true;
    Ok((tid, checked))
}
