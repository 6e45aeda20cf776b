//! What has to be true, one file each. Some of it is looked at whenever something happens, the rest
//! when the machine should have settled.
mod barriers;
mod collected;
mod gone;
mod innocent;
mod leaks;
mod messages;
mod notifies;
mod requests;
mod servers;
mod tables;

use crate::world::World;
use pvm_core::tid::Tid;
use pvm_core::wire::Frame;

/// Something was not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What had to be true.
    pub invariant: &'static str,
    /// What is instead.
    pub text: String,
    /// The hosts on which that is to be seen.
    pub hosts: Vec<Tid>,
}

/// What is known of the run for its judgement.
#[derive(Default)]
pub struct Checks {
    /// The first thing that was not as it must be.
    pub violation: Option<Violation>,
    tables: tables::Tables,
    notifies: notifies::Notifies,
    messages: messages::Messages,
    requests: requests::Requests,
    barriers: barriers::Barriers,
    befallen: innocent::Befallen,
    collections: collected::Collections,
}

impl Checks {
    /// Something is not as it must be.
    pub fn fail(&mut self, invariant: &'static str, text: &str, hosts: &[Tid]) {
        let hosts = hosts.iter().map(|tid| tid.host()).collect();
        self.violation.get_or_insert(Violation { invariant, text: text.to_owned(), hosts });
    }

    fn take(&mut self, invariant: &'static str, result: Result<(), String>, hosts: &[Tid]) {
        if let Err(text) = result {
            self.fail(invariant, &text, hosts);
        }
    }

    /// A frame has come to a host.
    pub fn frame(&mut self, to: Tid, from: Tid, frame: &Frame) {
        let result = self.tables.frame(to, from, frame);
        self.take("tables", result, &[to]);
        if let Frame::Joined { hosts } = frame {
            self.notifies.hosts_joined(to, hosts);
        }
    }
}

/// A look at one of the things that have to settle.
type Look = fn(&World) -> Unsettled;
/// What is not settled.
type Unsettled = Result<(), (String, Vec<Tid>)>;

impl World {
    /// What has not settled yet, after the world has become well.
    pub fn unsettled(&self) -> Option<Violation> {
        let parts: [(&'static str, Look); 7] = [
            ("requests", World::requests_are_answered),
            ("messages", World::messages_have_come),
            ("notifies", World::notifies_have_come),
            ("barriers", World::barriers_can_open),
            ("collected", World::output_has_come),
            ("leaks", World::nothing_waits),
            // What compares all hosts with all comes last.
            ("tables", World::tables_agree),
        ];
        parts.into_iter().find_map(|(invariant, part)| violation(invariant, part(self)))
    }

    /// What is still remembered of tasks that have gone.
    pub fn left_over(&mut self) -> Option<Violation> {
        if self.goes_on() {
            return violation("gone", Err(("there are still tasks".into(), Vec::new())));
        }
        violation("leaks", self.nothing_leaks())
    }

    /// What is still there after the machine's end.
    pub fn still_there(&self) -> Option<Violation> {
        violation("gone", self.everything_is_gone())
    }
}

fn violation(invariant: &'static str, result: Unsettled) -> Option<Violation> {
    result.err().map(|(text, hosts)| Violation { invariant, text, hosts })
}
