//! Jobs: tasks that were started together, and where their output goes.
use crate::shape;
use crate::trace_text::TraceText;
use pvm_core::encoding::Reader;
use pvm_core::proto::{Host, TaskInfo};
use pvm_core::tid::Tid;
use pvm_core::trace::parts;
use pvm_task::{OutputEvent, OutputKind};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Where the output of a job goes.
#[derive(Debug)]
pub enum Sink {
    /// To the console.
    Console,
    /// To a file, line by line.
    File(File),
    /// Into the trace only.
    Nowhere,
}

/// Where the text of a job's trace is written.
#[derive(Debug)]
pub struct TraceSink {
    text: TraceText,
    /// The file; without one, the console.
    file: Option<File>,
}

impl TraceSink {
    /// Makes a sink for a new file, and fails if the file exists; without a path, makes a sink for the console.
    pub fn new(path: Option<&Path>) -> io::Result<TraceSink> {
        let file = path.map(File::create_new).transpose()?;
        Ok(TraceSink { text: TraceText::default(), file })
    }

    /// Writes text about `tid`. Returns what the console shows.
    fn write(&mut self, number: i32, tid: Tid, text: &str) -> Vec<u8> {
        match &mut self.file {
            Some(file) => match file.write_all(text.as_bytes()) {
                Ok(()) => Vec::new(),
                Err(error) => format!("[{number}] trace lost: {error}\n").into_bytes(),
            },
            None => text.lines().map(|line| format!("[T{number}:{tid}] {line}\n")).collect::<String>().into_bytes(),
        }
    }
}

impl Sink {
    /// Makes a sink for `->file`: the previous contents of the file are lost.
    pub fn replace(path: &Path) -> io::Result<Sink> {
        File::create(path).map(Sink::File)
    }

    /// Makes a sink for `->>file`.
    pub fn append(path: &Path) -> io::Result<Sink> {
        File::options().create(true).append(true).open(path).map(Sink::File)
    }
}

#[derive(Debug)]
struct Job {
    sink: Sink,
    trace: Option<TraceSink>,
    /// The known tasks of the job; the value is true if the task's output has ended.
    tasks: BTreeMap<Tid, bool>,
}

/// The jobs of a console.
#[derive(Debug, Default)]
pub struct Jobs {
    jobs: BTreeMap<i32, Job>,
    last: i32,
}

impl Jobs {
    /// Returns the number for the next job.
    pub fn next_number(&mut self) -> i32 {
        self.last += 1;
        self.last
    }

    /// Begins to collect output for a job.
    pub fn begin(&mut self, number: i32, sink: Sink) {
        self.jobs.insert(number, Job { sink, trace: None, tasks: BTreeMap::new() });
    }

    /// Begins the trace of a job. Returns what the console shows.
    pub fn begin_trace(&mut self, number: i32, sink: TraceSink, own: Tid, hosts: &[Host]) -> Vec<u8> {
        let Some(job) = self.jobs.get_mut(&number) else { return Vec::new() };
        let (sink, now) = (job.trace.insert(sink), pvm_task::trace::stamp());
        let mut shown = sink.write(number, own, &TraceText::head(now));
        for host in hosts {
            let text = sink.text.host(host, now);
            shown.extend(sink.write(number, host.tid, &text));
        }
        shown
    }

    /// Handles a trace message from a task of that job. Returns what the console shows.
    pub fn handle_trace(&mut self, number: i32, from: Tid, body: Reader<'_>) -> Vec<u8> {
        let Some(sink) = self.jobs.get_mut(&number).and_then(|job| job.trace.as_mut()) else { return Vec::new() };
        let mut shown = Vec::new();
        for part in parts(body) {
            let text = sink.text.part(from, &part);
            shown.extend(sink.write(number, from, &text));
        }
        shown
    }

    /// Sets the tasks of a job. A job without tasks is removed.
    pub fn started(&mut self, number: i32, tids: impl Iterator<Item = Tid>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        for tid in tids {
            job.tasks.entry(tid).or_insert(false);
        }
        if job.tasks.is_empty() {
            self.jobs.remove(&number);
        }
    }

    /// Handles output of a task; `event.tag` is the number of its job. Returns what the console shows.
    pub fn handle(&mut self, event: &OutputEvent) -> Vec<u8> {
        let number = event.tag;
        let Some(job) = self.jobs.get_mut(&number) else { return Vec::new() };
        let mut traced = Vec::new();
        if let Some(sink) = &mut job.trace {
            let text = sink.text.output(event);
            traced = sink.write(number, event.task, &text);
        }
        let ended = job.tasks.entry(event.task).or_insert(false);
        let mut line = format!("[{number}:{}] ", event.task).into_bytes();
        match &event.kind {
            OutputKind::Begin => return traced,
            OutputKind::Line(text) | OutputKind::Raw(text) => line.extend_from_slice(text),
            OutputKind::End => {
                *ended = true;
                line.extend_from_slice(b"EOF");
            }
        }
        line.push(b'\n');
        let mut shown = match &mut job.sink {
            Sink::Console => line,
            Sink::Nowhere => Vec::new(),
            Sink::File(file) => match file.write_all(&line) {
                Ok(()) => Vec::new(),
                Err(error) => format!("[{number}] output lost: {error}\n").into_bytes(),
            },
        };
        traced.append(&mut shown);
        let mut shown = traced;
        if job.tasks.values().all(|ended| *ended) {
            self.jobs.remove(&number);
            shown.extend_from_slice(format!("[{number}] finished\n").as_bytes());
        }
        shown
    }

