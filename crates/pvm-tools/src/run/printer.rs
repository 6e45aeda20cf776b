//! Shows the output of tasks.
use pvm_core::tid::Tid;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

/// The longest unfinished line, in bytes, that is held back until its end arrives.
///
/// * Filled by: each task of the run
/// * Setting: none, shorter lines stay whole
/// * Reached: the part so far is printed, and output of other tasks may be printed before the rest of the line
/// * Test: `a_line_that_is_too_long_is_shown_in_pieces`
const LINE_BYTES_MAX: usize = 1 << 20;
/// How many last lines of a task are kept for the report of its end, and how many bytes of each line.
const TAIL_LINES: usize = 5;
const TAIL_LINE_BYTES: usize = 200;

/// The stream to which a task has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Err,
}

/// The output on its way from the tasks to the caller's standard output and standard error.
#[derive(Default)]
pub struct Printer {
    /// Lines that have not ended.
    open: BTreeMap<(Tid, Stream), Vec<u8>>,
    /// The last lines of each task.
    tails: BTreeMap<Tid, VecDeque<Vec<u8>>>,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Printer {
    /// Accepts output of a task. A whole line is printed, after the `tag`. An unfinished line is printed at once if
    /// there is no tag and the task is `alone`, since then no other task can print in the middle of the line.
    pub fn take(&mut self, task: Tid, stream: Stream, mut bytes: &[u8], tag: &str, alone: bool) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let mut line = self.open.remove(&(task, stream)).unwrap_or_default();
            line.extend_from_slice(&bytes[..=end]);
            self.show(task, stream, &line, tag);
            bytes = &bytes[end + 1..];
        }
        if bytes.is_empty() {
            return;
        }
        let open = self.open.entry((task, stream)).or_default();
        open.extend_from_slice(bytes);
        if open.len() >= LINE_BYTES_MAX || alone && tag.is_empty() {
            let line = std::mem::take(open);
            self.show(task, stream, &line, tag);
        }
    }

    /// Notes that the task prints no more. Prints the task's unfinished lines, with a line feed only if they have a
    /// tag.
    pub fn end(&mut self, task: Tid, tag: &str) {
        for stream in [Stream::Out, Stream::Err] {
            let Some(mut line) = self.open.remove(&(task, stream)).filter(|line| !line.is_empty()) else { continue };
            if !tag.is_empty() {
                line.push(b'\n');
            }
            self.show(task, stream, &line, tag);
        }
    }

    fn show(&mut self, task: Tid, stream: Stream, line: &[u8], tag: &str) {
        let to = if stream == Stream::Out { &mut self.out } else { &mut self.err };
        to.extend_from_slice(tag.as_bytes());
        to.extend_from_slice(line);
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            let tail = self.tails.entry(task).or_default();
            tail.push_back(text[..text.len().min(TAIL_LINE_BYTES)].to_vec());
            if tail.len() > TAIL_LINES {
                tail.pop_front();
            }
        }
    }

    /// Returns the last lines of a task, with `?` in place of control characters.
    pub fn last_lines(&self, task: Tid) -> Vec<String> {
        let shown = |line: &Vec<u8>| -> String {
            let text = String::from_utf8_lossy(line).into_owned();
            text.chars().map(|char| if char.is_control() && char != '\t' { '?' } else { char }).collect()
        };
        self.tails.get(&task).map(|tail| tail.iter().map(shown).collect()).unwrap_or_default()
    }

    /// Writes the collected output to standard output and standard error.
    pub fn flush(&mut self) -> io::Result<()> {
        // A run continues even if nobody reads its standard error.
        let _ = io::stderr().lock().write_all(&self.err);
        self.err.clear();
        let mut out = io::stdout().lock();
        let result = out.write_all(&self.out).and_then(|()| out.flush());
        self.out.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Tid = Tid(0x40001);
    const TWO: Tid = Tid(0x40002);

    #[test]
    fn no_byte_is_added_and_lines_of_several_tasks_stay_whole() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"a\r\nb", "", false);
        printer.take(TWO, Stream::Out, b"x\n", "", false);
        printer.take(ONE, Stream::Err, b"oops", "", false);
        assert_eq!((&printer.out[..], &printer.err[..]), (&b"a\r\nx\n"[..], &b""[..]));
        printer.end(ONE, "");
        assert_eq!((&printer.out[..], &printer.err[..]), (&b"a\r\nx\nb"[..], &b"oops"[..]));
        assert_eq!(printer.last_lines(ONE), ["a", "b", "oops"]);
    }

    #[test]
    fn a_question_of_the_only_task_is_shown_at_once() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"name? ", "", true);
        assert_eq!(printer.out, b"name? ");
        printer.end(ONE, "");
        assert_eq!(printer.out, b"name? ");
    }

    #[test]
    fn each_line_has_its_tag_and_an_end() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"a\nb", "[p.0] ", true);
        printer.end(ONE, "[p.0] ");
        assert_eq!(printer.out, b"[p.0] a\n[p.0] b\n");
    }

    #[test]
    fn a_line_that_is_too_long_is_shown_in_pieces() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, &[b'x'; LINE_BYTES_MAX - 1], "", false);
        assert!(printer.out.is_empty());
        printer.take(ONE, Stream::Out, b"xx", "", false);
        assert_eq!(printer.out.len(), LINE_BYTES_MAX + 1);
        assert_eq!(printer.last_lines(ONE)[0].len(), TAIL_LINE_BYTES);
    }

    #[test]
    fn the_last_lines_command_no_terminal() {
        let mut printer = Printer::default();
        for line in 0..9 {
            printer.take(ONE, Stream::Err, format!("\x1b[2J{line}\n").as_bytes(), "", false);
        }
        assert_eq!(printer.last_lines(ONE), ["?[2J4", "?[2J5", "?[2J6", "?[2J7", "?[2J8"]);
    }
}
