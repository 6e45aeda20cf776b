//! Writes the report: Markdown, a CSV file and a figure for each table.

use super::Form;
use super::experiments::Experiment;
use super::figure;
use super::sheet::{Cell, Cells, Sheet, number_text};
use super::store::{Record, Store};
use crate::bench::tables::size_text;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

/// The report's file.
pub const FILE: &str = "papers.md";

/// What a figure shows beside the medians.
const RANGE: &str = "; the thin lines reach from the smallest value to the largest";

const HEAD: &str = "# The papers' experiments, on hpvm

Each table and each figure shows the median of its runs; the CSV file beside it has every value. `docs/papers.md` tells
what the papers propose, by the tags that stand here, and where hpvm has it. A dash stands for a cell without a value;
the reason stands below the table.

";

/// What the report has of one experiment.
pub struct Part {
    pub experiment: &'static Experiment,
    pub record: Record,
}

/// Writes all files of the report. Returns the names of the written files.
pub fn write(store: &Store, form: Form, parts: &[Part]) -> Result<Vec<String>> {
    let mut text = HEAD.to_owned();
    if !figure::makes_png() {
        text +=
            "The figures exist as SVG only: rsvg-convert, which makes PNG, is missing (`cargo xtask setup bench`).\n\n";
    }
    let mut files = vec![FILE.to_owned()];
    for part in parts {
        let (experiment, record) = (part.experiment, &part.record);
        writeln!(text, "## {}: {}\n\n{}\n", experiment.tags, experiment.title, experiment.about.trim())?;
        for line in &record.about {
            writeln!(text, "* {line}")?;
        }
        writeln!(
            text,
            "* {:.0} s for all runs\n\nThe papers' numbers:\n\n{}\n",
            record.seconds,
            experiment.paper.trim()
        )?;
        for sheet in (experiment.sheets)(form) {
            let figures = figure::draw(&sheet, &record.cells, &about(&sheet, record), &store.directory)?;
            table(&mut text, &sheet, &record.cells)?;
            for path in &figures {
                files.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
            }
            if !figures.is_empty() {
                writeln!(text, "![{}]({}.svg)\n", sheet.title, sheet.id)?;
            }
            fs::write(store.directory.join(&sheet.id).with_extension("csv"), csv(&sheet, &record.cells))?;
            files.push(format!("{}.csv", sheet.id));
        }
    }
    fs::write(store.directory.join(FILE), text)?;
    Ok(files)
}

/// Returns the text above a figure.
fn about(sheet: &Sheet, record: &Record) -> Vec<String> {
    let runs = match record.cells.runs(sheet) {
        Some((1, 1)) => "one run".into(),
        Some((one, other)) if one == other => format!("median of {one} runs{RANGE}"),
        Some((low, high)) => format!("median of {low} to {high} runs{RANGE}"),
        None => "no runs".into(),
    };
    let mut lines = record.about.clone();
    lines.push(runs);
    lines
}

/// Returns the name of a column as a reader expects it.
fn heading(sheet: &Sheet, name: &str) -> String {
    match (sheet.column_title.contains("bytes"), name.parse()) {
        (true, Ok(bytes)) => size_text(bytes),
        _ => name.to_owned(),
    }
}

fn table(text: &mut String, sheet: &Sheet, cells: &Cells) -> Result<()> {
    writeln!(text, "### {}, {}\n", sheet.title, sheet.unit)?;
    let names: Vec<String> = sheet.columns.iter().map(|column| heading(sheet, &column.name)).collect();
    writeln!(text, "| {} | {} |", sheet.column_title, names.join(" | "))?;
    writeln!(text, "| --- |{}", " ---: |".repeat(names.len()))?;
    let mut reasons = BTreeSet::new();
    for row in &sheet.rows {
        let mut words = vec![row.clone()];
        for column in &sheet.columns {
            words.push(cell(sheet, cells, row, &column.name));
            if let Some(Cell { lack: Some(lack), values, .. }) = cells.get(sheet, row, &column.name) {
                if values.is_empty() {
                    reasons.insert(format!("* {row}: {}", lack.reason));
                }
            }
        }
        writeln!(text, "| {} |", words.join(" | "))?;
    }
    writeln!(text)?;
    for reason in reasons {
        writeln!(text, "{reason}")?;
    }
    Ok(writeln!(text)?)
}

/// Returns the text of a cell: the median, and the range if the runs differ.
fn cell(sheet: &Sheet, cells: &Cells, row: &str, column: &str) -> String {
    let (Some(median), Some((low, high))) = (cells.median(sheet, row, column), cells.range(sheet, row, column)) else {
        return "-".into();
    };
    match [low, median, high].map(number_text) {
        [low, median, high] if low == high && low == median => median,
        [low, median, high] => format!("{median} ({low} to {high})"),
    }
}

/// Returns every value of a table.
fn csv(sheet: &Sheet, cells: &Cells) -> String {
    let mut text = "row,column,run,value,unit\n".to_owned();
    for row in &sheet.rows {
        for column in &sheet.columns {
            let values = cells.get(sheet, row, &column.name).map(|cell| &cell.values[..]).unwrap_or_default();
            for (run, value) in values.iter().enumerate() {
                text += &format!("\"{row}\",\"{}\",{},{value},\"{}\"\n", column.name, run + 1, sheet.unit);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sheet::{Lack, Plot};
    use super::*;

    #[test]
    fn a_table_has_medians_ranges_and_reasons() {
        let sheet = Sheet::of_numbers("s", "A title", "bytes of a message", "us", [4096, 8], Plot::None);
        let sheet = sheet.with_rows(["one", "two"]);
        let mut cells = Cells::default();
        [1.0, 2.0, 4.0].iter().for_each(|value| cells.add("s", "one", "4096", *value));
        cells.add("s", "one", "8", 0.5);
        cells.lack("s", "two", "*", Lack { reason: "not here".into(), is_failure: false });
        let mut text = String::new();
        table(&mut text, &sheet, &cells).unwrap();
        assert_eq!(
            text,
            "### A title, us\n\n| bytes of a message | 4 KiB | 8 B |\n| --- | ---: | ---: |\n\
             | one | 2 (1 to 4) | 0.500 |\n| two | - | - |\n\n* two: not here\n\n"
        );
        assert_eq!(csv(&sheet, &cells).lines().count(), 5);
        assert!(csv(&sheet, &cells).contains("\"one\",\"4096\",3,4,\"us\""));
    }
}
