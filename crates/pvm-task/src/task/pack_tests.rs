use super::*;
use crate::{Environment, MessageInfo};
use pvm_core::codes::{DATA_DEFAULT, DATA_IN_PLACE, DATA_RAW, ENC_XDR};
use pvm_fmp::INLINE_BYTES_MAX;

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

/// Makes the send buffer the receive buffer.
fn swap_roles(task: &mut Task) {
    let mid = task.send_buffer();
    task.set_receive_buffer(mid).unwrap();
}

fn length(task: &Task, mid: i32) -> i32 {
    task.message_info(mid).unwrap().len
}

#[test]
fn encoded_sizes_are_those_of_the_contract() {
    let sizes = [
        (Kind::Byte, 3, 4, 3),
        (Kind::Byte, 4, 4, 4),
        (Kind::Short, 3, 12, 6),
        (Kind::Ushort, 1, 4, 2),
        (Kind::Int, 2, 8, 8),
        (Kind::Float, 2, 8, 8),
        (Kind::Long, 2, 16, 16),
        (Kind::Double, 1, 8, 8),
        (Kind::Cplx, 1, 8, 8),
        (Kind::Dcplx, 1, 16, 16),
    ];
    let mut task = task();
    for (kind, count, default, raw) in sizes {
        for (encoding, expected) in [(DATA_DEFAULT, default), (DATA_RAW, raw)] {
            let mid = task.init_send(encoding).unwrap();
            task.pack(kind, &vec![1; count * kind.size()]).unwrap();
            assert_eq!(length(&task, mid), expected, "{kind:?} {encoding}");
        }
    }
    for (encoding, expected) in [(DATA_DEFAULT, 12), (DATA_RAW, 9)] {
        let mid = task.init_send(encoding).unwrap();
        task.pack_string(b"four").unwrap();
        assert_eq!(length(&task, mid), expected);
    }
}

#[test]
fn what_is_packed_is_unpacked_in_every_kind_with_and_without_gaps() {
    let kinds = [
        Kind::Byte,
        Kind::Short,
        Kind::Ushort,
        Kind::Int,
        Kind::Uint,
        Kind::Long,
        Kind::Ulong,
        Kind::Float,
        Kind::Double,
        Kind::Cplx,
        Kind::Dcplx,
    ];
    let mut task = task();
    for encoding in [DATA_DEFAULT, DATA_RAW] {
        for kind in kinds {
            for count in [0, 1, 7, 400, 9000] {
                let items: Vec<u8> = (0..count * kind.size()).map(|at| (at * 13 + at / 255) as u8).collect();
                task.init_send(encoding).unwrap();
                task.pack(kind, &items).unwrap();
                let size = kind.size();
                task.pack_with(kind, count, &mut |first, room| {
                    room.copy_from_slice(&items[first * size..first * size + room.len()])
                })
                .unwrap();
                swap_roles(&mut task);
                let mut back = vec![0; items.len()];
                task.unpack_with(kind, count, &mut |first, part| {
                    back[first * size..first * size + part.len()].copy_from_slice(part)
                })
                .unwrap();
                assert_eq!(back, items);
                back.fill(0);
                task.unpack(kind, &mut back).unwrap();
                assert_eq!(back, items);
                assert_eq!(task.unpack(kind, &mut vec![0; size]), Err(Code::NoData));
            }
        }
    }
}

#[test]
fn unpacking_past_the_end_stores_what_is_there() {
    let mut task = task();
    task.init_send(DATA_RAW).unwrap();
    task.pack(Kind::Byte, b"abcdef").unwrap();
    swap_roles(&mut task);
    let mut items = [0xff; 12];
    assert_eq!(task.unpack(Kind::Int, &mut items), Err(Code::NoData));
    assert_eq!(&items, b"abcdef\xff\xff\xff\xff\xff\xff");
    assert_eq!(task.unpack(Kind::Byte, &mut items[..1]), Err(Code::NoData));
    task.init_send(DATA_DEFAULT).unwrap();
    task.pack(Kind::Byte, b"abc").unwrap();
    task.pack(Kind::Byte, b"def").unwrap();
    swap_roles(&mut task);
    let mut items = [0; 6];
    task.unpack(Kind::Byte, &mut items).unwrap();
    assert_eq!(&items, b"abc\0de", "each pack call pads for itself");
    assert_eq!(task.unpack(Kind::Byte, &mut items), Err(Code::NoData));
}

