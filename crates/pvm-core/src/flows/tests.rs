use super::frames::{FrameHeader, read_header, write_credit, write_header};
use super::multicast::{Advice, McastRoute};
use super::*;
use crate::tid::SLOT_MASK;

const META: Meta = [1, 2, 3, 4, 5];

fn sender(number: u32) -> Tid {
    Tid(0x40000 + number)
}
fn task(number: u32) -> Tid {
    Tid(0x80000 + number)
}
fn host() -> Tid {
    Tid(0x80000)
}

fn unpaced() -> Flows<u32> {
    let mut flows = Flows::new();
    flows.set_pacing(Pacing::Off);
    flows
}

/// Takes frames until none is ready. Returns the handle of each complete message.
fn carry(flows: &mut Flows<u32>) -> Vec<u32> {
    let mut whole = Vec::new();
    let mut open = HashMap::new();
    while let Some(frame) = flows.next(host()) {
        match frame {
            DataFrame::Start { header, first, body, .. } if header.bytes == first => whole.push(*body),
            DataFrame::Start { transfer, header, first, .. } => drop(open.insert(transfer, header.bytes - first)),
            DataFrame::Chunk { transfer, range, body } => {
                let left = open.get_mut(&transfer).unwrap();
                *left -= range.len();
                if *left == 0 {
                    whole.push(*body);
                }
            }
            DataFrame::InBand { payload, .. } => whole.push(u32::from(payload[0])),
            DataFrame::Mark { .. } => {}
            other => panic!("no multicast goes along a tree here: {other:?}"),
        }
    }
    whole
}

#[test]
fn messages_to_a_task_go_in_order() {
    let mut flows = unpaced();
    (0..5).for_each(|number| flows.send(sender(1), task(1), META, 100, 0, number));
    assert_eq!(carry(&mut flows), [0, 1, 2, 3, 4]);
    assert_eq!(flows.held_bytes(), 0);
}

#[test]
fn a_multicast_is_measured_if_little_else_is_under_way() {
    let receivers: Vec<Tid> = (2..6).map(|number| Tid(Tid::host_number(number).0 + 1)).collect();
    let is_measured = |short: usize| {
        let mut flows = unpaced();
        flows.send(sender(1), receivers[0], META, short, 0, 1);
        while flows.next(receivers[0].host()).is_some() {}
        let plan =
            flows.plan_multicast(McastRoute::Automatic, Tid::host_number(1), &receivers, 1 << 20, |_| None, || None);
        plan.measurement.is_some()
    };
    assert!(is_measured(100), "the credit for a short message returns late");
    assert!(!is_measured(300 << 10));
}

#[test]
fn a_multicast_without_a_route_takes_the_one_of_its_host() {
    let receivers: Vec<Tid> = (2..6).map(|number| Tid(Tid::host_number(number).0 + 1)).collect();
    let mut flows = unpaced();
    let is_announced = |flows: &mut Flows<u32>, route| {
        flows.plan_multicast(route, Tid::host_number(1), &receivers, 10_000, |_| None, || None).is_announced()
    };
    assert!(!is_announced(&mut flows, McastRoute::Automatic), "nothing is known");
    assert_eq!(flows.take_new_advice(), None);
    flows.set_host_route(McastRoute::Binomial);
    assert_eq!((flows.take_new_advice(), flows.take_new_advice()), (Some(Advice::DAEMONS), None));
    assert!(is_announced(&mut flows, McastRoute::Automatic));
    assert!(!is_announced(&mut flows, McastRoute::Iterative), "the task's choice");
}

#[test]
fn a_flow_without_credit_stops_and_others_go_on() {
    let mut flows = unpaced();
    let half = FLOW_WINDOW_BYTES as usize / 2;
    (0..4).for_each(|number| flows.send(sender(1), task(1), META, half, 0, number));
    (10..12).for_each(|number| flows.send(sender(1), task(2), META, 10, 0, number));
    assert_eq!(carry(&mut flows), [10, 11, 0]);
    assert_eq!(carry(&mut flows), []);
    flows.credit(task(1), cost(half));
    assert_eq!(carry(&mut flows), [1]);
}

