//! The format of trace messages (docs/undocumented-behaviour.md, "Tracing").
//!
//! A message is a body in the default encoding. Each record stands between two marks (`events::mark`). The first record
//! of an event that a sender sends to a collector is a *description*: besides the values it holds the name of the
//! event, and the number and type of each datum. Later records hold only the values. Each daemon sends the list of all
//! kinds of data to each collector once.
use crate::encoding::Reader;
use crate::events::{DATA, Datum, EVENTS, EXIT, Event, Form, HEAD, data_type, mark};
use crate::{events, tid::Tid};

/// The moment in an event to which a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// The function begins.
    Entry,
    /// The function has ended.
    Exit,
    /// The event is instantaneous.
    Once,
}

impl Moment {
    const fn bit(self) -> i32 {
        match self {
            Moment::Entry => events::ENTRY,
            Moment::Exit => EXIT,
            Moment::Once => 0,
        }
    }

    /// Splits the number in a record into event and moment.
    fn split(number: i32) -> Option<(Event, Moment)> {
        let moment = match number & (events::ENTRY | EXIT) {
            events::ENTRY => Moment::Entry,
            EXIT => Moment::Exit,
            0 => Moment::Once,
            _ => return None,
        };
        Some((Event::from_number(number & !(events::ENTRY | EXIT))?, moment))
    }
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// Seconds since the start of 1970.
    pub seconds: i32,
    /// Microseconds of that second.
    pub microseconds: i32,
}

impl Stamp {
    /// Makes a stamp from the time since the start of 1970. Seconds have 32 bits in traces.
    pub fn since_epoch(time: std::time::Duration) -> Stamp {
        Stamp { seconds: time.as_secs() as i32, microseconds: time.subsec_micros() as i32 }
    }

    /// Returns the microseconds since the start of 1970.
    pub fn microseconds(self) -> i64 {
        // Signed, the seconds would overflow in 2038; unsigned, they overflow in 2106.
        i64::from(self.seconds as u32) * 1_000_000 + i64::from(self.microseconds)
    }
}

/// The value of a datum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the variants of events::Form
pub enum Value {
    Int(i32),
    Long(i64),
    Text(Vec<u8>),
    Ints(Vec<i32>),
    Texts(Vec<Vec<u8>>),
}

impl Value {
    fn form(&self) -> Form {
        match self {
            Value::Int(_) => Form::Int,
            Value::Long(_) => Form::Long,
            Value::Text(_) => Form::Text,
            Value::Ints(_) => Form::Ints,
            Value::Texts(_) => Form::Texts,
        }
    }

    fn write(&self, body: &mut Vec<u8>) {
        match self {
            Value::Int(value) => write_int(body, *value),
            Value::Long(value) => body.extend_from_slice(&value.to_ne_bytes()),
            Value::Text(text) => write_text(body, text),
            Value::Ints(values) => {
                write_int(body, values.len() as i32);
                values.iter().for_each(|value| write_int(body, *value));
            }
            Value::Texts(texts) => {
                write_int(body, texts.len() as i32);
                texts.iter().for_each(|text| write_text(body, text));
            }
        }
    }

