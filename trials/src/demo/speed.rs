//! How fast messages are, beside the limit of the machine: two tables, measured in some seconds by the programs of
//! `cargo xtask bench`.
use crate::common::{Progress, output};
use crate::machine::Machine;
use crate::measure::programs::{directory, limit_program, pvm_bench};
use crate::measure::tables::{COPY_WAYS, FORMS, LONG_SIZES, SHORT_SIZES, digits, form_text, line, size_text};
use crate::measure::{median, warn_when_faster_than_the_limit};
use crate::side::Side;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// How often each program runs, how often it repeats each of its measurements, and the shortest time of a repetition in
/// ms.
const ROUNDS: usize = 3;
const REPETITIONS: &str = "2";
const REPETITION_MS: &str = "5";
/// The time after which a program is ended, in seconds.
const SECONDS_MAX: &str = "30";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum System {
    /// Two processes that share memory, without any message system.
    Limit,
    Hpvm,
}

use System::{Hpvm, Limit};

/// The values by system, measure and size in bytes.
#[derive(Default)]
struct Values(BTreeMap<(System, String, usize), Vec<f64>>);

/// Measures, and prints the tables.
pub fn show() -> Result<()> {
    limit_program()?;
    pvm_bench()?;
    let machine = Machine::start(Side::Ours, "speed")?;
    let mut values = Values::default();
    for measure in ["latency", "bandwidth"] {
        let progress = Progress::begin(&format!("measuring {measure}"));
        let result = (0..ROUNDS).try_for_each(|round| {
            let turns = if round % 2 == 0 { [Limit, Hpvm] } else { [Hpvm, Limit] };
            turns.into_iter().try_for_each(|system| values.measure(system, measure, &machine))
        });
        progress.end();
        result.with_context(|| format!("{measure} {}", machine.log()))?;
    }
    print!("{}", values.tables());
    println!("(The limit of longer messages is one copy out of another process's memory. Messages in memory that both");
    println!("processes write can need less than that: then the number is below 1.)");
    let size = SHORT_SIZES[0];
    let limit = values.median(Limit, "pingpong_line", size);
    warn_when_faster_than_the_limit(values.median(Hpvm, "pingpong_psend", size), limit);
    Ok(())
}

impl Values {
    /// Runs the program of a system once, and adds what it prints.
    fn measure(&mut self, system: System, measure: &str, machine: &Machine) -> Result<()> {
        let (program, route): (_, &[&str]) = match system {
            Limit => ("limit", &[]),
            Hpvm => ("pvm_bench", &["default"]),
        };
        let mut command: Command = machine.command(Path::new("timeout"));
        command.arg(SECONDS_MAX).arg(directory().join(program)).arg(measure).args(route);
        self.add(system, &output(command.args([REPETITION_MS, REPETITIONS]))?)
    }

    /// Adds the values in a program's output, which consists of lines `name size value unit`.
    fn add(&mut self, system: System, said: &str) -> Result<()> {
        ensure!(!said.trim().is_empty(), "the program printed no values");
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [measure, size, value, _unit] = words[..] else { anyhow::bail!("no measured value: {line:?}") };
            let key = (system, measure.to_owned(), size.parse().context("a size")?);
            self.0.entry(key).or_default().push(value.parse().context("a value")?);
        }
        Ok(())
    }

    fn median(&self, system: System, measure: &str, size: usize) -> Option<f64> {
        median(self.0.get(&(system, measure.to_owned(), size))?)
    }

    fn tables(&self) -> String {
        let limit = |size| self.median(Limit, if size == 8 { "pingpong_line" } else { "pingpong_copy" }, size);
        let of_limit = [(Limit, "pingpong_line"), (Limit, "pingpong_copy"), (Hpvm, "pingpong_psend")];
        let forms = FORMS.map(|form| format!("pingpong_{form}"));
        let rows: Vec<_> = of_limit.into_iter().chain(forms.iter().map(|form| (Hpvm, &**form))).collect();
        let mut text = "\nOne way between two tasks, us (in brackets: times the limit)\n".to_owned();
        text += &self.table(&SHORT_SIZES, &rows, |size, median| match limit(size) {
            Some(limit) => format!("{} ({:5.2})", digits(median), median / limit),
            None => digits(median),
        });
        let rows = [
            (Limit, "memcpy"),
            (Limit, "pingpong_copy"),
            (Hpvm, "pingpong_psend"),
            (Hpvm, "pingpong_raw_byte"),
            (Hpvm, "pingpong_raw_double"),
            (Hpvm, "pingpong_default_double"),
        ];
        text += "\nBandwidth of ping-pong between two tasks, GB/s\n";
        text += &self.table(&LONG_SIZES, &rows, |size, median| digits(size as f64 / median * 1e-3));
        text + &self.copy_ways()
    }

    /// Returns a table: one line for each row that has values, one column for each size.
    fn table(&self, sizes: &[usize], rows: &[(System, &str)], cell: impl Fn(usize, f64) -> String) -> String {
        let mut text = line("", sizes.iter().map(|size| size_text(*size))) + "\n";
        for (system, measure) in rows {
            let medians: Vec<_> = sizes.iter().map(|size| (*size, self.median(*system, measure, *size))).collect();
            if medians.iter().any(|(_, median)| median.is_some()) {
                let name = if *system == Limit { "limit" } else { "hpvm" };
                let name = format!("  {name} {}", form_text(measure));
                let cells = medians.iter().map(|(size, median)| median.map_or(String::new(), |one| cell(*size, one)));
                text += &format!("{}\n", line(name.trim_end(), cells));
            }
        }
        text
    }

    /// Returns how the last long messages of `pvm_psend` were copied.
    fn copy_ways(&self) -> String {
        let way_of = |size: &usize| {
            let way = self.median(Hpvm, "copy_way", *size)?.round() as usize;
            Some(format!("  {:34}{}\n", size_text(*size), COPY_WAYS.get(way.checked_sub(1)?)?))
        };
        let ways: String = LONG_SIZES.iter().filter_map(way_of).collect();
        if ways.is_empty() {
            return ways;
        }
        format!("Copies of the last messages of hpvm psend (median of the rounds)\n{ways}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_show_medians_beside_the_limit() {
        let mut values = Values::default();
        values.add(Limit, "pingpong_line 8 0.1 us\nmemcpy 65536 8.0 us\n").unwrap();
        values.add(Hpvm, "pingpong_psend 8 0.1 us\npingpong_psend 8 0.3 us\ncopy_way 65536 2 way\n").unwrap();
        let text = values.tables();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for wanted in ["limit cache line 0.100 ( 1.00)", "hpvm psend/precv 0.200 ( 2.00)", "limit memcpy 8.19"] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted}: {text}");
        }
        assert!(lines.iter().any(|line| line == "64 KiB the sender's copy past the caches"), "{text}");
        assert!(!text.contains("pkint") && values.add(Hpvm, "").is_err() && values.add(Hpvm, "wrong data").is_err());
    }
}
