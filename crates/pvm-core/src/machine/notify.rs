//! `pvm_notify` (contract 2.6).
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::{Counts, Index, Ordinal, all_of, tids_of};
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

/// What a task wants to be told, and a resource manager was asked to tell it.
struct Delegated {
    manager: Tid,
    target: Target,
    what: i32,
    count: i32,
    tids: Vec<Tid>,
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
    /// What managers were asked to tell.
    delegated: Vec<Delegated>,
}

impl SubMachine for Notify {
    fn name(&self) -> &'static str {
        "notifies"
    }
    fn is_idle(&self) -> bool {
        let counts = self.wishes.is_empty() && self.pairs.is_empty() && self.watchers_of.is_empty();
        let far = self.watchers.is_empty() && self.watching.is_empty() && counts;
        self.exits.is_empty()
            && self.deletions.is_empty()
            && self.watched.is_empty()
            && self.additions.is_empty()
            && self.delegated.is_empty()
            && far
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, .. } => {
                self.ask_no_more(core, *tid);
                self.manager_gone(core, |manager| manager == *tid);
                self.forget_delegated(core, |one, _| one.target.task == *tid);
            }
            Event::TaskGone { tid, .. } => {
                self.forget_delegated_about(core, *tid, None);
                self.announce_exit(core, *tid);
            }
            Event::ClientLeft { tid, .. } | Event::ManagerGone(tid) => {
                self.manager_gone(core, |manager| manager == *tid);
            }
            Event::HostGone(host) => {
                // Other hosts wait for what the master says of the manager.
                if core.is_master() {
                    self.manager_gone(core, |manager| manager.host() == *host);
                }
                self.announce_host_gone(core, *host);
            }
            Event::HostsJoined(hosts) => self.announce_hosts(core, hosts),
            _ => {}
        }
    }
}

impl Notify {
    /// Whether the task watches that other one.
    fn watches(&self, task: Tid, tid: Tid) -> bool {
        self.exits.contains_key(&(tid, task))
    }

    /// A task has left: it asks no more. Returns the tasks that it watched.
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

fn tell(core: &mut Core, target: Target, about: Tid) {
    let body = Writer::new().int(about.0 as i32).finish();
    core.tell(target.task, target.ctx, target.tag, 0, body);
}

impl Notify {
    /// Does what `pvm_notify` asks for.
    pub fn ask(&mut self, core: &mut Core, target: Target, what: i32, count: i32, tids: &[Tid]) -> Result<Reply, Code> {
        let cancel = what & NOTIFY_CANCEL != 0;
        let what = what & !NOTIFY_CANCEL;
        if target.tag < 0 {
            return Err(Code::BadParam);
        }
        if !cancel && !self.may_watch(core, target.task, what, tids) {
            return Err(Code::OutOfRes);
        }
        match what {
            NOTIFY_TASK_EXIT | NOTIFY_HOST_DELETE if tids.is_empty() => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if !tids.iter().all(|tid| tid.is_task()) => return Err(Code::BadParam),
            NOTIFY_TASK_EXIT if cancel => tids.iter().for_each(|tid| self.cancel_exit(core, target, *tid)),
            NOTIFY_TASK_EXIT => tids.iter().for_each(|tid| self.watch_task(core, target, *tid)),
            NOTIFY_HOST_DELETE if cancel => tids.iter().for_each(|tid| self.cancel_deletion(core, target, *tid)),
            NOTIFY_HOST_DELETE => tids.iter().for_each(|tid| self.watch_host(core, target, *tid)),
            NOTIFY_HOST_ADD => {
                let wishes = self.additions.entry(target.task).or_default();
                wishes.retain(|(other, _)| *other != target);
                if count != 0 && !cancel {
                    wishes.push((target, count));
                }
                if wishes.is_empty() {
                    self.additions.remove(&target.task);
                }
            }
            _ => return Err(Code::BadParam),
        }
        Ok(Reply::Done)
    }

    /// Whether the task may watch all those too.
    fn may_watch(&self, core: &Core, task: Tid, what: i32, tids: &[Tid]) -> bool {
        let (limits, own) = (&core.settings.limits, core.own_host());
        if what == NOTIFY_HOST_ADD {
            return self.additions.get(&task).map_or(0, Vec::len) < limits.task_watches;
        }
        let mut pairs: BTreeMap<Tid, usize> = BTreeMap::new();
        let far = tids.iter().filter(|tid| what == NOTIFY_TASK_EXIT && tid.host() != own);
        far.for_each(|tid| *pairs.entry(tid.host()).or_default() += 1);
        let has_room = |(host, more): (&Tid, &usize)| self.pairs.of(*host) + more <= limits.host_watches;
        self.wishes.of(task) + tids.len() <= limits.task_watches && pairs.iter().all(has_room)
    }

