//! Adding and deleting hosts (contract 2.7): decided by the master, one add at a time.
//!
//! Names are looked up, daemons started, links made, each host for itself. When nothing is open any
//! more, all hosts get to know the new ones, and the new ones all others; when everybody has said so
//! the hosts have joined, all are told, and the add is answered. So nobody ever meets a host that he
//! does not know.
use super::debts::Debt;
use super::hosts::HOSTS_MAX;
use super::{Action, HostStart, Machine, Rank, Time};
use crate::codes::{Code, SM_ADDACK, SPEED_DEFAULT};
use crate::encoding::Writer;
use crate::hostfile::{self, HostLine};
use crate::proto::{ByteBuf, Reply};
use crate::tid::Tid;
use crate::wire::{self, Frame, HostEntry, HostOptions, MachineSettings, ResolvedHost, StartFailure, Started};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A started daemon that has not heard of its master for so long ends.
pub const WELCOME_WAIT: Duration = Duration::from_secs(60);

/// Who wants hosts added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The daemon itself, for the hosts of its hostfile.
    Daemon,
    Task {
        tid: Tid,
        wait: u32,
    },
    Manager {
        tid: Tid,
        wid: i32,
        ctx: i32,
    },
}

/// What is known of a name.
enum Fate {
    /// It is looked up, or its daemon is being started.
    Open,
    /// The daemon runs, there is no link yet.
    Started,
    Linked,
    Failed(StartFailure),
}

/// A host that is to be added.
struct Newcomer {
    line: Option<HostLine>,
    fate: Fate,
    tid: Tid,
    resolved: Vec<IpAddr>,
    aliases: Vec<String>,
    /// Known as soon as its daemon runs.
    entry: Option<HostEntry>,
}

/// An add under way.
pub(super) struct Adding {
    request: u32,
    asker: Asker,
    hosts: Vec<Newcomer>,
    by_tid: BTreeMap<Tid, usize>,
    /// Who has not yet said that it knows the table of that version.
    unaware: Option<(u64, BTreeSet<Tid>)>,
}

/// Adds, past and present.
#[derive(Default)]
pub(super) struct Joining {
    last_request: u32,
    adding: Option<Adding>,
    /// Who wants to know when no add is under way any more.
    awaiting: Vec<(Tid, u32)>,
    /// What went wrong with the hosts of the hostfile; the first who asks is told.
    failures: Vec<String>,
}

impl Joining {
    pub fn is_idle(&self) -> bool {
        self.adding.is_none()
    }
}

impl Adding {
    fn is_open(&self) -> bool {
        self.hosts.iter().any(|host| matches!(host.fate, Fate::Open | Fate::Started))
    }
    fn linked(&self) -> impl Iterator<Item = &Newcomer> {
        self.hosts.iter().filter(|host| matches!(host.fate, Fate::Linked))
    }
}

impl Newcomer {
    fn new(line: Option<HostLine>) -> Newcomer {
        let fate = if line.is_some() { Fate::Open } else { Fate::Failed(Code::BadParam.into()) };
        Newcomer { line, fate, tid: Tid::NONE, resolved: Vec::new(), aliases: Vec::new(), entry: None }
    }
    /// Its daemon runs; gives its number and key.
    fn started(&mut self, started: Started) -> Option<(Tid, wire::Key)> {
        let line = self.line.as_ref()?;
        let Started { arch, dsig, mut addresses, key, names } = started;
        // The one by which it was started is the best.
        addresses.sort_by_key(|address| !self.resolved.contains(&address.ip()));
        let mut aliases = std::mem::take(&mut self.aliases);
        aliases.extend(self.resolved.iter().map(IpAddr::to_string).chain(names));
        let speed = line.options.speed.unwrap_or(SPEED_DEFAULT);
        let (tid, name) = (self.tid, line.name().to_owned());
        self.entry = Some(HostEntry { tid, name, aliases, arch, speed, dsig, addresses, key });
        self.fate = Fate::Started;
        Some((tid, key))
    }
    fn options(&self) -> HostOptions {
        let options = self.line.as_ref().map(|line| line.options.clone()).unwrap_or_default();
        HostOptions { path: options.path, directory: options.directory, debugger: options.debugger }
    }
}

/// The reason why a host is not added: it is in the machine already. The name that the machine has for it follows.
pub const KNOWN_AS: &str = "it is in the machine already, as ";

