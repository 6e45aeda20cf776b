//! Messages for handlers: those of the program and those of the library.
use crate::daemon::Running;
use crate::{enroll, int, psend, receive, send, two, wait};
use pvm_core::codes::{Code, DATA_DEFAULT, SYSCTX_TC, TC_FIRST};
use pvm_core::proto::Request;
use pvm_task::{ANY, Filter, Kind, Task};

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
