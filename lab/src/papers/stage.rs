//! What experiments use inside the sandbox: hosts, machines, programs, and a way to report what was measured.
//!
//! The experiment prints a line for each value. The command outside the sandbox collects the lines.

use super::Form;
use super::sheet::{ALL_COLUMNS, Cells, Lack};
use crate::bench::hosts::{Contestant, program, said};
use crate::common::dist;
use crate::debian_pvm;
use crate::ether::model::{Config, Medium};
use crate::ether::wire::Rate;
use crate::hosts::machine::Machine;
use crate::hosts::network::{Host, Network, Wiring};
use crate::hosts::tap;
use anyhow::{Context, Result, bail};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::side::Side;

/// The first words of the lines with a value, with a reason for a missing value, and with a failure.
const VALUE: &str = "value";
const ABSENT: &str = "absent";
const FAILED: &str = "failed";

/// hpvm as it is compared with systems that do not encrypt.
pub const HPVM: Contestant = Contestant::Hpvm { trusted: true, direct: false };
/// PVM 3.4.6.
pub const PVM: Contestant = Contestant::Pvm { direct: false };

/// What an experiment has inside the sandbox.
pub struct Stage {
    pub folder: PathBuf,
    pub form: Form,
}

/// A line of a program's output.
#[derive(Debug, PartialEq)]
pub struct Measured {
    pub name: String,
    pub size: usize,
    pub value: f64,
}

/// Returns the values in a program's output.
pub fn measured(said: &str) -> Result<Vec<Measured>> {
    let one = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, size, value, _unit] = words[..] else { bail!("no measured value: {line:?}") };
        let size = size.parse().with_context(|| line.to_owned())?;
        let value: f64 = value.parse().with_context(|| line.to_owned())?;
        Ok(Measured { name: name.to_owned(), size, value })
    };
    said.lines().map(one).collect()
}

impl Stage {
    /// Returns one of two, for the short and the full form.
    pub fn either<T>(&self, short: T, full: T) -> T {
        self.form.either(short, full)
    }

    /// Connects hosts by the kernel's bridge; once in an experiment.
    pub fn bridge(&self, hosts: usize) -> Result<Network> {
        Network::new(&self.folder, hosts, Wiring::Bridge)
    }

    /// Connects hosts by an emulated Ethernet.
    pub fn ether(&self, hosts: usize, rate: Rate, medium: Medium) -> Result<Network> {
        self.slow_ether(hosts, rate, medium, 1)
    }

    /// Connects hosts by an emulated Ethernet whose second takes several seconds. Measured times must be divided by
    /// `slowdown`.
    pub fn slow_ether(&self, hosts: usize, rate: Rate, medium: Medium, slowdown: u32) -> Result<Network> {
        Network::new(&self.folder, hosts, Wiring::Ether(Config { slowdown, ..Config::new(rate, medium) }))
    }

    /// Reports the value of one run.
    pub fn value(&self, sheet: &str, row: &str, column: impl Display, value: f64) {
        println!("{VALUE}\t{sheet}\t{row}\t{column}\t{value}");
    }

    /// Reports why a cell has no value, which is no failure.
    pub fn absent(&self, sheet: &str, row: &str, column: impl Display, reason: impl Display) {
        println!("{ABSENT}\t{sheet}\t{row}\t{column}\t{}", one_line(reason));
    }

    /// Reports why no cell of a row has a value.
    pub fn row_absent(&self, sheet: &str, row: &str, reason: impl Display) {
        self.absent(sheet, row, ALL_COLUMNS, reason);
    }

    /// Reports that something has not worked for a cell. For hpvm this is a failure.
    pub fn failed(&self, who: Contestant, sheet: &str, row: &str, column: impl Display, reason: impl Display) {
        let kind = if who.side() == Some(Side::Ours) { FAILED } else { ABSENT };
        println!("{kind}\t{sheet}\t{row}\t{column}\t{}", one_line(reason));
    }

