use super::*;
use crate::direct::frames::CHUNK_BYTES_MAX;
use crate::direct::link::incoming::{LongNews, PostedReceive, ReadOutcome, Until, is_ready};
use crate::direct::stall::STALL_LIMIT;
use crate::envelope::Envelope;
use crate::envelope::LinkMessage;
use crate::types::Filter;
use pvm_core::flows::pacing::Pacing;
use pvm_fmp::Endpoint;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::time::Duration;

const ONE: Tid = Tid(0x40001);
const TWO: Tid = Tid(0x80001);

fn direct(peer: Tid, calls: bool, secret: Option<[u8; 32]>) -> Direct {
    Direct { peer, calls, secret, pacing: Pacing::OnLoss, overflows: false, cause: LinkCause::Program }
}

/// Returns both sides of a link.
fn pair(secret: Option<[u8; 32]>) -> [DirectLink; 2] {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let one = DirectLink::new(&direct(TWO, true, secret), near, u64::MAX).unwrap();
    let two = DirectLink::new(&direct(ONE, false, secret), far, u64::MAX).unwrap();
    [one, two]
}

/// Returns the frame of a message that is in one frame.
fn message(meta: Meta, bytes: usize) -> Frame {
    Frame::Message { meta, received: 0, bytes, first: bytes }
}

/// Reads the messages that have arrived. Returns their tags, or why the link has ended.
fn tags(link: &mut DirectLink) -> Result<Vec<u32>, LinkError> {
    let mut arrived = Vec::new();
    let result = link.read(&mut arrived, None, &mut ReadOutcome::default());
    arrived.iter().for_each(|one| link.count_received(one.body.len()));
    link.acknowledge_if_due();
    let tags: Vec<u32> = arrived.iter().map(|one: &LinkMessage| one.meta[1]).collect();
    if tags.is_empty() { result.map(|()| tags) } else { Ok(tags) }
}

/// Sends as a task does: messages that the socket does not take are queued.
fn send(link: &mut DirectLink, tag: u32, bytes: &[u8]) {
    send_body(link, tag, Body::Bytes(bytes));
}

fn send_body(link: &mut DirectLink, tag: u32, body: Body<'_>) {
    let meta = [0, tag, 0, 0, 0, 0];
    let mut copy = QueuedBody::reserve(body, &mut link.queue.pool).unwrap();
    copy.fill(body);
    let written = link.queue.all_written() && link.write(meta, body);
    link.enqueue(QueuedMessage { meta, body: copy, length: body.len() }, written);
}

/// Returns both sides of an established link.
fn established(secret: Option<[u8; 32]>) -> [DirectLink; 2] {
    let [mut one, mut two] = pair(secret);
    let end = Instant::now() + Duration::from_secs(20);
    while !(one.lane.may_switch() && two.lane.may_switch()) {
        assert!(Instant::now() < end);
        assert_eq!(tags(&mut one), Ok(vec![]));
        assert_eq!(tags(&mut two), Ok(vec![]));
    }
    [one, two]
}

#[test]
fn messages_on_the_link_wait_for_the_route_switch() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = established(secret);
        send(&mut one, 5, b"first");
        send(&mut one, 6, &[9; 100_000]);
        assert_eq!(tags(&mut two), Ok(vec![]));
        assert!(!two.interest().contains(PollFlags::IN));
        two.on_route_switch();
        let mut came = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while came.len() < 2 {
            assert!(Instant::now() < end);
            one.flush();
            came.extend(tags(&mut two).unwrap());
        }
        assert_eq!(came, [5, 6]);
    }
}

#[test]
fn what_was_read_ahead_is_passed_on_with_the_route_switch() {
    let [mut one, mut two] = established(None);
    send(&mut one, 5, b"first");
    send(&mut one, 6, b"second");
    drop(one);
    let mut arrived = Vec::new();
    let mut ahead = ReadOutcome { until: Until::Ahead, ..ReadOutcome::default() };
    // The end of the link is found behind the messages.
    assert!((0..100).any(|_| two.read(&mut arrived, None, &mut ahead).is_err()));
    assert!(arrived.is_empty() && two.read_ahead.len() == 2 && !two.interest().contains(PollFlags::IN));
    assert_eq!(tags(&mut two), Ok(vec![]), "the rest is not read before");
    let came: Vec<u32> = two.on_route_switch().iter().map(|message| message.meta[1]).collect();
    assert_eq!(came, [5, 6]);
    assert!(two.interest().contains(PollFlags::IN) && tags(&mut two).is_err());
}

