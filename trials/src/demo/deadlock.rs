//! A program that hangs, and the line by which `pvm why` explains it.
use super::farm::directory;
use crate::common::{dist, root, sh};
use crate::machine::{Machine, wait_until};
use crate::side::Side;
use crate::why::DEADLOCK;
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the program may need until it hangs, on a machine that does much else.
const STATE_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs two tasks that wait for each other, and prints what `pvm why` says of them.
pub fn show() -> Result<()> {
    let program = directory()?.join("deadlock");
    let mut cc = Command::new("cc");
    cc.arg(root().join("tests/why/cases/circle.c")).arg("-I").arg(dist().join("include"));
    sh(cc.arg("-L").arg(dist().join("lib")).arg("-lpvm3").arg("-o").arg(&program))?;
    let mut machine = Machine::start(Side::Ours, "deadlock")?;
    let pvm = || machine.command(&Side::Ours.programs().join("pvm"));
    let mut run = pvm();
    run.args(["run", "-n", "2"]).arg(&program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.spawn().context("cannot start pvm run")?;
    let mut said = String::new();
    let is_found = wait_until(STATE_TIME_MAX, || {
        let answer = pvm().arg("why").output();
        answer.is_ok_and(|answer| {
            said = String::from_utf8_lossy(&answer.stdout).into_owned();
            answer.status.code() == Some(DEADLOCK)
        })
    });
    machine.end()?;
    let _ = run.wait();
    ensure!(is_found, "pvm why finds no deadlock: {said}");
    let line = said.lines().find(|line| line.starts_with("DEADLOCK"));
    println!("  $ pvm why\n  {}", line.with_context(|| format!("pvm why says {said}"))?);
    machine.nothing_is_left()
}
