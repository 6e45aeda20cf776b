//! Tests the console as a person sees it: on a pseudo-terminal.
#![forbid(unsafe_code)]

mod common;

use common::{PATIENCE, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// A console on its own pseudo-terminal.
struct Terminal {
    keyboard: OwnedFd,
    shown: String,
    child: Child,
}

impl Terminal {
    fn open(sandbox: &Sandbox) -> Terminal {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let side = || File::options().read(true).write(true).open(&name).unwrap();
        let mut command = sandbox.command(&[]);
        command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap();
        Terminal { keyboard, shown: String::new(), child }
    }

    fn press(&self, keys: &str) {
        rustix::io::write(&self.keyboard, keys.as_bytes()).unwrap();
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
            let pause = Timespec::try_from(Duration::from_millis(100)).unwrap();
            let mut ready = [PollFd::new(&self.keyboard, PollFlags::IN)];
            if poll(&mut ready, Some(&pause)).unwrap() > 0 {
                let mut bytes = [0; 4096];
                // An error means that the console has closed its end of the terminal.
                let count = rustix::io::read(&self.keyboard, &mut bytes).unwrap_or(0);
                assert!(count > 0, "no {text:?} in {:?} before the end", self.shown);
                self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        }
    }
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