#[test]
fn a_message_longer_than_the_window_is_sent_when_little_is_in_flight() {
    let mut flows = unpaced();
    let long = 3 * FLOW_WINDOW_BYTES as usize;
    flows.send(sender(1), task(1), META, long, 0, 1);
    flows.send(sender(1), task(1), META, 1, 0, 2);
    assert_eq!(carry(&mut flows), [1]);
    flows.credit(task(1), cost(long) - FLOW_QUANTUM_BYTES);
    assert_eq!(carry(&mut flows), [2]);
}

#[test]
fn a_long_message_lets_others_pass_after_each_chunk() {
    let mut flows = unpaced();
    flows.send(sender(1), task(1), META, 4 * CHUNK_BYTES_MAX, 0, 1);
    assert!(matches!(flows.next(host()), Some(DataFrame::Start { first: CHUNK_BYTES_MAX, .. })));
    flows.send(sender(2), task(2), META, 8, 0, 2);
    assert!(matches!(flows.next(host()), Some(DataFrame::Chunk { .. })));
    assert!(matches!(flows.next(host()), Some(DataFrame::Start { header, .. }) if header.dst == task(2)));
}

#[test]
fn in_band_frames_need_no_credit_but_keep_their_place() {
    let mut flows = unpaced();
    let long = 2 * FLOW_WINDOW_BYTES as usize;
    flows.send_in_band(task(1), vec![7]);
    flows.send(sender(1), task(1), META, long, 0, 1);
    flows.send(sender(1), task(1), META, 1, 0, 2);
    flows.send_in_band(task(1), vec![8]);
    assert_eq!(carry(&mut flows), [7, 1]);
    flows.credit(task(1), cost(long));
    assert_eq!(carry(&mut flows), [2, 8]);
}

#[test]
fn a_sender_over_its_budget_is_paused_until_half_of_it_is_free() {
    let mut flows = unpaced();
    let mut count = 0;
    while flows.may_take(sender(1)) {
        flows.send(sender(1), task(1), META, 1000, 1000, count);
        count += 1;
    }
    assert!(flows.held_bytes() >= HELD_BYTES_MAX && flows.held_bytes() < HELD_BYTES_MAX + 2000);
    assert!(flows.may_take(sender(2)));
    while flows.has_items(host()) {
        assert!(flows.may_take(sender(1)) || flows.held_bytes() > HELD_BYTES_MAX / 2);
        carry(&mut flows).iter().for_each(|_| flows.credit(task(1), cost(1000)));
    }
    assert_eq!(flows.take_freed(), [sender(1)]);
    assert!(flows.is_idle());
}

#[test]
fn a_multicast_is_sent_to_a_host_once() {
    let mut flows = unpaced();
    flows.send(sender(1), task(3), META, 200_000, 0, 9);
    flows.multicast(sender(1), &[task(1), task(2), task(3), Tid(0xc0001)], META, (300_000, 0), 5, Delivery::default());
    assert_eq!(carry(&mut flows), [9, 5]);
    let Some(DataFrame::Start { header, .. }) = flows.next(Tid(0xc0000)) else { panic!() };
    assert_eq!(header.receivers().collect::<Vec<_>>(), [Tid(0xc0001)]);
}

#[test]
fn a_multicast_does_not_wait_for_a_member_without_credit() {
    let mut flows = unpaced();
    let long = 2 * FLOW_WINDOW_BYTES as usize;
    flows.send(sender(1), task(1), META, long, 0, 1);
    assert_eq!(carry(&mut flows), [1]);
    flows.multicast(sender(1), &[task(1), task(2)], META, (10, 0), 2, Delivery::default());
    assert_eq!(carry(&mut flows), [2]);
    flows.credit(task(1), cost(long));
    let Some(DataFrame::Start { header, .. }) = flows.next(host()) else { panic!() };
    assert_eq!((header.dst, header.others.len()), (task(1), 0));
    [task(1), task(2)].into_iter().for_each(|dst| flows.credit(dst, cost(10)));
    assert!(flows.is_idle());
}

