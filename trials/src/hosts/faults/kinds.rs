//! The faults: how each is prepared and caused, and which events are awaited before the tasks compare their accounts of
//! the messages.

use super::Run;
use super::chief::Chief;
use super::during::Operation;
use super::fabrics::{self, Way};
use super::links;
use crate::conform::execute::End;
use crate::hosts::network::{Host, name_of};
use crate::machine::wait_until;
use crate::processes::signal;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The time within which a silent host must be detected: the default limit of 10 s, and 10 s more for a slow machine.
pub const NOTICE_TIME: Duration = Duration::from_secs(20);
/// The time within which a closed connection must be detected.
const CLOSED_TIME: Duration = Duration::from_secs(5);
/// The time within which two masters are killed, and what a daemon logs when it becomes the master.
const SECOND_KILL_TIME: Duration = Duration::from_secs(1);
const MASTER_NOW: &str = "this host is the master from now on";
/// How long a daemon is stopped.
const STOPPED_TIME: Duration = Duration::from_secs(30);
/// How long a task is stopped: longer than its peers wait until they give a link up, which is 30 s.
const TASK_STOPPED_TIME: Duration = Duration::from_secs(35);
/// How long an interface is down without the loss of its host, how long it then works, and how often that happens:
/// together the interface is down for longer than a host may be silent.
const FLAP_TIMES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];
const FLAPS: u32 = 6;
/// How long a host is cut off. After the shorter cut, the machine must still have the host; after the longer cut, the
/// machine must have lost the host.
const CUT_TIMES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(60)];
/// How long tasks send messages over bad links.
const TALK_TIME: Duration = Duration::from_secs(8);
/// How long a host loses frames, and how many of a thousand frames are lost.
const LOSSY_TIME: Duration = Duration::from_secs(45);
const LOSSY_SHARE: u32 = 300;
/// How long the run waits after the loss of frames: until all connections that cannot recover have been closed.
const GIVEN_UP_TIME: Duration = Duration::from_secs(25);
/// A black hole is a fault that drops long frames and passes short ones. These are the longest frame that passes, in
/// bytes, and the range of the fault's duration. The duration always exceeds the time limit for a silent host, and
/// sometimes the time limit for a connection without progress.
const HOLE_BYTES: u32 = 700;
const HOLE_MS: [u64; 2] = [20_000, 45_000];
/// How many seconds the tasks of a drained host have to end, which they do not use.
const DRAIN_SECONDS: &str = "1";
/// How often connections are killed, and the pause before each time.
const KILLS: u32 = 6;
const KILL_PAUSE: Duration = Duration::from_millis(1500);
/// The size of the full disk, in KiB.
const DISK_KIB: u32 = 64;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    TaskKilled,
    TaskStopped,
    DaemonKilled,
    MasterKilled,
    MasterStopped,
    MasterCut,
    MastersKilled,
    During(Operation),
    FirstHostDeleted,
    FirstHostDrained,
    FirstHostsDeleted,
    DaemonStopped,
    ShortCut,
    LongCut,
    LinkDown,
    LinkFlap,
    Loss,
    Delay,
    Rough,
    LossyHost,
    DataLinkKilled,
    ControlLinkKilled,
    DataBlackHole,
    FullDisk,
    DirectLinkKilled,
    DirectBlackHole,
    FabricSilent,
    FabricOneWay,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 35] = [
        Fault::TaskKilled,
        Fault::TaskStopped,
        Fault::DaemonKilled,
        Fault::MasterKilled,
        Fault::MasterStopped,
        Fault::MasterCut,
        Fault::MastersKilled,
        Fault::During(Operation::Add),
        Fault::During(Operation::Spawn),
        Fault::During(Operation::Barrier),
        Fault::During(Operation::Put),
        Fault::During(Operation::Multicast),
        Fault::During(Operation::Delete),
        Fault::During(Operation::Halt),
        Fault::During(Operation::Run),
        Fault::FirstHostDeleted,
        Fault::FirstHostDrained,
        Fault::FirstHostsDeleted,
        Fault::DaemonStopped,
        Fault::ShortCut,
        Fault::LongCut,
        Fault::LinkDown,
        Fault::LinkFlap,
        Fault::Loss,
        Fault::Delay,
        Fault::Rough,
        Fault::LossyHost,
        Fault::DataLinkKilled,
        Fault::ControlLinkKilled,
        Fault::DataBlackHole,
        Fault::FullDisk,
        Fault::DirectLinkKilled,
        Fault::DirectBlackHole,
        Fault::FabricSilent,
        Fault::FabricOneWay,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::TaskKilled => "task-killed",
            Fault::TaskStopped => "task-stopped",
            Fault::DaemonKilled => "daemon-killed",
            Fault::MasterKilled => "master-killed",
            Fault::MasterStopped => "master-stopped",
            Fault::MasterCut => "master-cut",
            Fault::MastersKilled => "masters-killed",
            Fault::During(operation) => operation.name(),
            Fault::FirstHostDeleted => "first-host-deleted",
            Fault::FirstHostDrained => "first-host-drained",
            Fault::FirstHostsDeleted => "first-hosts-deleted",
            Fault::DaemonStopped => "daemon-stopped",
            Fault::ShortCut => "short-cut",
            Fault::LongCut => "long-cut",
            Fault::LinkDown => "link-down",
            Fault::LinkFlap => "link-flap",
            Fault::Loss => "loss",
            Fault::Delay => "delay",
            Fault::Rough => "rough",
            Fault::LossyHost => "lossy-host",
            Fault::DataLinkKilled => "data-link-killed",
            Fault::ControlLinkKilled => "control-link-killed",
            Fault::DataBlackHole => "data-black-hole",
            Fault::FullDisk => "full-disk",
            Fault::DirectLinkKilled => "direct-link-killed",
            Fault::DirectBlackHole => "direct-black-hole",
            Fault::FabricSilent => "fabric-silent",
            Fault::FabricOneWay => "fabric-one-way",
        }
    }

    /// Returns a description.
    pub fn text(self) -> &'static str {
        match self {
            Fault::TaskKilled => "SIGKILL of a task in the middle of sending",
            Fault::TaskStopped => "SIGSTOP of a task for 35 s",
            Fault::DaemonKilled => "SIGKILL of a daemon",
            Fault::MasterKilled => "SIGKILL of the first daemon",
            Fault::MasterStopped => "SIGSTOP of the first daemon for 30 s",
            Fault::MasterCut => "the first host is cut off for 60 s",
            Fault::MastersKilled => "SIGKILL of the first daemon, then of the next master's",
            Fault::During(operation) => operation.text(),
            Fault::FirstHostDeleted => "the first host is deleted",
            Fault::FirstHostDrained => "the first host is drained",
            Fault::FirstHostsDeleted => "the first host is deleted, then the next master's",
            Fault::DaemonStopped => "SIGSTOP of a daemon for 30 s",
            Fault::ShortCut => "a host is cut off for 5 s",
            Fault::LongCut => "a host is cut off for 60 s",
            Fault::LinkDown => "the interface of a host is down for 60 s",
            Fault::LinkFlap => "the interface of a host is down for 3 s, six times",
            Fault::Loss => "1 % of all frames is lost",
            Fault::Delay => "50 ms delay of each frame",
            Fault::Rough => "0 to 20 ms delay, 1 % lost, 1 % doubled",
            Fault::LossyHost => "a host loses 30 % of its frames for 45 s",
            Fault::DataLinkKilled => "the kernel ends data links of a host",
            Fault::ControlLinkKilled => "the kernel ends all control links of a host, 8 times",
            Fault::DataBlackHole => "frames above 700 bytes are lost for 20 to 45 s",
            Fault::FullDisk => "no room for a log",
            Fault::DirectLinkKilled => "direct links are killed (ss -K), again and again",
            Fault::DirectBlackHole => "frames above 700 bytes are lost; direct links",
            Fault::FabricSilent => "a host's fabric carries nothing for 40 s",
            Fault::FabricOneWay => "what a host sends on the fabric is lost for 40 s",
        }
    }

    /// Returns the fault with that name.
    pub fn of_name(name: &str) -> Result<Fault> {
        let names = || Fault::ALL.map(Fault::name).join(", ");
        Fault::ALL.into_iter().find(|fault| fault.name() == name).with_context(|| format!("faults: {}", names()))
    }

    /// Returns whether the fault makes the machine lose hosts.
    pub fn loses_host(self) -> bool {
        let is_loss = matches!(self, Fault::DaemonKilled | Fault::DaemonStopped | Fault::LongCut | Fault::LinkDown);
        is_loss || self.is_of_first_hosts()
    }

    /// Returns whether the fault is about the first host, and those that become the master after it.
    pub fn is_of_first_hosts(self) -> bool {
        let is_move = matches!(self, Fault::FirstHostDeleted | Fault::FirstHostDrained | Fault::FirstHostsDeleted);
        let is_kill = matches!(self, Fault::MasterKilled | Fault::MastersKilled | Fault::During(_));
        is_move || is_kill || matches!(self, Fault::MasterStopped | Fault::MasterCut)
    }

    /// Returns how many hosts the fault is about.
    pub fn victims(self) -> usize {
        if matches!(self, Fault::FirstHostsDeleted | Fault::MastersKilled) { 2 } else { 1 }
    }

    /// Returns how many hosts the network has that are not in the machine from the start.
    pub fn spare_hosts(self) -> usize {
        if let Fault::During(operation) = self { operation.spare_hosts() } else { 0 }
    }

    /// Returns whether the fault is one of a fabric, so that there must be one.
    pub fn needs_fabric(self) -> bool {
        matches!(self, Fault::FabricSilent | Fault::FabricOneWay)
    }

    /// Returns whether chance decides if the fault makes the machine lose a host.
    pub fn may_lose_host(self) -> bool {
        self == Fault::LossyHost
    }

    /// Returns whether the fault is about the data links of daemons. If so, tasks have no direct links.
    pub fn is_of_data_links(self) -> bool {
        matches!(self, Fault::DataLinkKilled | Fault::DataBlackHole)
    }

    /// Returns whether tasks have direct links; `None` if the seed decides.
    pub fn is_direct(self) -> Option<bool> {
        match self {
            Fault::DirectLinkKilled | Fault::DirectBlackHole => Some(true),
            _ if self.is_of_data_links() => Some(false),
            _ => None,
        }
    }

    /// Prepares the fault before the machine starts.
    pub fn prepare(self, run: &Run) -> Result<()> {
        if self == Fault::FullDisk {
            let folder = run.machine.temporary(run.victim());
            run.victim().sh(&format!("mount -t tmpfs -o size={DISK_KIB}k none {}", folder.display()))?;
        }
        Ok(())
    }

    /// Causes the fault, and ends it.
    pub fn happen(self, run: &mut Run, chief: &mut Chief) -> Result<()> {
        match self {
            Fault::TaskKilled => {
                let tasks = run.victim().processes();
                let task = tasks.into_iter().find(|pid| name_of(*pid) == "faults").context("a task there")?;
                signal(task, Signal::KILL);
                chief.wait("the task's end", CLOSED_TIME, |lines| lines.iter().any(|line| line.starts_with("exit ")))
            }
            Fault::TaskStopped => {
                let tasks = run.victim().processes();
                let task = tasks.into_iter().find(|pid| name_of(*pid) == "faults").context("a task there")?;
                signal(task, Signal::STOP);
                std::thread::sleep(TASK_STOPPED_TIME);
                signal(task, Signal::CONT);
                Ok(())
            }
            Fault::DaemonKilled | Fault::MasterKilled => {
                signal(run.victim().daemon().context("a daemon there")?, Signal::KILL);
                if self == Fault::MasterKilled {
                    next_master(run)?;
                }
                lost(chief, 1, CLOSED_TIME)
            }
            Fault::MastersKilled => kill_two_masters(run, chief),
            Fault::During(operation) => operation.happen(run, chief),
            Fault::FirstHostDeleted | Fault::FirstHostDrained | Fault::FirstHostsDeleted => {
                for index in run.victims() {
                    let any = run.random.usize(index..run.network.hosts().len());
                    leave(self, run, &run.network.hosts()[any], &run.network.hosts()[index])?;
                }
                lost(chief, run.victims().len(), NOTICE_TIME)
            }
            Fault::DaemonStopped | Fault::MasterStopped => stop(run, chief),
            Fault::ShortCut => {
                run.network.tell_switch(&format!("cut {}", run.victim))?;
                std::thread::sleep(CUT_TIMES[0]);
                run.network.tell_switch("heal")?;
                Ok(())
            }
            Fault::LongCut | Fault::MasterCut => {
                run.network.tell_switch(&format!("cut {}", run.victim))?;
                cut_off(run, chief)?;
                run.network.tell_switch("heal")?;
                Ok(())
            }
            Fault::LinkDown => {
                run.victim().sh("ip link set eth0 down")?;
                cut_off(run, chief)?;
                link_up(run)
            }
            Fault::LinkFlap => {
                for _ in 0..FLAPS {
                    run.victim().sh("ip link set eth0 down")?;
                    std::thread::sleep(FLAP_TIMES[0]);
                    link_up(run)?;
                    std::thread::sleep(FLAP_TIMES[1]);
                }
                Ok(())
            }
            Fault::Loss => talk(run, &["loss 10"]),
            Fault::Delay => talk(run, &["delay 50 0"]),
            Fault::Rough => talk(run, &["delay 0 20", "loss 10", "double 10"]),
            Fault::LossyHost => {
                run.network.tell_switch(&format!("lossy {} {LOSSY_SHARE}", run.victim))?;
                std::thread::sleep(LOSSY_TIME);
                run.network.tell_switch("heal")?;
                std::thread::sleep(GIVEN_UP_TIME);
                Ok(())
            }
            Fault::DataLinkKilled => links::kill(run),
            Fault::ControlLinkKilled => links::kill_control(run),
            Fault::DataBlackHole | Fault::DirectBlackHole => black_hole(run),
            Fault::FullDisk => fill_disk(run),
            Fault::DirectLinkKilled => kill_connections(run, "faults"),
            Fault::FabricSilent => fabrics::silence(run, chief, Way::Both),
            Fault::FabricOneWay => fabrics::silence(run, chief, Way::From),
        }
    }
}

