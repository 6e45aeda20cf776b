//! The route of messages on a fabric, between tasks of hosts that share one.
//!
//! The daemons introduce the two tasks (`pvm_core::machine`, `fabrics`). The asking task sends the first hello on the
//! fabric, the other task answers it. A task that has received the hello of its peer knows that the fabric carries
//! messages to it. It sends one last message on the default route, the *route switch*, and all later messages on the
//! fabric. The peer takes messages from the fabric once the route switch has arrived. So no message overtakes another,
//! and no task waits.
//!
//! Messages stay in the send queue until the peer's library has taken them. When the fabric fails, or the task leaves,
//! the task falls back to the default route as from a direct link (`crate::direct::fallback`): it announces how many
//! messages the peer has taken, and sends the others again.
//!
//! Two tasks have at most one link, on a fabric or a direct one.
mod lent;
mod link;
mod posted;
mod sending;
mod waiting;

use super::{FabricEvent, FabricLinks, LinkName, Secrets};
use crate::direct::{BUSY_POLLS, STALL_POLLS};
use crate::envelope::HeldMessages;
use crate::envelope::LinkMessage;
use crate::store::Store;
use link::FabricLink;
pub(crate) use posted::{SPIN_TIME, time_for};
use pvm_core::channel::GivenUp;
use pvm_core::fabric::{Introduction, Wish};
use pvm_core::proto::{ByteBuf, FABRIC_SECRET_BYTES, FabricOffer, FabricSecrets, LinkCause, Request};
use pvm_core::tid::Tid;
use pvm_fmp::{Meta, has_stack};
use pvm_net::fabric::{Fabric, Queues, Setting};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Instant;
pub(crate) use waiting::Patience;

/// The words of a message's header that travel with it, in bytes.
const HEADER_BYTES: usize = 20;

/// How many bytes of stack must be left to open a fabric: providers are loaded and started then. Some programs run threads or
/// coroutines with less.
const OPEN_STACK_BYTES: usize = 256 << 10;

/// The fabric of a task.
enum State {
    /// Nobody has needed it yet.
    Unopened,
    Open(Box<FabricLinks>),
    /// There is none, or none that works.
    Absent,
}

/// What this task has told a peer that has not answered yet.
struct Asked {
    ours: Introduction,
    secrets: FabricSecrets,
    cause: LinkCause,
}

/// A peer that has ended, whose last messages are taken in.
#[derive(Clone, Copy)]
struct Draining {
    peer: Tid,
    /// When the peer's end became known, and when the last message arrived.
    begun: Instant,
    since: Instant,
}

/// What other parts of the task have to learn.
pub(crate) enum RouteEvent {
    Usable(Tid),
    Ended(Tid),
}

/// The links of a task on a fabric.
pub(crate) struct FabricRoute {
    setting: Setting,
    /// Whether no message may travel in clear (`PVM_FABRIC_CLEAR=never`).
    never_clear: bool,
    state: State,
    /// All links, by the peer's tid.
    pub links: Vec<FabricLink>,
    asked: BTreeMap<Tid, Asked>,
    draining: Option<Draining>,
    /// What has arrived on links that were removed since.
    pub left_over: Vec<Rc<HeldMessages>>,
    pub events: Vec<RouteEvent>,
    polls: u32,
    /// The message that was read into the memory of the posted receive, and the length of its body.
    filled: Option<(Tid, Meta, usize)>,
    /// Whether a one-call receive waits.
    pub is_awaited: bool,
    /// Whether the fabric was polled for a posted receive, since messages were last delivered.
    pub was_polled: bool,
    /// When the last long message was sent, or the memory of one was given back; `None` if no memory is kept.
    bodies_used_at: Option<Instant>,
    /// Whether the epoll descriptor of the task watches the fabric's descriptor.
    is_watched: bool,
    /// Why the fabric that the user has named cannot be used, until the daemon is told.
    problem: Option<String>,
}

impl FabricRoute {
    /// Returns the route of a task that has no links. The library is loaded when it is first needed.
    pub fn new(wish: &Wish) -> FabricRoute {
        let text = wish.setting.as_deref().unwrap_or("auto");
        let parsed = text.parse::<Setting>();
        let problem = parsed.as_ref().err().map(|error| format!("`{text}`: {error}, messages take TCP"));
        FabricRoute {
            setting: parsed.unwrap_or(Setting::Off),
            never_clear: wish.never_clear,
            state: State::Unopened,
            links: Vec::new(),
            asked: BTreeMap::new(),
            draining: None,
            left_over: Vec::new(),
            events: Vec::new(),
            polls: 0,
            bodies_used_at: None,
            filled: None,
            is_awaited: false,
            was_polled: false,
            is_watched: false,
            problem,
        }
    }

