//! Adding and removing hosts; `pvm up` and `pvm down`.
use crate::signals::Signals;
use crate::wanted::{Wanted, of_file, of_words};
use crate::{batch, cli, control, json, machine, shape};
use pvm_core::codes::Code;
use pvm_core::machine::KNOWN_AS;
use pvm_core::proto::{Host, Reply, Request};
use pvm_task::Session;
use serde_bytes::ByteBuf;
use std::process::ExitCode;

/// The result of adding hosts.
pub struct AddResults {
    /// The hosts, in order.
    pub wanted: Vec<Wanted>,
    /// The tid or an error code of each host.
    pub results: Vec<i32>,
    reasons: Vec<String>,
}

/// Adds hosts to the machine. A host that is in the machine already stays; a host that is named twice is added once.
/// (The console's `add` is in `console/commands.rs`.)
pub fn add(session: &mut Session, wanted: Vec<Wanted>) -> Result<AddResults, Code> {
    let known = if wanted.is_empty() { Vec::new() } else { control::hosts(session)?.0 };
    let asked = to_ask(&wanted, &known);
    let mut added = AddResults { results: vec![Code::DupHost.number(); wanted.len()], reasons: Vec::new(), wanted };
    added.reasons = added.wanted.iter().map(|host| format!("{KNOWN_AS}{}", host.name)).collect();
    if asked.is_empty() {
        return Ok(added);
    }
    let lines = asked.iter().map(|index| ByteBuf::from(added.wanted[*index].line.as_bytes())).collect();
    let Reply::AddedHosts { hosts, reasons, .. } = session.request(Request::AddHosts(lines))? else {
        return Err(Code::BadMsg);
    };
    for (index, (result, reason)) in asked.into_iter().zip(hosts.into_iter().zip(reasons)) {
        (added.results[index], added.reasons[index]) = (result, reason);
    }
    Ok(added)
}

/// Returns the indices of the hosts that must be added, since the machine does not have a host of that name. A `$`
/// before the name of the machine's first host requests a second daemon there, so that host is added too.
fn to_ask(wanted: &[Wanted], known: &[Host]) -> Vec<usize> {
    let own = known.first().map(|host| host.name.as_str());
    let is_second = |host: &Wanted| host.line.starts_with(['$', '&']) && own == Some(host.name.as_str());
    let is_known = |host: &Wanted| known.iter().any(|one| one.name == host.name) && !is_second(host);
    let is_first = |index: usize| !wanted[..index].iter().any(|host| host.name == wanted[index].name);
    (0..wanted.len()).filter(|index| is_first(*index) && !is_known(&wanted[*index])).collect()
}

impl AddResults {
    fn is_failure(code: i32) -> bool {
        code <= 0 && code != Code::DupHost.number()
    }

    /// Returns whether all hosts are in the machine now.
    pub fn is_complete(&self) -> bool {
        !self.results.iter().any(|result| AddResults::is_failure(*result))
    }

    /// Returns the names of the hosts that were not in the machine before.
    pub fn new_names(&self) -> Vec<String> {
        let new = self.wanted.iter().zip(&self.results).filter(|(_, result)| **result > 0);
        new.map(|(host, _)| host.name.clone()).collect()
    }

    /// Returns the messages about hosts that could not be added.
    pub fn complaints(&self) -> String {
        let failed = |index: &usize| AddResults::is_failure(self.results[*index]);
        let failed: Vec<usize> = (0..self.results.len()).filter(failed).collect();
        let pick = |list: &[String]| failed.iter().map(|index| list[*index].clone()).collect::<Vec<_>>();
        let names: Vec<String> = self.wanted.iter().map(|host| host.name.clone()).collect();
        let codes: Vec<i32> = failed.iter().map(|index| self.results[*index]).collect();
        shape::reasons(&pick(&names), &codes, &pick(&self.reasons))
    }

    /// Returns the machine's name for a host that was not added because it is in the machine already, perhaps under
    /// another name.
    fn known_name(&self, index: usize) -> Option<&str> {
        let reason =
            self.reasons[index].strip_prefix(KNOWN_AS).filter(|_| self.results[index] == Code::DupHost.number());
        reason.and_then(|reason| reason.lines().next())
    }

    /// Returns a remark about each host that is in the machine already, under another name.
    pub fn remarks(&self) -> String {
        let other = |index: usize| Some((&self.wanted[index].name, self.known_name(index)?));
        let others = (0..self.wanted.len()).filter_map(other).filter(|(name, known)| name != known);
        others.map(|(name, known)| format!("{name}: {KNOWN_AS}{known}\n")).collect()
    }

    /// Returns the machine's names of the hosts.
    pub fn names(&self) -> Vec<String> {
        let name = |(index, host): (usize, &Wanted)| self.known_name(index).unwrap_or(&host.name).to_owned();
        self.wanted.iter().enumerate().map(name).collect()
    }

    /// Returns the hosts that could not be added, each with its code and the reason.
    fn failures(&self) -> Vec<(&str, i32, &str)> {
        let hosts = self.wanted.iter().zip(&self.results).zip(&self.reasons);
        let failed = hosts.filter(|((_, result), _)| AddResults::is_failure(**result));
        failed.map(|((host, result), reason)| (host.name.as_str(), *result, reason.as_str())).collect()
    }

