//! The numbers of daemons, links and processes.

/// The index of a daemon. If a host's daemon is started again, the new daemon has another index.
pub type NodeId = usize;

/// The index of a link: two connections between two daemons, one for control and one for data.
pub type LinkId = usize;

/// The index of a process. An index is never used again.
pub type TaskId = usize;
