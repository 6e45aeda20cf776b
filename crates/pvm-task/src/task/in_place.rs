//! One-call receives of long messages from a fabric: the body arrives in its place.
use super::Task;
use crate::envelope::Envelope;
use crate::fabric::route::{SPIN_TIME, time_for};
use crate::target::Target;
use crate::types::{Delivered, Filter, Kind};
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use std::time::{Duration, Instant};

/// Only a receive with memory for at least this many bytes is posted: shorter bodies travel in frames.
const ROOM_BYTES_MIN: usize = 4 << 10;
/// While a body comes in frames, the receive waits for the next one for this time. The rest of it may come much later: its
/// sender may compute before it sends more.
const FRAME_TIME: Duration = Duration::from_millis(1);
/// While a body arrives, the task looks at this interval for what arrives by other ways.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Task {
    /// Receives a long message from a fabric straight into the target's memory, if it is the next one that the filter
    /// accepts. Waits for its end once it has begun to arrive.
    pub(crate) fn deliver_in_place<T: Target + ?Sized>(
        &mut self,
        filter: &Filter,
        kind: Kind,
        target: &mut T,
    ) -> Option<Delivered> {
        self.member.as_ref().filter(|member| member.fabric.is_active())?;
        let room = target.room().filter(|room| room.len() >= ROOM_BYTES_MIN)?;
        if self.state.handlers.may_intercept() || self.state.output.collects_any() {
            return None;
        }
        let member = self.member.as_mut()?;
        member.check_before_fabric();
        // The fabric is asked with the memory at hand.
        member.fabric.was_polled = true;
        // What has arrived before is before it in the queue.
        let others = member.progress_direct_links(&mut self.state, 1, true);
        if others > 0 {
            self.note(others, 0);
            return self.deliver_queued(filter, kind, target);
        }
        let (lender, room_bytes) = (member.fabric.lender()?, room.len());
        let found = lender.lend(
            room,
            self,
            |task| task.member.iter_mut().for_each(|member| member.fabric.discard()),
            |task| task.fill(filter, room_bytes),
        );
        let member = self.member.as_mut()?;
        member.fabric.was_polled = true;
        let others = member.deliver_from_fabric(&mut self.state);
        let Some((peer, meta, bytes)) = found else {
            return match others {
                0 => None,
                _ => {
                    self.note(others, 0);
                    self.deliver_queued(filter, kind, target)
                }
            };
        };
        let envelope = Envelope::new(peer.0, self.own_tid(), meta);
        self.reveal_all();
        self.note(others, 0);
        Some(envelope.delivered(bytes))
    }

    /// Polls the fabric for a posted receive, until its body has arrived if it has begun to.
    fn fill(&mut self, filter: &Filter, room: usize) -> Option<(Tid, Meta, usize)> {
        let member = self.member.as_mut()?;
        member.fabric.post(filter);
        member.fabric.poll();
        if let Some((from, bytes)) = member.fabric.filling() {
            // The peer may have offered a first piece only. Whoever has called waits for the rest in any case.
            member.fabric.want(from, filter, room);
            self.wait_until_filled(time_for(bytes));
        }
        let member = self.member.as_mut()?;
        member.fabric.end_posted(filter, room)
    }

    /// Polls until the body has arrived, or cannot arrive any more, but at most for this time. If it comes in frames, only as
    /// long as they come one soon after the other.
    fn wait_until_filled(&mut self, limit: Duration) {
        let begun = Instant::now();
        let (mut looked, mut moved, mut copied) = (begun, begun, None);
        while let Some(member) = self.member.as_mut().filter(|member| member.fabric.filling().is_some()) {
            let now = Instant::now();
            if now - begun > limit {
                return;
            }
            let copied_now = member.fabric.copied();
            if copied_now != copied {
                (copied, moved) = (copied_now, now);
            } else if copied.is_some() && now - moved > FRAME_TIME {
                return;
            }
            if now - begun > SPIN_TIME {
                member.fabric.rest();
            }
            if now - looked > LOOK_PAUSE {
                looked = now;
                self.take_in();
            } else {
                member.fabric.poll();
            }
        }
    }
}
