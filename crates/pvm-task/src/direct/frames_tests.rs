use super::*;
use crate::direct::Body;
use crate::direct::outgoing::Outgoing;
use proptest::prelude::*;
use pvm_core::flows::pacing::{SendLimit, is_paced};
use pvm_net::Link;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Returns the head of a frame as the other side of a connection reads it.
fn read_head(bytes: &[u8]) -> Head {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    assert!(Link::clear(near).write_or_queue(&[bytes]).unwrap());
    Link::clear(far).receive().unwrap().unwrap()
}

fn frames() -> impl Strategy<Value = Frame> {
    let message = (any::<[u32; 5]>(), any::<u32>(), 0..=BODY_BYTES_MAX, 0..=CHUNK_BYTES_MAX);
    prop_oneof![
        any::<u64>().prop_map(|up_to| Frame::Hello { up_to }),
        message.prop_map(|([ctx, tag, wid, enc, format], received, bytes, first)| {
            Frame::Message { meta: [ctx, tag, wid, enc, format, 0], received, bytes, first: first.min(bytes) }
        }),
        (1..=CHUNK_BYTES_MAX).prop_map(|bytes| Frame::Continuation { bytes }),
        any::<u32>().prop_map(|received| Frame::Acknowledgement { received }),
        any::<u64>().prop_map(|up_to| Frame::Grant { up_to }),
        Just(Frame::Leaving),
    ]
}

/// Takes the frames of a message out of what was written. Returns the body, and the lengths of its parts.
fn body_of(mut written: &[u8], bytes: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut body, mut parts) = (Vec::new(), Vec::new());
    while !written.is_empty() {
        let count = match Frame::read(&read_head(&written[..written.len().min(100)])) {
            Some(frame @ Frame::Message { first, bytes: all, .. }) if parts.is_empty() => {
                assert_eq!(all, bytes);
                written = &written[frame.lead().as_slice().len()..];
                first
            }
            Some(frame @ Frame::Continuation { bytes }) => {
                written = &written[frame.lead().as_slice().len()..];
                bytes
            }
            other => panic!("{other:?}"),
        };
        body.extend_from_slice(&written[..count]);
        written = &written[count..];
        parts.push(count);
    }
    (body, parts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_frame_is_read_as_it_was_written(frame in frames()) {
        prop_assert_eq!(Frame::read(&read_head(frame.lead().as_slice())), Some(frame));
    }

    #[test]
    fn a_message_arrives_whole_whatever_the_socket_takes_and_the_limit_allows(
        bytes in 0..700_000_usize,
        steps in proptest::collection::vec((0..300_000_usize, 0..200_000_u64), 1..40),
    ) {
        let body: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut outgoing, mut limit, mut up_to) = (Outgoing::default(), SendLimit::new(0), 0);
        let (mut written, mut writes, mut steps) = (Vec::new(), 0, steps.into_iter().cycle());
        let lead_bytes = Frame::Continuation { bytes: 1 }.lead().as_slice().len();
        loop {
            let (socket_takes, granted) = steps.next().unwrap();
            let may_write = outgoing.plan([1, 2, 3, 4, 5, 0], bytes, 9, &limit);
            prop_assert!(may_write || !outgoing.is_in_frame());
            if may_write {
                let take = |parts: &[&[u8]]| {
                    let all = parts.concat();
                    let count = all.len().min(socket_takes + 1);
                    written.extend_from_slice(&all[..count]);
                    Ok(count)
                };
                let count = outgoing.write_planned(Body::Bytes(&body), take).unwrap();
                writes += 1;
                if outgoing.advance(count, bytes, &mut limit) {
                    break;
                }
            }
            // Each write begins one frame at most. The limit counts the bytes behind the frames' beginnings.
            prop_assert!(!is_paced(bytes) || written.len() <= up_to as usize + 400 + lead_bytes * writes);
            up_to += granted + 1;
            limit.set(up_to);
        }
        let (came, parts) = body_of(&written, bytes);
        prop_assert!(came == body);
        prop_assert!(parts.iter().all(|part| *part <= CHUNK_BYTES_MAX));
    }
}
