//! The arguments of a call, as the slice of the call in the timeline shows them.
use pvm_core::events::{Datum, Event, data_type};
use pvm_core::tid::Tid;
use pvm_core::trace::{Record, UserItems, Value};
use serde_json::{Map, json};

/// The sizes of items in bytes, indexed by the number of the data type in `pvm_psend`.
const ITEM_BYTES: [i64; 12] = [0, 1, 2, 4, 4, 8, 8, 16, 8, 2, 4, 8];

/// Returns the values of a record; the keys are the descriptions of the values.
pub fn of(record: &Record) -> Map<String, serde_json::Value> {
    let mut told = Map::new();
    for (datum, value) in record.data().iter().zip(&record.values) {
        told.insert(name(*datum), of_value(*datum, value));
    }
    let ints = (record.int(Datum::PC), record.int(Datum::PDT).and_then(|kind| usize::try_from(kind).ok()));
    if let (Event::Psend, (Some(count), Some(kind))) = (record.event, ints) {
        told.insert(name(Datum::MNB), (i64::from(count) * ITEM_BYTES.get(kind).copied().unwrap_or(0)).into());
    }
    told
}

fn name(datum: Datum) -> String {
    match datum {
        Datum::MNB => "bytes".into(),
        other => other.info().description.to_string_lossy().into_owned(),
    }
}

fn of_value(datum: Datum, value: &Value) -> serde_json::Value {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    match value {
        Value::Int(number) => int(datum, *number),
        Value::Long(number) => format!("{number:#x}").into(),
        Value::Text(bytes) => text(bytes).into(),
        Value::Ints(numbers) => numbers.iter().map(|number| int(datum, *number)).collect(),
        Value::Texts(texts) => texts.iter().map(|bytes| text(bytes)).collect(),
    }
}

/// Returns a number as JSON; a tid as text, such as `t40001`.
fn int(datum: Datum, number: i32) -> serde_json::Value {
    let tids = [
        Datum::SRC,
        Datum::DST,
        Datum::MDL,
        Datum::NTL,
        Datum::RST,
        Datum::STL,
        Datum::SIB,
        Datum::PT,
        Datum::MT,
        Datum::TT,
        Datum::TW,
        Datum::GT,
        Datum::HPT,
    ];
    match tids.contains(&datum) && (number > 0 || number == Tid::DAEMON.0 as i32) {
        true => Tid(number as u32).to_string().into(),
        false => number.into(),
    }
}

/// Returns the items that a program packed into its own trace event; the keys are the positions of the items.
pub fn of_items(items: &[UserItems]) -> Map<String, serde_json::Value> {
    items.iter().enumerate().map(|(place, items)| (place.to_string(), of_user(items))).collect()
}

fn of_user(items: &UserItems) -> serde_json::Value {
    let words = || items.bytes.chunks_exact(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let longs = || items.bytes.chunks_exact(8).filter_map(|word| Some(i64::from_ne_bytes(word.try_into().ok()?)));
    let floats = || words().map(|word| f32::from_bits(word as u32));
    let doubles = || longs().map(|word| f64::from_bits(word as u64));
    let values: Vec<serde_json::Value> = match items.kind {
        data_type::BYTE => return String::from_utf8_lossy(&items.bytes).into_owned().into(),
        data_type::UINT | data_type::USHORT => words().map(|word| json!(word as u32)).collect(),
        data_type::LONG => longs().map(|word| json!(word)).collect(),
        data_type::ULONG => longs().map(|word| json!(word as u64)).collect(),
        data_type::FLOAT | data_type::CPLX => floats().map(|number| json!(number)).collect(),
        data_type::DOUBLE | data_type::DCPLX => doubles().map(|number| json!(number)).collect(),
        _ => words().map(|word| json!(word)).collect(),
    };
    match <[serde_json::Value; 1]>::try_from(values) {
        Ok([one]) => one,
        Err(many) => many.into(),
    }
}
