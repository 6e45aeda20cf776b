//! Direct links between two tasks.
use super::fleet::{Fleet, MASTER, Received, with_three_tasks};
use super::world::{World, spawn_of};
use super::*;
use crate::codes::{NOTIFY_TASK_EXIT, TASK_HOST};
use crate::proto::Order;

fn many(story: impl Fn(&mut Fleet, [Tid; 3])) {
    with_three_tasks("direct links", story);
}

/// A request for a link to that task, as a program makes it that wants direct routes.
fn link_to(to: Tid) -> Request {
    Request::Direct { to, cause: LinkCause::Program }
}

/// A request for a link to that task for which no program has asked.
fn unasked_link_to(to: Tid) -> Request {
    Request::Direct { to, cause: LinkCause::Traffic }
}

#[test]
fn whoever_asks_the_lower_host_calls() {
    many(|fleet, [one, two, three]| {
        for (asker, other) in [(one, two), (three, one), (two, three), (three, two)] {
            assert_eq!(fleet.ask(asker, link_to(other)), Some(Reply::Done));
            assert_eq!(fleet.directs.pop(), Some((asker.min(other), asker.max(other))));
        }
    });
}

#[test]
fn of_two_who_ask_at_once_one_gets_the_link() {
    many(|fleet, [_, two, three]| {
        let waits = [(two, fleet.send(two, link_to(three))), (three, fleet.send(three, link_to(two)))];
        fleet.settle();
        assert_eq!(fleet.directs, [(two, three)]);
        assert_eq!(fleet.answer(two, waits[0].1), Some(Reply::Done));
        // The second request was refused, so there is no second link.
        assert_eq!(fleet.answer(three, waits[1].1), Some(Reply::Error(Code::Denied)));
    });
}

#[test]
fn a_task_that_refuses_links_gets_none_until_it_allows_them_again() {
    many(|fleet, [one, two, three]| {
        fleet.ask(two, Request::AllowDirect(false));
        for asker in [one, three] {
            assert_eq!(fleet.ask(asker, link_to(two)), Some(Reply::Error(Code::Denied)));
        }
        assert!(fleet.directs.is_empty());
        fleet.ask(two, Request::AllowDirect(true));
        assert_eq!(fleet.ask(one, link_to(two)), Some(Reply::Done));
        fleet.ask(two, Request::AllowDirect(false));
        fleet.leave(two);
    });
}

#[test]
fn a_link_to_a_task_that_has_not_come_yet_waits_for_it() {
    many(|fleet, [one, _, three]| {
        let mut spawn = spawn_of("prog", 2);
        (spawn.flags, spawn.place) = (TASK_HOST, ByteBuf::from(b"h2".to_vec()));
        let children = fleet.spawn(one, spawn);
        let children: Vec<Tid> = children.into_iter().map(|tid| Tid(tid as u32)).collect();
        let early = [fleet.send(one, link_to(children[0])), fleet.send(three, link_to(children[1]))];
        fleet.settle();
        assert_eq!([fleet.answer(one, early[0]), fleet.answer(three, early[1])], [None, None]);
        let cookies: Vec<u32> = fleet.nodes[&Fleet::host(2)].starts.iter().map(|start| start.cookie).collect();
        let comers = cookies.into_iter().map(|cookie| fleet.hello(Fleet::host(2), Some(cookie))).collect::<Vec<_>>();
        assert_eq!(comers, children);
        fleet.settle();
        assert_eq!(
            [fleet.answer(one, early[0]), fleet.answer(three, early[1])],
            [Some(Reply::Done), Some(Reply::Done)]
        );
        assert_eq!(fleet.directs.len(), 2);
    });
}

#[test]
fn a_link_to_a_program_that_never_enrolls_is_refused_after_a_while() {
    many(|fleet, [one, _, three]| {
        let mut spawn = spawn_of("prog", 1);
        (spawn.flags, spawn.place) = (TASK_HOST, ByteBuf::from(b"h2".to_vec()));
        let child = Tid(fleet.spawn(one, spawn)[0] as u32);
        let waits = [(one, fleet.send(one, link_to(child))), (three, fleet.send(three, link_to(child)))];
        fleet.settle();
        assert_eq!(waits.map(|(asker, wait)| fleet.answer(asker, wait)), [None, None]);
        fleet.pass(Duration::from_secs(11));
        let refused = Some(Reply::Error(Code::Denied));
        assert_eq!(waits.map(|(asker, wait)| fleet.answer(asker, wait)), [refused.clone(), refused]);
    });
}

