//! The host table: the hosts of the machine and their names (contract 2.7).
use super::council::Council;
use super::settings::{HostSettings, Rank, Settings};
use crate::codes::Code;
use crate::proto::{Host, Office, Reply};
use crate::tid::{HOST_MASK, HOST_SHIFT, Tid};
use crate::wire::HostEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Hosts of a machine.
///
/// * Filled by: all tasks of the machine
/// * Setting: none, a tid has no bits for more
/// * Reached: `pvm_addhosts` says `PvmBadParam` for more names, and `PvmOutOfRes` if no host number is free
/// * Test: `the_number_of_hosts_is_limited`
pub const HOSTS_MAX: usize = (HOST_MASK >> HOST_SHIFT) as usize;
/// The number of the first host, the master.
const FIRST: u32 = 1;

/// A host of the machine, as the table records it.
pub(super) struct HostRecord {
    pub entry: HostEntry,
    /// Whether all hosts know this host; if so, it is usable.
    pub joined: bool,
    /// At the master, for each host that was added: the addresses to which its name resolved.
    pub resolved: Vec<IpAddr>,
}

/// Names, each with a host that has it.
type Names = BTreeSet<(Vec<u8>, Tid)>;

/// The hosts of the machine.
pub(super) struct HostTable {
    own: Tid,
    master: Tid,
    /// The records are boxed, so that a look-up touches little memory.
    table: BTreeMap<Tid, Box<HostRecord>>,
    /// The hosts by name: `names` has the names under which hosts were added, `aliases` their other names in lower
    /// case.
    names: Names,
    aliases: Names,
    /// At the master: hosts whose daemon runs and that are not in the table yet.
    joining: BTreeMap<Tid, HostEntry>,
    /// The number of changes of the table so far.
    pub version: u64,
    /// The host number assigned last.
    last: u32,
}

