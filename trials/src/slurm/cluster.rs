//! A cluster: a controller and three nodes, each in namespaces of its own, under Slurm with munge.

use super::cgroups::{self, Groups};
use crate::common::{dist, root};
use crate::debian_slurm as tools;
use crate::hosts::network::{Host, Network, name_of};
use crate::machine::wait_until;
use crate::processes::signal;
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Where each host sees the folder of the cluster. The folder itself lies in `/tmp`, and each host has a `/tmp` of its
/// own.
const INSIDE: &str = "/mnt";
/// How long the daemons of Slurm may take until all nodes are idle.
const START_WAIT: Duration = Duration::from_secs(30);
/// How long everything of a job may take to end.
const END_WAIT: Duration = Duration::from_secs(20);
/// How long a command may take, in seconds, and the exit status of `timeout` after that.
const COMMAND_SECONDS: &str = "60";
const EXIT_TIMEOUT: i32 = 124;
/// How long an awaited line of a command may take.
const LINE_WAIT: Duration = Duration::from_secs(30);
/// The processors and the memory (MiB) of a node, which need not exist.
const PROCESSORS: u32 = 2;
const MEMORY: u32 = 2000;
/// The daemons that stay.
const DAEMONS: [&str; 4] = ["munged", "slurmctld", "slurmd", "slurmscriptd"];

/// A running cluster. Dropping it kills everything on its hosts.
pub struct Cluster<'a> {
    network: &'a Network,
    folder: PathBuf,
    /// The cgroups in which Slurm tracks the processes of a step.
    pub groups: Option<Groups>,
}

/// What a command has done.
pub struct Said {
    pub text: String,
    pub succeeded: bool,
}

impl<'a> Cluster<'a> {
    /// Starts the daemons, and waits until jobs can run.
    pub fn start(network: &'a Network, folder: &Path, groups: Option<Groups>) -> Result<Cluster<'a>> {
        let cluster = Cluster { network, folder: folder.to_path_buf(), groups };
        let mut key = vec![0; 1024];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        fs::create_dir_all(folder.join("home"))?;
        for host in network.hosts() {
            cluster.prepare(host, &key)?;
        }
        for host in network.hosts() {
            cluster.start_munge(host)?;
        }
        cluster.start_daemon(cluster.controller(), "slurmctld", &["-c".into(), "-i".into()])?;
        cluster.nodes().iter().try_for_each(|node| cluster.start_node(node))?;
        cluster.await_nodes()?;
        Ok(cluster)
    }

    /// Returns the host of the controller, where users submit jobs. It is not a node.
    pub fn controller(&self) -> &'a Host {
        &self.network.hosts()[0]
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &'a [Host] {
        &self.network.hosts()[1..]
    }

