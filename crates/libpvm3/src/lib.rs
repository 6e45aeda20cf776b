//! The C interface of PVM 3.4 over [`pvm_task`] (contract 1 and 2).
//!
//! Every function is a thin layer: it turns pointers into slices ([`memory`]), acquires the one lock of the process
//! ([`process`], [`process::lock`]), calls the task, and turns failures into codes ([`errors`]). The manual pages
//! document the functions; the comments here add only what the pages do not say. `shim/format.c` handles variable
//! arguments.
#![allow(clippy::missing_safety_doc)] // the manual pages say what callers must ensure
#![allow(clippy::not_unsafe_ptr_arg_deref)]

mod at_start;
mod buffers;
mod callbacks;
mod catchout;
mod cursors;
mod data;
mod descriptors;
mod errors;
mod fast_path;
mod fmp;
mod fortran;
#[cfg(all(any(test, fuzzing), target_arch = "x86_64"))]
pub mod fuzz;
mod groups;
mod handlers;
mod hosts;
mod interpreter;
mod leaving;
mod lists;
mod mailbox;
mod memory;
mod messages;
mod misc;
mod options;
mod pack;
mod process;
mod receive;
mod register;
mod send;
mod spawn;
mod start;
mod tasks;
mod trace;
mod trace_mode;
mod trace_table;
mod wait;