#[test]
fn multicasts_that_cross_do_not_wait_for_each_other() {
    let mut flows = unpaced();
    flows.multicast(sender(1), &[task(1), task(2)], META, (10, 0), 1, Delivery::default());
    flows.multicast(sender(2), &[task(1), task(2)], META, (10, 0), 2, Delivery::default());
    flows.multicast(sender(3), &[task(2), task(3)], META, (10, 0), 3, Delivery::default());
    flows.multicast(sender(4), &[task(3), task(1)], META, (10, 0), 4, Delivery::default());
    carry(&mut flows);
    assert!(!flows.has_items(host()) && flows.held_bytes() == 0);
}

#[test]
fn a_lost_host_leaves_nothing_behind() {
    let mut flows = unpaced();
    flows.send(sender(1), task(1), META, 1_000_000, 0, 1);
    flows.multicast(sender(1), &[task(1), task(2), Tid(0xc0001)], META, (10, 0), 2, Delivery::default());
    flows.send_in_band(task(2), vec![1]);
    flows.next(host());
    flows.host_gone(host());
    assert!(flows.next(host()).is_none() && !flows.is_idle());
    flows.host_gone(Tid(0xc0000));
    assert!(flows.is_idle());
}

#[test]
fn the_last_frame_releases_the_body() {
    let mut flows = unpaced();
    flows.send(sender(1), task(1), META, 2 * CHUNK_BYTES_MAX, 0, 1);
    assert!(matches!(flows.next(host()), Some(DataFrame::Start { body, .. }) if Rc::strong_count(&body) == 2));
    assert!(matches!(flows.next(host()), Some(DataFrame::Chunk { body, .. }) if Rc::strong_count(&body) == 1));
}

#[test]
fn credit_comes_back_when_the_task_has_consumed() {
    let mut inbound = InboundFlows::<()>::new();
    let bytes = FLOW_QUANTUM_BYTES as usize;
    inbound.delivered(task(1), sender(0), bytes, 10);
    assert_eq!(inbound.poll_credit(), None);
    assert_eq!(inbound.wakeup_mark(task(1)), Some(10));
    assert_eq!((inbound.consumed_to(task(1), 9), inbound.consumed_to(task(1), 10)), (0, 1));
    let credit = Credit { host: sender(0), dst: task(1), bytes: cost(bytes) };
    assert_eq!((inbound.poll_credit(), inbound.poll_credit()), (Some(credit), None));
}

#[test]
fn the_end_of_a_task_returns_all_of_its_credit() {
    let mut inbound = InboundFlows::<()>::new();
    inbound.delivered(task(1), sender(0), 10, 1);
    inbound.delivered(task(1), sender(0), 10, 2);
    inbound.consumed_to(task(1), 1);
    assert_eq!((inbound.wakeup_mark(task(1)), inbound.poll_credit()), (None, None));
    inbound.task_gone(task(1));
    assert_eq!(inbound.poll_credit().map(|credit| credit.bytes), Some(2 * cost(10)));
    inbound.dropped(task(1), sender(0), 5);
    assert_eq!(inbound.poll_credit().map(|credit| credit.bytes), Some(cost(5)));
}

#[test]
fn messages_of_a_lost_host_stay_listed_until_the_task_has_consumed_them() {
    let mut inbound = InboundFlows::<()>::new();
    inbound.delivered(task(1), sender(0), FLOW_QUANTUM_BYTES as usize, 10);
    inbound.delivered(task(1), sender(0), FLOW_QUANTUM_BYTES as usize, 20);
    inbound.host_gone(sender(0));
    assert_eq!((inbound.consumed_to(task(1), 10), inbound.wakeup_mark(task(1))), (1, Some(20)));
    assert_eq!((inbound.consumed_to(task(1), 20), inbound.wakeup_mark(task(1))), (1, None));
    assert_eq!(inbound.poll_credit(), None);
}

