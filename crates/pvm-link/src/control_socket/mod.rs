//! One end of the control connection between a task and its daemon.
use crate::legacy;
use pvm_core::proto::{self, FRAME_BYTES_MAX, ToDaemon, ToTask};
use pvm_descriptor::{OwnDescriptor, above_standard};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// The largest number of descriptors that come with one frame.
///
/// * Filled by: each task
/// * Setting: none, no frame has more than three
/// * Reached: the task is disconnected
/// * Test: `too_many_descriptors_are_refused_on_both_sides`
pub const DESCRIPTORS_MAX: usize = 8;
/// The length of a frame's head in bytes: length of the body, number of descriptors.
const HEAD_BYTES: usize = 8;
/// The time after which to flush a socket again when [`ControlSocket::is_descriptor_limited`] returns true.
pub const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(20);
/// Bytes read at a time while no long frame is arriving.
const READ_BYTES: usize = 3 << 10;
/// Bytes by which the memory for a long frame grows while it arrives.
const GROW_BYTES: usize = 1 << 20;

/// Why a socket has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlError {
    /// The other side has closed the socket.
    Closed,
    /// A frame is longer than the protocol allows.
    TooLong,
    /// A frame carries more descriptors than the protocol allows.
    TooManyDescriptors,
    /// The bytes are no frame, or not a frame of the expected kind.
    Malformed,
    /// The other side belongs to another user.
    Stranger,
    /// The other side is a program with the library of PVM 3.4.
    LegacyLibrary,
    /// A system call has failed.
    System(Errno),
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ControlError::Closed => f.write_str("connection closed"),
            ControlError::TooLong => f.write_str("frame too long"),
            ControlError::TooManyDescriptors => f.write_str("too many descriptors"),
            ControlError::Malformed => f.write_str("malformed frame"),
            ControlError::Stranger => f.write_str("the other side belongs to another user"),
            ControlError::LegacyLibrary => f.write_str("a program with the library of PVM 3.4, not with that of hpvm"),
            ControlError::System(errno) => write!(f, "{errno}"),
        }
    }
}
impl std::error::Error for ControlError {}

impl From<Errno> for ControlError {
    fn from(errno: Errno) -> ControlError {
        match errno {
            Errno::PIPE | Errno::CONNRESET => ControlError::Closed,
            other => ControlError::System(other),
        }
    }
}

/// A frame with its descriptors. The list has fewer descriptors than were sent if this process can open no more.
pub type Received<T> = (T, Vec<OwnedFd>);

/// A frame that the socket has not taken yet, or only in part.
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnDescriptor>,
}

/// One end of a control connection. Neither sending nor receiving blocks.
pub struct ControlSocket {
    socket: OwnDescriptor,
    peer_process: i32,
    outgoing: VecDeque<Outgoing>,
    outgoing_bytes: usize,
    written_bytes: u64,
    /// Set when the system has refused to send descriptors because too many are in flight.
    descriptor_limited: bool,
    /// The length of the longest frame that has waited since the queue was last empty.
    longest: usize,
    incoming: Vec<u8>,
    /// Whether the last read has emptied the socket.
    is_drained: bool,
    /// The descriptors of incomplete frames, one entry for each frame.
    batches: VecDeque<DescriptorBatch>,
}

struct DescriptorBatch {
    descriptors: Vec<OwnedFd>,
    truncated: bool,
}

impl ControlSocket {
    /// Connects to the daemon's socket and checks that the daemon belongs to this user.
    pub fn connect(path: &Path) -> Result<ControlSocket, ControlError> {
        let address = SocketAddrUnix::new(path)?;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
        ControlSocket::new(above_standard(socket).map_err(failure)?)
    }

    /// Takes a connected socket, and checks that its other side belongs to this user.
    pub fn new(socket: OwnedFd) -> Result<ControlSocket, ControlError> {
        let peer = pvm_descriptor::peer_of(socket.as_fd()).map_err(failure)?;
        if peer.user != rustix::process::geteuid().as_raw() {
            return Err(ControlError::Stranger);
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(ControlSocket {
            socket: socket.into(),
            peer_process: peer.process,
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            written_bytes: 0,
            descriptor_limited: false,
            longest: 0,
            incoming: Vec::new(),
            is_drained: false,
            batches: VecDeque::new(),
        })
    }

    /// Makes two connected ends.
    pub fn pair() -> Result<(ControlSocket, ControlSocket), ControlError> {
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((ControlSocket::new(one)?, ControlSocket::new(other)?))
    }

    /// Returns the process id of the other side at the time of the connection, or 0 if it is not visible here.
    pub fn peer_process(&self) -> i32 {
        self.peer_process
    }

    /// Returns the socket, for `poll(2)`: when it is readable, call [`ControlSocket::receive`]; when it is writable and
    /// [`ControlSocket::wants_write`] returns true, call [`ControlSocket::flush`].
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether the program has closed the socket.
    pub fn is_closed(&self) -> bool {
        !self.socket.is_open()
    }

    /// Returns whether frames wait to be sent.
    pub fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether the first waiting frame cannot be sent because too many descriptors of this user are in flight.
    /// No event tells when this is over: call [`ControlSocket::flush`] again after [`DESCRIPTOR_PAUSE`].
    pub fn is_descriptor_limited(&self) -> bool {
        self.descriptor_limited
    }

    /// Returns how many bytes wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing_bytes
    }

