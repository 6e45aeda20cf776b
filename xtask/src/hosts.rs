//! `cargo xtask hosts`: machines of several hosts, each a network namespace with a name of its own.
//!
//! Each scenario of `tests/hosts` runs on Debian's PVM and on hpvm over the same hosts, and what they
//! print is compared as `conform` does it.

mod machine;
mod network;
mod sandbox;
mod scenario;

use crate::build;
use crate::common::report;
use crate::conform::case::{self, Case};
use crate::conform::execute::Runner;
use crate::conform::machine::{OURS_VARIABLE, Side, require};
use crate::conform::verdict::{Verdict, judge};
use anyhow::{Context, Result, bail};
use network::Network;
use scenario::Stage;
use std::path::{Path, PathBuf};

const USAGE: &str = "hosts [--only NAME]... [--script FILE] [--ours|--theirs] [--as-it-is]
  --only NAME    scenarios with this in their names
  --script FILE  a shell script in the place of the scenarios; it may have their directives
  --ours         hpvm alone, and what comes out; --theirs: Debian's PVM
  --as-it-is     take target/dist as it is, without building it first";

/// What the command line asks for.
#[derive(Default)]
struct Options {
    only: Vec<String>,
    side: Option<Side>,
    script: Option<PathBuf>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--only" => options.only.push(rest.next().context(USAGE)?.clone()),
            "--script" => options.script = Some(rest.next().context(USAGE)?.into()),
            "--ours" => options.side = Some(Side::Ours),
            "--theirs" => options.side = Some(Side::Theirs),
            build::AS_IT_IS => {}
            _ => bail!("{USAGE}"),
        }
    }
    Ok(options)
}

/// Runs the command; it comes here twice, the second time inside the namespaces.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => inside(&folder, &parse(arguments)?),
        None => report(counted(arguments)?),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<(usize, usize)> {
    let options = parse(arguments)?;
    if let Some(obstacle) = sandbox::obstacle() {
        println!("skipped: {obstacle}");
        return Ok((0, 0));
    }
    if options.side != Some(Side::Theirs) && std::env::var_os(OURS_VARIABLE).is_none() {
        build::build_unless_told(arguments)?;
    }
    require(options.side)?;
    scenario::compile(&scenario::all()?)?;
    let mut words = vec!["hosts"];
    words.extend(arguments.iter().map(String::as_str));
    let last = sandbox::run(&words)?;
    match last.replace(',', "").split(' ').collect::<Vec<_>>()[..] {
        ["hosts:", passed, "passed", failed, "failed"] => Ok((passed.parse()?, failed.parse()?)),
        _ => bail!("the command inside the namespaces ended early"),
    }
}

fn inside(folder: &Path, options: &Options) -> Result<()> {
    let all = match &options.script {
        Some(path) => case::script(path)?,
        None => scenario::all()?,
    };
    let wanted = |case: &&Case| options.only.is_empty() || options.only.iter().any(|part| case.name.contains(part));
    let cases: Vec<&Case> = all.iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!("no such scenario");
    }
    let network = Network::new(folder, scenario::HOSTS)?;
    let mut stage = Stage::new(&network);
    let (mut passed, mut failed) = (0, 0);
    for case in cases {
        let ended = match options.side {
            Some(side) => stage.run(case, side).map(|outcome| {
                println!("==== {} on {side}\n{}", case.name, outcome.text);
                true
            }),
            None => judge(&mut stage, case).map(|verdict| {
                print!("{}", verdict.line(&case.name));
                !matches!(verdict, Verdict::Differs(_))
            }),
        };
        let well = ended.unwrap_or_else(|error| {
            println!("FAILED   {}: {error:#}", case.name);
            false
        });
        if well { passed += 1 } else { failed += 1 }
    }
    println!("hosts: {passed} passed, {failed} failed");
    Ok(())
}
