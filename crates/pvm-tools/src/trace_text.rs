//! Traces as text, in the format that the tracer writes and XPVM reads: a description of each kind of record precedes
//! the first record of this kind.
use pvm_core::events::{Datum, Event, Form, HEAD, data_type};
use pvm_core::proto::Host;
use pvm_core::tid::Tid;
use pvm_core::trace::{Moment, Part, Record, Stamp, UserItems, Value};
use pvm_task::{OutputEvent, OutputKind};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The record kind of an event is this number plus twice the number of the event.
const KIND_FIRST: i32 = 1000;
/// The record kind of the end of a call is this number plus twice the number of the event.
const KIND_EXIT_FIRST: i32 = 2001;
/// The kind of a record about a host.
const KIND_HOST: i32 = 1802;
/// The kind of a record about a line of output.
const KIND_OUTPUT: i32 = 1808;
/// The number of seconds of a day.
const DAY_SECONDS: i64 = 86400;

/// A field of a record: name, description, declaration and value.
struct Field {
    name: String,
    description: String,
    form: Form,
    kind: &'static str,
    value: String,
}

impl Field {
    fn new(datum: Datum, value: &Value) -> Field {
        let form = datum.info().form;
        let description = datum.info().description.to_string_lossy().into_owned();
        Field { name: datum.name().into(), description, form, kind: type_of(form), value: text_of(value) }
    }

    fn declaration(&self) -> String {
        let dimensions = match self.form {
            Form::Int | Form::Long => "",
            Form::Text | Form::Ints => "[]",
            Form::Texts => "[][]",
        };
        format!("\t// \"{}\" \"{}\"\n\t{} \"{}\"{dimensions};\n", self.name, self.description, self.kind, self.name)
    }
}

fn type_of(form: Form) -> &'static str {
    match form {
        Form::Int | Form::Long | Form::Ints => "int",
        Form::Text | Form::Texts => "char",
    }
}

fn text_of(value: &Value) -> String {
    let quoted = |text: &[u8]| format!("\"{}\"", String::from_utf8_lossy(text));
    match value {
        Value::Int(number) => number.to_string(),
        Value::Long(number) => number.to_string(),
        Value::Text(text) => format!("[{}] {{ {} }}", text.len() + 1, quoted(text)),
        Value::Ints(numbers) => list(numbers.iter().map(i32::to_string).collect()),
        Value::Texts(texts) => {
            let longest = texts.iter().map(Vec::len).max().unwrap_or(0) + 1;
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}] [{longest}] {{ {} }}", texts.len(), texts.join(", "))
        }
    }
}

fn list(numbers: Vec<String>) -> String {
    format!("[{}] {{ {} }}", numbers.len(), numbers.join(", "))
}

/// The state of a trace text: the kinds that have been described, and the time of the last record.
#[derive(Debug, Default)]
pub struct TraceText {
    /// The declarations of each variant of a kind, by the name of the kind.
    known: BTreeMap<String, Vec<String>>,
    last: Stamp,
}

