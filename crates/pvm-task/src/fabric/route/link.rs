//! This side of a link on a fabric, as the route sees it.
use super::LinkName;
use super::posted::WANTED_BYTES;
use crate::direct::send_queue::{BufferPool, SendQueue};
use crate::envelope::HeldMessages;
use crate::envelope::LinkMessage;
use pvm_core::channel::Lane;
use pvm_core::proto::LinkCause;
use pvm_core::tid::Tid;
use pvm_explorer::CircuitBreaker;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// If a peer takes nothing for this time although messages wait for it, the link is given up: a fabric often does not
/// report that it carries nothing any more. It may also be that the peer does not call the library; then some messages
/// travel twice.
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// A link is given up if no hello arrives on the fabric, but messages of the peer arrive by the default route this many times,
/// each at least `UNHEARD_PAUSE` after the one before: the network may block the fabric, and not all providers report that. The
/// time alone says nothing: the peer may compute. A peer that sends a message takes in and answers a hello in the same call.
const UNHEARD_MAX: u32 = 4;
const UNHEARD_PAUSE: Duration = Duration::from_secs(1);

/// The most memory of copies that is kept for the next messages, in bytes: new memory has to get its pages first, which takes
/// longer than the copy.
const COPIES_BYTES_MAX: usize = 64 << 20;

/// This side of a link.
pub(crate) struct FabricLink {
    pub peer: Tid,
    pub name: LinkName,
    /// Why there is the link.
    pub cause: LinkCause,
    /// Which messages go on the fabric, in both directions. The hello is not among those that are counted.
    pub lane: Lane,
    /// Whether the program knows of the link. To a program that has not asked for direct routes, a fabric is invisible.
    pub is_announced: bool,
    /// Messages that have arrived, until the task takes them over.
    pub held: Rc<HeldMessages>,
    /// The messages that the peer has not taken.
    pub queue: SendQueue,
    /// What this side has told last that it waits for, and how many messages had arrived then.
    pub told_wanted: Option<(u32, [u8; WANTED_BYTES])>,
    /// Whether receives have waited for long messages.
    pub lends: CircuitBreaker,
    /// Whether the peer takes nothing at the moment.
    pub is_blocked: bool,
    /// Whether the fabric has no such link any more.
    pub is_gone: bool,
    /// How often the peer was heard by the default route, but not on the fabric, and when that was last counted.
    unheard: u32,
    unheard_at: Instant,
    /// Since when the peer has taken nothing, if messages wait for it.
    waiting_since: Option<Instant>,
}

impl FabricLink {
    pub fn new(peer: Tid, name: LinkName, cause: LinkCause) -> FabricLink {
        FabricLink {
            peer,
            name,
            cause,
            lane: Lane::default(),
            is_announced: false,
            held: Rc::default(),
            queue: SendQueue::with_pool(BufferPool::new(COPIES_BYTES_MAX)),
            told_wanted: None,
            lends: CircuitBreaker::default(),
            is_blocked: false,
            is_gone: false,
            unheard: 0,
            unheard_at: Instant::now(),
            waiting_since: None,
        }
    }

    /// Takes a message over from the fabric.
    pub fn take(&mut self, message: LinkMessage) {
        // After the peer's fallback message, the peer sends again what this side has not counted.
        if !self.held.is_closed.get() {
            self.lane.count_received();
            self.held.messages.borrow_mut().push_back(message);
        }
    }

    /// Counts a message whose body is in the memory of a receive. Returns false if the peer sends it again, since it has
    /// fallen back.
    pub fn count_filled(&mut self) -> bool {
        let counts = self.lane.is_established() && !self.held.is_closed.get();
        if counts {
            self.lane.count_received();
        }
        counts
    }

    /// Handles the report that the peer has taken all messages with smaller numbers. The first one was the hello.
    pub fn on_taken(&mut self, number: u64) {
        self.waiting_since = None;
        self.is_blocked = false;
        let count = number.saturating_sub(1) as u32;
        if self.lane.takes_acknowledgements() && !self.queue.acknowledge(count) {
            self.on_broken();
        }
    }