    fn read(kind: i32, body: &mut Reader<'_>) -> Option<Value> {
        const INTS: i32 = Form::Ints.type_number();
        const TEXTS: i32 = Form::Texts.type_number();
        Some(match kind {
            data_type::INT => Value::Int(body.int()?),
            data_type::LONG => Value::Long(body.long()?),
            data_type::STRING => Value::Text(body.string()?.to_vec()),
            INTS => Value::Ints((0..body.int()?).map(|_| body.int()).collect::<Option<_>>()?),
            TEXTS => {
                let count = body.int()?;
                Value::Texts((0..count).map(|_| Some(body.string()?.to_vec())).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

/// Appends an integer to a body.
pub fn write_int(body: &mut Vec<u8>, value: i32) {
    body.extend_from_slice(&value.to_ne_bytes());
}

/// Appends a C string to a body.
pub fn write_text(body: &mut Vec<u8>, text: &[u8]) {
    write_int(body, text.len() as i32 + 1);
    body.extend_from_slice(text);
    body.push(0);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// For one sender and one collector: the kinds of records that have been described.
#[derive(Debug, Clone)]
pub struct Described([[bool; EVENTS.len()]; 3]);

impl Default for Described {
    fn default() -> Described {
        Described([[false; EVENTS.len()]; 3])
    }
}

impl Described {
    /// Returns whether this kind of record must still be described, and marks it as described.
    pub fn first(&mut self, event: Event, moment: Moment) -> bool {
        !std::mem::replace(&mut self.0[moment as usize][event as usize], true)
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names say all
pub struct Record {
    pub event: Event,
    pub moment: Moment,
    pub stamp: Stamp,
    /// The task of the event.
    pub tid: Tid,
    /// The values, in the order in which the list of events names them.
    pub values: Vec<Value>,
}

impl Record {
    /// Returns the meanings of the values.
    pub fn data(&self) -> &'static [Datum] {
        match self.moment {
            Moment::Exit => self.event.info().exit,
            Moment::Entry | Moment::Once => self.event.info().entry,
        }
    }

    /// Returns the first value with that meaning.
    pub fn value(&self, datum: Datum) -> Option<&Value> {
        let place = self.data().iter().position(|known| *known == datum)?;
        self.values.get(place)
    }

    /// Returns the first value with that meaning, if it is an integer.
    pub fn int(&self, datum: Datum) -> Option<i32> {
        match self.value(datum)? {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Appends the record to a body. If `describe` is set, also appends the name of the event, and the number and type
    /// of each datum.
    pub fn write(&self, describe: bool, body: &mut Vec<u8>) {
        let head = [self.stamp.seconds, self.stamp.microseconds, self.tid.0 as i32].map(Value::Int);
        let data = HEAD.iter().chain(self.data());
        let values = head.iter().chain(&self.values);
        debug_assert_eq!(self.data().len(), self.values.len(), "{:?}", self.event);
        write_int(body, if describe { mark::DESCRIPTION } else { mark::RECORD });
        write_int(body, self.event as i32 | self.moment.bit());
        if describe {
            write_text(body, self.event.info().name.to_bytes());
        }
        for (datum, value) in data.zip(values) {
            debug_assert_eq!(datum.info().form, value.form(), "{:?} {datum:?}", self.event);
            if describe {
                write_int(body, *datum as i32);
                write_int(body, value.form().type_number());
            }
            value.write(body);
        }
        write_int(body, if describe { mark::DESCRIPTION_END } else { mark::RECORD_END });
    }
}

/// Appends the list of all kinds of data to a body.
pub fn write_data_list(body: &mut Vec<u8>) {
    write_int(body, mark::DATA);
    for (number, datum) in DATA.iter().enumerate() {
        write_int(body, number as i32);
        write_text(body, datum.name.to_bytes());
        write_text(body, datum.description.to_bytes());
    }
    write_int(body, mark::DATA_END);
}

/// Appends the beginning of a user-defined event to a body.
pub fn write_user_head(stamp: Stamp, body: &mut Vec<u8>) {
    write_int(body, mark::USER);
    write_int(body, Event::UserDefined as i32);
    write_text(body, Event::UserDefined.info().name.to_bytes());
    write_int(body, stamp.seconds);
    write_int(body, stamp.microseconds);
}

/// Appends the end of a user-defined event to a body.
pub fn write_user_end(body: &mut Vec<u8>) {
    write_int(body, mark::USER_END);
}

/// Items of a user-defined event, as they are in the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserItems {
    /// The type: a constant of `events::data_type`, without the bit for arrays.
    pub kind: i32,
    /// Whether the items are an array, which begins with a count.
    pub array: bool,
    /// The items, in the default encoding and the byte order of this host.
    pub bytes: Vec<u8>,
    /// The number of items.
    pub count: usize,
}

/// A part of a trace message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// An event of a task or a daemon.
    Record(Record),
    /// A user-defined event.
    User(Stamp, Vec<UserItems>),
}

/// Returns the parts of a trace message up to the first malformed one. The reader needs no state, since the
/// list of events says what a record holds.
pub fn parts(mut reader: Reader<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some(part) = next_part(&mut reader) {
        parts.extend(part);
    }
    parts
}

/// Reads the next part. The inner `None` stands for a part that describes no event.
fn next_part(body: &mut Reader<'_>) -> Option<Option<Part>> {
    match body.int()? {
        mark::BUFFER | mark::BUFFER_END => Some(None),
        mark::DATA => {
            while body.int()? != mark::DATA_END {
                body.string()?;
                body.string()?;
            }
            Some(None)
        }
        mark::DESCRIPTION => read_record(body, true).map(|record| Some(Part::Record(record))),
        mark::RECORD => read_record(body, false).map(|record| Some(Part::Record(record))),
        mark::USER => read_user(body).map(Some),
        _ => None,
    }
}

fn read_record(body: &mut Reader<'_>, described: bool) -> Option<Record> {
    let (event, moment) = Moment::split(body.int()?)?;
    if described {
        body.string()?;
    }
    let mut next = |datum: &Datum| {
        let kind = datum.info().form.type_number();
        if described && (body.int()? != *datum as i32 || body.int()? != kind) {
            return None;
        }
        Value::read(kind, body)
    };
    let mut head = [0; HEAD.len()];
    for (place, datum) in head.iter_mut().zip(&HEAD) {
        let Value::Int(value) = next(datum)? else { return None };
        *place = value;
    }
    let [seconds, microseconds, tid] = head;
    let stamp = Stamp { seconds, microseconds };
    let mut record = Record { event, moment, stamp, tid: Tid(tid as u32), values: Vec::new() };
    record.values = record.data().iter().map(&mut next).collect::<Option<_>>()?;
    let end = if described { mark::DESCRIPTION_END } else { mark::RECORD_END };
    (body.int()? == end).then_some(record)
}

fn read_user(body: &mut Reader<'_>) -> Option<Part> {
    body.int()?;
    body.string()?;
    let stamp = Stamp { seconds: body.int()?, microseconds: body.int()? };
    let mut items = Vec::new();
    loop {
        let word = body.int()?;
        if word == mark::USER_END {
            return Some(Part::User(stamp, items));
        }
        let (kind, array) = (word & !data_type::ARRAY, word & data_type::ARRAY != 0);
        let count = if array { usize::try_from(body.int()?).ok()? } else { 1 };
        let (numbers, bytes) = item_numbers(kind)?;
        let bytes = body.numbers(count.checked_mul(numbers)?, bytes)?;
        items.push(UserItems { kind, array, bytes, count });
    }
}

/// Returns how many numbers make up an item in the default encoding, and the size of each number in bytes.
fn item_numbers(kind: i32) -> Option<(usize, usize)> {
    Some(match kind {
        data_type::BYTE => (1, 1),
        data_type::DCPLX => (2, 8),
        data_type::CPLX => (2, 4),
        data_type::DOUBLE | data_type::LONG | data_type::ULONG => (1, 8),
        data_type::FLOAT | data_type::INT | data_type::UINT | data_type::SHORT | data_type::USHORT => (1, 4),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(event: Event, moment: Moment, values: Vec<Value>) -> Record {
        Record { event, moment, stamp: Stamp { seconds: 7, microseconds: 8 }, tid: Tid(0x40001), values }
    }

    #[test]
    fn what_is_written_is_read_back_described_or_not() {
        let text = |text: &str| text.as_bytes().to_vec();
        let records = [
            record(Event::Mytid, Moment::Entry, Vec::new()),
            record(Event::Mytid, Moment::Exit, vec![Value::Int(0x40001)]),
            record(Event::Pkint, Moment::Entry, vec![Value::Long(-5), Value::Int(1), Value::Int(1)]),
            record(Event::Addhosts, Moment::Entry, vec![Value::Texts(vec![text("alfa"), text("")])]),
            record(Event::Siblings, Moment::Exit, vec![Value::Ints(vec![1, 2, 3])]),
            record(Event::Newtask, Moment::Once, vec![Value::Int(0), Value::Int(8), Value::Text(text("prog"))]),
        ];
        let (mut body, mut described) = (Vec::new(), Described::default());
        write_data_list(&mut body);
        write_int(&mut body, mark::BUFFER);
        for record in records.iter().chain(&records) {
            record.write(described.first(record.event, record.moment), &mut body);
        }
        write_int(&mut body, mark::BUFFER_END);
        let read: Vec<Part> = records.iter().chain(&records).cloned().map(Part::Record).collect();
        assert_eq!(parts(Reader::new(&body)), read);
        assert_eq!(records[1].int(Datum::MT), Some(0x40001));
    }

    #[test]
    fn events_of_programs_are_read_back() {
        let (mut body, stamp) = (Vec::new(), Stamp { seconds: 1, microseconds: 2 });
        write_user_head(stamp, &mut body);
        write_int(&mut body, data_type::INT);
        write_int(&mut body, 5);
        write_int(&mut body, data_type::BYTE | data_type::ARRAY);
        write_int(&mut body, 3);
        body.extend_from_slice(b"abc\0");
        write_user_end(&mut body);
        let int = UserItems { kind: data_type::INT, array: false, bytes: 5i32.to_ne_bytes().to_vec(), count: 1 };
        let bytes = UserItems { kind: data_type::BYTE, array: true, bytes: b"abc".to_vec(), count: 3 };
        assert_eq!(parts(Reader::new(&body)), [Part::User(stamp, vec![int, bytes])]);
    }

    #[test]
    fn a_truncated_or_malformed_message_is_read_up_to_the_fault() {
        let mut body = Vec::new();
        record(Event::Mytid, Moment::Entry, Vec::new()).write(true, &mut body);
        let whole = body.len();
        record(Event::Mytid, Moment::Exit, vec![Value::Int(1)]).write(true, &mut body);
        for end in whole..body.len() {
            assert_eq!(parts(Reader::new(&body[..end])).len(), 1, "{end}");
        }
        let mut body = Vec::new();
        for word in [mark::RECORD, Event::Siblings as i32 | EXIT, 0, 0, 0, i32::MAX] {
            write_int(&mut body, word);
        }
        assert_eq!(parts(Reader::new(&body)), []);
        assert_eq!(parts(Reader::new(&[0xff; 64])), []);
    }
}
