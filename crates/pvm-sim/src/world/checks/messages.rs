//! Invariant: messages between living tasks arrive once, in order, and whole.
use super::{Checks, Unsettled};
use crate::ids::TaskId;
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::{HashMap, HashSet};

/// How many messages a task has sent to another, and how many have arrived.
#[derive(Default, Clone, Copy)]
struct Count {
    sent: u64,
    came: u64,
}

/// All messages between tasks.
#[derive(Default)]
pub struct Messages {
    /// The counts, by receiver and sender.
    counts: HashMap<(Tid, Tid), Count>,
    /// The pairs of receiver and sender in which the receiver knows that the sender has ended.
    ended: HashSet<(Tid, Tid)>,
}

impl Checks {
    /// Notes that a task has sent a message to another. Returns the number of the message. The messages from one task
    /// to another are counted from 1.
    pub fn sent(&mut self, src: Tid, dst: Tid) -> u64 {
        let count = self.messages.counts.entry((dst, src)).or_default();
        count.sent += 1;
        count.sent
    }

    /// Notes that a message has arrived.
    pub fn message(&mut self, src: Tid, dst: Tid, number: Option<u64>) {
        let count = self.messages.counts.entry((dst, src)).or_default();
        let wanted = count.came + 1;
        let late = self.messages.ended.contains(&(dst, src));
        count.came = wanted;
        if number != Some(wanted) {
            let text = format!("{dst} got message {number:?} of {src} where {wanted} was to come");
            self.fail("messages", &text, &[src, dst]);
        } else if late {
            let text = format!("{dst} got message {wanted} of {src} after the news of its end");
            self.fail("messages", &text, &[src, dst]);
        }
    }

    /// Notes that a task has learnt that another task has ended.
    pub fn learnt_of_end(&mut self, dst: Tid, src: Tid) {
        self.messages.ended.insert((dst, src));
    }
}

impl World {
    /// Checks that all messages between tasks of living hosts have arrived.
    pub fn messages_arrived(&self) -> Unsettled {
        let missing = |((dst, src), count): &(&(Tid, Tid), &Count)| {
            let receives = |task: &TaskId| self.tasks[*task].is_enrolled() && self.in_machine(*task);
            count.sent != count.came
                && self.by_tid.get(dst).is_some_and(receives)
                && self.by_tid.get(src).is_some_and(|task| self.in_machine(*task))
        };
        // Take the least pair, so that all runs with the same seed report the same pair.
        let first = self.checks.messages.counts.iter().filter(missing).min_by_key(|(pair, _)| **pair);
        let Some(((dst, src), count)) = first else { return Ok(()) };
        let text = format!("{dst} has {} of {} messages of {src}", count.came, count.sent);
        Err((text, vec![src.host(), dst.host()]))
    }
}
