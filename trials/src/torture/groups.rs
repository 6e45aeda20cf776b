//! Groups whose members are killed, leave and are replaced: `tests/torture/groups.c`.
use super::{Plan, WATCHDOG};
use crate::common::Checks;
use crate::machine::{END_TIME_MAX, LineProcess, Machine};
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// The number of members of the group.
const MEMBERS: u64 = 6;
/// The variable that sets how long barriers wait for a replacement of a dead member, in seconds. With the default, the
/// test would spend most of its time waiting for replacements of members that die between two barriers.
const SHORT_BARRIER_WAIT: &[(&str, &str)] = &[("HPVM_BARRIER_PATIENCE", "1")];

/// Runs the test, and checks what is left.
pub fn run(plan: &Plan, program: &Path, checks: &mut Checks) -> Result<()> {
    let mut machine = Machine::start_with(plan.side, "torture-groups", SHORT_BARRIER_WAIT)?;
    let total = rounds(plan, program, &machine);
    if let Ok(total) = &total {
        println!("  groups: {total}");
    }
    checks.check("torture: groups whose members are killed", total.map(drop));
    let left = machine.halt().and_then(|()| machine.nothing_is_left());
    checks.check("torture: groups: nothing is left after halt", left);
    Ok(())
}

fn rounds(plan: &Plan, program: &Path, machine: &Machine) -> Result<String> {
    let mut command = machine.command(program);
    command.arg("chief").arg(format!("seconds={}", plan.seconds)).arg(format!("seed={}", plan.seed));
    command.arg(format!("members={MEMBERS}"));
    let mut chief = LineProcess::start(&mut command)?;
    let time = Duration::from_secs(plan.seconds + 3 * plan.patience) + WATCHDOG;
    match chief.next_line(time)?.as_deref().map(|line| line.split_once(' ').unwrap_or((line, ""))) {
        Some(("total", text)) => {
            let text = text.to_owned();
            ensure!(chief.end(END_TIME_MAX)?, "the chief failed at its end: {}", chief.ending());
            Ok(text)
        }
        Some((_, text)) => bail!("{text}\nthe daemon's log says\n{}", machine.log()),
        None => bail!("the chief ended: {}\nthe daemon's log says\n{}", chief.ending(), machine.log()),
    }
}