    /// Returns how many bytes the socket has taken in total.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns whether more than `bytes_max` bytes wait to be sent. The longest frame is not counted if it alone is
    /// longer than `bytes_max`: a peer needs time to read such a frame.
    pub fn has_backlog_over(&self, bytes_max: usize) -> bool {
        let outsize = if self.longest > bytes_max { self.longest } else { 0 };
        self.outgoing_bytes > bytes_max + outsize
    }

    /// Sends a frame. Bytes that the socket does not take now are kept for [`ControlSocket::flush`].
    pub fn send(&mut self, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(ControlError::TooLong);
        }
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(ControlError::TooManyDescriptors);
        }
        let head = head(frame.len(), descriptors.len());
        let sent = match self.outgoing.is_empty() {
            true => self.write(&[IoSlice::new(&head), IoSlice::new(frame)], descriptors)?,
            false => 0,
        };
        self.written_bytes += sent as u64;
        if sent < HEAD_BYTES + frame.len() {
            self.keep(&head, frame, sent, descriptors)?;
        }
        Ok(())
    }

    /// Keeps a frame for [`ControlSocket::flush`]; its first `sent` bytes have been sent already.
    fn keep(&mut self, head: &[u8], frame: &[u8], sent: usize, fds: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        let mut descriptors = Vec::new();
        if sent == 0 {
            for descriptor in fds {
                descriptors.push(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?.into());
            }
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(head.len() + frame.len() - sent).map_err(|_| Errno::NOMEM)?;
        bytes.extend_from_slice(head.get(sent..).unwrap_or_default());
        bytes.extend_from_slice(&frame[sent.saturating_sub(head.len())..]);
        self.longest = if self.outgoing.is_empty() { bytes.len() } else { self.longest.max(bytes.len()) };
        self.outgoing_bytes += bytes.len();
        self.outgoing.push_back(Outgoing { bytes, sent: 0, descriptors });
        Ok(())
    }

    /// Writes once. Returns zero if the socket takes nothing now.
    fn write(&mut self, data: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<usize, ControlError> {
        let written = match write(&self.socket, data, descriptors) {
            Err(ControlError::System(Errno::TOOMANYREFS)) => {
                with_highest_limit(|| write(&self.socket, data, descriptors))
            }
            other => other,
        };
        self.descriptor_limited = written == Err(ControlError::System(Errno::TOOMANYREFS));
        if self.descriptor_limited { Ok(0) } else { written }
    }

    /// Sends as many of the waiting frames as the socket takes.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        while let Some(mut first) = self.outgoing.pop_front() {
            let descriptors: Vec<_> = first.descriptors.iter().map(AsFd::as_fd).collect();
            let written = self.write(&[IoSlice::new(&first.bytes[first.sent..])], &descriptors);
            let count = *written.as_ref().unwrap_or(&0);
            if count == 0 {
                self.outgoing.push_front(first);
                return written.map(drop);
            }
            first.descriptors.clear();
            first.sent += count;
            self.outgoing_bytes -= count;
            self.written_bytes += count as u64;
            if first.sent < first.bytes.len() {
                self.outgoing.push_front(first);
            }
        }
        Ok(())
    }

    /// Notes that the socket may have become readable, so that the next [`ControlSocket::receive`] reads.
    pub fn expect_more(&mut self) {
        self.is_drained = false;
    }

    /// Returns the next complete frame, if there is one. After a read that has emptied the socket, returns `None` once
    /// without another read.
    pub fn receive(&mut self) -> Result<Option<Received<Vec<u8>>>, ControlError> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            if self.batches.len() > 1 {
                return Err(ControlError::Malformed);
            }
            if std::mem::take(&mut self.is_drained) || !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Returns whether a complete frame has been read that [`ControlSocket::receive`] has not returned. If so, call
    /// [`ControlSocket::receive`] even if the socket is not readable.
    pub fn has_frame(&self) -> bool {
        matches!(self.head(), Ok(Some((length, _))) if self.incoming.len() >= HEAD_BYTES + length)
    }

    /// Takes the first frame out of the bytes that have arrived, if the frame is complete.
    fn take_frame(&mut self) -> Result<Option<Received<Vec<u8>>>, ControlError> {
        let Some((length, count)) = self.head()? else { return Ok(None) };
        let end = HEAD_BYTES + length;
        if self.incoming.len() < end {
            return Ok(None);
        }
        let rest = self.incoming.split_off(end);
        let mut frame = std::mem::replace(&mut self.incoming, rest);
        frame.drain(..HEAD_BYTES);
        Ok(Some((frame, self.take_batch(count)?)))
    }

    /// Returns the checked head of the first frame: length and number of descriptors.
    fn head(&self) -> Result<Option<(usize, usize)>, ControlError> {
        let Some(head) = self.incoming.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        if legacy::begins(head) {
            return Err(ControlError::LegacyLibrary);
        }
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(ControlError::TooLong);
        }
        if count > DESCRIPTORS_MAX {
            return Err(ControlError::TooManyDescriptors);
        }
        Ok(Some((length, count)))
    }

    /// Answers a library of PVM 3.4 ([`ControlError::LegacyLibrary`]), so that it reports a protocol mismatch.
    pub fn answer_legacy_library(&mut self) {
        if let Some(answer) = legacy::answer(&self.incoming) {
            // A failure does not matter: a peer that does not read needs no answer.
            let _ = rustix::net::send(&self.socket, &answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn take_batch(&mut self, count: usize) -> Result<Vec<OwnedFd>, ControlError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        match self.batches.pop_front() {
            Some(batch) if batch.descriptors.len() == count || batch.truncated => Ok(batch.descriptors),
            _ => Err(ControlError::Malformed),
        }
    }

    /// Reads once. Returns false if there is nothing to read.
    fn read(&mut self) -> Result<bool, ControlError> {
        let missing = match self.head()? {
            Some((length, _)) => HEAD_BYTES + length - self.incoming.len(),
            None => 0,
        };
        // Bytes are read directly to their final place, which grows as a long frame arrives.
        let wanted = missing.clamp(READ_BYTES, GROW_BYTES);
        let (have, batches) = (self.incoming.len(), self.batches.len());
        self.incoming.try_reserve(wanted).map_err(|_| Errno::NOMEM)?;
        self.incoming.resize(have + wanted, 0);
        let count = read_once(&self.socket, &mut self.incoming[have..], &mut self.batches);
        self.incoming.truncate(have + count.as_ref().ok().copied().flatten().unwrap_or(0));
        let Some(count) = count? else { return Ok(false) };
        // A read ends behind bytes that came with descriptors, although there may be more.
        self.is_drained = count < wanted && self.batches.len() == batches;
        Ok(true)
    }

    /// Sends a frame as a task.
    pub fn send_to_daemon(&mut self, frame: &ToDaemon, descriptors: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        self.send(&proto::encode(frame), descriptors)
    }

    /// Receives a frame as a task.
    pub fn receive_from_daemon(&mut self) -> Result<Option<Received<ToTask>>, ControlError> {
        let Some((bytes, descriptors)) = self.receive()? else { return Ok(None) };
        let frame = proto::decode(&bytes).ok_or(ControlError::Malformed)?;
        Ok(Some((frame, descriptors)))
    }

    /// Sends a frame as a daemon.
    pub fn send_to_task(&mut self, frame: &ToTask, descriptors: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
        self.send(&proto::encode(frame), descriptors)
    }

    /// Receives a frame as a daemon.
    pub fn receive_from_task(&mut self) -> Result<Option<Received<ToDaemon>>, ControlError> {
        let Some((bytes, descriptors)) = self.receive()? else { return Ok(None) };
        let frame = proto::decode(&bytes).ok_or(ControlError::Malformed)?;
        Ok(Some((frame, descriptors)))
    }
}

fn failure(error: io::Error) -> ControlError {
    Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
}

fn head(length: usize, descriptors: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..].copy_from_slice(&(descriptors as u32).to_le_bytes());
    head
}

