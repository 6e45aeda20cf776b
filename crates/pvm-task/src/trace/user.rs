//! Buffers of `PvmDataTrace`: events that a program makes itself. In such a buffer, each packing call writes the type
//! of its items, then their count unless that is 1, then the items.
use super::stamp;
use crate::types::Kind;
use pvm_core::events::data_type;
use pvm_core::trace::{write_int, write_user_head};

/// Returns the beginning of a `PvmDataTrace` buffer.
pub(crate) fn begin_user_event() -> Vec<u8> {
    let mut body = Vec::new();
    write_user_head(stamp(), &mut body);
    body
}

/// Returns the number that stands for the type of items in traces.
pub(crate) fn kind_number(kind: Kind) -> i32 {
    match kind {
        Kind::Byte => data_type::BYTE,
        Kind::Short => data_type::SHORT,
        Kind::Ushort => data_type::USHORT,
        Kind::Int => data_type::INT,
        Kind::Uint => data_type::UINT,
        Kind::Long => data_type::LONG,
        Kind::Ulong => data_type::ULONG,
        Kind::Float => data_type::FLOAT,
        Kind::Double => data_type::DOUBLE,
        Kind::Cplx => data_type::CPLX,
        Kind::Dcplx => data_type::DCPLX,
    }
}

/// Returns the type and the count that precede `count` items.
pub(crate) fn frame_items(kind: i32, count: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    match count {
        1 => write_int(&mut frame, kind),
        _ => {
            write_int(&mut frame, kind | data_type::ARRAY);
            write_int(&mut frame, count as i32);
        }
    }
    frame
}
