//! Message contexts (contract 2.4).
use super::core::{Core, SubMachine};
use super::event::Event;
use super::index::PairIndex;
use crate::codes::Code;
use crate::proto::Reply;
use crate::tid::{LOCAL_MASK, Tid};
use std::collections::BTreeMap;

/// Contexts of this host that are in use at a time. Numbers above this limit are reserved for the system.
///
/// * Filled by: tasks of the host
/// * Setting: none, the number of bits of a context fixes it
/// * Reached: `pvm_newcontext` says `PvmOutOfRes`
/// * Test: `when_all_contexts_are_given_out_the_next_is_refused`
const CONTEXT_MAX: u32 = LOCAL_MASK - 16;

/// The contexts in use and their owners.
pub(super) struct Contexts {
    host: Tid,
    /// The number allocated last, without the host's bits.
    last: u32,
    owners: BTreeMap<u32, Tid>,
    owned: PairIndex<Tid, u32>,
}

impl SubMachine for Contexts {
    fn name(&self) -> &'static str {
        "contexts"
    }
    fn is_idle(&self) -> bool {
        self.owners.is_empty() && self.owned.is_empty()
    }
    fn on_event(&mut self, _: &mut Core, event: &Event) {
        if let Event::TaskGone { tid, .. } = event {
            self.forget(*tid);
        }
    }
}

impl Contexts {
    pub fn new(host: Tid) -> Contexts {
        Contexts { host, last: 0, owners: BTreeMap::new(), owned: PairIndex::default() }
    }

    /// Allocates a context.
    pub fn allocate(&mut self, owner: Tid) -> Result<Reply, Code> {
        if self.owners.len() >= CONTEXT_MAX as usize {
            return Err(Code::OutOfRes);
        }
        loop {
            self.last = self.last % CONTEXT_MAX + 1;
            if !self.owners.contains_key(&self.last) {
                self.owners.insert(self.last, owner);
                self.owned.insert(owner, self.last);
                return Ok(Reply::Int((self.host.0 | self.last) as i32));
            }
        }
    }

    /// Frees a context at the request of its owner.
    pub fn free(&mut self, owner: Tid, context: i32) -> Result<Reply, Code> {
        if context == 0 {
            return Err(Code::BadParam);
        }
        let context = Tid(context as u32);
        if context.host() != self.host || self.owners.get(&context.local()) != Some(&owner) {
            return Err(Code::NotFound);
        }
        self.owners.remove(&context.local());
        self.owned.remove(owner, context.local());
        Ok(Reply::Done)
    }

    /// Frees the contexts of a task that has ended.
    fn forget(&mut self, owner: Tid) {
        for context in self.owned.take(owner) {
            self.owners.remove(&context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_count_up_and_belong_to_their_maker() {
        let (one, other) = (Tid(0x40001), Tid(0x40002));
        let mut contexts = Contexts::new(Tid(0x40000));
        assert_eq!(contexts.allocate(one), Ok(Reply::Int(0x40001)));
        assert_eq!(contexts.allocate(one), Ok(Reply::Int(0x40002)));
        assert_eq!(contexts.free(other, 0x40001), Err(Code::NotFound));
        assert_eq!(contexts.free(one, 0), Err(Code::BadParam));
        assert_eq!(contexts.free(one, 0x40001), Ok(Reply::Done));
        assert_eq!(contexts.free(one, 0x40001), Err(Code::NotFound));
        assert_eq!(contexts.allocate(one), Ok(Reply::Int(0x40003)));
        contexts.forget(one);
        assert!(contexts.owners.is_empty());
    }

    #[test]
    fn when_all_contexts_are_given_out_the_next_is_refused() {
        let mut contexts = Contexts::new(Tid(0x40000));
        for _ in 0..CONTEXT_MAX {
            contexts.allocate(Tid(0x40001)).unwrap();
        }
        assert_eq!(contexts.allocate(Tid(0x40001)), Err(Code::OutOfRes));
    }
}
