//! `cargo xtask fabric`: links on libfabric between hosts that are network namespaces, with each provider that works
//! without special hardware. The program that sends and checks is `crates/pvm-task/examples/fabric`.
pub mod rdma;
pub mod speed;
mod two_daemons;

use crate::common::{Checks, cargo, sh};
use crate::counts::Counts;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::{WITHOUT_DESCRIPTOR, sandbox};
use crate::{build, failures, mpi_wheels};
use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const USAGE: &str = "fabric [--short] [--provider NAME] [--seeds N] [--library PATH | --newest] [--rdma | --speed]
  --short          few messages, and nothing is measured
  --provider NAME  only this provider, such as tcp or udp;ofi_rxd
  --seeds N        how often the messages and the killed peer are tried, 3 without this option
  --library PATH   another libfabric than the system's
  --newest         the libfabric in the newest wheel of MPICH, which pip fetches
  --rdma           soft-RoCE under Debian's kernel in an emulated computer (`cargo xtask setup rdma`)
  --speed          ping-pong of links and tasks beside the bare provider, TCP, Open MPI and MPICH (`cargo xtask
                   setup bench`)";

/// The providers that work on any network.
const PROVIDERS: [&str; 4] = ["tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets"];
/// The place of a new libfabric in the wheel of MPICH.
const IN_WHEEL: &str = "lib/mpich/libfabric.so.1";
/// The port at which the programs wait for their caller.
const PORT: u16 = 7070;
/// The profile of measured programs: optimised, and built in a minute.
const PROFILE: &str = "sim";

#[derive(Default)]
struct Options {
    is_short: bool,
    provider: Option<String>,
    seeds: u64,
    library: Option<PathBuf>,
    is_newest: bool,
    is_rdma: bool,
    is_speed: bool,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { seeds: 3, ..Options::default() };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => {
                options.is_short = true;
                options.seeds = 1;
            }
            Long("provider") => options.provider = Some(parser.value()?.string()?),
            Long("seeds") => options.seeds = parser.value()?.parse()?,
            Long("library") => options.library = Some(parser.value()?.into()),
            Long("newest") => options.is_newest = true,
            Long("rdma") => options.is_rdma = true,
            Long("speed") => options.is_speed = true,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(options)
}

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    match sandbox::folder() {
        Some(folder) => inside(&folder, &options),
        None if options.is_rdma => {
            build_program(options.is_short)?;
            rdma::counted(&options)?.report()
        }
        None if options.is_speed => speed::run(&build_program(false)?, &options),
        None => counted(arguments)?.report(),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let options = parse(arguments)?;
    if let Some(obstacle) = sandbox::obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    let program = build_program(options.is_short)?;
    let mut words: Vec<String> = arguments.iter().filter(|word| *word != "--newest").cloned().collect();
    let mut library = options.library.clone();
    if options.is_newest {
        let newest = newest_library()?;
        words.extend(["--library".into(), newest.display().to_string()]);
        library = Some(newest);
    }
    let offers = Command::new(&program).arg("offers").args(library_words(library.as_deref())).output()?;
    let said = String::from_utf8_lossy(&offers.stdout).into_owned();
    if !offers.status.success() {
        return Ok(Counts::skip(said.trim().trim_start_matches("FAILED ")));
    }
    words.insert(0, "fabric".into());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let last = sandbox::run_with(&words, |line| match line {
        line if line.starts_with("FAILED") => failures::report(line),
        // The counts are printed by whoever asks for them.
        line if Counts::parse(line).is_ok() => {}
        line => println!("{line}"),
    })?;
    Counts::parse(&last)
}

/// Returns the path of the program, which is built if necessary.
fn program(is_short: bool) -> Result<PathBuf> {
    let folder = if is_short { "debug" } else { PROFILE };
    Ok(build::target_directory()?.join(folder).join("examples/fabric"))
}

/// Builds the program, optimised if `is_short` is not set, and returns its path.
pub fn build_program(is_short: bool) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "pvm-task", "--example", "fabric"]);
    if !is_short {
        build.args(["--profile", PROFILE]);
    }
    sh(&mut build)?;
    program(is_short)
}

/// Returns the library in the newest wheel of MPICH, which is fetched if necessary.
fn newest_library() -> Result<PathBuf> {
    mpi_wheels::MPICH.fetch()?;
    Ok(mpi_wheels::MPICH.folder().join(IN_WHEEL))
}

fn library_words(library: Option<&Path>) -> Vec<String> {
    library.map_or(Vec::new(), |path| vec!["--library".into(), path.display().to_string()])
}

/// The hosts and what is run on them.
struct Trial<'a> {
    network: Network,
    program: PathBuf,
    options: &'a Options,
}

