//! How a sender waits for a peer, and meanwhile takes in what arrives.
use super::link::incoming::Until;
use super::{DirectLinks, SEND_WAIT_MAX};
use pvm_core::tid::Tid;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::{Duration, Instant};

impl DirectLinks {
    /// Waits until the link to a peer can be written or has got a grant, and meanwhile takes in the messages that
    /// arrive on all links, also before the route switches of their peers: the peer may wait for this task to read.
    pub(super) fn wait_for_room(&mut self, peer: Option<Tid>, time: Duration) {
        let readable = self.wait_until_ready(peer, time, true);
        self.poll_all(&readable, |_| Until::Ahead);
    }

    /// Takes in what a link has read from its socket behind a message that waits for its peer's route switch.
    pub(super) fn read_ahead(&mut self) {
        let holding: Vec<Tid> = self.links.iter().filter(|link| link.holds_message()).map(|link| link.peer).collect();
        self.poll_all(&holding, |_| Until::Ahead);
    }

    /// Handles the route switch of a peer. Returns false if there is no link to it.
    pub(crate) fn on_route_switch(&mut self, peer: Tid) -> bool {
        let Ok(at) = self.position(peer) else { return false };
        let read_ahead = self.links[at].on_route_switch();
        self.arrived.extend(read_ahead);
        if self.links[at].ends_behind && self.links[at].read_ahead.is_empty() {
            self.on_read_end(at);
        } else {
            self.update_interest(at);
        }
        true
    }

    /// Waits until the link to `peer` can be written, or there is something to read on a link, or to write that is queued.
    /// Returns the peers whose links can be read. `reads_ahead`: whether they are
    /// read as [`Until::Ahead`] says.
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
    use super::super::send_queue::{QueuedBody, QueuedMessage};
    use super::super::{Body, DirectLinks};
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::{Direct, LinkCause};
    use pvm_core::tid::Tid;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    /// More than sockets hold.
    const BODY_BYTES: usize = 4 << 20;
    const MESSAGES: u32 = 3;
    const TASKS: [Tid; 2] = [Tid(0x40001), Tid(0x80001)];

    fn link_to(peer: Tid, socket: OwnedFd, calls: bool, secret: Option<[u8; 32]>) -> DirectLinks {
        let direct =
            Direct { peer, calls, secret, pacing: Pacing::OnLoss, overflows: false, cause: LinkCause::Program };
        let mut links = DirectLinks::with_limit(2);
        links.links.push(DirectLink::new(&direct, socket, u64::MAX).unwrap());
        links
    }

    fn body(tag: u32) -> Vec<u8> {
        vec![tag as u8 + 1; BODY_BYTES]
    }

    /// Begins to send long messages.
    fn begin(link: &mut DirectLink) {
        link.lane.handle_switched(link.queue.sent_count());
        for tag in 0..MESSAGES {
            let (meta, bytes) = ([0, tag, 0, 0, 0, 0], body(tag));
            let mut copy = QueuedBody::reserve(Body::Bytes(&bytes), &mut link.queue.pool).unwrap();
            copy.fill(Body::Bytes(&bytes));
            let written = link.queue.all_written() && link.write(meta, Body::Bytes(&bytes));
            link.enqueue(QueuedMessage { meta, body: copy, length: BODY_BYTES }, written);
        }
        assert!(!link.queue.all_written(), "the socket does not hold them");
    }

    /// Returns both sides of a link that can be used.
    fn sides(secret: Option<[u8; 32]>) -> [DirectLinks; 2] {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let mut sides = [link_to(TASKS[1], near, true, secret), link_to(TASKS[0], far, false, secret)];
        while !sides.iter().all(|side| side.links[0].lane.may_switch()) {
            sides.iter_mut().for_each(DirectLinks::poll_links);
        }
        sides
    }

    #[test]
    fn a_link_that_ends_behind_messages_that_were_read_ahead_ends_when_they_are_passed_on() {
        let [mut one, mut two] = sides(None);
        for tag in 0..2 {
            one.send(TASKS[1], [0, tag, 0, 0, 0, 0], Body::Bytes(b"short")).unwrap();
        }
        drop(one);
        let rounds = (0..100).take_while(|_| {
            two.wait_for_room(None, Duration::from_millis(10));
            !two.links[0].ends_behind
        });
        assert!(rounds.count() < 100 && two.arrived.is_empty());
        assert!(two.links[0].interest_of(true).is_empty(), "there is nothing to wait for");
        two.poll_links();
        assert_eq!((two.links[0].read_ahead.len(), two.links[0].lane.is_read_closed()), (2, false));
        two.on_route_switch(TASKS[0]);
        let tags: Vec<u32> = two.arrived.iter().map(|message| message.meta[1]).collect();
        assert!(tags == [0, 1] && two.links.is_empty(), "{tags:?}");
    }

    #[test]
    fn sends_that_wait_for_each_other_read_before_the_route_switches() {
        for secret in [None, Some([7; 32])] {
            let mut sides = sides(secret);
            sides.iter_mut().for_each(|side| begin(&mut side.links[0]));
            let is_sent = |sides: &[DirectLinks]| sides.iter().all(|side| side.links[0].queue.all_written());
            let rounds = (0..2_000).take_while(|_| {
                for side in &mut sides {
                    let peer = side.links[0].peer;
                    side.wait_for_room(Some(peer), Duration::from_millis(1));
                    side.links[0].flush();
                }
                !is_sent(&sides)
            });
            let rounds = rounds.count();
            assert!(is_sent(&sides), "not in {rounds} rounds");
            for side in &mut sides {
                assert!(side.arrived.is_empty(), "earlier messages may still come on the default route");
                let read_ahead = side.links[0].on_route_switch();
                side.arrived.extend(read_ahead);
            }
            while sides.iter().any(|side| side.arrived.len() < MESSAGES as usize) {
                sides.iter_mut().for_each(DirectLinks::poll_links);
            }
            for (tag, message) in sides.iter().flat_map(|side| (0..).zip(&side.arrived)) {
                assert_eq!(message.meta[1], tag);
                assert!(message.body == body(tag));
            }
        }
    }
}
