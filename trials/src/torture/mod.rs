//! `cargo xtask torture`: tasks send and receive in every way while they are killed at random moments.
//!
//! `tests/torture` contains the tasks, which keep accounts of what they send and receive. One of them, the chief,
//! starts and kills the others, and reports to this program. This module contains what surrounds the tasks: the
//! machine, the watchdog, and the checks of memory, of descriptors, and of what is left at the end.
mod fabric;
mod groups;
mod hostile;
mod hostile_hosts;
mod lookout;
mod memory;
mod report;
mod ring;
mod self_test;

use crate::build;
use crate::common::{Checks, dist, root, sh};
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::debian_pvm;
use crate::hosts::sandbox;
use crate::machine::{END_TIME_MAX, LineProcess, Machine};
use anyhow::{Result, bail, ensure};
use lexopt::prelude::*;
use lookout::Lookout;
use memory::Watch;
use report::Total;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a wait of a task may take before it counts as a hang, in seconds.
const PATIENCE_SECONDS: u64 = 30;
/// How much longer the watchdog waits than the time limits of the tasks themselves, in case the chief of the tasks
/// hangs.
const WATCHDOG: Duration = Duration::from_secs(30);
/// The length of a round of traffic, after which memory is measured, in seconds.
const ROUND_SECONDS: u64 = 8;
/// The most tasks in the run in which the daemon is killed.
const TASKS_WITHOUT_DAEMON: u64 = 8;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    side: Side,
    seconds: u64,
    round_seconds: u64,
    seed: u64,
    tasks: u64,
    patience: u64,
    /// The error that a task makes on purpose, if the run is a part of the self-test (`self_test.rs`).
    mutation: Option<&'static str>,
    /// Whether tasks are killed.
    killing: bool,
    /// The number of tasks that break every rule of shared memory.
    hostiles: u64,
    /// The number of hosts that send well-formed frames with wrong contents.
    hostile_hosts: u64,
    /// The provider of libfabric that tasks of two of three hosts use.
    fabric: Option<String>,
    /// Whether every round is reported.
    talkative: bool,
}

impl Plan {
    fn new(arguments: &[String]) -> Result<(Plan, bool)> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
        let mut plan = Plan {
            side: Side::Ours,
            seconds: 30,
            round_seconds: ROUND_SECONDS,
            seed,
            tasks: 32,
            patience: PATIENCE_SECONDS,
            mutation: None,
            killing: true,
            hostiles: 0,
            hostile_hosts: 0,
            fabric: None,
            talkative: true,
        };
        let mut self_test_only = false;
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("seconds") => plan.seconds = parser.value()?.parse()?,
                Long("seed") => plan.seed = parser.value()?.parse()?,
                Long("tasks") => plan.tasks = parser.value()?.parse()?,
                Long("patience") => plan.patience = parser.value()?.parse()?,
                Long("round") => plan.round_seconds = parser.value()?.parse()?,
                Long("hostile") => plan.hostiles = parser.value()?.parse()?,
                Long("hostile-hosts") => plan.hostile_hosts = parser.value()?.parse()?,
                // A killed task takes those messages along that no peer has read from its memory.
                Long("fabric") => (plan.fabric, plan.killing) = (Some(parser.value()?.string()?), false),
                Long("no-kills") => plan.killing = false,
                Long("theirs") => plan.side = Side::Theirs,
                Long("as-it-is") => {} // there is nothing to build
                Long("self-test") => self_test_only = true,
                other => bail!(
                    "{}\ntorture [--seconds N] [--seed N] [--tasks N] [--patience N] [--round N] [--hostile N] \
                     [--hostile-hosts N] [--fabric NAME] [--no-kills] [--theirs] [--as-it-is] [--self-test]",
                    other.unexpected()
                ),
            }
        }
        ensure!(plan.tasks >= 2, "at least 2 tasks");
        plan.round_seconds = plan.round_seconds.min(plan.seconds / 2).max(1);
        Ok((plan, self_test_only))
    }

    /// Returns how many tasks are never killed. Their memory at the end of each round is compared.
    fn immortals(&self) -> u64 {
        if self.killing { (self.tasks / 4).max(2) } else { self.tasks }
    }

    fn chief(&self, machine: &Machine, program: &Path, lose_daemon: bool) -> Command {
        self.chief_by(machine.command(program), &table(machine), lose_daemon)
    }

    /// Adds the arguments of the chief to the command that starts it.
    fn chief_by(&self, mut command: Command, table: &Path, lose_daemon: bool) -> Command {
        command.arg("chief").arg(table);
        command.arg(format!("seconds={}", self.seconds)).arg(format!("round={}", self.round_seconds));
        command.arg(format!("seed={}", self.seed)).arg(format!("tasks={}", self.tasks));
        command.arg(format!("immortals={}", self.immortals())).arg(format!("patience={}", self.patience));
        command
            .arg(format!("lose={}", u32::from(lose_daemon)))
            .arg(format!("strangers={}", self.hostiles + self.hostile_hosts));
        if let Some(mutation) = self.mutation {
            command.arg(format!("mutate={mutation}"));
        }
        command
    }
}

