//! Receiving without a wait: what the program can see (`docs/decisions/0027`).
use super::Task;
use crate::message::Message;
use crate::message::queue::fits;
use crate::state::OnePerPeer;
use crate::types::{Filter, PRIVATE_CONTEXTS};

/// The largest number of polls of all peers in one call that does not wait, even if more messages arrive.
const POLLS_MAX: usize = 64;

impl Task {
    /// As [`Task::take_in`], for a caller that does not try again: takes in everything that has arrived until now, from
    /// all peers. Stops after `POLLS_MAX` polls, even if peers go on sending.
    pub fn take_in_all(&mut self) -> usize {
        let mut all = 0;
        for _ in 0..POLLS_MAX {
            let Some(member) = &mut self.member else { return all };
            let arriving = &mut self.state;
            let mut count = 0;
            for _ in 0..POLLS_MAX {
                match member.endpoint.poll_all(arriving) {
                    0 => break,
                    more => count += more,
                }
            }
            let waits_for_frame = member.endpoint.waits_for_frame();
            let more = self.progress_control(count, true);
            all += more;
            // Messages may have waited for the frames.
            if !waits_for_frame || more == count {
                break;
            }
        }
        // A fabric may have more than it was asked for.
        for _ in 0..POLLS_MAX {
            if !self.member.as_ref().is_some_and(|member| member.fabric.is_active()) {
                break;
            }
            match self.progress_control(0, true) {
                0 => break,
                more => all += more,
            }
        }
        all
    }

    /// `pvm_nrecv`: the oldest message that the filter accepts becomes the active receive buffer.
    #[inline]
    pub fn receive_at_once(&mut self, filter: &Filter) -> Option<i32> {
        match self.receive_short(filter) {
            None => self.find_at_once(filter).map(|slot| self.state.store.receive(slot)),
            found => found,
        }
    }

    /// `pvm_probe`: returns the oldest message that the filter accepts; the message stays queued.
    pub fn probe_at_once(&mut self, filter: &Filter) -> Option<i32> {
        self.find_at_once(filter).map(|slot| slot as i32 + 1)
    }

    fn find_at_once(&mut self, filter: &Filter) -> Option<u32> {
        self.catch_up();
        let found = match self.state.store.find_visible(filter) {
            None => self.reveal_one().filter(|slot| fits(&self.state.store.table[*slot as usize], filter)),
            found => found,
        };
        self.state.store.queue.note_search();
        found
    }

    /// Returns the visible queued messages in the order of their arrival: mid, sender, tag (for `pvm_recvf`).
    pub fn queued(&self) -> impl Iterator<Item = (i32, i32, i32)> + '_ {
        let table: &[Message] = &self.state.store.table;
        let walk = self.state.store.queue.walk_visible(table);
        let walk = walk.filter(|slot| !PRIVATE_CONTEXTS.contains(&table[*slot as usize].ctx));
        walk.map(|slot| (slot as i32 + 1, table[slot as usize].src, table[slot as usize].tag))
    }

    /// Reveals one more message, if one is queued or can be taken in now. Returns `None` also if a handler takes the
    /// message.
    pub fn reveal_one(&mut self) -> Option<u32> {
        self.state.reveal_fmp();
        if self.state.store.queue.first_hidden().is_none() {
            self.state.handlers.stop_queueing();
            self.take_in_some();
        }
        self.state.reveal_next()
    }

    /// Reveals all queued messages, for example at the end of a receive that has waited and found none that fits.
    #[inline]
    pub fn reveal_all(&mut self) {
        self.state.reveal_all();
    }

    /// Notes that this task has synchronized with other tasks, which may have sent messages before: the next call that
    /// does not wait sees all messages that have arrived until then.
    #[inline]
    pub fn note_synchronized(&mut self) {
        self.state.synchronized = true;
        if let Some(member) = &self.member {
            member.endpoint.synchronize();
        }
    }

    /// Takes in and reveals what others have sent before this task synchronized with them. A call that does not wait
    /// must call this function before it searches the visible messages.
    #[inline]
    pub fn catch_up(&mut self) {
        if std::mem::take(&mut self.state.synchronized) {
            self.take_in_all();
            self.reveal_all();
        }
    }

    /// Takes in at least one message, if any peer has sent one.
    fn take_in_some(&mut self) {
        for _ in 0..POLLS_MAX {
            let Some(member) = &mut self.member else { return };
            let mut arriving = OnePerPeer(&mut self.state);
            let mut count = member.endpoint.poll(&mut arriving);
            for _ in 0..POLLS_MAX {
                arriving.0.reveal_fmp();
                if arriving.0.store.queue.first_hidden().is_some() {
                    break;
                }
                // The peers that sent lately have been polled; now all peers are polled.
                match member.endpoint.poll_all(&mut arriving) {
                    0 => break,
                    more => count += more,
                }
            }
            let waits_for_frame = member.endpoint.waits_for_frame();
            let has_frames = self.progress_control(count, true) > count;
            // The frames may have been for the library itself, and a message may have waited for them.
            if !waits_for_frame || !has_frames || self.state.store.queue.first_hidden().is_some() {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "visibility_tests.rs"]
mod tests;
