//! The command that starts a daemon on another host: its local process and the output of that process.
use super::step_guard;
use crate::background_command::{BackgroundCommand, OutputPipe};
use pvm_core::dialogue::{CONFIRMED, LINE_BYTES_MAX};
use rustix::event::epoll;
use rustix::time::Timespec;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

/// The bytes after which lines are looked for.
const PIECE_BYTES: usize = 4096;
/// Events taken from `epoll` at a time.
const EVENTS_MAX: usize = 64;

/// Splits output into lines.
#[derive(Default)]
pub struct Lines {
    text: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Returns whether the output is at its end.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Adds bytes and returns the lines that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            self.text.extend_from_slice(piece);
            self.split(&mut lines);
        }
        lines
    }

    /// Marks the end of the output and returns the unfinished line.
    pub fn end(&mut self) -> Vec<String> {
        self.ended = true;
        let mut lines = Vec::new();
        self.split(&mut lines);
        lines
    }

    /// Reads a pipe and returns the complete lines, and at the end of the pipe also the unfinished line.
    pub fn read(&mut self, pipe: &mut OutputPipe) -> Vec<String> {
        let mut lines = self.take(&pipe.read());
        if pipe.ended() {
            lines.extend(self.end());
        }
        lines
    }

    fn split(&mut self, lines: &mut Vec<String>) {
        let mut rest = self.text.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            lines.push(String::from_utf8_lossy(&rest[..end]).trim_end().to_owned());
            rest = &rest[end + 1..];
        }
        let finished = self.ended || rest.len() > LINE_BYTES_MAX;
        if finished && !rest.is_empty() {
            lines.push(String::from_utf8_lossy(rest).trim_end().to_owned());
            rest = &[];
        }
        self.text = rest.to_vec();
    }
}

/// Begins to start a command, and writes its input. `alone`: the command gets a new process group, so that it can be killed
/// together with its children. `prepare` sets variables.
pub fn start(
    words: &[OsString],
    input: &[u8],
    alone: bool,
    prepare: impl FnOnce(&mut Command),
) -> io::Result<BackgroundCommand> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    prepare(&mut command);
    command.args(arguments);
    BackgroundCommand::start(command, alone, input)
}

/// Confirms to the daemon that its answer has been received, and closes the daemon's input. The daemon waits for both
/// before it detaches from the command. A step of Slurm goes on without its guard.
pub fn confirm(command: &mut BackgroundCommand) {
    command.id().into_iter().for_each(step_guard::end);
    // The word fits into the pipe, since the daemon has read the greeting.
    let _ = command.input().map(|input| rustix::io::write(input, format!("{CONFIRMED}\n").as_bytes()));
    command.close_input();
}

/// Returns whether this process belongs to the foreground process group of its terminal. A process of any other group
/// is stopped when it reads a password from the terminal.
pub fn is_in_foreground() -> bool {
    let in_front = |terminal| rustix::termios::tcgetpgrp(terminal) == Ok(rustix::process::getpgrp());
    std::fs::File::open("/dev/tty").is_ok_and(in_front)
}

/// Returns the numbers of the commands whose descriptors are ready.
pub fn ready(epoll: &OwnedFd) -> Vec<u64> {
    let mut ready = Vec::with_capacity(EVENTS_MAX);
    // After an error, the next call returns the events.
    let _ = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), Some(&Timespec::default()));
    let mut numbers: Vec<u64> = ready.iter().map(|event| event.data.u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
