//! The faults in which the first daemon is killed while an operation is under way, on another host or on any host.
//! `tests/hosts/faults/during.c` and `multicasts.c` contain the operations of tasks, which check what has come of them;
//! the others are commands of the console. The operation begins, and the daemon is killed a random time later.

use super::chief::Chief;
use super::kinds::{NOTICE_TIME, lost};
use super::{END_TIME, HOSTS, Run, program};
use crate::conform::execute::End;
use crate::hosts::network::{Host, name_of};
use crate::machine::{LineProcess, wait_until};
use crate::processes::signal;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The program of the tasks.
pub const PROGRAM: &str = "during";
/// How long an operation may take until it hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// How long a daemon that was started to join lives if no master welcomes it: 60 s, and more on a slow machine.
const UNWELCOME_TIME: Duration = Duration::from_secs(90);
/// How many of the spawned tasks must live: those that the spawn gives to the other hosts.
const SPAWNED_MIN: usize = 24;
/// The number of multicasts.
const MULTICASTS: u32 = 1500;
/// The number of tasks of `pvm run`, how many of them must come to their end, and the number of lines of each.
const RUN_TASKS: &str = "8";
const RUN_MIN: usize = 6;
const RUN_LINES: usize = 300;
/// What `pvm run` says if it cannot start all tasks because a host is lost.
const REFUSAL: &str = ": Host failed";

/// An operation that is under way when the first daemon is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Add,
    Spawn,
    Barrier,
    Put,
    Multicast,
    Delete,
    Halt,
    Run,
}

impl Operation {
    /// Returns the name of the fault on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Add => "during-add",
            Operation::Spawn => "during-spawn",
            Operation::Barrier => "during-barrier",
            Operation::Put => "during-put",
            Operation::Multicast => "during-multicast",
            Operation::Delete => "during-delete",
            Operation::Halt => "during-halt",
            Operation::Run => "during-run",
        }
    }

    /// Returns a description of the fault.
    pub fn text(self) -> &'static str {
        match self {
            Operation::Add => "SIGKILL of the first daemon during an add",
            Operation::Spawn => "SIGKILL of the first daemon during a spawn of 32",
            Operation::Barrier => "SIGKILL of the first daemon during barriers",
            Operation::Put => "SIGKILL of the first daemon during mailbox puts",
            Operation::Multicast => "SIGKILL of the first daemon during multicasts",
            Operation::Delete => "SIGKILL of the first daemon during its delete",
            Operation::Halt => "SIGKILL of the first daemon during a halt",
            Operation::Run => "SIGKILL of the first daemon during a pvm run",
        }
    }

    /// Returns the longest time from the beginning of the operation to the kill: about as long as the operation takes.
    fn time_max(self) -> Duration {
        Duration::from_millis(match self {
            Operation::Delete | Operation::Halt => 10,
            Operation::Spawn => 60,
            Operation::Add => 200,
            Operation::Barrier => 400,
            Operation::Put | Operation::Multicast | Operation::Run => 1000,
        })
    }

    /// Returns how many hosts the network has that are not in the machine from the start.
    pub fn spare_hosts(self) -> usize {
        if self == Operation::Add { 2 } else { 0 }
    }

    /// Kills the first daemon while the operation is under way, and checks what comes of the operation.
    pub fn happen(self, run: &mut Run, chief: &mut Chief) -> Result<()> {
        match self {
            Operation::Add | Operation::Spawn | Operation::Barrier | Operation::Put => self.of_task(run, chief),
            Operation::Multicast => multicasts(run, chief),
            Operation::Delete => delete(run, chief),
            Operation::Run => pvm_run(run, chief),
            Operation::Halt => lost(chief, 1, NOTICE_TIME),
        }
    }

    fn of_task(self, run: &mut Run, chief: &mut Chief) -> Result<()> {
        let on = any_other_host(run);
        let word = self.name().strip_prefix("during-").expect("names begin so");
        let mut task = run.machine.command(on, &program(PROGRAM));
        task.arg(word).args(self.arguments(run));
        let mut task = Chief::start(&mut task)?;
        let daemon = run.victim().daemon().context("a daemon there")?;
        task.wait("the operation to begin", LIMIT, |lines| lines.iter().any(|line| line == "begun"))?;
        let time = self.kill(run, daemon);
        let is_answered = task.heard_of("answered");
        println!("         on {}, killed after {time:?}{}", on.name, if is_answered { ", too late" } else { "" });
        lost(chief, 1, NOTICE_TIME)?;
        task.tell("check");
        task.wait("what comes of it", LIMIT, |lines| lines.iter().any(|line| line.starts_with("done")))?;
        let said = task.last("done");
        println!("         {said}");
        match self {
            Operation::Add => hosts_added(run, chief, &said)?,
            Operation::Spawn => each_lives_once(run, &said)?,
            _ => {}
        }
        task.tell("end");
        task.wait_for_end()
    }

    fn arguments(self, run: &mut Run) -> Vec<String> {
        let hosts = run.network.hosts().iter().map(|host| host.name.clone());
        match self {
            Operation::Add => hosts.skip(HOSTS).collect(),
            // With members on the host that is lost, a barrier fails; without, none does.
            Operation::Barrier => hosts.skip(usize::from(run.random.bool())).collect(),
            _ => Vec::new(),
        }
    }

    /// Kills the daemon after a random time, which is rather short than long. Returns the time.
    fn kill(self, run: &mut Run, daemon: u32) -> Duration {
        let time = self.time_max().mul_f64(run.random.f64().powi(2));
        std::thread::sleep(time);
        signal(daemon, Signal::KILL);
        time
    }
}