fn known_as(name: &str) -> StartFailure {
    let reason = format!("{KNOWN_AS}{name}\ntry: $NAME for a second pvmd on the same host");
    StartFailure { code: Code::DupHost, reason }
}

impl Machine {
    pub(super) fn add_hosts(&mut self, asker: Asker, names: Vec<ByteBuf>) {
        let refusal = match names.len() {
            0 => Some(Code::BadParam),
            count if count > HOSTS_MAX => Some(Code::BadParam),
            _ if self.control.halting() => Some(Code::SysErr),
            _ if !self.joining.is_idle() => Some(Code::Already),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.refuse_add(asker, code);
        }
        let file = &self.settings.hostfile;
        let parse = |line: &ByteBuf| hostfile::parse_host(&String::from_utf8_lossy(line)).ok();
        let lines = names.iter().map(|name| parse(name).map(|line| file.complete(line))).collect();
        self.begin_add(asker, lines);
    }

    /// Adds the hosts of the hostfile that are to be started at once.
    pub fn add_hosts_at_start(&mut self, lines: Vec<HostLine>) {
        if !lines.is_empty() && self.joining.is_idle() && !self.control.halting() {
            self.begin_add(Asker::Daemon, lines.into_iter().map(Some).collect());
        }
    }

    fn begin_add(&mut self, asker: Asker, lines: Vec<Option<HostLine>>) {
        self.joining.last_request = self.joining.last_request.wrapping_add(1);
        let request = self.joining.last_request;
        let check = lines.iter().flatten().map(|host| ByteBuf::from(host.address().as_bytes().to_vec())).collect();
        let hosts = lines.into_iter().map(Newcomer::new).collect();
        self.joining.adding = Some(Adding { request, asker, hosts, by_tid: BTreeMap::new(), unaware: None });
        self.actions.push_back(Action::CheckHosts { request, names: check });
    }

    fn refuse_add(&mut self, asker: Asker, code: Code) {
        match asker {
            Asker::Daemon => self.log(format!("no hosts are added: {code}")),
            Asker::Task { tid, wait } => self.reply(tid, wait, Err(code)),
            Asker::Manager { tid, wid, ctx } => {
                self.tell(tid, ctx, SM_ADDACK, wid, Writer::new().int(code.number()).finish());
            }
        }
    }

    fn adding(&mut self, request: u32) -> Option<&mut Adding> {
        self.joining.adding.as_mut().filter(|adding| adding.request == request)
    }

    /// What became of the names that were to be checked, in their order.
    pub fn handle_hosts_checked(&mut self, request: u32, checked: Vec<Result<ResolvedHost, Code>>) {
        if self.adding(request).is_none_or(|adding| !adding.by_tid.is_empty()) {
            return;
        }
        let Some(mut adding) = self.joining.adding.take() else { return };
        let mut checked = checked.into_iter();
        let mut starts = Vec::new();
        for index in 0..adding.hosts.len() {
            if !matches!(adding.hosts[index].fate, Fate::Open) {
                continue;
            }
            let result = checked.next().unwrap_or(Err(Code::CantStart));
            match self.place_for(&adding, index, result) {
                Ok((tid, ResolvedHost { aliases, addresses })) => {
                    let host = &mut adding.hosts[index];
                    (host.tid, host.aliases, host.resolved) = (tid, aliases, addresses.clone());
                    adding.by_tid.insert(tid, index);
                    let line = host.line.clone().expect("open ones have a line");
                    starts.push(HostStart { index, tid, line, addresses });
                }
                Err(failure) => adding.hosts[index].fate = Fate::Failed(failure),
            }
        }
        self.joining.adding = Some(adding);
        if !starts.is_empty() {
            let by_hoster = self.servers.hoster.is_some();
            self.actions.push_back(Action::StartHosts { request, hosts: starts, by_hoster });
        }
        self.settle_add();
    }

