//! Invariant: every request is answered once, with an answer that can be true.
use super::{Checks, Unsettled};
use crate::program::{Open, Stage};
use crate::queue::SECOND;
use crate::world::{OPERATOR, World};
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// What the check knows from the answers and from the ends of tasks.
#[derive(Default)]
pub struct Requests {
    /// The tids that spawns have returned.
    spawned: BTreeSet<Tid>,
    /// Contexts and their owners.
    contexts: BTreeMap<i32, Tid>,
    /// Tasks that have ended.
    ended: BTreeSet<Tid>,
}

impl Requests {
    fn spawned(&mut self, count: i32, tids: &[i32]) -> Result<(), String> {
        if tids.len() != count as usize {
            return Err(format!("a spawn of {count} gave {tids:?}"));
        }
        let fresh = |tid: &&i32| **tid > 0 && !self.spawned.insert(Tid(**tid as u32));
        match tids.iter().find(fresh) {
            Some(tid) => Err(format!("t{tid:x} was spawned twice")),
            None => Ok(()),
        }
    }

    fn context(&mut self, owner: Tid, context: i32) -> Result<(), String> {
        match self.contexts.insert(context, owner) {
            Some(other) if !self.ended.contains(&other) => {
                Err(format!("{owner} got the context {context:#x}, which is {other}'s"))
            }
            _ => Ok(()),
        }
    }

    fn list(tids: &[Tid]) -> Result<(), String> {
        let different: BTreeSet<Tid> = tids.iter().copied().collect();
        match different.len() == tids.len() {
            true => Ok(()),
            false => Err(format!("a list has somebody twice: {tids:?}")),
        }
    }

    fn answered(&mut self, tid: Tid, request: &Request, reply: &Reply) -> Result<(), String> {
        match (request, reply) {
            (Request::Spawn(spawn), Reply::Tids(tids)) => return self.spawned(spawn.count, tids),
            (Request::NewContext, Reply::Int(context)) => return self.context(tid, *context),
            (Request::FreeContext(context), Reply::Done) => drop(self.contexts.remove(context)),
            (Request::Tasks(_), Reply::Tasks(tasks)) => {
                return Requests::list(&tasks.iter().map(|task| task.tid).collect::<Vec<_>>());
            }
            (Request::Config, Reply::Hosts { hosts, .. }) => {
                return Requests::list(&hosts.iter().map(|host| host.tid).collect::<Vec<_>>());
            }
            (Request::AddHosts(names), Reply::AddedHosts { count, hosts, .. }) => {
                let good = hosts.iter().filter(|tid| **tid > 0).count();
                if good != *count as usize || hosts.len() != names.len() {
                    return Err(format!("an add of {} gave {count}, {hosts:?}", names.len()));
                }
            }
            (Request::Siblings, Reply::Tids(tids)) if tids.contains(&(tid.0 as i32)) => {}
            (Request::Siblings, other) => return Err(format!("{tid} has the siblings {other:?}")),
            (Request::DeleteHosts(names) | Request::DrainHosts { names, .. }, Reply::Codes(codes))
                if names.len() == codes.len() => {}
            (Request::HostStatus(_) | Request::TaskStatus(_), Reply::Code(_)) => {}
            (Request::HostSync(_), Reply::Clock { .. }) => {}
            (Request::Connect(_) | Request::Notify { .. }, Reply::Done) => {}
            (Request::Signal { .. } | Request::SignalGroup { .. }, Reply::Done) => {}
            (Request::Input { .. }, Reply::Done | Reply::Error(Code::NoTask | Code::Already)) => {}
            (Request::ResetInfo { .. } | Request::LeaveGroup(_) | Request::Halt, Reply::Done) => {}
            (Request::Barrier { .. } | Request::LanBarrier { .. }, Reply::Done | Reply::Released(_)) => {}
            // A barrier outlives the master.
            (Request::Barrier { .. } | Request::LanBarrier { .. }, Reply::Error(Code::HostFail)) => {
                return Err(format!("{tid} asked {request:?} and got {reply:?}"));
            }
            (Request::SetTracer(_), Reply::Done) => {}
            (Request::SetGroupHost(_), Reply::Done) => {}
            (Request::Register { .. }, Reply::Int(_)) => {}
            (Request::PutInfo { .. } | Request::DeleteInfo { .. }, Reply::Int(_)) => {}
            (Request::ExitStatus(_), Reply::Ended(_)) => {}
            (Request::RecvInfo { .. }, Reply::Info(_)) => {}
            (Request::MailboxInfo { .. }, Reply::Mailboxes(_)) => {}
            (Request::JoinGroup(_) | Request::Group(_), Reply::Group { .. }) => {}
            (Request::Tickle(_), Reply::Ints(_)) => {}
            // The host is just ending.
            (Request::Spawn(_), Reply::Error(Code::SysErr)) => {}
            (Request::Spawn(_) | Request::NewContext | Request::Config, other) => {
                return Err(format!("{tid} asked {request:?} and got {other:?}"));
            }
            (_, Reply::Error(_)) => {}
            (_, other) => return Err(format!("{tid} asked {request:?} and got {other:?}")),
        }
        Ok(())
    }
}

impl Checks {
    /// Notes a request of a task.
    pub fn asked(&mut self, tid: Tid, request: &Request) {
        self.notifies.asked(tid, request);
    }

    /// Checks the answer to a request.
    pub fn replied(&mut self, tid: Tid, request: &Request, reply: &Reply) {
        let result = self.requests.answered(tid, request, reply);
        self.take("requests", result, &[tid]);
        let result = self.notifies.answered(tid, request, reply);
        self.take("notifies", result, &[tid]);
    }

    /// Notes that a task or its host has ended.
    pub fn task_ended(&mut self, tid: Tid) {
        self.requests.ended.insert(tid);
    }
}

impl World {
    /// Returns whether a request may stay unanswered in the current state.
    fn may_wait(&self, open: &Open) -> bool {
        match &open.request {
            Request::ExitStatus(tid) => self
                .by_tid
                .get(tid)
                .is_some_and(|task| self.tasks[*task].stage != Stage::Dead && self.in_machine(*task)),
            // The operator, who fills all mailboxes in the end, is no more.
            Request::RecvInfo { .. } => self.tasks[OPERATOR].stage == Stage::Dead,
            // Another invariant covers this wait.
            Request::Barrier { .. } | Request::LanBarrier { .. } => true,
            _ => false,
        }
    }

    /// Checks that no task waits for an answer, and that the operator has sent all its requests.
    pub fn requests_are_answered(&self) -> Unsettled {
        for (number, task) in self.tasks.iter().enumerate() {
            let Some(open) = &task.open else { continue };
            if task.is_enrolled() && self.in_machine(number) && !self.may_wait(open) {
                let seconds = (self.now - open.at) / SECOND;
                let text = format!("{} has waited {seconds} s for an answer to {:?}", task.tid, open.request);
                return Err((text, vec![task.tid.host()]));
            }
        }
        let operator = &self.tasks[OPERATOR];
        match operator.planned_requests.is_empty() || operator.stage == Stage::Dead {
            true => Ok(()),
            false => Err(("the operator has not done all that it had to".into(), vec![Tid::host_number(1)])),
        }
    }
}
