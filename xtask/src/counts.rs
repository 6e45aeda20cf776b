//! Counts of checks that passed, failed and were skipped.
use anyhow::{Context, Result, bail};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// The result of a command that checks something. A check that cannot be made on this machine counts as skipped, never
/// as passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Checks that passed.
    pub passed: usize,
    /// Checks that failed.
    pub failed: usize,
    /// Checks, or whole groups of checks, that cannot be made on this machine.
    pub skipped: usize,
}

impl Counts {
    /// Prints why a check is skipped, and counts it.
    pub fn skip(reason: impl fmt::Display) -> Counts {
        println!("skipped: {reason}");
        Counts { skipped: 1, ..Counts::default() }
    }

    /// Counts one check that passed or failed.
    pub fn one(passed: bool) -> Counts {
        Counts { passed: usize::from(passed), failed: usize::from(!passed), skipped: 0 }
    }

    /// Reads the counts in the last line of a command's output. Text before the numbers is ignored.
    pub fn parse(line: &str) -> Result<Counts> {
        let number = |word: &str| {
            let before = line.split(&format!(" {word}")).next().filter(|before| before.len() < line.len())?;
            before.split_whitespace().next_back()?.parse().ok()
        };
        let all = || Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number("skipped")? });
        all().with_context(|| format!("the command inside ended early: {line}"))
    }

    /// Prints the counts. Returns an error if something failed.
    pub fn report(self) -> Result<()> {
        println!("{self}");
        if self.failed > 0 {
            bail!("{} failed", self.failed);
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        *self = *self + other;
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let counts = Counts { passed: 12, failed: 3, skipped: 1 };
        assert_eq!(counts.to_string(), "12 passed, 3 failed, 1 skipped");
        assert_eq!(Counts::parse("hosts: 12 passed, 3 failed, 1 skipped").unwrap(), counts);
        assert!(Counts::parse("hosts: ended").is_err() && Counts::parse("1 passed").is_err());
    }
}