    /// A number for a host that is not here yet.
    fn place_for(
        &mut self,
        adding: &Adding,
        index: usize,
        checked: Result<ResolvedHost, Code>,
    ) -> Result<(Tid, ResolvedHost), StartFailure> {
        let line = adding.hosts[index].line.as_ref().ok_or(Code::BadParam)?;
        let own_name = || self.plain_name_of(self.own_host());
        let checked = match checked {
            // It may share even the master's address.
            Err(Code::DupHost) if line.overload => ResolvedHost::default(),
            Err(Code::DupHost) => return Err(known_as(&own_name())),
            // A name that is here need not be known elsewhere.
            Err(_) if !line.overload && self.hosts.find(line.name().as_bytes()).is_some() => ResolvedHost::default(),
            other => other?,
        };
        let taken = |host: &Newcomer| host.tid != Tid::NONE && !matches!(host.fate, Fate::Failed(_));
        let meets = |host: &Newcomer| {
            host.resolved.iter().any(|address| checked.addresses.contains(address))
                || host.line.as_ref().is_some_and(|other| other.name() == line.name())
        };
        let here = self.hosts.find(line.name().as_bytes()).or_else(|| self.hosts.at_address(&checked.addresses));
        let comer = || adding.hosts.iter().find(|host| taken(host) && meets(host))?.line.as_ref();
        let name = here.map(|tid| self.plain_name_of(tid)).or_else(|| comer().map(|line| line.name().to_owned()));
        if let Some(name) = name.filter(|_| !line.overload) {
            return Err(known_as(&name));
        }
        let tid = self.hosts.new_number(|tid| adding.by_tid.contains_key(&tid)).ok_or(Code::OutOfRes)?;
        Ok((tid, checked))
    }

    /// What became of the start of a host's daemon.
    pub fn handle_host_started(
        &mut self,
        now: Time,
        request: u32,
        index: usize,
        result: Result<Started, StartFailure>,
    ) {
        self.pass(now);
        let Some(adding) = self.adding(request) else { return };
        let Some(host) = adding.hosts.get_mut(index) else { return };
        // The number shows that it is to be started.
        if !matches!(host.fate, Fate::Open) || host.tid == Tid::NONE {
            return;
        }
        let started = match result {
            Ok(started) => host.started(started),
            Err(failure) => {
                host.fate = Fate::Failed(failure);
                None
            }
        };
        if let Some((host, key)) = started {
            self.actions.push_back(Action::KnowHost { host, key });
            self.want_link(now, host);
        }
        self.settle_add();
    }

    /// Fails all whose daemons were to be started.
    pub(super) fn fail_starts(&mut self, request: u32, code: Code) {
        if let Some(adding) = self.adding(request) {
            for host in adding.hosts.iter_mut().filter(|host| matches!(host.fate, Fate::Open)) {
                host.fate = Fate::Failed(code.into());
            }
            self.settle_add();
        }
    }

    /// A host whose daemon is to be started.
    pub(super) fn host_to_start(&self, request: u32, index: usize) -> Option<(Tid, &HostLine)> {
        let adding = self.joining.adding.as_ref().filter(|adding| adding.request == request)?;
        let host = adding.hosts.get(index).filter(|host| matches!(host.fate, Fate::Open))?;
        Some((host.tid, host.line.as_ref()?))
    }

    /// A host of which not all know yet.
    pub(super) fn comer(&self, tid: Tid) -> Option<&HostEntry> {
        let adding = self.joining.adding.as_ref().filter(|adding| adding.unaware.is_none())?;
        adding.hosts.get(*adding.by_tid.get(&tid)?)?.entry.as_ref()
    }

    /// A link stands; if it is that of a newcomer, it can join.
    pub(super) fn host_linked(&mut self, tid: Tid) {
        if self.comer(tid).is_none() {
            return;
        }
        let Some(adding) = &mut self.joining.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        if matches!(host.fate, Fate::Started) {
            host.fate = Fate::Linked;
            self.settle_add();
        }
    }

    /// A newcomer does not answer.
    pub(super) fn comer_failed(&mut self, tid: Tid, why: &str) {
        let name = self.name_of(tid);
        self.log(format!("host {name} has not joined: {why}"));
        self.links.remove(tid);
        self.actions.push_back(Action::ForgetHost { host: tid });
        let Some(adding) = &mut self.joining.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        let failure = StartFailure { code: Code::CantStart, reason: why.to_owned() };
        (host.fate, host.entry) = (Fate::Failed(failure), None);
        self.settle_add();
    }

