//! What was sent to a task by the default route: whether a lane would have been worth its cost.
//!
//! A message by the default route wakes two daemons, one after the other, so a lane is faster for tasks that wait for each
//! other. To make one costs both tasks and both daemons about as much as [`USUAL_COST`] messages, and nobody knows how
//! much a program is going to send. So a task asks for a lane once it has sent as much as the lane costs: it then never
//! pays more than twice what would have been best (the rule of the ski rental problem).
//!
//! Short messages in a burst are different. On a TCP connection, each is a system call of both tasks; the daemons take many
//! at once, while the task goes on. So they do not count, and a task that sends a long burst on a connection leaves it.
use crate::time::Time;
use std::ops::Range;
use std::time::Duration;

/// The cost of a lane, in short messages by the default route.
pub(super) const USUAL_COST: u32 = 32;
/// A message by the default route costs as much as a short one more for each this many bytes of its body.
const BYTES_OF_ONE: usize = 16 << 10;
/// Messages of fewer bytes are short.
const SHORT_BYTES: usize = 4 << 10;
/// Short messages by the default route are a burst if less time lies between them: about what a system call costs that
/// sends one on a connection.
const BURST_PAUSE: Duration = Duration::from_micros(10);
/// After this many short messages in one burst, a task leaves the connection.
const BURST_MAX: u32 = 64;

/// Tells bursts of short messages to a task from other messages.
#[derive(Debug, Clone, Default)]
pub struct Bursts {
    /// When the last message had been sent.
    last: Option<Time>,
    /// The number of messages of the burst.
    count: u32,
}

impl Bursts {
    /// Notes a message of `bytes` bytes, and when it was sent. Returns whether it belongs to a burst: if the task did
    /// something else for less than `pause` before.
    fn note(&mut self, bytes: usize, sent: Range<Time>, pause: Duration) -> bool {
        let is_close = |last: Time| bytes < SHORT_BYTES && sent.start.saturating_sub(last) < pause;
        let is_in_burst = self.last.replace(sent.end).is_some_and(is_close);
        self.count = if is_in_burst { self.count + 1 } else { 0 };
        is_in_burst
    }

    /// Notes a message on a connection. In a burst, the task does less than sending between two messages. If tasks answer
    /// each other, the time between two messages is longer, since the peer sends meanwhile.
    pub fn note_on_lane(&mut self, bytes: usize, sent: Range<Time>) {
        let pause = sent.end.saturating_sub(sent.start);
        self.note(bytes, sent, pause);
    }

    /// Returns whether the burst is so long that the daemons should take it.
    pub fn is_long(&self) -> bool {
        self.count >= BURST_MAX
    }
}

/// What was sent by the default route to a task since a lane to it was last requested.
#[derive(Debug, Clone, Default)]
pub(super) struct Traffic {
    cost: u32,
    messages: u32,
    bursts: Bursts,
}

impl Traffic {
    /// Counts a message of `bytes` bytes.
    pub fn count(&mut self, bytes: usize, now: Time) {
        self.messages = self.messages.saturating_add(1);
        if !self.bursts.note(bytes, now..now, BURST_PAUSE) {
            let cost = u32::try_from(bytes / BYTES_OF_ONE).unwrap_or(u32::MAX);
            self.cost = self.cost.saturating_add(1).saturating_add(cost);
        }
    }

    /// Returns what the messages outside of bursts have cost, in short messages.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// Returns the number of all messages.
    pub fn messages(&self) -> u32 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_bytes_cost() {
        let (mut traffic, mut now) = (Traffic::default(), Time::ZERO);
        for number in 1..=USUAL_COST {
            now += BURST_PAUSE;
            traffic.count(100, now);
            assert_eq!((traffic.cost(), traffic.messages()), (number, number));
        }
        let mut long = Traffic::default();
        long.count(USUAL_COST as usize * BYTES_OF_ONE, now);
        assert_eq!((long.cost(), long.messages()), (USUAL_COST + 1, 1));
        (0..100).for_each(|_| long.count(usize::MAX, now));
        assert_eq!(long.cost(), u32::MAX);
    }

    #[test]
    fn short_messages_of_a_burst_do_not_cost() {
        let (mut traffic, mut now) = (Traffic::default(), Time::ZERO);
        for _ in 0..1000 {
            now += BURST_PAUSE / 2;
            traffic.count(SHORT_BYTES - 1, now);
        }
        assert_eq!((traffic.cost(), traffic.messages()), (1, 1000));
        traffic.count(SHORT_BYTES, now);
        assert_eq!(traffic.cost(), 2, "a longer message is none of a burst");
    }

    #[test]
    fn a_long_burst_on_a_connection_is_noticed_and_answers_are_none() {
        let (mut burst, mut answers, mut now) = (Bursts::default(), Bursts::default(), Time::ZERO);
        let time = Duration::from_micros(8);
        for number in 0..=2 * BURST_MAX {
            burst.note_on_lane(100, now..now + time);
            assert_eq!(burst.is_long(), number >= BURST_MAX);
            now += time + time / 2;
        }
        for _ in 0..=2 * BURST_MAX {
            answers.note_on_lane(100, now..now + time);
            assert!(!answers.is_long());
            now += 3 * time;
        }
    }
}