    /// Returns the numbers and tasks of the jobs that run.
    pub fn running(&self) -> impl Iterator<Item = (i32, Vec<Tid>)> + '_ {
        self.jobs.iter().map(|(number, job)| {
            (*number, job.tasks.iter().filter(|(_, ended)| !**ended).map(|(tid, _)| *tid).collect())
        })
    }

    /// Returns the output of `jobs`.
    pub fn short_list(&self) -> String {
        let mut text = String::new();
        for (number, tids) in self.running() {
            let tids: Vec<String> = tids.iter().map(Tid::to_string).collect();
            let _ = writeln!(text, "{number:>2}: {}", tids.join(" "));
        }
        text
    }

    /// Returns the output of `jobs -l`.
    pub fn long_list(&self, tasks: &[TaskInfo], hosts: &[Host], own: Tid) -> String {
        let mut text = shape::task_head(false);
        for (number, tids) in self.running() {
            let _ = writeln!(text, "{number:>2}:");
            for task in tasks.iter().filter(|task| tids.contains(&task.tid)) {
                text.push_str(&shape::task_row(task, hosts, own, false));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tag: i32, task: u32, kind: OutputKind) -> OutputEvent {
        OutputEvent { task: Tid(task), ctx: 0, tag, kind }
    }

    fn line(text: &str) -> OutputKind {
        OutputKind::Line(text.into())
    }

    fn begin(jobs: &mut Jobs, sink: Sink, tids: &[u32]) -> i32 {
        let number = jobs.next_number();
        jobs.begin(number, sink);
        jobs.started(number, tids.iter().map(|tid| Tid(*tid)));
        number
    }

    #[test]
    fn a_job_shows_lines_the_end_of_each_task_and_its_own() {
        let mut jobs = Jobs::default();
        let one = begin(&mut jobs, Sink::Console, &[0x40002, 0x40003]);
        assert_eq!(jobs.handle(&event(one, 0x40002, OutputKind::Begin)), b"");
        assert_eq!(jobs.handle(&event(one, 0x40002, line("hello"))), b"[1:t40002] hello\n");
        assert_eq!(jobs.short_list(), " 1: t40002 t40003\n");
        assert_eq!(jobs.handle(&event(one, 0x40002, OutputKind::End)), b"[1:t40002] EOF\n");
        assert_eq!(jobs.short_list(), " 1: t40003\n");
        assert_eq!(jobs.handle(&event(one, 0x40003, OutputKind::End)), b"[1:t40003] EOF\n[1] finished\n");
        assert_eq!(jobs.short_list(), "");
    }

    #[test]
    fn children_of_children_belong_to_the_job() {
        let mut jobs = Jobs::default();
        let one = begin(&mut jobs, Sink::Console, &[0x40002]);
        jobs.handle(&event(one, 0x40003, OutputKind::Begin));
        assert_eq!(jobs.handle(&event(one, 0x40002, OutputKind::End)), b"[1:t40002] EOF\n");
        assert_eq!(jobs.handle(&event(one, 0x40003, OutputKind::End)), b"[1:t40003] EOF\n[1] finished\n");
    }

    #[test]
    fn a_job_that_started_nothing_is_over_and_keeps_its_number() {
        let mut jobs = Jobs::default();
        begin(&mut jobs, Sink::Console, &[]);
        assert_eq!(jobs.running().count(), 0);
        assert_eq!(begin(&mut jobs, Sink::Console, &[0x40002]), 2);
    }

    #[test]
    fn a_file_takes_the_lines_and_the_console_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        std::fs::write(&path, "old\n").unwrap();
        let mut jobs = Jobs::default();
        for (sink, content) in [
            (Sink::replace(&path).unwrap(), "[1:t40002] a\n[1:t40002] EOF\n"),
            (Sink::append(&path).unwrap(), "[1:t40002] a\n[1:t40002] EOF\n[2:t40002] a\n[2:t40002] EOF\n"),
        ] {
            let number = begin(&mut jobs, sink, &[0x40002]);
            assert_eq!(jobs.handle(&event(number, 0x40002, line("a"))), b"");
            let shown = jobs.handle(&event(number, 0x40002, OutputKind::End));
            assert_eq!(shown, format!("[{number}] finished\n").into_bytes());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }
}
