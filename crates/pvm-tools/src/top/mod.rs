//! `pvm top`: hosts and tasks, live, in a terminal.
mod draw;
mod order;
mod view;

use crate::look::Looker;
use crate::signals::Signals;
use crate::stat::{self, Stat, Watch};
use crate::{cli, json, machine, repeat, why};
use pvm_core::codes::Code;
use pvm_core::proto::Request;
use pvm_task::Session;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::{Action, View};

/// The longest time for which a new size of the terminal stays unnoticed.
const SIZE_PAUSE: Duration = Duration::from_millis(250);

/// Runs `pvm top`.
pub fn run(arguments: &cli::Top) -> ExitCode {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !arguments.once && !has_terminal {
        eprintln!("pvm: pvm top needs a terminal (pvm top --once prints the numbers once)");
        return ExitCode::FAILURE;
    }
    machine::visit(ExitCode::FAILURE, |session| match arguments.once {
        true => once(session, arguments),
        false => live(session, arguments),
    })
}

/// Prints the numbers of one interval.
fn once(session: &mut Session, arguments: &cli::Top) -> ExitCode {
    let mut watch = Watch::default();
    // If this look fails, the next one says why.
    let _ = watch.look(session);
    std::thread::sleep(arguments.interval);
    repeat::repeat(session, None, ExitCode::FAILURE, |session| {
        let mut stat = watch.look(session).map_err(|code| code.to_string())?;
        let order: Vec<usize> =
            order::rows(&stat.tasks, arguments.sort, arguments.tree).map(|(place, _)| place).collect();
        stat.reorder(&order);
        let text = if arguments.json { json::text(&stat::value(&stat)) } else { stat::text(&stat) };
        Ok(repeat::Shown { text, status: ExitCode::SUCCESS })
    })
}

/// Shows the numbers until the user leaves.
fn live(session: &mut Session, arguments: &cli::Top) -> ExitCode {
    let end = Signals::catch_all(&[SIGTERM, SIGHUP]).and_then(|signals| {
        let mut terminal = ratatui::try_init()?;
        let end = Top::new(arguments).show(session, &mut terminal, signals);
        ratatui::restore();
        end
    });
    match end {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(why)) => {
            eprintln!("pvm: {why}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("pvm: the terminal: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is shown, and when it is looked at again.
struct Top {
    interval: Duration,
    watch: Watch,
    looker: Looker,
    stat: Stat,
    view: View,
}

impl Top {
    fn new(arguments: &cli::Top) -> Top {
        Top {
            interval: arguments.interval,
            watch: Watch::default(),
            looker: Looker::Rests(Instant::now()),
            stat: Stat::default(),
            view: View::new(arguments.sort, arguments.tree),
        }
    }

    /// Shows the machine until the user leaves. Returns why it ended if it was something else.
    fn show(
        &mut self,
        session: &mut Session,
        terminal: &mut DefaultTerminal,
        mut signals: Signals,
    ) -> io::Result<Option<String>> {
        let stdin = io::stdin();
        loop {
            self.proceed(session, Instant::now());
            terminal.draw(|frame| draw::draw(frame, &self.stat, &mut self.view, self.interval))?;
            if !session.is_connected() {
                return Ok(Some("the machine has ended".to_owned()));
            }
            let mut descriptors: Vec<_> = signals.descriptors().collect();
            descriptors.push(stdin.as_fd());
            session.wait(&descriptors, Some(self.pause(Instant::now())));
            if let Some(signal) = signals.take().first() {
                // Daemons end tasks so, and this is one.
                return Ok(Some(format!(
                    "ended by signal {signal}, which is also how a halt of the machine ends tasks"
                )));
            }
            while event::poll(Duration::ZERO)? {
                let Event::Key(key) = event::read()? else { continue };
                match self.view.press(key, &self.stat.tasks) {
                    Some(Action::Quit) => return Ok(None),
                    Some(action) => self.act(session, action),
                    None => {}
                }
            }
        }
    }

    /// Returns how long nothing is to be done.
    fn pause(&self, now: Instant) -> Duration {
        let until = self.looker.deadline();
        until.map_or(SIZE_PAUSE, |until| until.saturating_duration_since(now).min(SIZE_PAUSE))
    }

    /// Begins a look, or takes what has come of it.
    fn proceed(&mut self, session: &mut Session, now: Instant) {
        if let Some((look, hosts)) = self.looker.proceed(session, now, self.interval) {
            self.stat = self.watch.add(look, &hosts);
        }
    }

    /// Does what a key asks for.
    fn act(&mut self, session: &mut Session, action: Action) {
        match action {
            Action::Quit => {}
            Action::Why(tid) => {
                let text = match why::examine(session, Some(&tid.to_string())) {
                    Ok(found) => found.text(),
                    Err(error) => error.to_string(),
                };
                self.view.show_text(format!("why {tid} waits"), &text);
            }
            Action::Signal(tid, signal) => {
                let answer = session.request(Request::Signal { tid, signal });
                self.view.note = match answer {
                    Ok(_) => format!("{tid} got signal {signal}"),
                    Err(Code::NoTask) => format!("{tid} has ended"),
                    Err(code) => format!("{tid}: {code}"),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests;
