//! Invariant: at most one task at a time holds each server role of the machine.
use crate::ids::TaskId;
use crate::world::World;

impl World {
    /// Checks that no other task is the tracer when this task becomes the tracer.
    pub fn serves_alone(&mut self, task: TaskId) {
        let serves = |other: &TaskId| {
            *other != task
                && self.tasks[*other].is_tracer
                && self.tasks[*other].is_enrolled()
                && self.in_machine(*other)
        };
        let another = (0..self.tasks.len()).find(serves);
        if let (Some(other), true) = (another, self.in_machine(task)) {
            let (tid, other) = (self.tasks[task].tid, self.tasks[other].tid);
            self.checks.fail("servers", &format!("{tid} and {other} are both the tracer"), &[tid, other]);
        }
    }
}
