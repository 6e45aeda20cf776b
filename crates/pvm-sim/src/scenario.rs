//! What befalls the machine, as data: a list of timed deeds, one a line.
//!
//! ```text
//! hosts 4
//! tasks 12
//! timeout 10
//! 0.000 add h2 h3 h4
//! 0.000 spawn 12
//! 2.500 stop h3 30
//! 4.000 cut 5 h2 h4
//! 9.000 quiet
//! ```
//!
//! Hosts are named by the computers they run on, `h1` (the master's) and on, so that a scenario
//! means the same in the simulator and on real computers.
use crate::dice::Dice;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use std::fmt;

/// A computer, from 1; the first is the master's.
pub type Place = usize;

/// Something that befalls the machine. Spans are those after which the world is well again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Deed {
    /// The operator (a task on the master's host) adds hosts.
    Add(Vec<Place>),
    /// The operator deletes hosts.
    Delete(Vec<Place>),
    /// The operator spawns so many programs, anywhere.
    Spawn(usize),
    /// The computer loses its power: nobody hears anything of it any more.
    Crash(Place),
    /// The computer has power again, and no daemon.
    Power(Place),
    /// The daemon is killed; the system closes its connections.
    Kill(Place),
    /// The daemon is stopped; its connections stay.
    Stop(Place, Nanos),
    /// Nothing passes between these computers and the others.
    Cut(Vec<Place>, Nanos),
    /// Nothing passes between two computers.
    Part(Place, Place, Nanos),
    /// The data links between two computers break, and for so long no others can be made.
    Snap(Place, Place, Nanos),
    /// All that comes from or goes to a computer takes so much longer.
    Slow(Place, Nanos, Nanos),
    /// Of a thousand things that come from or go to a computer so many are lost, and sent again later.
    Lossy(Place, Nanos, usize),
    /// The next start of a daemon there fails.
    Refuse(Place),
    /// So many tasks are killed, anywhere.
    KillTasks(usize),
    /// The world hurts no more: the machine has to settle.
    Quiet,
    /// A task somewhere halts the machine, whatever is going on.
    Halt,
}

/// A deed and its moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timed {
    /// Since the master's start.
    pub at: Nanos,
    /// What happens.
    pub deed: Deed,
}

/// A whole scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Computers that there are.
    pub hosts: usize,
    /// Tasks that the machine should have.
    pub tasks: usize,
    /// How long a host may be silent.
    pub timeout: Nanos,
    /// In the order of time.
    pub deeds: Vec<Timed>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn from_seed(seed: u64, hosts: usize, tasks: usize) -> Scenario {
        let mut dice = Dice::new(seed, 1);
        let timeout = [10 * SECOND, 10 * SECOND, 2 * SECOND, 5 * SECOND][dice.roll(4)];
        let mut deeds = vec![Timed { at: 0, deed: Deed::Spawn(tasks) }];
        // Most hosts come at once, some by and by.
        let (first, later): (Vec<Place>, Vec<Place>) = (2..=hosts).partition(|_| dice.chance(850));
        for batch in first.chunks(64) {
            deeds.insert(deeds.len() - 1, Timed { at: 0, deed: Deed::Add(batch.to_vec()) });
        }
        let end = 2 * SECOND + dice.span(3 * SECOND, 2 * timeout);
        for place in later {
            deeds.push(Timed { at: dice.span(0, end), deed: Deed::Add(vec![place]) });
        }
        let count = 1 + dice.roll(3) + dice.size(3 + hosts / 3);
        // In some nothing but data links breaks, which costs no host.
        let mild = dice.chance(200);
        for _ in 0..if mild { 4 * count } else { count } {
            match mild {
                true => snap(&mut dice, hosts, timeout, end, &mut deeds),
                false => wound(&mut dice, hosts, timeout, end, &mut deeds),
            }
        }
        let last = if !mild && dice.chance(60) { Deed::Halt } else { Deed::Quiet };
        // What was done last has time to be noticed, or has not.
        let end = if dice.chance(600) { end + timeout + timeout / 2 } else { end };
        deeds.push(Timed { at: end, deed: last });
        deeds.sort_by_key(|timed| timed.at);
        Scenario { hosts, tasks, timeout, deeds }
    }

    /// A scenario in which nothing goes wrong, to measure with.
    pub fn peaceful(hosts: usize, tasks: usize) -> Scenario {
        let places: Vec<Place> = (2..=hosts).collect();
        let mut deeds: Vec<Timed> =
            places.chunks(64).map(|batch| Timed { at: 0, deed: Deed::Add(batch.to_vec()) }).collect();
        deeds.push(Timed { at: 0, deed: Deed::Spawn(tasks) });
        deeds.push(Timed { at: 20 * SECOND, deed: Deed::Quiet });
        Scenario { hosts, tasks, timeout: 10 * SECOND, deeds }
    }

    /// Reads a scenario; an error names the line.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let mut scenario = Scenario { hosts: 0, tasks: 0, timeout: 10 * SECOND, deeds: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let done = match words.as_slice() {
                [] => Some(()),
                ["hosts", count] => count.parse().ok().map(|count| scenario.hosts = count),
                ["tasks", count] => count.parse().ok().map(|count| scenario.tasks = count),
                ["timeout", span] => read_span(span).map(|span| scenario.timeout = span),
                [at, deed @ ..] => read_span(at)
                    .and_then(|at| Some(Timed { at, deed: read_deed(deed)? }))
                    .map(|timed| scenario.deeds.push(timed)),
            };
            done.ok_or_else(|| format!("line {}: {line}", number + 1))?;
        }
        scenario.deeds.sort_by_key(|timed| timed.at);
        match scenario
            .deeds
            .iter()
            .flat_map(|timed| timed.deed.places())
            .all(|place| (1..=scenario.hosts).contains(&place))
        {
            true => Ok(scenario),
            false => Err(format!("a computer that is not among the {} hosts", scenario.hosts)),
        }
    }

    /// Whether nothing in it can cost a host.
    pub fn spares_hosts(&self) -> bool {
        let spares = |deed: &Deed| {
            matches!(deed, Deed::Add(_) | Deed::Spawn(_) | Deed::Snap(..) | Deed::KillTasks(_) | Deed::Quiet)
        };
        self.deeds.iter().all(|timed| spares(&timed.deed))
    }

    /// When the world hurts no more.
    pub fn end(&self) -> Nanos {
        let ends = |timed: &&Timed| matches!(timed.deed, Deed::Quiet | Deed::Halt);
        self.deeds.iter().find(ends).map_or(SECOND, |timed| timed.at)
    }
}

