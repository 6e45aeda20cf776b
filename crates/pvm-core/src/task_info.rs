//! What `pvm_tasks` reports of a task, and the kinds of tasks.
#![allow(missing_docs)] // the fields have the names of the manual pages
use crate::tid::Tid;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// What a task does.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskKind {
    /// It is a program, which may send messages.
    #[default]
    Program,
    /// It makes requests only, and sends no messages to tasks: the console, `pvm run`.
    Tool,
}

/// `struct pvmtaskinfo`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct TaskInfo {
    pub tid: Tid,
    /// The parent; 0 for none, -35 if the task was spawned with `PvmNoSpawnParent`.
    pub parent: i32,
    pub host: Tid,
    pub flags: u32,
    /// The name given to `pvm_spawn`; empty for tasks that enrolled by themselves.
    pub name: ByteBuf,
    pub pid: i32,
    /// Not in `struct pvmtaskinfo`: the destination of the output, as collector, context and tag.
    pub output: (i32, i32, i32),
}
