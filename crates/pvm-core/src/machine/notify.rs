//! `pvm_notify` (contract 2.6).
use super::index::{Counts, Index, Ordinal, all_of};
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

/// Who wants to hear of what. What one task wants, and what is wanted of one, is found without a look
/// at all wishes: there may be many, and tasks end all the time.
#[derive(Default)]
pub(super) struct Notify {
    /// By the task that is watched and the one that watches, in the order of asking.
    exits: BTreeMap<(Tid, Tid), Vec<Target>>,
    /// By the host that is watched and the task that watches: the target, and the tid that it asked for.
    deletions: BTreeMap<(Tid, Tid), Vec<(Target, Tid)>>,
    /// The tasks and hosts that each task watches.
    watched: Index<Tid, Tid>,
    /// By task: who hears of new hosts, and how often still (-1: for ever).
    additions: BTreeMap<Tid, Vec<(Target, i32)>>,
    /// Tasks of this host that are watched by tasks of other hosts, and these.
    watchers: Index<Tid, Tid>,
    /// The same from the other side.
    watching: Index<Tid, Tid>,
    /// How many ends of tasks and hosts each task waits for.
    wishes: Counts,
    /// How many pairs of a watched and a watching task there are, by the host of the watched one.
    pairs: Counts,
    /// How many pairs other hosts have here, by the host of the watching one.
    watchers_of: Counts,
}

impl Notify {
    /// Whether the task watches that other one.
    fn watches(&self, task: Tid, tid: Tid) -> bool {
        self.exits.contains_key(&(tid, task))
    }

    pub fn is_idle(&self) -> bool {
        let counts = self.wishes.is_empty() && self.pairs.is_empty() && self.watchers_of.is_empty();
        let far = self.watchers.is_empty() && self.watching.is_empty() && counts;
        self.exits.is_empty()
            && self.deletions.is_empty()
            && self.watched.is_empty()
            && self.additions.is_empty()
            && far
    }
    /// A task has left: it asks no more. Gives the tasks that it watched.
    fn withdraw(&mut self, task: Tid) -> Vec<Tid> {
        self.additions.remove(&task);
        self.wishes.take(task);
        let mut watched = self.watched.take(task);
        watched.iter().for_each(|tid| drop(self.deletions.remove(&(*tid, task))));
        watched.retain(|tid| self.exits.remove(&(*tid, task)).is_some());
        watched.iter().for_each(|tid| self.pairs.subtract(tid.host(), 1));
        watched
    }

    /// Those who watch a task do not any more.
    fn take_exits(&mut self, tid: Tid) -> Vec<Target> {
        let tasks: Vec<Tid> = self.exits.range(all_of(tid)).map(|((_, task), _)| *task).collect();
        tasks.into_iter().flat_map(|task| self.take_exit(tid, task)).collect()
    }

    /// That one does not watch the task any more.
    fn take_exit(&mut self, tid: Tid, task: Tid) -> Vec<Target> {
        self.watched.remove(task, tid);
        let Some(targets) = self.exits.remove(&(tid, task)) else { return Vec::new() };
        self.pairs.subtract(tid.host(), 1);
        self.wishes.subtract(task, targets.len());
        targets
    }

    /// Those who watch a host do not any more.
    fn take_deletions(&mut self, host: Tid) -> Vec<(Target, Tid)> {
        let tasks: Vec<Tid> = self.deletions.range(all_of(host)).map(|((_, task), _)| *task).collect();
        tasks.iter().for_each(|task| _ = self.watched.remove(*task, host));
        let targets = tasks.into_iter().filter_map(|task| self.deletions.remove(&(host, task))).flatten();
        let targets: Vec<(Target, Tid)> = targets.collect();
        targets.iter().for_each(|(target, _)| self.wishes.subtract(target.task, 1));
        targets
    }