#[test]
fn what_was_read_ahead_waits_for_as_many_route_switches_as_the_peer_has_made() {
    let [mut one, mut two] = established(None);
    // The peer has switched to the link, left it and returned; neither route switch has arrived.
    one.send_frame(Frame::Leaving).unwrap();
    send(&mut one, 5, b"after the second one");
    two.read(&mut Vec::new(), None, &mut ReadOutcome { until: Until::Ahead, ..ReadOutcome::default() }).unwrap();
    assert_eq!(two.read_ahead.len(), 1);
    assert!(two.on_route_switch().is_empty(), "later messages are still on the default route");
    assert_eq!(two.on_route_switch().len(), 1);
}

#[test]
fn a_peer_without_the_secret_is_refused() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let mut one = DirectLink::new(&direct(TWO, true, Some([7; 32])), near, u64::MAX).unwrap();
    let mut two = DirectLink::new(&direct(ONE, false, Some([8; 32])), far, u64::MAX).unwrap();
    let error = (0..100).find_map(|_| tags(&mut one).err().or(tags(&mut two).err()));
    assert!(matches!(error, Some(LinkError::Tls(_))), "{error:?}");
    assert!(!one.lane.may_switch() && !two.lane.may_switch());
}

#[test]
fn a_message_is_read_into_the_receivers_memory_unless_another_comes_first() {
    let [mut one, mut two] = established(None);
    two.on_route_switch();
    let filter = Filter { src: ONE.0 as i32, tag: 6, ctx: 0 };
    send(&mut one, 6, &[3; 10_000]);
    send(&mut one, 6, &[4; 10_000]);
    let mut room = vec![0; 20_000];
    let never = |_: &Envelope| false;
    let mut posted =
        PostedReceive { filter: &filter, own: TWO.0 as i32, room: &mut room, is_intercepted: &never, found: None };
    let mut arrived: Vec<LinkMessage> = Vec::new();
    two.read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
    let (envelope, bytes) = posted.found.unwrap();
    assert_eq!((envelope.src, envelope.tag, bytes), (ONE.0 as i32, 6, 10_000));
    assert!(arrived.is_empty() && two.has_more);
    assert!(room[..10_000].iter().all(|byte| *byte == 3) && room[10_000] == 0);
    assert_eq!(tags(&mut two), Ok(vec![6]));

    send(&mut one, 5, b"");
    send(&mut one, 6, b"");
    let mut posted =
        PostedReceive { filter: &filter, own: TWO.0 as i32, room: &mut [], is_intercepted: &never, found: None };
    two.read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
    assert!(posted.found.is_none());
    assert_eq!(arrived.iter().map(|one| one.meta[1]).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn a_body_in_blocks_arrives_whole_and_stays_in_its_blocks() {
    let mut heap = Endpoint::new().unwrap();
    // More blocks than one system call writes, and more bytes than the socket takes.
    let lengths = (1..40).map(|number| number * number * 137 % 9000 + 1).chain([1_000_000, 1]);
    let (mut blocks, mut body) = (Vec::new(), Vec::new());
    for length in lengths {
        let block = heap.allocate(length + 10).unwrap();
        let bytes: Vec<u8> = (0..length).map(|at| (body.len() + at * 7 + at / 251) as u8).collect();
        block.write(0, &bytes);
        body.extend(bytes);
        blocks.push((block, length));
    }
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = established(secret);
        two.on_route_switch();
        for tag in 0..2 {
            send_body(&mut one, tag, Body::Blocks(&blocks));
        }
        assert!(!one.queue.all_written() && one.queue.bytes() == 2 * body.len());
        assert!(matches!(&one.queue.last().unwrap().body, QueuedBody::Blocks(kept) if kept.len() == blocks.len()));
        let (mut arrived, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while arrived.len() < 2 {
            assert!(Instant::now() < end);
            one.flush();
            two.read(&mut arrived, None, &mut ReadOutcome::default()).unwrap();
        }
        assert!(arrived.iter().all(|one: &LinkMessage| one.body == body));
    }
}

#[test]
fn a_message_that_stops_half_way_is_read_like_others_from_there() {
    let [one, mut two] = established(None);
    two.on_route_switch();
    let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let frame = [message([0, 6, 0, 0, 0, 0], 5000).lead().as_slice(), &body[..]].concat();
    assert_eq!(rustix::net::send(one.fd(), &frame[..2000], SendFlags::NOSIGNAL), Ok(2000));
    let filter = Filter { src: -1, tag: 6, ctx: 0 };
    let (mut room, never) = (vec![0; 5000], |_: &Envelope| false);
    let mut posted =
        PostedReceive { filter: &filter, own: TWO.0 as i32, room: &mut room, is_intercepted: &never, found: None };
    let mut arrived: Vec<LinkMessage> = Vec::new();
    two.read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
    assert!(posted.found.is_none() && arrived.is_empty());
    rustix::net::send(one.fd(), &frame[2000..], SendFlags::NOSIGNAL).unwrap();
    // It is not moved to and fro.
    two.read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
    assert!(posted.found.is_none());
    assert_eq!(arrived.pop().unwrap().body, body);
}

#[test]
fn all_messages_of_a_dead_peer_are_read() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = established(secret);
        // One system call does not read all bytes of these messages.
        (0..4).for_each(|_| send(&mut one, 5, &[1; 30_000]));
        assert!(one.is_flushed());
        drop(one);
        two.on_route_switch();
        assert_eq!(tags(&mut two), Ok(vec![5; 4]));
        assert_eq!(tags(&mut two), Err(LinkError::Closed));
        assert!(two.has_ended() && two.queue.is_empty());
    }
}

