//! What a daemon knows from its start: its host, its rank, its limits.
use super::limits::Limits;
use super::task_table::TASKS_MAX;
use crate::hostfile::Hostfile;
use crate::tid::Tid;
use crate::wire::{KEY_BYTES, Key};
use std::net::SocketAddr;
use std::time::Duration;

/// How long tasks may take to end at a halt before they are killed.
pub const HALT_GRACE: Duration = Duration::from_secs(2);
/// How long a barrier waits for others in the place of members that had gone before it began.
/// Programs that start a substitute may take long.
pub const BARRIER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a host may be silent before it is taken for dead.
pub const HOST_TIMEOUT: Duration = Duration::from_secs(10);

/// A moment, counted from any fixed one.
pub type Time = Duration;

/// What a daemon is to its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// The first one, which decides.
    Master,
    /// One that was started by the master.
    Slave {
        /// The own host.
        own: Tid,
        /// The master's.
        master: Tid,
    },
}

/// What `pvm_config` says of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct HostSettings {
    pub name: String,
    pub arch: String,
    pub speed: i32,
    pub dsig: i32,
}

/// What a daemon knows of its host and its limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The own host.
    pub host: HostSettings,
    /// How many tasks may live here.
    pub tasks_max: usize,
    /// What that comes from, and how to have more: told when it is reached.
    pub tasks_max_cause: String,
    /// How much else may be kept here.
    pub limits: Limits,
    /// How long a task may take to end at a halt before it is killed.
    pub halt_grace: Duration,
    /// How long a barrier waits for others in the place of members that had gone before it began.
    pub barrier_patience: Duration,
    /// Whether it is the master.
    pub rank: Rank,
    /// How long another host may be silent, as the master says (`HPVM_HOST_TIMEOUT`).
    pub host_timeout: Duration,
    /// Whether the network is trusted, as the master says (`PVM_TRUSTED_NET`).
    pub trusted: bool,
    /// Other names of the own host.
    pub aliases: Vec<String>,
    /// Where this daemon listens for others.
    pub addresses: Vec<SocketAddr>,
    /// Its key.
    pub key: Key,
    /// The master's hostfile.
    pub hostfile: Hostfile,
}

impl Settings {
    /// Those of the only host of a machine, with the usual limits.
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
            trusted: false,
            aliases: Vec::new(),
            addresses: Vec::new(),
            key: [0; KEY_BYTES],
            hostfile: Hostfile::default(),
        }
    }
}