fn any_other_host<'a>(run: &mut Run<'a>) -> &'a Host {
    &run.network.hosts()[run.random.usize(1..HOSTS)]
}

/// Checks that the hosts that were added are in the table of all, and the others nowhere. Then adds those again.
fn hosts_added(run: &mut Run, chief: &mut Chief, said: &str) -> Result<()> {
    let spare = &run.network.hosts()[HOSTS..];
    let is_added = |host: &&Host| said.contains(&format!(" {}=1", host.name));
    let (added, others): (Vec<&Host>, Vec<&Host>) = spare.iter().partition(is_added);
    run.joined.extend(added.iter().map(|host| host.name.as_str()));
    run.check_tables(&run.present())?;
    let left = || others.iter().flat_map(|host| host.processes()).collect::<Vec<u32>>();
    let began = Instant::now();
    let ended = wait_until(UNWELCOME_TIME, || left().is_empty());
    ensure!(ended, "left on hosts that were not added: {:?}", left());
    if !others.is_empty() {
        println!("         hosts that were not added are empty after {:.1} s", began.elapsed().as_secs_f64());
    }
    let names: Vec<&str> = others.iter().map(|host| host.name.as_str()).collect();
    if !names.is_empty() {
        run.machine.add_from(run.chief_host(), &names)?;
        run.joined.extend(names);
    }
    chief.wait("the hosts to be added", NOTICE_TIME, |lines| {
        lines.iter().filter(|line| line.starts_with("added ")).count() >= spare.len()
    })
}

/// Checks that as many tasks live on the other hosts as the answer of the spawn says.
fn each_lives_once(run: &Run, said: &str) -> Result<()> {
    let living = said.split(' ').find_map(|word| word.strip_prefix("living=")).unwrap_or_default();
    let living: usize = living.parse().context(said.to_owned())?;
    let others = &run.network.hosts()[1..];
    let count = || others.iter().flat_map(Host::processes).filter(|pid| name_of(*pid) == PROGRAM).count();
    // The task that has spawned them is one, too.
    ensure!(wait_until(END_TIME, || count() == living + 1), "{said}, but there are {} processes", count() - 1);
    ensure!(living >= SPAWNED_MIN, "{said}: tasks on other hosts were not started");
    Ok(())
}

fn multicasts(run: &mut Run, chief: &mut Chief) -> Result<()> {
    let on = any_other_host(run);
    let mut task = run.machine.command(on, &program(super::multicasts::PROGRAM));
    task.arg(MULTICASTS.to_string()).arg(run.random.u32(1..1000).to_string()).arg("-last");
    let mut task = Chief::start(&mut task)?;
    let daemon = run.victim().daemon().context("a daemon there")?;
    task.wait("the multicasts to begin", LIMIT, |lines| lines.iter().any(|line| line == "running"))?;
    let time = Operation::Multicast.kill(run, daemon);
    let is_over = task.heard_of("settled");
    println!("         on {}, killed after {time:?}{}", on.name, if is_over { ", too late" } else { "" });
    lost(chief, 1, NOTICE_TIME)?;
    task.wait("the multicasts", LIMIT, |lines| lines.iter().any(|line| line.starts_with("settled")))?;
    println!("         {}", task.last("settled"));
    task.wait_for_end()
}

/// A console that has an answer of its daemon already, so that its next command begins at once.
fn console(run: &Run, on: &Host) -> Result<LineProcess> {
    let mut console = LineProcess::start(&mut run.machine.command(on, &run.machine.side.programs().join("pvm")))?;
    console.send("conf");
    let end = Instant::now() + LIMIT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = console.next_line(left)?.context("the console has ended")?;
        if line.contains(&run.network.hosts()[HOSTS - 1].name) {
            return Ok(console);
        }
    }
}

