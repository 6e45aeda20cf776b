//! Introductions of two tasks that exchange messages on a fabric.
use super::fleet::{Fleet, MASTER, Received, with_three_tasks};
use super::world::spawn_of;
use super::*;
use crate::codes::TASK_HOST;
use crate::proto::FabricSecrets;

const SECRETS: FabricSecrets = [[1; 16], [2; 16]];

fn many(story: impl Fn(&mut Fleet, [Tid; 3])) {
    with_three_tasks("introductions on fabrics", story);
}

fn offer(name: &[u8]) -> FabricOffer {
    FabricOffer { introduction: ByteBuf::from(name.to_vec()), secrets: Some(SECRETS) }
}

/// A question for a link to that task.
fn question(to: Tid) -> Request {
    Request::Fabric { to, offer: offer(b"asker"), always_sealed: false, cause: LinkCause::Program }
}

/// Returns the questions that a task has got.
fn questions(fleet: &Fleet, task: Tid) -> Vec<(u32, Tid, FabricOffer)> {
    let of = |one: &Received| match one {
        Received::Fabric(number, peer, offer) => Some((*number, *peer, offer.clone())),
        _ => None,
    };
    fleet.received.get(&task).into_iter().flatten().filter_map(of).collect()
}

fn answer(number: u32, peer: Tid, introduction: Option<&[u8]>) -> Request {
    let introduction = introduction.map(|bytes| ByteBuf::from(bytes.to_vec()));
    Request::FabricAnswer { number, peer, introduction }
}

fn made(sealed: bool) -> Option<Reply> {
    Some(Reply::Fabric { introduction: ByteBuf::from(b"other".to_vec()), sealed })
}

#[test]
fn two_tasks_learn_of_each_other_and_of_the_secrets() {
    many(|fleet, [one, two, three]| {
        for (asker, other) in [(one, two), (three, one), (two, three)] {
            let wait = fleet.send(asker, question(other));
            fleet.settle();
            assert_eq!(fleet.answer(asker, wait), None, "nobody has answered yet");
            let (number, peer, got) = questions(fleet, other).pop().unwrap();
            assert_eq!((peer, got), (asker, offer(b"asker")));
            assert_eq!(fleet.ask(other, answer(number, peer, Some(b"other"))), Some(Reply::Done));
            assert_eq!(fleet.answer(asker, wait), made(true));
            // A second answer is of no use.
            let again = fleet.ask(other, answer(number, peer, Some(b"other")));
            assert_eq!(again, Some(Reply::Error(Code::NoTask)));
        }
    });
}

#[test]
fn on_a_trusted_network_secrets_are_given_only_if_the_task_wants_them_always() {
    for (always_sealed, secrets) in [(false, None), (true, Some(SECRETS))] {
        let mut fleet = Fleet::new(2, 1);
        fleet.machine(MASTER).core.settings.trusted = true;
        let (asker, other) = (fleet.task(MASTER), fleet.task(Fleet::host(2)));
        let wait = fleet.send(
            asker,
            Request::Fabric { to: other, offer: offer(b"asker"), always_sealed, cause: LinkCause::Program },
        );
        fleet.settle();
        let (number, peer, got) = questions(&fleet, other).pop().unwrap();
        assert_eq!(got.secrets, secrets);
        fleet.ask(other, answer(number, peer, Some(b"other")));
        assert_eq!(fleet.answer(asker, wait), made(always_sealed));
    }
}

#[test]
fn of_two_who_ask_at_once_the_lower_host_counts() {
    many(|fleet, [_, two, three]| {
        let waits = [(two, fleet.send(two, question(three))), (three, fleet.send(three, question(two)))];
        fleet.settle();
        // If the second question came before the first one was asked, its task decides.
        for (number, peer, _) in questions(fleet, two) {
            assert_eq!(fleet.ask(two, answer(number, peer, None)), Some(Reply::Done));
        }
        let (number, peer, _) = questions(fleet, three).pop().unwrap();
        fleet.ask(three, answer(number, peer, Some(b"other")));
        assert_eq!(fleet.answer(two, waits[0].1), made(true));
        assert_eq!(fleet.answer(three, waits[1].1), Some(Reply::Error(Code::Denied)));
    });
}