impl HostTable {
    pub fn new(settings: &Settings) -> HostTable {
        let (own, master) = match settings.rank {
            Rank::Master => (Tid::host_number(FIRST), Tid::host_number(FIRST)),
            Rank::Slave { own, master } => (own, master),
        };
        let HostSettings { name, arch, speed, node, groups, dsig } = settings.host.clone();
        let (aliases, addresses, key) = (settings.aliases.clone(), settings.addresses.clone(), settings.key);
        let is_draining = false;
        let entry = HostEntry { tid: own, name, aliases, arch, speed, node, groups, is_draining, dsig, addresses, key };
        let (names, aliases) = (Names::new(), Names::new());
        let mut hosts = HostTable {
            own,
            master,
            table: BTreeMap::new(),
            names,
            aliases,
            joining: BTreeMap::new(),
            version: 0,
            last: FIRST,
        };
        hosts.add(entry, true);
        hosts
    }
    pub fn own(&self) -> Tid {
        self.own
    }
    pub fn master(&self) -> Tid {
        self.master
    }
    pub fn set_own_addresses(&mut self, addresses: Vec<SocketAddr>) {
        let own = self.own;
        self.record_mut(own).into_iter().for_each(|record| record.entry.addresses.clone_from(&addresses));
    }
    pub fn set_master(&mut self, master: Tid) {
        self.master = master;
    }
    pub fn is_master(&self) -> bool {
        self.own == self.master
    }
    /// Returns whether the master has sent the table.
    pub fn is_welcomed(&self) -> bool {
        self.version > 0
    }
    /// Returns whether the machine has other hosts.
    pub fn has_others(&self) -> bool {
        self.table.len() > 1
    }
    /// Returns the hosts on which there can be tasks.
    pub fn tids(&self) -> impl Iterator<Item = Tid> + '_ {
        self.records().map(|record| record.entry.tid)
    }
    /// Returns the records of the hosts on which there can be tasks.
    fn records(&self) -> impl Iterator<Item = &HostRecord> {
        self.table.values().map(Box::as_ref).filter(|record| self.can_have_tasks(record))
    }
    /// Returns whether the host is usable; this host always is.
    fn can_have_tasks(&self, record: &HostRecord) -> bool {
        record.joined || record.entry.tid == self.own
    }
    /// Returns whether the host takes no new tasks.
    pub fn is_draining(&self, host: Tid) -> bool {
        self.record(host).is_some_and(|record| record.entry.is_draining)
    }
    /// Returns the other hosts of the table that have not joined yet.
    pub fn not_joined(&self) -> Vec<Tid> {
        let not_joined = |record: &&HostRecord| !self.can_have_tasks(record);
        self.table.values().map(Box::as_ref).filter(not_joined).map(|record| record.entry.tid).collect()
    }
    /// Returns all other hosts, including those that are still joining.
    pub fn others(&self) -> Vec<Tid> {
        self.table.keys().copied().filter(|tid| *tid != self.own).collect()
    }
    /// Returns the hosts for which the hostfile says that barriers of groups shall meet there, or shall not.
    pub fn with_groups(&self, wanted: bool) -> impl Iterator<Item = Tid> + '_ {
        let says_so = move |record: &&HostRecord| record.entry.groups == Some(wanted);
        self.records().filter(says_so).map(|record| record.entry.tid)
    }
    /// Returns whether that host belongs to the machine.
    pub fn is_here(&self, tid: Tid) -> bool {
        // A daemon treats its master as a host of the machine even before the master's welcome.
        self.table.contains_key(&tid.host()) || tid.host() == self.master
    }
    pub fn record(&self, tid: Tid) -> Option<&HostRecord> {
        self.table.get(&tid.host()).map(Box::as_ref)
    }
    /// Returns the entry of a joining host that is not in the table yet.
    pub fn joining(&self, tid: Tid) -> Option<&HostEntry> {
        self.joining.get(&tid)
    }
    /// Returns whether frames may be sent to the host: it belongs to the machine or is joining.
    pub fn is_known(&self, host: Tid) -> bool {
        host.is_host() && host != self.own && (self.is_here(host) || self.joining.contains_key(&host))
    }
    /// Returns the entry of a host, even if it is still joining.
    fn entry(&self, host: Tid) -> Option<&HostEntry> {
        self.record(host).map(|record| &record.entry).or_else(|| self.joining(host))
    }
    /// Returns the name of a host with its tid, for the log.
    pub fn name_of(&self, host: Tid) -> String {
        self.entry(host).map_or_else(|| host.to_string(), |entry| format!("{} ({host})", entry.name))
    }
    /// Returns the name under which the host was added. A host that is added again keeps its name, but gets a new tid.
    pub fn plain_name_of(&self, host: Tid) -> String {
        self.record(host).map_or_else(|| host.to_string(), |record| record.entry.name.clone())
    }
    /// Returns the addresses on which the daemon of a host listens.
    pub fn addresses_of(&self, host: Tid) -> Vec<SocketAddr> {
        self.entry(host).map(|entry| entry.addresses.clone()).unwrap_or_default()
    }
    /// Returns the addresses at which the daemon of a host can be called; none if it does not listen.
    pub fn callable_addresses_of(&self, host: Tid) -> Vec<SocketAddr> {
        self.addresses_of(host).into_iter().filter(|address| address.port() != 0).collect()
    }
    /// Returns whether the host has that architecture.
    pub fn is_arch(&self, tid: Tid, arch: &[u8]) -> bool {
        self.table.get(&tid).is_some_and(|host| host.entry.arch.as_bytes() == arch)
    }
    /// Finds a host by name: `.` is this host; names under which hosts were added take precedence over their other
    /// names (D25).
    pub fn find(&self, name: &[u8]) -> Option<Tid> {
        if name == b"." {
            return Some(self.own);
        }
        let joined = |tid: &&Tid| self.table.get(tid).is_some_and(|record| self.can_have_tasks(record));
        let first = |names: &Names, name: Vec<u8>| {
            let from = names.range((name.clone(), Tid(0))..);
            from.take_while(|(other, _)| *other == name).map(|(_, tid)| tid).find(joined).copied()
        };
        first(&self.names, name.to_vec()).or_else(|| first(&self.aliases, name.to_ascii_lowercase()))
    }
    /// Finds a host by name, unless it takes no new tasks.
    pub fn find_for_tasks(&self, name: &[u8]) -> Option<Tid> {
        self.find(name).filter(|host| !self.is_draining(*host))
    }
    /// Returns the hosts that take new tasks, in cyclic order from that tid on.
    pub fn for_tasks_from(&self, tid: Tid) -> impl Iterator<Item = Tid> + '_ {
        let in_turn = self.table.range(tid..).chain(self.table.range(..tid));
        let takes_tasks = |record: &HostRecord| self.can_have_tasks(record) && !record.entry.is_draining;
        in_turn.filter(move |(_, record)| takes_tasks(record)).map(|(tid, _)| *tid)
    }

    // ----- changes

    /// Adds a host whose daemon runs and that is about to join.
    pub fn add_joining(&mut self, entry: HostEntry) {
        self.joining.insert(entry.tid, entry);
    }
    pub fn remove_joining(&mut self, tid: Tid) {
        self.joining.remove(&tid);
    }
    /// Clears the list of joining hosts: each is in the table now, or will not join.
    pub fn forget_joining(&mut self) {
        self.joining.clear();
    }
    /// Adds a host or replaces its entry.
    pub fn add(&mut self, entry: HostEntry, joined: bool) {
        self.remove(entry.tid);
        let aliases = entry.aliases.iter().map(|alias| alias.to_ascii_lowercase().into_bytes());
        self.aliases.extend(aliases.map(|alias| (alias, entry.tid)));
        self.names.insert((entry.name.as_bytes().to_vec(), entry.tid));
        self.table.insert(entry.tid, Box::new(HostRecord { entry, joined, resolved: Vec::new() }));
    }
    pub fn remove(&mut self, tid: Tid) -> Option<Box<HostRecord>> {
        let record = self.table.remove(&tid)?;
        self.names.remove(&(record.entry.name.as_bytes().to_vec(), tid));
        for alias in &record.entry.aliases {
            self.aliases.remove(&(alias.to_ascii_lowercase().into_bytes(), tid));
        }
        Some(record)
    }
    pub fn record_mut(&mut self, tid: Tid) -> Option<&mut HostRecord> {
        self.table.get_mut(&tid).map(Box::as_mut)
    }
    /// Notes whether a host takes no new tasks. Returns its entry if that has changed.
    pub fn set_draining(&mut self, tid: Tid, is_draining: bool) -> Option<HostEntry> {
        let entry = self.record_mut(tid).map(|record| &mut record.entry)?;
        (std::mem::replace(&mut entry.is_draining, is_draining) != is_draining).then(|| entry.clone())
    }
    /// Replaces the table by the one that the master has sent.
    pub fn replace(&mut self, entries: Vec<HostEntry>, joining: &[Tid]) {
        (self.names, self.aliases) = (Names::new(), Names::new());
        self.table.clear();
        let joining: BTreeSet<Tid> = joining.iter().copied().collect();
        for entry in entries {
            let joined = !joining.contains(&entry.tid);
            self.add(entry, joined);
        }
    }
    /// Assigns the next host number that is free and not `taken` by a host that is being added.
    pub fn new_number(&mut self, taken: impl Fn(Tid) -> bool) -> Option<Tid> {
        (0..HOSTS_MAX).find_map(|_| {
            self.last = self.last % HOSTS_MAX as u32 + 1;
            let tid = Tid::host_number(self.last);
            (!self.is_here(tid) && !taken(tid)).then_some(tid)
        })
    }
    /// Returns the host number assigned last.
    pub fn last_number(&self) -> u32 {
        self.last
    }
    /// Returns the addresses to which the names of hosts resolved.
    pub fn resolved(&self) -> Vec<(Tid, Vec<IpAddr>)> {
        self.table.iter().map(|(tid, record)| (*tid, record.resolved.clone())).collect()
    }
    /// Takes over what only the master knows: the number assigned last, and the addresses to which names resolved.
    pub fn take_office(&mut self, last: u32, resolved: Vec<(Tid, Vec<IpAddr>)>) {
        self.last = last;
        for (host, addresses) in resolved {
            if let Some(record) = self.table.get_mut(&host) {
                record.resolved = addresses;
            }
        }
    }
    /// Finds a host by one of its resolved addresses.
    pub fn at_address(&self, addresses: &[IpAddr]) -> Option<Tid> {
        let same = |record: &&HostRecord| record.resolved.iter().any(|address| addresses.contains(address));
        self.table.values().map(Box::as_ref).find(same).map(|record| record.entry.tid)
    }
    pub fn entries(&self) -> Vec<HostEntry> {
        self.table.values().map(|record| record.entry.clone()).collect()
    }

    // ----- what tasks ask

    /// Returns the hosts, as `pvm_config` reports them. `deputy`: the deputy of the master, as far as this host knows.
    pub fn list(&self, deputy: Option<Tid>) -> Vec<Host> {
        let hosts: Vec<Tid> = self.tids().collect();
        let council = deputy.map(|deputy| Council::of(&hosts, self.master, deputy)).filter(Council::decides);
        let office = |host: Tid| match host {
            host if host == self.master => Office::Master,
            host if deputy == Some(host) => Office::Deputy,
            host if council.as_ref().is_some_and(|council| council.members().any(|one| one == host)) => Office::Council,
            _ => Office::None,
        };
        let host = |HostRecord { entry, .. }: &HostRecord| Host {
            tid: entry.tid,
            name: entry.name.clone(),
            arch: entry.arch.clone(),
            speed: entry.speed,
            dsig: entry.dsig,
            is_draining: entry.is_draining,
            office: office(entry.tid),
        };
        self.records().map(host).collect()
    }
    /// Answers `pvm_config`.
    pub fn config(&self, deputy: Option<Tid>) -> Reply {
        let formats: BTreeSet<i32> = self.records().map(|record| record.entry.dsig).collect();
        Reply::Hosts { hosts: self.list(deputy), formats: formats.len() as i32 }
    }
    /// Answers `pvm_mstat`.
    pub fn status(&self, name: &[u8]) -> Result<Reply, Code> {
        match self.find(name) {
            _ if name.is_empty() => Err(Code::BadParam),
            Some(_) => Ok(Reply::Code(0)),
            None => Ok(Reply::Code(Code::NoHost.number())),
        }
    }
    /// Returns a line for each host, for the log.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        let line = |HostRecord { entry, .. }: &HostRecord| format!("host {} {} {}", entry.tid, entry.name, entry.arch);
        self.table.values().map(Box::as_ref).map(line)
    }
}
