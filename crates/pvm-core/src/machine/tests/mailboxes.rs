//! Mailboxes.
use super::world::{ONE, TWO, World, spawn_of, text};
use super::*;
use crate::codes::{CLASS_NO_RESET, MBOX_OVER_WRITABLE, MBOX_PERSISTENT, MBOX_READ_AND_DELETE, MBOX_WAIT_FOR_INFO};

#[test]
fn who_waits_for_a_mailbox_entry_gets_it_when_it_comes() {
    let mut world = World::new();
    world.tasks(2);
    let wait = || Request::RecvInfo { name: text("box"), index: 0, flags: MBOX_WAIT_FOR_INFO };
    let message = Message { wid: 5, enc: 6, ..Message::new(ONE, TWO, 3, 4, text("body")) };
    let put = || Request::PutInfo { name: text("box"), flags: MBOX_PERSISTENT, message: message.clone() };
    assert_eq!(world.ask(ONE, wait()), None);
    assert_eq!(world.ask(TWO, put()), Some(Reply::Int(0)));
    assert_eq!(world.replies(ONE), [Reply::Info(message.clone())]);
    world.disconnects(TWO);
    assert_eq!(world.ask(ONE, Request::DeleteInfo { name: text("box"), index: 0, flags: 0 }), Some(Reply::Int(0)));
    assert_eq!(
        world.ask(ONE, Request::RecvInfo { name: text("box"), index: 0, flags: 0 }),
        Some(Reply::Error(Code::NotFound))
    );
}

#[test]
fn who_has_left_takes_nothing_out_of_a_mailbox_any_more() {
    let mut world = World::new();
    world.task();
    world.spawn(ONE, spawn_of("prog", 1));
    let cookie = world.machine.core.tasks.get(TWO).unwrap().cookie;
    world.hello(501, Some(cookie));
    let flags = MBOX_WAIT_FOR_INFO | MBOX_READ_AND_DELETE;
    assert_eq!(world.ask(TWO, Request::RecvInfo { name: text("box"), index: 0, flags }), None);
    // Its process continues.
    world.disconnects(TWO);
    assert!(world.machine.core.tasks.exists(TWO));
    let message = Message::new(ONE, ONE, 3, 4, text("body"));
    let put = Request::PutInfo { name: text("box"), flags: MBOX_OVER_WRITABLE, message: message.clone() };
    assert_eq!(world.ask(ONE, put), Some(Reply::Int(0)));
    let there = world.ask(ONE, Request::RecvInfo { name: text("box"), index: 0, flags: 0 });
    assert_eq!(there, Some(Reply::Info(message)));
}

#[test]
fn a_reset_of_mailboxes_spares_what_living_tasks_keep() {
    let mut world = World::new();
    world.tasks(2);
    let message = Message { enc: 0, ..Message::new(ONE, TWO, 0, 0, text("")) };
    for (task, name) in [(ONE, "orphan"), (TWO, CLASS_NO_RESET)] {
        world.ask(task, Request::PutInfo { name: text(name), flags: MBOX_PERSISTENT, message: message.clone() });
    }
    world.disconnects(ONE);
    assert_eq!(world.ask(TWO, Request::ResetInfo { name: None, index: None }), Some(Reply::Done));
    let Some(Reply::Mailboxes(left)) = world.ask(TWO, Request::MailboxInfo { pattern: text("") }) else { panic!() };
    assert_eq!(left.len(), 1);
}
