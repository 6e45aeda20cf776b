//! The values of a measure, and how they are shown: as a table, and as JSON.
use super::plan::{Crew, Table};
use crate::cli;
use crate::measures::Measure;
use pvm_core::proto::Host;
use serde_json::{Value, json};
use std::time::Duration;

/// The widths of the columns: the first two are those of the OSU micro-benchmarks.
const FIRST_WIDTH: usize = 10;
const VALUE_WIDTH: usize = 18;
const SPREAD_WIDTH: usize = 14;

/// The values of one row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Samples {
    /// The value in the middle.
    pub median: f64,
    /// The smallest value.
    pub minimum: f64,
    /// The largest value.
    pub maximum: f64,
    /// The number of values.
    pub repetitions: usize,
}

impl Samples {
    /// Summarizes values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Samples> {
        values.sort_by(f64::total_cmp);
        let repetitions = values.len();
        let (minimum, maximum) = (*values.first()?, *values.last()?);
        let median = (values[(repetitions - 1) / 2] + values[repetitions / 2]) / 2.0;
        Some(Samples { median, minimum, maximum, repetitions })
    }
}

/// Returns the lines above a table: what was measured, and the headings of the columns.
pub fn head(crew: &Crew, table: &Table, arguments: &cli::Bench) -> String {
    let measure = table.measure;
    let mut facts = vec![format!("# hpvm {} {}", env!("CARGO_PKG_VERSION"), measure.name())];
    match measure.is_of_pairs() {
        true => facts.push(format!("hosts: {}", crew.hosts.join(" "))),
        false => facts.push(format!("tasks: {}, hosts: {}", crew.hosts.len(), crew.distinct_hosts().join(" "))),
    }
    facts.push(format!("route: {}", arguments.route.name()));
    facts.extend(table.encoding.map(|encoding| format!("encoding: {}", encoding.name())));
    let first = if measure.has_sizes() { "# Size" } else { "# Tasks" };
    let (heading, facts) = (measure.heading(), facts.join(", "));
    format!("{facts}\n{first:<FIRST_WIDTH$}{heading:>VALUE_WIDTH$}{:>SPREAD_WIDTH$}{:>SPREAD_WIDTH$}\n", "Min", "Max")
}

/// Returns a row of a table.
pub fn row(crew: &Crew, measure: Measure, size: u32, samples: &Samples) -> String {
    let first = if measure.has_sizes() { size as usize } else { crew.hosts.len() };
    let Samples { median, minimum, maximum, .. } = samples;
    format!("{first:<FIRST_WIDTH$}{median:>VALUE_WIDTH$.2}{minimum:>SPREAD_WIDTH$.2}{maximum:>SPREAD_WIDTH$.2}\n")
}

/// Returns a row as JSON.
pub fn result(crew: &Crew, table: &Table, size: u32, samples: &Samples) -> Value {
    let measure = table.measure;
    json!({
        "measure": measure.name(),
        "hosts": crew.hosts,
        "tasks": crew.hosts.len(),
        "encoding": table.encoding.map(|encoding| encoding.name()),
        "size": measure.has_sizes().then_some(size),
        "unit": measure.unit(),
        "median": samples.median,
        "minimum": samples.minimum,
        "maximum": samples.maximum,
        "repetitions": samples.repetitions,
    })
}

/// Returns the whole document.
pub fn document(hosts: &[Host], arguments: &cli::Bench, results: Vec<Value>, took: Duration) -> Value {
    let hosts: Vec<Value> = hosts.iter().map(|host| json!({ "name": host.name, "arch": host.arch })).collect();
    let system = rustix::system::uname();
    json!({
        "versions": { "hpvm": env!("CARGO_PKG_VERSION"), "pvm": "3.4.6" },
        "machine": {
            "hosts": hosts,
            "processor": processor(),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "system": system.sysname().to_string_lossy(),
            "release": system.release().to_string_lossy(),
        },
        "settings": { "route": arguments.route.name(), "seconds": arguments.time.as_secs_f64() },
        "seconds": took.as_secs_f64(),
        "results": results,
    })
}

/// Returns the name of this host's processor, if the system tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summarized() {
        let samples = Samples::of(vec![4.0, 1.0, 2.0]).unwrap();
        assert_eq!((samples.median, samples.minimum, samples.maximum, samples.repetitions), (2.0, 1.0, 4.0, 3));
        assert_eq!(Samples::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Samples::of(vec![]), None);
    }

    #[test]
    fn a_row_is_as_wide_as_its_head() {
        let crew = Crew { hosts: vec!["a".into(), "b".into()], joins: true, tables: vec![] };
        let samples = Samples { median: 1.5, minimum: 1.0, maximum: 2.0, repetitions: 5 };
        assert_eq!(
            row(&crew, Measure::Latency, 8, &samples),
            "8                       1.50          1.00          2.00\n"
        );
        assert!(row(&crew, Measure::Barrier, 0, &samples).starts_with("2      "));
    }
}
