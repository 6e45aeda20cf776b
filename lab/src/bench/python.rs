//! Python: messages beside mpi4py and beside C, pools beside multiprocessing, concurrent.futures and dask.distributed.
//! The programs are in `bench/python`.
use super::plan::Effort;
use super::process::{Machine, Program, SCRATCH};
use super::runner::{directory, pvm_bench};
use super::samples::{Samples, median};
use super::systems::{System, Vm};
use super::tables::size_text;
use super::verdicts::{Bound, Verdict};
use crate::common::root;
use crate::python::{self, benchmark_environment};
use crate::scratch;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The names for `--only`: everything, or the pools alone.
pub const NAMES: [&str; 2] = ["python", "pools"];
/// The two MPIs, and the names of their environments below `target/bench/python`. The second one has everything else.
const ENVIRONMENTS: [(System, &str); 2] = [(System::OpenMpi, "openmpi"), (System::Mpich, "mpich")];
/// The objects of `bench/python/messages.py`.
const OBJECTS: [&str; 3] = ["int", "dict", "list"];
const BUFFER_SIZES: [usize; 4] = [8, 64, 1024, 16384];
const ARRAY_SIZES: [usize; 4] = [1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// The pools, by the names of `bench/python/pools.py`. The first one is ours.
const POOLS: [&str; 5] = ["hpvm", "multiprocessing", "futures", "dask", KILLED];
const KILLED: &str = "hpvm-killed";
/// The number of workers, and the seconds of a task.
const WORKERS: f64 = 2.0;
const TASK_SECONDS: f64 = 0.001;
/// How long a program may take.
const TIME_MAX: Duration = Duration::from_secs(180);

/// How much is measured.
struct Plan {
    rounds: usize,
    repetition_ms: usize,
    repetitions: usize,
    tasks: usize,
    /// How often arrays in Python and in C take turns in a round. Their ratio lies close to its target.
    array_turns: usize,
}

impl Plan {
    fn of(effort: Effort) -> Plan {
        match effort {
            Effort::Full => Plan { rounds: 5, repetition_ms: 60, repetitions: 5, tasks: 10_000, array_turns: 4 },
            _ => Plan { rounds: 2, repetition_ms: 20, repetitions: 3, tasks: 2_000, array_turns: 1 },
        }
    }
}

/// Measures everything in turn, or only the pools. Returns the values and the targets, or `None` if the environments are
/// missing.
pub fn measure(effort: Effort, only_pools: bool) -> Result<Option<(Samples, Vec<Verdict>)>> {
    if let Some((_, missing)) =
        ENVIRONMENTS.iter().find(|(_, name)| !benchmark_environment(name).join("installed").exists())
    {
        println!("not measured: Python, because {} is not there", benchmark_environment(missing).display());
        return Ok(None);
    }
    let wheel = python::wheel(python::For::ThisSystem)?;
    python::install(&benchmark_environment(ENVIRONMENTS[1].1), &wheel)?;
    pvm_bench()?;
    let bench = Bench { plan: Plan::of(effort), machine: Machine::start(Vm::Ours)? };
    let mut samples = Samples::default();
    for round in 0..if only_pools { 0 } else { bench.plan.rounds } {
        bench.messages(round, &mut samples)?;
    }
    let mut seconds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..bench.plan.rounds {
        for turn in 0..POOLS.len() {
            let name = POOLS[(turn + round) % POOLS.len()];
            seconds.entry(name).or_default().push(bench.pool(name)?);
        }
    }
    if !only_pools {
        print_messages(&samples);
    }
    print_pools(&seconds, bench.plan.tasks);
    let verdicts = verdicts(&samples, &seconds, bench.plan.tasks);
    Ok(Some((samples, verdicts)))
}

struct Bench {
    plan: Plan,
    machine: Machine,
}

impl Bench {
    /// Runs each measure of messages once on each system, each round with another system first.
    fn messages(&self, round: usize, samples: &mut Samples) -> Result<()> {
        samples.begin_round(round);
        for measure in ["objects", "buffers", "arrays"] {
            let mut systems = vec![System::Hpvm, System::OpenMpi, System::Mpich];
            systems.rotate_left(round % 3);
            for system in systems {
                if measure == "arrays" && system == System::Hpvm {
                    self.arrays(samples)?;
                    continue;
                }
                let output = self.message_program(system, measure).with_context(|| system.name().to_owned())?;
                samples.add_output(system, &output)?;
            }
        }
        Ok(())
    }

    /// Measures arrays in Python and in C, each of them first in every other turn.
    fn arrays(&self, samples: &mut Samples) -> Result<()> {
        for turn in 0..self.plan.array_turns {
            let mut is_in_c = turn % 2 == 1;
            for _ in 0..2 {
                let output = if is_in_c { self.in_c()? } else { self.message_program(System::Hpvm, "arrays")? };
                samples.add_output(System::Hpvm, &output)?;
                is_in_c = !is_in_c;
            }
        }
        Ok(())
    }

    fn effort(&self) -> [String; 2] {
        [self.plan.repetition_ms.to_string(), self.plan.repetitions.to_string()]
    }

    fn message_program(&self, system: System, measure: &str) -> Result<String> {
        let program = root().join("bench/python/messages.py").display().to_string();
        let name = if system == System::OpenMpi { ENVIRONMENTS[0].1 } else { ENVIRONMENTS[1].1 };
        let interpreter = benchmark_environment(name).join("bin/python");
        if system == System::Hpvm {
            let arguments = [vec![program, "hpvm".into(), measure.into()], self.effort().to_vec()].concat();
            return self.run(&interpreter, &arguments, &self.machine.environment());
        }
        let options = match system {
            System::OpenMpi => "--allow-run-as-root --bind-to none -n 2",
            _ => "-bind-to none -n 2",
        };
        let mut arguments: Vec<String> = options.split(' ').map(str::to_owned).collect();
        arguments.push(interpreter.display().to_string());
        arguments.extend([program, "mpi".into(), measure.into()]);
        arguments.extend(self.effort());
        self.run(&benchmark_environment(name).join("bin/mpiexec"), &arguments, &[])
    }

    /// Measures `pvm_psend` and `pvm_precv` in C.
    fn in_c(&self) -> Result<String> {
        let arguments = [vec!["arrays".to_owned(), "default".to_owned()], self.effort().to_vec()].concat();
        self.run(&directory().join("pvm_bench"), &arguments, &self.machine.environment())
    }

    /// Returns the seconds of a map.
    fn pool(&self, name: &str) -> Result<f64> {
        let program = root().join("bench/python/pools.py").display().to_string();
        let arguments = [program, name.to_owned(), self.plan.tasks.to_string(), "1".to_owned()];
        let interpreter = benchmark_environment(ENVIRONMENTS[1].1).join("bin/python");
        let output =
            self.run(&interpreter, &arguments, &self.machine.environment()).with_context(|| name.to_owned())?;
        let line = output.lines().find_map(|line| line.strip_prefix("py_pool "));
        let seconds = line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        if let Some(lost) = output.lines().find(|line| name == KILLED && line.starts_with("py_pool_lost")) {
            println!("  {lost} while a worker was killed each second; every result came once");
        }
        seconds.with_context(|| format!("{name}: no time in {output:?}"))
    }

    fn run(&self, program: &Path, arguments: &[String], environment: &[(String, String)]) -> Result<String> {
        let scratch = scratch::directory(SCRATCH)?;
        Program::start(program, arguments, environment, scratch.path())?.finish(TIME_MAX)
    }
}

fn print_messages(samples: &Samples) {
    let systems = [System::Hpvm, System::OpenMpi, System::Mpich];
    let row = |title: &str, measure: &str, size: usize, value: fn(usize, f64) -> f64| {
        print!("  {title:22}");
        for (system, measure) in
            systems.map(|system| (system, measure)).into_iter().chain([(System::Hpvm, "arrays_psend")])
        {
            let shown = samples.median(system, measure, size).map(|us| format!("{:.2}", value(size, us)));
            print!("{:>20}", shown.unwrap_or_default());
        }
        println!();
    };
    println!("\nPython, one way between two tasks");
    println!("  {:22}{:>20}{:>20}{:>20}{:>20}", "", "hpvm", "mpi4py, Open MPI", "mpi4py, MPICH", "psend in C");
    for name in OBJECTS {
        row(&format!("{name}, us"), &format!("py_object_{name}"), 0, |_, us| us);
    }
    for size in BUFFER_SIZES {
        row(&format!("{} buffer, us", size_text(size)), "py_buffer", size, |_, us| us);
    }
    for size in ARRAY_SIZES {
        row(&format!("{} array, GB/s", size_text(size)), "py_buffer", size, |size, us| size as f64 / us * 1e-3);
    }
}

fn ideal(tasks: usize) -> f64 {
    tasks as f64 * TASK_SECONDS / WORKERS
}

fn print_pools(seconds: &BTreeMap<&str, Vec<f64>>, tasks: usize) {
    println!("\nPython, {tasks} tasks of 1 ms on {WORKERS} workers (ideal: {:.2} s)", ideal(tasks));
    for name in POOLS {
        if let Some(median) = seconds.get(name).and_then(|values| median(values)) {
            println!("  {name:22}{median:>10.2} s  {:>6.3} of the ideal", ideal(tasks) / median);
        }
    }
}

fn verdicts(samples: &Samples, seconds: &BTreeMap<&str, Vec<f64>>, tasks: usize) -> Vec<Verdict> {
    let to_mpi = |label: &str, measure: &str, size| {
        ENVIRONMENTS.map(|(mpi, _)| {
            let ratio = samples.ratio((System::Hpvm, measure), (mpi, measure), size);
            (format!("{label} {}", mpi.name()).trim().to_owned(), ratio)
        })
    };
    let to_c = |size: usize| samples.ratio((System::Hpvm, "arrays_psend"), (System::Hpvm, "py_buffer"), size);
    let times = |name: &str| seconds.get(name).cloned().unwrap_or_default();
    let to_pool = |other: &str| {
        let ratios: Vec<f64> = times(POOLS[0]).iter().zip(times(other)).map(|(ours, theirs)| ours / theirs).collect();
        (other.to_owned(), median(&ratios))
    };
    let to_ideal = |name: &str| (String::new(), median(&times(name)).map(|seconds| ideal(tasks) / seconds));
    vec![
        Verdict {
            text: "Python, small objects, to mpi4py".into(),
            bound: Bound::Most(1.0),
            ratios: OBJECTS.iter().flat_map(|name| to_mpi(name, &format!("py_object_{name}"), 0)).collect(),
        },
        Verdict {
            text: "Python, buffers of 8 B, to mpi4py".into(),
            bound: Bound::Most(1.0),
            ratios: to_mpi("", "py_buffer", BUFFER_SIZES[0]).into(),
        },
        Verdict {
            text: "Python, bandwidth of arrays, to psend in C".into(),
            bound: Bound::Least(0.95),
            ratios: ARRAY_SIZES.iter().map(|size| (size_text(*size), to_c(*size))).collect(),
        },
        Verdict {
            text: "Python, Pool.map of tasks of 1 ms, to the ideal".into(),
            bound: Bound::Least(0.9),
            ratios: vec![to_ideal(POOLS[0])],
        },
        Verdict {
            text: "Python, Pool.map of tasks of 1 ms, time to that of other pools".into(),
            bound: Bound::Less(1.0),
            ratios: POOLS[1..4].iter().map(|name| to_pool(name)).collect(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_compares_what_was_measured_in_the_same_round() {
        let mut samples = Samples::default();
        for (system, measure, us) in [(System::Hpvm, "py_buffer", 20.0), (System::Hpvm, "arrays_psend", 19.0)] {
            samples.add(system, measure, 1 << 20, us, "us");
        }
        let seconds = BTreeMap::from([("hpvm", vec![5.0, 10.0]), ("dask", vec![10.0, 20.0])]);
        let verdicts = verdicts(&samples, &seconds, 10_000);
        assert_eq!(verdicts[2].ratios[0], ("1 MiB".into(), Some(0.95)));
        assert_eq!(
            verdicts[4].ratios,
            [("multiprocessing".into(), None), ("futures".into(), None), ("dask".into(), Some(0.5))]
        );
        assert_eq!(verdicts[3].worst(), Some(5.0 / 7.5));
    }
}
