//! Runs the programs of all systems in turn, so that noise of the machine affects all of them alike.
use super::plan::{Beside, Group, Kind};
use super::process::{Machine, Program, SCRATCH};
use super::quota::Quota;
use super::samples::Samples;
use super::systems::{System, Vm};
use crate::common::{root, sh};
use crate::debian_pvm;
use crate::measure::programs::{compiler, limit_program, pvm_program};
pub use crate::measure::programs::{directory, pvm_bench};
use crate::scratch;
use anyhow::{Context, Result};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// How often a system may fail in a group before it is left out.
const FAILURES_MAX: usize = 2;
/// The time for NPpvm's receiver to enroll before the transmitter looks for it.
const NETPIPE_HEAD_START: Duration = Duration::from_millis(500);
/// The processors whose time programs have under a quota, in tenths.
const QUOTA_TENTHS: u32 = 15;
/// The variable with this process's number: programs that measure memory count their ancestors below this process.
const RUNNER: &str = "BENCH_RUNNER";
/// The message sizes of NPpvm that are shown, in bytes.
const NETPIPE_SIZES: [usize; 5] = [8, 64, 4096, 65536, 1 << 20];

/// Compiles the programs for the systems that are installed.
pub fn compile(systems: &BTreeSet<System>) -> Result<()> {
    let directory = directory();
    let source = |name: &str| root().join("bench").join(name);
    limit_program()?;
    sh(compiler("cc").arg(directory.join("busy")).arg(source("busy.c")))?;
    for (name, source) in [
        ("pvm_bench", source("pvm_bench.c")),
        ("pvm_memory", source("pvm_memory.c")),
        ("papers", source("papers.c")),
        ("roots", root().join("examples/roots/roots.c")),
    ] {
        pvm_program(name, &source, systems.contains(&System::Hpvm))?;
    }
    let compilations: BTreeSet<_> = systems.iter().filter_map(|system| system.mpi_compiler()).collect();
    for (command, more, mpi) in compilations {
        for name in ["bench", "memory"] {
            let program = directory.join(format!("{mpi}_{name}"));
            sh(compiler(&command).arg(program).arg(source(&format!("mpi_{name}.c"))).args(&more))?;
        }
    }
    Ok(())
}

/// The name of the program for two tasks on two hosts.
pub const PAIR: &str = "pvm_pair";

/// Compiles `bench/pvm_pair.c` with our library.
pub fn pvm_pair() -> Result<()> {
    std::fs::create_dir_all(directory())?;
    pvm_program(PAIR, &root().join("bench/pvm_pair.c"), true)
}

/// A failure, for the report.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The system whose program failed.
    pub system: System,
    /// The measure.
    pub measure: String,
    /// The error.
    pub text: String,
}

/// All results.
#[derive(Default)]
pub struct Outcome {
    /// The values.
    pub samples: Samples,
    /// Programs that failed.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// Runs a group of measures on each message system (hpvm, a PVM, an MPI) of the group that is in `systems`.
    pub fn run(&mut self, group: &Group, systems: &BTreeSet<System>) -> Result<()> {
        let _quota = match group.beside {
            Beside::Quota => match Quota::enter(QUOTA_TENTHS) {
                Ok(quota) => Some(quota),
                Err(error) => {
                    println!("bench: {} is left out: {error:#}", group.measure);
                    return Ok(());
                }
            },
            _ => None,
        };
        let members: Vec<System> = group.systems.iter().copied().filter(|system| systems.contains(system)).collect();
        let mut machines = Machines::default();
        let mut failures: BTreeMap<System, usize> = BTreeMap::new();
        for round in 0..group.rounds {
            self.samples.begin_round(round);
            for turn in 0..members.len() {
                // Each round begins with another system, so that no system is always the first.
                let system = members[(turn + round) % members.len()];
                if failures.get(&system).is_some_and(|count| *count >= FAILURES_MAX) {
                    continue;
                }
                if let Err(error) = self.run_once(group, system, &mut machines) {
                    *failures.entry(system).or_default() += 1;
                    let log = system.vm().and_then(|vm| machines.log(vm)).unwrap_or_default();
                    let text = format!("{error:#} {log}").trim().to_owned();
                    println!("bench: {} {}: {text}", system.name(), group.measure);
                    self.failures.push(Failure { system, measure: group.measure.to_owned(), text });
                    machines.end(system);
                }
            }
        }
        Ok(())
    }

