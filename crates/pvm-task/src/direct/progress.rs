//! How links are made, polled, shown and read to their ends.
use super::link::DirectLink;
use super::{DirectLinks, LINK_STACK_BYTES, RouteEvent};
use crate::store::Store;
use pvm_core::proto::Direct;
use pvm_core::state_line::OwnLink;
use pvm_core::tid::Tid;
use pvm_descriptor::OwnDescriptor;
use pvm_fmp::has_stack;
use std::os::fd::OwnedFd;

/// While messages arrive by other routes, the links are polled once in this number of calls. The fabric does the same.
pub(crate) const BUSY_POLLS: u32 = 16;
/// One in this number of polls also checks for stalled links, on the fabric as well.
pub(crate) const STALL_POLLS: u32 = 1024;

impl DirectLinks {
    /// Returns what was sent and received on each link, for the state line.
    pub fn own_links(&self) -> impl ExactSizeIterator<Item = OwnLink> + '_ {
        self.links.iter().map(|link| OwnLink {
            peer: link.peer,
            sent: link.queue.sent_count(),
            received: link.lane.received(),
        })
    }

    /// Keeps a link that the daemons have made until a call has enough stack.
    pub fn defer(&mut self, direct: &Direct, descriptors: Vec<OwnedFd>) {
        let descriptors = descriptors.into_iter().map(OwnDescriptor::from).collect();
        self.deferred.push((direct.clone(), descriptors));
        self.active = true;
    }

    /// Returns and forgets the links that have waited for stack, if there is enough now.
    pub fn take_deferred(&mut self) -> Vec<(Direct, Vec<OwnedFd>)> {
        if self.deferred.is_empty() || !has_stack(LINK_STACK_BYTES) {
            return Vec::new();
        }
        let owned =
            |descriptors: Vec<OwnDescriptor>| descriptors.into_iter().filter_map(OwnDescriptor::into_owned).collect();
        std::mem::take(&mut self.deferred).into_iter().map(|(direct, all)| (direct, owned(all))).collect()
    }

    /// Makes this side of a link. Returns its position, or `None` if there is no room, the program allows no links, or the
    /// link cannot be made. Needs much stack.
    pub fn make(&mut self, direct: &Direct, socket: &OwnedFd) -> Option<usize> {
        if !self.has_room() || !self.allows_links() || self.descriptor().is_none() {
            return None;
        }
        let at = self.position(direct.peer).err()?;
        let socket = socket.try_clone().ok()?;
        let granted = self.pacing.add(direct, self.links.is_empty());
        let link = DirectLink::new(direct, socket, granted).inspect_err(|_| self.pacing.remove(direct.peer)).ok()?;
        self.links.insert(at, link);
        self.active = true;
        Some(at)
    }

    /// Polls the links, if that is due. `count`: how many messages have arrived by other routes. `polls`: whether to poll the
    /// links if these are none. `parked`: whether the task is about to sleep. Returns whether stalled links were looked for,
    /// too.
    pub fn progress(&mut self, store: &mut Store, count: usize, polls: bool, parked: bool) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let is_due = match count {
            0 => polls,
            _ => self.polls % BUSY_POLLS == 0,
        };
        if is_due || parked {
            store.with_spare(|spare| {
                std::mem::swap(spare, &mut self.spare);
                self.poll_links();
                std::mem::swap(spare, &mut self.spare);
            });
        }
        let looks = parked || self.polls % STALL_POLLS == 0;
        if looks {
            self.close_stalled();
        }
        looks
    }

    /// Begins to take in the last messages of a peer that has ended.
    pub fn drain(&mut self, peer: Tid) {
        self.deferred.retain(|(direct, _)| direct.peer != peer);
        let Ok(at) = self.position(peer) else { return };
        match self.links[at].lane.is_reading() {
            true => {
                self.draining = Some(peer);
                self.poll_link(at, None);
            }
            // This side does not read the link. Either the peer's route switch was lost with a host, perhaps together with
            // earlier messages, so that reading never began; or the link broke.
            false => self.remove_drained(at),
        }
    }

    /// Returns and forgets the events that other parts of the task have to handle. Also computes `active` anew: from
    /// now on only links keep it set, those that wait for stack included.
    pub fn take_events(&mut self) -> Vec<RouteEvent> {
        self.active = !self.links.is_empty() || !self.deferred.is_empty();
        std::mem::take(&mut self.events)
    }
}
