//! Multicast to one task on each of several hosts, by each way between hosts (D1, D3, F5, H6).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, PVM, Stage, no_ether};
use super::{Experiment, nothing_here};
use crate::bench::hosts::Contestant;
use crate::bench::samples::median;
use crate::bench::tables::size_text;
use crate::ether::model::Medium;
use crate::ether::wire::Rate;
use crate::hosts::machine::Machine;
use crate::hosts::network::Network;
use anyhow::Result;
use std::fmt::Display;

pub const ON_BRIDGE: Experiment = Experiment {
    name: "multicast",
    tags: "D1, D3, F5, H6",
    title: "multicast over hosts on a bridge",
    about: "The first task multicasts a message to one task on each of the other hosts, and receives a short answer \
            from each. The hosts are namespaces on the kernel's bridge. By default hpvm measures each way and takes \
            the best one, so some multicasts come before the measured ones. The table of this choice has its time \
            divided by that of the best fixed way of the same pass over all ways. The other passes decide which fixed way \
            is the best: the least of several times that differ by chance would be too small.",
    paper: PAPER,
    sheets: bridge_sheets,
    measure: on_bridge,
};

pub const ON_ETHER: Experiment = Experiment {
    name: "multicast-ether",
    tags: "D1, D3, F5, H6",
    title: "multicast over hosts on emulated networks",
    about: "As before, on an emulated switch of 1 Gbit/s with 1 MiB of buffer for each port, and on an emulated \
            segment of 10 Mbit/s, half duplex, with collisions. Two cores cannot do the work of all hosts as fast as \
            a switch of 1 Gbit/s carries it, so one second on that switch takes 16 seconds here, and its times are \
            divided by 16. Time limits of the systems, such as those after which packets are sent again, do not \
            become longer by this.",
    paper: PAPER,
    sheets: ether_sheets,
    measure: on_ethers,
};

const PAPER: &str = "None in numbers: D proposes broadcast and the hypercube, F and H a binomial tree for many hosts \
                     or long messages.";

/// A way: the system, the name of its row, and the value of `PvmMcastRoute` (0: as the system decides).
type Way = (Contestant, &'static str, i32);

/// All ways, those of one system together.
const WAYS: &[Way] = &[
    (HPVM, "hpvm, automatic", AUTOMATIC),
    (HPVM, "hpvm, iterative", 1),
    (HPVM, "hpvm, binomial", 2),
    (HPVM, "hpvm, hypercube", 3),
    (HPVM, "hpvm, broadcast", BROADCAST),
    (PVM, "PVM 3.4.6", 0),
];
const AUTOMATIC: i32 = 0;
const BROADCAST: i32 = 4;
/// How many multicasts of each size go by the automatic way before the measured ones: the daemon measures each of up to
/// three ways three times before it prefers one. They are several runs of the program, since a run has a time limit.
const LEARNING_RUNS: usize = 3;
const LEARNING: Effort = Effort { passes: 1, trials: 0, repetition_ms: 0, repetitions: 3 };
/// The most passes over the ways of a system, and the number of them on emulated networks, where a pass takes longer.
const PASSES_MAX: usize = 5;
const ETHER_PASSES: usize = 3;

/// An emulated network.
struct Place {
    /// The end of the name of its table.
    end: &'static str,
    text: &'static str,
    rate: Rate,
    medium: Medium,
    slowdown: u32,
}

const SWITCH: Place = Place {
    end: "switch",
    text: "a switch of 1 Gbit/s",
    rate: Rate::Gigabit,
    medium: Medium::Switch { port_bytes_max: 1 << 20 },
    slowdown: 16,
};
const SEGMENT: Place =
    Place { end: "segment", text: "a segment of 10 Mbit/s", rate: Rate::Ten, medium: Medium::Hub, slowdown: 1 };
const PLACES: [Place; 2] = [SWITCH, SEGMENT];

const CHOICE: &str = "d_mcast_choice";
const CHOICE_ETHER: &str = "d_mcast_choice_ether";
const CHOICE_UNIT: &str = "automatic / best fixed (less is better)";

fn sizes(form: Form) -> &'static [usize] {
    form.either(&[8, 4096], &[8, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20])
}

