//! `cargo xtask hosts --multicasts N`: multicasts by all ways while datagrams are lost, and hosts are killed, leave and
//! join. `tests/hosts/faults/multicasts.c` contains the tasks, which check every message. With `--attacked`, a host of
//! the machine lies about the multicasts that it receives, and a stranger on the network sends false datagrams
//! (`crates/pvm-hostile`).
use super::super::machine::Machine;
use super::super::network::{Network, Wiring};
use super::super::{sandbox, tap};
use super::attackers::{self, Attackers};
use super::{CONSOLE_TIME, END_TIME, compile, program};
use crate::common::Checks;
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::failures;
use crate::machine::{LineProcess, wait_until};
use crate::processes::signal;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// The number of hosts. Not all are in the machine from the start.
const HOSTS: usize = 8;
const HOSTS_AT_START: usize = 6;
/// The first hosts, which stay: the senders are there.
const HOSTS_THAT_STAY: usize = 2;
/// How many of a thousand datagrams a receiver loses, by seed.
const LOSSES: [u32; 3] = [0, 50, 200];
/// The pause before a host is killed, leaves or joins, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 100..700;
/// How long nothing may be heard from the tasks.
const SILENCE_MAX: Duration = Duration::from_secs(150);

/// Which runs to make.
pub struct MulticastPlan {
    /// The number of multicasts in each run.
    pub count: u64,
    pub seeds: u64,
    pub first_seed: u64,
    /// Whether there are attackers.
    pub attacked: bool,
}

/// The tasks' program, `tests/hosts/faults/multicasts.c`.
pub const PROGRAM: &str = "multicasts";

/// Runs all seeds, each in a sandbox of its own.
pub fn counted(plan: &MulticastPlan) -> Result<Counts> {
    if let Some(obstacle) = tap::obstacle() {
        return Ok(Counts::skip(format_args!("multicasts: {obstacle}")));
    }
    compile(PROGRAM)?;
    if plan.attacked {
        attackers::compile()?;
    }
    let mut checks = Checks::default();
    for seed in plan.first_seed..plan.first_seed + plan.seeds {
        let (seed, count) = (seed.to_string(), plan.count.to_string());
        let mut words = vec!["hosts", "--multicasts", &count, "--one-seed", &seed];
        words.extend(plan.attacked.then_some("--attacked"));
        let outcome = sandbox::run(&words).and_then(|last| {
            ensure!(Counts::parse(&last)? == Counts::one(true), "see above");
            Ok(())
        });
        checks.check(&format!("multicasts, seed {seed}"), outcome);
    }
    Ok(checks.counts())
}

/// Runs one seed, inside the sandbox.
pub fn inside(folder: &Path, count: u64, seed: u64, attacked: bool) -> Result<()> {
    let network = Network::new(folder, HOSTS + if attacked { attackers::HOSTS } else { 0 }, Wiring::Switch(seed))?;
    // The seed decides whether the network is trusted.
    let trusted = (seed % 2 == 0).then(|| ("PVM_TRUSTED_NET".to_owned(), "1".to_owned()));
    let mut environment: Vec<(String, String)> = trusted.into_iter().collect();
    let attackers = attacked.then(|| Attackers::new(&network.hosts()[HOSTS..], folder, seed));
    environment.extend(attackers.iter().flat_map(Attackers::environment));
    let machine = Machine::new(Side::Ours, &network, &environment)?;
    let random = fastrand::Rng::with_seed(seed);
    let mut run = Run { network: &network, machine, attackers, random, killed: 0, left: 0, joined: 0 };
    let result = run.all(count, seed);
    match &result {
        Ok(said) => {
            let Run { killed, left, joined, .. } = run;
            println!("ok       multicasts seed {seed}: {said}, {killed} hosts killed, {left} left, {joined} joined");
        }
        Err(error) => {
            failures::report(format_args!("FAILED   multicasts seed {seed}: {error:#}"));
            network.hosts().iter().for_each(|host| println!("    {}: {}", host.name, run.machine.log(host)));
        }
    }
    println!("hosts: {}", Counts::one(result.is_ok()));
    Ok(())
}

