//! Frames on the control link that come after messages.
//!
//! A frame on the control link may be the effect of messages in the flows of its host: a task sends a message, and then
//! puts an entry into a mailbox, arrives at a barrier, or sends a signal. So before such a frame the sender's daemon puts
//! a **fence** on both links ([`Frame::Fence`]) if anything was queued for that host since the last one. What is behind a
//! fence on the control link waits until the same fence has come in band, but for a silence limit at most: the rules of the
//! machine go on if the data do not.
use crate::wire::{self, Frame};
use std::collections::VecDeque;
use std::time::Duration;

/// The frames of one host that wait behind a fence.
///
/// * Filled by: each other host, while its data link is broken or slow
/// * Setting: none, the limit has no visible effect but the order
/// * Reached: the frames are handled; they may come before messages that were sent before them
/// * Test: `frames_that_wait_too_long_or_are_too_many_go_on`
pub const FENCED_BYTES_MAX: usize = 32 << 20;

/// The fences of one host, and the frames behind them.
#[derive(Default)]
pub(super) struct Fences {
    /// How many fences more have come in band than on the control link. It is negative if some were given up.
    ahead: i64,
    /// Each with the memory that it takes, in bytes. The first one is a fence, or may go on.
    waiting: VecDeque<(Frame, usize)>,
    waiting_bytes: usize,
    /// Since when the first fence waits.
    since: Duration,
}

impl Fences {
    /// Takes a frame of the control link. Returns it if nothing precedes it.
    pub fn take(&mut self, now: Duration, frame: Frame) -> Option<Frame> {
        if self.waiting.is_empty() || !frame.is_ordered() {
            match frame {
                Frame::Fence if self.ahead > 0 => self.ahead -= 1,
                Frame::Fence => {
                    self.since = now;
                    self.push(frame);
                }
                _ => return Some(frame),
            }
            return None;
        }
        self.push(frame);
        None
    }

    fn push(&mut self, frame: Frame) {
        let bytes = size_of::<Frame>() + wire::encode(&frame).len();
        self.waiting_bytes += bytes;
        self.waiting.push_back((frame, bytes));
    }

    fn pop(&mut self) -> Option<Frame> {
        let (frame, bytes) = self.waiting.pop_front()?;
        self.waiting_bytes -= bytes;
        Some(frame)
    }

    /// Notes that a fence has come in band.
    pub fn pass(&mut self) {
        self.ahead += 1;
    }

    /// Lets all frames that wait go on.
    pub fn give_up(&mut self) {
        for (frame, bytes) in std::mem::take(&mut self.waiting) {
            if frame == Frame::Fence {
                self.ahead -= 1;
                self.waiting_bytes -= bytes;
            } else {
                self.waiting.push_back((frame, bytes));
            }
        }
    }

    /// Lets all frames that wait go on if the first fence has waited for `patience`, or if they are too many. Returns whether
    /// they were waiting for messages.
    pub fn expire(&mut self, now: Duration, patience: Duration) -> bool {
        let waits = matches!(self.waiting.front(), Some((Frame::Fence, _))) && self.ahead <= 0;
        let gives_up = waits && (now >= self.since + patience || self.waiting_bytes > FENCED_BYTES_MAX);
        if gives_up {
            self.give_up();
        }
        gives_up
    }

