//! Tasks that exchange messages: real sockets, real shared memory, a small daemon.
#![forbid(unsafe_code)]

mod daemon;

use daemon::Running;
use pvm_core::codes::{Code, DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW, SYSCTX_TC, TC_FIRST};
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::Tid;
use pvm_task::{
    ANY, Delivered, FastSend, Filter, FmpFound, FmpReceived, FmpSide, Kind, Session, Source, Step, Submit, Task, Waiter,
};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(120);

/// Calls `attempt` until it returns a value.
fn wait<T>(task: &mut Task, attempt: impl FnMut(&mut Task) -> Option<T>) -> T {
    wait_for(task, LONG, attempt).expect("in time")
}

fn wait_for<T>(task: &mut Task, timeout: Duration, mut attempt: impl FnMut(&mut Task) -> Option<T>) -> Option<T> {
    let mut waiter = Waiter::new(Some(timeout));
    loop {
        task.progress();
        if let Some(result) = attempt(task) {
            waiter.finish(task);
            return Some(result);
        }
        match waiter.next(task) {
            Step::Again => {}
            Step::Sleep(sleep) => {
                let by = sleep.sleep();
                waiter.woke(task, by);
            }
            Step::Join(_) => panic!("one thread only"),
            Step::TimedOut => {
                waiter.finish(task);
                return None;
            }
        }
    }
}

fn receive(task: &mut Task, src: i32, tag: i32) -> i32 {
    let filter = task.filter(src, tag);
    wait(task, |task| task.receive(&filter))
}

fn send(task: &mut Task, to: i32, tag: i32) {
    wait(task, |task| (task.send(to, tag).unwrap() == Submit::Done).then_some(()));
}

fn psend(task: &mut Task, to: i32, tag: i32, body: &[u8]) {
    wait(task, |task| (task.psend(to, tag, body).unwrap() == Submit::Done).then_some(()));
}

fn precv(task: &mut Task, src: i32, tag: i32, data: &mut [u8]) -> Delivered {
    let filter = task.filter(src, tag);
    task.begin_precv(&filter, data.len());
    let delivered = wait(task, |task| task.try_precv(&filter, Kind::Byte, data));
    task.end_precv();
    delivered
}

fn int(task: &mut Task) -> i32 {
    let mut word = [0; 4];
    task.unpack(Kind::Int, &mut word).unwrap();
    i32::from_ne_bytes(word)
}

fn enroll(daemon: &Running) -> Task {
    let environment = daemon.environment();
    let mut task = Task::new(&environment);
    task.enroll(&environment).unwrap();
    task
}

/// Runs `other` as a second task in a thread of its own, and `one` in this thread; each gets the tid of the other.
fn two(daemon: &Running, one: impl FnOnce(&mut Task, i32), other: impl FnOnce(&mut Task, i32) + Send) {
    let mut task = enroll(daemon);
    let own = task.tid().unwrap().0 as i32;
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut task = enroll(daemon);
            sender.send(task.tid().unwrap().0 as i32).unwrap();
            other(&mut task, own);
        });
        one(&mut task, receiver.recv().unwrap());
    });
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

struct Piece(Vec<u8>);

impl Source for Piece {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn messages_of_every_size_and_encoding_arrive_in_order() {
    const SIZES: [usize; 10] = [0, 1, 4, 100, 504, 505, 5_000, 70_000, 1 << 20, 9 << 20];
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for (tag, size) in SIZES.into_iter().enumerate() {
                for encoding in [DATA_DEFAULT, DATA_RAW, DATA_IN_PLACE] {
                    task.init_send(encoding).unwrap();
                    let body = pattern(size);
                    match encoding {
                        DATA_IN_PLACE => task.pack_in_place(Box::new(Piece(body))).unwrap(),
                        _ => task.pack(Kind::Byte, &body).unwrap(),
                    }
                    send(task, peer, tag as i32);
                }
            }
            assert_eq!(receive(task, peer, 99), task.receive_buffer());
        },
        |task, peer| {
            for (tag, size) in SIZES.into_iter().enumerate() {
                for _ in 0..3 {
                    let mid = receive(task, ANY, ANY);
                    let info = task.message_info(mid).unwrap();
                    assert_eq!((info.src, info.tag), (peer, tag as i32));
                    let mut data = vec![0; size];
                    task.unpack(Kind::Byte, &mut data).unwrap();
                    assert_eq!(data, pattern(size));
                }
            }
            task.init_send(DATA_DEFAULT).unwrap();
            send(task, peer, 99);
        },
    );
}

