//! Fuzz targets: untrusted input from other tasks and daemons (docs/testing.md).
mod control;
mod releases;

use crate::direct::Body;
use crate::direct::frames::{CHUNK_BYTES_MAX, Frame};
use crate::direct::fuzz;
use crate::direct::link::DirectLink;
use crate::direct::link::incoming::{PostedReceive, ReadOutcome};
use crate::direct::send_queue::{QueuedBody, QueuedMessage};
use crate::envelope::Envelope;
use crate::message::SlotState;
use crate::output::Output;
use crate::types::{ANY, Filter, Kind};
use crate::{Environment, Task};
use pvm_core::codes::{Code, DSIG_X86_64, ENC_IN_PLACE, ENC_TRACE, ENC_XDR};
use pvm_core::flows::pacing::Pacing;
use pvm_core::format::Format;
use pvm_core::proto::{Direct, LinkCause};
use pvm_core::tid::Tid;
use pvm_fuzz::{Target, Unstructured, file, part};
use pvm_net::{Identity, KeyPair, Link, LinkError};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The decoders of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "unpack",
        run: unpack,
        decoder: &[
            file("crates/pvm-task/src/task/unpack.rs"),
            part(
                "crates/pvm-task/src/message/convert.rs",
                &[
                    "read",
                    "holds",
                    "write",
                    "numbers",
                    "numbers_of",
                    "convert",
                    "is_native",
                    "form",
                    "ordered",
                    "take_converted",
                    "make_native",
                ],
            ),
            part("crates/pvm-core/src/format.rs", &["of_signature", "is_swapped", "swap"]),
        ],
    },
    Target {
        name: "task-variables",
        run: task_variables,
        decoder: &[part("crates/pvm-task/src/environment.rs", &["from_lookup", "number"])],
    },
    Target {
        name: "direct-link",
        run: direct_link,
        decoder: &[
            file("crates/pvm-task/src/direct/link/incoming.rs"),
            part("crates/pvm-task/src/direct/frames.rs", &["read", "u64_of", "words_of"]),
            part("crates/pvm-task/src/direct/outgoing.rs", &["plan", "advance", "write_planned"]),
            part(
                "crates/pvm-task/src/direct/link/mod.rs",
                &["on_route_switch", "holds_message", "interest", "on_acknowledgement", "send_grant", "grant"],
            ),
            part(
                "crates/pvm-core/src/channel/lane.rs",
                &["handle_route_switch", "handle_leaving", "handle_hello", "peer_has_switched", "handle_end"],
            ),
        ],
    },
    Target { name: "read-ahead", run: fuzz::read_ahead, decoder: fuzz::DECODER },
    Target { name: "releases", run: releases::releases, decoder: releases::DECODER },
    Target { name: "task-control", run: control::task_control, decoder: control::DECODER },
    Target {
        name: "child-output",
        run: child_output,
        decoder: &[part(
            "crates/pvm-task/src/output.rs",
            &["on_message", "on_raw_message", "text", "end", "mark", "report", "takes"],
        )],
    },
];

/// How many bytes a socket takes while nothing is read from it.
const ROOM_BYTES: usize = 32 << 10;

const KINDS: [Kind; 11] = [
    Kind::Byte,
    Kind::Short,
    Kind::Int,
    Kind::Float,
    Kind::Cplx,
    Kind::Double,
    Kind::Dcplx,
    Kind::Long,
    Kind::Ushort,
    Kind::Uint,
    Kind::Ulong,
];

/// Unpacks a message with any body in any encoding in any way.
fn unpack(bytes: &[u8]) {
    // An error only means that no bytes are left.
    let _ = unpacking(bytes);
}

