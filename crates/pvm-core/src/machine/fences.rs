//! Frames on the control link that come after messages.
//!
//! A frame on the control link may be the effect of messages in the flows of its host: a task sends a message, and then
//! puts an entry into a mailbox, arrives at a barrier, or sends a signal. So before such a frame the sender's daemon puts
//! a **fence** on both links ([`Frame::Fence`]) if anything was queued for that host since the last one. What is behind a
//! fence on the control link waits until the same fence has come in band.
use crate::flows::ProtocolViolation;
use crate::wire::{self, Frame};
use std::collections::VecDeque;

/// The frames of one host that wait behind a fence.
///
/// * Filled by: each other host, while its data link is broken or slow
/// * Setting: none, a living host's data link is remade or the host is lost
/// * Reached: the link to the host is closed, and the host is lost
/// * Test: `frames_behind_a_fence_are_limited`
pub const FENCED_BYTES_MAX: usize = 256 << 20;

/// The fences of one host, and the frames behind them.
#[derive(Default)]
pub(super) struct Fences {
    /// How many fences have come in band, and not yet on the control link.
    ahead: u64,
    /// The first one is a fence.
    waiting: VecDeque<Frame>,
    waiting_bytes: usize,
}

impl Fences {
    /// Takes a frame of the control link. Returns it if nothing precedes it.
    ///
    /// # Errors
    ///
    /// The host has sent too much behind a fence.
    pub fn take(&mut self, frame: Frame) -> Result<Option<Frame>, ProtocolViolation> {
        if self.waiting.is_empty() || !frame.is_ordered() {
            match frame {
                Frame::Fence if self.ahead > 0 => self.ahead -= 1,
                Frame::Fence => self.waiting.push_back(frame),
                _ => return Ok(Some(frame)),
            }
            return Ok(None);
        }
        self.waiting_bytes += wire::encode(&frame).len();
        self.waiting.push_back(frame);
        if self.waiting_bytes > FENCED_BYTES_MAX { Err(ProtocolViolation) } else { Ok(None) }
    }

    /// Notes that a fence has come in band.
    pub fn pass(&mut self) {
        self.ahead += 1;
    }

    /// Returns the next waiting frame that nothing precedes any more.
    pub fn next(&mut self) -> Option<Frame> {
        while let Some(Frame::Fence) = self.waiting.front() {
            self.ahead = self.ahead.checked_sub(1)?;
            self.waiting.pop_front();
        }
        let frame = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.waiting_bytes = 0;
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tid::Tid;

    fn frame(number: u32) -> Frame {
        Frame::Joined { hosts: vec![Tid(number)] }
    }

    fn taken(fences: &mut Fences, frame: Frame) -> Option<Frame> {
        fences.take(frame).unwrap()
    }

    #[test]
    fn frames_wait_for_the_fence_before_them() {
        let mut fences = Fences::default();
        assert_eq!(taken(&mut fences, frame(1)), Some(frame(1)));
        for frame in [Frame::Fence, frame(2), frame(3), Frame::Fence, frame(4)] {
            assert_eq!(taken(&mut fences, frame), None);
        }
        assert_eq!(fences.next(), None);
        fences.pass();
        assert_eq!([fences.next(), fences.next(), fences.next()], [Some(frame(2)), Some(frame(3)), None]);
        assert_eq!(taken(&mut fences, frame(5)), None);
        fences.pass();
        assert_eq!([fences.next(), fences.next(), fences.next()], [Some(frame(4)), Some(frame(5)), None]);
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

    /// A new data link must not wait for what waits for it.
    #[test]
    fn frames_about_the_link_itself_never_wait() {
        let mut fences = Fences::default();
        taken(&mut fences, Frame::Fence);
        for frame in [Frame::Beat, Frame::Suspect(Tid(1)), Frame::DataLost { number: 1 }] {
            assert_eq!(taken(&mut fences, frame.clone()), Some(frame));
        }
    }

    #[test]
    fn frames_behind_a_fence_are_limited() {
        let mut fences = Fences::default();
        let log = Frame::Log { tid: Tid(1), line: vec![0; FENCED_BYTES_MAX / 2] };
        assert_eq!(taken(&mut fences, log.clone()), Some(log.clone()));
        taken(&mut fences, Frame::Fence);
        assert!(fences.take(log.clone()).is_ok());
        assert!(fences.take(log).is_err());
    }
}
