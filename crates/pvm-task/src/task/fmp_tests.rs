use super::*;
use crate::Environment;
use crate::envelope::Envelope;
use crate::test_daemon::enrolled;

const OWN: i32 = 0x40001;
const NEAR: i32 = 0x40002;
const FAR: i32 = 0x80001;

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

fn comes(task: &mut Task, src: i32, tag: i32, ctx: i32, bytes: usize) {
    let envelope = Envelope { src, dst: OWN, ctx, tag, wid: 0, enc: OWN_DSIG, format: OWN_DSIG };
    task.state.on_message_bytes(envelope, vec![tag as u8; bytes]);
}

fn any() -> Filter {
    Task::fmp_filter(ANY, ANY).unwrap()
}

fn found(source: i32, tag: i32, bytes: usize) -> FmpFound {
    FmpFound { source, tag, bytes }
}

#[test]
fn messages_of_fmp_and_of_pvm_do_not_mix() {
    let (mut task, _daemon) = enrolled(Tid(OWN as u32));
    comes(&mut task, NEAR, 1, FMP_CONTEXT, 4);
    comes(&mut task, NEAR, 1, 0, 8);
    for ctx in [0, ANY] {
        let of_pvm = task.probe(&Filter { src: ANY, tag: ANY, ctx }).unwrap();
        assert_eq!(task.message_info(of_pvm).unwrap().len, 8);
    }
    let mut room = [0; 16];
    assert_eq!(task.try_fmp_receive(&any(), &mut room), Some(FmpReceived::Whole(found(NEAR, 1, 4))));
    assert_eq!(room[..5], [1, 1, 1, 1, 0]);
    assert_eq!(task.try_fmp_receive(&any(), &mut room), None);
    assert!(task.receive(&task.filter(NEAR, 1)).is_some());
}

#[test]
fn a_call_of_pvm_that_does_not_wait_passes_over_messages_of_fmp() {
    let mut task = task();
    comes(&mut task, NEAR, 1, FMP_CONTEXT, 0);
    comes(&mut task, NEAR, 2, FMP_CONTEXT, 0);
    comes(&mut task, NEAR, 3, 0, 0);
    comes(&mut task, NEAR, 4, FMP_CONTEXT, 0);
    comes(&mut task, NEAR, 5, 0, 0);
    let filter = |tag| Filter { src: ANY, tag, ctx: 0 };
    assert!(task.receive_at_once(&filter(5)).is_none(), "one message a look");
    assert!(task.receive_at_once(&filter(3)).is_some());
    assert!(task.receive_at_once(&filter(5)).is_some());
    assert!(task.reveal_one().is_none());
}

#[test]
fn a_message_that_is_too_long_stays_the_next_one() {
    let (mut task, _daemon) = enrolled(Tid(OWN as u32));
    comes(&mut task, NEAR, 1, FMP_CONTEXT, 9);
    comes(&mut task, NEAR, 2, FMP_CONTEXT, 3);
    let mut room = [0; 8];
    for _ in 0..2 {
        assert_eq!(task.try_fmp_receive(&any(), &mut room), Some(FmpReceived::TooLong(found(NEAR, 1, 9))));
        assert_eq!(room, [0; 8]);
    }
    assert_eq!(task.try_fmp_receive(&any(), &mut [0; 9]), Some(FmpReceived::Whole(found(NEAR, 1, 9))));
    assert_eq!(task.try_fmp_receive(&any(), &mut room), Some(FmpReceived::Whole(found(NEAR, 2, 3))));
}

#[test]
fn a_probe_finds_the_oldest_message_of_its_side_also_in_a_long_queue() {
    let (mut task, _daemon) = enrolled(Tid(OWN as u32));
    for ordinary in 0..200 {
        comes(&mut task, NEAR, ordinary, 0, 0);
    }
    for (source, tag) in [(NEAR, 1), (FAR, 2), (FAR, 1), (OWN, 3)] {
        comes(&mut task, source, tag, FMP_CONTEXT, tag as usize);
    }
    let mut probe = |source, tag, side| {
        let filter = Task::fmp_filter(source, tag).unwrap();
        task.fmp_probe(&filter, side).map(|found| (found.source, found.tag))
    };
    assert_eq!(probe(ANY, ANY, FmpSide::Local), Some((NEAR, 1)));
    assert_eq!(probe(ANY, ANY, FmpSide::Network), Some((FAR, 2)));
    assert_eq!(probe(ANY, 1, FmpSide::Network), Some((FAR, 1)));
    assert_eq!(probe(FAR, 1, FmpSide::Local), None);
    assert_eq!(probe(NEAR, ANY, FmpSide::Network), None);
    assert_eq!(probe(ANY, 3, FmpSide::Local), Some((OWN, 3)));
    assert_eq!(probe(ANY, 9, FmpSide::Local), None);
    assert_eq!(probe(OWN, 3, FmpSide::Local), Some((OWN, 3)), "a probe receives nothing");
}

#[test]
fn only_tids_of_tasks_and_tags_from_0_on_are_accepted() {
    let (mut task, _daemon) = enrolled(Tid(OWN as u32));
    let server = Tid::group_server(Tid(OWN as u32)).0 as i32;
    for no_task in [0, ANY, 0x40000, i32::MIN, 0x4000_0001, server] {
        assert_eq!(task.fmp_send(no_task, 1, b"x"), Err(Code::BadParam), "{no_task:x}");
        assert_eq!(Task::fmp_filter(no_task, 1).is_err(), no_task != ANY);
    }
    assert_eq!(task.fmp_send(NEAR, -1, b"x"), Err(Code::BadParam));
    assert!(Task::fmp_filter(NEAR, -2).is_err() && Task::fmp_filter(NEAR, ANY).is_ok());
}
