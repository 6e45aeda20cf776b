//! Measures the speed of messages between two hosts (network namespaces on one bridge), and the time to add many hosts.
//! [`super::collectives`] measures operations of many hosts in the same sandbox.
//!
//! The programs run inside a sandbox (`hosts::sandbox`). This command starts itself a second time in the sandbox. The
//! inner command prints one line for each value, and the outer command collects these lines.

use super::collectives;
use super::plan::Effort;
use super::runner::directory;
use super::samples::median;
use super::verdicts::{Bound, Verdict};
use crate::common::{dist, sh};
use crate::debian_pvm;
use crate::hosts::machine::Machine;
use crate::hosts::network::{Host, Network, Wiring, name};
use crate::hosts::sandbox;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::side::Side;

/// The name for `--only`.
pub const NAME: &str = "hosts";
/// The parts that run in the sandbox, by their names for `--only`.
pub const PARTS: [&str; 2] = [NAME, collectives::NAME];
/// The option with which the command is run inside the sandbox.
const INSIDE: &str = "--inside";
/// The first word of a line with a value.
const VALUE: &str = "value";
/// How long a program may take.
const PROGRAM_TIME: Duration = Duration::from_secs(120);
/// The port of the bare TCP connection; nothing else in the namespace uses it.
pub const PORT: &str = "7001";
/// The numbers of hosts that one call adds.
const ADDED: [usize; 2] = [3, 32];
/// The sizes of messages, in bytes.
const SIZES: [usize; 3] = [8, 1 << 20, 16 << 20];

/// Fair options for Open MPI between two namespaces: by default, Open MPI tries every interface, and yields the core at
/// each poll while it waits.
const OPEN_MPI: &str = "--allow-run-as-root --bind-to none --mca pml ob1 --mca btl tcp,self \
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0";
/// Further options for a run of two ranks: each rank has a core of its own, so it need not yield the core.
pub const SPINNING: &str = "--mca mpi_yield_when_idle 0 -np 2";

/// A compared system; the table lists the systems in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contestant {
    TcpSpinning,
    TcpSleeping,
    OpenMpi,
    Pvm { direct: bool },
    Hpvm { trusted: bool, direct: bool },
}

use Contestant::{Hpvm, OpenMpi, Pvm, TcpSleeping, TcpSpinning};

const ALL: [Contestant; 9] = [
    TcpSpinning,
    TcpSleeping,
    OpenMpi,
    Pvm { direct: false },
    Pvm { direct: true },
    Hpvm { trusted: true, direct: false },
    Hpvm { trusted: true, direct: true },
    Hpvm { trusted: false, direct: false },
    Hpvm { trusted: false, direct: true },
];

impl Contestant {
    pub fn name(self) -> &'static str {
        match self {
            TcpSpinning => "TCP, spinning",
            TcpSleeping => "TCP, sleeping",
            OpenMpi => "Open MPI",
            Pvm { direct: false } => "PVM 3.4.6",
            Pvm { direct: true } => "PVM 3.4.6 direct",
            Hpvm { trusted: true, direct: false } => "hpvm trusted",
            Hpvm { trusted: true, direct: true } => "hpvm trusted direct",
            Hpvm { trusted: false, direct: false } => "hpvm",
            Hpvm { trusted: false, direct: true } => "hpvm direct",
        }
    }

    pub fn of_name(name: &str) -> Option<Contestant> {
        ALL.into_iter().find(|one| one.name() == name)
    }

    pub fn side(self) -> Option<Side> {
        match self {
            Pvm { .. } => Some(Side::Theirs),
            Hpvm { .. } => Some(Side::Ours),
            _ => None,
        }
    }

    /// Returns the variables for all daemons and tasks of this system's machine.
    pub fn environment(self) -> Vec<(String, String)> {
        let mut environment = Vec::new();
        if matches!(self, Hpvm { trusted: true, .. }) {
            environment.push(("PVM_TRUSTED_NET".to_owned(), "1".to_owned()));
        }
        environment
    }

    pub fn route(self) -> &'static str {
        if matches!(self, Pvm { direct: true } | Hpvm { direct: true, .. }) { "direct" } else { "default" }
    }
}

/// Values by system, measure and size, in us or ms.
#[derive(Default)]
pub struct Values(BTreeMap<(Contestant, String, usize), Vec<f64>>);

