//! Each notification comes exactly once, and is true.
use super::{Checks, Unsettled};
use crate::program::{Stage, TaskId};
use crate::world::World;
use pvm_core::codes::{NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_HOST_DELETE, NOTIFY_TASK_EXIT};
use pvm_core::encoding::Reader;
use pvm_core::proto::{Message, Reply, Request};
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, BTreeSet};

/// How often a message about something has to come, and has come.
#[derive(Default, Clone, Copy)]
struct Count {
    wanted: u32,
    came: u32,
}

/// What one call to `pvm_notify` has asked for. Each call has a tag of its own.
#[derive(Default)]
struct Wish {
    what: i32,
    about: BTreeMap<Tid, Count>,
    /// What its host did not know at that time.
    unknown: BTreeSet<Tid>,
    cancelled: bool,
    /// Of new hosts: how many messages, how many have come, and which hosts they told of.
    limit: i32,
    messages: i32,
    told: BTreeSet<Tid>,
    /// New hosts of which it has to be told.
    owed: Vec<Tid>,
    granted: bool,
}

/// All wishes.
#[derive(Default)]
pub struct Notifies {
    wishes: BTreeMap<(Tid, i32), Wish>,
    /// Those who want to hear of new hosts, by host.
    additions: BTreeMap<Tid, Vec<(Tid, i32)>>,
    /// The last hosts that joined, as the master sees it.
    last_joined: Vec<Tid>,
}

impl Notifies {
    /// A task asks.
    pub fn asked(&mut self, watcher: Tid, request: &Request) {
        let Request::Notify { what, tag, count, tids, .. } = request else { return };
        if what & NOTIFY_CANCEL != 0 {
            return;
        }
        let wish = self.wishes.entry((watcher, *tag)).or_default();
        (wish.what, wish.limit) = (*what, *count);
        tids.iter().for_each(|tid| wish.about.entry(*tid).or_default().wanted += 1);
        if *what == NOTIFY_HOST_ADD {
            self.additions.entry(watcher.host()).or_default().push((watcher, *tag));
        }
    }

    /// It has its answer.
    pub fn answered(&mut self, watcher: Tid, request: &Request, reply: &Reply) -> Result<(), String> {
        let Request::Notify { what, tag, .. } = request else { return Ok(()) };
        if *reply != Reply::Done {
            return Err(format!("{watcher} asked {request:?}: {reply:?}"));
        }
        let Some(wish) = self.wishes.get_mut(&(watcher, *tag)) else { return Ok(()) };
        wish.granted = true;
        wish.cancelled |= what & NOTIFY_CANCEL != 0;
        Ok(())
    }

    /// A host hears of new hosts, and tells those of its tasks that want to know.
    pub fn hosts_joined(&mut self, at: Tid, hosts: &[Tid]) {
        for key in self.additions.get(&at).into_iter().flatten() {
            let Some(wish) = self.wishes.get_mut(key) else { continue };
            let count = wish.limit < 0 || wish.owed.is_empty();
            if wish.granted && !wish.cancelled && count {
                wish.owed.extend(hosts);
            }
        }
    }

    /// The master has told the first host of new hosts; it knows of them too.
    pub fn master_tells(&mut self, master: Tid, hosts: &[Tid]) {
        if self.last_joined != hosts {
            self.last_joined = hosts.to_vec();
            self.hosts_joined(master, hosts);
        }
    }

