//! `--deadlock`: looks from time to time whether tasks of the run can never go on.
use crate::look::Looker;
use crate::why::{Found, LOOKS_MAX, PAUSE};
use pvm_core::proto::Host;
use pvm_core::tid::Tid;
use pvm_core::waiting::{Look, report};
use pvm_task::Session;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The time between two examinations.
const REST: Duration = Duration::from_secs(5);

/// Looks at the machine while the run goes on.
pub struct Lookout {
    looker: Looker,
    /// The last look of this examination, and how many pairs it has compared.
    earlier: Option<Look>,
    looks: usize,
    /// The tasks that were said to be stuck.
    said: BTreeSet<Tid>,
}

impl Lookout {
    /// Begins to watch a run that starts now.
    pub fn new(now: Instant) -> Lookout {
        Lookout { looker: Looker::Rests(now + REST), earlier: None, looks: 0, said: BTreeSet::new() }
    }

    /// Returns when [`Lookout::proceed`] has something to do, even if no answer comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.looker.deadline()
    }

    /// Proceeds. Returns what is known of tasks of the run that can never go on, if there are some of which that was not said.
    pub fn proceed(&mut self, session: &mut Session, tasks: &BTreeSet<Tid>, now: Instant) -> Option<Found> {
        let (look, hosts) = self.looker.proceed(session, now, REST)?;
        self.compare(look, hosts, tasks, now)
    }

    /// Compares a look with the one before.
    fn compare(&mut self, look: Look, hosts: Vec<Host>, tasks: &BTreeSet<Tid>, now: Instant) -> Option<Found> {
        let Some(earlier) = self.earlier.take() else {
            (self.earlier, self.looker) = (Some(look), Looker::Rests(now + PAUSE));
            return None;
        };
        self.looks += 1;
        let pair = [earlier, look];
        let report = report(&pair);
        if report.is_unsure && self.looks + 1 < LOOKS_MAX {
            let [_, look] = pair;
            (self.earlier, self.looker) = (Some(look), Looker::Rests(now + PAUSE));
            return None;
        }
        self.looks = 0;
        let found = Found::stuck(report, hosts, tasks)?;
        let is_new = !found.shown().is_subset(&self.said);
        self.said.extend(found.shown());
        is_new.then_some(found)
    }
}