    fn watch_task(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let here = tid.host() == core.own_host();
        if !core.may_live(tid) {
            return tell(core, target, tid);
        }
        if !here {
            self.watch_far(core, tid, target.task);
        }
        self.watch_exit(target, tid);
    }

    /// The host of that task tells of its end, unless it is to do so already.
    fn watch_far(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        if !self.watches(watcher, tid) && !self.is_delegated(watcher, tid) {
            core.send_host(tid.host(), Frame::Watch { tid, watcher });
        }
    }

    fn cancel_exit(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let Some(targets) = self.exits.get_mut(&(tid, target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == target) else { return };
        targets.remove(at);
        self.wishes.subtract(target.task, 1);
        if self.exits.get(&(tid, target.task)).is_some_and(Vec::is_empty) {
            self.take_exit(tid, target.task);
        }
        self.unwatch_unless_wanted(core, target.task, tid);
        tell(core, target, tid);
    }

    fn unwatch_unless_wanted(&mut self, core: &mut Core, watcher: Tid, tid: Tid) {
        let wanted = self.watches(watcher, tid) || self.is_delegated(watcher, tid);
        if tid.host() != core.own_host() && !wanted {
            core.send_host(tid.host(), Frame::Unwatch { tid, watcher });
        }
    }

    /// A task has left: it asks no more.
    fn ask_no_more(&mut self, core: &mut Core, task: Tid) {
        for tid in self.withdraw(task) {
            self.unwatch_unless_wanted(core, task, tid);
        }
    }

    fn watch_host(&mut self, core: &mut Core, target: Target, tid: Tid) {
        match core.hosts.is_here(tid) {
            true => {
                self.wishes.add(target.task);
                self.watched.insert(target.task, tid.host());
                self.deletions.entry((tid.host(), target.task)).or_default().push((target, tid));
            }
            false => tell(core, target, tid),
        }
    }

    fn cancel_deletion(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let Some(targets) = self.deletions.get_mut(&(tid.host(), target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == (target, tid)) else { return };
        targets.remove(at);
        self.wishes.subtract(target.task, 1);
        if targets.is_empty() {
            self.deletions.remove(&(tid.host(), target.task));
            self.watched.remove(target.task, tid.host());
        }
        tell(core, target, tid);
    }

    /// Tells those who asked that the task of this host is no more.
    fn announce_exit(&mut self, core: &mut Core, tid: Tid) {
        self.ask_no_more(core, tid);
        self.tell_exit(core, tid);
        let watchers: Vec<Tid> = self.watchers.of(tid).collect();
        for watcher in watchers {
            self.remove_watcher(tid, watcher);
            core.push(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } });
        }
    }

    fn tell_exit(&mut self, core: &mut Core, tid: Tid) {
        let targets = self.take_exits(tid);
        self.tell_exit_to(core, &targets, tid);
    }

    fn tell_exit_to(&mut self, core: &mut Core, targets: &[Target], tid: Tid) {
        if tid.host() != core.own_host() {
            let watchers: BTreeSet<Tid> = targets.iter().map(|target| target.task).collect();
            watchers.into_iter().for_each(|watcher| core.send(watcher, ToTask::Ended(tid)));
        }
        for target in targets {
            tell(core, *target, tid);
        }
    }

    // ----- other hosts

