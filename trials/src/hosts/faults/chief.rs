//! Starts the chief of the tasks, reads its output, and sends it commands. The chief is the task that starts the other
//! tasks and compares their accounts.

use crate::machine::LineProcess;
use anyhow::{Result, bail, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the tasks may take to compare their accounts; the time limits of the tasks themselves are shorter.
const SETTLE_TIME: Duration = Duration::from_secs(150);
/// How long the tasks may take to end.
const END_TIME: Duration = Duration::from_secs(20);

/// A running chief.
pub struct Chief {
    process: LineProcess,
    lines: Vec<String>,
}

impl Chief {
    /// Starts the chief.
    pub fn start(command: &mut Command) -> Result<Chief> {
        Ok(Chief { process: LineProcess::start(command)?, lines: Vec::new() })
    }

    /// Waits until `is_enough` accepts the output so far.
    pub fn wait(&mut self, what: &str, time: Duration, is_enough: impl Fn(&[String]) -> bool) -> Result<()> {
        let end = Instant::now() + time;
        while !is_enough(&self.lines) {
            let left = end.saturating_duration_since(Instant::now());
            match self.process.next_line(left) {
                Ok(Some(line)) if line.starts_with("error ") => bail!("{line}; {:?}", self.lines),
                Ok(Some(line)) => self.lines.push(line),
                Ok(None) => {
                    let ending = self.process.ending();
                    bail!("waiting for {what}: the chief of the tasks has ended: {ending}; {:?}", self.lines)
                }
                Err(_) => bail!("waited {} s for {what}: {:?}", time.as_secs(), self.lines),
            }
        }
        Ok(())
    }

    /// Returns how many lines begin with this text.
    pub fn count(&self, beginning: &str) -> usize {
        self.lines.iter().filter(|line| line.starts_with(beginning)).count()
    }

    /// Returns whether a line has come that begins with this text.
    pub fn heard_of(&mut self, beginning: &str) -> bool {
        while let Ok(Some(line)) = self.process.next_line(Duration::ZERO) {
            self.lines.push(line);
        }
        self.count(beginning) > 0
    }

    /// Returns the last line that begins with this text.
    pub fn last(&self, beginning: &str) -> String {
        self.lines.iter().rfind(|line| line.starts_with(beginning)).cloned().unwrap_or_default()
    }

    /// Sends a command.
    pub fn tell(&mut self, line: &str) {
        self.process.send(line);
    }

    /// Waits until the process has ended well.
    pub fn wait_for_end(&mut self) -> Result<()> {
        ensure!(self.process.end(END_TIME)?, "the program ended badly: {}", self.process.ending());
        Ok(())
    }

    /// Makes the tasks compare their accounts, and returns the result.
    pub fn settle(&mut self) -> Result<String> {
        let before = self.count("settled ");
        self.process.send("settle");
        self.wait("the accounts", SETTLE_TIME, |lines| {
            lines.iter().filter(|line| line.starts_with("settled ")).count() > before
        })?;
        Ok(self.last("settled "))
    }

    /// Ends all tasks.
    pub fn end(&mut self) -> Result<()> {
        self.process.send("end");
        self.wait("the end", END_TIME, |lines| lines.iter().any(|line| line == "ended"))?;
        self.wait_for_end()
    }
}
