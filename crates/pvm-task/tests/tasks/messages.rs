//! Messages of every size and encoding between two tasks, from a task to itself, to many, and to nobody.
use crate::daemon::Running;
use crate::{Piece, enroll, int, pattern, precv, psend, receive, send, two, wait};
use pvm_core::codes::{Code, DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW};
use pvm_core::tid::Tid;
use pvm_task::{ANY, Delivered, FastSend, Kind, Submit};
use std::sync::mpsc;

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
