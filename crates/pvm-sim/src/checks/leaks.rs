//! Nothing is remembered that nobody needs.
use super::Unsettled;
use crate::node::{Life, Node};
use crate::program::{Part, Stage};
use crate::world::{OPERATOR, World};
use pvm_core::proto::Request;

impl World {
    fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.life != Life::Dead)
    }

    /// Nothing waits to be sent. (Some credit may be kept back while its task lives.)
    pub fn nothing_waits(&self) -> Unsettled {
        for node in self.living() {
            let open = if node.flows.held_bytes() > 0 {
                "messages that wait"
            } else if node.intake.arriving() > 0 {
                "parts of messages"
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

    /// Has tasks end that have not; the operator is the last, and leaves no mailbox behind.
    pub fn goes_on(&mut self) -> bool {
        let lives = |part: Part| self.tasks.iter().any(|task| task.part == part && task.stage != Stage::Dead);
        if lives(Part::Worker) {
            return true;
        }
        if !lives(Part::Operator) {
            return false;
        }
        let operator = &self.tasks[OPERATOR];
        if operator.open.is_none() && operator.agenda.is_empty() {
            match self.reset {
                false => self.operate(Request::ResetInfo { name: None, index: None }),
                true => self.signalled(OPERATOR, 0),
            }
            self.reset = true;
        }
        true
    }

    /// Nothing is remembered of any task.
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
            if !node.boards.is_empty() {
                left.push("memory of groups");
            }
            if node.intake.holders().next().is_some() {
                left.push("messages that were handed out");
            }
            if !left.is_empty() {
                return Err((format!("{} remembers {left:?} of tasks that are no more", node.tid), vec![node.tid]));
            }
        }
        self.nothing_waits()
    }
}
