//! Bandwidth and latency against size, for each route and each encoding (G).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, Measured, PVM, Stage};
use super::{Experiment, FORMS, form_name};
use crate::bench::hosts::Contestant;
use anyhow::Result;
use std::fmt::Display;

pub const EXPERIMENT: Experiment = Experiment {
    name: "routes",
    tags: "G1 to G5",
    title: "routes and encodings",
    about: "Ping-pong between two tasks on two cores, inside a host and between two hosts (network namespaces on the \
            kernel's bridge), on both routes and in all encodings. Times are those of one way. PVM 3.4.6 does not \
            encrypt, so hpvm runs on a trusted network (`PVM_TRUSTED_NET`). The default encoding has integers: those \
            are what PVM 3.4.6 converts to XDR. Inside a host, hpvm takes shared memory on either route.",
    paper: "Best case 8 MB/s on FDDI of 12.5 MB/s: 64 % of the wire. The direct route is 2 to 3 times as fast as the \
            default one.",
    sheets,
    measure,
};

/// The places of the second task: the word in names, the word for the program, and the text.
const PLACES: [(&str, &str, &str); 2] =
    [("inside", "here", "inside a host"), ("between", "there", "between two hosts")];

/// Returns the compared systems, with the direct route or without.
fn systems(direct: bool) -> [Contestant; 2] {
    [Contestant::Hpvm { trusted: true, direct }, Contestant::Pvm { direct }]
}

/// Returns the name of a system without its route, which the tables have in their titles.
fn name(who: Contestant) -> &'static str {
    if who.side() == HPVM.side() { "hpvm" } else { PVM.name() }
}

fn row(who: Contestant, form: &str) -> String {
    format!("{} {}", name(who), form_name(form))
}

/// Returns every second power of two.
fn sizes(form: Form) -> Vec<usize> {
    match form {
        Form::Short => vec![1, 4096],
        Form::Full => (0..=24).step_by(2).map(|power| 1 << power).collect(),
    }
}

fn id(what: &str, place: &str, direct: bool) -> String {
    format!("g_{what}_{place}_{}", if direct { "direct" } else { "default" })
}

fn sheets(form: Form) -> Vec<Sheet> {
    let mut sheets = Vec::new();
    for (place, _, place_text) in PLACES {
        for direct in [false, true] {
            let route = if direct { "direct route" } else { "default route" };
            let rows: Vec<String> =
                systems(direct).into_iter().flat_map(|who| FORMS.map(|(form, _)| row(who, form))).collect();
            for (what, unit, title) in
                [("time", "us (less is better)", "One way"), ("bandwidth", "MB/s (more is better)", "Bandwidth")]
            {
                let title = format!("{title} {place_text}, {route}");
                let sheet = Sheet::of_numbers(
                    id(what, place, direct),
                    title,
                    "bytes of a message",
                    unit,
                    sizes(form),
                    Plot::Lines,
                );
                sheets.push(sheet.with_rows(&rows));
            }
        }
    }
    sheets
}

fn measure(stage: &Stage) -> Result<()> {
    let network = stage.bridge(2)?;
    let sizes = sizes(stage.form);
    let (rounds, ms) = stage.either((1, 1), (3, 10));
    for _ in 0..rounds {
        for direct in [false, true] {
            for who in systems(direct) {
                let machine = stage.machine(who, &network, 2);
                for (place, word, _) in PLACES {
                    let mut words: Vec<&dyn Display> = vec![&"pair", &word, &0, &ms, &1];
                    words.extend(sizes.iter().map(|size| size as &dyn Display));
                    let said = machine.as_ref().map_err(|error| format!("{error:#}"));
                    let said = said
                        .and_then(|machine| stage.papers(who, machine, &words).map_err(|error| format!("{error:#}")));
                    report(stage, who, (place, direct), said);
                }
            }
        }
    }
    Ok(())
}

fn report(stage: &Stage, who: Contestant, (place, direct): (&str, bool), said: Result<Vec<Measured>, String>) {
    let (times, bandwidths) = (id("time", place, direct), id("bandwidth", place, direct));
    match said {
        Ok(values) => {
            for one in values {
                let row = row(who, &one.name);
                stage.value(&times, &row, one.size, one.value);
                stage.value(&bandwidths, &row, one.size, one.size as f64 / one.value);
            }
        }
        Err(error) => {
            for (form, _) in FORMS {
                stage.failed(who, &times, &row(who, form), "*", &error);
                stage.failed(who, &bandwidths, &row(who, form), "*", &error);
            }
        }
    }
}