#[test]
fn messages_are_queued_until_the_peer_has_acknowledged_them() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = established(secret);
        one.on_route_switch();
        two.on_route_switch();
        (0..3).for_each(|tag| send(&mut one, tag, &[1; 1000]));
        assert_eq!((one.queue.bytes(), one.queue.acknowledged()), (3000, 0));
        assert_eq!(tags(&mut two), Ok(vec![0, 1, 2]));
        // Side `two` has received too few bytes to send an acknowledgement of its own; its next message carries the
        // acknowledgement.
        assert_eq!(tags(&mut one), Ok(vec![]));
        assert_eq!(one.queue.bytes(), 3000);
        send(&mut two, 9, b"");
        assert_eq!(tags(&mut one), Ok(vec![9]));
        assert_eq!((one.queue.bytes(), one.queue.acknowledged()), (0, 3));
        assert_eq!(two.lane.received(), 3);

        send(&mut one, 3, &vec![2; ACKNOWLEDGED_BYTES]);
        let end = Instant::now() + Duration::from_secs(20);
        while one.queue.bytes() > 0 {
            assert!(Instant::now() < end);
            one.flush();
            tags(&mut two).unwrap();
            tags(&mut one).unwrap();
        }
        for tag in 0..ACKNOWLEDGED_MESSAGES {
            send(&mut one, tag, b"");
            tags(&mut two).unwrap();
        }
        assert_eq!(tags(&mut one), Ok(vec![]));
        assert!(one.queue.is_empty());
    }
}

#[test]
fn an_acknowledgement_of_unsent_messages_is_a_protocol_violation() {
    let [mut one, mut two] = established(None);
    one.on_route_switch();
    send(&mut one, 5, b"one");
    two.lane.received_counter().set(2);
    send(&mut two, 6, b"two");
    assert_eq!(tags(&mut one), Err(LinkError::Malformed));
    assert!(!one.has_ended());
}

