//! What has arrived behind gaps: the daemon has told that messages of another host come before it, and they are not there yet
//! (`docs/decisions/0050`).
use crate::receive::Envelope;
use crate::task::State;
use pvm_core::tid::Tid;
use std::collections::VecDeque;

enum Item {
    /// The next `count` messages of a host belong here. `arrived`: the slots of those that have arrived already.
    Gap { host: Tid, count: u32, arrived: Vec<u32> },
    /// A message, by its slot.
    Message(u32),
    /// The news that a task of another host has ended. What follows waits until its last messages are there, if the news is
    /// being handled.
    Ended { peer: Tid, is_handled: bool },
}

/// What waits, in the order in which the task receives it.
#[derive(Default)]
pub(crate) struct Backlog {
    items: VecDeque<Item>,
}

impl Backlog {
    /// Returns whether anything waits, so that what arrives now has to wait, too.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.items.is_empty()
    }

    /// Keeps the news that a task has ended.
    pub fn add_end(&mut self, peer: Tid) {
        self.items.push_back(Item::Ended { peer, is_handled: false });
    }

    /// Puts a message into the first gap for messages of its host, or at the end.
    fn add(&mut self, from: Tid, slot: u32) {
        let for_host = |item: &&mut Item| matches!(item, Item::Gap { host, count: 1.., .. } if *host == from);
        match self.items.iter_mut().find(for_host) {
            Some(Item::Gap { count, arrived, .. }) => {
                *count -= 1;
                arrived.push(slot);
            }
            _ => self.items.push_back(Item::Message(slot)),
        }
    }

    /// Returns all messages that wait.
    pub fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.items
            .iter()
            .flat_map(|item| match item {
                Item::Gap { arrived, .. } => arrived.as_slice(),
                Item::Message(slot) => std::slice::from_ref(slot),
                Item::Ended { .. } => &[],
            })
            .copied()
    }

    /// Forgets messages that wait.
    pub fn forget(&mut self, slots: &[u32]) {
        self.items.retain_mut(|item| match item {
            Item::Gap { arrived, .. } => {
                arrived.retain(|slot| !slots.contains(slot));
                true
            }
            Item::Message(slot) => !slots.contains(slot),
            Item::Ended { .. } => true,
        });
    }
}

impl State {
    /// Notes that the next `count` messages of a host come before what arrives from now on.
    #[cold]
    pub(crate) fn on_gap(&mut self, host: Tid, count: u32) {
        if count > 0 {
            self.backlog.items.push_back(Item::Gap { host, count, arrived: Vec::new() });
            self.handlers.queue_behind_gaps(true);
        }
    }

    /// Notes that no more messages of a host arrive. Returns whether any were awaited.
    #[cold]
    pub(crate) fn on_no_more(&mut self, from: Tid) -> bool {
        self.close_gaps(|host| host == from)
    }

    /// Closes all gaps: the daemon is lost, and nobody else fills them.
    pub(crate) fn close_all_gaps(&mut self) -> bool {
        self.close_gaps(|_| true)
    }

    fn close_gaps(&mut self, closes: impl Fn(Tid) -> bool) -> bool {
        let mut some = false;
        for item in &mut self.backlog.items {
            if let Item::Gap { host, count: count @ 1.., .. } = item {
                if closes(*host) {
                    (*count, some) = (0, true);
                }
            }
        }
        self.release_backlog();
        some
    }

    /// Keeps a message of another task, passed on by the daemon if that task is on another host.
    #[cold]
    pub(crate) fn add_to_backlog(&mut self, envelope: &Envelope, slot: u32) {
        self.backlog.add(Tid(envelope.src as u32).host(), slot);
        self.release_backlog();
    }

    /// Keeps a message that the daemon has made or stored.
    pub(crate) fn add_to_backlog_end(&mut self, slot: u32) {
        self.backlog.items.push_back(Item::Message(slot));
    }

    /// Releases what no awaited message precedes any more, up to the news of an end ([`State::begin_end`]).
    pub(crate) fn release_backlog(&mut self) {
        let queued = self.store.queue.pushed();
        self.release_items();
        // A receive that has searched the queue before must not take what arrives now, ahead of what was released.
        if self.store.queue.pushed() > queued {
            self.handlers.queue_all();
        }
    }

    fn release_items(&mut self) {
        loop {
            let slot = match self.backlog.items.front_mut() {
                Some(Item::Gap { count, arrived, .. }) => {
                    let (is_closed, arrived) = (*count == 0, std::mem::take(arrived));
                    if is_closed {
                        self.backlog.items.pop_front();
                    }
                    arrived.into_iter().for_each(|slot| self.accept(slot));
                    if is_closed { continue } else { return }
                }
                Some(Item::Message(slot)) => *slot,
                Some(Item::Ended { .. }) => return,
                None => return self.handlers.queue_behind_gaps(false),
            };
            self.backlog.items.pop_front();
            self.accept(slot);
        }
    }

    /// Returns the next task whose end is to be handled, if nothing awaited precedes the news.
    pub(crate) fn begin_end(&mut self) -> Option<Tid> {
        let Some(Item::Ended { peer, is_handled: is_handled @ false }) = self.backlog.items.front_mut() else {
            return None;
        };
        *is_handled = true;
        Some(*peer)
    }

    /// Releases what follows the end of a task that was handled. Returns `false` if there is none.
    pub(crate) fn finish_end(&mut self) -> bool {
        let is_handled = matches!(self.backlog.items.front(), Some(Item::Ended { is_handled: true, .. }));
        if is_handled {
            self.backlog.items.pop_front();
            self.release_backlog();
        }
        is_handled
    }

    /// Drops all that waits.
    pub(crate) fn clear_backlog(&mut self) {
        let slots: Vec<u32> = self.backlog.slots().collect();
        self.backlog = Backlog::default();
        slots.into_iter().for_each(|slot| self.store.free(slot as i32 + 1));
        self.handlers.queue_behind_gaps(false);
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
