//! Which hosts cannot reach which, and who is to blame.
//!
//! Of two hosts between which no link can be had one has to go, though the master reaches both. Who complains
//! first proves nothing: a host that loses its own frames complains of healthy ones. So both are suspects,
//! and signs are weighed: what the master sees of its own links to both, which nobody can forge for another, and
//! how many others miss each of them. Where that does not tell them apart, more is waited for, as long as a host may be
//! silent; then a little is enough, and without any sign the one that came later goes. The other has been
//! spared then, and that counts against it for a while: a host that lies, or breaks its links, has nobody
//! else removed. For that hosts are known by their names, or one that comes back under a new number could
//! begin anew.
use crate::machine::link_quality::HISTORY_BEATS;
use crate::machine::settings::Time;
use crate::tid::Tid;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// The weight of each other host that cannot reach the suspect, in bad beats of the master's own link to it.
const OTHER_WEIGHT: u32 = 4;
/// So much more has to speak against one of two for it to go at once.
const CLEAR: u32 = 4;
/// How long it is remembered who has been spared, and for whom.
const MEMORY: Duration = Duration::from_secs(600);

/// What the master knows of a host by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sight {
    /// Bad beats of its link.
    pub bad: u32,
    /// Whether the last sign of life came in time.
    pub hears: bool,
}

/// One of two has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// That one.
    pub guilty: Tid,
    /// The other one.
    pub other: Tid,
    /// For the log.
    pub why: String,
}

/// Two hosts between which there can be no link.
struct Pair {
    since: Time,
    /// The names of both.
    names: [String; 2],
}

/// Who cannot reach whom.
#[derive(Default)]
pub(super) struct Suspicions {
    /// Not decided yet; the lower number first.
    pairs: BTreeMap<[Tid; 2], Pair>,
    /// By name: whose removal has spared that host though no sign was against them, and when.
    spared: HashMap<String, BTreeMap<String, Time>>,
}

impl Suspicions {
    /// One of the two says that it cannot reach the other.
    pub fn complain(&mut self, one: (Tid, String), other: (Tid, String), now: Time) {
        let mut ends = [one, other];
        ends.sort_unstable();
        let [(low, low_name), (high, high_name)] = ends;
        self.pairs.entry([low, high]).or_insert(Pair { since: now, names: [low_name, high_name] });
    }

    /// The host is out of the machine: nobody needs to reach it.
    pub fn forget(&mut self, host: Tid) {
        self.pairs.retain(|pair, _| !pair.contains(&host));
    }

    /// Who has slept has not heard what else there was to hear.
    pub fn begin_again(&mut self, now: Time) {
        self.pairs.values_mut().for_each(|pair| pair.since = now);
    }

    /// By when something will be decided without clear signs.
    pub fn next_decision(&self, patience: Duration) -> Option<Time> {
        self.pairs.values().map(|pair| pair.since + patience).min()
    }

    /// Whom to remove now, if anybody, as far as the master can see both.
    pub fn decide(&mut self, now: Time, patience: Duration, sight: impl Fn(Tid) -> Sight) -> Option<Verdict> {
        self.spared.retain(|_, others| {
            others.retain(|_, when| now < *when + MEMORY);
            !others.is_empty()
        });
        let (verdict, pair, clean) = self.pairs.iter().find_map(|(pair, known)| {
            let against = [0, 1].map(|end| self.against(pair, known, end, sight(pair[end])));
            let (least, most) = (against[0].min(against[1]), against[0].max(against[1]));
            if most - least < CLEAR && now < known.since + patience {
                return None;
            }
            // Without a difference the one with the higher number, which came later.
            let at = usize::from(against[1] >= against[0]);
            let why = match most - least {
                0 => "and nothing says which of them is to blame; it came later".to_owned(),
                _ => self.reason(pair, known, at, sight(pair[at])),
            };
            Some((Verdict { guilty: pair[at], other: pair[1 - at], why }, *pair, (most == least).then_some(at)))
        })?;
        let pair = self.pairs.remove(&pair)?;
        if let Some(at) = clean {
            let [guilty, other] = [&pair.names[at], &pair.names[1 - at]];
            self.spared.entry(other.clone()).or_default().insert(guilty.clone(), now);
        }
        Some(verdict)
    }

    /// How many others one end of a pair cannot reach, or has been spared for.
    fn others(&self, pair: &[Tid; 2], known: &Pair, end: usize) -> u32 {
        let partner = &known.names[1 - end];
        let open = self.pairs.iter().filter_map(|(other, known)| {
            let at = other.iter().position(|tid| *tid == pair[end])?;
            Some(&known.names[1 - at])
        });
        let spared = self.spared.get(&known.names[end]).into_iter().flat_map(BTreeMap::keys);
        let others: BTreeSet<&String> = open.chain(spared).filter(|name| *name != partner).collect();
        others.len() as u32
    }

