use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn raw_and_socket() -> (UnixStream, ControlSocket) {
    let (raw, other) = UnixStream::pair().unwrap();
    (raw, ControlSocket::new(other.into()).unwrap())
}

fn pipe() -> (std::fs::File, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (reader.into(), writer)
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    here.send(b"one", &[]).unwrap();
    here.send(b"", &[]).unwrap();
    here.send(b"three", &[]).unwrap();
    for (expected, more) in [(&b"one"[..], true), (b"", true), (b"three", false)] {
        assert_eq!(there.receive().unwrap().unwrap().0, expected);
        assert_eq!(there.has_frame(), more);
    }
    assert!(there.receive().unwrap().is_none());
}

#[test]
fn each_frame_keeps_its_own_descriptors() {
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    let (mut first_end, first) = pipe();
    let (mut second_end, second) = pipe();
    here.send(b"plain", &[]).unwrap();
    here.send(b"first", &[first.as_fd()]).unwrap();
    here.send(b"second", &[second.as_fd(), second.as_fd()]).unwrap();
    drop((first, second));
    assert!(there.receive().unwrap().unwrap().1.is_empty());
    for (end, name, count) in [(&mut first_end, "first", 1), (&mut second_end, "second", 2)] {
        let (frame, descriptors) = there.receive().unwrap().unwrap();
        assert_eq!((frame.as_slice(), descriptors.len()), (name.as_bytes(), count));
        for descriptor in descriptors {
            std::fs::File::from(descriptor).write_all(name.as_bytes()).unwrap();
        }
        let mut text = String::new();
        end.read_to_string(&mut text).unwrap();
        assert_eq!(text, name.repeat(count));
    }
}

#[test]
fn what_the_socket_does_not_take_is_sent_later() {
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    let (_end, descriptor) = pipe();
    let long: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    here.send(&long, &[]).unwrap();
    here.send(b"behind", &[descriptor.as_fd()]).unwrap();
    assert!(here.wants_write() && here.queued_bytes() > 2_000_000);
    let mut frames = Vec::new();
    while frames.len() < 2 {
        here.flush().unwrap();
        frames.extend(there.receive().unwrap());
    }
    assert!(frames[0].0 == long && frames[0].1.is_empty());
    assert_eq!((frames[1].0.as_slice(), frames[1].1.len()), (&b"behind"[..], 1));
    assert!(!here.wants_write() && here.queued_bytes() == 0);
}

#[test]
fn a_frame_may_come_byte_by_byte() {
    let (mut raw, mut socket) = raw_and_socket();
    for byte in [3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'] {
        raw.write_all(&[byte]).unwrap();
        assert!(socket.receive().unwrap().is_none());
    }
    raw.write_all(b"c").unwrap();
    assert_eq!(socket.receive().unwrap().unwrap().0, b"abc");
}

#[test]
fn a_length_over_the_limit_is_an_error_and_allocates_nothing() {
    let (mut raw, mut socket) = raw_and_socket();
    raw.write_all(&[0xff; 8]).unwrap();
    assert_eq!(socket.receive().unwrap_err(), ControlError::TooLong);
    let (mut raw, mut socket) = raw_and_socket();
    raw.write_all(&head(FRAME_BYTES_MAX, 0)).unwrap();
    assert!(socket.receive().unwrap().is_none());
    assert!(socket.incoming.capacity() <= GROW_BYTES + 2 * READ_BYTES);
}

#[test]
fn too_many_descriptors_are_refused_on_both_sides() {
    let (mut here, _there) = ControlSocket::pair().unwrap();
    let (_end, descriptor) = pipe();
    let many = [descriptor.as_fd(); DESCRIPTORS_MAX + 1];
    assert_eq!(here.send(b"x", &many), Err(ControlError::TooManyDescriptors));
    let (mut raw, mut socket) = raw_and_socket();
    raw.write_all(&head(0, DESCRIPTORS_MAX + 1)).unwrap();
    assert_eq!(socket.receive().unwrap_err(), ControlError::TooManyDescriptors);
}

#[test]
fn descriptors_that_belong_to_no_frame_are_an_error() {
    let (raw, mut socket) = raw_and_socket();
    let (_end, descriptor) = pipe();
    let raw = OwnDescriptor::from(OwnedFd::from(raw));
    for byte in head(5, 0) {
        write(&raw, &[IoSlice::new(&[byte])], &[descriptor.as_fd()]).unwrap();
    }
    assert_eq!(socket.receive().unwrap_err(), ControlError::Malformed);
    let (mut raw, mut socket) = raw_and_socket();
    raw.write_all(&head(0, 1)).unwrap();
    assert_eq!(socket.receive().unwrap_err(), ControlError::Malformed);
}

#[test]
fn garbage_is_an_error_for_the_typed_side() {
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    here.send(&[0xff; 20], &[]).unwrap();
    assert_eq!(there.receive_from_task().unwrap_err(), ControlError::Malformed);
}

#[test]
fn the_end_of_the_other_side_is_told_after_its_last_frame() {
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    here.send_to_daemon(&ToDaemon::Bye, &[]).unwrap();
    drop(here);
    assert_eq!(there.receive_from_task().unwrap().unwrap().0, ToDaemon::Bye);
    // The last read has emptied the socket; the system reports the end, and the next read finds it.
    assert!(there.receive().unwrap().is_none());
    assert_eq!(there.receive().unwrap_err(), ControlError::Closed);
    assert_eq!(there.send_to_task(&ToTask::Halting(String::new()), &[]), Err(ControlError::Closed));
}

