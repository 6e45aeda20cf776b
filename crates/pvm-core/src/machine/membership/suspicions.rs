//! Pairs of hosts that cannot reach each other, and which host of a pair is to blame.
//!
//! One host of such a pair must be removed, even if the master reaches both. The host that complains first is not
//! necessarily right: a host that loses its own frames complains about healthy hosts. So both are suspects, and the
//! master compares the evidence against each: the quality of the master's own link to the suspect, which no other host
//! can forge, and the number of other hosts that cannot reach the suspect. A pair counts there once it is confirmed:
//! the master has heard both since. Otherwise one may have died, and the healthy one that says so first is not to
//! blame. For the same reason, nobody is removed in favour of a host that the master has not heard since, or to which it
//! makes its own connection again. Of several pairs that can be decided, that with the most evidence against a host comes first: it may
//! explain the others. If the difference is too small, or one of the two may have died, the master waits for more
//! evidence, for at most the host timeout. Then a small difference suffices, and without any difference the host that
//! joined later is removed. For a while, such a tie counts as evidence against the host that stays, so a host that lies or
//! breaks its links cannot win ties, and thereby cause the removal of other hosts, again and again. Ties are remembered by
//! the names of the hosts, because a host that rejoins gets a new tid.
use crate::machine::link_quality::HISTORY_BEATS;
use crate::tid::Tid;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Each host outside the pair that cannot reach the suspect counts as much as this many bad beat intervals (see
/// `link_quality`) of the master's own link to the suspect.
const OTHER_WEIGHT: u32 = 4;
/// The difference in evidence that suffices to remove one of two hosts at once.
const CLEAR_MARGIN: u32 = 4;
/// How long ties are remembered.
const TIE_MEMORY: Duration = Duration::from_secs(600);

/// The health of the master's own link to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkHealth {
    /// The number of recent beat intervals that were bad (see `link_quality`).
    pub bad_beats: u32,
    /// What the master hears of the host.
    pub hearing: Hearing,
    /// The latest time at which the host was alive for certain: what arrived later may have been under way.
    pub alive_at: Time,
}

/// What the master hears of a host on its own link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    /// The last frame arrived in time.
    InTime,
    /// It did not.
    Late,
    /// The connection has broken, and another one is being made: soon it will be known whether the host has ended.
    Remade,
}

/// The decision about a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Eviction {
    /// The host to remove.
    pub evicted: Tid,
    /// The host that stays.
    pub kept: Tid,
    /// The reason, for the log.
    pub reason: String,
}

/// Two hosts that cannot reach each other.
struct Pair {
    since: Time,
    /// The names of both hosts.
    names: [String; 2],
}

/// All suspicions, at the master.
#[derive(Default)]
pub(super) struct Suspicions {
    /// Undecided pairs; the lower tid first.
    pairs: BTreeMap<[Tid; 2], Pair>,
    /// By the name of a host that stayed in a tie: the names of the hosts that were removed in its place, and when they
    /// were removed.
    ties_won: HashMap<String, BTreeMap<String, Time>>,
}

impl Suspicions {
    /// Records that one of two hosts cannot reach the other.
    pub fn report(&mut self, one: (Tid, String), other: (Tid, String), now: Time) {
        let mut ends = [one, other];
        ends.sort_unstable();
        let [(low, low_name), (high, high_name)] = ends;
        self.pairs.entry([low, high]).or_insert(Pair { since: now, names: [low_name, high_name] });
    }

    /// Drops the pairs of a removed host.
    pub fn forget(&mut self, host: Tid) {
        self.pairs.retain(|pair, _| !pair.contains(&host));
    }

    /// Restarts all timers, because this daemon was suspended: there may be evidence that it has not received yet.
    pub fn restart_timers(&mut self, now: Time) {
        self.pairs.values_mut().for_each(|pair| pair.since = now);
    }

    /// Returns the next time at which a pair must be decided even if the evidence is not clear.
    pub fn next_decision(&self, patience: Duration) -> Option<Time> {
        self.pairs.values().map(|pair| pair.since + patience).min()
    }

