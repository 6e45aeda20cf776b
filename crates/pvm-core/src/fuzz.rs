//! Fuzz targets: untrusted input for the decoders of this crate (docs/testing.md).
use crate::dialogue::{self, Greeting, Line};
use crate::fabric::{ArrivedBody, BodyMemory, Event as FabricEvent, Header, Introduction, Link, Message};
use crate::flows::frames::{FrameHeader, read_header};
use crate::flows::multicast::{BodyKey, BodyRequest, Fetches, PART_BYTES_MIN, Stored};
use crate::flows::{DataFrame, InboundFlows};
use crate::format::Format;
use crate::hostfile::{self, Hostfile};
use crate::proto::{ToDaemon, ToTask};
use crate::tid::Tid;
use crate::wire::{Frame, decode, encode};
use crate::{encoding::Reader, flows, ranges, trace};
use pvm_fuzz::{Target, file, part};
use std::fmt::Debug;
use std::rc::Rc;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "daemon-frames",
        run: daemon_frames,
        decoder: &[part("crates/pvm-core/src/wire/mod.rs", &["fmt"]), PROTO],
    },
    Target { name: "control-frames", run: control_frames, decoder: &[PROTO, PROTO_TEXT] },
    Target {
        name: "data-link",
        run: data_link,
        decoder: &[
            file("crates/pvm-core/src/flows/frames.rs"),
            part(
                "crates/pvm-core/src/flows/inbound.rs",
                &["admit", "begin", "chunk_place", "chunk_placed", "host_gone"],
            ),
            part("crates/pvm-core/src/flows/message.rs", &["receivers"]),
        ],
    },
    Target {
        name: "fabric-link",
        run: fabric_link,
        decoder: &[
            part("crates/pvm-core/src/fabric/frame.rs", &["read", "link_of", "read_part", "read_eager", "from_number"]),
            part("crates/pvm-core/src/fabric/introduction.rs", &["decode"]),
            part(
                "crates/pvm-core/src/fabric/link/receiving.rs",
                &[
                    "receive",
                    "awaits",
                    "take",
                    "take_kind",
                    "take_message",
                    "take_eager",
                    "take_more",
                    "take_piece",
                    "take_counters",
                    "piece_arrived",
                    "deliver",
                ],
            ),
        ],
    },
    Target { name: "start-dialogue", run: start_dialogue, decoder: &[file("crates/pvm-core/src/dialogue.rs")] },
    Target {
        name: "hostfile",
        run: hostfile,
        decoder: &[file("crates/pvm-core/src/hostfile.rs"), file("crates/pvm-core/src/ranges.rs")],
    },
    Target {
        name: "default-encoding",
        run: default_encoding,
        decoder: &[
            file("crates/pvm-core/src/encoding.rs"),
            part("crates/pvm-core/src/format.rs", &["of_signature", "is_swapped", "swap"]),
        ],
    },
    Target { name: "trace", run: trace_message, decoder: &[TRACE] },
];

/// The decoders of frames are derived from declarations, so they have no lines whose coverage could be counted.
/// Instead, a test checks that the corpora contain all kinds of frames.
const PROTO: pvm_fuzz::Source = part("crates/pvm-core/src/proto.rs", &["encode", "decode"]);
const PROTO_TEXT: pvm_fuzz::Source = part("crates/pvm-core/src/proto.rs", &["fmt"]);
/// The functions that read trace messages.
const TRACE: pvm_fuzz::Source = part(
    "crates/pvm-core/src/trace.rs",
    &[
        "split",
        "read",
        "parts",
        "next_part",
        "read_record",
        "read_user",
        "item_numbers",
        "data",
        "value",
        "int",
        "form",
        "microseconds",
    ],
);

