//! The ratchet: the ratios of a run are kept, so that a later run shows what has become slower.
//!
//! The machine's speed changes from hour to hour, so what is compared is not a time but a ratio: hpvm's value divided by
//! that of a reference that was measured in the same round. The spread of the ratios over the rounds says how much of a
//! change is noise.
use super::samples::{Key, Samples, median};
use super::systems::System;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A change of this share, beyond the noise, is named.
const CHANGE_MIN: f64 = 0.03;
/// How many standard errors of the difference count as noise.
const NOISE_ERRORS: f64 = 3.0;
/// The fewest rounds from which a spread can be estimated.
const ROUNDS_MIN: usize = 3;
/// The standard deviation of a normal distribution, in its median absolute deviations.
const DEVIATIONS: f64 = 1.4826;
/// The standard error of a median, in that of a mean.
const MEDIAN_ERROR: f64 = 1.2533;

/// One ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Ratio {
    /// The measure and its size: bytes, or a number of tasks.
    measure: String,
    size: usize,
    /// The name of the reference.
    against: String,
    /// Whether a larger ratio is better.
    more_is_better: bool,
    /// The ratio in each round.
    rounds: Vec<f64>,
}

/// All ratios of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ratios {
    /// Version, day and machine.
    about: Vec<String>,
    ratios: Vec<Ratio>,
}

/// Returns the reference of a measure: the limit of the machine where there is one, otherwise Debian's PVM.
fn reference(key: &Key) -> Option<(System, String, usize)> {
    let (family, _) = key.measure.split_once('_').unwrap_or((&key.measure, ""));
    Some(match family {
        "pingpong" if key.size == 8 => (System::Limit, "pingpong_line".into(), 8),
        "pingpong" => (System::Limit, "pingpong_copy".into(), key.size),
        "rate" => (System::Limit, "rate_line".into(), key.size),
        // Processor time is compared with a fixed bound, and a way of copying is no speed.
        "idle" | "way" => return None,
        _ => (System::Pvm, key.measure.clone(), key.size),
    })
}

impl Ratios {
    /// Returns the ratios of a run.
    pub fn of(samples: &Samples, about: Vec<String>) -> Ratios {
        let ours = samples.all.iter().filter(|(key, _)| key.system == System::Hpvm);
        let ratio = |(key, values): (&Key, &super::samples::Values)| {
            let (system, measure, size) = reference(key)?;
            let rounds = samples.ratios_of_rounds((key.system, &key.measure, key.size), (system, &measure, size));
            let against = format!("{} {measure}", system.name());
            let more_is_better = values.unit == "M/s";
            let ratio = Ratio { measure: key.measure.clone(), size: key.size, against, more_is_better, rounds };
            (!ratio.rounds.is_empty()).then_some(ratio)
        };
        Ratios { about, ratios: ours.filter_map(ratio).collect() }
    }

    /// Reads the ratios of an earlier run.
    pub fn read(path: &Path) -> Result<Ratios> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} holds no ratios of a run", path.display()))
    }

    /// Writes the ratios for later runs.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
        println!("{}", path.display());
        Ok(())
    }

    /// Returns what has changed since an earlier run.
    pub fn compared_with(&self, before: &Ratios) -> Comparison {
        let mut comparison = Comparison {
            machine: before.about.last().filter(|machine| self.about.last() != Some(machine)).cloned(),
            ..Comparison::default()
        };
        for now in &self.ratios {
            let is_same =
                |ratio: &&Ratio| (&ratio.measure, ratio.size, &ratio.against) == (&now.measure, now.size, &now.against);
            match before.ratios.iter().find(is_same).map(|before| change(before, now)) {
                None => comparison.unknown += 1,
                Some(None) => comparison.unclear += 1,
                Some(Some(change)) => comparison.add(now, change),
            }
        }
        comparison
    }
}

/// By which factor something has become worse, and how far that factor is from 1 by noise alone.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    worse: f64,
    noise: f64,
}

/// Returns the change between two ratios; `None` if there were too few rounds to know the noise.
fn change(before: &Ratio, now: &Ratio) -> Option<Change> {
    let (before_median, before_error) = estimate(&before.rounds)?;
    let (now_median, now_error) = estimate(&now.rounds)?;
    let worse = if now.more_is_better { before_median / now_median } else { now_median / before_median };
    Some(Change { worse, noise: NOISE_ERRORS * before_error.hypot(now_error) })
}

/// Returns the median, and its standard error as a share of it.
fn estimate(rounds: &[f64]) -> Option<(f64, f64)> {
    if rounds.len() < ROUNDS_MIN {
        return None;
    }
    let middle = median(rounds)?;
    let distances: Vec<f64> = rounds.iter().map(|ratio| (ratio - middle).abs()).collect();
    let error = MEDIAN_ERROR * DEVIATIONS * median(&distances)? / (rounds.len() as f64).sqrt();
    Some((middle, error / middle))
}

