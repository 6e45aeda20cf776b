//! The bodies of multicasts that this host sends to other hosts: those of its own tasks, and those that it relays.
use super::super::CHUNK_BYTES_MAX;
use super::{BodyKey, BodyPart, BodyRequest};
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The bodies of other hosts' multicasts that a daemon keeps for its children in the tree after it has received them
/// wholly.
///
/// * Filled by: other hosts that multicast, if hosts below this one in the tree are slow
/// * Setting: none, the limit has no visible effect
/// * Reached: the oldest body is dropped; hosts that still need it fetch it from the sender's host
/// * Test: `relayed_bodies_beyond_the_limit_are_dropped`
pub const RELAYED_BYTES_MAX: usize = 64 << 20;
/// Requests of one host for bodies that a daemon sends or will receive.
///
/// * Filled by: each other host
/// * Setting: none, no host has more multicasts under way
/// * Reached: the request is refused, and the host fetches the body from the sender's host, which refuses no body that it
///   has announced to that host
/// * Test: `requests_beyond_the_limit_are_refused`
pub const BODY_REQUESTS_MAX: usize = 4096;
/// How many bodies are remembered that this host does not relay.
const REFUSED_MAX: usize = 256;
/// After this number of ticks without a request, a relayed body is dropped, and so is a request for an unknown body.
const IDLE_TICKS_MAX: u32 = 4;

/// Why this host keeps a body.
enum Keeper {
    /// A task of this host sends the body.
    Sender {
        /// The sender, and the cost in its budget.
        budget: (Tid, u64),
        /// The hosts that have not reported the receipt of the body yet.
        waiting: BTreeSet<Tid>,
    },
    /// A task of this host receives the body, and other hosts fetch it from here.
    Relay {
        /// How many hosts will probably still fetch the body.
        children: u32,
        /// For how many ticks no host has fetched.
        idle_ticks: u32,
    },
}

struct Body<P> {
    body: Rc<P>,
    bytes: usize,
    /// How many bytes this host has.
    available: usize,
    keeper: Keeper,
}

/// A body that another host is to get: it has requested it, or this host sends it without a request.
struct Fetch {
    key: BodyKey,
    at: u64,
    /// For how many ticks the body has been unknown.
    unknown_ticks: u32,
}

/// What one other host wants, and what it is to be told.
#[derive(Default)]
struct Client {
    fetches: VecDeque<Fetch>,
    unsent: VecDeque<(BodyKey, BodyRequest)>,
}

impl Client {
    /// Reports that a body will not be sent. A host that does not read its reports misses some of them; after a while
    /// it fetches from the sender's host without one.
    fn refuse(&mut self, key: BodyKey) {
        if self.unsent.len() < BODY_REQUESTS_MAX {
            self.unsent.push_back((key, BodyRequest::Unavailable));
        }
    }
}

/// The bodies that this host sends, and the requests for them.
pub struct Bodies<P> {
    bodies: BTreeMap<BodyKey, Body<P>>,
    clients: BTreeMap<Tid, Client>,
    /// The complete bodies that are kept for other hosts only, oldest first, and their length.
    complete: VecDeque<(BodyKey, usize)>,
    complete_bytes: usize,
    refused: VecDeque<BodyKey>,
    /// How many bodies this host is receiving that it relays.
    relaying: usize,
}

impl<P> Default for Bodies<P> {
    fn default() -> Self {
        let (bodies, clients) = (BTreeMap::new(), BTreeMap::new());
        let (complete, refused) = (VecDeque::new(), VecDeque::new());
        Bodies { bodies, clients, complete, complete_bytes: 0, refused, relaying: 0 }
    }
}

impl<P> Bodies<P> {
    // ----- bodies

    /// Keeps the body of a local sender until these hosts have it.
    pub fn keep(&mut self, key: BodyKey, body: Rc<P>, bytes: usize, budget: (Tid, u64), hosts: BTreeSet<Tid>) {
        let keeper = Keeper::Sender { budget, waiting: hosts };
        self.bodies.insert(key, Body { body, bytes, available: bytes, keeper });
    }

    /// Returns a body.
    pub fn get(&self, key: BodyKey) -> Option<Rc<P>> {
        self.bodies.get(&key).map(|body| body.body.clone())
    }