#[test]
fn a_task_that_wants_no_links_is_not_asked() {
    many(|fleet, [one, two, _]| {
        fleet.ask(two, Request::AllowDirect(false));
        assert_eq!(fleet.ask(one, question(two)), Some(Reply::Error(Code::Denied)));
        assert!(questions(fleet, two).is_empty());
        let long = FabricOffer { introduction: ByteBuf::from(vec![0; 600]), secrets: None };
        let request = Request::Fabric { to: two, offer: long, always_sealed: false, cause: LinkCause::Program };
        assert_eq!(fleet.ask(one, request), Some(Reply::Error(Code::BadParam)));
        assert_eq!(fleet.ask(one, question(MASTER)), Some(Reply::Error(Code::BadParam)));
        assert_eq!(fleet.ask(one, question(Tid(0x3fc_0001))), Some(Reply::Error(Code::NoTask)));
    });
}

#[test]
fn a_task_that_has_not_come_yet_is_asked_when_it_comes() {
    many(|fleet, [one, ..]| {
        let mut spawn = spawn_of("prog", 1);
        (spawn.flags, spawn.place) = (TASK_HOST, ByteBuf::from(b"h2".to_vec()));
        let child = Tid(fleet.spawn(one, spawn)[0] as u32);
        let wait = fleet.send(one, question(child));
        fleet.settle();
        let cookie = fleet.nodes[&Fleet::host(2)].starts[0].cookie;
        assert_eq!(fleet.hello(Fleet::host(2), Some(cookie)), child);
        fleet.settle();
        let (number, peer, _) = questions(fleet, child).pop().unwrap();
        fleet.ask(child, answer(number, peer, Some(b"other")));
        assert_eq!(fleet.answer(one, wait), made(true));
    });
}

#[test]
fn nobody_waits_for_one_that_is_gone_and_both_sides_of_a_link_are_told() {
    many(|fleet, [one, two, three]| {
        let wait = fleet.send(one, question(two));
        fleet.settle();
        let (number, peer, _) = questions(fleet, two).pop().unwrap();
        fleet.ask(two, answer(number, peer, Some(b"other")));
        assert_eq!(fleet.answer(one, wait), made(true));
        let waits = [(three, fleet.send(three, question(two))), (one, fleet.send(one, question(three)))];
        fleet.settle();
        fleet.leave(two);
        fleet.settle();
        assert_eq!(fleet.answer(three, waits[0].1), Some(Reply::Error(Code::Denied)));
        // Only the task with a link is told, and gets no message.
        assert_eq!(fleet.received[&one].iter().filter(|one| **one == Received::Ended(two)).count(), 1);
        assert!(!fleet.received[&three].contains(&Received::Ended(two)));
        assert!(!fleet.received[&one].iter().any(|one| matches!(one, Received::Message(_))));
        let (number, peer, _) = questions(fleet, three).pop().unwrap();
        fleet.ask(three, answer(number, peer, Some(b"other")));
        fleet.kill(Fleet::host(3));
        fleet.pass(Duration::from_secs(30));
        assert!(fleet.answer(one, waits[1].1).is_some());
        assert!(fleet.received[&one].contains(&Received::Ended(three)));
        let fourth = fleet.task(Fleet::host(2));
        let wait = fleet.send(one, question(fourth));
        fleet.kill(Fleet::host(2));
        fleet.pass(Duration::from_secs(30));
        assert!(fleet.answer(one, wait).is_some());
        assert!(fleet.open.is_empty(), "{:?}", fleet.open);
    });
}

#[test]
fn links_that_no_program_has_asked_for_are_refused_to_tasks_with_company() {
    many(|fleet, [one, two, three]| {
        let unasked =
            |to| Request::Fabric { to, offer: offer(b"asker"), always_sealed: false, cause: LinkCause::Traffic };
        fleet.task(Fleet::host(2));
        for (asker, other) in [(one, two), (two, one), (three, two)] {
            assert_eq!(fleet.ask(asker, unasked(other)), Some(Reply::Company));
            assert!(questions(fleet, other).is_empty());
        }
        let wait = fleet.send(one, unasked(three));
        fleet.settle();
        let (number, peer, _) = questions(fleet, three).pop().expect("a question to another host");
        fleet.ask(three, answer(number, peer, Some(b"other")));
        assert_eq!(fleet.answer(one, wait), made(true));
    });
}