/// The amount of work.
struct Amount {
    rounds: usize,
    repetition_ms: &'static str,
    repetitions: &'static str,
    additions: &'static str,
}

fn amount(effort: Effort) -> Amount {
    match effort {
        Effort::Full => Amount { rounds: 5, repetition_ms: "50", repetitions: "3", additions: "3" },
        _ => Amount { rounds: 2, repetition_ms: "20", repetitions: "2", additions: "1" },
    }
}

pub fn program(name: &str) -> PathBuf {
    directory().join(name)
}

/// Compiles the program for bare TCP.
pub fn compile_tcp() -> Result<()> {
    let source = crate::common::root().join("bench/tcp.c");
    sh(Command::new("cc").args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-o"]).arg(program("tcp")).arg(source))
}

/// Runs these parts, prints tables, and returns the verdicts.
pub fn measure(parts: &[&str], effort: Effort, peers: bool) -> Result<Vec<Verdict>> {
    if let Some(obstacle) = sandbox::obstacle() {
        println!("between hosts: not measured: {obstacle}");
        return Ok(Vec::new());
    }
    compile_tcp()?;
    let mut words = vec!["bench", INSIDE];
    if effort != Effort::Full {
        words.push("--short");
    }
    if peers {
        words.push("--peers");
    }
    parts.iter().for_each(|part| words.extend(["--only", part]));
    let mut values = Values::default();
    sandbox::run_with(&words, |line| {
        if !values.take(line) {
            println!("{line}");
        }
    })?;
    values.save()?;
    let mut verdicts = Vec::new();
    if parts.contains(&NAME) {
        values.print();
        verdicts.extend(values.verdicts());
    }
    if parts.contains(&collectives::NAME) {
        collectives::print(&values);
        verdicts.extend(collectives::verdicts(&values));
    }
    Ok(verdicts)
}

/// Runs the command inside the sandbox.
pub fn inside(folder: &Path, parts: &BTreeSet<String>, effort: Effort, peers: bool) -> Result<()> {
    let amount = amount(effort);
    let there = |one: &Contestant| match one {
        Hpvm { .. } => !peers && dist().join("bin/pvmd").exists(),
        Pvm { .. } => debian_pvm::obstacle().is_none(),
        OpenMpi => Path::new("/usr/bin/mpirun.openmpi").exists() && program("openmpi_bench").exists(),
        _ => true,
    };
    let all: Vec<Contestant> = ALL.into_iter().filter(there).collect();
    let network = Network::new(folder, ADDED[1] + 1, Wiring::Bridge)?;
    if parts.contains(NAME) {
        measure_pair(&network, &all, &amount);
    }
    if parts.contains(collectives::NAME) {
        collectives::measure(&network, &all, effort);
    }
    Ok(())
}

/// Measures messages between two hosts, and the adding of hosts.
fn measure_pair(network: &Network, all: &[Contestant], amount: &Amount) {
    for round in 0..amount.rounds {
        for turn in 0..all.len() {
            // Each round begins with another system, so that no system is always the first.
            let contestant = all[(turn + round) % all.len()];
            print_values(contestant, messages(network, contestant, amount));
        }
    }
    for contestant in all.iter().copied().filter(|one| one.side().is_some() && one.route() == "default") {
        for count in ADDED {
            print_values(contestant, additions(network, contestant, count, amount));
        }
    }
}

/// Prints a line for each value of a program, or the program's error.
pub fn print_values(contestant: Contestant, said: Result<String>) {
    match said {
        Ok(said) => {
            said.lines().for_each(|line| println!("{VALUE}\t{}\t{line}", contestant.name()));
        }
        Err(error) => println!("between hosts: {}: {error:#}", contestant.name()),
    }
}

/// Measures ping-pong between the first two hosts.
fn messages(network: &Network, contestant: Contestant, amount: &Amount) -> Result<String> {
    let (first, second) = (&network.hosts()[0], &network.hosts()[1]);
    let mut machine = Machine::new(contestant.side().unwrap_or(Side::Theirs), network, &contestant.environment())?;
    let effort = [amount.repetition_ms, amount.repetitions];
    match contestant {
        TcpSpinning | TcpSleeping => {
            let waiting = if contestant == TcpSpinning { "spinning" } else { "sleeping" };
            let mut server = second.command(&program("tcp"));
            let mut server = server.args(["serve", waiting, PORT]).spawn()?;
            let mut command = machine.command(first, &program("tcp"));
            command.args(["connect", waiting, PORT, "10.77.0.2"]).args(effort);
            let said = said(&mut command, &machine);
            let _ = server.kill();
            let _ = server.wait();
            said
        }
        OpenMpi => {
            let mut command = mpirun(&machine, &[first, second]);
            command.args(SPINNING.split_whitespace());
            said(command.arg(program("openmpi_bench")).arg(NAME).args(effort), &machine)
        }
        Pvm { .. } | Hpvm { .. } => {
            machine.start(2, &[])?;
            let mut command = machine.command(first, &program("pvm_bench"));
            said(command.args([NAME, contestant.route()]).args(effort), &machine)
        }
    }
}

/// Returns a command that runs Open MPI on these hosts; the caller adds the program.
pub fn mpirun(machine: &Machine, hosts: &[&Host]) -> Command {
    let mut command = machine.command(hosts[0], Path::new("/usr/bin/mpirun.openmpi"));
    command.arg("--mca").arg("plm_rsh_agent").arg(machine.folder.join("rsh")).args(OPEN_MPI.split_whitespace());
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    command.arg("-host").arg(names.join(","));
    command
}

/// Measures how long one call takes to add this number of hosts.
fn additions(network: &Network, contestant: Contestant, count: usize, amount: &Amount) -> Result<String> {
    let side = contestant.side().context("a virtual machine")?;
    let mut machine = Machine::new(side, network, &contestant.environment())?;
    machine.start(1, &[])?;
    let names: Vec<String> = (2..count + 2).map(name).collect();
    let mut command = machine.command(machine.first(), &program("pvm_bench"));
    command.env("BENCH_HOSTS", names.join(","));
    said(command.args([&format!("add-{count}"), "default", "0", amount.additions]), &machine)
}

/// Runs a program and returns its output. If the program fails or takes too long, the error contains its messages.
pub fn said(command: &mut Command, machine: &Machine) -> Result<String> {
    let (output, errors) = (machine.folder.join("values"), machine.folder.join("complaints"));
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&output)?).stderr(std::fs::File::create(&errors)?);
    let began = Instant::now();
    let end = xtask::ending::wait(command, PROGRAM_TIME)?;
    if end != xtask::ending::End::Exit(0) {
        let complaint = std::fs::read_to_string(&errors).unwrap_or_default();
        let logs: Vec<String> = machine.network.hosts().iter().take(2).map(|host: &Host| machine.log(host)).collect();
        let log: Vec<&str> = logs.iter().filter_map(|log| log.lines().last()).collect();
        bail!("{end:?} after {:.0} s: {} {}", began.elapsed().as_secs_f64(), complaint.trim(), log.join(" | "));
    }
    Ok(std::fs::read_to_string(&output)?)
}

