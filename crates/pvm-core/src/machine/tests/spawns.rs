//! Tids, places and settings of spawned tasks.
use super::world::{NOW, ONE, THREE, TWO, World, spawn_of, text};
use super::*;
use crate::codes::{NO_SPAWN_PARENT, TASK_ARCH, TASK_HOST};
use crate::proto::{Spawn, TaskEnd, VERSION};

#[test]
fn tids_follow_one_another_and_are_not_used_again_soon() {
    let mut world = World::new();
    assert_eq!((world.task(), world.task()), (ONE, TWO));
    world.disconnects(ONE);
    assert_eq!(world.task(), THREE);
}

#[test]
fn numbers_go_round_past_slots_in_use() {
    let mut world = World::new();
    world.task();
    let mut last = ONE;
    for _ in 0..(1 << 18) {
        last = world.task();
        world.disconnects(last);
        assert_ne!(last.slot(), 1);
        assert_ne!(last.slot(), 0);
    }
    assert!(last.local() < 1 << 17, "{last}");
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let mut world = World::new();
    let hello = Hello { version: VERSION + 1, pid: 1, cookie: None, name: ByteBuf::new(), kind: TaskKind::Program };
    world.machine.handle_hello(7, 1, &hello);
    world.run();
    assert_eq!(world.seen, [Action::Refuse { connection: 7, code: Code::BadVersion }]);
}

#[test]
fn a_spawned_task_claims_its_place_by_its_cookie_once() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.spawn(ONE, spawn_of("prog", 1)), [TWO.0 as i32]);
    let cookie = world.starts[0].cookie;
    let welcome = world.hello(501, Some(cookie));
    assert_eq!((welcome.tid, welcome.parent), (TWO, ONE.0 as i32));
    let welcome = world.hello(502, Some(cookie));
    assert_eq!((welcome.tid, welcome.parent), (THREE, 0));
}

#[test]
fn a_spawn_gives_good_tids_first_and_then_codes() {
    let mut world = World::new();
    world.task();
    world.machine.core.settings.tasks_max = 3;
    let out = Code::OutOfRes.number();
    assert_eq!(world.spawn(ONE, spawn_of("prog", 4)), [TWO.0 as i32, THREE.0 as i32, out, out]);
    assert_eq!(world.spawn(ONE, spawn_of("missing", 2)), [Code::NoFile.number(); 2]);
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("prog", 0))), Some(Reply::Error(Code::BadParam)));
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("prog", i32::MAX))), Some(Reply::Error(Code::OutOfRes)));
}

#[test]
fn a_process_that_cannot_be_started_leaves_nothing_behind() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.spawn(ONE, spawn_of("broken", 3)), [Code::OutOfRes.number(); 3]);
    assert!(world.seen.contains(&Action::Forget { tid: TWO }));
    assert_eq!(world.machine.core.tasks.count(), 1);
    // Each of the three had a tid.
    assert_eq!(world.spawn(ONE, spawn_of("prog", 1)), [ONE.0 as i32 + 4]);
}

#[test]
fn a_spawn_whose_file_system_does_not_answer_fails_after_a_while() {
    let mut world = World::new();
    world.task();
    for (name, seconds) in [("hangs", 100), ("sticks", 200)] {
        world.machine.handle_time(Duration::from_secs(seconds));
        assert_eq!(world.ask(ONE, Request::Spawn(spawn_of(name, 3))), None);
        world.machine.handle_time(Duration::from_secs(seconds + 29));
        world.run();
        assert_eq!(world.replies(ONE), []);
        world.machine.handle_time(Duration::from_secs(seconds + 31));
        world.run();
        assert_eq!(world.replies(ONE), [Reply::Tids(vec![Code::DSysErr.number(); 3])]);
        assert_eq!(world.machine.core.tasks.count(), 1);
        let lines = world.logged(Tid::DAEMON);
        assert!(lines.iter().any(|line| line.contains("a file system does not answer")), "{lines:?}");
    }
    // What comes later is of no use.
    let now = Duration::from_secs(300);
    world.machine.handle_found(now, SpawnId { host: ONE.host(), number: 1 }, Err(Code::NoFile));
    (1..7).for_each(|number| world.machine.handle_started(now, Tid(ONE.0 + number), Ok(900)));
    world.run();
    assert_eq!(world.machine.core.tasks.count(), 1);
}

#[test]
fn the_tids_of_a_spawn_are_in_order_whichever_process_starts_first() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("sticks", 2))), None);
    world.machine.handle_started(NOW, THREE, Ok(901));
    world.machine.handle_started(NOW, TWO, Ok(900));
    world.run();
    assert_eq!(world.replies(ONE), [Reply::Tids(vec![TWO.0 as i32, THREE.0 as i32])]);
}

