//! Many messages and many senders.
use crate::daemon::Running;
use crate::{LONG, enroll, psend, receive, two};
use pvm_task::{ANY, Kind, Task};
use std::time::Instant;

/// Polls with calls that do not wait, after several senders have sent the same number of messages one after another.
#[test]
fn polling_takes_a_message_at_a_time_in_the_order_of_sending() {
    const SENDERS: usize = 60;
    const EACH: usize = 40;
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    let mut senders: Vec<Task> = (0..SENDERS).map(|_| enroll(&daemon)).collect();
    for sender in &mut senders {
        psend(sender, own, 1, b"first");
    }
    for _ in 0..SENDERS {
        receive(&mut task, ANY, 1);
    }
    for place in 0..EACH {
        for sender in &mut senders {
            psend(sender, own, 2 + (place % 2) as i32, b"body");
        }
    }
    let tids: Vec<i32> = senders.iter().map(|sender| sender.tid().unwrap().0 as i32).collect();
    // How many first and second messages of pairs have been received, by sender.
    let mut counts = vec![[0; 2]; SENDERS];
    let mut take = |task: &mut Task, tag: i32| {
        let filter = task.filter(ANY, tag);
        task.drop_receive_buffer();
        let Some(mid) = task.receive_at_once(&filter) else { return 0 };
        let src = task.message_info(mid).unwrap().src;
        let count = &mut counts[tids.iter().position(|tid| *tid == src).unwrap()];
        count[tag as usize - 2] += 1;
        assert!(count[1] <= count[0], "the second one is there and the first one is not: {count:?}");
        1
    };
    let (mut taken, mut looks) = (0, 0);
    while taken < SENDERS * EACH / 4 {
        taken += take(&mut task, 3) + take(&mut task, 2);
        looks += 2;
    }
    assert!(looks <= 2 * (taken + SENDERS), "{looks} looks: each that finds nothing takes something in");
    let of_one = |[first, second]: &[i32; 2]| first + second;
    let (least, most) = (counts.iter().map(of_one).min(), counts.iter().map(of_one).max());
    assert!(least.map(|least| least + 2) >= most, "{counts:?}");
}

#[test]
fn one_poll_of_all_peers_takes_in_all_that_has_come() {
    const PEERS: i32 = 50;
    const EACH: i32 = 400;
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    let barrier = std::sync::Barrier::new(PEERS as usize + 1);
    std::thread::scope(|scope| {
        for tag in 0..PEERS {
            let (daemon, barrier) = (&daemon, &barrier);
            scope.spawn(move || {
                let mut task = enroll(daemon);
                for _ in 0..EACH {
                    psend(&mut task, own, tag, b"x");
                }
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        // The first call takes in the introductions, the second one all messages in the queues.
        task.take_in_all();
        task.take_in_all();
        task.reveal_all();
        assert_eq!(task.queued().count() as i32, PEERS * EACH);
        barrier.wait();
    });
}

#[test]
fn a_million_messages_wait_for_a_receiver_that_receives_late() {
    const MESSAGES: i32 = 1_000_000;
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for number in 0..MESSAGES {
                psend(task, peer, number % 1000, &number.to_ne_bytes());
            }
            psend(task, peer, 5000, b"");
            receive(task, peer, 6000);
        },
        |task, peer| {
            receive(task, peer, 5000);
            let start = Instant::now();
            // Receives the messages of each tag in order, but the tags in the reverse order of their arrival.
            for tag in (0..1000).rev() {
                let filter = task.filter(ANY, tag);
                for round in 0..MESSAGES / 1000 {
                    task.receive(&filter).unwrap();
                    let mut word = [0; 4];
                    task.unpack(Kind::Byte, &mut word).unwrap();
                    assert_eq!(i32::from_ne_bytes(word), round * 1000 + tag);
                }
            }
            assert!(start.elapsed() < LONG);
            psend(task, peer, 6000, b"");
        },
    );
}