    /// Decides one pair that can be decided now, if there is one. `health` returns the health of the master's link to a
    /// host.
    pub fn decide(&mut self, now: Time, patience: Duration, health: impl Fn(Tid) -> LinkHealth) -> Option<Eviction> {
        self.ties_won.retain(|_, losers| {
            losers.retain(|_, when| now < *when + TIE_MEMORY);
            !losers.is_empty()
        });
        let decidable = self.pairs.iter().filter_map(|(pair, known)| {
            let evidence = [0, 1].map(|end| self.evidence_against(pair, known, end, &health));
            let (least, most) = (evidence[0].min(evidence[1]), evidence[0].max(evidence[1]));
            // Without a difference, the host with the higher number is removed, because it joined later.
            let at = usize::from(evidence[1] >= evidence[0]);
            // The host that would stay may have ended: the other one is the first that says so.
            let is_open = pair.iter().any(|host| health(*host).hearing == Hearing::Remade)
                || health(pair[1 - at]).alive_at <= known.since;
            let must_wait = (is_open || most - least < CLEAR_MARGIN) && now < known.since + patience;
            (!must_wait).then_some((*pair, at, most, most - least))
        });
        // The removal of the host with the most evidence explains the most pairs: it may clear a host that misses many of those
        // that are to blame. Of equals, the first pair is decided first.
        let (pair, at, _, difference) = decidable.rev().max_by_key(|(_, _, most, _)| *most)?;
        let reason = match difference {
            0 => "and nothing says which of them is to blame; it came later".to_owned(),
            _ => self.reason(&pair, &self.pairs[&pair], at, &health),
        };
        let eviction = Eviction { evicted: pair[at], kept: pair[1 - at], reason };
        let tie = (difference == 0).then_some(at);
        let pair = self.pairs.remove(&pair)?;
        if let Some(at) = tie {
            let [evicted, kept] = [&pair.names[at], &pair.names[1 - at]];
            self.ties_won.entry(kept.clone()).or_default().insert(evicted.clone(), now);
        }
        Some(eviction)
    }

    /// Returns the number of hosts outside the pair that have no connection with host `end` of the pair, or were
    /// removed in place of host `end` in a tie.
    fn missing_peers(&self, pair: &[Tid; 2], known: &Pair, end: usize, health: &impl Fn(Tid) -> LinkHealth) -> u32 {
        let is_confirmed = |pair: &[Tid; 2], known: &Pair| pair.iter().all(|host| health(*host).alive_at > known.since);
        if !is_confirmed(pair, known) {
            return 0;
        }
        let partner = &known.names[1 - end];
        let open = self.pairs.iter().filter_map(|(other, known)| {
            let at = other.iter().position(|tid| *tid == pair[end])?;
            is_confirmed(other, known).then_some(&known.names[1 - at])
        });
        let ties_won = self.ties_won.get(&known.names[end]).into_iter().flat_map(BTreeMap::keys);
        let peers: BTreeSet<&String> = open.chain(ties_won).filter(|name| *name != partner).collect();
        peers.len() as u32
    }

    /// Returns the weight of the evidence against host `end` of a pair.
    fn evidence_against(&self, pair: &[Tid; 2], known: &Pair, end: usize, health: &impl Fn(Tid) -> LinkHealth) -> u32 {
        let link = health(pair[end]);
        let own = if link.hearing == Hearing::InTime { link.bad_beats } else { HISTORY_BEATS };
        own + OTHER_WEIGHT * self.missing_peers(pair, known, end, health)
    }

