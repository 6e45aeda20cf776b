//! `cargo xtask bench`: compares hpvm with Debian's PVM, several MPIs and the hardware's limit, in one run.
//!
//! `docs/benchmarks.md` explains what is measured, and how to read the results.
mod collectives;
mod fabric;
pub mod hosts;
mod picture;
mod plan;
pub mod process;
pub mod python;
mod quota;
mod ratchet;
mod reference;
pub mod runner;
pub mod samples;
pub mod systems;
pub mod tables;
mod verdicts;

use crate::build;
use crate::common::{Progress, dist, root};
use crate::congestion;
use crate::hosts::sandbox;
use crate::measure;
use anyhow::{Result, bail};
use lexopt::prelude::*;
use plan::Effort;
use procfs::Current;
use ratchet::Ratios;
use runner::Outcome;
use samples::Samples;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use systems::{ALL, MPIS, System};
use verdicts::{Standing, Verdict};

const USAGE: &str = "bench [--short] [--only NAME]... [--peers] [--against FILE] [--reference] [--as-it-is]
  --short         about 3 min instead of about 20
  --only NAME     latency, bandwidth, rate, ring, mcast, spawn, groups, idle, loaded, memory, netpipe, hosts,
                  collectives, python, pools (a part of python) or fabric (not in the short run unless named)
  --peers         leave hpvm out: how fast are the others here?
  --against FILE  compare with the ratios of an earlier run; fail if one is worse
  --reference     write tables and picture to docs/benchmarks
  --as-it-is      take target/dist as it is, without building it first";

struct Options {
    effort: Effort,
    only: BTreeSet<String>,
    peers: bool,
    inside: bool,
    /// Whether the results become the reference run of the documentation.
    reference: bool,
    /// The ratios of an earlier run.
    against: Option<Ratios>,
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        effort: Effort::Full,
        only: BTreeSet::new(),
        peers: false,
        inside: false,
        reference: false,
        against: None,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => options.effort = Effort::Short,
            Long("peers") => options.peers = true,
            Long("as-it-is") => {}
            Long("reference") => options.reference = true,
            // The file is read now: it may be the one to which this run writes its own ratios.
            Long("against") => options.against = Some(Ratios::read(Path::new(&parser.value()?))?),
            Long("inside") => options.inside = true,
            Long("only") => {
                let name = parser.value()?.string()?;
                if !python::NAMES.contains(&name.as_str())
                    && name != fabric::NAME
                    && !hosts::PARTS.contains(&name.as_str())
                    && !plan::groups(options.effort).iter().any(|group| group.name == name)
                {
                    bail!("there is no measure {name}\n{USAGE}");
                }
                options.only.insert(name);
            }
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(options)
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = options(arguments)?;
    if let (true, Some(folder)) = (options.inside, sandbox::folder()) {
        return hosts::inside(&folder, &options.only, options.effort, options.peers);
    }
    if !options.peers {
        build::build_unless_told(arguments)?;
    }
    let mut systems: BTreeSet<System> = ALL.into_iter().filter(|system| system.is_there()).collect();
    if options.peers {
        systems.remove(&System::Hpvm);
    } else if !systems.contains(&System::Hpvm) {
        bail!("{} is not there: run `cargo xtask build` first", dist().display());
    }
    let missing: Vec<&str> =
        ALL.iter().filter(|system| !systems.contains(system)).map(|system| system.name()).collect();
    if !missing.is_empty() {
        println!("not measured, because not here: {} (see `cargo xtask setup bench`)", missing.join(", "));
    }
    measure::warn_when_busy();
    let start = Instant::now();
    let mut outcome = run_groups(options.effort, &options.only, &systems)?;
    print!("\nSettings\n{}{}", settings(&systems), tables::all(&outcome.samples));
    warn_when_disturbed(&outcome.samples);
    let mut verdicts = verdicts::verdicts(&outcome.samples);
    let is_wanted = |part: &&str| options.only.is_empty() || options.only.contains(*part);
    let parts: Vec<&str> = hosts::PARTS.into_iter().filter(is_wanted).collect();
    if !parts.is_empty() {
        verdicts.extend(hosts::measure(&parts, options.effort, options.peers)?);
    }
    if !options.peers && python::NAMES.iter().any(is_wanted) {
        if let Some((samples, targets)) = python::measure(options.effort, !is_wanted(&python::NAMES[0]))? {
            outcome.samples.all.extend(samples.all);
            verdicts.extend(targets);
        }
    }
    let is_fabric_wanted = options.only.contains(fabric::NAME) || options.effort == Effort::Full;
    if !options.peers && is_wanted(&fabric::NAME) && is_fabric_wanted {
        verdicts.extend(fabric::measure(options.effort)?);
    }
    if !options.only.is_empty() {
        verdicts.retain(|verdict| verdict.worst().is_some());
    }
    print!("\nTargets (PASS, MISS; ---- where not everything was measured)\n{}", targets(&verdicts));
    save(&outcome, &verdicts, &systems)?;
    if options.reference {
        reference::write(&outcome.samples, &verdicts, &systems)?;
    }
    let ratios = Ratios::of(&outcome.samples, about(&systems));
    ratios.write(&runner::directory().join("ratios.json"))?;
    let comparison = options.against.map(|before| ratios.compared_with(&before));
    if let Some(comparison) = &comparison {
        print!("{comparison}");
    }
    println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
    let ours: Vec<_> = outcome.failures.iter().filter(|failure| failure.system == System::Hpvm).collect();
    if let Some(failure) = ours.first() {
        bail!("{} programs failed on hpvm, the first at {}: {}", ours.len(), failure.measure, failure.text);
    }
    comparison.map_or(Ok(()), |comparison| comparison.verdict())
}