    /// Keeps a body that this host is receiving, for `children` hosts.
    pub fn relay(&mut self, key: BodyKey, body: Rc<P>, bytes: usize, children: u32) {
        if children == 0 {
            return self.refuse(key);
        }
        self.remove(key);
        self.relaying += 1;
        let keeper = Keeper::Relay { children, idle_ticks: 0 };
        self.bodies.insert(key, Body { body, bytes, available: 0, keeper });
    }

    /// Notes that this host has the first `available` bytes of a relayed body.
    pub fn grow(&mut self, key: BodyKey, available: usize) {
        let Some(body) = self.bodies.get_mut(&key) else { return };
        let was_complete = body.available == body.bytes;
        body.available = available;
        if available == body.bytes && !was_complete {
            self.relaying -= 1;
            self.complete.push_back((key, body.bytes));
            self.complete_bytes += body.bytes;
            while self.complete_bytes > RELAYED_BYTES_MAX {
                let Some((oldest, _)) = self.complete.front().copied() else { return };
                self.refuse(oldest);
            }
        }
    }

    /// Returns whether this host is receiving a body that it relays.
    pub fn is_relaying(&self) -> bool {
        self.relaying > 0
    }

    /// Stops to relay a body, and refuses requests for it from now on.
    pub fn refuse(&mut self, key: BodyKey) {
        self.remove(key);
        self.refused.push_back(key);
        if self.refused.len() > REFUSED_MAX {
            self.refused.pop_front();
        }
        for client in self.clients.values_mut() {
            let before = client.fetches.len();
            client.fetches.retain(|fetch| fetch.key != key);
            if client.fetches.len() < before {
                client.refuse(key);
            }
        }
    }

