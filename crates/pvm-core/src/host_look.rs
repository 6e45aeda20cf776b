//! What a daemon sees of the tasks of its host when somebody asks: the answer to `Request::Look`.
//!
//! A **look** takes nothing from the tasks and tells them nothing. It also says which messages the daemon still carries, so that
//! whoever compares two looks knows whether something may still arrive ([`crate::waiting`]).
#![allow(missing_docs)] // the sentence above each type names its fields
use crate::state_line::StateLine;
use crate::task_info::{TaskInfo, TaskKind};
use crate::tid::Tid;
use serde::{Deserialize, Serialize};

/// The most tasks in `HostLook::under_way`.
///
/// * Filled by: messages between hosts
/// * Setting: none, with more the list is not complete, and says so
/// * Reached: `HostLook::carries_more` is set, and nobody is said to be in a deadlock
/// * Test: `a_look_names_only_so_many_receivers`
pub const UNDER_WAY_MAX: usize = 4096;

/// What a daemon sees of its host.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
pub struct HostLook {
    /// The monotonic clock of the host, in nanoseconds.
    pub now_ns: u64,
    pub load: HostLoad,
    pub tasks: Vec<TaskLook>,
    /// What has come from each other host, and what was sent to it.
    pub links: Vec<LinkLook>,
    /// The tasks of all hosts to which this daemon holds messages: the first [`UNDER_WAY_MAX`].
    pub under_way: Vec<Tid>,
    /// Whether there are more.
    pub carries_more: bool,
}

/// How busy a host is: its processors, how many processes ran or wanted to in the last minute (in hundredths), its memory, and
/// how much of that is available.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostLoad {
    pub cores: u32,
    pub running_hundredths: u32,
    pub memory_bytes: u64,
    pub memory_available_bytes: u64,
}

/// A task. `is_asleep`: it waits in the call of its state line, has found nothing there, and nothing that has arrived
/// since is about to wake it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TaskLook {
    pub info: TaskInfo,
    pub kind: TaskKind,
    pub presence: Presence,
    /// What the task says of itself; `None` if it has said nothing yet, or nothing that makes sense.
    pub line: Option<StateLine>,
    pub is_asleep: bool,
    pub traffic: Traffic,
    /// `None` if the daemon cannot see the process.
    pub process: Option<ProcessLook>,
}

/// How many messages and bytes a task has sent and received, by route: through shared memory, through the daemons, on direct
/// links, on a fabric. A multicast through the daemons counts once for its sender. The task counts itself, so the numbers are
/// what it says.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub sent: [Count; ROUTES],
    pub received: [Count; ROUTES],
}

/// The names of the routes in [`Traffic`].
pub const ROUTE_NAMES: [&str; ROUTES] = ["memory", "daemons", "direct", "fabric"];
const ROUTES: usize = 4;

/// Messages, and their bytes.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub messages: u64,
    pub bytes: u64,
}

impl Traffic {
    /// Makes it of the words in the task's memory: for each direction and route, the messages and the bytes.
    pub fn of_words(words: &[u64; 4 * ROUTES]) -> Traffic {
        let count = |at: usize| Count { messages: words[2 * at], bytes: words[2 * at + 1] };
        Traffic { sent: std::array::from_fn(count), received: std::array::from_fn(|route| count(ROUTES + route)) }
    }
}

impl Count {
    /// Returns the sum over all routes. What a task says may be anything.
    pub fn sum(counts: &[Count]) -> Count {
        counts.iter().fold(Count::default(), |sum, count| Count {
            messages: sum.messages.saturating_add(count.messages),
            bytes: sum.bytes.saturating_add(count.bytes),
        })
    }
}

/// Whether a task is in the machine.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Its process has been started, and has called nothing yet.
    Started,
    /// It is enrolled.
    Enrolled,
    /// It has left the machine, and its process goes on.
    Left,
}

/// The process of a task, as the system shows it. `ticks`: the processor time that it has used, in ticks of the clock.
/// `memory_bytes`: the memory that it has at present.
/// `catches_timers`: it catches signals that come by themselves, of timers or descriptors, and may do something then.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLook {
    pub activity: Activity,
    pub threads: u32,
    pub ticks: u64,
    pub memory_bytes: u64,
    pub catches_timers: bool,
}

/// What a process does.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or wants a core.
    Runs,
    /// It sleeps.
    Sleeps,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Ended,
}

/// The data link to a host, as positions in the bytes of each direction: what had been received from the host when the daemon
/// began to look, and what had been handed to the link when it ended.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLook {
    pub host: Tid,
    pub received: u64,
    pub sent: u64,
}

impl HostLook {
    /// Sets the receivers of messages that the daemon holds.
    pub fn set_under_way(&mut self, mut receivers: Vec<Tid>) {
        receivers.sort();
        receivers.dedup();
        self.carries_more |= receivers.len() > UNDER_WAY_MAX;
        receivers.truncate(UNDER_WAY_MAX);
        self.under_way = receivers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_names_only_so_many_receivers() {
        let mut look = HostLook::default();
        look.set_under_way([9, 8, 9].map(Tid).to_vec());
        assert_eq!((look.under_way.as_slice(), look.carries_more), (&[Tid(8), Tid(9)][..], false));
        look.set_under_way((0..UNDER_WAY_MAX as u32 + 1).map(Tid).collect());
        assert_eq!((look.under_way.len(), look.carries_more), (UNDER_WAY_MAX, true));
    }
}
