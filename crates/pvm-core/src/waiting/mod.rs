//! Who waits for whom, and why nothing comes (`pvm why`).
//!
//! The input is several looks at all hosts ([`crate::host_look`]); the result says of each task what it waits for and whether
//! that can ever come. No task is said to be stuck on the strength of one look: it must have slept in the same wait in all of
//! them, without getting anything, and what was under way at the first look must have arrived before the last one
//! ([decision 64](../../../../docs/decisions/0064-state-line-and-waiting-graph.md)).
//!
//! * `graph`: which nodes of a graph of needs can never go on, and which of them hold each other up
//! * `look`: what is taken from the looks
//! * `needs`: which tasks could end a wait
//! * `report`: the result
mod graph;
mod look;
mod needs;
mod report;

#[cfg(test)]
mod graph_tests;
#[cfg(test)]
mod tests;

pub use look::{Doubt, Look, State};
pub use report::{Obstacle, Outlook, Peer, Report, TaskReport, report};
