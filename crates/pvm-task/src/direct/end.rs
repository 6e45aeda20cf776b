//! One end of a direct link.
//!
//! Each side says hello when it has the link and is in the library. Who has heard the other's hello
//! knows that what it sends will be read. It puts a last message on the default route, the *turn*,
//! and sends all that follows on the link; the other side reads the link when the turn has come to
//! it. So nothing overtakes what went before, and nobody waits for anybody.
//!
//! Each message says how many the sender has taken in from the other side; one who takes in much and sends nothing
//! says so by itself now and then. What has not been acknowledged is kept, see `back`.
use super::kept::{Copy, Kept, Message};
use super::stall::Stall;
use super::{Body, LENT_BYTES_MIN};
use crate::queue::accepts;
use crate::receive::Envelope;
use crate::types::Filter;
use pvm_core::proto::Direct;
use pvm_core::tid::Tid;
use pvm_fmp::Meta;
use pvm_net::{Carried, Identity, KeyPair, Link, LinkError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

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

/// So much is taken in before it is acknowledged by itself, in bytes and in messages.
const ACKNOWLEDGED_BYTES: usize = 256 << 10;
const ACKNOWLEDGED_MESSAGES: u32 = 256;
/// What is kept is seen through for what has been acknowledged whenever it has grown by so much, in bytes and in messages.
const SEEN_BYTES: usize = 512 << 10;
const SEEN_MESSAGES: usize = 512;

/// Bytes of a message's header: the words of the envelope, and what is acknowledged.
const HEADER_BYTES: usize = 4 * (WORDS + 1);
/// The longest frame: a body, and the words before it.
const FRAME_BYTES_MAX: usize = i32::MAX as usize + HEADER_BYTES;

mod kind {
    /// The sender has the link, and reads it.
    pub const HELLO: u8 = 1;
    /// Header: context, tag, wait id, encoding, format; how many messages the sender has taken in.
    pub const MESSAGE: u8 = 2;
    /// Header: how many messages the sender has taken in.
    pub const TAKEN: u8 = 3;
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
    /// Messages that are in the receiver's hands, not only read.
    taken: Rc<Cell<u32>>,
    /// What the other side has been told of that, and bytes taken in since.
    told: u32,
    untold_bytes: usize,
    /// The beginning of the message of which a part has been sent, and how many bytes of it and its body have.
    head: Vec<u8>,
    sent: usize,
    /// All bytes sent.
    sent_bytes: u64,
    pub kept: Kept,
    /// How much was kept, in bytes and in messages, when it was seen through.
    seen: (usize, usize),
    /// The other side takes nothing at the moment.
    stalled: bool,
    stall: Stall,
    /// Nothing can be sent any more.
    mute: bool,
    /// Nothing more is read.
    pub closed: bool,
    /// What is sent goes by the default route again, as soon as what was kept has gone.
    pub returns: bool,
    /// The other side has been told so.
    pub said_back: bool,
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
            link,
            calls: direct.calls,
            said_hello: false,
            heard_hello: false,
            carries: false,
            turned: false,
            current: None,
            taken: Rc::default(),
            told: 0,
            untold_bytes: 0,
            head: Vec::new(),
            sent: 0,
            sent_bytes: 0,
            kept: Kept::default(),
            seen: (0, 0),
            stalled: false,
            stall: Stall::default(),
            mute: false,
            closed: false,
            returns: false,
            said_back: false,
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
        self.heard_hello && !self.carries && !self.returns
    }

    /// Whether it may come to be used.
    pub fn is_unsettled(&self) -> bool {
        !self.carries && !self.returns
    }

    /// Counts the messages taken in.
    pub fn taken(&self) -> Rc<Cell<u32>> {
        self.taken.clone()
    }

    /// The other side's turn has come.
    pub fn turn(&mut self) {
        self.turned = true;
        self.unfinished = true;
    }

    /// Whether what comes is read: what came before on the default route is there.
    pub fn is_read(&self) -> bool {
        self.turned && !self.closed
    }

    /// Whether the other side has yet to be told that what is sent does not come here any more.
    pub fn is_unsaid(&self) -> bool {
        self.returns && !self.said_back
    }

    /// What is to be watched for on the socket. Before the turn what comes must not be read.
    pub fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.closed && (!self.heard_hello || self.turned));
        flags.set(PollFlags::OUT, !self.is_flushed());
        flags
    }

    // ----- receiving

    /// Takes what has come. After an error nothing more comes; what came before is among `arrived`.
    pub fn read(
        &mut self,
        arrived: &mut impl Extend<Arrived>,
        wanted: Option<&mut Wanted<'_>>,
        news: &mut News,
    ) -> Result<(), LinkError> {
        if self.closed {
            return Ok(());
        }
        self.flush();
        // Not as soon as it was taken in: then an answer may carry it.
        self.acknowledge_much();
        self.read_frames(arrived, wanted, news)
    }

    fn read_frames(
        &mut self,
        arrived: &mut impl Extend<Arrived>,
        mut wanted: Option<&mut Wanted<'_>>,
        news: &mut News,
    ) -> Result<(), LinkError> {
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
            match (head.kind, <&[u8; HEADER_BYTES]>::try_from(head.header())) {
                (kind::HELLO, _) if !self.heard_hello && head.body_bytes == 0 => {
                    self.heard_hello = true;
                    news.usable = true;
                    if !self.said_hello {
                        self.say_hello()?;
                    }
                }
                (kind::TAKEN, _) if head.body_bytes == 0 => {
                    let count = head.header().try_into().map_err(|_| LinkError::Malformed)?;
                    self.acknowledged(u32::from_le_bytes(count))?;
                }
                (kind::MESSAGE, Ok(header)) => {
                    let (words, count) = parts_of(header);
                    self.acknowledged(count)?;
                    self.current = Some(Current { meta: words, bytes: head.body_bytes, body: Vec::new() });
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
        self.took(bytes);
        wanted.found = Some((envelope, bytes));
        Ok(())
    }

    /// A message is in the receiver's hands.
    pub fn took(&mut self, bytes: usize) {
        self.taken.set(self.taken.get().wrapping_add(1));
        self.untold_bytes += bytes;
        if bytes >= LENT_BYTES_MIN {
            self.acknowledge_much();
        }
    }

    /// The other side has taken in so many messages.
    fn acknowledged(&mut self, count: u32) -> Result<(), LinkError> {
        // What has gone another way is nobody's to acknowledge here.
        if self.returns || self.kept.acknowledge(count) { Ok(()) } else { Err(LinkError::Malformed) }
    }

    /// Why nothing more is read: the other side's task has ended, and all that it sent here has come.
    pub fn has_ended(&self) -> bool {
        self.link.has_ended() && !self.mute && self.heard_hello
    }

    /// Whether the other side has said hello: only then it can have sent, or read, anything.
    pub fn is_mutual(&self) -> bool {
        self.heard_hello
    }

    /// Ends the connection for all who hold it, the daemons among them.
    pub fn shut(&self) {
        // It may have ended.
        let _ = rustix::net::shutdown(&self.link, Shutdown::Both);
    }

    // ----- sending

    /// Writes what waits for the socket. A link that takes nothing any more may still have something
    /// to read.
    pub fn flush(&mut self) {
        if self.is_flushed() {
            return;
        }
        let before = self.progress();
        self.mute = self.link.flush().is_err();
        let mut taken = true;
        while let Some(message) = self.kept.unwritten().filter(|_| taken) {
            let (meta, body) = (message.meta, std::mem::replace(&mut message.body, Copy::Bytes(Vec::new())));
            taken = self.write(meta, body.body());
            self.kept.unwritten().expect("it is still there").body = body;
            if taken {
                self.kept.wrote();
            }
        }
        self.stalled &= self.progress() == before;
        self.acknowledge_much();
    }

    /// Whether nothing waits for the socket.
    pub fn is_flushed(&self) -> bool {
        self.is_silent() || (!self.link.wants_write() && self.kept.all_written())
    }

    /// Whether nothing is sent here any more.
    pub fn is_silent(&self) -> bool {
        self.mute || self.returns
    }

    /// Whether it is of no use any more, and that has not been seen to.
    pub fn is_broken(&self) -> bool {
        self.mute && !self.returns
    }

    /// Changes when something that was sent has gone to the socket.
    pub fn progress(&self) -> u64 {
        self.sent_bytes.wrapping_sub(self.link.queued_bytes() as u64)
    }

    /// [`End::write_head`] by itself.
    #[cfg(any(test, fuzzing))]
    pub fn head(meta: Meta, bytes: usize, taken: u32) -> Vec<u8> {
        let mut head = Vec::new();
        End::write_head(meta, bytes, taken, &mut head);
        head
    }

    /// Appends the header of a message to `into`: `bytes` is the length of its body, `taken` acknowledges the messages
    /// received so far.
    pub fn write_head(meta: Meta, bytes: usize, taken: u32, into: &mut Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        let words = meta.into_iter().take(WORDS).chain([taken]);
        for (place, word) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Link::write_frame_head(kind::MESSAGE, &header, bytes, into);
    }

    /// Sends as much of the next message as the socket takes. Says whether that was all of it.
    pub fn write(&mut self, meta: Meta, body: Body<'_>) -> bool {
        if self.is_silent() {
            return false;
        }
        if self.head.is_empty() {
            (self.told, self.untold_bytes) = (self.taken.get(), 0);
            End::write_head(meta, body.len(), self.told, &mut self.head);
        }
        let whole = self.head.len() + body.len();
        let mut step = Vec::new();
        while self.sent < whole {
            let lead = &self.head[self.sent.min(self.head.len())..];
            let piece = body.from(self.sent.saturating_sub(self.head.len()), &mut step);
            match self.link.try_write(&[lead, piece]) {
                Ok(0) => return false,
                Ok(count) => {
                    self.sent += count;
                    self.sent_bytes += count as u64;
                }
                Err(_) => {
                    self.mute = true;
                    return false;
                }
            }
        }
        self.head.clear();
        self.sent = 0;
        self.stalled = false;
        true
    }

    /// Tells what was taken in if that is much. Not within a message.
    pub fn acknowledge_much(&mut self) {
        let taken = self.taken.get();
        let much = self.untold_bytes >= ACKNOWLEDGED_BYTES || taken.wrapping_sub(self.told) >= ACKNOWLEDGED_MESSAGES;
        if much && self.head.is_empty() && !self.is_silent() {
            (self.told, self.untold_bytes) = (taken, 0);
            self.mute = self.link.send(kind::TAKEN, &taken.to_le_bytes(), &[]).is_err();
        }
    }

    /// A message goes to those that are kept. `written`: the link has taken it.
    pub fn keep(&mut self, message: Message, written: bool) {
        self.stalled |= !written;
        self.kept.push(message, written);
    }

    /// Whether the acknowledgements are to be read that may have come: who only sends does not read otherwise.
    pub fn keeps_much(&mut self) -> bool {
        let (bytes, messages) = (self.kept.bytes(), self.kept.len());
        // Acknowledged since.
        self.seen = (self.seen.0.min(bytes), self.seen.1.min(messages));
        let much = bytes - self.seen.0 >= SEEN_BYTES || messages - self.seen.1 >= SEEN_MESSAGES;
        if much {
            self.seen = (bytes, messages);
        }
        much && !self.closed
    }

    /// Whether a sender leaves its message here without waiting.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// What the connection has carried; nothing where it does not say.
    pub fn carried(&self) -> Carried {
        self.link.carried().unwrap_or_default()
    }

    /// Whether the connection has ended before this side began to read it. The other side may have lost the link before
    /// it read this side's hello; then it sends nothing here, and nothing else tells of the end.
    pub fn has_ended_unread(&self) -> bool {
        if !self.heard_hello || self.turned || self.closed || self.returns {
            return false;
        }
        let connection = &mut [PollFd::new(&self.link, PollFlags::RDHUP)];
        rustix::event::poll(connection, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Whether nothing has got through for too long. `waits`: what comes counts too, for one who waits for the last
    /// words of a task that is dead.
    pub fn has_stalled(&mut self, waits: bool, now: Instant) -> bool {
        if self.closed || (self.kept.is_empty() && !waits) {
            self.stall.ends();
            return false;
        }
        let carried = self.carried();
        self.stall.has_come(carried, waits, now)
    }
}

/// The words of a message, and how many its sender has taken in.
fn parts_of(header: &[u8; HEADER_BYTES]) -> (Meta, u32) {
    let mut words = header.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
    let mut meta = Meta::default();
    meta.iter_mut().zip(words.by_ref().take(WORDS)).for_each(|(word, value)| *word = value);
    (meta, words.next().expect("one more"))
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
