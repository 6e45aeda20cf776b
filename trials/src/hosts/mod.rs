//! `cargo xtask hosts`: runs machines of several hosts, each a network namespace with a name of its own.
//!
//! Each scenario of `tests/hosts` runs on Debian's PVM and on hpvm over the same hosts, and the outputs are compared as
//! in `conform`.

mod faults;
pub mod machine;
pub mod network;
pub mod sandbox;
mod scenario;
mod switch;
pub mod tap;

use crate::build;
use crate::conform::case::{self, Case};
use crate::conform::execute::Runner;
use crate::conform::machine::{OURS_VARIABLE, Side, require};
use crate::conform::verdict::judge;
use crate::counts::Counts;
use crate::failures;
use anyhow::{Result, bail};
use faults::multicasts::{self, MulticastPlan};
use faults::{Fault, Plan, succession};
use lexopt::prelude::*;
use network::{Network, Wiring};
use scenario::Stage;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const USAGE: &str =
    "hosts [--only NAME]... [--conform] [--trusted] [--fabric NAME] [--short] [--script FILE [--hosts N]]\n      [--ours|--theirs] [--as-it-is]
  --only NAME    scenarios with this in their names
  --conform      the programs of tests/conform, whose tasks lie on all hosts here
  --trusted      data between hosts is not encrypted (PVM_TRUSTED_NET=1)
  --fabric NAME  messages between hosts take this provider of libfabric, such as tcp (PVM_FABRIC)
  --short        without those that take long; of --conform a few
  --script FILE  a shell script in the place of the scenarios; it may have their directives
  --hosts N      with N hosts in the network instead of four
  --ours         hpvm alone, and what comes out; --theirs: Debian's PVM
  --as-it-is     take target/dist as it is, without building it first
hosts --faults [--fault NAME]... [--seeds N] [--first-seed N] [--jobs N] [--fabric NAME]
  --faults       hosts, tasks and links fail while tasks talk; with each seed from the first on
hosts --multicasts N [--attacked] [--seeds N] [--first-seed N]
  --multicasts N N multicasts while datagrams are lost, and hosts are killed, leave and join
  --attacked     while a host lies about multicasts, and a stranger sends false datagrams
hosts --succession N
  --succession N N times, how long requests and a stream of messages take when the first daemon is killed";

/// The provider of libfabric that has nothing to wait for, and starts no threads.
pub const WITHOUT_DESCRIPTOR: &str = "udp;ofi_rxd";

/// The number of seeds for each fault, without `--seeds`.
const SEEDS: u64 = 20;
/// The number of sandboxes that share the scenarios. Scenarios wait most of the time: together they need an eighth of two
/// processors.
const SANDBOXES: usize = 3;
/// The time of a scenario is shown if the scenario takes longer than this.
const SLOW: Duration = Duration::from_secs(3);

/// The options of the command line.
struct Options {
    only: Vec<String>,
    side: Option<Side>,
    script: Option<PathBuf>,
    hosts: usize,
    conform: bool,
    trusted: bool,
    fabric: Option<String>,
    short: bool,
    /// Which share of the scenarios to run, inside the sandbox: those whose number divided by `SANDBOXES` leaves this
    /// remainder. `None` for all.
    share: Option<usize>,
    faults: Option<Plan>,
    /// The fault and the seed to run, inside the sandbox.
    one: Option<(Fault, u64)>,
    multicasts: Option<MulticastPlan>,
    /// The number of multicasts and the seed to run, inside the sandbox.
    one_multicasts: Option<(u64, u64)>,
    attacked: bool,
    /// How often to measure the succession.
    succession: Option<u64>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        only: Vec::new(),
        side: None,
        script: None,
        hosts: scenario::HOSTS,
        conform: false,
        trusted: false,
        fabric: None,
        short: false,
        share: None,
        faults: None,
        one: None,
        multicasts: None,
        one_multicasts: None,
        attacked: false,
        succession: None,
    };
    let (mut one, mut seed, mut with_faults, mut hosts) = (None, 1, false, None);
    let (mut multicasts, mut one_seed) = (None, None);
    let mut plan = Plan { faults: Vec::new(), seeds: SEEDS, first_seed: 1, jobs: 1, fabric: None };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only.push(parser.value()?.string()?),
            Long("conform") => options.conform = true,
            Long("trusted") => options.trusted = true,
            Long("fabric") => options.fabric = Some(parser.value()?.string()?),
            Long("short") => options.short = true,
            Long("share") => options.share = Some(parser.value()?.parse()?),
            Long("script") => options.script = Some(parser.value()?.into()),
            Long("hosts") => hosts = Some(parser.value()?.parse()?),
            Long("ours") => options.side = Some(Side::Ours),
            Long("theirs") => options.side = Some(Side::Theirs),
            Long("faults") => with_faults = true,
            Long("fault") => plan.faults.push(Fault::of_name(&parser.value()?.string()?)?),
            Long("seeds") => plan.seeds = parser.value()?.parse()?,
            Long("first-seed") => plan.first_seed = parser.value()?.parse()?,
            Long("jobs") => plan.jobs = parser.value()?.parse()?,
            Long("one-fault") => one = Some(Fault::of_name(&parser.value()?.string()?)?),
            Long("multicasts") => multicasts = Some(parser.value()?.parse()?),
            Long("attacked") => options.attacked = true,
            Long("succession") => options.succession = Some(parser.value()?.parse()?),
            Long("one-seed") => one_seed = Some(parser.value()?.parse()?),
            Long("seed") => seed = parser.value()?.parse()?,
            Long("as-it-is") => {}
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    match hosts {
        Some(0) => bail!("--hosts 0: a network has one host at least"),
        // A scenario sets its own number of hosts, because its expected output depends on this number.
        Some(_) if options.script.is_none() => bail!("--hosts goes with --script alone"),
        Some(hosts) => options.hosts = hosts,
        None => {}
    }
    options.one = one.map(|fault| (fault, seed));
    options.one_multicasts = multicasts.zip(one_seed);
    let (seeds, first_seed, attacked) = (plan.seeds, plan.first_seed, options.attacked);
    options.multicasts = multicasts.map(|count| MulticastPlan { count, seeds, first_seed, attacked });
    plan.fabric = options.fabric.clone();
    options.faults = with_faults.then_some(plan);
    Ok(options)
}

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => inside(&folder, &parse(arguments)?),
        None => counted(arguments)?.report(),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    let options = parse(arguments)?;
    if let Some(obstacle) = sandbox::obstacle() {
        return Ok(Counts::skip(obstacle));
    }
    if options.side != Some(Side::Theirs) && std::env::var_os(OURS_VARIABLE).is_none() {
        build::build_unless_told(arguments)?;
    }
    require(options.side)?;
    if let Some(plan) = &options.multicasts {
        return multicasts::counted(plan);
    }
    if let Some(runs) = options.succession {
        return succession::counted(runs);
    }
    if let Some(plan) = &options.faults {
        return faults::counted(plan, options.side.unwrap_or(Side::Ours));
    }
    scenario::compile(&scenario::all()?)?;
    if options.conform {
        scenario::conformance()?;
    }
    let mut words = vec!["hosts"];
    words.extend(arguments.iter().map(String::as_str));
    if options.is_in_one_sandbox() {
        return Counts::parse(&sandbox::run(&words)?);
    }
    let run_share = |share: usize| {
        let share = share.to_string();
        Counts::parse(&sandbox::run(&[&words[..], &["--share", &share]].concat())?)
    };
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..SANDBOXES).map(|share| scope.spawn(move || run_share(share))).collect();
        shares.into_iter().map(|share| share.join().expect("a share does not panic")).sum()
    })
}