/// Checks that a decoded value does not change when it is encoded and decoded again.
fn survives<T>(bytes: &[u8])
where
    T: serde::Serialize + for<'a> serde::Deserialize<'a> + Debug,
{
    let Some(value) = decode::<T>(bytes) else { return };
    let written = encode(&value);
    let read: T = decode(&written).expect("an encoded value can be decoded");
    // The values are compared as text, because NaN does not equal itself.
    assert_eq!(format!("{read:?}"), format!("{value:?}"));
}

fn daemon_frames(bytes: &[u8]) {
    survives::<Frame>(bytes);
}

fn control_frames(bytes: &[u8]) {
    survives::<ToDaemon>(bytes);
    survives::<ToTask>(bytes);
}

/// The owner of a link that places every second body that it may place.
#[derive(Default)]
struct Placer {
    asked: u32,
    bytes: usize,
    /// What was written, and perhaps what a forger has left behind it.
    body: Vec<u8>,
}

impl BodyMemory for Placer {
    fn reserve(&mut self, bytes: usize, next: Option<(u64, &[u8])>) -> Option<ArrivedBody> {
        self.asked += u32::from(next.is_some());
        if next.is_some() && self.asked % 2 == 0 {
            (self.bytes, self.body) = (bytes, Vec::new());
            return Some(ArrivedBody::Placed { bytes });
        }
        Some(ArrivedBody::Here(Vec::with_capacity(bytes)))
    }

    fn part(&mut self, at: usize, bytes: usize) -> Option<&mut [u8]> {
        assert!(at <= self.body.len() && at + bytes <= self.bytes);
        self.body.resize(at + bytes, 0);
        // Some places are gone.
        (bytes % 16 != 7).then(|| &mut self.body[at..])
    }
}

/// Checks what a peer on a fabric may send: an introduction, or frames with a byte in front of each that tells its length.
fn fabric_link(bytes: &[u8]) {
    if let Some(introduction) = Introduction::decode(bytes) {
        assert_eq!(Introduction::decode(&introduction.encode()), Some(introduction));
    }
    let end = |link| Introduction { provider: "p".into(), address: vec![1], link, credits: 4, frame_bytes: 200 };
    let mut link = Link::new(&end(1), &end(2), 1 << 20).expect("the introductions fit");
    for number in 0..3 {
        link.send(Message::Short(vec![number]));
        assert!(link.ready(0).is_some());
        link.sent();
    }
    let (mut rest, mut frames, mut told, mut placer) = (bytes, 0, 0, Placer::default());
    while let Some((frame, after)) =
        rest.split_first().and_then(|(length, rest)| rest.split_at_checked((*length).into()))
    {
        rest = after;
        frames += 1;
        let _ = Header::link_of(frame);
        let header = Header::read(frame);
        let room = header.as_ref().and_then(|(header, rest)| link.room_for(header, rest.len(), &mut placer));
        let received = match (header, room) {
            (Some((header, rest)), Some(room)) if frames % 3 > 0 => {
                room.copy_from_slice(rest);
                link.receive_written(&header, rest.len(), &mut placer)
            }
            (Some((_, rest)), Some(_)) => {
                link.forget_room(rest.len());
                link.receive(frame, &mut placer)
            }
            _ => link.receive(frame, &mut placer),
        };
        if received.is_err() {
            return;
        }
        while let Some(event) = link.poll_event() {
            match event {
                // Some pieces stay under way.
                FabricEvent::Read(read) if read.piece.place.key % 2 == 0 => {
                    link.piece_arrived(read.message, read.number);
                }
                FabricEvent::Read(_) | FabricEvent::Begun { .. } => {}
                FabricEvent::Message { content, body, .. } => {
                    assert!(content.len() < frame.len().max(200));
                    assert!(!matches!(&body, ArrivedBody::Here(body) if body.len() > bytes.len()));
                    assert!(!matches!(body, ArrivedBody::Placed { bytes } if bytes != placer.body.len()));
                }
                FabricEvent::NoMemory => return,
                FabricEvent::Taken(number) => {
                    assert!(number > told && number <= 3);
                    told = number;
                }
            }
        }
        if let Some((arrived, whole)) = link.placed().filter(|_| frames % 3 == 0) {
            assert!(arrived <= placer.body.len() && whole == placer.bytes);
            link.replace_placed(vec![0; arrived]);
        }
        // Each of several messages in a frame has at least a word there.
        assert!(link.taken() <= frames + bytes.len() as u64 / 4);
    }
}

