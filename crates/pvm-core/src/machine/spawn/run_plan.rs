//! What a run orders for the tasks of one of its spawns: their numbers, their input, and names of variables.
//!
//! The order travels as a variable among those of the spawn, such as `HPVM_RUN=first=4,total=7,input=all`. So spawns
//! that are no part of a run need no bytes for it, and a daemon ignores words that it does not know.
use crate::proto::ByteBuf;

/// The variable with the order. The tasks do not get it.
pub const RUN_VARIABLE: &[u8] = b"HPVM_RUN=";
/// The variable that tells the daemon to bind the task to a core.
pub const BIND_VARIABLE: &[u8] = b"HPVM_BIND=core";
/// The variables with a task's number and the number of tasks: in the run or spawn, and among those on its host.
const NUMBERS: [&str; 4] = ["HPVM_TASK_INDEX", "HPVM_TASK_COUNT", "HPVM_LOCAL_INDEX", "HPVM_LOCAL_COUNT"];
/// The most hosts of a machine. A larger number in an order is ignored.
const HOSTS_MAX: i32 = 4095;
/// The names of the same variables in Open MPI.
const MPI_NUMBERS: [&str; 4] =
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"];

/// The tasks that get the input of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InputOf {
    /// The task with this number.
    Task(i32),
    /// No task.
    #[default]
    None,
    /// Each task.
    All,
}

/// What a run orders for the tasks of a spawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunPlan {
    /// The number of the first task, which is not 0 if the run has started other programs before.
    pub first: i32,
    /// The number of tasks of the whole run; `None`: that of the spawn.
    pub total: Option<i32>,
    /// If set, the tasks are dealt to this number of hosts in turn, one to each.
    pub hosts_in_turn: Option<i32>,
    /// The tasks that get the input.
    pub input: InputOf,
    /// Whether the tasks also get the variables of Open MPI.
    pub mpi_names: bool,
    /// Whether each task is bound to a core.
    pub bind: bool,
}

impl RunPlan {
    /// Returns the variable for the spawn.
    pub fn variable(&self) -> Vec<u8> {
        let mut words = vec![format!("first={}", self.first)];
        words.extend(self.total.map(|total| format!("total={total}")));
        words.extend(self.hosts_in_turn.map(|hosts| format!("deal={hosts}")));
        match self.input {
            InputOf::None => {}
            InputOf::Task(number) => words.push(format!("input={number}")),
            InputOf::All => words.push("input=all".into()),
        }
        words.extend(self.mpi_names.then(|| "names=mpi".to_owned()));
        words.extend(self.bind.then(|| "bind=core".to_owned()));
        [RUN_VARIABLE, words.join(",").as_bytes()].concat()
    }

    /// Finds the order among the variables of a spawn; `None` if it belongs to no run.
    pub(super) fn find(environment: &[ByteBuf]) -> Option<RunPlan> {
        let text = environment.iter().find_map(|variable| variable.strip_prefix(RUN_VARIABLE))?;
        let mut plan = RunPlan::default();
        for word in String::from_utf8_lossy(text).split(',') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = value.parse::<i32>().ok().filter(|number| *number >= 0);
            match (name, number) {
                ("first", Some(first)) => plan.first = first,
                ("total", Some(_)) => plan.total = number,
                ("deal", Some(1..=HOSTS_MAX)) => plan.hosts_in_turn = number,
                ("input", Some(number)) => plan.input = InputOf::Task(number),
                ("input", None) if value == "all" => plan.input = InputOf::All,
                ("names", None) => plan.mpi_names = value == "mpi",
                ("bind", None) => plan.bind = value == "core",
                _ => {}
            }
        }
        Some(plan)
    }

    /// Returns the number in the run of a task with this instance number in a spawn of `count` tasks.
    pub fn index(&self, instance: i32, count: i32) -> i32 {
        let index = self.hosts_in_turn.map_or(instance, |hosts| dealt(instance, count, hosts));
        self.first.saturating_add(index)
    }

    /// Returns whether the task with this number gets the input.
    pub(super) fn has_input(&self, index: i32) -> bool {
        match self.input {
            InputOf::None => false,
            InputOf::Task(number) => number == index,
            InputOf::All => true,
        }
    }
}