    /// Lets the new hosts in when nothing is open any more.
    fn settle_add(&mut self) {
        if self.joining.adding.as_ref().is_none_or(|adding| adding.unaware.is_some() || adding.is_open()) {
            return;
        }
        let Some(mut adding) = self.joining.adding.take() else { return };
        let added: Vec<HostEntry> = adding.linked().filter_map(|host| host.entry.clone()).collect();
        let new: Vec<Tid> = added.iter().map(|entry| entry.tid).collect();
        if !new.is_empty() {
            self.spread(&added, &[]);
        }
        let version = self.hosts.version;
        for host in adding.linked() {
            let Some(entry) = host.entry.clone() else { continue };
            self.hosts.add(entry, false);
            if let Some(member) = self.hosts.member_mut(host.tid) {
                member.resolved = host.resolved.clone();
            }
        }
        let unaware = if new.is_empty() { BTreeSet::new() } else { self.hosts.others().into_iter().collect() };
        let options: Vec<_> = adding.linked().map(|host| (host.tid, host.options())).collect();
        adding.unaware = Some((version, unaware));
        self.joining.adding = Some(adding);
        for (tid, options) in options {
            self.welcome_host(tid, &new, options);
        }
        self.finish_add();
    }

    fn welcome_host(&mut self, tid: Tid, new: &[Tid], options: HostOptions) {
        let shared = MachineSettings {
            host_timeout_ms: self.settings.host_timeout.as_millis() as u64,
            trusted: self.settings.trusted,
            servers: self.common_servers(),
            debug_mask: self.debug_mask(),
            host_watches: self.settings.limits.host_watches as u64,
        };
        let (version, hosts) = (self.hosts.version, self.hosts.entries());
        let joining = new.to_vec();
        self.debts.owe(tid, Debt::Table(version), self.now);
        self.send_host(tid, Frame::Welcome { wire: wire::VERSION, version, hosts, joining, shared, options });
    }

    /// A host knows the table up to that change.
    pub(super) fn table_known(&mut self, host: Tid, version: u64) {
        self.debts.pay_tables(host, version);
        if let Some((wanted, unaware)) = self.joining.adding.as_mut().and_then(|adding| adding.unaware.as_mut()) {
            if version >= *wanted {
                unaware.remove(&host);
                self.finish_add();
            }
        }
    }

    /// A host has been removed: nobody waits for its word.
    pub(super) fn newcomer_gone(&mut self, tid: Tid) {
        let Some(adding) = &mut self.joining.adding else { return };
        if let Some(index) = adding.by_tid.get(&tid) {
            adding.hosts[*index].fate = Fate::Failed(Code::CantStart.into());
        }
        if let Some((_, unaware)) = &mut adding.unaware {
            unaware.remove(&tid);
            self.finish_add();
        }
    }

    /// Answers an add when everybody knows.
    fn finish_add(&mut self) {
        let ready = |adding: &Adding| adding.unaware.as_ref().is_some_and(|(_, unaware)| unaware.is_empty());
        if !self.joining.adding.as_ref().is_some_and(ready) {
            return;
        }
        let Some(adding) = self.joining.adding.take() else { return };
        let new: Vec<Tid> = adding.linked().map(|host| host.tid).collect();
        if !new.is_empty() {
            for host in self.hosts.others() {
                self.send_host(host, Frame::Joined { hosts: new.clone() });
            }
            self.hosts_joined(&new);
        }
        match adding.asker {
            Asker::Daemon => adding.hosts.iter().for_each(|host| self.log_failure(host)),
            Asker::Task { tid, wait } => {
                let count = new.len() as i32;
                let hosts = adding.hosts.iter().map(Newcomer::number).collect();
                let reasons = adding.hosts.iter().map(Newcomer::reason).collect();
                self.reply(tid, wait, Ok(Reply::AddedHosts { count, hosts, reasons }));
            }
            Asker::Manager { tid, wid, ctx } => {
                let body = Writer::new().int(adding.hosts.len() as i32);
                let body = adding.hosts.iter().fold(body, |body, host| host.describe(body));
                self.tell(tid, ctx, SM_ADDACK, wid, body.finish());
            }
        }
        self.no_add_is_under_way();
    }

    fn log_failure(&mut self, host: &Newcomer) {
        let (Some(line), Fate::Failed(failure)) = (&host.line, &host.fate) else { return };
        let mut text = format!("host {}: {}", line.name(), failure.code);
        match failure.reason.as_str() {
            "" => self.log(text.clone()),
            // It was logged when it came.
            reason => text = format!("{text}\n{reason}"),
        }
        self.joining.failures.push(text);
    }

    /// Answers as soon as no add is under way.
    pub(super) fn await_hosts(&mut self, from: Tid, wait: u32) {
        self.joining.awaiting.push((from, wait));
        self.no_add_is_under_way();
    }

