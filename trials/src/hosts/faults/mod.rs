//! `cargo xtask hosts --faults`: makes hosts, tasks and links fail while tasks on all hosts send messages.
//!
//! A run is one fault with one seed, in a sandbox of its own. `tests/hosts/faults` contains the tasks and their
//! accounts. This module causes the fault and checks the state afterwards: the remaining hosts have the same host
//! table, nothing hangs, a lost host can be added as a new one, and after the halt nothing is left.

mod attackers;
mod chief;
mod during;
mod fabrics;
mod kinds;
mod links;
pub mod multicasts;
pub mod succession;

use super::machine::Machine;
use super::network::{Host, Network, Wiring};
use super::{sandbox, scenario, switch, tap};
use crate::common::{Checks, root, sh};
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::debian_pvm;
use crate::failures;
use crate::machine::wait_until;
use anyhow::{Context, Result, bail, ensure};
use chief::Chief;
use during::Operation;
pub use kinds::Fault;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The number of hosts of the machine.
const HOSTS: usize = 4;
/// How long a console may take to answer.
const CONSOLE_TIME: Duration = Duration::from_secs(20);
/// How long everything may take to end after a halt.
const END_TIME: Duration = Duration::from_secs(15);
/// How long the remaining hosts may take until they all have the same host table.
const AGREE_TIME: Duration = Duration::from_secs(10);
/// The number of last lines of each log that are shown after a failure.
const LOG_LINES: usize = 12;

/// Which runs to make.
pub struct Plan {
    /// The faults; if the list is empty, all faults.
    pub faults: Vec<Fault>,
    /// The number of seeds for each fault.
    pub seeds: u64,
    /// The first seed.
    pub first_seed: u64,
    /// The number of runs at the same time.
    pub jobs: usize,
    /// The provider of libfabric that messages between hosts take.
    pub fabric: Option<String>,
}

/// The tasks' program, `tests/hosts/faults/faults.c`.
const PROGRAM: &str = "faults";

/// Returns the path of a program of tasks.
fn program(name: &str) -> PathBuf {
    scenario::programs().join(name)
}

/// Compiles the tasks' program of this name in `tests/hosts/faults`, and the switch.
fn compile(name: &str) -> Result<()> {
    let tests = root().join("tests");
    std::fs::create_dir_all(scenario::programs())?;
    let mut cc = Command::new("cc");
    debian_pvm::compiles(&mut cc)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-function", "-I"])
        .arg(tests.join("conform"));
    cc.arg("-I").arg(tests.join("hosts")).arg(tests.join(format!("hosts/faults/{name}.c")));
    // The group functions have a library of their own in PVM 3.4.
    sh(cc.arg("-o").arg(program(name)).args(["-Wl,--as-needed", "-lgpvm3", "-lpvm3"]))?;
    switch::compile()
}

