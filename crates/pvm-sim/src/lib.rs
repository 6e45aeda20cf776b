//! A whole virtual machine in one process: many daemons that run the rules of `pvm-core`, many tasks,
//! and a network and a world that hurt them. All chance comes from a seed, so that every run can be
//! had again.
//!
//! * [`scenario`]: what befalls the machine, as data;
//! * `world`, `queue`, `dice`: everything that there is, time, chance;
//! * `node`, `edge`, `boards`: a daemon, what its edge does, and the memory of groups;
//! * `network`, `carry`, `starts`: links and what they carry, hosts that come and go;
//! * `program`, `library`, `behaviour`, `collect`: tasks;
//! * `checks`: what has to be true;
//! * `trace`, [`report`]: what happened, and how it is told.
#![forbid(unsafe_code)]

mod behaviour;
mod boards;
mod carry;
mod checks;
mod collect;
mod data;
mod dice;
mod edge;
mod library;
mod network;
mod node;
mod program;
mod queue;
pub mod report;
pub mod scenario;
mod starts;
mod trace;
mod world;

pub use checks::Violation;
pub use world::Outcome;

use scenario::Scenario;

/// Runs a scenario with a seed; the outcome is always the same. A panic is one too.
pub fn run(seed: u64, scenario: &Scenario) -> Outcome {
    let world = || world::World::new(seed, scenario.clone(), false).run().0;
    std::panic::catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        let violation = Some(Violation { invariant: "panic", text, hosts: Vec::new() });
        Outcome { hash: 0, events: 0, end: 0, violation }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_machine_in_which_one_host_loses_frames_no_other_is_removed() {
        let text = "hosts 6\ntasks 12\n0 add h2 h3 h4 h5 h6\n0 spawn 12\n3 lossy h3 60 400\n65 quiet";
        let scenario = Scenario::parse(text).unwrap();
        for seed in 0..10 {
            assert_eq!(run(seed, &scenario).violation, None, "seed {seed}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_hash_and_another_seed_another() {
        let hash = |seed: u64| {
            let outcome = run(seed, &Scenario::from_seed(seed, 6, 15));
            assert_eq!(outcome.violation, None, "seed {seed}");
            outcome.hash
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
