//! A virtual machine of either system over several hosts.

use super::network::{Host, Network, is_daemon};
use crate::conform::compile::folder;
use crate::conform::execute::{End, wait};
use crate::conform::machine::{POLL_INTERVAL, Side, path};
use crate::debian_pvm;
use crate::processes::signal;
use crate::{common, machine::wait_until};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a daemon may take to print its socket's path.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long adding all hosts may take.
const ADD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a machine may take to halt before it is killed.
const HALT_TIMEOUT: Duration = Duration::from_secs(5);

/// The remote shell, as PVM 3.4 calls it: `rsh HOST [-l USER] COMMAND...`. It writes its arguments to a file, which
/// tests may check.
const REMOTE_SHELL: &str = r#"#!/bin/sh
echo "$*" >> {folder}/rsh.log
host=$1
shift
if [ "$1" = -l ]; then shift 2; fi
address=$(getent ahosts "$host" | sed -n '1s/ .*//p')
entry=$(grep -E "^$address | $address$" {places})
if [ -z "$address" ] || [ -z "$entry" ]; then
    echo "$host: Unknown host" >&2
    exit 1
fi
set -- $entry "$*"
exec nsenter -t "$2" --net --uts --mount --ipc -- env -i HOME="{folder}/$3/home" PVM_TMP="{folder}/$3/tmp" \
    {environment} sh -c "cd; $5"
"#;

/// A machine. Dropping it ends the machine on all hosts.
pub struct Machine<'a> {
    /// The system that runs.
    pub side: Side,
    /// The hosts.
    pub network: &'a Network,
    /// The folder with `HOST/home` and `HOST/tmp` (`PVM_TMP`).
    pub folder: PathBuf,
    master: Option<Child>,
    environment: Vec<(String, String)>,
}

impl<'a> Machine<'a> {
    /// Makes the folders, and starts nothing.
    pub fn new(side: Side, network: &'a Network, more: &[(String, String)]) -> Result<Machine<'a>> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The path is short, since the path of Debian's socket must fit into 108 bytes.
        let folder = network.places().with_file_name(format!("m{number}"));
        for host in network.hosts() {
            fs::create_dir_all(folder.join(&host.name).join("home"))?;
            fs::create_dir_all(folder.join(&host.name).join("tmp"))?;
        }
        let mut environment = environment(side);
        environment.push(("PVM_RSH".into(), folder.join("rsh").display().to_string()));
        environment.extend(more.iter().cloned());
        // So that whoever measures or tests by hand can set limits and ways.
        environment.extend(std::env::vars().filter(|(name, _)| name.starts_with("HPVM_")));
        let machine = Machine { side, network, folder, master: None, environment };
        machine.write_shell()?;
        Ok(machine)
    }

    fn write_shell(&self) -> Result<()> {
        let words: Vec<String> = self.environment.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
        let text = REMOTE_SHELL
            .replace("{folder}", &self.folder.display().to_string())
            .replace("{places}", &self.network.places().display().to_string())
            .replace("{environment}", &words.join(" "));
        let path = self.folder.join("rsh");
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Returns the host on which the first daemon starts.
    pub fn first(&self) -> &'a Host {
        &self.network.hosts()[0]
    }

    /// Returns the `PVM_TMP` of a host.
    pub fn temporary(&self, host: &Host) -> PathBuf {
        self.folder.join(&host.name).join("tmp")
    }