#[test]
fn signals_to_a_process_that_is_being_started_wait_for_its_start() {
    let mut world = World::new();
    world.task();
    assert_eq!(world.ask(ONE, Request::Spawn(spawn_of("sticks", 2))), None);
    for signal in [15, 9, 15, 0, 65] {
        assert_eq!(world.ask(ONE, Request::Signal { tid: TWO, signal }), Some(Reply::Done));
    }
    let signals = |world: &mut World| -> Vec<Action> {
        world.run();
        world.take_seen().into_iter().filter(|action| matches!(action, Action::Signal { .. })).collect()
    };
    assert_eq!(signals(&mut world), []);
    world.machine.handle_started(NOW, TWO, Ok(900));
    let signal = |tid, process, signal| Action::Signal { tid, process, signal };
    assert_eq!(signals(&mut world), [9, 15].map(|number| signal(TWO, 900, number)));
    // A halt waits for what is being started, and then ends it, too.
    world.machine.halt(NOW);
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.run();
    assert!(!world.take_seen().contains(&Action::Stop));
    world.machine.handle_started(NOW, THREE, Ok(901));
    assert_eq!(signals(&mut world), [signal(THREE, 901, 15)]);
    world.machine.handle_process_end(THREE, TaskEnd::default());
    world.run();
    assert!(world.take_seen().contains(&Action::Stop));
}

#[test]
fn the_place_of_a_spawn_chooses_the_host() {
    let mut world = World::new();
    world.task();
    let no_host = Code::NoHost.number();
    let complement = crate::codes::HOST_COMPL;
    let cases = [
        (TASK_HOST, "alfa", true),
        (TASK_HOST, ".", true),
        (TASK_HOST, "", false),
        (TASK_HOST, ":/tmp", true),
        (TASK_HOST, "beta", false),
        (TASK_HOST | complement, "beta", true),
        (TASK_HOST | complement, "alfa", false),
        (TASK_HOST, "beta,alfa", true),
        (TASK_HOST, "beta,gamma:/tmp", false),
        (TASK_ARCH, "LINUX64", true),
        (TASK_ARCH, "LINUX", false),
        (complement, "", false),
        (0, "nonsense", true),
    ];
    for (flags, place, works) in cases {
        let spawn = Spawn { flags, place: text(place), ..spawn_of("prog", 1) };
        assert_eq!(world.spawn(ONE, spawn)[0] != no_host, works, "{flags} {place}");
    }
}

#[test]
fn children_get_their_settings_and_directory() {
    let mut world = World::new();
    world.task();
    let environment = vec![text("PVM_EXPORT=X"), text("X=1"), text("PVMTRCOPT=3")];
    let spawn = Spawn {
        flags: NO_SPAWN_PARENT | TASK_HOST,
        place: text(".:/tmp"),
        arguments: vec![text("a b")],
        environment,
        ..spawn_of("/bin/prog", 1)
    };
    world.spawn(ONE, spawn);
    let start = world.starts[0].clone();
    assert_eq!(start.arguments, [text("/bin/prog"), text("a b")]);
    assert_eq!(start.directory, Some(text("/tmp")));
    let variables: Vec<_> = start.environment.iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect();
    let mask = format!("PVMTMASK={}", "@".repeat(35));
    let expected = [
        "PVM_EXPORT=X",
        "X=1",
        "PVMTRCOPT=3",
        &mask,
        "PVMTRCBUF=0",
        "PVMSPAWNWD=/tmp",
        "HPVM_TASK_INDEX=0",
        "HPVM_TASK_COUNT=1",
        "HPVM_LOCAL_INDEX=0",
        "HPVM_LOCAL_COUNT=1",
    ];
    assert_eq!(variables, expected);
    assert_eq!(world.hello(501, Some(start.cookie)).parent, Code::ParentNotSet.number());
}

#[test]
fn siblings_are_those_of_the_same_spawn() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 2));
    for start in world.starts.clone() {
        world.hello(1, Some(start.cookie));
    }
    let both = Some(Reply::Tids(vec![TWO.0 as i32, THREE.0 as i32]));
    assert_eq!(world.ask(TWO, Request::Siblings), both);
    world.ends(THREE, 0);
    assert_eq!(world.ask(TWO, Request::Siblings), both);
    assert_eq!(world.ask(ONE, Request::Siblings), Some(Reply::Tids(vec![ONE.0 as i32])));
    world.machine.handle_process_end(TWO, TaskEnd::default());
    world.disconnects(TWO);
    assert_eq!(world.machine.parts.spawns.pending(), 0);
}
