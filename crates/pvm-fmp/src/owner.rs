//! The owner of a segment that this task reads, and what this task does not read any longer.
use crate::extents::Mapping;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A peer's segment, and the tokens of its blocks that this task no longer reads.
pub(crate) struct Owner {
    pub mapping: Mapping,
    pub released: RefCell<Vec<u32>>,
    pub released_bytes: Cell<usize>,
    /// The token of the last measured body, and for how long this task has copied it out, in ns.
    pub timed: Cell<Option<(u32, u32)>>,
    /// Whether this task keeps a payload in the heap of the peer, its daemon.
    pub kept: Cell<Keeping>,
    /// Set when `released` of some peer is not empty, or a payload is kept no longer.
    pub dirty: Rc<Cell<bool>>,
}

/// The state of the one borrowed payload that a task may keep in the daemon's heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Keeping {
    /// No payload is kept.
    #[default]
    None,
    /// A payload is kept.
    Reading,
    /// A payload was kept, and the daemon has not been told yet that it is kept no longer.
    Over,
}

impl Owner {
    /// Notes that this task no longer reads the blocks of a token, which hold `bytes` bytes.
    pub fn release(&self, token: u32, bytes: usize) {
        self.released.borrow_mut().push(token);
        self.released_bytes.set(self.released_bytes.get() + bytes);
        self.dirty.set(true);
    }

    /// Notes that this task no longer reads the payload that it kept.
    pub fn end_keeping(&self) {
        self.kept.set(Keeping::Over);
        self.dirty.set(true);
    }
}