    /// Handles the end of the link on the fabric.
    pub fn on_broken(&mut self) {
        self.is_gone = true;
        self.lane.handle_break();
    }

    /// Notes that a message of the peer has arrived by the default route. Returns whether its
    /// hello is missing for too long.
    pub fn misses_hello(&mut self, now: Instant) -> bool {
        if self.lane.is_established() || self.lane.falls_back() {
            return false;
        }
        if now.duration_since(self.unheard_at) >= UNHEARD_PAUSE {
            (self.unheard, self.unheard_at) = (self.unheard + 1, now);
        }
        self.unheard >= UNHEARD_MAX
    }

    /// Returns whether the peer has taken nothing for too long.
    pub fn has_stalled(&mut self, now: Instant) -> bool {
        if self.queue.is_empty() || self.lane.falls_back() {
            self.waiting_since = None;
            return false;
        }
        now.duration_since(*self.waiting_since.get_or_insert(now)) >= STALL_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::send_queue::{QueuedBody, QueuedMessage};
    use pvm_fmp::Meta;

    fn link_with(messages: usize) -> FabricLink {
        let mut link = FabricLink::new(Tid(0x80001), 7, LinkCause::Program);
        for number in 0..messages {
            let body = QueuedBody::Bytes(vec![number as u8]);
            link.queue.push(QueuedMessage { meta: Meta::default(), body, length: 1 }, true);
        }
        link
    }

    #[test]
    fn what_the_peer_has_taken_is_counted_without_the_hello() {
        let mut link = link_with(3);
        link.on_taken(1);
        assert_eq!((link.queue.len(), link.queue.acknowledged()), (3, 0));
        link.on_taken(3);
        assert_eq!((link.queue.len(), link.queue.acknowledged()), (1, 2));
        link.on_taken(4);
        assert!(link.queue.is_empty() && !link.lane.falls_back());
        link.on_taken(9);
        assert!(link.is_gone && link.lane.falls_back(), "the peer reports more than was sent");
    }

    #[test]
    fn a_task_that_falls_back_sends_all_that_was_not_taken_before() {
        let mut link = link_with(3);
        link.lane.handle_break();
        link.on_taken(2);
        assert_eq!(link.queue.len(), 2, "before it has said so, it hears what was taken");
        link.lane.handle_announced();
        link.on_taken(4);
        assert_eq!(link.queue.len(), 2);
    }

    #[test]
    fn nothing_more_arrives_after_the_fallback_message_of_the_peer() {
        let mut link = link_with(0);
        let message = || LinkMessage { peer: Tid(0x80001), meta: Meta::default(), body: Vec::new() };
        link.take(message());
        link.held.is_closed.set(true);
        link.take(message());
        assert_eq!((link.lane.received(), link.held.messages.borrow().len()), (1, 1));
    }

    #[test]
    fn a_peer_that_takes_nothing_for_long_loses_the_link_only_if_messages_wait_for_it() {
        let (mut idle, mut busy, begin) = (link_with(0), link_with(1), Instant::now());
        for second in 0..30 {
            let now = begin + Duration::from_secs(second);
            assert!(!idle.has_stalled(now) && !busy.has_stalled(now));
        }
        assert!(busy.has_stalled(begin + STALL_LIMIT) && !idle.has_stalled(begin + STALL_LIMIT));
        busy.on_taken(1);
        assert!(!busy.has_stalled(begin + 2 * STALL_LIMIT));
    }

    #[test]
    fn a_peer_that_is_heard_by_the_default_route_only_loses_the_link() {
        let misses_at = |link: &mut FabricLink, pause: Duration| {
            let begin = link.unheard_at;
            (1..100).find(|count| link.misses_hello(begin + *count * pause))
        };
        assert_eq!(misses_at(&mut link_with(0), Duration::from_millis(100)), Some(40));
        assert_eq!(misses_at(&mut link_with(0), Duration::from_secs(60)), Some(4));
        let mut heard = link_with(0);
        heard.lane.handle_hello();
        assert_eq!(misses_at(&mut heard, Duration::from_secs(1)), None);
    }
}
