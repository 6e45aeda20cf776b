//! `pvm run --report`: what ran where, how long, and how it ended.
use super::ends::{End, seconds};
use crate::control;
use pvm_core::proto::Usage;
use pvm_core::tid::Tid;
use pvm_task::Session;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The heads of the columns, each with its width; a negative one is for text, which is aligned to the left.
const COLUMNS: [(&str, i32); 9] = [
    ("TASK", 4),
    ("PROGRAM", -16),
    ("TID", -8),
    ("HOST", -16),
    ("TIME", 10),
    ("USER", 10),
    ("SYSTEM", 10),
    ("MEMORY", 10),
    ("END", -1),
];

/// A task of the run.
#[derive(Debug)]
struct Record {
    /// The number in the run, and the name of the program; `None` for a task that another task has spawned.
    root: Option<(usize, String)>,
    host: String,
    /// When the run learned of the task and of its end, since the start of the run.
    began: Duration,
    ended: Option<(Duration, End)>,
    /// What the process has used, if that is known.
    usage: Option<Usage>,
}

/// The tasks of a run, from the start to the end.
#[derive(Debug)]
pub struct Report {
    began: Instant,
    tasks: BTreeMap<Tid, Record>,
}

impl Report {
    /// Makes the report of a run that begins now.
    pub fn new(began: Instant) -> Report {
        Report { began, tasks: BTreeMap::new() }
    }

    /// Notes a task on this host; `root`: its number, and the name of its program.
    pub fn begins(&mut self, tid: Tid, host: String, root: Option<(usize, String)>) {
        let began = self.began.elapsed();
        self.tasks.insert(tid, Record { root, host, began, ended: None, usage: None });
    }

    /// Notes how a task ended, and what it has used. (The memory of a process is never 0, unless nobody knows it.)
    pub fn ends(&mut self, tid: Tid, end: End, usage: Option<Usage>) {
        let now = self.began.elapsed();
        if let Some(record) = self.tasks.get_mut(&tid) {
            record.ended = Some((now, end));
            record.usage = usage.filter(|usage| *usage != Usage::default());
        }
    }

    /// Returns the tasks: first those with numbers, in their order.
    fn in_order(&self) -> Vec<(&Tid, &Record)> {
        let mut tasks: Vec<_> = self.tasks.iter().collect();
        tasks.sort_by_key(|(tid, record)| (record.root.as_ref().map_or(usize::MAX, |(place, _)| *place), **tid));
        tasks
    }

    /// Returns the report as a table.
    pub fn table(&self, status: u8) -> String {
        let hosts: BTreeSet<&str> = self.tasks.values().map(|record| record.host.as_str()).collect();
        let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let (tasks, hosts) = (count(self.tasks.len(), "task"), count(hosts.len(), "host"));
        let mut text = format!("{tasks} on {hosts}, {}, exit status {status}\n", seconds(self.began.elapsed()));
        text.push_str(&line(COLUMNS.map(|(head, _)| head.to_owned())));
        for (tid, record) in self.in_order() {
            let (place, name) = match &record.root {
                Some((place, name)) => (place.to_string(), name.clone()),
                None => ("-".into(), "-".into()),
            };
            let (time, end) = match &record.ended {
                Some((time, end)) => (time.saturating_sub(record.began), end.text()),
                None => (self.began.elapsed().saturating_sub(record.began), "has not been seen to end".into()),
            };
            let used = |part: fn(Usage) -> String| record.usage.map_or_else(|| "-".to_owned(), part);
            let (user, system) =
                (used(|usage| processor_time(usage.user_us)), used(|usage| processor_time(usage.system_us)));
            let memory = used(|usage| memory(usage.memory_max_bytes));
            let tid = tid.to_string();
            text.push_str(&line([place, name, tid, record.host.clone(), seconds(time), user, system, memory, end]));
        }
        text
    }

    /// Returns the report as JSON. `error`: why the run did not start.
    pub fn json(&self, status: u8, error: Option<&str>) -> Value {
        let tasks: Vec<Value> = self.in_order().into_iter().map(|(tid, record)| task(*tid, record)).collect();
        let mut value = json!({ "status": status, "seconds": self.began.elapsed().as_secs_f64(), "tasks": tasks });
        if let Some(error) = error {
            value["error"] = error.into();
        }
        value
    }
}

