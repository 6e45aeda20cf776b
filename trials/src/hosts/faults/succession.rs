//! `cargo xtask hosts --succession N`: kills the first daemon N times while tasks on another host make requests, and N
//! times while a stream of messages flows between two other hosts. Prints how long the requests took, and the longest
//! gaps in the stream. `tests/hosts/faults/succession.c` contains the tasks.

use super::super::machine::Machine;
use super::super::network::{Host, Network, Wiring};
use super::super::sandbox;
use super::chief::Chief;
use super::{CONSOLE_TIME, END_TIME, compile, program};
use crate::common::Checks;
use crate::conform::machine::Side;
use crate::counts::Counts;
use crate::failures;
use crate::machine::wait_until;
use crate::measure::median;
use crate::processes::signal;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The number of hosts of the machine; another one is added.
const HOSTS: usize = 4;
/// How long a request may take until it hangs.
const LIMIT: Duration = Duration::from_secs(90);
/// How long the machine is left alone before the kill, and how long a stream is watched before the kill and after it.
const QUIET_TIME: Duration = Duration::from_millis(500);
const STREAM_TIME: Duration = Duration::from_millis(1500);
/// How much longer than in peace a gap is at the kill if it is shown by itself.
const LONG_GAP_MS: f64 = 20.0;
/// The tasks' program, `tests/hosts/faults/succession.c`.
const PROGRAM: &str = "succession";
/// What is measured.
const MEASURES: [&str; 5] = [
    "the first answered request",
    "the first spawn",
    "the first new host",
    "a stream in peace",
    "a stream at the kill",
];

/// Measures in a sandbox.
pub fn counted(runs: u64) -> Result<Counts> {
    compile(PROGRAM)?;
    let mut checks = Checks::default();
    let outcome = sandbox::run(&["hosts", "--succession", &runs.to_string()]).and_then(|last| {
        ensure!(Counts::parse(&last)? == Counts::one(true), "see above");
        Ok(())
    });
    checks.check("succession", outcome);
    Ok(checks.counts())
}

/// Measures, inside the sandbox, and prints the figures.
pub fn inside(folder: &Path, runs: u64) -> Result<()> {
    let network = Network::new(folder, HOSTS + 1, Wiring::Bridge)?;
    let mut times: [Vec<f64>; MEASURES.len()] = Default::default();
    let mut is_well = true;
    for run in 1..=runs {
        let mut measured = || -> Result<()> {
            requests(&network, &mut times)?;
            stream(&network, &mut times)
        };
        if let Err(error) = measured() {
            failures::report(format_args!("FAILED   succession, run {run}: {error:#}"));
            is_well = false;
        }
    }
    println!("from the kill of the master to, or longest gap in      runs   median ms    worst ms");
    for (what, values) in MEASURES.iter().zip(&times) {
        show(what, values);
    }
    let longer: Vec<f64> = times[4].iter().zip(&times[3]).map(|(kill, peace)| (kill - peace).max(0.0)).collect();
    show("a stream at the kill, beyond peace", &longer);
    println!("hosts: {}", Counts::one(is_well));
    Ok(())
}

fn show(what: &str, values: &[f64]) {
    let worst = values.iter().copied().fold(0.0, f64::max);
    println!("{what:52} {:6} {:11.1} {:11.1}", values.len(), median(values).unwrap_or_default(), worst);
}

/// Kills the first daemon, and at once makes a request of each kind on the last host, all at the same time.
fn requests(network: &Network, times: &mut [Vec<f64>]) -> Result<()> {
    let (machine, daemon) = start(network)?;
    let asker = &network.hosts()[HOSTS - 1];
    let spare = network.hosts()[HOSTS].name.as_str();
    let mut tasks = Vec::new();
    for words in [&["put"][..], &["spawn"], &["add", spare]] {
        tasks.push(task(&machine, asker, words)?);
    }
    std::thread::sleep(QUIET_TIME);
    let killed = now();
    signal(daemon, Signal::KILL);
    tasks.iter_mut().for_each(|task| task.tell("go"));
    for ((task, times), what) in tasks.iter_mut().zip(times).zip(MEASURES) {
        task.wait("the request", LIMIT, |lines| lines.iter().any(|line| line.starts_with("done ")))?;
        let said = task.last("done ");
        let mut words = said.split(' ').skip(1).map(str::parse::<f64>);
        let (Some(Ok(time)), Some(Ok(failures))) = (words.next(), words.next()) else { anyhow::bail!(said) };
        times.push(time / 1e3 - killed / 1e3);
        if failures > 0.0 {
            println!("         {what}: {failures} requests have failed before");
        }
        task.tell("end");
    }
    tasks.iter_mut().try_for_each(Chief::wait_for_end)?;
    end(&machine, asker)
}

/// Watches a stream in peace, kills the first daemon, and watches the stream again.
fn stream(network: &Network, times: &mut [Vec<f64>]) -> Result<()> {
    let (machine, daemon) = start(network)?;
    let receiver = &network.hosts()[HOSTS - 1];
    let mut task = task(&machine, receiver, &["stream", &network.hosts()[HOSTS - 2].name])?;
    std::thread::sleep(QUIET_TIME);
    gap(&mut task, 1)?;
    std::thread::sleep(STREAM_TIME);
    let peace = gap(&mut task, 2)?;
    signal(daemon, Signal::KILL);
    std::thread::sleep(STREAM_TIME);
    let kill = gap(&mut task, 3)?;
    if kill > peace + LONG_GAP_MS {
        println!("         a gap of {kill:.1} ms at the kill, of {peace:.1} ms in peace");
    }
    times[3].push(peace);
    times[4].push(kill);
    task.wait_for_end()?;
    end(&machine, receiver)
}

/// Returns the longest gap since the last call, in ms.
fn gap(task: &mut Chief, number: usize) -> Result<f64> {
    task.tell("gap");
    task.wait("the gap", LIMIT, |lines| lines.iter().filter(|line| line.starts_with("gap ")).count() == number)?;
    let said = task.last("gap ");
    Ok(said.trim_start_matches("gap ").parse::<f64>().context(said.clone())? / 1e3)
}

/// Starts a machine. Returns the process of its first daemon, too.
fn start(network: &Network) -> Result<(Machine<'_>, u32)> {
    let mut machine = Machine::new(Side::Ours, network, &[])?;
    machine.start(HOSTS, &[])?;
    let daemon = machine.first().daemon().context("a daemon there")?;
    Ok((machine, daemon))
}

fn task(machine: &Machine, host: &Host, words: &[&str]) -> Result<Chief> {
    let mut task = Chief::start(machine.command(host, &program(PROGRAM)).args(words))?;
    task.wait("a task", LIMIT, |lines| lines.iter().any(|line| line == "ready"))?;
    Ok(task)
}

fn end(machine: &Machine, host: &Host) -> Result<()> {
    machine.console(host, "halt\n", CONSOLE_TIME)?;
    let left = || machine.network.hosts().iter().flat_map(Host::processes).count();
    ensure!(wait_until(END_TIME, || left() == 0), "processes are left after the halt");
    Ok(())
}

/// Returns the time in us, as the tasks have it.
fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64() * 1e6
}