    fn no_add_is_under_way(&mut self) {
        if self.joining.is_idle() {
            for (tid, wait) in std::mem::take(&mut self.joining.awaiting) {
                let failures = std::mem::take(&mut self.joining.failures);
                self.reply(tid, wait, Ok(Reply::Failures(failures)));
            }
        }
    }

    /// Fails an add as a whole; what has been started is let go.
    pub(super) fn fail_add(&mut self, code: Code) {
        let Some(adding) = self.joining.adding.take() else { return };
        for host in adding.hosts.iter().filter(|host| matches!(host.fate, Fate::Started | Fate::Linked)) {
            self.links.remove(host.tid);
            self.actions.push_back(Action::ForgetHost { host: host.tid });
        }
        self.refuse_add(adding.asker, code);
        self.no_add_is_under_way();
    }

    /// Everybody knows these hosts now.
    pub(super) fn hosts_joined(&mut self, hosts: &[Tid]) {
        for host in hosts {
            if let Some(member) = self.hosts.member_mut(*host) {
                member.joined = true;
            }
        }
        self.announce_hosts(hosts);
    }

    // ----- the new host

    /// The master lets this host in.
    pub(super) fn welcomed(
        &mut self,
        version: u64,
        hosts: Vec<HostEntry>,
        joining: &[Tid],
        shared: MachineSettings,
        options: HostOptions,
    ) {
        let (own, master) = (self.own_host(), self.hosts.master());
        for entry in hosts.iter().filter(|entry| entry.tid != own && entry.tid != master) {
            self.actions.push_back(Action::KnowHost { host: entry.tid, key: entry.key });
        }
        self.hosts.replace(hosts, joining);
        self.hosts.version = version;
        self.settings.host_timeout = Duration::from_millis(shared.host_timeout_ms);
        self.settings.trusted = shared.trusted;
        self.settings.limits.host_watches = usize::try_from(shared.host_watches).unwrap_or(usize::MAX);
        self.set_debug_mask(shared.debug_mask);
        self.actions.push_back(Action::Joined { shared: shared.clone(), options });
        self.servers_changed(shared.servers);
        self.send_host(master, Frame::TableAck { version });
    }

    /// A slave whose master never comes.
    pub(super) fn look_for_master(&mut self) {
        if self.waits_for_master().is_some_and(|when| self.now >= when) {
            self.lose_master("it has not connected");
        }
    }

    /// Until when the master has to have connected, if it has not.
    pub(super) fn waits_for_master(&self) -> Option<Time> {
        let waits = matches!(self.settings.rank, Rank::Slave { .. })
            && !self.hosts.is_welcomed()
            && !self.links.is_up(self.hosts.master())
            && !self.control.halting();
        waits.then_some(WELCOME_WAIT)
    }

    // ----- deleting

    pub(super) fn delete_hosts(&mut self, from: Tid, wait: u32, names: &[ByteBuf]) {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return self.reply(from, wait, Err(Code::BadParam));
        }
        let (own, mut seen) = (self.own_host(), BTreeSet::new());
        let mut code = |name: &ByteBuf| match self.hosts.find(name) {
            None => Code::NoHost.number(),
            Some(tid) if !seen.insert(tid) => Code::DupHost.number(),
            Some(tid) if tid == own => Code::BadParam.number(),
            Some(_) => 0,
        };
        let codes: Vec<i32> = names.iter().map(&mut code).collect();
        self.reply(from, wait, Ok(Reply::Codes(codes)));
        for host in seen.into_iter().filter(|host| *host != own) {
            let name = self.name_of(host);
            self.log(format!("host {name} is deleted"));
            self.send_host(host, Frame::Leave);
            self.remove_host(host);
        }
    }
}

impl Newcomer {
    /// The host's tid, or why there is none.
    fn number(&self) -> i32 {
        match self.fate {
            Fate::Linked => self.tid.0 as i32,
            Fate::Failed(ref failure) => failure.code.number(),
            Fate::Open | Fate::Started => Code::CantStart.number(),
        }
    }

    fn reason(&self) -> String {
        match &self.fate {
            Fate::Failed(failure) => failure.reason.clone(),
            _ => String::new(),
        }
    }

    fn describe(&self, body: Writer) -> Writer {
        let body = body.int(self.number());
        match &self.entry {
            Some(entry) if matches!(self.fate, Fate::Linked) => {
                let body = body.string(entry.name.as_bytes()).string(entry.arch.as_bytes());
                body.int(entry.speed).int(entry.dsig)
            }
            _ => body.string(b"").string(b"").int(0).int(0),
        }
    }
}
