//! Looks at the tasks of this host ([`crate::host_look`]): which tasks are looked at, and what the answer says of each.
use super::action::{Action, Sight};
use super::core::Core;
use super::task_table::{State, Task};
use super::tasks;
use crate::codes::Code;
use crate::host_look::{HostLook, Presence, TaskLook, Traffic};
use crate::proto::Reply;
use crate::state_line::StateLine;
use crate::tid::Tid;
use std::collections::BTreeMap;

/// Lets the daemon look at all tasks of this host.
pub(super) fn begin(core: &mut Core, from: Tid, wait: u32, place: Tid) {
    if place != core.own_host() {
        return core.reply(from, wait, Err(Code::NoHost));
    }
    let tasks = core.tasks.iter().map(|(tid, task)| (tid, task.process)).collect();
    core.push(Action::Look { to: from, wait, tasks });
}

/// Answers with what the daemon has seen.
pub(super) fn seen(core: &mut Core, to: Tid, wait: u32, mut host: HostLook, sights: &BTreeMap<Tid, Sight>) {
    host.tasks = core.tasks.iter().map(|(tid, task)| look(core, tid, task, sights.get(&tid))).collect();
    core.reply(to, wait, Ok(Reply::Look(host)));
}

fn look(core: &Core, tid: Tid, task: &Task, sight: Option<&Sight>) -> TaskLook {
    let line = sight.and_then(|sight| StateLine::decode(&sight.words));
    // A frame that the task has not seen will wake it.
    let has_seen_frames = |line: &StateLine, sight: &Sight| !sight.has_backlog && line.frames == sight.frames;
    let sleeps =
        |(line, sight): (&StateLine, &Sight)| sight.is_asleep && !sight.is_rung && has_seen_frames(line, sight);
    TaskLook {
        info: tasks::info(core, tid, task),
        kind: task.kind,
        presence: match task.state {
            State::Expected => Presence::Started,
            State::Connected => Presence::Enrolled,
            State::Left => Presence::Left,
        },
        is_asleep: line.as_ref().zip(sight).is_some_and(sleeps),
        line,
        traffic: sight.map_or_else(Traffic::default, |sight| sight.traffic),
        process: sight.and_then(|sight| sight.process),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::world::World;
    use crate::proto::Request;
    use crate::state_line::{Call, WORDS, Wait};

    const ONE: Tid = Tid(0x40001);
    const TWO: Tid = Tid(0x40002);

    fn sight(line: &StateLine) -> Sight {
        let mut words = [0; WORDS];
        line.encode(&mut words);
        Sight { words: words.to_vec(), is_asleep: true, frames: line.frames, ..Sight::default() }
    }

    fn answer(world: &mut World, sights: &BTreeMap<Tid, Sight>) -> HostLook {
        world.forget_seen();
        world.ask(ONE, Request::Look(ONE.host()));
        let [Action::Look { to: ONE, wait, tasks }] = &world.seen[..] else { panic!("{:?}", world.seen) };
        assert_eq!(tasks.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [ONE, TWO]);
        world.machine.handle_seen(ONE, *wait, HostLook::default(), sights);
        world.run();
        match world.replies(ONE).as_slice() {
            [Reply::Look(look)] => look.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_look_shows_who_sleeps_and_believes_no_rubbish() {
        let mut world = World::new();
        world.tasks(2);
        let wait = Wait { call: Call::Spawn, is_timed: false, since_ns: 5 };
        let line = StateLine { wait: Some(wait), frames: 3, ..StateLine::default() };
        let rubbish = Sight { words: vec![u64::MAX; 99], is_asleep: true, ..Sight::default() };
        let look = answer(&mut world, &BTreeMap::from([(ONE, sight(&line)), (TWO, rubbish)]));
        assert_eq!((look.tasks[0].line.as_ref(), look.tasks[0].is_asleep), (Some(&line), true));
        assert_eq!((look.tasks[1].line.as_ref(), look.tasks[1].is_asleep), (None, false));
        for awake in [
            Sight { is_rung: true, ..sight(&line) },
            Sight { frames: 4, ..sight(&line) },
            Sight { has_backlog: true, ..sight(&line) },
            Sight { is_asleep: false, ..sight(&line) },
        ] {
            assert!(!answer(&mut world, &BTreeMap::from([(ONE, awake)])).tasks[0].is_asleep);
        }
    }
}