#[test]
fn chunks_that_do_not_fit_are_violations() {
    let mut inbound = InboundFlows::new();
    let header = MessageHeader { src: sender(1), dst: task(1), others: Vec::new(), meta: META, bytes: 100 };
    assert_eq!(inbound.begin(sender(0), 1, header.clone(), 'a', 100), Err(ProtocolViolation));
    inbound.begin(sender(0), 1, header.clone(), 'a', 60).unwrap();
    assert_eq!(inbound.begin(sender(0), 1, header.clone(), 'b', 60), Err(ProtocolViolation));
    assert!(inbound.chunk_place(sender(0), 1, 41).is_err() && inbound.chunk_place(sender(0), 2, 1).is_err());
    assert_eq!(inbound.chunk_place(sender(0), 1, 40).map(|chunk| (*chunk.block, chunk.at)).ok(), Some(('a', 60)));
    assert_eq!(inbound.chunk_placed(sender(0), 1, 40), Some((header, 'a')));
    assert_eq!(inbound.arriving(), 0);
}

/// Parses the header in `out` when `follow` bytes come after it, and returns it. Checks that no shorter prefix of `out`
/// is a whole header.
fn reread(out: &[u8], follow: usize) -> FrameHeader {
    for short in 0..out.len() {
        assert_eq!(read_header(&out[..short]).map(|head| head.map(|_| ())), Ok(None), "{short} bytes suffice");
    }
    let mut whole = out.to_vec();
    whole.resize(out.len() + follow, 0);
    let (head, bytes) = read_header(&whole).unwrap().unwrap();
    assert_eq!(bytes, out.len());
    head
}

#[test]
fn headers_are_decoded_as_they_were_encoded() {
    let header =
        MessageHeader { src: sender(1), dst: task(1), others: vec![task(2), task(3)], meta: META, bytes: 100_000 };
    let first = CHUNK_BYTES_MAX;
    let mut out = Vec::new();
    write_header(&DataFrame::Start { transfer: 9, header: header.clone(), first, body: Rc::new(()) }, &mut out);
    assert_eq!(reread(&out, first), FrameHeader::Start { transfer: 9, header, first });
    out.clear();
    write_header(&DataFrame::Chunk { transfer: 9, range: 10..30, body: Rc::new(()) }, &mut out);
    assert_eq!(reread(&out, 20), FrameHeader::Chunk { transfer: 9, bytes: 20 });
    out.clear();
    write_header(&DataFrame::<()>::InBand { dst: task(1), payload: vec![1; 5] }, &mut out);
    assert_eq!(reread(&out, 5), FrameHeader::InBand { dst: task(1), bytes: 5 });
    out.clear();
    write_header(&DataFrame::<()>::Mark { dst: task(1), count: 7 }, &mut out);
    assert_eq!(reread(&out, 0), FrameHeader::Mark { dst: task(1), count: 7 });
    out.clear();
    write_credit(&Credit { host: host(), dst: task(1), bytes: 1 << 40 }, &mut out);
    assert_eq!(reread(&out, 0), FrameHeader::Credit { dst: task(1), bytes: 1 << 40 });
}

#[test]
fn a_body_is_kept_until_its_hosts_have_it_even_if_their_tasks_have_gone() {
    let mut flows = Flows::new();
    let receivers = [task(1), Tid(0xc0001), Tid(0x100001)];
    let key = BodyKey { origin: Tid(0x40000), secret: [7; 16] };
    let plan = flows.plan_multicast(McastRoute::Binomial, key.origin, &receivers, 10_000, |_| None, || None);
    flows.multicast(sender(1), &receivers, META, (10_000, 0), 5, plan.with_body(key, [0; 32]));
    for dst in receivers {
        assert!(matches!(flows.next(dst.host()), Some(DataFrame::Announce { .. })));
        // A daemon returns the credit of a task that has gone at once; another task there may want the body.
        flows.credit(dst, cost(10_000));
    }
    assert!(flows.next(host()).is_none(), "bodies wait for the announcements to all hosts");
    assert!(flows.begin_pushes() && !flows.begin_pushes());
    assert!(matches!(flows.next(host()), Some(DataFrame::Part { .. })));
    receivers.into_iter().for_each(|dst| flows.body_received(dst.host(), key));
    assert!(flows.is_idle());
}