    #[inline(always)]
    pub fn is_active(&self) -> bool {
        !self.links.is_empty() || !self.left_over.is_empty()
    }

    /// Returns whether there may be a fabric.
    pub fn may_exist(&self) -> bool {
        self.setting != Setting::Off && !matches!(self.state, State::Absent)
    }

    pub fn position(&self, peer: Tid) -> Result<usize, usize> {
        self.links.binary_search_by_key(&peer, |link| link.peer)
    }

    /// Returns whether there is a link to that peer, used or not.
    pub fn has_link(&self, peer: Tid) -> bool {
        self.position(peer).is_ok()
    }

    /// Returns whether that peer was asked for a link and has not answered.
    pub fn has_asked(&self, peer: Tid) -> bool {
        self.asked.contains_key(&peer)
    }

    /// Returns whether messages to that task take the fabric.
    pub fn carries(&self, to: Tid) -> bool {
        self.position(to).is_ok_and(|at| self.links[at].lane.carries())
    }

    /// Returns whether the program knows of a link to that peer, since it has asked for direct routes.
    pub fn is_announced(&self, peer: Tid) -> bool {
        self.position(peer).is_ok_and(|at| self.links[at].is_announced)
    }

    /// Lets the program learn of a used link, because it has asked for direct routes.
    pub fn announce(&mut self, at: usize) {
        if !std::mem::replace(&mut self.links[at].is_announced, true) {
            self.events.push(RouteEvent::Usable(self.links[at].peer));
        }
    }

    /// Lets the program learn of the end of a link that was announced to it.
    pub fn denounce(&mut self, at: usize) {
        if std::mem::take(&mut self.links[at].is_announced) {
            self.events.push(RouteEvent::Ended(self.links[at].peer));
        }
    }

    /// Returns to how many tasks messages take the fabric.
    pub fn peers(&self) -> usize {
        self.links.iter().filter(|link| link.lane.carries() && !link.lane.falls_back()).count()
    }

    /// Returns whether a poll may make a link usable.
    pub fn has_pending(&self) -> bool {
        !self.asked.is_empty() || self.links.iter().any(|link| link.lane.is_pending())
    }

    /// Returns whether no program has asked for one of the links.
    pub fn has_unasked(&self) -> bool {
        self.links.iter().any(|link| link.cause == LinkCause::Traffic)
    }

    /// Returns whether messages have arrived that the task has not taken over.
    pub fn has_arrived(&self) -> bool {
        let is_full = |held: &Rc<HeldMessages>| !held.messages.borrow().is_empty();
        self.left_over.iter().any(is_full) || self.links.iter().any(|link| is_full(&link.held))
    }

    /// Begins the fallback from the links on which messages go to these peers and that no program has asked for. Returns
    /// whether there are any.
    pub fn leave_unasked(&mut self, is_meant: impl Fn(Tid) -> bool) -> bool {
        let is_unasked = |link: &&mut FabricLink| link.cause == LinkCause::Traffic && link.lane.carries();
        let links = self.links.iter_mut().filter(is_unasked).filter(|link| is_meant(link.peer));
        links.map(|link| link.lane.give_up(GivenUp::Company)).count() > 0
    }

    /// Returns whether the peers have not taken all messages.
    pub fn holds_messages(&self) -> bool {
        self.links.iter().any(|link| !link.queue.is_empty())
    }

    /// Returns whether the messages of a peer that has ended are still taken in.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Returns whether that peer has ended, and its last messages are still taken in.
    pub fn has_left(&self, peer: Tid) -> bool {
        self.draining.is_some_and(|draining| draining.peer == peer)
    }

    /// Returns and forgets why the fabric that the user has named cannot be used.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Opens the fabric, if that was not tried before.
    fn open(&mut self) -> Option<&mut FabricLinks> {
        if matches!(self.state, State::Unopened) {
            let is_futile = self.setting == Setting::Auto && !pvm_net::fabric::has_devices();
            if !is_futile && !has_stack(OPEN_STACK_BYTES) {
                // Another thread may open it, or this one later.
                return None;
            }
            self.state = State::Absent;
            if !is_futile {
                match Fabric::open(&self.setting, Queues::USUAL) {
                    Ok(Some(fabric)) => self.state = State::Open(Box::new(FabricLinks::new(fabric))),
                    Ok(None) => {}
                    // If nobody has asked for a fabric, nobody needs to know.
                    Err(_) if self.setting == Setting::Auto => {}
                    Err(error) => self.problem = Some(format!("{error}, messages take TCP")),
                }
            }
        }
        match &mut self.state {
            State::Open(fabric) => Some(fabric),
            State::Unopened | State::Absent => None,
        }
    }

