//! Remote starts: commands that this host runs for the master to start daemons on other hosts. This host passes the
//! input and output of the commands on, and does not interpret them.
use super::remote_command::{self, confirm, ready};
use crate::background_command::{BackgroundCommand, OutputPipe};
use pvm_core::proto::ByteBuf;
use pvm_core::wire::{START_OUTPUT_BYTES_MAX, StartNews, StartOrder};
use rustix::event::epoll::{self, CreateFlags, EventData};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;

/// The number of commands that a host runs for the master at the same time.
///
/// * Filled by: the master
/// * Setting: none, the master asks for fewer
/// * Reached: the master receives the news that the command was not run, and starts the daemon itself
/// * Test: `the_commands_that_a_host_runs_for_the_master_are_limited`
const REMOTE_STARTS_MAX: usize = 64;

/// The length of a command's input, in bytes. A pipe takes an input of this length at once, so that writing never
/// blocks.
///
/// * Filled by: the master
/// * Setting: none, every greeting is shorter
/// * Reached: the master receives the news that the command was not run, and starts the daemon itself
/// * Test: `an_input_that_a_pipe_may_not_take_is_refused`
const INPUT_BYTES_MAX: usize = 4096;

struct RemoteStart {
    command: BackgroundCommand,
    /// Whether the daemon that the command started has answered. If so, the daemon no longer needs the command.
    answered: bool,
    /// The number of bytes that the command has printed.
    printed: usize,
}

/// The commands that run for the master.
pub struct RemoteStarts {
    epoll: OwnedFd,
    running: BTreeMap<u64, RemoteStart>,
}

impl RemoteStarts {
    /// Starts without any command.
    pub fn new() -> std::io::Result<RemoteStarts> {
        Ok(RemoteStarts { epoll: epoll::create(CreateFlags::CLOEXEC)?, running: BTreeMap::new() })
    }

    /// Returns a descriptor that is readable when [`RemoteStarts::step`] has something to report.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns whether no command runs.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Executes an order of the master. Returns news if that fails.
    pub fn order(&mut self, number: u64, order: StartOrder) -> Option<StartNews> {
        match order {
            StartOrder::Run { words, input } => {
                let words: Vec<OsString> = words.into_iter().map(|word| OsString::from_vec(word.into_vec())).collect();
                return self.run(number, &words, &input).err().map(StartNews::NotRun);
            }
            StartOrder::CloseInput => {
                if let Some(remote_start) = self.running.get_mut(&number) {
                    confirm(&mut remote_start.command);
                    remote_start.answered = true;
                }
            }
            StartOrder::Kill => {
                if let Some(remote_start) = self.running.remove(&number) {
                    remote_start.command.kill();
                }
            }
        }
        None
    }

    /// Starts a command; an error is an `errno`.
    fn run(&mut self, number: u64, words: &[OsString], input: &[u8]) -> Result<(), i32> {
        if self.running.len() >= REMOTE_STARTS_MAX || self.running.contains_key(&number) {
            return Err(Errno::AGAIN.raw_os_error());
        }
        if input.len() > INPUT_BYTES_MAX {
            return Err(Errno::TOOBIG.raw_os_error());
        }
        let started = remote_command::start(words, input, true, |_| {});
        let watched = started.and_then(|command| command.watched(&self.epoll, EventData::new_u64(number)));
        let command = watched.map_err(code_of)?;
        self.running.insert(number, RemoteStart { command, answered: false, printed: 0 });
        Ok(())
    }

    /// Returns the news of all commands.
    pub fn step(&mut self) -> Vec<(u64, StartNews)> {
        let mut all = Vec::new();
        for number in ready(&self.epoll) {
            let Some(remote_start) = self.running.get_mut(&number) else { continue };
            let mut news = remote_start.step();
            if matches!(news.last(), Some(StartNews::Ended(_) | StartNews::NotRun(_) | StartNews::TooMuch)) {
                self.running.remove(&number);
            }
            all.extend(news.drain(..).map(|news| (number, news)));
        }
        all
    }
}

impl RemoteStart {
    fn step(&mut self) -> Vec<StartNews> {
        // The status is read before the output: if the process has ended, all of its output is read below.
        let status = match self.command.status() {
            Ok(status) => status,
            Err(error) => return vec![StartNews::NotRun(code_of(error))],
        };
        let mut news = Vec::new();
        let mut tell = |pipe: &mut OutputPipe, kind: fn(ByteBuf) -> StartNews| {
            let bytes = pipe.read();
            self.printed += bytes.len();
            if !bytes.is_empty() && self.printed <= START_OUTPUT_BYTES_MAX {
                news.push(kind(ByteBuf::from(bytes)));
            }
        };
        tell(&mut self.command.errors, StartNews::Errors);
        tell(&mut self.command.output, StartNews::Output);
        if self.printed > START_OUTPUT_BYTES_MAX {
            self.command.kill();
            news.push(StartNews::TooMuch);
            return news;
        }
        // A background process may still hold the output open.
        let ended = status.filter(|status| !status.success() || self.command.output.ended());
        news.extend(ended.map(|status| StartNews::Ended(status.into_raw())));
        news
    }
}

fn code_of(error: std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
}

