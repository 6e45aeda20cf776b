//! A scenario, as data: a list of timed commands, one on each line.
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
//! Hosts are named after the computers on which they run: `h1` (the first master's), `h2`, and so on. Therefore a
//! scenario means the same in the simulator and on real computers.
use crate::prng::Prng;
use crate::queue::{MILLISECOND, Nanos, SECOND};
use std::fmt;

/// The number of a computer, from 1. Computer 1 is the first master's, and the operator's.
pub type Place = usize;

/// If control connections cannot be made for longer than this share of the silence limit, a host may be lost.
const SEVERED_SHARE: Nanos = 4;
/// The number of scenarios, of each thousand, in which the master moves.
const MOVING_PER_MILLE: usize = 300;
/// With fewer hosts, no host relays a body.
const TREE_HOSTS_MIN: usize = 4;

/// A command of a scenario: a fault, or a request of the operator. A duration is the time until a fault ends.
///
/// Faults that can remove a host spare the master wherever it has moved, and the host to which it moves just now. On
/// computer 1 they happen in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each variant's sentence names its fields
pub enum Command {
    /// The operator (a task on computer 1) adds hosts.
    Add(Vec<Place>),
    /// The operator deletes hosts.
    Delete(Vec<Place>),
    /// A task or the operator drains the host that is the master now, so the master moves.
    DrainMaster,
    /// A task or the operator deletes the host that is the master now. If that is the operator's host, it is drained.
    DeleteMaster,
    /// The operator ends all drains, and adds the hosts that `deletemaster` has deleted.
    Restore,
    /// The operator spawns this number of programs, on any hosts.
    Spawn(usize),
    /// The computer loses its power, and with it everything that it was about to send.
    Crash(Place),
    /// The computer has power again, but runs no daemon.
    Power(Place),
    /// The daemon is killed; the operating system closes its connections.
    Kill(Place),
    /// The daemon of the host that is the master now is killed.
    KillMaster,
    /// The next daemon (but the master's) that is seen to relay a body is killed in the middle of it.
    KillRelay,
    /// The daemon is stopped; its connections stay.
    Stop(Place, Nanos),
    /// No traffic passes between these computers and the other ones.
    Cut(Vec<Place>, Nanos),
    /// No traffic passes between two computers.
    Part(Place, Place, Nanos),
    /// The data links between two computers break, and no new ones can be made for this time.
    Snap(Place, Place, Nanos),
    /// The control connections between two computers break, and no new ones can be made for this time.
    Sever(Place, Place, Nanos),
    /// For the first duration, all traffic from and to a computer is delayed by the second duration.
    Slow(Place, Nanos, Nanos),
    /// Of a thousand packets from or to a computer, this number are lost, and are sent again later.
    Lossy(Place, Nanos, usize),
    /// The next start of a daemon on the computer fails.
    Refuse(Place),
    /// This number of tasks are killed, on any hosts.
    KillTasks(usize),
    /// All faults are over: the machine has to settle.
    Quiet,
    /// A task on any host halts the machine, whatever else happens.
    Halt,
}

/// A command and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timed {
    /// The time since the master's start.
    pub at: Nanos,
    /// The command.
    pub command: Command,
}

/// A whole scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The number of computers.
    pub hosts: usize,
    /// The number of tasks that the machine should have.
    pub tasks: usize,
    /// The silence limit of the hosts.
    pub timeout: Nanos,
    /// The commands, ordered by time.
    pub commands: Vec<Timed>,
}

/// How many hosts the operator adds at a time.
const BATCH: usize = 64;

impl Scenario {
    /// Makes a scenario in which so many masters are killed, one after the other.
    pub fn of_lost_masters(hosts: usize, tasks: usize, masters: usize) -> Scenario {
        let places: Vec<Place> = (2..=hosts).collect();
        let adds = places.chunks(BATCH).map(|batch| Command::Add(batch.to_vec()));
        let adds = adds.enumerate().map(|(number, command)| Timed { at: number as Nanos * SECOND / 5, command });
        let mut commands: Vec<Timed> = adds.collect();
        let spawns = commands.len() as Nanos * SECOND / 5 + 8 * SECOND;
        commands.push(Timed { at: spawns, command: Command::Spawn(tasks) });
        let kills = (0..masters).map(|number| spawns + (45 + 5 * number as Nanos) * SECOND);
        commands.extend(kills.map(|at| Timed { at, command: Command::KillMaster }));
        let at = spawns + (60 + 5 * masters as Nanos) * SECOND;
        commands.push(Timed { at, command: Command::Quiet });
        Scenario { hosts, tasks, timeout: 10 * SECOND, commands }
    }

