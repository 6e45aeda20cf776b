//! `pvm_notify` (contract 2.6).
use super::action::Action;
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::{PairIndex, TidCounts, pairs_with, pairs_with_host};
use crate::codes::{Code, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use crate::encoding::Writer;
use crate::proto::{Reply, ToTask};
use crate::tid::Tid;
use crate::wire::Frame;
use std::collections::{BTreeMap, BTreeSet};

/// The receiver of a notify message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub task: Tid,
    pub ctx: i32,
    pub tag: i32,
}

/// The tag of a watch that causes no message: the daemon's own watch of the peer of a link ([`ToTask::Ended`] is sent).
const LINK_TAG: i32 = -1;

/// A notify that a resource manager was asked to send.
struct DelegatedNotify {
    manager: Tid,
    target: Target,
    what: i32,
    count: i32,
    tids: Vec<Tid>,
}

/// Open notifies. There may be many, and tasks end all the time. So the notifies of one watching task, and those about
/// one watched task, are found without a search through all notifies.
#[derive(Default)]
pub(super) struct Notify {
    /// Exit notifies by watched and watching task; those of one pair are in the order of the calls.
    exit_notifies: BTreeMap<(Tid, Tid), Vec<Target>>,
    /// Host-delete notifies by watched host and watching task: the receiver, and the tid that the call named.
    host_delete_notifies: BTreeMap<(Tid, Tid), Vec<(Target, Tid)>>,
    /// The tasks and hosts that each task watches.
    watched: PairIndex<Tid, Tid>,
    /// Host-add notifies by task: the receiver, and the number of messages left (-1: without limit).
    host_add_notifies: BTreeMap<Tid, Vec<(Target, i32)>>,
    /// The watched tasks of this host, with their watchers on other hosts.
    remote_watchers: PairIndex<Tid, Tid>,
    /// The same pairs, by watcher.
    remote_watching: PairIndex<Tid, Tid>,
    /// The number of exit and host-delete notifies of each watching task.
    open_notifies: TidCounts,
    /// For each other host: the number of pairs of a watched task there and a watching task here.
    watched_pairs: TidCounts,
    /// For each other host: the number of pairs of a watched task here and a watching task there.
    watcher_pairs: TidCounts,
    /// The notifies that resource managers were asked to send.
    delegated: Vec<DelegatedNotify>,
}