    /// Returns the place argument of `pvm_spawn`: a list that names each host once for each of its slots.
    pub fn place(&self) -> String {
        let weighted = self.wanted.iter().any(|host| host.slots.is_some());
        let mut names = Vec::new();
        for (index, host) in self.wanted.iter().enumerate() {
            let name = self.known_name(index).unwrap_or(&host.name).to_owned();
            let count = if weighted { host.slots.unwrap_or(1) } else { 1 };
            names.extend(std::iter::repeat_n(name, count as usize));
        }
        // Even a single name gets a comma, so that it is a list: the tasks may run only on listed hosts.
        names.join(",") + ","
    }
}

/// Removes hosts from the machine.
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

/// Runs `pvm up`.
pub fn up(arguments: &cli::Up) -> ExitCode {
    if let Some(remark) = batch::superfluous() {
        if !remark.is_empty() {
            eprintln!("pvm up: {remark}");
        }
        return ExitCode::SUCCESS;
    }
    let wanted = of_words(&arguments.hosts).and_then(|mut wanted| {
        if let Some(path) = &arguments.hostfile {
            wanted.extend(of_file(path)?);
        }
        match wanted.is_empty() && arguments.hostfile.is_none() {
            true => Ok(batch::hosts()?.unwrap_or_default()),
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
    // The hosts are added; it does not matter whether leaving the machine succeeds.
    let _ = session.leave();
    match result {
        Ok((added, (hosts, formats))) => {
            match arguments.json {
                true => print!("{}", json::text(&json::added(&hosts, formats, &added.failures()))),
                false => print!("{}", shape::configuration(&hosts, formats, false)),
            }
            eprint!("{}{}", added.remarks(), added.complaints());
            if added.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(code) => failed("up", code),
    }
}

/// Runs `pvm down`.
pub fn down(arguments: &cli::Down) -> ExitCode {
    // When the machine halts, it ends its tasks by a signal, and this process is a task too.
    let signals = Signals::catch();
    let mut session = match machine::join() {
        Ok(session) => session,
        Err(error) => return failed("down", error),
    };
    if arguments.hosts.is_empty() {
        let result = machine::halt(session, None);
        drop(signals);
        if arguments.json {
            print!("{}", json::text(&json::halted(result.is_ok())));
        }
        return result.map_or_else(|code| failed("down", code), |()| ExitCode::SUCCESS);
    }
    let names = match named(&arguments.hosts) {
        Ok(names) => names,
        Err(error) => return failed("down", error),
    };
    let result = delete(&mut session, &names);
    let _ = session.leave();
    match result {
        Ok(codes) => print_deleted(&names, &codes, arguments.json),
        Err(code) => failed("down", code),
    }
}

/// Returns the names of the hosts in words of the command line.
pub fn named(words: &[String]) -> Result<Vec<String>, String> {
    Ok(of_words(words)?.into_iter().map(|host| host.name).collect())
}

/// Prints which hosts were removed. Returns whether all were.
pub fn print_deleted(names: &[String], codes: &[i32], json: bool) -> ExitCode {
    match json {
        true => print!("{}", json::text(&json::deleted(names, codes))),
        false => print!("{}", shape::deleted(names, codes)),
    }
    if codes.iter().all(|code| *code >= 0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::tid::Tid;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn hosts_that_are_there_already_are_not_asked_for_and_go_by_the_name_that_the_machine_knows() {
        let host = |name: &str| Host {
            name: name.into(),
            tid: Tid(0x40000),
            arch: "L".into(),
            speed: 1,
            dsig: 1,
            is_draining: false,
            office: pvm_core::proto::Office::None,
        };
        let wanted = of_words(&words(&["vm,$vm,$h2,h2", "h3 ip=10.0.0.3", "h3", "10.0.0.2:2"])).unwrap();
        let asked = to_ask(&wanted, &[host("vm"), host("h2")]);
        assert_eq!(asked, [4, 6]);
        assert_eq!(to_ask(&of_words(&words(&["$vm"])).unwrap(), &[host("vm")]), [0]);
        let wanted = of_words(&words(&["h2", "10.0.0.2:2", "h3"])).unwrap();
        let dup = Code::DupHost.number();
        let reasons = [format!("{KNOWN_AS}h2"), format!("{KNOWN_AS}h2\ntry: $NAME"), String::new()].to_vec();
        let added = AddResults { wanted, results: vec![dup, dup, 0xc0000], reasons };
        assert_eq!(added.remarks(), "10.0.0.2: it is in the machine already, as h2\n");
        assert_eq!((added.place().as_str(), added.complaints().as_str()), ("h2,h2,h2,h3,", ""));
    }

    #[test]
    fn a_failure_is_told_but_not_that_a_host_was_there_before() {
        let wanted = of_words(&words(&["a", "b", "c"])).unwrap();
        let reasons = words(&["", "", "no way\ntry: harder"]);
        let added = AddResults { wanted, results: vec![0x80000, Code::DupHost.number(), -29], reasons };
        assert!(!added.is_complete());
        assert_eq!(added.complaints(), "c: no way\n    try: harder\n");
        assert_eq!(added.new_names(), ["a"]);
    }
}
