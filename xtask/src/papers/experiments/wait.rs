//! Tasks that finish together and send to one master, with and without a programmed wait (D4).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, Measured, PVM, Stage, no_ether, retransmissions};
use super::{Experiment, nothing_here};
use crate::bench::hosts::Contestant;
use crate::ether::model::Medium;
use crate::ether::wire::Rate;
use crate::hosts::machine::Machine;
use crate::hosts::network::Network;
use anyhow::Result;

pub const EXPERIMENT: Experiment = Experiment {
    name: "wait",
    tags: "D4",
    title: "programmed wait",
    about: "Each node sends one array of doubles to the same master, all at the same time, over the emulated Ethernet \
            of 10 Mbit/s, half duplex, with collisions. Node n waits n times k before it sends: on PVM 3.4.6 by the \
            program, on hpvm by the library (`PvmBackoff`). k is the time that the wire needs for one array (68 ms for \
            10,000 doubles), half of it, or twice as much. Retransmissions are those of TCP, on all hosts; the daemons \
            of PVM 3.4.6 use UDP, so that theirs are not counted. The last column is the time that the arrays and their \
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
/// The bytes of data in a frame of TCP, and the bits that such a frame takes on the wire, with its gap.
const SEGMENT_BYTES: usize = 1448;
const FRAME_BITS: usize = 8 * (1538);

/// A row: the nodes, and the doubles of each.
type Load = (usize, usize);

fn loads(form: Form) -> &'static [Load] {
    form.either(
        &[(2, 1000)],
        &[
            (1, 10_000),
            (4, 10_000),
            (4, 100_000),
            (8, 10_000),
            (12, 10_000),
            (16, 10_000),
            (16, 100_000),
            (24, 10_000),
        ],
    )
}

fn waits(form: Form) -> &'static [(&'static str, u64)] {
    form.either(&WAITS[1..3], &WAITS)
}

fn row((nodes, doubles): Load) -> String {
    format!("{nodes} x {doubles}")
}

fn column(system: &str, wait: &str) -> String {
    format!("{system}, {wait}")
}

/// Returns the time in us that the wire needs for arrays of this number of doubles.
fn wire_us(doubles: usize) -> f64 {
    let bytes = doubles * size_of::<f64>();
    (bytes.div_ceil(SEGMENT_BYTES) * FRAME_BITS) as f64 / 10.0
}

fn sheets(form: Form) -> Vec<Sheet> {
    let columns: Vec<String> = SYSTEMS
        .iter()
        .flat_map(|(_, system, _)| waits(form).iter().map(|(wait, _)| column(system, wait)))
        .collect();
    let rows: Vec<String> = loads(form).iter().map(|load| row(*load)).collect();
    let sheet = |id: &str, title: &str, unit, more: &[&str], plot| {
        let columns = columns.iter().cloned().chain(more.iter().map(|word| (*word).to_owned()));
        Sheet::of_words(id, title, unit, columns, plot).with_rows(&rows)
    };
    vec![
        sheet("d_wait", "All arrays received (nodes x doubles)", "ms (less is better)", &[WIRE], Plot::Bars),
        sheet("d_wait_again", "Segments that TCP has sent again", "segments", &[], Plot::None),
        sheet("d_wait_collisions", "Collisions on the wire", "collisions", &[], Plot::None),
    ]
}

fn measure(stage: &Stage) -> Result<()> {
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &sheets(stage.form), &obstacle);
        return Ok(());
    }
    for load in loads(stage.form) {
        let (nodes, doubles) = *load;
        stage.value("d_wait", &row(*load), WIRE, wire_us(nodes * doubles) * 1e-3);
        // The long arrays take minutes, so each is measured once.
        let rounds = if doubles > 10_000 { 1 } else { stage.either(1, 3) };
        let network = stage.ether(nodes + 1, Rate::Ten, Medium::Hub)?;
        for (who, system, waiter) in SYSTEMS {
            let machine = stage.machine(who, &network, nodes + 1);
            for (wait, halves) in waits(stage.form).iter().cycle().take(rounds * waits(stage.form).len()) {
                let column = column(system, wait);
                let wait_us = wire_us(doubles) as u64 * halves / 2;
                let waiter = if *halves == 0 { "none" } else { waiter };
                let said = match &machine {
                    Ok(machine) => one(stage, (who, machine), &network, *load, wait_us, waiter),
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                };
                match said {
                    Ok((times, again, collisions)) => {
                        times.iter().for_each(|one| stage.value("d_wait", &row(*load), &column, one.value));
                        stage.value("d_wait_again", &row(*load), &column, again as f64);
                        stage.value("d_wait_collisions", &row(*load), &column, collisions as f64);
                    }
                    Err(error) => {
                        for sheet in ["d_wait", "d_wait_again", "d_wait_collisions"] {
                            stage.failed(who, sheet, &row(*load), &column, format!("{error:#}"));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Measures once. Returns the times, and how many segments were sent again and how many collisions there were meanwhile.
fn one(
    stage: &Stage,
    (who, machine): (Contestant, &Machine),
    network: &Network,
    (nodes, doubles): Load,
    wait_us: u64,
    waiter: &str,
) -> Result<(Vec<Measured>, u64, u64)> {
    let again = || network.hosts().iter().map(retransmissions).sum::<Result<u64>>();
    let (again_before, counters) = (again()?, network.ether()?.counters()?);
    let times = stage.papers(who, machine, &[&"collect", &(nodes + 1), &doubles, &1, &wait_us, &waiter, &1])?;
    let collisions = network.ether()?.counters()?.collisions() - counters.collisions();
    Ok((times, again()? - again_before, collisions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_needs_68_ms_for_an_array() {
        assert_eq!((wire_us(10_000) * 1e-3).round(), 69.0);
    }
}
