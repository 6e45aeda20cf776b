//! `--watch`: prints what a command shows, again and again.
use pvm_task::Session;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Lets a terminal show the next text in place of the last one.
const CLEAR: &str = "\x1b[H\x1b[J";

/// What a command prints, and its exit status if it prints that once.
pub struct Shown {
    pub text: String,
    pub status: ExitCode,
}

/// Prints what `show` returns: once, or after each interval until an interrupt. If `show` fails, prints why, and returns `failed`.
pub fn repeat(
    session: &mut Session,
    interval: Option<Duration>,
    failed: ExitCode,
    mut show: impl FnMut(&mut Session) -> Result<Shown, String>,
) -> ExitCode {
    let mut stdout = std::io::stdout();
    loop {
        let Shown { text, status } = match show(session) {
            Ok(shown) => shown,
            Err(error) => {
                eprintln!("pvm: {error}");
                return failed;
            }
        };
        // Lines of JSON are for programs.
        let clear = if interval.is_some() && stdout.is_terminal() && !text.starts_with('{') { CLEAR } else { "" };
        let printed = write!(stdout, "{clear}{text}").and_then(|()| stdout.flush());
        match interval {
            _ if printed.is_err() => return failed,
            Some(interval) => std::thread::sleep(interval),
            None => return status,
        }
    }
}
