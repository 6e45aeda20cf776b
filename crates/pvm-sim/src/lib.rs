//! A whole virtual machine in one process: many daemons that run the rules of `pvm-core`, many tasks, and a network
//! with faults. All random numbers depend on a seed. Therefore every run can be repeated.
//!
//! * [`scenario`]: the faults and other commands of a run, as data;
//! * `world`, `queue`, `prng`: the whole state, time, random numbers;
//! * `node`, `edge`, `group_memory`: a daemon, its edge, and the shared memory of groups;
//! * `network`, `links`, `data`, `starts`: connections and their contents, hosts that start and end;
//! * `multicast`, `broadcast`: bodies that several hosts receive;
//! * `program`, `library`, `behaviour`, `collect`: tasks;
//! * `checks`: the invariants; `tried`: how often what they are about has occurred;
//! * `trace`, [`report`]: the events of a run, and the report of a failure.
#![forbid(unsafe_code)]

mod behaviour;
mod broadcast;
mod checks;
mod collect;
mod data;
mod edge;
mod group_memory;
mod library;
mod links;
mod multicast;
mod network;
mod node;
mod prng;
mod program;
mod queue;
pub mod report;
pub mod scenario;
mod starts;
mod trace;
mod tried;
mod world;

pub use checks::Violation;
pub use tried::Tried;
pub use world::Outcome;

use scenario::Scenario;

/// Runs a scenario with a seed. The same seed and scenario always have the same outcome. If the run panics, the outcome
/// reports the panic.
pub fn run(seed: u64, scenario: &Scenario) -> Outcome {
    let world = || world::World::new(seed, scenario.clone(), false).run().0;
    std::panic::catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        let violation = Some(Violation { invariant: "panic", text, hosts: Vec::new() });
        Outcome { hash: 0, events: 0, end: 0, violation, tried: Tried::default(), early_data_ends: 0 }
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
    fn a_data_link_that_ends_before_its_link_is_up_is_made_again() {
        // The called daemon learns late that its link is up; meanwhile the data link breaks.
        let snaps: String = (1..50).map(|number| format!("{} snap h1 h2 0.001\n", f64::from(number) / 20.0)).collect();
        let scenario =
            Scenario::parse(&format!("hosts 2\ntasks 4\n0 slow h2 3 0.3\n0 add h2\n0 spawn 4\n{snaps}5 quiet"));
        let scenario = scenario.unwrap();
        let mut early_ends = 0;
        for seed in 0..20 {
            let outcome = run(seed, &scenario);
            assert_eq!(outcome.violation, None, "seed {seed}");
            early_ends += outcome.early_data_ends;
        }
        assert!(early_ends >= 5, "only {early_ends}");
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
