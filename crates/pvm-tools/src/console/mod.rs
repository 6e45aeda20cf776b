//! The console: reads lines, runs commands, prints text.
mod aliases;
mod commands;
mod display;
pub mod driver;
mod help;
mod input;
pub mod listing;
pub mod once;
mod options;
mod spawn;
pub(crate) mod spawn_options;
mod trace;

use crate::control::Control;
use crate::jobs::Jobs;
use crate::variables::Variables;
use crate::{suggest, words};
use aliases::Aliases;
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_task::{ANY, Filter, OptionNumber, Session};
pub use spawn::send as send_spawn;
use std::io::{self, Write};
use std::time::Duration;

/// The streams to which a command prints.
pub struct Screen<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// What the console does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The next command follows.
    Continue,
    /// The console ends, and the machine continues.
    Quit,
    /// The machine and the console end.
    Halt,
}

/// Returns whether the console has a command with this name.
pub fn is_command(name: &str) -> bool {
    help::find(name).is_some()
}

/// Returns the commands that `help` lists.
pub fn commands() -> impl Iterator<Item = &'static str> {
    help::COMMANDS.iter().filter(|command| !command.hidden).map(|command| command.name)
}

/// The state that the console keeps from command to command.
pub struct Console {
    aliases: Aliases,
    /// The environment variables of the console.
    pub variables: Variables,
    /// The jobs that the console started.
    pub jobs: Jobs,
    mask: trace::Mask,
    /// The context of messages with the output of jobs.
    output_context: i32,
    /// The context of messages with the traces of jobs.
    trace_context: i32,
    /// Whether a command has failed, wholly or in part.
    failed: bool,
}

/// A command that is being run.
pub struct Call<'a, 'b> {
    console: &'a mut Console,
    control: &'a mut dyn Control,
    /// The command and its arguments.
    words: &'a [String],
    screen: &'a mut Screen<'b>,
}

impl Console {
    /// Makes a console that receives the output and the traces of its jobs in these contexts.
    pub fn new(variables: Variables, output_context: i32, trace_context: i32) -> Console {
        Console {
            aliases: Aliases::default(),
            variables,
            jobs: Jobs::default(),
            mask: trace::Mask::xpvm(),
            output_context,
            trace_context,
            failed: false,
        }
    }

    /// Makes the console of this task, with the environment of this process.
    pub fn on(session: &mut Session) -> io::Result<Console> {
        let mut new_context = || match session.request(Request::NewContext) {
            Ok(Reply::Int(context)) => Ok(context),
            Ok(_) => Err(io::Error::other(Code::BadMsg)),
            Err(code) => Err(io::Error::other(code)),
        };
        let (output_context, trace_context) = (new_context()?, new_context()?);
        let console = Console::new(Variables::of_this_process(), output_context, trace_context);
        console.prepare(session).map_err(io::Error::other)?;
        Ok(console)
    }

    /// Handles the output and traces of jobs that have arrived. Returns the text to show.
    pub fn take_output(&mut self, session: &mut Session) -> Vec<u8> {
        let mut text = Vec::new();
        let traces = Filter { src: ANY, tag: ANY, ctx: self.trace_context };
        // Without a daemon no message arrives; the console's main loop notices that the daemon has ended.
        while let Ok(Some(message)) = session.recv(traces, Some(Duration::ZERO)) {
            text.append(&mut self.jobs.handle_trace(message.tag, message.src, message.reader()));
        }
        while let Some(event) = session.next_output() {
            text.append(&mut self.jobs.handle(&event));
        }
        text
    }

    /// Returns whether a command has failed, wholly or in part.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Sets the options that the console needs for its own task.
    pub fn prepare(&self, control: &mut dyn Control) -> Result<(), Code> {
        for (option, value) in options::AT_START {
            control.set_option(option as i32, value)?;
        }
        control.set_child_trace_mask(self.mask.characters())
    }

    /// Runs a line.
    pub fn execute(&mut self, line: &str, control: &mut dyn Control, screen: &mut Screen<'_>) -> io::Result<Flow> {
        let words = match words::split(line) {
            Ok(words) => words,
            Err(error) => {
                writeln!(screen.out, "{error}")?;
                return Ok(Flow::Continue);
            }
        };
        match self.aliases.resolve(words) {
            Ok(words) => self.dispatch(words, control, screen),
            Err(aliases::Loop) => {
                writeln!(screen.out, "alias loop")?;
                Ok(Flow::Continue)
            }
        }
    }

    /// Runs the command in `words`, without replacing aliases.
    fn dispatch(
        &mut self,
        mut words: Vec<String>,
        control: &mut dyn Control,
        screen: &mut Screen<'_>,
    ) -> io::Result<Flow> {
        let Some(name) = words.first() else { return Ok(Flow::Continue) };
        let Some(command) = help::find(name) else {
            let meant = suggest::nearest(name, &self.command_names());
            let meant = meant.map_or_else(String::new, |meant| format!(" (did you mean {meant}?)"));
            writeln!(screen.out, "{name}: not found{meant}")?;
            return Ok(Flow::Continue);
        };
        let before = words.len();
        if command.json {
            words.retain(|word| word != "--json");
        }
        let json = words.len() < before;
        if words.len() < command.words_min || command.words_max.is_some_and(|max| words.len() > max) {
            self.failed = true;
            writeln!(screen.out, "{}: wrong #args", command.name)?;
            return Ok(Flow::Continue);
        }
        (command.action)(&mut Call { console: self, control, words: &words, screen }, json)
    }

    /// Returns the names that can begin a command line.
    pub fn command_names(&self) -> Vec<String> {
        commands().map(str::to_owned).chain(self.aliases.names().map(str::to_owned)).collect()
    }
}

impl Call<'_, '_> {
    /// Prints the message that the library prints when a call of `function` fails.
    fn report(&mut self, function: &str, code: Code) -> io::Result<()> {
        self.console.failed = true;
        if self.control.option(OptionNumber::AutoErr as i32) == Ok(0) {
            return Ok(());
        }
        self.screen.out.flush()?;
        writeln!(self.screen.err, "libpvm [{}]: {function}(): {code}", self.control.tid())
    }

    /// Records whether the command has failed: it has if one of these results is negative.
    fn note(&mut self, results: &[i32]) {
        self.console.failed |= results.iter().any(|result| *result < 0);
    }

    /// Prints text.
    fn print(&mut self, text: &str) -> io::Result<()> {
        self.screen.out.write_all(text.as_bytes())
    }

    /// Returns the arguments.
    fn arguments(&self) -> &[String] {
        &self.words[1..]
    }
}

#[cfg(test)]
mod tests;
