//! Many senders and one receiver behind a switch with small buffers (D4).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{Stage, no_ether, retransmissions};
use super::{Experiment, nothing_here};
use crate::bench::hosts::Contestant;
use crate::ether::model::{Medium, PORT_BYTES_MAX};
use crate::ether::wire::{Counters, Rate};
use crate::hosts::machine::Machine;
use crate::hosts::network::Network;
use anyhow::{Context, Result};

pub const EXPERIMENT: Experiment = Experiment {
    name: "incast",
    tags: "D4",
    title: "incast",
    about: "All senders, each on a host of its own, send messages to one receiver at the same time, through an emulated \
            switch of 100 Mbit/s with 64 KiB of buffer for each port. What does not fit is dropped. The goodput is the \
            share of the link that the data themselves have. A share of 0.94 is the most that TCP can reach, because \
            of headers and gaps.",
    paper: "None: the paper D had a hub. Its programmed wait is the ancestor of what keeps the buffers of a switch \
            short.",
    sheets,
    measure,
};

const RATE: Rate = Rate::Hundred;
/// Longer messages are measured once.
const LONG_BYTES_MIN: usize = 256 << 10;

const SYSTEMS: [(Contestant, &str); 4] = [
    (Contestant::Hpvm { trusted: true, direct: false }, "hpvm, default route"),
    (Contestant::Hpvm { trusted: true, direct: true }, "hpvm, direct route"),
    (Contestant::Pvm { direct: false }, "PVM 3.4.6, default route"),
    (Contestant::Pvm { direct: true }, "PVM 3.4.6, direct route"),
];

/// Returns the number of senders, and the sizes of a message.
fn amounts(form: Form) -> (usize, &'static [usize]) {
    form.either((3, &[16 << 10]), (32, &[16 << 10, 64 << 10, 256 << 10, 1 << 20]))
}

fn sheets(form: Form) -> Vec<Sheet> {
    let (senders, sizes) = amounts(form);
    let sheet = |id: &str, title: &str, unit, plot| {
        let title = format!("{title}, {senders} senders");
        Sheet::of_numbers(id, title, "bytes of a message", unit, sizes.iter().copied(), plot)
            .with_rows(SYSTEMS.map(|(_, name)| name))
    };
    vec![
        sheet("d_incast", "Goodput through a switch", "share of the link (more is better)", Plot::LinesFromZero),
        sheet("d_incast_drops", "Frames that the switch has dropped", "frames", Plot::None),
        sheet("d_incast_again", "Segments that TCP has sent again", "segments", Plot::None),
    ]
}

fn measure(stage: &Stage) -> Result<()> {
    if let Some(obstacle) = no_ether() {
        nothing_here(stage, &sheets(stage.form), &obstacle);
        return Ok(());
    }
    let (senders, sizes) = amounts(stage.form);
    let network = stage.ether(senders + 1, RATE, Medium::Switch { port_bytes_max: PORT_BYTES_MAX })?;
    for (who, row) in SYSTEMS {
        let machine = stage.machine(who, &network, senders + 1);
        for size in sizes {
            // PVM 3.4.6 needs most of a minute for the long messages.
            for _ in 0..if *size > LONG_BYTES_MIN { 1 } else { stage.either(1, 3) } {
                let said = match &machine {
                    Ok(machine) => one(stage, who, machine, &network, (senders, *size)),
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                };
                let names = ["d_incast", "d_incast_drops", "d_incast_again"];
                match said {
                    Ok(values) => {
                        names.iter().zip(values).for_each(|(sheet, value)| stage.value(sheet, row, size, value));
                    }
                    Err(error) => {
                        names.iter().for_each(|sheet| stage.failed(who, sheet, row, size, format!("{error:#}")));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Measures once. Returns the goodput, the dropped frames and the segments that were sent again.
fn one(
    stage: &Stage,
    who: Contestant,
    machine: &Machine,
    network: &Network,
    (senders, size): (usize, usize),
) -> Result<[f64; 3]> {
    let again = || network.hosts().iter().map(retransmissions).sum::<Result<u64>>();
    let dropped = |counters: Counters| counters.sum(|port| port.port_dropped);
    let (again_before, dropped_before) = (again()?, dropped(network.ether()?.counters()?));
    let doubles = size / size_of::<f64>();
    let times = stage.papers(who, machine, &[&"collect", &(senders + 1), &doubles, &1, &0, &"none", &1])?;
    let ms = times.first().context("a time")?.value;
    let share = (8 * senders * size) as f64 / (ms * 1e-3) / (RATE.megabits() as f64 * 1e6);
    let drops = dropped(network.ether()?.counters()?) - dropped_before;
    Ok([share, drops as f64, (again()? - again_before) as f64])
}