    /// Makes the scenario of a seed.
    pub fn from_seed(seed: u64, hosts: usize, tasks: usize) -> Scenario {
        let mut prng = Prng::new(seed, 1);
        let timeout = [10 * SECOND, 10 * SECOND, 2 * SECOND, 5 * SECOND][prng.below(4)];
        let mut commands = vec![Timed { at: 0, command: Command::Spawn(tasks) }];
        // Most hosts are added at once, some later.
        let (first, later): (Vec<Place>, Vec<Place>) = (2..=hosts).partition(|_| prng.chance(850));
        for batch in first.chunks(BATCH) {
            commands.insert(commands.len() - 1, Timed { at: 0, command: Command::Add(batch.to_vec()) });
        }
        let end = 2 * SECOND + prng.span(3 * SECOND, 2 * timeout);
        for place in later {
            commands.push(Timed { at: prng.span(0, end), command: Command::Add(vec![place]) });
        }
        let count = 1 + prng.below(3) + prng.size(3 + hosts / 3);
        // In some scenarios only connections break. Such faults do not remove hosts.
        let mild = prng.chance(300);
        let control_span_max = timeout / SEVERED_SHARE / (4 * count) as Nanos;
        for _ in 0..if mild { 4 * count } else { count } {
            match mild {
                true if prng.chance(500) => {
                    break_control_links(&mut prng, hosts, control_span_max, end, &mut commands);
                }
                true => break_data_links(&mut prng, hosts, timeout, end, &mut commands),
                false => add_fault(&mut prng, hosts, timeout, end, &mut commands),
            }
        }
        add_moves(&mut Prng::new(seed, 5), mild, hosts, timeout, end, &mut commands);
        let last = if !mild && prng.chance(60) { Command::Halt } else { Command::Quiet };
        // In some scenarios hosts have enough time to notice the last faults, in others not.
        let end = if prng.chance(600) { end + timeout + timeout / 2 } else { end };
        commands.push(Timed { at: end, command: last });
        commands.sort_by_key(|timed| timed.at);
        Scenario { hosts, tasks, timeout, commands }
    }

    /// Makes a scenario without faults, for measurements.
    pub fn peaceful(hosts: usize, tasks: usize) -> Scenario {
        let places: Vec<Place> = (2..=hosts).collect();
        let mut commands: Vec<Timed> =
            places.chunks(64).map(|batch| Timed { at: 0, command: Command::Add(batch.to_vec()) }).collect();
        commands.push(Timed { at: 0, command: Command::Spawn(tasks) });
        commands.push(Timed { at: 20 * SECOND, command: Command::Quiet });
        Scenario { hosts, tasks, timeout: 10 * SECOND, commands }
    }

