//! The blocks of a task's heap that a peer may still read.
use crate::heap::Block;

/// The blocks of a token. The first is kept apart: most bodies have only one, and then need no other memory.
struct Blocks {
    first: Option<Block>,
    rest: Vec<Block>,
}

/// Blocks that the peer may still read, by token.
#[derive(Default)]
pub(crate) struct Outstanding {
    places: Vec<Option<Blocks>>,
    free: Vec<u32>,
}

impl Outstanding {
    pub fn add(&mut self, blocks: impl IntoIterator<Item = Block>) -> u32 {
        let mut blocks = blocks.into_iter();
        let blocks = Blocks { first: blocks.next(), rest: blocks.collect() };
        match self.free.pop() {
            Some(token) => {
                self.places[token as usize] = Some(blocks);
                token
            }
            None => {
                self.places.push(Some(blocks));
                (self.places.len() - 1) as u32
            }
        }
    }
    /// Returns whether the peer may still read the blocks of a token.
    pub fn holds(&self, token: u32) -> bool {
        self.places.get(token as usize).is_some_and(Option::is_some)
    }
    /// Learns from the time, in ns, that the peer has spent on copying the body of a token out. A token that is unknown, or
    /// whose body was not measured, is ignored.
    pub fn record_copied_out(&self, token: u32, ns: u64) {
        if let Some(Some(Blocks { first, rest })) = self.places.get(token as usize) {
            first.iter().chain(rest).find(|block| block.record_copied_out(ns));
        }
    }
    /// Frees the blocks of a token. An unknown token is ignored: a peer that breaks the rules harms only itself.
    pub fn remove(&mut self, token: u32) {
        if self.places.get_mut(token as usize).is_some_and(|place| place.take().is_some()) {
            self.free.push(token);
        }
    }
}
