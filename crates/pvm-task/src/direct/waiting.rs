//! How a sender waits for a peer, and meanwhile takes in what arrives.
use super::{DirectLinks, SEND_WAIT_MAX};
use pvm_core::tid::Tid;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

impl DirectLinks {
    /// Waits until the link to a peer can be written or has got a grant, and meanwhile takes in the messages that
    /// arrive on all links: the peer may wait for this task to read.
    pub(super) fn wait_for_room(&mut self, peer: Option<Tid>, time: Duration) {
        let readable = self.wait_until_ready(peer, time);
        self.poll_all(&readable, None);
    }

    /// Waits until the link to `peer` can be written, or there is something to read on a link, or to write that is queued.
    /// Returns the peers whose links can be read.
    pub(super) fn wait_until_ready(&mut self, peer: Option<Tid>, time: Duration) -> Vec<Tid> {
        let mut list: Vec<PollFd<'_>> = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let mut flags = link.interest();
            let waits = Some(link.peer) == peer && !link.is_held();
            flags.set(PollFlags::OUT, waits || !link.is_flushed());
            list.push(PollFd::from_borrowed_fd(link.fd(), flags));
        }
        let time = self.pause().map_or(time, |pause| pause.min(time));
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // An error is ignored: the caller tries again in any case.
        let _ = rustix::event::poll(&mut list, Some(&timeout));
        std::iter::zip(&self.links, &list)
            .filter(|(_, fd)| fd.revents().intersects(!PollFlags::OUT))
            .map(|(link, _)| link.peer)
            .collect()
    }

    /// Waits until the socket has taken what the connection has encrypted, but for at most 20 ms without progress. Returns
    /// whether it has.
    pub(super) fn wait_until_flushed(&mut self, to: Tid) -> bool {
        let (mut since, mut before) = (None, None);
        loop {
            let Some(link) = self.find(to) else { return true };
            link.flush();
            if !link.connection.wants_write() || link.is_send_closed() {
                return true;
            }
            let progress = link.progress();
            if before.replace(progress) != Some(progress) {
                since = None;
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= SEND_WAIT_MAX {
                return false;
            }
            self.wait_for_room(Some(to), SEND_WAIT_MAX);
        }
    }
}
