//! Changes of the host table: made by the master, spread to all, the same everywhere.
use super::debts::Debt;
use super::{Action, Machine};
use crate::codes::SM_HOSTX;
use crate::encoding::Writer;
use crate::tid::Tid;
use crate::wire::{Frame, HostEntry};

/// Reasons that are kept of hosts that were lost, the latest ones, for those who ask.
///
/// * Filled by: each host of the machine
/// * Setting: none, `pvm run` asks as soon as one of its tasks is lost
/// * Reached: the oldest is forgotten, and is told without its reason; the log has it
/// * Test: `why_hosts_were_lost_is_remembered_for_a_while`
pub(super) const LOST_HOSTS_MAX: usize = 64;

impl Machine {
    /// The master tells all others of a change.
    pub(super) fn spread(&mut self, added: &[HostEntry], removed: &[Tid]) {
        self.hosts.version += 1;
        let version = self.hosts.version;
        for host in self.hosts.others() {
            self.debts.owe(host, Debt::Table(version), self.now);
            self.send_host(host, Frame::Table { version, added: added.to_vec(), removed: removed.to_vec() });
        }
    }

    /// The master has told of a change.
    pub(super) fn table_changed(&mut self, version: u64, added: Vec<HostEntry>, removed: Vec<Tid>) {
        self.hosts.version = version;
        for entry in added {
            self.actions.push_back(Action::KnowHost { host: entry.tid, key: entry.key });
            self.hosts.add(entry, false);
        }
        let own = self.own_host();
        removed.into_iter().filter(|host| *host != own).for_each(|host| self.forget_host(host));
        self.send_host(self.hosts.master(), Frame::TableAck { version });
    }

    /// A host that does not answer any more, or has said that it ends.
    pub(super) fn lose_host(&mut self, host: Tid, why: &str) {
        if self.comer(host).is_some() {
            return self.comer_failed(host, why);
        }
        if self.hosts.is_here(host) {
            if !self.control.halting() {
                let text = self.remember_loss(host, why);
                self.log(text);
            }
            self.remove_host(host);
        }
    }

    /// Puts into words why a host was lost, and keeps that for those who ask.
    pub(super) fn remember_loss(&mut self, host: Tid, why: &str) -> String {
        let text = format!("host {} is out of the machine: {why}", self.name_of(host));
        self.lost_hosts.truncate(LOST_HOSTS_MAX - 1);
        self.lost_hosts.push_front(text.clone());
        text
    }

    /// The master removes a host from the machine.
    pub(super) fn remove_host(&mut self, host: Tid) {
        self.forget_host(host);
        if !self.control.halting() {
            self.spread(&[], &[host]);
            if let Some(manager) = self.servers.manager {
                self.tell(manager, 0, SM_HOSTX, 0, Writer::new().int(host.0 as i32).finish());
            }
        }
        self.newcomer_gone(host);
        self.stop_when_empty();
    }

    /// Nothing of the host is remembered; whoever waits for it waits in vain.
    fn forget_host(&mut self, host: Tid) {
        if self.hosts.remove(host).is_none() {
            return;
        }
        self.links.remove(host);
        self.debts.forget(host);
        self.remote.suspicions.forget(host);
        self.actions.push_back(Action::ForgetHost { host });
        self.answer_for_lost(host);
        self.groups_without(host);
        self.listings_without(host);
        self.forget_directs_to(host);
        self.forget_guests_of(host);
        self.spawns_without(host);
        self.traces.forget_host(host);
        self.output_without(host);
        self.announce_host_gone(host);
    }
}
