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

    /// Handles a request that these hosts take no new tasks, or take them again. The answer has the tid of each host, or an error
    /// code; the master cannot leave.
    pub fn drain(&mut self, core: &mut Core, asker: (Tid, u32), names: &[ByteBuf], is_draining: bool) {
        if names.is_empty() || names.len() > HOSTS_MAX {
            return core.reply(asker.0, asker.1, Err(Code::BadParam));
        }
        let own = core.own_host();
        let find = |name: &ByteBuf| match core.hosts.find(name) {
            None => Err(Code::NoHost),
            Some(host) if host == own && is_draining => Err(Code::BadParam),
            Some(host) => Ok(host),
        };
        let found: Vec<Result<Tid, Code>> = names.iter().map(find).collect();
        let codes = found.iter().map(|host| host.map_or_else(Code::number, |host| host.0 as i32)).collect();
        let changed: BTreeSet<Tid> = found.into_iter().flatten().collect();
        let entries: Vec<_> = changed.iter().filter_map(|host| core.hosts.set_draining(*host, is_draining)).collect();
        if !entries.is_empty() {
            super::broadcast_table_change(core, &entries, &[]);
            let what = if is_draining { "takes no new tasks" } else { "takes new tasks again" };
            for entry in &entries {
                core.log(format!("host {} {what}", core.hosts.name_of(entry.tid)));
            }
        }
        self.pending.push(PendingDrain { asker, codes, version: core.hosts.version });
        self.answer(core);
    }

    /// Answers the requests that all hosts know. Called when a host has acknowledged the table, or has gone.
    pub fn answer(&mut self, core: &mut Core) {
        let is_open = |one: &PendingDrain| core.acks.awaits_table(one.version);
        let (open, answered): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending).into_iter().partition(is_open);
        self.pending = open;
        for PendingDrain { asker: (task, wait), codes, .. } in answered {
            core.reply(task, wait, Ok(Reply::Codes(codes)));
        }
    }

    /// Forgets the requests of tasks that have gone.
    pub(super) fn forget(&mut self, is_gone: impl Fn(Tid) -> bool) {
        self.pending.retain(|one| !is_gone(one.asker.0));
    }
}