#[test]
fn headers_of_multicasts_are_decoded_as_they_were_encoded() {
    let mut out = Vec::new();
    let mut written = |frame: DataFrame<()>, following| {
        out.clear();
        write_header(&frame, &mut out);
        reread(&out, following)
    };
    let key = BodyKey { origin: host(), secret: [7; 16] };
    let announcement = Announcement { key, digest: [8; 32], parent: Tid(0xc0000), children: 3, part_bytes: None };
    let header = MessageHeader { src: sender(1), dst: task(1), others: vec![task(2)], meta: META, bytes: 100_000 };
    assert_eq!(
        written(DataFrame::Announce { header: header.clone(), announcement }, 0),
        FrameHeader::Announce { header: header.clone(), announcement }
    );
    let broadcast = Announcement { parent: key.origin, children: 0, part_bytes: Some(1400), ..announcement };
    assert_eq!(
        written(DataFrame::Announce { header: header.clone(), announcement: broadcast }, 0),
        FrameHeader::Announce { header, announcement: broadcast }
    );
    let fetch = BodyRequest::Fetch { at: 1 << 30 };
    let report = BodyRequest::Report { round: 3, missing: vec![0..2, 5..6] };
    let others = [BodyRequest::Cancel, BodyRequest::Received, BodyRequest::Unavailable, BodyRequest::Ready];
    for request in [fetch, report].into_iter().chain(others) {
        let frame = DataFrame::Request { key, request: request.clone() };
        assert_eq!(written(frame, 0), FrameHeader::Request { key, request });
    }
    assert_eq!(
        written(DataFrame::Part { key, range: 10..30, body: Rc::new(()) }, 20),
        FrameHeader::Part { key, at: 10, bytes: 20 }
    );
}

/// Each range of a report is looked at part by part.
#[test]
fn the_ranges_of_a_report_are_not_empty_and_do_not_overlap() {
    let key = BodyKey { origin: task(1).host(), secret: [7; 16] };
    let read = |missing: &[(u32, u32)]| {
        let mut out = Vec::new();
        let missing = missing.iter().map(|(start, end)| *start..*end).collect();
        let request = BodyRequest::Report { round: 1, missing };
        write_header(&DataFrame::<()>::Request { key, request }, &mut out);
        read_header(&out).map(|frame| frame.is_some())
    };
    for missing in [&[][..], &[(0, 1)], &[(0, 2), (2, 3), (7, u32::MAX)]] {
        assert_eq!(read(missing), Ok(true));
    }
    for missing in [&[(1, 1)][..], &[(0, 9), (0, 9)], &[(0, 9), (8, 10)], &[(5, 6), (1, 2)]] {
        assert_eq!(read(missing), Err(ProtocolViolation));
    }
}

#[test]
fn malformed_headers_are_violations() {
    for bytes in [[0xff; 64], [0; 64], [4; 64]] {
        assert_eq!(read_header(&bytes), Err(ProtocolViolation));
    }
    let header = MessageHeader { src: sender(1), dst: task(1), others: Vec::new(), meta: META, bytes: 10 };
    let mut out = Vec::new();
    write_header(&DataFrame::Start { transfer: 9, header, first: 10, body: Rc::new(()) }, &mut out);
    out[0] += 1;
    assert_eq!(read_header(&out), Err(ProtocolViolation), "more bytes than the message has");
}

