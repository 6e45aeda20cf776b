//! Draws the numbers. Only ASCII and no colours, so every terminal shows them.
use super::order;
use super::view::{Mode, View};
use crate::cli::Sort;
use crate::stat::{Stat, TaskRow, number};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::symbols::border;
use ratatui::text::Text;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};
use std::time::Duration;

/// The border of a text.
const BORDER: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
/// How wide the column of tids is, and how wide that of programs at least and at most.
const TASK_WIDTH: u16 = 9;
const PROGRAM_MIN: u16 = 10;
const PROGRAM_MAX: u16 = 32;
/// The width of the columns of hosts.
const HOST_WIDTHS: [Constraint; 7] = [
    Constraint::Max(24),
    Constraint::Length(6),
    Constraint::Length(5),
    Constraint::Length(7),
    Constraint::Length(7),
    Constraint::Length(6),
    Constraint::Length(7),
];

/// A column of tasks.
struct Column {
    title: &'static str,
    width: u16,
    /// The column by which tasks are sorted if it is this one.
    sort: Option<Sort>,
    /// In which order columns vanish from narrow terminals; 0: never.
    dispensable: u8,
    show: fn(&TaskRow) -> String,
}

/// The columns behind the program's name.
static COLUMNS: [Column; 10] = [
    Column { title: "HOST", width: 8, sort: None, dispensable: 1, show: |task| task.host.clone() },
    Column { title: "STATE", width: 8, sort: None, dispensable: 0, show: |task| task.state_shown().to_owned() },
    Column {
        title: "%CPU",
        width: 4,
        sort: Some(Sort::Cpu),
        dispensable: 0,
        show: |task| percent(task, |rates| rates.cpu),
    },
    Column {
        title: "%WAIT",
        width: 5,
        sort: Some(Sort::Wait),
        dispensable: 6,
        show: |task| percent(task, |rates| rates.waiting),
    },
    Column {
        title: "MEM",
        width: 5,
        sort: Some(Sort::Memory),
        dispensable: 4,
        show: |task| task.process.as_ref().map_or("-".to_owned(), |process| number(process.memory_bytes as f64)),
    },
    Column {
        title: "UNREAD",
        width: 6,
        sort: Some(Sort::Unread),
        dispensable: 3,
        show: |task| number(f64::from(task.unread)),
    },
    Column {
        title: "SENT/s",
        width: 6,
        sort: Some(Sort::Sent),
        dispensable: 5,
        show: |task| rate(task, |rates| rates.sent[0]),
    },
    Column { title: "BYTES", width: 5, sort: None, dispensable: 2, show: |task| rate(task, |rates| rates.sent[1]) },
    Column {
        title: "RECV/s",
        width: 6,
        sort: Some(Sort::Received),
        dispensable: 5,
        show: |task| rate(task, |rates| rates.received[0]),
    },
    Column { title: "BYTES", width: 5, sort: None, dispensable: 2, show: |task| rate(task, |rates| rates.received[1]) },
];

/// The columns of text stand at the left, numbers at the right.
const TEXT_COLUMNS: usize = 2;

fn rate(task: &TaskRow, get: fn(&crate::stat::Rates) -> f64) -> String {
    task.rates.as_ref().map_or("-".to_owned(), |rates| number(get(rates)))
}

fn percent(task: &TaskRow, get: fn(&crate::stat::Rates) -> f64) -> String {
    task.rates.as_ref().map_or("-".to_owned(), |rates| format!("{:.0}", get(rates) * 100.0))
}

/// Draws all.
pub fn draw(frame: &mut Frame<'_>, stat: &Stat, view: &mut View, interval: Duration) {
    let area = frame.area();
    // The hosts get a third at most.
    let hosts = (stat.hosts.len() + stat.silent.len()) as u16 + 1;
    let hosts = hosts.min(area.height / 3).max(2);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(hosts),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [head, host_area, _, task_area, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(line(&summary(stat, interval), head), head);
    draw_hosts(frame, stat, host_area);
    view.page = usize::from(task_area.height.saturating_sub(1)).max(1);
    draw_tasks(frame, stat, view, task_area);
    frame.render_widget(line(&last_line(view), foot), foot);
    if let Mode::Text { title, lines, first } = &view.mode {
        let (title, lines, first) = (title.clone(), lines.clone(), *first);
        view.page = draw_text(frame, &title, &lines, first);
    }
}

/// Returns a line in reverse, over the whole width.
fn line(text: &str, area: Rect) -> Paragraph<'static> {
    let width = usize::from(area.width);
    let text = ascii(text);
    Paragraph::new(format!("{text:<width$}")).style(Modifier::REVERSED)
}

fn summary(stat: &Stat, interval: Duration) -> String {
    let count = |number: usize, name: &str| format!("{number} {name}{}", if number == 1 { "" } else { "s" });
    let stuck = stat.tasks.iter().filter(|task| task.is_stuck).count();
    let waiting = stat.tasks.iter().filter(|task| task.state == "waits").count();
    let sent = |of: usize| {
        let rates = stat.tasks.iter().filter_map(|task| task.rates.as_ref());
        // Not `sum`: that of nothing is -0.
        rates.fold(0.0, |sum, rates| sum + rates.sent[of])
    };
    let mut text = format!(
        "{}, {}: {waiting} waiting; {} messages/s, {} bytes/s",
        count(stat.hosts.len() + stat.silent.len(), "host"),
        count(stat.tasks.len(), "task"),
        number(sent(0)),
        number(sent(1)),
    );
    if stuck > 0 {
        text = format!("DEADLOCK: {stuck} can never go on. {text}");
    }
    format!("{text} - every {} s", interval.as_secs_f64())
}

