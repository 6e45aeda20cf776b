//! `pvm_notify` (contract 2.6).
use super::Machine;
use crate::codes::{Code, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use crate::encoding::Writer;
use crate::proto::Reply;
use crate::tid::Tid;
use std::collections::BTreeMap;

/// Where a notify message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub task: Tid,
    pub ctx: i32,
    pub tag: i32,
}

/// Who wants to hear of what.
#[derive(Default)]
pub(super) struct Notify {
    /// By the task that is watched, in the order of asking.
    exits: BTreeMap<Tid, Vec<Target>>,
    /// By the host that is watched: the target, and the tid that it asked for.
    deletions: BTreeMap<Tid, Vec<(Target, Tid)>>,
    /// Who hears of new hosts, and how often still (-1: for ever).
    additions: Vec<(Target, i32)>,
}

impl Notify {
    /// A task has ended: it asks no more. Gives those who asked for its exit.
    fn forget(&mut self, task: Tid) -> Vec<Target> {
        self.withdraw(task);
        self.exits.remove(&task).unwrap_or_default()
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.exits.is_empty() && self.deletions.is_empty() && self.additions.is_empty()
    }
    /// A task has left: it asks no more.
    pub fn withdraw(&mut self, task: Tid) {
        self.exits.values_mut().for_each(|targets| targets.retain(|target| target.task != task));
        self.exits.retain(|_, targets| !targets.is_empty());
        self.deletions.values_mut().for_each(|targets| targets.retain(|(target, _)| target.task != task));
        self.deletions.retain(|_, targets| !targets.is_empty());
        self.additions.retain(|(target, _)| target.task != task);
    }
}

impl Machine {
    pub(super) fn ask_notify(&mut self, target: Target, what: i32, count: i32, tids: &[Tid]) -> Result<Reply, Code> {
        let cancel = what & NOTIFY_CANCEL != 0;
        let what = what & !NOTIFY_CANCEL;
        if target.tag < 0 {
            return Err(Code::BadParam);
        }
        match what {
            NOTIFY_TASK_EXIT | NOTIFY_HOST_DELETE if tids.is_empty() => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if !tids.iter().all(|tid| tid.is_task()) => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if cancel => tids.iter().for_each(|tid| self.cancel_exit(target, *tid)),
            NOTIFY_TASK_EXIT => tids.iter().for_each(|tid| self.watch_task(target, *tid)),
            NOTIFY_HOST_DELETE if cancel => tids.iter().for_each(|tid| self.cancel_deletion(target, *tid)),
            NOTIFY_HOST_DELETE => tids.iter().for_each(|tid| self.watch_host(target, *tid)),
            NOTIFY_HOST_ADD => {
                self.notify.additions.retain(|(other, _)| *other != target);
                if count != 0 && !cancel {
                    self.notify.additions.push((target, count));
                }
            }
            _ => return Err(Code::BadParam),
        }
        Ok(Reply::Done)
    }

    fn watch_task(&mut self, target: Target, tid: Tid) {
        match self.tasks.exists(tid) {
            true => self.notify.exits.entry(tid).or_default().push(target),
            false => self.tell_notify(target, tid),
        }
    }

    fn cancel_exit(&mut self, target: Target, tid: Tid) {
        let Some(targets) = self.notify.exits.get_mut(&tid) else { return };
        let Some(at) = targets.iter().position(|other| *other == target) else { return };
        targets.remove(at);
        self.tell_notify(target, tid);
    }

    fn watch_host(&mut self, target: Target, tid: Tid) {
        match self.hosts.is_here(tid) {
            true => self.notify.deletions.entry(tid.host()).or_default().push((target, tid)),
            false => self.tell_notify(target, tid),
        }
    }

    fn cancel_deletion(&mut self, target: Target, tid: Tid) {
        let Some(targets) = self.notify.deletions.get_mut(&tid.host()) else { return };
        let Some(at) = targets.iter().position(|other| *other == (target, tid)) else { return };
        targets.remove(at);
        self.tell_notify(target, tid);
    }

    fn tell_notify(&mut self, target: Target, about: Tid) {
        let body = Writer::new().int(about.0 as i32).finish();
        self.tell(target.task, target.ctx, target.tag, 0, body);
    }

    /// Tells those who asked that the task is no more.
    pub(super) fn announce_exit(&mut self, tid: Tid) {
        for target in self.notify.forget(tid) {
            self.tell_notify(target, tid);
        }
    }
}
