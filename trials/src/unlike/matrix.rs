//! The table of results: a row for each type and operation, a column for each pair of kinds.

use super::kinds::Kind;
use crate::counts::Counts;
use crate::failures;
use std::collections::BTreeMap;

/// The results so far.
pub struct Matrix {
    kinds: &'static [Kind],
    /// The rows, in the order of their first results.
    rows: Vec<String>,
    /// The error of a cell, if any, by row, sender and receiver.
    cells: BTreeMap<(String, usize, usize), Option<String>>,
    /// The results of operations in which all kinds take part, and of the consoles.
    others: Vec<(String, Option<String>)>,
    /// Whether the tests ran to their end.
    done: bool,
}

impl Matrix {
    /// Makes an empty table.
    pub fn new(kinds: &'static [Kind]) -> Matrix {
        Matrix { kinds, rows: Vec::new(), cells: BTreeMap::new(), others: Vec::new(), done: false }
    }

    /// Handles a line of output from the tests. Prints errors, and lines that are no results.
    pub fn handle_line(&mut self, line: &str) {
        let kinds = self.kinds;
        let kind = |name: &str| kinds.iter().position(|kind| kind.name == name);
        let outcome = |said: &str| (said != "ok").then(|| said.to_owned());
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["cell", row, from, to, said] => {
                let (Some(from), Some(to)) = (kind(from), kind(to)) else { return println!("{line}") };
                if !self.rows.iter().any(|known| known == row) {
                    self.rows.push(row.to_owned());
                }
                if said != "ok" {
                    let (from, to) = (kinds[from].name, kinds[to].name);
                    failures::report(format_args!("FAILED   {row} from {from} to {to}: {said}"));
                }
                self.cells.insert((row.to_owned(), from, to), outcome(said));
            }
            ["all", what, said] => self.others.push((what.to_owned(), outcome(said))),
            ["done"] => self.done = true,
            _ => println!("{line}"),
        }
    }

    /// Prints the table.
    pub fn show(&self) {
        let pairs = || (0..self.kinds.len()).flat_map(|from| (0..self.kinds.len()).map(move |to| (from, to)));
        let width = self.rows.iter().map(String::len).max().unwrap_or(0);
        println!("{:width$}  {}", "from", columns(pairs().map(|(from, _)| self.kinds[from].name)));
        println!("{:width$}  {}", "to", columns(pairs().map(|(_, to)| self.kinds[to].name)));
        for row in &self.rows {
            let signs = pairs().map(|(from, to)| match self.cells.get(&(row.clone(), from, to)) {
                Some(None) => "ok",
                Some(Some(_)) => "WRONG",
                None => "-",
            });
            println!("{row:width$}  {}", columns(signs));
        }
        for (what, said) in &self.others {
            println!("{what}: {}", said.as_deref().unwrap_or("ok"));
        }
        if !self.done {
            failures::report("FAILED   the tests did not come to their end");
        }
    }

    /// Returns the counts. If `whole` is set, a missing cell counts as a failure.
    pub fn counts(&self, whole: bool) -> Counts {
        let wanted = self.rows.len() * self.kinds.len() * self.kinds.len();
        let results = self.cells.values().chain(self.others.iter().map(|(_, said)| said));
        let (passed, failed): (Vec<_>, Vec<_>) = results.partition(|said| said.is_none());
        let missing = if whole || self.rows.is_empty() {
            (wanted - self.cells.len()).max(usize::from(self.rows.is_empty()))
        } else {
            0
        };
        Counts { passed: passed.len(), failed: failed.len() + missing + usize::from(!self.done), skipped: 0 }
    }
}

fn columns<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("{word:5} ")).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::kinds::KINDS;
    use super::*;

    fn whole(row: &str) -> Matrix {
        let mut matrix = Matrix::new(KINDS);
        for from in KINDS {
            for to in KINDS {
                matrix.handle_line(&format!("cell\t{row}\t{}\t{}\tok", from.name, to.name));
            }
        }
        matrix.handle_line("done");
        matrix
    }

    #[test]
    fn a_whole_matrix_passes_and_each_fault_fails() {
        assert_eq!(whole("int").counts(true), Counts { passed: 16, failed: 0, skipped: 0 });
        let mut matrix = whole("int");
        matrix.handle_line("cell\tint\ti386\ts390x\t7 is 8");
        assert_eq!(matrix.counts(true), Counts { passed: 15, failed: 1, skipped: 0 });
        let mut matrix = whole("int");
        matrix.handle_line("all\tbarrier\tnobody comes");
        assert_eq!(matrix.counts(true), Counts { passed: 16, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_cell_that_was_not_run_fails() {
        let mut matrix = whole("int");
        matrix.handle_line("cell\tlong\tamd64\tarm64\tok");
        assert_eq!(matrix.counts(true), Counts { passed: 17, failed: 15, skipped: 0 });
    }

    #[test]
    fn tests_that_end_early_fail() {
        assert_eq!(Matrix::new(KINDS).counts(true), Counts { passed: 0, failed: 2, skipped: 0 });
        let mut matrix = whole("int");
        matrix.done = false;
        assert_eq!(matrix.counts(true), Counts { passed: 16, failed: 1, skipped: 0 });
    }
}