    /// Returns the request for a link. Returns `None` if there is no fabric, or no room for one more peer.
    pub fn ask(&mut self, peer: Tid, cause: LinkCause) -> Option<Request> {
        let mut secrets = [[0; FABRIC_SECRET_BYTES]; 2];
        secrets.iter_mut().try_for_each(|secret| pvm_net::fabric::fill_random(secret))?;
        let ours = self.open()?.introduce()?;
        let offer = FabricOffer { introduction: ByteBuf::from(ours.encode()), secrets: Some(secrets) };
        self.asked.insert(peer, Asked { ours, secrets, cause });
        Some(Request::Fabric { to: peer, offer, always_sealed: self.never_clear, cause })
    }

    /// Forgets a question that leads to no link.
    pub fn withdraw(&mut self, peer: Tid) {
        if let (Some(asked), State::Open(fabric)) = (self.asked.remove(&peer), &mut self.state) {
            fabric.withdraw(&asked.ours);
        }
    }

    /// Forgets all questions, since the daemon is gone.
    pub fn forget_questions(&mut self) {
        for peer in self.asked.keys().copied().collect::<Vec<Tid>>() {
            self.withdraw(peer);
        }
    }

    /// Makes the link to a peer that has answered. Returns false if that is not possible.
    pub fn on_answer(&mut self, peer: Tid, introduction: &[u8], is_sealed: bool) -> bool {
        let Some(Asked { ours, secrets: [sending, receiving], cause }) = self.asked.remove(&peer) else { return false };
        let secrets = is_sealed.then_some(Secrets { sending, receiving });
        match self.connect((peer, cause), &ours, introduction, secrets.as_ref()) {
            Some(at) => {
                self.say_hello(at);
                true
            }
            None => false,
        }
    }

    /// Makes the link to a peer that asks for one. Returns what the peer is told, or `None` if there will be no link.
    pub fn on_question(&mut self, link: (Tid, LinkCause), offer: &FabricOffer) -> Option<Introduction> {
        if self.never_clear && offer.secrets.is_none() {
            return None;
        }
        let ours = self.open()?.introduce()?;
        let secrets = offer.secrets.map(|[receiving, sending]| Secrets { sending, receiving });
        self.connect(link, &ours, &offer.introduction, secrets.as_ref()).map(|_| ours)
    }

    /// Makes this side of a link. Returns its position, or `None` if the peer cannot be reached.
    fn connect(
        &mut self,
        (peer, cause): (Tid, LinkCause),
        ours: &Introduction,
        theirs: &[u8],
        secrets: Option<&Secrets>,
    ) -> Option<usize> {
        let place = self.position(peer).err();
        let State::Open(fabric) = &mut self.state else { return None };
        let name = Introduction::decode(theirs).zip(place).and_then(|(theirs, at)| {
            // Messages behind the hello wait until those on the default route have arrived.
            fabric.connect(ours, &theirs, secrets).ok().map(|name| (name, at))
        });
        let Some((name, at)) = name else {
            fabric.withdraw(ours);
            return None;
        };
        fabric.hold_after(name, 1);
        self.links.insert(at, FabricLink::new(peer, name, cause));
        Some(at)
    }

    fn say_hello(&mut self, at: usize) {
        let State::Open(fabric) = &mut self.state else { return };
        self.links[at].lane.say_hello();
        fabric.send_short(self.links[at].name, Vec::new());
    }

    /// Handles the route switch of a peer. Returns false if there is no link to it.
    pub fn on_route_switch(&mut self, peer: Tid) -> bool {
        let Ok(at) = self.position(peer) else { return false };
        self.links[at].lane.handle_route_switch();
        if let State::Open(fabric) = &mut self.state {
            fabric.release(self.links[at].name);
        }
        // What was released is counted before a frame reports it as taken: otherwise a peer that falls back would not
        // send it again.
        self.poll();
        true
    }

    // ----- what arrives

    /// Takes in what has arrived; more may have arrived if it returns a number. Returns the number of messages and events.
    pub fn poll(&mut self) -> usize {
        let mut count = 0;
        while let State::Open(fabric) = &mut self.state {
            // With a message at hand, the provider is not asked for further ones: that takes system calls.
            if count > 0 && self.draining.is_none() && !fabric.has_more() {
                break;
            }
            match fabric.poll() {
                Ok(None) => break,
                Ok(Some(event)) => self.on_event(event),
                Err(_) => self.leave_fabric(),
            }
            count += 1;
        }
        count
    }