/// Lets the interface of the host work again, with its addresses, of which the system has removed some.
fn link_up(run: &Run) -> Result<()> {
    run.victim().sh(&format!("ip link set eth0 up; {}", crate::hosts::network::addresses(run.victim + 1)))?;
    Ok(())
}

/// Makes a host leave the machine, by a command on it or on another one.
fn leave(fault: Fault, run: &Run, on: &Host, host: &Host) -> Result<()> {
    let name = host.name.as_str();
    let words = match fault {
        Fault::FirstHostDrained => &["drain", "--timeout", DRAIN_SECONDS, name][..],
        _ => &["delete", name],
    };
    let (end, said) = run.machine.tool(on, words, "", super::CONSOLE_TIME)?;
    let is_well = end == End::Exit(0) && said.contains("deleted");
    ensure!(is_well, "`pvm {}` on {}: {}{said}", words.join(" "), on.name, end.last_line());
    Ok(())
}

/// Waits until a host shows another master than the first host, which has just died, and prints how long that took.
fn next_master(run: &Run) -> Result<()> {
    let began = Instant::now();
    let mut said = String::new();
    let is_shown = wait_until(CLOSED_TIME, || {
        match run.machine.tool(run.chief_host(), &["conf", "-v"], "", super::CONSOLE_TIME) {
            Ok((_, table)) => said = table,
            Err(error) => said = format!("{error:#}"),
        }
        let master = said.lines().find(|line| line.ends_with(" master"));
        master.and_then(|line| line.split_whitespace().next()).is_some_and(|name| name != run.victim().name)
    });
    ensure!(is_shown, "no next master: {said}");
    println!("         the next master is shown after {:.3} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Kills the first daemon, and within a second the one that has become the master.
fn kill_two_masters(run: &mut Run, chief: &mut Chief) -> Result<()> {
    let daemons: Vec<Option<u32>> = run.network.hosts().iter().map(Host::daemon).collect();
    let began = Instant::now();
    signal(daemons[0].context("a daemon there")?, Signal::KILL);
    let is_master = |host: &Host| run.machine.log(host).contains(MASTER_NOW);
    let mut next = None;
    let is_there = wait_until(CLOSED_TIME, || {
        next = run.network.hosts().iter().position(is_master);
        next.is_some()
    });
    ensure!(is_there, "no next master");
    ensure!(next == Some(1), "another host than the second is the next master: {next:?}");
    let left = SECOND_KILL_TIME.saturating_sub(began.elapsed());
    let pause = left.mul_f64(run.random.f64());
    std::thread::sleep(pause);
    signal(daemons[1].context("a daemon there")?, Signal::KILL);
    println!("         the second master is killed {pause:?} after it has said that it is one");
    lost(chief, 2, NOTICE_TIME)
}

/// Waits until the chief has received the notifies for the lost hosts and their tasks.
pub fn lost(chief: &mut Chief, hosts: usize, time: Duration) -> Result<()> {
    let count = |lines: &[String], beginning: &str| lines.iter().filter(|line| line.starts_with(beginning)).count();
    chief.wait("the host's loss", time, |lines| count(lines, "lost ") >= hosts && count(lines, "exit ") >= 2 * hosts)
}

fn stop(run: &Run, chief: &mut Chief) -> Result<()> {
    let began = Instant::now();
    let daemon = run.victim().daemon().context("a daemon there")?;
    signal(daemon, Signal::STOP);
    let noticed = lost(chief, 1, NOTICE_TIME);
    if noticed.is_ok() {
        std::thread::sleep(STOPPED_TIME.saturating_sub(began.elapsed()));
    }
    signal(daemon, Signal::CONT);
    noticed
}

/// Waits until the chief knows that the host is lost, until the host's processes have ended, and until the cut is over.
fn cut_off(run: &Run, chief: &mut Chief) -> Result<()> {
    let began = Instant::now();
    lost(chief, 1, NOTICE_TIME)?;
    ensure!(wait_until(NOTICE_TIME, || run.victim().processes().is_empty()), "the host that is cut off does not end");
    std::thread::sleep(CUT_TIMES[1].saturating_sub(began.elapsed()));
    Ok(())
}

/// Lets tasks send messages over bad links. The links are still bad while the tasks compare their accounts.
fn talk(run: &Run, lines: &[&str]) -> Result<()> {
    for line in lines {
        run.network.tell_switch(line)?;
    }
    std::thread::sleep(TALK_TIME);
    Ok(())
}

/// Drops long frames for one host and passes short ones, so that the host's control link stays alive.
fn black_hole(run: &mut Run) -> Result<()> {
    run.network.tell_switch(&format!("hole {} {HOLE_BYTES}", run.victim))?;
    std::thread::sleep(Duration::from_millis(run.random.u64(HOLE_MS[0]..HOLE_MS[1])));
    run.network.tell_switch("heal")?;
    Ok(())
}

/// Lets the host's kernel end the connections of one program (its name is `program`), several times.
fn kill_connections(run: &Run, program: &str) -> Result<()> {
    let mut killed = 0;
    for _ in 0..KILLS {
        std::thread::sleep(KILL_PAUSE);
        let list = run.victim().sh("ss -Htnp state established")?;
        for line in list.lines().filter(|line| line.contains(&format!("\"{program}\""))) {
            let mut words = line.split_whitespace().skip(2);
            if let (Some(near), Some(far)) = (words.next(), words.next()) {
                killed += run.victim().sh(&format!("ss -HKtn src '{near}' dst '{far}'"))?.lines().count();
            }
        }
    }
    ensure!(killed > 0, "no connection of {program} was there to be killed");
    Ok(())
}

/// Fills the disk that holds the daemon's log, then makes the daemon write many lines to it.
fn fill_disk(run: &Run) -> Result<()> {
    let (host, folder) = (run.victim(), run.machine.temporary(run.victim()));
    host.sh(&format!("cat /dev/zero > {}/filler 2> /dev/null; true", folder.display()))?;
    let lines = format!("spawn -{} -3 /bin/hostname\nspawn -{} no-such-program\n", host.name, host.name);
    for _ in 0..3 {
        run.machine.console(host, &lines, super::CONSOLE_TIME)?;
    }
    std::thread::sleep(TALK_TIME / 4);
    Ok(())
}
