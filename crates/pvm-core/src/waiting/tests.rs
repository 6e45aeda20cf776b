//! Looks at small machines, and what is said of them.
use super::Look;
use super::look::{State, are_settled};
use super::report::{Obstacle, Outlook, Peer, Report, report};
use crate::host_look::{Activity, HostLook, LinkLook, Presence, ProcessLook, TaskLook, Traffic};
use crate::proto::{ByteBuf, GroupPlace, TaskInfo, TaskKind};
use crate::state_line::{Call, Label, OwnLink, StateLine, Wait, Wanted};
use crate::tid::Tid;
use std::collections::BTreeMap;

const ONE: Tid = Tid(0x40001);
const TWO: Tid = Tid(0x40002);
const THREE: Tid = Tid(0x40003);
const FAR: Tid = Tid(0x80001);

fn task(tid: Tid, parent: Tid, call: Option<Call>) -> TaskLook {
    let wait = call.map(|call| Wait { call, is_timed: false, since_ns: 1_000 });
    TaskLook {
        info: TaskInfo {
            tid,
            parent: parent.0 as i32,
            host: tid.host(),
            flags: 0,
            name: ByteBuf::from(b"p".to_vec()),
            pid: 7,
            output: (0, 0, 0),
        },
        kind: TaskKind::Program,
        presence: Presence::Enrolled,
        line: Some(StateLine { wait, epoch: (5, 5), ..StateLine::default() }),
        is_asleep: wait.is_some(),
        traffic: Traffic::default(),
        process: Some(ProcessLook {
            activity: Activity::Sleeps,
            threads: 1,
            ticks: 100,
            memory_bytes: 0,
            catches_timers: false,
        }),
    }
}

fn from(tid: Tid, tag: i32) -> Option<Call> {
    Some(Call::Receive(Wanted { from: Some(tid), tag: Some(tag), context: Some(0) }))
}

fn from_any() -> Option<Call> {
    Some(Call::Receive(Wanted { from: None, tag: Some(1), context: Some(0) }))
}

fn look(tasks: Vec<TaskLook>) -> Look {
    let mut hosts: BTreeMap<Tid, HostLook> = BTreeMap::new();
    for task in tasks {
        let host = hosts.entry(task.info.tid.host()).or_default();
        host.now_ns = 5_000_001_000;
        host.tasks.push(task);
    }
    Look { hosts, ..Look::default() }
}

fn twice(look: &Look) -> Report {
    report(&[look.clone(), look.clone()])
}

fn outlook(report: &Report, tid: Tid) -> Outlook {
    report.tasks.iter().find(|task| task.info.tid == tid).unwrap().outlook
}

const PART: Outlook = Outlook::Stuck { cause: 0, is_part: true };

#[test]
fn two_that_receive_from_each_other_are_in_a_deadlock_once_two_looks_agree() {
    let mut machine = look(vec![task(ONE, Tid(0), from(TWO, 8)), task(TWO, ONE, from(ONE, 8)), task(THREE, ONE, None)]);
    machine.hosts.get_mut(&ONE.host()).unwrap().tasks[0].line.as_mut().unwrap().add_unread(TWO, 7, 0);
    let found = twice(&machine);
    assert_eq!(found.causes, [vec![ONE, TWO]]);
    assert_eq!((outlook(&found, ONE), outlook(&found, THREE)), (PART, Outlook::Open));
    assert_eq!(found.tasks[0].waited_ns, 5_000_000_000);
    let [Obstacle::Peer(TWO, Peer::Is(State::Waits(_))), Obstacle::OtherMessages(unread)] =
        &found.tasks[0].obstacles[..]
    else {
        panic!("{:?}", found.tasks[0])
    };
    assert_eq!((unread[0].tag, unread[0].count), (7, 1));
    assert_eq!(report(&[machine.clone()]).causes, Vec::<Vec<Tid>>::new(), "one look proves nothing");
}