#[test]
fn one_call_messages_of_every_size_go_into_the_receivers_memory() {
    const SIZES: [usize; 8] = [0, 8, 504, 505, 4096, 65_536, 1 << 20, 16 << 20];
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for round in 0..3 {
                for size in SIZES {
                    psend(task, peer, round, &pattern(size));
                    let mut answer = [0; 1];
                    let delivered = precv(task, peer, round, &mut answer);
                    assert_eq!(delivered.len, 1);
                }
            }
        },
        |task, peer| {
            for round in 0..3 {
                for size in SIZES {
                    let mut data = vec![0; size];
                    assert_eq!(
                        precv(task, peer, round, &mut data),
                        Delivered { src: peer, tag: round, wid: 0, len: size, failure: None }
                    );
                    assert_eq!(data, pattern(size));
                    psend(task, peer, round, b"x");
                }
            }
        },
    );
}

#[test]
fn a_one_call_receive_keeps_what_fits_and_tells_the_true_length() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for size in [100, 100_000, 3 << 20] {
                psend(task, peer, 1, &pattern(size));
                precv(task, peer, 2, &mut []);
            }
        },
        |task, peer| {
            for size in [100, 100_000, 3 << 20] {
                let mut data = vec![0xaa; size / 2 + 3];
                assert_eq!(precv(task, ANY, 1, &mut data).len, size);
                assert_eq!(data, pattern(size)[..size / 2 + 3]);
                psend(task, peer, 2, &[]);
            }
        },
    );
}

#[test]
fn a_task_sends_to_itself() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    for size in [4, 40_000] {
        task.init_send(DATA_RAW).unwrap();
        task.pack(Kind::Byte, &pattern(size)).unwrap();
        assert_eq!(task.send(own, 5), Ok(Submit::Done));
        receive(&mut task, own, 5);
        let mut data = vec![0; size];
        task.unpack(Kind::Byte, &mut data).unwrap();
        assert_eq!(data, pattern(size));
    }
    assert_eq!(task.psend(own, 6, b"hello"), Ok(Submit::Done));
    let mut data = [0; 5];
    assert_eq!(precv(&mut task, ANY, 6, &mut data), Delivered { src: own, tag: 6, wid: 0, len: 5, failure: None });
    assert_eq!(&data, b"hello");
    assert_eq!(task.multicast(&[own, own], 7), Ok(Submit::Done));
    let filter = task.filter(ANY, 7);
    assert_eq!(task.receive(&filter), None, "a multicast skips the caller");
}

#[test]
fn a_message_to_no_task_is_dropped_and_bad_arguments_are_refused() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    assert_eq!(task.send(0x40077, 1), Err(Code::NoBuf));
    task.init_send(DATA_DEFAULT).unwrap();
    assert_eq!(task.send(0x40077, 1), Ok(Submit::Done), "nobody there");
    send(&mut task, 0x80001, 1);
    assert_eq!(task.send(0x40000, 1), Err(Code::BadParam), "a host");
    assert_eq!(task.send(0x80000000_u32 as i32, 1), Err(Code::BadParam));
    assert_eq!(task.send(0x40001, -3), Err(Code::BadParam));
    assert_eq!(task.multicast(&[0x40077, 0], 1), Err(Code::BadParam));
    assert_eq!(task.psend(0, 1, b""), Err(Code::BadParam));
    assert_eq!(task.send(-1111, -2222), Ok(Submit::Done), "a trace event");
    task.set_option(pvm_task::OptionNumber::ResvTids as i32, 1).unwrap();
    task.pack(Kind::Int, &5i32.to_ne_bytes()).unwrap();
    assert_eq!(task.send(0x80000000_u32 as i32, -9), Ok(Submit::Done));
    receive(&mut task, Tid::DAEMON.0 as i32, -9);
    assert_eq!(int(&mut task), 5);
}

