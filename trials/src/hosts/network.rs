//! Hosts: network namespaces with names, addresses and a link each, on one bridge, switch or emulated
//! Ethernet.

use super::switch::Switch;
use crate::common::output;
use crate::congestion;
use crate::ether::device::Emulation;
use crate::ether::model::Config;
use crate::processes;
use anyhow::{Context, Result, bail};
use procfs::process::Process;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// The names of the first hosts; further hosts are numbered.
const NAMES: &[&str] = &["alfa", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];
/// The domain in the full names.
const DOMAIN: &str = "hpvm.test";
/// The most hosts. The last byte of an address is the host's number.
const HOSTS_MAX: usize = 250;

/// The most frames that wait in the device of a host until the emulated Ethernet reads them. The device drops further
/// frames, so there is room for the frames of some 10 ms at 1 Gbit/s.
const DEVICE_FRAMES: usize = 4096;

/// The program of the first process of a host: sets up the host, then waits until the end of its own input.
const HOLDER: &str = r#"hostname "$1" && mount --bind "$2" /etc/hosts && ip link set lo up && echo ready && exec cat"#;

/// A host.
pub struct Host {
    /// The name, which is also the name of the host's folders.
    pub name: String,
    /// The process that keeps the namespaces alive; it ends when its input ends.
    holder: Child,
}

impl Host {
    /// Returns the process whose namespaces are those of the host.
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// Returns a command on this host. The caller sets the environment.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = enter(self.holder());
        command.arg("--").arg(program);
        command
    }

    /// Runs a line of shell on this host.
    pub fn sh(&self, line: &str) -> Result<String> {
        output(self.command(Path::new("/bin/sh")).args(["-c", line])).with_context(|| self.name.clone())
    }

    /// Returns all processes on this host, except the one that keeps the namespaces alive.
    pub fn processes(&self) -> Vec<u32> {
        let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(self.holder());
        let is_alive = |process: &Process| process.stat().is_ok_and(|stat| stat.state != 'Z');
        let is_here = |process: &Process| network(process.pid as u32) == own && is_alive(process);
        let all = processes::all().filter(is_here).map(|process| process.pid as u32);
        all.filter(|pid| *pid != self.holder()).collect()
    }

    /// Returns the daemon on this host, if one runs.
    pub fn daemon(&self) -> Option<u32> {
        self.processes().into_iter().find(|pid| is_daemon(*pid))
    }

    /// Converts a path on the host, which has its own mounts, to the path of the same file for this process.
    pub fn path(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.holder().to_string()).join("root").join(inside)
    }
}

/// Returns the name of a process.
pub fn name_of(pid: u32) -> String {
    processes::find(pid).and_then(|process| process.stat().ok()).map(|stat| stat.comm).unwrap_or_default()
}

/// Returns whether the program of a process is a daemon.
pub fn is_daemon(pid: u32) -> bool {
    let program = processes::find(pid).and_then(|process| process.exe().ok()).unwrap_or_default();
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pvmd"))
}

fn enter(pid: u32) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "--net", "--uts", "--mount", "--ipc"]);
    command
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// What connects the hosts.
#[derive(Clone, Copy)]
pub enum Wiring {
    /// The kernel's bridge, at full speed.
    Bridge,
    /// A program of our own that delays, drops and doubles frames, and cuts hosts off. Its random choices depend on the
    /// seed.
    Switch(u64),
    /// An emulated Ethernet: a hub or a switch with small buffers, at the speed of a real wire.
    /// `ether::device::compile` makes the program that it needs.
    Ether(Config),
}

/// Hosts that can reach one another.
pub struct Network {
    hosts: Vec<Host>,
    switch: Option<Mutex<Switch>>,
    ether: Option<Emulation>,
    folder: PathBuf,
}

