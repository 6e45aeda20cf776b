//! Latency, bandwidth and copies of each mode, by the method of the paper M (M2 to M4).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{Measured, PVM, Stage, measured};
use super::{Experiment, form_name};
use crate::bench::hosts::{Contestant, PORT, SPINNING, mpirun, program, said};
use crate::bench::systems::System;
use crate::hosts::machine::Machine;
use crate::hosts::network::Network;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Display;
use xtask::side::Side;

pub const EXPERIMENT: Experiment = Experiment {
    name: "modes",
    tags: "M2 to M4",
    title: "the native layer, psend, in place, raw",
    about: "Method M4: ping-pong of two tasks on two cores, each time the mean of 100 round trips. The latency is where \
            the line of least squares through the sizes up to 1 KB begins; the bandwidth is the slope of the line \
            through 1, 2 and 4 MiB. PVM 3.4.6 and hpvm have the direct route, and the network is trusted. The copies \
            are those that the library has counted while messages of 1 MiB went one way to a task that waited for \
            them: the bytes that the processor copied, divided by the bytes of the messages. What the kernel copies \
            for a socket is not counted.",
    paper: "Latency, us / bandwidth, MB/s:\n\n\
            | machine | native | psend | in place | raw |\n\
            | --- | --- | --- | --- | --- |\n\
            | CM-5 | 82 / 8.25 | 190 / 8.21 | 858 / 5.01 | 737 / 4.17 |\n\
            | Paragon | 49 / 92.05 | 54 / 91.85 | 332 / 79.82 | 320 / 13.45 |\n\
            | SP-2 | 53 / 34.07 | 54 / 33.30 | 224 / 23.16 | 202 / 15.47 |\n\n\
            Copies at the sender and the receiver: psend 0 and 0, in place 0 and 2, raw 1 and 2.",
    sheets,
    measure,
};

const DIRECT: Contestant = Contestant::Hpvm { trusted: true, direct: true };
const PVM_DIRECT: Contestant = Contestant::Pvm { direct: true };
const SYSTEMS: [(Contestant, &str); 2] = [(DIRECT, "hpvm"), (PVM_DIRECT, "PVM 3.4.6")];
/// The modes of the paper.
const MODES: [&str; 3] = ["psend", "in_place", "raw"];
/// The places: the names of the tables, and the word for the program.
const PLACES: [(&str, &str, &str); 2] =
    [("m_inside", "Inside a host", "here"), ("m_between", "Between two hosts", "there")];
const LATENCY: &str = "latency, us";
const BANDWIDTH: &str = "bandwidth, MB/s";
const COPIES: [&str; 2] = ["copies by the sender", "copies by the receiver"];
/// The sizes from which latency and bandwidth follow.
const SHORT_BYTES: [usize; 8] = [8, 64, 128, 256, 384, 512, 768, 1024];
const LONG_BYTES: [usize; 3] = [1 << 20, 2 << 20, 4 << 20];
/// The row of libfmp, which is measured on the machine of hpvm.
const FMP: &str = "FMP";
const NO_COUNTERS: &str = "it does not count copies";

/// Returns the native layers of a place.
fn natives(place: &str) -> &'static [&'static str] {
    match place {
        "m_inside" => &[FMP, "Open MPI", "MPICH"],
        _ => &[FMP, "TCP, spinning", "TCP, sleeping", "Open MPI"],
    }
}

fn row(system: &str, mode: &str) -> String {
    format!("{system} {}", form_name(mode))
}

fn sheets(_form: Form) -> Vec<Sheet> {
    let sheet = |(id, title, _): (&str, &str, &str)| {
        let ours = SYSTEMS.iter().flat_map(|(_, system)| MODES.map(|mode| row(system, mode)));
        let rows = natives(id).iter().map(|native| (*native).to_owned()).chain(ours);
        let columns = [LATENCY, BANDWIDTH].into_iter().chain(COPIES);
        Sheet::of_words(id, title, "each column in its own unit", columns, Plot::None).with_rows(rows)
    };
    PLACES.into_iter().map(sheet).collect()
}

/// Returns the line of least squares: its beginning and its slope.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = (below > 0.0).then(|| above / below)?;
    Some((y - slope * x, slope))
}

/// Reports latency and bandwidth, from the times of one run by mode.
fn report(stage: &Stage, sheet: &str, row_of: &dyn Fn(&str) -> Option<String>, values: &[Measured]) {
    let mut by_mode: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for one in values {
        by_mode.entry(&one.name).or_default().push((one.size as f64, one.value));
    }
    for (mode, points) in by_mode {
        let Some(row) = row_of(mode) else { continue };
        let part = |is_long: bool| -> Vec<(f64, f64)> {
            points.iter().copied().filter(|point| (point.0 > SHORT_BYTES[7] as f64) == is_long).collect()
        };
        if let (Some((latency, _)), Some((_, slope))) = (line(&part(false)), line(&part(true))) {
            stage.value(sheet, &row, LATENCY, latency);
            stage.value(sheet, &row, BANDWIDTH, 1.0 / slope);
        }
    }
}

/// Returns the numbers of round trips of a short and of a long message.
fn exchanges(stage: &Stage) -> [usize; 2] {
    stage.either([10, 1], [100, 20])
}

