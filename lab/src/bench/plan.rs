//! Which programs run on which systems, how often, and for how long.
use super::systems::System;
use std::time::Duration;

/// How the programs of a group are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Our benchmark programs, with this number of tasks.
    Ours(usize),
    /// Our programs that measure memory, with this number of tasks.
    Memory(usize),
    /// Debian's `NPpvm`.
    NetPipe,
}

/// Programs that run on several systems in turn.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// The name for `--only`.
    pub name: &'static str,
    /// The measure that the programs get as an argument.
    pub measure: &'static str,
    /// How they are started.
    pub kind: Kind,
    /// The systems that take part.
    pub systems: &'static [System],
    /// What else uses the cores while the programs run.
    pub beside: Beside,
    /// How often the programs run on each system.
    pub rounds: usize,
    /// How often a program repeats each of its measurements.
    pub repetitions: usize,
    /// The shortest time of a repetition, in ms.
    pub repetition_ms: usize,
    /// The time after which a program is ended.
    pub time_max: Duration,
}

/// What else uses the cores while programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// This number of processes that use a core each.
    Busy(usize),
    /// A process that runs for 1 ms of every 5.
    Part,
    /// A second copy of the programs.
    Pair,
    /// Nothing, but a control group limits the programs to 1.5 cores.
    Quota,
}

/// How long the benchmark may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// `--short`
    Short,
    /// Several minutes, for figures that are published.
    Full,
}

use System::{Hpvm, IntelMpi, Limit, Mpich, NewestMpich, NewestOpenMpi, OpenMpi, Pvm, PvmDirect};

/// The shortest time of a repetition in a full run, in ms.
const REPETITION_MS: usize = 15;
/// How long a task keeps its core while other tasks wait for the core, in ms. With more tasks than cores, a repetition
/// must give each task a turn; otherwise its time depends on the state in which the previous repetition left the tasks.
const TURN_MS: usize = 3;

const MESSAGES: &[System] = &[Limit, Hpvm, Pvm, PvmDirect, OpenMpi, NewestOpenMpi, Mpich, NewestMpich, IntelMpi];
const LONG_MESSAGES: &[System] = &super::systems::ALL;
/// The systems for many tasks. MPICH and Intel MPI are not among them: their tasks spin, so each step takes a whole time
/// slice of the kernel.
const MANY: &[System] = &[Hpvm, Pvm, PvmDirect, OpenMpi, NewestOpenMpi];
/// The systems for calls of groups with a core for each task.
const PAIR: &[System] = &[Hpvm, Pvm, PvmDirect, OpenMpi, NewestOpenMpi, Mpich, NewestMpich, IntelMpi];
/// The systems for messages while other processes use the cores.
const LOADED: &[System] = &[Hpvm, Pvm, PvmDirect, OpenMpi, NewestOpenMpi, NewestMpich, IntelMpi];
/// The systems for memory.
const MEMORY: &[System] = &[Hpvm, Pvm, OpenMpi, NewestOpenMpi, Mpich, NewestMpich, IntelMpi];
const PVMS: &[System] = &[Hpvm, Pvm, PvmDirect];
/// The systems for measures that do not depend on PVM's route.
const TWO_PVMS: &[System] = &[Hpvm, Pvm];

/// Returns the groups, in the order in which they run.
pub fn groups(effort: Effort) -> Vec<Group> {
    let full = effort == Effort::Full;
    let rounds = |full_rounds, short_rounds| if full { full_rounds } else { short_rounds };
    let group = |name, tasks, systems, rounds| Group {
        name,
        measure: name,
        kind: Kind::Ours(tasks),
        systems,
        beside: Beside::Nothing,
        rounds,
        repetitions: if full { 3 } else { 2 },
        repetition_ms: if full { REPETITION_MS } else { 5 },
        time_max: Duration::from_secs(if full { 60 } else { 30 }),
    };
    let idle = |measure, tasks| Group {
        measure,
        repetitions: 1,
        repetition_ms: if full { 10_000 } else { 2_000 },
        ..group("idle", tasks, TWO_PVMS, 1)
    };
    let members = |measure, tasks: usize| Group {
        measure,
        repetitions: if full { 3 } else { 1 },
        repetition_ms: if full { (TURN_MS * tasks).max(REPETITION_MS) } else { 5 },
        ..group("groups", tasks, MANY, rounds(5, 2))
    };
    let loaded = |measure, beside| Group {
        measure,
        beside,
        // A repetition lasts many time slices of the kernel.
        repetition_ms: if full { 120 } else { 40 },
        ..group("loaded", 2, LOADED, rounds(7, 2))
    };
    let memory =
        |measure, tasks, systems| Group { measure, kind: Kind::Memory(tasks), ..group("memory", tasks, systems, 1) };
    vec![
        group("latency", 2, MESSAGES, rounds(7, 3)),
        Group { repetitions: 2, ..group("bandwidth", 2, LONG_MESSAGES, rounds(7, 3)) },
        group("rate", 2, MESSAGES, rounds(7, 3)),
        group("ring", 32, MANY, rounds(5, 2)),
        group("mcast", 32, PVMS, rounds(7, 3)),
        Group { repetitions: 2, ..group("spawn", 32, TWO_PVMS, rounds(7, 3)) },
        // PVM 3.4.6 cannot have 1000 tasks: its select() has 1024 descriptors.
        Group { measure: "starts", repetitions: 2, ..group("spawn", 2, &[Limit, Hpvm], rounds(7, 3)) },
        Group { systems: PAIR, ..members("groups-2", 2) },
        members("groups-4", 4),
        members("groups-8", 8),
        members("groups-16", 16),
        members("groups-32", 32),
        idle("idle-2", 2),
        idle("idle-32", 32),
        loaded("loaded-1", Beside::Busy(1)),
        loaded("loaded-2", Beside::Busy(2)),
        loaded("loaded-part", Beside::Part),
        loaded("loaded-pair", Beside::Pair),
        loaded("loaded-quota", Beside::Quota),
        memory("memory-1", 1, MEMORY),
        memory("memory-32", 32, MEMORY),
        // A thousand ranks of an MPI take minutes to start.
        memory("memory-1000", 1000, &[Hpvm]),
        Group { kind: Kind::NetPipe, ..group("netpipe", 2, TWO_PVMS, 1) },
    ]
}
