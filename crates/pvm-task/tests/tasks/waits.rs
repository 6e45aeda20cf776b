//! Waits of a task: they end in time, and no ring of the doorbell is lost.
use crate::daemon::{CORES, Running};
use crate::{LONG, enroll, precv, psend, two, wait_for};
use pvm_core::codes::Code;
use pvm_core::proto::{Reply, Request};
use pvm_core::state_line::Call;
use pvm_task::{ANY, Filter, Session, Step, Task, Waiter};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn a_wait_ends_in_time() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let filter = task.filter(ANY, ANY);
    let start = Instant::now();
    assert_eq!(wait_for(&mut task, Duration::from_millis(150), |task| task.receive(&filter)), None);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(150) && waited < LONG, "{waited:?}");
}

/// Waits until the daemon has got these numbers of reports.
fn expect_reports(daemon: &Running, awake_and_asleep: [u32; 2]) {
    let start = Instant::now();
    while daemon.reports() != awake_and_asleep {
        assert!(start.elapsed() < LONG, "{:?} instead of {awake_and_asleep:?}", daemon.reports());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_task_that_sleeps_for_long_does_not_count_among_those_that_outnumber_the_cores() {
    let daemon = Running::start();
    let mut tasks: Vec<Task> = (0..CORES).map(|_| enroll(&daemon)).collect();
    let wait = |task: &mut Task, ms| wait_for(task, Duration::from_millis(ms), |_| None::<()>);
    wait(&mut tasks[0], 200);
    expect_reports(&daemon, [0, 0]);
    tasks.push(enroll(&daemon));
    wait(&mut tasks[0], 1);
    expect_reports(&daemon, [0, 0]);
    wait(&mut tasks[0], 200);
    expect_reports(&daemon, [1, 1]);
    // A second report within a second would cost the daemon more than it is worth.
    let start = Instant::now();
    wait(&mut tasks[0], 200);
    if start.elapsed() < Duration::from_millis(400) {
        expect_reports(&daemon, [1, 1]);
    }
}

#[test]
fn a_task_that_sleeps_before_others_come_says_so_then() {
    let daemon = Running::start();
    let (enrolled, has_enrolled) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sleeper = enroll(&daemon);
            enrolled.send(()).unwrap();
            wait_for(&mut sleeper, Duration::from_millis(500), |_| None::<()>);
        });
        has_enrolled.recv().unwrap();
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(30));
        let _others: Vec<Task> = (0..CORES).map(|_| enroll(&daemon)).collect();
        // On a machine that is too busy, the sleeper has looked before.
        let is_in_time = start.elapsed() < Duration::from_millis(80);
        while is_in_time && daemon.reports()[1] == 0 {
            assert!(start.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_tool_never_counts() {
    let daemon = Running::start();
    let mut session = Session::enroll(&daemon.environment()).unwrap();
    session.never_compete();
    expect_reports(&daemon, [0, 1]);
    let _others: Vec<Task> = (0..CORES).map(|_| enroll(&daemon)).collect();
    assert!(wait_for(session.task(), Duration::from_millis(100), |_| None::<()>).is_none());
    expect_reports(&daemon, [0, 1]);
}

/// Begins a wait, and continues it up to the point from which senders ring the task's doorbell.
fn about_to_sleep(task: &mut Task) -> Waiter {
    let mut waiter = Waiter::new(Call::Pause, Some(LONG));
    while !task.is_about_to_sleep() {
        task.progress();
        assert!(matches!(waiter.next(task), Step::Again));
    }
    waiter
}

/// Runs `one` with a task and a function. The function makes another task send a message to this task, and returns when
/// the message has been sent.
fn with_sender(one: impl FnOnce(&mut Task, &dyn Fn())) {
    let daemon = Running::start();
    let (order, orders) = mpsc::channel::<()>();
    let (done, dones) = mpsc::channel();
    two(
        &daemon,
        move |task, peer| {
            // Connect the two before the test.
            psend(task, peer, 1, b"hello");
            one(task, &|| {
                order.send(()).unwrap();
                dones.recv().unwrap();
            });
        },
        |task, peer| {
            precv(task, peer, 1, &mut [0; 5]);
            for () in orders {
                psend(task, peer, 2, b"news");
                done.send(()).unwrap();
            }
        },
    );
}

#[test]
fn a_task_does_not_sleep_after_another_wait_within_its_own() {
    with_sender(|task, _| {
        let mut waiter = about_to_sleep(task);
        // Another wait begins and ends here, as in a message handler that runs now.
        assert!(wait_for(task, Duration::from_millis(20), |_| None::<()>).is_none());
        assert!(matches!(waiter.next(task), Step::Again), "nobody would ring");
        waiter.finish(task);
    });
}

#[test]
fn a_task_does_not_sleep_if_something_came_while_it_was_about_to() {
    with_sender(|task, have_sent| {
        let mut waiter = about_to_sleep(task);
        have_sent();
        assert!(task.progress() > 0);
        assert_eq!(task.progress(), 0);
        assert!(matches!(waiter.next(task), Step::Again));
        waiter.finish(task);
    });
}

#[test]
fn a_call_of_another_thread_does_not_consume_the_ring_for_the_sleeper() {
    with_sender(|task, have_sent| {
        let mut waiter = about_to_sleep(task);
        task.progress();
        let Step::Sleep(sleep) = waiter.next(task) else { panic!("nothing has come") };
        task.take_sleeper_for_another();
        have_sent();
        // The other thread takes the message in, and leaves the task armed for `select`.
        while task.progress() == 0 {}
        task.arm();
        let start = Instant::now();
        let by = sleep.sleep();
        assert!(start.elapsed() < Duration::from_secs(2));
        waiter.woke(task, by);
        assert!(task.receive(&task.filter(ANY, 2)).is_some());
        waiter.finish(task);
    });
}

#[test]
fn a_session_sends_receives_waits_and_sends_requests() {
    let daemon = Running::start();
    let mut session = Session::enroll(&daemon.environment()).unwrap();
    assert_eq!(session.request(Request::NewContext), Ok(Reply::Int(0x40001)));
    assert_eq!(session.request(Request::Config), Err(Code::NotImpl));
    let own = session.tid();
    session.send(own, 3, 4, b"body").unwrap();
    let any = Filter { src: ANY, tag: ANY, ctx: ANY };
    let received = session.recv(any, Some(LONG)).unwrap().unwrap();
    assert_eq!((received.src, received.ctx, received.tag, &received.body[..]), (own, 3, 4, &b"body"[..]));
    assert_eq!(session.recv(any, Some(Duration::ZERO)), Ok(None));
    assert_eq!(session.recv(any, Some(Duration::from_millis(30))), Ok(None));
    session.wait(&[], Some(Duration::from_millis(1)));
    let (read, write) = rustix::pipe::pipe().unwrap();
    drop(write);
    use std::os::fd::AsFd;
    assert_eq!(session.wait(&[read.as_fd()], Some(LONG)), [true]);
    session.leave().unwrap();
}