impl TraceText {
    /// Returns the beginning of the text, with this creation time.
    pub fn head(now: Stamp) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let date = date(now);
        format!("/*\n * \"Creation Date\" \"{date}\"\n * \"Machine\" \"hpvm {version} (PVM 3.4.6)\"\n */ ;;\n\n")
    }

    /// Returns the record of a host of the machine.
    pub fn host(&mut self, host: &Host, now: Stamp) -> String {
        let short = host.name.split('.').next().unwrap_or_default();
        let bytes = |text: &str| Value::Text(text.as_bytes().to_vec());
        let mut fields = head_fields(now, host.tid);
        fields.push(Field::new(Datum::HN, &bytes(&host.name)));
        fields.push(Field::new(Datum::HNA, &bytes(short)));
        fields.push(Field::new(Datum::HA, &bytes(&host.arch)));
        fields.push(Field::new(Datum::HSP, &Value::Int(host.speed)));
        self.record(KIND_HOST, "host_add", "", &fields)
    }

    /// Returns the record for a part of a trace message from this task.
    pub fn part(&mut self, from: Tid, part: &Part) -> String {
        match part {
            Part::Record(record) => self.event(record),
            Part::User(stamp, items) => self.user_event(from, *stamp, items),
        }
    }

    fn event(&mut self, record: &Record) -> String {
        self.last = self.last.max(record.stamp);
        let number = 2 * record.event as i32;
        let (kind, half) = match record.moment {
            Moment::Exit => (KIND_EXIT_FIRST + number, "1."),
            Moment::Entry => (KIND_FIRST + number, "0."),
            Moment::Once => (KIND_FIRST + number, ""),
        };
        let mut fields = head_fields(record.stamp, record.tid);
        fields.extend(record.data().iter().zip(&record.values).map(|(datum, value)| Field::new(*datum, value)));
        self.record(kind, record.event.name(), half, &fields)
    }

    fn user_event(&mut self, from: Tid, stamp: Stamp, items: &[UserItems]) -> String {
        let [seconds, microseconds, tid] = head_values(stamp, from);
        let mut fields = vec![tid, seconds, microseconds];
        fields.extend(items.iter().enumerate().map(|(place, items)| user_field(place, items)));
        self.record(KIND_FIRST + 2 * Event::UserDefined as i32, Event::UserDefined.name(), "", &fields)
    }

    /// Returns the record of output of a traced task.
    pub fn output(&mut self, event: &OutputEvent) -> String {
        let text: &[u8] = match &event.kind {
            OutputKind::Begin => b"CREATION",
            OutputKind::Line(line) | OutputKind::Raw(line) => line,
            OutputKind::End => b"GOTEOF",
        };
        let mut fields = head_fields(self.last, event.task);
        fields.push(Field::new(Datum::OS, &Value::Text(text.to_vec())));
        self.record(KIND_OUTPUT, "output", "", &fields)
    }

    /// Returns a record, preceded by a description if it is the first record of its kind. If records of one kind have
    /// different fields, each set of fields is a variant with a number.
    fn record(&mut self, kind: i32, name: &str, half: &str, fields: &[Field]) -> String {
        let declarations: String = fields.iter().map(Field::declaration).collect();
        let variants = self.known.entry(format!("{name}({half}")).or_default();
        let known = variants.iter().position(|known| *known == declarations);
        let variant = known.unwrap_or(variants.len());
        // The variants of the end of a call are numbered from 1, all others from 0.
        let shown = variant + usize::from(half == "1.");
        let name = format!("\"{name}({half}{shown})\"");
        let mut text = String::new();
        if known.is_none() {
            let _ = write!(text, "\n#{kind}: {name}\n{{\n{declarations}}};;\n\n");
            variants.push(declarations);
        }
        let values: Vec<&str> = fields.iter().map(|field| field.value.as_str()).collect();
        let _ = writeln!(text, "{name} {{ {} }};;", values.join(", "));
        text
    }
}

fn head_values(stamp: Stamp, tid: Tid) -> [Field; 3] {
    let values = [stamp.seconds, stamp.microseconds, tid.0 as i32];
    std::array::from_fn(|place| Field::new(HEAD[place], &Value::Int(values[place])))
}

fn head_fields(stamp: Stamp, tid: Tid) -> Vec<Field> {
    head_values(stamp, tid).into()
}

