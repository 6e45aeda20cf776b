//! The measured values.
use super::systems::System;
pub use crate::measure::median;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// The measure, size and system of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The name of the measure in the programs, such as `pingpong_psend`.
    pub measure: String,
    /// The size in bytes, or the number of tasks.
    pub size: usize,
    /// The system.
    pub system: System,
}

/// All values of one key.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// The values in the order of measurement.
    pub values: Vec<f64>,
    /// The round in which each of them was measured.
    rounds: Vec<usize>,
    /// The unit of all values: us, ms, M/s, %.
    pub unit: String,
}

/// All values so far.
#[derive(Debug, Default)]
pub struct Samples {
    /// The values of each key.
    pub all: BTreeMap<Key, Values>,
    round: usize,
}

impl Samples {
    /// Begins a round: what is added from now on was measured under much the same conditions.
    pub fn begin_round(&mut self, round: usize) {
        self.round = round;
    }

    /// Adds the values in a program's output, which consists of lines `name size value unit`. Fails if a line has
    /// another form, or if there is no line.
    pub fn add_output(&mut self, system: System, output: &str) -> Result<()> {
        if output.trim().is_empty() {
            bail!("the program printed no values");
        }
        for line in output.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, size, value, unit] = words[..] else { bail!("no measured value: {line:?}") };
            let size = size.parse().with_context(|| format!("no size: {line:?}"))?;
            let value: f64 = value.parse().with_context(|| format!("no number: {line:?}"))?;
            self.add(system, name, size, value, unit);
        }
        Ok(())
    }

    /// Adds one value.
    pub fn add(&mut self, system: System, measure: &str, size: usize, value: f64, unit: &str) {
        let key = Key { measure: measure.to_owned(), size, system };
        let entry = self.all.entry(key).or_default();
        entry.values.push(value);
        entry.rounds.push(self.round);
        unit.clone_into(&mut entry.unit);
    }

    fn get(&self, system: System, measure: &str, size: usize) -> Option<&Values> {
        self.all.get(&Key { measure: measure.to_owned(), size, system })
    }

    /// Returns the median, if the measure was taken.
    pub fn median(&self, system: System, measure: &str, size: usize) -> Option<f64> {
        median(&self.get(system, measure, size)?.values)
    }

    /// Returns the ratio of two measures. Two values of the same round, measured one after the other, give one ratio,
    /// and the result is the median of these ratios. So a change of the machine's speed between rounds affects both
    /// measures alike. If one side has fewer values than the other, returns the ratio of the medians.
    pub fn ratio(&self, ours: (System, &str), theirs: (System, &str), size: usize) -> Option<f64> {
        let (one, other) = (self.get(ours.0, ours.1, size)?, self.get(theirs.0, theirs.1, size)?);
        if one.values.len() != other.values.len() {
            return Some(median(&one.values)? / median(&other.values)?);
        }
        let ratios: Vec<f64> = one.values.iter().zip(&other.values).map(|(ours, theirs)| ours / theirs).collect();
        median(&ratios)
    }

    /// Returns one ratio for each round in which both were measured: that of the medians of the round.
    pub fn ratios_of_rounds(&self, ours: (System, &str, usize), theirs: (System, &str, usize)) -> Vec<f64> {
        let medians = |(system, measure, size): (System, &str, usize)| -> BTreeMap<usize, f64> {
            let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
            if let Some(values) = self.get(system, measure, size) {
                values
                    .rounds
                    .iter()
                    .zip(&values.values)
                    .for_each(|(at, value)| rounds.entry(*at).or_default().push(*value));
            }
            rounds.into_iter().filter_map(|(round, values)| Some((round, median(&values)?))).collect()
        };
        let theirs = medians(theirs);
        let ratio = |(round, ours): (usize, f64)| Some(ours / theirs.get(&round)?);
        medians(ours).into_iter().filter_map(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect()
    }

    /// Returns the largest value.
    pub fn maximum(&self, system: System, measure: &str, size: usize) -> Option<f64> {
        self.get(system, measure, size)?.values.iter().copied().reduce(f64::max)
    }

    /// Returns the bandwidth in GB/s, from the time of a message in one direction.
    pub fn bandwidth(&self, system: System, measure: &str, size: usize) -> Option<f64> {
        Some(size as f64 / self.median(system, measure, size)? * 1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_compares_what_was_measured_in_the_same_round() {
        let mut samples = Samples::default();
        // The machine is four times slower in the second half, so the ratio of the two medians would be wrong.
        for (ours, theirs) in [(1.0, 2.0), (1.0, 2.0), (4.0, 8.0), (4.0, 8.0), (4.0, 2.0)] {
            samples.add(System::Hpvm, "a", 8, ours, "us");
            samples.add(System::OpenMpi, "b", 8, theirs, "us");
        }
        assert_eq!(samples.ratio((System::Hpvm, "a"), (System::OpenMpi, "b"), 8), Some(0.5));
        samples.add(System::OpenMpi, "b", 8, 2.0, "us");
        assert_eq!(samples.ratio((System::Hpvm, "a"), (System::OpenMpi, "b"), 8), Some(2.0));
        assert_eq!(samples.ratio((System::Hpvm, "a"), (System::Limit, "b"), 8), None);
    }

    #[test]
    fn output_that_is_no_measurement_is_refused() {
        let mut samples = Samples::default();
        assert!(samples.add_output(System::Hpvm, "").is_err());
        assert!(samples.add_output(System::Hpvm, "pingpong_psend 8 fast us\n").is_err());
        assert!(samples.add_output(System::Hpvm, "bench: wrong data\n").is_err());
        assert!(samples.add_output(System::Hpvm, "pingpong_psend 8 0.5 us\npingpong_psend 8 0.7 us\n").is_ok());
        assert_eq!(samples.median(System::Hpvm, "pingpong_psend", 8), Some(0.6));
    }
}
