//! Hosts that take no new tasks, because they are to leave the machine (`pvm drain`). The master says so in the host table.
//! Who asked for it gets the answer when all hosts know it, so that nobody places a task there later.
use crate::codes::Code;
use crate::machine::core::Core;
use crate::machine::host_table::HOSTS_MAX;
use crate::proto::{ByteBuf, Reply};
use crate::tid::Tid;
use std::collections::BTreeSet;

/// A request that is answered when all hosts have acknowledged the table.
struct PendingDrain {
    asker: (Tid, u32),
    codes: Vec<i32>,
    version: u64,
    unacknowledged: BTreeSet<Tid>,
}

/// The requests that are not answered; at the master.
#[derive(Default)]
pub(in crate::machine) struct Draining {
    pending: Vec<PendingDrain>,
}

impl Draining {
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Handles a request that these hosts take no new tasks, or take them again.
    pub fn drain(&mut self, core: &mut Core, asker: (Tid, u32), names: &[ByteBuf], is_draining: bool) {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return core.reply(asker.0, asker.1, Err(Code::BadParam));
        }
        let found: Vec<Option<Tid>> = names.iter().map(|name| core.hosts.find(name)).collect();
        let codes = found.iter().map(|host| host.map_or(Code::NoHost.number(), |_| 0)).collect();
        let changed: BTreeSet<Tid> = found.into_iter().flatten().collect();
        let entries: Vec<_> = changed.iter().filter_map(|host| core.hosts.set_draining(*host, is_draining)).collect();
        if !entries.is_empty() {
            super::broadcast_table_change(core, &entries, &[]);
            let what = if is_draining { "takes no new tasks" } else { "takes new tasks again" };
            for entry in &entries {
                core.log(format!("host {} {what}", core.hosts.name_of(entry.tid)));
            }
        }
        let unacknowledged = core.acks.awaited_tables();
        self.pending.push(PendingDrain { asker, codes, version: core.hosts.version, unacknowledged });
        self.answer(core);
    }

    /// Handles the news that a host knows the table up to that version.
    pub fn table_acknowledged(&mut self, core: &mut Core, host: Tid, version: u64) {
        for one in self.pending.iter_mut().filter(|one| one.version <= version) {
            one.unacknowledged.remove(&host);
        }
        self.answer(core);
    }

    /// Handles the removal of a host: its acknowledgement is no longer awaited.
    pub(super) fn host_gone(&mut self, core: &mut Core, host: Tid) {
        self.table_acknowledged(core, host, u64::MAX);
    }

    fn answer(&mut self, core: &mut Core) {
        let is_open = |one: &PendingDrain| !one.unacknowledged.is_empty();
        let (open, answered): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending).into_iter().partition(is_open);
        self.pending = open;
        for PendingDrain { asker: (task, wait), codes, .. } in answered {
            core.reply(task, wait, Ok(Reply::Codes(codes)));
        }
    }
}
