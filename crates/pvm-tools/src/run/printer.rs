//! Shows the output of tasks, or writes it to files.
use crate::clock;
use pvm_core::tid::Tid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

/// The names under which the output of a task is shown.
#[derive(Debug, Default)]
pub struct Label {
    /// The text before each line.
    pub tag: String,
    /// The name of the task's files, without `.out` or `.err`.
    pub file: String,
}

/// Where output goes, and what is added to it.
#[derive(Debug, Default)]
pub struct Options {
    /// Whether each line begins with the time.
    pub timestamp: bool,
    /// Whether standard output goes to the caller's standard error.
    pub to_errors: bool,
}

/// The files of `--output-dir`.
pub struct Files {
    directory: PathBuf,
    /// The open files. `None`: the file cannot be written, which was reported.
    open: BTreeMap<(Tid, Stream), Option<BufWriter<File>>>,
}

impl Files {
    /// Makes the directory if it does not exist.
    pub fn new(directory: &Path) -> io::Result<Files> {
        std::fs::create_dir_all(directory)?;
        // Each task has up to two files. Where the limit cannot be raised, the error names the file that was too many.
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        Ok(Files { directory: directory.to_owned(), open: BTreeMap::new() })
    }

    fn path(&self, stream: Stream, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.{}", if stream == Stream::Out { "out" } else { "err" }))
    }

    fn write(&mut self, task: Tid, stream: Stream, bytes: &[u8], name: &str) {
        let path = self.path(stream, name);
        let entry = match self.open.entry((task, stream)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert(File::create(&path).map(BufWriter::new).map_err(|e| lost(&path, &e)).ok())
            }
        };
        if let Some(error) = entry.as_mut().and_then(|file| file.write_all(bytes).err()) {
            lost(&path, &error);
            *entry = None;
        }
    }

    fn flush(&mut self) {
        for file in self.open.values_mut() {
            if let Some(error) = file.as_mut().and_then(|file| file.flush().err()) {
                lost(&self.directory, &error);
                *file = None;
            }
        }
    }

    fn end(&mut self, task: Tid) {
        self.flush();
        for stream in [Stream::Out, Stream::Err] {
            self.open.remove(&(task, stream));
        }
    }
}

/// Reports that output could not be written.
fn lost(path: &Path, error: &io::Error) {
    eprintln!("pvm run: {}: {error}; output of a task is lost", path.display());
}

/// The output on its way from the tasks to files, or to the caller's standard output and standard error.
#[derive(Default)]
pub struct Printer {
    options: Options,
    files: Option<Files>,
    /// Lines that have not ended.
    open: BTreeMap<(Tid, Stream), Vec<u8>>,
    /// The last lines of each task.
    tails: BTreeMap<Tid, VecDeque<Vec<u8>>>,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Printer {
    /// Makes a printer; with `files`, output goes there only.
    pub fn new(options: Options, files: Option<Files>) -> Printer {
        Printer { options, files, ..Printer::default() }
    }

    /// Accepts output of a task. A whole line is printed, after the tag. An unfinished line is printed at once if
    /// lines have no tag and no other task can print in the middle of the line: the task is `alone`, or has files.
    pub fn take(&mut self, task: Tid, stream: Stream, mut bytes: &[u8], label: &Label, alone: bool) {
        let alone = (alone || self.files.is_some()) && label.tag.is_empty() && !self.options.timestamp;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let mut line = self.open.remove(&(task, stream)).unwrap_or_default();
            line.extend_from_slice(&bytes[..=end]);
            self.show(task, stream, &line, label);
            bytes = &bytes[end + 1..];
        }
        if bytes.is_empty() {
            return;
        }
        let open = self.open.entry((task, stream)).or_default();
        open.extend_from_slice(bytes);
        if open.len() >= LINE_BYTES_MAX || alone {
            let line = std::mem::take(open);
            self.show(task, stream, &line, label);
        }
    }

    /// Notes that the task prints no more. Prints the task's unfinished lines, with a line feed only if they have a
    /// tag or a time.
    pub fn end(&mut self, task: Tid, label: &Label) {
        for stream in [Stream::Out, Stream::Err] {
            let Some(mut line) = self.open.remove(&(task, stream)).filter(|line| !line.is_empty()) else { continue };
            if !label.tag.is_empty() || self.options.timestamp {
                line.push(b'\n');
            }
            self.show(task, stream, &line, label);
        }
        self.files.iter_mut().for_each(|files| files.end(task));
    }

