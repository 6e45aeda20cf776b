//! Messages behind gaps.
use crate::envelope::Envelope;
use crate::state::State;
use crate::types::{ANY, Filter};
use crate::{Environment, Task};
use pvm_core::tid::Tid;
use pvm_fmp::Sink;

const HOST: Tid = Tid(0x80000);
const OTHER_HOST: Tid = Tid(0xc0000);
/// A task of each of these hosts, and one of this task's own host.
const SENDERS: [i32; 3] = [0x80001, 0xc0001, 0x40002];

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

/// Takes in a message as if it had arrived in shared memory.
fn arrives(state: &mut State, src: i32, tag: i32) {
    let envelope = Envelope { src, dst: 1, ctx: 0, tag, wid: 0, enc: 0, format: 0 };
    let slot = state.store.take_slot(crate::message::SlotState::Buffer);
    let message = &mut state.store.table[slot as usize];
    (message.src, message.dst, message.ctx, message.tag) = (src, 1, 0, tag);
    (message.wid, message.enc, message.format) = (0, 0, 0);
    match state.backlog.is_open() {
        true => state.add_to_backlog(&envelope, slot),
        false => state.accept(slot),
    }
}

fn received(task: &mut Task) -> Vec<i32> {
    let filter = Filter { src: ANY, tag: ANY, ctx: 0 };
    std::iter::from_fn(|| {
        let mid = task.receive(&filter)?;
        Some(task.message_info(mid).unwrap().tag)
    })
    .collect()
}

#[test]
fn what_is_behind_a_gap_waits_for_the_messages_of_the_gap() {
    let mut task = task();
    arrives(&mut task.state, SENDERS[2], 1);
    task.state.on_gap(HOST, 2);
    assert!(task.state.handlers.may_intercept(), "no fast path is taken");
    arrives(&mut task.state, SENDERS[2], 4);
    arrives(&mut task.state, SENDERS[1], 5);
    assert_eq!(received(&mut task), [1]);
    arrives(&mut task.state, SENDERS[0], 2);
    assert_eq!(received(&mut task), [2]);
    arrives(&mut task.state, SENDERS[0], 3);
    assert_eq!(received(&mut task), [3, 4, 5]);
    arrives(&mut task.state, SENDERS[0], 6);
    assert_eq!(received(&mut task), [6]);
    // A receive that searches the queue from now on finds all that was released.
    task.state.handlers.stop_queueing();
    assert!(!task.state.backlog.is_open() && !task.state.handlers.may_intercept());
}

/// A receive searches the queue, and then takes the first message that arrives and fits.
#[test]
fn what_arrives_after_a_release_is_queued_behind_it_until_the_queue_is_searched_again() {
    let mut task = task();
    let next = Envelope { src: SENDERS[2], dst: 1, ctx: 0, tag: 3, wid: 0, enc: 0, format: 0 };
    task.state.handlers.stop_queueing();
    task.state.on_gap(HOST, 1);
    arrives(&mut task.state, SENDERS[2], 2);
    assert!(task.state.is_intercepted(&next));
    arrives(&mut task.state, SENDERS[0], 1);
    assert!(!task.state.backlog.is_open() && task.state.is_intercepted(&next));
    arrives(&mut task.state, SENDERS[2], 3);
    assert_eq!(received(&mut task), [1, 2, 3]);
    task.state.handlers.stop_queueing();
    assert!(!task.state.is_intercepted(&next));
}

#[test]
fn gaps_for_several_hosts_are_filled_in_any_order() {
    let mut task = task();
    task.state.on_gap(HOST, 1);
    arrives(&mut task.state, SENDERS[2], 2);
    task.state.on_gap(OTHER_HOST, 1);
    task.state.on_gap(HOST, 1);
    arrives(&mut task.state, SENDERS[2], 5);
    arrives(&mut task.state, SENDERS[1], 3);
    arrives(&mut task.state, SENDERS[1], 6);
    assert_eq!(received(&mut task), []);
    arrives(&mut task.state, SENDERS[0], 1);
    assert_eq!(received(&mut task), [1, 2, 3]);
    arrives(&mut task.state, SENDERS[0], 4);
    assert_eq!(received(&mut task), [4, 5, 6]);
}