    fn on_event(&mut self, event: FabricEvent) {
        let (FabricEvent::Message { link: name, .. }
        | FabricEvent::InPlace { link: name, .. }
        | FabricEvent::Sent(name, _)
        | FabricEvent::Broken(name, ..)) = event;
        let Some(at) = self.links.iter().position(|link| link.name == name && !link.is_gone) else { return };
        match event {
            FabricEvent::Message { content, body, .. } => self.on_message(at, content, body),
            FabricEvent::InPlace { content, bytes, .. } => self.on_filled(at, content, bytes),
            FabricEvent::Sent(_, number) => self.links[at].on_taken(number),
            FabricEvent::Broken(..) => self.links[at].on_broken(),
        }
    }

    fn on_message(&mut self, at: usize, content: Vec<u8>, body: Option<Vec<u8>>) {
        let link = &mut self.links[at];
        let peer = link.peer;
        if let Some(draining) = self.draining.as_mut().filter(|draining| draining.peer == peer) {
            draining.since = Instant::now();
        }
        if content.is_empty() && body.is_none() && !link.lane.is_established() {
            link.lane.handle_hello();
            if !link.lane.has_said_hello() {
                self.say_hello(at);
            }
            return;
        }
        match read_message(content, body) {
            Some((meta, body)) if link.lane.is_established() => link.take(LinkMessage { peer, meta, body }),
            _ => self.give_up(at),
        }
    }

    /// Ends a link on the fabric. What the peer has not taken is to be sent on the default route.
    pub fn give_up(&mut self, at: usize) {
        if let State::Open(fabric) = &mut self.state {
            fabric.disconnect(self.links[at].name);
        }
        self.links[at].on_broken();
    }

    /// Leaves a fabric that does not work any more.
    fn leave_fabric(&mut self) {
        self.state = State::Absent;
        self.is_watched = false;
        self.asked.clear();
        self.links.iter_mut().for_each(FabricLink::on_broken);
    }

    /// Leaves the fabric of the parent, in a child that goes on as its parent's task. The parent's endpoint is not
    /// touched: what it holds may belong to the parent alone. `epoll`: the descriptor of all links.
    pub fn inherit(&mut self, epoll: Option<BorrowedFd<'_>>) {
        self.watch(epoll, false);
        self.forget();
    }

    /// Ends all links, and forgets the fabric without touching it.
    pub fn forget(&mut self) {
        self.abandon();
        self.is_watched = false;
        self.asked.clear();
        self.links.iter_mut().for_each(FabricLink::on_broken);
    }

