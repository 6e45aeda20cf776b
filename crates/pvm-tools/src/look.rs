//! Looks at all hosts of the machine, for the commands that show what its tasks do.
use crate::control::{self, Control};
use pvm_core::codes::Code;
use pvm_core::proto::{Host, Reply, Request};
use pvm_core::waiting::{Look, State};
use std::time::Duration;

/// How long a host may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Looks at all hosts.
pub fn take(control: &mut dyn Control) -> Result<(Look, Vec<Host>), Code> {
    let (hosts, _) = control::hosts(control)?;
    let questions = hosts.iter().map(|host| Request::Look(host.tid)).chain([Request::GroupPlaces]);
    let mut answers = control.ask_all(questions.collect(), ANSWER_WAIT);
    let mut look = Look::default();
    match answers.pop() {
        Some(Some(Ok(Reply::GroupPlaces(groups)))) => look.groups = groups,
        // Without the groups, nobody who waits for members is said to be stuck.
        _ => look.groups = Vec::new(),
    }
    for (host, answer) in hosts.iter().zip(answers) {
        match answer {
            Some(Ok(Reply::Look(seen))) => drop(look.hosts.insert(host.tid, seen)),
            _ => drop(look.silent.insert(host.tid)),
        }
    }
    Ok((look, hosts))
}

/// Returns the word for a state.
pub fn state_name(state: &State) -> &'static str {
    match state {
        State::Computes => "computes",
        State::Stopped => "stopped",
        State::Starts => "starts",
        State::HasLeft => "left",
        State::MayGoOn(..) | State::Waits(_) => "waits",
    }
}
