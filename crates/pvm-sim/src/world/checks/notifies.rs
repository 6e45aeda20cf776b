//! Invariant: each notification arrives exactly once, and is true.
use super::{Checks, Unsettled};
use crate::ids::TaskId;
use crate::program::Stage;
use crate::world::World;
use pvm_core::codes::{NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use pvm_core::encoding::Reader;
use pvm_core::proto::{Message, Reply, Request};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// How many messages about one task or host have to arrive, and how many have arrived.
#[derive(Default, Clone, Copy)]
struct Count {
    wanted: u32,
    came: u32,
}

/// A call of `pvm_notify`. Each call has its own tag.
#[derive(Default)]
struct Call {
    what: i32,
    about: BTreeMap<Tid, Count>,
    /// The tids that the caller's host did not know at the time of the call.
    unknown: BTreeSet<Tid>,
    cancelled: bool,
    /// If the call asks about new hosts: how many messages it asks for, how many have arrived, and which hosts they
    /// named.
    limit: i32,
    messages: i32,
    told: BTreeSet<Tid>,
    /// The new hosts about which the caller must still receive a message.
    owed: Vec<Tid>,
    granted: bool,
}

/// All calls.
#[derive(Default)]
pub struct Notifies {
    calls: BTreeMap<(Tid, i32), Call>,
    /// The calls that ask for messages about new hosts, by the caller's host.
    additions: BTreeMap<Tid, Vec<(Tid, i32)>>,
    /// The hosts that joined last, as the master announced them.
    last_joined: Vec<Tid>,
}

impl Notifies {
    /// Notes a request of a task.
    pub fn asked(&mut self, watcher: Tid, request: &Request) {
        let Request::Notify { what, tag, count, tids, .. } = request else { return };
        if what & NOTIFY_CANCEL != 0 {
            return;
        }
        let call = self.calls.entry((watcher, *tag)).or_default();
        (call.what, call.limit) = (*what, *count);
        tids.iter().for_each(|tid| call.about.entry(*tid).or_default().wanted += 1);
        if *what == NOTIFY_HOST_ADD {
            self.additions.entry(watcher.host()).or_default().push((watcher, *tag));
        }
    }

    /// Notes the answer to a request.
    pub fn answered(&mut self, watcher: Tid, request: &Request, reply: &Reply) -> Result<(), String> {
        let Request::Notify { what, tag, .. } = request else { return Ok(()) };
        if *reply != Reply::Done {
            return Err(format!("{watcher} asked {request:?}: {reply:?}"));
        }
        let Some(call) = self.calls.get_mut(&(watcher, *tag)) else { return Ok(()) };
        call.granted = true;
        call.cancelled |= what & NOTIFY_CANCEL != 0;
        Ok(())
    }

    /// Notes that a host has learnt of new hosts. Each of its tasks that asked for messages about new hosts must now
    /// receive one.
    pub fn hosts_joined(&mut self, at: Tid, hosts: &[Tid]) {
        for key in self.additions.get(&at).into_iter().flatten() {
            let Some(call) = self.calls.get_mut(key) else { continue };
            let count = call.limit < 0 || call.owed.is_empty();
            if call.granted && !call.cancelled && count {
                call.owed.extend(hosts);
            }
        }
    }

    /// Notes that the master announces new hosts to another host. From the first such announcement on, the master
    /// itself knows the new hosts, too.
    pub fn master_tells(&mut self, master: Tid, hosts: &[Tid]) {
        if self.last_joined != hosts {
            self.last_joined = hosts.to_vec();
            self.hosts_joined(master, hosts);
        }
    }

    fn of_hosts(&mut self, key: (Tid, i32), body: &[u8]) -> Result<(), String> {
        let Some(call) = self.calls.get_mut(&key) else { return Ok(()) };
        let mut body = Reader::new(body);
        let count = body.int().unwrap_or(-1);
        call.messages += 1;
        if call.limit > 0 && call.messages > call.limit {
            return Err(format!("{} got message {} of {} about new hosts", key.0, call.messages, call.limit));
        }
        for _ in 0..count {
            let host = Tid(body.int().unwrap_or(0) as u32);
            if !host.is_host() || !call.told.insert(host) {
                return Err(format!("{} was told of the new host {host} twice", key.0));
            }
        }
        match count > 0 && body.rest().is_empty() {
            true => Ok(()),
            false => Err(format!("{} got a strange message about new hosts", key.0)),
        }
    }
}

impl Checks {
    /// Notes that a task has asked its daemon about tasks or hosts that the daemon does not know (yet).
    pub fn unknown_to_daemon(&mut self, watcher: Tid, tag: i32, unknown: impl Iterator<Item = Tid>) {
        if let Some(call) = self.notifies.calls.get_mut(&(watcher, tag)) {
            call.unknown.extend(unknown);
        }
    }

    /// Notes that the master announces new hosts to another host.
    pub fn master_tells(&mut self, master: Tid, hosts: &[Tid]) {
        self.notifies.master_tells(master, hosts);
    }
}

impl World {
    /// Checks a notification: a message of the daemon itself to a task.
    pub fn notified(&mut self, watcher: Tid, message: &Message) {
        let key = (watcher, message.tag);
        let Some(call) = self.checks.notifies.calls.get_mut(&key) else {
            return self.checks.fail("notifies", &format!("{watcher} did not ask for {message:?}"), &[watcher]);
        };
        if call.what == NOTIFY_HOST_ADD {
            let result = self.checks.notifies.of_hosts(key, &message.body);
            return self.checks.take("notifies", result, &[watcher]);
        }
        let about = Tid(Reader::new(&message.body).int().unwrap_or(0) as u32);
        let count = call.about.entry(about).or_default();
        count.came += 1;
        let (twice, what, tag) = (count.came > count.wanted, call.what, message.tag);
        let unknown = call.unknown.contains(&about);
        let cancelled = call.cancelled || self.is_cancelling(watcher, tag);
        let gone = unknown || self.is_gone(what, about);
        if twice {
            let text = format!("{watcher} was told of {about} once too often (tag {tag})");
            self.checks.fail("notifies", &text, &[watcher, about]);
        } else if !cancelled && !gone {
            let text = format!("{watcher} was told of the end of {about}, which lives (tag {tag})");
            self.checks.fail("notifies", &text, &[watcher, about]);
        }
        if what == NOTIFY_TASK_EXIT && !cancelled && !unknown {
            self.checks.learnt_of_end(watcher, about);
            self.checks.ordered_end(watcher, about);
        }
    }

    /// Returns whether the task has an unanswered request that cancels the call.
    fn is_cancelling(&self, watcher: Tid, tag: i32) -> bool {
        let open = self.by_tid.get(&watcher).and_then(|task| self.tasks[*task].open.as_ref());
        let cancels = |request: &Request| match request {
            Request::Notify { what, tag: other, .. } => what & NOTIFY_CANCEL != 0 && *other == tag,
            _ => false,
        };
        open.is_some_and(|open| cancels(&open.request))
    }

    /// Returns whether the watched task or host has ended.
    fn is_gone(&self, what: i32, about: Tid) -> bool {
        if self.checks.is_removed(about.host()) {
            return true;
        }
        if what == NOTIFY_HOST_DELETE {
            return false;
        }
        self.by_tid.get(&about).is_none_or(|task| self.has_ended(*task))
    }

    /// Returns whether a process has ended. A process that nobody spawned counts as ended as soon as it has left the
    /// machine.
    fn has_ended(&self, task: TaskId) -> bool {
        let task = &self.tasks[task];
        task.stage == Stage::Dead || (task.stage == Stage::Left && task.cookie.is_none())
    }

    /// Checks that every living task has received all notifications for which it asked.
    pub fn notifies_arrived(&self) -> Unsettled {
        for ((watcher, tag), call) in &self.checks.notifies.calls {
            let lives =
                self.by_tid.get(watcher).is_some_and(|task| self.tasks[*task].is_enrolled() && self.in_machine(*task));
            if !lives || !call.granted {
                continue;
            }
            let untold = call.owed.iter().find(|host| !call.told.contains(host));
            let full = call.limit > 0 && call.messages >= call.limit;
            if let (Some(host), false, false) = (untold, call.cancelled, full) {
                return Err((
                    format!("{watcher} was not told of the new host {host} (tag {tag})"),
                    vec![watcher.host()],
                ));
            }
            for (about, count) in &call.about {
                let due = call.cancelled || call.unknown.contains(about) || self.is_gone(call.what, *about);
                let wanted = if due { count.wanted } else { 0 };
                if count.came != wanted {
                    let text =
                        format!("{watcher} was told of {about} {} times instead of {wanted} (tag {tag})", count.came);
                    return Err((text, vec![watcher.host(), about.host()]));
                }
            }
        }
        Ok(())
    }
}
