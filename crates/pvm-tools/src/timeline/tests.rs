use super::*;

const ONE: Tid = Tid(0x40001);
const TWO: Tid = Tid(0x40002);

fn record(tid: Tid, event: Event, moment: Moment, at: i32, values: &[i32]) -> Part {
    let values = values.iter().map(|value| Value::Int(*value)).collect();
    Part::Record(Record { event, moment, stamp: Stamp { seconds: 5, microseconds: at }, tid, values })
}

/// Writes these parts as a timeline, and returns its events.
fn timeline(parts: Vec<Part>) -> Vec<serde_json::Value> {
    let mut bytes = Vec::new();
    let mut timeline = Timeline::new(&mut bytes, Stamp { seconds: 5, microseconds: 0 }).unwrap();
    timeline.host(ONE, "alfa").unwrap();
    for part in parts {
        timeline.take(ONE, part).unwrap();
    }
    timeline.finish().unwrap();
    let file: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    file["traceEvents"].as_array().unwrap().clone()
}

fn of_kind<'a>(events: &'a [serde_json::Value], kind: &str) -> Vec<&'a serde_json::Value> {
    events.iter().filter(|event| event["ph"] == kind).collect()
}

fn send(at: i32) -> [Part; 2] {
    [
        record(ONE, Event::Send, Moment::Entry, at, &[4, TWO.0 as i32, 7, 0]),
        record(ONE, Event::Send, Moment::Exit, at + 2, &[0]),
    ]
}

fn receive(at: i32) -> [Part; 2] {
    [
        record(TWO, Event::Recv, Moment::Entry, at, &[-1, -1, 0]),
        record(TWO, Event::Recv, Moment::Exit, at + 2, &[1, 4, 7, 0, ONE.0 as i32]),
    ]
}

#[test]
fn a_message_is_an_arrow_whichever_end_is_told_first() {
    for parts in [[send(10), receive(11)].concat(), [receive(11), send(10)].concat()] {
        let events = timeline(parts);
        let (starts, ends) = (of_kind(&events, "s"), of_kind(&events, "f"));
        assert_eq!((starts.len(), ends.len()), (1, 1));
        assert_eq!((&starts[0]["ts"], &ends[0]["ts"]), (&json!(10), &json!(13)));
        assert_eq!(starts[0]["id"], ends[0]["id"]);
        assert_eq!((&starts[0]["tid"], &ends[0]["tid"]), (&json!(1), &json!(2)));
        let slices = of_kind(&events, "X");
        assert!(slices.iter().all(|slice| slice["args"]["bytes"] == 4 && slice["dur"] == 2));
    }
}

#[test]
fn a_send_that_nobody_receives_or_that_fails_has_no_arrow() {
    let failed = [
        record(ONE, Event::Send, Moment::Entry, 1, &[4, TWO.0 as i32, 7, 0]),
        record(ONE, Event::Send, Moment::Exit, 2, &[-2]),
    ];
    for parts in [send(1).to_vec(), receive(1).to_vec(), [failed, receive(5)].concat()] {
        let events = timeline(parts);
        assert!(of_kind(&events, "s").is_empty() && of_kind(&events, "f").is_empty());
    }
}

#[test]
fn calls_that_never_end_are_closed_where_their_task_is_or_at_the_end() {
    let events = timeline(vec![
        record(ONE, Event::Recv, Moment::Entry, 10, &[-1, -1, 0]),
        record(ONE, Event::Getrbuf, Moment::Entry, 20, &[]),
        record(TWO, Event::Recv, Moment::Entry, 10, &[-1, -1, 0]),
        record(ONE, Event::Endtask, Moment::Once, 50, &[9, 0, 0, 0, 0]),
    ]);
    let slices = of_kind(&events, "X");
    let spans: Vec<_> = slices.iter().map(|slice| (slice["ts"].as_i64(), slice["dur"].as_i64())).collect();
    assert_eq!(spans, [(Some(20), Some(30)), (Some(10), Some(40)), (Some(10), Some(0))]);
    assert!(slices.iter().all(|slice| slice["args"]["unfinished"] == true));
}

#[test]
fn a_clock_that_goes_back_makes_no_negative_times() {
    let events = timeline(vec![
        record(ONE, Event::Getrbuf, Moment::Entry, 20, &[]),
        record(ONE, Event::Getrbuf, Moment::Exit, 10, &[0]),
        record(ONE, Event::Getsbuf, Moment::Exit, 10, &[0]),
    ]);
    let slices = of_kind(&events, "X");
    assert_eq!((slices.len(), &slices[0]["ts"], &slices[0]["dur"]), (1, &json!(20), &json!(0)));
}

#[test]
fn tasks_and_hosts_have_names_and_events_of_programs_their_values() {
    let name = Value::Text(b"/bin/prog".to_vec());
    let stamp = Stamp { seconds: 5, microseconds: 1 };
    let values = vec![Value::Int(0), Value::Int(0), name];
    let new = Record { event: Event::Newtask, moment: Moment::Once, stamp, tid: TWO, values };
    let int = |value: i32| value.to_ne_bytes().to_vec();
    let items = vec![
        UserItems { kind: 6, array: false, bytes: int(-5), count: 1 },
        UserItems { kind: 6, array: true, bytes: [int(1), int(2)].concat(), count: 2 },
        UserItems { kind: 1, array: true, bytes: b"words".to_vec(), count: 5 },
    ];
    let events = timeline(vec![Part::Record(new), Part::User(stamp, items)]);
    let [start, names @ ..] = &of_kind(&events, "M")[..] else { panic!("no start") };
    assert!(start["args"]["microseconds"].is_i64(), "{start}");
    let names: Vec<_> = names.iter().map(|event| event["args"]["name"].clone()).collect();
    assert_eq!(names, ["alfa", "t40002 prog"]);
    assert_eq!(of_kind(&events, "i")[0]["args"], json!({ "0": -5, "1": [1, 2], "2": "words" }));
}

#[test]
fn a_timeline_leaves_packing_out() {
    let mask = mask();
    assert!(Event::Send.chosen_by(&mask) && Event::Packf.chosen_by(&mask));
    assert!(!Event::Pkint.chosen_by(&mask) && !Event::Upkstr.chosen_by(&mask));
}
