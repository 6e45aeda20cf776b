//! The queue of messages that have arrived and have not been received.
//!
//! Messages are linked in a chain in the order of their arrival. While the chain is short, a search walks along it.
//! When a search has passed many messages, an index is made: further chains, one for each combination (context, tag,
//! sender), (context, tag), (context, sender) and (context) that occurs. With the index, a search in one context, with
//! or without wildcards, takes the first message of one chain (defect D46 in `docs/compatibility.md`). A search in any
//! context walks along the whole queue. The index lives until the queue is empty.
//!
//! Messages are numbered in the order of their arrival. Messages below a mark are **visible**: calls that do not wait
//! find only those (`visibility`).
use super::Message;
use crate::types::{ANY, Filter, PRIVATE_CONTEXTS};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A search that passes more messages than this makes the index.
const WALK_MESSAGES_MAX: usize = 64;
/// No message.
const NONE: u32 = u32::MAX;
/// The chain in the order of arrival; the other chains are those of the index.
const ARRIVAL: usize = 0;
const CHAINS: usize = 5;

/// A message's neighbours in each chain.
pub(crate) type Links = [Neighbours; CHAINS];

#[derive(Clone, Copy)]
pub(crate) struct Neighbours {
    previous: u32,
    next: u32,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours { previous: NONE, next: NONE }
    }
}

#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

const EMPTY: Chain = Chain { first: NONE, last: NONE };

/// The words that the messages of an index chain have in common; words that the chain does not use are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    chain: u8,
    ctx: i32,
    tag: i32,
    src: i32,
}

/// A hasher that multiplies and folds. Keys are few words, and no adversary chooses them.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
    fn write_i32(&mut self, word: i32) {
        self.write_u64(u64::from(word as u32));
    }
    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

type Index = HashMap<Key, Chain, BuildHasherDefault<WordHasher>>;

/// The queue. Its messages are in a table; the queue refers to them by their indices in this table (`slot`).
pub(crate) struct Queue {
    arrival: Chain,
    len: usize,
    /// How many messages were ever added.
    pushed: u64,
    /// Messages below this number are visible.
    visible: u64,
    /// Messages below this number are known to the program: a call that receives or probes has searched them.
    searched: u64,
    /// The first message that is not visible.
    hidden: u32,
    index: Option<Box<Index>>,
}

impl Queue {
    pub fn new() -> Queue {
        Queue { arrival: EMPTY, len: 0, pushed: 0, visible: 0, searched: 0, hidden: NONE, index: None }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.arrival.first == NONE
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a message at the end.
    #[inline]
    pub fn push(&mut self, table: &mut [Message], slot: u32) {
        append(&mut self.arrival, table, ARRIVAL, slot);
        self.len += 1;
        table[slot as usize].number = self.pushed;
        self.pushed += 1;
        if self.hidden == NONE {
            self.hidden = slot;
        }
        if let Some(index) = &mut self.index {
            enter(index, table, slot);
        }
    }

    /// Drops the index, before the words of a queued message change.
    pub fn forget_index(&mut self) {
        self.index = None;
    }

    /// Removes a message.
    #[inline]
    pub fn remove(&mut self, table: &mut [Message], slot: u32) {
        if self.hidden == slot {
            self.hidden = table[slot as usize].links[ARRIVAL].next;
        }
        detach(&mut self.arrival, table, ARRIVAL, slot);
        self.len -= 1;
        if let Some(index) = &mut self.index {
            for chain in 1..CHAINS {
                leave(index, table, chain, slot);
            }
            if self.len == 0 {
                self.index = None;
            }
        }
    }

    /// Returns how many messages were ever added.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Returns the first message that is not visible.
    #[inline]
    pub fn first_hidden(&self) -> Option<u32> {
        (self.hidden != NONE).then_some(self.hidden)
    }

    /// Makes all messages visible.
    #[inline]
    pub fn reveal_all(&mut self) {
        (self.visible, self.hidden) = (self.pushed, NONE);
    }

    /// Makes a message and all messages before it visible.
    #[inline]
    pub fn reveal_through(&mut self, table: &[Message], slot: u32) {
        let message = &table[slot as usize];
        if message.number >= self.visible {
            (self.visible, self.hidden) = (message.number + 1, message.links[ARRIVAL].next);
        }
    }

    /// Notes that a call that receives or probes has searched the visible messages.
    #[inline]
    pub fn note_search(&mut self) {
        self.searched = self.visible;
    }

    /// Notes that such a call has searched all messages in vain.
    #[inline]
    pub fn note_vain_search(&mut self) {
        self.searched = self.pushed;
    }

    /// Returns whether there is a message that no such call has searched: it is hidden, or another call has made it visible.
    /// The library's own messages do not count.
    pub fn has_news(&self, table: &[Message]) -> bool {
        let mut slot = self.arrival.last;
        while slot != NONE && table[slot as usize].number >= self.searched {
            let message = &table[slot as usize];
            if !PRIVATE_CONTEXTS.contains(&message.ctx) {
                return true;
            }
            slot = message.links[ARRIVAL].previous;
        }
        self.first_hidden().is_some()
    }

    /// Returns whether a message is visible.
    pub fn is_visible(&self, table: &[Message], slot: u32) -> bool {
        table[slot as usize].number < self.visible
    }

    /// Returns the oldest visible message that the filter accepts.
    #[inline]
    pub fn find_visible(&mut self, table: &mut [Message], filter: &Filter) -> Option<u32> {
        self.find(table, filter).filter(|&slot| self.is_visible(table, slot))
    }

    /// Returns the oldest message that the filter accepts.
    #[inline]
    pub fn find(&mut self, table: &mut [Message], filter: &Filter) -> Option<u32> {
        let first = self.arrival.first;
        if first == NONE {
            return None;
        }
        if fits(&table[first as usize], filter) {
            return Some(first);
        }
        self.search(table, filter)
    }

    #[inline(never)]
    fn search(&mut self, table: &mut [Message], filter: &Filter) -> Option<u32> {
        if self.index.is_none() {
            let near = self.walk(table).take(WALK_MESSAGES_MAX).find(|&slot| fits(&table[slot as usize], filter));
            if near.is_some() || self.len <= WALK_MESSAGES_MAX {
                return near;
            }
            self.make_index(table);
        }
        match (&self.index, key(filter)) {
            (Some(index), Some(key)) => index.get(&key).map(|chain| chain.first),
            _ => self.walk(table).find(|&slot| fits(&table[slot as usize], filter)),
        }
    }

    /// Returns the oldest message that both the filter and `accept` accept.
    pub fn find_where(
        &mut self,
        table: &mut [Message],
        filter: &Filter,
        accept: impl Fn(&Message) -> bool,
    ) -> Option<u32> {
        // This search makes the index if the queue is long.
        let first = self.find(table, filter)?;
        let chain = match (&self.index, key(filter)) {
            (Some(_), Some(key)) => usize::from(key.chain),
            _ => ARRIVAL,
        };
        let is_wanted = |slot: &u32| {
            let message = &table[*slot as usize];
            fits(message, filter) && accept(message)
        };
        walk_chain(table, chain, first).find(is_wanted)
    }

    /// Returns the messages that the program can see (module `visibility`), in the order of their arrival.
    pub fn walk_visible<'a>(&self, table: &'a [Message]) -> impl Iterator<Item = u32> + 'a {
        let visible = self.visible;
        self.walk(table).take_while(move |slot| table[*slot as usize].number < visible)
    }

    /// Returns all messages in the order of their arrival.
    pub fn walk<'a>(&self, table: &'a [Message]) -> impl Iterator<Item = u32> + 'a {
        walk_chain(table, ARRIVAL, self.arrival.first)
    }

    fn make_index(&mut self, table: &mut [Message]) {
        let mut index = Index::default();
        let mut slot = self.arrival.first;
        while slot != NONE {
            enter(&mut index, table, slot);
            slot = table[slot as usize].links[ARRIVAL].next;
        }
        self.index = Some(Box::new(index));
    }
}

