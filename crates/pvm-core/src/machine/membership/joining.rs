//! Adding and deleting hosts (contract 2.7): decided by the master, one add at a time.
//!
//! Names are looked up, daemons started, links made, each host for itself. When nothing is open any
//! more, all hosts get to know the new ones, and the new ones all others; when everybody has said so
//! the hosts have joined, all are told, and the add is answered. So nobody ever meets a host that he
//! does not know.
use super::spread;
use crate::codes::{Code, SM_ADDACK, SPEED_DEFAULT};
use crate::encoding::Writer;
use crate::hostfile::{self, HostLine};
use crate::machine::action::{Action, HostStart};
use crate::machine::core::Core;
use crate::machine::event::Event;
use crate::machine::host_table::HOSTS_MAX;
use crate::machine::pending_acks::Ack;
use crate::machine::settings::{Rank, Time};
use crate::proto::{ByteBuf, Reply};
use crate::tid::Tid;
use crate::wire::{self, Checked, Entry, Frame, HostOptions, Shared, StartFailure, Started};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A started daemon that has not heard of its master for so long ends.
pub const WELCOME_WAIT: Duration = Duration::from_secs(60);

/// Who wants hosts added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::machine) enum Asker {
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
struct JoiningHost {
    line: Option<HostLine>,
    fate: Fate,
    tid: Tid,
    resolved: Vec<IpAddr>,
    aliases: Vec<String>,
    /// Known as soon as its daemon runs.
    entry: Option<Entry>,
}

/// An add under way.
struct Adding {
    request: u32,
    asker: Asker,
    hosts: Vec<JoiningHost>,
    by_tid: BTreeMap<Tid, usize>,
    /// Who has not yet said that it knows the table of that version.
    unaware: Option<(u64, BTreeSet<Tid>)>,
}

/// Adds, past and present.
#[derive(Default)]
pub(in crate::machine) struct Joining {
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
    fn linked(&self) -> impl Iterator<Item = &JoiningHost> {
        self.hosts.iter().filter(|host| matches!(host.fate, Fate::Linked))
    }
}

