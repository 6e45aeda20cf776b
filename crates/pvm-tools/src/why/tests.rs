//! Reports of small machines, as text.
use super::*;
use crate::control;
use crate::look::samples::{HOST, host, task};
use pvm_core::host_look::{HostLook, TaskLook};
use pvm_core::proto::{Reply, Request};
use pvm_core::state_line::{Call, Wanted};

fn from(local: u32, tag: i32) -> Option<Call> {
    Some(Call::Receive(Wanted { from: Some(Tid(HOST.0 | local)), tag: Some(tag), context: Some(0) }))
}

struct Looks {
    tasks: Vec<TaskLook>,
    silent: bool,
}

impl Control for Looks {
    fn tid(&self) -> Tid {
        Tid(0x40009)
    }
    fn ask(&mut self, request: Request) -> Result<Reply, Code> {
        Ok(match request {
            Request::Config => {
                let hosts = if self.silent { vec![host(1, "alfa"), host(2, "bravo")] } else { vec![host(1, "alfa")] };
                Reply::Hosts { hosts, formats: 1 }
            }
            Request::Look(HOST) => {
                Reply::Look(HostLook { now_ns: 13_500_000_000, tasks: self.tasks.clone(), ..HostLook::default() })
            }
            Request::GroupPlaces => Reply::GroupPlaces(Vec::new()),
            _ => return Err(Code::HostFail),
        })
    }
    fn pause(&mut self, _time: Duration) {}
    fn option(&mut self, _what: i32) -> Result<i32, Code> {
        Ok(0)
    }
    fn set_option(&mut self, _what: i32, _value: i32) -> Result<i32, Code> {
        Ok(0)
    }
    fn set_child_trace_mask(&mut self, _mask: &[u8]) -> Result<(), Code> {
        Ok(())
    }
    fn collect_output(&mut self, _context: i32, _tag: i32) {}
    fn spawn_request(&mut self, _call: &control::SpawnCall<'_>) -> Result<Request, Code> {
        Err(Code::SysErr)
    }
}

fn circle() -> Looks {
    let mut first = task(2, from(3, 8));
    let line = first.line.as_mut().unwrap();
    line.unread = 3;
    (0..3).for_each(|_| line.add_unread(Tid(0x40003), 7, 0));
    Looks { tasks: vec![first, task(3, from(2, 8)), task(4, from(3, 1)), task(5, None)], silent: false }
}

#[test]
fn a_circle_is_shown_with_its_victims_within_the_width_of_a_terminal() {
    let found = examine(&mut circle(), None).unwrap_or_else(|error| panic!("{error}"));
    assert!(found.has_deadlock());
    let text = found.text();
    let expected = "\
t40002       12 s pvm_recv(t40003, tag 8): t40003 waits itself; 3 unread
                  messages from t40003: tag 7
t40003       12 s pvm_recv(t40002, tag 8): t40002 waits itself
t40004       12 s pvm_recv(t40003, tag 1): t40003 waits itself
DEADLOCK: a circle of waits: t40002 -> t40003 -> t40002. t40004 waits for that.
1 task computes.
";
    assert_eq!(text, expected);
    let value = found.value();
    assert_eq!(value["deadlocks"][0]["tasks"], serde_json::json!(["t40002", "t40003"]));
    assert_eq!(value["tasks"][0]["because"][0], serde_json::json!({ "task": "t40003", "does": "waits" }));
    assert_eq!((&value["sure"], &value["tasks"][3]["state"]), (&true.into(), &"computes".into()));
}

#[test]
fn one_task_is_shown_with_those_for_which_it_waits() {
    let text = |of: &str| examine(&mut circle(), Some(of)).map(|found| found.text());
    let lines = |text: String| text.lines().filter(|line| line.starts_with('t')).count();
    assert_eq!(text("t40004").map(lines), Ok(3));
    assert_eq!(text("1").map(|text| text.contains("computes")), Ok(true), "the job");
    assert_eq!(text("40005"), Ok("1 task computes.\n".to_owned()));
    assert_eq!(text("7"), Err(Error::Unknown("7".into())));
    assert_eq!(text("t40007"), Err(Error::Unknown("t40007".into())));
}

#[test]
fn a_silent_host_is_named_and_the_rest_is_shown() {
    let mut machine = circle();
    machine.silent = true;
    machine.tasks = vec![task(2, None)];
    let found = examine(&mut machine, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found.text(), "1 task computes.\nbravo has not answered: its tasks are not shown.\n");
    assert!(!found.has_deadlock());
}

#[test]
fn without_tasks_there_is_nothing_to_explain() {
    let mut machine = Looks { tasks: Vec::new(), silent: false };
    assert_eq!(examine(&mut machine, None).map(|found| found.text()), Ok("No tasks.\n".to_owned()));
}
