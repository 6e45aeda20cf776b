//! A virtual machine with one host of each kind.

use super::build::TEST;
use super::kinds::{Extent, KINDS, Kind};
use crate::conform::execute::{End, wait};
use crate::hosts::network::{Host, Network};
use crate::machine::wait_until;
use crate::processes::signal;
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a daemon may take to start, and how long to end.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the console may take; it is slow under qemu.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the tests may take.
const TESTS_TIMEOUT: Duration = Duration::from_secs(900);

/// The remote shell: `rsh HOST [-l USER] COMMAND...` runs the command on the host, in the environment of that kind of
/// host.
const REMOTE_SHELL: &str = r#"#!/bin/sh
host=$1
shift
if [ "$1" = -l ]; then shift 2; fi
entry=$(grep " $host " '{places}') || { echo "$host: Unknown host" >&2; exit 1; }
command="$*"
set -- $entry
exec nsenter -t "$2" --net --uts --mount --ipc -- env -i sh -c ". '{folder}/$host/environment'; cd; $command"
"#;

/// The machine. Dropping it ends the machine.
pub struct Machine<'a> {
    network: &'a Network,
    extent: Extent,
    folder: PathBuf,
    master: Child,
}

impl<'a> Machine<'a> {
    /// Starts a daemon on each host.
    pub fn start(network: &'a Network, extent: Extent, folder: &Path) -> Result<Machine<'a>> {
        let folder = folder.join("machine");
        for (host, kind) in network.hosts().iter().zip(extent.kinds) {
            let place = folder.join(&host.name);
            fs::create_dir_all(place.join("home"))?;
            fs::create_dir_all(place.join("tmp"))?;
            let lines = environment(&folder, host, kind).into_iter();
            let lines = lines.map(|(name, value)| format!("export {name}='{value}'\n"));
            fs::write(place.join("environment"), lines.collect::<String>())?;
        }
        let shell = REMOTE_SHELL
            .replace("{folder}", &folder.display().to_string())
            .replace("{places}", &network.places().display().to_string());
        fs::write(folder.join("rsh"), shell)?;
        fs::set_permissions(folder.join("rsh"), fs::Permissions::from_mode(0o755))?;
        let (ready, errors) = (folder.join("ready"), folder.join("stderr"));
        let mut command = command(&folder, network, 0, &extent.kinds[0].programs().join("pvmd"));
        command.stdin(Stdio::null()).stdout(File::create(&ready)?).stderr(File::create(&errors)?);
        let machine = Machine { network, extent, master: command.spawn()?, folder };
        if !wait_until(DAEMON_TIMEOUT, || fs::read(&ready).is_ok_and(|said| said.contains(&b'\n'))) {
            bail!("the first daemon does not start: {}", fs::read_to_string(&errors)?);
        }
        let others: Vec<&str> = network.hosts()[1..].iter().map(|host| host.name.as_str()).collect();
        let said = machine.console(0, &format!("add {}\n", others.join(" ")))?;
        let log = || machine.log(0);
        ensure!(said.contains(&format!("\n{} successful\n", others.len())), "adding hosts: {said}\n{}", log());
        Ok(machine)
    }

    /// Runs a console on a host with these lines as its input. Returns its output.
    fn console(&self, host: usize, lines: &str) -> Result<String> {
        let (input, said) = (self.folder.join("input"), self.folder.join("said"));
        fs::write(&input, lines)?;
        let output = File::create(&said)?;
        let mut command = command(&self.folder, self.network, host, &self.extent.kinds[host].programs().join("pvm"));
        command.stdin(File::open(&input)?).stderr(output.try_clone()?).stdout(output);
        let end = wait(&mut command, CONSOLE_TIMEOUT)?;
        let text = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
        ensure!(end != End::Timeout, "the console hangs at `{}`: {text}", lines.trim());
        Ok(text)
    }

    /// Returns a daemon's log.
    fn log(&self, host: usize) -> String {
        let place = self.folder.join(&self.network.hosts()[host].name).join("tmp");
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("pvml."));
        logs.map(|entry| String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned()).collect()
    }

    /// Checks that the consoles show all kinds.
    pub fn check_console(&self) {
        for (number, kind) in self.extent.kinds.iter().take(self.extent.consoles).enumerate() {
            let result = self.console(number, "conf\nquit\n").and_then(|said| self.check_table(&said));
            let said = result.map_or_else(|error| format!("{error:#}").replace('\n', " | "), |()| "ok".to_owned());
            println!("all\tthe console of {}\t{said}", kind.name);
        }
    }

    /// Checks the table of hosts: the number of formats, and the line of each host.
    fn check_table(&self, said: &str) -> Result<()> {
        ensure!(said.contains(&format!("{} hosts, 3 data formats", self.extent.kinds.len())), "{said}");
        for (host, kind) in self.network.hosts().iter().zip(self.extent.kinds) {
            let row = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let row = row.into_iter().find(|row| row.first() == Some(&host.name.as_str()));
            let Some([_, _, arch, _, signature]) = row.as_deref() else { bail!("no {}: {said}", host.name) };
            let wanted = format!("{:#010x}", kind.signature);
            ensure!(*arch == kind.arch && *signature == wanted, "{} is {arch} {signature}", host.name);
        }
        Ok(())
    }

    /// Runs the tests, which print one line for each result.
    pub fn run_tests(&mut self, only: Option<&str>) -> Result<()> {
        let mut command = command(&self.folder, self.network, 0, &self.extent.kinds[0].folder().join("bin").join(TEST));
        command.arg("chief").arg(self.extent.kinds.len().to_string()).args(only).stdin(Stdio::null());
        let end = wait(&mut command, TESTS_TIMEOUT)?;
        if end != End::Exit(0) {
            for (number, kind) in self.extent.kinds.iter().enumerate() {
                println!("log of {}:\n{}", kind.name, self.log(number));
            }
            println!("the tests: {}", end.last_line().trim());
        }
        Ok(())
    }
}

/// Returns a command on a host, with the environment of its kind and no other.
fn command(folder: &Path, network: &Network, host: usize, program: &Path) -> Command {
    let (host, kind) = (&network.hosts()[host], &KINDS[host]);
    let mut command = host.command(program);
    command.env_clear().process_group(0).current_dir(folder.join(&host.name).join("home"));
    command.envs(environment(folder, host, kind));
    command
}

fn environment(folder: &Path, host: &Host, kind: &Kind) -> Vec<(&'static str, String)> {
    let place = folder.join(&host.name);
    vec![
        ("HOME", place.join("home").display().to_string()),
        ("PVM_TMP", place.join("tmp").display().to_string()),
        ("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", kind.programs().display())),
        ("PVM_PATH", kind.folder().join("bin").display().to_string()),
        ("PVM_RSH", folder.join("rsh").display().to_string()),
        ("PVM_ALLOW_ROOT", "1".to_owned()),
        ("LC_ALL", "C".to_owned()),
    ]
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let processes = || self.network.hosts().iter().flat_map(Host::processes).collect::<Vec<u32>>();
        signal(self.master.id(), Signal::TERM);
        wait_until(DAEMON_TIMEOUT, || processes().is_empty());
        processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        let _ = self.master.wait();
    }
}