fn last_line(view: &View) -> String {
    match &view.mode {
        Mode::Signal { tid, typed } => format!("signal for {tid} (Enter sends it, Esc does not): {typed}_"),
        Mode::Text { .. } => "up, down: scroll - any other key: back".to_owned(),
        Mode::Tables if !view.note.is_empty() => view.note.clone(),
        Mode::Tables => {
            format!("q leave  w why  k end  s signal  t tree  h help  < > sort: {}", order::name(view.sort))
        }
    }
}

fn draw_hosts(frame: &mut Frame<'_>, stat: &Stat, area: Rect) {
    let room = usize::from(area.height.saturating_sub(1));
    let count = stat.hosts.len() + stat.silent.len();
    let silent = stat.silent.iter().map(|name| Row::new([ascii(name), "does not answer".to_owned()]));
    let hosts = stat.hosts.iter().map(|host| {
        let load = host.load;
        let cells = [
            ascii(&host.name),
            format!("{:.2}", f64::from(load.running_hundredths) / 100.0),
            load.cores.to_string(),
            number(load.memory_bytes as f64),
            number(load.memory_available_bytes as f64),
            host.tasks.to_string(),
            host.waiting.to_string(),
        ];
        aligned(cells, 1)
    });
    let mut rows: Vec<Row<'_>> = silent.chain(hosts).collect();
    if count > room {
        rows.truncate(room.saturating_sub(1));
        let more = count - rows.len();
        rows.push(Row::new([format!("and {more} more")]));
    }
    let head = ["HOST", "LOAD", "CORES", "MEMORY", "FREE", "TASKS", "WAITING"].map(str::to_owned);
    frame.render_widget(Table::new(rows, HOST_WIDTHS).header(aligned(head, 1).style(Modifier::BOLD)), area);
}

fn draw_tasks(frame: &mut Frame<'_>, stat: &Stat, view: &mut View, area: Rect) {
    let columns = columns_for(area.width, stat.hosts.len() > 1);
    let order = view.rows(&stat.tasks);
    let rows = order.iter().map(|(place, depth)| {
        let task = &stat.tasks[*place];
        let program = format!("{:depth$}{}", "", ascii(&task.program()));
        let cells = [task.info.tid.to_string(), program]
            .into_iter()
            .chain(columns.iter().map(|column| ascii(&(column.show)(task))));
        aligned(cells, texts(&columns))
    });
    let titles = columns.iter().map(|column| (column.title, column.sort));
    let head = [("TASK", Some(Sort::Task)), ("PROGRAM", None)].into_iter().chain(titles);
    let head = head.enumerate().map(|(place, (title, sort))| {
        let marked = if sort == Some(view.sort) { Modifier::REVERSED } else { Modifier::empty() };
        Text::from(title).alignment(alignment(place, texts(&columns))).style(marked)
    });
    let program = (PROGRAM_MIN + area.width.saturating_sub(needed(&columns))).min(PROGRAM_MAX);
    let widths = [TASK_WIDTH, program].map(Constraint::Length);
    let widths = widths.into_iter().chain(columns.iter().map(|column| Constraint::Length(column.width)));
    let table =
        Table::new(rows, widths).header(Row::new(head).style(Modifier::BOLD)).row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut view.table);
    if stat.tasks.is_empty() && stat.interval.is_some() && area.height > 1 {
        let below = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Paragraph::new("no tasks (pvm run starts a program)"), below);
    }
}

/// Returns how many columns are text, at the left.
fn texts(columns: &[&Column]) -> usize {
    TEXT_COLUMNS + columns.iter().filter(|column| matches!(column.title, "HOST" | "STATE")).count()
}

/// Returns the columns that a terminal of this width shows.
fn columns_for(width: u16, with_hosts: bool) -> Vec<&'static Column> {
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(|column| with_hosts || column.title != "HOST").collect();
    for rank in [2, 3, 4, 1, 5, 6] {
        if needed(&columns) > width {
            columns.retain(|column| column.dispensable != rank);
        }
    }
    columns
}

/// Returns the width that tasks with these columns need at least.
fn needed(columns: &[&Column]) -> u16 {
    TASK_WIDTH + 1 + PROGRAM_MIN + columns.iter().map(|column| column.width + 1).sum::<u16>()
}

/// Returns where the cell of a column stands; the first columns are text.
fn alignment(place: usize, texts: usize) -> Alignment {
    if place < texts { Alignment::Left } else { Alignment::Right }
}

/// Returns a row whose first cells stand at the left, and the others at the right.
fn aligned(cells: impl IntoIterator<Item = String>, left: usize) -> Row<'static> {
    let align = |(place, cell)| Text::from(cell).alignment(alignment(place, left));
    Row::new(cells.into_iter().enumerate().map(align))
}

/// Draws a text over the tables. Returns how many of its lines are seen.
fn draw_text(frame: &mut Frame<'_>, title: &str, lines: &[String], first: usize) -> usize {
    let area = frame.area();
    let width = lines.iter().map(|line| line.chars().count() as u16 + 2).max().unwrap_or(0);
    let (width, height) =
        (width.max(title.len() as u16 + 4).min(area.width), (lines.len() as u16 + 2).min(area.height));
    let box_area = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let shown: Vec<String> = lines.iter().skip(first).map(|line| ascii(line)).collect();
    let block = Block::bordered().border_set(BORDER).title(ascii(title));
    frame.render_widget(Clear, box_area);
    frame.render_widget(Paragraph::new(shown.join("\n")).block(block), box_area);
    usize::from(height.saturating_sub(2)).max(1)
}

/// Returns a text in which everything but printable ASCII is a question mark: names come from strangers.
fn ascii(text: &str) -> String {
    text.chars().map(|letter| if letter == ' ' || letter.is_ascii_graphic() { letter } else { '?' }).collect()
}