    /// Returns the evidence against host `end` of a pair as text.
    fn reason(&self, pair: &[Tid; 2], known: &Pair, end: usize, health: &impl Fn(Tid) -> LinkHealth) -> String {
        let link = health(pair[end]);
        let own = match link.hearing {
            Hearing::InTime => {
                format!("{} of the last {HISTORY_BEATS} beats of the master's own link to it were bad", link.bad_beats)
            }
            Hearing::Late | Hearing::Remade => "the master does not hear it either".to_owned(),
        };
        format!("{own}, and {} others miss it", self.missing_peers(pair, known, end, health))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const FINE: LinkHealth = LinkHealth { bad_beats: 0, hearing: Hearing::InTime, alive_at: Duration::MAX };

    fn host(number: u32) -> (Tid, String) {
        (Tid::host_number(number), format!("h{number}"))
    }

    fn evicted(suspicions: &mut Suspicions, now: Time, health: impl Fn(Tid) -> LinkHealth) -> Option<Tid> {
        let eviction = suspicions.decide(now, PATIENCE, health)?;
        suspicions.forget(eviction.evicted);
        Some(eviction.evicted)
    }

    #[test]
    fn the_one_whose_link_to_the_master_is_bad_goes_whoever_complains_first() {
        let (ill, well, now) = (host(3), host(4), Duration::from_secs(50));
        let health = |tid| if tid == Tid::host_number(3) { LinkHealth { bad_beats: 5, ..FINE } } else { FINE };
        for (from, of) in [(&ill, &well), (&well, &ill)] {
            let mut suspicions = Suspicions::default();
            suspicions.report(from.clone(), of.clone(), now);
            assert_eq!(evicted(&mut suspicions, now, health), Some(ill.0));
            assert_eq!(suspicions.next_decision(PATIENCE), None);
        }
        // The same host is removed if the master receives nothing from it.
        let mut suspicions = Suspicions::default();
        suspicions.report(ill.clone(), well.clone(), now);
        let late = |tid| if tid == Tid::host_number(3) { LinkHealth { hearing: Hearing::Late, ..FINE } } else { FINE };
        assert_eq!(evicted(&mut suspicions, now, late), Some(ill.0));
    }

    /// Three hosts are cut off. A healthy one misses them all, and each of them misses others, too.
    #[test]
    fn the_host_that_explains_the_most_missing_links_goes_first() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        let (well, cut) = (host(2), [host(7), host(8), host(9)]);
        let is_cut = |tid: Tid| cut.iter().any(|(other, _)| *other == tid);
        for other in &cut {
            suspicions.report(well.clone(), other.clone(), now);
        }
        for number in 3..6 {
            cut[1..].iter().for_each(|other| suspicions.report(host(number), other.clone(), now));
        }
        let health = |tid| LinkHealth { bad_beats: if is_cut(tid) { 3 } else { 0 }, ..FINE };
        let gone: Vec<Tid> = std::iter::from_fn(|| evicted(&mut suspicions, now, health)).collect();
        assert_eq!(gone, [cut[1].0, cut[2].0], "{:?}", suspicions.pairs.keys());
        // What is left is the pair of the healthy host and one that no third host misses.
        assert_eq!(evicted(&mut suspicions, now + PATIENCE, health), Some(cut[0].0));
    }

