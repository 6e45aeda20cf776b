//! How a sender waits for a peer, and meanwhile takes in what arrives.
use super::{DirectLinks, SEND_WAIT_MAX};
use pvm_core::tid::Tid;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

impl DirectLinks {
    /// Waits until the link to a peer can be written or has got a grant, and meanwhile takes in the messages that
    /// arrive on all links, also before the route switches of their peers: the peer may wait for this task to read.
    pub(super) fn wait_for_room(&mut self, peer: Option<Tid>, time: Duration) {
        let readable = self.wait_until_ready(peer, time, true);
        self.poll_all(&readable, None, true);
    }

    /// Waits until the link to `peer` can be written, or there is something to read on a link, or to write that is queued.
    /// Returns the peers whose links can be read. `reads_ahead`: as in [`ReadOutcome`](super::incoming::ReadOutcome).
    pub(super) fn wait_until_ready(&mut self, peer: Option<Tid>, time: Duration, reads_ahead: bool) -> Vec<Tid> {
        let mut list: Vec<PollFd<'_>> = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let mut flags = link.interest_of(reads_ahead);
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

#[cfg(test)]
mod tests {
    use super::super::link::DirectLink;
    use super::super::{Body, DirectLinks};
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::Direct;
    use pvm_core::tid::Tid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::os::fd::OwnedFd;
    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    /// More than sockets hold.
    const BODY_BYTES: usize = 8 << 20;
    const MESSAGES: u32 = 3;

    /// Sends long messages to a peer that does the same, before either has heard of the other's route switch, and receives.
    fn exchange(socket: OwnedFd, (peer, is_caller): (Tid, bool), secret: Option<[u8; 32]>, both: &Barrier) {
        let direct = Direct { peer, calls: is_caller, secret, pacing: Pacing::OnLoss, overflows: false };
        let mut links = DirectLinks::with_limit(2);
        links.links.push(DirectLink::new(&direct, socket, u64::MAX).unwrap());
        let end = Instant::now() + Duration::from_secs(60);
        while !links.links[0].may_switch() {
            assert!(Instant::now() < end);
            links.poll_links();
        }
        links.links[0].switch();
        both.wait();
        for tag in 0..MESSAGES {
            links.send(peer, [0, tag, 0, 0, 0, 0], Body::Bytes(&vec![tag as u8; BODY_BYTES])).unwrap();
            assert!(links.links[0].given_up.is_none() && links.links[0].queue.all_written(), "message {tag}");
        }
        assert!(links.arrived.is_empty(), "earlier messages may still come on the default route");
        let read_ahead = links.links[0].on_route_switch();
        links.arrived.extend(read_ahead);
        while links.arrived.len() < MESSAGES as usize {
            assert!(Instant::now() < end);
            links.poll_links();
        }
        for (tag, message) in (0..).zip(&links.arrived) {
            assert_eq!(message.meta[1], tag);
            assert!(message.body == vec![tag as u8; BODY_BYTES]);
        }
        both.wait();
    }

    #[test]
    fn two_tasks_that_send_to_each_other_at_once_keep_their_link() {
        for secret in [None, Some([7; 32])] {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let both = &Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(move || exchange(near, (Tid(0x80001), true), secret, both));
                scope.spawn(move || exchange(far, (Tid(0x40001), false), secret, both));
            });
        }
    }
}