fn inside(folder: &Path, options: &Options) -> Result<()> {
    let network = Network::new(folder, 3, Wiring::Bridge)?;
    let trial = Trial { network, program: program(options.is_short)?, options };
    let mut checks = Checks::default();
    let chosen = |name: &str| options.provider.as_ref().is_none_or(|provider| provider == name);
    ensure!(PROVIDERS.iter().any(|name| chosen(name)), "the providers are {}", PROVIDERS.join(", "));
    for provider in PROVIDERS.iter().copied().filter(|name| chosen(name)) {
        for seed in 1..=options.seeds {
            // Without its peer, `udp;ofi_rxd` sends again and again for a while, which takes long.
            if !(provider == WITHOUT_DESCRIPTOR && options.is_short) {
                let name = format!("{provider}: a peer that is killed, seed {seed}");
                checks.check(&name, trial.death(provider, seed));
            }
            for is_sealed in [true, false] {
                let name = format!("{provider}: {} messages, seed {seed}", if is_sealed { "sealed" } else { "clear" });
                // The short form tries the sealed ones, which take more steps.
                if is_sealed || !options.is_short {
                    checks.check(&name, trial.check(provider, seed, is_sealed));
                }
            }
        }
        // The short form tries the provider that is looked at by timer.
        if !options.is_short || provider == WITHOUT_DESCRIPTOR {
            checks.check(&format!("{provider}: waiting"), trial.call(provider, "idle", &[]));
        }
        if !options.is_short {
            checks.check(&format!("{provider}: measured"), trial.call(provider, "speed", &[]));
        }
    }
    println!("{}", checks.counts());
    Ok(())
}

impl Trial<'_> {
    fn messages(&self) -> &'static str {
        if self.options.is_short { "40" } else { "400" }
    }

    /// Returns the program on a host, with the words that it always gets.
    fn on(&self, host: usize) -> Command {
        let mut command = self.network.hosts()[host].command(&self.program);
        command.args(library_words(self.options.library.as_deref()));
        command
    }

    fn serve(&self, host: usize, provider: &str, words: &[&str]) -> Result<Child> {
        let mut command = self.on(host);
        command.args(["serve", &format!("0.0.0.0:{PORT}"), &format!("{provider};eth0")]).args(words);
        command.stdout(Stdio::piped()).spawn().context("cannot start the program")
    }

    /// Runs a part of the trial from the first host to the second. Prints what it has shown.
    fn call(&self, provider: &str, part: &str, words: &[&str]) -> Result<()> {
        let served = self.serve(1, provider, &[])?;
        let called = self.caller(provider, part, &[2], words).output();
        let said = end(served)?;
        shown(provider, &called?).with_context(|| said)
    }

    fn caller(&self, provider: &str, part: &str, hosts: &[usize], words: &[&str]) -> Command {
        let addresses: Vec<String> = hosts.iter().map(|host| format!("10.77.0.{host}:{PORT}")).collect();
        let mut command = self.on(0);
        command.args(["call", &addresses.join(","), &format!("{provider};eth0"), part]).args(words);
        command
    }

    fn check(&self, provider: &str, seed: u64, is_sealed: bool) -> Result<()> {
        let seed = seed.to_string();
        let mut words = vec!["--seed", &seed, "--messages", self.messages()];
        if is_sealed {
            words.push("--sealed");
        }
        self.call(provider, "check", &words)
    }

    /// Lets one of two peers kill itself when half of its messages have arrived.
    fn death(&self, provider: &str, seed: u64) -> Result<()> {
        let [killed, other] = [self.serve(1, provider, &["--dies"])?, self.serve(2, provider, &[])?];
        let seed = seed.to_string();
        let words = ["--seed", &seed, "--messages", self.messages()];
        let called = self.caller(provider, "death", &[2, 3], &words).output();
        let said = format!("{}; {}", end(killed)?, end(other)?);
        shown(provider, &called?).with_context(|| said)
    }
}

/// Ends a program that serves, if it has not ended before. Returns what it has said, and how it has ended: its caller may see
/// only a lost connection.
fn end(mut served: Child) -> Result<String> {
    let _ = served.kill();
    let output = served.wait_with_output()?;
    Ok(format!("the other side: {}, {}", String::from_utf8_lossy(&output.stdout).trim(), output.status))
}

/// Prints what a program has said, and fails if a line begins with `FAILED` or none with `ok`.
fn shown(provider: &str, called: &Output) -> Result<()> {
    result_of(provider, &String::from_utf8_lossy(&called.stdout), &called.status.to_string())
}

/// Does the same with the output of a program that has ended with this status.
fn result_of(provider: &str, said: &str, status: &str) -> Result<()> {
    let of = |word: &'static str| said.lines().filter_map(move |line| line.strip_prefix(word));
    for line in of("ok ") {
        println!("         {provider:12} {line}");
    }
    for reason in of("note broken ") {
        println!("         {provider:12} the provider reported the end of a link: {reason}");
    }
    if let Some(failure) = of("FAILED ").next() {
        bail!("{failure}");
    }
    ensure!(of("ok ").next().is_some(), "the program has ended with {status}: {}", said.trim());
    Ok(())
}
