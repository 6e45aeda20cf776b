//! `cargo xtask sim`: runs seeds and reports failures.
#![forbid(unsafe_code)]
use pvm_sim::report;
use pvm_sim::scenario::Scenario;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "sim [--seed N] [--hosts H] [--tasks T] [--scenario FILE] [--trace LINES] [--print]
sim --seeds N [--from N] [--hosts H] [--tasks T]
sim --lose-masters N --hosts H --tasks T [--print]
sim --costs [--hosts H]";

/// The number of tasks on each host when costs are measured.
const TASKS_PER_HOST: usize = 10;

#[derive(Default)]
struct Options {
    seed: Option<u64>,
    seeds: Option<u64>,
    from: u64,
    hosts: Option<usize>,
    tasks: Option<usize>,
    scenario: Option<String>,
    lose_masters: Option<usize>,
    trace: usize,
    print: bool,
    costs: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seed") => options.seed = Some(parser.value()?.parse()?),
            Long("seeds") => options.seeds = Some(parser.value()?.parse()?),
            Long("from") => options.from = parser.value()?.parse()?,
            Long("hosts") => options.hosts = Some(parser.value()?.parse()?),
            Long("tasks") => options.tasks = Some(parser.value()?.parse()?),
            Long("scenario") => options.scenario = Some(parser.value()?.string()?),
            Long("lose-masters") => options.lose_masters = Some(parser.value()?.parse()?),
            Long("trace") => options.trace = parser.value()?.parse()?,
            Long("print") => options.print = true,
            Long("costs") => options.costs = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let done = options().map_err(|error| format!("{error}\n{USAGE}")).and_then(|options| match options {
        Options { costs: true, .. } => costs(&options),
        Options { seeds: Some(count), .. } => seeds(&options, count),
        _ => one(&options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn one(options: &Options) -> Result<(), String> {
    let seed = options.seed.unwrap_or(1);
    let scenario = match options {
        Options { lose_masters: Some(masters), hosts: Some(hosts), tasks: Some(tasks), .. } => {
            Scenario::of_lost_masters(*hosts, *tasks, *masters)
        }
        Options { lose_masters: Some(_), .. } => return Err(USAGE.to_owned()),
        Options { scenario: Some(file), .. } => {
            let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
            Scenario::parse(&text).map_err(|error| format!("{file}: {error}"))?
        }
        _ => report::scenario_of(seed, options.hosts, options.tasks),
    };
    if options.print {
        print!("{scenario}");
        return Ok(());
    }
    let began = Instant::now();
    let outcome = pvm_sim::run(seed, &scenario);
    if let Some(violation) = &outcome.violation {
        return Err(match options {
            Options { scenario: Some(file), .. } => {
                failure(seed, &scenario, options.trace, &format!("--scenario {file}"))
            }
            Options { lose_masters: Some(masters), .. } => {
                let arguments =
                    format!("--lose-masters {masters} --hosts {} --tasks {}", scenario.hosts, scenario.tasks);
                failure(seed, &scenario, options.trace, &arguments)
            }
            // `--hosts` and `--tasks` together come from an earlier report, which has shrunk the machine already. So do
            // not shrink it again.
            Options { hosts: Some(_), tasks: Some(_), .. } => failure_of_seed(seed, &scenario, options.trace),
            _ => failure_of_seed(seed, &report::shrink(seed, &scenario, violation.invariant), options.trace),
        });
    }
    println!(
        "seed {seed}: {} hosts, {} tasks, {} masters lost, {} events, {:.1} s simulated in {:.2} s, hash {:016x}",
        scenario.hosts,
        scenario.tasks,
        outcome.tried.successions,
        outcome.events,
        outcome.end as f64 / 1e9,
        began.elapsed().as_secs_f64(),
        outcome.hash
    );
    Ok(())
}

/// With this number of seeds or more, each way of multicasts and each of their faults has to occur.
const SEEDS_THAT_TRY_ALL: u64 = 50;

fn seeds(options: &Options, count: u64) -> Result<(), String> {
    let began = Instant::now();
    let (failures, events, tried) = report::run_seeds(options.from, count, options.hosts, options.tasks);
    for failure in &failures {
        let violation = failure.outcome.violation.as_ref().expect("it failed");
        println!("seed {}: {}: {}", failure.seed, violation.invariant, violation.text);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} of {count} seeds passed, {events} events, {seconds:.1} s", count - failures.len() as u64);
    println!("{tried}");
    let Some(first) = failures.first() else {
        let missing = if count >= SEEDS_THAT_TRY_ALL { tried.missing() } else { Vec::new() };
        return match missing.as_slice() {
            [] => Ok(()),
            missing => Err(format!("in all these seeds there were no {}", missing.join(", no "))),
        };
    };
    let invariant = first.outcome.violation.as_ref().expect("it failed").invariant;
    let small = report::shrink(first.seed, &first.scenario, invariant);
    Err(failure_of_seed(first.seed, &small, options.trace))
}

/// Returns the text about a failure in a scenario that is derived from the seed.
fn failure_of_seed(seed: u64, scenario: &Scenario, lines: usize) -> String {
    failure(seed, scenario, lines, &format!("--hosts {} --tasks {}", scenario.hosts, scenario.tasks))
}

/// Returns the text about a failure. It ends with the command that repeats the failure; `arguments` are that command's
/// arguments after the seed.
fn failure(seed: u64, scenario: &Scenario, lines: usize, arguments: &str) -> String {
    let text = report::describe(seed, scenario, lines);
    format!("{text}\nagain: cargo xtask sim --seed {seed} {arguments}")
}

/// The cost of an event may grow with the logarithm of the number of hosts. This factor allows for noise.
const COST_MARGIN: f64 = 1.25;
/// The number of hosts of the smallest machine, with which the larger ones are compared.
const COST_HOSTS_LEAST: usize = 10;

/// Prints the cost of an event in machines of different sizes. Fails if the cost grows too fast with the size.
fn costs(options: &Options) -> Result<(), String> {
    let largest = options.hosts.unwrap_or(500).max(COST_HOSTS_LEAST + 1);
    let between = [10, 30, 100, 300].into_iter().filter(|hosts| *hosts < largest);
    println!("                            one machine        {largest:>5} hosts altogether");
    println!(" hosts  tasks     events     ns  growth     machines     ns  growth  log allows");
    let (mut first, mut worst): (Option<[f64; 2]>, f64) = (None, 0.0);
    for hosts in between.chain([largest]) {
        let (tasks, machines) = (TASKS_PER_HOST * hosts, (largest + hosts / 2) / hosts);
        let alone = report::cost(hosts, tasks);
        let among = report::cost_of_several(hosts, tasks, machines);
        let least = *first.get_or_insert([alone.nanos, among.nanos]);
        let growth = [alone.nanos / least[0], among.nanos / least[1]];
        let allowed = (hosts as f64).ln() / (COST_HOSTS_LEAST as f64).ln();
        worst = worst.max(growth[1] / allowed);
        println!(
            "{hosts:>6} {tasks:>6} {:>10} {:>6.0} {:>7.2} {machines:>12} {:>6.0} {:>7.2} {allowed:>11.2}",
            alone.events, alone.nanos, growth[0], among.nanos, growth[1]
        );
    }
    match worst <= COST_MARGIN {
        true => Ok(()),
        false => Err(format!("the cost of an event has grown {worst:.2} times as fast as the logarithm of the hosts")),
    }
}
