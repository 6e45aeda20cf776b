//! What the user has chosen to see, and what keys change of it.
use super::order;
use crate::cli::Sort;
use crate::signals;
use crate::stat::TaskRow;
use pvm_core::tid::Tid;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

/// What the keys do.
pub const HELP: &str = "\
up, down        choose a task (also PgUp, PgDn, Home, End)
Enter, w        why the chosen task waits
k, then Enter   end the chosen task (SIGTERM)
s               send it another signal: type its name or number
< >             sort by the column before, or the next one
t               tasks as a tree below their parents, or as a list
h, ?            this text
q, Ctrl-C       leave; tasks go on
";

/// What fills the screen besides the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Tables,
    /// A text with a title, from a line on.
    Text { title: String, lines: Vec<String>, first: usize },
    /// The name or number of a signal is typed.
    Signal { tid: Tid, typed: String },
}

/// What the machine is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    Why(Tid),
    Signal(Tid, i32),
}

/// What is seen.
pub struct View {
    pub sort: Sort,
    pub is_tree: bool,
    pub mode: Mode,
    /// What the last key has done, until the next one.
    pub note: String,
    /// The chosen task.
    pub chosen: Option<Tid>,
    /// Which rows of the table are seen.
    pub table: TableState,
    /// How many rows of tasks, or lines of a text, were seen last.
    pub page: usize,
}

impl View {
    pub fn new(sort: Sort, is_tree: bool) -> View {
        View {
            sort,
            is_tree,
            mode: Mode::Tables,
            note: String::new(),
            chosen: None,
            table: TableState::default(),
            page: 1,
        }
    }

    /// Returns the places of the tasks in their order, and their depths in the tree. Keeps a task chosen.
    pub fn rows(&mut self, tasks: &[TaskRow]) -> Vec<(usize, usize)> {
        let rows: Vec<(usize, usize)> = order::rows(tasks, self.sort, self.is_tree).collect();
        let row = rows.iter().position(|(place, _)| Some(tasks[*place].info.tid) == self.chosen);
        // Another task takes the row of one that has ended.
        let row = row.or_else(|| self.table.selected()).unwrap_or(0).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(row).map(|(place, _)| tasks[*place].info.tid);
        self.table.select(self.chosen.map(|_| row));
        rows
    }

    /// Shows a text until a key is pressed.
    pub fn show_text(&mut self, title: String, text: &str) {
        let lines = text.lines().map(str::to_owned).collect();
        self.mode = Mode::Text { title, lines, first: 0 };
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent, tasks: &[TaskRow]) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
        }
        self.note.clear();
        match std::mem::replace(&mut self.mode, Mode::Tables) {
            Mode::Tables => self.press_in_tables(key.code, tasks),
            Mode::Text { title, lines, first } => {
                let last = lines.len().saturating_sub(self.page);
                let first = moved(key.code, first, last, self.page);
                // Any other key leaves the text.
                if let Some(first) = first {
                    self.mode = Mode::Text { title, lines, first };
                }
                None
            }
            Mode::Signal { tid, typed } => self.type_signal(key.code, tid, typed),
        }
    }

    fn press_in_tables(&mut self, code: KeyCode, tasks: &[TaskRow]) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('w') | KeyCode::Enter => return self.chosen.map(Action::Why),
            KeyCode::Char(key @ ('k' | 's')) => {
                let typed = if key == 'k' { "TERM" } else { "" };
                if let Some(tid) = self.chosen {
                    self.mode = Mode::Signal { tid, typed: typed.to_owned() };
                }
            }
            KeyCode::Char('<') => self.sort = order::step(self.sort, false),
            KeyCode::Char('>') => self.sort = order::step(self.sort, true),
            KeyCode::Char('t') => self.is_tree = !self.is_tree,
            KeyCode::Char('h' | '?') => self.show_text("keys".to_owned(), HELP),
            code => {
                let rows = self.rows(tasks);
                let row = moved(code, self.table.selected().unwrap_or(0), rows.len().saturating_sub(1), self.page);
                if let Some((place, _)) = row.and_then(|row| rows.get(row)) {
                    self.chosen = Some(tasks[*place].info.tid);
                }
            }
        }
        None
    }

    fn type_signal(&mut self, code: KeyCode, tid: Tid, mut typed: String) -> Option<Action> {
        match code {
            KeyCode::Enter => match signals::number(&typed) {
                Some(signal) => return Some(Action::Signal(tid, signal)),
                None => self.note = format!("{typed}: no such signal"),
            },
            KeyCode::Esc => {}
            code => {
                match code {
                    KeyCode::Backspace => _ = typed.pop(),
                    KeyCode::Char(letter) if letter.is_ascii_alphanumeric() && typed.len() < 8 => typed.push(letter),
                    _ => {}
                }
                self.mode = Mode::Signal { tid, typed };
            }
        }
        None
    }
}

/// Returns where a key of movement leads from a row; `None` for another key.
fn moved(code: KeyCode, row: usize, last: usize, page: usize) -> Option<usize> {
    let row = match code {
        KeyCode::Up => row.saturating_sub(1),
        KeyCode::Down => row + 1,
        KeyCode::PageUp => row.saturating_sub(page),
        KeyCode::PageDown => row + page,
        KeyCode::Home => 0,
        KeyCode::End => last,
        _ => return None,
    };
    Some(row.min(last))
}