/// Writes once. Returns zero if the socket takes nothing now.
fn write(socket: &OwnDescriptor, data: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<usize, ControlError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ControlError::TooManyDescriptors);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::io::retry_on_intr(|| sendmsg(socket, data, &mut control, flags)) {
        Ok(count) => Ok(count),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// Runs `act` with the highest descriptor limit that this process may have. The system counts all descriptors of the
/// user that are in flight, and refuses to send more if their number exceeds the sender's own descriptor limit. So
/// peers that do not read can prevent a process with a low limit from sending descriptors.
fn with_highest_limit<T>(act: impl FnOnce() -> T) -> T {
    let usual = getrlimit(Resource::Nofile);
    if usual.current == usual.maximum {
        return act();
    }
    let _ = setrlimit(Resource::Nofile, Rlimit { current: usual.maximum, ..usual });
    let result = act();
    let _ = setrlimit(Resource::Nofile, usual);
    result
}

/// Reads once. Returns `None` if there is nothing to read.
fn read_once(
    socket: &OwnDescriptor,
    data: &mut [u8],
    batches: &mut VecDeque<DescriptorBatch>,
) -> Result<Option<usize>, ControlError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let result = rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut *data)], &mut control, flags));
    let message = match result {
        Ok(message) => message,
        Err(Errno::AGAIN) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let truncated = message.flags.contains(ReturnFlags::CTRUNC);
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = part {
            for descriptor in list {
                descriptors.push(above_standard(descriptor).map_err(failure)?);
            }
        }
    }
    if truncated || !descriptors.is_empty() {
        // The system ends a read after the bytes that came with descriptors, so one read never returns the descriptors
        // of two frames.
        batches.push_back(DescriptorBatch { descriptors, truncated });
    }
    match message.bytes {
        0 => Err(ControlError::Closed),
        count => Ok(Some(count)),
    }
}

#[cfg(test)]
mod tests;