impl SubMachine for Notify {
    fn name(&self) -> &'static str {
        "notifies"
    }
    fn is_idle(&self) -> bool {
        let counts = self.open_notifies.is_empty() && self.watched_pairs.is_empty() && self.watcher_pairs.is_empty();
        let far = self.remote_watchers.is_empty() && self.remote_watching.is_empty() && counts;
        self.exit_notifies.is_empty()
            && self.host_delete_notifies.is_empty()
            && self.watched.is_empty()
            && self.host_add_notifies.is_empty()
            && self.delegated.is_empty()
            && far
    }
    fn on_event(&mut self, core: &mut Core, event: &Event) {
        match event {
            Event::TaskLeft { tid, .. } => {
                self.cancel_all(core, *tid);
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
                // The slaves need not do this here: the master announces to them that the manager is gone.
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
    /// Returns whether `task` waits for an exit notify about `tid`.
    fn watches(&self, task: Tid, tid: Tid) -> bool {
        self.exit_notifies.contains_key(&(tid, task))
    }

    /// Drops all notifies of a task. Returns the tasks that it watched.
    fn withdraw(&mut self, task: Tid) -> Vec<Tid> {
        self.host_add_notifies.remove(&task);
        self.open_notifies.take(task);
        let mut watched = self.watched.take(task);
        watched.iter().for_each(|tid| drop(self.host_delete_notifies.remove(&(*tid, task))));
        watched.retain(|tid| self.exit_notifies.remove(&(*tid, task)).is_some());
        watched.iter().for_each(|tid| self.watched_pairs.subtract(tid.host(), 1));
        watched
    }

    /// Removes and returns all exit notifies about a task.
    fn take_exits(&mut self, tid: Tid) -> Vec<Target> {
        let tasks: Vec<Tid> = self.exit_notifies.range(pairs_with(tid)).map(|((_, task), _)| *task).collect();
        tasks.into_iter().flat_map(|task| self.take_exit(tid, task)).collect()
    }

    /// Removes and returns the exit notifies of one task about another.
    fn take_exit(&mut self, tid: Tid, task: Tid) -> Vec<Target> {
        self.watched.remove(task, tid);
        let Some(targets) = self.exit_notifies.remove(&(tid, task)) else { return Vec::new() };
        self.watched_pairs.subtract(tid.host(), 1);
        self.open_notifies.subtract(task, targets.len());
        targets
    }

    /// Removes and returns all host-delete notifies about a host.
    fn take_deletions(&mut self, host: Tid) -> Vec<(Target, Tid)> {
        let tasks: Vec<Tid> = self.host_delete_notifies.range(pairs_with(host)).map(|((_, task), _)| *task).collect();
        tasks.iter().for_each(|task| _ = self.watched.remove(*task, host));
        let targets = tasks.into_iter().filter_map(|task| self.host_delete_notifies.remove(&(host, task))).flatten();
        let targets: Vec<(Target, Tid)> = targets.collect();
        targets.iter().for_each(|(target, _)| self.open_notifies.subtract(target.task, 1));
        targets
    }

    /// Adds an exit notify.
    fn watch_exit(&mut self, target: Target, tid: Tid) {
        self.open_notifies.add(target.task);
        self.watched.insert(target.task, tid);
        let targets = self.exit_notifies.entry((tid, target.task)).or_default();
        if targets.is_empty() {
            self.watched_pairs.add(tid.host());
        }
        targets.push(target);
    }

    /// Records that a task on another host watches a task of this host.
    fn add_watcher(&mut self, tid: Tid, watcher: Tid) {
        if self.remote_watchers.insert(tid, watcher) {
            self.remote_watching.insert(watcher, tid);
            self.watcher_pairs.add(watcher.host());
        }
    }

    /// Records that a task on another host no longer watches a task of this host.
    fn remove_watcher(&mut self, tid: Tid, watcher: Tid) {
        if self.remote_watchers.remove(tid, watcher) {
            self.remote_watching.remove(watcher, tid);
            self.watcher_pairs.subtract(watcher.host(), 1);
        }
    }

    /// Handles `pvm_notify`.
    pub fn request(
        &mut self,
        core: &mut Core,
        target: Target,
        what: i32,
        count: i32,
        tids: &[Tid],
    ) -> Result<Reply, Code> {
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
                let notifies = self.host_add_notifies.entry(target.task).or_default();
                notifies.retain(|(other, _)| *other != target);
                if count != 0 && !cancel {
                    notifies.push((target, count));
                }
                if notifies.is_empty() {
                    self.host_add_notifies.remove(&target.task);
                }
            }
            _ => return Err(Code::BadParam),
        }
        Ok(Reply::Done)
    }

    /// Lets a task learn of the end of the peer of a link ([`ToTask::Ended`]), in order with the peer's messages. Counts as
    /// an exit notify of the task. Returns false if the limits do not allow it.
    #[must_use]
    pub fn watch_link(&mut self, core: &mut Core, task: Tid, peer: Tid) -> bool {
        let target = Target { task, ctx: 0, tag: LINK_TAG };
        let is_watched = self.exit_notifies.get(&(peer, task)).is_some_and(|targets| targets.contains(&target));
        let may = is_watched || self.may_watch(core, task, NOTIFY_TASK_EXIT, &[peer]);
        match core.may_live(peer) {
            _ if !may || is_watched => {}
            true => self.watch_task(core, target, peer),
            false => send_exit(core, &[target], peer),
        }
        may
    }

    /// Returns whether the limits allow these notifies.
    fn may_watch(&self, core: &Core, task: Tid, what: i32, tids: &[Tid]) -> bool {
        let (limits, own) = (&core.settings.limits, core.own_host());
        if what == NOTIFY_HOST_ADD {
            return self.host_add_notifies.get(&task).map_or(0, Vec::len) < limits.task_watches;
        }
        let mut more_pairs: BTreeMap<Tid, usize> = BTreeMap::new();
        let far = tids.iter().filter(|tid| what == NOTIFY_TASK_EXIT && tid.host() != own);
        far.for_each(|tid| *more_pairs.entry(tid.host()).or_default() += 1);
        let has_room = |(host, more): (&Tid, &usize)| self.watched_pairs.of(*host) + more <= limits.host_watches;
        self.open_notifies.of(task) + tids.len() <= limits.task_watches && more_pairs.iter().all(has_room)
    }

    /// Adds an exit notify, or sends it at once if the task is gone.
    fn watch_task(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let here = tid.host() == core.own_host();
        if !core.may_live(tid) {
            return tell(core, target, tid);
        }
        if !here {
            self.watch_remote(core, tid, target.task);
        }
        self.watch_exit(target, tid);
    }

    /// Asks the host of a task to report the task's end, unless it has been asked already.
    fn watch_remote(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        if !self.watches(watcher, tid) && !self.is_delegated(watcher, tid) {
            core.send_host(tid.host(), Frame::Watch { tid, watcher });
        }
    }

    /// Cancels an exit notify: its message is sent now.
    fn cancel_exit(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let Some(targets) = self.exit_notifies.get_mut(&(tid, target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == target) else { return };
        targets.remove(at);
        self.open_notifies.subtract(target.task, 1);
        if self.exit_notifies.get(&(tid, target.task)).is_some_and(Vec::is_empty) {
            self.take_exit(tid, target.task);
        }
        self.unwatch_unless_wanted(core, target.task, tid);
        tell(core, target, tid);
    }

    /// Tells the host of a task that it need not report the task's end, unless another notify needs the report.
    fn unwatch_unless_wanted(&mut self, core: &mut Core, watcher: Tid, tid: Tid) {
        let wanted = self.watches(watcher, tid) || self.is_delegated(watcher, tid);
        if tid.host() != core.own_host() && !wanted {
            core.send_host(tid.host(), Frame::Unwatch { tid, watcher });
        }
    }

    /// Drops all notifies of a task that has left.
    fn cancel_all(&mut self, core: &mut Core, task: Tid) {
        for tid in self.withdraw(task) {
            self.unwatch_unless_wanted(core, task, tid);
        }
    }

    /// Adds a host-delete notify, or sends it at once if the host is gone.
    fn watch_host(&mut self, core: &mut Core, target: Target, tid: Tid) {
        match core.hosts.is_here(tid) {
            true => {
                self.open_notifies.add(target.task);
                self.watched.insert(target.task, tid.host());
                self.host_delete_notifies.entry((tid.host(), target.task)).or_default().push((target, tid));
            }
            false => tell(core, target, tid),
        }
    }

    /// Cancels a host-delete notify: its message is sent now.
    fn cancel_deletion(&mut self, core: &mut Core, target: Target, tid: Tid) {
        let Some(targets) = self.host_delete_notifies.get_mut(&(tid.host(), target.task)) else { return };
        let Some(at) = targets.iter().position(|other| *other == (target, tid)) else { return };
        targets.remove(at);
        self.open_notifies.subtract(target.task, 1);
        if targets.is_empty() {
            self.host_delete_notifies.remove(&(tid.host(), target.task));
            self.watched.remove(target.task, tid.host());
        }
        tell(core, target, tid);
    }

    /// Sends the notifies about a task of this host that has ended.
    fn announce_exit(&mut self, core: &mut Core, tid: Tid) {
        self.cancel_all(core, tid);
        self.tell_exit(core, tid);
        let watchers: Vec<Tid> = self.remote_watchers.of(tid).collect();
        for watcher in watchers {
            self.remove_watcher(tid, watcher);
            core.push(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } });
        }
    }

    /// Sends the exit notifies about a task to the tasks of this host that asked for them.
    fn tell_exit(&mut self, core: &mut Core, tid: Tid) {
        let targets = self.take_exits(tid);
        send_exit(core, &targets, tid);
    }

    // ----- other hosts

    /// Handles the news that a task on another host watches a task of this host.
    pub fn remote_watch_added(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        match core.tasks.exists(tid) {
            // The watcher's host enforces the same limit; if it does not, its watches beyond the limit are ignored.
            true if self.watcher_pairs.of(watcher.host()) >= core.settings.limits.host_watches => {}
            true => self.add_watcher(tid, watcher),
            false => core.push(Action::SendAlong { to: watcher, frame: Frame::Died { tid, watcher } }),
        }
    }

    /// Handles the news that a task on another host no longer watches a task of this host.
    pub fn remote_watch_removed(&mut self, tid: Tid, watcher: Tid) {
        self.remove_watcher(tid, watcher);
    }

    /// Handles the news that a task of another host has ended; `watcher`, a task of this host, watches it.
    pub fn remote_task_died(&mut self, core: &mut Core, tid: Tid, watcher: Tid) {
        self.forget_delegated_about(core, tid, Some(watcher));
        let targets = self.take_exit(tid, watcher);
        send_exit(core, &targets, tid);
    }

    /// Sends the notifies about new hosts.
    fn announce_hosts(&mut self, core: &mut Core, hosts: &[Tid]) {
        let body = Writer::new().int(hosts.len() as i32);
        let body = hosts.iter().fold(body, |body, host| body.int(host.0 as i32)).finish();
        let notifies = std::mem::take(&mut self.host_add_notifies);
        for (target, count) in notifies.into_values().flatten() {
            core.tell(target.task, target.ctx, target.tag, 0, body.clone());
            // A negative count means that there is no limit.
            if count != 1 {
                let left = if count > 0 { count - 1 } else { count };
                self.host_add_notifies.entry(target.task).or_default().push((target, left));
            }
        }
    }

    /// Sends the notifies about a lost host and its tasks.
    fn announce_host_gone(&mut self, core: &mut Core, host: Tid) {
        self.forget_delegated_about(core, host, None);
        for (target, tid) in self.take_deletions(host) {
            tell(core, target, tid);
        }
        let notifies = self.exit_notifies.range(pairs_with_host(host));
        let mut tasks: Vec<Tid> = notifies.map(|((tid, _), _)| *tid).collect();
        tasks.dedup();
        tasks.into_iter().for_each(|tid| self.tell_exit(core, tid));
        for (watcher, tid) in self.remote_watching.take_host(host) {
            self.remote_watchers.remove(tid, watcher);
        }
        self.watcher_pairs.take(host);
    }

    // ----- notifies delegated to managers

    /// Records that a manager was asked to notify a task. The manager passes the request on or sends the notifies
    /// itself; when the manager is gone, this daemon takes over the remaining notifies.
    pub fn delegate(&mut self, core: &mut Core, manager: Tid, target: Target, what: i32, count: i32, tids: &[Tid]) {
        let wanted = what & !NOTIFY_CANCEL;
        let mut tids = tids.to_vec();
        if wanted == NOTIFY_TASK_EXIT {
            tids.retain(|tid| core.may_live(*tid));
        }
        if what != wanted {
            let all = wanted == NOTIFY_HOST_ADD;
            let same = |one: &DelegatedNotify| one.target == target && one.what == wanted;
            return self.forget_delegated(core, |one, tid| same(one) && (all || tids.contains(&tid)));
        }
        // As long as the manager lives, it reports the deaths of tasks on other hosts. This daemon watches these tasks,
        // too, to know which deaths the manager has reported.
        let elsewhere = tids.iter().filter(|tid| wanted == NOTIFY_TASK_EXIT && tid.host() != core.own_host());
        for tid in elsewhere.copied().collect::<Vec<_>>() {
            self.watch_remote(core, tid, target.task);
        }
        self.delegated.push(DelegatedNotify { manager, target, what, count, tids });
    }

    /// Returns whether a manager was asked to notify the watcher of the end of that task.
    fn is_delegated(&self, watcher: Tid, tid: Tid) -> bool {
        let fits = |one: &DelegatedNotify| one.what == NOTIFY_TASK_EXIT && one.target.task == watcher;
        self.delegated.iter().any(|one| fits(one) && one.tids.contains(&tid))
    }

    /// Drops the delegated notifies about a task or host that is gone, either all or only those of `watcher`.
    fn forget_delegated_about(&mut self, core: &mut Core, tid: Tid, watcher: Option<Tid>) {
        let same = |wanted: Tid| wanted == tid || tid.is_host() && wanted.host() == tid;
        let concerns = |one: &DelegatedNotify| watcher.is_none_or(|watcher| one.target.task == watcher);
        self.forget_delegated(core, |one, wanted| same(wanted) && concerns(one));
    }

    /// Drops the delegated notifies for which `ends` holds, and the watches at other hosts that only these notifies
    /// needed.
    fn forget_delegated(&mut self, core: &mut Core, ends: impl Fn(&DelegatedNotify, Tid) -> bool) {
        let mut ended = Vec::new();
        for one in &mut self.delegated {
            let tids = std::mem::take(&mut one.tids);
            let (gone, left) = tids.into_iter().partition::<Vec<Tid>, _>(|tid| ends(one, *tid));
            one.tids = left;
            let watched = gone.into_iter().filter(|_| one.what == NOTIFY_TASK_EXIT);
            ended.extend(watched.map(|tid| (one.target.task, tid)));
        }
        let stays =
            |one: &DelegatedNotify| one.what == NOTIFY_HOST_ADD && !ends(one, Tid::NONE) || !one.tids.is_empty();
        self.delegated.retain(stays);
        ended.into_iter().for_each(|(watcher, tid)| self.unwatch_unless_wanted(core, watcher, tid));
    }

    /// Takes over the notifies of managers that are gone. The managers have reported all deaths so far; this daemon
    /// reports the later ones.
    fn manager_gone(&mut self, core: &mut Core, is_gone: impl Fn(Tid) -> bool) {
        let (left, others) = std::mem::take(&mut self.delegated).into_iter().partition(|one| is_gone(one.manager));
        self.delegated = others;
        for DelegatedNotify { target, what, count, tids, .. } in left {
            // The call to `pvm_notify` has been answered already.
            let _ = self.request(core, target, what, count, &tids);
        }
    }
}

/// Sends a notify message about a task or host.
fn tell(core: &mut Core, target: Target, about: Tid) {
    if target.tag == LINK_TAG {
        return;
    }
    let body = Writer::new().int(about.0 as i32).finish();
    core.tell(target.task, target.ctx, target.tag, 0, body);
}

/// Sends exit notifies to tasks of this host.
fn send_exit(core: &mut Core, targets: &[Target], tid: Tid) {
    if tid.host() != core.own_host() {
        let watchers: BTreeSet<Tid> = targets.iter().map(|target| target.task).collect();
        watchers.into_iter().for_each(|watcher| core.send(watcher, ToTask::Ended(tid)));
    }
    for target in targets {
        tell(core, *target, tid);
    }
}