fn task(tid: Tid, record: &Record) -> Value {
    let (place, name) = record.root.as_ref().map_or((None, None), |(place, name)| (Some(place), Some(name)));
    let mut value = json!({
        "index": place,
        "program": name,
        "tid": tid.to_string(),
        "host": record.host,
        "began": record.began.as_secs_f64(),
        "seconds": record.ended.as_ref().map(|(time, _)| time.saturating_sub(record.began).as_secs_f64()),
    });
    if let Some(usage) = record.usage {
        value["user_seconds"] = (usage.user_us as f64 / 1e6).into();
        value["system_seconds"] = (usage.system_us as f64 / 1e6).into();
        value["memory_max_bytes"] = usage.memory_max_bytes.into();
    }
    match record.ended.as_ref().map(|(_, end)| end) {
        Some(End::Code(code)) => value["exit_code"] = (*code).into(),
        Some(End::Signal { number, core }) => {
            value["signal"] = (*number).into();
            value["core_dumped"] = (*core).into();
        }
        Some(End::Host) => value["lost_with_host"] = true.into(),
        Some(End::Unknown) | None => {}
    }
    value
}

fn line(fields: [String; COLUMNS.len()]) -> String {
    let mut text = String::new();
    for ((_, width), field) in COLUMNS.iter().zip(fields) {
        let size = width.unsigned_abs() as usize;
        let _ = match *width > 0 {
            true => write!(text, "{field:>size$}  "),
            false => write!(text, "{field:<size$}  "),
        };
    }
    format!("{}\n", text.trim_end())
}

/// Returns a time of processors as text; short ones, unlike those of a clock, with hundredths.
fn processor_time(microseconds: u64) -> String {
    match microseconds {
        ..60_000_000 => format!("{:.2} s", microseconds as f64 / 1e6),
        _ => seconds(Duration::from_micros(microseconds)),
    }
}

/// Returns an amount of memory as text.
fn memory(bytes: u64) -> String {
    match bytes {
        ..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Returns the names of the machine's hosts.
pub fn host_names(session: &mut Session) -> Result<Vec<String>, super::RunError> {
    Ok(control::hosts(session)?.0.into_iter().map(|host| host.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new(Instant::now());
        report.begins(Tid(0x40005), "h1".into(), Some((1, "worker".into())));
        report.begins(Tid(0x80002), "h2".into(), Some((0, "main".into())));
        report.begins(Tid(0x40009), "h1".into(), None);
        let usage = Usage { user_us: 1_234_000, system_us: 90_000_000, memory_max_bytes: 3 << 29 };
        report.ends(Tid(0x80002), End::Code(3), Some(usage));
        report.ends(Tid(0x40005), End::Signal { number: 11, core: false }, Some(Usage::default()));
        report
    }

    #[test]
    fn the_table_has_a_line_for_each_task_in_the_order_of_the_numbers() {
        let text = report().table(3);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "3 tasks on 2 hosts, 0.0 s, exit status 3");
        assert_eq!(lines[1], "TASK PROGRAM TID HOST TIME USER SYSTEM MEMORY END");
        assert_eq!(lines[2], "0 main t80002 h2 0.0 s 1.23 s 1 min 30 s 1.5 GiB has ended with exit code 3");
        assert_eq!(lines[3], "1 worker t40005 h1 0.0 s - - - was ended by signal 11 (segmentation fault)");
        assert_eq!(lines[4], "- - t40009 h1 0.0 s - - - has not been seen to end");
    }

    #[test]
    fn the_document_says_the_same() {
        let value = report().json(3, None);
        let of = |task: usize, field: &str| value["tasks"][task][field].clone();
        assert_eq!((value["status"].as_u64(), value["tasks"].as_array().map(Vec::len)), (Some(3), Some(3)));
        assert_eq!([of(0, "exit_code"), of(0, "index"), of(1, "signal")], [json!(3), json!(0), json!(11)]);
        assert_eq!([of(2, "index"), of(2, "seconds"), of(1, "host")], [Value::Null, Value::Null, json!("h1")]);
        assert_eq!([of(0, "user_seconds"), of(0, "memory_max_bytes")], [json!(1.234), json!(3u64 << 29)]);
        assert_eq!(of(1, "user_seconds"), Value::Null);
        assert_eq!(report().json(1, Some("no"))["error"], "no");
    }
}