struct Run<'a> {
    network: &'a Network,
    machine: Machine<'a>,
    attackers: Option<Attackers<'a>>,
    random: fastrand::Rng,
    killed: usize,
    left: usize,
    joined: usize,
}

impl Run<'_> {
    fn all(&mut self, count: u64, seed: u64) -> Result<String> {
        let hostfile: Vec<String> = self.attackers.iter().map(Attackers::hostfile_line).collect();
        self.machine.start(HOSTS_AT_START, &hostfile)?;
        self.network.tell_switch(&format!("deaf {}", LOSSES[seed as usize % LOSSES.len()]))?;
        let mut command = self.machine.command(self.machine.first(), &program(PROGRAM));
        command.arg(count.to_string()).arg(seed.to_string());
        command.args(self.attackers.iter().map(Attackers::host_name));
        if let Some(attackers) = &mut self.attackers {
            attackers.start_stranger()?;
            self.keep_attacker()?;
        }
        let mut chief = LineProcess::start(&mut command)?;
        let (mut heard, mut is_running) = (Instant::now(), false);
        let mut next = Instant::now() + self.pause();
        let settled = loop {
            let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match chief.next_line(wait) {
                Ok(Some(line)) if line.starts_with("error ") => bail!(line),
                Ok(Some(line)) if line.starts_with("settled ") => break line,
                Ok(Some(line)) => (heard, is_running) = (Instant::now(), is_running || line == "running"),
                Ok(None) => bail!("the chief of the tasks has ended: {}", chief.ending()),
                Err(_) => ensure!(heard.elapsed() < SILENCE_MAX, "nothing happens any more"),
            }
            if is_running && Instant::now() >= next {
                self.change_a_host()?;
                self.keep_attacker()?;
                next = Instant::now() + self.pause();
            }
        };
        ensure!(chief.end(END_TIME)?, "the chief ended badly: {}", chief.ending());
        self.network.tell_switch("heal")?;
        let datagrams = self.attackers.as_mut().map(Attackers::end_stranger).transpose()?;
        self.machine.console(self.machine.first(), "halt\n", CONSOLE_TIME)?;
        let left = || self.network.hosts().iter().flat_map(|host| host.processes()).count();
        ensure!(wait_until(END_TIME, || left() == 0), "processes are left after the halt");
        if let Some((attackers, datagrams)) = self.attackers.as_ref().zip(datagrams) {
            let logs = self.network.hosts()[..HOSTS_THAT_STAY].iter().map(|host| self.machine.log(host));
            println!("    a stranger sent {datagrams} datagrams; {}", attackers::check_logs(logs)?);
            println!("{}", attackers.lives()?);
        }
        Ok(settled)
    }

    /// Adds the hostile host again if it has left, and measures the daemons that stay.
    fn keep_attacker(&mut self) -> Result<()> {
        let Some(attackers) = &self.attackers else { return Ok(()) };
        if attackers.is_away() {
            self.console(&format!("add {}\n", attackers.host_name()))?;
        }
        attackers::check_memory(self.network.hosts()[..HOSTS_THAT_STAY].iter().filter_map(|host| host.daemon()))
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(PAUSE_MS))
    }

    /// Kills the daemon of a host, deletes the host, or adds it.
    fn change_a_host(&mut self) -> Result<()> {
        let host = &self.network.hosts()[self.random.usize(HOSTS_THAT_STAY..HOSTS)];
        match host.daemon() {
            Some(daemon) if self.random.bool() => {
                signal(daemon, Signal::KILL);
                self.killed += 1;
            }
            Some(_) => {
                self.console(&format!("delete {}\n", host.name))?;
                self.left += 1;
            }
            None => {
                // The first daemon may not have noticed yet that the host is lost; then it refuses.
                let said = self.console(&format!("add {}\n", host.name))?;
                self.joined += usize::from(said.contains("\n1 successful\n"));
            }
        }
        Ok(())
    }

    fn console(&self, line: &str) -> Result<String> {
        self.machine.console(self.machine.first(), line, CONSOLE_TIME).with_context(|| line.trim().to_owned())
    }
}
