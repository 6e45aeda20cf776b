//! `pvm doctor`: checks what a machine needs on this host and on others, and tells causes and cures.
mod causes;
mod local;
mod peer;
mod remote;

use crate::{cli, json, wanted};
use pvm_core::hostfile;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// How a check has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All is in order.
    Fine,
    /// A machine works, but with a loss.
    Warning,
    /// A machine cannot work.
    Fault,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Fine => "ok",
            State::Warning => "warning",
            State::Fault => "fault",
        }
    }

    fn of_name(name: &str) -> State {
        [State::Fine, State::Warning].into_iter().find(|state| state.name() == name).unwrap_or(State::Fault)
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check, one word for programs.
    pub check: String,
    /// How it ended.
    pub state: State,
    /// What was found: the cause, if something is wrong.
    pub what: String,
    /// What to do; empty if all is in order.
    pub cure: String,
}

impl Finding {
    /// Makes a finding of something that is in order.
    pub fn fine(check: &str, what: impl Into<String>) -> Finding {
        Finding { check: check.into(), state: State::Fine, what: what.into(), cure: String::new() }
    }

    /// Makes a finding of something that costs speed or some cases.
    pub fn warning(check: &str, what: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { check: check.into(), state: State::Warning, what: what.into(), cure: cure.into() }
    }

    /// Makes a finding of something that keeps a machine from working.
    pub fn fault(check: &str, what: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { check: check.into(), state: State::Fault, what: what.into(), cure: cure.into() }
    }

    fn json(&self) -> Value {
        let Finding { check, state, what, cure } = self;
        json!({ "check": check, "state": state.name(), "what": what, "cure": cure })
    }

    /// Reads a finding of another host. Control characters, which could command a terminal, are replaced.
    fn of_json(value: &Value) -> Finding {
        let text = |name: &str| pvm_core::dialogue::plain(value[name].as_str().unwrap_or_default());
        Finding { check: text("check"), state: State::of_name(&text("state")), what: text("what"), cure: text("cure") }
    }
}

/// The findings about a host.
pub struct Checked {
    /// The host's name.
    pub host: String,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// Runs the command.
pub fn run(arguments: &cli::Doctor) -> ExitCode {
    if let Some(callers) = &arguments.peer {
        return peer::serve(callers, arguments.timeout);
    }
    let lines = wanted::of_words(&arguments.hosts).and_then(|wanted| {
        wanted.iter().map(|host| hostfile::parse_host(&host.line).map_err(|e| e.to_string())).collect()
    });
    let lines: Vec<hostfile::HostLine> = match lines {
        Ok(lines) => lines,
        Err(error) => {
            eprintln!("pvm doctor: {error}");
            return ExitCode::from(crate::run::EXIT_USAGE);
        }
    };
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut checked = vec![Checked { host: own, findings: local::checks() }];
    checked.extend(remote::check_all(&lines, arguments.timeout));
    let text = if arguments.json { json::text(&document(&checked)) } else { text(&checked, arguments.verbose) };
    let is_written = std::io::stdout().write_all(text.as_bytes()).is_ok();
    match is_written && worst(&checked) < State::Fault {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn worst(checked: &[Checked]) -> State {
    let states = checked.iter().flat_map(|host| host.findings.iter().map(|finding| finding.state));
    states.max().unwrap_or(State::Fine)
}

fn document(checked: &[Checked]) -> Value {
    let host = |host: &Checked| {
        let findings: Vec<Value> = host.findings.iter().map(Finding::json).collect();
        json!({ "host": host.host, "findings": findings })
    };
    json!({ "state": worst(checked).name(), "hosts": checked.iter().map(host).collect::<Vec<Value>>() })
}

fn text(checked: &[Checked], verbose: bool) -> String {
    let mut text = String::new();
    for host in checked {
        let shown = host.findings.iter().filter(|finding| verbose || finding.state > State::Fine);
        let mut lines = String::new();
        for finding in shown {
            lines.push_str(&format!("  {}: {}: {}\n", finding.state.name(), finding.check, finding.what));
            if !finding.cure.is_empty() {
                lines.push_str(&format!("    try: {}\n", finding.cure));
            }
        }
        match lines.is_empty() {
            true => text.push_str(&format!("{}: all is in order\n", host.host)),
            false => text.push_str(&format!("{}:\n{lines}", host.host)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_shown_with_their_cure_and_the_rest_on_demand() {
        let findings = vec![Finding::fine("clock", "1 ms apart"), Finding::fault("login", "no key", "make one")];
        let fine = Checked { host: "b".into(), findings: vec![Finding::fine("clock", "0 ms apart")] };
        let checked = [Checked { host: "a".into(), findings }, fine];
        assert_eq!(text(&checked, false), "a:\n  fault: login: no key\n    try: make one\nb: all is in order\n");
        assert!(text(&checked, true).contains("  ok: clock: 1 ms apart\n"));
        let value = document(&checked);
        assert_eq!((&value["state"], &value["hosts"][0]["findings"][1]["check"]), (&"fault".into(), &"login".into()));
    }

    #[test]
    fn a_finding_travels_and_cannot_command_a_terminal() {
        let finding = Finding::warning("ptrace", "scope is 2", "lower it");
        assert_eq!(Finding::of_json(&finding.json()), finding);
        let hostile = Finding::of_json(&json!({ "check": "x", "state": "what", "what": "\u{1b}[2J", "cure": 7 }));
        assert_eq!((hostile.state, hostile.what.contains('\u{1b}'), hostile.cure.as_str()), (State::Fault, false, ""));
    }
}
