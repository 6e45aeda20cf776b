//! Multicast to one task on each of several hosts, by each way between hosts (D3, F5, H6).

use super::super::Form;
use super::super::sheet::{Plot, Sheet};
use super::super::stage::{HPVM, PVM, Stage};
use super::Experiment;
use crate::bench::hosts::Contestant;
use crate::bench::tables::size_text;
use anyhow::Result;
use std::fmt::Display;

pub const EXPERIMENT: Experiment = Experiment {
    name: "multicast",
    tags: "D1, D3, F5, H6",
    title: "multicast over hosts",
    about: "The first task multicasts a message to one task on each of the other hosts, and receives a short answer \
            from each. The hosts are namespaces on the kernel's bridge.",
    paper: "None in numbers: D proposes broadcast and the hypercube, F and H a binomial tree for many hosts or long \
            messages.",
    sheets,
    measure,
};

/// The ways: a system, the name of its row, and the value of `PvmMcastRoute` (0: as the system decides).
const WAYS: &[(Contestant, &str, i32)] = &[
    (HPVM, "hpvm, automatic", 0),
    (HPVM, "hpvm, iterative", 1),
    (HPVM, "hpvm, binomial", 2),
    (HPVM, "hpvm, hypercube", 3),
    (PVM, "PVM 3.4.6", 0),
];

fn sizes(form: Form) -> &'static [usize] {
    form.either(&[8, 4096], &[8, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20])
}

fn counts(form: Form) -> &'static [usize] {
    form.either(&[2, 4], &[2, 4, 8, 16, 32])
}

fn id(size: usize) -> String {
    format!("d_mcast_{size}")
}

fn sheets(form: Form) -> Vec<Sheet> {
    let sheet = |size: &usize| {
        let title = format!("pvm_mcast of {} with answers", size_text(*size));
        let counts = counts(form).iter().copied();
        Sheet::of_numbers(id(*size), title, "hosts", "us (less is better)", counts, Plot::Lines)
            .with_rows(WAYS.iter().map(|(_, row, _)| *row))
    };
    sizes(form).iter().map(sheet).collect()
}

fn measure(stage: &Stage) -> Result<()> {
    let most = counts(stage.form).iter().copied().max().unwrap_or(2);
    let network = stage.bridge(most)?;
    let (ms, repetitions) = stage.either((1, 1), (50, 5));
    for count in counts(stage.form) {
        for (who, row, way) in WAYS {
            let mut words: Vec<&dyn Display> = vec![&"mcast", way, count, &ms, &repetitions];
            words.extend(sizes(stage.form).iter().map(|size| size as &dyn Display));
            let said = stage.machine(*who, &network, *count).and_then(|machine| stage.papers(*who, &machine, &words));
            match said {
                Ok(values) => values.iter().for_each(|one| stage.value(&id(one.size), row, count, one.value)),
                Err(error) => {
                    for size in sizes(stage.form) {
                        stage.failed(*who, &id(*size), row, count, format!("{error:#}"));
                    }
                }
            }
        }
    }
    Ok(())
}
