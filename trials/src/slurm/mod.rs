//! `cargo xtask slurm`: runs hpvm in jobs of a real Slurm: a controller and three nodes, each a network namespace with
//! a name of its own, under Debian's Slurm and munge, which are unpacked below `target`.

mod cases;
mod cgroups;
mod cluster;

use crate::build;
use crate::common::{dist, root, sh};
use crate::counts::Counts;
use crate::debian_slurm as tools;
use crate::failures;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::sandbox;
use anyhow::{Context, Result, bail};
use cases::{CASES, Case};
use cgroups::Groups;
use cluster::Cluster;
use lexopt::prelude::*;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const USAGE: &str = "slurm [--short] [--only NAME]... [--as-it-is]
  --short        without the cases that take long
  --only NAME    cases with this in their names
  --as-it-is     take target/dist as it is, without building it first";

/// The controller and the nodes.
const HOSTS: usize = 4;
/// The time of a case is shown if the case takes longer than this.
const SLOW: Duration = Duration::from_secs(3);

struct Options {
    short: bool,
    only: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options { short: false, only: Vec::new() };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => options.short = true,
            Long("only") => options.only.push(parser.value()?.string()?),
            Long("as-it-is") => {}
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    Ok(options)
}

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    if let Some(folder) = sandbox::folder() {
        return inside(&folder, &options);
    }
    match tests(arguments)? {
        Ok(counts) => counts.report(),
        Err(obstacle) => bail!("{obstacle}"),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    Ok(tests(arguments)?.unwrap_or_else(Counts::skip))
}

/// Returns why no cluster can run here; `None` if one can.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("Slurm's daemons need root".into());
    }
    let own_tmp = [root(), dist()].into_iter().find(|path| path.starts_with("/tmp"));
    if let Some(path) = own_tmp {
        return Some(format!("{} is in /tmp, and each host of the cluster has a /tmp of its own", path.display()));
    }
    // Slurm's configuration ends a value at a space.
    if root().to_string_lossy().contains(char::is_whitespace) {
        return Some(format!(
            "the path of the source tree has a space, with which Slurm finds no plugins: {}",
            root().display()
        ));
    }
    tools::obstacle().or_else(sandbox::obstacle)
}

/// Returns the counts, or why the tests cannot run here.
fn tests(arguments: &[String]) -> Result<Result<Counts, String>> {
    if let Some(obstacle) = obstacle() {
        return Ok(Err(format!("Slurm: {obstacle}")));
    }
    build::build_unless_told(arguments)?;
    compile()?;
    let _lock = cgroups::lock()?;
    cgroups::remove(HOSTS)?;
    let mut words = vec!["slurm"];
    words.extend(arguments.iter().map(String::as_str));
    let last = sandbox::run(&words);
    // A process that the sandbox has killed may need a moment to leave its group.
    crate::machine::wait_until(Duration::from_secs(5), || cgroups::remove(HOSTS).is_ok());
    cgroups::remove(HOSTS)?;
    Counts::parse(&last?).map(Ok)
}

/// Compiles the programs of `tests/slurm`.
fn compile() -> Result<()> {
    let folder = cluster::programs();
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(root().join("tests/slurm")).context("tests/slurm")? {
        let source = entry?.path();
        let Some(name) = source.file_stem().filter(|_| source.extension().is_some_and(|end| end == "c")) else {
            continue;
        };
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(folder.join(name)).arg(&source);
        compiler.arg("-I").arg(dist().join("include")).arg("-L").arg(dist().join("lib")).arg("-lpvm3");
        sh(&mut compiler)?;
    }
    Ok(())
}

fn inside(folder: &Path, options: &Options) -> Result<()> {
    let named = |case: &Case| options.only.is_empty() || options.only.iter().any(|part| case.name.contains(&**part));
    let chosen: Vec<&Case> = CASES.iter().filter(|case| named(case) && (case.short || !options.short)).collect();
    if chosen.is_empty() {
        bail!("no such case; there are: {}", CASES.iter().map(|case| case.name).collect::<Vec<_>>().join(", "));
    }
    let usable = cgroups::usable();
    if usable == Ok(Groups::Two) {
        cgroups::enter_whole()?;
    }
    let network = Network::new(folder, HOSTS, Wiring::Bridge)?;
    let groups = usable.as_ref().ok().copied();
    let cluster = Cluster::start(&network, folder, groups)?;
    match usable {
        Ok(Groups::One) => {
            println!("Slurm holds the processes of a step together by control groups (proctrack/cgroup)")
        }
        Ok(Groups::Two) => println!("Slurm holds the processes of a step together by control groups of version 2"),
        Err(obstacle) => println!("Slurm follows the processes of a step by their parents: {obstacle}"),
    }
    let mut counts = Counts::default();
    for case in chosen {
        counts += run_case(&cluster, case);
    }
    drop(cluster);
    println!("slurm: {counts}");
    Ok(())
}

fn run_case(cluster: &Cluster<'_>, case: &Case) -> Counts {
    if let Some(missing) = case.needs.missing(cluster.groups) {
        return Counts::skip(format_args!("{}: {missing}", case.name));
    }
    let began = Instant::now();
    let result = (case.run)(cluster);
    let result = result.and_then(|()| cluster.nothing_is_left()).inspect_err(|_| {
        let _ = cluster.nothing_is_left();
    });
    if began.elapsed() > SLOW {
        println!("         {} ({:.0} s)", case.name, began.elapsed().as_secs_f64());
    }
    if let Err(error) = &result {
        failures::report(format_args!("FAILED   {}: {error:#}", case.name));
    }
    Counts::one(result.is_ok())
}
