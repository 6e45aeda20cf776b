//! To which tasks of other hosts this task requests a lane, and when.
use super::backoff::Backoff;
use super::lane::GivenUp;
use super::traffic::{Traffic, USUAL_COST};
use crate::tid::Tid;
use crate::time::Time;
use std::collections::HashMap;

/// Peers whose messages are counted, and peers with pauses between requests for lanes. A task is not told of the ends of
/// all tasks to which it has sent something.
///
/// * Filled by: the program, which sends to tasks of other hosts
/// * Setting: none, since counting begins anew
/// * Reached: all counts and pauses begin anew
/// * Test: `the_number_of_peers_is_limited`
const PEERS_MAX: usize = 4096;

/// A task that has not asked for direct routes asks a peer for a lane on a fabric once it has sent this number of messages to
/// it. Loading libfabric takes 0.1 s of a processor, so tasks that send only a few messages go without it.
const FABRIC_MESSAGES: u32 = 8;

/// What carries a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    /// A TCP connection.
    Direct,
    /// A fabric.
    Fabric,
}

/// What a task may ask for, and wishes, when it has sent a message by the default route.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    /// Whether the program has asked for direct routes.
    pub by_program: bool,
    /// Whether there may be a fabric.
    pub may_use_fabric: bool,
    /// Whether this task may make a TCP connection now.
    pub may_use_direct: bool,
}

/// What is known of one peer.
#[derive(Debug, Clone, Default)]
struct Peer {
    /// What was sent to it by the default route, apart from what a request for a direct link has taken into account.
    traffic: Traffic,
    /// The requests for a direct link, and for a lane on the fabric.
    direct: Backoff,
    fabric: Backoff,
    /// If messages went on the fabric, on a lane that has ended: when a direct link may be given up for a new lane there.
    lost: Option<Backoff>,
}

/// What a task knows of all tasks of other hosts to which it has sent something.
#[derive(Debug)]
pub struct Peers {
    peers: HashMap<Tid, Peer>,
    /// From which cost on a task asks for a direct link; `None` if only the program does.
    cost_min: Option<u32>,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers::with_cost_min(Some(USUAL_COST))
    }
}

impl Peers {
    /// Returns what is known before anything was sent. `setting`: the cost from which on a task asks for a direct link that no
    /// program has asked for, as the user has set it (`HPVM_DIRECT_AFTER`).
    pub fn new(setting: Option<&str>) -> Peers {
        Peers::with_cost_min(match setting {
            Some("off") => None,
            setting => Some(setting.and_then(|number| number.parse().ok()).unwrap_or(USUAL_COST)),
        })
    }

    fn with_cost_min(cost_min: Option<u32>) -> Peers {
        Peers { peers: HashMap::new(), cost_min }
    }