#[test]
fn nobody_is_accused_who_got_something_or_may_act() {
    let machine = look(vec![task(ONE, Tid(0), from(TWO, 8)), task(TWO, ONE, from(ONE, 8))]);
    let change = |change: &dyn Fn(&mut TaskLook)| {
        let mut other = machine.clone();
        change(&mut other.hosts.get_mut(&ONE.host()).unwrap().tasks[1]);
        other
    };
    let line = |task: &mut TaskLook| task.line.as_mut().unwrap().clone();
    let set = |task: &mut TaskLook, line: StateLine| task.line = Some(line);
    let harmless: [&dyn Fn(&mut TaskLook); 9] = [
        &|task| task.process.as_mut().unwrap().catches_timers = true,
        &|task| task.is_asleep = false,
        &|task| task.process = None,
        &|task| task.process.as_mut().unwrap().threads = 2,
        &|task| task.process.as_mut().unwrap().activity = Activity::Runs,
        &|task| task.process.as_mut().unwrap().activity = Activity::Stopped,
        &|task| task.presence = Presence::Started,
        &|task| task.line = None,
        &|task| {
            let mut line = line(task);
            line.wait.as_mut().unwrap().is_timed = true;
            set(task, line);
        },
    ];
    for (number, harm) in harmless.into_iter().enumerate() {
        assert_eq!(twice(&change(harm)).causes, Vec::<Vec<Tid>>::new(), "{number}");
    }
    let later: [&dyn Fn(&mut TaskLook); 3] =
        [&|task| task.line.as_mut().unwrap().epoch.0 += 1, &|task| task.line.as_mut().unwrap().epoch.1 += 1, &|task| {
            task.process.as_mut().unwrap().ticks += 2
        }];
    for (number, harm) in later.into_iter().enumerate() {
        assert_eq!(report(&[machine.clone(), change(harm)]).causes, Vec::<Vec<Tid>>::new(), "{number}");
    }
    let mut carried = machine.clone();
    carried.hosts.get_mut(&ONE.host()).unwrap().under_way = vec![TWO];
    assert_eq!(report(&[carried, machine.clone()]).causes, Vec::<Vec<Tid>>::new());
    assert_eq!(twice(&machine).causes.len(), 1);
}

#[test]
fn who_has_left_a_wait_by_a_jump_computes() {
    let mut machine = look(vec![task(ONE, Tid(0), from(TWO, 8)), task(TWO, ONE, from(ONE, 8))]);
    machine.hosts.get_mut(&ONE.host()).unwrap().tasks[1].is_asleep = false;
    let found = twice(&machine);
    assert_eq!((found.tasks[1].state, found.causes.len(), found.is_unsure), (State::Computes, 0, false));
}

#[test]
fn what_was_sent_on_a_direct_link_must_have_been_received() {
    let linked = |received| {
        let mut machine = look(vec![task(ONE, Tid(0), from(FAR, 1)), task(FAR, ONE, from(ONE, 1))]);
        let mut add = |at: Tid, link| {
            let task = &mut machine.hosts.get_mut(&at.host()).unwrap().tasks[0];
            task.line.as_mut().unwrap().links.push(link);
        };
        add(ONE, OwnLink { peer: FAR, sent: 7, received: 3 });
        add(FAR, OwnLink { peer: ONE, sent: 3, received });
        machine
    };
    assert_eq!(twice(&linked(7)).causes.len(), 1);
    let late = twice(&linked(6));
    assert!(late.causes.is_empty() && late.is_unsure);
}

#[test]
fn who_waits_for_a_task_that_has_ended_is_stuck() {
    let found = twice(&look(vec![task(ONE, Tid(0), from(THREE, 1)), task(TWO, ONE, from(ONE, 1))]));
    assert_eq!(found.causes, [vec![ONE]]);
    assert_eq!(found.tasks[0].obstacles, [Obstacle::Peer(THREE, Peer::Gone)]);
    assert_eq!(outlook(&found, TWO), Outlook::Stuck { cause: 0, is_part: false });
}

