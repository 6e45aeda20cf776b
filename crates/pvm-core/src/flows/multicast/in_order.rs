//! Messages that must wait until the body of an announced message before them is there.
use super::BodyKey;
use crate::tid::Tid;
use std::collections::{BTreeMap, VecDeque};

enum Slot<M> {
    /// An announced message whose body is still being fetched.
    Awaited(BodyKey),
    /// A message that can be delivered after those before it.
    Ready(M),
}

/// The messages of flows in which an announced message is incomplete: for each sending host and receiver, in order.
/// `M` is the type of a message.
pub struct InOrder<M> {
    queues: BTreeMap<(Tid, Tid), VecDeque<Slot<M>>>,
}

impl<M> Default for InOrder<M> {
    fn default() -> Self {
        InOrder { queues: BTreeMap::new() }
    }
}

impl<M> InOrder<M> {
    /// Notes that a message for `dst` was announced.
    pub fn announced(&mut self, from: Tid, dst: Tid, key: BodyKey) {
        self.queues.entry((from, dst)).or_default().push_back(Slot::Awaited(key));
    }

    /// Returns whether a message has to wait. If so, the caller passes it to [`InOrder::hold`].
    pub fn is_held(&self, from: Tid, dst: Tid) -> bool {
        self.queues.contains_key(&(from, dst))
    }

    /// Keeps a message until all messages before it can be delivered. Its credit bounds the memory that it takes.
    pub fn hold(&mut self, from: Tid, dst: Tid, message: M) {
        self.queues.entry((from, dst)).or_default().push_back(Slot::Ready(message));
    }

    /// Puts an announced message, which is complete now, into its place. Returns it if its receiver has gone.
    #[must_use]
    pub fn complete(&mut self, from: Tid, dst: Tid, key: BodyKey, message: M) -> Option<M> {
        let mut slots = self.queues.get_mut(&(from, dst)).into_iter().flatten();
        match slots.find(|slot| matches!(slot, Slot::Awaited(other) if *other == key)) {
            Some(slot) => {
                *slot = Slot::Ready(message);
                None
            }
            None => Some(message),
        }
    }

    /// Removes the next message that can be delivered.
    pub fn pop(&mut self, from: Tid, dst: Tid) -> Option<M> {
        let queue = self.queues.get_mut(&(from, dst))?;
        if matches!(queue.front()?, Slot::Awaited(_)) {
            return None;
        }
        let Some(Slot::Ready(message)) = queue.pop_front() else { return None };
        if queue.is_empty() {
            self.queues.remove(&(from, dst));
        }
        Some(message)
    }

    /// Removes what is held for a task that has gone. Returns the messages, and the hosts that sent them.
    pub fn task_gone(&mut self, task: Tid) -> Vec<(Tid, M)> {
        let keys: Vec<(Tid, Tid)> = self.queues.keys().copied().filter(|(_, dst)| *dst == task).collect();
        let mut removed = Vec::new();
        for (from, dst) in keys {
            for slot in self.queues.remove(&(from, dst)).unwrap_or_default() {
                let Slot::Ready(message) = slot else { continue };
                removed.push((from, message));
            }
        }
        removed
    }

    /// Drops the messages from a host that has gone.
    pub fn host_gone(&mut self, host: Tid) {
        self.queues.retain(|(from, _), _| *from != host);
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Tid = Tid(0x80000);
    const DST: Tid = Tid(0x40001);

    #[test]
    fn messages_wait_for_the_announced_ones_before_them() {
        let key = |number| BodyKey { origin: FROM, secret: [number; 16] };
        let mut held = InOrder::default();
        assert!(!held.is_held(FROM, DST));
        held.announced(FROM, DST, key(1));
        held.hold(FROM, DST, "b");
        held.announced(FROM, DST, key(2));
        held.hold(FROM, DST, "d");
        assert!(held.is_held(FROM, DST) && !held.is_held(FROM, Tid(DST.0 + 1)));
        assert_eq!(held.complete(FROM, DST, key(2), "c"), None);
        assert_eq!(held.pop(FROM, DST), None);
        assert_eq!(held.complete(FROM, DST, key(1), "a"), None);
        let popped: Vec<&str> = std::iter::from_fn(|| held.pop(FROM, DST)).collect();
        assert_eq!(popped, ["a", "b", "c", "d"]);
        assert!(held.is_empty());
        held.announced(FROM, DST, key(3));
        held.hold(FROM, DST, "f");
        assert_eq!(held.task_gone(DST), [(FROM, "f")]);
        assert_eq!(held.complete(FROM, DST, key(3), "e"), Some("e"));
        assert!(held.is_empty() && held.pop(FROM, DST).is_none());
        held.announced(FROM, DST, key(3));
        held.host_gone(FROM);
        assert!(held.is_empty());
    }
}
