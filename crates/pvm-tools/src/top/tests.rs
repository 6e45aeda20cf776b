//! What is seen of a small machine, and what keys do.
use super::*;
use crate::cli::Sort;
use crate::look::samples::{self, HOST, host};
use pvm_core::host_look::{Count, HostLoad, HostLook, ProcessLook, TaskLook};
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use pvm_core::waiting::Look;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use view::Mode;

fn task(local: u32, parent: u32, name: &str, ticks: u64, messages: u64) -> TaskLook {
    let mut task = samples::task(local, (ticks == 0).then_some(Call::Matching));
    task.info.parent = if parent == 0 { 0 } else { (HOST.0 | parent) as i32 };
    task.info.name = serde_bytes::ByteBuf::from(name.as_bytes().to_vec());
    task.process = task.process.map(|process| ProcessLook { ticks, memory_bytes: 5_000_000 + ticks, ..process });
    task.traffic.sent[0] = Count { messages, bytes: 1000 * messages };
    task
}

fn look(number: u64, hosts: u32) -> Look {
    let load = HostLoad {
        cores: 2,
        running_hundredths: 59,
        memory_bytes: 24_000_000_000,
        memory_available_bytes: 5_000_000_000,
    };
    let tasks = vec![
        task(2, 0, "/usr/bin/master", 0, 10),
        task(3, 2, "worker", 100 * number, 500 * number),
        task(4, 2, "worker\u{1b}[31m", 50 * number, 900 * number),
        task(5, 3, "helper", 0, 0),
    ];
    let mut look = Look::default();
    look.hosts.insert(HOST, HostLook { now_ns: 1_000_000_000 * (4 + number), load, tasks, ..HostLook::default() });
    for other in 2..=hosts {
        look.hosts.insert(Tid::host_number(other), HostLook { load, ..HostLook::default() });
    }
    look
}

fn stat(hosts: u32) -> Stat {
    let names: Vec<_> = (1..=hosts).map(|number| host(number, &format!("node{number}"))).collect();
    Stat::new(&[look(1, hosts), look(2, hosts)], &names, Some(Duration::from_secs(1)))
}

/// Returns the lines that a terminal of this size shows.
fn seen(stat: &Stat, view: &mut View, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, stat, view, Duration::from_secs(1))).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
}

fn press(view: &mut View, stat: &Stat, code: KeyCode) -> Option<Action> {
    view.press(KeyEvent::new(code, KeyModifiers::NONE), &stat.tasks)
}

#[test]
fn a_usual_terminal_shows_all_numbers_of_one_host() {
    let lines = seen(&stat(1), &mut View::new(Sort::Cpu, false), (80, 24));
    assert_eq!(lines[0], "1 host, 4 tasks: 2 waiting; 1.4k messages/s, 1.4M bytes/s - every 1 s");
    assert_eq!(lines[1], "HOST                       LOAD CORES  MEMORY    FREE  TASKS WAITING");
    assert_eq!(lines[2], "node1                      0.59     2     24G    5.0G      4       2");
    assert_eq!(lines[4], "TASK      PROGRAM     STATE    %CPU %WAIT   MEM UNREAD SENT/s BYTES RECV/s BYTES");
    assert_eq!(lines[5], "t40003    worker      computes  100     0  5.0M      0    500  500k      0     0");
    assert_eq!(lines[6], "t40004    worker?[31m computes   50     0  5.0M      0    900  900k      0     0");
    assert_eq!(lines[7], "t40002    master      waits       0   100  5.0M      0      0     0      0     0");
    assert_eq!(lines[23], "q leave  w why  k end  s signal  t tree  h help  < > sort: cpu");
}

#[test]
fn narrow_terminals_show_what_matters_and_wide_ones_the_hosts() {
    for (hosts, size, expected) in [
        (2, (80, 24), "TASK      PROGRAM        HOST     STATE    %CPU %WAIT   MEM UNREAD SENT/s RECV/s"),
        (1, (54, 12), "TASK      PROGRAM    STATE    %CPU %WAIT SENT/s RECV/s"),
        (1, (50, 12), "TASK      PROGRAM              STATE    %CPU %WAIT"),
        (3, (120, 40), "BYTES RECV/s BYTES"),
    ] {
        let lines = seen(&stat(hosts), &mut View::new(Sort::Task, false), size);
        let is_there =
            |line: &String| expected.starts_with(line.as_str()) && line.len() > 40 || line.contains(expected);
        assert!(lines.iter().any(is_there), "{lines:#?}");
        assert!(lines.iter().all(|line| line.len() <= usize::from(size.0) && line.is_ascii()));
    }
    // A terminal in which hardly anything has room.
    for size in [(1, 1), (10, 3), (20, 5)] {
        seen(&stat(3), &mut View::new(Sort::Task, true), size);
    }
    let many = seen(&stat(40), &mut View::new(Sort::Task, false), (80, 24));
    assert!(many[8].starts_with("and 34 more") && many[11].starts_with("t40002"), "{many:#?}");
}