/// The sources of the tasks.
const TASKS: &[&str] = &["common.c", "message.c", "receive.c", "worker.c", "chief.c"];
/// The variable that makes bodies of 256 KiB and more use the rendezvous, so that messages take every path: queue,
/// heap, pipelined, rendezvous.
const OFFERS: &[(&str, &str)] = &[("HPVM_OFFER_MIN", "262144")];

/// Returns the file of accounts.
fn table(machine: &Machine) -> PathBuf {
    machine.directory().join("table")
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    if let Some(folder) = sandbox::folder() {
        let plan = Plan::new(arguments)?.0;
        return match &plan.fabric {
            Some(provider) => fabric::inside(&folder, &plan, provider),
            None => hostile_hosts::inside(&folder, &plan),
        };
    }
    if !arguments.iter().any(|argument| argument == "--theirs" || argument == "--as-it-is") {
        build::build()?;
    }
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`. Returns an error only if the checks could not be run at all.
/// `target/dist` must have been built.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let (plan, self_test_only) = Plan::new(arguments)?;
    if plan.fabric.is_some() {
        return fabric::counted(arguments);
    }
    if plan.hostile_hosts > 0 {
        return hostile_hosts::counted(arguments);
    }
    let program = compile(plan.side, "torture", TASKS)?;
    let mut checks = Checks::default();
    if plan.hostiles > 0 {
        hostile::run(&plan, &program, &mut checks)?;
        return Ok(checks.counts());
    }
    self_test::run(&plan, &program, &mut checks)?;
    if !self_test_only {
        println!("torture: {} tasks, {} s, seed {}", plan.tasks, plan.seconds, plan.seed);
        let outcome = traffic(&plan, &program)?;
        outcome.report(&mut checks);
        if plan.side == Side::Ours {
            without_daemon(&plan, &program, &mut checks)?;
            groups::run(&plan, &compile(plan.side, "groups", &["groups.c"])?, &mut checks)?;
        }
    }
    Ok(checks.counts())
}

/// Builds a program of tasks against the library with which it will run.
fn compile(side: Side, name: &str, files: &[&str]) -> Result<PathBuf> {
    let sources = root().join("tests/torture");
    let directory = root().join("target/torture");
    std::fs::create_dir_all(&directory)?;
    let program = directory.join(if side == Side::Ours { name.into() } else { format!("{name}-theirs") });
    let mut cc = Command::new("cc");
    debian_pvm::compiles(&mut cc).args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra"]);
    for file in files {
        cc.arg(sources.join(file));
    }
    if side == Side::Ours {
        cc.arg("-I").arg(dist().join("include")).arg("-L").arg(dist().join("lib"));
    }
    // The program is replaced and not overwritten, since another run may be starting tasks from it at the same time.
    let fresh = program.with_extension(std::process::id().to_string());
    sh(cc.arg("-lpvm3").arg("-o").arg(&fresh))?;
    std::fs::rename(&fresh, &program)?;
    Ok(program)
}

/// The result of a run.
pub struct Outcome {
    /// The totals, or the first error that the tasks found.
    traffic: Result<Total>,
    /// A description of memory and descriptors at the end, or an error if they did not return to their first values.
    memory: Result<String>,
    /// An error if anything was left after the halt.
    left: Result<()>,
    /// How often `pvm why` has looked, or whom it has accused; `None` if it could not look.
    looks: Option<Result<usize>>,
}

impl Outcome {
    fn report(self, checks: &mut Checks) {
        match self.traffic {
            Ok(total) => {
                total.print();
                checks.check("torture: messages and notifies", Ok(()));
            }
            Err(error) => checks.check("torture: messages and notifies", Err(error)),
        }
        match self.memory {
            Ok(text) => {
                println!("  {text}");
                checks.check("torture: memory and descriptors return", Ok(()));
            }
            Err(error) => checks.check("torture: memory and descriptors return", Err(error)),
        }
        checks.check("torture: nothing is left after halt", self.left);
        if let Some(looks) = self.looks {
            let looks = looks.map(|looks| println!("  pvm why has looked {looks} times"));
            checks.check("torture: pvm why accuses nobody", looks);
        }
    }
}

/// Runs traffic in rounds, measures memory after each, and halts the machine.
pub fn traffic(plan: &Plan, program: &Path) -> Result<Outcome> {
    let mut machine = Machine::start_with(plan.side, "torture", OFFERS)?;
    let mut chief = LineProcess::start(&mut plan.chief(&machine, program, false))?;
    let mut hostiles = hostile::Hostiles::start(plan, &machine)?;
    let mut watch = Watch::new(vec![machine.daemon()], Duration::from_secs(plan.patience));
    if plan.hostiles > 0 {
        watch.limits = hostile::limits(plan.hostiles, plan.seconds);
    }
    let lookout = Lookout::default();
    // What hostile tasks say of themselves may be anything.
    let can_look = plan.side == Side::Ours && plan.hostiles == 0;
    let ((traffic, trouble), looks) = std::thread::scope(|scope| {
        let looks = can_look.then(|| scope.spawn(|| lookout.look(&machine)));
        let done = run_traffic(plan, &mut chief, &machine, &mut |line, _| {
            let _pause = lookout.pause();
            (watch.measure(line), false)
        });
        lookout.end();
        (done, looks.map(|looks| looks.join().expect("it returns its errors")))
    });
    if traffic.is_ok() && !chief.end(END_TIME_MAX)? {
        bail!("the chief of the tasks failed at its end: {}", chief.ending());
    }
    let _ = chief.end(END_TIME_MAX);
    drop(chief);
    hostiles.end();
    let _ = std::fs::remove_file(table(&machine));
    let left = machine.halt().and_then(|()| machine.nothing_is_left());
    let memory = trouble.and_then(|()| watch.verdict());
    // hpvm must leave nothing; PVM 3.4 leaves files.
    let left = if plan.side == Side::Ours { left } else { Ok(()) };
    Ok(Outcome { traffic, memory, left, looks })
}

/// A machine that runs the tasks, and the facts about it that reports need.
trait Surroundings {
    /// Returns the last lines of the daemons' logs.
    fn log_ends(&self) -> String;
    /// Returns all processes.
    fn all_processes(&self) -> Vec<u32>;
}

impl Surroundings for Machine {
    fn log_ends(&self) -> String {
        self.log()
    }
    fn all_processes(&self) -> Vec<u32> {
        self.processes()
    }
}

/// The result of a measurement after a round: a description or an error, and whether there must be another round.
type Measurement = (Result<String>, bool);

/// Reads the chief's output until the traffic is over, and measures memory after each round; `look` decides whether
/// there is another round. Returns the totals, and the first error about memory.
fn run_traffic(
    plan: &Plan,
    chief: &mut LineProcess,
    surroundings: &dyn Surroundings,
    look: &mut dyn FnMut(&str, Duration) -> Measurement,
) -> (Result<Total>, Result<()>) {
    let mut trouble = Ok(());
    let began = Instant::now();
    let patience = Duration::from_secs(plan.round_seconds + 2 * plan.patience) + WATCHDOG;
    let traffic = loop {
        let line = match chief.next_line(patience) {
            Ok(Some(line)) => line,
            Ok(None) => {
                let (ending, log) = (chief.ending(), surroundings.log_ends());
                break Err(anyhow::anyhow!("the chief of the tasks ended: {ending}\nthe log says\n{log}"));
            }
            Err(error) => {
                report::stacks(&surroundings.all_processes());
                break Err(error);
            }
        };
        if let Some(error) = line.strip_prefix("error ") {
            if error.starts_with("hang") && plan.talkative {
                report::stacks(&surroundings.all_processes());
            }
            let log = surroundings.log_ends();
            chief.send("seen");
            break Err(anyhow::anyhow!("{error}\nthe daemon's log says\n{log}"));
        } else if let Some(rest) = line.strip_prefix("quiet ") {
            let (look, more) = look(rest, began.elapsed());
            if plan.talkative {
                let text = look.as_ref().map_or_else(|error| error.to_string(), String::clone);
                println!("  {:4} s  {text}", began.elapsed().as_secs());
            }
            if let (Err(error), true) = (look, trouble.is_ok()) {
                trouble = Err(error);
            }
            chief.send(if more { "more" } else { "go on" });
        } else if line.starts_with("total ") {
            break Total::parse(&line);
        }
    };
    (traffic, trouble)
}

/// Kills the daemon in the middle of the traffic.
fn without_daemon(plan: &Plan, program: &Path, checks: &mut Checks) -> Result<()> {
    let plan = Plan { tasks: plan.tasks.min(TASKS_WITHOUT_DAEMON), ..plan.clone() };
    let mut machine = Machine::start(plan.side, "torture-orphans")?;
    let mut chief = LineProcess::start(&mut plan.chief(&machine, program, true))?;
    let heard = chief.next_line(Duration::from_secs(2 * plan.patience))?;
    ensure!(heard.as_deref() == Some("running"), "the tasks do not run: {}", heard.unwrap_or_default());
    machine.kill_daemon()?;
    let ended = chief.end(END_TIME_MAX);
    checks.check(
        "torture: kill -9 of the daemon: every task notices and ends",
        ended.and_then(|well| {
            ensure!(well, "the chief ended badly: {:?}, {}", chief.next_line(Duration::from_secs(1)), chief.ending());
            report::all_have_ended(&machine)
        }),
    );
    let _ = std::fs::remove_file(table(&machine));
    checks.check("torture: kill -9 of the daemon: a new one takes its place", machine.start_daemon());
    let left = machine.halt().and_then(|()| machine.nothing_is_left());
    checks.check("torture: kill -9 of the daemon: nothing is left after the new one's halt", left);
    Ok(())
}
