//! Whether a task sends a multicast on its direct links, or leaves it to the daemons.
use super::{Body, SEND_WAIT_MAX};
use crate::control::Member;
use pvm_core::codes::Code;
use pvm_core::flows::multicast::Advice;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use std::time::{Duration, Instant};

/// Multicasts of fewer bytes, over all receivers, go on the links that there are, whatever the daemon has measured.
const LONG_BYTES: usize = 64 << 10;
/// One in this number of measured multicasts is left to the daemon, which so notices if another way becomes better.
const DAEMONS_TURN: u32 = 32;
/// How long a multicast waits for each further receiver that reads nothing, if one took long. Otherwise, with many receivers
/// that compute, a multicast would take many times the wait of a send.
const IMPATIENCE: Duration = Duration::from_millis(1);

/// Who sends a multicast to the tasks of other hosts to which there are direct links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    /// The task, on its links.
    Task,
    /// The daemons: they know a better way than one link after the other, or send a body once to several tasks of a host.
    Daemons,
    /// This time the daemons, so that they measure how long it takes. Later multicasts are the task's again.
    DaemonsOnce,
}

impl Member {
    /// Returns who sends a multicast of `bytes` bytes. `linked`: its receivers on links; `far`: those on other hosts
    /// without one.
    pub(crate) fn multicast_sender(&mut self, linked: &[Tid], far: &[Tid], bytes: usize) -> Sender {
        let count = linked.len() + far.len();
        if count.saturating_mul(bytes) < LONG_BYTES {
            return Sender::Task;
        }
        let mut hosts: Vec<Tid> = linked.iter().chain(far).map(|tid| tid.host()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let Some(place) = Advice::place(hosts.len()).filter(|_| hosts.len() == count) else {
            return Sender::Daemons;
        };
        let word = self.endpoint.ports().map_or(0, |ports| ports.advice(place));
        if !Advice::prefers_links(word, bytes, count) {
            return Sender::Daemons;
        }
        if Advice::is_measured(bytes, count) {
            self.direct.multicasts = (self.direct.multicasts + 1) % DAEMONS_TURN;
            if self.direct.multicasts == 0 {
                return Sender::DaemonsOnce;
            }
        }
        Sender::Task
    }

    /// Sends a multicast on the link to one of its receivers. Call [`Member::end_multicast`] after the last one.
    pub(crate) fn send_multicast(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        let begin = Instant::now();
        let sent = self.send_direct(to, meta, body);
        if begin.elapsed() >= SEND_WAIT_MAX {
            self.direct.patience = IMPATIENCE;
        }
        sent
    }

    /// Lets later sends wait as usual.
    pub(crate) fn end_multicast(&mut self) {
        self.direct.patience = SEND_WAIT_MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::link::DirectLink;
    use crate::test_daemon::enrolled;
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::Direct;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const LONG: usize = 1 << 20;

    #[test]
    fn long_multicasts_go_on_links_where_the_daemon_finds_that_best() {
        let (mut task, mut daemon) = enrolled(Tid(0x40001));
        let member = task.member.as_mut().unwrap();
        let far: Vec<Tid> = (2..6).map(|host| Tid(host << 18 | 1)).collect();
        let (linked, unlinked) = far.split_at(3);
        let mut sender = |bytes| member.multicast_sender(linked, unlinked, bytes);
        assert_eq!((sender(100), sender(LONG)), (Sender::Task, Sender::Daemons), "nothing is known");
        daemon.tell_advice(1 << LONG.ilog2());
        let senders: Vec<Sender> = (0..3 * DAEMONS_TURN).map(|_| sender(LONG)).collect();
        for turn in senders.chunks(DAEMONS_TURN as usize) {
            let (last, others) = turn.split_last().unwrap();
            assert!(others.iter().all(|sender| *sender == Sender::Task));
            assert_eq!(*last, Sender::DaemonsOnce);
        }
        assert!((0..3 * DAEMONS_TURN).all(|_| sender(32 << 10) == Sender::Task), "not measured");
        assert_eq!(sender(LONG / 2), Sender::Daemons, "another length");
    }

    #[test]
    fn a_multicast_to_many_tasks_that_do_not_read_waits_once() {
        let (mut task, _daemon) = enrolled(Tid(0x40001));
        let member = task.member.as_mut().unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let receivers: Vec<Tid> = (2..42).map(|host| Tid(host << 18 | 1)).collect();
        let mut far_ends = Vec::new();
        for peer in &receivers {
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let direct = Direct { peer: *peer, calls: true, secret: None, pacing: Pacing::Off, overflows: false };
            let mut link = DirectLink::new(&direct, near, u64::MAX).unwrap();
            link.carries = true;
            member.direct.links.push(link);
            far_ends.push(far);
        }
        let begin = Instant::now();
        for tid in &receivers {
            member.send_multicast(*tid, [0; 6], Body::Bytes(&vec![1; LONG])).unwrap();
        }
        member.end_multicast();
        let waits = begin.elapsed().as_millis() / SEND_WAIT_MAX.as_millis();
        assert!(waits < receivers.len() as u128 / 2, "{waits} waits of a send");
        assert!(member.direct.links.iter().all(|link| link.falling_back), "the daemons take over");
        assert_eq!(member.direct.patience, SEND_WAIT_MAX);
    }

    #[test]
    fn several_tasks_of_a_host_get_one_body_from_the_daemons() {
        let (mut task, mut daemon) = enrolled(Tid(0x40001));
        daemon.tell_advice(u64::from(u32::MAX));
        let member = task.member.as_mut().unwrap();
        let mut sender = |tids: [u32; 3]| member.multicast_sender(&tids.map(Tid), &[], LONG);
        assert_eq!(sender([0x80001, 0xc0001, 0x100001]), Sender::Task);
        assert_eq!(sender([0x80001, 0xc0001, 0x80002]), Sender::Daemons);
    }
}
