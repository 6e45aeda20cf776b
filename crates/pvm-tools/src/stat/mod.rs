//! `pvm stat`: how busy hosts and tasks are, and what they send. Takes a look at the machine, or one after the other, and prints the
//! numbers.
mod rows;
mod text;
mod value;

use crate::control::Control;
use crate::look::Recent;
use crate::repeat::{Shown, repeat};
use crate::{cli, json, look, machine};
use pvm_core::codes::Code;
use pvm_core::proto::Host;
use pvm_core::waiting::Look;
pub use rows::{Rates, Stat, TaskRow};
use std::process::ExitCode;
use std::time::Instant;
pub use text::{number, text};
pub use value::value;

/// Runs `pvm stat`.
pub fn run(arguments: &cli::Stat) -> ExitCode {
    machine::visit(ExitCode::FAILURE, |session| {
        let mut watch = Watch::default();
        if let Some(interval) = arguments.watch {
            // The begin of the first interval. If it fails, the next look says why.
            let _ = watch.look(session);
            session.pause(interval);
        }
        repeat(session, arguments.watch, ExitCode::FAILURE, |session| {
            let stat = watch.look(session).map_err(|code| code.to_string())?;
            Ok(Shown { text: shown(&stat, arguments), status: ExitCode::SUCCESS })
        })
    })
}

fn shown(stat: &Stat, arguments: &cli::Stat) -> String {
    match (arguments.json, arguments.watch) {
        (true, None) => json::text(&value(stat)),
        (true, Some(_)) => format!("{}\n", value(stat)),
        (false, _) => text(stat),
    }
}

/// Compares each look with the one before.
#[derive(Default)]
pub struct Watch {
    recent: Recent,
    taken: Option<Instant>,
}

impl Watch {
    /// Looks at all hosts.
    pub fn look(&mut self, control: &mut dyn Control) -> Result<Stat, Code> {
        let (look, hosts) = look::take(control)?;
        Ok(self.add(look, &hosts))
    }

    /// Takes a look. Returns the numbers since the look before.
    pub fn add(&mut self, look: Look, hosts: &[Host]) -> Stat {
        let now = Instant::now();
        let interval = self.taken.replace(now).map(|before| now.duration_since(before));
        Stat::new(self.recent.add(look), hosts, interval)
    }
}

#[cfg(test)]
mod tests;
