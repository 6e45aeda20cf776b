//! The numbers of a small machine.
use super::*;
use crate::look::samples::{self, HOST, host};
use pvm_core::host_look::{Count, HostLoad, HostLook, ProcessLook, TaskLook};
use pvm_core::proto::Host;
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use std::time::Duration;

fn task(local: u32, messages: u64, ticks: u64, waits: bool) -> TaskLook {
    let mut task = samples::task(local, waits.then_some(Call::Matching));
    task.line.as_mut().unwrap().unread = 4;
    task.traffic.sent[0] = Count { messages, bytes: messages * 1000 };
    task.traffic.received[2] = Count { messages: 1, bytes: 8 };
    task.process = task.process.map(|process| ProcessLook { ticks, ..process });
    task
}

fn look(now_ns: u64, tasks: Vec<TaskLook>) -> Look {
    let load = HostLoad {
        cores: 2,
        running_hundredths: 59,
        memory_bytes: 24_000_000_000,
        memory_available_bytes: 5_000_000_000,
    };
    let mut look = Look::default();
    look.hosts.insert(HOST, HostLook { now_ns, load, tasks, ..HostLook::default() });
    look.silent.insert(Tid(0x80000));
    look
}

fn hosts() -> Vec<Host> {
    vec![host(1, "alfa"), host(2, "bravo")]
}

#[test]
fn one_look_shows_totals() {
    let look = look(5_000_000_000, vec![task(2, 7000, 150, false), task(3, 0, 0, true)]);
    let stat = Stat::new(&[look], &hosts(), None);
    let expected = "\
HOST              LOAD CORES    MEMORY      FREE  TASKS WAITING
alfa              0.59     2       24G      5.0G      2       1
bravo does not answer

TASK      PROGRAM         STATE       CPU MEMORY    SENT  BYTES    RECV  BYTES
t40002    p               computes   1.50   5.0M    7.0k   7.0M       1      8
t40003    p               waits      0.00   5.0M       0      0       1      8

sent by route: memory 7.0k messages, 7.0M bytes
";
    let text = text(&stat);
    assert_eq!(text, expected);
    assert!(text.lines().all(|line| line.len() <= 80));
    let value = value(&stat);
    assert_eq!(value["tasks"][0]["sent"]["routes"]["memory"]["bytes"], 7_000_000);
    assert_eq!(value["tasks"][0]["received"]["routes"]["direct"]["messages"], 1);
    assert_eq!((&value["tasks"][1]["unread"], &value["silent_hosts"][0]), (&4.into(), &"bravo".into()));
    assert!(value["seconds"].is_null() && value["tasks"][0].get("per_second").is_none());
}

#[test]
fn two_looks_show_rates() {
    let before = look(5_000_000_000, vec![task(2, 100, 100, false), task(3, 5, 0, true)]);
    let after = look(7_000_000_000, vec![task(2, 4100, 200, false), task(3, 5, 0, true), task(4, 9, 9, false)]);
    let stat = Stat::new(&[before, after], &hosts(), Some(Duration::from_secs(2)));
    let text = text(&stat);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[4], "TASK      PROGRAM         STATE      %CPU  %WAIT  SENT/s BYTES/s  RECV/s BYTES/s");
    assert_eq!(lines[5], "t40002    p               computes     50      0    2.0k   2.0M       0      0");
    assert_eq!(lines[6], "t40003    p               waits         0    100       0      0       0      0");
    assert_eq!(lines[7], "t40004    p               computes      -      -       -      -       -      -");
    assert_eq!(value(&stat)["tasks"][0]["per_second"]["sent"]["messages"], 2000.0);
}

#[test]
fn without_tasks_the_text_says_what_to_do() {
    assert!(text(&Stat::new(&[look(1, Vec::new())], &hosts(), None)).contains("no tasks (pvm run starts a program)\n"));
}
