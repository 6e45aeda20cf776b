//! Tasks that finish together and send to one master, with and without a programmed wait (D4).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, PVM, Stage, no_ether, retransmissions};
use super::{Experiment, nothing_here};
use crate::bench::hosts::Contestant;
use crate::ether::model::Medium;
use crate::ether::wire::Rate;
use crate::hosts::machine::Machine;
use crate::hosts::network::Network;
use anyhow::{Context, Result};

pub const EXPERIMENT: Experiment = Experiment {
    name: "wait",
    tags: "D4",
    title: "programmed wait",
    about: "Each node sends one array of doubles to the same master, all at the same time, over the emulated Ethernet \
            of 10 Mbit/s, half duplex, with collisions. Node n waits n times k before it sends: on PVM 3.4.6 by the \
            program, on hpvm by the library (`PvmBackoff`). k is the time that the wire needs for one array (69 ms for \
            10,000 doubles), half of it (with 10,000 doubles only), or twice as much. Retransmissions are those of TCP, on all hosts; the daemons \
            of PVM 3.4.6 use UDP, so that theirs are not counted. The last row is the time that the arrays and their \
            headers take on an idle wire.",
    paper: "| nodes | doubles | no wait, ms | with wait, ms (k) |\n\
            | --- | --- | --- | --- |\n\
            | 1 | 10,000 | 466 | |\n\
            | 4 | 10,000 | 1375 | 1373 (300), 2281 (600) |\n\
            | 4 | 100,000 | 14532 | 13530 (2000) |\n\
            | 8 | 10,000 | 2965 | 2714 (300) |\n\
            | 12 | 10,000 | 6056 | 3844 (300) |\n\
            | 16 | 10,000 | 7714 | 6577 (150), 5118 (300) |\n\
            | 16 | 100,000 | 75526 | 55879 (2000) |\n\
            | 24 | 10,000 | 11006 | 8069 (300) |\n\n\
            Retransmissions with 12 nodes of 80,000 bytes: 12 a node without wait, 2 with.",
    sheets,
    measure,
};

/// A system, its name, and who waits in it.
const SYSTEMS: [(Contestant, &str, &str); 2] = [(PVM, "PVM 3.4.6", "program"), (HPVM, "hpvm", "library")];
/// The waits: their names, and the wait in halves of the time of one array.
const WAITS: [(&str, u64); 4] = [("no wait", 0), ("k/2", 1), ("k", 2), ("2k", 4)];
const WIRE: &str = "the wire";
/// Longer arrays take up to a minute, so each wait is measured once with them, and the shortest wait, with which PVM
/// 3.4.6 takes longest, not at all.
const SEVERAL_RUNS_DOUBLES_MAX: usize = 10_000;
const SHORTEST_WAIT: &str = "k/2";
/// The bytes of data in a frame of TCP, and the bits that such a frame takes on the wire, with its gap.
const SEGMENT_BYTES: usize = 1448;
const FRAME_BITS: usize = 8 * 1538;

/// Returns the numbers of doubles of each node, and for each the numbers of nodes.
fn loads(form: Form) -> &'static [(usize, &'static [usize])] {
    form.either(&[(1000, &[2])], &[(10_000, &[1, 4, 8, 12, 16, 24]), (100_000, &[4, 16])])
}

/// Returns the waits that are measured with arrays of this number of doubles.
fn waits(form: Form, doubles: usize) -> Vec<(&'static str, u64)> {
    let is_long = |wait: &(&str, u64)| doubles <= SEVERAL_RUNS_DOUBLES_MAX || wait.0 != SHORTEST_WAIT;
    form.either(&WAITS[1..3], &WAITS[..]).iter().copied().filter(is_long).collect()
}

fn row(system: &str, wait: &str) -> String {
    format!("{system}, {wait}")
}

