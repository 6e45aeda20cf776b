use super::*;
use crate::types::Filter;
use crate::{ANY, Environment, Task};
use pvm_core::codes::{DATA_DEFAULT, DATA_RAW, ENC_XDR};

/// Returns the formats that differ from the native one: the other byte order with longs of both widths, and the native
/// byte order with longs of the other width.
fn others() -> [Format; 3] {
    let Format { big_endian, long_bytes } = Format::NATIVE;
    [
        Format { big_endian: !big_endian, long_bytes },
        Format { big_endian: !big_endian, long_bytes: 12 - long_bytes },
        Format { big_endian, long_bytes: 12 - long_bytes },
    ]
}

fn task() -> Task {
    Task::new(&Environment::from_lookup(|_| None))
}

/// Receives a message of a host with the given format.
fn receive(task: &mut Task, format: Format, enc: i32, body: &[u8]) -> i32 {
    let signature = format.signature();
    let envelope = crate::envelope::Envelope { src: 1, dst: 0, ctx: 0, tag: 2, wid: 0, enc, format: signature };
    task.state.on_message_bytes(envelope, body.to_vec());
    let mid = task.receive(&any()).unwrap();
    task.set_receive_buffer(mid).unwrap();
    mid
}

fn any() -> Filter {
    Filter { src: ANY, tag: ANY, ctx: 0 }
}

/// Returns the bytes of a number as a host with the given format writes them.
fn written(format: Format, value: i128, bytes: usize) -> Vec<u8> {
    if format.big_endian { value.to_be_bytes()[16 - bytes..].to_vec() } else { value.to_le_bytes()[..bytes].to_vec() }
}

fn native(kind: Kind, value: i128) -> Vec<u8> {
    written(Format::NATIVE, value, kind.size() / numbers_of(kind))
}

#[test]
fn every_kind_of_item_is_unpacked_from_every_format() {
    let kinds = [
        (Kind::Short, 4, -2i128),
        (Kind::Ushort, 4, 65_534),
        (Kind::Int, 4, -0x1234_5678),
        (Kind::Uint, 4, 0xfedc_ba98),
        (Kind::Long, 8, -0x1234_5678),
        (Kind::Ulong, 8, 0xfedc_ba98),
        (Kind::Float, 4, 0x7fc1_2345),
        (Kind::Double, 8, 0x7ff8_1234_5678_9abc),
        (Kind::Cplx, 4, 0x0000_0001),
        (Kind::Dcplx, 8, 0x8000_0000_0000_0001),
    ];
    for format in others() {
        for (kind, bytes, value) in kinds {
            let mut task = task();
            let number = written(format, value, bytes);
            let item = number.repeat(numbers_of(kind));
            receive(&mut task, format, ENC_XDR, &item.repeat(2000));
            let mut items = vec![0; 1500 * kind.size()];
            task.unpack(kind, &mut items).unwrap();
            let wanted = native(kind, value).repeat(numbers_of(kind));
            assert!(items.chunks(kind.size()).all(|item| item == wanted), "{kind:?} of {format:?}");
            let mut places = Vec::new();
            task.unpack_with(kind, 500, &mut |first, items| places.push((first, items.to_vec()))).unwrap();
            let total: usize = places.iter().map(|(_, items)| items.len()).sum();
            assert_eq!(total, 500 * kind.size());
            assert!(places.iter().all(|(_, items)| items.chunks(kind.size()).all(|item| item == wanted)));
            assert_eq!(task.unpack(kind, &mut items[..kind.size()]), Err(Code::NoData));
        }
    }
}

#[test]
fn strings_and_bytes_of_another_byte_order_are_unpacked() {
    for format in others() {
        let mut task = task();
        let body = [&written(format, 5, 4)[..], b"four\0\0\0\0", b"xyz\0", &written(format, -1, 4)].concat();
        receive(&mut task, format, ENC_XDR, &body);
        assert_eq!(task.string_bytes(), Ok(5));
        let mut text = [1; 5];
        task.unpack_string(&mut text).unwrap();
        assert_eq!(&text, b"four\0");
        let mut bytes = [0; 3];
        task.unpack(Kind::Byte, &mut bytes).unwrap();
        assert_eq!(&bytes, b"xyz");
        let mut word = [0; 4];
        task.unpack(Kind::Int, &mut word).unwrap();
        assert_eq!(i32::from_ne_bytes(word), -1);
    }
}

