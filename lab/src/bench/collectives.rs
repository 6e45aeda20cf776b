//! Measures collective operations of one task on each of several hosts.

use super::hosts::{Contestant, Values, mpirun, print_values, program, said};
use super::plan::Effort;
use super::tables::size_text;
use super::verdicts::{Bound, Verdict};
use crate::hosts::machine::Machine;
use crate::hosts::network::{Host, Network};
use Contestant::{Hpvm, OpenMpi, Pvm};
use anyhow::{Context, Result};

/// The name for `--only`.
pub const NAME: &str = "collectives";

/// Open MPI's ranks outnumber the cores, so each yields its core while it waits.
const YIELDING: &str = "--mca mpi_yield_when_idle 1 --oversubscribe";

/// The names of the measures in the output of the programs. In this output, the number of tasks stands in the field in
/// which other programs print a size.
const MEASURES: [&str; 9] = [
    "barrier",
    "reduce_8",
    "reduce_1048576",
    "gather_8",
    "gather_65536",
    "bcast_8",
    "bcast_65536",
    "bcast_1048576",
    "mcast_65536",
];

/// The compared systems, all on their default routes: a direct route would not change the time of a barrier.
const SYSTEMS: [Contestant; 4] =
    [OpenMpi, Pvm { direct: false }, Hpvm { trusted: true, direct: false }, Hpvm { trusted: false, direct: false }];

/// Returns the number of rounds, and for each run of a program the time of a repetition in ms and the repetitions.
fn amount(effort: Effort) -> (usize, [&'static str; 2]) {
    if effort == Effort::Full { (2, ["50", "3"]) } else { (1, ["30", "3"]) }
}

/// The numbers of hosts.
fn counts(effort: Effort) -> &'static [usize] {
    if effort == Effort::Full { &[4, 16, 32] } else { &[16] }
}

/// Measures each system of `all` that has collective operations, over each number of hosts.
pub fn measure(network: &Network, all: &[Contestant], effort: Effort) {
    let (rounds, repetitions) = amount(effort);
    let systems: Vec<Contestant> = SYSTEMS.into_iter().filter(|one| all.contains(one)).collect();
    for round in 0..rounds {
        for count in counts(effort) {
            for turn in 0..systems.len() {
                // Each round begins with another system, so that no system is always the first.
                let contestant = systems[(turn + round) % systems.len()];
                print_values(contestant, one(network, contestant, *count, repetitions));
            }
        }
    }
}

fn one(network: &Network, contestant: Contestant, count: usize, words: [&str; 2]) -> Result<String> {
    let hosts: Vec<&Host> = network.hosts().iter().take(count).collect();
    let measure = format!("{NAME}-{count}");
    match contestant.side() {
        Some(side) => {
            let mut machine = Machine::new(side, network, &contestant.environment())?;
            machine.start(count, &[])?;
            let mut command = machine.command(machine.first(), &program("pvm_bench"));
            said(command.args([&measure, contestant.route()]).args(words), &machine)
        }
        None => {
            let side = Pvm { direct: false }.side().context("PVM")?;
            let machine = Machine::new(side, network, &[])?;
            let mut command = mpirun(&machine, &hosts);
            command.args(YIELDING.split_whitespace()).arg(program("openmpi_bench")).arg(&measure);
            said(command.args(words), &machine)
        }
    }
}

/// Returns the name of a measure in tables: the size in bytes at the end of the measure's name becomes readable text.
fn title(measure: &str) -> String {
    match measure.split_once('_') {
        Some((call, size)) => format!("{call} {}", size.parse().map_or(size.to_owned(), size_text)),
        None => measure.to_owned(),
    }
}

/// Prints the tables.
pub fn print(values: &Values) {
    for count in counts(Effort::Full) {
        let column = |one: &Contestant| {
            let times: Vec<Option<f64>> = MEASURES.iter().map(|what| values.median(*one, what, *count)).collect();
            times.iter().any(Option::is_some).then_some((*one, times))
        };
        let columns: Vec<_> = SYSTEMS.iter().filter_map(column).collect();
        if columns.is_empty() {
            continue;
        }
        println!("\nOne task on each of {count} hosts, us");
        let names: Vec<String> = columns.iter().map(|(one, _)| format!("{:>14}", one.name())).collect();
        println!("{:16}{}", "", names.join(""));
        for (row, measure) in MEASURES.iter().enumerate() {
            let cells: Vec<String> = columns
                .iter()
                .map(|(_, times)| times[row].map_or(format!("{:>14}", "-"), |time| format!("{time:14.0}")))
                .collect();
            println!("{:16}{}", title(measure), cells.join(""));
        }
    }
}

/// Returns the targets.
pub fn verdicts(values: &Values) -> Vec<Verdict> {
    let ratios = |measures: &[&str], counts: &[usize], other: Contestant| {
        let mut ratios = Vec::new();
        for (measure, count) in measures.iter().flat_map(|measure| counts.iter().map(move |count| (*measure, *count))) {
            for trusted in [true, false] {
                let ours = values.median(Hpvm { trusted, direct: false }, measure, count);
                let ratio = ours.zip(values.median(other, measure, count)).map(|(ours, theirs)| ours / theirs);
                let network = if trusted { "trusted" } else { "encrypted" };
                ratios.push((format!("{} {count} {network}", title(measure)), ratio));
            }
        }
        ratios
    };
    let target = |text: &str, bound, ratios| Verdict { text: format!("over hosts, {text}"), bound, ratios };
    let (pvm, all) = (Pvm { direct: false }, &MEASURES[1..8]);
    vec![
        target("barrier, time to PVM 3.4.6's", Bound::Most(0.5), ratios(&MEASURES[..1], &[16, 32], pvm)),
        target("mcast, time to PVM 3.4.6's", Bound::Most(0.2), ratios(&MEASURES[8..], &[32], pvm)),
        target("reduce, gather, bcast, time to PVM 3.4.6's", Bound::Most(0.5), ratios(all, &[16], pvm)),
        target("reduce, gather, bcast, time to Open MPI's", Bound::Most(1.0), ratios(all, &[16], OpenMpi)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_has_the_size_in_words() {
        assert_eq!([title("barrier"), title("bcast_65536")], ["barrier", "bcast 64 KiB"]);
    }
}
