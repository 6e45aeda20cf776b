//! How far tasks have read what other hosts have sent them.
use super::Route;
use pvm_core::tid::Tid;

impl Route {
    /// Checks how far a task has read, releases the blocks that it has read, and sets the position at which the task
    /// rings next.
    pub(super) fn update_read_progress(&mut self, task: Tid) {
        loop {
            let read = self.endpoint.read_by(task.0);
            self.intake.consumed_to(task, read);
            if let Some(lent) = self.lent.get_mut(&task) {
                lent.free(read, self.endpoint.kept_by(task.0));
                if lent.is_empty() {
                    self.lent.remove(&task);
                }
            }
            let mark = self.intake.wakeup_mark(task);
            match mark {
                Some(mark) => self.ring_positions.insert(task, mark),
                None => self.ring_positions.remove(&task),
            };
            if !self.endpoint.want_notice(task.0, mark) {
                return;
            }
        }
    }

    pub(super) fn update_all_read_progress(&mut self) {
        self.tasks_past_notice().into_iter().for_each(|task| self.update_read_progress(task));
        self.free_kept();
    }

    /// Frees the blocks that tasks have kept and keep no longer. Nobody waits for these, so tasks do not ring for them.
    pub(super) fn free_kept(&mut self) {
        let endpoint = &mut self.endpoint;
        self.lent.retain(|task, lent| {
            if lent.has_kept() {
                lent.free(0, endpoint.kept_by(task.0));
            }
            !lent.is_empty()
        });
    }

    /// Returns the tasks that have read up to the position at which they are to ring.
    pub(super) fn tasks_past_notice(&mut self) -> Vec<Tid> {
        let endpoint = &mut self.endpoint;
        let ring_positions = self.ring_positions.iter();
        ring_positions.filter(|(task, mark)| endpoint.read_by(task.0) >= **mark).map(|(task, _)| *task).collect()
    }
}