/// Checks that input on a data link results in whole messages or in a `ProtocolViolation`.
fn data_link(bytes: &[u8]) {
    let host = Tid::host_number(2);
    let (mut inbound, mut rest) = (InboundFlows::<Vec<u8>>::new(), bytes);
    while let Ok(Some((head, used))) = read_header(rest) {
        assert!(used <= flows::frames::HEADER_BYTES_MAX && used <= rest.len());
        rest = &rest[used..];
        let Some((body, after)) = rest.split_at_checked(head.following_bytes()) else { break };
        rest = after;
        if !takes(&mut inbound, host, head, body) {
            break;
        }
    }
    // When the host is cut off, no state of that host must be left.
    inbound.host_gone(host);
    assert_eq!((inbound.arriving(), inbound.poll_credit()), (0, None));
}

/// Handles a frame as a receiving daemon does. Returns `false` if the other side breaks the rules.
fn takes(inbound: &mut InboundFlows<Vec<u8>>, host: Tid, head: FrameHeader, body: &[u8]) -> bool {
    match head {
        FrameHeader::Start { transfer, header, first } => {
            rewritten(&DataFrame::Start { transfer, header: header.clone(), first, body: Rc::new(()) }, first);
            let is_whole = first == header.bytes;
            inbound.admit(host, &header).is_ok()
                && (is_whole || inbound.begin(host, transfer, header, body.to_vec(), first).is_ok())
        }
        FrameHeader::Chunk { transfer, bytes } => {
            let Ok(at) = inbound.chunk_place(host, transfer, bytes).map(|chunk| chunk.at) else { return false };
            rewritten(&DataFrame::Chunk { transfer, range: at..at + bytes, body: Rc::new(()) }, bytes);
            let arriving = inbound.arriving();
            let whole = inbound.chunk_placed(host, transfer, bytes);
            assert!(whole.is_none_or(|(header, _)| header.bytes == at + bytes && inbound.arriving() < arriving));
            true
        }
        FrameHeader::InBand { dst, bytes } => {
            rewritten(&DataFrame::<()>::InBand { dst, payload: body.to_vec() }, bytes);
            true
        }
        FrameHeader::Announce { header, announcement } => {
            rewritten(&DataFrame::Announce { header: header.clone(), announcement }, 0);
            // A daemon believes announcements of the sender's host alone.
            announcement.key.origin == host
                && inbound.admit(host, &header).is_ok()
                && inbound.fetches.begin(header, &announcement, true, Vec::new()).is_ok()
        }
        FrameHeader::Request { key, request } => {
            rewritten(&DataFrame::Request { key, request: request.clone() }, 0);
            match request {
                BodyRequest::Unavailable => inbound.fetches.unavailable(host, key),
                // The first part is heard before the reports are due.
                BodyRequest::Ready => hear(&mut inbound.fetches, key, 0),
                BodyRequest::Report { round, missing } => {
                    missing.into_iter().for_each(|range| hear(&mut inbound.fetches, key, range.start));
                    inbound.fetches.report(key, round, u32::MAX);
                }
                BodyRequest::Fetch { .. } | BodyRequest::Cancel | BodyRequest::Received => {}
            }
            true
        }
        FrameHeader::Part { key, at, bytes } => {
            let Some(place) = inbound.fetches.place(host, key, at, bytes).map(|place| place.at) else { return true };
            rewritten(&DataFrame::Part { key, range: place..place + bytes, body: Rc::new(()) }, bytes);
            if matches!(inbound.fetches.placed(host, key, place, bytes), Stored::Complete(_)) {
                assert!(inbound.fetches.finish(key).is_some_and(|(header, _)| header.bytes == place + bytes));
            }
            true
        }
        FrameHeader::Mark { dst, count } => {
            rewritten(&DataFrame::<()>::Mark { dst, count }, 0);
            inbound.arrivals.marked(host, dst, count).is_ok()
        }
        FrameHeader::Credit { dst, bytes } => {
            let mut written = Vec::new();
            flows::frames::write_credit(&flows::Credit { host, dst, bytes }, &mut written);
            assert_eq!(read_header(&written), Ok(Some((FrameHeader::Credit { dst, bytes }, written.len()))));
            true
        }
        FrameHeader::Acknowledged { position } => {
            let mut written = Vec::new();
            flows::frames::write_acknowledged(position, &mut written);
            assert_eq!(read_header(&written), Ok(Some((FrameHeader::Acknowledged { position }, written.len()))));
            true
        }
        FrameHeader::Grant { up_to } => {
            let mut written = Vec::new();
            flows::frames::write_grant(up_to, &mut written);
            assert_eq!(read_header(&written), Ok(Some((FrameHeader::Grant { up_to }, written.len()))));
            true
        }
    }
}

