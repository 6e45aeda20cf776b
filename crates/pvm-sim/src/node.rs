//! A simulated daemon: the machine's rules, the flows, and the state of its edge.
use crate::event::Event;
use crate::groups::GroupMemory;
use crate::ids::LinkId;
use crate::ids::TaskId;
use crate::program::QueuedMessage;
use crate::queue::Nanos;
use crate::scenario::Place;
use pvm_core::flows::multicast::InOrder;
use pvm_core::flows::pacing::Pacer;
use pvm_core::flows::{Flows, InboundFlows, MessageHeader};
use pvm_core::machine::{HostSettings, Machine, OneWay, Rank, Settings};
use pvm_core::proto::{ByteBuf, ToTask};
use pvm_core::release::{CHAIN_VALUE_BYTES, ChainValue};
use pvm_core::tid::Tid;
use pvm_core::wire::{KEY_BYTES, Key};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

/// The data signature of all simulated hosts.
const DSIG: i32 = 7;
const ARCH: &str = "LINUX64";
const FIRST_PORT: u16 = 4000;

/// Whether a daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// The daemon runs.
    Running,
    /// The daemon is stopped; its connections stay.
    Stopped,
    /// The daemon has ended.
    Dead,
}

/// A message for one task, which waits behind an announced message.
pub type Held = (MessageHeader, Rc<QueuedMessage>);

/// An attempt to make a connection.
pub struct Attempt {
    pub number: u64,
    pub end: Nanos,
    pub shown: u64,
}

/// A daemon from its start to its end.
pub struct Node {
    /// The computer on which the daemon runs.
    pub place: Place,
    /// The tid of the daemon's host.
    pub tid: Tid,
    /// The address on which the daemon listens.
    pub address: SocketAddr,
    /// The daemon's key.
    pub key: Key,
    /// The rules of the machine.
    pub machine: Machine,
    /// The messages for other hosts.
    pub flows: Flows<QueuedMessage>,
    /// The messages from other hosts.
    pub inbound: InboundFlows<std::rc::Rc<QueuedMessage>>,
    /// The limits of the hosts that send long messages.
    pub pacer: Pacer,
    /// The messages behind announced ones whose bodies are being fetched.
    pub held: InOrder<Held>,
    /// When the daemon last noticed which bodies make progress.
    pub last_body_tick: Nanos,
    /// Whether the daemon runs.
    pub state: NodeState,
    /// The events that happened while the daemon was stopped.
    pub deferred: VecDeque<Event>,
    /// The hosts whose connections the daemon accepts and to which it may send, with their keys.
    pub known: BTreeMap<Tid, Key>,
    /// The links that are established or being made.
    pub links: BTreeMap<Tid, LinkId>,
    /// The connections that the daemon is making: number of the attempt, time when the daemon gives up, and address.
    pub attempts: BTreeMap<Tid, (u64, Nanos, SocketAddr)>,
    /// The data links for which the daemon expects a call.
    pub data_expected: BTreeMap<Tid, Attempt>,
    /// The control links for which the daemon calls again.
    pub control_calls: BTreeMap<Tid, Attempt>,
    /// The data links for which the daemon calls.
    pub data_calls: BTreeMap<Tid, Attempt>,
    /// The daemon's tasks, by tid.
    pub tasks: BTreeMap<Tid, TaskId>,
    /// Frames for tasks that have not enrolled yet.
    pub kept: BTreeMap<Tid, Vec<ToTask>>,
    /// The time when the daemon started.
    pub since: Nanos,
    /// The time when the daemon will be woken.
    pub wake_at: Option<Nanos>,
    /// The shared memory of groups.
    pub group_memories: BTreeMap<u64, GroupMemory>,
    /// The process id of the last process that the daemon started.
    pub last_process: i32,
}

impl Node {
    /// Makes a daemon that has just started. `number` determines its key and its port.
    pub fn new(place: Place, number: usize, rank: Rank, timeout: Duration, since: Nanos) -> Node {
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        let address = SocketAddr::new(address_of(place), FIRST_PORT + (number % 60_000) as u16);
        let host =
            HostSettings { name: name_of(place), arch: ARCH.into(), speed: 1000, node: None, groups: None, dsig: DSIG };
        let one_way = Some(OneWay { secret: key, function: mix });
        let settings = Settings {
            rank,
            host_timeout: timeout,
            addresses: vec![address],
            key,
            broadcast: Some(SocketAddrV4::new(Ipv4Addr::new(239, 255, 0, 1), FIRST_PORT)),
            // So few that all ways of a release are taken.
            barrier_broadcast_hosts: 5,
            one_way,
            ..Settings::new(host)
        };
        let tid = match rank {
            Rank::Master => Tid::host_number(1),
            Rank::Slave { own, .. } => own,
        };
        Node {
            place,
            tid,
            address,
            key,
            machine: Machine::new(settings),
            flows: Flows::new(),
            inbound: InboundFlows::new(),
            pacer: Pacer::new(),
            held: InOrder::default(),
            last_body_tick: since,
            state: NodeState::Running,
            deferred: VecDeque::new(),
            known: BTreeMap::new(),
            links: BTreeMap::new(),
            attempts: BTreeMap::new(),
            data_expected: BTreeMap::new(),
            control_calls: BTreeMap::new(),
            data_calls: BTreeMap::new(),
            tasks: BTreeMap::new(),
            kept: BTreeMap::new(),
            since,
            wake_at: None,
            group_memories: BTreeMap::new(),
            last_process: 100,
        }
    }
}

/// The one-way function of simulated daemons, which is not one.
fn mix(value: &ChainValue) -> ChainValue {
    const WORDS: usize = CHAIN_VALUE_BYTES / 8;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| value[8 * (at % WORDS) + byte]));
    let mixed: [u64; WORDS] = std::array::from_fn(|at| {
        let sum = word(at).wrapping_add(word(at + 1).rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (sum ^ sum >> 29).wrapping_add(at as u64)
    });
    std::array::from_fn(|byte| mixed[byte / 8].to_le_bytes()[byte % 8])
}

/// Returns the name of a computer.
pub fn name_of(place: Place) -> String {
    format!("h{place}")
}

/// Returns the computer with that name, if there is one.
pub fn place_of(name: &str, places: usize) -> Option<Place> {
    let place = name.strip_prefix('h')?.parse().ok()?;
    (1..=places).contains(&place).then_some(place)
}

/// Returns the address of a computer.
pub fn address_of(place: Place) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + place as u32).into()
}

/// Returns the lines of a request to add hosts.
pub fn lines(places: &[Place]) -> Vec<ByteBuf> {
    places.iter().map(|place| ByteBuf::from(name_of(*place).into_bytes())).collect()
}