fn measure(stage: &Stage) -> Result<()> {
    let network = stage.bridge(2)?;
    for (sheet, _, word) in PLACES {
        for native in natives(sheet) {
            COPIES.iter().for_each(|copies| stage.absent(sheet, native, copies, NO_COUNTERS));
        }
        for _ in 0..stage.either(1, 3) {
            for (who, system) in SYSTEMS {
                if let Err(error) = pvm(stage, &network, who, system, (sheet, word)) {
                    let fail = |mode| stage.failed(who, sheet, &row(system, mode), "*", format!("{error:#}"));
                    MODES.into_iter().for_each(fail);
                }
            }
            for native in natives(sheet).iter().filter(|native| **native != FMP) {
                match native_layer(stage, &network, native, sheet == "m_inside") {
                    Ok(values) => report(stage, sheet, &|_| Some((*native).to_owned()), &values),
                    Err(error) => stage.row_absent(sheet, native, format!("{error:#}")),
                }
            }
        }
    }
    Ok(())
}

fn pvm(stage: &Stage, network: &Network, who: Contestant, system: &str, (sheet, word): (&str, &str)) -> Result<()> {
    let machine = stage.machine(who, network, 2)?;
    let mut values = Vec::new();
    let [short, long] = exchanges(stage);
    for (count, sizes) in [(short, &SHORT_BYTES[..]), (long, &LONG_BYTES[..])] {
        let mut words: Vec<&dyn Display> = vec![&"pair", &word, &count, &0, &1];
        words.extend(sizes.iter().map(|size| size as &dyn Display));
        values.extend(stage.papers(who, &machine, &words)?);
    }
    report(stage, sheet, &|mode| MODES.contains(&mode).then(|| row(system, mode)), &values);
    if who.side() == PVM.side() {
        MODES.iter().flat_map(|mode| COPIES.map(|copies| (mode, copies))).for_each(|(mode, copies)| {
            stage.absent(sheet, &row(system, mode), copies, NO_COUNTERS);
        });
        return Ok(());
    }
    let mut values = Vec::new();
    for (count, sizes) in [(short, &SHORT_BYTES[..]), (long, &LONG_BYTES[..])] {
        let mut words: Vec<&dyn Display> = vec![&"fmp", &word, &count, &0, &1];
        words.extend(sizes.iter().map(|size| size as &dyn Display));
        values.extend(stage.papers(who, &machine, &words)?);
    }
    report(stage, sheet, &|_| Some(FMP.to_owned()), &values);
    let said = stage.papers(who, &machine, &[&"copies", &word, &LONG_BYTES[0], &stage.either(2, 50)])?;
    for one in said {
        let Some((mode, side)) = one.name.split_once('/') else { continue };
        if let Some(column) = COPIES.iter().find(|column| column.ends_with(side)) {
            if MODES.contains(&mode) {
                stage.value(sheet, &row(system, mode), column, one.value);
            }
        }
    }
    Ok(())
}

/// Runs a native layer. Its program prints all times under one name.
fn native_layer(stage: &Stage, network: &Network, native: &str, inside: bool) -> Result<Vec<Measured>> {
    let machine = Machine::new(Side::Theirs, network, &[])?;
    let mut values = Vec::new();
    let [short, long] = exchanges(stage);
    for (count, sizes) in [(short, &SHORT_BYTES[..]), (long, &LONG_BYTES[..])] {
        let mut words = vec![count.to_string(), "1".to_owned()];
        words.extend(sizes.iter().map(usize::to_string));
        let text = match native {
            "Open MPI" | "MPICH" => mpi(&machine, native, inside, &words)?,
            _ => tcp(&machine, native, &words)?,
        };
        values.extend(measured(&text)?);
    }
    Ok(values)
}

fn mpi(machine: &Machine, native: &str, inside: bool, words: &[String]) -> Result<String> {
    let system = if native == "MPICH" { System::Mpich } else { System::OpenMpi };
    anyhow::ensure!(system.is_there(), "{native} is not here (`cargo xtask setup bench`)");
    let name = system.mpi_program("bench").context("an MPI has a program")?;
    let mut command = if inside {
        let (launcher, arguments, variables) = system.mpi_run(2).context("an MPI has a launcher")?;
        let mut command = machine.command(machine.first(), &launcher);
        command.args(arguments).envs(variables);
        command
    } else {
        let hosts = machine.network.hosts();
        let mut command = mpirun(machine, &[&hosts[0], &hosts[1]]);
        command.args(SPINNING.split_whitespace());
        command
    };
    said(command.arg(program(&name)).arg("pair").args(words), machine)
}

fn tcp(machine: &Machine, native: &str, words: &[String]) -> Result<String> {
    let waiting = if native == "TCP, spinning" { "spinning" } else { "sleeping" };
    let mut server = machine.network.hosts()[1].command(&program("tcp"));
    let mut server = server.args(["serve", waiting, PORT]).spawn()?;
    let mut command = machine.command(machine.first(), &program("tcp"));
    command.args(["pair", waiting, PORT, "10.77.0.2"]).args(words);
    let text = said(&mut command, machine);
    let _ = server.kill();
    let _ = server.wait();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_least_squares_has_beginning_and_slope() {
        let (first, slope) = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((first - 1.0).abs() < 1e-9 && (slope - 2.0).abs() < 1e-9);
        assert_eq!(line(&[(1.0, 1.0)]), None);
        assert_eq!(line(&[]), None);
    }
}