    fn prepare(&self, host: &Host, key: &[u8]) -> Result<()> {
        let own = self.folder.join(&host.name);
        for part in ["etc", "run", "spool", "state", "tmp", "shm"] {
            fs::create_dir_all(own.join(part))?;
        }
        fs::set_permissions(own.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        fs::write(own.join("etc/munge.key"), key)?;
        fs::set_permissions(own.join("etc/munge.key"), fs::Permissions::from_mode(0o600))?;
        fs::write(own.join("etc/slurm.conf"), self.configuration(host))?;
        fs::write(own.join("etc/cgroup.conf"), self.groups.map_or("", Groups::configuration))?;
        let name = &host.name;
        host.sh(&format!(
            "mount --bind {} {INSIDE} && mount --bind {INSIDE}/{name}/tmp /tmp && \
             mount --bind {INSIDE}/{name}/shm /dev/shm",
            self.folder.display()
        ))?;
        Ok(())
    }

    /// Returns Slurm's configuration for a host; only the socket of munge differs.
    fn configuration(&self, host: &Host) -> String {
        let (name, controller) = (&host.name, &self.controller().name);
        let nodes: Vec<&str> = self.nodes().iter().map(|node| node.name.as_str()).collect();
        let (nodes, plugins) = (nodes.join(","), tools::plugins());
        let (track, task) = match self.groups {
            Some(Groups::One) => ("cgroup", "task/affinity,task/cgroup"),
            Some(Groups::Two) => ("cgroup", "task/affinity"),
            None => ("linuxproc", "task/affinity"),
        };
        format!(
            "ClusterName=hpvm\nSlurmctldHost={controller}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={INSIDE}/{name}/run/munge\nCredType=cred/munge\n\
             PluginDir={plugins}\nStateSaveLocation={INSIDE}/{controller}/state\n\
             SlurmdSpoolDir={INSIDE}/%n/spool\nSlurmctldPidFile={INSIDE}/{controller}/run/slurmctld.pid\n\
             SlurmdPidFile={INSIDE}/%n/run/slurmd.pid\nSlurmctldLogFile={INSIDE}/{controller}/slurmctld.log\n\
             SlurmdLogFile={INSIDE}/%n/slurmd.log\nProctrackType=proctrack/{track}\nTaskPlugin={task}\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\nDefMemPerNode=200\n\
             JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=1\n\
             AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/filetxt\n\
             JobCompLoc={INSIDE}/{controller}/jobs\nMpiDefault=none\nReturnToService=2\n\
             SlurmdTimeout=10\nMessageTimeout=5\nKillWait=3\nMinJobAge=300\nSchedulerType=sched/builtin\n\
             DebugFlags=NO_CONF_HASH\nSlurmdParameters=config_overrides\n\
             NodeName={nodes} CPUs={PROCESSORS} RealMemory={MEMORY} State=UNKNOWN\n\
             PartitionName=p Nodes=ALL Default=YES MaxTime=60 OverSubscribe=NO State=UP\n",
            plugins = plugins.display(),
        )
    }

    fn start_munge(&self, host: &Host) -> Result<()> {
        let own = format!("{INSIDE}/{}", host.name);
        let words = ["socket=run/munge", "key-file=etc/munge.key", "pid-file=run/munge.pid", "log-file=munge.log"];
        let options = words.iter().chain(&["seed-file=munge.seed"]).map(|word| {
            let (name, file) = word.split_once('=').unwrap_or_default();
            format!("--{name}={own}/{file}")
        });
        self.start_daemon(host, "munged", &["--force".to_owned()].into_iter().chain(options).collect::<Vec<_>>())
    }

    /// Starts the daemon of a node.
    fn start_node(&self, node: &Host) -> Result<()> {
        let step_daemon = tools::daemon("slurmstepd").display().to_string();
        self.start_daemon(node, "slurmd", &["-N".into(), node.name.clone(), "-d".into(), step_daemon])
    }

    /// Starts the daemons of a node again after all of its processes were killed.
    pub fn restart_node(&self, node: &Host) -> Result<()> {
        self.start_munge(node)?;
        self.start_node(node)?;
        self.sh(&format!("scontrol update NodeName={} State=RESUME", node.name))?;
        Ok(())
    }

    fn start_daemon(&self, host: &Host, name: &str, arguments: &[String]) -> Result<()> {
        let program = tools::daemon(name);
        let mut command = match self.groups {
            Some(Groups::Two) if name == "slurmd" => {
                let mut command = self.command(host, Path::new(cgroups::ENTER[0]));
                command.args(&cgroups::ENTER[1..]).arg(program);
                command
            }
            _ => self.command(host, &program),
        };
        command.args(arguments).stdin(Stdio::null());
        // The daemon keeps these files open, so they are no pipes.
        let said = self.folder.join(format!("{}/{name}.said", host.name));
        let file = File::create(&said)?;
        let status = command.stdout(file.try_clone()?).stderr(file).status()?;
        ensure!(
            status.success(),
            "{name} on {}: {}{}",
            host.name,
            fs::read_to_string(said)?,
            self.end_of_log(host, name)
        );
        Ok(())
    }

    /// Waits until all nodes are idle.
    pub fn await_nodes(&self) -> Result<()> {
        let all = self.nodes().len().to_string();
        let is_idle = || {
            let said = self.sh("sinfo --noheader --format='%D %t'");
            said.is_ok_and(|said| said.text.trim() == format!("{all} idle"))
        };
        if wait_until(START_WAIT, is_idle) {
            return Ok(());
        }
        let end = self.end_of_log(&self.nodes()[0], "slurmd");
        bail!("the nodes are not idle: {}\n{end}", self.sh("sinfo -N -o '%N %T %E'")?.text)
    }

    /// Returns the last lines of the log of a daemon on a host.
    fn end_of_log(&self, host: &Host, name: &str) -> String {
        let log = self.folder.join(&host.name).join(format!("{name}.log"));
        let log = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Returns a command on a host with the environment of the cluster's users.
    fn command(&self, host: &Host, program: &Path) -> Command {
        let mut command = host.command(program);
        let dist = dist();
        let programs = [dist.join("bin"), tools::usr().join("bin"), programs()].map(|path| path.display().to_string());
        command.env_clear().current_dir("/");
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", programs.join(":")));
        command.env("LD_LIBRARY_PATH", format!("{}:{}", dist.join("lib").display(), tools::library_path()));
        command.env("SLURM_CONF", format!("{INSIDE}/{}/etc/slurm.conf", host.name));
        command.env("HOME", format!("{INSIDE}/home")).env("PVM_ALLOW_ROOT", "1").env("LC_ALL", "C");
        command.env("HPVM_HOST_TIMEOUT", "4");
        command
    }

    /// Runs lines of shell where users submit jobs. They see the folder of the cluster as `/mnt`.
    pub fn sh(&self, lines: &str) -> Result<Said> {
        self.begin(lines)?.end()
    }

    /// Begins to run lines of shell where users submit jobs.
    pub fn begin(&self, lines: &str) -> Result<Running> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let said = self.folder.join(format!("said{number}"));
        let file = File::create(&said)?;
        let mut command = self.command(self.controller(), Path::new("timeout"));
        command.args(["--kill-after=5", COMMAND_SECONDS, "/bin/sh", "-c"]);
        command.arg(format!("cd {INSIDE}/home && {{ {lines}\n}}"));
        let child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        Ok(Running { child, said, lines: lines.to_owned() })
    }

    /// Writes a batch script, which a job runs on its first node, and returns the path that users see.
    pub fn script(&self, name: &str, lines: &str) -> Result<String> {
        let path = self.folder.join("home").join(name);
        fs::write(path, format!("#!/bin/sh\n{lines}\n"))?;
        Ok(format!("{INSIDE}/home/{name}"))
    }

    /// Returns the text of a file in the home directory.
    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join("home").join(name)).unwrap_or_default()
    }

    /// Returns the processes on a host that do not belong to Slurm's daemons.
    pub fn processes(host: &Host) -> Vec<u32> {
        host.processes().into_iter().filter(|pid| !DAEMONS.contains(&name_of(*pid).as_str())).collect()
    }

    /// Checks that no job is left, no process on any host, and no file in `/tmp` or `/dev/shm`.
    pub fn nothing_is_left(&self) -> Result<()> {
        let mut left = String::new();
        let is_clean = wait_until(END_WAIT, || {
            left = self.remains();
            left.is_empty()
        });
        if !is_clean {
            // The next case begins without them.
            let _ = self.sh("scancel --user=root");
            for host in self.network.hosts() {
                Cluster::processes(host).into_iter().for_each(|pid| signal(pid, Signal::KILL));
                let _ = host.sh("rm -rf /tmp/* /dev/shm/*");
            }
        }
        ensure!(is_clean, "left:{left}");
        Ok(())
    }

    fn remains(&self) -> String {
        let jobs = self.sh("squeue --noheader --format='%A %T'").map(|said| said.text).unwrap_or_default();
        let mut text: String = jobs.lines().map(|job| format!("\n    job {job}")).collect();
        for host in self.network.hosts() {
            for pid in Cluster::processes(host) {
                text += &format!("\n    {}: process {}", host.name, name_of(pid));
            }
            for part in ["tmp", "shm"] {
                let entries = fs::read_dir(self.folder.join(&host.name).join(part)).into_iter().flatten().flatten();
                for entry in entries {
                    text += &format!("\n    {}: {part}/{}", host.name, entry.file_name().to_string_lossy());
                }
            }
        }
        text
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let processes = || self.network.hosts().iter().flat_map(Host::processes).collect::<Vec<u32>>();
        // A daemon of a step may start another process while the others are killed.
        wait_until(END_WAIT, || {
            processes().into_iter().for_each(|pid| signal(pid, Signal::KILL));
            processes().is_empty()
        });
    }
}

/// Returns the folder of the compiled programs of `tests/slurm`.
pub fn programs() -> PathBuf {
    root().join("target/slurm-programs")
}

/// Lines of shell that run.
pub struct Running {
    child: Child,
    said: PathBuf,
    lines: String,
}

impl Running {
    /// Waits for the end.
    pub fn end(mut self) -> Result<Said> {
        let status = self.child.wait()?;
        let text = self.text();
        ensure!(status.code() != Some(EXIT_TIMEOUT), "`{}` hangs: {text}", self.lines);
        Ok(Said { text, succeeded: status.success() })
    }

    /// Waits until the output has this text.
    pub fn says(&mut self, wanted: &str) -> Result<()> {
        let is_said = wait_until(LINE_WAIT, || self.text().contains(wanted) || self.has_ended());
        ensure!(is_said && self.text().contains(wanted), "`{}` does not say `{wanted}`: {}", self.lines, self.text());
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap_or_default()).into_owned()
    }
}