fn counts(form: Form) -> &'static [usize] {
    form.either(&[2, 4], &[2, 4, 8, 16, 32])
}

/// Returns how many hosts an emulated network has.
fn ether_hosts(form: Form) -> usize {
    form.either(4, 16)
}

fn ether_sizes(form: Form) -> &'static [usize] {
    form.either(&[64 << 10], &[8 << 10, 64 << 10, 1 << 20])
}

fn id(size: usize) -> String {
    format!("d_mcast_{size}")
}

impl Place {
    fn id(&self) -> String {
        format!("d_mcast_{}", self.end)
    }

    fn sheet(&self, form: Form) -> Sheet {
        let slowdown = match self.slowdown {
            1 => String::new(),
            factor => format!(", slowed down by {factor} and divided by {factor}"),
        };
        let title = format!("pvm_mcast over {} hosts with answers, {}{slowdown}", ether_hosts(form), self.text);
        let sizes = ether_sizes(form).iter().copied();
        Sheet::of_numbers(self.id(), title, "bytes of a message", "ms (less is better)", sizes, Plot::Lines)
            .with_rows(WAYS.iter().map(|(_, row, _)| *row))
    }
}

fn bridge_sheets(form: Form) -> Vec<Sheet> {
    let counts = || counts(form).iter().copied();
    let sheet = |size: &usize| {
        let title = format!("pvm_mcast of {} with answers", size_text(*size));
        Sheet::of_numbers(id(*size), title, "hosts", "us (less is better)", counts(), Plot::Lines)
            .with_rows(WAYS.iter().map(|(_, row, _)| *row))
    };
    let mut sheets: Vec<Sheet> = sizes(form).iter().map(sheet).collect();
    let choice =
        Sheet::of_numbers(CHOICE, "The automatic way, on a bridge", "hosts", CHOICE_UNIT, counts(), Plot::None);
    sheets.push(choice.with_rows(sizes(form).iter().map(|size| size_text(*size))));
    sheets
}

fn ether_sheets(form: Form) -> Vec<Sheet> {
    let mut sheets: Vec<Sheet> = PLACES.iter().map(|place| place.sheet(form)).collect();
    let title = format!("The automatic way, {} hosts", ether_hosts(form));
    let sizes = ether_sizes(form).iter().copied();
    let choice = Sheet::of_numbers(CHOICE_ETHER, title, "bytes of a message", CHOICE_UNIT, sizes, Plot::None);
    sheets.push(choice.with_rows(PLACES.iter().map(|place| place.text)));
    sheets
}

/// How much is measured of one way and size: the number of passes over all ways, and how much in each. The first
/// multicasts are not measured.
#[derive(Clone, Copy, PartialEq)]
struct Effort {
    passes: usize,
    trials: usize,
    repetition_ms: u32,
    repetitions: u32,
}

/// Returns how much is measured of a way and a size, or why nothing is.
type Efforts<'a> = dyn Fn(Way, usize) -> Result<Effort, &'static str> + 'a;

/// Takes a value of a way and a size, or why there is none.
type Report<'a> = &'a mut dyn FnMut(Way, usize, Result<f64, &str>);

/// The values of one size by one way in one pass.
struct Times {
    way: Way,
    size: usize,
    values: Vec<f64>,
}

fn on_ethers(stage: &Stage) -> Result<()> {
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &ether_sheets(stage.form), &obstacle);
        return Ok(());
    }
    PLACES.iter().try_for_each(|place| on_ether(stage, place))
}

