//! Counts how many lines of a decoder run when the decoder gets the inputs of its corpus.
use super::build::{Engine, tool};
use super::{Target, unpacked};
use crate::common::{output, root, sh};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A part of a decoder: a whole file, or some functions of a file.
pub struct Source {
    file: String,
    functions: Vec<String>,
}

/// The line coverage of a decoder.
#[derive(Default)]
pub struct Coverage {
    /// The number of lines that were reached.
    pub reached: usize,
    /// The number of all lines with code.
    pub lines: usize,
    /// The lines that were not reached: file and number.
    pub missed: Vec<String>,
}

impl Coverage {
    /// Returns the share of lines that were reached, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.reached as f64 / self.lines.max(1) as f64
    }
}

impl Source {
    /// Reads `FILE:FUNCTION,FUNCTION`.
    pub fn parse(text: &str) -> Option<Source> {
        let (file, functions) = text.split_once(':')?;
        let functions = functions.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some(Source { file: file.to_owned(), functions })
    }

    /// Returns the lines of the functions; `None` for the whole file. Fails if the file lacks one of the functions.
    pub fn ranges(&self) -> Result<Option<Vec<RangeInclusive<usize>>>> {
        if self.functions.is_empty() {
            return Ok(None);
        }
        let text = fs::read_to_string(root().join(&self.file)).with_context(|| self.file.clone())?;
        let mut ranges = Vec::new();
        for function in &self.functions {
            let found = lines_of(&text, function);
            if found.is_empty() {
                bail!("{} has no function {function}", self.file);
            }
            ranges.extend(found);
        }
        Ok(Some(ranges))
    }
}

/// Returns the lines of all functions with that name, each up to its closing brace.
fn lines_of(text: &str, function: &str) -> Vec<RangeInclusive<usize>> {
    let lines: Vec<&str> = text.lines().collect();
    let names = [format!("fn {function}("), format!("fn {function}<")];
    let mut ranges = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        if names.iter().any(|name| line.contains(name)) {
            let indent = &line[..line.len() - line.trim_start().len()];
            let is_end = |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest == "}");
            let is_short = line.ends_with('}');
            let more = lines[place..].iter().position(is_end).filter(|_| !is_short).unwrap_or(0);
            ranges.push(place + 1..=place + more + 1);
        }
    }
    ranges
}

/// Passes all known inputs to the target, and counts the lines.
pub fn of(engine: &Engine, target: &Target) -> Result<Coverage> {
    let folder = engine.folder().join("counts");
    fs::create_dir_all(&folder)?;
    let (raw, merged) = (folder.join(format!("{}.raw", target.name)), folder.join(format!("{}.data", target.name)));
    sh(Command::new(&engine.replayer)
        .arg(&target.name)
        .args([unpacked(engine, &target.name)?, engine.corpus(&target.name)])
        .env("LLVM_PROFILE_FILE", &raw)
        .stderr(std::process::Stdio::null()))?;
    sh(Command::new(tool("llvm-profdata")?).args(["merge", "--sparse", "-o"]).args([&merged, &raw]))?;
    let export = output(
        Command::new(tool("llvm-cov")?)
            .args(["export", "--format=lcov", "--instr-profile"])
            .args([&merged, &engine.replayer]),
    )?;
    count(&counts(&export), &target.decoder)
}

/// How often each line of each file was reached.
type Counts = BTreeMap<PathBuf, BTreeMap<usize, u64>>;

/// Reads the format of lcov: `SF:FILE`, then `DA:LINE,COUNT`.
fn counts(text: &str) -> Counts {
    let mut counts = Counts::new();
    let mut file = PathBuf::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            file = PathBuf::from(name);
        } else if let Some((number, count)) = line.strip_prefix("DA:").and_then(|rest| rest.split_once(',')) {
            if let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>()) {
                *counts.entry(file.clone()).or_default().entry(number).or_default() += count;
            }
        }
    }
    counts
}

fn count(counts: &Counts, decoder: &[Source]) -> Result<Coverage> {
    let mut coverage = Coverage::default();
    for source in decoder {
        let lines = counts.iter().find(|(path, _)| path.ends_with(&source.file)).map(|(_, lines)| lines);
        let ranges = source.ranges()?;
        let counts_for = |line: &usize| ranges.as_ref().is_none_or(|all| all.iter().any(|range| range.contains(line)));
        let counted = lines.into_iter().flatten().filter(|(line, _)| counts_for(line));
        for (line, reached) in counted {
            coverage.lines += 1;
            coverage.reached += usize::from(*reached > 0);
            if *reached == 0 {
                let name = Path::new(&source.file).file_name().unwrap_or_default().to_string_lossy();
                coverage.missed.push(format!("{name}:{line}"));
            }
        }
    }
    Ok(coverage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_goes_to_the_brace_that_closes_it() {
        let text = "impl X {\n    fn one(&self) {\n        if a {\n        }\n    }\n    fn two<T>() -> u8 { 1 }\n}\nfn one() {\n}\n";
        assert_eq!(lines_of(text, "one"), [2..=5, 8..=9]);
        assert_eq!(lines_of(text, "two"), [6..=6]);
        assert!(lines_of(text, "three").is_empty());
    }

    #[test]
    fn lines_are_counted_once_for_each_file() {
        let counts =
            counts("SF:/x/crates/a/src/b.rs\nDA:1,0\nDA:2,5\nend_of_record\nSF:/x/crates/a/src/b.rs\nDA:1,3\nDA:9,0\n");
        let whole = Source::parse("crates/a/src/b.rs:").unwrap();
        let coverage = count(&counts, &[whole]).unwrap();
        assert_eq!((coverage.reached, coverage.lines, coverage.missed), (2, 3, vec!["b.rs:9".to_owned()]));
    }
}
