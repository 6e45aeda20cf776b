//! A command under way on another host: its process and what it prints.
use pvm_core::dialogue::{LINE_BYTES_MAX, TAKEN};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// Bytes read in one go.
const READ_BYTES: usize = 4096;
/// Bytes read before others have their turn; no pipe holds more.
const READ_IN_TURN_MAX: usize = 1 << 20;
/// Events taken in one go.
const EVENTS_MAX: usize = 64;
/// Lower bits of an event's number: which of the descriptors of a command.
const STREAM_BITS: u32 = 2;

/// The end of a pipe from which bytes are read without waiting for them.
pub struct OutputPipe(Option<OwnedFd>);

impl OutputPipe {
    pub(crate) fn new(pipe: OwnedFd) -> io::Result<OutputPipe> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(OutputPipe(Some(pipe)))
    }

    /// Whether nothing more will come.
    pub fn ended(&self) -> bool {
        self.0.is_none()
    }

    /// What has come.
    pub fn read(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        let mut bytes = [0; READ_BYTES];
        while let Some(pipe) = self.0.as_ref().filter(|_| read.len() < READ_IN_TURN_MAX) {
            match rustix::io::read(pipe, &mut bytes) {
                Ok(count) if count > 0 => read.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Dropping it takes it out of `epoll`.
                _ => self.0 = None,
            }
        }
        read
    }
}

/// What somebody prints, line by line.
#[derive(Default)]
pub struct Lines {
    text: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Whether nothing more will come.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// The whole lines that have come with these bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in bytes.chunks(READ_BYTES) {
            self.text.extend_from_slice(piece);
            self.split(&mut lines);
        }
        lines
    }

    /// Nothing more will come: the unfinished line.
    pub fn end(&mut self) -> Vec<String> {
        self.ended = true;
        let mut lines = Vec::new();
        self.split(&mut lines);
        lines
    }

    /// The whole lines that have come through a pipe; at the end the unfinished one, too.
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

/// The process of a command.
pub struct RemoteCommand {
    child: Child,
    /// Until it is known that the process has ended: it would stay readable for ever.
    pidfd: Option<OwnedFd>,
    /// Kept open until the daemon has answered.
    input: Option<ChildStdin>,
    pub output: OutputPipe,
    pub errors: OutputPipe,
}

impl RemoteCommand {
    /// Runs a command and hands it its input. `alone`: in a process group of its own, so that it can
    /// be ended with all that it has started.
    pub fn start(words: &[OsString], input: &[u8], alone: bool) -> io::Result<RemoteCommand> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if alone {
            command.process_group(0);
        }
        let mut child = crate::core_dumps::as_before(|| command.spawn())?;
        let mut stdin = child.stdin.take();
        // It fits into the pipe. Who has ended already shall say why on the standard error.
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

    /// What to watch: output, errors, the end of the process.
    pub fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 3] {
        [&self.output.0, &self.errors.0, &self.pidfd].map(|descriptor| descriptor.as_ref().map(AsFd::as_fd))
    }

    /// The daemon has answered: it waits for the word that this has come, and for the end of its input, before it
    /// leaves.
    pub fn close_input(&mut self) {
        if let Some(mut input) = self.input.take() {
            // It fits into the pipe, where the greeting has been read.
            let _ = writeln!(input, "{TAKEN}");
        }
    }

    /// The daemon is not wanted: its input ends without that word, and it ends.
    pub fn drop_input(&mut self) {
        self.input = None;
    }

    /// How the process has ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        // Where somebody else was told how, it has ended all the same.
        let status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::default()));
        if status.is_some() {
            self.pidfd = None;
        }
        status
    }

    /// The number of the process.
    #[cfg(test)]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process, and what it has started.
    pub fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        // Where it is not the leader of a group.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// What there is to watch of a process: its end, its output, its errors.
fn watched(child: &mut Child) -> io::Result<(OwnedFd, OutputPipe, OutputPipe)> {
    let process = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((pidfd, OutputPipe::new(output.into())?, OutputPipe::new(errors.into())?))
}

/// Has `epoll` tell of what a command says and of its end.
pub fn watch(epoll: &OwnedFd, number: u64, command: &RemoteCommand) -> bool {
    let add = |(stream, descriptor): (u64, Option<BorrowedFd<'_>>)| {
        let data = EventData::new_u64(number << STREAM_BITS | stream);
        descriptor.is_none_or(|descriptor| epoll::add(epoll, descriptor, data, EventFlags::IN).is_ok())
    };
    (0..).zip(command.descriptors()).all(add)
}

/// The numbers of the commands of which there is something to be read.
pub fn ready(epoll: &OwnedFd) -> Vec<u64> {
    let mut ready = Vec::with_capacity(EVENTS_MAX);
    // What cannot be asked for now comes with the next call.
    let _ = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), Some(&Timespec::default()));
    let mut numbers: Vec<u64> = ready.iter().map(|event| event.data.u64() >> STREAM_BITS).collect();
    numbers.dedup();
    numbers
}