    fn run_once(&mut self, group: &Group, system: System, machines: &mut Machines) -> Result<()> {
        let (tasks, name) = match group.kind {
            Kind::Ours(tasks) => (tasks, "bench"),
            Kind::Memory(tasks) => (tasks, "memory"),
            Kind::NetPipe => return self.run_netpipe(group, system, machines),
        };
        let route = if system == System::PvmDirect { "direct" } else { "default" };
        let numbers = [group.repetition_ms.to_string(), group.repetitions.to_string()];
        let arguments = match (group.kind, system.vm()) {
            (Kind::Memory(tasks), Some(_)) => vec![tasks.to_string(), route.to_owned()],
            (Kind::Memory(_), None) => vec![],
            (_, Some(_)) => [&[group.measure.to_owned(), route.to_owned()], &numbers[..]].concat(),
            (_, None) => [&[group.measure.to_owned()], &numbers[..]].concat(),
        };
        let scratch = scratch::directory(SCRATCH)?;
        let runner = (RUNNER.to_owned(), std::process::id().to_string());
        let _neighbours = neighbours(group.beside, scratch.path())?;
        let mut start = || {
            if let Some(vm) = system.vm() {
                let environment = [machines.get(vm)?.environment(), vec![runner.clone()]].concat();
                Program::start(&directory().join(format!("pvm_{name}")), &arguments, &environment, scratch.path())
            } else if let Some((launcher, mut all, environment)) = system.mpi_run(tasks) {
                let name = system.mpi_program(name).context("an MPI has a program")?;
                all.push(directory().join(name).to_string_lossy().into_owned());
                all.extend(arguments.clone());
                Program::start(&launcher, &all, &[environment, vec![runner.clone()]].concat(), scratch.path())
            } else {
                Program::start(&directory().join("limit"), &arguments, &[], scratch.path())
            }
        };
        let count = if group.beside == Beside::Pair { 2 } else { 1 };
        let programs = (0..count).map(|_| start()).collect::<Result<Vec<_>>>()?;
        for program in programs {
            self.samples.add_output(system, &program.finish(group.time_max)?)?;
        }
        Ok(())
    }

    /// Runs Debian's unmodified NPpvm twice: as a receiver, then as a transmitter that searches for the receiver.
    fn run_netpipe(&mut self, group: &Group, system: System, machines: &mut Machines) -> Result<()> {
        let machine = machines.get(system.vm().context("NPpvm is a PVM program")?)?;
        let program = debian_pvm::programs().join("NPpvm").display().to_string();
        let start = |core: &str, more: &[&str]| {
            // -p 0: no perturbations of the sizes; -n: a fixed number of messages; -h: NPpvm is the transmitter.
            let words = ["-c", core, &program, "-p", "0", "-n", "100", "-u", "1048576"];
            let words: Vec<String> = words.iter().chain(more).map(|word| word.to_string()).collect();
            Program::start(Path::new("taskset"), &words, &machine.environment(), machine.directory())
        };
        let receiver = start("1", &[])?;
        std::thread::sleep(NETPIPE_HEAD_START);
        start("0", &["-h", "localhost"])?.finish(group.time_max).context("transmitter")?;
        receiver.finish(group.time_max).context("receiver")?;
        let results = std::fs::read_to_string(machine.directory().join("np.out")).context("np.out")?;
        for line in results.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [size, _bandwidth, seconds] = words[..] else { continue };
            let size: usize = size.parse().context("a size in np.out")?;
            if NETPIPE_SIZES.contains(&size) {
                let seconds: f64 = seconds.parse().context("a time in np.out")?;
                self.samples.add(system, "netpipe", size, seconds * 1e6, "us");
            }
        }
        Ok(())
    }
}

/// Starts the processes beside which a program is measured; they end when they are dropped. Each is in a session of its own,
/// as a program of another user: the kernel shares the cores between sessions, and the daemon of a virtual machine has one of
/// its own, too.
fn neighbours(beside: Beside, scratch: &Path) -> Result<Vec<Program>> {
    let (count, words): (usize, &[&str]) = match beside {
        Beside::Nothing | Beside::Pair | Beside::Quota => (0, &[]),
        Beside::Busy(count) => (count, &[]),
        Beside::Part => (1, &["1000", "5000"]),
    };
    let program = directory().join("busy").to_string_lossy().into_owned();
    let words: Vec<String> = [program].into_iter().chain(words.iter().map(|word| word.to_string())).collect();
    (0..count).map(|_| Program::start(Path::new("setsid"), &words, &[], scratch)).collect()
}

/// The virtual machines that run while a group is measured.
#[derive(Default)]
struct Machines(BTreeMap<Vm, Machine>);

impl Machines {
    fn get(&mut self, vm: Vm) -> Result<&Machine> {
        match self.0.entry(vm) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(Machine::start(vm)?)),
        }
    }

    fn log(&self, vm: Vm) -> Option<String> {
        Some(self.0.get(&vm)?.log())
    }

    /// Ends a machine after a failure, so that the next program gets a new machine.
    fn end(&mut self, system: System) {
        if let Some(vm) = system.vm() {
            self.0.remove(&vm);
        }
    }
}