fn run_groups(effort: Effort, only: &BTreeSet<String>, systems: &BTreeSet<System>) -> Result<Outcome> {
    process::remove_leftovers();
    runner::compile(systems)?;
    let mut outcome = Outcome::default();
    for group in plan::groups(effort) {
        if !only.is_empty() && !only.contains(group.name) {
            continue;
        }
        let start = Instant::now();
        let progress = Progress::begin(&format!("measuring {}", group.measure));
        let result = outcome.run(&group, systems);
        progress.end();
        result?;
        println!("{:10} {:5.1} s", group.measure, start.elapsed().as_secs_f64());
    }
    Ok(outcome)
}

/// Warns if the shortest message seems faster than the limit of the machine: then the limit was measured while other work
/// ran. A longer message may be faster than a copy out of another process's memory (decision 39).
fn warn_when_disturbed(samples: &Samples) {
    let size = tables::SHORT_SIZES[0];
    let ours = samples.median(System::Hpvm, "pingpong_psend", size);
    let limit = samples.median(System::Limit, "pingpong_line", size);
    measure::warn_when_faster_than_the_limit(ours, limit);
}

/// Returns a line for each system: how it was run.
fn settings(systems: &BTreeSet<System>) -> String {
    systems.iter().map(|system| format!("  {:23} {}\n", system.name(), system.settings())).collect()
}

/// Returns the list of targets.
fn targets(verdicts: &[Verdict]) -> String {
    let lines: String = verdicts.iter().map(|verdict| format!("  {verdict}\n")).collect();
    let count = |standing| verdicts.iter().filter(|verdict| verdict.standing() == standing).count();
    format!(
        "{lines}{} targets met, {} missed, {} not measured\n",
        count(Standing::Pass),
        count(Standing::Miss),
        count(Standing::Unknown)
    )
}

/// Returns the first line of a command's output.
fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the processor's name.
fn processor() -> String {
    let info = procfs::CpuInfo::current().ok();
    info.and_then(|info| info.model_name(0).map(str::to_owned)).unwrap_or_default()
}

/// Returns the text above the picture, line by line: version, day and machine.
fn about(systems: &BTreeSet<System>) -> Vec<String> {
    let commit = Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(root()).output();
    let commit = commit.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = commit.map(|text| format!(" ({})", String::from_utf8_lossy(&text).trim())).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (day, version) = (first_line("date", "+%F"), env!("CARGO_PKG_VERSION"));
    vec![
        format!("hpvm {version}{commit}, measured on {day}"),
        mpi_versions(systems).join(", "),
        format!(
            "{}, {cores} cores, Linux {}, TCP between hosts: {}",
            processor(),
            first_line("uname", "-r"),
            congestion::usual()
        ),
    ]
}

/// Returns names and versions of the MPIs among these systems. (Those that only have other settings have no version.)
fn mpi_versions(systems: &BTreeSet<System>) -> Vec<String> {
    let mpis = systems.iter().filter(|system| MPIS.contains(*system));
    let mut versions: Vec<String> = mpis.map(|mpi| mpi.version()).filter(|text| !text.is_empty()).collect();
    // Two settings of a system have the same version.
    versions.dedup();
    versions
}

/// Returns lines with the versions, the day and the machine, for a report.
pub fn about_here() -> Vec<String> {
    about(&ALL.into_iter().filter(|system| system.is_there()).collect())
        .into_iter()
        .filter(|line| !line.is_empty())
        .collect()
}

fn save(outcome: &Outcome, verdicts: &[Verdict], systems: &BTreeSet<System>) -> Result<()> {
    let measures: Vec<_> = outcome
        .samples
        .all
        .iter()
        .map(|(key, values)| {
            json!({
                "measure": key.measure, "size": key.size, "system": key.system.name(), "unit": values.unit,
                "median": samples::median(&values.values), "values": values.values,
            })
        })
        .collect();
    let targets: Vec<_> = verdicts
        .iter()
        .map(|verdict| {
            json!({
                "target": verdict.text, "standing": verdict.standing().to_string(),
                "bound": verdict.bound.to_string(), "worst": verdict.worst(),
                "ratios": verdict.ratios.iter().map(|(about, ratio)| json!({"of": about, "ratio": ratio})).collect::<Vec<_>>(),
            })
        })
        .collect();
    let results = json!({
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": first_line("uname", "-r"),
        "congestion control": congestion::usual(),
        "versions": mpi_versions(systems),
        "settings": systems.iter().map(|system| (system.name().to_owned(), system.settings().into())).collect::<serde_json::Map<_, _>>(),
        "measures": measures,
        "targets": targets,
        "failures": outcome.failures.iter().map(|failure| json!({
            "system": failure.system.name(), "measure": failure.measure, "text": failure.text,
        })).collect::<Vec<_>>(),
    });
    let directory = runner::directory();
    std::fs::write(directory.join("results.json"), serde_json::to_string_pretty(&results)?)?;
    println!("\n{}", directory.join("results.json").display());
    let picture = directory.join("results.svg");
    if picture::draw(&outcome.samples, &about(systems), &picture)? {
        println!("{}", picture.display());
    }
    Ok(())
}