/// Checks conversions between numbers of 64 and of 32 bits.
#[test]
fn a_value_that_does_not_fit_ends_the_conversion() {
    let wide = Form { swapped: true, short_bytes: 2, long_bytes: 8 };
    let narrow = Form { swapped: false, short_bytes: 2, long_bytes: 4 };
    let other = Format { big_endian: !Format::NATIVE.big_endian, long_bytes: 8 };
    let numbers = |values: &[i128]| values.iter().flat_map(|value| written(other, *value, 8)).collect::<Vec<u8>>();
    let mut items = [0x33; 16];
    let values = numbers(&[-5, 0x7fff_ffff, 0x8000_0000, 1]);
    assert_eq!(convert(Kind::Long, (wide, &values), (narrow, &mut items)), 2);
    assert_eq!(items[..8], [native(Kind::Int, -5), native(Kind::Int, 0x7fff_ffff)].concat());
    assert_eq!(items[8..], [0x33; 8]);
    let values = numbers(&[-0x8000_0000, -0x8000_0001, 1]);
    assert_eq!(convert(Kind::Long, (wide, &values), (narrow, &mut items)), 1);
    let values = numbers(&[0xffff_ffff, 0x1_0000_0000]);
    assert_eq!(convert(Kind::Ulong, (wide, &values), (narrow, &mut items)), 1);
    let mut back = [0; 8];
    assert_eq!(convert(Kind::Long, (narrow, &native(Kind::Int, -7)), (wide, &mut back)), 1);
    assert_eq!(back, *numbers(&[-7]));
    assert_eq!(convert(Kind::Ulong, (narrow, &native(Kind::Int, 0xffff_ffff)), (wide, &mut back)), 1);
    assert_eq!(back, *numbers(&[0xffff_ffff]));
}

#[test]
fn raw_items_of_another_format_are_bytes_to_an_unpack_and_items_to_a_one_call_receive() {
    for format in others() {
        let mut task = task();
        let signature = format.signature();
        let bytes = format.long_bytes;
        let body = [written(format, -3, bytes), written(format, 77, bytes)].concat();
        receive(&mut task, format, signature, &body);
        let mut item = vec![0; size_of::<usize>()];
        assert_eq!(task.unpack(Kind::Long, &mut item), Err(Code::BadMsg));
        assert_eq!(task.string_bytes(), Err(Code::BadMsg));
        let mut all = vec![0; body.len()];
        task.unpack(Kind::Byte, &mut all).unwrap();
        assert_eq!(all, body);
        let envelope =
            crate::envelope::Envelope { src: 1, dst: 0, ctx: 0, tag: 2, wid: 0, enc: signature, format: signature };
        task.state.on_message_bytes(envelope, body.clone());
        let mut items = [0; 24];
        let delivered = task.try_precv(&any(), Kind::Long, &mut items).unwrap();
        assert_eq!((delivered.len, delivered.failure), (2 * size_of::<usize>(), None));
        assert_eq!(items[..delivered.len], [native(Kind::Long, -3), native(Kind::Long, 77)].concat());
    }
}

