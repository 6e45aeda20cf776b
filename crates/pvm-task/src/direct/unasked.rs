//! Direct links for which no program has asked (`PvmAllowDirect`).
//!
//! A message by the default route wakes two daemons, one after the other, so a link is faster for tasks that wait for each
//! other. To make one costs both tasks and both daemons about as much as [`USUAL_COST`] messages, and nobody knows how
//! much a program is going to send. So a task asks for a link once it has sent as much as the link costs: it then never
//! pays more than twice what would have been best (the rule of the ski rental problem).
//!
//! Short messages in a burst are different. On a link, each is a system call of both tasks; the daemons take many at once,
//! while the task goes on. So they do not count, and a task that sends a long burst on a link leaves it.
use pvm_core::tid::Tid;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The cost of a link, in short messages by the default route.
const USUAL_COST: u32 = 32;
/// A message by the default route costs as much as a short one more for each this many bytes of its body.
const BYTES_OF_ONE: usize = 16 << 10;
/// Messages of fewer bytes are short.
const SHORT_BYTES: usize = 4 << 10;
/// Short messages by the default route are a burst if less time lies between them: about what a system call costs that
/// sends one on a link.
const BURST_PAUSE: Duration = Duration::from_micros(10);
/// After this many short messages in one burst, a task leaves the link.
const BURST_MAX: u32 = 64;

/// Peers whose messages are counted, and peers with pauses between requests for links. A task is not told of the ends of
/// all tasks to which it has sent something.
///
/// * Filled by: the program, which sends to tasks of other hosts
/// * Setting: none, since counting begins anew
/// * Reached: all counts and pauses begin anew
/// * Test: `the_number_of_peers_is_limited`
pub(crate) const PEERS_MAX: usize = 4096;

/// Tells bursts of short messages to a task from other messages.
#[derive(Default)]
pub(super) struct Bursts {
    /// When the last message had been sent.
    last: Option<Instant>,
    /// The number of messages of the burst.
    count: u32,
}

impl Bursts {
    /// Notes a message of `bytes` bytes, and when it was sent. Returns whether it belongs to a burst: if the task did
    /// something else for less than `pause` before.
    fn note(&mut self, bytes: usize, sent: Range<Instant>, pause: Duration) -> bool {
        let is_close = |last: Instant| bytes < SHORT_BYTES && sent.start.duration_since(last) < pause;
        let is_in_burst = self.last.replace(sent.end).is_some_and(is_close);
        self.count = if is_in_burst { self.count + 1 } else { 0 };
        is_in_burst
    }

    /// Notes a message on a link. In a burst, the task does less than sending between two messages. If tasks answer each
    /// other, the time between two messages is longer, since the peer sends meanwhile.
    pub fn note_on_link(&mut self, bytes: usize, sent: Range<Instant>) {
        let pause = sent.end - sent.start;
        self.note(bytes, sent, pause);
    }

    /// Returns whether the burst is so long that the daemons should take it.
    pub fn is_long(&self) -> bool {
        self.count >= BURST_MAX
    }
}

/// What a task has sent by the default route to a task to which no link was requested since.
#[derive(Default)]
struct Sent {
    cost: u32,
    bursts: Bursts,
}

/// What a task has sent by the default route to tasks of other hosts.
pub(super) struct Unasked {
    /// From which cost on a task asks for a link; `None` if only the program does.
    cost_min: Option<u32>,
    sent: HashMap<Tid, Sent>,
}

impl Default for Unasked {
    fn default() -> Unasked {
        let set = std::env::var("HPVM_DIRECT_AFTER").ok();
        Unasked { cost_min: cost_min(set.as_deref()), sent: HashMap::new() }
    }
}

/// Returns from which cost on a task asks for a link, as the user has set it.
fn cost_min(set: Option<&str>) -> Option<u32> {
    match set {
        Some("off") => None,
        set => Some(set.and_then(|number| number.parse().ok()).unwrap_or(USUAL_COST)),
    }
}

impl Unasked {
    /// Counts a message of `bytes` bytes to a task of another host.
    pub fn count(&mut self, to: Tid, bytes: usize, now: Instant) {
        if self.cost_min.is_some() {
            if self.sent.len() >= PEERS_MAX && !self.sent.contains_key(&to) {
                self.sent.clear();
            }
            let sent = self.sent.entry(to).or_default();
            if !sent.bursts.note(bytes, now..now, BURST_PAUSE) {
                let cost = u32::try_from(bytes / BYTES_OF_ONE).unwrap_or(u32::MAX);
                sent.cost = sent.cost.saturating_add(1).saturating_add(cost);
            }
        }
    }