#[test]
fn a_stalled_link_is_given_up_and_one_with_a_slow_reader_is_not() {
    let begin = Instant::now();
    let second = |number| begin + Duration::from_secs(number);
    let carried = |acknowledged, received, retries| Carried { acknowledged, received, retries, ..Carried::default() };
    let mut stall = Stall::default();
    let given_up = (0..60).find(|number| stall.is_expired(carried(7, *number, true), false, second(*number)));
    assert_eq!(given_up, Some(STALL_LIMIT.as_secs()));
    // The connection carries bytes from time to time.
    let mut stall = Stall::default();
    assert!((0..600).all(|number| !stall.is_expired(carried(number / 8, 0, true), false, second(number))));
    // The system does not retransmit at first; then it begins to.
    let mut stall = Stall::default();
    assert!((0..600).all(|number| !stall.is_expired(carried(7, 0, false), false, second(number))));
    assert!(!stall.is_expired(carried(7, 0, true), false, second(600)));
    // The peer is dead. While bytes arrive, its last messages may still be among them, so the link is kept.
    let mut stall = Stall::default();
    assert!((0..600).all(|number| !stall.is_expired(carried(7, number / 8, false), true, second(number))));
    assert!(stall.is_expired(carried(7, 74, false), true, second(620)));
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Returns both sides of a link on which both send. The sides may send that many bytes of long messages at first.
fn limited(secret: Option<[u8; 32]>, limits: [u64; 2]) -> [DirectLink; 2] {
    let [mut one, mut two] = pair(secret);
    (two.granted, one.granted) = (limits[0], limits[1]);
    let end = Instant::now() + Duration::from_secs(20);
    while !(one.lane.may_switch() && two.lane.may_switch()) {
        assert!(Instant::now() < end);
        tags(&mut one).unwrap();
        tags(&mut two).unwrap();
    }
    one.on_route_switch();
    two.on_route_switch();
    [one, two]
}

/// Reads both sides until each has received that many messages. Returns these.
fn exchange(links: &mut [DirectLink; 2], counts: [usize; 2]) -> [Vec<LinkMessage>; 2] {
    let (mut came, end) = ([Vec::new(), Vec::new()], Instant::now() + Duration::from_secs(20));
    while came.each_ref().map(Vec::len) != counts {
        assert!(Instant::now() < end, "{} and {} messages", came[0].len(), came[1].len());
        for (link, came) in links.iter_mut().zip(&mut came) {
            let before = came.len();
            link.read(came, None, &mut ReadOutcome::default()).unwrap();
            came[before..].iter().for_each(|one| link.count_received(one.body.len()));
        }
    }
    came
}

#[test]
fn two_sides_in_the_middle_of_long_messages_send_grants_and_acknowledgements() {
    for secret in [None, Some([7; 32])] {
        let mut links = limited(secret, [100_000, 0]);
        let body = pattern(3_000_000);
        (0..2).for_each(|tag| links.iter_mut().for_each(|link| send(link, tag, &body)));
        // Both sides are in the middle of a message, and neither may send more.
        for _ in 0..20 {
            assert!(links.iter_mut().all(|link| tags(link) == Ok(vec![])));
        }
        assert!(links.iter().all(|link| link.is_held() && link.is_flushed() && !link.queue.all_written()));
        let arrived = |link: &mut DirectLink| {
            let news: Vec<LongNews> = link.take_news().collect();
            news.iter().map(|one| if let LongNews::Arrived(_, bytes) = one { *bytes } else { 0 }).sum::<usize>()
        };
        assert_eq!(links.each_mut().map(arrived), [0, 100_000]);
        for up_to in [700_000, 2_500_000, 2_400_000, 10_000_000] {
            links.iter_mut().for_each(|link| link.grant(up_to));
            for _ in 0..200 {
                if up_to < 3_000_000 {
                    assert!(links.iter_mut().all(|link| tags(link) == Ok(vec![])));
                }
            }
        }
        let came = exchange(&mut links, [2, 2]);
        assert!(came.iter().flatten().all(|one| one.body == body));
    }
}

#[test]
fn a_grant_in_the_middle_of_the_last_message_is_sent_when_the_message_is_written() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = limited(secret, [u64::MAX, 0]);
        let (meta, body) = ([0, 1, 0, 0, 0, 0], pattern(3_000_000));
        assert!(!one.write(meta, Body::Bytes(&body)) && one.outgoing.is_in_frame(), "the socket is full");
        one.grant(9_000_000);
        let mut came = Vec::new();
        while !one.write(meta, Body::Bytes(&body)) {
            came.extend(tags(&mut two).unwrap());
        }
        // Nothing else is written on this side, beside encrypted bytes that wait for room in the socket.
        let end = Instant::now() + Duration::from_secs(20);
        while came.is_empty() || one.connection.wants_write() {
            assert!(Instant::now() < end);
            one.flush();
            came.extend(tags(&mut two).unwrap());
        }
        assert_eq!(came, [1]);
        let _ = tags(&mut two);
        send(&mut two, 2, &body);
        assert!(!two.is_held(), "the other side has its grant");
    }
}