    fn remove(&mut self, key: BodyKey) {
        if self.bodies.remove(&key).is_some_and(|body| body.available < body.bytes) {
            self.relaying -= 1;
        }
        if let Some(place) = self.complete.iter().position(|(other, _)| *other == key) {
            self.complete_bytes -= self.complete.remove(place).map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Handles the report that a host has received a body. Returns the sender and the cost of the body in its budget if
    /// all hosts have it now.
    pub fn received(&mut self, host: Tid, key: BodyKey) -> Option<(Tid, u64)> {
        let Keeper::Sender { waiting, budget } = &mut self.bodies.get_mut(&key)?.keeper else { return None };
        waiting.remove(&host);
        let (is_done, budget) = (waiting.is_empty(), *budget);
        self.cancel(host, key);
        is_done.then(|| {
            self.bodies.remove(&key);
            budget
        })
    }

    /// Forgets a host that has gone. Returns the senders of bodies that no host needs any more, and their costs.
    pub fn host_gone(&mut self, host: Tid) -> Vec<(Tid, u64)> {
        self.clients.remove(&host);
        let of_host: Vec<BodyKey> = self.bodies.keys().copied().filter(|key| key.origin == host).collect();
        of_host.into_iter().for_each(|key| self.remove(key));
        let needed: Vec<BodyKey> = self.bodies.keys().copied().collect();
        needed.into_iter().filter_map(|key| self.received(host, key)).collect()
    }

    /// Drops relayed bodies, and requests for unknown ones, that have been idle for [`IDLE_TICKS_MAX`] ticks.
    pub fn tick(&mut self) {
        let wanted: BTreeSet<BodyKey> =
            self.clients.values().flat_map(|client| client.fetches.iter().map(|fetch| fetch.key)).collect();
        let mut idle = Vec::new();
        for (key, body) in &mut self.bodies {
            let Keeper::Relay { idle_ticks, .. } = &mut body.keeper else { continue };
            let is_idle = body.available == body.bytes && !wanted.contains(key);
            *idle_ticks = if is_idle { *idle_ticks + 1 } else { 0 };
            if *idle_ticks > IDLE_TICKS_MAX {
                idle.push(*key);
            }
        }
        idle.into_iter().for_each(|key| self.refuse(key));
        for client in self.clients.values_mut() {
            for fetch in client.fetches.iter_mut().filter(|fetch| !self.bodies.contains_key(&fetch.key)) {
                fetch.unknown_ticks += 1;
            }
            client.fetches.retain(|fetch| fetch.unknown_ticks <= IDLE_TICKS_MAX);
        }
        self.clients.retain(|_, client| !client.fetches.is_empty() || !client.unsent.is_empty());
    }

    // ----- requests

    /// Handles a request for a body. The body may be unknown: this host may receive its announcement later.
    pub fn fetch(&mut self, host: Tid, key: BodyKey, at: u64) {
        let (is_refused, is_owed) = match self.bodies.get(&key) {
            // A body that this host has announced must not be refused: nobody else may have it.
            Some(Body { bytes, keeper: Keeper::Sender { waiting, .. }, .. }) => {
                (at >= *bytes as u64, waiting.contains(&host))
            }
            Some(body) => (at >= body.bytes as u64, false),
            None => (self.refused.contains(&key), false),
        };
        let client = self.clients.entry(host).or_default();
        client.fetches.retain(|fetch| fetch.key != key);
        if is_refused || (client.fetches.len() >= BODY_REQUESTS_MAX && !is_owed) {
            client.refuse(key);
        } else {
            client.fetches.push_back(Fetch { key, at, unknown_ticks: 0 });
        }
    }

    /// Tells a host that it gets a body only if it fetches it.
    pub fn refuse_host(&mut self, host: Tid, key: BodyKey) {
        self.clients.entry(host).or_default().refuse(key);
    }

    /// Handles the cancellation of a request.
    pub fn cancel(&mut self, host: Tid, key: BodyKey) {
        if let Some(client) = self.clients.get_mut(&host) {
            client.fetches.retain(|fetch| fetch.key != key);
        }
    }

    /// Queues a request or report for another host.
    pub fn send(&mut self, host: Tid, key: BodyKey, request: BodyRequest) {
        self.clients.entry(host).or_default().unsent.push_back((key, request));
    }

    /// Returns the next request or report for a host.
    pub fn next_request(&mut self, host: Tid) -> Option<(BodyKey, BodyRequest)> {
        self.clients.get_mut(&host)?.unsent.pop_front()
    }

    /// Returns the next part of a body for a host. The bodies that the host has requested take turns.
    pub fn next_part(&mut self, host: Tid) -> Option<BodyPart<P>> {
        let fetches = &mut self.clients.get_mut(&host)?.fetches;
        let is_ready = |fetch: &Fetch| self.bodies.get(&fetch.key).is_some_and(|body| fetch.at < body.available as u64);
        let place = fetches.iter().position(is_ready)?;
        let fetch = fetches.remove(place)?;
        let body = self.bodies.get_mut(&fetch.key)?;
        let at = fetch.at as usize;
        let range = at..body.available.min(at + CHUNK_BYTES_MAX);
        let (key, part) = (fetch.key, BodyPart { key: fetch.key, range: range.clone(), body: body.body.clone() });
        if range.end < body.bytes {
            fetches.push_back(Fetch { at: range.end as u64, ..fetch });
        } else if let Keeper::Relay { children, .. } = &mut body.keeper {
            *children = children.saturating_sub(1);
            if *children == 0 {
                self.refuse(key);
            }
        }
        Some(part)
    }

    /// Returns whether anything waits for a host that could be sent now.
    pub fn has_items(&self, host: Tid) -> bool {
        let Some(client) = self.clients.get(&host) else { return false };
        let is_ready = |fetch: &Fetch| self.bodies.get(&fetch.key).is_some_and(|body| fetch.at < body.available as u64);
        !client.unsent.is_empty() || client.fetches.iter().any(is_ready)
    }

    /// Returns the hosts for which something waits.
    pub fn hosts(&self) -> impl Iterator<Item = Tid> + '_ {
        self.clients.keys().copied()
    }

    /// Returns whether no body of a local sender is kept.
    pub fn is_idle(&self) -> bool {
        !self.bodies.values().any(|body| matches!(body.keeper, Keeper::Sender { .. }))
    }

    /// Returns how many bodies are kept.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.bodies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Tid = Tid(0x40000);
    const ORIGIN: Tid = Tid(0x80000);
    const CHILD: Tid = Tid(0xc0000);

    fn key(number: u32) -> BodyKey {
        let mut secret = [0; 16];
        secret[..4].copy_from_slice(&number.to_le_bytes());
        BodyKey { origin: ORIGIN, secret }
    }

    fn requests(bodies: &mut Bodies<()>) -> Vec<(BodyKey, BodyRequest)> {
        std::iter::from_fn(|| bodies.next_request(CHILD)).collect()
    }

    #[test]
    fn a_relay_sends_what_it_has_and_ends_with_its_last_child() {
        let mut bodies = Bodies::default();
        // The request precedes the announcement.
        bodies.fetch(CHILD, key(1), 0);
        assert!(bodies.next_part(CHILD).is_none());
        bodies.relay(key(1), Rc::new(()), 100_000, 1);
        assert!(bodies.next_part(CHILD).is_none() && !bodies.has_items(CHILD));
        bodies.grow(key(1), 70_000);
        assert!(bodies.has_items(CHILD));
        let ranges: Vec<_> = std::iter::from_fn(|| bodies.next_part(CHILD)).map(|part| part.range).collect();
        assert_eq!(ranges, [0..65_536, 65_536..70_000]);
        bodies.grow(key(1), 100_000);
        assert_eq!(bodies.next_part(CHILD).map(|part| part.range), Some(70_000..100_000));
        assert_eq!((bodies.count(), requests(&mut bodies)), (0, vec![]));
        bodies.fetch(CHILD, key(1), 0);
        assert_eq!(requests(&mut bodies), [(key(1), BodyRequest::Unavailable)], "another child comes late");
    }

    #[test]
    fn relayed_bodies_beyond_the_limit_are_dropped() {
        let mut bodies = Bodies::default();
        let bytes = RELAYED_BYTES_MAX / 4;
        for number in 0..5 {
            bodies.relay(key(number), Rc::new(()), bytes, 1);
            bodies.fetch(CHILD, key(number), 0);
            bodies.grow(key(number), bytes);
        }
        assert_eq!(bodies.count(), 4);
        assert_eq!(requests(&mut bodies), [(key(0), BodyRequest::Unavailable)]);
    }

    #[test]
    fn requests_beyond_the_limit_are_refused() {
        let mut bodies = Bodies::<()>::default();
        let limit = BODY_REQUESTS_MAX as u32;
        (0..limit + 1).for_each(|number| bodies.fetch(CHILD, key(number), 0));
        assert_eq!(requests(&mut bodies), [(key(limit), BodyRequest::Unavailable)]);
        (0..2 * limit).for_each(|number| bodies.fetch(CHILD, key(limit + number), 0));
        assert_eq!(requests(&mut bodies).len(), BODY_REQUESTS_MAX, "the host does not read its reports");
        // A request replaces an earlier one for the same body.
        bodies.fetch(CHILD, key(0), 7);
        assert_eq!(requests(&mut bodies), []);
    }

    #[test]
    fn idle_bodies_and_requests_for_unknown_bodies_are_dropped() {
        let mut bodies = Bodies::default();
        bodies.relay(key(1), Rc::new(()), 10, 1);
        bodies.fetch(CHILD, key(2), 0);
        (0..2 * IDLE_TICKS_MAX).for_each(|_| bodies.tick());
        assert_eq!(bodies.count(), 1, "an incomplete body is not idle");
        bodies.grow(key(1), 10);
        (0..IDLE_TICKS_MAX).for_each(|_| bodies.tick());
        assert_eq!((bodies.count(), bodies.hosts().count()), (1, 0));
        bodies.tick();
        assert_eq!(bodies.count(), 0);
    }

    #[test]
    fn the_body_of_a_local_sender_is_kept_until_all_hosts_have_it_or_are_gone() {
        let mut bodies = Bodies::default();
        let (own, hosts) = (BodyKey { origin: OWN, ..key(1) }, [CHILD, ORIGIN, Tid(0x100000)]);
        bodies.keep(own, Rc::new(()), 10, (Tid(0x40001), 64), hosts.into());
        assert_eq!(bodies.received(CHILD, own), None);
        assert_eq!(bodies.received(CHILD, own), None, "reported twice");
        assert_eq!(bodies.host_gone(ORIGIN), []);
        (0..10).for_each(|_| bodies.tick());
        assert_eq!(bodies.received(hosts[2], own), Some((Tid(0x40001), 64)));
        assert_eq!((bodies.received(hosts[2], own), bodies.is_idle()), (None, true));
    }
}
