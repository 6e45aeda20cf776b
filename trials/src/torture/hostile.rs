//! Hostile tasks that run on the same host during the torture test. They break every rule of shared memory
//! (`tests/torture/hostile.c`). Here, they are called neighbours.
use super::memory::Limits;
use super::{Plan, compile, traffic};
use crate::common::Checks;
use crate::machine::{LineProcess, Machine};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// How many bytes of messages a task may have to keep for each neighbour and each second of the run.
const KEPT_A_SECOND_MAX: u64 = 64 << 10;
/// How much the daemon's private memory may grow, in bytes: the daemon serves neighbours that request much and read
/// nothing.
const DAEMON_GROWTH_MAX: u64 = 4 << 20;
/// The most descriptors that a process may hold for a living neighbour: for its connection, process, segment and
/// doorbell.
const DESCRIPTORS_A_NEIGHBOUR: usize = 6;
/// How long a neighbour may still run after the end of the run. It starts one attacking process (a life) after the
/// other, and waits for the end of the last one.
const LAST_LIFE: Duration = Duration::from_secs(20);

/// Returns how much each resource may grow in a run of this length beside this number of neighbours. Messages that have
/// no valid context stay with their receiver, as in PVM 3.4; their size is bounded by what the neighbours send. The
/// daemon keeps nothing for neighbours that have ended.
pub fn limits(hostiles: u64, seconds: u64) -> Limits {
    let usual = Limits::default();
    let sent = hostiles * seconds * KEPT_A_SECOND_MAX;
    Limits {
        heap: usual.heap + sent,
        private: 2 * usual.private + sent,
        daemon: DAEMON_GROWTH_MAX,
        shared: 2 * usual.shared,
        descriptors: usual.descriptors + DESCRIPTORS_A_NEIGHBOUR * hostiles as usize,
        mappings: 2 * usual.mappings,
    }
}

/// The neighbours of a run.
pub struct Hostiles(Vec<LineProcess>);

impl Hostiles {
    /// Starts the neighbours of the plan.
    pub fn start(plan: &Plan, machine: &Machine) -> Result<Hostiles> {
        if plan.hostiles == 0 {
            return Ok(Hostiles(Vec::new()));
        }
        let program = compile(plan.side, "hostile", &["hostile.c"])?;
        let start = |number: u64| {
            let (seconds, seed) = (plan.seconds.to_string(), (plan.seed + number).to_string());
            let mut command = machine.command(&program);
            LineProcess::start(command.args([seconds, seed]))
        };
        Ok(Hostiles((0..plan.hostiles).map(start).collect::<Result<_>>()?))
    }

    /// Waits for the end of the neighbours, and prints what they did.
    pub fn end(&mut self) {
        for (number, process) in self.0.drain(..).enumerate() {
            match process.next_line(LAST_LIFE) {
                Ok(Some(line)) => println!("  neighbour {number}: {line}"),
                other => println!("  neighbour {number} printed nothing: {other:?}"),
            }
        }
    }
}

/// Runs the torture beside hostile neighbours, and checks that the other tasks lose nothing.
pub fn run(plan: &Plan, program: &Path, checks: &mut Checks) -> Result<()> {
    let Plan { hostiles, tasks, seconds, seed, .. } = plan;
    println!("torture: {tasks} tasks, {hostiles} hostile neighbours, {seconds} s, seed {seed}");
    let outcome = traffic(plan, program)?;
    if let Ok(total) = &outcome.traffic {
        total.print();
    }
    checks.check("hostile neighbours: others lose no message and no notify", outcome.traffic.map(drop));
    let memory = outcome.memory.map(|text| println!("  {text}"));
    checks.check("hostile neighbours: memory and descriptors of the others are bounded", memory);
    checks.check("hostile neighbours: nothing is left after halt", outcome.left);
    Ok(())
}