/// Hears a part of a body, if this host listens to it.
fn hear(fetches: &mut Fetches<Vec<u8>>, key: BodyKey, part: u32) {
    for bytes in [PART_BYTES_MIN, 1400, 1, 0] {
        let Some(at) = fetches.place_heard(key, part, bytes).map(|place| place.at) else { continue };
        assert!(fetches.get(key).is_some_and(|(header, _)| at + bytes <= header.bytes));
        if matches!(fetches.placed_heard(key, part), Stored::Complete(Some(_))) {
            fetches.discard(key);
            return;
        }
        assert!(fetches.place_heard(key, part, bytes).is_none(), "it was heard before");
    }
}

/// Encodes and decodes a header, and checks that it still announces the same number of following bytes.
fn rewritten(frame: &DataFrame<()>, bytes: usize) {
    let mut head = Vec::new();
    flows::frames::write_header(frame, &mut head);
    let Ok(Some((read, used))) = read_header(&head) else { panic!("an encoded header cannot be decoded") };
    assert_eq!((used, read.following_bytes()), (head.len(), bytes));
}

/// Parses the lines of the start dialogue. The first byte chooses the kind of line.
fn start_dialogue(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match first % 3 {
        0 => {
            let mut greeting = Greeting::default();
            for line in text.lines() {
                if greeting.take(line) {
                    break;
                }
            }
            let mut again = Greeting::default();
            greeting.text().lines().for_each(|line| {
                again.take(line);
            });
            assert_eq!(again, greeting);
        }
        1 => match dialogue::read(&text) {
            Line::Started(started) => {
                assert!(started.addresses.len() <= dialogue::ADDRESSES_MAX);
                assert_eq!(dialogue::read(&started.line()), Line::Started(started));
            }
            Line::Failed(_) | Line::Noise | Line::OtherVersion(_) => {}
            Line::OtherProtocol => {
                assert_eq!(dialogue::read(&dialogue::refusal_line("LINUX64", 1)), Line::OtherProtocol);
            }
        },
        _ => command(&text),
    }
}

/// Checks a command line: every name stays one word in the other host's shell.
fn command(text: &str) {
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    let (name, address, key) = (next().to_owned(), next(), dialogue::unhex(next()));
    let address = address.parse().unwrap_or_else(|_| "192.0.2.1:1".parse().expect("an address"));
    let (by_hand, in_foreground) = (text.len() % 2 == 1, text.len() % 4 > 1);
    let (master, own) = (Tid::host_number(1), Tid::host_number(2));
    let call = dialogue::DaemonCommand { name, master, address, own, debug_mask: 0, key, by_hand, in_foreground };
    let command = call.command("pvmd");
    let word = dialogue::quoted(&call.name);
    let equals = if call.name.starts_with('=') { "=" } else { "" };
    assert!(command.contains(&format!(" -n{equals}{word} ")));
    assert_eq!(word_of_shell(&word).as_deref(), Some(call.name.as_str()), "{word}");
}

