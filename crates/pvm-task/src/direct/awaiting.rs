//! A sender of a long message in one call waits for its peer before it copies the message: a peer that reads at the same
//! time takes the message in sooner than it could be copied, and then no copy is needed.
use super::link::incoming::Until;
use super::link::{AWAITED_BYTES_MIN, DirectLink};
use super::{Body, DirectLinks, SEND_WAIT_MAX};
use pvm_core::tid::Tid;
use std::time::{Duration, Instant};

/// Bodies of at least this size, in bytes, are not copied while the peer goes on reading.
const PATIENT_BYTES_MIN: usize = 8 << 20;
/// A shorter body is awaited for a nanosecond for each this many bytes: for twice the time of a copy that makes 8 GB/s.
const BYTES_A_NANOSECOND: u64 = 4;
/// A sender looks for the acknowledgement without a pause for this time.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The peer has acknowledged the message.
    Acknowledged,
    /// The peer has not done so in time.
    InVain,
    /// The wait makes no sense: a message of another task waits to be read, or the link has ended.
    Impossible,
}

impl DirectLinks {
    /// Returns whether the sender of a message that was written to a link waits for the peer before it copies the body.
    pub(super) fn should_await(&mut self, at: usize, body: Body<'_>) -> bool {
        let Body::Bytes(bytes) = body else { return false };
        bytes.len() >= PATIENT_BYTES_MIN || (bytes.len() >= AWAITED_BYTES_MIN && self.links[at].awaits.allows())
    }

    /// Waits until the peer has acknowledged the last message, whose body has not been copied. Copies it if that takes too
    /// long.
    pub(super) fn wait_for_acknowledgement(&mut self, to: Tid, body: Body<'_>) {
        let Some(link) = self.find(to) else { return };
        let count = link.queue.sent_count();
        let end = self.wait_for_count(to, count, body.len());
        // If the link is gone, its peer has exited.
        let Some(link) = self.find(to) else { return };
        if body.len() < PATIENT_BYTES_MIN && end != End::Impossible {
            link.awaits.note(end == End::Acknowledged);
        }
        if let Some(message) = link.queue.last().filter(|_| end != End::Acknowledged) {
            message.body.fill(body);
        }
    }

    /// Waits until the peer has acknowledged this number of messages, but not too long for a body of this length.
    fn wait_for_count(&mut self, to: Tid, count: u32, bytes: usize) -> End {
        let begun = Instant::now();
        let limit = (bytes < PATIENT_BYTES_MIN).then(|| Duration::from_nanos(bytes as u64 / BYTES_A_NANOSECOND));
        let (mut since, mut before) = (begun, None);
        loop {
            let has_message = !self.arrived.is_empty() || self.links.iter().any(DirectLink::has_message);
            let Some(link) = self.find(to) else { return End::Impossible };
            link.flush();
            if link.queue.acknowledged() == count {
                return End::Acknowledged;
            }
            // Its sender may wait in the same way, and is read only after this send. It may be the peer: had it taken this
            // message in, it would have said so before. Or the tasks send in a ring.
            if has_message || link.is_send_closed() {
                return End::Impossible;
            }
            let (now, spins) = (Instant::now(), begun.elapsed() < SPIN_TIME);
            let left = match limit {
                Some(limit) => limit.saturating_sub(now - begun),
                None if spins => SEND_WAIT_MAX,
                None => {
                    let progress = (link.progress(), link.carried().acknowledged);
                    if before.replace(progress) != Some(progress) {
                        since = now;
                    }
                    SEND_WAIT_MAX.saturating_sub(now - since)
                }
            };
            if left.is_zero() {
                return End::InVain;
            }
            let readable = match spins {
                true => {
                    std::thread::yield_now();
                    self.ready()
                }
                false => self.wait_until_ready(None, left.min(SEND_WAIT_MAX / 4), false),
            };
            // No body is read meanwhile.
            self.poll_all(&readable, |peer| if peer == to { Until::Acknowledged(count) } else { Until::Body });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::link::DirectLink;
    use crate::direct::link::incoming::ReadOutcome;
    use crate::direct::send_queue::QueuedBody;
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::{Direct, LinkCause};
    use pvm_fmp::copied_bytes;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    const PEER: Tid = Tid(0x80001);

    /// Sends a long message on a link to a peer that reads it, and counts it as received or not. Returns the links.
    fn sent_to(takes: bool) -> DirectLinks {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let link = |peer, calls, socket| {
            let direct = Direct {
                peer,
                calls,
                secret: None,
                pacing: Pacing::OnLoss,
                overflows: false,
                cause: LinkCause::Program,
            };
            DirectLink::new(&direct, socket, u64::MAX).unwrap()
        };
        let (sent, has_sent) = std::sync::mpsc::channel();
        let peer = std::thread::spawn(move || {
            let mut link = link(Tid(0x40001), false, far);
            link.on_route_switch();
            let (mut arrived, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
            while arrived.is_empty() && Instant::now() < end {
                link.read(&mut arrived, None, &mut ReadOutcome::default()).unwrap();
            }
            if takes {
                link.count_received(arrived[0].body.len());
            }
            // The link stays open until the sender has ended its call.
            while has_sent.try_recv().is_err() && Instant::now() < end {
                link.read(&mut arrived, None, &mut ReadOutcome::default()).unwrap();
            }
        });
        let mut links = DirectLinks::with_limit(2);
        links.links.push(link(PEER, true, near));
        let end = Instant::now() + Duration::from_secs(20);
        while !links.links[0].lane.may_switch() {
            assert!(Instant::now() < end);
            links.poll_links();
        }
        let body = vec![7; AWAITED_BYTES_MIN];
        links.send(PEER, [0; 6], Body::Bytes(&body)).unwrap();
        sent.send(()).unwrap();
        peer.join().unwrap();
        links
    }

    #[test]
    fn a_body_that_the_peer_takes_at_once_is_not_copied_and_another_one_is() {
        // A thread that does not run for a while takes nothing at once.
        let was_copied = (0..20).all(|_| {
            let before = copied_bytes();
            sent_to(true);
            copied_bytes() > before
        });
        assert!(!was_copied);
        let mut links = sent_to(false);
        let message = links.links[0].queue.last().expect("it is not acknowledged");
        assert!(matches!(&message.body, QueuedBody::Bytes(copy) if *copy == [7; AWAITED_BYTES_MIN]));
    }
}
