//! `pvm stat`: how busy hosts and tasks are, and what they send. Takes a look at the machine, or one after the other, and prints the
//! numbers.
mod rows;
mod text;
mod value;

use crate::control::Control;
use crate::{cli, json, look, machine};
use pvm_core::codes::Code;
use pvm_core::waiting::Look;
use rows::Stat;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;
use text::text;
use value::value;

/// Lets a terminal show the next text in place of the last one.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs `pvm stat`.
pub fn run(arguments: &cli::Stat) -> ExitCode {
    machine::visit(ExitCode::FAILURE, |session| {
        let mut watch = Watch::default();
        loop {
            let stat = match watch.look(session) {
                Ok(stat) => stat,
                Err(code) => {
                    eprintln!("pvm: {code}");
                    return ExitCode::FAILURE;
                }
            };
            // In a watch, the first look is only the begin of the first interval.
            let is_due = arguments.watch.is_none() || stat.interval.is_some();
            if is_due && print(&shown(&stat, arguments)).is_err() {
                return ExitCode::FAILURE;
            }
            match arguments.watch {
                Some(interval) => session.pause(interval),
                None => return ExitCode::SUCCESS,
            }
        }
    })
}

fn shown(stat: &Stat, arguments: &cli::Stat) -> String {
    match (arguments.json, arguments.watch) {
        (true, None) => json::text(&value(stat)),
        (true, Some(_)) => format!("{}\n", value(stat)),
        (false, Some(_)) if std::io::stdout().is_terminal() => format!("{CLEAR}{}", text(stat)),
        (false, _) => text(stat),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Compares each look with the one before.
#[derive(Default)]
struct Watch {
    before: Option<(Look, Instant)>,
}

impl Watch {
    fn look(&mut self, control: &mut dyn Control) -> Result<Stat, Code> {
        let (look, hosts) = look::take(control)?;
        let now = Instant::now();
        let before = self.before.take().map(|(look, when)| (look, now.duration_since(when)));
        let stat = Stat::new(&look, &hosts, before.as_ref().map(|(look, interval)| (look, *interval)));
        self.before = Some((look, now));
        Ok(stat)
    }
}

#[cfg(test)]
mod tests;
