//! What the state line tells of the waits of this task.

/// The sums that the line tells, and whether it tells of a wait now.
#[derive(Default)]
pub(crate) struct Told {
    /// How many waits have slept.
    pub waits: u32,
    /// How long they have slept, in nanoseconds.
    pub waited_ns: u64,
    /// Whether the line says that the task waits.
    pub is_waiting: bool,
}
