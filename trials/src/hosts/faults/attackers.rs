//! Attackers on multicasts: a host of the machine that has tasks and lies about what they receive, and a stranger on the
//! network (`crates/pvm-hostile`).
use super::super::network::Host;
use crate::build;
use crate::common::{cargo, sh};
use crate::processes;
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// How many hosts the attackers need.
pub const HOSTS: usize = 2;
/// The multicast group, which the stranger must know.
const GROUP: &str = "239.255.7.7:50007";
/// The most memory of an honest daemon that is not shared with tasks, in bytes.
const DAEMON_BYTES_MAX: u64 = 256 << 20;
/// The most lines about refused datagrams in a log.
const LINES_MAX: usize = 64;
/// How these lines begin.
const REFUSED: &str = "datagrams refused so far: ";

/// Compiles the program of the attackers.
pub fn compile() -> Result<()> {
    sh(cargo().args(["build", "--quiet", "--package", "pvm-hostile"]))
}

fn program() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("debug/hostile-host"))
}

/// The attackers of one run.
pub struct Attackers<'a> {
    receiver: &'a Host,
    place: &'a Host,
    stranger: Option<Child>,
    folder: PathBuf,
    seed: u64,
}

impl<'a> Attackers<'a> {
    /// Makes attackers that will live on these hosts, and report to this folder.
    pub fn new(hosts: &'a [Host], folder: &Path, seed: u64) -> Attackers<'a> {
        Attackers { receiver: &hosts[0], place: &hosts[1], stranger: None, folder: folder.to_owned(), seed }
    }

    /// Returns the environment of the machine.
    pub fn environment(&self) -> Vec<(String, String)> {
        let folder = self.folder.display().to_string();
        [
            ("PVM_BROADCAST", GROUP.to_owned()),
            ("HOSTILE_FOLDER", folder),
            ("HOSTILE_SEED", self.seed.to_string()),
            ("HOSTILE_RECEIVER", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Returns the name of the host that lies.
    pub fn host_name(&self) -> &str {
        &self.receiver.name
    }

    /// Returns the line of the host that lies in the hostfile.
    pub fn hostfile_line(&self) -> String {
        let program = program().unwrap_or_default();
        format!("&{} dx={}", self.receiver.name, program.display())
    }

    /// Returns whether the host that lies has left the machine.
    pub fn is_away(&self) -> bool {
        self.receiver.processes().is_empty()
    }

    /// Starts the stranger.
    pub fn start_stranger(&mut self) -> Result<()> {
        let address = self.place.sh("ip -4 -o address show dev eth0")?;
        let address = address.split_whitespace().skip_while(|word| *word != "inet").nth(1).context("no address")?;
        let address = address.split('/').next().context("no address")?;
        let mut command = self.place.command(&program()?);
        command.args(["stranger", GROUP, address, &self.seed.to_string()]);
        self.stranger = Some(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        Ok(())
    }

    /// Ends the stranger. Returns how many datagrams it has sent.
    pub fn end_stranger(&mut self) -> Result<u64> {
        let mut stranger = self.stranger.take().context("there is a stranger")?;
        drop(stranger.stdin.take());
        let mut count = String::new();
        stranger.stdout.take().context("it has an output")?.read_to_string(&mut count)?;
        ensure!(stranger.wait()?.success(), "the stranger has failed");
        Ok(count.trim().parse()?)
    }

    /// Returns what the host that lies did in its lives, which must be over.
    pub fn lives(&self) -> Result<String> {
        let lives = std::fs::read_to_string(self.folder.join("lives")).context("no life of a hostile host")?;
        ensure!(lives.contains("broadcast bodies"), "no multicast was broadcast to the hostile host: {lives}");
        Ok(lives.lines().map(|life| format!("    {life}")).collect::<Vec<_>>().join("\n"))
    }
}

/// Checks that these daemons keep a bounded amount of memory.
pub fn check_memory(daemons: impl Iterator<Item = u32>) -> Result<()> {
    for daemon in daemons {
        let kibibytes = processes::find(daemon).and_then(|process| process.status().ok()).and_then(|one| one.rssanon);
        let bytes = kibibytes.unwrap_or_default() << 10;
        ensure!(bytes <= DAEMON_BYTES_MAX, "an attacked daemon keeps {} MiB", bytes >> 20);
    }
    Ok(())
}

/// Checks that the daemons with these logs have counted false datagrams, in few lines. Returns the last counts.
pub fn check_logs(logs: impl Iterator<Item = String>) -> Result<String> {
    let mut counts = Vec::new();
    for log in logs {
        let lines: Vec<&str> = log.lines().filter_map(|line| line.split_once(REFUSED)).map(|(_, text)| text).collect();
        let last = *lines.last().context("no daemon has counted false datagrams")?;
        ensure!(lines.len() <= LINES_MAX, "{} lines about refused datagrams", lines.len());
        ensure!(!last.starts_with("0 forged") && !last.contains(" 0 malformed"), "not all kinds were refused: {last}");
        counts.push(format!("refused: {last}"));
    }
    Ok(counts.join("; "))
}
