//! Invariant: after a halt, or after the loss of the master, no daemon and no task is left.
use super::Unsettled;
use crate::node::NodeState;
use crate::program::Stage;
use crate::world::World;

impl World {
    /// Returns whether no daemon lives.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.state == NodeState::Dead)
    }

    /// Checks that no daemon and no task lives.
    pub fn everything_is_gone(&self) -> Unsettled {
        if let Some(node) = self.nodes.iter().find(|node| node.state != NodeState::Dead) {
            return Err((format!("the daemon of {} still lives", node.tid), vec![node.tid]));
        }
        match self.tasks.iter().find(|task| task.stage != Stage::Dead) {
            Some(task) => Err((format!("{} still lives", task.tid), vec![task.tid.host()])),
            None => Ok(()),
        }
    }
}
