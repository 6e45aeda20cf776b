//! `pvm drain`: hosts take no new tasks, and leave the machine when they have none.
use crate::signals::{self, Signals};
use crate::{cli, control, hosts, json, machine, shape, wanted};
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Host, Reply, Request, TaskInfo};
use pvm_core::tid::Tid;
use pvm_task::Session;
use serde_bytes::ByteBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The pause between two looks at the tasks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The number of tasks that a line names.
const NAMED_MAX: usize = 4;

/// How the wait for the tasks of a host has ended.
enum End {
    /// The host has no tasks any more.
    Empty,
    /// The time is over; these tasks are left.
    Expired(Vec<TaskInfo>),
    /// This signal has come.
    Signal(i32),
}

/// Runs `pvm drain`.
pub fn run(arguments: &cli::Drain) -> ExitCode {
    let mut session = match machine::join() {
        Ok(session) => session,
        Err(error) => return failed(&error),
    };
    let result = match arguments.undo {
        true => undo(&mut session, arguments),
        false => drain(&mut session, arguments),
    };
    // Leaving may fail if this host was one of them.
    let _ = session.leave();
    result.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("pvm drain: {error}");
    ExitCode::FAILURE
}

/// Asks that hosts take no new tasks, or take them again. Returns a complaint for each host that is not there.
fn ask(session: &mut Session, names: &[String], drain: bool) -> Result<Vec<String>, Code> {
    let bytes = names.iter().map(|name| ByteBuf::from(name.as_bytes())).collect();
    let Reply::Codes(codes) = session.request(Request::DrainHosts { names: bytes, drain })? else {
        return Err(Code::BadMsg);
    };
    let refused = names.iter().zip(codes).filter(|(_, code)| *code < 0);
    Ok(refused.map(|(name, code)| format!("{name}: {}; `pvm conf` lists the hosts", codes::text(code))).collect())
}

fn undo(session: &mut Session, arguments: &cli::Drain) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let complaints = ask(session, &named(arguments)?, false)?;
    complaints.iter().for_each(|complaint| eprintln!("pvm drain: {complaint}"));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn named(arguments: &cli::Drain) -> Result<Vec<String>, String> {
    Ok(wanted::of_words(&arguments.hosts)?.into_iter().map(|host| host.name).collect())
}

fn drain(session: &mut Session, arguments: &cli::Drain) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let names = named(arguments)?;
    let (known, _) = control::hosts(session)?;
    let first = known.iter().find(|host| host.tid == Tid::host_number(1));
    if let Some(first) = first.filter(|first| names.contains(&first.name)) {
        return Err(format!(
            "{} is the first host of the machine and cannot leave it; `pvm down` ends the machine",
            first.name
        )
        .into());
    }
    let mut signals = Signals::catch()?;
    let complaints = ask(session, &names, true)?;
    complaints.iter().for_each(|complaint| eprintln!("pvm drain: {complaint}"));
    let leaving: Vec<&Host> = known.iter().filter(|host| names.contains(&host.name)).collect();
    let names: Vec<String> = leaving.iter().map(|host| host.name.clone()).collect();
    match wait(session, &leaving, arguments.timeout, &mut signals)? {
        End::Empty => {}
        End::Expired(tasks) => eprintln!("pvm drain: the time is over; {} ended", sentence(&tasks, "is", "are")),
        End::Signal(signal) => {
            let list = names.join(" ");
            eprintln!(
                "pvm drain: {list} still takes no new tasks; `pvm drain --undo {list}` lets tasks start there again"
            );
            signals::end_by(signal);
        }
    }
    if names.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let results = hosts::delete(session, &names)?;
    match arguments.json {
        true => print!("{}", json::text(&json::deleted(&names, &results))),
        false => print!("{}", shape::deleted(&names, &results)),
    }
    let is_done = complaints.is_empty() && results.iter().all(|code| *code >= 0);
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until no task is on these hosts, but not longer than `limit`. Says which tasks are waited for, whenever they change.
fn wait(session: &mut Session, hosts: &[&Host], limit: Option<Duration>, signals: &mut Signals) -> Result<End, Code> {
    let (own, begin, mut told) = (session.tid(), Instant::now(), String::new());
    loop {
        let mut tasks = control::tasks(session, Tid::NONE)?;
        tasks.retain(|task| task.tid != own && hosts.iter().any(|host| host.tid == task.host));
        if tasks.is_empty() {
            return Ok(End::Empty);
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Ok(End::Expired(tasks));
        }
        let now = sentence(&tasks, "is", "are");
        if now != told {
            eprintln!("pvm drain: {now} waited for");
            told = now;
        }
        if let Some(signal) = signals.take().first() {
            return Ok(End::Signal(*signal));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Returns how many tasks there are, with the names of the first ones, and the verb.
fn sentence(tasks: &[TaskInfo], one: &str, several: &str) -> String {
    let name = |task: &TaskInfo| {
        let path = String::from_utf8_lossy(&task.name).into_owned();
        let file = path.rsplit('/').next().unwrap_or_default();
        if file.is_empty() { task.tid.to_string() } else { format!("{file} {}", task.tid) }
    };
    let mut names: Vec<String> = tasks.iter().take(NAMED_MAX).map(name).collect();
    if tasks.len() > NAMED_MAX {
        names.push("...".into());
    }
    let (word, verb) = if tasks.len() == 1 { ("task", one) } else { ("tasks", several) };
    format!("{} {word} ({}) {verb}", tasks.len(), names.join(", "))
}
