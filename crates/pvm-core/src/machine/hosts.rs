//! The host table: who belongs to the machine, under which names (contract 2.7).
use super::{Action, Machine, Rank, Settings};
use crate::codes::Code;
use crate::proto::{Host, Reply};
use crate::tid::{HOST_MASK, HOST_SHIFT, Tid};
use crate::wire::HostEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Hosts of a machine.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, a tid has room for no more
/// * Reached: `pvm_addhosts` says `PvmBadParam` for more names, and gives `PvmOutOfRes` in the places of tids
/// * Test: `a_machine_has_so_many_hosts_and_no_more`
pub const HOSTS_MAX: usize = (HOST_MASK >> HOST_SHIFT) as usize;
/// The number of the first host, the master.
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

/// A host of the machine.
pub(super) struct Member {
    pub entry: HostEntry,
    /// Whether everybody knows it, so that it can be used.
    pub joined: bool,
    /// Of those that were added here: what its name had led to.
    pub resolved: Vec<IpAddr>,
}

/// Which hosts go by a name.
type Names = BTreeMap<Vec<u8>, BTreeSet<Tid>>;

/// The hosts of the machine.
pub(super) struct Hosts {
    own: Tid,
    master: Tid,
    /// In boxes, so that a look-up touches little memory.
    table: BTreeMap<Tid, Box<Member>>,
    /// As they were added, and by their other names in small letters.
    names: Names,
    aliases: Names,
    /// How many changes the table has seen.
    pub version: u64,
    /// The number that was given out last.
    last: u32,
}

impl Hosts {
    pub fn new(settings: &Settings) -> Hosts {
        let (own, master) = match settings.rank {
            Rank::Master => (Tid::host_number(FIRST), Tid::host_number(FIRST)),
            Rank::Slave { own, master } => (own, master),
        };
        let HostSettings { name, arch, speed, dsig } = settings.host.clone();
        let (aliases, addresses, key) = (settings.aliases.clone(), settings.addresses.clone(), settings.key);
        let entry = HostEntry { tid: own, name, aliases, arch, speed, dsig, addresses, key };
        let (names, aliases) = (Names::new(), Names::new());
        let mut hosts = Hosts { own, master, table: BTreeMap::new(), names, aliases, version: 0, last: FIRST };
        hosts.add(entry, true);
        hosts
    }
    pub fn own(&self) -> Tid {
        self.own
    }
    pub fn master(&self) -> Tid {
        self.master
    }
    pub fn is_master(&self) -> bool {
        self.own == self.master
    }
    /// Whether the master has told of the table.
    pub fn is_welcomed(&self) -> bool {
        self.version > 0
    }
    /// Whether others belong to the machine.
    pub fn has_others(&self) -> bool {
        self.table.len() > 1
    }
    /// The hosts on which there can be tasks.
    pub fn tids(&self) -> impl Iterator<Item = Tid> + '_ {
        self.members().map(|member| member.entry.tid)
    }
    fn members(&self) -> impl Iterator<Item = &Member> {
        self.table.values().map(Box::as_ref).filter(|member| self.can_have_tasks(member))
    }
    fn can_have_tasks(&self, member: &Member) -> bool {
        member.joined || member.entry.tid == self.own
    }
    /// All other hosts, also those that are just joining.
    pub fn others(&self) -> Vec<Tid> {
        self.table.keys().copied().filter(|tid| *tid != self.own).collect()
    }
    /// Whether the host of that tid belongs to the machine.
    pub fn is_here(&self, tid: Tid) -> bool {
        // A host whose master has not welcomed it yet knows of that one all the same.
        self.table.contains_key(&tid.host()) || tid.host() == self.master
    }
    pub fn member(&self, tid: Tid) -> Option<&Member> {
        self.table.get(&tid.host()).map(Box::as_ref)
    }
    pub fn is_arch(&self, tid: Tid, arch: &[u8]) -> bool {
        self.table.get(&tid).is_some_and(|host| host.entry.arch.as_bytes() == arch)
    }
    /// The host of that name: `.` is the own one; one that was added so, else one that has it among
    /// its other names (D25).
    pub fn find(&self, name: &[u8]) -> Option<Tid> {
        if name == b"." {
            return Some(self.own);
        }
        let joined = |tid: &&Tid| self.table.get(tid).is_some_and(|member| self.can_have_tasks(member));
        let first = |names: &Names, name: &[u8]| names.get(name)?.iter().find(joined).copied();
        first(&self.names, name).or_else(|| first(&self.aliases, &name.to_ascii_lowercase()))
    }
    /// The hosts on which there can be tasks, in turn, beginning with that one.
    pub fn tids_from(&self, tid: Tid) -> impl Iterator<Item = Tid> + '_ {
        let in_turn = self.table.range(tid..).chain(self.table.range(..tid));
        in_turn.filter(|(_, member)| self.can_have_tasks(member)).map(|(tid, _)| *tid)
    }

    // ----- changes

    pub fn add(&mut self, entry: HostEntry, joined: bool) {
        self.remove(entry.tid);
        self.names.entry(entry.name.as_bytes().to_vec()).or_default().insert(entry.tid);
        for alias in &entry.aliases {
            self.aliases.entry(alias.to_ascii_lowercase().into_bytes()).or_default().insert(entry.tid);
        }
        self.table.insert(entry.tid, Box::new(Member { entry, joined, resolved: Vec::new() }));
    }
    pub fn remove(&mut self, tid: Tid) -> Option<Box<Member>> {
        let member = self.table.remove(&tid)?;
        withdraw(&mut self.names, member.entry.name.as_bytes(), tid);
        for alias in &member.entry.aliases {
            withdraw(&mut self.aliases, alias.to_ascii_lowercase().as_bytes(), tid);
        }
        Some(member)
    }
    pub fn member_mut(&mut self, tid: Tid) -> Option<&mut Member> {
        self.table.get_mut(&tid).map(Box::as_mut)
    }
    /// The table of the master, in the place of what was known before.
    pub fn replace(&mut self, entries: Vec<HostEntry>, joining: &[Tid]) {
        (self.names, self.aliases) = (Names::new(), Names::new());
        self.table.clear();
        let joining: BTreeSet<Tid> = joining.iter().copied().collect();
        for entry in entries {
            let joined = !joining.contains(&entry.tid);
            self.add(entry, joined);
        }
    }
    /// The next number for a host, unless it is `taken` by one that is about to come.
    pub fn new_number(&mut self, taken: impl Fn(Tid) -> bool) -> Option<Tid> {
        (0..HOSTS_MAX).find_map(|_| {
            self.last = self.last % HOSTS_MAX as u32 + 1;
            let tid = Tid::host_number(self.last);
            (!self.is_here(tid) && !taken(tid)).then_some(tid)
        })
    }
    /// The host that was reached by one of these addresses.
    pub fn at_address(&self, addresses: &[IpAddr]) -> Option<Tid> {
        let same = |member: &&Member| member.resolved.iter().any(|address| addresses.contains(address));
        self.table.values().map(Box::as_ref).find(same).map(|member| member.entry.tid)
    }
    pub fn entries(&self) -> Vec<HostEntry> {
        self.table.values().map(|member| member.entry.clone()).collect()
    }

    // ----- what tasks ask

    pub fn list(&self) -> Vec<Host> {
        let host = |Member { entry, .. }: &Member| Host {
            tid: entry.tid,
            name: entry.name.clone(),
            arch: entry.arch.clone(),
            speed: entry.speed,
            dsig: entry.dsig,
        };
        self.members().map(host).collect()
    }
    pub fn config(&self) -> Reply {
        let formats: BTreeSet<i32> = self.members().map(|member| member.entry.dsig).collect();
        Reply::Hosts { hosts: self.list(), formats: formats.len() as i32 }
    }
    pub fn status(&self, name: &[u8]) -> Result<Reply, Code> {
        match self.find(name) {
            _ if name.is_empty() => Err(Code::BadParam),
            Some(_) => Ok(Reply::Code(0)),
            None => Ok(Reply::Code(Code::NoHost.number())),
        }
    }
    /// A line for each host, for the log.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        let line = |Member { entry, .. }: &Member| format!("host {} {} {}", entry.tid, entry.name, entry.arch);
        self.table.values().map(Box::as_ref).map(line)
    }
}

