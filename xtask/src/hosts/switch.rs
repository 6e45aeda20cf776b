//! The switch between hosts: `tests/hosts/faults/switch.c`, with a TAP device in each host.

use super::network::Host;
use crate::common::{root, sh};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running switch. Dropping it ends the switch.
pub struct Switch {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn program() -> PathBuf {
    root().join("target/hosts/switch")
}

/// Compiles the program.
pub fn compile() -> Result<()> {
    std::fs::create_dir_all(root().join("target/hosts"))?;
    let source = root().join("tests/hosts/faults/switch.c");
    sh(Command::new("cc").args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-o"]).arg(program()).arg(source))
}

/// Returns why no switch can run here; `None` if one can.
pub fn obstacle() -> Option<String> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    device.err().map(|error| format!("/dev/net/tun: {error}"))
}

impl Switch {
    /// Connects the hosts.
    pub fn start(hosts: &[Host], seed: u64) -> Result<Switch> {
        let mut child = Command::new(program())
            .arg(seed.to_string())
            .args(hosts.iter().map(|host| host.holder().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program().display()))?;
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