/// Kills the first daemon just after the console of any host has got a command. Returns that host and what the console
/// says until it ends.
fn command<'a>(operation: Operation, run: &mut Run<'a>, line: &str) -> Result<(&'a Host, Vec<String>)> {
    let on = &run.network.hosts()[run.random.usize(..HOSTS)];
    let mut console = console(run, on)?;
    let daemon = run.victim().daemon().context("a daemon there")?;
    console.send(line);
    let time = operation.kill(run, daemon);
    console.send("quit");
    let mut said = Vec::new();
    let end = Instant::now() + LIMIT;
    while let Some(line) = console.next_line(end.saturating_duration_since(Instant::now()))? {
        said.push(line);
    }
    println!("         on {}, killed after {time:?}; it says {said:?}", on.name);
    Ok((on, said))
}

fn delete(run: &mut Run, chief: &mut Chief) -> Result<()> {
    let line = format!("delete {}", run.victim().name);
    let (on, said) = command(Operation::Delete, run, &line)?;
    // A console on the first host ends with its daemon.
    let is_answered = said.iter().any(|line| line.contains(&run.victim().name));
    ensure!(is_answered || on.name == run.victim().name, "no answer to `{line}` on {}: {said:?}", on.name);
    lost(chief, 1, NOTICE_TIME)
}

/// Kills the first daemon while the machine halts. Returns whether the machine has ended. It must end if the halt was asked
/// for on another host, which sends the request again. If the request was lost with its host, the machine must go on as a
/// whole, which the caller checks.
pub fn halt(run: &mut Run) -> Result<bool> {
    let (on, _) = command(Operation::Halt, run, "halt")?;
    let is_gone = wait_until(END_TIME, || run.network.hosts().iter().all(|host| host.processes().is_empty()));
    println!("         the machine {}", if is_gone { "is gone" } else { "goes on" });
    ensure!(is_gone || on.name == run.victim().name, "the halt is forgotten");
    if is_gone {
        run.check_files(&run.network.hosts()[1..])?;
    }
    Ok(is_gone)
}

/// Runs `pvm run` on another host. Each line of its tasks must be there once and in order, and all lines of those
/// whose host lives.
fn pvm_run(run: &mut Run, chief: &mut Chief) -> Result<()> {
    let on = any_other_host(run);
    let daemon = run.victim().daemon().context("a daemon there")?;
    let path = program(PROGRAM).display().to_string();
    let words = ["run", "--on-failure", "wait", "-n", RUN_TASKS, &path, "lines"];
    let machine = &run.machine;
    let time = Operation::Run.time_max().mul_f64(run.random.f64());
    let ended = std::thread::scope(|scope| {
        let tool = scope.spawn(|| machine.tool(on, &words, "", LIMIT));
        std::thread::sleep(time);
        signal(daemon, Signal::KILL);
        tool.join().expect("it does not panic")
    });
    let (end, said) = ended?;
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    let mut others = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["line", host, task, number] = words[..] else {
            others.push(line);
            continue;
        };
        let count = counts.entry((host, task)).or_default();
        ensure!(number == count.to_string(), "line {number} of task {task} on {host} comes as number {count}");
        *count += 1;
    }
    let first = others.first().unwrap_or(&"");
    println!("         on {}, killed after {time:?}: {}; {first}", on.name, end.last_line().trim());
    let survivors = counts.iter().filter(|((host, _), _)| *host != run.victim().name);
    // If the host is lost while tasks are started there, the run as a whole ends and says so.
    let is_refused = end == End::Exit(1) && others.iter().any(|line| line.ends_with(REFUSAL));
    for ((host, task), count) in survivors.clone() {
        ensure!(*count == RUN_LINES || is_refused, "{count} lines of task {task} on {host}");
    }
    let has_all = survivors.count() >= RUN_MIN;
    ensure!(has_all || is_refused, "some tasks on other hosts have printed nothing: {counts:?}");
    let is_well = counts.len().to_string() == RUN_TASKS && counts.values().all(|count| *count == RUN_LINES);
    ensure!(is_well == (end == End::Exit(0)), "its end does not say how it went");
    let tasks = || run.network.hosts()[1..].iter().flat_map(Host::processes).filter(|pid| name_of(*pid) == PROGRAM);
    ensure!(wait_until(END_TIME, || tasks().count() == 0), "tasks of the run are left");
    lost(chief, 1, NOTICE_TIME)
}
