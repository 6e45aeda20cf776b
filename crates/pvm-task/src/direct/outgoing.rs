//! The message that is being written to a direct link, in frames.
use super::Body;
use super::frames::{CHUNK_BYTES_MAX, Frame};
use pvm_core::flows::pacing::SendLimit;
use pvm_fmp::Meta;
use pvm_net::{Lead, LinkError};
use std::collections::VecDeque;
use std::ops::Range;

/// The most frames of a message that are written by one system call. Fewer, longer writes end with fewer short packets.
const FRAMES_MAX: usize = 4;

/// A frame of the message.
struct OutgoingFrame {
    lead: Lead,
    /// The part of the body that is in the frame.
    range: Range<usize>,
}

/// How far the next message has been written.
#[derive(Default)]
pub(super) struct Outgoing {
    /// The frame that is being written, and the frames behind it that the last write could have begun.
    frames: VecDeque<OutgoingFrame>,
    /// How many bytes of the first frame have been written.
    written: usize,
    /// Where in the body the first frame begins.
    at: usize,
    /// Whether a frame of the message has been written.
    has_begun: bool,
}

impl Outgoing {
    /// Returns whether a frame has been written in part.
    pub fn is_in_frame(&self) -> bool {
        self.written > 0
    }

    /// Returns whether no byte of the message has been written.
    pub fn is_new(&self) -> bool {
        !self.has_begun && self.written == 0
    }

    /// Plans the next frames of the message. `received`: how many messages this side has received. Returns `false` if
    /// nothing of the message may be sent before a grant.
    pub fn plan(&mut self, meta: Meta, bytes: usize, received: u32, limit: &SendLimit) -> bool {
        self.frames.truncate(usize::from(self.is_in_frame()));
        let mut at = self.frames.front().map_or(self.at, |frame| frame.range.end);
        // The bytes of the frame that has been begun have been counted.
        let mut room = limit.room(bytes);
        let mut is_first = self.is_new();
        while self.frames.len() < FRAMES_MAX && (is_first || (at < bytes && room > 0)) {
            let count = (bytes - at).min(CHUNK_BYTES_MAX).min(room);
            let frame = match is_first {
                true => Frame::Message { meta, received, bytes, first: count },
                false => Frame::Continuation { bytes: count },
            };
            self.frames.push_back(OutgoingFrame { lead: frame.lead(), range: at..at + count });
            (at, room, is_first) = (at + count, room - count, false);
        }
        !self.frames.is_empty()
    }

    /// Passes the planned bytes to `write`, where they lie.
    pub fn write_planned(
        &self,
        body: Body<'_>,
        write: impl FnOnce(&[&[u8]]) -> Result<usize, LinkError>,
    ) -> Result<usize, LinkError> {
        let mut skip = self.written;
        let pieces = self.frames.iter().map(|frame| {
            let lead = frame.lead.as_slice();
            let of_lead = skip.min(lead.len());
            let of_body = std::mem::take(&mut skip) - of_lead;
            (&lead[of_lead..], frame.range.start + of_body..frame.range.end)
        });
        body.with_pieces(pieces, write)
    }

    /// Notes that the connection has taken bytes of the planned frames. Counts the bytes of the frames that are thereby
    /// begun. Returns whether the message is complete.
    pub fn advance(&mut self, mut count: usize, bytes: usize, limit: &mut SendLimit) -> bool {
        while let Some(frame) = self.frames.front().filter(|_| count > 0) {
            if self.written == 0 {
                limit.count(bytes, frame.range.len());
            }
            let left = frame.lead.as_slice().len() + frame.range.len() - self.written;
            if count < left {
                self.written += count;
                return false;
            }
            count -= left;
            (self.written, self.at, self.has_begun) = (0, frame.range.end, true);
            self.frames.pop_front();
        }
        if self.at < bytes || !self.has_begun {
            return false;
        }
        (self.at, self.has_begun) = (0, false);
        self.frames.clear();
        true
    }
}