    /// How much speaks against one end of a pair.
    fn against(&self, pair: &[Tid; 2], known: &Pair, end: usize, sight: Sight) -> u32 {
        let own = if sight.hears { sight.bad } else { HISTORY_BEATS };
        own + OTHER_WEIGHT * self.others(pair, known, end)
    }

    fn reason(&self, pair: &[Tid; 2], known: &Pair, end: usize, sight: Sight) -> String {
        let own = match sight.hears {
            true => format!("{} of the last {HISTORY_BEATS} beats of the master's own link to it were bad", sight.bad),
            false => "the master does not hear it either".to_owned(),
        };
        format!("{own}, and {} others miss it", self.others(pair, known, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const FINE: Sight = Sight { bad: 0, hears: true };

    fn host(number: u32) -> (Tid, String) {
        (Tid::host_number(number), format!("h{number}"))
    }

    fn guilty(suspicions: &mut Suspicions, now: Time, sight: impl Fn(Tid) -> Sight) -> Option<Tid> {
        let verdict = suspicions.decide(now, PATIENCE, sight)?;
        suspicions.forget(verdict.guilty);
        Some(verdict.guilty)
    }

    #[test]
    fn the_one_whose_link_to_the_master_is_bad_goes_whoever_complains_first() {
        let (ill, well, now) = (host(3), host(4), Duration::from_secs(50));
        let sight = |tid| if tid == Tid::host_number(3) { Sight { bad: 5, hears: true } } else { FINE };
        for (from, of) in [(&ill, &well), (&well, &ill)] {
            let mut suspicions = Suspicions::default();
            suspicions.complain(from.clone(), of.clone(), now);
            assert_eq!(guilty(&mut suspicions, now, sight), Some(ill.0));
            assert_eq!(suspicions.next_decision(PATIENCE), None);
        }
        // One that the master does not hear at all, too.
        let mut suspicions = Suspicions::default();
        suspicions.complain(ill.clone(), well.clone(), now);
        let sight = |tid| Sight { bad: 0, hears: tid != Tid::host_number(3) };
        assert_eq!(guilty(&mut suspicions, now, sight), Some(ill.0));
    }

    #[test]
    fn little_is_waited_for_and_then_enough() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        suspicions.complain(host(3), host(4), now);
        let sight = |tid| Sight { bad: u32::from(tid == Tid::host_number(3)), hears: true };
        assert_eq!(guilty(&mut suspicions, now, sight), None);
        // That it says so again, or the other does, is nothing new.
        suspicions.complain(host(4), host(3), now + PATIENCE / 2);
        assert_eq!(suspicions.next_decision(PATIENCE), Some(now + PATIENCE));
        assert_eq!(guilty(&mut suspicions, now + PATIENCE, sight), Some(Tid::host_number(3)));
    }

    #[test]
    fn who_cannot_reach_several_goes_at_once_whoever_says_so() {
        let now = Duration::from_secs(50);
        for reversed in [false, true] {
            let mut suspicions = Suspicions::default();
            let mut say = |one, other| match reversed {
                false => suspicions.complain(host(one), host(other), now),
                true => suspicions.complain(host(other), host(one), now),
            };
            say(2, 5);
            say(2, 4);
            assert_eq!(guilty(&mut suspicions, now, |_| FINE), Some(Tid::host_number(2)));
            // And what it has said is forgotten.
            assert_eq!(guilty(&mut suspicions, now + PATIENCE, |_| FINE), None);
        }
    }

    #[test]
    fn without_a_sign_the_later_one_goes_and_nobody_is_spared_twice() {
        let (mut suspicions, mut now) = (Suspicions::default(), Duration::from_secs(50));
        // Time and again the same one, under new numbers.
        for number in 7..100 {
            suspicions.complain(host(2), (Tid::host_number(number), "evil".into()), now);
            assert_eq!(guilty(&mut suspicions, now, |_| FINE), None);
            now += PATIENCE;
            assert_eq!(guilty(&mut suspicions, now, |_| FINE), Some(Tid::host_number(number)));
        }
        // Another now: too many.
        suspicions.complain(host(2), host(101), now);
        assert_eq!(guilty(&mut suspicions, now, |_| FINE), Some(Tid::host_number(2)));
        now += MEMORY;
        suspicions.complain(host(2), host(102), now);
        assert_eq!(guilty(&mut suspicions, now, |_| FINE), None);
        assert!(suspicions.spared.is_empty());
        suspicions.forget(Tid::host_number(102));
        assert_eq!(suspicions.next_decision(PATIENCE), None);
    }

    #[test]
    fn a_healthy_host_between_two_bad_ones_stays() {
        let (mut suspicions, now) = (Suspicions::default(), Duration::from_secs(50));
        let sight = |tid| Sight { bad: if tid == Tid::host_number(4) { 0 } else { 9 }, hears: true };
        suspicions.complain(host(4), host(3), now);
        suspicions.complain(host(4), host(5), now);
        assert_eq!(guilty(&mut suspicions, now, sight), Some(Tid::host_number(3)));
        assert_eq!(guilty(&mut suspicions, now, sight), Some(Tid::host_number(5)));
    }
}