    /// Returns whether so much was sent to a task that a link would have been worth its cost.
    pub fn is_enough(&self, to: Tid) -> bool {
        self.cost_min.is_some_and(|min| self.sent.get(&to).is_some_and(|sent| sent.cost >= min))
    }

    /// Forgets what was sent to a task that is asked for a link, or that has ended.
    pub fn forget(&mut self, peer: Tid) {
        self.sent.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fallback::{Backoff, Backoffs};
    use super::*;

    const OFTEN: Tid = Tid(0x80001);

    fn unasked(set: Option<&str>) -> Unasked {
        Unasked { cost_min: cost_min(set), sent: HashMap::new() }
    }

    #[test]
    fn a_link_is_worth_its_cost_after_as_many_messages_or_bytes() {
        let (long, seldom) = (Tid(0x80002), Tid(0x80003));
        let (mut unasked, mut now) = (unasked(None), Instant::now());
        for number in 1..=USUAL_COST {
            now += BURST_PAUSE;
            unasked.count(OFTEN, 100, now);
            assert_eq!(unasked.is_enough(OFTEN), number == USUAL_COST);
        }
        unasked.count(long, USUAL_COST as usize * BYTES_OF_ONE, now);
        unasked.count(seldom, 1000, now);
        assert!(unasked.is_enough(long) && !unasked.is_enough(seldom));
        unasked.forget(long);
        assert!(!unasked.is_enough(long));
    }

    #[test]
    fn short_messages_in_a_burst_do_not_count() {
        let (mut unasked, now) = (unasked(None), Instant::now());
        (0..1000).for_each(|_| unasked.count(OFTEN, 100, now));
        assert!(!unasked.is_enough(OFTEN));
        (0..8).for_each(|_| unasked.count(OFTEN, 4 * BYTES_OF_ONE, now));
        assert!(unasked.is_enough(OFTEN), "long ones do");
    }

    #[test]
    fn a_long_burst_on_a_link_is_noticed_until_it_ends() {
        let (mut bursts, mut now) = (Bursts::default(), Instant::now());
        let us = Duration::from_micros;
        // The time of a send, the time before the next one, the length of the messages, and whether that is a burst.
        let cases = [(4, 3, 8, true), (4, 5, 8, false), (9, 8, 8, true), (4, 0, SHORT_BYTES, false)];
        for (sending, pause, bytes, is_burst) in cases {
            for number in 0..=BURST_MAX {
                assert!(!bursts.is_long(), "{sending} {pause} {bytes} {number}");
                now += us(pause);
                bursts.note_on_link(bytes, now..now + us(sending));
                now += us(sending);
            }
            assert_eq!(bursts.is_long(), is_burst, "{sending} {pause} {bytes}");
            now += us(100);
            bursts.note_on_link(bytes, now..now);
            now += us(100);
        }
    }

    #[test]
    fn the_number_of_peers_is_limited() {
        let (mut unasked, now) = (unasked(None), Instant::now());
        for number in 0..3 * PEERS_MAX as u32 {
            unasked.count(Tid(0x80001 + number), 8, now);
            assert!(unasked.sent.len() <= PEERS_MAX);
        }
        assert!(unasked.sent.len() > PEERS_MAX / 2);
        let mut backoffs = Backoffs::default();
        backoffs.of(OFTEN).requested();
        for number in 1..=PEERS_MAX as u32 + 5 {
            backoffs.of(Tid(OFTEN.0 + number)).on_break();
        }
        // The link that is open is not forgotten.
        assert!(backoffs.get(OFTEN).is_some_and(Backoff::is_requested) && backoffs.get(Tid(OFTEN.0 + 1)).is_none());
        assert!(backoffs.get(Tid(OFTEN.0 + PEERS_MAX as u32 + 5)).is_some());
    }

    #[test]
    fn the_cost_can_be_set() {
        assert_eq!(["off", "7", "many"].map(|text| cost_min(Some(text))), [None, Some(7), Some(USUAL_COST)]);
        let mut never = unasked(Some("off"));
        (0..100).for_each(|_| never.count(OFTEN, usize::MAX, Instant::now()));
        assert!(!never.is_enough(OFTEN) && never.sent.is_empty());
    }
}