/// The host does not go by that name any more.
fn withdraw(names: &mut Names, name: &[u8], tid: Tid) {
    let Some(tids) = names.get_mut(name) else { return };
    tids.remove(&tid);
    if tids.is_empty() {
        names.remove(name);
    }
}

impl Machine {
    /// Whether frames may be sent to the host: it belongs to the machine, or is about to.
    pub(super) fn is_known(&self, host: Tid) -> bool {
        host.is_host()
            && host != self.own_host()
            && (self.hosts.is_here(host) || self.comer(host).is_some() || host == self.hosts.master())
    }

    /// The name of a host, for the log.
    pub(super) fn name_of(&self, host: Tid) -> String {
        let entry = self.hosts.member(host).map(|member| &member.entry).or_else(|| self.comer(host));
        entry.map_or_else(|| host.to_string(), |entry| format!("{} ({host})", entry.name))
    }

    /// The name as it was typed: the same for one that is added again.
    pub(super) fn plain_name_of(&self, host: Tid) -> String {
        self.hosts.member(host).map_or_else(|| host.to_string(), |member| member.entry.name.clone())
    }

    pub(super) fn addresses_of(&self, host: Tid) -> Vec<SocketAddr> {
        let entry = self.hosts.member(host).map(|member| &member.entry).or_else(|| self.comer(host));
        entry.map(|entry| entry.addresses.clone()).unwrap_or_default()
    }

    /// A line of the daemon's own in the log.
    pub(super) fn log(&mut self, line: String) {
        self.actions.push_back(Action::Log { tid: Tid::DAEMON, line: line.into_bytes() });
    }

    pub(super) fn host_sync(&mut self, from: Tid, wait: u32, tid: Tid) {
        match tid != Tid::NONE && tid.host() == self.hosts.own {
            true => self.actions.push_back(Action::TellTime { to: from, wait }),
            false => self.reply(from, wait, Err(Code::NoHost)),
        }
    }
}