#[test]
fn of_a_silent_host_nothing_is_assumed() {
    let mut machine = look(vec![task(ONE, Tid(0), from(FAR, 1)), task(TWO, ONE, from_any())]);
    machine.silent.insert(FAR.host());
    let found = twice(&machine);
    assert_eq!((found.causes.len(), found.silent.as_slice()), (0, &[FAR.host()][..]));
    assert_eq!(found.tasks[0].obstacles, [Obstacle::Peer(FAR, Peer::Hidden)]);
}

#[test]
fn a_server_without_clients_is_idle_and_a_job_in_which_all_wait_is_stuck() {
    let found = twice(&look(vec![task(ONE, Tid(0), from_any())]));
    assert_eq!((found.causes.len(), outlook(&found, ONE)), (0, Outlook::Idle));
    let found = twice(&look(vec![task(ONE, Tid(0), from_any()), task(TWO, Tid(0), from_any())]));
    assert_eq!((found.causes.len(), outlook(&found, TWO)), (0, Outlook::Idle), "two servers");
    let found = twice(&look(vec![task(ONE, Tid(0), from_any()), task(TWO, ONE, from_any())]));
    assert_eq!(found.causes, [vec![ONE, TWO]], "parent and child");
    let mut alone = look(vec![task(ONE, Tid(0), from_any())]);
    let line = alone.hosts.get_mut(&ONE.host()).unwrap().tasks[0].line.as_mut().unwrap();
    line.unread = 1;
    line.add_unread(THREE, 9, 0);
    assert_eq!(twice(&alone).causes, [vec![ONE]], "it has messages that it does not want");
}

#[test]
fn a_barrier_names_who_is_missing_and_what_the_group_lacks() {
    let label = Label::new(b"g");
    let barrier = |count| Some(Call::Barrier { group: label, count });
    let group = |members: &[Tid], is_frozen| GroupPlace {
        name: ByteBuf::from(b"g".to_vec()),
        members: members.to_vec(),
        is_frozen,
        hosts: 1,
        at: ONE.host(),
    };
    let mut machine =
        look(vec![task(ONE, Tid(0), barrier(3)), task(TWO, ONE, barrier(3)), task(THREE, ONE, from(ONE, 1))]);
    machine.groups = vec![group(&[ONE, TWO, THREE], false)];
    let found = twice(&machine);
    assert_eq!(found.causes.len(), 1);
    let [Obstacle::Members { count: 3, size: 3, missing, .. }] = &found.tasks[0].obstacles[..] else {
        panic!("{:?}", found.tasks[0])
    };
    assert_eq!(missing.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [THREE]);
    // The third one computes: it may come.
    machine.hosts.get_mut(&ONE.host()).unwrap().tasks[2] = task(THREE, ONE, None);
    assert_eq!(twice(&machine).causes.len(), 0);
    // It does not belong to the group, which is frozen.
    machine.groups = vec![group(&[ONE, TWO], true)];
    let found = twice(&machine);
    assert_eq!(found.causes, [vec![ONE], vec![TWO]]);
    machine.groups = vec![group(&[ONE, TWO], false)];
    assert_eq!(twice(&machine).causes.len(), 0, "it may join");
}

#[test]
fn between_hosts_what_was_sent_must_have_arrived() {
    let far = |sent, received| {
        let mut machine = look(vec![task(ONE, Tid(0), from(FAR, 1)), task(FAR, ONE, from(ONE, 1))]);
        let mut add = |at: Tid, link| machine.hosts.get_mut(&at.host()).unwrap().links.push(link);
        add(ONE, LinkLook { host: FAR.host(), sent, received: 0 });
        add(FAR, LinkLook { host: ONE.host(), sent: 0, received });
        machine
    };
    let late = [far(9, 5), far(12, 8)];
    assert!(!are_settled(&late[..1]) && !are_settled(&late));
    assert!(report(&late).is_unsure && report(&late).causes.is_empty());
    let arrived = [far(9, 5), far(12, 9)];
    assert!(are_settled(&arrived));
    assert_eq!(report(&arrived).causes, [vec![ONE, FAR]]);
    let mut without_link = arrived.clone();
    without_link[1].hosts.get_mut(&FAR.host()).unwrap().links.clear();
    assert!(!are_settled(&without_link));
}
