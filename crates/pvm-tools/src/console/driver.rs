//! Runs the console: starts it, executes `.pvmrc`, reads and executes lines, and ends it.
use super::input::{Event, Input, Names};
use super::{Console, Flow, Screen};
use crate::control;
use crate::machine::{self, MachineError};
use crate::signals::{self, Signals};
use pvm_core::codes::Code;
use pvm_core::tid::Tid;
use pvm_task::Session;
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};

/// The file in the home directory whose commands every console runs first.
const RC_FILE: &str = ".pvmrc";
/// The longest such file, in bytes.
const RC_BYTES_MAX: usize = 1 << 20;
/// The exit status of a console that could not run.
const EXIT_FAILURE: u8 = 1;

/// Runs a console. `arguments`, which include the hostfile, are for the daemon, if one must be started.
pub fn run(arguments: &[OsString], hostfile: Option<&Path>) -> ExitCode {
    let (session, daemon) = match machine::join_or_start(arguments) {
        Ok(joined) => joined,
        Err(error) => return failed(&error),
    };
    if let (None, Some(file)) = (&daemon, hostfile) {
        let file = file.display();
        eprintln!(
            "{file}: the machine runs already, and a hostfile is for its start; pvm up --hostfile {file} adds hosts"
        );
    }
    let result = Driver::new(session, daemon).and_then(Driver::run);
    match result {
        Ok(code) => code,
        // Nobody reads the output any more: the console ends silently, like other programs in a pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pvm: {error}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn failed(error: &MachineError) -> ExitCode {
    eprintln!("libpvm [pid{}]: Console: {error}", std::process::id());
    ExitCode::from(EXIT_FAILURE)
}

/// Prints to standard output and flushes it.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

struct Driver {
    session: Session,
    daemon: Option<Child>,
    console: Console,
    input: Input,
    signals: Signals,
}

impl Driver {
    fn new(mut session: Session, daemon: Option<Child>) -> io::Result<Driver> {
        let signals = Signals::catch()?;
        if daemon.is_none() {
            machine::keep(&mut session);
            say("pvmd already running.\n")?;
        }
        let console = Console::on(&mut session)?;
        Ok(Driver { session, daemon, console, input: Input::start()?, signals })
    }

    fn run(mut self) -> io::Result<ExitCode> {
        let mut flow = self.run_commands_file()?;
        while flow == Flow::Continue {
            flow = match self.next_line()? {
                Next::Line(line) => {
                    if !self.input.is_terminal() {
                        say(&format!("{line}\n"))?;
                    }
                    self.execute(&line)?
                }
                Next::End => {
                    say("quit\n")?;
                    Flow::Quit
                }
                Next::Signal(signal) => {
                    self.input.restore_terminal();
                    signals::end_by(signal);
                    return Ok(ExitCode::from(EXIT_FAILURE));
                }
                Next::DaemonGone => return self.daemon_gone(),
            };
        }
        self.input.restore_terminal();
        match flow {
            Flow::Halt => self.halt(),
            Flow::Continue | Flow::Quit => self.quit(),
        }
    }

    fn run_commands_file(&mut self) -> io::Result<Flow> {
        // Without a home directory the current directory is used.
        let home = std::env::var_os("HOME").map_or(PathBuf::from("."), PathBuf::from);
        let Ok(text) = pvm_link::read_bounded(&home.join(RC_FILE), RC_BYTES_MAX) else { return Ok(Flow::Continue) };
        for line in String::from_utf8_lossy(&text).split_terminator('\n') {
            say(&format!("{line}\n"))?;
            let flow = self.execute(line)?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    }

    fn execute(&mut self, line: &str) -> io::Result<Flow> {
        let mut out = io::stdout().lock();
        let mut err = io::stderr().lock();
        let mut screen = Screen { out: &mut out, err: &mut err };
        let flow = self.console.execute(line, &mut self.session, &mut screen)?;
        out.flush()?;
        Ok(flow)
    }

    /// Waits for the next line, and shows the output of jobs until it arrives.
    fn next_line(&mut self) -> io::Result<Next> {
        let (session, console) = (&mut self.session, &self.console);
        self.input.request(|| names(session, console))?;
        loop {
            self.show_output()?;
            if !self.session.is_connected() {
                return Ok(Next::DaemonGone);
            }
            let mut descriptors = vec![self.input.ready()];
            descriptors.extend(self.signals.descriptors());
            let ready = self.session.wait(&descriptors, None);
            drop(descriptors);
            // SIGINT clears the command line and does not end the console.
            if let Some(signal) = self.signals.take().into_iter().find(|signal| *signal != SIGINT) {
                return Ok(Next::Signal(signal));
            }
            if ready.first() == Some(&true) {
                self.show_output()?;
                return Ok(match self.input.take() {
                    Event::Line(line) => Next::Line(line),
                    Event::End => Next::End,
                });
            }
        }
    }

    fn show_output(&mut self) -> io::Result<()> {
        let text = self.console.take_output(&mut self.session);
        match text.is_empty() {
            true => Ok(()),
            false => self.input.show(&text),
        }
    }

    fn quit(self) -> io::Result<ExitCode> {
        say("\nConsole: exit handler called\n")?;
        // If the daemon has ended by now, there is nothing to leave.
        let _ = self.session.leave();
        say("pvmd still running.\n")?;
        Ok(ExitCode::SUCCESS)
    }

    fn halt(self) -> io::Result<ExitCode> {
        match machine::halt(self.session, self.daemon) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(code) => Err(io::Error::other(code)),
        }
    }

    fn daemon_gone(mut self) -> io::Result<ExitCode> {
        self.input.restore_terminal();
        self.input.show(b"\n")?;
        let why = self.session.why_halting().map(|why| format!(": {why}")).unwrap_or_default();
        eprintln!("libpvm [{}]: Console: {} (the machine has ended{why})", self.session.tid(), Code::SysErr);
        Ok(ExitCode::from(EXIT_FAILURE))
    }
}

enum Next {
    Line(String),
    End,
    Signal(i32),
    DaemonGone,
}

/// Returns the current candidates for completion.
fn names(session: &mut Session, console: &Console) -> Names {
    let hosts = control::hosts(session).unwrap_or_default().0;
    let tasks = control::tasks(session, Tid::NONE).unwrap_or_default();
    let own = session.tid();
    Names {
        commands: console.command_names(),
        hosts: hosts.into_iter().map(|host| host.name).collect(),
        tids: tasks.iter().filter(|task| task.tid != own).map(|task| task.tid.to_string()).collect(),
    }
}
