//! Runs and what is told of them.
use crate::dice::Dice;
use crate::queue::SECOND;
use crate::scenario::Scenario;
use crate::world::World;
use crate::{Outcome, run};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of the trace that a failure shows.
const TRACE_LINES: usize = 60;
/// Steps of each program when costs are measured.
const COST_STEPS: usize = 30;
/// How often each size is run at most, and how many hosts all runs of a size have together, about.
const COST_RUNS_MAX: usize = 5;
const COST_RUNS_HOSTS: usize = 300;
/// Sizes of machines of many seeds.
const HOSTS_MAX: usize = 100;

/// How large the machine of a seed is, when nobody says it: 2 to 100 hosts, rather small.
pub fn size_of(seed: u64) -> (usize, usize) {
    let mut dice = Dice::new(seed, 3);
    let hosts = 2 + dice.size(HOSTS_MAX - 1);
    (hosts, 1 + dice.size(hosts * 6))
}

/// A seed that failed.
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Its scenario.
    pub scenario: Scenario,
    /// What became of it.
    pub outcome: Outcome,
}

/// Runs seeds, on as many processors as there are; gives those that failed, and how many events
/// there were.
pub fn run_seeds(first: u64, count: u64, hosts: Option<usize>, tasks: Option<usize>) -> (Vec<Failure>, u64) {
    let next = AtomicU64::new(first);
    let one = || {
        let (mut failures, mut events) = (Vec::new(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return (failures, events);
            }
            let scenario = scenario_of(seed, hosts, tasks);
            let outcome = run(seed, &scenario);
            events += outcome.events;
            if outcome.violation.is_some() {
                failures.push(Failure { seed, scenario, outcome });
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            let (failures, events) = thread.join().expect("a run does not panic");
            all.0.extend(failures);
            all.1 += events;
        }
    });
    all.0.sort_by_key(|failure| failure.seed);
    all
}

/// The scenario of a seed, with these numbers of hosts and tasks or its own.
pub fn scenario_of(seed: u64, hosts: Option<usize>, tasks: Option<usize>) -> Scenario {
    let (own_hosts, own_tasks) = size_of(seed);
    Scenario::from_seed(seed, hosts.unwrap_or(own_hosts), tasks.unwrap_or(own_tasks))
}

/// A smaller machine on which the seed fails in the same way, or the same one.
pub fn shrink(seed: u64, scenario: &Scenario, invariant: &str) -> Scenario {
    let fails =
        |smaller: &Scenario| run(seed, smaller).violation.is_some_and(|violation| violation.invariant == invariant);
    for hosts in [1, 2, 3, 4, 6, 8, 12, 20, 40].into_iter().filter(|hosts| *hosts < scenario.hosts) {
        for tasks in [1, 2, 4, 8, 16, 40].into_iter().filter(|tasks| *tasks <= scenario.tasks) {
            let smaller = Scenario::from_seed(seed, hosts, tasks);
            if fails(&smaller) {
                return smaller;
            }
        }
    }
    scenario.clone()
}

/// The failure of a run, for people.
pub fn describe(seed: u64, scenario: &Scenario, lines: usize) -> String {
    let told = || World::new(seed, scenario.clone(), true).run();
    let Ok((outcome, trace)) = std::panic::catch_unwind(told) else {
        return format!("seed {seed}: a panic, see above\nthe scenario:\n{scenario}");
    };
    let mut text = String::new();
    let Some(violation) = &outcome.violation else { return "all is well\n".into() };
    let seconds = outcome.end as f64 / SECOND as f64;
    let _ = writeln!(text, "seed {seed}: {} at {seconds:.6} s: {}", violation.invariant, violation.text);
    let _ = writeln!(text, "the scenario:\n{scenario}\nwhat happened last at {:?}:", violation.hosts);
    let lines = if lines == 0 { TRACE_LINES } else { lines };
    trace.last(lines, &violation.hosts).iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    text
}

/// What an event costs.
pub struct Cost {
    /// How many events there were.
    pub events: u64,
    /// Time on a processor, in nanoseconds an event; that of others who use it does not count.
    pub nanos: f64,
}

/// Nanoseconds that this thread has been on a processor.
fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// What an event costs in a machine of that size, when nothing goes wrong and each program does the
/// same number of steps: the best of some runs.
pub fn cost(hosts: usize, tasks: usize) -> Cost {
    let runs = (COST_RUNS_HOSTS / hosts).clamp(1, COST_RUNS_MAX);
    let all = (0..runs).map(|_| cost_of_several(hosts, tasks, 1));
    all.min_by(|one, other| one.nanos.total_cmp(&other.nanos)).expect("there is one run at least")
}

/// What an event costs in several machines of that size that know nothing of one another, when an
/// event happens in each in turn.
pub fn cost_of_several(hosts: usize, tasks: usize, machines: usize) -> Cost {
    let world = |number| World::new(number, Scenario::peaceful(hosts, tasks), false).with_steps(COST_STEPS);
    let mut worlds: Vec<World> = (1..=machines as u64).map(world).collect();
    let before = on_processor();
    let (mut events, mut going) = (0, true);
    while going {
        going = false;
        for world in &mut worlds {
            let goes = world.go();
            events += u64::from(goes);
            going |= goes;
        }
    }
    let nanos = (on_processor() - before) as f64 / events as f64;
    worlds.iter().for_each(|world| assert_eq!(world.checks.violation, None));
    Cost { events, nanos }
}
