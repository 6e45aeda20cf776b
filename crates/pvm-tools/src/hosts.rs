//! Hosts by their names: lists and ranges, hostfiles, what Slurm has given; `pvm up`, `pvm down`.
use crate::signals::Signals;
use crate::{cli, control, machine, shape};
use pvm_core::codes::Code;
use pvm_core::hostfile::{self, HostLine, Hostfile};
use pvm_core::proto::{Reply, Request};
use pvm_task::Session;
use serde_bytes::ByteBuf;
use std::path::Path;
use std::process::ExitCode;

/// The hosts of a Slurm job.
const SLURM_LIST: &str = "SLURM_JOB_NODELIST";

/// Hosts that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// A line for `pvm_addhosts`.
    pub line: String,
    /// The host's name.
    pub name: String,
    /// How many tasks it takes before others take more, if the user said so.
    pub slots: Option<u32>,
}

impl Wanted {
    fn of(host: &HostLine) -> Wanted {
        Wanted { line: host.to_string(), name: host.name().to_owned(), slots: host.options.slots }
    }
}

/// The hosts of words such as `a`, `b,c`, `n[1-4]`, `"d lo=joe"`.
pub fn of_words(words: &[String]) -> Result<Vec<Wanted>, String> {
    let mut wanted = Vec::new();
    for word in words {
        let explain = |error: hostfile::LineError| format!("{word}: {error}");
        for line in hostfile::lines(word).map_err(explain)? {
            wanted.push(Wanted::of(&hostfile::parse_host(&line).map_err(explain)?));
        }
    }
    Ok(wanted)
}

/// The hosts of a hostfile that are to be started.
pub fn of_file(path: &Path) -> Result<Vec<Wanted>, String> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = Hostfile::parse(&String::from_utf8_lossy(&text));
    let errors = file.errors.iter().map(|(line, error)| format!("{}:{line}: {error}", path.display()));
    match errors.collect::<Vec<_>>() {
        errors if !errors.is_empty() => Err(errors.join("\n")),
        _ => Ok(file.hosts.iter().filter(|host| !host.later).map(Wanted::of).collect()),
    }
}

/// The hosts of the Slurm job in which this runs, if it does.
pub fn of_slurm() -> Result<Option<Vec<Wanted>>, String> {
    let Some(list) = std::env::var(SLURM_LIST).ok().filter(|list| !list.is_empty()) else { return Ok(None) };
    of_words(&[list]).map(Some).map_err(|error| format!("{SLURM_LIST}: {error}"))
}

/// What became of hosts that were to be added.
pub struct Added {
    /// The hosts, in order.
    pub wanted: Vec<Wanted>,
    /// For each its tid or a code.
    pub results: Vec<i32>,
    reasons: Vec<String>,
}

/// Adds hosts to the machine; such as are in it already stay.
pub fn add(session: &mut Session, wanted: Vec<Wanted>) -> Result<Added, Code> {
    if wanted.is_empty() {
        return Ok(Added { wanted, results: Vec::new(), reasons: Vec::new() });
    }
    let lines = wanted.iter().map(|host| ByteBuf::from(host.line.as_bytes())).collect();
    match session.request(Request::AddHosts(lines))? {
        Reply::AddedHosts { hosts, reasons, .. } => Ok(Added { wanted, results: hosts, reasons }),
        _ => Err(Code::BadMsg),
    }
}

impl Added {
    fn is_failure(code: i32) -> bool {
        code <= 0 && code != Code::DupHost.number()
    }

    /// Whether all hosts belong to the machine now.
    pub fn is_complete(&self) -> bool {
        !self.results.iter().any(|result| Added::is_failure(*result))
    }

    /// Those that were not in the machine before.
    pub fn new_names(&self) -> Vec<String> {
        let new = self.wanted.iter().zip(&self.results).filter(|(_, result)| **result > 0);
        new.map(|(host, _)| host.name.clone()).collect()
    }

    /// What is to be said of hosts that could not be added.
    pub fn complaints(&self) -> String {
        let failed = |index: &usize| Added::is_failure(self.results[*index]);
        let failed: Vec<usize> = (0..self.results.len()).filter(failed).collect();
        let pick = |list: &[String]| failed.iter().map(|index| list[*index].clone()).collect::<Vec<_>>();
        let names: Vec<String> = self.wanted.iter().map(|host| host.name.clone()).collect();
        let codes: Vec<i32> = failed.iter().map(|index| self.results[*index]).collect();
        shape::reasons(&pick(&names), &codes, &pick(&self.reasons))
    }

