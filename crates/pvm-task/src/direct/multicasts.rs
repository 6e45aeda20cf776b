//! Multicasts on direct links: whether a task sends them itself or leaves them to the daemons, and how it waits for room.
use super::link::DirectLink;
use super::send_queue::QueuedMessage;
use super::{Body, DirectLinks, SEND_WAIT_MAX};
use crate::clock;
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use std::collections::BTreeMap;
use std::time::Instant;

/// After this number of multicasts of a class on links, one is left to the daemon, with those that follow until the task
/// returns to its links: so the daemon notices if another way becomes better.
const DAEMONS_TURN: u32 = 64;

/// How many multicasts of each class have gone on links since one was left to the daemon. A class has the binary logarithms of the
/// length and of the number of hosts.
#[derive(Default)]
pub(super) struct Multicasts(BTreeMap<(u32, u32), u32>);

impl DirectLinks {
    /// Counts a multicast on links. Returns whether it is time to leave one to the daemon.
    pub fn is_daemons_turn(&mut self, own: Tid, linked: &[Tid], class: (u32, u32)) -> bool {
        // Tasks in a loop should not all leave their links at the same time, and wait for each other's route switches.
        let first = own.0.wrapping_mul(0x9E37_79B9) % DAEMONS_TURN;
        let count = self.multicasts.0.entry(class).or_insert(first);
        *count += u32::from(!linked.is_empty());
        // Where a link cannot be left, the daemon would measure another number of hosts.
        let is_turn = *count >= DAEMONS_TURN && linked.iter().all(|tid| self.may_leave(*tid));
        if is_turn {
            self.multicasts.0.insert(class, 0);
        }
        is_turn
    }

    /// Returns whether a multicast can leave the link to a task.
    fn may_leave(&self, peer: Tid) -> bool {
        !self.wants_links() && self.position(peer).is_ok_and(|at| self.links[at].may_leave())
    }

    /// Sends a message on several links, or queues it there. First each socket takes what it has room for; then the task waits
    /// for all together, so that many peers that do not read cost no more time than one.
    pub fn multicast(&mut self, to: &[Tid], meta: Meta, body: Body<'_>, mut note: impl FnMut(Result<(), Code>)) {
        // The peers may answer at once.
        self.expect_messages();
        let mut sent = Vec::with_capacity(to.len());
        for tid in to {
            // If the link is gone, its peer has exited, and the message is dropped.
            let Some(link) = self.find(*tid) else { continue };
            let begin = clock::now();
            let mut copy = match link.reserve(body) {
                Ok(copy) => copy,
                Err(code) => {
                    note(Err(code));
                    continue;
                }
            };
            link.flush();
            let was_blocked = link.is_blocked();
            let written = link.queue.all_written() && link.write(meta, body);
            copy.fill(body);
            link.bursts.note_on_lane(body.len(), begin..clock::now());
            link.enqueue(QueuedMessage { meta, body: copy, length: body.len() }, written);
            sent.push((*tid, was_blocked));
        }
        self.wait_for_all(&sent);
        for (tid, _) in sent {
            let Ok(at) = self.position(tid) else { continue };
            let handed_over = self.is_handed_over(&self.links[at]);
            self.give_up_if_worse(at, handed_over);
            if self.links[at].queue.all_written() && self.links[at].should_poll() {
                self.poll_link(at, None);
            }
            self.watch_unsent(tid);
        }
    }

    /// Returns whether the socket has taken so much of the messages for a link that the task need not wait.
    fn is_handed_over(&self, link: &DirectLink) -> bool {
        link.queue.all_written() && (self.wants_links() || !link.connection.wants_write())
    }

