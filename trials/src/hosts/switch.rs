//! The switch between hosts: `tests/hosts/faults/switch.c`, with a TAP device in each host.

use super::network::Host;
use super::tap;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running switch. Dropping it ends the switch.
pub struct Switch {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The name of the program.
const PROGRAM: &str = "switch";

/// Compiles the program.
pub fn compile() -> Result<()> {
    tap::compile("faults", PROGRAM)
}

impl Switch {
    /// Connects the hosts.
    pub fn start(hosts: &[Host], seed: u64) -> Result<Switch> {
        let program = tap::program(PROGRAM);
        let mut child = Command::new(&program)
            .arg(seed.to_string())
            .args(hosts.iter().map(|host| host.holder().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take().context("the input is taken once")?;
        let output = BufReader::new(child.stdout.take().context("the output is taken once")?);
        let mut switch = Switch { child, input, output };
        switch.answer()?;
        Ok(switch)
    }

    /// Sends a command (the switch's source lists the commands), and waits until it has been executed. Returns the
    /// answer.
    pub fn execute(&mut self, line: &str) -> Result<String> {
        writeln!(self.input, "{line}")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim().strip_prefix("ok") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => bail!("the switch says `{}`", line.trim()),
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
