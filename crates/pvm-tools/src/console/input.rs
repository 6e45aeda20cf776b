//! Reads lines from the terminal or a pipe. A separate thread does this, so that the console can show the output of
//! jobs at the same time.
use crate::console::display::Typing;
use crate::console::{help, options};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor};
use rustyline_derive::{Helper, Hinter};
use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The prompt of the console.
pub const PROMPT: &str = "pvm> ";
/// The file in the home directory with the lines of earlier sessions.
const HISTORY_FILE: &str = ".pvm_history";
/// The most lines that the history keeps.
const HISTORY_LINES_MAX: usize = 1000;

/// The longest time that output waits until the editor has shown the line.
const SETTLE_WAIT_MAX: Duration = Duration::from_millis(100);

/// What the reader has read.
#[derive(Debug)]
pub enum Event {
    /// A line without its line feed.
    Line(String),
    /// The end of the input.
    End,
}

/// The candidates for completion.
#[derive(Debug, Default, Clone)]
pub struct Names {
    /// Names of commands and aliases.
    pub commands: Vec<String>,
    /// Hosts of the machine.
    pub hosts: Vec<String>,
    /// Tasks of the machine.
    pub tids: Vec<String>,
}

/// The state that the console shares with the thread of the line editor.
#[derive(Debug, Default)]
struct Shared {
    names: Names,
    /// The line that is being typed; `None` if no person is typing one.
    typing: Option<Typing>,
}

type SharedState = Arc<Mutex<Shared>>;

/// Locks the state. The state is valid even after a panic of the other thread.
fn lock(shared: &SharedState) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The console's half of the connection to the reading thread.
pub struct Input {
    /// A pipe that contains one byte for each event.
    ready: OwnedFd,
    events: Receiver<Event>,
    requests: Sender<()>,
    shared: SharedState,
    terminal: Option<rustix::termios::Termios>,
}

/// The reading thread's half of the connection to the console.
struct Reader {
    ready: OwnedFd,
    events: Sender<Event>,
    requests: Receiver<()>,
}

impl Reader {
    /// Calls `read` for each request, until the end of the input.
    fn run(self, mut read: impl FnMut() -> Event) {
        while self.requests.recv().is_ok() {
            let event = read();
            let last = matches!(event, Event::End);
            if self.events.send(event).is_err() || rustix::io::write(&self.ready, b"!").is_err() || last {
                return;
            }
        }
    }
}

impl Input {
    /// Starts the thread that reads standard input.
    pub fn start() -> io::Result<Input> {
        let (ready, ready_writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (event_sender, events) = channel();
        let (requests, request_receiver) = channel();
        let reader = Reader { ready: ready_writer, events: event_sender, requests: request_receiver };
        let mut input = Input { ready, events, requests, shared: SharedState::default(), terminal: None };
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            input.terminal = rustix::termios::tcgetattr(io::stdin()).ok();
            edit_lines(reader, input.shared.clone())?;
        } else {
            std::thread::Builder::new().name("input".into()).spawn(move || reader.run(read_plain_line))?;
        }
        Ok(input)
    }

    /// Returns whether a person types.
    pub fn is_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Requests a line and shows the prompt. `names` returns the candidates for completion.
    pub fn request(&mut self, names: impl FnOnce() -> Names) -> io::Result<()> {
        if self.is_terminal() {
            let names = names();
            *lock(&self.shared) = Shared { names, typing: Some(Typing::default()) };
        } else {
            let mut out = io::stdout().lock();
            out.write_all(PROMPT.as_bytes())?;
            out.flush()?;
        }
        // If the reading thread has ended, its last event is still in the channel.
        let _ = self.requests.send(());
        Ok(())
    }

    /// Returns a descriptor that is readable when [`Input::take`] has an event.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Returns the next event. Waits for it.
    pub fn take(&mut self) -> Event {
        let _ = rustix::io::read(&self.ready, &mut [0; 1]);
        let event = self.events.recv().unwrap_or(Event::End);
        lock(&self.shared).typing = None;
        event
    }

    /// Shows text at any time. The line that a person is typing is shown again below the text.
    pub fn show(&mut self, text: &[u8]) -> io::Result<()> {
        let shared = self.settled();
        let mut out = io::stdout().lock();
        match &shared.typing {
            Some(typing) => {
                let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
                out.write_all(&typing.with_text_above(PROMPT, text, columns.into()))?;
            }
            None => out.write_all(text)?,
        }
        out.flush()
    }

    /// Waits until the editor has shown the line that is being typed, or has ended an accepted line; then returns the
    /// locked state.
    fn settled(&self) -> MutexGuard<'_, Shared> {
        let end = Instant::now() + SETTLE_WAIT_MAX;
        loop {
            let shared = lock(&self.shared);
            let pause = shared.typing.as_ref().and_then(Typing::unsettled);
            match pause.filter(|_| Instant::now() < end) {
                None => return shared,
                Some(pause) => {
                    drop(shared);
                    std::thread::sleep(pause);
                }
            }
        }
    }

    /// Restores the terminal, even while a line is being edited.
    pub fn restore_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            let _ = rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Now, terminal);
        }
    }
}

