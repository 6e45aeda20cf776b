//! The hosts of the demo: network namespaces, or, where nobody may make these, daemons beside each other on this host.

use crate::common::{dist, output};
use crate::hosts::network::{self, Network, Wiring};
use crate::machine::wait_until;
use crate::processes::{signal, with_variable};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The number of hosts.
pub const HOSTS: usize = 4;
/// How long the first daemon may take until it is ready.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How long killed processes may take to end.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// The guard of daemons on this host: a shell that waits for the end of its input, which ends with this process, also when
/// Ctrl-C or SIGKILL ends it. Then it kills all processes of the hosts, and removes their folder.
const GUARD: &str = r#"cat
while left=$(grep -lszF "PVM_TMP=$0/" /proc/[0-9]*/environ | cut -d/ -f3); [ -n "$left" ]; do
    kill -9 $left 2>/dev/null
    sleep 0.1
done
rm -rf "$0""#;

/// Where the hosts are.
pub enum Ground {
    /// Each host is a network namespace. The sandbox ends whatever they have started.
    Namespaces(Network),
    /// Each host is a daemon on this host, with an address of its own.
    OneHost,
}

impl Ground {
    /// Makes the namespaces.
    pub fn namespaces(folder: &Path) -> Result<Ground> {
        Ok(Ground::Namespaces(Network::new(folder, HOSTS, Wiring::Bridge)?))
    }

    /// Returns what a host is.
    pub fn says(&self) -> &'static str {
        match self {
            Ground::Namespaces(_) => "each of which is a network namespace",
            Ground::OneHost => "each of which is a daemon on this host",
        }
    }

    fn address(&self, place: usize) -> String {
        let number = place + 1;
        match self {
            Ground::Namespaces(_) => format!("10.77.0.{number}"),
            Ground::OneHost => format!("127.0.0.{number}"),
        }
    }

    /// Returns how the console's `add` names the host.
    fn entry(&self, place: usize) -> String {
        match self {
            Ground::Namespaces(_) => name(place),
            Ground::OneHost => format!("${} ip={}", name(place), self.address(place)),
        }
    }

    /// Returns the beginning of a command that runs on the host.
    fn enter(&self, place: usize) -> Vec<String> {
        match self {
            Ground::Namespaces(network) => {
                let holder = network.hosts()[place].holder().to_string();
                ["nsenter", "-t", &holder, "--net", "--uts", "--mount", "--ipc", "--"].map(str::to_owned).to_vec()
            }
            Ground::OneHost => Vec::new(),
        }
    }
}

/// Returns the name of a host.
pub fn name(place: usize) -> String {
    network::name(place + 1)
}

/// The hosts, and a machine on them. Dropping it kills all processes on them.
pub struct Hosts {
    ground: Ground,
    /// Has a folder for each host, which is the `PVM_TMP` and `HOME` of all processes there.
    folder: PathBuf,
    /// Only for daemons on this host.
    guard: Option<Child>,
}

impl Hosts {
    /// Makes the folders, and starts nothing. `folder` is empty.
    pub fn new(ground: Ground, folder: &Path) -> Result<Hosts> {
        let guard = match ground {
            Ground::Namespaces(_) => None,
            Ground::OneHost => Some(guard(folder)?),
        };
        let hosts = Hosts { ground, folder: folder.to_path_buf(), guard };
        (0..HOSTS).try_for_each(|place| fs::create_dir_all(hosts.folder(place)))?;
        hosts.write_shell()?;
        Ok(hosts)
    }