#[test]
fn a_tree_shows_children_below_their_parents_and_forgets_nobody() {
    let mut stat = stat(1);
    let lines = seen(&stat, &mut View::new(Sort::Sent, true), (80, 24));
    let names: Vec<&str> = lines[5..9].iter().map(|line| &line[..19]).collect();
    assert_eq!(names, ["t40002    master   ", "t40004     worker?[", "t40003     worker  ", "t40005      helper "]);
    stat.tasks[0].info.parent = stat.tasks[1].info.tid.0 as i32;
    stat.tasks[3].info.parent = stat.tasks[3].info.tid.0 as i32;
    let places: Vec<usize> = order::rows(&stat.tasks, Sort::Task, true).map(|(place, _)| place).collect();
    assert_eq!(places, [0, 1, 2, 3]);
}

#[test]
fn a_chosen_task_stays_chosen_while_others_pass_it() {
    let (stat, mut view) = (stat(1), View::new(Sort::Task, false));
    seen(&stat, &mut view, (80, 24));
    assert_eq!(press(&mut view, &stat, KeyCode::Down), None);
    assert_eq!(press(&mut view, &stat, KeyCode::Enter), Some(Action::Why(stat.tasks[1].info.tid)));
    press(&mut view, &stat, KeyCode::Char('>'));
    seen(&stat, &mut view, (80, 24));
    assert_eq!((view.sort, view.table.selected()), (Sort::Cpu, Some(0)));
    press(&mut view, &stat, KeyCode::End);
    assert_eq!(press(&mut view, &stat, KeyCode::Char('w')), Some(Action::Why(stat.tasks[3].info.tid)));
    for _ in 0..2 {
        press(&mut view, &stat, KeyCode::Char('<'));
    }
    assert_eq!(view.sort, Sort::Received);
    let gone = Stat { tasks: Vec::new(), ..Stat::default() };
    seen(&gone, &mut view, (80, 24));
    assert_eq!(press(&mut view, &gone, KeyCode::Char('w')), None);
}

#[test]
fn a_signal_is_only_sent_when_it_is_confirmed() {
    let (stat, mut view) = (stat(1), View::new(Sort::Task, false));
    seen(&stat, &mut view, (80, 24));
    let tid = stat.tasks[0].info.tid;
    press(&mut view, &stat, KeyCode::Char('k'));
    assert!(seen(&stat, &mut view, (80, 24))[23].ends_with("TERM_"));
    assert_eq!(press(&mut view, &stat, KeyCode::Esc), None);
    assert_eq!(view.mode, Mode::Tables);
    press(&mut view, &stat, KeyCode::Char('k'));
    assert_eq!(press(&mut view, &stat, KeyCode::Enter), Some(Action::Signal(tid, 15)));
    for (typed, expected) in [("usr1", Some(10)), ("12", Some(12)), ("0", None), ("99", None), ("x", None)] {
        press(&mut view, &stat, KeyCode::Char('s'));
        typed.chars().for_each(|letter| assert_eq!(press(&mut view, &stat, KeyCode::Char(letter)), None));
        let action = press(&mut view, &stat, KeyCode::Enter);
        assert_eq!(action, expected.map(|signal| Action::Signal(tid, signal)), "{typed}");
        assert_eq!(view.note.is_empty(), expected.is_some());
    }
}

#[test]
fn a_text_is_scrolled_and_left() {
    let (stat, mut view) = (stat(1), View::new(Sort::Task, false));
    let text: String = (0..40).map(|line| format!("line {line}\n")).collect();
    view.show_text("why".to_owned(), &text);
    assert!(seen(&stat, &mut view, (80, 24)).iter().any(|line| line.contains("|line 0")));
    press(&mut view, &stat, KeyCode::End);
    let lines = seen(&stat, &mut view, (80, 24));
    assert!(lines.iter().any(|line| line.contains("|line 39")) && lines[0].contains("+why---"), "{lines:#?}");
    press(&mut view, &stat, KeyCode::Char('x'));
    assert_eq!(view.mode, Mode::Tables);
    press(&mut view, &stat, KeyCode::Char('h'));
    assert!(seen(&stat, &mut view, (80, 24)).iter().any(|line| line.contains("k, then Enter")));
}

#[test]
fn nothing_has_a_colour() {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal
        .draw(|frame| draw::draw(frame, &stat(2), &mut View::new(Sort::Task, false), Duration::from_secs(1)))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let plain = ratatui::style::Color::Reset;
    assert!(buffer.content().iter().all(|cell| (cell.fg, cell.bg) == (plain, plain)));
    assert!(buffer.content().iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
}