    /// Returns why a system cannot be measured here; `None` if it can.
    pub fn obstacle(&self, who: Contestant) -> Option<String> {
        match who {
            Contestant::Hpvm { .. } => {
                (!dist().join("bin/pvmd").exists()).then(|| "hpvm is not built (`cargo xtask build`)".into())
            }
            Contestant::Pvm { .. } => debian_pvm::obstacle(),
            Contestant::OpenMpi => {
                let is_there = Path::new("/usr/bin/mpirun.openmpi").exists() && program("openmpi_bench").exists();
                (!is_there).then(|| "Open MPI is not here (`cargo xtask setup bench`)".into())
            }
            Contestant::TcpSpinning | Contestant::TcpSleeping => None,
        }
    }

    /// Starts a machine of a PVM over the first hosts of a network.
    pub fn machine<'a>(&self, who: Contestant, network: &'a Network, hosts: usize) -> Result<Machine<'a>> {
        self.machine_with(who, network, hosts, &[])
    }

    /// Starts a machine whose daemons also have these variables.
    pub fn machine_with<'a>(
        &self,
        who: Contestant,
        network: &'a Network,
        hosts: usize,
        variables: &[(&str, &str)],
    ) -> Result<Machine<'a>> {
        if let Some(obstacle) = self.obstacle(who) {
            bail!("{obstacle}");
        }
        let side = who.side().context("a virtual machine")?;
        let mut environment = who.environment();
        // The default route of the papers leads through the daemons.
        if who.route() == "default" {
            environment.push(("HPVM_DIRECT_AFTER".to_owned(), "off".to_owned()));
        }
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let mut machine = Machine::new(side, network, &environment)?;
        machine.start(hosts, &[])?;
        Ok(machine)
    }

    /// Runs the program of the experiments on a machine.
    pub fn papers(&self, who: Contestant, machine: &Machine, words: &[&dyn Display]) -> Result<Vec<Measured>> {
        let mut command = machine.command(machine.first(), &program("papers"));
        let (mode, rest) = words.split_first().context("a mode")?;
        command.arg(mode.to_string()).arg(who.route()).args(rest.iter().map(|word| word.to_string()));
        measured(&said(&mut command, machine)?)
    }
}

/// Returns a text without the characters that separate lines and fields.
fn one_line(text: impl Display) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads a line of an experiment. Returns whether the line had the form of such a line.
pub fn take(cells: &mut Cells, line: &str) -> bool {
    let parts: Vec<&str> = line.split('\t').collect();
    let [kind, sheet, row, column, rest] = parts[..] else { return false };
    let lack = |is_failure| Lack { reason: rest.to_owned(), is_failure };
    match (kind, rest.parse::<f64>()) {
        (VALUE, Ok(value)) => cells.add(sheet, row, column, value),
        (ABSENT, _) => cells.lack(sheet, row, column, lack(false)),
        (FAILED, _) => cells.lack(sheet, row, column, lack(true)),
        _ => return false,
    }
    true
}

/// Returns how many TCP segments a host has sent again.
pub fn retransmissions(host: &Host) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{}/net/snmp", host.holder()))?;
    retransmitted(&text).context("no RetransSegs in /proc/net/snmp")
}

fn retransmitted(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RetransSegs")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// Returns why no Ethernet can be emulated here; `None` if one can.
pub fn no_ether() -> Option<String> {
    tap::obstacle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_program_is_read_and_other_text_is_refused() {
        let one = Measured { name: "psend".into(), size: 8, value: 0.5 };
        assert_eq!(measured("psend 8 0.5 us\n").unwrap(), [one]);
        assert!(measured("psend 8 fast us\n").is_err() && measured("papers: no\n").is_err());
    }

    #[test]
    fn a_line_of_an_experiment_becomes_a_cell() {
        let mut cells = Cells::default();
        assert!(take(&mut cells, "value\ts\ta\t1\t2.5"));
        assert!(take(&mut cells, "absent\ts\tb\t*\tnot here"));
        assert!(take(&mut cells, "failed\ts\tc\t1\tit broke"));
        assert!(!take(&mut cells, "value\ts\ta\t1\tmany") && !take(&mut cells, "a line of text"));
        assert_eq!(cells.0.len(), 3);
        assert!(cells.0[2].lack.as_ref().is_some_and(|lack| lack.is_failure));
    }

    #[test]
    fn the_retransmissions_are_found_by_their_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs RetransSegs InErrs\nTcp: 1 7 12 0\n";
        assert_eq!(retransmitted(text), Some(12));
        assert_eq!(retransmitted("Tcp: InSegs\nTcp: 1\n"), None);
    }
}