    /// Returns what is known of a peer. If there are too many peers, forgets those from which no lane was requested.
    fn of(&mut self, peer: Tid) -> &mut Peer {
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&peer) {
            self.peers.retain(|_, peer| peer.direct.is_requested() || peer.fabric.is_requested());
        }
        self.peers.entry(peer).or_default()
    }

    fn backoff(&mut self, kind: LaneKind, peer: Tid) -> &mut Backoff {
        let peer = self.of(peer);
        match kind {
            LaneKind::Direct => &mut peer.direct,
            LaneKind::Fabric => &mut peer.fabric,
        }
    }

    /// Returns the requests for a lane to a peer, if there were any.
    fn requests(&mut self, kind: LaneKind, peer: Tid) -> Option<&mut Backoff> {
        let peer = self.peers.get_mut(&peer)?;
        let backoff = if kind == LaneKind::Direct { &mut peer.direct } else { &mut peer.fabric };
        (!backoff.is_new()).then_some(backoff)
    }

    /// Counts a message of `bytes` bytes that was sent by the default route.
    pub fn count_message(&mut self, to: Tid, bytes: usize, now: Time) {
        self.of(to).traffic.count(bytes, now);
    }

    /// Returns whether so much was sent to a task that a direct link would have been worth its cost.
    fn has_paid(&self, to: Tid) -> bool {
        let peer = self.peers.get(&to);
        self.cost_min.is_some_and(|min| peer.is_some_and(|peer| peer.traffic.cost() >= min))
    }

    /// Returns the lane that is to be asked for, to a task to which there is none and that was not asked.
    pub fn wanted(&self, to: Tid, wish: Wish, now: Time) -> Option<LaneKind> {
        let unknown = Peer::default();
        let peer = self.peers.get(&to).unwrap_or(&unknown);
        let is_worth_direct = wish.by_program || self.has_paid(to);
        let is_worth_fabric = is_worth_direct || !peer.fabric.is_new() || peer.traffic.messages() >= FABRIC_MESSAGES;
        // A direct link would keep the messages from the fabric: two tasks have at most one lane.
        let may_ask_fabric = wish.may_use_fabric && peer.fabric.may_request(now) && !peer.direct.is_requested();
        if may_ask_fabric && is_worth_fabric {
            return Some(LaneKind::Fabric);
        }
        (wish.may_use_direct && is_worth_direct && peer.direct.may_request(now)).then_some(LaneKind::Direct)
    }

    /// Notes that a lane is asked for.
    pub fn handle_request(&mut self, kind: LaneKind, to: Tid) {
        if kind == LaneKind::Direct {
            self.of(to).traffic = Traffic::default();
        }
        self.backoff(kind, to).handle_request();
    }

    /// Returns whether a lane to that peer was requested, and the request has not failed, nor the lane broken.
    pub fn is_requested(&self, kind: LaneKind, peer: Tid) -> bool {
        self.peers.get(&peer).is_some_and(|peer| match kind {
            LaneKind::Direct => peer.direct.is_requested(),
            LaneKind::Fabric => peer.fabric.is_requested(),
        })
    }

    /// Notes that a lane to a peer was made.
    pub fn handle_made(&mut self, peer: Tid) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.direct.handle_made();
            peer.fabric.handle_made();
        }
    }

    /// Notes that messages to a peer take the fabric.
    pub fn handle_on_fabric(&mut self, peer: Tid) {
        self.peers.get_mut(&peer).into_iter().for_each(|peer| peer.lost = None);
    }

    /// Notes that a lane has broken, or was not made. Of a lane that the peer has asked for, this side knows nothing.
    pub fn handle_break(&mut self, kind: LaneKind, peer: Tid, now: Time) {
        self.requests(kind, peer).into_iter().for_each(|backoff| backoff.handle_break(now));
    }

    /// Notes that there can be no lane, since one of the two tasks is not alone on its host. There shall be no direct link
    /// before the lane may be on the fabric again.
    pub fn handle_company(&mut self, kind: LaneKind, peer: Tid, now: Time) {
        if kind == LaneKind::Fabric {
            self.of(peer).fabric.handle_company(now);
        }
        self.of(peer).direct.handle_company(now);
    }

    /// Begins the pause after a fallback. `why`: `None` if the lane has broken. `carried`: whether messages of this side went
    /// on it.
    pub fn handle_fallback(&mut self, kind: LaneKind, peer: Tid, why: Option<GivenUp>, carried: bool, now: Time) {
        match (kind, why) {
            (_, Some(GivenUp::Company)) | (LaneKind::Fabric, Some(_)) => self.handle_company(kind, peer, now),
            (LaneKind::Fabric, None) => {
                let known = self.of(peer);
                known.fabric.handle_break(now);
                if carried {
                    known.lost.get_or_insert_default().handle_break(now);
                }
            }
            // It is worth its cost again after as many messages as before.
            (_, Some(GivenUp::Burst)) => self.of(peer).direct = Backoff::default(),
            // The side that asks for the fabric does so before a direct link can be requested again.
            (_, Some(GivenUp::ForFabric)) => self.of(peer).direct.handle_given_up(now),
            (_, Some(GivenUp::ByPeer)) if self.has_lost_fabric(peer) => self.of(peer).direct.handle_given_up(now),
            (_, Some(GivenUp::ByPeer | GivenUp::Unheard)) => {
                self.requests(kind, peer).into_iter().for_each(|backoff| backoff.handle_given_up(now));
            }
            (_, Some(GivenUp::Unread) | None) => self.handle_break(kind, peer, now),
        }
    }

    /// Returns whether messages to that peer took the fabric, and take another route since the lane has ended.
    fn has_lost_fabric(&self, peer: Tid) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.lost.is_some())
    }

    /// Returns the peers that were on the fabric before and may be asked for a lane there again, if a direct link to them is
    /// given up: two tasks have at most one lane.
    pub fn lost_and_askable(&self, now: Time) -> Vec<Tid> {
        let may_ask = |peer: &Peer| {
            let may_give_up = peer.lost.is_some_and(|lost| lost.may_request(now));
            may_give_up && !peer.fabric.is_new() && peer.fabric.may_request(now)
        };
        self.peers.iter().filter(|(_, peer)| may_ask(peer)).map(|(peer, _)| *peer).collect()
    }

    /// Notes that a direct link is given up for the fabric. The pause between two attempts grows even if this task sends
    /// nothing, and therefore does not ask.
    pub fn handle_given_up_for_fabric(&mut self, peer: Tid, now: Time) {
        self.of(peer).lost.get_or_insert_default().handle_break(now);
    }

    /// Forgets a task that has ended.
    pub fn forget(&mut self, peer: Tid) {
        self.peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::PAUSE_FIRST;

    const OFTEN: Tid = Tid(0x80001);
    const DIRECT: Wish = Wish { by_program: false, may_use_fabric: false, may_use_direct: true };
    const BOTH: Wish = Wish { may_use_fabric: true, ..DIRECT };

    /// Sends messages that are too long for a burst and cost as much as short ones.
    fn send(peers: &mut Peers, to: Tid, count: u32) {
        (0..count).for_each(|_| peers.count_message(to, 4 << 10, Time::ZERO));
    }

    #[test]
    fn a_direct_link_is_wanted_after_its_cost_was_paid() {
        let (now, seldom) = (Time::ZERO, Tid(0x80003));
        let mut peers = Peers::default();
        send(&mut peers, OFTEN, USUAL_COST - 1);
        assert_eq!(peers.wanted(OFTEN, DIRECT, now), None);
        send(&mut peers, OFTEN, 1);
        send(&mut peers, seldom, 1);
        assert_eq!(peers.wanted(OFTEN, DIRECT, now), Some(LaneKind::Direct));
        assert_eq!(peers.wanted(OFTEN, Wish { may_use_direct: false, ..DIRECT }, now), None);
        assert_eq!(peers.wanted(seldom, DIRECT, now), None);
        assert_eq!(peers.wanted(seldom, Wish { by_program: true, ..DIRECT }, now), Some(LaneKind::Direct));
        peers.handle_request(LaneKind::Direct, OFTEN);
        assert_eq!(peers.wanted(OFTEN, Wish { by_program: true, ..DIRECT }, now), None);
        assert!(!peers.has_paid(OFTEN), "counting begins anew");
        peers.forget(OFTEN);
        assert!(!peers.is_requested(LaneKind::Direct, OFTEN));
    }

    #[test]
    fn the_user_sets_the_cost_or_turns_such_links_off() {
        let wanted_after = |setting, count| {
            let mut peers = Peers::new(setting);
            send(&mut peers, OFTEN, count);
            peers.wanted(OFTEN, DIRECT, Time::ZERO).is_some()
        };
        assert!(wanted_after(Some("3"), 3) && !wanted_after(Some("3"), 2));
        assert!(wanted_after(Some("what"), USUAL_COST) && !wanted_after(Some("what"), USUAL_COST - 1));
        assert!(wanted_after(Some("0"), 1) && !wanted_after(Some("off"), 10 * USUAL_COST));
    }

    #[test]
    fn a_few_messages_are_worth_a_lane_on_a_fabric_and_it_is_asked_for_first() {
        let mut peers = Peers::default();
        send(&mut peers, OFTEN, FABRIC_MESSAGES - 1);
        assert_eq!(peers.wanted(OFTEN, BOTH, Time::ZERO), None);
        send(&mut peers, OFTEN, USUAL_COST);
        assert_eq!(peers.wanted(OFTEN, BOTH, Time::ZERO), Some(LaneKind::Fabric));
        peers.handle_request(LaneKind::Fabric, OFTEN);
        peers.handle_fallback(LaneKind::Fabric, OFTEN, None, false, Time::ZERO);
        assert_eq!(peers.wanted(OFTEN, BOTH, Time::ZERO), Some(LaneKind::Direct));
        peers.handle_request(LaneKind::Direct, OFTEN);
        assert_eq!(peers.wanted(OFTEN, BOTH, PAUSE_FIRST), None, "there is a link, or will be");
        peers.handle_break(LaneKind::Direct, OFTEN, PAUSE_FIRST);
        assert_eq!(peers.wanted(OFTEN, BOTH, PAUSE_FIRST), Some(LaneKind::Fabric));
    }

    #[test]
    fn a_direct_link_is_given_up_for_a_fabric_that_was_in_use_ever_more_rarely() {
        let (mut peers, mut now) = (Peers::default(), Time::ZERO);
        peers.handle_request(LaneKind::Fabric, OFTEN);
        peers.handle_fallback(LaneKind::Fabric, OFTEN, None, true, now);
        assert!(peers.has_lost_fabric(OFTEN) && peers.lost_and_askable(now).is_empty());
        for pause in [1, 2, 4, 8] {
            now += PAUSE_FIRST * pause;
            assert_eq!(peers.lost_and_askable(now), [OFTEN]);
            peers.handle_given_up_for_fabric(OFTEN, now);
            peers.handle_fallback(LaneKind::Direct, OFTEN, Some(GivenUp::ForFabric), true, now);
            assert!(peers.lost_and_askable(now).is_empty());
            let wish = Wish { by_program: true, ..BOTH };
            assert_eq!(peers.wanted(OFTEN, wish, now), Some(LaneKind::Fabric), "before a direct link");
        }
        peers.handle_on_fabric(OFTEN);
        assert!(!peers.has_lost_fabric(OFTEN));
    }

    #[test]
    fn the_number_of_peers_is_limited() {
        let mut peers = Peers::default();
        peers.handle_request(LaneKind::Direct, OFTEN);
        for number in 0..2 * PEERS_MAX as u32 {
            peers.count_message(Tid(0x100_0000 + number), 1, Time::ZERO);
        }
        assert!(peers.peers.len() <= PEERS_MAX && peers.is_requested(LaneKind::Direct, OFTEN));
    }
}
