//! The host table; adding and deleting hosts (contract 2.7).
use super::{Action, Machine};
use crate::codes::{Code, SM_ADDACK};
use crate::encoding::Writer;
use crate::hostfile;
use crate::proto::{ByteBuf, Host, Reply};
use crate::tid::{HOST_MASK, HOST_SHIFT, Tid};
use crate::wire::Checked;
use std::collections::{BTreeMap, BTreeSet};

/// A machine has this many hosts at most.
pub const HOSTS_MAX: usize = (HOST_MASK >> HOST_SHIFT) as usize;
/// The number of the first host.
const FIRST: u32 = 1;

/// What `pvm_config` says of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct HostSettings {
    pub name: String,
    pub arch: String,
    pub speed: i32,
    pub dsig: i32,
}

/// Who wants hosts added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    Task { tid: Tid, wait: u32 },
    Manager { tid: Tid, wid: i32, ctx: i32 },
}

/// An add under way: what is known of each name so far.
pub(super) struct Adding {
    pub request: u32,
    pub asker: Asker,
    pub names: Vec<ByteBuf>,
    pub results: Vec<Option<Code>>,
}

/// The hosts of the machine.
pub(super) struct Hosts {
    own: Tid,
    table: BTreeMap<Tid, HostSettings>,
    last_request: u32,
    pub adding: Option<Adding>,
}

impl Hosts {
    pub fn new(host: HostSettings) -> Hosts {
        let own = Tid::host_number(FIRST);
        Hosts { own, table: BTreeMap::from([(own, host)]), last_request: 0, adding: None }
    }
    pub fn own(&self) -> Tid {
        self.own
    }
    pub fn tids(&self) -> impl Iterator<Item = Tid> + '_ {
        self.table.keys().copied()
    }
    /// Whether the host of that tid belongs to the machine.
    pub fn is_here(&self, tid: Tid) -> bool {
        self.table.contains_key(&tid.host())
    }
    pub fn is_arch(&self, tid: Tid, arch: &[u8]) -> bool {
        self.table.get(&tid).is_some_and(|host| host.arch.as_bytes() == arch)
    }
    /// Whether the host goes by that name; `.` is the own one.
    pub fn is_named(&self, tid: Tid, name: &[u8]) -> bool {
        match name {
            b"." => tid == self.own,
            _ => self.table.get(&tid).is_some_and(|host| host.name.as_bytes() == name),
        }
    }
    fn find(&self, name: &[u8]) -> Option<Tid> {
        self.tids().find(|tid| self.is_named(*tid, name))
    }

    pub fn list(&self) -> Vec<Host> {
        let host = |(tid, host): (&Tid, &HostSettings)| Host {
            tid: *tid,
            name: host.name.clone(),
            arch: host.arch.clone(),
            speed: host.speed,
            dsig: host.dsig,
        };
        self.table.iter().map(host).collect()
    }
    pub fn config(&self) -> Reply {
        let formats: BTreeSet<i32> = self.table.values().map(|host| host.dsig).collect();
        Reply::Hosts { hosts: self.list(), formats: formats.len() as i32 }
    }
    pub fn status(&self, name: &[u8]) -> Result<Reply, Code> {
        match self.find(name) {
            _ if name.is_empty() => Err(Code::BadParam),
            Some(_) => Ok(Reply::Code(0)),
            None => Ok(Reply::Code(Code::NoHost.number())),
        }
    }
    /// The master itself cannot be deleted, and there is no other host.
    pub fn delete(&self, names: &[ByteBuf]) -> Result<Reply, Code> {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return Err(Code::BadParam);
        }
        let mut seen = BTreeSet::new();
        let mut code = |name: &ByteBuf| match self.find(name) {
            None => Code::NoHost,
            Some(tid) if !seen.insert(tid) => Code::DupHost,
            Some(_) => Code::BadParam,
        };
        Ok(Reply::Codes(names.iter().map(|name| code(name).number()).collect()))
    }
    /// A line for each host, for the log.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        self.table.iter().map(|(tid, host)| format!("host {tid} {} {}", host.name, host.arch))
    }
}

impl Machine {
    pub(super) fn add_hosts(&mut self, asker: Asker, names: Vec<ByteBuf>) {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return self.refuse_add(asker, Code::BadParam);
        }
        if self.hosts.adding.is_some() {
            return self.refuse_add(asker, Code::Already);
        }
        self.hosts.last_request = self.hosts.last_request.wrapping_add(1);
        let request = self.hosts.last_request;
        let parsed: Vec<_> = names.iter().map(|line| hostfile::parse_host(&String::from_utf8_lossy(line))).collect();
        let check = parsed.iter().flatten().map(|host| ByteBuf::from(host.address().as_bytes().to_vec())).collect();
        let results = parsed.iter().map(|host| host.is_err().then_some(Code::BadParam)).collect();
        self.hosts.adding = Some(Adding { request, asker, names, results });
        self.actions.push_back(Action::CheckHosts { request, names: check });
    }

    fn refuse_add(&mut self, asker: Asker, code: Code) {
        match asker {
            Asker::Task { tid, wait } => self.reply(tid, wait, Err(code)),
            Asker::Manager { tid, wid, ctx } => {
                self.tell(tid, ctx, SM_ADDACK, wid, Writer::new().int(code.number()).finish());
            }
        }
    }

    /// What became of the names that were to be checked, in their order.
    pub fn handle_hosts_checked(&mut self, request: u32, checked: Vec<Result<Checked, Code>>) {
        let Some(adding) = self.hosts.adding.as_mut().filter(|adding| adding.request == request) else { return };
        let mut checked = checked.into_iter();
        let mut reachable = Vec::new();
        for (index, result) in adding.results.iter_mut().enumerate().filter(|(_, result)| result.is_none()) {
            *result = checked.next().unwrap_or(Err(Code::CantStart)).err();
            if result.is_none() {
                reachable.push(index);
            }
        }
        if reachable.is_empty() || !self.ask_hoster(&reachable) {
            self.finish_add();
        }
    }

    /// Answers an add; what nobody has started could not be started.
    pub(super) fn finish_add(&mut self) {
        let Some(adding) = self.hosts.adding.take() else { return };
        let codes = adding.results.iter().map(|result| result.unwrap_or(Code::CantStart).number());
        match adding.asker {
            Asker::Task { tid, wait } => {
                let reasons = vec![String::new(); adding.names.len()];
                self.reply(tid, wait, Ok(Reply::AddedHosts { count: 0, hosts: codes.collect(), reasons }));
            }
            Asker::Manager { tid, wid, ctx } => {
                let body = Writer::new().int(adding.names.len() as i32);
                let body = codes.fold(body, |body, code| body.int(code).string(b"").string(b"").int(0).int(0));
                self.tell(tid, ctx, SM_ADDACK, wid, body.finish());
            }
        }
    }

    /// Fails an add as a whole.
    pub(super) fn fail_add(&mut self, code: Code) {
        if let Some(adding) = self.hosts.adding.take() {
            self.refuse_add(adding.asker, code);
        }
    }

    pub(super) fn host_sync(&mut self, from: Tid, wait: u32, tid: Tid) {
        match tid != Tid::NONE && tid.host() == self.hosts.own {
            true => self.actions.push_back(Action::TellTime { to: from, wait }),
            false => self.reply(from, wait, Err(Code::NoHost)),
        }
    }
}
