//! Reports the result of a run.
use crate::common::{in_path, root};
use crate::machine::{END_TIME_MAX, Machine, wait_until};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The totals of a run that found no error.
pub struct Total(BTreeMap<String, u64>);

impl Total {
    /// Reads the chief's last line.
    pub fn parse(line: &str) -> Result<Total> {
        let words = line.split_whitespace().skip(1);
        let numbers = words.map(|word| {
            let (name, value) = word.split_once('=').context("NAME=NUMBER")?;
            Ok((name.to_string(), value.parse()?))
        });
        Ok(Total(numbers.collect::<Result<_>>()?))
    }

    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Prints the totals.
    pub fn print(&self) {
        println!(
            "  messages   {} sent, {} received; the rest went to tasks that died",
            grouped(self.of("sent")),
            grouped(self.of("received"))
        );
        println!(
            "  bytes      {} sent, {} received",
            grouped(self.of("bytes_sent")),
            grouped(self.of("bytes_received"))
        );
        println!(
            "  tasks      {} lived, {} were killed, {} left by themselves, {} exit notifies",
            grouped(self.of("incarnations")),
            grouped(self.of("kills")),
            grouped(self.of("leaves")),
            grouped(self.of("notifies"))
        );
        println!(
            "  checked    every message in number, order and content; {} pairs of accounts; longest way of a message {} ms",
            grouped(self.of("pairs")),
            self.of("longest_us") / 1000
        );
    }
}

/// Returns `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Checks that no process of the machine is left.
pub fn all_have_ended(machine: &Machine) -> Result<()> {
    if !wait_until(END_TIME_MAX, || machine.processes().is_empty()) {
        bail!("{} processes are still running", machine.processes().len());
    }
    Ok(())
}

/// Writes the stack of every process to a file after a hang, if there is a debugger.
pub fn stacks(processes: &[u32]) {
    if !in_path("gdb") {
        return;
    }
    let mut text = String::new();
    for pid in processes {
        let output = Command::new("gdb").args(["--batch", "-nx", "-ex", "bt", "-p", &pid.to_string()]).output();
        if let Ok(output) = output {
            text += &format!("== process {pid}\n{}\n", String::from_utf8_lossy(&output.stdout));
        }
    }
    let file = root().join("target/torture/stacks");
    if fs::write(&file, text).is_ok() {
        println!("  stacks of the processes: {}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_and_numbers_are_grouped() {
        let total = Total::parse("total sent=12 received=1234567").unwrap();
        assert_eq!((total.of("sent"), grouped(total.of("received")).as_str()), (12, "1,234,567"));
        assert!(Total::parse("total sent").is_err());
        assert_eq!(grouped(0), "0");
    }
}
