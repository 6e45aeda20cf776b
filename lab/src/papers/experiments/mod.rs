//! The experiments, one in each module.

mod barrier;
mod incast;
mod modes;
mod multicast;
mod roots;
mod routes;
mod systems;
mod wait;

use super::Form;
use super::sheet::Sheet;
use super::stage::Stage;
use anyhow::Result;

/// An experiment of the papers.
pub struct Experiment {
    /// The name for `--only`.
    pub name: &'static str,
    /// The tags of `docs/papers.md`.
    pub tags: &'static str,
    pub title: &'static str,
    /// What is measured, and how, as Markdown.
    pub about: &'static str,
    /// The numbers in the papers, as Markdown.
    pub paper: &'static str,
    pub sheets: fn(Form) -> Vec<Sheet>,
    /// Measures all cells, inside the sandbox.
    pub measure: fn(&Stage) -> Result<()>,
}

/// All experiments, in the order in which they run and stand in the report.
pub const ALL: &[Experiment] = &[
    routes::EXPERIMENT,
    modes::EXPERIMENT,
    systems::EXPERIMENT,
    barrier::EXPERIMENT,
    roots::EXPERIMENT,
    wait::EXPERIMENT,
    incast::EXPERIMENT,
    multicast::ON_BRIDGE,
    multicast::ON_ETHER,
];

/// The forms of a message in the output of the program, and their names in tables.
const FORMS: [(&str, &str); 4] =
    [("psend", "psend"), ("raw", "raw"), ("in_place", "in place"), ("default", "default encoding")];

/// Returns the name in tables of a form.
fn form_name(name: &str) -> &str {
    FORMS.iter().find(|(form, _)| *form == name).map_or(name, |(_, text)| text)
}

/// Reports that nothing of an experiment can be measured here.
fn nothing_here(stage: &Stage, sheets: &[Sheet], reason: &str) {
    for sheet in sheets {
        sheet.rows.iter().for_each(|row| stage.row_absent(&sheet.id, row, reason));
    }
}
