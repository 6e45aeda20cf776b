//! Runs the torture test on a machine that also has hostile hosts (`crates/pvm-hostile`).
//!
//! The tasks of the torture live on two honest hosts, and must lose nothing. Beside them are hosts that hold a valid
//! key and send well-formed frames with wrong contents. A host that has been cut off is added again. The first and the
//! last round have no hostile hosts, so that the last one shows whether the honest daemons have returned the memory.
mod keeper;
mod logs;

use super::memory::{Limits, Watch};
use super::ring::Ring;
use super::{OFFERS, Plan, TASKS, compile, run_traffic};
use crate::build;
use crate::common::{Checks, cargo, sh};
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::hosts::machine::Machine;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use crate::machine::{END_TIME_MAX, LineProcess};
use anyhow::{Result, ensure};
use keeper::Keeper;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of hosts on which the tasks live.
const HONEST: usize = 2;
/// The program, by cargo's name.
const PROGRAM: &str = "hostile-host";
/// The time after which silent hosts are removed, in seconds. It is long, since many hosts share a few processors, and
/// a host may have to wait for one.
const HOST_TIMEOUT_SECONDS: &str = "20";
/// The longest life of a hostile host; a short run waits for the end of the first life.
const LIFE_TIME_MAX: Duration = Duration::from_secs(60);
/// The largest log, so that no part of it is dropped.
const LOG_BYTES_MAX: &str = "1000000000";
/// The limits while there are hostile hosts: what daemons may keep for them, and what honest tasks may receive.
const MEANWHILE: Limits = Limits {
    heap: 4 << 20,
    private: 160 << 20,
    daemon: 512 << 20,
    shared: 8 << 20,
    descriptors: 5_000,
    mappings: 10_000,
};
/// The limits after the hostile hosts have left. A task copies a long body from another host to its own memory, and its
/// allocator does not return all of this memory at once.
const AFTERWARDS: Limits =
    Limits { heap: 1 << 20, private: 160 << 20, daemon: 64 << 20, shared: 8 << 20, descriptors: 3, mappings: 64 };

/// Runs the torture in namespaces of its own.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    if let Some(obstacle) = sandbox::obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    // A debug build is enough; the unit tests have already built its libraries.
    sh(cargo().args(["build", "--quiet", "--package", "pvm-hostile"]))?;
    let words: Vec<&str> = std::iter::once("torture").chain(arguments.iter().map(String::as_str)).collect();
    let last = sandbox::run(&words)?;
    Counts::parse(&last)
}

/// Runs the torture inside the namespaces.
pub fn inside(folder: &Path, plan: &Plan) -> Result<()> {
    let Plan { hostile_hosts, tasks, seconds, seed, .. } = plan;
    println!("torture: {tasks} tasks on {HONEST} hosts, {hostile_hosts} hostile hosts, {seconds} s, seed {seed}");
    let mut checks = Checks::default();
    if let Err(error) = run(folder, plan, &mut checks) {
        checks.check("hostile hosts: the run", Err(error));
    }
    println!("torture: {}", checks.counts());
    Ok(())
}

fn run(folder: &Path, plan: &Plan, checks: &mut Checks) -> Result<()> {
    let program = compiled(plan)?;
    let hostile = build::target_directory()?.join("debug").join(PROGRAM);
    let network = Network::new(folder, HONEST + plan.hostile_hosts as usize, Wiring::Bridge)?;
    let environment: Vec<(String, String)> = [
        ("HOSTILE_FOLDER", folder.display().to_string()),
        ("HOSTILE_SEED", plan.seed.to_string()),
        ("PVMDLOGMAX", LOG_BYTES_MAX.to_owned()),
        ("HPVM_HOST_TIMEOUT", HOST_TIMEOUT_SECONDS.to_owned()),
        // Links that are made at any time would hide descriptors and memory that are not returned.
        ("HPVM_DIRECT_AFTER", "off".to_owned()),
    ]
    .into_iter()
    .chain(OFFERS.iter().map(|(name, value)| (*name, (*value).to_owned())))
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    let mut machine = Machine::new(Side::Ours, &network, &environment)?;
    let hosts = &network.hosts()[HONEST..];
    let hostfile: Vec<String> = hosts.iter().map(|host| format!("&{} dx={}", host.name, hostile.display())).collect();
    machine.start(HONEST, &hostfile)?;
    let ring = Ring { machine: &machine, count: HONEST };
    let daemons = ring.daemons()?;
    let keeper = Keeper::new(&machine, hosts, &daemons, folder);
    let (traffic, trouble, memory) = std::thread::scope(|scope| {
        scope.spawn(|| keeper.keep());
        let outcome = talk(plan, &ring, &program, &daemons, &keeper);
        keeper.stop();
        outcome
    })?;
    match traffic {
        Ok(total) => {
            total.print();
            checks.check("hostile hosts: others lose no message and no notify", Ok(()));
        }
        Err(error) => checks.check("hostile hosts: others lose no message and no notify", Err(error)),
    }
    let memory = trouble.and(memory).map(|text| println!("  {text}"));
    checks.check("hostile hosts: memory and descriptors of the others are bounded, and return", memory);
    keeper.report(checks);
    checks.check("hostile hosts: the machine halts, and nothing is left", ring.halt());
    for host in ring.hosts() {
        let log = machine.log(host);
        std::fs::write(build::target_directory()?.join("torture").join(format!("{}.log", host.name)), &log)?;
        let told = logs::look(&host.name, &log, keeper.lives());
        checks.check("hostile hosts: the log has a line for each cause", told.map(|text| println!("  {text}")));
    }
    Ok(())
}

fn compiled(plan: &Plan) -> Result<PathBuf> {
    ensure!(plan.side == Side::Ours, "hostile hosts speak hpvm's protocol");
    compile(plan.side, "torture", TASKS)
}

type Talked = (Result<super::Total>, Result<()>, Result<String>);

/// Runs the traffic of the honest tasks.
fn talk(plan: &Plan, ring: &Ring<'_>, program: &Path, daemons: &[u32], keeper: &Keeper<'_>) -> Result<Talked> {
    let machine = ring.machine;
    let mut command = plan.chief_by(machine.command(machine.first(), program), &machine.folder.join("table"), false);
    let mut chief = LineProcess::start(command.arg(format!("hosts={}", ring.names())))?;
    let mut watch = Watch::new(daemons.to_vec(), Duration::from_secs(plan.patience));
    let calm_from = Duration::from_secs(plan.seconds.saturating_sub(plan.round_seconds));
    // An unfinished message of a hostile host may take as much memory as the longest possible message.
    let begun = plan.hostile_hosts * i32::MAX as u64 / plan.tasks;
    let meanwhile = Limits { shared: MEANWHILE.shared + begun, ..MEANWHILE };
    let mut calm = false;
    let (traffic, trouble) = run_traffic(plan, &mut chief, ring, &mut |line, time| {
        watch.limits = if calm { AFTERWARDS } else { meanwhile };
        let said = watch.measure(line);
        // Another round follows, unless this was the last round, which has no hostile hosts.
        let over = time >= calm_from && (keeper.lives() > 0 || time >= calm_from + LIFE_TIME_MAX);
        let more = !std::mem::replace(&mut calm, over);
        if calm {
            keeper.pause()
        } else {
            keeper.admit()
        }
        (said, more)
    });
    if traffic.is_ok() {
        ensure!(chief.end(END_TIME_MAX)?, "the chief of the tasks failed at its end: {}", chief.ending());
    }
    Ok((traffic, trouble, watch.verdict()))
}