/// Runs all faults with all seeds, each in a sandbox of its own, and prints a table.
pub fn counted(plan: &Plan, side: Side) -> Result<Counts> {
    if let Some(obstacle) = tap::obstacle() {
        return Ok(Counts::skip(format_args!("faults: {obstacle}")));
    }
    for name in [PROGRAM, during::PROGRAM, multicasts::PROGRAM] {
        compile(name)?;
    }
    let possible = |fault: &Fault| plan.fabric.is_some() || !fault.needs_fabric();
    let faults = match plan.faults.is_empty() {
        true => Fault::ALL.into_iter().filter(possible).collect(),
        false => plan.faults.clone(),
    };
    if let Some(fault) = faults.iter().find(|fault| !possible(fault)) {
        bail!("{} needs --fabric NAME", fault.name());
    }
    let seeds = plan.first_seed..plan.first_seed + plan.seeds;
    let runs: Vec<(Fault, u64)> = seeds.flat_map(|seed| faults.iter().map(move |fault| (*fault, seed))).collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                while let Some((fault, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = in_sandbox(*fault, *seed, side, plan.fabric.as_deref());
                    outcomes.lock().expect("nobody panics with it").push((*fault, *seed, outcome));
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("nobody panics with it");
    let mut checks = Checks::default();
    println!("fault                                                 runs  good  seeds that failed");
    for fault in faults {
        let mine = outcomes.iter().filter(|outcome| outcome.0 == fault);
        let failed: Vec<String> = mine.clone().filter(|outcome| !outcome.2).map(|one| one.1.to_string()).collect();
        let count = mine.count();
        println!("{:52} {count:5} {:5}  {}", fault.text(), count - failed.len(), failed.join(" "));
        for index in 0..count {
            let result = if index < failed.len() { Err(anyhow::anyhow!("see above")) } else { Ok(()) };
            checks.check(fault.name(), result);
        }
    }
    Ok(checks.counts())
}

fn in_sandbox(fault: Fault, seed: u64, side: Side, fabric: Option<&str>) -> bool {
    let seed = seed.to_string();
    let mut words = vec!["hosts", "--one-fault", fault.name(), "--seed", &seed];
    if side == Side::Theirs {
        words.push("--theirs");
    }
    words.extend(fabric.into_iter().flat_map(|name| ["--fabric", name]));
    match sandbox::run(&words) {
        Ok(last) => Counts::parse(&last).is_ok_and(|counts| counts == Counts::one(true)),
        Err(error) => {
            failures::report(format_args!("FAILED   {} seed {seed}: {error:#}", fault.name()));
            false
        }
    }
}

/// Runs one fault, inside the sandbox.
pub fn inside(folder: &Path, fault: Fault, seed: u64, side: Side, fabric: Option<&str>) -> Result<()> {
    let network = Network::new(folder, HOSTS + fault.spare_hosts(), Wiring::Switch(seed))?;
    let mut run = Run::new(&network, fault, seed, side, fabric)?;
    let result = run.all();
    match &result {
        Ok(said) => println!("ok       {} seed {seed}: {said}", fault.name()),
        Err(error) => {
            failures::report(format_args!("FAILED   {} seed {seed}: {error:#}", fault.name()));
            run.show_logs();
        }
    }
    println!("hosts: {}", Counts::one(result.is_ok()));
    Ok(())
}

/// A run in progress.
pub struct Run<'a> {
    network: &'a Network,
    machine: Machine<'a>,
    fault: Fault,
    random: fastrand::Rng,
    /// The index of the host with the fault; that of the first host if the fault is about it.
    victim: usize,
    /// Whether that host will be lost, and those after it that have the fault, too.
    loses_victim: bool,
    /// The hosts that were not in the machine from the start, and have been added.
    joined: Vec<&'a str>,
    /// The provider of the fabric that messages may take.
    fabric: Option<&'a str>,
}

impl<'a> Run<'a> {
    fn new(network: &'a Network, fault: Fault, seed: u64, side: Side, fabric: Option<&'a str>) -> Result<Run<'a>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let victim = if fault.is_of_first_hosts() { 0 } else { random.usize(1..HOSTS) };
        // The seed decides whether data links are encrypted.
        let trusted = fault.is_of_data_links() && seed % 2 == 0;
        let trusted = trusted.then(|| ("PVM_TRUSTED_NET".to_owned(), "1".to_owned()));
        let wish = fabric.map(|name| [("PVM_FABRIC", name), ("HPVM_ORDER", "pairs")]);
        let wish = wish.into_iter().flatten().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment: Vec<(String, String)> = trusted.into_iter().chain(wish).collect();
        let machine = Machine::new(side, network, &environment)?;
        Ok(Run {
            network,
            machine,
            fault,
            random,
            victim,
            loses_victim: fault.loses_host(),
            joined: Vec::new(),
            fabric,
        })
    }

    fn victim(&self) -> &'a Host {
        &self.network.hosts()[self.victim]
    }

    /// Returns the indices of the hosts with the fault.
    fn victims(&self) -> std::ops::Range<usize> {
        self.victim..self.victim + self.fault.victims()
    }

    /// Returns the host of the chief, which stays in the machine.
    fn chief_host(&self) -> &'a Host {
        if self.fault.is_of_first_hosts() { &self.network.hosts()[HOSTS - 1] } else { self.machine.first() }
    }

    fn all(&mut self) -> Result<String> {
        self.fault.prepare(self)?;
        self.machine.start(HOSTS, &[])?;
        let mut chief = self.chief()?;
        chief.wait("running", Duration::from_secs(30), |lines| lines.iter().any(|line| line == "running"))?;
        if self.fabric.is_some() && !self.fault.is_of_data_links() {
            fabrics::endpoints(self)?;
        }
        std::thread::sleep(Duration::from_millis(self.random.u64(300..1500)));
        if self.fault == Fault::MasterKilled && self.machine.side == Side::Theirs {
            return self.without_master();
        }
        if self.fault == Fault::During(Operation::Halt) && during::halt(self)? {
            return Ok("the machine has ended".to_owned());
        }
        let fault = self.fault;
        fault.happen(self, &mut chief)?;
        let said = self.check_accounts(&mut chief)?;
        self.check_tables(&self.present())?;
        if self.loses_victim {
            self.check_lost_hosts_can_rejoin(&mut chief)?;
        }
        chief.end()?;
        self.halt()?;
        Ok(said)
    }

    fn chief(&mut self) -> Result<Chief> {
        // The arguments are the route (PvmDontRoute, PvmAllowDirect or PvmRouteDirect) and the longest message, in
        // bytes. PVM 3.4 always gets PvmDontRoute: with PvmRouteDirect, it would not keep the order of messages (D3).
        let chance = self.random.bool();
        let direct = self.fault.is_direct().unwrap_or(chance) && self.machine.side == Side::Ours;
        let route = match (direct, self.fabric.is_some() && !self.fault.is_of_data_links()) {
            (true, _) => "3",
            // PvmDontRoute would forbid the fabric.
            (false, true) => "2",
            (false, false) => "1",
        };
        let longest = if self.fault == Fault::TaskKilled { 4_000_000 } else { 400_000 };
        let mut command = self.machine.command(self.chief_host(), &program(PROGRAM));
        command.arg(route).arg(longest.to_string());
        command.args(self.network.hosts()[..HOSTS].iter().map(|host| host.name.as_str()));
        Chief::start(&mut command)
    }

    /// Returns the names of the hosts that must be in the table now.
    fn present(&self) -> Vec<&'a str> {
        let hosts = self.network.hosts()[..HOSTS].iter().enumerate();
        let stays = |(index, _): &(usize, &Host)| !(self.loses_victim && self.victims().contains(index));
        hosts.filter(stays).map(|(_, host)| host.name.as_str()).chain(self.joined.iter().copied()).collect()
    }

    /// Checks that all accounts agree with each other and with the fault.
    fn check_accounts(&mut self, chief: &mut Chief) -> Result<String> {
        let line = chief.settle()?;
        let dead = line.split(' ').find_map(|word| word.strip_prefix("dead=")).unwrap_or_default();
        let lost = line.split(' ').find_map(|word| word.strip_prefix("lost=")).unwrap_or_default();
        let list = |numbers: Vec<String>| numbers.join(",");
        let tasks =
            list(self.victims().flat_map(|host| [2 * host, 2 * host + 1]).map(|task| task.to_string()).collect());
        let hosts = list(self.victims().map(|host| format!("{:x}", (host + 1) << 18)).collect());
        let first = 2 * self.victim;
        if self.fault.may_lose_host() {
            self.loses_victim = !lost.is_empty();
        }
        match self.fault {
            _ if self.loses_victim => {
                ensure!(dead == tasks && lost == hosts, "lost something else: {line}");
            }
            Fault::TaskKilled => {
                ensure!(dead == first.to_string() || dead == (first + 1).to_string(), "another task died: {line}");
                ensure!(lost.is_empty(), "a host was lost: {line}");
            }
            _ => ensure!(dead.is_empty() && lost.is_empty(), "something was lost: {line}"),
        }
        Ok(line)
    }

    /// Checks that these hosts have the same host table, and that it contains exactly these hosts.
    fn check_tables(&self, names: &[&str]) -> Result<()> {
        let mut said = String::new();
        let agree = wait_until(AGREE_TIME, || match self.tables(names) {
            Ok(tables) => {
                let right = tables.iter().all(|table| *table == tables[0]);
                let mut listed: Vec<&str> = tables[0].iter().map(|entry| entry.0.as_str()).collect();
                let mut wanted = names.to_vec();
                listed.sort_unstable();
                wanted.sort_unstable();
                said = format!("{tables:?}");
                right && listed == wanted
            }
            Err(error) => {
                said = format!("{error:#}");
                false
            }
        });
        ensure!(agree, "the tables of {names:?} differ: {said}");
        Ok(())
    }

    /// Returns the host tables of these hosts, as names and numbers.
    fn tables(&self, names: &[&str]) -> Result<Vec<Vec<(String, String)>>> {
        let table = |host: &Host| -> Result<Vec<(String, String)>> {
            let said = self.machine.console(host, "conf\n", CONSOLE_TIME)?;
            let rows = said.lines().skip_while(|line| !line.contains("DTID")).skip(1);
            let rows = rows.map(|line| line.split_whitespace().collect::<Vec<_>>());
            let rows = rows.filter(|words| words.len() == 5).map(|words| (words[0].to_owned(), words[1].to_owned()));
            Ok(rows.collect())
        };
        let hosts = self.network.hosts().iter().filter(|host| names.contains(&host.name.as_str()));
        hosts.map(table).collect()
    }

    /// Checks that the processes of the lost hosts have ended by themselves, and that the hosts can be added as new ones.
    fn check_lost_hosts_can_rejoin(&mut self, chief: &mut Chief) -> Result<()> {
        let victims = &self.network.hosts()[self.victims()];
        let left = || victims.iter().flat_map(Host::processes).collect::<Vec<u32>>();
        let ended = wait_until(END_TIME, || left().is_empty());
        let names: Vec<String> = left().into_iter().map(super::network::name_of).collect();
        ensure!(ended, "left running on the lost hosts: {names:?}");
        let names: Vec<&str> = victims.iter().map(|host| host.name.as_str()).collect();
        let added = names.len() + self.joined.len();
        self.machine.add_from(self.chief_host(), &names)?;
        chief.wait("the hosts to be added", AGREE_TIME, |lines| {
            lines.iter().filter(|line| line.starts_with("added ")).count() >= added
        })?;
        let all: Vec<&str> = self.network.hosts().iter().map(|host| host.name.as_str()).collect();
        self.check_tables(&all)?;
        self.check_accounts(chief).context("after the host's return")?;
        ensure!(chief.count("added ") == added, "{} hosts are said to be added", chief.count("added "));
        Ok(())
    }

    /// Checks that all processes end after the loss of the first daemon, and that the other daemons report the reason, as on PVM
    /// 3.4.6.
    fn without_master(&mut self) -> Result<String> {
        let master = self.machine.first().daemon().context("a daemon")?;
        crate::processes::signal(master, rustix::process::Signal::KILL);
        let left = || self.network.hosts().iter().flat_map(Host::processes).collect::<Vec<u32>>();
        // The chief is a child of this process; it ends when it detects that the daemon has ended.
        let ended = wait_until(kinds::NOTICE_TIME, || left().is_empty());
        let names: Vec<String> = left().into_iter().map(super::network::name_of).collect();
        ensure!(ended, "left running: {names:?}");
        let mut lines = Vec::new();
        for host in &self.network.hosts()[1..] {
            let log = self.machine.log(host);
            let last = log.lines().rfind(|line| line.contains("master")).map(str::to_owned);
            lines.push(last.with_context(|| format!("the log of {} does not tell of the master: {log}", host.name))?);
        }
        Ok(lines.remove(0))
    }

    fn halt(&mut self) -> Result<()> {
        let present = self.network.hosts();
        let host = &present[self.random.usize(..present.len())];
        self.machine.console(host, "halt\n", CONSOLE_TIME)?;
        let left = || self.network.hosts().iter().flat_map(Host::processes).collect::<Vec<u32>>();
        let ended = wait_until(END_TIME, || left().is_empty());
        let names: Vec<String> = left().into_iter().map(super::network::name_of).collect();
        ensure!(ended, "left running after the halt from {}: {names:?}", host.name);
        self.check_files(present)
    }

    /// Checks that these hosts have no files of the machine any more.
    fn check_files(&self, hosts: &[Host]) -> Result<()> {
        for host in hosts {
            let files = std::fs::read_dir(host.path(&self.machine.temporary(host)))?.flatten();
            let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            let left: Vec<String> = names.filter(|name| !name.starts_with("pvml.") && name != "filler").collect();
            if !left.is_empty() {
                bail!("left on {}: {left:?}", host.name);
            }
        }
        Ok(())
    }

    fn show_logs(&self) {
        for host in self.network.hosts() {
            let log = self.machine.log(host);
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
                println!("    {}: {line}", host.name);
            }
            // What stands still may wait in a connection.
            let connections = host.sh("ss -HtnpoiO").unwrap_or_default();
            let is_waiting = |line: &&str| line.split_whitespace().skip(1).take(2).any(|bytes| bytes != "0");
            connections.lines().filter(is_waiting).for_each(|line| println!("    {}: {line}", host.name));
        }
    }
}