/// Returns the number of a task if `count` tasks are dealt to `hosts` hosts in turn. `instance` numbers the tasks host
/// by host. The result is different for each task, whatever the hosts really got.
fn dealt(instance: i32, count: i32, hosts: i32) -> i32 {
    let (mut first, count) = (0, count.max(1));
    for host in 0..hosts.clamp(1, count) {
        let share = (count - host - 1) / hosts + 1;
        if instance < first + share {
            return host + (instance - first) * hosts;
        }
        first += share;
    }
    instance
}

/// Sets the variables that tell a task its place. `numbers` are the task's number, the number of all tasks, and the
/// same two among the tasks of the spawn on its host.
pub(super) fn set_numbers(environment: &mut Vec<ByteBuf>, plan: Option<RunPlan>, numbers: [i32; 4]) {
    // A task that passes on its whole environment also passes on its own numbers.
    let is_of_spawner = |variable: &ByteBuf| {
        let name = variable.split(|byte| *byte == b'=').next().unwrap_or_default();
        NUMBERS.iter().any(|number| number.as_bytes() == name) || variable.starts_with(b"HPVM_BIND=")
    };
    environment.retain(|variable| !variable.starts_with(RUN_VARIABLE) && !is_of_spawner(variable));
    let mut set = |names: [&str; 4]| {
        let texts = names.iter().zip(numbers).map(|(name, number)| format!("{name}={number}").into_bytes());
        environment.extend(texts.map(ByteBuf::from));
    };
    set(NUMBERS);
    let Some(plan) = plan else { return };
    if plan.mpi_names {
        set(MPI_NUMBERS);
    }
    if plan.bind {
        environment.push(ByteBuf::from(BIND_VARIABLE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = RunPlan {
            first: 4,
            total: Some(7),
            hosts_in_turn: Some(3),
            input: InputOf::All,
            mpi_names: true,
            bind: true,
        };
        for plan in [plan, RunPlan { input: InputOf::Task(2), bind: false, ..plan }, RunPlan::default()] {
            assert_eq!(RunPlan::find(&[ByteBuf::from(*b"A=1"), ByteBuf::from(plan.variable())]), Some(plan));
        }
        assert_eq!(RunPlan::find(&[ByteBuf::from(*b"HPVM_RUNNER=1")]), None);
        for strange in
            [&b"HPVM_RUN=first=-1,deal=0,what,input=some,total=\xff"[..], b"HPVM_RUN=deal=4096", b"HPVM_RUN="]
        {
            assert_eq!(RunPlan::find(&[ByteBuf::from(strange)]), Some(RunPlan::default()));
        }
        let wild = RunPlan { first: i32::MAX, hosts_in_turn: Some(HOSTS_MAX), ..RunPlan::default() };
        for (instance, count) in [(i32::MAX, i32::MIN), (i32::MAX, i32::MAX), (0, -1), (0, 0)] {
            assert_eq!(wild.index(instance, count), i32::MAX);
        }
    }

    #[test]
    fn tasks_that_are_dealt_have_numbers_in_turn() {
        // Three hosts have the instances 0 to 2, 3 to 4, and 5 to 6.
        let numbers = |count, hosts| (0..count).map(|instance| dealt(instance, count, hosts)).collect::<Vec<_>>();
        assert_eq!(numbers(7, 3), [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(numbers(3, 1), [0, 1, 2]);
        assert_eq!(numbers(2, 5), [0, 1]);
        for (count, hosts) in [(1, 1), (12, 4), (13, 4), (100, 7), (4, 4095)] {
            let mut numbers = numbers(count, hosts);
            numbers.sort_unstable();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(RunPlan { first: 10, hosts_in_turn: Some(3), ..RunPlan::default() }.index(3, 7), 11);
    }

    #[test]
    fn a_task_gets_its_own_numbers_in_place_of_those_of_its_spawner() {
        let given = ["HPVM_TASK_INDEX=9", "HPVM_TASK_INDEXES=x", "HPVM_RUN=first=1", "HPVM_BIND=core"];
        let mut environment: Vec<ByteBuf> = given.iter().map(|text| ByteBuf::from(text.as_bytes())).collect();
        set_numbers(&mut environment, None, [0, 2, 0, 1]);
        let text: Vec<String> = environment.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        let numbers = ["HPVM_TASK_INDEX=0", "HPVM_TASK_COUNT=2", "HPVM_LOCAL_INDEX=0", "HPVM_LOCAL_COUNT=1"];
        assert_eq!(text, [&["HPVM_TASK_INDEXES=x"][..], &numbers].concat());
    }
}