impl Options {
    /// Returns whether all scenarios run in one sandbox: if somebody reads the output, or chooses a few scenarios.
    fn is_in_one_sandbox(&self) -> bool {
        self.side.is_some() || self.script.is_some() || !self.only.is_empty()
    }
}

fn inside(folder: &Path, options: &Options) -> Result<()> {
    if let Some((count, seed)) = options.one_multicasts {
        return multicasts::inside(folder, count, seed, options.attacked);
    }
    if let Some(runs) = options.succession {
        return succession::inside(folder, runs);
    }
    if let Some((fault, seed)) = options.one {
        return faults::inside(folder, fault, seed, options.side.unwrap_or(Side::Ours), options.fabric.as_deref());
    }
    let all = match &options.script {
        Some(path) => case::script(path)?,
        None if options.conform => scenario::conformance()?,
        None => scenario::all()?,
    };
    let named = |case: &Case| options.only.is_empty() || options.only.iter().any(|part| case.name.contains(part));
    let wanted = |case: &&Case| named(case) && !(options.short && scenario::is_for_later(case));
    let mut cases: Vec<&Case> = all.iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!("no such scenario");
    }
    if let Some(share) = options.share {
        cases = cases.into_iter().skip(share).step_by(SANDBOXES).collect();
    }
    let network = Network::new(folder, options.hosts, Wiring::Bridge)?;
    let mut environment =
        if options.trusted { vec![("PVM_TRUSTED_NET".to_owned(), "1".to_owned())] } else { Vec::new() };
    if let Some(name) = &options.fabric {
        environment.push(("PVM_FABRIC".to_owned(), name.clone()));
        // By default only hosts with one task have a fabric that no program has asked for.
        environment.push(("HPVM_ORDER".to_owned(), "pairs".to_owned()));
    }
    let mut stage = Stage::new(&network, environment);
    let mut counts = Counts::default();
    for case in cases {
        if let Some(reason) = &case.one_host {
            println!("one host {}: {reason}", case.name);
            continue;
        }
        if let (Some(reason), Some(_)) = (&case.no_fabric, &options.fabric) {
            counts += Counts::skip(format_args!("{}: {reason}", case.name));
            continue;
        }
        let began = Instant::now();
        let ended = match options.side {
            Some(side) => stage.run(case, side).map(|outcome| {
                println!("==== {} on {side}\n{}", case.name, outcome.text);
                Counts::one(true)
            }),
            None => judge(&mut stage, case).map(|verdict| {
                verdict.print(&case.name);
                verdict.counts()
            }),
        };
        counts += ended.unwrap_or_else(|error| {
            failures::report(format_args!("FAILED   {}: {error:#}", case.name));
            Counts::one(false)
        });
        if began.elapsed() > SLOW {
            println!("         ({:.0} s)", began.elapsed().as_secs_f64());
        }
    }
    println!("hosts: {counts}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(line: &str) -> Result<usize> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Ok(parse(&words)?.hosts)
    }

    #[test]
    fn a_script_has_as_many_hosts_as_it_asks_for() {
        assert_eq!(hosts_of("--hosts 7 --script x --ours").unwrap(), 7);
        assert_eq!(hosts_of("--script x").unwrap(), scenario::HOSTS);
    }

    #[test]
    fn the_number_of_hosts_is_refused_without_a_script() {
        for line in ["--hosts 7", "--hosts 7 --conform", "--faults --hosts 7"] {
            assert!(hosts_of(line).unwrap_err().to_string().contains("--script"), "{line}");
        }
    }

    #[test]
    fn a_network_without_hosts_is_refused() {
        assert!(hosts_of("--script x --hosts 0").unwrap_err().to_string().contains("--hosts 0"));
    }
}