#[test]
fn a_multicast_reaches_every_other_task_once() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..5 {
            let (sender, daemon) = (sender.clone(), &daemon);
            scope.spawn(move || {
                let mut task = enroll(daemon);
                sender.send(task.tid().unwrap().0 as i32).unwrap();
                for tag in 0..2 {
                    receive(&mut task, own, tag);
                    let mut data = vec![0; 100_000];
                    task.unpack(Kind::Double, &mut data).unwrap();
                    assert_eq!(data, pattern(100_000));
                }
                receive(&mut task, own, 9);
                let filter = task.filter(ANY, ANY);
                assert_eq!(task.receive(&filter), None);
            });
        }
        let mut tids: Vec<i32> = (0..5).map(|_| receiver.recv().unwrap()).collect();
        tids.extend_from_slice(&[own, tids[0], 0x40088]);
        task.init_send(DATA_DEFAULT).unwrap();
        task.pack(Kind::Double, &pattern(100_000)).unwrap();
        for tag in [0, 1, 9] {
            wait(&mut task, |task| (task.multicast(&tids, tag).unwrap() == Submit::Done).then_some(()));
        }
    });
}

#[test]
fn a_forwarded_message_keeps_its_body() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for size in [8, 200_000] {
                task.init_send(DATA_RAW).unwrap();
                task.pack(Kind::Byte, &pattern(size)).unwrap();
                send(task, peer, 1);
                receive(task, peer, 2);
                let mut data = vec![0; size + 4];
                task.unpack(Kind::Byte, &mut data).unwrap();
                assert_eq!(data[..size], pattern(size));
                assert_eq!(data[size..], 7i32.to_ne_bytes(), "appended on the way");
            }
        },
        |task, peer| {
            for _ in 0..2 {
                let mid = receive(task, peer, 1);
                task.set_send_buffer(mid).unwrap();
                assert_eq!(task.receive_buffer(), 0);
                task.pack(Kind::Int, &7i32.to_ne_bytes()).unwrap();
                send(task, peer, 2);
            }
        },
    );
}

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
fn a_handler_takes_its_messages_and_the_caller_finds_its_buffers_again() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            let handler = task.add_handler(ANY, 50, ANY, 1234).unwrap();
            assert_eq!(handler, 9, "after those of the library");
            assert_eq!(task.add_handler(peer, 50, 0, 1), Err(Code::Exists));
            assert_eq!(task.add_handler(ANY, ANY, ANY, 1), Err(Code::Exists));
            let send_mid = task.init_send(DATA_DEFAULT).unwrap();
            send(task, peer, 1);
            let call = wait(task, Task::next_handler_call);
            assert_eq!((call.handler, call.function), (9, 1234));
            assert!(task.in_handler());
            assert_eq!((task.send_buffer(), task.receive_buffer()), (0, call.mid));
            assert_eq!(task.context(), 7);
            assert_eq!(int(task), 42);
            assert_eq!(task.begin(Request::NewContext), Err(Code::NotImpl));
            task.init_send(DATA_DEFAULT).unwrap();
            send(task, peer, 2);
            task.handler_done();
            assert_eq!((task.send_buffer(), task.receive_buffer(), task.context()), (send_mid, 0, 0));
            assert_eq!(task.message_info(call.mid), Err(Code::NoSuchBuf));
            receive(task, peer, 51);
            let filter = Filter { src: ANY, tag: 50, ctx: ANY };
            assert_eq!(task.receive(&filter), None);
            task.delete_handler(handler).unwrap();
            assert_eq!(task.delete_handler(handler), Err(Code::NotFound));
        },
        |task, peer| {
            receive(task, peer, 1);
            task.init_send(DATA_DEFAULT).unwrap();
            task.pack(Kind::Int, &42i32.to_ne_bytes()).unwrap();
            task.set_context(7);
            send(task, peer, 50);
            receive(task, peer, 2);
            task.set_context(0);
            send(task, peer, 51);
        },
    );
}

#[test]
fn a_message_goes_to_the_handlers_that_exist_when_it_becomes_visible() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    let first = task.add_handler(ANY, 5, ANY, 1).unwrap();
    for tag in [5, 5, 6, 7] {
        psend(&mut task, own, tag, b"body");
    }
    task.reveal_all();
    let call = task.next_handler_call().unwrap();
    assert_eq!(call.function, 1);
    task.delete_handler(first).unwrap();
    task.add_handler(ANY, 6, ANY, 2).unwrap();
    psend(&mut task, own, 8, b"body");
    task.reveal_all();
    assert!(task.queued().count() == 0 && task.next_handler_call().is_none());
    task.handler_done();
    assert_eq!(task.next_handler_call().unwrap().function, 2);
    task.handler_done();
    assert!(task.next_handler_call().is_none());
    // The handler for the second message with tag 5 has been deleted.
    assert_eq!(task.queued().map(|(_, _, tag)| tag).collect::<Vec<_>>(), [5, 7, 8]);
    psend(&mut task, own, 9, b"body");
    task.reveal_all();
    assert_eq!(task.queued().count(), 4);
}

