//! The C interface of PVM 3.4 over [`pvm_task`] (contract 1 and 2).
//!
//! Every function is thin: it turns pointers into slices ([`memory`]), goes inside the process's
//! one lock ([`process`], [`lock`]), lets the task do the work, and turns failures into codes
//! ([`errors`]). Functions of the interface are documented by the manual pages; here only what is
//! not to be read there is said. Variable arguments are handled in `shim/format.c`.
#![allow(clippy::missing_safety_doc)] // the manual pages say what callers owe
#![allow(clippy::not_unsafe_ptr_arg_deref)]

mod at_exit;
mod buffers;
mod catchout;
mod data;
mod descriptors;
mod errors;
mod fast_path;
mod fortran;
#[cfg(all(any(test, fuzzing), target_arch = "x86_64"))]
pub mod fuzz;
mod groups;
mod handlers;
mod hosts;
mod line_buffering;
mod lists;
mod lock;
mod mailbox;
mod memory;
mod misc;
mod options;
mod pack;
mod process;
mod receive;
mod register;
mod send;
mod spawn;
mod start;
mod takeover;
mod tasks;
mod trace;
mod trace_table;
mod wait;