fn unpacking(bytes: &[u8]) -> pvm_fuzz::Result<()> {
    let (steps, body) = bytes.split_at(bytes.len() / 2);
    let from = &mut Unstructured::new(steps);
    let mut task = Task::new(&Environment::from_lookup(|_| None));
    let enc = [ENC_XDR, DSIG_X86_64, ENC_IN_PLACE, ENC_TRACE, 7][usize::from(from.arbitrary::<u8>()?) % 5];
    let format = match usize::from(from.arbitrary::<u8>()? % 8) {
        // The format has either byte order, and longs of 32 or 64 bits.
        choice if choice < 4 => Format { big_endian: choice % 2 == 1, long_bytes: 4 + choice / 2 * 4 }.signature(),
        4 => from.arbitrary()?,
        _ => Format::NATIVE.signature(),
    };
    let slot = task.state.store.take_slot(SlotState::Buffer);
    let message = &mut task.state.store.table[slot as usize];
    (message.enc, message.format) = (enc, format);
    message.set_body(body.to_vec());
    let mid = slot as i32 + 1;
    task.set_receive_buffer(mid).expect("it is there");
    while !from.is_empty() {
        let kind = KINDS[usize::from(from.arbitrary::<u8>()?) % KINDS.len()];
        let count = usize::from(from.arbitrary::<u16>()?) % 3000;
        // The length is read before each call: when a one-call receive converts longs of 32 bits, the message becomes
        // longer.
        let bytes = task.state.store.receiving().expect("one is active").len();
        match from.arbitrary::<u8>()? % 9 {
            8 => {
                // A one-call receive does this with a message of another format.
                let message = task.state.store.receiving().expect("one is active");
                if message.is_foreign_raw() {
                    let result = message.make_native(kind);
                    assert!(result == Err(Code::BadMsg) || (message.is_native(kind) && message.len() <= 4 * bytes));
                    message.position = message.position.min(message.len());
                }
            }
            0..=2 => drop(task.unpack(kind, &mut vec![0; count % 64 * kind.size()])),
            3 => drop(task.unpack(kind, &mut vec![0; count * kind.size()])),
            4 => {
                let mut stored = 0;
                let _ = task.unpack_with(kind, count, &mut |first, items| {
                    assert_eq!(items.len() % kind.size(), 0);
                    assert!(first * kind.size() >= stored && first + items.len() / kind.size() <= count);
                    stored = first * kind.size() + items.len();
                });
            }
            5 => {
                if let Ok(length) = task.string_bytes() {
                    assert!(length <= bytes);
                    assert!(task.unpack_string(&mut vec![0; length + 1]).is_err());
                    let _ = task.unpack_string(&mut vec![0; length]);
                }
            }
            _ => {
                if let Ok(inner) = task.unpack_message() {
                    let info = task.message_info(inner).expect("it was made just now");
                    assert!(info.len as usize <= bytes);
                    if from.arbitrary()? {
                        task.set_receive_buffer(inner).expect("it is there");
                    }
                }
            }
        }
        let message = task.state.store.receiving().expect("one is active");
        assert!(message.position <= message.len());
    }
    Ok(())
}

/// Reads the environment variables of a task, one per line.
fn task_variables(bytes: &[u8]) {
    let names = ["PVMEPID", "PVMCTX", "PVMTMASK", "PVMTRCBUF", "PVMTRCOPT", "PVMTASKDEBUG", "PVM_TMP", "PVM_VMID"];
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let environment = Environment::from_lookup(|name| {
        let line = lines.get(names.iter().position(|known| *known == name)?)?;
        Some(OsString::from(OsStr::from_bytes(line)))
    });
    let task = Task::new(&environment);
    assert!(!task.is_enrolled());
}

/// Lets another task do anything with its side of a direct link.
fn direct_link(bytes: &[u8]) {
    let _ = on_the_link(&mut Unstructured::new(bytes));
}

/// The longest message that this side sends, in bytes.
const OWN_BYTES_MAX: usize = CHUNK_BYTES_MAX + 5000;

fn on_the_link(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let first: u8 = from.arbitrary()?;
    let secret = (first & 2 != 0).then_some([7; 32]);
    let (pacing, granted) = if first & 4 != 0 { (Pacing::Always, 1000) } else { (Pacing::OnLoss, u64::MAX) };
    let direct = Direct {
        peer: Tid(0x80001),
        calls: first & 1 != 0,
        secret,
        pacing,
        overflows: false,
        cause: LinkCause::Program,
    };
    let mut far = Some(match &secret {
        None => Link::clear(far),
        Some(secret) => other_side(far, secret, direct.calls),
    });
    let mut link = DirectLink::new(&direct, near, granted).expect("a link");
    let mut sent = 0;
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 16 {
            0 => write(&far, from.bytes_of_some_length()?),
            1 => write_frame(&mut far, Frame::Hello { up_to: u64::MAX }, 0),
            2 => write_frame(&mut far, Frame::Hello { up_to: from.arbitrary::<u16>()?.into() }, 0),
            3..=5 => send_as_peer(&mut far, from, sent)?,
            6 => sent += send_own(&mut link, from)?,
            7 if from.arbitrary::<u8>()? == 0 => far = None,
            8 => {
                if receive_posted(&mut link, from)?.is_err() {
                    return Ok(());
                }
            }
            9 => write_frame(&mut far, Frame::Grant { up_to: from.arbitrary()? }, 0),
            10 => link.grant(from.arbitrary::<u32>()?.into()),
            11 => {
                let received = u32::from(from.arbitrary::<u8>()?) % 8;
                write_frame(&mut far, Frame::Acknowledgement { received }, 0);
            }
            _ => {
                let (mut arrived, mut outcome) = (Vec::new(), ReadOutcome::default());
                let result = link.read(&mut arrived, None, &mut outcome);
                assert_eq!(arrived.len(), outcome.messages);
                arrived.iter().for_each(|one| assert_eq!(Envelope::new(one.peer.0, 1, one.meta).src, 0x80001));
                if result.is_err() {
                    return Ok(());
                }
            }
        }
        link.interest();
        link.take_news().for_each(drop);
        assert!(link.queue.bytes() <= OWN_BYTES_MAX * link.queue.sent_count() as usize);
        let _ = far.as_mut().map(Link::handshake);
    }
    Ok(())
}

