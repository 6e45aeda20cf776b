//! The order of messages in the queues and messages of the daemon.
//!
//! The daemon sends a task its own messages, such as output of other tasks, as frames on the control socket. What tasks of the
//! host, and the daemon on behalf of other hosts, queue to the task afterwards is received after those frames. So a sender
//! that sees in the port table that its peer has been sent such a frame first queues the number of that frame
//! ([`Kind::AfterFrame`]). The peer takes no entry behind that number before it has taken the frame.

use super::{Endpoint, Step};
use crate::arrival::Sink;
use crate::peer::Peer;
use crate::ports::ONLY;
use crate::queue::Kind;
use crate::{NoMemory, SendError};

/// The number of polls after which [`Endpoint::poll_all_through`] ends, even if a peer that breaks the rules goes on to write
/// entries with early stamps.
const POLLS_MAX: usize = 10_000;

/// How far an endpoint has taken the frames of the daemon.
#[derive(Default)]
pub(super) struct FrameOrder {
    /// The number of the last frame that was taken; `None` if this endpoint has no frames to wait for.
    pub taken: Option<u32>,
    /// Whether a queue was found stopped at an entry since the last poll of all queues began.
    pub stopped: bool,
    /// Whether one was since all queues were last read to their ends ([`Endpoint::poll_all_through`]).
    pub has_stopped: bool,
}

impl FrameOrder {
    /// Handles an entry of kind [`Kind::AfterFrame`]. `last`: the number of the last message of the daemon, which the sender
    /// has seen, too. A sender that names a later one breaks the rules, and must not hold up the messages of others.
    pub fn step(&mut self, number: u32, last: u32) -> Step {
        // The count wraps.
        let is_after = |other: u32| (number.wrapping_sub(other) as i32) > 0;
        if self.taken.is_some_and(is_after) {
            if is_after(last) {
                return Step::Damaged;
            }
            (self.stopped, self.has_stopped) = (true, true);
            return Step::Wait;
        }
        Step::Other
    }
}

impl Endpoint {
    /// Notes that this task has taken the next frame of the daemon.
    pub fn frame_taken(&mut self) {
        self.frame_order.taken = Some(self.frame_order.taken.unwrap_or(0).wrapping_add(1));
    }

    /// Notes that there will be no more frames.
    pub fn frames_ended(&mut self) {
        self.frame_order.taken = None;
    }

    /// Returns the number of the frame that is taken next.
    pub fn next_frame(&self) -> u32 {
        self.frame_order.taken.unwrap_or(0).wrapping_add(1)
    }

    /// Returns whether the last poll has found entries that wait for a frame of the daemon.
    #[inline]
    pub fn waits_for_frame(&self) -> bool {
        self.frame_order.stopped
    }

    /// Returns whether entries have waited for a frame since [`Endpoint::poll_all_through`] was called last. Then they, and what
    /// is behind them, may not have been read yet.
    pub fn has_waited_for_frame(&self) -> bool {
        self.frame_order.has_stopped
    }

    /// Passes to the sink everything that all peers have sent until now. Where an entry waits for a frame, it and all later
    /// ones stay.
    pub fn poll_all_through(&mut self, sink: &mut impl Sink) -> usize {
        self.frame_order.has_stopped = false;
        let (now, mut count) = (self.clock.next(), 0);
        for _ in 0..POLLS_MAX {
            let taken = self.poll_in_order(true, Some(now), sink);
            count += taken.messages;
            if taken.entries == 0 {
                break;
            }
        }
        count
    }

    /// Tells a peer which frame precedes the entries that follow, unless it knows.
    #[inline]
    pub(super) fn order_after_frames(&mut self, index: usize) -> Result<(), SendError> {
        let peer = self.peers[index].as_ref().expect("connected");
        if peer.is_in_order() { Ok(()) } else { self.queue_after_frame(index) }
    }

    #[cold]
    fn queue_after_frame(&mut self, index: usize) -> Result<(), SendError> {
        let peer = self.peers[index].as_mut().expect("connected");
        let frame = peer.last_message();
        // A second peer may have been introduced: this entry and all that follow have the time.
        let set_alone = |peer: &mut Peer, is_alone| {
            peer.out.iter_mut().for_each(|out| out.writer.set_alone(is_alone));
        };
        set_alone(peer, false);
        let mut words = [0u8; 24];
        words[..8].copy_from_slice(&(frame & !ONLY).to_ne_bytes());
        let queued = peer.push(self.tid, &self.heap, Kind::AfterFrame, &[0; 6], &words);
        queued.map_err(|NoMemory| SendError::NoMemory)?;
        peer.after_frame = frame;
        set_alone(peer, frame & ONLY != 0);
        Ok(())
    }
}
