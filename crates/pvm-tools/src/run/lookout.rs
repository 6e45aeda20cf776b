//! `--deadlock`: looks from time to time whether tasks of the run can never go on.
use crate::look::Pending;
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
    stage: Stage,
    /// The last look of this examination, and how many pairs it has compared.
    earlier: Option<Look>,
    looks: usize,
    /// The tasks that were said to be stuck.
    said: BTreeSet<Tid>,
}

enum Stage {
    /// The next look is taken then.
    Rests(Instant),
    Looks(Pending),
}

impl Lookout {
    /// Begins to watch a run that starts now.
    pub fn new(now: Instant) -> Lookout {
        Lookout { stage: Stage::Rests(now + REST), earlier: None, looks: 0, said: BTreeSet::new() }
    }

    /// Returns when [`Lookout::proceed`] has something to do, even if no answer comes.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Rests(until) => Some(*until),
            Stage::Looks(pending) => pending.deadline(),
        }
    }

    /// Proceeds. Returns what is known of tasks of the run that can never go on, if there are some of which that was not said.
    pub fn proceed(&mut self, session: &mut Session, tasks: &BTreeSet<Tid>, now: Instant) -> Option<Found> {
        match std::mem::replace(&mut self.stage, Stage::Rests(now + REST)) {
            Stage::Rests(until) if now < until => self.stage = Stage::Rests(until),
            Stage::Rests(_) => {
                if let Some(pending) = Pending::begin(session) {
                    self.stage = Stage::Looks(pending);
                }
            }
            Stage::Looks(pending) => match pending.proceed(session, now)? {
                Err(pending) => self.stage = Stage::Looks(pending),
                Ok((look, hosts)) => return self.compare(look, hosts, tasks, now),
            },
        }
        None
    }

    /// Compares a look with the one before.
    fn compare(&mut self, look: Look, hosts: Vec<Host>, tasks: &BTreeSet<Tid>, now: Instant) -> Option<Found> {
        let Some(earlier) = self.earlier.take() else {
            (self.earlier, self.stage) = (Some(look), Stage::Rests(now + PAUSE));
            return None;
        };
        self.looks += 1;
        let pair = [earlier, look];
        let report = report(&pair);
        if report.is_unsure && self.looks + 1 < LOOKS_MAX {
            let [_, look] = pair;
            (self.earlier, self.stage) = (Some(look), Stage::Rests(now + PAUSE));
            return None;
        }
        self.looks = 0;
        let found = Found::stuck(report, hosts, tasks)?;
        let is_new = !found.shown().is_subset(&self.said);
        self.said.extend(found.shown());
        is_new.then_some(found)
    }
}
