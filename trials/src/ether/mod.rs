//! `cargo xtask ether`: an emulated Ethernet between hosts that are network namespaces. It is a hub with collisions, or
//! a switch with small buffers.
//!
//! [`model`] decides, in simulated time, when each frame arrives; [`device`] reads and writes the frames of real hosts
//! at these times. Unit tests compare the model with theory; the command runs TCP over devices ([`real`]).

pub mod device;
mod hub;
pub mod model;
mod real;
mod schedule;
mod switch;
#[cfg(test)]
mod theory_tests;
pub mod wire;

use crate::counts::Counts;
use crate::hosts::network::{Network, Wiring};
use crate::hosts::{sandbox, tap};
use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use model::{Config, Medium};
use std::path::{Path, PathBuf};
use wire::Rate;

const USAGE: &str = "ether [--short] [--seed N]
  --short        fewer runs over devices
  --seed N       other random numbers
ether --script FILE [--hosts N] [--rate 10|100|1000] [--switch BYTES] [--slowdown N] [--seed N]
  --script FILE  run a shell script on the first of some hosts, then print the counters
  --hosts N      the number of hosts, 4 without this option; host I has the address 10.77.0.I
  --rate N       the speed in Mbit/s, 10 without this option
  --switch BYTES a switch with this number of bytes for each port (for example 65536) instead of a hub
  --slowdown N   one second on the wire takes N seconds";

/// The options of the command line.
struct Options {
    is_short: bool,
    script: Option<PathBuf>,
    hosts: usize,
    config: Config,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let config = Config::new(Rate::Ten, Medium::Hub);
    let mut options = Options { is_short: false, script: None, hosts: 4, config };
    let (mut rate, mut medium, mut seed, mut slowdown) = (config.rate, config.medium, config.seed, config.slowdown);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("short") => options.is_short = true,
            Long("script") => options.script = Some(parser.value()?.into()),
            Long("hosts") => options.hosts = parser.value()?.parse()?,
            Long("rate") => rate = Rate::of_megabits(parser.value()?.parse()?)?,
            Long("switch") => medium = Medium::Switch { port_bytes_max: parser.value()?.parse()? },
            Long("slowdown") => slowdown = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            other => bail!("{}\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(options.hosts > 0 && slowdown > 0, "--hosts and --slowdown are at least 1");
    options.config = Config { seed, slowdown, ..Config::new(rate, medium) };
    Ok(options)
}

/// Runs the command. Inside the namespaces this function runs a second time.
pub fn run(arguments: &[String]) -> Result<()> {
    match sandbox::folder() {
        Some(folder) => inside(&folder, &parse(arguments)?)?.report(),
        None => counted(arguments)?.report(),
    }
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(arguments: &[String]) -> Result<Counts> {
    parse(arguments)?;
    if let Some(obstacle) = sandbox::obstacle().or_else(tap::obstacle) {
        return Ok(Counts::skip(obstacle));
    }
    device::compile()?;
    let mut words = vec!["ether"];
    words.extend(arguments.iter().map(String::as_str));
    Counts::parse(&sandbox::run(&words)?)
}

fn inside(folder: &Path, options: &Options) -> Result<Counts> {
    let Some(script) = &options.script else {
        return Ok(real::counted(folder, options.is_short, options.config.seed));
    };
    let network = Network::new(folder, options.hosts, Wiring::Ether(options.config))?;
    let mut command = network.hosts()[0].command(Path::new("/bin/sh"));
    command.arg(std::path::absolute(script)?).env("HOSTS_PLACES", network.places());
    let status = command.status().context("cannot start the script")?;
    println!("{}", network.ether()?.counters()?);
    Ok(Counts::one(status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::PORT_BYTES_MAX;

    fn config_of(line: &str) -> Result<Config> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Ok(parse(&words)?.config)
    }

    #[test]
    fn the_options_select_rate_medium_and_seed() {
        let config = config_of("--script x --rate 1000 --switch 65536 --slowdown 4 --seed 7").unwrap();
        let medium = Medium::Switch { port_bytes_max: PORT_BYTES_MAX };
        assert_eq!(config, Config { seed: 7, slowdown: 4, ..Config::new(Rate::Gigabit, medium) });
        assert_eq!(config_of("").unwrap(), Config::new(Rate::Ten, Medium::Hub));
    }

    #[test]
    fn a_wire_without_hosts_or_speed_is_refused() {
        for line in ["--hosts 0", "--slowdown 0", "--rate 11"] {
            assert!(config_of(line).is_err(), "{line}");
        }
    }
}