#[test]
fn a_frame_that_is_too_long_is_a_violation() {
    let lead = |length: usize, kind: u8| [&(length as u32 + 1).to_le_bytes()[..], &[kind], &[0; 80]].concat();
    let start = frames::HEADER_BYTES_MAX + CHUNK_BYTES_MAX - 5;
    for (kind, length) in [(1, start), (2, 4 + CHUNK_BYTES_MAX), (3, 4 + frames::IN_BAND_PAYLOAD_BYTES_MAX)] {
        if kind != 1 {
            assert!(read_header(&lead(length, kind)).is_ok(), "{kind}");
        }
        assert_eq!(read_header(&lead(length + 1, kind)), Err(ProtocolViolation), "{kind}");
    }
    let others = vec![task(2); SLOT_MASK as usize + 1];
    let header = MessageHeader { src: sender(1), dst: task(1), others, meta: META, bytes: 10 };
    let mut out = Vec::new();
    write_header(&DataFrame::Start { transfer: 9, header, first: 10, body: Rc::new(()) }, &mut out);
    assert_eq!(read_header(&out), Err(ProtocolViolation), "more receivers than a host has");
}

#[test]
fn a_host_that_sends_more_than_a_window_breaks_the_rules() {
    let from = Tid::host_number(2);
    let header = |bytes| MessageHeader { src: sender(1), dst: task(1), others: Vec::new(), meta: META, bytes };
    let mut inbound = InboundFlows::<u32>::new();
    // One message of any length is admitted, and no further message until the first one is consumed.
    assert_eq!(inbound.admit(from, &header(1 << 40)), Ok(()));
    assert_eq!(inbound.admit(from, &header(1)), Err(ProtocolViolation));
    inbound.host_gone(from);
    let count = std::iter::from_fn(|| inbound.admit(from, &header(1000)).ok()).count() as u64;
    assert!(count * cost(1000) <= FLOW_WINDOW_BYTES && (count + 1) * cost(1000) > FLOW_WINDOW_BYTES);
    // Consumed messages make room again.
    (0..count).for_each(|_| inbound.dropped(task(1), from, 1000));
    assert_eq!(inbound.admit(from, &header(1000)), Ok(()));
    // If a receiver is named several times, the cost is counted each time.
    let again = MessageHeader { others: vec![task(2); 1 << 20], ..header(100) };
    assert_eq!(inbound.admit(from, &again), Err(ProtocolViolation));
}

#[test]
fn a_host_that_receives_no_notices_is_detected() {
    let mut flows = Flows::<u32>::new();
    let mut count = 0;
    while !flows.is_overrun(host()) {
        flows.send_in_band(Tid(task(1).0 + count % 1000), vec![0; 1 << 20]);
        count += 1;
    }
    assert!(u64::from(count) * cost(1 << 20) > IN_BAND_QUEUED_BYTES_MAX && count < 300);
    while flows.next(host()).is_some() {}
    assert!(!flows.is_overrun(host()));
}

#[test]
fn a_flow_whose_last_message_another_has_sent_is_removed_even_if_its_credit_precedes_its_turn() {
    let mut flows = unpaced();
    flows.multicast(sender(1), &[task(1), task(2)], META, (10, 0), 1, Delivery::default());
    assert!(matches!(flows.next(host()), Some(DataFrame::Start { header, .. }) if header.others == [task(2)]));
    [1, 2].into_iter().for_each(|number| flows.credit(task(number), cost(10)));
    assert!(flows.next(host()).is_none());
    assert!(flows.is_idle());
}

/// Returns what the next frame does: begins the message of that handle, or marks so many messages to that task.
fn next_step(flows: &mut Flows<u32>) -> Option<Result<u32, (Tid, u32)>> {
    match flows.next(host())? {
        DataFrame::Start { body, .. } | DataFrame::Chunk { body, .. } => Some(Ok(*body)),
        DataFrame::Mark { dst, count } => Some(Err((dst, count))),
        other => panic!("no such frame is due: {other:?}"),
    }
}