    fn show(&mut self, task: Tid, stream: Stream, line: &[u8], label: &Label) {
        match &mut self.files {
            Some(files) => files.write(task, stream, line, &label.file),
            None => {
                let is_out = stream == Stream::Out && !self.options.to_errors;
                let to = if is_out { &mut self.out } else { &mut self.err };
                if self.options.timestamp {
                    to.extend_from_slice(format!("{} ", clock::utc(SystemTime::now())).as_bytes());
                }
                to.extend_from_slice(label.tag.as_bytes());
                to.extend_from_slice(line);
            }
        }
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

    /// Writes the collected output to the files, or to standard output and standard error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.files.iter_mut().for_each(Files::flush);
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

    fn label(tag: &str) -> Label {
        Label { tag: tag.into(), file: "p.0".into() }
    }

    const ONE: Tid = Tid(0x40001);
    const TWO: Tid = Tid(0x40002);

    #[test]
    fn no_byte_is_added_and_lines_of_several_tasks_stay_whole() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"a\r\nb", &label(""), false);
        printer.take(TWO, Stream::Out, b"x\n", &label(""), false);
        printer.take(ONE, Stream::Err, b"oops", &label(""), false);
        assert_eq!((&printer.out[..], &printer.err[..]), (&b"a\r\nx\n"[..], &b""[..]));
        printer.end(ONE, &label(""));
        assert_eq!((&printer.out[..], &printer.err[..]), (&b"a\r\nx\nb"[..], &b"oops"[..]));
        assert_eq!(printer.last_lines(ONE), ["a", "b", "oops"]);
    }

    #[test]
    fn a_question_of_the_only_task_is_shown_at_once() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"name? ", &label(""), true);
        assert_eq!(printer.out, b"name? ");
        printer.end(ONE, &label(""));
        assert_eq!(printer.out, b"name? ");
    }

    #[test]
    fn each_line_has_its_tag_and_an_end() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, b"a\nb", &label("[p.0] "), true);
        printer.end(ONE, &label("[p.0] "));
        assert_eq!(printer.out, b"[p.0] a\n[p.0] b\n");
    }

    #[test]
    fn a_line_that_is_too_long_is_shown_in_pieces() {
        let mut printer = Printer::default();
        printer.take(ONE, Stream::Out, &[b'x'; LINE_BYTES_MAX - 1], &label(""), false);
        assert!(printer.out.is_empty());
        printer.take(ONE, Stream::Out, b"xx", &label(""), false);
        assert_eq!(printer.out.len(), LINE_BYTES_MAX + 1);
        assert_eq!(printer.last_lines(ONE)[0].len(), TAIL_LINE_BYTES);
    }

    #[test]
    fn the_last_lines_command_no_terminal() {
        let mut printer = Printer::default();
        for line in 0..9 {
            printer.take(ONE, Stream::Err, format!("\x1b[2J{line}\n").as_bytes(), &label(""), false);
        }
        assert_eq!(printer.last_lines(ONE), ["?[2J4", "?[2J5", "?[2J6", "?[2J7", "?[2J8"]);
    }

    #[test]
    fn each_line_can_begin_with_the_time() {
        let mut printer = Printer::new(Options { timestamp: true, to_errors: true }, None);
        printer.take(ONE, Stream::Out, b"a\nb", &label("[p.0] "), true);
        printer.end(ONE, &label("[p.0] "));
        let text = String::from_utf8(printer.err.clone()).unwrap();
        let lines: Vec<&str> = text.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
        assert_eq!((lines.as_slice(), printer.out.len()), (&["[p.0] a", "[p.0] b"][..], 0));
    }

    #[test]
    fn the_output_of_a_task_can_go_to_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("new/out");
        let mut printer = Printer::new(Options::default(), Some(Files::new(&directory).unwrap()));
        printer.take(ONE, Stream::Out, b"a\nb", &label(""), false);
        printer.take(ONE, Stream::Err, b"oops\n", &label(""), false);
        printer.flush().unwrap();
        assert_eq!(std::fs::read(directory.join("p.0.out")).unwrap(), b"a\nb");
        printer.end(ONE, &label(""));
        assert_eq!(std::fs::read(directory.join("p.0.err")).unwrap(), b"oops\n");
        assert!(printer.out.is_empty() && printer.err.is_empty());
        assert_eq!(printer.last_lines(ONE), ["a", "b", "oops"]);
    }
}
