//! The settings that a daemon has from its start: its host, its rank, its limits.
use super::limits::Limits;
use super::task_table::TASKS_MAX;
use crate::fabric::Wish;
use crate::flows::pacing::Pacing;
use crate::hostfile::Hostfile;
use crate::proto::Order;
use crate::release::ChainValue;
use crate::tid::Tid;
use crate::wire::{KEY_BYTES, Key};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// How long the tasks may take to end at a halt before they are killed.
pub const HALT_GRACE: Duration = Duration::from_secs(2);
/// How long a barrier waits for substitutes of members that were gone before the barrier began. A program may take long
/// to start a substitute.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(30);
/// The number of other hosts with members from which on barriers are released by broadcast.
pub const BARRIER_BROADCAST_HOSTS: usize = 3;
/// How long a host may be silent before it is considered dead.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// The rank of a daemon in its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// The first daemon, which decides what concerns the whole machine.
    Master,
    /// A daemon that the master started.
    Slave {
        /// This host.
        own: Tid,
        /// The master's host.
        master: Tid,
    },
}

/// The properties of a host that `pvm_config` reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct HostSettings {
    pub name: String,
    pub arch: String,
    pub speed: i32,
    pub node: Option<u32>,
    pub groups: Option<bool>,
    pub dsig: i32,
}

/// The settings of a daemon: its host, its rank, its limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This host.
    pub host: HostSettings,
    /// The limit on tasks of this host.
    pub tasks_max: usize,
    /// Text for the log: what sets that limit, and how to raise it.
    pub tasks_max_cause: String,
    /// The limits on the rest of the state that this daemon stores.
    pub limits: Limits,
    /// How long the tasks may take to end at a halt before they are killed, as the master sets it (`HPVM_HALT_GRACE`).
    pub halt_grace: Duration,
    /// How long a barrier waits for substitutes of members that were gone before the barrier began.
    pub barrier_patience: Duration,
    /// Whether this is the master.
    pub rank: Rank,
    /// How long another host may be silent, as the master sets it (`HPVM_HOST_TIMEOUT`).
    pub host_timeout: Duration,
    /// Whether the network is trusted, as the master sets it (`PVM_TRUSTED_NET`).
    pub trusted: bool,
    /// When receivers pace long messages, as the master sets it (`PVM_PACING`).
    pub pacing: Pacing,
    /// Which order messages between hosts keep, as the master sets it (`HPVM_ORDER`).
    pub order: Order,
    /// The fabric of the tasks of this host: as the environment of this daemon says, or else the hostfile, or else the
    /// environment of the master (`PVM_FABRIC`, `PVM_FABRIC_CLEAR`).
    pub fabric: Wish,
    /// The multicast group to which hosts send what is for all hosts, as the master sets it (`PVM_BROADCAST`).
    pub broadcast: Option<SocketAddrV4>,
    /// The number of other hosts with members from which on the master releases barriers by broadcast
    /// (`HPVM_BARRIER_BROADCAST`).
    pub barrier_broadcast_hosts: usize,
    /// What proves that releases of barriers are the master's; without it, they go to each host by itself.
    pub one_way: Option<OneWay>,
    /// Other names of this host.
    pub aliases: Vec<String>,
    /// The addresses on which this daemon listens for others.
    pub addresses: Vec<SocketAddr>,
    /// The public key of this daemon.
    pub key: Key,
    /// The master's hostfile.
    pub hostfile: Hostfile,
}

/// What proves that releases of barriers are the master's: a secret and a one-way function.
#[derive(Clone)]
pub struct OneWay {
    /// Random bytes that nobody else knows.
    pub secret: ChainValue,
    /// The one-way function.
    pub function: fn(&ChainValue) -> ChainValue,
}

impl std::fmt::Debug for OneWay {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a one-way function")
    }
}

impl OneWay {
    /// Applies the function that many times.
    pub(super) fn apply(&self, value: &ChainValue, times: u32) -> ChainValue {
        (0..times).fold(*value, |value, _| (self.function)(&value))
    }
}

impl Settings {
    /// Returns the settings of the only host of a machine, with the default limits.
    pub fn new(host: HostSettings) -> Settings {
        Settings {
            host,
            tasks_max: TASKS_MAX,
            tasks_max_cause: "to have more, set PVM_MAX_TASKS before pvmd is started".into(),
            limits: Limits::default(),
            halt_grace: HALT_GRACE,
            barrier_patience: BARRIER_PATIENCE,
            rank: Rank::Master,
            host_timeout: HOST_TIMEOUT,
            fabric: Wish::default(),
            trusted: false,
            pacing: Pacing::default(),
            order: Order::default(),
            broadcast: None,
            barrier_broadcast_hosts: BARRIER_BROADCAST_HOSTS,
            one_way: None,
            aliases: Vec::new(),
            addresses: Vec::new(),
            key: [0; KEY_BYTES],
            hostfile: Hostfile::default(),
        }
    }
}