    /// A host has ended. Another one, whose link to the master was bad for a while, is the first that can prove it.
    #[test]
    fn nobody_goes_while_the_master_makes_its_own_connection_to_one_of_them_again() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        let (well, ended) = (host(3), host(4));
        suspicions.report(well.clone(), ended.clone(), now);
        let health = |tid| match tid == Tid::host_number(3) {
            true => LinkHealth { bad_beats: 7, ..FINE },
            false => LinkHealth { hearing: Hearing::Remade, ..FINE },
        };
        assert_eq!(evicted(&mut suspicions, now, health), None);
        assert_eq!(evicted(&mut suspicions, now + PATIENCE, health), Some(ended.0));
        // The master has not noticed yet that its connection has broken, too.
        let mut suspicions = Suspicions::default();
        suspicions.report(well.clone(), ended.clone(), now);
        let health = |tid| match tid == Tid::host_number(3) {
            true => LinkHealth { bad_beats: 7, ..FINE },
            false => LinkHealth { alive_at: now, ..FINE },
        };
        assert_eq!(evicted(&mut suspicions, now, health), None);
        assert_eq!(
            evicted(&mut suspicions, now, |tid| LinkHealth { alive_at: now + PATIENCE / 5, ..health(tid) }),
            Some(well.0)
        );
    }

    #[test]
    fn little_is_waited_for_and_then_enough() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        suspicions.report(host(3), host(4), now);
        let health = |tid| LinkHealth { bad_beats: u32::from(tid == Tid::host_number(3)), ..FINE };
        assert_eq!(evicted(&mut suspicions, now, health), None);
        // A repeated report, from either host, is no new evidence and does not restart the wait.
        suspicions.report(host(4), host(3), now + PATIENCE / 2);
        assert_eq!(suspicions.next_decision(PATIENCE), Some(now + PATIENCE));
        assert_eq!(evicted(&mut suspicions, now + PATIENCE, health), Some(Tid::host_number(3)));
    }

    #[test]
    fn who_cannot_reach_several_goes_at_once_whoever_says_so() {
        let now = Duration::from_secs(50);
        for reversed in [false, true] {
            let mut suspicions = Suspicions::default();
            let mut say = |one, other| match reversed {
                false => suspicions.report(host(one), host(other), now),
                true => suspicions.report(host(other), host(one), now),
            };
            say(2, 5);
            say(2, 4);
            assert_eq!(evicted(&mut suspicions, now, |_| FINE), Some(Tid::host_number(2)));
            // The pairs that contain the removed host have been dropped, so no other host is removed.
            assert_eq!(evicted(&mut suspicions, now + PATIENCE, |_| FINE), None);
        }
    }

    /// Host 2 is the first that says that host 5 has died, while one that lies denies its link to host 2.
    #[test]
    fn who_reports_a_dead_host_first_is_not_to_blame_for_it() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        suspicions.report(host(2), host(7), now);
        suspicions.report(host(2), host(5), now + PATIENCE / 2);
        // Neither pair is decided by the other.
        let health = |tid| match tid == Tid::host_number(5) {
            true => LinkHealth { alive_at: now + PATIENCE / 2, ..FINE },
            false => FINE,
        };
        assert_eq!(evicted(&mut suspicions, now + PATIENCE / 2, health), None);
        suspicions.forget(Tid::host_number(5));
        assert_eq!(evicted(&mut suspicions, now + PATIENCE, health), Some(Tid::host_number(7)));
    }

    #[test]
    fn without_a_sign_the_later_one_goes_and_nobody_is_spared_twice() {
        let (mut suspicions, mut now) = (Suspicions::default(), Duration::from_secs(50));
        // The same host rejoins again and again, with a new number each time.
        for number in 7..100 {
            suspicions.report(host(2), (Tid::host_number(number), "evil".into()), now);
            assert_eq!(evicted(&mut suspicions, now, |_| FINE), None);
            now += PATIENCE;
            assert_eq!(evicted(&mut suspicions, now, |_| FINE), Some(Tid::host_number(number)));
        }
        // Now a different host cannot reach host 2. Because of the earlier ties, host 2 is removed.
        suspicions.report(host(2), host(101), now);
        assert_eq!(evicted(&mut suspicions, now, |_| FINE), Some(Tid::host_number(2)));
        now += TIE_MEMORY;
        suspicions.report(host(2), host(102), now);
        assert_eq!(evicted(&mut suspicions, now, |_| FINE), None);
        assert!(suspicions.ties_won.is_empty());
        suspicions.forget(Tid::host_number(102));
        assert_eq!(suspicions.next_decision(PATIENCE), None);
    }

    #[test]
    fn a_healthy_host_between_two_bad_ones_stays() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        let health = |tid| LinkHealth { bad_beats: if tid == Tid::host_number(4) { 0 } else { 9 }, ..FINE };
        suspicions.report(host(4), host(3), now);
        suspicions.report(host(4), host(5), now);
        assert_eq!(evicted(&mut suspicions, now, health), Some(Tid::host_number(3)));
        assert_eq!(evicted(&mut suspicions, now, health), Some(Tid::host_number(5)));
    }
}