/// The data links between two computers break.
fn snap(dice: &mut Dice, hosts: usize, timeout: Nanos, end: Nanos, deeds: &mut Vec<Timed>) {
    let (one, other) = (1 + dice.roll(hosts), 1 + dice.roll(hosts));
    let span = [dice.span(0, MILLISECOND), dice.span(0, timeout / 2), dice.span(timeout, 3 * timeout)][dice.roll(3)];
    if one != other {
        deeds.push(Timed { at: dice.span(50 * MILLISECOND, end), deed: Deed::Snap(one, other, span) });
    }
}

/// One more misfortune.
fn wound(dice: &mut Dice, hosts: usize, timeout: Nanos, end: Nanos, deeds: &mut Vec<Timed>) {
    let at = dice.span(50 * MILLISECOND, end);
    let slave = if hosts > 1 { 2 + dice.roll(hosts - 1) } else { 1 };
    let anybody = 1 + dice.roll(hosts);
    let short = dice.span(10 * MILLISECOND, timeout / 2);
    let long = timeout + dice.span(SECOND, 5 * timeout);
    let span = if dice.chance(500) { short } else { long };
    let again = at + dice.span(100 * MILLISECOND, timeout);
    if dice.chance(150) {
        return snap(dice, hosts, timeout, end, deeds);
    }
    let mut add = |at: Nanos, deed: Deed| deeds.push(Timed { at, deed });
    match dice.weighted(&[4, 4, 4, 4, 3, 3, 3, 3, 6, 2, 1, 3]) {
        0 if hosts > 1 => {
            add(at, Deed::Crash(slave));
            if dice.chance(600) {
                add(again, Deed::Power(slave));
                add(again, Deed::Add(vec![slave]));
            }
        }
        1 if hosts > 1 => {
            add(at, Deed::Kill(slave));
            if dice.chance(600) {
                add(again, Deed::Add(vec![slave]));
            }
        }
        2 if hosts > 1 => add(at, Deed::Stop(slave, span)),
        3 if hosts > 1 => {
            let cut = (2..=hosts).filter(|place| *place == slave || dice.chance(200)).collect();
            add(at, Deed::Cut(cut, span));
        }
        4 if hosts > 2 => {
            let other = if slave == 2 { 3 } else { slave - 1 };
            add(at, Deed::Part(slave, other, span));
        }
        5 => add(at, Deed::Slow(anybody, short, dice.span(MILLISECOND, timeout / 8))),
        6 if hosts > 1 => {
            add(at, Deed::Delete(vec![slave]));
            if dice.chance(700) {
                add(again, Deed::Add(vec![slave]));
            }
        }
        7 if hosts > 1 => {
            add(at, Deed::Refuse(slave));
            add(at, Deed::Add(vec![slave]));
        }
        9 => add(at, Deed::Stop(1, short.min(timeout / 2))),
        10 if dice.chance(300) => {
            let deed = if dice.chance(500) { Deed::Crash(1) } else { Deed::Kill(1) };
            add(at.max(end / 2), deed);
        }
        11 if hosts > 1 => add(at, Deed::Lossy(slave, long, 200 + dice.roll(400))),
        _ => add(at, Deed::KillTasks(1 + dice.roll(4))),
    }
}

