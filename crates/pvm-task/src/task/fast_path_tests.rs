use super::*;
use crate::{Environment, MessageInfo};
use pvm_core::codes::{DATA_IN_PLACE, DATA_TRACE};

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

/// Takes the fast path, or else the ordinary one.
fn init_send(task: &mut Task, encoding: i32) -> i32 {
    task.init_send_fast(encoding).unwrap_or_else(|| task.init_send(encoding).unwrap())
}

fn pack(task: &mut Task, kind: Kind, items: &[u8]) {
    if !task.pack_fast(kind, items) {
        task.pack(kind, items).unwrap();
    }
}

/// Takes the fast path, or else the ordinary one. Returns whether the call succeeded.
fn unpack(task: &mut Task, kind: Kind, items: &mut [u8]) -> bool {
    task.unpack_fast(kind, items) || task.unpack(kind, items).is_ok()
}

const KINDS: [Kind; 6] = [Kind::Byte, Kind::Short, Kind::Int, Kind::Double, Kind::Dcplx, Kind::Ushort];

#[test]
fn both_paths_pack_and_unpack_alike() {
    for encoding in [DATA_DEFAULT, DATA_RAW] {
        for (kind, bytes) in KINDS.into_iter().flat_map(|kind| (0..=48).map(move |bytes| (kind, bytes))) {
            let items: Vec<u8> = (0..bytes / kind.size() * kind.size()).map(|at| at as u8 + 1).collect();
            let (mut one, mut other) = (task(), task());
            for round in 0..20 {
                let mid = init_send(&mut one, encoding);
                assert_eq!(mid, other.init_send(encoding).unwrap());
                for _ in 0..round {
                    pack(&mut one, kind, &items);
                    other.pack(kind, &items).unwrap();
                }
                assert_eq!(one.message_info(mid), other.message_info(mid));
                assert_eq!(one.export_message(mid).unwrap().body, other.export_message(mid).unwrap().body);
            }
            for task in [&mut one, &mut other] {
                let mid = task.send_buffer();
                task.set_receive_buffer(mid).unwrap();
            }
            for _ in 0..21 {
                let (mut fast, mut ordinary) = (vec![0; items.len()], vec![0; items.len()]);
                let well = other.unpack(kind, &mut ordinary).is_ok();
                assert_eq!(unpack(&mut one, kind, &mut fast), well);
                assert_eq!(fast, ordinary);
            }
        }
    }
}

#[test]
fn the_fast_path_is_taken_for_numbers() {
    let mut task = task();
    assert_eq!(task.init_send_fast(DATA_RAW), None);
    let mid = task.init_send(DATA_RAW).unwrap();
    task.pack(Kind::Double, &[1; 8]).unwrap();
    for encoding in [DATA_DEFAULT, DATA_RAW] {
        assert_eq!(task.init_send_fast(encoding), Some(mid));
        assert!(task.pack_fast(Kind::Int, &[1; 4]));
    }
    assert!(!task.unpack_fast(Kind::Int, &mut [0; 4]));
    task.set_receive_buffer(mid).unwrap();
    assert!(task.unpack_fast(Kind::Int, &mut [0; 4]));
    assert!(!task.unpack_fast(Kind::Int, &mut [0; 4]));
}

#[test]
fn a_short_message_that_grows_long_takes_the_ordinary_path() {
    let mut task = task();
    let mid = task.init_send(DATA_RAW).unwrap();
    for count in 1..=200 {
        pack(&mut task, Kind::Double, &[count; 8]);
    }
    assert_eq!(task.message_info(mid).unwrap().len, 1600);
    assert_eq!(task.init_send_fast(DATA_RAW), None);
    assert_eq!(init_send(&mut task, DATA_RAW), mid);
    assert_eq!(task.message_info(mid).unwrap().len, 0);
}

#[test]
fn a_buffer_that_was_something_else_becomes_an_empty_one() {
    for encoding in [DATA_DEFAULT, DATA_RAW, DATA_IN_PLACE, DATA_TRACE] {
        let mut task = task();
        let mid = task.init_send(encoding).unwrap();
        let strange = MessageInfo { ctx: 5, tag: 6, wid: 7, src: 8, dst: 9, ..Default::default() };
        task.set_message_info(mid, &strange).unwrap();
        assert_eq!(init_send(&mut task, DATA_RAW), mid);
        let expected = MessageInfo { enc: OWN_DSIG, ..Default::default() };
        assert_eq!(task.message_info(mid), Ok(expected));
        for (ctx, tag, dst) in [(5, 0, 0), (0, 6, 0), (0, 0, 9)] {
            task.set_message_info(mid, &MessageInfo { ctx, tag, dst, ..Default::default() }).unwrap();
            assert_eq!(task.init_send_fast(DATA_RAW), Some(mid));
            assert_eq!(task.message_info(mid), Ok(expected));
        }
    }
}
