//! The cores of this host, and how many tasks are bound to each (`pvm run --bind-to core`).
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

/// Where the system tells which processors are threads of one core.
const TOPOLOGY: &str = "/sys/devices/system/cpu";

/// A task's claim to a core, which ends when the value is dropped.
#[derive(Debug)]
pub struct Claim(#[allow(dead_code)] Rc<()>);

/// A core: its processors, and a counter of its claims.
struct Core {
    processors: CpuSet,
    claims: Rc<()>,
}

/// The cores that this daemon may use.
#[derive(Default)]
pub struct Cores(Vec<Core>);

impl Cores {
    /// Returns the processors of the core to which the fewest tasks are bound; of several, those of the first.
    pub fn claim(&mut self) -> rustix::io::Result<(CpuSet, Claim)> {
        if self.0.is_empty() {
            self.0 = cores(&sched_getaffinity(None)?, core_of);
        }
        let least = self.0.iter().min_by_key(|core| Rc::strong_count(&core.claims));
        let core = least.ok_or(rustix::io::Errno::NODEV)?;
        Ok((core.processors, Claim(core.claims.clone())))
    }
}

/// Returns the cores of these processors. `core_of` names the core of a processor.
fn cores(allowed: &CpuSet, core_of: impl Fn(usize) -> String) -> Vec<Core> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut cores: Vec<Core> = Vec::new();
    for processor in (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)) {
        let place = *places.entry(core_of(processor)).or_insert(cores.len());
        if place == cores.len() {
            cores.push(Core { processors: CpuSet::new(), claims: Rc::new(()) });
        }
        cores[place].processors.set(processor);
    }
    cores
}

/// Returns a name for the core of a processor. Without the system's list, each processor is a core.
fn core_of(processor: usize) -> String {
    let list = fs::read_to_string(format!("{TOPOLOGY}/cpu{processor}/topology/thread_siblings_list"));
    list.map_or_else(|_| processor.to_string(), |list| list.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_get_the_core_that_has_the_fewest() {
        let mut allowed = CpuSet::new();
        [0, 2, 3, 6].into_iter().for_each(|processor| allowed.set(processor));
        // Processors 2 and 6 are threads of one core.
        let mut cores = Cores(cores(&allowed, |processor| (processor % 4).to_string()));
        let processors = |set: CpuSet| (0..8).filter(|processor| set.is_set(*processor)).collect::<Vec<_>>();
        let mut claims = Vec::new();
        for expected in [vec![0], vec![2, 6], vec![3], vec![0]] {
            let (set, claim) = cores.claim().unwrap();
            assert_eq!(processors(set), expected);
            claims.push(claim);
        }
        drop(claims.remove(1));
        assert_eq!(processors(cores.claim().unwrap().0), [2, 6]);
    }
}