#[test]
fn short_messages_need_no_grant_and_a_long_one_begins_without_one() {
    let mut links = limited(None, [0, 0]);
    send(&mut links[0], 1, &[1; 4096]);
    send(&mut links[0], 2, &[2; 4097]);
    send(&mut links[0], 3, b"behind it");
    assert_eq!(tags(&mut links[1]), Ok(vec![1]));
    let news: Vec<LongNews> = links[1].take_news().collect();
    assert_eq!(news, [LongNews::Begun(2, 4097)]);
    links[1].grant(5000);
    // The grant does not depend on the peer's route switch, nor on another message.
    assert_eq!(tags(&mut links[0]), Ok(vec![]));
    assert_eq!(tags(&mut links[1]), Ok(vec![2, 3]));
}

/// Returns a message in frames with that many bytes of the body in each, with other frames between them.
fn in_frames(body: &[u8], part_bytes: usize) -> Vec<u8> {
    let mut written = Vec::new();
    for (number, part) in body.chunks(part_bytes).enumerate() {
        let frame = match number {
            0 => Frame::Message { meta: [0, 6, 0, 0, 0, 0], received: 0, bytes: body.len(), first: part.len() },
            _ => Frame::Continuation { bytes: part.len() },
        };
        written.extend_from_slice(frame.lead().as_slice());
        written.extend_from_slice(part);
        if number % 3 == 0 {
            written.extend_from_slice(Frame::Grant { up_to: 77 }.lead().as_slice());
            written.extend_from_slice(Frame::Acknowledgement { received: 0 }.lead().as_slice());
        }
    }
    written
}

#[test]
fn a_long_body_gets_the_memory_of_an_earlier_one_of_about_its_length() {
    for (bytes, spare_bytes, is_used) in
        [(10_000, 10_000, true), (10_000, 9_999, false), (10_000, 20_001, false), (100, 100, false)]
    {
        let [mut one, mut two] = established(None);
        two.on_route_switch();
        let body = pattern(bytes);
        send(&mut one, 6, &body);
        let mut outcome = ReadOutcome { spare: vec![9; spare_bytes], ..ReadOutcome::default() };
        let (place, mut arrived) = (outcome.spare.as_ptr(), Vec::new());
        two.read(&mut arrived, None, &mut outcome).unwrap();
        assert_eq!(
            (arrived[0].body.as_ptr() == place, outcome.spare.is_empty()),
            (is_used, is_used),
            "{bytes} {spare_bytes}"
        );
        assert!(arrived[0].body == body && outcome.bytes == bytes);
    }
}

#[test]
fn a_link_whose_receive_was_abandoned_in_the_middle_of_a_message_is_given_up() {
    let [one, mut two] = established(None);
    two.on_route_switch();
    let frames = in_frames(&pattern(100_000), CHUNK_BYTES_MAX);
    write_all(&one.fd().try_clone_to_owned().unwrap(), &frames[..50_000]);
    assert_eq!(tags(&mut two), Ok(vec![]));
    // A jump out of the receive leaves this.
    two.incoming.lose_body();
    assert_eq!(tags(&mut two), Err(LinkError::Malformed));
}

