//! Gaps: the daemon tells a task that messages of another host, which it will queue later, come before what is queued from now on.
//!
//! The sink keeps what arrives behind a gap until the messages for the gap are there, or the daemon says that they will not come.
use super::{Endpoint, Step};
use crate::arrival::Sink;
use crate::queue::{Entry, Kind};
use crate::{SendError, Sent, is_daemon};

impl Endpoint {
    /// Tells a task that the next `count` messages of a host come before what is queued to it from now on. Wakes nobody:
    /// something follows.
    pub fn send_gap(&mut self, to: u32, host: u32, count: u32) -> Result<(), SendError> {
        self.queue_unrung(to, Kind::Gap, &[0; 6], &word(host, count)).map(drop)
    }

    /// Returns whether the daemon has queued nothing earlier than this stamp that is still in its queue.
    #[inline(always)]
    pub(super) fn is_before_daemon(&self, stamp: u64) -> bool {
        // The daemon has slot 0.
        let index = self.by_slot.first().and_then(|index| (*index as usize).checked_sub(1));
        let daemon = index.and_then(|index| self.peers[index].as_deref());
        daemon.is_none_or(|daemon| daemon.has_nothing_before(stamp))
    }

    /// Tells a task that no more messages of a host arrive.
    pub fn send_no_more(&mut self, to: u32, host: u32) -> Result<Sent, SendError> {
        self.queue(to, Kind::NoMore, &[0; 6], &word(host, 0))
    }
}

fn word(host: u32, count: u32) -> [u8; 8] {
    (u64::from(count) << 32 | u64::from(host)).to_ne_bytes()
}

/// Passes an entry about gaps to the sink. Only the daemon writes such entries.
pub(super) fn take(from: u32, entry: &Entry<'_>, sink: &mut impl Sink) -> Step {
    let mut bytes = [0; 8];
    let is_whole = entry.copy_to(&mut bytes) == bytes.len();
    if !is_whole || !is_daemon(from) {
        return Step::Damaged;
    }
    let word = u64::from_ne_bytes(bytes);
    let (host, count) = (word as u32, (word >> 32) as u32);
    if entry.kind == Kind::Gap {
        sink.gap(host, count);
        return Step::Other;
    }
    // The messages behind the gaps have arrived now.
    if sink.no_more(host) { Step::Message } else { Step::Other }
}

#[cfg(test)]
mod tests {
    use crate::queue::Kind;
    use crate::tests::{A, B, Host, Kept, daemon_and_task, introduce};
    use crate::{Arrival, Meta, Sent, Sink};

    #[derive(Default)]
    struct Noting(Vec<(u32, u32)>);

    impl Sink for Noting {
        fn arrived(&mut self, _from: u32, meta: Meta, _body: Arrival<'_>) {
            self.0.push((meta[0], meta[1]));
        }
        fn gap(&mut self, host: u32, count: u32) {
            self.0.push((host, count));
        }
        fn no_more(&mut self, host: u32) -> bool {
            self.0.push((host, 0));
            true
        }
    }

    #[test]
    fn gaps_arrive_among_the_messages() {
        let host = Host::new();
        let (mut daemon, mut task) = daemon_and_task(&host);
        daemon.send_gap(A, 0x80000, 3).unwrap();
        let _ = daemon.send_bytes(A, [7, 8, 0, 0, 0, 0], &[1; 100]).unwrap();
        let _ = daemon.send_no_more(A, 0x80000).unwrap();
        let mut noting = Noting::default();
        while task.poll(&mut noting) > 0 {}
        assert_eq!(noting.0, [(0x80000, 3), (7, 8), (0x80000, 0)]);
    }

    #[test]
    fn a_message_behind_a_gap_is_not_taken_by_itself() {
        let host = Host::new();
        let (mut daemon, mut task) = daemon_and_task(&host);
        let mut other = host.endpoint(B);
        introduce(&mut task, B, &other);
        introduce(&mut other, A, &task);
        let mut noting = Noting::default();
        let message = |number| [number, 0, 0, 0, 0, 0];
        daemon.send_gap(A, 0xc0000, 1).unwrap();
        assert_eq!(other.send_bytes(A, message(1), b"one"), Ok(Sent::Done));
        task.poll_all(&mut noting);
        assert_eq!((task.most_recent_peer(), noting.0.len()), (Some(B), 2));
        assert_eq!(other.send_bytes(A, message(2), b"before"), Ok(Sent::Done));
        daemon.send_gap(A, 0x80000, 1).unwrap();
        assert_eq!(other.send_bytes(A, message(3), b"behind"), Ok(Sent::Done));
        for is_before in [true, false] {
            for of_any in [false, true] {
                let recent = task.probe_recent(of_any);
                assert_eq!(recent.is_some(), is_before);
            }
            if is_before {
                task.probe_recent(false).and_then(|recent| recent.take(&mut [0; 10])).unwrap();
            }
        }
        assert_eq!(task.poll_peer(B, &mut noting), 0);
        task.poll_all(&mut noting);
        assert_eq!(noting.0[2..], [(0x80000, 1), (3, 0)]);
    }

    #[test]
    fn a_task_that_writes_of_gaps_is_not_believed() {
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        let mut kept = Kept::default();
        let _ = b.send_bytes(A, [1; 6], b"one").unwrap();
        a.poll(&mut kept);
        let _ = b.queue(A, Kind::Gap, &[0; 6], &[1; 8]).unwrap();
        let _ = b.send_bytes(A, [1; 6], b"not believed any more").unwrap();
        a.poll(&mut kept);
        assert_eq!(kept.messages.len(), 1);
    }
}
