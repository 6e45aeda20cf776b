//! Output of children that comes to this task (contract 2.8).
use pvm_core::tid::Tid;

/// Something happened to the output of a collected task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputEvent {
    /// The task.
    pub task: Tid,
    /// The context and tag to which its output goes: which collection it belongs to.
    pub ctx: i32,
    /// See `ctx`.
    pub tag: i32,
    /// What happened.
    pub kind: OutputKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputKind {
    /// The first news of the task (`[tXXXXX] BEGIN`).
    Begin,
    /// A whole line without its newline; at the end of the output also what was left without one.
    Line(Vec<u8>),
    /// No more comes (`[tXXXXX] EOF`).
    End,
}