impl Drop for RemoteStarts {
    fn drop(&mut self) {
        // Without the master, the daemons that these commands start are of no use. Daemons that have answered end by
        // themselves.
        self.running
            .values_mut()
            .filter(|remote_start| !remote_start.answered)
            .for_each(|remote_start| remote_start.command.kill());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn run(script: &str) -> StartOrder {
        let words = ["/bin/sh", "-c", script].map(|word| ByteBuf::from(word.as_bytes().to_vec())).to_vec();
        StartOrder::Run { words, input: ByteBuf::from(b"hello\n".to_vec()) }
    }

    /// Collects the news until `count` commands have ended, and returns them.
    fn until_ended(remote_starts: &mut RemoteStarts, mut count: usize) -> Vec<(u64, StartNews)> {
        let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while count > 0 && Instant::now() < end {
            for (number, news) in remote_starts.step() {
                count -= usize::from(!matches!(news, StartNews::Output(_) | StartNews::Errors(_)));
                all.push((number, news));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        all
    }

    fn output(all: &[(u64, StartNews)]) -> String {
        let bytes = |(_, news): &(u64, StartNews)| match news {
            StartNews::Output(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        String::from_utf8(all.iter().flat_map(bytes).collect()).unwrap()
    }

    #[test]
    fn a_command_gets_its_input_and_all_that_it_prints_is_told_before_its_end() {
        let mut remote_starts = RemoteStarts::new().unwrap();
        let script = "read line; echo \"$line\"; cat; echo bad >&2; echo end; exit 3";
        assert_eq!(remote_starts.order(7, run(script)), None);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!remote_starts.step().iter().any(|(_, news)| matches!(news, StartNews::Ended(_))));
        assert_eq!(remote_starts.order(7, StartOrder::CloseInput), None);
        let all = until_ended(&mut remote_starts, 1);
        assert!(output(&all).ends_with("end\n") && all.contains(&(7, StartNews::Errors(b"bad\n".to_vec().into()))));
        assert_eq!(all.last(), Some(&(7, StartNews::Ended(3 << 8))));
        assert!(remote_starts.running.is_empty());
    }

    #[test]
    fn a_command_that_is_not_there_is_told_and_one_can_be_ended() {
        let mut remote_starts = RemoteStarts::new().unwrap();
        let words = vec![ByteBuf::from(b"/nowhere/rsh".to_vec())];
        let order = StartOrder::Run { words, input: ByteBuf::new() };
        assert_eq!(remote_starts.order(1, order), None);
        let not_run = StartNews::NotRun(Errno::NOENT.raw_os_error());
        assert_eq!(until_ended(&mut remote_starts, 1), [(1, not_run)]);
        let nothing = StartOrder::Run { words: Vec::new(), input: ByteBuf::new() };
        assert!(matches!(remote_starts.order(1, nothing), Some(StartNews::NotRun(_))));
        assert_eq!(remote_starts.order(2, run("sleep 1000")), None);
        let end = Instant::now() + Duration::from_secs(20);
        let process = loop {
            match remote_starts.running[&2].command.id() {
                Some(process) => break format!("/proc/{process}"),
                None => assert!(Instant::now() < end),
            }
        };
        assert_eq!(remote_starts.order(2, StartOrder::Kill), None);
        assert!(remote_starts.running.is_empty());
        while std::path::Path::new(&process).exists() {
            assert!(Instant::now() < end, "{process} is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Orders for unknown commands are ignored.
        assert_eq!(
            (remote_starts.order(2, StartOrder::Kill), remote_starts.order(9, StartOrder::CloseInput)),
            (None, None)
        );
    }

    #[test]
    fn an_input_that_a_pipe_may_not_take_is_refused() {
        let mut remote_starts = RemoteStarts::new().unwrap();
        let StartOrder::Run { words, .. } = run("cat") else { unreachable!() };
        let input = |length| ByteBuf::from(vec![b'x'; length]);
        let order = StartOrder::Run { words: words.clone(), input: input(INPUT_BYTES_MAX + 1) };
        assert_eq!(remote_starts.order(1, order), Some(StartNews::NotRun(Errno::TOOBIG.raw_os_error())));
        assert_eq!(remote_starts.order(1, StartOrder::Run { words, input: input(INPUT_BYTES_MAX) }), None);
    }

    #[test]
    fn a_command_that_prints_too_much_is_ended() {
        let mut remote_starts = RemoteStarts::new().unwrap();
        assert_eq!(remote_starts.order(1, run("while echo x; do :; done")), None);
        let all = until_ended(&mut remote_starts, 1);
        assert!(output(&all).len() <= START_OUTPUT_BYTES_MAX);
        assert_eq!(all.last(), Some(&(1, StartNews::TooMuch)));
        assert!(remote_starts.running.is_empty());
    }

    #[test]
    fn the_commands_that_a_host_runs_for_the_master_are_limited() {
        let mut remote_starts = RemoteStarts::new().unwrap();
        for number in 0..REMOTE_STARTS_MAX as u64 {
            assert_eq!(remote_starts.order(number, run("cat >/dev/null")), None);
        }
        let refused = Some(StartNews::NotRun(Errno::AGAIN.raw_os_error()));
        assert_eq!(remote_starts.order(REMOTE_STARTS_MAX as u64, run("true")), refused);
        assert_eq!(remote_starts.order(0, run("true")), refused);
    }
}