    /// Reads a scenario. An error names the line.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let mut scenario = Scenario { hosts: 0, tasks: 0, timeout: 10 * SECOND, commands: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let done = match words.as_slice() {
                [] => Some(()),
                ["hosts", count] => count.parse().ok().map(|count| scenario.hosts = count),
                ["tasks", count] => count.parse().ok().map(|count| scenario.tasks = count),
                ["timeout", span] => read_span(span).map(|span| scenario.timeout = span),
                [at, command @ ..] => read_span(at)
                    .and_then(|at| Some(Timed { at, command: read_command(command)? }))
                    .map(|timed| scenario.commands.push(timed)),
            };
            done.ok_or_else(|| format!("line {}: {line}", number + 1))?;
        }
        scenario.commands.sort_by_key(|timed| timed.at);
        match scenario
            .commands
            .iter()
            .flat_map(|timed| timed.command.places())
            .all(|place| (1..=scenario.hosts).contains(&place))
        {
            true => Ok(scenario),
            false => Err(format!("a computer that is not among the {} hosts", scenario.hosts)),
        }
    }

    /// Returns whether none of the commands can remove a host.
    pub fn removes_no_host(&self) -> bool {
        let spares = |command: &Command| match command {
            Command::Add(_) | Command::Spawn(_) | Command::Snap(..) | Command::KillTasks(_) | Command::Quiet => true,
            Command::DrainMaster | Command::Restore => true,
            Command::Sever(..) => self.severed_time() <= self.timeout / SEVERED_SHARE,
            _ => false,
        };
        self.commands.iter().all(|timed| spares(&timed.command))
    }

    /// Returns for how long no control connections can be made, all together.
    fn severed_time(&self) -> Nanos {
        let span = |timed: &Timed| if let Command::Sever(_, _, span) = timed.command { span } else { 0 };
        self.commands.iter().map(span).sum()
    }

    /// Returns the time of the command `quiet`, which ends all faults.
    pub fn quiet(&self) -> Option<Nanos> {
        self.commands.iter().find(|timed| timed.command == Command::Quiet).map(|timed| timed.at)
    }

    /// Returns the time when all faults are over.
    pub fn end(&self) -> Nanos {
        let ends = |timed: &&Timed| matches!(timed.command, Command::Quiet | Command::Halt);
        self.commands.iter().find(ends).map_or(SECOND, |timed| timed.at)
    }
}

/// In some scenarios, lets the master move, often while something else happens.
fn add_moves(prng: &mut Prng, mild: bool, hosts: usize, timeout: Nanos, end: Nanos, commands: &mut Vec<Timed>) {
    if hosts < 2 || !prng.chance(MOVING_PER_MILLE) {
        return;
    }
    let mut add = |at: Nanos, command: Command| commands.push(Timed { at: at.min(end), command });
    for _ in 0..1 + prng.below(4) {
        let at = prng.span(50 * MILLISECOND, end);
        // Sometimes the next move is wanted while the master moves.
        let times = if prng.chance(200) { 2 } else { 1 };
        for _ in 0..times {
            let command = if mild || prng.chance(700) { Command::DrainMaster } else { Command::DeleteMaster };
            add(at + prng.span(0, 5 * MILLISECOND), command);
        }
        if prng.chance(500) {
            let most = [5 * MILLISECOND, 100 * MILLISECOND][prng.below(2)];
            add(at + prng.span(0, most), beside_a_move(prng, mild, hosts, timeout));
        }
        if prng.chance(700) {
            let most = [5 * MILLISECOND, timeout][prng.below(2)];
            add(at + prng.span(MILLISECOND, most), Command::Restore);
        }
    }
    if !mild && prng.chance(100) {
        let command = if prng.chance(500) { Command::Crash(1) } else { Command::Kill(1) };
        add(prng.span(end / 2, end), command);
    }
}

/// Returns what happens while the master moves.
fn beside_a_move(prng: &mut Prng, mild: bool, hosts: usize, timeout: Nanos) -> Command {
    let (one, other) = (1 + prng.below(hosts), 2 + prng.below(hosts - 1));
    let (short, long) = (prng.span(0, MILLISECOND), prng.span(0, 2 * timeout));
    match prng.below(if mild { 4 } else { 10 }) {
        0 | 1 if one != other => Command::Sever(one, other, short),
        2 if one != other => Command::Snap(one, other, long),
        4 => Command::Kill(other),
        5 => Command::Crash(other),
        6 => Command::Stop(other, long),
        7 => Command::Delete(vec![other]),
        8 => Command::Add(vec![other]),
        9 => Command::Cut(vec![other], long),
        _ => Command::KillTasks(1 + prng.below(4)),
    }
}

/// Adds commands that break the data links between two computers.
fn break_data_links(prng: &mut Prng, hosts: usize, timeout: Nanos, end: Nanos, commands: &mut Vec<Timed>) {
    let (one, other) = (1 + prng.below(hosts), 1 + prng.below(hosts));
    let span = [prng.span(0, MILLISECOND), prng.span(0, timeout / 2), prng.span(timeout, 3 * timeout)][prng.below(3)];
    if one != other {
        commands.push(Timed { at: prng.span(50 * MILLISECOND, end), command: Command::Snap(one, other, span) });
    }
}

