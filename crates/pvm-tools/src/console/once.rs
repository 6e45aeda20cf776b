//! Runs one console command, given by the words of the command line: `pvm halt`, `pvm spawn -3 prog`.
use super::{Console, Flow, Screen, help};
use crate::machine;
use crate::signals::{self, Signals};
use pvm_core::codes;
use pvm_task::Session;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the command in `words`, and waits for the jobs whose output is shown.
pub fn run(words: &[String]) -> ExitCode {
    // These two need no machine.
    let text = match words.first().map(String::as_str) {
        Some("version") if words.len() == 1 => format!("{}\n", codes::PVM_VERSION),
        Some("help") => help::text(words.get(1).map(String::as_str)),
        _ => return on_machine(words),
    };
    end(io::stdout().write_all(text.as_bytes()).map(|()| true))
}

fn on_machine(words: &[String]) -> ExitCode {
    // When the machine halts, it ends its tasks by a signal, and this process is a task too.
    let signals = Signals::catch();
    let session = match machine::join() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("pvm: {error}");
            return ExitCode::FAILURE;
        }
    };
    end(signals.and_then(|mut signals| Once::new(session)?.run(words, &mut signals)))
}

/// Returns the exit status: success if the command and all its parts succeeded.
fn end(result: io::Result<bool>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // Nobody reads the output any more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pvm: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Once {
    session: Session,
    console: Console,
}

impl Once {
    fn new(mut session: Session) -> io::Result<Once> {
        let console = Console::on(&mut session)?;
        Ok(Once { session, console })
    }

    fn run(mut self, words: &[String], signals: &mut Signals) -> io::Result<bool> {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let mut screen = Screen { out: &mut out, err: &mut err };
        let flow = self.console.dispatch(words.to_vec(), &mut self.session, &mut screen)?;
        out.flush()?;
        if flow == Flow::Halt {
            return machine::halt(self.session, None).map(|()| true).map_err(io::Error::other);
        }
        while self.console.jobs.running().next().is_some() && self.session.is_connected() {
            let descriptors: Vec<_> = signals.descriptors().collect();
            self.session.wait(&descriptors, None);
            drop(descriptors);
            if let Some(signal) = signals.take().first() {
                signals::end_by(*signal);
            }
            let text = self.console.take_output(&mut self.session);
            out.write_all(&text).and_then(|()| out.flush())?;
        }
        // The command is done; it does not matter whether leaving the machine succeeds.
        let _ = self.session.leave();
        Ok(!self.console.has_failed())
    }
}