#[test]
fn a_lost_host_fills_no_gaps() {
    let mut task = task();
    task.state.on_gap(HOST, 2);
    task.state.on_gap(OTHER_HOST, 1);
    arrives(&mut task.state, SENDERS[2], 3);
    arrives(&mut task.state, SENDERS[0], 1);
    assert!(task.state.no_more(HOST.0) && !task.state.no_more(HOST.0), "the caller looks again");
    assert_eq!(received(&mut task), [1]);
    assert!(task.state.close_all_gaps());
    assert_eq!(received(&mut task), [3]);
    assert!(!task.state.backlog.is_open());
}

#[test]
fn the_news_of_an_end_waits_for_the_last_messages() {
    let mut task = task();
    task.state.on_gap(HOST, 1);
    task.state.backlog.add_end(Tid(SENDERS[0] as u32));
    let notify = Envelope { src: HOST.0 as i32, dst: 1, ctx: 0, tag: 2, wid: 0, enc: 0, format: 0 };
    task.state.on_message_of_daemon(notify, Vec::new());
    assert_eq!((task.state.begin_end(), task.state.finish_end()), (None, false));
    arrives(&mut task.state, SENDERS[0], 1);
    assert_eq!(received(&mut task), [1]);
    assert_eq!(task.state.begin_end(), Some(Tid(SENDERS[0] as u32)));
    assert_eq!((task.state.begin_end(), received(&mut task)), (None, vec![]), "its link may have more");
    assert!(task.state.finish_end());
    assert_eq!(received(&mut task), [2]);
}

#[test]
fn a_task_that_leaves_drops_what_waits() {
    let mut task = task();
    task.state.on_gap(HOST, 1);
    arrives(&mut task.state, SENDERS[2], 1);
    task.state.clear_backlog();
    assert!(!task.state.backlog.is_open() && !task.state.handlers.may_intercept());
    assert_eq!(received(&mut task), []);
    assert!(task.state.store.get(1).is_err(), "the slot is free");
}

#[test]
fn messages_of_the_daemon_are_no_repeats() {
    let mut task = task();
    task.state.handlers.expect_repeats(SENDERS[0], 1);
    task.state.on_gap(OTHER_HOST, 1);
    let envelope = Envelope { src: SENDERS[0], dst: 1, ctx: 0, tag: 1, wid: 0, enc: 0, format: 0 };
    task.state.on_message_of_daemon(envelope, Vec::new());
    arrives(&mut task.state, SENDERS[0], 2);
    task.state.on_no_more(OTHER_HOST);
    assert_eq!(received(&mut task), [1], "the message of the task itself was a repeat");
}

#[test]
fn what_waited_at_some_time_is_released_at_a_later_one() {
    let mut task = task();
    let ends: Vec<u64> = (0..3)
        .map(|_| {
            task.state.on_gap(HOST, 1);
            task.state.backlog.end()
        })
        .collect();
    for (number, end) in ends.iter().enumerate() {
        assert!(!task.state.backlog.is_released(*end));
        arrives(&mut task.state, SENDERS[0], number as i32);
        assert!(task.state.backlog.is_released(*end));
    }
    task.state.on_gap(HOST, 1);
    let end = task.state.backlog.end();
    task.state.clear_backlog();
    assert!(task.state.backlog.is_released(end));
}

#[test]
fn what_is_forgotten_leaves_the_gaps_where_they_are() {
    let mut task = task();
    task.state.on_gap(OTHER_HOST, 1);
    arrives(&mut task.state, SENDERS[2], 1);
    task.state.on_gap(HOST, 1);
    arrives(&mut task.state, SENDERS[2], 2);
    let slots: Vec<u32> = task.state.backlog.slots().collect();
    assert!(task.state.has_taken_in(&Filter { src: ANY, tag: 1, ctx: 0 }));
    task.state.backlog.forget(&slots[..1]);
    task.state.store.free(slots[0] as i32 + 1);
    assert!(!task.state.has_taken_in(&Filter { src: ANY, tag: 1, ctx: 0 }));
    arrives(&mut task.state, SENDERS[0], 3);
    arrives(&mut task.state, SENDERS[1], 4);
    assert_eq!(received(&mut task), [4, 3, 2]);
}