#[test]
fn messages_leave_in_the_order_in_which_they_were_queued() {
    let mut flows = unpaced();
    for (number, to) in [1, 1, 2, 1, 3, 2].into_iter().enumerate() {
        flows.send(sender(1), task(to), META, 10, 0, number as u32);
    }
    assert_eq!(carry(&mut flows), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_would_be_overtaken_is_marked_before() {
    let mut flows = unpaced();
    let long = FLOW_WINDOW_BYTES as usize;
    flows.send(sender(1), task(1), META, CHUNK_BYTES_MAX, 0, 0);
    flows.send(sender(1), task(1), META, long, 0, 1);
    assert_eq!([0; 2].map(|_| next_step(&mut flows)), [Some(Ok(0)), Some(Ok(1))]);
    // A task without credit, and nobody to overtake it.
    flows.send(sender(1), task(1), META, 10, 0, 2);
    flows.send(sender(1), task(1), META, 10, 0, 3);
    while let Some(step) = next_step(&mut flows) {
        assert_eq!(step, Ok(1));
    }
    flows.send(sender(2), task(2), META, 10, 0, 4);
    flows.send(sender(2), task(2), META, 10, 0, 5);
    flows.send(sender(1), task(1), META, 10, 0, 6);
    let steps = [Err((task(1), 2 + 1)), Ok(4), Ok(5)];
    assert_eq!(std::array::from_fn(|_| next_step(&mut flows)), steps.map(Some));
    flows.send_in_band(task(3), vec![7]);
    assert_eq!(carry(&mut flows), [7], "all is marked");
    // In-band frames need no credit. They keep their place in the order of the host, behind marked messages.
    flows.send_in_band(task(1), vec![8]);
    flows.send(sender(1), task(1), META, 10, 0, 9);
    flows.send_in_band(task(1), vec![10]);
    assert_eq!(carry(&mut flows), [], "nothing overtakes them");
    flows.send_in_band(task(3), vec![11]);
    assert_eq!(carry(&mut flows), [8, 10, 11]);
    flows.credit(task(1), u64::MAX);
    assert_eq!(carry(&mut flows), [2, 3, 6, 9]);
}

#[test]
fn a_flow_has_a_limited_number_of_marks() {
    let mut flows = unpaced();
    flows.send(sender(1), task(1), META, FLOW_WINDOW_BYTES as usize, 0, 0);
    carry(&mut flows);
    let overtake = |flows: &mut Flows<u32>| {
        flows.send(sender(1), task(1), META, 0, 0, 1);
        flows.send(sender(1), task(2), META, 0, 0, 2);
        let first = next_step(flows);
        let is_marked = first == Some(Err((task(1), 1)));
        assert_eq!(if is_marked { next_step(flows) } else { first }, Some(Ok(2)));
        flows.credit(task(2), cost(0));
        is_marked
    };
    assert!((0..MARKS_MAX).all(|_| overtake(&mut flows)));
    assert!(!overtake(&mut flows));
    flows.credit(task(1), u64::MAX);
    carry(&mut flows);
    assert!(flows.host_flows(host()).marks == 0);
}

#[test]
fn a_host_has_a_limited_number_of_marks() {
    let mut flows = unpaced();
    let flows_needed = (MARKS_OF_HOST_MAX / MARKS_MAX) as u32;
    for number in 0..=flows_needed {
        flows.send(sender(1), task(1 + number), META, FLOW_WINDOW_BYTES as usize, 0, 0);
    }
    carry(&mut flows);
    for round in 0..MARKS_MAX {
        (0..flows_needed).for_each(|number| flows.send(sender(1), task(1 + number), META, 0, 0, 1));
        flows.send(sender(1), task(5000), META, 0, 0, 2);
        assert_eq!(carry(&mut flows), [2], "{round}");
        flows.credit(task(5000), cost(0));
    }
    assert_eq!(flows.host_flows(host()).marks, MARKS_OF_HOST_MAX);
    flows.send(sender(1), task(1 + flows_needed), META, 0, 0, 3);
    flows.send(sender(1), task(5000), META, 0, 0, 4);
    assert_eq!(next_step(&mut flows), Some(Ok(4)), "it passes without a mark");
    flows.host_gone(host());
}