#[test]
fn a_forwarded_message_keeps_its_format_and_what_is_packed_behind_takes_it() {
    for format in others() {
        let mut task = task();
        let mid = receive(&mut task, format, ENC_XDR, &written(format, 1, 4));
        assert!(!task.unpack_fast(Kind::Int, &mut [0; 4]));
        task.set_send_buffer(mid).unwrap();
        assert!(!task.pack_fast(Kind::Int, &native(Kind::Int, -2)));
        task.pack(Kind::Int, &native(Kind::Int, -2)).unwrap();
        task.pack(Kind::Short, &native(Kind::Short, -3)).unwrap();
        task.pack(Kind::Long, &native(Kind::Long, -4)).unwrap();
        task.pack_with(Kind::Double, 1, &mut |_, room| room.copy_from_slice(&native(Kind::Double, 5))).unwrap();
        task.pack_string(b"abc").unwrap();
        let message = task.export_message(mid).unwrap();
        let wanted =
            [(1, 4), (-2, 4), (-3, 4), (-4, 8), (5, 8), (4, 4)].map(|(value, bytes)| written(format, value, bytes));
        assert_eq!(message.body.as_slice(), [&wanted.concat()[..], b"abc\0"].concat());
        assert_eq!((message.enc, message.format), (ENC_XDR, format.signature()));
    }
}

#[test]
fn a_message_in_a_message_keeps_its_format() {
    for format in others() {
        let mut task = task();
        let mid = receive(&mut task, format, ENC_XDR, &written(format, -6, 4));
        task.init_send(DATA_DEFAULT).unwrap();
        task.pack_message(mid).unwrap();
        let outer = task.send_buffer();
        task.set_receive_buffer(outer).unwrap();
        let inner = task.unpack_message().unwrap();
        assert_eq!(task.export_message(inner).unwrap().format, format.signature());
        task.set_receive_buffer(inner).unwrap();
        let mut word = [0; 4];
        task.unpack(Kind::Int, &mut word).unwrap();
        assert_eq!(i32::from_ne_bytes(word), -6);
    }
}

/// Checks a message of another format that contains a packed message.
#[test]
fn a_message_in_a_message_of_another_format_is_of_that_format() {
    for format in others() {
        let mut task = task();
        let words = [4, 0, 7, 0, ENC_XDR, 0, 1, 2, 4, -6];
        let body: Vec<u8> = words.iter().flat_map(|word| written(format, i128::from(*word), 4)).collect();
        receive(&mut task, format, ENC_XDR, &body);
        let inner = task.unpack_message().unwrap();
        task.set_receive_buffer(inner).unwrap();
        let mut word = [0; 4];
        task.unpack(Kind::Int, &mut word).unwrap();
        assert_eq!(i32::from_ne_bytes(word), -6);
    }
}

#[test]
fn the_body_of_another_format_goes_into_an_empty_buffer_only() {
    let format = others()[0];
    let mut task = task();
    let mid = receive(&mut task, format, ENC_XDR, &written(format, 9, 4));
    let outer = task.init_send(DATA_DEFAULT).unwrap();
    task.pack_message_body(mid).unwrap();
    assert_eq!(task.export_message(outer).unwrap().format, format.signature());
    task.init_send(DATA_DEFAULT).unwrap();
    task.pack(Kind::Int, &[0; 4]).unwrap();
    assert_eq!(task.pack_message_body(mid), Err(Code::Mismatch));
    let raw = task.init_send(DATA_RAW).unwrap();
    assert_eq!(task.pack_message_body(mid), Err(Code::Mismatch));
    // The empty buffer has the format of this host.
    task.pack(Kind::Int, &[0; 4]).unwrap();
    assert_eq!(task.export_message(raw).unwrap().format, OWN_DSIG);
}

#[test]
fn of_an_unknown_format_only_bytes_are_unpacked() {
    let mut task = task();
    let envelope = crate::envelope::Envelope { src: 1, dst: 0, ctx: 0, tag: 2, wid: 0, enc: ENC_XDR, format: 12 };
    task.state.on_message_bytes(envelope, vec![1; 8]);
    let mid = task.receive(&any()).unwrap();
    task.set_receive_buffer(mid).unwrap();
    assert_eq!(task.unpack(Kind::Int, &mut [0; 4]), Err(Code::BadMsg));
    task.unpack(Kind::Byte, &mut [0; 4]).unwrap();
    task.set_send_buffer(mid).unwrap();
    assert_eq!(task.pack(Kind::Int, &[0; 4]), Err(Code::BadMsg));
}