/// The changes between two runs.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The earlier run's machine, if it was another one.
    machine: Option<String>,
    /// The changes beyond the noise, in words.
    worse: Vec<String>,
    better: Vec<String>,
    /// How many ratios have not changed, how many were measured in too few rounds, and how many only now.
    same: usize,
    unclear: usize,
    unknown: usize,
}

impl Comparison {
    fn add(&mut self, now: &Ratio, Change { worse, noise }: Change) {
        let percent = |factor: f64| format!("{:.1} %", 100.0 * (factor - 1.0));
        let text = |factor: f64| {
            let (size, noise) = (now.size, percent(1.0 + noise));
            format!("{} {size} (against {}): {}, noise {noise}", now.measure, now.against, percent(factor))
        };
        if worse > 1.0 + CHANGE_MIN + noise {
            self.worse.push(text(worse));
        } else if 1.0 / worse > 1.0 + CHANGE_MIN + noise {
            self.better.push(text(1.0 / worse));
        } else {
            self.same += 1;
        }
    }

    /// Fails if something has become worse.
    pub fn verdict(&self) -> Result<()> {
        match self.worse.len() {
            0 => Ok(()),
            count => bail!("{count} ratios are worse than in the earlier run, the first: {}", self.worse[0]),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "\nCompared with the earlier run (changes of more than 3 % beyond the noise)")?;
        if let Some(machine) = &self.machine {
            writeln!(formatter, "  WARNING: the earlier run was made on another machine: {machine}")?;
        }
        for (word, changes) in [("worse ", &self.worse), ("better", &self.better)] {
            for change in changes {
                writeln!(formatter, "  {word} {change}")?;
            }
        }
        let Comparison { worse, better, same, unclear, unknown, .. } = self;
        let (worse, better) = (worse.len(), better.len());
        writeln!(
            formatter,
            "  {worse} worse, {better} better, {same} unchanged, {unclear} from too few rounds, {unknown} not in the file"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(values: &[f64], unit: &str) -> Ratios {
        let mut samples = Samples::default();
        for (round, value) in values.iter().enumerate() {
            samples.begin_round(round);
            // The machine is slower in every second round; the ratios do not show it.
            let speed = 1.0 + (round % 2) as f64;
            let (measure, line) =
                if unit == "M/s" { ("rate_psend", "rate_line") } else { ("pingpong_psend", "pingpong_line") };
            for _ in 0..3 {
                samples.add(System::Hpvm, measure, 8, value * speed, unit);
                samples.add(System::Limit, line, 8, speed, unit);
            }
        }
        Ratios::of(&samples, vec!["version".into(), "machine".into()])
    }

    const STEADY: [f64; 7] = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0];

    fn times(factor: f64) -> Vec<f64> {
        STEADY.iter().map(|ratio| ratio * factor).collect()
    }

    #[test]
    fn a_change_beyond_the_noise_is_named_and_fails() {
        let before = run(&STEADY, "us");
        let slower = run(&times(1.06), "us").compared_with(&before);
        assert!(slower.worse.len() == 1 && slower.verdict().is_err());
        assert!(slower.to_string().contains("pingpong_psend 8 (against limit pingpong_line): 6.0 %"), "{slower}");
        let quicker = run(&times(0.9), "us").compared_with(&before);
        assert!(quicker.better.len() == 1 && quicker.verdict().is_ok());
        let same = run(&times(1.02), "us").compared_with(&before);
        assert!(same.same == 1 && same.verdict().is_ok());
    }

    #[test]
    fn a_lower_rate_is_worse() {
        let before = run(&STEADY, "M/s");
        assert!(run(&times(0.9), "M/s").compared_with(&before).verdict().is_err());
        assert!(run(&times(1.1), "M/s").compared_with(&before).verdict().is_ok());
    }

    #[test]
    fn noise_is_not_named() {
        let noisy = [1.0, 1.4, 0.8, 1.2, 0.7, 1.3, 1.0];
        let slower: Vec<f64> = noisy.iter().map(|ratio| ratio * 1.1).collect();
        let comparison = run(&slower, "us").compared_with(&run(&noisy, "us"));
        assert!(comparison.same == 1 && comparison.verdict().is_ok());
        let few = run(&[2.0, 2.0], "us").compared_with(&run(&STEADY, "us"));
        assert!(few.unclear == 1 && few.verdict().is_ok());
    }

    #[test]
    fn ratios_survive_the_file() {
        let (folder, ratios) = (tempfile::tempdir().unwrap(), run(&STEADY, "us"));
        let path = folder.path().join("ratios.json");
        ratios.write(&path).unwrap();
        let read = Ratios::read(&path).unwrap();
        assert_eq!(read.ratios, ratios.ratios);
        let mut other = run(&STEADY, "us");
        other.about = vec!["another machine".into()];
        assert!(other.compared_with(&read).to_string().contains("another machine: machine"));
        std::fs::write(&path, "{}").unwrap();
        assert!(Ratios::read(&path).is_err());
    }
}