    /// A task of another host wants to hear of the end of one of this host.
    pub fn watched(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        match core.tasks.exists(tid) {
            // The host of the watcher keeps to the same limit, if it keeps to any rule.
            true if self.watchers_of.of(watcher.host()) >= core.settings.limits.host_watches => {}
            true => self.add_watcher(tid, watcher),
            false => core.push(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } }),
        }
    }

    pub fn unwatched(&mut self, tid: Tid, watcher: Tid) {
        self.remove_watcher(tid, watcher);
    }

    /// A task of another host is no more, and one of this host watches it.
    pub fn died_elsewhere(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        self.forget_delegated_about(core, tid, Some(watcher));
        let targets = self.take_exit(tid, watcher);
        self.tell_exit_to(core, &targets, tid);
    }

    /// New hosts can be used.
    fn announce_hosts(&mut self, core: &mut Core, hosts: &[Tid]) {
        let body = Writer::new().int(hosts.len() as i32);
        let body = hosts.iter().fold(body, |body, host| body.int(host.0 as i32)).finish();
        let wishes = std::mem::take(&mut self.additions);
        for (target, count) in wishes.into_values().flatten() {
            core.tell(target.task, target.ctx, target.tag, 0, body.clone());
            // Below zero: for ever.
            if count != 1 {
                let left = if count > 0 { count - 1 } else { count };
                self.additions.entry(target.task).or_default().push((target, left));
            }
        }
    }

    /// A host is no more, and so are its tasks.
    fn announce_host_gone(&mut self, core: &mut Core, host: Tid) {
        self.forget_delegated_about(core, host, None);
        for (target, tid) in self.take_deletions(host) {
            tell(core, target, tid);
        }
        let tids = tids_of(host);
        let wishes = self.exits.range((*tids.start(), Tid::LEAST)..=(*tids.end(), Tid::MOST));
        let mut tasks: Vec<Tid> = wishes.map(|((tid, _), _)| *tid).collect();
        tasks.dedup();
        tasks.into_iter().for_each(|tid| self.tell_exit(core, tid));
        for (watcher, tid) in self.watching.take_host(host) {
            self.watchers.remove(tid, watcher);
        }
        self.watchers_of.take(host);
    }

    // ----- what managers were asked to tell

    /// A manager was asked to notify a task: it passes that on, or notifies by itself. What it has not told when it
    /// goes, the daemon tells.
    pub fn delegate(&mut self, core: &mut Core, manager: Tid, target: Target, what: i32, count: i32, tids: &[Tid]) {
        let wanted = what & !NOTIFY_CANCEL;
        let mut tids = tids.to_vec();
        if wanted == NOTIFY_TASK_EXIT {
            tids.retain(|tid| core.may_live(*tid));
        }
        if what != wanted {
            let all = wanted == NOTIFY_HOST_ADD;
            let same = |one: &Delegated| one.target == target && one.what == wanted;
            return self.forget_delegated(core, |one, tid| same(one) && (all || tids.contains(&tid)));
        }
        // The manager tells of those who die elsewhere before it does; the daemon has to know which they are.
        let elsewhere = tids.iter().filter(|tid| wanted == NOTIFY_TASK_EXIT && tid.host() != core.own_host());
        for tid in elsewhere.copied().collect::<Vec<_>>() {
            self.watch_far(core, tid, target.task);
        }
        self.delegated.push(Delegated { manager, target, what, count, tids });
    }

    /// Whether a manager was asked to tell that task of the end of that other one.
    fn is_delegated(&self, watcher: Tid, tid: Tid) -> bool {
        let fits = |one: &Delegated| one.what == NOTIFY_TASK_EXIT && one.target.task == watcher;
        self.delegated.iter().any(|one| fits(one) && one.tids.contains(&tid))
    }

    /// A task or host is no more, as that watcher can know or everybody: it need not be told of that later.
    fn forget_delegated_about(&mut self, core: &mut Core, tid: Tid, watcher: Option<Tid>) {
        let same = |wanted: Tid| wanted == tid || tid.is_host() && wanted.host() == tid;
        let concerns = |one: &Delegated| watcher.is_none_or(|watcher| one.target.task == watcher);
        self.forget_delegated(core, |one, wanted| same(wanted) && concerns(one));
    }

    /// Forgets parts of what was delegated, and ends the watches at other hosts that were for them.
    fn forget_delegated(&mut self, core: &mut Core, ends: impl Fn(&Delegated, Tid) -> bool) {
        let mut ended = Vec::new();
        for one in &mut self.delegated {
            let tids = std::mem::take(&mut one.tids);
            let (gone, left) = tids.into_iter().partition::<Vec<Tid>, _>(|tid| ends(one, *tid));
            one.tids = left;
            let watched = gone.into_iter().filter(|_| one.what == NOTIFY_TASK_EXIT);
            ended.extend(watched.map(|tid| (one.target.task, tid)));
        }
        let stays = |one: &Delegated| one.what == NOTIFY_HOST_ADD && !ends(one, Tid::NONE) || !one.tids.is_empty();
        self.delegated.retain(stays);
        ended.into_iter().for_each(|(watcher, tid)| self.unwatch_unless_wanted(core, watcher, tid));
    }

    /// Managers have gone. Of those whose end they were to tell, they have told the dead; the daemon tells of the
    /// living.
    fn manager_gone(&mut self, core: &mut Core, is_gone: impl Fn(Tid) -> bool) {
        let (left, others) = std::mem::take(&mut self.delegated).into_iter().partition(|one| is_gone(one.manager));
        self.delegated = others;
        for Delegated { target, what, count, tids, .. } in left {
            // Whoever asked has had an answer.
            let _ = self.ask(core, target, what, count, &tids);
        }
    }
}