/// The environment variable that is set when the test below runs again, as a user to whom the system's limit of
/// descriptors in flight applies.
const WITHOUT_PRIVILEGES: &str = "HPVM_TEST_WITHOUT_PRIVILEGES";
/// The descriptor limit of the process that runs the test as that user.
const OPEN_MAX: u64 = 200;

/// Sends descriptors, which nobody reads, until the limit of descriptors in flight is reached.
fn crowd(limit: u64, descriptor: BorrowedFd<'_>) -> Vec<(ControlSocket, ControlSocket)> {
    let mut sockets = Vec::new();
    for _ in 0..limit {
        let (mut here, there) = ControlSocket::pair().unwrap();
        for _ in 0..20 {
            if !here.is_descriptor_limited() {
                here.send(b"x", &[descriptor; DESCRIPTORS_MAX]).unwrap();
            }
        }
        let descriptor_limited = here.is_descriptor_limited();
        sockets.push((here, there));
        if descriptor_limited {
            return sockets;
        }
    }
    panic!("the system takes any number of descriptors")
}

#[test]
fn descriptors_beyond_what_may_be_under_way_are_sent_later_and_nobody_spins() {
    if std::env::var_os(WITHOUT_PRIVILEGES).is_none() {
        let name = "control_socket::tests::descriptors_beyond_what_may_be_under_way_are_sent_later_and_nobody_spins";
        let mut command = std::process::Command::new("setpriv");
        if rustix::process::geteuid().is_root() {
            command.args(["--inh-caps", "-all", "--bounding-set", "-sys_admin,-sys_resource"]);
        }
        let this = std::env::current_exe().unwrap();
        let output = command.arg(this).args(["--exact", name]).env(WITHOUT_PRIVILEGES, "1").output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let (_end, descriptor) = pipe();
    let high = OPEN_MAX * 2;
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN_MAX), maximum: Some(high) }).unwrap();
    let mut sockets = crowd(high, descriptor.as_fd());
    // More descriptors are in flight than the process's own limit allows. That limit is unchanged afterwards.
    assert!(sockets.len() as u64 * 20 * DESCRIPTORS_MAX as u64 > OPEN_MAX);
    assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: Some(OPEN_MAX), maximum: Some(high) });
    let (mut here, _there) = sockets.pop().unwrap();
    assert!(here.wants_write() && here.is_descriptor_limited());
    here.flush().unwrap();
    assert!(here.is_descriptor_limited());
    // A frame without descriptors can still be sent.
    let (mut other, mut end) = ControlSocket::pair().unwrap();
    other.send(b"y", &[]).unwrap();
    assert!(!other.wants_write() && end.receive().unwrap().is_some());
    // The frame can be sent as soon as the other descriptors are not in flight any more.
    drop(sockets);
    here.flush().unwrap();
    assert!(!here.wants_write() && !here.is_descriptor_limited());
}

/// The environment variable that is set when the test below runs again, in a process of its own, whose memory the test
/// can limit.
const WITHOUT_MEMORY: &str = "HPVM_TEST_WITHOUT_MEMORY";

#[test]
fn a_frame_for_which_there_is_no_memory_costs_its_socket_and_nothing_else() {
    if std::env::var_os(WITHOUT_MEMORY).is_none() {
        let name = "control_socket::tests::a_frame_for_which_there_is_no_memory_costs_its_socket_and_nothing_else";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let output =
            command.args(["--exact", name]).env(WITHOUT_MEMORY, "1").env("RUST_BACKTRACE", "0").output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let (mut here, mut there) = ControlSocket::pair().unwrap();
    let (mut raw, mut socket) = raw_and_socket();
    let frame = vec![7; 16 << 20];
    raw.write_all(&head(frame.len(), 0)).unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(pages * rustix::param::page_size() as u64 + (24 << 20)), maximum: None };
    setrlimit(Resource::As, limit).unwrap();
    // This uses up the memory that the allocator has in reserve, too.
    let piece = || {
        let mut piece = Vec::<u8>::new();
        piece.try_reserve_exact(4 << 20).ok().map(|()| piece)
    };
    let mut ballast: Vec<Vec<u8>> = std::iter::from_fn(piece).collect();
    ballast.pop();
    // There is no memory to keep the frame.
    assert_eq!(here.send(&frame, &[]), Err(ControlError::System(Errno::NOMEM)));
    // There is no memory to receive the frame either, although its buffer grows only as bytes arrive.
    let result = (0..16).find_map(|_| {
        for chunk in frame[..1 << 20].chunks(64 << 10) {
            raw.write_all(chunk).unwrap();
            if let Err(error) = socket.receive() {
                return Some(error);
            }
        }
        None
    });
    assert_eq!(result, Some(ControlError::System(Errno::NOMEM)));
    // Other sockets still work: there is memory for short frames.
    let (mut here, mut end) = ControlSocket::pair().unwrap();
    here.send(b"y", &[]).unwrap();
    assert_eq!(end.receive().unwrap().unwrap().0, b"y");
    drop((there.receive(), ballast));
}
