//! Tasks that leave, and a daemon that dies.
use crate::daemon::Running;
use crate::{enroll, int, pattern, psend, receive, send, two, wait};
use pvm_core::codes::{Code, DATA_RAW};
use pvm_core::proto::{Reply, Request};
use pvm_task::{ANY, Filter, Kind, Submit, Task};
use std::time::Duration;

#[test]
fn the_notify_of_an_exit_comes_after_the_last_message() {
    const MESSAGES: i32 = 3000;
    let daemon = Running::start();
    for _ in 0..20 {
        two(
            &daemon,
            |task, peer| {
                let request = task.notify(1, 77, 1, &[peer]).unwrap().expect("one for the daemon");
                let ticket = task.begin(request).unwrap();
                assert_eq!(wait(task, |task| task.poll_reply(&ticket)), Ok(Reply::Done));
                task.init_send(DATA_RAW).unwrap();
                send(task, peer, 0);
                // During this pause all messages arrive, before the first poll.
                std::thread::sleep(Duration::from_millis(50));
                for number in 0..MESSAGES {
                    receive(task, ANY, ANY);
                    assert_eq!(int(task), number);
                }
                receive(task, ANY, ANY);
                assert_eq!(int(task), peer);
                assert_eq!(task.send(peer, 1), Ok(Submit::Done), "to the dead");
            },
            |task, peer| {
                receive(task, peer, 0);
                for number in 0..MESSAGES {
                    task.init_send(DATA_RAW).unwrap();
                    task.pack(Kind::Int, &number.to_ne_bytes()).unwrap();
                    send(task, peer, 3);
                }
                task.leave().unwrap();
            },
        );
    }
}

#[test]
fn without_a_daemon_messages_still_arrive_and_requests_fail() {
    let mut daemon = Running::start();
    let environment = daemon.environment();
    let mut one = Task::new(&environment);
    let mut other = Task::new(&environment);
    one.enroll(&environment).unwrap();
    other.enroll(&environment).unwrap();
    let (first, second) = (one.tid().unwrap().0 as i32, other.tid().unwrap().0 as i32);
    psend(&mut one, second, 1, b"before");
    receive(&mut other, first, 1);
    let pending = one.begin(Request::RecvInfo { name: Default::default(), index: 0, flags: 32 }).unwrap();
    daemon.kill();
    assert_eq!(wait(&mut one, |task| task.poll_reply(&pending)), Err(Code::SysErr));
    assert!(one.is_enrolled() && !one.is_connected());
    assert_eq!(one.begin(Request::NewContext), Err(Code::SysErr));
    psend(&mut one, second, 1, b"after");
    receive(&mut other, first, 1);
    assert_eq!(one.leave(), Err(Code::SysErr));
    assert_eq!(one.leave(), Ok(()));
    assert!(one.enroll(&environment).is_err());
}

#[test]
fn a_task_that_has_left_can_enroll_again_and_keeps_its_buffers() {
    let daemon = Running::start();
    let environment = daemon.environment();
    let mut task = enroll(&daemon);
    let first = task.tid().unwrap();
    task.init_send(DATA_RAW).unwrap();
    task.pack(Kind::Byte, &pattern(50_000)).unwrap();
    assert_eq!(task.psend(first.0 as i32, 3, b"lost"), Ok(Submit::Done));
    task.add_handler(ANY, 5, 0, 1).unwrap();
    task.leave().unwrap();
    assert_eq!(task.tid(), None);
    task.enroll(&environment).unwrap();
    let own = task.tid().unwrap().0 as i32;
    assert_ne!(own, first.0 as i32);
    let filter = Filter { src: ANY, tag: ANY, ctx: ANY };
    assert_eq!(task.receive(&filter), None);
    assert_eq!(task.add_handler(ANY, 5, 0, 1), Ok(9));
    assert_eq!(task.send(own, 4), Ok(Submit::Done));
    receive(&mut task, own, 4);
    let mut data = vec![0; 50_000];
    task.unpack(Kind::Byte, &mut data).unwrap();
    assert_eq!(data, pattern(50_000));
}