/// Returns the time in us that the wire needs for arrays of this number of doubles.
fn wire_us(doubles: usize) -> f64 {
    let bytes = doubles * size_of::<f64>();
    (bytes.div_ceil(SEGMENT_BYTES) * FRAME_BITS) as f64 / 10.0
}

/// Returns the names of the tables for a number of doubles: times, retransmissions, collisions.
fn ids(doubles: usize) -> [String; 3] {
    ["", "_again", "_collisions"].map(|end| format!("d_wait_{doubles}{end}"))
}

fn sheets(form: Form) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    for (doubles, nodes) in loads(form) {
        let waits = waits(form, *doubles);
        let rows: Vec<String> =
            SYSTEMS.iter().flat_map(|(_, system, _)| waits.iter().map(|(wait, _)| row(system, wait))).collect();
        let [times, again, collisions] = ids(*doubles);
        let sheet = |id: String, title: String, unit, plot| {
            Sheet::of_numbers(id, title, "nodes", unit, nodes.iter().copied(), plot).with_rows(&rows)
        };
        let title = format!("{doubles} doubles from each node to one master");
        let mut sheet_of_times = sheet(times, title, "ms (less is better)", Plot::Bars);
        sheet_of_times.rows.push(WIRE.to_owned());
        sheets.push(sheet_of_times);
        let title = format!("{doubles} doubles from each node: what TCP has sent again");
        sheets.push(sheet(again, title, "segments", Plot::None));
        let title = format!("{doubles} doubles from each node: collisions on the wire");
        sheets.push(sheet(collisions, title, "collisions", Plot::None));
    }
    sheets
}

fn measure(stage: &Stage) -> Result<()> {
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &sheets(stage.form), &obstacle);
        return Ok(());
    }
    for (doubles, numbers) in loads(stage.form) {
        let ids = ids(*doubles);
        for nodes in *numbers {
            stage.value(&ids[0], WIRE, nodes, wire_us(nodes * doubles) * 1e-3);
            let network = stage.ether(nodes + 1, Rate::Ten, Medium::Hub)?;
            for (who, system, waiter) in SYSTEMS {
                let machine = stage.machine(who, &network, nodes + 1);
                for _ in 0..if *doubles > SEVERAL_RUNS_DOUBLES_MAX { 1 } else { stage.either(1, 3) } {
                    for (wait, halves) in waits(stage.form, *doubles) {
                        let row = row(system, wait);
                        let wait_us = wire_us(*doubles) as u64 * halves / 2;
                        let waiter = if halves == 0 { "none" } else { waiter };
                        let said = match &machine {
                            Ok(machine) => one(stage, (who, machine), &network, (*nodes, *doubles), wait_us, waiter),
                            Err(error) => Err(anyhow::anyhow!("{error:#}")),
                        };
                        match said {
                            Ok(values) => {
                                ids.iter().zip(values).for_each(|(id, value)| stage.value(id, &row, nodes, value));
                            }
                            Err(error) => {
                                ids.iter().for_each(|id| stage.failed(who, id, &row, nodes, format!("{error:#}")));
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Measures once. Returns the time, and how many segments were sent again and how many collisions there were meanwhile.
fn one(
    stage: &Stage,
    (who, machine): (Contestant, &Machine),
    network: &Network,
    (nodes, doubles): (usize, usize),
    wait_us: u64,
    waiter: &str,
) -> Result<[f64; 3]> {
    let again = || network.hosts().iter().map(retransmissions).sum::<Result<u64>>();
    let collisions = || Ok::<_, anyhow::Error>(network.ether()?.counters()?.collisions());
    let (again_before, collisions_before) = (again()?, collisions()?);
    let times = stage.papers(who, machine, &[&"collect", &(nodes + 1), &doubles, &1, &wait_us, &waiter, &1])?;
    let time = times.first().context("a time")?.value;
    Ok([time, (again()? - again_before) as f64, (collisions()? - collisions_before) as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_needs_69_ms_for_an_array() {
        assert_eq!((wire_us(10_000) * 1e-3).round(), 69.0);
    }
}
