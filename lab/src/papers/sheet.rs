//! The tables of the report: which cells each has, and what was measured for them.

use crate::bench::samples::median;
use crate::bench::tables;
use serde::{Deserialize, Serialize};

/// How a table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plot {
    /// Not at all.
    None,
    /// A line for each row, over the numbers of the columns; both axes are logarithmic.
    Lines,
    /// The same with a linear axis for the values, which begins at 0.
    LinesFromZero,
    /// A bar for each cell.
    Bars,
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The name, which is the key of the column's cells.
    pub name: String,
    /// The place on the axis of a figure.
    pub place: f64,
}

/// A table with all cells that it must have.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// The name, which is also the name of the files.
    pub id: String,
    pub title: String,
    /// What the columns are.
    pub column_title: &'static str,
    /// The unit of the values, and whether more or less is better.
    pub unit: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<String>,
    pub plot: Plot,
}

impl Sheet {
    /// Makes a table whose columns are numbers.
    pub fn of_numbers(
        id: impl Into<String>,
        title: impl Into<String>,
        column_title: &'static str,
        unit: &'static str,
        numbers: impl IntoIterator<Item = usize>,
        plot: Plot,
    ) -> Sheet {
        let column = |number: usize| Column { name: number.to_string(), place: number as f64 };
        let columns = numbers.into_iter().map(column).collect();
        Sheet { id: id.into(), title: title.into(), column_title, unit, columns, rows: Vec::new(), plot }
    }

    /// Makes a table whose columns are words.
    pub fn of_words(
        id: impl Into<String>,
        title: impl Into<String>,
        unit: &'static str,
        words: impl IntoIterator<Item = impl Into<String>>,
        plot: Plot,
    ) -> Sheet {
        let column = |(index, word): (usize, String)| Column { name: word, place: index as f64 };
        let columns = words.into_iter().map(Into::into).enumerate().map(column).collect();
        Sheet { id: id.into(), title: title.into(), column_title: "", unit, columns, rows: Vec::new(), plot }
    }

    /// Adds rows.
    pub fn with_rows(mut self, rows: impl IntoIterator<Item = impl Into<String>>) -> Sheet {
        self.rows.extend(rows.into_iter().map(Into::into));
        self
    }
}

/// Why a cell has no value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    pub reason: String,
    /// Whether something of hpvm has failed; otherwise the compared system is not here, or does not do this.
    pub is_failure: bool,
}

/// What was measured for one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub sheet: String,
    pub row: String,
    /// The column; a `*` stands for every column of the row that has no cell of its own.
    pub column: String,
    /// One value for each run.
    pub values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lack: Option<Lack>,
}

/// The column of a cell that stands for all others in its row.
pub const ALL_COLUMNS: &str = "*";

/// The cells of an experiment, in the order of measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cells(pub Vec<Cell>);

impl Cells {
    fn entry(&mut self, sheet: &str, row: &str, column: &str) -> &mut Cell {
        let is_it = |cell: &Cell| cell.sheet == sheet && cell.row == row && cell.column == column;
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            let [sheet, row, column] = [sheet, row, column].map(str::to_owned);
            self.0.push(Cell { sheet, row, column, values: Vec::new(), lack: None });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Adds the value of one run.
    pub fn add(&mut self, sheet: &str, row: &str, column: &str, value: f64) {
        self.entry(sheet, row, column).values.push(value);
    }

    /// Notes why a cell has no value.
    pub fn lack(&mut self, sheet: &str, row: &str, column: &str, lack: Lack) {
        self.entry(sheet, row, column).lack = Some(lack);
    }

    /// Returns the cell of a table, or the cell that stands for its row.
    pub fn get(&self, sheet: &Sheet, row: &str, column: &str) -> Option<&Cell> {
        let find = |wanted: &str| {
            let mut all = self.0.iter();
            all.find(|cell| cell.sheet == sheet.id && cell.row == row && cell.column == wanted)
        };
        find(column).or_else(|| find(ALL_COLUMNS))
    }

    /// Returns the median of a cell.
    pub fn median(&self, sheet: &Sheet, row: &str, column: &str) -> Option<f64> {
        median(&self.get(sheet, row, column)?.values)
    }

    /// Returns the smallest and the largest value of a cell.
    pub fn range(&self, sheet: &Sheet, row: &str, column: &str) -> Option<(f64, f64)> {
        let values = &self.get(sheet, row, column)?.values;
        let (first, rest) = values.split_first()?;
        Some(rest.iter().fold((*first, *first), |(low, high), value| (low.min(*value), high.max(*value))))
    }

    /// Returns the smallest and the largest number of runs of the cells of a table that have values.
    pub fn runs(&self, sheet: &Sheet) -> Option<(usize, usize)> {
        let counts = self.0.iter().filter(|cell| cell.sheet == sheet.id && !cell.values.is_empty());
        counts.map(|cell| cell.values.len()).fold(None, |range, count| match range {
            None => Some((count, count)),
            Some((low, high)) => Some((low.min(count), high.max(count))),
        })
    }

    /// Returns what is wrong with the cells of a table: those that have neither a finite value nor a reason, and the
    /// failures of hpvm. Also returns how many cells have a value.
    pub fn verify(&self, sheet: &Sheet) -> (usize, Vec<String>) {
        let (mut full, mut wrong) = (0, Vec::new());
        for row in &sheet.rows {
            for column in &sheet.columns {
                let place = format!("{}: {row}, {}", sheet.id, column.name);
                match self.get(sheet, row, &column.name) {
                    Some(cell) if !cell.values.is_empty() && cell.values.iter().all(|value| value.is_finite()) => {
                        full += 1;
                    }
                    Some(Cell { lack: Some(lack), .. }) if !lack.is_failure => {}
                    Some(Cell { lack: Some(lack), .. }) => wrong.push(format!("{place}: {}", lack.reason)),
                    _ => wrong.push(format!("{place}: no value")),
                }
            }
        }
        (full, wrong)
    }
}

/// Returns a number as text: counts as they are, other numbers with three significant digits.
pub fn number_text(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { tables::digits(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        Sheet::of_numbers("s", "S", "bytes", "us", [1, 2], Plot::Lines).with_rows(["a", "b"])
    }

    #[test]
    fn a_cell_has_the_median_of_its_runs() {
        let mut cells = Cells::default();
        [3.0, 1.0, 2.0].iter().for_each(|value| cells.add("s", "a", "1", *value));
        assert_eq!(cells.median(&sheet(), "a", "1"), Some(2.0));
        assert_eq!(cells.range(&sheet(), "a", "1"), Some((1.0, 3.0)));
        assert_eq!(cells.runs(&sheet()), Some((3, 3)));
        assert_eq!(cells.median(&sheet(), "a", "2"), None);
    }

    #[test]
    fn a_cell_without_value_and_reason_is_wrong() {
        let mut cells = Cells::default();
        cells.add("s", "a", "1", 1.0);
        cells.add("s", "a", "2", f64::NAN);
        let lack = |is_failure| Lack { reason: "it broke".into(), is_failure };
        cells.lack("s", "b", ALL_COLUMNS, lack(false));
        assert_eq!(cells.verify(&sheet()), (1, vec!["s: a, 2: no value".to_owned()]));
        cells.lack("s", "b", "2", lack(true));
        assert_eq!(cells.verify(&sheet()).1, ["s: a, 2: no value", "s: b, 2: it broke"]);
    }
}
