//! The daemon of a host that joins a machine (contract 5.5).
//!
//! The program that a remote shell starts is a front: it starts the process that becomes the daemon, passes the
//! daemon's answer on, and ends when the daemon has closed the shell's pipes. So the daemon is not a child of the
//! shell, and the shell can end.
use crate::architecture::ARCHITECTURE;
use crate::arguments::{Options, Slave};
use crate::daemon::{self, Daemon};
use crate::log::Log;
use crate::settings::{self, Settings};
use crate::socket_directory::{SocketDirectory, SocketDirectoryError};
use crate::terminal;
use pvm_core::codes;
use pvm_core::dialogue::{self, CONFIRMED, Greeting};
use pvm_net::polling::poll_one;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time that the master has to send its greeting.
const GREETING_WAIT: Duration = Duration::from_secs(30);
/// Time that the master has to close the standard input after it has read the answer.
const CLOSE_WAIT: Duration = Duration::from_secs(60);
/// Time that the master has to close the standard input if it has announced that it will confirm the answer. Such a
/// master confirms and closes at once, unless the host that passes the answer on hangs. In that case the master starts
/// another daemon, and this daemon must have ended by then.
const CONFIRMED_WAIT: Duration = Duration::from_secs(20);
/// Time that a previous daemon has to end.
const PREDECESSOR_WAIT: Duration = Duration::from_secs(4);
/// Time for which the socket of a process that was killed may still accept connections.
const DYING_WAIT: Duration = Duration::from_secs(1);
/// Pause between two attempts to make the socket directory.
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(20);
/// The maximum length of a greeting, in bytes.
const GREETING_BYTES_MAX: usize = 64 << 10;

/// Starts the daemon and passes its output on until the daemon needs this process no more.
pub fn front(arguments: impl Iterator<Item = OsString>) -> crate::Result<ExitCode> {
    let mut command = Command::new("/proc/self/exe");
    // The name that `ps` shows.
    command.arg0("pvmd");
    // The daemon inherits the standard input and error; this process passes only the output on.
    command.arg("-f").args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut answered = false;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let mut line = line?;
            answered |= line.starts_with(b"ddpro<");
            line.push(b'\n');
            let mut output = std::io::stdout();
            output.write_all(&line)?;
            output.flush()?;
        }
    }
    if answered {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

/// Becomes the daemon. The function ends when this host has left the machine.
pub fn join(options: &Options, slave: Slave) -> crate::Result<()> {
    crate::core_dumps::leave_memory_out();
    close_fds::set_fds_cloexec(3, &[]);
    let greeting = greeting(slave);
    let Some(master) = slave.key.or(greeting.key) else {
        println!("{}", dialogue::refusal_line(ARCHITECTURE, codes::native_dsig()));
        return Err("the master is not hpvm".into());
    };
    let confirms = greeting.confirms;
    let mut settings = Settings::of_slave(options, slave, greeting.machine)?;
    let socket_directory = create_socket_directory(&settings)?;
    let log = Log::open(&settings.places.files, &settings.temporary, settings.log_bytes_max);
    let connector = settings.listen()?;
    settings.master_key = Some(master);
    let _ = std::env::set_current_dir(&settings.program_search.directory);
    let mut daemon = Daemon::new(settings, socket_directory, log, connector, daemon::catch_signals()?)?;
    daemon.answer()?;
    let wait = if confirms { CONFIRMED_WAIT } else { CLOSE_WAIT };
    if !slave.by_hand && !wait_for_close(std::io::stdin(), wait) && confirms {
        return Err("nobody has read the answer".into());
    }
    let _ = rustix::process::setsid();
    terminal::release()?;
    daemon.run()
}

/// Makes the socket directory. If a previous daemon is just ending, waits for its end.
fn create_socket_directory(settings: &Settings) -> crate::Result<SocketDirectory> {
    let begin = Instant::now();
    let end = begin + PREDECESSOR_WAIT;
    loop {
        match SocketDirectory::create(&settings.places) {
            Err(SocketDirectoryError::Running(_)) if Instant::now() < end => std::thread::sleep(PREDECESSOR_PAUSE),
            Err(SocketDirectoryError::Legacy(_))
                if end_older() && Instant::now() < end || begin.elapsed() < DYING_WAIT =>
            {
                std::thread::sleep(PREDECESSOR_PAUSE);
            }
            Err(error @ SocketDirectoryError::Running(_)) => {
                println!("PvmDupHost");
                return Err(error.into());
            }
            other => return Ok(other?),
        }
    }
}

/// Ends daemons of PVM 3.4.6 with the same arguments as this daemon. The master tries several places on this host: it
/// has started the program of PVM 3.4.6 from an earlier place, and then tried the next place. Returns whether there was
/// such a daemon.
fn end_older() -> bool {
    let is_call = |words: &[Vec<u8>]| words.iter().any(|word| word == b"-s");
    let own = command_line("self").map(call_of);
    let Some(own) = own.filter(|own| is_call(own)) else { return false };
    let mut found = false;
    for process in std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let name = process.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        let is_other = number != rustix::process::getpid() && Some(number) != rustix::process::getppid();
        let words = name.to_str().filter(|_| is_other).and_then(command_line);
        // A process that runs this program is not a daemon of PVM 3.4.6.
        let is_older = || std::fs::read_link(process.path().join("exe")).ok() != std::env::current_exe().ok();
        if words.is_some_and(|words| call_of(words) == own) && is_older() {
            found |= rustix::process::kill_process(number, Signal::TERM).is_ok();
        }
    }
    found
}