    /// Waits until the sockets of these links have taken all messages, but for at most 20 ms without progress. Does not wait for
    /// links that were blocked before.
    fn wait_for_all(&mut self, sent: &[(Tid, bool)]) {
        let (mut since, mut before) = (None, None);
        loop {
            self.links.iter_mut().for_each(DirectLink::flush);
            let (mut is_done, mut progress) = (true, 0_u64);
            for (tid, was_blocked) in sent {
                let Ok(at) = self.position(*tid) else { continue };
                let link = &self.links[at];
                is_done &=
                    *was_blocked || link.is_send_closed() || !link.can_hear_grants() || self.is_handed_over(link);
                progress = progress.wrapping_add(link.progress());
            }
            if before.replace(progress) != Some(progress) {
                since = None;
            }
            if is_done || since.get_or_insert_with(Instant::now).elapsed() >= SEND_WAIT_MAX {
                return;
            }
            self.wait_for_room(None, SEND_WAIT_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;
    use crate::test_daemon::{TestDaemon, enrolled};
    use pvm_core::channel::GivenUp;
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::{Direct, LinkCause};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    const LONG: usize = 1 << 20;

    /// Returns a task with links to this number of other hosts, and the other ends of the links.
    fn linked(hosts: u32) -> (Task, TestDaemon, Vec<Tid>, Vec<OwnedFd>) {
        let (mut task, daemon) = enrolled(Tid(0x40001));
        let peers: Vec<Tid> = (2..hosts + 2).map(|host| Tid(host << 18 | 1)).collect();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut far_ends = Vec::new();
        for peer in &peers {
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let direct = Direct {
                peer: *peer,
                calls: true,
                secret: None,
                pacing: Pacing::Off,
                overflows: false,
                cause: LinkCause::Program,
            };
            let mut link = DirectLink::new(&direct, near, u64::MAX).unwrap();
            link.limit.set(u64::MAX);
            link.lane.handle_switched(link.queue.sent_count());
            task.member.as_mut().unwrap().direct.links.push(link);
            far_ends.push(far);
        }
        (task, daemon, peers, far_ends)
    }

    #[test]
    fn long_multicasts_go_on_links_where_the_daemon_finds_that_best() {
        let (mut task, mut daemon, linked, _far_ends) = linked(4);
        let member = task.member.as_mut().unwrap();
        let far = [Tid(9 << 18 | 1)];
        let mut on_links = |bytes| member.multicasts_on_links(&linked, &far, bytes);
        assert_eq!((on_links(100), on_links(LONG)), (true, false), "nothing is known");
        daemon.tell_advice(1 << LONG.ilog2());
        let first = (0..DAEMONS_TURN).position(|_| !on_links(LONG)).unwrap();
        let other = (0..DAEMONS_TURN).map(|_| on_links(LONG)).collect::<Vec<bool>>();
        assert_eq!(other.iter().position(|on_links| !on_links), Some(DAEMONS_TURN as usize - 1), "after {first}");
        assert!((0..3 * DAEMONS_TURN).all(|_| on_links(32 << 10)), "not measured");
        assert!(!on_links(LONG / 2), "another length");
        // A link with a message that the peer has not acknowledged cannot be left.
        let meta = [0; 6];
        member.direct.send(linked[0], meta, Body::Bytes(b"short")).unwrap();
        assert!((0..3 * DAEMONS_TURN).all(|_| member.multicasts_on_links(&linked, &far, LONG)));
    }

    #[test]
    fn a_multicast_to_many_tasks_that_do_not_read_waits_once() {
        let (mut task, _daemon, receivers, far_ends) = linked(40);
        let member = task.member.as_mut().unwrap();
        let body = vec![1; LONG];
        let begin = Instant::now();
        let unlinked = member.multicast_on_links(&receivers, [0; 6], Body::Bytes(&body), |sent| sent.unwrap());
        let waits = begin.elapsed().as_millis() / SEND_WAIT_MAX.as_millis();
        assert!(unlinked.is_empty() && (1..20).contains(&waits), "{waits} waits");
        assert!(member.direct.links.iter().all(|link| link.lane.falls_back()), "the daemons take over");
        let why = |link: &DirectLink| link.lane.given_up() == Some(GivenUp::Unheard);
        assert!(member.direct.links.iter().all(why), "the peers may not know of the route switch");
        drop(far_ends);
    }

    #[test]
    fn several_tasks_of_a_host_get_one_body_from_the_daemons() {
        let (mut task, mut daemon) = enrolled(Tid(0x40001));
        daemon.tell_advice(u64::from(u32::MAX));
        let member = task.member.as_mut().unwrap();
        let mut on_links = |tids: [u32; 3]| member.multicasts_on_links(&tids.map(Tid), &[], LONG);
        assert!(on_links([0x80001, 0xc0001, 0x100001]));
        assert!(!on_links([0x80001, 0xc0001, 0x80002]));
    }
}