impl Values {
    /// Reads a line with a value. Returns whether the line had this form.
    fn take(&mut self, line: &str) -> bool {
        let parts: Vec<&str> = line.split('\t').collect();
        let [VALUE, contestant, rest] = parts[..] else { return false };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [measure, size, value, _unit] = words[..] else { return false };
        let (Some(contestant), Ok(size), Ok(value)) =
            (Contestant::of_name(contestant), size.parse::<usize>(), value.parse::<f64>())
        else {
            return false;
        };
        self.0.entry((contestant, measure.to_owned(), size)).or_default().push(value);
        true
    }

    pub fn median(&self, contestant: Contestant, measure: &str, size: usize) -> Option<f64> {
        median(self.0.get(&(contestant, measure.to_owned(), size))?)
    }

    /// Returns the time of a message in one direction. If a system can send a message in several ways, the time is for
    /// the way with the fewest calls.
    fn message(&self, contestant: Contestant, size: usize) -> Option<f64> {
        ["pingpong", "pingpong_mpi", "pingpong_psend"].iter().find_map(|measure| self.median(contestant, measure, size))
    }

    fn print(&self) {
        println!(
            "\nBetween two hosts on one bridge, one way: us, and GB/s of long messages (psend; in brackets: packed)"
        );
        println!("{:22} {:>9} {:>16} {:>16}", "", "8 B", "1 MiB", "16 MiB");
        for contestant in ALL {
            let Some(short) = self.message(contestant, SIZES[0]) else { continue };
            let packed = |size| self.median(contestant, "pingpong_raw_byte", size);
            let bandwidth = |size: usize| {
                let rate =
                    |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{:.2}", size as f64 / time * 1e-3));
                let packed = packed(size).map_or(String::new(), |time| format!(" ({})", rate(Some(time))));
                format!("{}{packed}", rate(self.message(contestant, size)))
            };
            println!("{:22} {short:9.1} {:>16} {:>16}", contestant.name(), bandwidth(SIZES[1]), bandwidth(SIZES[2]));
        }
        println!("\nAdding hosts, ms");
        for contestant in ALL {
            let each = ADDED.map(|count| (count, self.median(contestant, "add", count)));
            if each.iter().any(|(_, time)| time.is_some()) {
                let each = each.map(|(count, time)| {
                    format!("{count} hosts {}", time.map_or("-".to_owned(), |time| format!("{time:.0}")))
                });
                println!("{:22} {}", contestant.name(), each.join(", "));
            }
        }
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let time =
            |one: Contestant, limit: Contestant| Some(self.message(one, SIZES[0])? / self.message(limit, SIZES[0])?);
        let bandwidth = |one: Contestant, sizes: &[usize]| -> Vec<(String, Option<f64>)> {
            let best = |size| {
                let times = [TcpSpinning, TcpSleeping].into_iter().filter_map(|limit| self.message(limit, size));
                times.reduce(f64::min)
            };
            let ratio = |size: usize| Some(best(size)? / self.message(one, size)?);
            sizes.iter().map(|size| (super::tables::size_text(*size), ratio(*size))).collect()
        };
        let (direct, default) = (Hpvm { trusted: true, direct: true }, Hpvm { trusted: true, direct: false });
        let short = |text: &str, one, limit, bound| Verdict {
            text: format!("between hosts, trusted, {text}, 8 bytes, time to raw TCP's"),
            bound: Bound::Most(bound),
            ratios: vec![(String::new(), time(one, limit))],
        };
        let long = |text: &str, one, sizes: &[usize], bound| Verdict {
            text: format!("between hosts, {text}, bandwidth to raw TCP's"),
            bound: Bound::Least(bound),
            ratios: bandwidth(one, sizes),
        };
        let adding = |count, bound: f64| Verdict {
            text: format!("{count} hosts added, in s"),
            bound: Bound::Most(bound),
            ratios: [true, false]
                .map(|trusted| {
                    let time = self.median(Hpvm { trusted, direct: false }, "add", count);
                    let text = if trusted { "trusted" } else { "encrypted" };
                    (text.to_owned(), time.map(|time| time * 1e-3))
                })
                .into(),
        };
        vec![
            short("direct (both spin)", direct, TcpSpinning, 1.3),
            short("default route (both sleep)", default, TcpSleeping, 2.5),
            short("default route (to spinning TCP)", default, TcpSpinning, 2.5),
            long("trusted, direct", direct, &SIZES[1..], 0.9),
            long("trusted, default route", default, &SIZES[1..], 0.7),
            long("encrypted, direct", Hpvm { trusted: false, direct: true }, &SIZES[1..2], 0.5),
            long("encrypted, default route", Hpvm { trusted: false, direct: false }, &SIZES[1..2], 0.5),
            adding(ADDED[0], 0.5),
            adding(ADDED[1], 3.0),
        ]
    }

    fn save(&self) -> Result<()> {
        let measures: Vec<_> = self
            .0
            .iter()
            .map(|((contestant, measure, size), values)| {
                json!({"system": contestant.name(), "measure": measure, "size": size, "median": median(values), "values": values})
            })
            .collect();
        let path = directory().join("hosts.json");
        std::fs::write(&path, serde_json::to_string_pretty(&json!({"open_mpi": OPEN_MPI, "measures": measures}))?)?;
        println!("\n{}", path.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_value_is_taken_and_another_is_not() {
        let mut values = Values::default();
        assert!(values.take("value\thpvm direct\tpingpong_psend 8 5.5 us"));
        assert!(values.take("value\tTCP, spinning\tpingpong 8 5 us"));
        assert!(!values.take("between hosts: hpvm: no"));
        assert!(!values.take("value\tnobody\tpingpong 8 5 us"));
        let direct = Hpvm { trusted: false, direct: true };
        assert_eq!((values.message(direct, 8), values.message(TcpSpinning, 8)), (Some(5.5), Some(5.0)));
    }
}