fn on_bridge(stage: &Stage) -> Result<()> {
    let most = counts(stage.form).iter().copied().max().unwrap_or(2);
    let network = stage.bridge(most)?;
    let (trials, (passes, repetition_ms, repetitions)) = (3, stage.either((1, 1, 1), (PASSES_MAX, 20, 3)));
    let sizes = sizes(stage.form);
    for count in counts(stage.form) {
        let effort = |_: Way, _: usize| Ok(Effort { passes, trials, repetition_ms, repetitions });
        let times = by_all_ways(stage, &network, *count, sizes, &effort, &mut |way, size, said| match said {
            Ok(value) => stage.value(&id(size), way.1, count, value),
            Err(error) => stage.failed(way.0, &id(size), way.1, count, error),
        });
        for size in sizes {
            tell_choice(stage, &times, *size, (CHOICE, &size_text(*size)), *count);
        }
    }
    Ok(())
}

fn on_ether(stage: &Stage, place: &Place) -> Result<()> {
    let hosts = ether_hosts(stage.form);
    let network = stage.slow_ether(hosts, place.rate, place.medium, place.slowdown)?;
    let scale = 1e-3 / f64::from(place.slowdown);
    let sizes = ether_sizes(stage.form);
    // On the segment, 1 MiB to each of 16 hosts takes 15 s, and by broadcast 1 s.
    let is_long = |size: usize| place.rate == Rate::Ten && size >= 1 << 20;
    let effort = |(who, _, number): Way, size: usize| match is_long(size) {
        true if who == PVM => Err("it takes more than two minutes"),
        true => {
            let passes = if matches!(number, AUTOMATIC | BROADCAST) { ETHER_PASSES } else { 1 };
            Ok(Effort { passes, trials: 0, repetition_ms: 0, repetitions: 1 })
        }
        false => Ok(Effort { passes: stage.either(1, ETHER_PASSES), trials: 1, repetition_ms: 0, repetitions: 1 }),
    };
    let times = by_all_ways(stage, &network, hosts, sizes, &effort, &mut |way, size, said| match said {
        Ok(value) => stage.value(&place.id(), way.1, size, value * scale),
        Err(error) => stage.failed(way.0, &place.id(), way.1, size, error),
    });
    sizes.iter().for_each(|size| tell_choice(stage, &times, *size, (CHOICE_ETHER, place.text), *size));
    Ok(())
}

/// Measures all ways over the first `hosts` hosts of a network, and reports each value, in us, or why there is none.
/// `effort` returns how much is measured of a way and a size, or why nothing is. The ways of one system are measured in
/// turn in one machine: two machines, or two moments, differ by more than the ways do.
fn by_all_ways(
    stage: &Stage,
    network: &Network,
    hosts: usize,
    sizes: &[usize],
    effort: &Efforts,
    report: Report,
) -> Vec<Times> {
    let mut all = Vec::new();
    for ways in WAYS.chunk_by(|one, other| one.0 == other.0) {
        let machine = stage.machine(ways[0].0, network, hosts).map_err(|error| format!("{error:#}"));
        let run = |way: Way, sizes: &[usize], effort: Effort| -> Result<Vec<Times>, String> {
            let machine = machine.as_ref().map_err(String::clone)?;
            one_run(stage, machine, way, hosts, sizes, effort).map_err(|error| format!("{error:#}"))
        };
        let alike = |one: &usize, other: &usize| ways.iter().all(|way| effort(*way, *one) == effort(*way, *other));
        for sizes in sizes.chunk_by(alike) {
            let automatic = ways.iter().find(|way| (way.0, way.2) == (HPVM, AUTOMATIC));
            let learning = automatic.into_iter().flat_map(|way| [*way; LEARNING_RUNS]);
            // If these runs fail, so does the measured one.
            learning.for_each(|way| _ = run(way, sizes, LEARNING));
            for (pass, way) in (0..PASSES_MAX).flat_map(|pass| ways.iter().map(move |way| (pass, *way))) {
                let said = effort(way, sizes[0]).map_err(str::to_owned).and_then(|effort| match pass < effort.passes {
                    true => run(way, sizes, effort),
                    false => Ok(Vec::new()),
                });
                match said {
                    Ok(times) => all.extend(times),
                    Err(error) => sizes.iter().for_each(|size| report(way, *size, Err(&error))),
                }
            }
        }
    }
    for one in &all {
        one.values.iter().for_each(|value| report(one.way, one.size, Ok(*value)));
    }
    all
}

