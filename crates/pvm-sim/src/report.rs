//! Runs seeds, and describes failures.
use crate::prng::Prng;
use crate::queue::SECOND;
use crate::scenario::Scenario;
use crate::world::World;
use crate::{Coverage, Outcome, run};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// With this number of trace lines or more, a report shows the events of all hosts.
const ALL_HOSTS_LINES: usize = 100_000;
/// The number of trace lines in the report of a failure.
const TRACE_LINES: usize = 60;
/// The number of steps of each program when costs are measured.
const COST_STEPS: usize = 30;
/// The most runs for each size of machine, and the approximate number of hosts in all runs of that size together.
const COST_RUNS_MAX: usize = 5;
const COST_RUNS_HOSTS: usize = 300;
/// The most hosts of a machine whose size comes from the seed.
const HOSTS_MAX: usize = 100;

/// Returns the numbers of hosts and tasks that a seed's machine has if no option sets them. There are 2 to 100 hosts;
/// small numbers are more frequent.
pub fn size_of(seed: u64) -> (usize, usize) {
    let mut prng = Prng::new(seed, 3);
    let hosts = 2 + prng.size(HOSTS_MAX - 1);
    (hosts, 1 + prng.size(hosts * 6))
}

/// A seed that failed.
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Its scenario.
    pub scenario: Scenario,
    /// The outcome.
    pub outcome: Outcome,
}

/// Runs seeds on all processors. Returns the failures, the number of events, and how often what
/// the runs are about has occurred.
pub fn run_seeds(first: u64, count: u64, hosts: Option<usize>, tasks: Option<usize>) -> (Vec<Failure>, u64, Coverage) {
    let next = AtomicU64::new(first);
    let one = || {
        let (mut failures, mut events, mut tried) = (Vec::new(), 0, Coverage::default());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return (failures, events, tried);
            }
            let scenario = scenario_of(seed, hosts, tasks);
            let outcome = run(seed, &scenario);
            events += outcome.events;
            tried.add(&outcome.tried);
            if outcome.violation.is_some() {
                failures.push(Failure { seed, scenario, outcome });
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = (Vec::new(), 0, Coverage::default());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            let (failures, events, tried) = thread.join().expect("a run does not panic");
            all.0.extend(failures);
            all.1 += events;
            all.2.add(&tried);
        }
    });
    all.0.sort_by_key(|failure| failure.seed);
    all
}

/// Returns the scenario of a seed. Numbers of hosts and tasks that are not given are derived from the seed.
pub fn scenario_of(seed: u64, hosts: Option<usize>, tasks: Option<usize>) -> Scenario {
    let (own_hosts, own_tasks) = size_of(seed);
    Scenario::from_seed(seed, hosts.unwrap_or(own_hosts), tasks.unwrap_or(own_tasks))
}

/// Returns the scenario of the smallest machine in which the seed was found to violate the same invariant.
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

/// Returns the text about a failure.
pub fn describe(seed: u64, scenario: &Scenario, lines: usize) -> String {
    let run = || World::new(seed, scenario.clone(), true).run();
    let Ok((outcome, trace)) = std::panic::catch_unwind(run) else {
        return format!("seed {seed}: a panic, see above\nthe scenario:\n{scenario}");
    };
    let mut text = String::new();
    let Some(violation) = &outcome.violation else {
        let violation = crate::channels::run(seed, &mut Coverage::default());
        return violation.map_or("all is well\n".into(), |violation| format!("seed {seed}: {}\n", violation.text));
    };
    let seconds = outcome.end as f64 / SECOND as f64;
    let _ = writeln!(text, "seed {seed}: {} at {seconds:.6} s: {}", violation.invariant, violation.text);
    let _ = writeln!(text, "the scenario:\n{scenario}\nwhat happened last at {:?}:", violation.hosts);
    let lines = if lines == 0 { TRACE_LINES } else { lines };
    // So many lines are for a search in all that has happened.
    let hosts = if lines >= ALL_HOSTS_LINES { &[][..] } else { &violation.hosts };
    trace.last(lines, hosts).iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    text
}

/// The cost of an event.
pub struct Cost {
    /// The number of events.
    pub events: u64,
    /// The processor time for each event, in nanoseconds; only the time of this thread is counted.
    pub nanos: f64,
}

/// Returns for how many nanoseconds this thread has run on a processor.
fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Returns the cost of an event in a machine of the given size without faults, in which all programs run the same
/// number of steps. Of several runs, the lowest cost is returned.
pub fn cost(hosts: usize, tasks: usize) -> Cost {
    let runs = (COST_RUNS_HOSTS / hosts).clamp(1, COST_RUNS_MAX);
    let all = (0..runs).map(|_| cost_of_several(hosts, tasks, 1));
    all.min_by(|one, other| one.nanos.total_cmp(&other.nanos)).expect("there is one run at least")
}

/// Returns the cost of an event in several independent machines of the given size. The machines take turns: each runs
/// one event at a time.
pub fn cost_of_several(hosts: usize, tasks: usize, machines: usize) -> Cost {
    let world = |number| World::new(number, Scenario::peaceful(hosts, tasks), false).with_steps(COST_STEPS);
    let mut worlds: Vec<World> = (1..=machines as u64).map(world).collect();
    let before = on_processor();
    let (mut events, mut going) = (0, true);
    while going {
        going = false;
        for world in &mut worlds {
            let goes = world.run_next_event();
            events += u64::from(goes);
            going |= goes;
        }
    }
    let nanos = (on_processor() - before) as f64 / events as f64;
    worlds.iter().for_each(|world| assert_eq!(world.checks.violation, None));
    Cost { events, nanos }
}
