//! `pvm_notify` (contract 2.6).
use super::{Action, Machine, remote};
use crate::codes::{Code, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use crate::encoding::Writer;
use crate::proto::{Reply, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};

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
    /// By the task of this host that is watched: tasks of other hosts that watch it.
    watchers: BTreeMap<Tid, BTreeSet<Tid>>,
}

impl Notify {
    /// Whether the task watches that other one.
    fn watches(&self, task: Tid, tid: Tid) -> bool {
        self.exits.get(&tid).is_some_and(|targets| targets.iter().any(|target| target.task == task))
    }

    pub fn is_idle(&self) -> bool {
        self.exits.is_empty() && self.deletions.is_empty() && self.additions.is_empty() && self.watchers.is_empty()
    }
    /// A task has left: it asks no more. Gives whom it watched.
    fn withdraw(&mut self, task: Tid) -> Vec<Tid> {
        let mut watched = Vec::new();
        for (tid, targets) in &mut self.exits {
            let count = targets.len();
            targets.retain(|target| target.task != task);
            if targets.len() < count {
                watched.push(*tid);
            }
        }
        self.exits.retain(|_, targets| !targets.is_empty());
        self.deletions.values_mut().for_each(|targets| targets.retain(|(target, _)| target.task != task));
        self.deletions.retain(|_, targets| !targets.is_empty());
        self.additions.retain(|(target, _)| target.task != task);
        watched
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
        let here = tid.host() == self.own_host();
        if !self.may_live(tid) {
            return self.tell_notify(target, tid);
        }
        if !here && !self.notify.watches(target.task, tid) {
            self.send_host(tid.host(), Frame::Watch { tid, watcher: target.task });
        }
        self.notify.exits.entry(tid).or_default().push(target);
    }

    fn cancel_exit(&mut self, target: Target, tid: Tid) {
        let Some(targets) = self.notify.exits.get_mut(&tid) else { return };
        let Some(at) = targets.iter().position(|other| *other == target) else { return };
        targets.remove(at);
        if targets.is_empty() {
            self.notify.exits.remove(&tid);
        }
        self.unwatch_unless_wanted(target.task, tid);
        self.tell_notify(target, tid);
    }

    fn unwatch_unless_wanted(&mut self, watcher: Tid, tid: Tid) {
        if tid.host() != self.own_host() && !self.notify.watches(watcher, tid) {
            self.send_host(tid.host(), Frame::Unwatch { tid, watcher });
        }
    }

    /// A task has left: it asks no more.
    pub(super) fn ask_no_more(&mut self, task: Tid) {
        for tid in self.notify.withdraw(task) {
            self.unwatch_unless_wanted(task, tid);
        }
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
        if targets.is_empty() {
            self.notify.deletions.remove(&tid.host());
        }
        self.tell_notify(target, tid);
    }

    fn tell_notify(&mut self, target: Target, about: Tid) {
        let body = Writer::new().int(about.0 as i32).finish();
        self.tell(target.task, target.ctx, target.tag, 0, body);
    }

    /// Tells those who asked that the task of this host is no more.
    pub(super) fn announce_exit(&mut self, tid: Tid) {
        self.ask_no_more(tid);
        self.tell_exit(tid);
        for watcher in self.notify.watchers.remove(&tid).unwrap_or_default() {
            self.actions.push_back(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } });
        }
    }

    fn tell_exit(&mut self, tid: Tid) {
        let targets = self.notify.exits.remove(&tid).unwrap_or_default();
        self.tell_exit_to(&targets, tid);
    }

    fn tell_exit_to(&mut self, targets: &[Target], tid: Tid) {
        if tid.host() != self.own_host() {
            let watchers: BTreeSet<Tid> = targets.iter().map(|target| target.task).collect();
            watchers.into_iter().for_each(|watcher| self.send(watcher, ToTask::Ended(tid)));
        }
        for target in targets {
            self.tell_notify(*target, tid);
        }
    }

    // ----- other hosts

    /// A task of another host wants to hear of the end of one of this host.
    pub(super) fn watched(&mut self, tid: Tid, watcher: Tid) {
        match self.tasks.exists(tid) {
            true => drop(self.notify.watchers.entry(tid).or_default().insert(watcher)),
            false => self.actions.push_back(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } }),
        }
    }

    pub(super) fn unwatched(&mut self, tid: Tid, watcher: Tid) {
        let Some(watchers) = self.notify.watchers.get_mut(&tid) else { return };
        watchers.remove(&watcher);
        if watchers.is_empty() {
            self.notify.watchers.remove(&tid);
        }
    }

    /// A task of another host is no more, and one of this host watches it.
    pub(super) fn announce_far_exit(&mut self, tid: Tid, watcher: Tid) {
        let Some(targets) = self.notify.exits.remove(&tid) else { return };
        let (theirs, others): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| target.task == watcher);
        if !others.is_empty() {
            self.notify.exits.insert(tid, others);
        }
        self.tell_exit_to(&theirs, tid);
    }

    /// New hosts can be used.
    pub(super) fn announce_hosts(&mut self, hosts: &[Tid]) {
        let body = Writer::new().int(hosts.len() as i32);
        let body = hosts.iter().fold(body, |body, host| body.int(host.0 as i32)).finish();
        for (target, count) in std::mem::take(&mut self.notify.additions) {
            self.tell(target.task, target.ctx, target.tag, 0, body.clone());
            // Below zero: for ever.
            if count != 1 {
                self.notify.additions.push((target, if count > 0 { count - 1 } else { count }));
            }
        }
    }

    /// A host is no more, and so are its tasks.
    pub(super) fn announce_host_gone(&mut self, host: Tid) {
        for (target, tid) in self.notify.deletions.remove(&host).unwrap_or_default() {
            self.tell_notify(target, tid);
        }
        let tasks: Vec<Tid> = self.notify.exits.range(remote::tids_of(host)).map(|(tid, _)| *tid).collect();
        tasks.into_iter().for_each(|tid| self.tell_exit(tid));
        self.notify.watchers.values_mut().for_each(|watchers| watchers.retain(|watcher| watcher.host() != host));
        self.notify.watchers.retain(|_, watchers| !watchers.is_empty());
    }
}
