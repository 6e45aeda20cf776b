//! One end of a direct link.
//!
//! Each side says hello when it has the link and is in the library. Who has heard the other's hello
//! knows that what it sends will be read. It puts a last message on the default route, the *turn*,
//! and sends all that follows on the link; the other side reads the link when the turn has come to
//! it. So nothing overtakes what went before, and nobody waits for anybody.
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::types::Filter;
use pvm_core::proto::Direct;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::{Identity, KeyPair, Link, LinkError};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Words of a message's envelope that travel with it.
const WORDS: usize = 5;
/// Bytes of a body for which memory is made ready at a time.
const GROWTH_BYTES: usize = 256 << 10;
/// Bytes of a body for which memory is reserved before any have come: what its head says may be false.
const RESERVED_BYTES: usize = 16 << 20;
/// Messages taken from one link before others have their turn.
const MESSAGES_IN_TURN_MAX: usize = 64;
/// Bytes of long messages taken from one link before others have their turn.
const BYTES_IN_TURN_MAX: usize = 4 << 20;
/// How long a receive waits for the next bytes of a message that goes straight to where it belongs.
const STALL_TIME_MAX: Duration = Duration::from_millis(2);

/// The longest frame: a body, and the words before it.
const FRAME_BYTES_MAX: usize = i32::MAX as usize + 4 * WORDS;

mod kind {
    /// The sender has the link, and reads it.
    pub const HELLO: u8 = 1;
    /// Header: context, tag, wait id, encoding, format.
    pub const MESSAGE: u8 = 2;
}

/// A message that has come as a whole.
pub(crate) struct Arrived {
    pub peer: Tid,
    pub meta: Meta,
    pub body: Vec<u8>,
}

impl Arrived {
    pub fn envelope(&self, own: i32) -> Envelope {
        envelope(self.peer, own, self.meta)
    }
}

fn envelope(peer: Tid, own: i32, meta: Meta) -> Envelope {
    let [ctx, tag, wid, enc, format, _] = meta.map(|word| word as i32);
    Envelope { src: peer.0 as i32, dst: own, ctx, tag, wid, enc, format }
}

/// Somebody waits for a message, and has room for it.
pub(crate) struct Wanted<'a> {
    pub filter: &'a Filter,
    pub own: i32,
    pub room: &'a mut [u8],
    /// Whether a message is nobody's to receive.
    pub is_special: &'a dyn Fn(&Envelope) -> bool,
    /// The words of the message that came, and its length.
    pub found: Option<(Envelope, usize)>,
}

/// A message of which a part has come.
struct Current {
    meta: Meta,
    bytes: usize,
    body: Vec<u8>,
}

/// One end of a direct link.
pub(crate) struct End {
    pub peer: Tid,
    /// What the daemon calls the link.
    pub number: u32,
    link: Link,
    /// This side begins.
    calls: bool,
    said_hello: bool,
    heard_hello: bool,
    /// What is sent goes this way.
    pub carries: bool,
    /// The other side's turn has come: what it sends comes this way.
    turned: bool,
    current: Option<Current>,
    /// The other side takes nothing at the moment.
    stalled: bool,
    /// Nothing can be sent any more: what is sent is lost, as its receiver is.
    mute: bool,
    /// There is more to read than was taken.
    pub unfinished: bool,
    /// What is watched for on the socket.
    pub watched: PollFlags,
}

/// What a look at a link has brought.
#[derive(Default)]
pub(crate) struct News {
    pub messages: usize,
    /// The other side has said hello.
    pub usable: bool,
}

