//! Untrusted input: frames on a control socket, and the files and variables by which a task finds a daemon
//! (docs/testing.md).
use crate::rendezvous::{self, Places};
use crate::{ControlSocket, DESCRIPTORS_MAX};
use pvm_fuzz::{Target, Unstructured, part};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
};
use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// The fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    Target {
        name: "control-socket",
        run: control_socket,
        decoder: &[part(
            "crates/pvm-link/src/control_socket/mod.rs",
            &[
                "receive",
                "has_frame",
                "take_frame",
                "head",
                "take_batch",
                "read",
                "read_once",
                "receive_from_task",
                "receive_from_daemon",
                "fmt",
                "from",
            ],
        )],
    },
    Target {
        name: "rendezvous",
        run: rendezvous,
        decoder: &[part("crates/pvm-link/src/rendezvous/mod.rs", &["new", "plain", "text"])],
    },
];

/// Sends frames and pieces of frames, with and without descriptors, as a hostile task does.
fn control_socket(bytes: &[u8]) {
    // An error of `frames` only means that the input has no more bytes.
    let _ = frames(&mut Unstructured::new(bytes));
}

fn frames(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
    let (mut socket, mut far) = (ControlSocket::new(near).expect("a socket"), Some(far));
    let as_task: bool = from.arbitrary()?;
    while !from.is_empty() {
        let choice: u8 = from.arbitrary()?;
        match choice % 8 {
            0 => send(&far, from.bytes_of_some_length()?, usize::from(choice / 8) % 3),
            1..=4 => {
                let body = from.bytes_of_some_length()?;
                let (said, sent) = (from.arbitrary::<u8>()? % 10, from.arbitrary::<u8>()? % 10);
                let sent = if choice % 8 == 1 { sent } else { said };
                let length = (body.len() as u32).to_le_bytes();
                let frame = [&length, &u32::from(said).to_le_bytes(), body].concat();
                send(&far, &frame, sent.into());
            }
            5 => {
                // The beginning of a long frame, which may never be completed.
                let head = [(from.arbitrary::<u32>()? >> 4).to_le_bytes(), [0; 4]].concat();
                send(&far, &head, 0);
                (0..4).for_each(|_| send(&far, &[0; 30_000], 0));
            }
            6 => {
                // If the far side closes before it has read all data, the system reports a reset instead of an end.
                if choice > 127 {
                    let _ = socket.send(b"unread", &[]);
                }
                far = None;
            }
            _ => {
                let there = socket.has_frame();
                let error = match as_task {
                    true => socket.receive_from_daemon().map(|frame| frame.is_some()),
                    false => socket.receive_from_task().map(|frame| frame.is_some()),
                };
                match error {
                    Ok(came) => assert!(came || !there),
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        return Ok(());
                    }
                }
            }
        }
    }
    while let Ok(Some((frame, descriptors))) = socket.receive() {
        assert!(descriptors.len() <= DESCRIPTORS_MAX && frame.len() <= pvm_core::proto::FRAME_BYTES_MAX);
    }
    Ok(())
}

/// Sends as many of the bytes as the socket takes, with as many descriptors as `descriptors` says.
fn send(far: &Option<OwnedFd>, bytes: &[u8], descriptors: usize) {
    let Some(far) = far else { return };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let list = vec![far.as_fd(); descriptors];
    if !list.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&list));
    }
    // Bytes that the socket does not take are lost.
    let _ = sendmsg(far, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Uses the input as the text of a rendezvous file, and each of its lines as one of the variables that say where the
/// file is.
fn rendezvous(bytes: &[u8]) {
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("rendezvous", rustix::fs::MemfdFlags::CLOEXEC).expect("memory for a file"),
    );
    file.write_all(bytes).expect("memory for a file");
    if let Some(path) = rendezvous::text(&mut file) {
        assert!(path.is_absolute());
    }
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let names = ["PVM_VMID", "PVM_TMP", "XDG_RUNTIME_DIR", "HOME", "PVMSOCK"];
    let set = |name: &str| {
        let line = lines.get(names.iter().position(|known| *known == name)?)?;
        Some(OsString::from(OsStr::from_bytes(line))).filter(|value| !value.is_empty())
    };
    let places = Places::new(1000, OsStr::from_bytes(lines.last().unwrap_or(&&b""[..])), set);
    assert!((1..=3).contains(&places.files.len()) && places.socket.is_none_or(|path| path.is_absolute()));
    for (file, directory) in places.files.iter().zip([set("PVM_TMP").unwrap_or_else(|| "/tmp".into())]) {
        // Whatever `PVM_VMID` is, the file stays in its directory.
        assert_eq!(file.parent(), Some(std::path::Path::new(&directory)));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn untrusted_input_that_was_found_does_no_harm() {
        pvm_fuzz::replay_all(super::TARGETS);
    }
}
