//! The hosts on which the tasks of the torture live, if there are several.
use super::Surroundings;
use crate::hosts::machine::Machine;
use crate::hosts::network::Host;
use crate::machine::{END_TIME_MAX, wait_until};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// How long a console may take to answer.
pub const CONSOLE_TIME: Duration = Duration::from_secs(30);

/// The first hosts of a machine.
pub struct Ring<'a> {
    pub machine: &'a Machine<'a>,
    pub count: usize,
}

impl Ring<'_> {
    /// Returns the hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.machine.network.hosts()[..self.count]
    }

    /// Returns their names, separated by commas, as the chief takes them.
    pub fn names(&self) -> String {
        self.hosts().iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Returns their daemons, which must all run.
    pub fn daemons(&self) -> Result<Vec<u32>> {
        let daemons: Vec<u32> = self.hosts().iter().filter_map(Host::daemon).collect();
        ensure!(daemons.len() == self.count, "{} daemons should run", self.count);
        Ok(daemons)
    }

    /// Halts the machine, and checks that nothing is left.
    pub fn halt(&self) -> Result<()> {
        self.machine.console(&self.hosts()[1], "halt\n", CONSOLE_TIME)?;
        ensure!(
            wait_until(END_TIME_MAX, || self.all_processes().is_empty()),
            "left running: {:?}",
            self.all_processes()
        );
        for host in self.hosts() {
            let files = std::fs::read_dir(host.path(&self.machine.temporary(host))).context("PVM_TMP")?.flatten();
            let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
            let left: Vec<String> = names.filter(|name| !name.starts_with("pvml.")).collect();
            ensure!(left.is_empty(), "left on {}: {left:?}", host.name);
        }
        Ok(())
    }
}

impl Surroundings for Ring<'_> {
    fn log_ends(&self) -> String {
        let last = |host: &Host| {
            let log = self.machine.log(host);
            let lines: Vec<&str> = log.lines().collect();
            format!("{}:\n{}\n", host.name, lines[lines.len().saturating_sub(12)..].join("\n"))
        };
        let errors = std::fs::read_to_string(self.machine.folder.join("stderr")).unwrap_or_default();
        self.hosts().iter().map(last).collect::<String>() + &errors
    }
    fn all_processes(&self) -> Vec<u32> {
        self.hosts().iter().flat_map(Host::processes).collect()
    }
}
