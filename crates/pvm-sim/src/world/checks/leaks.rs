//! Invariant: daemons keep no state that is no longer needed.
use super::Unsettled;
use crate::node::{Node, NodeState};
use crate::program::{ProgramRole, Stage};
use crate::world::{OPERATOR, World};
use pvm_core::proto::Request;

impl World {
    fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.state != NodeState::Dead)
    }

    /// Checks that nothing waits to be sent. Credit is an exception: a daemon may withhold some while the receiving
    /// task lives.
    pub fn nothing_waits(&self) -> Unsettled {
        for node in self.living() {
            let open = if node.flows.held_bytes() > 0 {
                "messages that wait"
            } else if node.inbound.arriving() > 0 || !node.held.is_empty() {
                "parts of messages"
            } else if !node.pacer.is_idle() {
                "hosts that were granted bytes which they do not send"
            } else {
                continue;
            };
            return Err((format!("{} has {open}", node.tid), vec![node.tid]));
        }
        match self.links.iter().find(|link| link.closed == [false; 2] && !link.is_quiet()) {
            Some(link) => {
                let hosts = link.ends.map(|node| self.nodes[node].tid);
                Err((format!("something is on its way between {hosts:?}"), hosts.to_vec()))
            }
            None => Ok(()),
        }
    }

    /// Returns whether any task still lives. When only the operator is left, lets it delete all mailboxes and then end.
    pub fn end_next_task(&mut self) -> bool {
        let lives = |role: ProgramRole| self.tasks.iter().any(|task| task.role == role && task.stage != Stage::Dead);
        if lives(ProgramRole::Worker) {
            return true;
        }
        if !lives(ProgramRole::Operator) {
            return false;
        }
        let operator = &self.tasks[OPERATOR];
        if operator.open.is_none() && operator.planned_requests.is_empty() {
            match self.reset_queued {
                false => self.queue_operator_request(Request::ResetInfo { name: None, index: None }),
                true => self.signalled(OPERATOR, 0),
            }
            self.reset_queued = true;
        }
        true
    }

    /// Checks that no daemon keeps state about any task.
    pub fn nothing_leaks(&self) -> Unsettled {
        for node in self.living() {
            let mut left = node.machine.leftovers();
            if !node.flows.is_idle() {
                left.push("flows");
            }
            if !node.kept.is_empty() {
                left.push("frames");
            }
            if !node.tasks.is_empty() {
                left.push("tids");
            }
            if !node.group_memories.is_empty() {
                left.push("memory of groups");
            }
            if node.inbound.holders().next().is_some() {
                left.push("messages that were handed out");
            }
            if !left.is_empty() {
                return Err((format!("{} remembers {left:?} of tasks that are no more", node.tid), vec![node.tid]));
            }
        }
        self.nothing_waits()
    }
}
