//! Runs the torture test across three hosts: two with a fabric, and one that has only TCP.
//!
//! In each round, the kernel's counters show the way of each pair of hosts: tasks of the two hosts with a fabric have
//! connections of the provider (so this is for providers that send by TCP), and messages to and from the third host
//! pass the daemons.
use super::memory::{Limits, Watch};
use super::ring::Ring;
use super::{OFFERS, Plan, TASKS, Total, compile, run_traffic};
use crate::common::Checks;
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::hosts::machine::Machine;
use crate::hosts::network::{Host, Network, Wiring};
use crate::hosts::sandbox;
use crate::machine::{END_TIME_MAX, LineProcess};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// The number of hosts, and of those with a fabric.
const HOSTS: usize = 3;
const WITH_FABRIC: usize = 2;
/// The limits. A task's endpoint and its buffers come with its first peer, and memory that a dead peer may still be
/// reading stays until the endpoint is closed.
const LIMITS: Limits =
    Limits { heap: 64 << 20, private: 256 << 20, daemon: 64 << 20, shared: 8 << 20, descriptors: 200, mappings: 2000 };

/// Runs the torture in namespaces of its own.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    if let Some(obstacle) = sandbox::obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    let words: Vec<&str> = std::iter::once("torture").chain(arguments.iter().map(String::as_str)).collect();
    let last = sandbox::run(&words)?;
    Counts::parse(&last)
}

/// Runs the torture inside the namespaces.
pub fn inside(folder: &Path, plan: &Plan, provider: &str) -> Result<()> {
    let Plan { tasks, seconds, seed, .. } = plan;
    println!("torture: {tasks} tasks on {HOSTS} hosts, two with the fabric {provider}, {seconds} s, seed {seed}");
    let mut checks = Checks::default();
    if let Err(error) = run(folder, plan, provider, &mut checks) {
        checks.check("fabric: the run", Err(error));
    }
    println!("torture: {}", checks.counts());
    Ok(())
}

fn run(folder: &Path, plan: &Plan, provider: &str, checks: &mut Checks) -> Result<()> {
    ensure!(plan.side == Side::Ours, "only hpvm has fabrics");
    let program = compile(plan.side, "torture", TASKS)?;
    let network = Network::new(folder, HOSTS, Wiring::Bridge)?;
    // Without direct links, each connection between tasks is one of the provider. Each host has many tasks.
    let variables = OFFERS.iter().chain(&[("HPVM_DIRECT_AFTER", "off"), ("HPVM_ORDER", "pairs")]);
    let environment: Vec<(String, String)> =
        variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut machine = Machine::new(Side::Ours, &network, &environment)?;
    let without = &network.hosts()[WITH_FABRIC];
    machine.start(HOSTS, &[format!("* fabric={provider}"), format!("&{} fabric=off", without.name)])?;
    let ring = Ring { machine: &machine, count: HOSTS };
    let mut command = plan.chief_by(machine.command(machine.first(), &program), &machine.folder.join("table"), false);
    let mut chief = LineProcess::start(command.arg(format!("hosts={}", ring.names())))?;
    let mut watch = Watch::new(ring.daemons()?, Duration::from_secs(plan.patience));
    watch.limits = LIMITS;
    let mut ways = Ok(String::new());
    let (traffic, trouble) = run_traffic(plan, &mut chief, &ring, &mut |line, _| {
        if ways.is_ok() {
            ways = ways_of(ring.hosts());
        }
        (watch.measure(line), false)
    });
    if traffic.is_ok() {
        ensure!(chief.end(END_TIME_MAX)?, "the chief of the tasks failed at its end: {}", chief.ending());
    }
    checks.check("fabric: messages and notifies", traffic.map(|total: Total| total.print()));
    let memory = trouble.and_then(|()| watch.verdict()).map(|text| println!("  {text}"));
    checks.check("fabric: memory and descriptors are bounded", memory);
    checks.check("fabric: each pair of hosts takes its best way", ways.map(|text| println!("  {text}")));
    checks.check("fabric: the machine halts, and nothing is left", ring.halt());
    Ok(())
}

/// A connection of a task to another host: the far address, and the bytes that were sent on it.
struct Connection {
    far: String,
    bytes: u64,
}

/// Returns the connections of the tasks of a host.
fn connections(host: &Host) -> Result<Vec<Connection>> {
    let said = host.sh("ss -Htnpi -O state established")?;
    let connection = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let far = words.get(3)?.rsplit_once(':')?.0.trim_matches(['[', ']']).to_owned();
        let bytes = words.iter().find_map(|word| word.strip_prefix("bytes_sent:")?.parse().ok()).unwrap_or(0);
        Some(Connection { far, bytes })
    };
    Ok(said.lines().filter(|line| line.contains("\"torture\"")).filter_map(connection).collect())
}

/// Checks the way between the tasks of each pair of hosts, and describes it.
fn ways_of(hosts: &[Host]) -> Result<String> {
    let mut texts = Vec::new();
    for (from, host) in hosts.iter().enumerate() {
        let connections = connections(host)?;
        for (to, other) in hosts.iter().enumerate().filter(|(to, _)| *to != from) {
            let is_there =
                |one: &&Connection| [format!("10.77.0.{}", to + 1), format!("fd77::{:x}", to + 1)].contains(&one.far);
            let there: Vec<&Connection> = connections.iter().filter(is_there).collect();
            let bytes: u64 = there.iter().map(|one| one.bytes).sum();
            let pair = format!("{} to {}", host.name, other.name);
            match (from.max(to) < WITH_FABRIC, there.len()) {
                (true, 0) => bail!("{pair}: no connection of the provider"),
                (true, count) => {
                    ensure!(bytes > 0, "{pair}: the provider has carried nothing");
                    texts.push(format!("{pair}: {count} connections of the provider, {} MiB", bytes >> 20));
                }
                (false, 0) => texts.push(format!("{pair}: by the daemons")),
                (false, count) => bail!("{pair}: {count} connections between tasks, though there is no fabric"),
            }
        }
    }
    texts.first().context("there are several hosts")?;
    Ok(texts.join("; "))
}
