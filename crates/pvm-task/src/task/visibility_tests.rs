use super::*;
use crate::envelope::Envelope;
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

/// Returns whether a call that does not wait receives a message with this tag.
fn nrecv(task: &mut Task, tag: i32) -> bool {
    task.receive_at_once(&by_tag(tag)).is_some()
}

fn seen(task: &Task) -> Vec<i32> {
    task.queued().map(|(_, _, tag)| tag).collect()
}

#[test]
fn a_call_that_does_not_wait_reveals_at_most_one_message() {
    let mut task = task();
    all_come(&mut task, &[1, 2, 3, 4]);
    assert!(!nrecv(&mut task, 2));
    assert_eq!(seen(&task), [1]);
    // A visible message is found without making more messages visible.
    assert!(nrecv(&mut task, 1));
    assert_eq!(seen(&task), []);
    assert!(nrecv(&mut task, 2));
    assert!(!nrecv(&mut task, 9));
    assert_eq!(task.probe_at_once(&by_tag(4)), task.probe(&by_tag(4)));
    assert_eq!(seen(&task), [3, 4]);
    assert!(nrecv(&mut task, ANY) && nrecv(&mut task, ANY) && !nrecv(&mut task, ANY));
}

#[test]
fn a_message_of_a_task_to_itself_is_visible_at_once() {
    let mut task = task();
    for tag in [1, 2] {
        let envelope = Envelope { src: 1, dst: 1, ctx: 0, tag, wid: 0, enc: OWN_DSIG, format: OWN_DSIG };
        task.deliver_to_self(envelope, Vec::new());
    }
    assert_eq!(seen(&task), [1, 2]);
    assert!(nrecv(&mut task, 2) && nrecv(&mut task, 1));
}

#[test]
fn a_call_that_waits_reveals_what_came_before_its_message() {
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
fn after_a_barrier_all_that_others_had_sent_is_visible() {
    let mut task = task();
    all_come(&mut task, &[1, 2, 3]);
    task.note_synchronized();
    assert!(nrecv(&mut task, 3));
    all_come(&mut task, &[4, 5]);
    assert!(!nrecv(&mut task, 5));
    assert_eq!(seen(&task), [1, 2, 4]);
}

#[test]
fn a_hidden_message_that_leaves_the_queue_hides_nothing() {
    let mut task = task();
    comes(&mut task, 7, 5, GROUP);
    all_come(&mut task, &[1, 2]);
    // A task's contribution to a group operation is received even if it is not visible.
    assert!(task.receive(&Filter { src: 7, tag: 5, ctx: GROUP }).is_some());
    assert_eq!(seen(&task), []);
    assert!(!nrecv(&mut task, 2) && nrecv(&mut task, 2) && nrecv(&mut task, 1));
    let mid = task.init_send(pvm_core::codes::DATA_RAW).unwrap();
    all_come(&mut task, &[3, 4]);
    // A message can also be removed from the queue by its mid.
    let first = task.state.store.queue.first_hidden().unwrap() as i32 + 1;
    task.set_receive_buffer(first).unwrap();
    assert!(nrecv(&mut task, 4) && task.send_buffer() == mid);
    assert!(!nrecv(&mut task, ANY));
}

#[test]
fn a_handler_takes_its_message_when_that_would_become_visible() {
    let mut task = task();
    task.add_handler(ANY, 50, ANY, 1).unwrap();
    all_come(&mut task, &[1, 50, 2, 50, 3]);
    assert!(!nrecv(&mut task, 2));
    assert!(task.next_handler_call().is_none(), "its message is hidden");
    assert!(nrecv(&mut task, 1) && task.next_handler_call().is_none());
    assert!(!nrecv(&mut task, 2));
    assert_eq!(task.next_handler_call().unwrap().function, 1);
    assert!(task.next_handler_call().is_none());
    task.handler_done();
    // The last `nrecv` has revealed the one message that it may reveal.
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
fn a_handler_that_is_added_later_takes_hidden_messages() {
    let mut task = task();
    all_come(&mut task, &[1, 5, 5]);
    assert!(!nrecv(&mut task, 9) && !nrecv(&mut task, 9));
    task.add_handler(ANY, 5, ANY, 2).unwrap();
    // The first message with tag 5 was already visible.
    assert!(nrecv(&mut task, 5) && !nrecv(&mut task, 5));
    assert_eq!(task.next_handler_call().unwrap().function, 2);
    task.handler_done();
    assert_eq!(seen(&task), [1]);
}

#[test]
fn a_search_in_a_long_queue_reveals_no_more() {
    let mut task = task();
    let tags: Vec<i32> = (0..500).collect();
    all_come(&mut task, &tags);
    for tag in 0..300 {
        assert!(!nrecv(&mut task, 499) && seen(&task).len() == tag + 1);
    }
    assert!(!nrecv(&mut task, 302) && !nrecv(&mut task, 302) && nrecv(&mut task, 302));
    assert!(nrecv(&mut task, 299) && !nrecv(&mut task, 304));
}