    fn watch_exit(&mut self, target: Target, tid: Tid) {
        self.wishes.add(target.task);
        self.watched.insert(target.task, tid);
        let targets = self.exits.entry((tid, target.task)).or_default();
        if targets.is_empty() {
            self.pairs.add(tid.host());
        }
        targets.push(target);
    }

    /// A task of another host watches one of this host.
    fn add_watcher(&mut self, tid: Tid, watcher: Tid) {
        if self.watchers.insert(tid, watcher) {
            self.watching.insert(watcher, tid);
            self.watchers_of.add(watcher.host());
        }
    }

    fn remove_watcher(&mut self, tid: Tid, watcher: Tid) {
        if self.watchers.remove(tid, watcher) {
            self.watching.remove(watcher, tid);
            self.watchers_of.subtract(watcher.host(), 1);
        }
    }
}

impl Machine {
    pub(super) fn ask_notify(&mut self, target: Target, what: i32, count: i32, tids: &[Tid]) -> Result<Reply, Code> {
        let cancel = what & NOTIFY_CANCEL != 0;
        let what = what & !NOTIFY_CANCEL;
        if target.tag < 0 {
            return Err(Code::BadParam);
        }
        if !cancel && !self.may_watch(target.task, what, tids) {
            return Err(Code::OutOfRes);
        }
        match what {
            NOTIFY_TASK_EXIT | NOTIFY_HOST_DELETE if tids.is_empty() => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if !tids.iter().all(|tid| tid.is_task()) => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if cancel => tids.iter().for_each(|tid| self.cancel_exit(target, *tid)),
            NOTIFY_TASK_EXIT => tids.iter().for_each(|tid| self.watch_task(target, *tid)),
            NOTIFY_HOST_DELETE if cancel => tids.iter().for_each(|tid| self.cancel_deletion(target, *tid)),
            NOTIFY_HOST_DELETE => tids.iter().for_each(|tid| self.watch_host(target, *tid)),
            NOTIFY_HOST_ADD => {
                let wishes = self.notify.additions.entry(target.task).or_default();
                wishes.retain(|(other, _)| *other != target);
                if count != 0 && !cancel {
                    wishes.push((target, count));
                }
                if wishes.is_empty() {
                    self.notify.additions.remove(&target.task);
                }
            }
            _ => return Err(Code::BadParam),
        }
        Ok(Reply::Done)
    }

    /// Whether the task may watch all those too.
    fn may_watch(&self, task: Tid, what: i32, tids: &[Tid]) -> bool {
        let (limits, own) = (&self.settings.limits, self.own_host());
        if what == NOTIFY_HOST_ADD {
            return self.notify.additions.get(&task).map_or(0, Vec::len) < limits.task_watches;
        }
        let mut pairs: BTreeMap<Tid, usize> = BTreeMap::new();
        let far = tids.iter().filter(|tid| what == NOTIFY_TASK_EXIT && tid.host() != own);
        far.for_each(|tid| *pairs.entry(tid.host()).or_default() += 1);
        let has_room = |(host, more): (&Tid, &usize)| self.notify.pairs.of(*host) + more <= limits.host_watches;
        self.notify.wishes.of(task) + tids.len() <= limits.task_watches && pairs.iter().all(has_room)
    }

    fn watch_task(&mut self, target: Target, tid: Tid) {
        let here = tid.host() == self.own_host();
        if !self.may_live(tid) {
            return self.tell_notify(target, tid);
        }
        if !here {
            self.watch_far(tid, target.task);
        }
        self.notify.watch_exit(target, tid);
    }

    /// The host of that task tells of its end, unless it is to do so already.
    pub(super) fn watch_far(&mut self, tid: Tid, watcher: Tid) {
        if !self.notify.watches(watcher, tid) && !self.wishes_for(watcher, tid) {
            self.send_host(tid.host(), Frame::Watch { tid, watcher });
        }
    }