#[test]
fn strings_come_back_and_bad_lengths_are_refused() {
    let mut task = task();
    for encoding in [DATA_DEFAULT, DATA_RAW] {
        task.init_send(encoding).unwrap();
        for text in [&b""[..], b"abc", &[b'x'; 5000]] {
            task.pack_string(text).unwrap();
        }
        task.pack(Kind::Int, &1i32.to_ne_bytes()).unwrap();
        swap_roles(&mut task);
        for text in [&b""[..], b"abc", &[b'x'; 5000]] {
            let mut back = vec![1; task.string_bytes().unwrap()];
            task.unpack_string(&mut back).unwrap();
            assert_eq!(back, [text, b"\0"].concat());
        }
        assert_eq!(task.string_bytes(), Err(Code::NoData));
        assert_eq!(task.string_bytes(), Err(Code::NoData));
    }
    task.init_send(DATA_IN_PLACE).unwrap();
    assert_eq!(task.pack_string(b"a"), Err(Code::NotImpl));
    assert_eq!(task.pack(Kind::Int, &[0; 4]), Err(Code::NotImpl));
    assert_eq!(task.pack_with(Kind::Int, 2, &mut |_, _| ()), Err(Code::NotImpl));
}

#[test]
fn a_string_of_negative_length_is_empty() {
    let mut task = task();
    task.init_send(DATA_DEFAULT).unwrap();
    task.pack(Kind::Int, &[(-1i32).to_ne_bytes(), 7i32.to_ne_bytes()].concat()).unwrap();
    swap_roles(&mut task);
    assert_eq!((task.string_bytes(), task.unpack_string(&mut [])), (Ok(0), Ok(())));
    let mut next = [0; 4];
    task.unpack(Kind::Int, &mut next).unwrap();
    assert_eq!(next, 7i32.to_ne_bytes());
}

#[test]
fn foreign_raw_data_gives_bytes_only() {
    let mut task = task();
    let mid = task.init_send(DATA_RAW).unwrap();
    task.pack(Kind::Byte, b"12345678").unwrap();
    task.state.store.get_mut(mid).unwrap().enc = 0x1234;
    swap_roles(&mut task);
    assert_eq!(task.unpack(Kind::Int, &mut [0; 4]), Err(Code::BadMsg));
    assert_eq!(task.unpack_with(Kind::Double, 1, &mut |_, _| ()), Err(Code::BadMsg));
    assert_eq!(task.string_bytes(), Err(Code::BadMsg));
    let mut bytes = [0; 8];
    task.unpack(Kind::Byte, &mut bytes).unwrap();
    assert_eq!(&bytes, b"12345678");
}

#[test]
fn mids_are_recycled_and_roles_exclude_one_another() {
    let mut task = task();
    assert_eq!(task.pack(Kind::Int, &[0; 4]), Err(Code::NoBuf));
    assert_eq!(task.unpack(Kind::Int, &mut [0; 4]), Err(Code::NoBuf));
    let one = task.init_send(DATA_DEFAULT).unwrap();
    assert_eq!(task.init_send(DATA_RAW), Ok(one));
    assert_eq!(task.init_send(3), Err(Code::BadParam));
    assert_eq!(task.send_buffer(), one, "a bad encoding changes nothing");
    let two = task.make_buffer(DATA_DEFAULT).unwrap();
    assert_ne!(one, two);
    assert_eq!(task.set_receive_buffer(one), Ok(0));
    assert_eq!((task.send_buffer(), task.receive_buffer()), (0, one));
    assert_eq!(task.set_send_buffer(one), Ok(0));
    assert_eq!((task.send_buffer(), task.receive_buffer()), (one, 0));
    assert_eq!(task.set_send_buffer(0), Ok(one));
    assert_eq!(task.free_buffer(0), Ok(()));
    assert_eq!(task.free_buffer(-1), Err(Code::BadParam));
    assert_eq!(task.free_buffer(99), Err(Code::NoSuchBuf));
    task.free_buffer(one).unwrap();
    assert_eq!(task.free_buffer(one), Err(Code::NoSuchBuf));
    assert_eq!(task.set_send_buffer(one), Err(Code::NoSuchBuf));
    assert_eq!(task.set_receive_buffer(-4), Err(Code::BadParam));
    assert_eq!(task.make_buffer(DATA_RAW), Ok(one));
}