    /// Forgets the fabric of the parent, in a child.
    pub fn abandon(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.state, State::Unopened));
    }

    /// Removes a link that is used no more.
    pub fn remove(&mut self, at: usize) {
        self.denounce(at);
        let link = self.links.remove(at);
        self.left_over.push(link.held.clone());
        if self.draining.is_some_and(|draining| draining.peer == link.peer) {
            self.draining = None;
        }
        if let (State::Open(fabric), false) = (&mut self.state, link.is_gone) {
            fabric.disconnect(link.name);
        }
    }

    /// Counts a call that may poll the fabric. Returns whether it should. `count`: how many messages have arrived by other
    /// routes; `unheard`: a peer that has sent one of them, and whose hello has not come.
    pub fn is_poll_due(&mut self, count: usize, parked: bool, unheard: Option<Tid>) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let was_polled = std::mem::take(&mut self.was_polled) && !parked;
        !was_polled && (count == 0 || parked || self.polls % BUSY_POLLS == 0 || unheard.is_some())
    }

    /// Ends links that carry nothing, after a call that may have polled the fabric.
    pub fn end_links(&mut self, parked: bool, unheard: Option<Tid>) {
        if let Some(peer) = unheard {
            self.note_heard(peer);
        }
        if parked || self.polls % STALL_POLLS == 0 {
            self.close_stalled();
        }
        self.finish_draining();
    }

    /// Returns whether messages on a link come after all that the daemon and other tasks have queued before: no program has
    /// asked for the link. The last messages of a peer that has ended come before that news.
    pub fn is_ordered(&self, link: &FabricLink) -> bool {
        link.cause == LinkCause::Traffic && !self.has_left(link.peer)
    }

    /// Looks for links that have carried nothing for too long.
    fn close_stalled(&mut self) {
        let now = Instant::now();
        for link in &mut self.links {
            if link.has_stalled(now) {
                link.lane.handle_break();
            }
        }
    }

    /// Returns whether there is a link to that peer, on which no hello of it has arrived yet.
    pub fn awaits_hello(&self, peer: Tid) -> bool {
        self.position(peer).is_ok_and(|at| !self.links[at].lane.is_established())
    }

    /// Notes that a message of a peer has arrived by the default route. Begins the fallback from the link to that peer if its
    /// hello is missing for too long.
    fn note_heard(&mut self, peer: Tid) {
        if let Ok(at) = self.position(peer) {
            let link = &mut self.links[at];
            if link.misses_hello(Instant::now()) {
                link.lane.handle_break();
            }
        }
    }

    /// Begins to take in the last messages of a peer that has ended.
    pub fn drain(&mut self, peer: Tid) {
        let Ok(at) = self.position(peer) else { return };
        let link = &self.links[at];
        if link.is_gone || !link.lane.peer_has_switched() {
            return self.remove(at);
        }
        let now = Instant::now();
        self.draining = Some(Draining { peer, begun: now, since: now });
        self.poll();
    }

    /// Removes the link to a peer that has ended, once nothing more arrives.
    fn finish_draining(&mut self) {
        let Some(Draining { peer, begun, since }) = self.draining else { return };
        let Ok(at) = self.position(peer) else {
            self.draining = None;
            return;
        };
        let link = &self.links[at];
        let is_reading = matches!(&self.state, State::Open(fabric) if fabric.is_reading(link.name));
        if link.is_gone || waiting::is_drained(begun.elapsed(), since.elapsed(), is_reading) {
            self.remove(at);
        }
    }

    /// Takes over the memory of a body that the program has received and freed: the next one is read into it.
    pub fn recycle(&mut self, store: &mut Store) {
        if let State::Open(fabric) = &mut self.state {
            if let Some(body) = store.give_spare() {
                fabric.recycle(body);
                self.bodies_used_at = Some(Instant::now());
            }
        }
    }

    /// Handles the end of the fallback from a link.
    pub fn on_fallen_back(&mut self, at: usize) {
        if self.links[at].is_gone {
            self.remove(at);
        }
    }

    /// Returns a number that grows when peers take messages.
    pub fn taken_by_peers(&self) -> u64 {
        self.links.iter().map(|link| u64::from(link.queue.acknowledged())).sum()
    }
}

/// Splits what has arrived into the header's words and the body. Returns `None` if it is no message.
fn read_message(mut content: Vec<u8>, body: Option<Vec<u8>>) -> Option<(Meta, Vec<u8>)> {
    let header = content.get(..HEADER_BYTES)?;
    let mut meta = Meta::default();
    for (word, bytes) in meta.iter_mut().zip(header.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().ok()?);
    }
    match body {
        None => {
            content.drain(..HEADER_BYTES);
            Some((meta, content))
        }
        Some(body) => (content.len() == HEADER_BYTES).then_some((meta, body)),
    }
}

/// Returns the bytes of the header's words.
fn header_of(meta: &Meta) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    for (place, word) in header.chunks_exact_mut(4).zip(meta) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_nothing_else_is() {
        let meta: Meta = [1, 2, 3, 4, u32::MAX, 0];
        let header = header_of(&meta);
        let short = [&header[..], b"body"].concat();
        assert_eq!(read_message(short, None), Some((meta, b"body".to_vec())));
        assert_eq!(read_message(header.to_vec(), Some(b"long".to_vec())), Some((meta, b"long".to_vec())));
        assert_eq!(read_message(header.to_vec(), None), Some((meta, Vec::new())));
        assert_eq!(read_message(header[1..].to_vec(), None), None);
        assert_eq!(read_message([&header[..], b"x"].concat(), Some(Vec::new())), None);
    }

    #[test]
    fn a_setting_that_is_none_is_reported_and_there_is_no_fabric() {
        let mut route = FabricRoute::new(&Wish { setting: Some("tcp;a;b".into()), never_clear: false });
        assert!(!route.may_exist());
        assert!(route.take_problem().is_some_and(|problem| problem.contains("PROVIDER[;DOMAIN]")));
        assert_eq!(route.take_problem(), None);
    }

    #[test]
    fn a_task_without_a_device_has_no_fabric_unless_it_names_one() {
        let mut route = FabricRoute::new(&Wish { setting: Some("nonesuch".into()), never_clear: false });
        assert!(route.may_exist() && route.ask(Tid(0x80001), LinkCause::Program).is_none() && !route.may_exist());
        assert!(route.take_problem().is_some());
        if !pvm_net::fabric::has_devices() {
            let mut route = FabricRoute::new(&Wish::default());
            assert!(route.may_exist() && route.ask(Tid(0x80001), LinkCause::Program).is_none() && !route.may_exist());
            assert_eq!(route.take_problem(), None);
        }
    }
}