impl End {
    pub fn new(direct: &Direct, socket: OwnedFd) -> Result<End, LinkError> {
        let mut link = match &direct.secret {
            None => Link::clear(socket),
            Some(secret) => {
                // Both sides have the same key, and nobody else has it.
                let pair = KeyPair::from_secret(secret);
                let public = pair.public();
                let identity = Identity::new(pair);
                identity.known().add(public);
                match direct.calls {
                    true => Link::secure_to(socket, &identity, public)?,
                    false => Link::secure_from(socket, &identity)?,
                }
            }
        };
        link.set_frame_bytes_max(FRAME_BYTES_MAX);
        link.set_queued_bytes_max(usize::MAX);
        Ok(End {
            peer: direct.peer,
            number: direct.number,
            link,
            calls: direct.calls,
            said_hello: false,
            heard_hello: false,
            carries: false,
            turned: false,
            current: None,
            stalled: false,
            mute: false,
            unfinished: false,
            watched: PollFlags::empty(),
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Whether the other side is known to read the link, and has yet to be told that all comes this
    /// way from now on.
    pub fn may_turn(&self) -> bool {
        self.heard_hello && !self.carries
    }

    /// The other side's turn has come.
    pub fn turn(&mut self) {
        self.turned = true;
        self.unfinished = true;
    }

    /// Whether what came before on the default route is there.
    pub fn has_turned(&self) -> bool {
        self.turned
    }

    /// What is to be watched for on the socket. Before the turn what comes must not be read.
    pub fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.heard_hello || self.turned);
        flags.set(PollFlags::OUT, !self.is_flushed());
        flags
    }

    // ----- receiving

    /// Takes what has come. After an error nothing more comes; what came before is among `arrived`.
    pub fn read(
        &mut self,
        arrived: &mut impl Extend<Arrived>,
        mut wanted: Option<&mut Wanted<'_>>,
        news: &mut News,
    ) -> Result<(), LinkError> {
        self.flush();
        if !self.said_hello {
            if !self.link.handshake()? {
                return Ok(());
            }
            self.link.trust_as_it_is();
            if self.calls {
                self.say_hello()?;
            }
        }
        self.unfinished = false;
        let (mut messages, mut bytes) = (0, 0);
        while messages < MESSAGES_IN_TURN_MAX && bytes < BYTES_IN_TURN_MAX {
            if self.current.is_some() {
                let Some(whole) = self.go_on()? else { return Ok(()) };
                messages += 1;
                bytes += whole.body.len();
                news.messages += 1;
                arrived.extend([whole]);
                continue;
            }
            if self.heard_hello && !self.turned {
                return Ok(());
            }
            let Some(head) = self.link.receive()? else { return Ok(()) };
            match (head.kind, <&[u8; 4 * WORDS]>::try_from(head.header())) {
                (kind::HELLO, _) if !self.heard_hello && head.body_bytes == 0 => {
                    self.heard_hello = true;
                    news.usable = true;
                    if !self.said_hello {
                        self.say_hello()?;
                    }
                }
                (kind::MESSAGE, Ok(header)) => {
                    self.current = Some(Current { meta: words(header), bytes: head.body_bytes, body: Vec::new() });
                    // One that came before may be what is waited for.
                    if let Some(wanted) = wanted.as_deref_mut().filter(|_| messages == 0) {
                        self.read_straight(wanted)?;
                        if wanted.found.is_some() {
                            self.unfinished = self.link.has_unread();
                            return Ok(());
                        }
                    }
                }
                _ => return Err(LinkError::Malformed),
            }
        }
        self.unfinished = true;
        Ok(())
    }

    /// The one who was called waits for the caller's: before, the caller's daemon may still read from
    /// the connection.
    fn say_hello(&mut self) -> Result<(), LinkError> {
        self.said_hello = true;
        self.link.send(kind::HELLO, &[], &[])
    }

    /// Goes on with the current message; gives it when it is whole.
    fn go_on(&mut self) -> Result<Option<Arrived>, LinkError> {
        let Some(Current { meta, bytes, body }) = &mut self.current else { return Ok(None) };
        let (meta, bytes) = (*meta, *bytes);
        let mut done = bytes - self.link.body_left();
        while done < bytes {
            let room = bytes.min(done + GROWTH_BYTES);
            let reserved = bytes.min(RESERVED_BYTES.max(2 * room));
            if body.capacity() < room && body.try_reserve_exact(reserved - body.len()).is_err() {
                // It stays in the socket until there is memory.
                return Ok(None);
            }
            body.resize(room, 0);
            match self.link.take(&mut body[done..room])? {
                0 => {
                    body.truncate(done);
                    return Ok(None);
                }
                count => done += count,
            }
        }
        body.truncate(bytes);
        Ok(self.current.take().map(|current| Arrived { peer: self.peer, meta, body: current.body }))
    }

    /// Reads the message that begins to where somebody waits for it, if it fits there. When its bytes
    /// keep one waiting it becomes one like the others.
    fn read_straight(&mut self, wanted: &mut Wanted<'_>) -> Result<(), LinkError> {
        let Some(Current { meta, bytes, body }) = &mut self.current else { return Ok(()) };
        let envelope = envelope(self.peer, wanted.own, *meta);
        let fits = accepts(wanted.filter, envelope.src, envelope.tag, envelope.ctx) && *bytes <= wanted.room.len();
        if !fits || (wanted.is_special)(&envelope) {
            return Ok(());
        }
        let (bytes, mut done) = (*bytes, 0);
        while done < bytes {
            let count = self.link.take(&mut wanted.room[done..bytes])?;
            done += count;
            let stalls = count == 0 && !ready(&self.link, PollFlags::IN, STALL_TIME_MAX);
            // Without memory for a copy it stays where it is.
            if stalls && body.try_reserve_exact(bytes).is_ok() {
                body.extend_from_slice(&wanted.room[..done]);
                return Ok(());
            }
        }
        self.current = None;
        wanted.found = Some((envelope, bytes));
        Ok(())
    }

    // ----- sending

    /// Writes what waits for the socket. A link that takes nothing any more may still have something
    /// to read.
    pub fn flush(&mut self) {
        if self.is_flushed() {
            return;
        }
        let before = self.link.queued_bytes();
        self.mute = self.link.flush().is_err();
        if self.link.queued_bytes() < before {
            self.stalled = false;
        }
    }

    pub fn is_flushed(&self) -> bool {
        self.mute || !self.link.wants_write()
    }

    /// What waits for the socket, as it goes there.
    pub fn rest(&self) -> &[u8] {
        self.link.queued()
    }

    /// Somebody else sends the rest: nothing can be sent here any more.
    pub fn leave_rest(&mut self) {
        self.mute = true;
    }

    /// The beginning of a message of so many bytes.
    pub fn head(meta: Meta, bytes: usize) -> Vec<u8> {
        let mut header = [0; 4 * WORDS];
        for (place, word) in header.chunks_exact_mut(4).zip(meta) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Link::frame_head(kind::MESSAGE, &header, bytes)
    }

    /// Sends as much of a message's next bytes as the socket takes; gives how much, and whether
    /// anything moved.
    pub fn offer(&mut self, parts: &[&[u8]]) -> (usize, bool) {
        let before = self.link.queued_bytes();
        let count = if self.mute { None } else { self.link.offer(parts).ok() };
        let Some(count) = count else {
            self.mute = true;
            return (parts.iter().map(|part| part.len()).sum(), true);
        };
        let moved = count > 0 || self.link.queued_bytes() < before;
        self.stalled &= !moved;
        (count, moved)
    }

    /// Keeps the rest of a message until the socket takes it. Gives whether there was memory for it.
    pub fn push(&mut self, parts: &[&[u8]]) -> bool {
        self.stalled = true;
        let pushed = self.link.keep(parts);
        self.mute |= pushed.is_err();
        pushed.unwrap_or(true)
    }

    /// Whether a sender leaves its message here without waiting.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }
}

fn words(header: &[u8; 4 * WORDS]) -> Meta {
    let mut meta = Meta::default();
    for (word, bytes) in meta.iter_mut().zip(header.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().expect("four"));
    }
    meta
}

/// Waits until the socket is ready; says whether it was in time.
fn ready(link: &Link, flags: PollFlags, time: Duration) -> bool {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let result = rustix::event::poll(&mut [PollFd::new(link, flags)], Some(&timeout));
    // An interruption is no stall.
    result != Ok(0)
}

#[cfg(test)]
#[path = "end_tests.rs"]
mod tests;