#[test]
fn nobody_waits_for_a_link_to_one_that_is_gone() {
    many(|fleet, [one, two, three]| {
        let gone = fleet.task(Fleet::host(2));
        fleet.leave(gone);
        assert_eq!(fleet.ask(one, link_to(gone)), Some(Reply::Error(Code::Denied)));
        assert_eq!(fleet.ask(one, link_to(Tid(0x3fc_0001))), Some(Reply::Error(Code::NoTask)));
        assert_eq!(fleet.ask(one, link_to(MASTER)), Some(Reply::Error(Code::BadParam)));
        let wait = fleet.send(one, link_to(two));
        fleet.send(three, link_to(two));
        fleet.kill(Fleet::host(2));
        fleet.pass(Duration::from_secs(30));
        assert!(fleet.answer(one, wait).is_some());
        assert!(fleet.open.is_empty(), "{:?}", fleet.open);
    });
}

#[test]
fn who_watches_a_far_task_is_told_of_its_end_before_the_notify() {
    many(|fleet, [one, two, three]| {
        for (watcher, watched) in [(one, two), (three, two), (two, three)] {
            fleet.ask(
                watcher,
                Request::Notify { what: NOTIFY_TASK_EXIT, ctx: 0, tag: 9, count: 1, tids: vec![watched] },
            );
        }
        fleet.leave(three);
        fleet.settle();
        fleet.kill(Fleet::host(2));
        fleet.pass(Duration::from_secs(30));
        let last = &fleet.received[&one][fleet.received[&one].len() - 2..];
        assert!(matches!(last, [Received::Ended(tid), Received::Message(message)] if *tid == two && message.tag == 9));
        assert!(fleet.received[&two].contains(&Received::Ended(three)));
    });
}

#[test]
fn a_link_that_no_program_has_asked_for_is_made_only_between_tasks_that_are_alone_on_their_hosts() {
    many(|fleet, [one, two, three]| {
        assert_eq!(fleet.ask(one, unasked_link_to(two)), Some(Reply::Done));
        let second = fleet.task(Fleet::host(2));
        for (asker, other) in [(one, two), (two, one), (three, two), (two, three)] {
            assert_eq!(fleet.ask(asker, unasked_link_to(other)), Some(Reply::Company));
            assert_eq!(fleet.ask(asker, link_to(other)), Some(Reply::Done), "a program may ask");
        }
        assert_eq!(fleet.ask(one, unasked_link_to(three)), Some(Reply::Done), "other hosts");
        fleet.leave(second);
        assert_eq!(fleet.ask(three, unasked_link_to(two)), Some(Reply::Done));
    });
}

#[test]
fn a_task_that_is_being_started_is_company_and_a_tool_is_none() {
    many(|fleet, [one, two, _]| {
        fleet.hello_as(Fleet::host(2), None, TaskKind::Tool);
        assert_eq!(fleet.ask(one, unasked_link_to(two)), Some(Reply::Done));
        let mut spawn = spawn_of("prog", 1);
        (spawn.flags, spawn.place) = (TASK_HOST, ByteBuf::from(b"h2".to_vec()));
        fleet.spawn(one, spawn);
        assert_eq!(fleet.ask(one, unasked_link_to(two)), Some(Reply::Company));
    });
}

#[test]
fn links_are_made_for_any_task_if_only_the_order_of_pairs_is_kept() {
    let mut fleet = Fleet::new(2, 1);
    for host in [MASTER, Fleet::host(2)] {
        fleet.machine(host).core.settings.order = Order::Pairs;
    }
    let [one, _, two] = [MASTER, MASTER, Fleet::host(2)].map(|host| fleet.task(host));
    assert_eq!(fleet.ask(one, unasked_link_to(two)), Some(Reply::Done));
}

#[test]
fn tasks_know_that_they_have_company_before_the_other_one_is_welcome() {
    let mut world = World::new();
    let company = |world: &mut World| {
        let seen = world.take_seen();
        let at = |wanted: fn(&Action) -> bool| seen.iter().position(wanted);
        let told = seen.iter().find_map(|action| match action {
            Action::Company(company) => Some(*company),
            _ => None,
        });
        let is_first = at(|action| matches!(action, Action::Company(_)))
            < at(|action| matches!(action, Action::Welcome { .. })).or(Some(usize::MAX));
        (told, is_first)
    };
    world.hello(99, None);
    assert_eq!(company(&mut world).0, None);
    let second = world.hello(99, None).tid;
    assert_eq!(company(&mut world), (Some(Company::Several), true));
    world.machine.handle_disconnect(second);
    world.run();
    assert_eq!(company(&mut world).0, Some(Company::Alone));
}
