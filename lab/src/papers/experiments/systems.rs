//! hpvm against PVM 3.4.6, inside a host and between hosts (F, H).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{Measured, PVM, Stage};
use super::Experiment;
use crate::bench::hosts::Contestant;
use crate::hosts::network::Network;
use anyhow::Result;
use std::fmt::Display;

pub const EXPERIMENT: Experiment = Experiment {
    name: "systems",
    tags: "F, H7",
    title: "hpvm against PVM 3.4.6",
    about: "The experiment of the papers F and H: a message that is packed, sent, received and unpacked (`PvmDataRaw`), \
            from a task of this host or of another one. The two systems alternate, and the gain of a round is the time \
            of PVM 3.4.6 divided by hpvm's in the same round. hpvm runs on a trusted network, since PVM 3.4.6 does not \
            encrypt.",
    paper: "H: latency of short messages a third of PVM's, local and remote (a gain of 3); bandwidth above 8 KB 1.6 \
            times PVM's inside a host, nearly 3 times between hosts. F: PVM on FMP reaches 48 MB/s and 45 us, FMP \
            itself 83 MB/s and 9 us.",
    sheets,
    measure,
};

const PLACES: [(&str, &str); 2] = [("here", "inside a host"), ("there", "between two hosts")];
const ROUTES: [(&str, bool); 2] = [("default route", false), ("direct route", true)];

fn sizes(form: Form) -> Vec<usize> {
    form.either(vec![8, 8192], vec![8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20])
}

fn systems(direct: bool) -> [Contestant; 2] {
    [Contestant::Hpvm { trusted: true, direct }, Contestant::Pvm { direct }]
}

fn row(who: Contestant, place: &str, route: &str) -> String {
    let name = if who.side() == PVM.side() { PVM.name() } else { "hpvm" };
    format!("{name}, {place}, {route}")
}

/// Returns the rows of the gains: the places and routes.
fn gains() -> Vec<String> {
    PLACES.iter().flat_map(|(_, place)| ROUTES.map(|(route, _)| format!("{place}, {route}"))).collect()
}

fn sheets(form: Form) -> Vec<Sheet> {
    let sheet =
        |id: &str, title: &str, unit, plot| Sheet::of_numbers(id, title, "bytes of a message", unit, sizes(form), plot);
    let mut rows = Vec::new();
    for (_, place) in PLACES {
        for (route, direct) in ROUTES {
            rows.extend(systems(direct).map(|who| row(who, place, route)));
        }
    }
    vec![
        sheet("h_time", "Pack, send, receive, unpack: one way", "us (less is better)", Plot::Lines).with_rows(rows),
        sheet("h_gain", "Time of PVM 3.4.6 to that of hpvm", "times (more is better)", Plot::Lines).with_rows(gains()),
    ]
}

fn measure(stage: &Stage) -> Result<()> {
    let network = stage.bridge(2)?;
    let sizes = sizes(stage.form);
    let (rounds, ms) = stage.either((1, 1), (5, 20));
    for _ in 0..rounds {
        for (route, direct) in ROUTES {
            // Only one machine runs at a time: a process on a host cannot be assigned to one of several machines.
            let [ours, theirs] = systems(direct).map(|who| times(stage, &network, who, route, (&sizes, ms)));
            for (place, ours) in ours {
                let Some((_, theirs)) = theirs.iter().find(|(other, _)| *other == place) else { continue };
                for (ours, theirs) in ours.iter().zip(theirs) {
                    stage.value("h_gain", &format!("{place}, {route}"), ours.size, theirs.value / ours.value);
                }
            }
        }
    }
    Ok(())
}

/// Measures one system. Reports its times, and returns those of each place.
fn times(
    stage: &Stage,
    network: &Network,
    who: Contestant,
    route: &str,
    (sizes, ms): (&[usize], i32),
) -> Vec<(&'static str, Vec<Measured>)> {
    let machine = stage.machine(who, network, 2);
    let mut all = Vec::new();
    for (word, place) in PLACES {
        let mut words: Vec<&dyn Display> = vec![&"pair", &word, &0, &ms, &1];
        words.extend(sizes.iter().map(|size| size as &dyn Display));
        let row = row(who, place, route);
        let said = match &machine {
            Ok(machine) => stage.papers(who, machine, &words).map_err(|error| format!("{error:#}")),
            Err(error) => Err(format!("{error:#}")),
        };
        match said {
            Ok(mut values) => {
                values.retain(|one| one.name == "raw");
                values.iter().for_each(|one| stage.value("h_time", &row, one.size, one.value));
                all.push((place, values));
            }
            Err(error) => {
                stage.failed(who, "h_time", &row, "*", &error);
                stage.failed(who, "h_gain", &format!("{place}, {route}"), "*", &error);
            }
        }
    }
    all
}