impl Deed {
    /// The computers that it names.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Deed::Add(places) | Deed::Delete(places) | Deed::Cut(places, _) => places.clone(),
            Deed::Part(one, other, _) | Deed::Snap(one, other, _) => vec![*one, *other],
            Deed::Crash(place) | Deed::Power(place) | Deed::Kill(place) | Deed::Refuse(place) => vec![*place],
            Deed::Stop(place, _) | Deed::Slow(place, _, _) | Deed::Lossy(place, _, _) => vec![*place],
            Deed::Spawn(_) | Deed::KillTasks(_) | Deed::Quiet | Deed::Halt => Vec::new(),
        }
    }
}

fn read_span(word: &str) -> Option<Nanos> {
    let (seconds, rest) = word.split_once('.').unwrap_or((word, ""));
    let digits = rest.get(..rest.len().min(9))?;
    let fraction: Nanos = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some(seconds.parse::<Nanos>().ok()?.checked_mul(SECOND)? + fraction * 10u64.pow(9 - digits.len() as u32))
}

fn read_place(word: &str) -> Option<Place> {
    word.strip_prefix('h')?.parse().ok()
}

fn read_deed(words: &[&str]) -> Option<Deed> {
    let places = |words: &[&str]| words.iter().map(|word| read_place(word)).collect::<Option<Vec<Place>>>();
    Some(match words {
        ["add", hosts @ ..] => Deed::Add(places(hosts)?),
        ["delete", hosts @ ..] => Deed::Delete(places(hosts)?),
        ["spawn", count] => Deed::Spawn(count.parse().ok()?),
        ["crash", host] => Deed::Crash(read_place(host)?),
        ["power", host] => Deed::Power(read_place(host)?),
        ["kill", host] => Deed::Kill(read_place(host)?),
        ["stop", host, span] => Deed::Stop(read_place(host)?, read_span(span)?),
        ["cut", span, hosts @ ..] => Deed::Cut(places(hosts)?, read_span(span)?),
        ["part", one, other, span] => Deed::Part(read_place(one)?, read_place(other)?, read_span(span)?),
        ["snap", one, other, span] => Deed::Snap(read_place(one)?, read_place(other)?, read_span(span)?),
        ["slow", host, span, delay] => Deed::Slow(read_place(host)?, read_span(span)?, read_span(delay)?),
        ["lossy", host, span, share] => Deed::Lossy(read_place(host)?, read_span(span)?, share.parse().ok()?),
        ["refuse", host] => Deed::Refuse(read_place(host)?),
        ["killtasks", count] => Deed::KillTasks(count.parse().ok()?),
        ["quiet"] => Deed::Quiet,
        ["halt"] => Deed::Halt,
        _ => return None,
    })
}

/// A span as it is written.
struct Span(Nanos);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:09}", self.0 / SECOND, self.0 % SECOND);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

fn list(places: &[Place]) -> String {
    places.iter().map(|place| format!(" h{place}")).collect()
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Add(places) => write!(f, "add{}", list(places)),
            Deed::Delete(places) => write!(f, "delete{}", list(places)),
            Deed::Spawn(count) => write!(f, "spawn {count}"),
            Deed::Crash(place) => write!(f, "crash h{place}"),
            Deed::Power(place) => write!(f, "power h{place}"),
            Deed::Kill(place) => write!(f, "kill h{place}"),
            Deed::Stop(place, span) => write!(f, "stop h{place} {}", Span(*span)),
            Deed::Cut(places, span) => write!(f, "cut {}{}", Span(*span), list(places)),
            Deed::Part(one, other, span) => write!(f, "part h{one} h{other} {}", Span(*span)),
            Deed::Snap(one, other, span) => write!(f, "snap h{one} h{other} {}", Span(*span)),
            Deed::Slow(place, span, delay) => write!(f, "slow h{place} {} {}", Span(*span), Span(*delay)),
            Deed::Lossy(place, span, share) => write!(f, "lossy h{place} {} {share}", Span(*span)),
            Deed::Refuse(place) => write!(f, "refuse h{place}"),
            Deed::KillTasks(count) => write!(f, "killtasks {count}"),
            Deed::Quiet => f.write_str("quiet"),
            Deed::Halt => f.write_str("halt"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hosts {}\ntasks {}\ntimeout {}", self.hosts, self.tasks, Span(self.timeout))?;
        self.deeds.iter().try_for_each(|timed| writeln!(f, "{} {}", Span(timed.at), timed.deed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_read_as_it_was_written() {
        for seed in 0..300 {
            let scenario = Scenario::from_seed(seed, 1 + seed as usize % 40, 20);
            assert_eq!(Scenario::parse(&scenario.to_string()), Ok(scenario));
        }
    }

    #[test]
    fn what_is_no_scenario_is_refused_with_its_line() {
        assert_eq!(Scenario::parse("hosts 2\n1.5 stop h2"), Err("line 2: 1.5 stop h2".into()));
        assert!(Scenario::parse("hosts 2\n1 crash h3").is_err());
        let scenario = Scenario::parse("hosts 2\n1.5 stop h2 0.25 # hangs\n\n").unwrap();
        assert_eq!(scenario.deeds[0].deed, Deed::Stop(2, SECOND / 4));
    }
}