impl JoiningHost {
    fn new(line: Option<HostLine>) -> JoiningHost {
        let fate = if line.is_some() { Fate::Open } else { Fate::Failed(Code::BadParam.into()) };
        JoiningHost { line, fate, tid: Tid::NONE, resolved: Vec::new(), aliases: Vec::new(), entry: None }
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
        self.entry = Some(Entry { tid, name, aliases, arch, speed, dsig, addresses, key });
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

impl Joining {
    pub fn add_hosts(&mut self, core: &mut Core, asker: Asker, names: Vec<ByteBuf>) {
        let refusal = match names.len() {
            0 => Some(Code::BadParam),
            count if count > HOSTS_MAX => Some(Code::BadParam),
            _ if core.halting => Some(Code::SysErr),
            _ if !self.is_idle() => Some(Code::Already),
            _ => None,
        };
        if let Some(code) = refusal {
            return self.refuse_add(core, asker, code);
        }
        let file = &core.settings.hostfile;
        let parse = |line: &ByteBuf| hostfile::parse_host(&String::from_utf8_lossy(line)).ok();
        let lines = names.iter().map(|name| parse(name).map(|line| file.complete(line))).collect();
        self.begin_add(core, asker, lines);
    }

    /// Adds the hosts of the hostfile that are to be started at once.
    pub fn add_hosts_at_start(&mut self, core: &mut Core, lines: Vec<HostLine>) {
        if !lines.is_empty() && self.is_idle() && !core.halting {
            self.begin_add(core, Asker::Daemon, lines.into_iter().map(Some).collect());
        }
    }

    fn begin_add(&mut self, core: &mut Core, asker: Asker, lines: Vec<Option<HostLine>>) {
        self.last_request = self.last_request.wrapping_add(1);
        let request = self.last_request;
        let check = lines.iter().flatten().map(|host| ByteBuf::from(host.address().as_bytes().to_vec())).collect();
        let hosts = lines.into_iter().map(JoiningHost::new).collect();
        self.adding = Some(Adding { request, asker, hosts, by_tid: BTreeMap::new(), unaware: None });
        core.push(Action::CheckHosts { request, names: check });
    }

    fn refuse_add(&mut self, core: &mut Core, asker: Asker, code: Code) {
        match asker {
            Asker::Daemon => core.log(format!("no hosts are added: {code}")),
            Asker::Task { tid, wait } => core.reply(tid, wait, Err(code)),
            Asker::Manager { tid, wid, ctx } => {
                core.tell(tid, ctx, SM_ADDACK, wid, Writer::new().int(code.number()).finish());
            }
        }
    }

    fn adding(&mut self, request: u32) -> Option<&mut Adding> {
        self.adding.as_mut().filter(|adding| adding.request == request)
    }

    /// What became of the names that were to be checked, in their order.
    pub fn hosts_checked(&mut self, core: &mut Core, request: u32, checked: Vec<Result<Checked, Code>>) {
        if self.adding(request).is_none_or(|adding| !adding.by_tid.is_empty()) {
            return;
        }
        let Some(mut adding) = self.adding.take() else { return };
        let mut checked = checked.into_iter();
        let mut starts = Vec::new();
        for index in 0..adding.hosts.len() {
            if !matches!(adding.hosts[index].fate, Fate::Open) {
                continue;
            }
            let result = checked.next().unwrap_or(Err(Code::CantStart));
            match self.place_for(core, &adding, index, result) {
                Ok((tid, Checked { aliases, addresses })) => {
                    let host = &mut adding.hosts[index];
                    (host.tid, host.aliases, host.resolved) = (tid, aliases, addresses.clone());
                    adding.by_tid.insert(tid, index);
                    let line = host.line.clone().expect("open ones have a line");
                    starts.push(HostStart { index, tid, line, addresses });
                }
                Err(failure) => adding.hosts[index].fate = Fate::Failed(failure),
            }
        }
        self.adding = Some(adding);
        if !starts.is_empty() {
            let by_hoster = core.roles.hoster.is_some();
            core.push(Action::StartHosts { request, hosts: starts, by_hoster });
        }
        self.settle_add(core);
    }

    /// A number for a host that is not here yet.
    fn place_for(
        &mut self,
        core: &mut Core,
        adding: &Adding,
        index: usize,
        checked: Result<Checked, Code>,
    ) -> Result<(Tid, Checked), StartFailure> {
        let line = adding.hosts[index].line.as_ref().ok_or(Code::BadParam)?;
        let own_name = || core.hosts.plain_name_of(core.own_host());
        let checked = match checked {
            // It may share even the master's address.
            Err(Code::DupHost) if line.overload => Checked::default(),
            Err(Code::DupHost) => return Err(known_as(&own_name())),
            // A name that is here need not be known elsewhere.
            Err(_) if !line.overload && core.hosts.find(line.name().as_bytes()).is_some() => Checked::default(),
            other => other?,
        };
        let taken = |host: &JoiningHost| host.tid != Tid::NONE && !matches!(host.fate, Fate::Failed(_));
        let meets = |host: &JoiningHost| {
            host.resolved.iter().any(|address| checked.addresses.contains(address))
                || host.line.as_ref().is_some_and(|other| other.name() == line.name())
        };
        let here = core.hosts.find(line.name().as_bytes()).or_else(|| core.hosts.at_address(&checked.addresses));
        let comer = || adding.hosts.iter().find(|host| taken(host) && meets(host))?.line.as_ref();
        let name = here.map(|tid| core.hosts.plain_name_of(tid)).or_else(|| comer().map(|line| line.name().to_owned()));
        if let Some(name) = name.filter(|_| !line.overload) {
            return Err(known_as(&name));
        }
        let tid = core.hosts.new_number(|tid| adding.by_tid.contains_key(&tid)).ok_or(Code::OutOfRes)?;
        Ok((tid, checked))
    }

    /// What became of the start of a host's daemon.
    pub fn host_started(&mut self, core: &mut Core, request: u32, index: usize, result: Result<Started, StartFailure>) {
        let Some(adding) = self.adding(request) else { return };
        let Some(host) = adding.hosts.get_mut(index) else { return };
        // The number shows that it is to be started.
        if !matches!(host.fate, Fate::Open) || host.tid == Tid::NONE {
            return;
        }
        let started = match result {
            Ok(started) => {
                let known = host.started(started);
                host.entry.iter().for_each(|entry| core.hosts.add_joining(entry.clone()));
                known
            }
            Err(failure) => {
                host.fate = Fate::Failed(failure);
                None
            }
        };
        if let Some((host, key)) = started {
            core.push(Action::KnowHost { host, key });
            core.want_link(host);
        }
        self.settle_add(core);
    }

    /// Fails all whose daemons were to be started.
    pub fn fail_starts(&mut self, core: &mut Core, request: u32, code: Code) {
        if let Some(adding) = self.adding(request) {
            for host in adding.hosts.iter_mut().filter(|host| matches!(host.fate, Fate::Open)) {
                host.fate = Fate::Failed(code.into());
            }
            self.settle_add(core);
        }
    }

    /// A host whose daemon is to be started.
    pub fn host_to_start(&self, request: u32, index: usize) -> Option<(Tid, &HostLine)> {
        let adding = self.adding.as_ref().filter(|adding| adding.request == request)?;
        let host = adding.hosts.get(index).filter(|host| matches!(host.fate, Fate::Open))?;
        Some((host.tid, host.line.as_ref()?))
    }

    /// A link stands; if it is that of a joining host, that can join.
    pub fn host_linked(&mut self, core: &mut Core, tid: Tid) {
        if core.hosts.joining(tid).is_none() {
            return;
        }
        let Some(adding) = &mut self.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        if matches!(host.fate, Fate::Started) {
            host.fate = Fate::Linked;
            self.settle_add(core);
        }
    }

    /// A joining host does not answer.
    pub fn host_failed(&mut self, core: &mut Core, tid: Tid, why: &str) {
        let name = core.hosts.name_of(tid);
        core.log(format!("host {name} has not joined: {why}"));
        core.links.remove(tid);
        core.hosts.remove_joining(tid);
        core.push(Action::ForgetHost { host: tid });
        let Some(adding) = &mut self.adding else { return };
        let host = &mut adding.hosts[adding.by_tid[&tid]];
        let failure = StartFailure { code: Code::CantStart, reason: why.to_owned() };
        (host.fate, host.entry) = (Fate::Failed(failure), None);
        self.settle_add(core);
    }

    /// Lets the new hosts in when nothing is open any more.
    fn settle_add(&mut self, core: &mut Core) {
        if self.adding.as_ref().is_none_or(|adding| adding.unaware.is_some() || adding.is_open()) {
            return;
        }
        let Some(mut adding) = self.adding.take() else { return };
        let added: Vec<Entry> = adding.linked().filter_map(|host| host.entry.clone()).collect();
        let new: Vec<Tid> = added.iter().map(|entry| entry.tid).collect();
        if !new.is_empty() {
            spread(core, &added, &[]);
        }
        let version = core.hosts.version;
        core.hosts.forget_joining();
        for host in adding.linked() {
            let Some(entry) = host.entry.clone() else { continue };
            core.hosts.add(entry, false);
            if let Some(member) = core.hosts.member_mut(host.tid) {
                member.resolved = host.resolved.clone();
            }
        }
        let unaware = if new.is_empty() { BTreeSet::new() } else { core.hosts.others().into_iter().collect() };
        let options: Vec<_> = adding.linked().map(|host| (host.tid, host.options())).collect();
        adding.unaware = Some((version, unaware));
        self.adding = Some(adding);
        for (tid, options) in options {
            welcome_host(core, tid, &new, options);
        }
        self.finish_add(core);
    }

    /// A host knows the table up to that change.
    pub fn table_known(&mut self, core: &mut Core, host: Tid, version: u64) {
        core.acks.received_tables(host, version);
        if let Some((wanted, unaware)) = self.adding.as_mut().and_then(|adding| adding.unaware.as_mut()) {
            if version >= *wanted {
                unaware.remove(&host);
                self.finish_add(core);
            }
        }
    }

    /// A host has been removed: nobody waits for its word.
    pub fn host_gone(&mut self, core: &mut Core, tid: Tid) {
        let Some(adding) = &mut self.adding else { return };
        if let Some(index) = adding.by_tid.get(&tid) {
            adding.hosts[*index].fate = Fate::Failed(Code::CantStart.into());
        }
        if let Some((_, unaware)) = &mut adding.unaware {
            unaware.remove(&tid);
            self.finish_add(core);
        }
    }

    /// Answers an add when everybody knows.
    fn finish_add(&mut self, core: &mut Core) {
        let ready = |adding: &Adding| adding.unaware.as_ref().is_some_and(|(_, unaware)| unaware.is_empty());
        if !self.adding.as_ref().is_some_and(ready) {
            return;
        }
        let Some(adding) = self.adding.take() else { return };
        let new: Vec<Tid> = adding.linked().map(|host| host.tid).collect();
        if !new.is_empty() {
            for host in core.hosts.others() {
                core.send_host(host, Frame::Joined { hosts: new.clone() });
            }
            hosts_joined(core, &new);
        }
        match adding.asker {
            Asker::Daemon => adding.hosts.iter().for_each(|host| self.log_failure(core, host)),
            Asker::Task { tid, wait } => {
                let count = new.len() as i32;
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
        self.no_add_is_under_way(core);
    }

    fn log_failure(&mut self, core: &mut Core, host: &JoiningHost) {
        let (Some(line), Fate::Failed(failure)) = (&host.line, &host.fate) else { return };
        let mut text = format!("host {}: {}", line.name(), failure.code);
        match failure.reason.as_str() {
            "" => core.log(text.clone()),
            // It was logged when it came.
            reason => text = format!("{text}\n{reason}"),
        }
        self.failures.push(text);
    }

    /// Answers as soon as no add is under way.
    pub fn await_hosts(&mut self, core: &mut Core, from: Tid, wait: u32) {
        self.awaiting.push((from, wait));
        self.no_add_is_under_way(core);
    }

    fn no_add_is_under_way(&mut self, core: &mut Core) {
        if self.is_idle() {
            for (tid, wait) in std::mem::take(&mut self.awaiting) {
                let failures = std::mem::take(&mut self.failures);
                core.reply(tid, wait, Ok(Reply::Failures(failures)));
            }
        }
    }

    /// Fails an add as a whole; what has been started is let go.
    pub fn fail(&mut self, core: &mut Core, code: Code) {
        let Some(adding) = self.adding.take() else { return };
        for host in adding.hosts.iter().filter(|host| matches!(host.fate, Fate::Started | Fate::Linked)) {
            core.links.remove(host.tid);
            core.push(Action::ForgetHost { host: host.tid });
        }
        core.hosts.forget_joining();
        self.refuse_add(core, adding.asker, code);
        self.no_add_is_under_way(core);
    }
}

fn welcome_host(core: &mut Core, tid: Tid, new: &[Tid], options: HostOptions) {
    let shared = Shared {
        host_timeout_ms: core.settings.host_timeout.as_millis() as u64,
        trusted: core.settings.trusted,
        servers: core.roles.common(),
        debug_mask: core.debug_mask,
        host_watches: core.settings.limits.host_watches as u64,
    };
    let (version, hosts) = (core.hosts.version, core.hosts.entries());
    let joining = new.to_vec();
    core.acks.expect(tid, Ack::Table(version), core.now);
    core.send_host(tid, Frame::Welcome { wire: wire::VERSION, version, hosts, joining, shared, options });
}

/// Everybody knows these hosts now.
pub(in crate::machine) fn hosts_joined(core: &mut Core, hosts: &[Tid]) {
    for host in hosts {
        if let Some(member) = core.hosts.member_mut(*host) {
            member.joined = true;
        }
    }
    core.raise(Event::HostsJoined(hosts.to_vec()));
}

/// Until when the master has to have connected to this host, if it has not.
pub(super) fn waits_for_master(core: &Core) -> Option<Time> {
    let waits = matches!(core.settings.rank, Rank::Slave { .. })
        && !core.hosts.is_welcomed()
        && !core.links.is_up(core.hosts.master())
        && !core.halting;
    waits.then_some(WELCOME_WAIT)
}

impl JoiningHost {
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
