//! Messages of FMP, the layer below PVM's messages.
use crate::daemon::Running;
use crate::{LONG, pattern, precv, psend, two, wait};
use pvm_core::state_line::Call;
use pvm_task::{ANY, FmpFound, FmpReceived, FmpSide, Step, Submit, Task, Waiter};

fn fmp_send(task: &mut Task, to: i32, tag: i32, body: &[u8]) {
    wait(task, |task| (task.fmp_send(to, tag, body).unwrap() == Submit::Done).then_some(()));
}

fn fmp_receive(task: &mut Task, source: i32, tag: i32, room: &mut [u8]) -> FmpReceived {
    let filter = Task::fmp_filter(source, tag).unwrap();
    task.begin_precv(&filter, room.len());
    let mut waiter = Waiter::new(Call::Pause, Some(LONG));
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