    fn cancel_exit(&mut self, target: Target, tid: Tid) {
        let Some(targets) = self.notify.exits.get_mut(&(tid, target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == target) else { return };
        targets.remove(at);
        self.notify.wishes.subtract(target.task, 1);
        if self.notify.exits.get(&(tid, target.task)).is_some_and(Vec::is_empty) {
            self.notify.take_exit(tid, target.task);
        }
        self.unwatch_unless_wanted(target.task, tid);
        self.tell_notify(target, tid);
    }

    pub(super) fn unwatch_unless_wanted(&mut self, watcher: Tid, tid: Tid) {
        let wanted = self.notify.watches(watcher, tid) || self.wishes_for(watcher, tid);
        if tid.host() != self.own_host() && !wanted {
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
            true => {
                self.notify.wishes.add(target.task);
                self.notify.watched.insert(target.task, tid.host());
                self.notify.deletions.entry((tid.host(), target.task)).or_default().push((target, tid));
            }
            false => self.tell_notify(target, tid),
        }
    }

    fn cancel_deletion(&mut self, target: Target, tid: Tid) {
        let Some(targets) = self.notify.deletions.get_mut(&(tid.host(), target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == (target, tid)) else { return };
        targets.remove(at);
        self.notify.wishes.subtract(target.task, 1);
        if targets.is_empty() {
            self.notify.deletions.remove(&(tid.host(), target.task));
            self.notify.watched.remove(target.task, tid.host());
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
        let watchers: Vec<Tid> = self.notify.watchers.of(tid).collect();
        for watcher in watchers {
            self.notify.remove_watcher(tid, watcher);
            self.actions.push_back(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } });
        }
    }

    fn tell_exit(&mut self, tid: Tid) {
        let targets = self.notify.take_exits(tid);
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
            // The host of the watcher keeps to the same limit, if it keeps to any rule.
            true if self.notify.watchers_of.of(watcher.host()) >= self.settings.limits.host_watches => {}
            true => self.notify.add_watcher(tid, watcher),
            false => self.actions.push_back(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } }),
        }
    }

    pub(super) fn unwatched(&mut self, tid: Tid, watcher: Tid) {
        self.notify.remove_watcher(tid, watcher);
    }

    /// A task of another host is no more, and one of this host watches it.
    pub(super) fn announce_far_exit(&mut self, tid: Tid, watcher: Tid) {
        self.forget_wishes_of(tid, Some(watcher));
        let targets = self.notify.take_exit(tid, watcher);
        self.tell_exit_to(&targets, tid);
    }

    /// New hosts can be used.
    pub(super) fn announce_hosts(&mut self, hosts: &[Tid]) {
        let body = Writer::new().int(hosts.len() as i32);
        let body = hosts.iter().fold(body, |body, host| body.int(host.0 as i32)).finish();
        let wishes = std::mem::take(&mut self.notify.additions);
        for (target, count) in wishes.into_values().flatten() {
            self.tell(target.task, target.ctx, target.tag, 0, body.clone());
            // Below zero: for ever.
            if count != 1 {
                let left = if count > 0 { count - 1 } else { count };
                self.notify.additions.entry(target.task).or_default().push((target, left));
            }
        }
    }

    /// A host is no more, and so are its tasks.
    pub(super) fn announce_host_gone(&mut self, host: Tid) {
        self.forget_wishes_of(host, None);
        for (target, tid) in self.notify.take_deletions(host) {
            self.tell_notify(target, tid);
        }
        let tids = remote::tids_of(host);
        let wishes = self.notify.exits.range((*tids.start(), Tid::LEAST)..=(*tids.end(), Tid::MOST));
        let mut tasks: Vec<Tid> = wishes.map(|((tid, _), _)| *tid).collect();
        tasks.dedup();
        tasks.into_iter().for_each(|tid| self.tell_exit(tid));
        for (watcher, tid) in self.notify.watching.take_host(host) {
            self.notify.watchers.remove(tid, watcher);
        }
        self.notify.watchers_of.take(host);
    }
}
