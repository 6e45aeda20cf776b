//! Tests of traces on one `Machine`; each test makes all inputs itself.
use super::world::{World, spawn_of};
use super::*;
use crate::encoding::Writer;
use crate::events::{Datum, Event};
use crate::proto::{Message, Role, ToTask, TraceSettings};

fn wish(tracer: Tid) -> TraceSettings {
    TraceSettings {
        trace_tid: tracer.0 as i32,
        trace_ctx: 1,
        trace_tag: 2,
        output_tid: tracer.0 as i32,
        output_tag: 3,
        trace_options: 1,
        mask: ByteBuf::from(vec![b'O'; 35]),
        ..Default::default()
    }
}

/// Returns for each trace event that was sent: the collector, the event, the traced task, whether the list of all kinds
/// of data was sent with it (`introduce`), and whether the description of the event was (`describe`).
fn told(world: &mut World) -> Vec<(Tid, Event, Tid, bool, bool)> {
    let actions = world.take_seen();
    let traces = actions.into_iter().filter_map(|action| match action {
        Action::Trace { to, record, describe, introduce, .. } => {
            Some((to, record.event, record.tid, introduce, describe))
        }
        _ => None,
    });
    traces.collect()
}

fn registered(world: &mut World) -> Tid {
    let tracer = world.task();
    assert_eq!(world.ask(tracer, Request::SetTracer(wish(tracer))), Some(Reply::Error(Code::Denied)));
    assert_eq!(world.ask(tracer, Request::Register { role: Role::Tracer, on: true }), Some(Reply::Int(0)));
    assert_eq!(world.ask(tracer, Request::SetTracer(wish(tracer))), Some(Reply::Done));
    tracer
}

#[test]
fn a_tracer_gets_all_later_tasks_and_nobody_before_or_after() {
    let mut world = World::new();
    let early = world.task();
    let tracer = registered(&mut world);
    assert_eq!(world.machine.core.tasks.get(early).unwrap().trace_settings.trace_tid, 0);
    let welcome = world.hello(99, None);
    assert_eq!(welcome.own, wish(tracer));
    assert_eq!(told(&mut world), [(tracer, Event::Newtask, welcome.tid, true, true)]);
    world.disconnects(welcome.tid);
    assert_eq!(told(&mut world), [(tracer, Event::Endtask, welcome.tid, false, true)]);
    world.ask(early, Request::Spawn(spawn_of("prog", 1)));
    let start = world.starts.last().unwrap().clone();
    assert_eq!(told(&mut world), [(tracer, Event::Newtask, start.tid, false, false)]);
    assert_eq!(world.hello(501, Some(start.cookie)).own.trace_tid, tracer.0 as i32);
    world.disconnects(tracer);
    assert_eq!(world.hello(99, None).own.trace_tid, 0);
    assert_eq!(told(&mut world), []);
}

#[test]
fn a_spawner_that_traces_its_children_hears_of_start_and_end() {
    let mut world = World::new();
    let parent = world.task();
    let children = wish(parent);
    world.ask(parent, Request::Spawn(crate::proto::Spawn { children, flags: 8, ..spawn_of("prog", 1) }));
    let start = world.starts.last().unwrap().clone();
    let expected = [(parent, Event::Newtask, start.tid, true, true), (parent, Event::Spntask, start.tid, false, true)];
    assert_eq!(told(&mut world), expected);
    world.hello(501, Some(start.cookie));
    told(&mut world);
    world.ends(start.tid, 0x300);
    let status = world.take_seen().into_iter().find_map(|action| match action {
        Action::Trace { record, .. } => record.int(Datum::TST),
        _ => None,
    });
    assert_eq!(status, Some(0x300));
}

#[test]
fn a_collector_hears_of_the_end_of_a_task_before_its_output_ends() {
    let mut world = World::new();
    let collector = registered(&mut world);
    let tid = world.hello(99, None).tid;
    world.take_seen();
    world.machine.handle_disconnect(tid);
    let mut tags = Vec::new();
    while let Some(action) = world.machine.poll_action() {
        match action {
            Action::Trace { to, ctx, tag, .. } => {
                let made = [1, 2].map(|body| Message::new(Tid::DAEMON, to, ctx, tag, vec![body]));
                world.machine.handle_messages_made(made);
            }
            Action::Send { to, frame: ToTask::Message(message) } if to == collector => {
                tags.push((message.tag, message.body.to_vec()));
            }
            _ => {}
        }
    }
    let end_of_output = Writer::new().int(tid.0 as i32).int(0).finish();
    assert_eq!(tags, [(2, vec![1]), (2, vec![2]), (3, end_of_output)]);
}

#[test]
fn who_unregisters_gets_no_more_tasks() {
    let mut world = World::new();
    let tracer = registered(&mut world);
    assert_eq!(world.ask(tracer, Request::Register { role: Role::Tracer, on: false }), Some(Reply::Int(0)));
    assert_eq!(world.hello(99, None).own.trace_tid, 0);
}