/// Starts the thread with the line editor.
fn edit_lines(reader: Reader, shared: SharedState) -> io::Result<()> {
    let config = Config::builder().max_history_size(HISTORY_LINES_MAX).map_err(io::Error::other)?;
    let config = config.auto_add_history(true).history_ignore_space(true).completion_type(CompletionType::List).build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(io::Error::other)?;
    editor.set_helper(Some(Words { shared: shared.clone(), files: FilenameCompleter::new() }));
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
    std::thread::Builder::new().name("input".into()).spawn(move || {
        if let Some(history) = &history {
            // A first session has no history yet.
            let _ = editor.load_history(history);
        }
        let mut pasted = VecDeque::new();
        reader.run(|| {
            if let Some(line) = pasted.pop_front() {
                return Event::Line(line);
            }
            let Some(text) = read_edited_line(&mut editor, &shared) else { return Event::End };
            if let Some(history) = &history {
                // If the history cannot be written, the console continues.
                let _ = editor.append_history(history);
            }
            // Pasted text may contain several lines.
            pasted.extend(text.split('\n').map(str::to_owned));
            Event::Line(pasted.pop_front().unwrap_or_default())
        });
    })?;
    Ok(())
}

fn read_plain_line() -> Event {
    let mut line = Vec::new();
    match io::stdin().lock().read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => Event::End,
        Ok(_) => {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            Event::Line(String::from_utf8_lossy(&line).into_owned())
        }
    }
}

fn read_edited_line(editor: &mut Editor<Words, FileHistory>, shared: &SharedState) -> Option<String> {
    loop {
        let result = editor.readline(PROMPT);
        lock(shared).typing = None;
        match result {
            Ok(line) => return Some(line),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {
                lock(shared).typing = Some(Typing::default());
            }
            Err(_) => return None,
        }
    }
}

/// Completes words, and records the line that is being typed.
#[derive(Helper, Hinter)]
struct Words {
    shared: SharedState,
    files: FilenameCompleter,
}

impl Highlighter for Words {
    /// Records the line. The editor calls this at every change of the line and every cursor movement.
    fn highlight_char(&self, line: &str, position: usize, _kind: CmdKind) -> bool {
        if let Some(typing) = &mut lock(&self.shared).typing {
            typing.note(line, position);
        }
        false
    }
}

impl Validator for Words {
    /// Records that the line is accepted. The editor calls this before it ends the line on the terminal.
    fn validate(&self, _context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        if let Some(typing) = &mut lock(&self.shared).typing {
            typing.accept();
        }
        Ok(ValidationResult::Valid(None))
    }
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, position: usize, context: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let names = lock(&self.shared).names.clone();
        match candidates(&line[..position], &names) {
            Some((start, words)) => {
                let pair = |word: String| Pair { display: word.clone(), replacement: word + " " };
                Ok((start, words.into_iter().map(pair).collect()))
            }
            None => self.files.complete(line, position, context),
        }
    }
}

/// Returns the position of the last word of `line`, and its completions; `None` if the word is completed as a file
/// name.
fn candidates(line: &str, names: &Names) -> Option<(usize, Vec<String>)> {
    let start = line.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
    let word = &line[start..];
    let option_names = || options::names().map(str::to_owned).collect();
    let pool: Vec<String> = match line[..start].split_whitespace().next() {
        None => names.commands.clone(),
        Some("help") => help::COMMANDS.iter().map(|command| command.name.to_owned()).collect(),
        Some("unalias") => names.commands.clone(),
        Some("getopt" | "setopt") => option_names(),
        Some("delete" | "mstat") => names.hosts.clone(),
        Some("kill" | "pstat" | "sig") => names.tids.clone(),
        Some("reset") => vec!["info".into()],
        Some("ps") => names.hosts.iter().map(|host| format!("-n{host}")).collect(),
        Some("spawn") if word.starts_with('-') && !word.starts_with("->") => {
            names.hosts.iter().map(|host| format!("-{host}")).collect()
        }
        Some("spawn") => return None,
        Some(_) => Vec::new(),
    };
    Some((start, pool.into_iter().filter(|candidate| candidate.starts_with(word)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(line: &str) -> Option<Vec<String>> {
        let names = Names {
            commands: vec!["conf".into(), "kill".into()],
            hosts: vec!["vm".into()],
            tids: vec!["t40002".into(), "t50001".into()],
        };
        candidates(line, &names).map(|(_, words)| words)
    }

    #[test]
    fn the_first_word_is_a_command() {
        assert_eq!(complete("co").unwrap(), ["conf"]);
        assert_eq!(complete("").unwrap().len(), 2);
    }

    #[test]
    fn arguments_are_what_the_command_takes() {
        assert_eq!(complete("kill t4").unwrap(), ["t40002"]);
        assert_eq!(complete("setopt PvmRo").unwrap(), ["PvmRoute"]);
        assert_eq!(complete("mstat v").unwrap(), ["vm"]);
        assert_eq!(complete("spawn -v").unwrap(), ["-vm"]);
        assert_eq!(complete("help spa").unwrap(), ["spawn"]);
        assert_eq!(complete("spawn /usr"), None);
    }
}
