//! What tasks print.
use super::world::{ONE, TWO, World, ints, spawn_of};
use super::*;
use crate::proto::{Spawn, TaskEnd, TraceSettings};

#[test]
fn output_goes_to_the_collector_from_start_to_end() {
    let mut world = World::new();
    world.task();
    let children = TraceSettings { output_tid: ONE.0 as i32, output_ctx: 4, output_tag: 9, ..Default::default() };
    world.spawn(ONE, Spawn { children, ..spawn_of("prog", 1) });
    let start: Vec<_> = world.messages(ONE).iter().map(|one| (one.ctx, one.tag, ints(&one.body))).collect();
    let two = TWO.0 as i32;
    assert_eq!(start, [(4, 9, vec![two, -2, ONE.0 as i32]), (4, 9, vec![two, -1, ONE.0 as i32])]);
    world.seen.clear();
    world.machine.handle_output(TWO, &[b'x'; output::CHUNK_BYTES_MAX + 2]);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    let heads: Vec<_> = world.messages(ONE).iter().map(|one| ints(&one.body)[1]).collect();
    assert_eq!(heads, [output::CHUNK_BYTES_MAX as i32, 2, 0]);
}

#[test]
fn output_that_a_task_closes_ends_once() {
    let mut world = World::new();
    world.task();
    let children = TraceSettings { output_tid: ONE.0 as i32, output_tag: 9, ..Default::default() };
    world.spawn(ONE, Spawn { children: children.clone(), ..spawn_of("prog", 2) });
    world.hello(2, Some(world.starts[0].cookie));
    world.forget_seen();
    let heads = |world: &mut World| {
        world.run();
        let heads: Vec<_> = world.messages(ONE).iter().map(|one| (one.tag, ints(&one.body)[1])).collect();
        world.forget_seen();
        heads
    };
    world.machine.handle_output(TWO, b"x");
    world.machine.handle_output_closed(TWO);
    world.machine.handle_output_closed(TWO);
    assert_eq!(heads(&mut world), [(9, 1), (9, 0)]);
    // Another collector gets an end of its own.
    world.ask(TWO, Request::SetOwn(TraceSettings { output_tag: 8, ..children }));
    assert_eq!(heads(&mut world), [(8, -2), (8, -1)]);
    world.machine.handle_disconnect(TWO);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    assert_eq!(heads(&mut world), [(8, 0)]);
    let three = Tid(TWO.0 + 1);
    world.machine.handle_output_closed(three);
    world.machine.handle_process_end(three, TaskEnd::default());
    assert_eq!(heads(&mut world), [(9, 0)]);
}

#[test]
fn what_comes_on_the_standard_error_has_its_own_tag_where_that_is_wanted() {
    let mut world = World::new();
    world.task();
    let tag_of_errors = |world: &mut World, errors_tag| {
        let run = RunSettings { errors_tag, ..RunSettings::default() };
        let children = TraceSettings { output_tid: ONE.0 as i32, output_tag: 7, run, ..TraceSettings::default() };
        let tid = Tid(world.spawn(ONE, Spawn { children, ..spawn_of("prog", 1) })[0] as u32);
        world.forget_seen();
        world.machine.handle_errors(tid, b"oops");
        world.run();
        world.messages(ONE)[0].tag
    };
    assert_eq!(tag_of_errors(&mut world, 0), 7);
    assert_eq!(tag_of_errors(&mut world, 9), 9);
}

#[test]
fn output_without_collector_is_logged_by_the_line() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    world.seen.clear();
    for piece in ["one\ntw", "o\n", "three"] {
        world.machine.handle_output(TWO, piece.as_bytes());
    }
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    let lines = world.seen.iter().filter_map(|action| match action {
        Action::Log { tid: TWO, line } => Some(String::from_utf8_lossy(line).into_owned()),
        _ => None,
    });
    assert_eq!(lines.collect::<Vec<_>>(), ["one", "two", "three"]);
}

#[test]
fn changed_own_output_ends_for_the_old_collector_and_starts_for_the_new() {
    let mut world = World::new();
    world.tasks(2);
    let to = |tid: Tid| TraceSettings { output_tid: tid.0 as i32, output_tag: 1, ..Default::default() };
    world.ask(ONE, Request::SetOwn(to(TWO)));
    assert_eq!(world.messages(TWO).iter().map(|one| ints(&one.body)[1]).collect::<Vec<_>>(), [-2, -1]);
    world.ask(ONE, Request::SetOwn(TraceSettings::default()));
    assert_eq!(ints(&world.messages(TWO)[0].body), [ONE.0 as i32, 0]);
}
