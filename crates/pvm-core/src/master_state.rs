//! What only the master knows. The master sends it to its deputy ([`crate::wire::Backup::State`]).
use crate::hostfile::{HostLine, Options};
use crate::proto::{ByteBuf, Message};
use crate::release::{EndedArrival, EndedPage, Passed};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A part of what only the master knows.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub enum MasterState {
    /// What there is once.
    Machine(Box<MachineState>),
    /// An entry of a mailbox. Entries come in the order in which their classes were made.
    Entry(MailboxEntry),
    /// A group.
    Group(GroupOfMaster),
}

/// What the master knows about the whole machine.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct MachineState {
    /// The host number that was given last.
    pub last_host: u32,
    /// The addresses to which the names of hosts resolved.
    pub resolved: Vec<(Tid, Vec<IpAddr>)>,
    /// The lines of the hostfile.
    pub hostfile: Vec<HostLine>,
    /// The options of the hostfile for all hosts.
    pub host_options: Options,
    /// Why hosts of the hostfile could not be added, until a task asks.
    pub add_failures: Vec<String>,
    /// Why hosts were lost, the newest first.
    pub lost_hosts: Vec<String>,
    /// The hosts that tasks have named for the barriers of their groups.
    pub group_hosts: Vec<(Tid, Tid)>,
    /// The number that was given last to a group.
    pub last_group: u64,
    /// The number that was given last to a change of a group.
    pub last_change: u64,
    /// The number that was given last to a chain of releases.
    pub last_chain: u32,
}

/// An entry of a mailbox.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct MailboxEntry {
    /// The name of the class.
    pub name: ByteBuf,
    /// The index of the entry.
    pub index: i32,
    /// The owner; `Tid::NONE` if the entry has outlived it.
    pub owner: Tid,
    /// The flags that the owner gave.
    pub flags: i32,
    /// The contents.
    pub message: Message,
}

/// A group, as the master knows it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct GroupOfMaster {
    /// The number of the group.
    pub id: u64,
    /// The name of the group.
    pub name: ByteBuf,
    /// The members: instance and tid.
    pub members: Vec<(u32, Tid)>,
    /// Whether no task can join.
    pub frozen: bool,
    /// Whether the group is frozen and has lost a member.
    pub broken: bool,
    /// How often the members have changed.
    pub version: u64,
    /// The last barrier of the whole group.
    pub passed: Passed,
    /// The last barrier of another kind: for each member that has arrived at one, and for a page.
    pub ended: Vec<EndedArrival>,
    /// See `ended`.
    pub ended_page: Option<EndedPage>,
    /// The members that the group lacks.
    pub shortage: GroupShortage,
}

/// The members that a group lacks.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupShortage {
    /// Members that have gone and have not been replaced.
    pub lost: u32,
    /// Members whose loss has made a barrier fail, and which have not been replaced.
    pub missed: u32,
    /// The largest size of the group since its barrier was judged last.
    pub size_before: u32,
    /// The generation of a barrier, and how many members have gone after they arrived at it.
    pub gone: (u32, u32),
}