/// Runs the program once, for some sizes.
fn one_run(
    stage: &Stage,
    machine: &Machine,
    way: Way,
    hosts: usize,
    sizes: &[usize],
    effort: Effort,
) -> Result<Vec<Times>> {
    let (who, _, number) = way;
    let Effort { trials, repetition_ms, repetitions, .. } = effort;
    let mut words: Vec<&dyn Display> = vec![&"mcast", &number, &hosts, &trials, &repetition_ms, &repetitions];
    words.extend(sizes.iter().map(|size| size as &dyn Display));
    let said = stage.papers(who, machine, &words)?;
    let of_size = |size: &usize| said.iter().filter(|one| one.size == *size).map(|one| one.value).collect();
    Ok(sizes.iter().map(|size| Times { way, size: *size, values: of_size(size) }).collect())
}

/// Reports how long the automatic way takes, in comparison with the best fixed one.
fn tell_choice(stage: &Stage, times: &[Times], size: usize, (sheet, row): (&str, &str), column: usize) {
    match choice(times, size) {
        Some(ratio) => stage.value(sheet, row, column, ratio),
        None => stage.failed(HPVM, sheet, row, column, "a way has no time"),
    }
}

/// Returns the time of the automatic way divided by the time of the best fixed one: the median over the passes. Which way
/// is the best one in a pass is decided by the other passes, so that it is not the one that was quick by chance.
fn choice(times: &[Times], size: usize) -> Option<f64> {
    let passes_of = |way: &Way| -> Vec<f64> {
        let ours = times.iter().filter(|one| one.size == size && (one.way.0, one.way.2) == (way.0, way.2));
        ours.filter_map(|one| median(&one.values)).collect()
    };
    let (automatic, fixed): (Vec<&Way>, Vec<&Way>) =
        WAYS.iter().filter(|way| way.0 == HPVM).partition(|way| way.2 == AUTOMATIC);
    let fixed: Vec<Vec<f64>> = fixed.into_iter().map(passes_of).filter(|passes| !passes.is_empty()).collect();
    let ratio = |(pass, time): (usize, &f64)| {
        let best = fixed.iter().min_by(|one, other| without(one, pass).total_cmp(&without(other, pass)))?;
        Some(time / best.get(pass).copied().or_else(|| median(best))?)
    };
    let ratios: Option<Vec<f64>> = passes_of(automatic[0]).iter().enumerate().map(ratio).collect();
    median(&ratios?)
}

/// Returns the median of all passes but one, or of the only one.
fn without(passes: &[f64], pass: usize) -> f64 {
    let others: Vec<f64> = passes
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != pass || passes.len() == 1)
        .map(|(_, time)| *time)
        .collect();
    median(&others).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automatic_way_is_compared_with_the_best_fixed_one() {
        let values = [[30.0, 20.0, 33.0], [60.0, 50.0, 61.0], [20.0, 25.0, 10.0], [70.0; 3], [80.0; 3], [1.0; 3]];
        let of_way = |(way, values): (&Way, [f64; 3])| Times { way: *way, size: 8, values: values.to_vec() };
        let mut times: Vec<Times> = WAYS.iter().zip(values).map(of_way).collect();
        assert_eq!(choice(&times, 8), Some(1.5));
        // A way that was quick by chance in one pass is not the best one in that pass.
        for (way, values) in [(0, [40.0, 40.0]), (1, [20.0, 60.0]), (2, [60.0, 20.0]), (3, [90.0, 90.0])] {
            times.extend(values.map(|value| Times { way: WAYS[way], size: 16, values: vec![value] }));
        }
        assert_eq!(choice(&times, 16), Some(40.0 / 60.0));
        assert_eq!(choice(&times, 9), None);
        times.retain(|one| one.way.2 != AUTOMATIC);
        assert_eq!(choice(&times, 8), None);
    }
}