/// Returns the word that a shell reads from a text, or `None` if the shell would expand or split it.
fn word_of_shell(text: &str) -> Option<String> {
    let (mut word, mut characters) = (String::new(), text.chars());
    while let Some(character) = characters.next() {
        match character {
            '\'' => loop {
                match characters.next()? {
                    '\'' => break,
                    inner => word.push(inner),
                }
            },
            '\\' => word.push(characters.next()?),
            plain if plain.is_ascii_alphanumeric() || "._-:/+,=@%".contains(plain) => word.push(plain),
            _ => return None,
        }
    }
    Some(word)
}

/// The number of hosts for which options are looked up in one file.
const LOOKED_UP: usize = 50;

/// Parses a hostfile, and each of its lines as a host that is added later.
fn hostfile(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let file = Hostfile::parse(&text);
    for (_, error) in &file.errors {
        assert!(!error.to_string().is_empty());
    }
    for host in &file.hosts {
        let line = host.to_string();
        let again = hostfile::parse_host(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(&again, host, "{line}");
        assert!(!host.name().starts_with('-') && !host.address().starts_with('-'));
        assert!(host.login().is_none_or(|login| !login.starts_with('-')));
        let _ = (host.start_option(), host.daemon(), host.machine());
    }
    // Each look-up visits all hosts, so only some are looked up.
    for host in file.hosts.iter().take(LOOKED_UP) {
        file.options_of(&[host.name(), host.address()]);
    }
    for line in text.lines() {
        if let Ok(host) = hostfile::parse_host(line) {
            let name = host.name().to_owned();
            assert_eq!(file.complete(host).name(), name);
        }
        if let Ok(lines) = hostfile::lines(line) {
            assert!(lines.len() <= ranges::NAMES_MAX);
        }
    }
}

/// Reads a body in the default encoding. The first half of the bytes chooses the sender's format and the items, the
/// second half is the body.
fn default_encoding(bytes: &[u8]) {
    let (steps, body) = bytes.split_at(bytes.len() / 2);
    let Some((kind, steps)) = steps.split_first() else { return };
    let signature = match kind % 8 {
        // Both byte orders, and both widths of `long`.
        0..=3 => Format { big_endian: kind % 2 == 1, long_bytes: if kind % 4 < 2 { 4 } else { 8 } }.signature(),
        4 => steps.first_chunk().map_or(0, |word| i32::from_ne_bytes(*word)),
        _ => Format::NATIVE.signature(),
    };
    let mut reader = Reader::of(body, signature);
    let mut writer = crate::encoding::Writer::new();
    for step in steps {
        let before = reader.rest().len();
        writer = match step % 5 {
            // The writer has no method for longs and arrays of numbers.
            3 => reader.long().map(|_| writer.clone()),
            4 => {
                let (count, width) = (usize::from(step / 20), [1, 2, 4, 8][usize::from(step / 5 % 4)]);
                let numbers = reader.numbers(count, width);
                assert!(numbers.as_ref().is_none_or(|numbers| numbers.len() == count * width));
                numbers.map(|_| writer.clone())
            }
            0 => reader.int().map(|value| writer.clone().int(value)),
            1 => reader.string().map(|text| writer.clone().string(text)),
            _ => reader.bytes((step / 5).into()).map(|data| writer.clone().bytes(data)),
        }
        .unwrap_or(writer);
        assert!(reader.rest().len() <= before);
    }
    assert!(writer.finish().len() <= body.len());
}

/// Encodes the records of a trace message, with and without a description, decodes them again, and checks that they
/// have not changed.
fn trace_message(bytes: &[u8]) {
    for part in trace::parts(Reader::new(bytes)) {
        let trace::Part::Record(record) = &part else { continue };
        for describe in [false, true] {
            let mut body = Vec::new();
            record.write(describe, &mut body);
            assert_eq!(trace::parts(Reader::new(&body)), std::slice::from_ref(&part));
        }
        record.data().iter().for_each(|datum| {
            record.int(*datum);
        });
        record.stamp.microseconds();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master_state::{BarrierPlace, MasterState};
    use crate::proto::{Reply, Request};
    use crate::wire::{Backup, GroupChange, StartNews, StartOrder};
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeSet;

    #[test]
    fn untrusted_input_of_the_corpora_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }

    /// Which variants of a protocol's enumeration occur in a corpus. A variant's number is the first byte of its
    /// encoding.
    #[derive(Default)]
    struct Kinds(BTreeSet<u8>);

    impl Kinds {
        fn note(&mut self, value: &impl Serialize) {
            self.0.extend(encode(value).first());
        }

        fn are_all<T: for<'a> Deserialize<'a>>(&self) {
            let is_unknown = |kind: &u8| {
                postcard::from_bytes::<T>(&[*kind]).is_err_and(|error| error == postcard::Error::SerdeDeCustom)
            };
            let count = (0..).find(is_unknown).expect("there are fewer than 255 variants");
            assert_eq!(self.0, BTreeSet::from_iter(0..count), "{}", std::any::type_name::<T>());
        }
    }

    fn read_all<T: for<'a> Deserialize<'a>>(target: &str) -> Vec<T> {
        let inputs = pvm_fuzz::corpus::read(target).expect("the corpus can be read");
        inputs.iter().filter_map(|input| decode(&input.bytes)).collect()
    }

    #[test]
    fn each_kind_of_frame_between_daemons_is_in_the_corpus() {
        let (mut frames, mut changes) = (Kinds::default(), Kinds::default());
        let (mut orders, mut news_of_starts) = (Kinds::default(), Kinds::default());
        let (mut states, mut places, mut backups) = (Kinds::default(), Kinds::default(), Kinds::default());
        for frame in read_all::<Frame>("daemon-frames") {
            frames.note(&frame);
            match &frame {
                Frame::GroupChanged { change, .. } => changes.note(change),
                Frame::StartOrder { order, .. } => orders.note(order),
                Frame::StartNews { news, .. } => news_of_starts.note(news),
                Frame::MasterState(parts) => {
                    for state in parts {
                        states.note(state);
                        if let MasterState::Group(group) = state {
                            places.note(&group.place);
                        }
                    }
                }
                Frame::Backup(piece) => backups.note(piece),
                _ => {}
            }
        }
        frames.are_all::<Frame>();
        changes.are_all::<GroupChange>();
        orders.are_all::<StartOrder>();
        news_of_starts.are_all::<StartNews>();
        states.are_all::<MasterState>();
        places.are_all::<BarrierPlace>();
        backups.are_all::<Backup>();
    }

    #[test]
    fn each_kind_of_frame_between_task_and_daemon_is_in_the_corpus() {
        let (mut to_daemon, mut requests) = (Kinds::default(), Kinds::default());
        for frame in read_all::<ToDaemon>("control-frames") {
            to_daemon.note(&frame);
            if let ToDaemon::Request { request, .. } = &frame {
                requests.note(request);
            }
        }
        let (mut to_task, mut replies) = (Kinds::default(), Kinds::default());
        for frame in read_all::<ToTask>("control-frames") {
            to_task.note(&frame);
            if let ToTask::Reply { reply, .. } = &frame {
                replies.note(reply);
            }
        }
        to_daemon.are_all::<ToDaemon>();
        requests.are_all::<Request>();
        to_task.are_all::<ToTask>();
        replies.are_all::<Reply>();
    }
}