impl Network {
    /// Makes this number of hosts. `folder` contains the files that they need.
    pub fn new(folder: &Path, count: usize, wiring: Wiring) -> Result<Network> {
        if count > HOSTS_MAX {
            bail!("at most {HOSTS_MAX} hosts");
        }
        let table = folder.join("etc-hosts");
        fs::write(&table, names(count))?;
        let mut hosts = Vec::new();
        for number in 1..=count {
            hosts.push(start(number, &table)?);
        }
        let mut network = Network { hosts, switch: None, ether: None, folder: folder.to_path_buf() };
        network.write_places()?;
        match wiring {
            Wiring::Bridge => network.bridge()?,
            Wiring::Switch(seed) => network.switch = Some(Mutex::new(Switch::start(&network.hosts, seed)?)),
            Wiring::Ether(config) => network.ether = Some(Emulation::start(&network.hosts, config)?),
        }
        for (index, host) in network.hosts.iter().enumerate() {
            host.sh(&addresses(index + 1))?;
            if network.ether.is_some() {
                host.sh(&format!("ip link set eth0 txqueuelen {DEVICE_FRAMES}"))?;
            }
        }
        Ok(network)
    }

    /// Returns the hosts. The first daemon of a machine starts on the first host.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Sends a command to the switch between the hosts.
    pub fn tell_switch(&self, line: &str) -> Result<String> {
        let switch = self.switch.as_ref().context("these hosts are not on the switch")?;
        switch.lock().expect("no thread panics while it uses the switch").execute(line)
    }

    /// Returns the emulated Ethernet between the hosts, which has counters.
    pub fn ether(&self) -> Result<&Emulation> {
        self.ether.as_ref().context("these hosts are not on an emulated Ethernet")
    }

    /// Returns the file in which scripts find the hosts: lines with address, process, name and IPv6 address.
    pub fn places(&self) -> PathBuf {
        self.folder.join("places")
    }

    fn write_places(&self) -> Result<()> {
        let line = |(index, host): (usize, &Host)| {
            format!("10.77.0.{0} {1} {2} fd77::{0:x}\n", index + 1, host.holder(), host.name)
        };
        fs::write(self.places(), self.hosts.iter().enumerate().map(line).collect::<String>())?;
        Ok(())
    }

    fn bridge(&self) -> Result<()> {
        // A bridge with a forwarding delay would drop everything in the first seconds.
        let mut lines = "link add bridge0 type bridge forward_delay 0 stp_state 0\nlink set bridge0 up\n".to_owned();
        for (index, host) in self.hosts.iter().enumerate() {
            let number = index + 1;
            lines += &format!("link add v{number} type veth peer name eth0 netns {}\n", host.holder());
            lines += &format!("link set v{number} master bridge0 up\n");
        }
        let batch = self.folder.join("bridge");
        fs::write(&batch, lines)?;
        output(Command::new("ip").arg("-batch").arg(&batch))?;
        Ok(())
    }
}

/// Returns the name of the host with that number, counted from 1.
pub fn name(number: usize) -> String {
    NAMES.get(number - 1).map_or_else(|| format!("n{number:03}"), |name| name.to_string())
}

/// Returns `/etc/hosts` for all hosts. Name and full name of a host have an IPv4 and an IPv6 address; the alias with
/// `-alias` has only the first, the one with `-six` only the second.
fn names(count: usize) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for number in 1..=count {
        let name = name(number);
        text += &format!("10.77.0.{number} {name} {name}.{DOMAIN} {name}-alias\n");
        text += &format!("fd77::{number:x} {name} {name}.{DOMAIN} {name}-six\n");
    }
    text
}

/// Returns the commands that give a host its addresses, and their routes the usual congestion control. If the kernel has no
/// IPv6, the hosts have none either.
pub fn addresses(number: usize) -> String {
    let control = congestion::usual();
    // After its device was down, a host still has its IPv4 address.
    format!(
        "ip addr add 10.77.0.{number}/24 dev eth0; ip link set eth0 up && \
         ip route change 10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.{number} congctl {control} && \
         {{ test ! -e /proc/sys/net/ipv6 || {{ ip -6 addr add fd77::{number:x}/64 dev eth0 nodad && \
         ip -6 route change fd77::/64 dev eth0 proto kernel metric 256 congctl {control}; }}; }}"
    )
}

fn start(number: usize, table: &Path) -> Result<Host> {
    let name = name(number);
    let mut holder = Command::new("unshare")
        .args(["--net", "--uts", "--mount", "--ipc", "sh", "-c", HOLDER, "sh", &name])
        .arg(table)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start unshare")?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().context("the output is read once")?).read_line(&mut line)?;
    if line != "ready\n" {
        let _ = holder.kill();
        bail!("the host {name} does not come up: {}", holder.wait()?);
    }
    Ok(Host { name, holder })
}
