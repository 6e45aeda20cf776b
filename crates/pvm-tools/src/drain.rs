//! `pvm drain`: hosts take no new tasks, and leave the machine when they have none.
use crate::signals::{self, Signals};
use crate::{cli, control, hosts, machine};
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Host, Reply, Request, TaskInfo};
use pvm_core::tid::Tid;
use pvm_task::Session;
use serde_bytes::ByteBuf;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The pause between two looks at the hosts and their tasks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// The number of tasks that a line names.
const NAMED_MAX: usize = 4;

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

/// Asks that hosts take no new tasks, or take them again. Returns the tid of each, or an error code, and complains of errors.
fn ask(session: &mut Session, names: &[String], drain: bool) -> Result<Vec<i32>, Code> {
    let bytes = names.iter().map(|name| ByteBuf::from(name.as_bytes())).collect();
    let Reply::Codes(codes) = session.request(Request::DrainHosts { names: bytes, drain })? else {
        return Err(Code::BadMsg);
    };
    for (name, code) in names.iter().zip(&codes).filter(|(_, code)| **code < 0) {
        eprintln!(
            "pvm drain: {}",
            match *code == Code::BadParam.number() {
                true if name == "." => "say which host; `pvm conf` lists the hosts".to_owned(),
                true => format!("{name} is the only host of the machine; `pvm down` ends the machine"),
                false => format!("{name}: {}; `pvm conf` lists the hosts", codes::text(*code)),
            }
        );
    }
    Ok(codes)
}

fn undo(session: &mut Session, arguments: &cli::Drain) -> Result<ExitCode, Box<dyn Error>> {
    let codes = ask(session, &hosts::named(&arguments.hosts)?, false)?;
    Ok(if codes.iter().all(|code| *code >= 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn drain(session: &mut Session, arguments: &cli::Drain) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::catch()?;
    let names = hosts::named(&arguments.hosts)?;
    // What becomes of each host: its tid while it is waited for, then 0 or an error code.
    let mut states = ask(session, &names, true)?;
    let (begin, mut told) = (Instant::now(), String::new());
    // A task may be on its way from a host that placed it before it knew. So the first look removes nothing.
    let mut may_remove = false;
    while states.iter().any(|state| *state > 0) {
        if let Some(signal) = signals.take().first() {
            tell_what_stays(session, &states);
            signals::end_by(*signal);
            return Ok(ExitCode::FAILURE);
        }
        let is_over = may_remove && arguments.timeout.is_some_and(|limit| begin.elapsed() >= limit);
        let left = look(session, &mut states, may_remove, is_over)?;
        let now = sentence(&left);
        if !left.is_empty() && (is_over || now != told) {
            let end = if is_over { "ended, since the time is over" } else { "waited for" };
            eprintln!("pvm drain: {now} {end}");
        }
        (told, may_remove) = (now, true);
        if states.iter().any(|state| *state > 0) {
            std::thread::sleep(LOOK_PAUSE);
        }
    }
    Ok(hosts::print_deleted(&names, &states, arguments.json))
}

/// Looks once at the hosts that are waited for. If it may, removes those that have no tasks any more, or all if the time is
/// over. Returns the tasks on those that had some.
fn look(session: &mut Session, states: &mut [i32], may_remove: bool, is_over: bool) -> Result<Vec<TaskInfo>, Code> {
    let (known, _) = control::hosts(session)?;
    let (own, mut left) = (session.tid(), Vec::new());
    for at in (0..states.len()).filter(|at| states[*at] > 0).collect::<Vec<_>>() {
        let tid = Tid(states[at] as u32);
        let state = match known.iter().find(|host| host.tid == tid) {
            // It has left by itself, or was named twice.
            None => 0,
            Some(host) if !host.is_draining => {
                eprintln!("pvm drain: {} takes tasks again, so it stays", host.name);
                Code::Denied.number()
            }
            Some(host) => {
                // A host that is being lost does not answer; the next look shows it.
                let Ok(mut tasks) = control::tasks(session, tid) else { continue };
                tasks.retain(|task| task.tid != own);
                let is_empty = tasks.is_empty();
                left.append(&mut tasks);
                match may_remove && (is_empty || is_over) {
                    true => remove(session, host)?,
                    false => continue,
                }
            }
        };
        states[at] = state;
    }
    Ok(left)
}

fn remove(session: &mut Session, host: &Host) -> Result<i32, Code> {
    let codes = hosts::delete(session, std::slice::from_ref(&host.name))?;
    Ok(codes.first().copied().unwrap_or_default().min(0))
}

/// Says after a signal which hosts still take no new tasks, unless the machine halts.
fn tell_what_stays(session: &mut Session, states: &[i32]) {
    let Ok((known, _)) = control::hosts(session) else { return };
    let is_meant = |host: &&Host| states.contains(&(host.tid.0 as i32)) && host.is_draining;
    let list = known.iter().filter(is_meant).map(|host| host.name.as_str()).collect::<Vec<_>>().join(" ");
    eprintln!("pvm drain: still without new tasks: {list}; `pvm drain --undo {list}` lets tasks start there again");
}

/// Returns how many tasks there are, with the names of the first ones, and the verb.
fn sentence(tasks: &[TaskInfo]) -> String {
    let name = |task: &TaskInfo| {
        let path = String::from_utf8_lossy(&task.name).into_owned();
        let file = path.rsplit('/').next().unwrap_or_default();
        if file.is_empty() { task.tid.to_string() } else { format!("{file} {}", task.tid) }
    };
    let mut names: Vec<String> = tasks.iter().take(NAMED_MAX).map(name).collect();
    if tasks.len() > NAMED_MAX {
        names.push("...".into());
    }
    let (word, verb) = if tasks.len() == 1 { ("task", "is") } else { ("tasks", "are") };
    format!("{} {word} ({}) {verb}", tasks.len(), names.join(", "))
}