/// Sends a message, or a part of one, as the other task may.
pub(crate) fn send_as_peer(far: &mut Option<Link>, from: &mut Unstructured<'_>, sent: u32) -> pvm_fuzz::Result<()> {
    let first = usize::from(from.arbitrary::<u16>()?) % ROOM_BYTES;
    let received = if first % 2 == 0 { sent } else { first as u32 % 4 };
    let meta = [0, from.arbitrary::<u8>()?.into(), 0, 0, 0, 0];
    let frame = match from.arbitrary::<u8>()? % 5 {
        0 => Frame::Message { meta, received, bytes: first, first },
        1 => Frame::Message { meta, received, bytes: first + usize::from(from.arbitrary::<u16>()?), first },
        2 => Frame::Message { meta, received, bytes: from.arbitrary::<u32>()? as usize, first },
        3 => Frame::Continuation { bytes: first },
        _ => Frame::Leaving,
    };
    let first = if frame == Frame::Leaving { 0 } else { first };
    write_frame(far, frame, first);
    Ok(())
}

/// Sends a message on the link. Returns 1 if the socket has taken it, otherwise 0.
fn send_own(link: &mut DirectLink, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<u32> {
    link.on_route_switch();
    let length = [100, 5000, OWN_BYTES_MAX][usize::from(from.arbitrary::<u8>()?) % 3];
    let (meta, bytes) = ([0, 5, 0, 0, 0, 0], vec![5; length]);
    let mut body = QueuedBody::reserve(Body::Bytes(&bytes), &mut link.queue.pool).expect("memory");
    body.fill(Body::Bytes(&bytes));
    let written = link.queue.all_written() && link.write(meta, body.body());
    link.enqueue(QueuedMessage { meta, body, length }, written);
    Ok(written.into())
}

/// Receives into the memory of a receive. Returns an error if the link has broken.
fn receive_posted(link: &mut DirectLink, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<Result<(), LinkError>> {
    let mut room = vec![0; 2 * usize::from(from.arbitrary::<u16>()?)];
    let filter = Filter { src: ANY, tag: from.arbitrary::<u8>()?.into(), ctx: 0 };
    let is_intercepted = |envelope: &Envelope| envelope.tag == 7;
    let (filter, is_intercepted) = (&filter, &is_intercepted);
    let mut posted = PostedReceive { filter, own: 1, room: &mut room, is_intercepted, found: None };
    let result = link.read(&mut Vec::new(), Some(&mut posted), &mut ReadOutcome::default());
    assert!(posted.found.is_none_or(|(envelope, bytes)| envelope.tag == filter.tag && bytes <= room.len()));
    Ok(result)
}

/// Writes a frame with `bytes` bytes of a body.
pub(crate) fn write_frame(far: &mut Option<Link>, frame: Frame, bytes: usize) {
    write_as_peer(far, &[frame.lead().as_slice(), &vec![5; bytes]].concat());
}

/// Returns the other side of an encrypted link, with the secret of both.
fn other_side(socket: OwnedFd, secret: &[u8; 32], is_called: bool) -> Link {
    let pair = KeyPair::from_secret(secret);
    let (public, identity) = (pair.public(), Identity::new(pair));
    identity.known().add(public);
    match is_called {
        true => Link::secure_from(socket, &identity),
        false => Link::secure_to(socket, &identity, public),
    }
    .expect("a link")
}

/// Writes as much as the socket takes, without encryption. The rest is lost.
pub(crate) fn write(far: &Option<Link>, bytes: &[u8]) {
    let _ = far.as_ref().map(|far| rustix::net::send(far, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT));
}

/// Writes as the other task does: encrypted, once the handshake is done.
fn write_as_peer(far: &mut Option<Link>, bytes: &[u8]) {
    match far {
        Some(far) if far.is_encrypted() => drop(far.is_ready().then(|| far.try_write(&[bytes]))),
        far => write(far, bytes),
    }
}

/// Takes in daemons' messages with the output of child tasks. The input holds a length and a body for each message.
fn child_output(bytes: &[u8]) {
    let from = &mut Unstructured::new(bytes);
    let mut task = Task::new(&Environment::from_lookup(|_| None));
    task.collect_output(1, 2);
    task.collect_raw_output(1, 3);
    let _ = (|| -> pvm_fuzz::Result<()> {
        while !from.is_empty() {
            let channel = (1, from.arbitrary::<u8>()?.min(3).into());
            let output: &mut Output = &mut task.state.output;
            output.on_message(channel, pvm_core::encoding::Reader::new(from.bytes_of_some_length()?));
            while let Some(event) = task.next_output() {
                assert!(event.ctx == 1 && (event.tag == 2 || event.tag == 3));
            }
        }
        Ok(())
    })();
    assert!(task.collecting() <= bytes.len());
}

#[cfg(test)]
mod tests {
    #[test]
    fn inputs_that_fuzzing_has_found_do_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
