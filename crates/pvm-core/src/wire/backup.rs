//! What the master tells its deputy, before it tells anybody else.
use super::{GroupChange, HostEntry, Servers};
use crate::master_state::MasterState;
use crate::proto::{ByteBuf, Reply};
use crate::release::{EndedArrival, EndedPage, Passed};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// A piece of what only the master knows, for its deputy. Pieces are handled in order.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the comment of a variant names its fields
pub enum Backup {
    /// Forget everything: all follows.
    Begin,
    /// A part of what only the master knows; it takes the place of the same part.
    State(Box<MasterState>),
    /// An entry of a mailbox is gone.
    EntryGone { name: ByteBuf, index: i32 },
    /// The members of a group have changed.
    GroupChanged { id: u64, name: ByteBuf, change: GroupChange },
    /// All hosts, and those that have not joined yet.
    Table { version: u64, hosts: Vec<HostEntry>, joining: Vec<Tid> },
    /// The servers of the whole machine.
    Servers(Servers),
    /// The answer to a request of another host.
    Answer { host: Tid, wait: u32, reply: Reply },
    /// The answer is `BackupKept` with this number. `ends`: the pieces since the last such mark belong together; the deputy keeps
    /// all of them or none.
    Mark { number: u64, ends: bool },
    /// A barrier of the group has ended in another way than by a release of the whole group: for these arrivals, and for those in
    /// a page.
    BarrierEnded { id: u64, ended: Vec<EndedArrival>, page: Option<EndedPage> },
    /// A barrier of the whole group has been released by a datagram, which perhaps only members hear. No mark follows.
    Released { id: u64, passed: Passed },
}
