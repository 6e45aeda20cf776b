//! Direct links between two tasks.
use super::fleet::{Fleet, MASTER, Received, with_three_tasks};
use super::world::spawn_of;
use super::*;
use crate::codes::{NOTIFY_TASK_EXIT, TASK_HOST};

fn many(story: impl Fn(&mut Fleet, [Tid; 3])) {
    with_three_tasks("direct links", story);
}

#[test]
fn whoever_asks_the_lower_host_calls() {
    many(|fleet, [one, two, three]| {
        for (asker, other) in [(one, two), (three, one), (two, three), (three, two)] {
            assert_eq!(fleet.ask(asker, Request::Direct(other)), Some(Reply::Done));
            assert_eq!(fleet.directs.pop(), Some((asker.min(other), asker.max(other))));
        }
    });
}

#[test]
fn of_two_who_ask_at_once_one_gets_the_link() {
    many(|fleet, [_, two, three]| {
        let waits = [(two, fleet.send(two, Request::Direct(three))), (three, fleet.send(three, Request::Direct(two)))];
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
            assert_eq!(fleet.ask(asker, Request::Direct(two)), Some(Reply::Error(Code::Denied)));
        }
        assert!(fleet.directs.is_empty());
        fleet.ask(two, Request::AllowDirect(true));
        assert_eq!(fleet.ask(one, Request::Direct(two)), Some(Reply::Done));
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
        let early = [fleet.send(one, Request::Direct(children[0])), fleet.send(three, Request::Direct(children[1]))];
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
fn nobody_waits_for_a_link_to_one_that_is_gone() {
    many(|fleet, [one, two, three]| {
        let gone = fleet.task(Fleet::host(2));
        fleet.leave(gone);
        assert_eq!(fleet.ask(one, Request::Direct(gone)), Some(Reply::Error(Code::Denied)));
        assert_eq!(fleet.ask(one, Request::Direct(Tid(0x3fc_0001))), Some(Reply::Error(Code::NoTask)));
        assert_eq!(fleet.ask(one, Request::Direct(MASTER)), Some(Reply::Error(Code::BadParam)));
        let wait = fleet.send(one, Request::Direct(two));
        fleet.send(three, Request::Direct(two));
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