    /// Returns what a host is.
    pub fn says(&self) -> &'static str {
        self.ground.says()
    }

    /// Writes what takes the place of `ssh`. It is called with a host, perhaps a user, and a command.
    fn write_shell(&self) -> Result<()> {
        let mut text = "#!/bin/sh\nhost=$1\nshift\nif [ \"$1\" = -l ]; then shift 2; fi\ncase $host in\n".to_owned();
        for place in 0..HOSTS {
            let (enter, folder) = (self.ground.enter(place).join(" "), self.folder(place).display().to_string());
            let names = format!("{}|{}", name(place), self.ground.address(place));
            text += &format!("{names}) enter='{enter}' folder='{folder}' ;;\n");
        }
        text += "*) echo \"$host: Unknown host\" >&2; exit 1 ;;\nesac\n";
        let words: Vec<String> = self.variables().iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        let words = words.join(" ");
        text += &format!("exec $enter env -i HOME=\"$folder\" PVM_TMP=\"$folder\" {words} sh -c \"cd; $*\"\n");
        fs::write(self.shell(), text)?;
        fs::set_permissions(self.shell(), fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    fn shell(&self) -> PathBuf {
        self.folder.join("rsh")
    }

    fn folder(&self, place: usize) -> PathBuf {
        self.folder.join(name(place))
    }

    /// Returns the variables of all processes on all hosts.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let own = |folder: &str| dist().join(folder).display().to_string();
        vec![
            ("PATH", format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", own("bin"))),
            ("LD_LIBRARY_PATH", own("lib")),
            ("PVM_RSH", self.shell().display().to_string()),
            ("PVM_ALLOW_ROOT", "1".to_owned()),
            ("LC_ALL", "C".to_owned()),
        ]
    }

    /// Returns a command on a host, with the environment of this machine and no other.
    pub fn command(&self, place: usize, program: &Path) -> Command {
        let shell = ["sh", "-c", "cd && exec \"$0\" \"$@\""].map(str::to_owned);
        let words: Vec<String> = self.ground.enter(place).into_iter().chain(shell).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(program).stdin(Stdio::null());
        command.env_clear().env("HOME", self.folder(place)).env("PVM_TMP", self.folder(place));
        command.envs(self.variables());
        command
    }

    /// Runs `pvm` with these arguments on a host, and returns what it prints.
    pub fn pvm(&self, place: usize, arguments: &[&str]) -> Result<String> {
        let program = dist().join("bin/pvm");
        output(self.command(place, &program).args(arguments)).with_context(|| self.log(place))
    }

    /// Starts the machine: the first daemon, which adds the other hosts.
    pub fn start(&self) -> Result<()> {
        let ready = self.folder.join("ready");
        let mut daemon = self.command(0, &dist().join("bin/pvmd"));
        daemon.arg(format!("-n{}", name(0))).stdout(File::create(&ready)?).stderr(Stdio::null());
        // Ctrl-C ends this process, not the daemon by itself.
        let mut daemon = daemon.process_group(0).spawn().context("cannot start the daemon")?;
        // It is killed later, and ends before this process.
        let is_ready = wait_until(START_TIME_MAX, || fs::read(&ready).is_ok_and(|text| text.contains(&b'\n')));
        ensure!(is_ready, "the daemon does not start: {}", self.log(0));
        std::thread::spawn(move || daemon.wait());
        (1..HOSTS).try_for_each(|place| self.add(0, place))
    }

    /// Adds a host, as if that was typed on the host `from`.
    pub fn add(&self, from: usize, place: usize) -> Result<()> {
        self.pvm(from, &["add", &self.ground.entry(place)]).map(drop)
    }

    /// Kills all processes on a host without warning, its daemon first. Returns their number.
    pub fn kill(&self, place: usize) -> Result<usize> {
        let mut killed = self.processes(place);
        killed.sort_by_key(|pid| !network::is_daemon(*pid));
        killed.iter().for_each(|pid| signal(*pid, Signal::KILL));
        let is_dead = wait_until(KILL_TIME_MAX, || self.processes(place).is_empty());
        ensure!(is_dead, "processes on {} do not end", name(place));
        Ok(killed.len())
    }

    /// Returns the processes on a host.
    pub fn processes(&self, place: usize) -> Vec<u32> {
        with_variable("PVM_TMP", self.folder(place).as_os_str())
    }

    /// Returns the log of the daemon on a host.
    pub fn log(&self, place: usize) -> String {
        let entries = fs::read_dir(self.folder(place)).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("pvml."));
        let texts = logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
        texts.fold(format!("the log of {}:\n", name(place)), |text, log| text + &log)
    }
}

fn guard(folder: &Path) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", GUARD]).arg(folder).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("cannot start sh")
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for place in 0..HOSTS {
            // What is left then, the guard or the sandbox ends.
            let _ = self.kill(place);
        }
        if let Some(guard) = &mut self.guard {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch;

    #[test]
    fn the_guard_ends_the_processes_of_all_hosts() {
        let scratch = scratch::directory("guard").unwrap();
        let folder = scratch.path().join("hosts");
        fs::create_dir_all(folder.join("alfa")).unwrap();
        let mut guard = guard(&folder).unwrap();
        let mut child = Command::new("sleep").arg("60").env("PVM_TMP", folder.join("alfa")).spawn().unwrap();
        let mut other = Command::new("sleep").arg("60").env("PVM_TMP", scratch.path()).spawn().unwrap();
        // The system shows the variables of a process a moment after its program was started.
        let is_there = || with_variable("PVM_TMP", folder.join("alfa").as_os_str()) == [child.id()];
        assert!(wait_until(KILL_TIME_MAX, is_there));
        // The end of this process would end the input, too.
        drop(guard.stdin.take());
        assert!(!child.wait().unwrap().success() && guard.wait().unwrap().success() && !folder.exists());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
