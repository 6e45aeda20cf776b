//! Tests the console and `pvm top` as a person sees them: on a pseudo-terminal.
#![forbid(unsafe_code)]

mod common;

use common::{PATIENCE, Sandbox, out};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// A command on its own pseudo-terminal.
struct Terminal {
    keyboard: OwnedFd,
    shown: String,
    child: Child,
}

impl Terminal {
    fn open(sandbox: &Sandbox) -> Terminal {
        Terminal::of(sandbox, &[], "xterm", (80, 24))
    }

    /// Starts a command on a terminal of this kind and size.
    fn of(sandbox: &Sandbox, arguments: &[&str], kind: &str, (columns, rows): (u16, u16)) -> Terminal {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let side = || File::options().read(true).write(true).open(&name).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&keyboard, size).unwrap();
        let mut command = sandbox.command(arguments);
        command.env("TERM", kind).env("LC_ALL", "C").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        Terminal { keyboard, shown: String::new(), child }
    }

    fn press(&self, keys: &str) {
        rustix::io::write(&self.keyboard, keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows this in one of its lines. Only moves of the cursor and text are understood.
    fn expect_on_screen(&mut self, screen: &mut Screen, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !screen.lines.iter().any(|line| line.iter().collect::<String>().contains(text)) {
            assert!(Instant::now() < end, "no {text:?} on {screen:?}");
            self.read(text);
            screen.take(&std::mem::take(&mut self.shown));
        }
    }

    /// Takes what the command has printed, if it prints something soon.
    fn read(&mut self, expected: &str) {
        let pause = Timespec::try_from(Duration::from_millis(100)).unwrap();
        let mut ready = [PollFd::new(&self.keyboard, PollFlags::IN)];
        if poll(&mut ready, Some(&pause)).unwrap() > 0 {
            let mut bytes = [0; 4096];
            // An error means that the command has closed its end of the terminal.
            let count = rustix::io::read(&self.keyboard, &mut bytes).unwrap_or(0);
            assert!(count > 0, "no {expected:?} in {:?} before the end", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// Waits until the console has printed `text`, after all texts that earlier calls have waited for.
    fn expect(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(place) = self.shown.find(text) {
                self.shown.drain(..place + text.len());
                return;
            }
            assert!(Instant::now() < end, "no {text:?} in {:?}", self.shown);
            self.read(text);
        }
    }
}

/// What a terminal shows.
#[derive(Debug)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// An escape sequence whose end has not come.
    begun: String,
}

impl Screen {
    fn new((columns, rows): (u16, u16)) -> Screen {
        let lines = vec![vec![' '; usize::from(columns)]; usize::from(rows)];
        Screen { lines, row: 0, column: 0, begun: String::new() }
    }

    fn take(&mut self, printed: &str) {
        for letter in printed.chars() {
            match (self.begun.is_empty(), letter) {
                (true, '\x1b') => self.begun.push(letter),
                (true, letter) => {
                    assert!(letter == ' ' || letter.is_ascii_graphic(), "{letter:?} is not plain ASCII");
                    self.lines[self.row][self.column] = letter;
                    self.column = (self.column + 1).min(self.lines[0].len() - 1);
                }
                (false, letter) => {
                    self.begun.push(letter);
                    if letter.is_ascii_alphabetic() {
                        self.obey();
                    }
                }
            }
        }
    }

    fn obey(&mut self) {
        let sequence = std::mem::take(&mut self.begun);
        let numbers = sequence.trim_start_matches("\x1b[").trim_end_matches(|letter: char| letter.is_alphabetic());
        let colours = (30..=49).chain(90..=107).map(|number: u32| number.to_string()).collect::<Vec<_>>();
        match sequence.chars().last() {
            Some('H') => {
                let mut places = numbers.split(';').map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                (self.row, self.column) = (places.next().unwrap_or(0), places.next().unwrap_or(0));
            }
            Some('J') => self.lines.iter_mut().for_each(|line| line.fill(' ')),
            Some('m') => {
                let is_colour =
                    |number: &str| colours.iter().any(|colour| colour == number) && !matches!(number, "39" | "49");
                assert!(!numbers.split(';').any(is_colour), "a colour: {sequence:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn the_live_tables_fit_terminals_of_each_size_and_their_keys_work() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "sleep 1000");
    assert!(sandbox.run(&["up"]).status.success());
    for (kind, size) in [("xterm", (80, 24)), ("vt100", (60, 15)), ("dumb", (200, 60))] {
        let spawned = out(&sandbox.run(&["spawn", &program]));
        let tid = spawned.split_ascii_whitespace().last().unwrap().to_owned();
        let (mut terminal, mut screen) =
            (Terminal::of(&sandbox, &["top", "--interval", "0.2"], kind, size), Screen::new(size));
        terminal.expect_on_screen(&mut screen, "1 host, 1 task");
        terminal.expect_on_screen(&mut screen, &format!("{tid}    prog"));
        terminal.expect_on_screen(&mut screen, "q leave  w why");
        terminal.press("w");
        terminal.expect_on_screen(&mut screen, &format!("+why {tid} waits"));
        terminal.expect_on_screen(&mut screen, "1 task starts");
        terminal.press(" k");
        terminal.expect_on_screen(&mut screen, &format!("signal for {tid} (Enter sends it, Esc does not): TERM"));
        terminal.press("\r");
        terminal.expect_on_screen(&mut screen, "no tasks (pvm run starts a program)");
        terminal.press("q");
        assert!(terminal.child.wait().unwrap().success());
        let modes = tcgetattr(&terminal.keyboard).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "the terminal is as it was before");
    }
    let (size, mut screen) = ((80, 24), Screen::new((80, 24)));
    let mut terminal = Terminal::of(&sandbox, &["top"], "xterm", size);
    terminal.expect_on_screen(&mut screen, "1 host, 0 tasks");
    assert!(sandbox.run(&["down"]).status.success());
    assert!(!terminal.child.wait().unwrap().success(), "the machine has ended");
}

#[test]
fn a_person_edits_completes_and_recalls_lines() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::open(&sandbox);
    terminal.expect("pvm> ");
    terminal.press("versiom\x7fn\r");
    terminal.expect("3.4.6");
    terminal.expect("pvm> ");
    terminal.press("getopt PvmRo\t\r");
    terminal.expect("PvmRoute Currently Set to 1");
    terminal.expect("pvm> ");
    terminal.press("\x1b[A\x1b[A\r");
    terminal.expect("3.4.6");
    terminal.expect("pvm> ");
    // Ctrl-C discards the line and does not end the console.
    terminal.press("halt\x03");
    terminal.expect("pvm> ");
    terminal.press("id\r");
    terminal.expect("t40001");
    terminal.expect("pvm> ");
    terminal.press("\x04");
    terminal.expect("pvmd still running.");
    assert!(terminal.child.wait().unwrap().success());
    let history = std::fs::read_to_string(sandbox.path().join("home/.pvm_history")).unwrap();
    assert!(history.contains("getopt PvmRoute"), "{history}");
}

#[test]
fn output_of_jobs_leaves_the_line_being_typed_whole() {
    let sandbox = Sandbox::new();
    let program = sandbox.program("prog", "sleep 0.5; echo hello");
    let mut terminal = Terminal::open(&sandbox);
    terminal.expect("pvm> ");
    terminal.press(&format!("spawn -> {program}\r"));
    terminal.expect("1 successful");
    terminal.expect("pvm> ");
    terminal.press("echo typ");
    terminal.expect("[1:t40002] hello");
    // The line that is being typed is shown again below the output.
    terminal.expect("echo typ");
    terminal.press("ed\r");
    terminal.expect("\r\ntyped");
    terminal.press("halt\r");
    assert!(terminal.child.wait().unwrap().success());
    assert!(!sandbox.has_daemon());
}