/// Returns the words of a process's command line.
fn command_line(process: &str) -> Option<Vec<Vec<u8>>> {
    let text = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    Some(text.strip_suffix(b"\0")?.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}

/// Removes the program's name and the front's switch from a command line.
fn call_of(words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    words.into_iter().skip(1).filter(|word| word != b"-f").collect()
}

/// Reads the master's greeting from standard input. If the command line holds the key, the greeting may be absent.
fn greeting(slave: Slave) -> Greeting {
    let mut greeting = Greeting::default();
    if slave.key.is_some() {
        let machine = settings::machine_id_on_input();
        greeting.machine = machine.map(|machine| machine.to_string_lossy().into_owned());
        return greeting;
    }
    let end = Instant::now() + GREETING_WAIT;
    let mut line = Vec::new();
    let mut total = 0;
    // The input is read byte by byte, since the bytes after the last line of the greeting are for another reader.
    while let Some(byte) = byte_of(std::io::stdin(), end).filter(|_| total < GREETING_BYTES_MAX) {
        total += 1;
        match byte {
            b'\n' if greeting.take(&String::from_utf8_lossy(&line)) => break,
            b'\n' => line.clear(),
            byte => line.push(byte),
        }
    }
    greeting
}

/// Returns the next byte of the input, or `None` at the end of the input or at the time `end`.
fn byte_of(input: impl AsFd, end: Instant) -> Option<u8> {
    let mut byte = [0];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll_one(&input, PollFlags::IN, left) {
            Ok(true) => {}
            Err(Errno::INTR) => continue,
            _ => return None,
        }
        match rustix::io::read(&input, &mut byte) {
            Ok(1) => return Some(byte[0]),
            Err(Errno::INTR) => {}
            _ => return None,
        }
    }
}

/// Waits until the master has closed the standard input. Returns whether the master has confirmed that it read the
/// answer.
fn wait_for_close(input: impl AsFd, wait: Duration) -> bool {
    let end = Instant::now() + wait;
    let mut said = Vec::new();
    while let Some(byte) = byte_of(&input, end) {
        // A longer input cannot be the expected word.
        if said.len() <= CONFIRMED.len() {
            said.push(byte);
        }
    }
    said.strip_suffix(b"\n") == Some(CONFIRMED.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_input_stays_open_and_nothing_is_said_nobody_has_read_the_answer() {
        const { assert!(CONFIRMED_WAIT.as_secs() < CLOSE_WAIT.as_secs() / 2) };
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let began = Instant::now();
        assert!(!wait_for_close(&reader, Duration::from_millis(50)));
        assert!(began.elapsed() >= Duration::from_millis(50));
        rustix::io::write(&writer, format!("{CONFIRMED}\n").as_bytes()).unwrap();
        drop(writer);
        assert!(wait_for_close(&reader, Duration::from_secs(20)) && began.elapsed() < Duration::from_secs(10));
    }
}
