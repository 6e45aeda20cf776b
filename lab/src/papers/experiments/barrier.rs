//! The time of a barrier over hosts, and how far apart its members are released (D1).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, PVM, Stage, no_ether};
use super::{Experiment, nothing_here};
use crate::bench::hosts::Contestant;
use crate::ether::model::Medium;
use crate::ether::wire::Rate;
use crate::hosts::network::Network;
use anyhow::Result;
use std::fmt::Display;

pub const EXPERIMENT: Experiment = Experiment {
    name: "barrier",
    tags: "D1",
    title: "barriers over hosts",
    about: "One task on each host; many barriers one after the other. The spread of a barrier reaches from the first \
            release to the last: all hosts are namespaces with one clock, so the times at which the tasks leave \
            `pvm_barrier` can be compared. For each run the table has the median of the spreads of its barriers. First \
            on the kernel's bridge, then on an emulated Ethernet of 10 Mbit/s, half duplex, with collisions. The \
            standard barrier of hpvm sends the release to each host; `pvm_lanbarr` broadcasts it; `pvm_barrier` \
            broadcasts it if there are members on three or more other hosts.",
    paper: "On 10 Mbit/s Ethernet a broadcast barrier was 24 % faster than the standard one with 1 machine and 36 % \
            faster with 32. The release times of one barrier of 32 machines spread over 176 ms (336 to 512 ms), and \
            with broadcast over 13 ms.",
    sheets,
    measure,
};

const ENCRYPTED: Contestant = Contestant::Hpvm { trusted: false, direct: false };

/// A kind of barrier: its row, the system, the function that the members call, and variables of the daemons.
struct Kind {
    row: &'static str,
    who: Contestant,
    function: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

const KINDS: [Kind; 6] = [
    Kind { row: "hpvm, trusted network", who: HPVM, function: BARRIER, variables: &[] },
    Kind { row: "trusted network, standard", who: HPVM, function: BARRIER, variables: STANDARD },
    Kind { row: "trusted network, pvm_lanbarr", who: HPVM, function: "pvm_lanbarr", variables: &[] },
    Kind { row: "hpvm, encrypted", who: ENCRYPTED, function: BARRIER, variables: &[] },
    Kind { row: "encrypted, standard", who: ENCRYPTED, function: BARRIER, variables: STANDARD },
    Kind { row: "PVM 3.4.6", who: PVM, function: BARRIER, variables: &[] },
];
const BARRIER: &str = "pvm_barrier";
const STANDARD: &[(&str, &str)] = &[("HPVM_BARRIER_BROADCAST", "off")];

/// A network: the ends of the names of its tables, its text, and its numbers of hosts.
struct Place {
    end: &'static str,
    text: &'static str,
    short: &'static [usize],
    full: &'static [usize],
}

const BRIDGE: Place = Place { end: "", text: "on a bridge", short: &[1, 2, 4], full: &[1, 2, 4, 8, 16, 32] };
const ETHER: Place = Place { end: "_ether", text: "on 10 Mbit/s", short: &[2], full: &[1, 2, 4, 8, 16, 32] };

fn of_place(form: Form, place: &Place) -> Vec<Sheet> {
    let counts = form.either(place.short, place.full);
    let sheet = |id: &str, title: &str| {
        let (id, title) = (format!("{id}{}", place.end), format!("{title}, {}", place.text));
        let sheet =
            Sheet::of_numbers(id, title, "hosts", "us (less is better)", counts.iter().copied(), Plot::LinesFromZero);
        sheet.with_rows(KINDS.map(|kind| kind.row))
    };
    vec![sheet("d_barrier", "A barrier of one task on each host"), sheet("d_spread", "First to last release")]
}

fn sheets(form: Form) -> Vec<Sheet> {
    [BRIDGE, ETHER].iter().flat_map(|place| of_place(form, place)).collect()
}

fn measure(stage: &Stage) -> Result<()> {
    let most = |place: &Place| stage.either(place.short, place.full).iter().copied().max().unwrap_or(1);
    let network = stage.bridge(most(&BRIDGE))?;
    of_network(stage, &network, &BRIDGE, stage.either(30, 300));
    drop(network);
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &of_place(stage.form, &ETHER), &obstacle);
        return Ok(());
    }
    let network = stage.ether(most(&ETHER), Rate::Ten, Medium::Hub)?;
    of_network(stage, &network, &ETHER, stage.either(10, 50));
    Ok(())
}

fn of_network(stage: &Stage, network: &Network, place: &Place, barriers: usize) {
    let repetitions = stage.either(1, 3);
    let (times, spreads) = (format!("d_barrier{}", place.end), format!("d_spread{}", place.end));
    for count in stage.either(place.short, place.full) {
        for Kind { row, who, function, variables } in &KINDS {
            let words: [&dyn Display; 5] = [&"barrier", function, count, &barriers, &repetitions];
            let machine = stage.machine_with(*who, network, *count, variables);
            let said = machine.and_then(|machine| stage.papers(*who, &machine, &words));
            match said {
                Ok(values) => {
                    for one in values {
                        match &*one.name {
                            "barrier" => stage.value(&times, row, count, one.value),
                            "spread" => stage.value(&spreads, row, count, one.value),
                            _ => {}
                        }
                    }
                }
                Err(error) => {
                    stage.failed(*who, &times, row, count, format!("{error:#}"));
                    stage.failed(*who, &spreads, row, count, format!("{error:#}"));
                }
            }
        }
    }
}