    /// Where tasks are to run, for `pvm_spawn`: each host as often as it takes tasks.
    pub fn place(&self, session: &mut Session) -> Result<String, Code> {
        let weighted = self.wanted.iter().any(|host| host.slots.is_some());
        let mut names = Vec::new();
        for (host, result) in self.wanted.iter().zip(&self.results) {
            // The machine may know it by another name only, and then it is this one.
            let known = *result > 0
                || session.request(Request::HostStatus(ByteBuf::from(host.name.as_bytes())))? == Reply::Code(0);
            let name = if known { host.name.clone() } else { ".".to_owned() };
            let count = if weighted { host.slots.unwrap_or(1) } else { 1 };
            names.extend(std::iter::repeat_n(name, count as usize));
        }
        // A list even of one: it says that nothing else will do.
        Ok(names.join(",") + ",")
    }
}

/// Takes hosts out of the machine.
pub fn delete(session: &mut Session, names: &[String]) -> Result<Vec<i32>, Code> {
    let names = names.iter().map(|name| ByteBuf::from(name.as_bytes())).collect();
    match session.request(Request::DeleteHosts(names))? {
        Reply::Codes(codes) => Ok(codes),
        _ => Err(Code::BadMsg),
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> ExitCode {
    eprintln!("pvm {what}: {error}");
    ExitCode::FAILURE
}

/// `pvm up`.
pub fn up(arguments: &cli::Up) -> ExitCode {
    let wanted = of_words(&arguments.hosts).and_then(|mut wanted| {
        if let Some(path) = &arguments.hostfile {
            wanted.extend(of_file(path)?);
        }
        match wanted.is_empty() && arguments.hostfile.is_none() {
            true => Ok(of_slurm()?.unwrap_or_default()),
            false => Ok(wanted),
        }
    });
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return failed("up", error),
    };
    let (mut session, _) = match machine::join_or_start(&[]) {
        Ok(joined) => joined,
        Err(error) => return failed("up", error),
    };
    machine::keep(&mut session);
    let result = add(&mut session, wanted).and_then(|added| Ok((added, control::hosts(&mut session)?)));
    // The hosts are there; whether the farewell arrives makes no difference.
    let _ = session.leave();
    match result {
        Ok((added, (hosts, formats))) => {
            print!("{}", shape::configuration(&hosts, formats));
            eprint!("{}", added.complaints());
            if added.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(code) => failed("up", code),
    }
}

/// `pvm down`.
pub fn down(arguments: &cli::Down) -> ExitCode {
    // A machine that halts ends its tasks by a signal, and this is one.
    let signals = Signals::catch();
    let mut session = match machine::join() {
        Ok(session) => session,
        Err(error) => return failed("down", error),
    };
    if arguments.hosts.is_empty() {
        let result = machine::halt(session, None);
        drop(signals);
        return result.map_or_else(|code| failed("down", code), |()| ExitCode::SUCCESS);
    }
    let names = match of_words(&arguments.hosts) {
        Ok(wanted) => wanted.into_iter().map(|host| host.name).collect::<Vec<_>>(),
        Err(error) => return failed("down", error),
    };
    let result = delete(&mut session, &names);
    let _ = session.leave();
    match result {
        Ok(codes) => {
            print!("{}", shape::deleted(&names, &codes));
            if codes.iter().all(|code| *code >= 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(code) => failed("down", code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_are_hosts_lists_and_lines() {
        let wanted = of_words(&words(&["a", "b,n[1-2]:2", "$d lo=joe ip=10.0.0.1"])).unwrap();
        let lines: Vec<&str> = wanted.iter().map(|host| host.line.as_str()).collect();
        assert_eq!(lines, ["a", "b", "n1 slots=2", "n2 slots=2", "$d lo=joe ip=10.0.0.1"]);
        assert_eq!(wanted[3].slots, Some(2));
        assert!(of_words(&words(&["a b"])).is_err_and(|text| text.contains("'b'")));
    }

    #[test]
    fn a_failure_is_told_but_not_that_a_host_was_there_before() {
        let wanted = of_words(&words(&["a", "b", "c"])).unwrap();
        let reasons = words(&["", "", "no way\ntry: harder"]);
        let added = Added { wanted, results: vec![0x80000, Code::DupHost.number(), -29], reasons };
        assert!(!added.is_complete());
        assert_eq!(added.complaints(), "c: no way\n    try: harder\n");
        assert_eq!(added.new_names(), ["a"]);
    }
}