/// Returns the messages of a chain from `first` on.
fn walk_chain(table: &[Message], chain: usize, first: u32) -> impl Iterator<Item = u32> + '_ {
    let mut slot = first;
    std::iter::from_fn(move || {
        let here = (slot != NONE).then_some(slot)?;
        slot = table[here as usize].links[chain].next;
        Some(here)
    })
}

/// Returns whether the filter accepts the message.
#[inline]
pub(crate) fn fits(message: &Message, filter: &Filter) -> bool {
    filter.accepts(message.src, message.tag, message.ctx)
}

/// Returns the key of the index chain that holds exactly the messages that the filter accepts.
fn key(filter: &Filter) -> Option<Key> {
    let Filter { src, tag, ctx } = *filter;
    match (ctx, tag, src) {
        (ANY, _, _) => None,
        (_, ANY, ANY) => Some(Key { chain: 4, ctx, tag: 0, src: 0 }),
        (_, ANY, _) => Some(Key { chain: 3, ctx, tag: 0, src }),
        (_, _, ANY) => Some(Key { chain: 2, ctx, tag, src: 0 }),
        _ => Some(Key { chain: 1, ctx, tag, src }),
    }
}

fn key_of(message: &Message, chain: usize) -> Key {
    let Message { ctx, tag, src, .. } = *message;
    match chain {
        1 => Key { chain: 1, ctx, tag, src },
        2 => Key { chain: 2, ctx, tag, src: 0 },
        3 => Key { chain: 3, ctx, tag: 0, src },
        _ => Key { chain: 4, ctx, tag: 0, src: 0 },
    }
}

/// Adds a message to the index.
fn enter(index: &mut Index, table: &mut [Message], slot: u32) {
    for chain in 1..CHAINS {
        let key = key_of(&table[slot as usize], chain);
        append(index.entry(key).or_insert(EMPTY), table, chain, slot);
    }
}

/// Removes a message from one chain of the index.
fn leave(index: &mut Index, table: &mut [Message], chain: usize, slot: u32) {
    let key = key_of(&table[slot as usize], chain);
    if let Some(ends) = index.get_mut(&key) {
        detach(ends, table, chain, slot);
        if ends.first == NONE {
            index.remove(&key);
        }
    }
}

#[inline]
fn append(ends: &mut Chain, table: &mut [Message], chain: usize, slot: u32) {
    table[slot as usize].links[chain] = Neighbours { previous: ends.last, next: NONE };
    match ends.last {
        NONE => ends.first = slot,
        last => table[last as usize].links[chain].next = slot,
    }
    ends.last = slot;
}

#[inline]
fn detach(ends: &mut Chain, table: &mut [Message], chain: usize, slot: u32) {
    let Neighbours { previous, next } = table[slot as usize].links[chain];
    match previous {
        NONE => ends.first = next,
        previous => table[previous as usize].links[chain].next = next,
    }
    match next {
        NONE => ends.last = previous,
        next => table[next as usize].links[chain].previous = previous,
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
