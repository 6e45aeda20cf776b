use super::*;
use crate::message::OWN_DSIG;
use crate::{ANY, Environment};

const GROUP: i32 = PRIVATE_CONTEXTS.start;

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

fn comes(task: &mut Task, src: i32, tag: i32, ctx: i32) {
    let envelope = Envelope { src, dst: 1, ctx, tag, wid: 0, enc: OWN_DSIG, format: OWN_DSIG };
    task.state.on_message_bytes(envelope, Vec::new());
}

fn all_come(task: &mut Task, tags: &[i32]) {
    tags.iter().for_each(|&tag| comes(task, 7, tag, 0));
}

fn by_tag(tag: i32) -> Filter {
    Filter { src: ANY, tag, ctx: 0 }
}

/// Whether a call that does not wait receives one of that tag.
fn nrecv(task: &mut Task, tag: i32) -> bool {
    task.receive_at_once(&by_tag(tag)).is_some()
}

fn seen(task: &Task) -> Vec<i32> {
    task.queued().map(|(_, _, tag)| tag).collect()
}

#[test]
fn a_call_that_does_not_wait_sees_one_message_more_at_most() {
    let mut task = task();
    all_come(&mut task, &[1, 2, 3, 4]);
    assert!(!nrecv(&mut task, 2));
    assert_eq!(seen(&task), [1]);
    // What was seen before is found without a look at what has come.
    assert!(nrecv(&mut task, 1));
    assert_eq!(seen(&task), []);
    assert!(nrecv(&mut task, 2));
    assert!(!nrecv(&mut task, 9));
    assert_eq!(task.probe_at_once(&by_tag(4)), task.probe(&by_tag(4)));
    assert_eq!(seen(&task), [3, 4]);
    assert!(nrecv(&mut task, ANY) && nrecv(&mut task, ANY) && !nrecv(&mut task, ANY));
}

#[test]
fn what_a_task_sends_itself_is_seen_at_once() {
    let mut task = task();
    for tag in [1, 2] {
        let envelope = Envelope { src: 1, dst: 1, ctx: 0, tag, wid: 0, enc: OWN_DSIG, format: OWN_DSIG };
        task.deliver_to_self(envelope, Vec::new());
    }
    assert_eq!(seen(&task), [1, 2]);
    assert!(nrecv(&mut task, 2) && nrecv(&mut task, 1));
}

#[test]
fn a_call_that_waits_sees_what_came_before_its_message() {
    let mut task = task();
    all_come(&mut task, &[1, 2, 3, 4, 5]);
    assert!(task.receive(&by_tag(3)).is_some());
    assert_eq!(seen(&task), [1, 2]);
    assert!(task.receive(&by_tag(1)).is_some());
    assert!(!nrecv(&mut task, 5));
    assert_eq!(seen(&task), [2, 4]);
    task.reveal_all();
    assert_eq!(seen(&task), [2, 4, 5]);
    all_come(&mut task, &[6]);
    assert_eq!(seen(&task), [2, 4, 5]);
}

#[test]
fn who_has_met_others_sees_all_that_they_had_sent() {
    let mut task = task();
    all_come(&mut task, &[1, 2, 3]);
    task.note_synchronized();
    assert!(nrecv(&mut task, 3));
    all_come(&mut task, &[4, 5]);
    assert!(!nrecv(&mut task, 5));
    assert_eq!(seen(&task), [1, 2, 4]);
}

#[test]
fn what_leaves_the_queue_unseen_hides_nothing() {
    let mut task = task();
    comes(&mut task, 7, 5, GROUP);
    all_come(&mut task, &[1, 2]);
    // A share of a group's operation is taken whatever has been seen.
    assert!(task.receive(&Filter { src: 7, tag: 5, ctx: GROUP }).is_some());
    assert_eq!(seen(&task), []);
    assert!(!nrecv(&mut task, 2) && nrecv(&mut task, 2) && nrecv(&mut task, 1));
    let mid = task.init_send(pvm_core::codes::DATA_RAW).unwrap();
    all_come(&mut task, &[3, 4]);
    // By its mid too.
    let first = task.state.store.queue.first_hidden().unwrap() as i32 + 1;
    task.set_receive_buffer(first).unwrap();
    assert!(nrecv(&mut task, 4) && task.send_buffer() == mid);
    assert!(!nrecv(&mut task, ANY));
}

#[test]
fn a_handler_takes_its_message_when_it_would_be_seen() {
    let mut task = task();
    task.add_handler(ANY, 50, ANY, 1).unwrap();
    all_come(&mut task, &[1, 50, 2, 50, 3]);
    assert!(!nrecv(&mut task, 2));
    assert!(task.next_handler_call().is_none(), "its message has not been seen");
    assert!(nrecv(&mut task, 1) && task.next_handler_call().is_none());
    assert!(!nrecv(&mut task, 2));
    assert_eq!(task.next_handler_call().unwrap().function, 1);
    assert!(task.next_handler_call().is_none());
    task.handler_done();
    // That call has had its one message.
    assert!(task.next_handler_call().is_none() && seen(&task).is_empty());
    assert!(task.receive(&by_tag(3)).is_none());
    assert_eq!(seen(&task), [2]);
    assert_eq!(task.next_handler_call().unwrap().function, 1);
    task.handler_done();
    all_come(&mut task, &[50]);
    assert!(task.receive(&by_tag(3)).is_some());
    assert!(task.next_handler_call().is_none(), "it came behind what was waited for");
    task.reveal_all();
    assert_eq!(task.next_handler_call().unwrap().function, 1);
}

#[test]
fn a_handler_added_meanwhile_takes_what_has_not_been_seen() {
    let mut task = task();
    all_come(&mut task, &[1, 5, 5]);
    assert!(!nrecv(&mut task, 9) && !nrecv(&mut task, 9));
    task.add_handler(ANY, 5, ANY, 2).unwrap();
    // The first 5 had been seen.
    assert!(nrecv(&mut task, 5) && !nrecv(&mut task, 5));
    assert_eq!(task.next_handler_call().unwrap().function, 2);
    task.handler_done();
    assert_eq!(seen(&task), [1]);
}

#[test]
fn a_search_in_a_long_queue_sees_no_more() {
    let mut task = task();
    let tags: Vec<i32> = (0..500).collect();
    all_come(&mut task, &tags);
    for tag in 0..300 {
        assert!(!nrecv(&mut task, 499) && seen(&task).len() == tag + 1);
    }
    assert!(!nrecv(&mut task, 302) && !nrecv(&mut task, 302) && nrecv(&mut task, 302));
    assert!(nrecv(&mut task, 299) && !nrecv(&mut task, 304));
}
