//! What living tasks send to each other comes once, in order, and whole.
use super::{Checks, Unsettled};
use crate::world::World;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

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
    counts: BTreeMap<(Tid, Tid), Count>,
    /// Receivers who know that the sender is no more.
    ended: BTreeSet<(Tid, Tid)>,
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
        for ((dst, src), count) in self.checks.messages.counts.iter().filter(|(_, count)| count.sent != count.came) {
            let receives =
                self.by_tid.get(dst).is_some_and(|task| self.tasks[*task].is_enrolled() && self.in_machine(*task));
            let goes_out = self.by_tid.get(src).is_some_and(|task| self.in_machine(*task));
            if receives && goes_out {
                let text = format!("{dst} has {} of {} messages of {src}", count.came, count.sent);
                return Err((text, vec![src.host(), dst.host()]));
            }
        }
        Ok(())
    }
}