/// Returns the field for items that a program packed into its own trace event.
fn user_field(place: usize, items: &UserItems) -> Field {
    let words = || items.bytes.chunks_exact(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let longs = || items.bytes.chunks_exact(8).filter_map(|word| Some(i64::from_ne_bytes(word.try_into().ok()?)));
    let (kind, numbers): (&str, Vec<String>) = match items.kind {
        data_type::BYTE => ("char", vec![format!("\"{}\"", String::from_utf8_lossy(&items.bytes))]),
        data_type::LONG | data_type::ULONG => ("int", longs().map(|number| number.to_string()).collect()),
        data_type::FLOAT | data_type::CPLX => {
            ("float", words().map(|bits| format!("{:.6}", f32::from_bits(bits as u32))).collect())
        }
        data_type::DOUBLE | data_type::DCPLX => {
            ("double", longs().map(|bits| format!("{:.6}", f64::from_bits(bits as u64))).collect())
        }
        _ => ("int", words().map(|number| number.to_string()).collect()),
    };
    let value = match (kind, items.array || numbers.len() > 1) {
        ("char", _) => format!("[{}] {{ {} }}", items.bytes.len() + 1, numbers.concat()),
        (_, false) => numbers.concat(),
        (_, true) => list(numbers),
    };
    let form = if value.starts_with('[') { Form::Ints } else { Form::Int };
    let name = format!("USR{place}");
    Field { description: format!("datum {place} of the program"), name, form, kind, value }
}

/// Returns a date in the format of C's `ctime`, in UTC.
fn date(now: Stamp) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now.microseconds() / 1_000_000;
    let (mut day, time) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let weekday = WEEKDAYS[(day % 7) as usize];
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while day >= 365 + i64::from(leap(year)) {
        day -= 365 + i64::from(leap(year));
        year += 1;
    }
    let february = 28 + i64::from(leap(year));
    let mut month = 0;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{weekday} {} {:>2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month], day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Tid = Tid(0x40001);
    const STAMP: Stamp = Stamp { seconds: 1, microseconds: 2 };

    fn record(event: Event, moment: Moment, values: Vec<Value>) -> Part {
        Part::Record(Record { event, moment, stamp: STAMP, tid: ONE, values })
    }

    #[test]
    fn a_kind_is_described_once_before_its_first_record() {
        let mut text = TraceText::default();
        let part = record(Event::Mytid, Moment::Exit, vec![Value::Int(262145)]);
        let first = text.part(ONE, &part);
        assert!(
            first.starts_with("\n#2053: \"mytid(1.1)\"\n{\n\t// \"TS\" \"Time Seconds\"\n\tint \"TS\";\n"),
            "{first}"
        );
        assert!(first.ends_with("\tint \"MT\";\n};;\n\n\"mytid(1.1)\" { 1, 2, 262145, 262145 };;\n"), "{first}");
        assert_eq!(text.part(ONE, &part), "\"mytid(1.1)\" { 1, 2, 262145, 262145 };;\n");
    }

    #[test]
    fn texts_and_lists_have_their_lengths() {
        let mut text = TraceText::default();
        let names = Value::Texts(vec![b"nohost".to_vec(), b"a".to_vec()]);
        let shown = text.part(ONE, &record(Event::Delhosts, Moment::Entry, vec![names]));
        assert!(shown.contains("#1012: \"delhosts(0.0)\"") && shown.contains("\tchar \"HNL\"[][];\n"), "{shown}");
        assert!(shown.ends_with("{ 1, 2, 262145, [2] [7] { \"nohost\", \"a\" } };;\n"), "{shown}");
        let line = OutputEvent { task: ONE, ctx: 0, tag: 0, kind: OutputKind::Line(b"out".to_vec()) };
        assert!(text.output(&line).ends_with("\"output(0)\" { 1, 2, 262145, [4] { \"out\" } };;\n"));
    }

    #[test]
    fn events_of_programs_that_differ_are_kinds_of_their_own() {
        let mut text = TraceText::default();
        let int = UserItems { kind: data_type::INT, array: false, bytes: 5i32.to_ne_bytes().to_vec(), count: 1 };
        let bytes = UserItems { kind: data_type::BYTE, array: true, bytes: b"abc".to_vec(), count: 3 };
        let number =
            UserItems { kind: data_type::DOUBLE, array: false, bytes: 1.5f64.to_ne_bytes().to_vec(), count: 1 };
        let shown = text.part(ONE, &Part::User(STAMP, vec![bytes, number]));
        assert!(shown.ends_with("\"user_defined(0)\" { 262145, 1, 2, [4] { \"abc\" }, 1.500000 };;\n"), "{shown}");
        let shown = text.part(ONE, &Part::User(STAMP, vec![int]));
        assert!(shown.contains("#1216: \"user_defined(1)\"") && shown.ends_with("{ 262145, 1, 2, 5 };;\n"), "{shown}");
    }

    #[test]
    fn the_date_is_that_of_ctime() {
        assert_eq!(date(Stamp { seconds: 0, microseconds: 0 }), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(Stamp { seconds: 1_709_209_425, microseconds: 0 }), "Thu Feb 29 12:23:45 2024");
    }
}
