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
use std::time::{Duration, Instant};
use text::text;
use value::value;

/// Lets a terminal show the next text in place of the last one.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs `pvm stat`.
pub fn run(arguments: &cli::Stat) -> ExitCode {
    let mut session = match machine::join() {
        Ok(session) => session,
        Err(error) => {
            eprintln!("pvm: {error}");
            return ExitCode::FAILURE;
        }
    };
    let own = session.tid();
    let shown = |stat: &Stat| -> String {
        match (arguments.json, arguments.watch) {
            (true, None) => json::text(&value(stat)),
            (true, Some(_)) => format!("{}\n", value(stat)),
            (false, Some(_)) if std::io::stdout().is_terminal() => format!("{CLEAR}{}", text(stat)),
            (false, _) => text(stat),
        }
    };
    let mut watch = Watch::default();
    let code = loop {
        match watch.look(&mut session) {
            Err(code) => {
                eprintln!("pvm: {code}");
                break ExitCode::FAILURE;
            }
            Ok(mut stat) => {
                stat.tasks.retain(|task| task.info.tid != own);
                // In a watch, the first look is only the begin of the first interval.
                let is_due = arguments.watch.is_none() || stat.interval.is_some();
                let mut stdout = std::io::stdout();
                let mut write = |text: String| stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
                if is_due && write(shown(&stat)).is_err() {
                    break ExitCode::FAILURE;
                }
            }
        }
        match arguments.watch {
            Some(interval) => session.pause(interval),
            None => break ExitCode::SUCCESS,
        }
    };
    // The numbers are printed; it does not matter whether leaving the machine succeeds.
    let _ = session.leave();
    code
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

/// Returns a rate for each second.
fn rate(now: u64, before: u64, interval: Duration) -> f64 {
    now.saturating_sub(before) as f64 / interval.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests;