/// Polls with calls that do not wait, after several senders have sent the same number of messages: all senders have
/// their turn.
#[test]
fn polling_takes_a_message_at_a_time_and_is_fair_to_all_senders() {
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
    for sender in &mut senders {
        for place in 0..EACH {
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
    let least = counts.iter().map(|[first, second]| first + second).min();
    assert!(least >= Some(EACH as i32 / 16), "{counts:?}");
}

#[test]
fn a_body_longer_than_an_int_can_count_is_not_sent() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            let (own, most) = (task.tid().unwrap().0 as i32, i32::MAX as usize);
            psend(task, peer, 2, b"hello");
            // The pages of this body are never accessed.
            let long = vec![0; most + 1];
            for to in [peer, own] {
                assert_eq!(task.psend(to, 1, &long), Err(Code::NoMem));
                task.init_send(DATA_IN_PLACE).unwrap();
                for _ in 0..2 {
                    task.pack_in_place(Box::new(Piece(vec![0; most / 2 + 1]))).unwrap();
                }
                assert_eq!(task.send(to, 1), Err(Code::NoMem));
            }
            psend(task, peer, 2, b"short");
        },
        |task, peer| {
            for _ in 0..2 {
                assert_eq!(precv(task, peer, ANY, &mut [0; 5]).tag, 2);
            }
        },
    );
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

#[test]
fn a_notify_of_the_own_exit_reaches_handlers_when_the_task_leaves() {
    let daemon = Running::start();
    let mut task = enroll(&daemon);
    let own = task.tid().unwrap().0 as i32;
    task.add_handler(ANY, 60, 0, 1).unwrap();
    assert_eq!(task.notify(1, 60, 1, &[own]), Ok(None));
    task.begin_leave();
    assert_eq!(task.next_handler_call().map(|call| call.function), Some(1));
    assert_eq!(int(&mut task), own);
    task.handler_done();
    task.leave().unwrap();
}

#[test]
fn settings_come_by_system_messages() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            receive(task, peer, 1);
            assert_eq!(&task.own_settings().mask[..], b"mask");
        },
        |task, peer| {
            task.set_option(pvm_task::OptionNumber::ResvTids as i32, 1).unwrap();
            task.init_send(DATA_DEFAULT).unwrap();
            task.pack_string(b"mask").unwrap();
            task.set_context(SYSCTX_TC);
            send(task, peer, TC_FIRST + 6);
            task.set_context(0);
            send(task, peer, 1);
        },
    );
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
fn immediate_messages_keep_their_order_on_every_path() {
    const COUNT: i32 = 20_000;
    let daemon = Running::start();
    let numbers = |index: i32| (1 + index % 4) as usize;
    two(
        &daemon,
        |task, peer| {
            let mut fast = 0;
            for index in 0..COUNT {
                let words = index.to_ne_bytes().repeat(numbers(index));
                if index % 3 == 0 {
                    match task.psend_fast(peer, index % 7, &words) {
                        FastSend::NotDone => psend(task, peer, index % 7, &words),
                        FastSend::Done => fast += 1,
                        FastSend::Wake => task.wake(peer as u32),
                    }
                    continue;
                }
                let encoding = if index % 2 == 0 { DATA_DEFAULT } else { DATA_RAW };
                if task.init_send_fast(encoding).is_none() {
                    task.init_send(encoding).unwrap();
                }
                if !task.pack_fast(Kind::Int, &words) {
                    task.pack(Kind::Int, &words).unwrap();
                }
                match task.send_fast(peer, index % 7) {
                    FastSend::NotDone => send(task, peer, index % 7),
                    FastSend::Done => fast += 1,
                    FastSend::Wake => task.wake(peer as u32),
                }
            }
            receive(task, peer, 99);
            assert!(fast > 0, "some take the fast path");
        },
        |task, peer| {
            for index in 0..COUNT {
                let (mut words, tag) = (index.to_ne_bytes().repeat(numbers(index)), index % 7);
                let expected = words.clone();
                words.fill(0);
                let filter = task.filter(peer, ANY);
                if index % 5 == 0 {
                    let fast = task.precv_fast(&filter, &mut words);
                    let delivered = fast.unwrap_or_else(|| precv(task, peer, ANY, &mut words));
                    assert_eq!(delivered, Delivered { src: peer, tag, wid: 0, len: words.len(), failure: None });
                } else {
                    let fast = task.receive_fast(&filter);
                    let mid = fast.unwrap_or_else(|| receive(task, peer, ANY));
                    let info = task.message_info(mid).unwrap();
                    assert_eq!((info.src, info.tag, info.len), (peer, tag, words.len() as i32));
                    assert_eq!((mid, Some(info.dst)), (task.receive_buffer(), task.tid().map(|tid| tid.0 as i32)));
                    if !task.unpack_fast(Kind::Int, &mut words) {
                        task.unpack(Kind::Int, &mut words).unwrap();
                    }
                }
                assert_eq!(words, expected);
            }
            task.init_send(DATA_DEFAULT).unwrap();
            send(task, peer, 99);
        },
    );
}

