//! The traffic of a task: how many messages and bytes it has sent and received, by route. The counts lie in its segment, where
//! its daemon reads them at any time, without the task's help.
//!
//! Only the owner writes, with plain stores to cache lines that no other task touches.
use crate::slots::is_daemon;
use crate::sync::{AtomicU64, Ordering, ReadOnlyLoad};
use std::ptr::NonNull;

/// How a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Through shared memory, between tasks of one host.
    Memory,
    /// Through the daemons, to or from another host.
    Daemon,
    /// On a direct link to a task of another host.
    Direct,
    /// On a fabric.
    Fabric,
}

/// The number of routes.
pub const ROUTES: usize = 4;
/// The number of words: for each direction and route, the messages and the bytes.
pub const TRAFFIC_WORDS: usize = 2 * ROUTES * 2;

#[repr(C)]
struct Count {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    #[inline(always)]
    fn add(&self, bytes: usize) {
        let add = |word: &AtomicU64, number: u64| {
            word.store(word.load_relaxed().wrapping_add(number), Ordering::Relaxed);
        };
        add(&self.messages, 1);
        add(&self.bytes, bytes as u64);
    }
}

/// The counts in the segment of their owner: those of sent messages by route, then those of received ones.
#[repr(C)]
pub struct TrafficWords {
    sent: [Count; ROUTES],
    received: [Count; ROUTES],
}

const _: () = assert!(size_of::<TrafficWords>() == TRAFFIC_WORDS * 8);

/// The counts of this task. They lie in the first page of its segment, which stays where it is as long as the endpoint lives,
/// so the heap need not be borrowed to count.
pub struct Traffic(NonNull<TrafficWords>);

impl Traffic {
    /// Returns the counts in the owner's own segment.
    pub(crate) fn of(words: &TrafficWords) -> Traffic {
        Traffic(NonNull::from(words))
    }

    /// Returns the counts for a part of the endpoint, which lives no longer.
    #[inline(always)]
    pub(crate) fn share(&self) -> Traffic {
        Traffic(self.0)
    }

    #[inline(always)]
    fn words(&self) -> &TrafficWords {
        // SAFETY: points into the segment of the endpoint that holds this value (see above); the words are atomics.
        unsafe { self.0.as_ref() }
    }

    /// Counts a message of that many bytes that this task has sent.
    #[inline(always)]
    pub fn sent(&self, route: Route, bytes: usize) {
        self.words().sent[route as usize].add(bytes);
    }

    /// Counts a message of that many bytes that has arrived.
    #[inline(always)]
    pub fn received(&self, route: Route, bytes: usize) {
        self.words().received[route as usize].add(bytes);
    }
}

/// Returns the route by way of a queue of this peer.
#[inline(always)]
pub(crate) fn route_by(peer: u32) -> Route {
    if is_daemon(peer) { Route::Daemon } else { Route::Memory }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{A, B, Host, Kept, body, daemon_and_task};
    use crate::{Endpoint, Immediate, SharedBody, state_reading};
    use std::os::fd::AsFd;

    /// Returns the messages and bytes that the endpoint has sent, and has received, on a route.
    fn counts(endpoint: &Endpoint, route: Route) -> [u64; 4] {
        let [segment, _] = endpoint.descriptors().unwrap();
        let words = state_reading::traffic(segment.as_fd()).unwrap();
        let [sent, received] = [2 * route as usize, 2 * (ROUTES + route as usize)];
        [words[sent], words[sent + 1], words[received], words[received + 1]]
    }

    #[test]
    fn each_message_is_counted_once_by_its_sender_and_by_its_receiver() {
        let host = Host::new();
        let (mut a, mut b) = host.pair();
        let meta = [1, 2, 3, 4, 5, 0];
        let mut bytes = 0;
        for size in [0, 8, 100, 1000, 20_000, 300_000] {
            let _ = a.send_bytes(B, meta, &body(size, 1)).unwrap();
            bytes += size as u64;
        }
        assert!(a.send_in_queue(B, &meta, &[1; 50]).is_some());
        let immediate = Immediate::of_numbers([1, 2], 0, &[1; 8]).unwrap();
        assert!(a.send_immediate(B, &immediate).is_some());
        let block = a.allocate(5000).unwrap();
        let _ = a.send_blocks(B, meta, &vec![(block.clone(), 10); 100]).unwrap();
        let sent = a.send_to_all(&[(B, meta)], SharedBody::Blocks(&[(block, 4000)]));
        assert!(sent.iter().all(Result::is_ok));
        bytes += 50 + 8 + 1000 + 4000;
        assert_eq!(counts(&a, Route::Memory), [10, bytes, 0, 0]);
        assert_eq!(counts(&a, Route::Daemon), [0; 4]);
        // A body that is refused arrives again.
        let mut kept = Kept::default();
        while b.poll(&mut kept) > 0 {}
        assert_eq!((kept.messages.len(), counts(&b, Route::Memory)), (10, [0, 0, 10, bytes]));
        // By the shortest paths.
        assert!(a.send_immediate(B, &immediate).is_some());
        b.probe_recent_immediate(true).unwrap().take();
        assert!(a.send_in_queue(B, &meta, &[1; 50]).is_some());
        b.probe_recent(true).unwrap().take(&mut [0; 50]).unwrap();
        assert_eq!(counts(&b, Route::Memory), [0, 0, 12, bytes + 58]);
        assert!(a.send_bytes(B + 1, meta, &[1; 5]).is_err(), "nobody is there");
        assert_eq!(counts(&a, Route::Memory), [12, bytes + 58, 0, 0]);
    }

    #[test]
    fn what_comes_through_the_daemon_is_counted_apart() {
        let host = Host::new();
        let (mut daemon, mut task) = daemon_and_task(&host);
        for size in [5, 50_000] {
            let _ = daemon.send_bytes(A, [1; 6], &body(size, 1)).unwrap();
        }
        let mut kept = Kept::default();
        while task.poll(&mut kept) > 0 {}
        assert_eq!((counts(&task, Route::Daemon), counts(&task, Route::Memory)), ([0, 0, 2, 50_005], [0; 4]));
    }
}