    /// Returns a command on a host, with the environment of this machine and no other.
    pub fn command(&self, host: &Host, program: &Path) -> Command {
        // A process that enters a mount namespace starts in the root directory of the namespace, where no files should
        // be written; so the shell changes to the home directory.
        let mut command = host.command(Path::new("/bin/sh"));
        command.args(["-c", "cd && exec \"$0\" \"$@\""]).arg(program);
        let home = self.folder.join(&host.name).join("home");
        command.env_clear().process_group(0);
        command.env("HOME", &home).env("PVM_TMP", self.temporary(host));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the first daemon, and adds hosts until the machine has this number of hosts.
    pub fn start(&mut self, hosts: usize, hostfile: &[String]) -> Result<()> {
        self.start_master(hostfile)?;
        let names: Vec<&str> = self.network.hosts()[1..hosts].iter().map(|host| host.name.as_str()).collect();
        if !names.is_empty() {
            self.add(&names)?;
        }
        Ok(())
    }

    fn start_master(&mut self, hostfile: &[String]) -> Result<()> {
        let mut command = self.command(self.first(), &self.side.programs().join("pvmd"));
        if !hostfile.is_empty() {
            let path = self.folder.join("hostfile");
            fs::write(&path, hostfile.join("\n") + "\n")?;
            command.arg(path);
        }
        let (ready, errors) = (self.folder.join("ready"), self.folder.join("stderr"));
        command.stdin(Stdio::null()).stdout(File::create(&ready)?).stderr(File::create(&errors)?);
        self.master = Some(command.spawn().with_context(|| format!("cannot start the daemon of {}", self.side))?);
        let end = Instant::now() + START_TIMEOUT;
        while !fs::read(&ready)?.contains(&b'\n') {
            if Instant::now() > end || !self.is_alive() {
                bail!("the daemon of {} does not start: {}", self.side, fs::read_to_string(&errors)?);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Adds hosts through the console of the first host.
    pub fn add(&self, names: &[&str]) -> Result<()> {
        self.add_from(self.first(), names)
    }

    /// Adds hosts through the console of a host.
    pub fn add_from(&self, host: &Host, names: &[&str]) -> Result<()> {
        let said = self.console(host, &format!("add {}\n", names.join(" ")), ADD_TIMEOUT)?;
        let wanted = format!("\n{} successful\n", names.len());
        ensure!(said.contains(&wanted), "adding hosts to {}: {said}\n{}", self.side, self.log(host));
        Ok(())
    }

    /// Runs a console on a host with these lines as its input. Returns its output.
    pub fn console(&self, host: &Host, lines: &str, time: Duration) -> Result<String> {
        Ok(self.tool(host, &[], lines, time)?.1)
    }

    /// Runs `pvm` on a host with these arguments, and these lines as its input. Returns how it ended, and its output.
    pub fn tool(&self, host: &Host, arguments: &[&str], lines: &str, time: Duration) -> Result<(End, String)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (input, said) = (self.folder.join(format!("input{number}")), self.folder.join(format!("said{number}")));
        fs::write(&input, lines)?;
        let output = File::create(&said)?;
        let mut command = self.command(host, &self.side.programs().join("pvm"));
        command.args(arguments).stdin(File::open(&input)?).stderr(output.try_clone()?).stdout(output);
        let end = wait(&mut command, time)?;
        let text = String::from_utf8_lossy(&fs::read(&said)?).into_owned();
        if end == End::Timeout {
            bail!("`pvm {}` on {} hangs at `{}`: {text}", arguments.join(" "), host.name, lines.trim());
        }
        Ok((end, text))
    }

    /// Returns whether the first daemon still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.master.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Returns a daemon's log.
    pub fn log(&self, host: &Host) -> String {
        let folder = host.path(&self.temporary(host));
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("pvml."));
        logs.map(|entry| String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default()).into_owned()).collect()
    }

    /// Kills the processes that a case left behind, but not the daemons.
    pub fn tidy(&self) {
        for host in self.network.hosts() {
            let left = host.processes().into_iter().filter(|pid| !is_daemon(*pid));
            left.for_each(|pid| signal(pid, Signal::KILL));
        }
    }

    /// Returns how many daemons run.
    pub fn daemons(&self) -> usize {
        self.network.hosts().iter().filter(|host| host.daemon().is_some()).count()
    }
}

/// Returns the environment that all processes of a side have on all hosts.
fn environment(side: Side) -> Vec<(String, String)> {
    let tests = common::root().join("tests");
    let mut environment = vec![
        ("PATH".to_owned(), path(side)),
        (
            "PVM_PATH".to_owned(),
            [super::scenario::programs(), folder(), debian_pvm::programs(), "/usr/bin".into()]
                .map(|path| path.display().to_string())
                .join(":"),
        ),
        ("PVM_ALLOW_ROOT".to_owned(), "1".to_owned()),
        ("LC_ALL".to_owned(), "C".to_owned()),
        (debian_pvm::VARIABLE.to_owned(), debian_pvm::usr().display().to_string()),
        ("HOSTS_BIN".to_owned(), super::scenario::programs().display().to_string()),
        ("CONFORM".to_owned(), tests.join("conform").display().to_string()),
    ];
    environment.extend(side.environment());
    environment
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let processes = || self.network.hosts().iter().flat_map(Host::processes).collect::<Vec<u32>>();
        if let Some(master) = &self.master {
            signal(master.id(), Signal::TERM);
            wait_until(HALT_TIMEOUT, || processes().is_empty());
        }
        processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        if let Some(master) = self.master.as_mut() {
            let _ = master.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
