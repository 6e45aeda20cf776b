//! What has arrived behind gaps: the daemon has told that messages of another host come before it, and they are not there yet
//! (`docs/decisions/0050`).
use super::State;
use crate::envelope::Envelope;
use crate::types::Filter;
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, HashSet, VecDeque};

enum Item {
    /// The next `count` messages of a host belong here ([`Backlog::open`]). `arrived`: the slots of those that have arrived
    /// already.
    Gap { count: u32, arrived: Vec<u32> },
    /// A message of another task, by its slot.
    Message(u32),
    /// A message that the daemon has made or stored.
    OfDaemon(u32),
    /// The news that a task of another host has ended. What follows waits until its last messages are there, if the news is
    /// being handled.
    Ended { peer: Tid, is_handled: bool },
    /// A message that was forgotten.
    Nothing,
}

/// What waits, in the order in which the task receives it.
#[derive(Default)]
pub(crate) struct Backlog {
    items: VecDeque<Item>,
    /// How many items were released before the first one.
    released: u64,
    /// The gaps that wait for messages, by their host: the numbers of the items, in order.
    open: BTreeMap<Tid, VecDeque<u64>>,
}

impl Backlog {
    /// Returns whether anything waits, so that what arrives now has to wait, too.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.items.is_empty()
    }

    /// Returns the number of the item that comes next. All that waits now is released when [`Backlog::is_released`].
    pub fn end(&self) -> u64 {
        self.released + self.items.len() as u64
    }

    /// Returns whether all items before that number were released.
    pub fn is_released(&self, end: u64) -> bool {
        self.released >= end
    }

    fn add_gap(&mut self, host: Tid, count: u32) {
        let number = self.end();
        self.open.entry(host).or_default().push_back(number);
        self.items.push_back(Item::Gap { count, arrived: Vec::new() });
    }

    /// Keeps the news that a task has ended.
    pub fn add_end(&mut self, peer: Tid) {
        self.items.push_back(Item::Ended { peer, is_handled: false });
    }

    /// Puts a message into the first gap for messages of its host, or at the end.
    fn add(&mut self, from: Tid, slot: u32) {
        let Some(gaps) = self.open.get_mut(&from) else { return self.items.push_back(Item::Message(slot)) };
        let first = gaps.front().map(|number| (number - self.released) as usize);
        let Some(Item::Gap { count, arrived, .. }) = first.and_then(|first| self.items.get_mut(first)) else {
            unreachable!("an open gap is an item")
        };
        arrived.push(slot);
        *count -= 1;
        if *count == 0 {
            gaps.pop_front();
            if gaps.is_empty() {
                self.open.remove(&from);
            }
        }
    }

    /// Closes all gaps for messages of a host. Returns whether there were any.
    fn close(&mut self, host: Tid) -> bool {
        let Some(gaps) = self.open.remove(&host) else { return false };
        for number in gaps {
            if let Some(Item::Gap { count, .. }) = self.items.get_mut((number - self.released) as usize) {
                *count = 0;
            }
        }
        true
    }

    fn pop(&mut self) {
        self.items.pop_front();
        self.released += 1;
    }

    /// Returns all messages that wait.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.items
            .iter()
            .flat_map(|item| match item {
                Item::Gap { arrived, .. } => arrived.as_slice(),
                Item::Message(slot) | Item::OfDaemon(slot) => std::slice::from_ref(slot),
                Item::Ended { .. } | Item::Nothing => &[],
            })
            .copied()
    }

    /// Forgets messages that wait.
    pub fn forget(&mut self, slots: &[u32]) {
        let slots: HashSet<u32> = slots.iter().copied().collect();
        for item in &mut self.items {
            match item {
                Item::Gap { arrived, .. } => arrived.retain(|slot| !slots.contains(slot)),
                Item::Message(slot) | Item::OfDaemon(slot) if slots.contains(slot) => *item = Item::Nothing,
                _ => {}
            }
        }
    }
}

