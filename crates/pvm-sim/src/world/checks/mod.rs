//! The invariants, one file for each. Some are checked at every event, the others only when the machine should have
//! settled.
mod barriers;
mod collected;
mod gone;
mod innocent;
mod leaks;
mod messages;
mod multicasts;
mod notifies;
mod office;
mod order;
mod requests;
mod servers;
mod tables;

use crate::queue::SECOND;
use crate::world::World;
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;

/// The violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// A description.
    pub text: String,
    /// The hosts that are concerned.
    pub hosts: Vec<Tid>,
}

/// The state of all checks.
#[derive(Default)]
pub struct Checks {
    /// The first violation.
    pub violation: Option<Violation>,
    tables: tables::Tables,
    notifies: notifies::Notifies,
    messages: messages::Messages,
    multicasts: multicasts::Multicasts,
    order: order::Order,
    requests: requests::Requests,
    barriers: barriers::Barriers,
    faults: innocent::Faults,
    collections: collected::Collections,
    office: office::HandOver,
}

impl Checks {
    /// Notes a violation.
    pub fn fail(&mut self, invariant: &'static str, text: &str, hosts: &[Tid]) {
        let hosts = hosts.iter().map(|tid| tid.host()).collect();
        self.violation.get_or_insert(Violation { invariant, text: text.to_owned(), hosts });
    }

    fn take(&mut self, invariant: &'static str, result: Result<(), String>, hosts: &[Tid]) {
        if let Err(text) = result {
            self.fail(invariant, &text, hosts);
        }
    }

    /// Notes that a frame has arrived at a host.
    pub fn frame(&mut self, to: Tid, from: Tid, frame: &Frame) {
        let result = self.tables.frame(to, from, frame);
        self.take("tables", result, &[to]);
        match frame {
            Frame::Joined { hosts } => self.notifies.hosts_joined(to, hosts),
            Frame::Suspect(host) => self.missing(from, *host),
            _ => {}
        }
    }
}

/// A check of one of the invariants that hold once the machine has settled.
type Check = fn(&World) -> Unsettled;
/// The result of a check. An error describes what has not settled.
type Unsettled = Result<(), (String, Vec<Tid>)>;

impl World {
    /// Returns what has not settled although all faults are over.
    pub fn unsettled(&self) -> Option<Violation> {
        let parts: [(&'static str, Check); 11] = [
            ("starts", World::processes_are_started),
            ("requests", World::requests_are_answered),
            ("multicasts", World::multicasts_arrived),
            ("messages", World::messages_arrived),
            ("notifies", World::notifies_arrived),
            ("barriers", World::barriers_can_open),
            ("collected", World::output_arrived),
            ("leaks", World::nothing_waits),
            ("office", World::all_follow_the_master),
            ("office", World::groups_are_known),
            // The check that compares the tables of all hosts comes last, because it takes the longest.
            ("tables", World::tables_agree),
        ];
        parts.into_iter().find_map(|(invariant, part)| violation(invariant, part(self)))
    }

    /// Checks that no process waits for a file system, or has just been started.
    fn processes_are_started(&self) -> Unsettled {
        match self.now > self.file_systems_answer_at + SECOND {
            true => Ok(()),
            false => Err(("processes are being started".into(), Vec::new())),
        }
    }

    /// Returns what daemons still remember about tasks that have ended.
    pub fn left_over(&mut self) -> Option<Violation> {
        if self.end_next_task() {
            return violation("gone", Err(("there are still tasks".into(), Vec::new())));
        }
        violation("leaks", self.nothing_leaks())
    }

    /// Returns which daemons and tasks are left after the machine's end.
    pub fn still_there(&self) -> Option<Violation> {
        violation("gone", self.everything_is_gone())
    }
}

fn violation(invariant: &'static str, result: Unsettled) -> Option<Violation> {
    result.err().map(|(text, hosts)| Violation { invariant, text, hosts })
}
