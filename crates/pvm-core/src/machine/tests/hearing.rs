//! Tasks that hear the releases of barriers themselves, as the library does.
use super::fleet::mix;
use super::*;
use crate::release::Release;
use crate::wire::ReleaseDatagram;
use std::collections::BTreeSet;

/// What a task knows about a group's releases.
struct Known {
    last: Release,
    is_news: bool,
}

/// What the tasks of a fleet hear.
#[derive(Default)]
pub struct Ears {
    /// Whether tasks hear releases; otherwise their daemons do.
    pub are_open: bool,
    known: BTreeMap<(Tid, u64), Known>,
    /// Requests whose tasks have heard the release.
    heard: BTreeSet<(Tid, u32)>,
    /// Hosts whose daemons hear releases of a coordinator.
    daemons: BTreeSet<Tid>,
    pub count: usize,
}

impl Ears {
    /// Handles the order of a host's machine.
    pub fn ordered(&mut self, host: Tid, tasks: &[Tid]) {
        assert!(tasks.iter().all(|task| task.host() == host));
        if tasks.is_empty() {
            self.daemons.insert(host);
        }
    }

    pub fn daemon_hears(&self, host: Tid) -> bool {
        !self.are_open || self.daemons.contains(&host)
    }

    pub fn begin_chain(&mut self, task: Tid, group: u64, anchor: Option<Release>) {
        match anchor.filter(|_| self.are_open) {
            Some(last) => drop(self.known.insert((task, group), Known { last, is_news: false })),
            None => drop(self.known.remove(&(task, group))),
        }
    }

    /// Takes in the answer to a barrier.
    pub fn told(&mut self, task: Tid, reply: &Reply) {
        let Reply::Released(release) = reply else { return };
        for ((_, _), known) in self.known.iter_mut().filter(|((one, _), _)| *one == task) {
            known.is_news &= !known.last.told(release);
        }
    }

    /// Returns whether the task has heard the release of the barrier of this request.
    pub fn needs_no_answer(&self, task: Tid, wait: u32) -> bool {
        self.heard.contains(&(task, wait))
    }

    /// Handles a datagram on a host. Returns the requests whose barriers it ends.
    pub fn hear(&mut self, host: Tid, bytes: &[u8], open: &BTreeMap<(Tid, u32), Request>) -> Vec<(Tid, u32, Release)> {
        let Ok(ReleaseDatagram { group, release }) = ReleaseDatagram::read(bytes) else { return Vec::new() };
        let mut ended = Vec::new();
        for ((task, wait), request) in open.iter().filter(|((task, _), _)| task.host() == host) {
            let of = match request {
                Request::Barrier { group, .. } | Request::LanBarrier { group, .. } => *group,
                Request::NextBarrier { group, .. } => *group,
                _ => continue,
            };
            let Some(known) = self.known.get_mut(&(*task, group)).filter(|_| of == group) else { continue };
            if known.last.accept(&release, mix).is_ok() {
                known.is_news = true;
                self.heard.insert((*task, *wait));
                ended.push((*task, *wait, release.clone()));
            }
        }
        self.count += ended.len();
        ended
    }

    /// Makes an arrival one that tells the daemon of the release that the task has heard before.
    pub fn with_news(&mut self, task: Tid, request: Request) -> Request {
        let (group, count, lan) = match request {
            Request::Barrier { group, count } => (group, count, false),
            Request::LanBarrier { group, count } => (group, count, true),
            request => return request,
        };
        let Some(known) = self.known.get_mut(&(task, group)) else { return request };
        match std::mem::take(&mut known.is_news) {
            true => Request::NextBarrier { group, count, lan, heard: known.last.clone() },
            false => request,
        }
    }
}
