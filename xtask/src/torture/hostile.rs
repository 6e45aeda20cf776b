//! Neighbours that break every rule beside the torture: `tests/torture/hostile.c`.
use super::{Plan, compile, traffic};
use crate::common::Checks;
use crate::machine::{Machine, Talker};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// How long a neighbour may go on beyond its time: its last life must end.
const LAST_LIFE: Duration = Duration::from_secs(20);

/// The neighbours of one run.
pub struct Hostiles(Vec<Talker>);

impl Hostiles {
    /// Starts as many as the plan wants.
    pub fn start(plan: &Plan, machine: &Machine) -> Result<Hostiles> {
        if plan.hostiles == 0 {
            return Ok(Hostiles(Vec::new()));
        }
        let program = compile(plan.whose, "hostile", &["hostile.c"])?;
        let start = |number: u64| {
            let (seconds, seed) = (plan.seconds.to_string(), (plan.seed + number).to_string());
            let mut command = machine.command(&program);
            Talker::start(command.args([seconds, seed]).stderr(std::process::Stdio::null()))
        };
        Ok(Hostiles((0..plan.hostiles).map(start).collect::<Result<_>>()?))
    }

    /// Lets them end, and tells what they did.
    pub fn end(&mut self) {
        for (number, talker) in self.0.drain(..).enumerate() {
            match talker.hear(LAST_LIFE) {
                Ok(Some(line)) => println!("  neighbour {number}: {line}"),
                other => println!("  neighbour {number} said nothing: {other:?}"),
            }
        }
    }
}

/// Runs the torture with neighbours that break the rules: nobody else loses anything, the daemon least.
pub fn run(plan: &Plan, program: &Path, checks: &mut Checks) -> Result<()> {
    let Plan { hostiles, tasks, seconds, seed, .. } = plan;
    println!("torture: {tasks} tasks, {hostiles} hostile neighbours, {seconds} s, seed {seed}");
    let outcome = traffic(plan, program)?;
    if let Ok(total) = &outcome.traffic {
        total.print();
    }
    checks.check("hostile neighbours: others lose no message and no notify", outcome.traffic.map(drop));
    // What a neighbour sends with words of nobody stays with its receiver, as with PVM 3.4; so memory may grow.
    checks.check("hostile neighbours: nothing is left after halt", outcome.left);
    Ok(())
}