/// Begins a wait, and continues it up to the point from which senders ring the task's doorbell.
fn about_to_sleep(task: &mut Task) -> Waiter {
    let mut waiter = Waiter::new(Some(LONG));
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

fn fmp_send(task: &mut Task, to: i32, tag: i32, body: &[u8]) {
    wait(task, |task| (task.fmp_send(to, tag, body).unwrap() == Submit::Done).then_some(()));
}

fn fmp_receive(task: &mut Task, source: i32, tag: i32, room: &mut [u8]) -> FmpReceived {
    let filter = Task::fmp_filter(source, tag).unwrap();
    task.begin_precv(&filter, room.len());
    let mut waiter = Waiter::new(Some(LONG));
    let received = loop {
        if let Some(received) = task.try_fmp_receive(&filter, room) {
            break received;
        }
        match waiter.next(task) {
            Step::Again => {}
            Step::Sleep(sleep) => {
                let by = sleep.sleep();
                waiter.woke(task, by);
            }
            Step::Join(_) | Step::TimedOut => panic!("late"),
        }
    };
    waiter.finish(task);
    task.end_precv();
    received
}

#[test]
fn messages_of_fmp_of_every_size_arrive_in_order_and_whole() {
    const SIZES: [usize; 11] = [0, 1, 4, 8, 16, 17, 504, 505, 70_000, 1 << 20, 9 << 20];
    const ROUNDS: usize = 3;
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            for _ in 0..ROUNDS {
                for (tag, size) in SIZES.into_iter().enumerate() {
                    fmp_send(task, peer, tag as i32, &pattern(size));
                    psend(task, peer, tag as i32, b"of PVM");
                }
            }
            fmp_receive(task, peer, 99, &mut []);
        },
        |task, peer| {
            for round in 0..ROUNDS {
                for (tag, size) in SIZES.into_iter().enumerate() {
                    let found = FmpFound { source: peer, tag: tag as i32, bytes: size };
                    if round == 1 && size > 0 {
                        let mut short = vec![0; size - 1];
                        assert_eq!(fmp_receive(task, ANY, ANY, &mut short), FmpReceived::TooLong(found));
                        assert!(short.iter().all(|byte| *byte == 0));
                    }
                    if round == 2 {
                        let filter = Task::fmp_filter(ANY, ANY).unwrap();
                        assert_eq!(wait(task, |task| task.fmp_probe(&filter, FmpSide::Local)), found);
                        assert_eq!(task.fmp_probe(&filter, FmpSide::Network), None);
                    }
                    let mut room = vec![0; size + 9];
                    assert_eq!(fmp_receive(task, ANY, ANY, &mut room), FmpReceived::Whole(found));
                    assert_eq!(room[..size], pattern(size));
                }
            }
            for (tag, _) in SIZES.into_iter().enumerate().cycle().take(ROUNDS * SIZES.len()) {
                let mut text = [0; 6];
                assert_eq!(precv(task, ANY, ANY, &mut text).tag, tag as i32);
                assert_eq!(&text, b"of PVM");
            }
            fmp_send(task, peer, 99, &[]);
        },
    );
}

#[test]
fn a_message_of_fmp_does_not_pass_a_message_for_a_handler_by() {
    let daemon = Running::start();
    two(
        &daemon,
        |task, peer| {
            psend(task, peer, 50, b"");
            fmp_send(task, peer, 1, &pattern(600));
            fmp_receive(task, peer, 2, &mut []);
        },
        |task, peer| {
            task.add_handler(ANY, 50, ANY, 7).unwrap();
            assert!(matches!(fmp_receive(task, peer, 1, &mut [0; 600]), FmpReceived::Whole(_)));
            assert_eq!(task.next_handler_call().unwrap().function, 7);
            task.handler_done();
            fmp_send(task, peer, 2, &[]);
        },
    );
}