#[test]
fn a_received_buffer_grows_at_its_end() {
    let mut task = task();
    let mid = task.init_send(DATA_DEFAULT).unwrap();
    task.pack(Kind::Int, &7i32.to_ne_bytes()).unwrap();
    swap_roles(&mut task);
    task.unpack(Kind::Int, &mut [0; 4]).unwrap();
    task.set_send_buffer(mid).unwrap();
    task.pack(Kind::Int, &[0; INLINE_BYTES_MAX * 4]).unwrap();
    assert_eq!(length(&task, mid), 4 + 4 * INLINE_BYTES_MAX as i32);
}

#[test]
fn messages_travel_inside_messages() {
    let mut task = task();
    for encoding in [DATA_DEFAULT, DATA_RAW] {
        let inner = task.init_send(encoding).unwrap();
        task.pack(Kind::Int, &[5; 12]).unwrap();
        let info = MessageInfo { ctx: 3, tag: 4, wid: 5, src: 6, dst: 7, ..MessageInfo::default() };
        task.set_message_info(inner, &info).unwrap();
        let outer = task.make_buffer(encoding).unwrap();
        task.set_send_buffer(outer).unwrap();
        task.pack_message(inner).unwrap();
        assert_eq!(length(&task, outer), 32 + 4 + 12);
        assert_eq!(task.pack_message(outer), Err(Code::BadParam));
        assert_eq!(task.pack_message(0), Err(Code::BadParam));
        assert_eq!(task.pack_message(9999), Err(Code::NoSuchBuf));
        let empty = task.make_buffer(encoding).unwrap();
        task.pack_message(empty).unwrap();
        assert_eq!(length(&task, outer), 48 + 32);
        swap_roles(&mut task);
        let back = task.unpack_message().unwrap();
        let expected = MessageInfo { len: 12, enc: task.message_info(inner).unwrap().enc, ..info };
        assert_eq!(task.message_info(back), Ok(expected));
        let back = task.unpack_message().unwrap();
        assert_eq!(length(&task, back), 0);
        assert_eq!(task.unpack_message(), Err(Code::NoData));
    }
}

#[test]
fn a_body_is_appended_to_a_buffer_of_the_same_encoding() {
    let mut task = task();
    let inner = task.init_send(DATA_DEFAULT).unwrap();
    task.pack(Kind::Int, &[5; 12]).unwrap();
    let outer = task.make_buffer(DATA_RAW).unwrap();
    task.set_send_buffer(outer).unwrap();
    assert_eq!(task.pack_message_body(inner), Err(Code::Mismatch));
    let outer = task.init_send(DATA_DEFAULT).unwrap();
    task.pack_message_body(inner).unwrap();
    task.pack_message_body(inner).unwrap();
    assert_eq!(length(&task, outer), 24);
    assert_eq!(task.message_info(outer).unwrap().enc, ENC_XDR);
}

#[test]
fn in_place_data_are_read_when_they_are_stored() {
    struct Piece(Vec<u8>);
    impl Source for Piece {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    let mut task = task();
    let mid = task.init_send(DATA_IN_PLACE).unwrap();
    for _ in 0..100 {
        task.pack_in_place(Box::new(Piece(vec![3; 10]))).unwrap();
    }
    assert_eq!(length(&task, mid), 0, "as in PVM 3.4");
    let stored = task.export_message(mid).unwrap();
    assert_eq!((stored.enc, stored.body.len()), (pvm_core::codes::DSIG_X86_64, 1000));
    let copy = task.import_message(stored);
    assert_eq!(length(&task, copy), 1000);
}