    fn of_hosts(&mut self, key: (Tid, i32), body: &[u8]) -> Result<(), String> {
        let Some(wish) = self.wishes.get_mut(&key) else { return Ok(()) };
        let mut body = Reader::new(body);
        let count = body.int().unwrap_or(-1);
        wish.messages += 1;
        if wish.limit > 0 && wish.messages > wish.limit {
            return Err(format!("{} got message {} of {} about new hosts", key.0, wish.messages, wish.limit));
        }
        for _ in 0..count {
            let host = Tid(body.int().unwrap_or(0) as u32);
            if !host.is_host() || !wish.told.insert(host) {
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
    /// A daemon hears of a wish about tasks or hosts that it does not know (yet).
    pub fn wishes_for(&mut self, watcher: Tid, tag: i32, unknown: impl Iterator<Item = Tid>) {
        if let Some(wish) = self.notifies.wishes.get_mut(&(watcher, tag)) {
            wish.unknown.extend(unknown);
        }
    }

    /// The master tells others of new hosts.
    pub fn master_tells(&mut self, master: Tid, hosts: &[Tid]) {
        self.notifies.master_tells(master, hosts);
    }
}

impl World {
    /// A message of the daemon's own comes to a task: a notification.
    pub fn notified(&mut self, watcher: Tid, message: &Message) {
        let key = (watcher, message.tag);
        let Some(wish) = self.checks.notifies.wishes.get_mut(&key) else {
            return self.checks.fail("notifies", &format!("{watcher} did not ask for {message:?}"), &[watcher]);
        };
        if wish.what == NOTIFY_HOST_ADD {
            let result = self.checks.notifies.of_hosts(key, &message.body);
            return self.checks.take("notifies", result, &[watcher]);
        }
        let about = Tid(Reader::new(&message.body).int().unwrap_or(0) as u32);
        let count = wish.about.entry(about).or_default();
        count.came += 1;
        let (twice, what, tag) = (count.came > count.wanted, wish.what, message.tag);
        let unknown = wish.unknown.contains(&about);
        let cancelled = wish.cancelled || self.is_cancelling(watcher, tag);
        let gone = unknown || self.is_gone(what, about);
        if twice {
            let text = format!("{watcher} was told of {about} once too often (tag {tag})");
            self.checks.fail("notifies", &text, &[watcher, about]);
        } else if !cancelled && !gone {
            let text = format!("{watcher} was told of the end of {about}, which lives (tag {tag})");
            self.checks.fail("notifies", &text, &[watcher, about]);
        }
        if what == NOTIFY_TASK_EXIT && !cancelled && !unknown {
            self.checks.heard_of_end(watcher, about);
        }
    }

    /// Whether the task is just asking to cancel that wish.
    fn is_cancelling(&self, watcher: Tid, tag: i32) -> bool {
        let open = self.by_tid.get(&watcher).and_then(|task| self.tasks[*task].open.as_ref());
        let cancels = |request: &Request| match request {
            Request::Notify { what, tag: other, .. } => what & NOTIFY_CANCEL != 0 && *other == tag,
            _ => false,
        };
        open.is_some_and(|open| cancels(&open.request))
    }

    /// Whether what is watched is no more.
    fn is_gone(&self, what: i32, about: Tid) -> bool {
        if self.checks.is_removed(about.host()) {
            return true;
        }
        if what == NOTIFY_HOST_DELETE {
            return false;
        }
        self.by_tid.get(&about).is_none_or(|task| self.has_ended(*task))
    }

    /// Whether a process has ended, or is no task any more although it goes on.
    fn has_ended(&self, task: TaskId) -> bool {
        let task = &self.tasks[task];
        task.stage == Stage::Dead || (task.stage == Stage::Left && task.cookie.is_none())
    }

    /// Every task that lives was told of everything that it wanted to know.
    pub fn notifies_have_come(&self) -> Unsettled {
        for ((watcher, tag), wish) in &self.checks.notifies.wishes {
            let lives =
                self.by_tid.get(watcher).is_some_and(|task| self.tasks[*task].is_enrolled() && self.in_machine(*task));
            if !lives || !wish.granted {
                continue;
            }
            let untold = wish.owed.iter().find(|host| !wish.told.contains(host));
            let full = wish.limit > 0 && wish.messages >= wish.limit;
            if let (Some(host), false, false) = (untold, wish.cancelled, full) {
                return Err((
                    format!("{watcher} was not told of the new host {host} (tag {tag})"),
                    vec![watcher.host()],
                ));
            }
            for (about, count) in &wish.about {
                let due = wish.cancelled || wish.unknown.contains(about) || self.is_gone(wish.what, *about);
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
