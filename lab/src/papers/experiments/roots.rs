//! The root finder: barriers between which tasks also gather and broadcast (D1, D2).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, PVM, Stage, no_ether};
use super::{Experiment, nothing_here};
use crate::bench::hosts::{Contestant, program, said};
use crate::ether::model::Medium;
use crate::ether::wire::Rate;
use crate::hosts::network::{Network, name};
use anyhow::{Context, Result, bail};

pub const EXPERIMENT: Experiment = Experiment {
    name: "roots",
    tags: "D1, D2",
    title: "the root finder",
    about: "`examples/roots`: the tasks, one on each host, divide an interval in which a polynomial of degree four \
            changes its sign. In each iteration they meet at a barrier, send a value to the master and get the next \
            interval. The first tables have the mean time of the barrier over the members, iteration by iteration, on \
            the emulated Ethernet of 10 Mbit/s. The last table has the mean over many iterations with the barriers at the \
            daemon of the master task's host, and at that of another host (`groups=no` for the first), both with a \
            release to each host.",
    paper: "Mean of the barrier with 4 processors, ms, iterations 1 to 7: 52, 88, 94, 112, 105, 107, 105 (the barrier \
            becomes slower while messages pile up). With the group server on another machine than the master, 78 ms \
            standard and 65 ms with broadcast for 4 processors, 385 and 351 ms for 12.",
    sheets,
    measure,
};

const SYSTEMS: [(Contestant, &str); 2] = [(HPVM, "hpvm"), (PVM, "PVM 3.4.6")];

fn counts(form: Form) -> &'static [usize] {
    form.either(&[2], &[4, 12])
}

fn iterations(form: Form) -> usize {
    form.either(2, 7)
}

/// The sheet with the two places at which barriers meet, and its rows.
const PLACES: &str = "d_roots_places";
const AT_FIRST: &str = "at the master task's host";
const ELSEWHERE: &str = "at another host";

/// The iterations that are not counted, so that barriers meet at their place, and those that are.
fn placed_iterations(form: Form) -> (usize, usize) {
    form.either((2, 2), (100, 200))
}

fn id(count: usize) -> String {
    format!("d_roots_{count}")
}

fn sheets(form: Form) -> Vec<Sheet> {
    let sheet = |count: &usize| {
        let title = format!("Barrier in the root finder of {count} processors");
        let numbers = 1..=iterations(form);
        Sheet::of_numbers(id(*count), title, "iteration", "us (less is better)", numbers, Plot::LinesFromZero)
            .with_rows(SYSTEMS.map(|(_, name)| name))
    };
    let title = "Barrier in the root finder, with the barriers of groups at two places";
    let numbers = counts(form).iter().copied();
    let places = Sheet::of_numbers(PLACES, title, "processors", "us (less is better)", numbers, Plot::LinesFromZero);
    counts(form).iter().map(sheet).chain([places.with_rows([AT_FIRST, ELSEWHERE])]).collect()
}

fn measure(stage: &Stage) -> Result<()> {
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &sheets(stage.form), &obstacle);
        return Ok(());
    }
    let most = counts(stage.form).iter().copied().max().context("a number of hosts")?;
    let network = stage.ether(most, Rate::Ten, Medium::Hub)?;
    for count in counts(stage.form) {
        for _ in 0..stage.either(1, 5) {
            for (who, row) in SYSTEMS {
                if let Err(error) = one(stage, &network, who, row, *count) {
                    stage.failed(who, &id(*count), row, "*", format!("{error:#}"));
                }
            }
            for row in [AT_FIRST, ELSEWHERE] {
                if let Err(error) = placed(stage, &network, row, *count) {
                    stage.failed(HPVM, PLACES, row, *count, format!("{error:#}"));
                }
            }
        }
    }
    Ok(())
}

fn one(stage: &Stage, network: &Network, who: Contestant, row: &str, count: usize) -> Result<()> {
    let machine = stage.machine(who, network, count)?;
    let mut command = machine.command(machine.first(), &program("roots"));
    command.args([count, iterations(stage.form)].map(|number| number.to_string()));
    let text = said(&mut command, &machine)?;
    for (number, line) in text.lines().filter(|line| line.starts_with("iteration")).enumerate() {
        let time: f64 = time_of(line).with_context(|| line.to_owned())?;
        stage.value(&id(count), row, number + 1, time);
    }
    Ok(())
}

/// Measures the barriers at one place.
fn placed(stage: &Stage, network: &Network, row: &str, count: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hostfile = folder.path().join("hostfile");
    let here = if row == AT_FIRST { "yes" } else { "no" };
    std::fs::write(&hostfile, format!("{} groups={here}\n", name(1)))?;
    let hostfile = hostfile.to_str().context("a path in UTF-8")?;
    let variables = [("PVMHOSTFILE", hostfile), ("HPVM_BARRIER_BROADCAST", "1000000")];
    let machine = stage.machine_with(HPVM, network, count, &variables)?;
    let (first, counted) = placed_iterations(stage.form);
    let mut command = machine.command(machine.first(), &program("roots"));
    command.args([count, first + counted].map(|number| number.to_string()));
    let text = said(&mut command, &machine)?;
    let lines = text.lines().filter(|line| line.starts_with("iteration")).skip(first);
    let times: Vec<f64> = lines.filter_map(time_of).collect();
    if times.len() != counted {
        bail!("{} iterations in place of {counted}", times.len());
    }
    stage.value(PLACES, row, count, times.iter().sum::<f64>() / counted as f64);
    Ok(())
}

/// Returns the time of the barrier in a line of the program.
fn time_of(line: &str) -> Option<f64> {
    line.split_once("barrier ")?.1.strip_suffix(" us")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_last_number_of_a_line() {
        assert_eq!(time_of("iteration 2: root between 1.5 and 1.625, barrier 12.9 us"), Some(12.9));
        assert_eq!(time_of("roots: 4 members"), None);
    }
}
