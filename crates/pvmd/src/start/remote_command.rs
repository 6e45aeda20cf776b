//! The command that starts a daemon on another host: its local process and the output of that process.
use super::step_guard;
use crate::children::status_of;
use pvm_core::dialogue::{CONFIRMED, LINE_BYTES_MAX};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// Bytes read at a time.
const READ_BYTES: usize = 4096;
/// The number of bytes read from one pipe before other pipes are read. No pipe holds more.
const READ_IN_TURN_MAX: usize = 1 << 20;
/// Events taken from `epoll` at a time.
const EVENTS_MAX: usize = 64;
/// The number of lower bits of an event's data that select a descriptor of the command.
const STREAM_BITS: u32 = 2;

/// The reading end of a pipe. Reading does not block.
pub struct OutputPipe(Option<OwnedFd>);

impl OutputPipe {
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<OutputPipe> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(OutputPipe(Some(pipe)))
    }

    /// Returns whether the pipe is at its end.
    pub fn ended(&self) -> bool {
        self.0.is_none()
    }

    /// Reads the bytes that have arrived.
    pub fn read(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        let mut bytes = [0; READ_BYTES];
        while let Some(pipe) = self.0.as_ref().filter(|_| read.len() < READ_IN_TURN_MAX) {
            match rustix::io::read(pipe, &mut bytes) {
                Ok(count) if count > 0 => read.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Closing the descriptor removes it from `epoll`.
                _ => self.0 = None,
            }
        }
        read
    }
}

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
        for piece in bytes.chunks(READ_BYTES) {
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

/// A running command.
pub struct RemoteCommand {
    child: Child,
    /// The pidfd, removed once the process is known to have ended, since a pidfd stays readable after the end.
    pidfd: Option<OwnedFd>,
    /// The standard input of the process, kept open until the daemon has answered.
    input: Option<ChildStdin>,
    pub output: OutputPipe,
    pub errors: OutputPipe,
}

impl RemoteCommand {
    /// Starts a command and writes its input. `alone`: the command gets a new process group, so that it can be killed
    /// together with its children. `prepare` sets variables.
    pub fn start(
        words: &[OsString],
        input: &[u8],
        alone: bool,
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<RemoteCommand> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        prepare(&mut command);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if alone {
            command.process_group(0);
        }
        let mut child = crate::core_dumps::as_before(|| command.spawn())?;
        let mut stdin = child.stdin.take();
        // The input fits into the pipe. An error means that the process has ended already; its standard error says why.
        let _ = stdin.as_mut().map(|stdin| stdin.write_all(input));
        match watched(&mut child) {
            Ok((pidfd, output, errors)) => {
                Ok(RemoteCommand { child, pidfd: Some(pidfd), input: stdin, output, errors })
            }
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error)
            }
        }
    }

    /// Returns the descriptors to watch: output, errors, the end of the process.
    pub fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 3] {
        [&self.output.0, &self.errors.0, &self.pidfd].map(|descriptor| descriptor.as_ref().map(AsFd::as_fd))
    }

    /// Confirms to the daemon that its answer has been received, and closes the daemon's input. The daemon waits for
    /// both before it detaches from the command. A step of Slurm goes on without its guard.
    pub fn close_input(&mut self) {
        if self.pidfd.is_some() {
            step_guard::end(self.child.id());
        }
        if let Some(mut input) = self.input.take() {
            // The word fits into the pipe, since the daemon has read the greeting.
            let _ = writeln!(input, "{CONFIRMED}");
        }
    }

    /// Closes the input of a daemon that is not wanted. The daemon then ends, since it has not received the
    /// confirmation that [`RemoteCommand::close_input`] sends.
    pub fn drop_input(&mut self) {
        self.input = None;
    }

    /// Returns the status of the process if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        let status = status_of(&mut self.child);
        if status.is_some() {
            self.pidfd = None;
        }
        status
    }

    /// Returns the process id.
    #[cfg(test)]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and its children.
    pub fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        // This kills the process if it does not lead a group.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Returns whether this process belongs to the foreground process group of its terminal. A process of any other group
/// is stopped when it reads a password from the terminal.
pub fn is_in_foreground() -> bool {
    let in_front = |terminal| rustix::termios::tcgetpgrp(terminal) == Ok(rustix::process::getpgrp());
    std::fs::File::open("/dev/tty").is_ok_and(in_front)
}

/// Opens the descriptors of a process that are to be watched: pidfd, output, errors.
fn watched(child: &mut Child) -> io::Result<(OwnedFd, OutputPipe, OutputPipe)> {
    let process = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((pidfd, OutputPipe::new(output.into())?, OutputPipe::new(errors.into())?))
}

/// Begins to watch the output and the end of a command. Returns whether that worked.
pub fn watch(epoll: &OwnedFd, number: u64, command: &RemoteCommand) -> bool {
    let add = |(stream, descriptor): (u64, Option<BorrowedFd<'_>>)| {
        let data = EventData::new_u64(number << STREAM_BITS | stream);
        descriptor.is_none_or(|descriptor| epoll::add(epoll, descriptor, data, EventFlags::IN).is_ok())
    };
    (0..).zip(command.descriptors()).all(add)
}

/// Returns the numbers of the commands whose descriptors are ready.
pub fn ready(epoll: &OwnedFd) -> Vec<u64> {
    let mut ready = Vec::with_capacity(EVENTS_MAX);
    // After an error, the next call returns the events.
    let _ = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), Some(&Timespec::default()));
    let mut numbers: Vec<u64> = ready.iter().map(|event| event.data.u64() >> STREAM_BITS).collect();
    numbers.dedup();
    numbers
}
