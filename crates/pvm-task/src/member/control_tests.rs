use super::*;
use crate::message::OWN_DSIG;
use crate::test_daemon::{TestDaemon, enrolled};
use crate::{ANY, Filter, Task};
use pvm_core::proto::Message;
use pvm_fmp::Sent;

const TASK: Tid = Tid(0x40001);
const FAR: Tid = Tid(0x80001);
const EVERYTHING: Filter = Filter { src: ANY, tag: ANY, ctx: ANY };

fn line(tag: i32) -> Message {
    Message::new(Tid::DAEMON, TASK, 0, tag, Vec::new())
}

/// Sends the task a message of the daemon.
fn print(daemon: &mut TestDaemon, tag: i32) {
    daemon.queue_message(line(tag));
}

/// Sends the task a message of a task of another host.
fn send(endpoint: &mut Endpoint, tag: i32) {
    let meta = [0, tag, 0, OWN_DSIG, OWN_DSIG, FAR.0 as i32].map(|word| word as u32);
    assert_eq!(endpoint.send_bytes(TASK.0, meta, &[1; 8]), Ok(Sent::Done));
}

/// Receives the next message by a call that does not wait. Returns the tag.
fn next(task: &mut Task) -> Option<i32> {
    let mid = task.receive_at_once(&EVERYTHING)?;
    Some(task.message_info(mid).unwrap().tag)
}

#[test]
fn messages_of_the_daemon_and_of_other_hosts_keep_their_order() {
    let (mut task, mut daemon) = enrolled(TASK);
    let mut endpoint = daemon.introduce_itself(&mut task);
    let mut expected = Vec::new();
    for round in 0..100 {
        for tag in 0..round % 4 {
            send(&mut endpoint, 2 * tag);
            expected.push(Some(2 * tag));
        }
        for tag in 0..round % 3 {
            print(&mut daemon, 2 * tag + 1);
            expected.push(Some(2 * tag + 1));
        }
        if round % 20 == 19 {
            expected.push(None);
            let arrived: Vec<_> = expected.iter().map(|_| next(&mut task)).collect();
            assert_eq!(arrived, expected, "{round}");
            expected.clear();
        }
    }
}

#[test]
fn many_messages_of_both_keep_their_order() {
    let (mut task, mut daemon) = enrolled(TASK);
    let mut endpoint = daemon.introduce_itself(&mut task);
    let count = 3 * FRAMES_IN_TURN_MAX as i32;
    for tag in 0..count {
        print(&mut daemon, tag);
    }
    for tag in count..2 * count {
        send(&mut endpoint, tag);
    }
    print(&mut daemon, 2 * count);
    for tag in 0..=2 * count {
        daemon.flush();
        assert_eq!(next(&mut task), Some(tag));
    }
    assert_eq!(next(&mut task), None);
}

#[test]
fn a_frame_that_had_to_wait_for_room_is_read_as_soon_as_it_is_there() {
    let (mut task, mut daemon) = enrolled(TASK);
    let mut endpoint = daemon.introduce_itself(&mut task);
    // The daemon counts a frame when it has queued it for the socket.
    daemon.count_lost_message(TASK);
    send(&mut endpoint, 2);
    assert_eq!((next(&mut task), next(&mut task)), (None, None));
    daemon.queue(&ToTask::Message(line(1)), &[]);
    assert_eq!((next(&mut task), next(&mut task), next(&mut task)), (Some(1), Some(2), None));
}

#[test]
fn a_message_behind_output_that_the_library_takes_is_received_by_the_same_call() {
    let (mut task, mut daemon) = enrolled(TASK);
    let mut endpoint = daemon.introduce_itself(&mut task);
    task.collect_output(0, 7);
    print(&mut daemon, 7);
    send(&mut endpoint, 1);
    assert_eq!((next(&mut task), next(&mut task)), (Some(1), None));
}

#[test]
fn what_waits_for_a_message_of_the_daemon_arrives_when_the_daemon_is_gone() {
    let (mut task, mut daemon) = enrolled(TASK);
    let mut endpoint = daemon.introduce_itself(&mut task);
    daemon.count_lost_message(TASK);
    send(&mut endpoint, 1);
    assert_eq!((next(&mut task), next(&mut task)), (None, None));
    daemon.die(&mut task);
    assert_eq!(next(&mut task), Some(1));
}