impl State {
    /// Notes that the next `count` messages of a host come before what arrives from now on.
    #[cold]
    pub fn on_gap(&mut self, host: Tid, count: u32) {
        if count > 0 {
            self.backlog.add_gap(host, count);
            self.handlers.queue_behind_gaps(true);
        }
    }

    /// Notes that no more messages of a host arrive. Returns whether any were awaited.
    #[cold]
    pub fn on_no_more(&mut self, from: Tid) -> bool {
        let some = self.backlog.close(from);
        self.release_backlog();
        some
    }

    /// Closes all gaps: the daemon is lost, and nobody else fills them.
    pub fn close_all_gaps(&mut self) -> bool {
        let hosts: Vec<Tid> = self.backlog.open.keys().copied().collect();
        for host in &hosts {
            self.backlog.close(*host);
        }
        self.release_backlog();
        !hosts.is_empty()
    }

    /// Keeps a message of another task, passed on by the daemon if that task is on another host.
    #[cold]
    pub fn add_to_backlog(&mut self, envelope: &Envelope, slot: u32) {
        self.backlog.add(Tid(envelope.src as u32).host(), slot);
        self.release_backlog();
    }

    /// Keeps a message that the daemon has made or stored.
    pub fn add_to_backlog_end(&mut self, slot: u32) {
        self.backlog.items.push_back(Item::OfDaemon(slot));
    }

    /// Returns whether a message that the filter accepts is queued or waits behind a gap.
    pub fn has_taken_in(&mut self, filter: &Filter) -> bool {
        let fits = |slot: u32| {
            let Envelope { src, tag, ctx, .. } = self.envelope_of(slot);
            filter.accepts(src, tag, ctx)
        };
        self.backlog.slots().any(fits) || self.store.find(filter).is_some()
    }

    /// Releases what no awaited message precedes any more, up to the news of an end ([`State::begin_end`]).
    pub fn release_backlog(&mut self) {
        let queued = self.store.queue.pushed();
        self.release_items();
        // A receive that has searched the queue before must not take what arrives now, ahead of what was released.
        if self.store.queue.pushed() > queued {
            self.handlers.queue_all();
        }
    }

    fn release_items(&mut self) {
        loop {
            let (arrived, of_daemon) = match self.backlog.items.front_mut() {
                Some(Item::Gap { count, arrived, .. }) if *count > 0 => {
                    let arrived = std::mem::take(arrived);
                    return arrived.into_iter().for_each(|slot| self.accept(slot));
                }
                Some(Item::Gap { arrived, .. }) => (std::mem::take(arrived), None),
                Some(Item::Message(slot)) => (vec![*slot], None),
                Some(Item::OfDaemon(slot)) => (Vec::new(), Some(*slot)),
                Some(Item::Nothing) => (Vec::new(), None),
                Some(Item::Ended { .. }) => return,
                None => return self.handlers.queue_behind_gaps(false),
            };
            self.backlog.pop();
            arrived.into_iter().for_each(|slot| self.accept(slot));
            of_daemon.into_iter().for_each(|slot| self.accept_of_daemon(slot));
        }
    }

    /// Returns the next task whose end is to be handled, if nothing awaited precedes the news.
    pub fn begin_end(&mut self) -> Option<Tid> {
        let Some(Item::Ended { peer, is_handled: is_handled @ false }) = self.backlog.items.front_mut() else {
            return None;
        };
        *is_handled = true;
        Some(*peer)
    }

    /// Releases what follows the end of a task that was handled. Returns `false` if there is none.
    pub fn finish_end(&mut self) -> bool {
        let is_handled = matches!(self.backlog.items.front(), Some(Item::Ended { is_handled: true, .. }));
        if is_handled {
            self.backlog.pop();
            self.release_backlog();
        }
        is_handled
    }

    /// Drops all that waits.
    pub fn clear_backlog(&mut self) {
        let slots: Vec<u32> = self.backlog.slots().collect();
        self.backlog = Backlog { released: self.backlog.end(), ..Backlog::default() };
        slots.into_iter().for_each(|slot| self.store.free(slot as i32 + 1));
        self.handlers.queue_behind_gaps(false);
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