#[test]
fn a_long_body_is_acknowledged_at_once() {
    let [mut one, mut two] = established(None);
    two.on_route_switch();
    send(&mut one, 5, b"long");
    let mut arrived: Vec<LinkMessage> = Vec::new();
    two.read(&mut arrived, None, &mut ReadOutcome::default()).unwrap();
    two.count_received(AWAITED_BYTES_MIN - 1);
    assert_eq!((tags(&mut one), one.queue.len()), (Ok(vec![]), 1));
    two.count_received(AWAITED_BYTES_MIN);
    one.queue.push(QueuedMessage { meta: [0; 6], body: QueuedBody::Bytes(Vec::new()), length: 0 }, true);
    assert_eq!((tags(&mut one), one.queue.len()), (Ok(vec![]), 0));
}

fn write_all(socket: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(_) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Sends a message whose first bytes have been read before its receive is posted. Returns whether it was read into the
/// receiver's memory; otherwise its other bytes were late.
fn is_continued_in_posted() -> bool {
    let [one, mut two] = established(None);
    two.on_route_switch();
    let body = pattern(600_000);
    let (socket, frames) = (one.fd().try_clone_to_owned().unwrap(), in_frames(&body, CHUNK_BYTES_MAX));
    write_all(&socket, &frames[..70_000]);
    assert_eq!(tags(&mut two), Ok(vec![]));
    assert!(two.incoming.has_begun());
    let writer = std::thread::spawn(move || write_all(&socket, &frames[70_000..]));
    assert!(is_ready(&two.connection, PollFlags::IN, Duration::from_secs(20)));
    let (mut room, never, filter) = (vec![0; 700_000], |_: &Envelope| false, Filter { src: -1, tag: 6, ctx: 0 });
    let mut posted =
        PostedReceive { filter: &filter, own: TWO.0 as i32, room: &mut room, is_intercepted: &never, found: None };
    let (mut arrived, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while posted.found.is_none() && arrived.is_empty() {
        assert!(Instant::now() < end);
        two.read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
    }
    writer.join().unwrap();
    let found = posted.found;
    match &found {
        Some((_, bytes)) => assert!(*bytes == body.len() && room[..*bytes] == body),
        None => assert!(arrived[0].body == body),
    }
    found.is_some()
}

#[test]
fn a_message_that_has_begun_before_its_receive_goes_on_in_the_receivers_memory() {
    assert!((0..20).any(|_| is_continued_in_posted()));
}

#[test]
fn a_read_for_a_send_that_waits_leaves_the_bodies_of_messages() {
    let [mut one, mut two] = established(None);
    one.on_route_switch();
    two.on_route_switch();
    send(&mut one, 5, b"long");
    assert_eq!(tags(&mut two), Ok(vec![5]));
    two.unreported_bytes = ACKNOWLEDGED_BYTES;
    two.acknowledge_if_due();
    send(&mut two, 6, b"answer");
    let mut arrived = Vec::new();
    let mut read_until = |one: &mut DirectLink, count| {
        one.read(&mut arrived, None, &mut ReadOutcome { until: Until::Acknowledged(count), ..ReadOutcome::default() })
            .unwrap();
        assert!(arrived.is_empty() && one.needs_read());
    };
    let count = one.queue.sent_count();
    read_until(&mut one, count);
    assert!(one.queue.is_empty() && !one.incoming.has_begun());
    assert_eq!(tags(&mut one), Ok(vec![6]));
    // A message that acknowledges nothing ends the wait, too.
    send(&mut one, 5, b"long");
    send(&mut two, 6, b"crossing");
    let count = one.queue.sent_count();
    read_until(&mut one, count);
    assert!(one.incoming.has_begun());
    assert_eq!(tags(&mut one), Ok(vec![6]));
}

#[test]
fn a_long_message_is_read_into_the_receivers_memory_unless_it_waits_for_grants() {
    let sizes = [(600_000, CHUNK_BYTES_MAX), (600_000, 10_000), (20_000, 7), (200_000, 200_000)];
    for ((bytes, part_bytes), limit) in sizes.into_iter().flat_map(|size| [(size, u64::MAX), (size, 0)]) {
        let mut links = limited(None, [limit, u64::MAX]);
        let body = pattern(bytes);
        let (socket, frames) = (links[0].fd().try_clone_to_owned().unwrap(), in_frames(&body, part_bytes));
        let writer = std::thread::spawn(move || write_all(&socket, &frames));
        assert!(is_ready(&links[1].connection, PollFlags::IN, Duration::from_secs(20)));
        let filter = Filter { src: -1, tag: 6, ctx: 0 };
        let (mut room, never) = (vec![0; bytes], |_: &Envelope| false);
        let (filter, is_intercepted) = (&filter, &never);
        let mut posted = PostedReceive { filter, own: 1, room: &mut room, is_intercepted, found: None };
        let mut arrived: Vec<LinkMessage> = Vec::new();
        links[1].read(&mut arrived, Some(&mut posted), &mut ReadOutcome::default()).unwrap();
        let found = posted.found.map(|(_, bytes)| bytes);
        if found.is_some() {
            assert!((limit == u64::MAX || part_bytes == bytes) && found == Some(bytes) && room == body);
        } else if arrived.is_empty() {
            // The rest was late, or is read as any other message since it may wait for grants.
            arrived.extend(exchange(&mut links, [0, 1])[1].pop());
        }
        assert!(found.is_some() || arrived[0].body == body);
        writer.join().unwrap();
    }
}

#[test]
fn a_peer_that_breaks_the_rules_of_frames_loses_the_link() {
    let begun = |bytes, first| Frame::Message { meta: [0; 6], received: 0, bytes, first };
    let cases: [(&str, &[Frame]); 8] = [
        ("a second hello", &[Frame::Hello { up_to: 0 }]),
        ("a continuation of nothing", &[Frame::Continuation { bytes: 1 }]),
        ("more than was announced", &[begun(10, 5), Frame::Continuation { bytes: 6 }]),
        ("a continuation of a whole message", &[begun(5, 5), Frame::Continuation { bytes: 1 }]),
        ("a continuation without bytes", &[begun(10, 5), Frame::Continuation { bytes: 0 }]),
        ("a message in a message", &[begun(10, 5), begun(1, 1)]),
        ("a beginning that is longer than the message", &[begun(5, 6)]),
        ("a message that is longer than any", &[begun(1 << 31, 5)]),
    ];
    for (what, frames) in cases {
        let [one, mut two] = limited(None, [0, 0]);
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend_from_slice(frame.lead().as_slice());
            let count = match frame {
                Frame::Message { first, .. } => *first,
                Frame::Continuation { bytes } => *bytes,
                _ => 0,
            };
            bytes.extend(vec![1; count]);
        }
        rustix::net::send(one.fd(), &bytes, SendFlags::NOSIGNAL).unwrap();
        let result = two.read(&mut Vec::<LinkMessage>::new(), None, &mut ReadOutcome::default());
        assert_eq!(result, Err(LinkError::Malformed), "{what}");
    }
    let [one, mut two] = limited(None, [0, 0]);
    let lead = pvm_net::Lead::new(2, &[0; 24], CHUNK_BYTES_MAX + 100);
    rustix::net::send(one.fd(), lead.as_slice(), SendFlags::NOSIGNAL).unwrap();
    assert!(matches!(tags(&mut two), Err(LinkError::TooLong(_))));
}

#[test]
fn grants_of_any_kind_do_no_harm() {
    let mut links = limited(None, [0, u64::MAX]);
    send(&mut links[0], 1, &pattern(50_000));
    for up_to in [u64::MAX, 0, 1, 3_000, 0, u64::MAX - 1, 60_000] {
        links[1].grant(up_to);
        links[0].read(&mut Vec::new(), None, &mut ReadOutcome::default()).unwrap();
    }
    assert_eq!(tags(&mut links[1]), Ok(vec![1]));
}
