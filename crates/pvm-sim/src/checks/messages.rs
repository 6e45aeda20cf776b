//! What living tasks send to each other comes once, in order, and whole.
use super::{Checks, Unsettled};
use crate::program::TaskId;
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::{HashMap, HashSet};

/// How many messages a task has sent to another, and how many have come.
#[derive(Default, Clone, Copy)]
struct Count {
    sent: u64,
    came: u64,
}

/// All messages between tasks.
#[derive(Default)]
pub struct Messages {
    /// By receiver and sender.
    counts: HashMap<(Tid, Tid), Count>,
    /// Receivers who know that the sender is no more.
    ended: HashSet<(Tid, Tid)>,
}

impl Checks {
    /// A task has sent a message to another; which one from it to that one it is.
    pub fn sent(&mut self, src: Tid, dst: Tid) -> u64 {
        let count = self.messages.counts.entry((dst, src)).or_default();
        count.sent += 1;
        count.sent
    }

    /// A message has come.
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

    /// A task has heard of the end of another.
    pub fn heard_of_end(&mut self, dst: Tid, src: Tid) {
        self.messages.ended.insert((dst, src));
    }
}

impl World {
    /// Everything that was sent between tasks of hosts that live has come.
    pub fn messages_have_come(&self) -> Unsettled {
        let missing = |((dst, src), count): &(&(Tid, Tid), &Count)| {
            let receives = |task: &TaskId| self.tasks[*task].is_enrolled() && self.in_machine(*task);
            count.sent != count.came
                && self.by_tid.get(dst).is_some_and(receives)
                && self.by_tid.get(src).is_some_and(|task| self.in_machine(*task))
        };
        // The same one in each run.
        let first = self.checks.messages.counts.iter().filter(missing).min_by_key(|(pair, _)| **pair);
        let Some(((dst, src), count)) = first else { return Ok(()) };
        let text = format!("{dst} has {} of {} messages of {src}", count.came, count.sent);
        Err((text, vec![src.host(), dst.host()]))
    }
}
