//! A command that runs beside the daemon. A thread starts it and waits for its end, since both may take long: the file
//! system of the program may not answer.
use crate::children::copy_of;
use crate::core_dumps::AsBefore;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read at a time.
const READ_BYTES: usize = 4096;
/// The number of bytes read from one pipe before other pipes are read. No pipe holds more.
const READ_IN_TURN_MAX: usize = 1 << 20;
/// The stack of a thread, in bytes.
const STACK_BYTES: usize = 256 << 10;

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

/// The process of a command.
enum Process {
    Starting,
    /// It is killed as soon as it has been started.
    Unwanted,
    Running(Child),
    /// It stays a zombie, so that its process group can still be killed: no other process gets its number.
    Ended(ExitStatus, Zombie),
    NotExecuted(io::Error),
}

/// A process that has ended. The system forgets it when this value is dropped.
struct Zombie(Child);

impl Drop for Zombie {
    fn drop(&mut self) {
        // It has ended, so this does not wait.
        let _ = self.0.wait();
    }
}

/// A command that was started.
pub struct BackgroundCommand {
    process: Arc<Mutex<Process>>,
    /// Whether the process leads a process group.
    leads_group: bool,
    /// At its end when the process has ended, or could not be executed. Removed when that is known.
    end: Option<OwnedFd>,
    /// The standard input of the process.
    input: Option<OwnedFd>,
    pub output: OutputPipe,
    pub errors: OutputPipe,
}

impl BackgroundCommand {
    /// Begins to start a command. `leads_group`: the process gets a new process group, so that it can be killed together
    /// with its children. `input`: what it reads first, at most a page.
    pub fn start(mut command: Command, leads_group: bool, input: &[u8]) -> io::Result<BackgroundCommand> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((end, end_of_thread), (their_input, own_input)) = (pipe()?, pipe()?);
        let ((output, their_output), (errors, their_errors)) = (pipe()?, pipe()?);
        let mut own_input = std::fs::File::from(own_input);
        // It fits into the pipe.
        own_input.write_all(input)?;
        command.stdin(Stdio::from(their_input)).stdout(Stdio::from(their_output)).stderr(Stdio::from(their_errors));
        if leads_group {
            command.process_group(0);
        }
        let process = Arc::new(Mutex::new(Process::Starting));
        let (output, errors) = (OutputPipe::new(output)?, OutputPipe::new(errors)?);
        let of_thread = process.clone();
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            run(command, leads_group, &of_thread);
            drop(end_of_thread);
        })?;
        Ok(BackgroundCommand { process, leads_group, end: Some(end), input: Some(own_input.into()), output, errors })
    }

    /// Begins to watch the output and the end of the command. Kills it if that fails.
    pub fn watched(self, epoll: &OwnedFd, data: EventData) -> io::Result<BackgroundCommand> {
        let descriptors = [&self.output.0, &self.errors.0, &self.end];
        let add = |descriptor: &OwnedFd| epoll::add(epoll, descriptor, data, EventFlags::IN);
        let added = descriptors.into_iter().flatten().try_for_each(add);
        match added {
            Ok(()) => Ok(self),
            Err(errno) => {
                self.kill();
                Err(errno.into())
            }
        }
    }

    /// Returns the standard input of the process, if it is open.
    pub fn input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().map(AsFd::as_fd)
    }

    /// Closes the standard input of the process.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Returns the status of the process if it has ended, and the error if the program could not be executed.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        let result = match &*lock(&self.process) {
            Process::Ended(status, _) => Ok(Some(*status)),
            Process::NotExecuted(error) => Err(copy_of(error)),
            Process::Starting | Process::Unwanted | Process::Running(_) => return Ok(None),
        };
        // The end of a pipe stays readable: `epoll` would report it again and again.
        self.end = None;
        result
    }

    /// Returns the process id while the process runs.
    pub fn id(&self) -> Option<u32> {
        match &*lock(&self.process) {
            Process::Running(child) => Some(child.id()),
            _ => None,
        }
    }

    /// Kills the process, and its children if it leads a process group: also those of a process that has ended.
    pub fn kill(&self) {
        let mut process = lock(&self.process);
        match &mut *process {
            Process::Starting => *process = Process::Unwanted,
            Process::Running(child) | Process::Ended(_, Zombie(child)) => kill(child, self.leads_group),
            Process::Unwanted | Process::NotExecuted(_) => {}
        }
    }
}

/// Starts a command, and waits for its end.
fn run(mut command: Command, leads_group: bool, process: &Mutex<Process>) {
    let before = AsBefore::begin();
    let started = command.spawn();
    drop(before);
    // The pipes are at their ends when the process has closed them.
    drop(command);
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            *lock(process) = Process::NotExecuted(error);
            return;
        }
    };
    let id = Pid::from_child(&child);
    {
        let mut process = lock(process);
        if matches!(*process, Process::Unwanted) {
            kill(&mut child, leads_group);
        }
        *process = Process::Running(child);
    }
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(id), ended)).ok().flatten();
    let mut process = lock(process);
    if let Process::Running(child) = std::mem::replace(&mut *process, Process::Unwanted) {
        *process = match status {
            Some(status) => Process::Ended(status_of(status), Zombie(child)),
            // Nobody else waits for it.
            None => Process::NotExecuted(io::ErrorKind::Other.into()),
        };
    }
}

fn status_of(status: WaitIdStatus) -> ExitStatus {
    let code = status.exit_status().map(|code| code << 8).or(status.terminating_signal());
    ExitStatus::from_raw(code.unwrap_or(0))
}

fn kill(child: &mut Child, leads_group: bool) {
    // An error means that it has ended.
    if leads_group {
        let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
    }
    // It may have left its group.
    let _ = child.kill();
}

fn lock(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Waits for the result.
    fn result(command: &mut BackgroundCommand) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = command.status()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the output up to its end. A process that another thread has just forked may hold the pipe for a moment.
    fn output(command: &mut BackgroundCommand) -> Vec<u8> {
        let mut bytes = command.output.read();
        while !command.output.ended() {
            std::thread::sleep(Duration::from_millis(1));
            bytes.extend(command.output.read());
        }
        bytes
    }

    #[test]
    fn a_command_gets_its_input_and_tells_its_end() {
        let mut command = BackgroundCommand::start(shell("read word; echo $word; exit 3"), false, b"hello\n").unwrap();
        assert_eq!(result(&mut command).unwrap().code(), Some(3));
        assert_eq!(output(&mut command), b"hello\n");
        assert!(command.end.is_none() && command.id().is_none());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let mut command = BackgroundCommand::start(Command::new("/nowhere/x"), true, b"").unwrap();
        assert_eq!(result(&mut command).unwrap_err().raw_os_error(), Some(Errno::NOENT.raw_os_error()));
        assert!(output(&mut command).is_empty());
    }

    #[test]
    fn the_children_of_a_command_that_has_ended_are_killed() {
        let mut command = BackgroundCommand::start(shell("sleep 1000 & exit 0"), true, b"").unwrap();
        assert_eq!(result(&mut command).unwrap().code(), Some(0));
        assert!(!command.output.ended());
        command.kill();
        while !command.output.ended() {
            command.output.read();
        }
    }

    #[test]
    fn a_command_that_was_not_wanted_any_more_when_it_started_is_killed() {
        let mut command = shell("sleep 1000");
        command.process_group(0);
        let process = Mutex::new(Process::Unwanted);
        run(command, true, &process);
        assert!(matches!(&*lock(&process), Process::Ended(status, _) if !status.success()));
    }
}