    /// Returns the next waiting frame that nothing precedes any more.
    pub fn next(&mut self, now: Duration) -> Option<Frame> {
        while let Some((Frame::Fence, _)) = self.waiting.front() {
            if self.ahead <= 0 {
                return None;
            }
            self.ahead -= 1;
            self.since = now;
            self.pop();
        }
        self.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Message;
    use crate::tid::Tid;
    use crate::wire::{Backup, StartNews};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn frame(number: u32) -> Frame {
        Frame::Joined { hosts: vec![Tid(number)] }
    }

    fn taken(fences: &mut Fences, frame: Frame) -> Option<Frame> {
        fences.take(at(0), frame)
    }

    fn released(fences: &mut Fences) -> Vec<Frame> {
        std::iter::from_fn(|| fences.next(at(0))).collect()
    }

    #[test]
    fn frames_wait_for_the_fence_before_them() {
        let mut fences = Fences::default();
        assert_eq!(taken(&mut fences, frame(1)), Some(frame(1)));
        for frame in [Frame::Fence, frame(2), frame(3), Frame::Fence, frame(4)] {
            assert_eq!(taken(&mut fences, frame), None);
        }
        assert_eq!(released(&mut fences), []);
        fences.pass();
        assert_eq!(released(&mut fences), [frame(2), frame(3)]);
        assert_eq!(taken(&mut fences, frame(5)), None);
        fences.pass();
        assert_eq!(released(&mut fences), [frame(4), frame(5)]);
        assert_eq!(taken(&mut fences, frame(6)), Some(frame(6)));
    }

    #[test]
    fn a_fence_that_has_come_in_band_holds_nothing_up() {
        let mut fences = Fences::default();
        fences.pass();
        fences.pass();
        for _ in 0..2 {
            assert_eq!(taken(&mut fences, Frame::Fence), None);
            assert_eq!(taken(&mut fences, frame(1)), Some(frame(1)));
        }
        assert_eq!(taken(&mut fences, Frame::Fence), None);
        assert_eq!(taken(&mut fences, frame(2)), None);
    }

    /// A new data link must not wait for what waits for it. What is said about the deputy keeps its own order.
    #[test]
    fn frames_about_the_link_itself_or_the_deputy_never_wait() {
        let mut fences = Fences::default();
        taken(&mut fences, Frame::Fence);
        let of_link = [Frame::Beat, Frame::Suspect(Tid(1)), Frame::DataLost { number: 1 }];
        let host = Tid::host_number(2);
        let of_deputy = [
            Frame::Backup(Backup::Begin),
            Frame::BackupKept { number: 1 },
            Frame::Deputy { host },
            Frame::Depose { deputy: host, number: 1 },
            Frame::Deposed { number: 1 },
        ];
        for frame in of_link.into_iter().chain(of_deputy) {
            assert_eq!(taken(&mut fences, frame.clone()), Some(frame));
        }
    }

    /// Between two hosts that are busy, some frame may always wait.
    #[test]
    fn frames_that_went_on_do_not_count() {
        let mut fences = Fences::default();
        taken(&mut fences, Frame::Fence);
        let long = Frame::Deliver(Message::new(Tid(1), Tid(2), 0, 0, vec![0u8; FENCED_BYTES_MAX / 4]));
        for _ in 0..10 {
            for frame in [long.clone(), Frame::Fence] {
                assert_eq!(taken(&mut fences, frame), None);
            }
            fences.pass();
            assert_eq!(released(&mut fences), std::slice::from_ref(&long));
        }
        assert_eq!(taken(&mut fences, frame(1)), None);
        fences.pass();
        assert_eq!(released(&mut fences), [frame(1)]);
        assert_eq!(fences.waiting_bytes, 0);
    }

    #[test]
    fn frames_that_wait_too_long_or_are_too_many_go_on() {
        for waits_long in [true, false] {
            let mut fences = Fences::default();
            let long = Frame::GroupSeen { number: 1 };
            let log = Frame::StartNews { number: 1, news: StartNews::TooMuch };
            for frame in [Frame::Fence, long.clone(), Frame::Fence, log.clone()] {
                assert_eq!(fences.take(at(1), frame), None);
            }
            assert!(!fences.expire(at(10), at(10)));
            let mut expected = vec![long, log];
            if waits_long {
                assert!(fences.expire(at(11), at(10)));
            } else {
                let big = Frame::Deliver(Message::new(Tid(1), Tid(2), 0, 0, vec![0u8; FENCED_BYTES_MAX]));
                assert_eq!(fences.take(at(1), big.clone()), None);
                assert!(fences.expire(at(1), at(10)));
                expected.push(big);
            }
            assert_eq!(released(&mut fences), expected);
            // The next fence waits for its own one in band, not for those that were given up.
            assert_eq!(taken(&mut fences, Frame::Fence), None);
            assert_eq!(taken(&mut fences, frame(3)), None);
            fences.pass();
            fences.pass();
            assert_eq!(released(&mut fences), []);
            fences.pass();
            assert_eq!(released(&mut fences), [frame(3)]);
            assert!(!fences.expire(at(100), at(10)));
        }
    }
}