/// Adds a command that breaks the control connections between two computers.
fn break_control_links(prng: &mut Prng, hosts: usize, span_max: Nanos, end: Nanos, commands: &mut Vec<Timed>) {
    let (one, other) = (1 + prng.below(hosts), 1 + prng.below(hosts));
    let span = prng.span(0, span_max);
    if one != other {
        commands.push(Timed { at: prng.span(50 * MILLISECOND, end), command: Command::Sever(one, other, span) });
    }
}

/// Adds one more fault.
fn add_fault(prng: &mut Prng, hosts: usize, timeout: Nanos, end: Nanos, commands: &mut Vec<Timed>) {
    let at = prng.span(50 * MILLISECOND, end);
    let slave = if hosts > 1 { 2 + prng.below(hosts - 1) } else { 1 };
    let anybody = 1 + prng.below(hosts);
    let short = prng.span(10 * MILLISECOND, timeout / 2);
    let long = timeout + prng.span(SECOND, 5 * timeout);
    let span = if prng.chance(500) { short } else { long };
    let again = at + prng.span(100 * MILLISECOND, timeout);
    if prng.chance(150) {
        return break_data_links(prng, hosts, timeout, end, commands);
    }
    if prng.chance(150) {
        return break_control_links(prng, hosts, span, end, commands);
    }
    let mut add = |at: Nanos, command: Command| commands.push(Timed { at, command });
    match prng.weighted(&[4, 4, 4, 4, 3, 3, 3, 3, 6, 2, 1, 3, 12]) {
        0 if hosts > 1 => {
            add(at, Command::Crash(slave));
            if prng.chance(600) {
                add(again, Command::Power(slave));
                add(again, Command::Add(vec![slave]));
            }
        }
        1 if hosts > 1 => {
            add(at, Command::Kill(slave));
            if prng.chance(600) {
                add(again, Command::Add(vec![slave]));
            }
        }
        2 if hosts > 1 => add(at, Command::Stop(slave, span)),
        3 if hosts > 1 => {
            let cut = (2..=hosts).filter(|place| *place == slave || prng.chance(200)).collect();
            add(at, Command::Cut(cut, span));
        }
        4 if hosts > 2 => {
            let other = if slave == 2 { 3 } else { slave - 1 };
            add(at, Command::Part(slave, other, span));
        }
        5 => add(at, Command::Slow(anybody, short, prng.span(MILLISECOND, timeout / 8))),
        6 if hosts > 1 => {
            add(at, Command::Delete(vec![slave]));
            if prng.chance(700) {
                add(again, Command::Add(vec![slave]));
            }
        }
        7 if hosts > 1 => {
            add(at, Command::Refuse(slave));
            add(at, Command::Add(vec![slave]));
        }
        9 => add(at, Command::Stop(1, short.min(timeout / 2))),
        10 if prng.chance(300) => {
            let command = if prng.chance(500) { Command::Crash(1) } else { Command::Kill(1) };
            add(at.max(end / 2), command);
        }
        12 if hosts >= TREE_HOSTS_MIN => add(at / 2, Command::KillRelay),
        11 if hosts > 1 => add(at, Command::Lossy(slave, long, 200 + prng.below(400))),
        _ => add(at, Command::KillTasks(1 + prng.below(4))),
    }
}

impl Command {
    /// Returns the computers that the command names.
    pub fn places(&self) -> Vec<Place> {
        match self {
            Command::Add(places) | Command::Delete(places) | Command::Cut(places, _) => places.clone(),
            Command::Part(one, other, _) | Command::Snap(one, other, _) | Command::Sever(one, other, _) => {
                vec![*one, *other]
            }
            Command::Crash(place) | Command::Power(place) | Command::Kill(place) | Command::Refuse(place) => {
                vec![*place]
            }
            Command::Stop(place, _) | Command::Slow(place, _, _) | Command::Lossy(place, _, _) => vec![*place],
            Command::Spawn(_) | Command::KillTasks(_) | Command::KillRelay | Command::Quiet | Command::Halt => {
                Vec::new()
            }
            Command::DrainMaster | Command::DeleteMaster | Command::KillMaster | Command::Restore => Vec::new(),
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

fn read_command(words: &[&str]) -> Option<Command> {
    let places = |words: &[&str]| words.iter().map(|word| read_place(word)).collect::<Option<Vec<Place>>>();
    Some(match words {
        ["add", hosts @ ..] => Command::Add(places(hosts)?),
        ["delete", hosts @ ..] => Command::Delete(places(hosts)?),
        ["drainmaster"] => Command::DrainMaster,
        ["deletemaster"] => Command::DeleteMaster,
        ["restore"] => Command::Restore,
        ["spawn", count] => Command::Spawn(count.parse().ok()?),
        ["crash", host] => Command::Crash(read_place(host)?),
        ["power", host] => Command::Power(read_place(host)?),
        ["kill", host] => Command::Kill(read_place(host)?),
        ["stop", host, span] => Command::Stop(read_place(host)?, read_span(span)?),
        ["cut", span, hosts @ ..] => Command::Cut(places(hosts)?, read_span(span)?),
        ["part", one, other, span] => Command::Part(read_place(one)?, read_place(other)?, read_span(span)?),
        ["snap", one, other, span] => Command::Snap(read_place(one)?, read_place(other)?, read_span(span)?),
        ["sever", one, other, span] => Command::Sever(read_place(one)?, read_place(other)?, read_span(span)?),
        ["slow", host, span, delay] => Command::Slow(read_place(host)?, read_span(span)?, read_span(delay)?),
        ["lossy", host, span, share] => Command::Lossy(read_place(host)?, read_span(span)?, share.parse().ok()?),
        ["refuse", host] => Command::Refuse(read_place(host)?),
        ["killtasks", count] => Command::KillTasks(count.parse().ok()?),
        ["killmaster"] => Command::KillMaster,
        ["killrelay"] => Command::KillRelay,
        ["quiet"] => Command::Quiet,
        ["halt"] => Command::Halt,
        _ => return None,
    })
}

/// A duration in the form that scenarios use.
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

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Add(places) => write!(f, "add{}", list(places)),
            Command::Delete(places) => write!(f, "delete{}", list(places)),
            Command::DrainMaster => f.write_str("drainmaster"),
            Command::DeleteMaster => f.write_str("deletemaster"),
            Command::Restore => f.write_str("restore"),
            Command::Spawn(count) => write!(f, "spawn {count}"),
            Command::Crash(place) => write!(f, "crash h{place}"),
            Command::Power(place) => write!(f, "power h{place}"),
            Command::Kill(place) => write!(f, "kill h{place}"),
            Command::Stop(place, span) => write!(f, "stop h{place} {}", Span(*span)),
            Command::Cut(places, span) => write!(f, "cut {}{}", Span(*span), list(places)),
            Command::Part(one, other, span) => write!(f, "part h{one} h{other} {}", Span(*span)),
            Command::Snap(one, other, span) => write!(f, "snap h{one} h{other} {}", Span(*span)),
            Command::Sever(one, other, span) => write!(f, "sever h{one} h{other} {}", Span(*span)),
            Command::Slow(place, span, delay) => write!(f, "slow h{place} {} {}", Span(*span), Span(*delay)),
            Command::Lossy(place, span, share) => write!(f, "lossy h{place} {} {share}", Span(*span)),
            Command::Refuse(place) => write!(f, "refuse h{place}"),
            Command::KillTasks(count) => write!(f, "killtasks {count}"),
            Command::KillMaster => f.write_str("killmaster"),
            Command::KillRelay => f.write_str("killrelay"),
            Command::Quiet => f.write_str("quiet"),
            Command::Halt => f.write_str("halt"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hosts {}\ntasks {}\ntimeout {}", self.hosts, self.tasks, Span(self.timeout))?;
        self.commands.iter().try_for_each(|timed| writeln!(f, "{} {}", Span(timed.at), timed.command))
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
        assert_eq!(scenario.commands[0].command, Command::Stop(2, SECOND / 4));
    }
}
