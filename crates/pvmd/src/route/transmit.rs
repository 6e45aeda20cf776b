//! The transmitting direction of a data link.
use super::egress::Body;
use super::link_failure::LinkFailure;
use pvm_core::flows::frames::{write_acknowledged, write_credit, write_grant, write_header};
use pvm_core::flows::{AckTracker, Credit, DataFrame, Flows, ProtocolViolation, RetransmitQueue};
use pvm_core::tid::Tid;
use pvm_fmp::GatherList;
use pvm_net::{ByteStream, LinkError};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

/// Heads and short bodies gathered for one write, in bytes.
const GATHER_BYTES: usize = 32 << 10;
/// Long pieces gathered for one write in clear, in bytes. Writes are long because the last packet of a write is usually
/// not full, and costs both hosts as much as a full one.
const CLEAR_BYTES: usize = 512 << 10;
/// Long pieces gathered for one write on an encrypted link, in bytes. The link keeps a copy of those that the socket
/// has not taken.
const ENCRYPTED_BYTES: usize = 256 << 10;
/// The longest piece of a body that is copied behind its head, in bytes. Longer pieces are written from where they are.
const COPY_BYTES_MAX: usize = 4 << 10;

/// One call of `write` ends when it has written at least this many bytes.
const STEP_BYTES: usize = 1 << 20;

/// Bytes that have been sent to one host and have not been acknowledged, not counting the last batch. Until the
/// acknowledgement, long bodies stay in their senders' memory; all other bytes are copied.
///
/// * Filled by: each other host that does not read, and each task
/// * Setting: none, a connection never carries more at once
/// * Reached: further messages stay where they are and wait, as if the connection were full
/// * Test: `no_more_is_kept_for_a_host_than_the_limit`
const UNACKNOWLEDGED_BYTES_MAX: u64 = 8 << 20;
/// Bytes that have been sent to one host and not been acknowledged. Above `UNACKNOWLEDGED_BYTES_MAX`, the host gets no
/// messages; above `CREDIT_KEPT_BYTES_MAX`, it gets no credit either. Above `KEPT_BYTES_MAX`, it must have received
/// bytes without acknowledging them, which violates the protocol.
const CREDIT_KEPT_BYTES_MAX: u64 = 2 * UNACKNOWLEDGED_BYTES_MAX;
const KEPT_BYTES_MAX: u64 = 3 * UNACKNOWLEDGED_BYTES_MAX;
/// Buffers of acknowledged batches that are kept for reuse.
const SPARE_BUFFERS_MAX: usize = 8;

/// A piece of a body that is written from where it is.
struct BodySlice {
    /// The piece is written before this position of the gathered bytes.
    before: usize,
    body: Rc<Body>,
    range: Range<usize>,
}

/// Bytes and pieces that are written to the link as one unit.
#[derive(Default)]
struct WriteBatch {
    /// Heads, short bodies, credit.
    bytes: Vec<u8>,
    /// The long pieces between these bytes, in order.
    long: Vec<BodySlice>,
}

impl WriteBatch {
    fn length(&self) -> u64 {
        let long: usize = self.long.iter().map(|long| long.range.len()).sum();
        (self.bytes.len() + long) as u64
    }
}

/// A position in a batch.
#[derive(Default, Clone, Copy)]
struct Position {
    /// The position among the gathered bytes.
    at: usize,
    /// The index of the next long piece, and the position in that piece.
    index: usize,
    body_at: usize,
}

impl Position {
    /// Advances the position by `count` bytes.
    fn step(&mut self, batch: &WriteBatch, mut count: usize) {
        while let Some(BodySlice { before, range, .. }) = batch.long.get(self.index) {
            let head = count.min(*before - self.at);
            self.at += head;
            count -= head;
            let body = count.min(range.len() - self.body_at);
            self.body_at += body;
            count -= body;
            if self.body_at < range.len() {
                return;
            }
            (self.index, self.body_at) = (self.index + 1, 0);
        }
        self.at += count;
    }
}

/// The state of the transmitting direction: the batch that is being written, if any, and the batches that have been
/// written and not been acknowledged. All further messages wait in the flows.
pub(super) struct TransmitState {
    sent: RetransmitQueue<WriteBatch>,
    /// The length of the longest batch since everything was last acknowledged. This length is not counted against the
    /// limits, because one frame can be longer than a limit.
    longest: u64,
    /// How far the current batch is written.
    place: Position,
    /// Where the last credit ends, as a position in the bytes of the last batch.
    credit_end: usize,
    /// Credit that is not in a batch yet, summed for each task. So the credit for a host that does not read needs no
    /// more memory than this map.
    credit: BTreeMap<Tid, u64>,
    /// The newest grant that is not in a batch yet.
    grant: Option<u64>,
    spare_buffers: Vec<Vec<u8>>,
    /// Whether the socket may take more.
    pub writable: bool,
}

impl Default for TransmitState {
    fn default() -> TransmitState {
        TransmitState {
            sent: RetransmitQueue::default(),
            longest: 0,
            place: Position::default(),
            credit_end: 0,
            credit: BTreeMap::new(),
            grant: None,
            spare_buffers: Vec::new(),
            writable: true,
        }
    }
}

/// Keeps the buffer of an acknowledged batch for reuse. The memory of the batch's bodies is released to their senders.
fn recycle(spare_buffers: &mut Vec<Vec<u8>>, WriteBatch { mut bytes, .. }: WriteBatch) {
    if spare_buffers.len() < SPARE_BUFFERS_MAX && bytes.capacity() <= 2 * GATHER_BYTES {
        bytes.clear();
        spare_buffers.push(bytes);
    }
}

impl TransmitState {
    /// Adds credit for the host.
    pub fn add_credit(&mut self, credit: &Credit) {
        let bytes = self.credit.entry(credit.dst).or_default();
        *bytes = bytes.saturating_add(credit.bytes);
    }

    /// Sets the grant for the host.
    pub fn set_grant(&mut self, up_to: u64) {
        self.grant = Some(up_to);
    }

    /// Handles an acknowledgement: the other side has received everything up to `position`.
    pub fn acknowledged(&mut self, position: u64) -> Result<(), ProtocolViolation> {
        self.sent.acknowledge(position, |batch| recycle(&mut self.spare_buffers, batch))?;
        if self.sent.unacknowledged() == 0 {
            self.longest = 0;
        }
        Ok(())
    }

    /// Returns how many bytes are kept, not counting the longest batch.
    fn kept_beside_longest(&self) -> u64 {
        self.sent.unacknowledged().saturating_sub(self.longest)
    }

    /// Continues on a new connection: the other side has received everything up to `position`.
    pub fn resume(&mut self, position: u64) -> Result<(), ProtocolViolation> {
        self.sent.resume(position, |batch| recycle(&mut self.spare_buffers, batch))?;
        self.place = Position::default();
        if let Some((batch, at)) = self.sent.current() {
            self.place.step(batch, at as usize);
        }
        Ok(())
    }

    /// Inserts credit, a grant, and an acknowledgement if one is due, behind the piece that is being written and behind earlier
    /// credit. Inserts nothing among bytes that have been sent on an earlier connection.
    fn gather_control(&mut self, receipts: &mut AckTracker) {
        let has_credit = !self.credit.is_empty() || self.grant.is_some();
        let gives_credit = has_credit && self.kept_beside_longest() < CREDIT_KEPT_BYTES_MAX;
        if !(gives_credit || receipts.is_due())
            || !self.sent.has_only_new()
            || (!self.is_written() && self.place.at < self.credit_end)
        {
            return;
        }
        let mut frames = Vec::new();
        let credit = if gives_credit { std::mem::take(&mut self.credit) } else { BTreeMap::new() };
        for (dst, bytes) in credit {
            write_credit(&Credit { host: dst.host(), dst, bytes }, &mut frames);
        }
        if let Some(up_to) = self.grant.take_if(|_| gives_credit) {
            write_grant(up_to, &mut frames);
        }
        if receipts.is_due() {
            write_acknowledged(receipts.take_position(), &mut frames);
        }
        if self.is_written() {
            self.credit_end = frames.len();
            return self.add(WriteBatch { bytes: frames, long: Vec::new() });
        }
        let (index, credit_end) = (self.place.index, &mut self.credit_end);
        self.sent.extend_last(|WriteBatch { bytes, long }| {
            let at = long.get(index).map_or(bytes.len(), |long| long.before);
            long.iter_mut().skip(index + 1).for_each(|long| long.before += frames.len());
            *credit_end = at + frames.len();
            let count = frames.len();
            bytes.splice(at..at, frames);
            count as u64
        });
    }

    fn add(&mut self, batch: WriteBatch) {
        self.place = Position::default();
        let length = batch.length();
        self.longest = self.longest.max(length);
        self.sent.push(batch, length);
    }

    /// Returns how many bytes there have been for the other host.
    pub fn end(&self) -> u64 {
        self.sent.acknowledged() + self.sent.unacknowledged()
    }

    /// Returns how many bytes are kept.
    #[cfg(test)]
    pub fn kept(&self) -> u64 {
        self.sent.unacknowledged()
    }

    /// Frees the memory of idle buffers.
    pub fn release(&mut self) {
        self.spare_buffers = Vec::new();
    }

    /// Writes until the socket is full, nothing is left to write, or at least `STEP_BYTES` have been written. Returns
    /// whether another call may write more immediately.
    pub fn write(
        &mut self,
        stream: &mut ByteStream,
        host: Tid,
        flows: &mut Flows<Body>,
        receipts: &mut AckTracker,
    ) -> Result<bool, LinkFailure> {
        if self.writable && stream.wants_write() {
            stream.flush()?;
            self.writable = !stream.wants_write();
        }
        if self.kept_beside_longest() > KEPT_BYTES_MAX {
            return Err(LinkFailure::ProtocolViolation);
        }
        let mut total = 0;
        while self.writable && total < STEP_BYTES {
            if self.is_written() && self.sent.unacknowledged() < UNACKNOWLEDGED_BYTES_MAX {
                let long_bytes_max = if stream.is_encrypted() { ENCRYPTED_BYTES } else { CLEAR_BYTES };
                self.gather(host, flows, receipts, long_bytes_max);
            }
            self.gather_control(receipts);
            if self.is_written() {
                return Ok(false);
            }
            let written = if stream.is_encrypted() { self.write_encrypted(stream)? } else { self.write_clear(stream)? };
            self.written(written);
            total += written;
        }
        Ok(self.writable)
    }

    /// Returns whether everything that was gathered is written.
    fn is_written(&self) -> bool {
        self.sent.is_all_sent()
    }

    fn gather(&mut self, host: Tid, flows: &mut Flows<Body>, receipts: &mut AckTracker, long_bytes_max: usize) {
        let (mut bytes, mut long, mut long_bytes) = (self.spare_buffers.pop().unwrap_or_default(), Vec::new(), 0);
        while bytes.len() < GATHER_BYTES && long_bytes < long_bytes_max {
            let Some(piece) = flows.next(host) else { break };
            write_header(&piece, &mut bytes);
            let (body, range) = match piece {
                DataFrame::InBand { payload: frame, .. } => {
                    bytes.extend_from_slice(&frame);
                    continue;
                }
                DataFrame::Announce { .. } | DataFrame::Request { .. } | DataFrame::Mark { .. } => continue,
                DataFrame::Start { first, body, .. } => (body, 0..first),
                DataFrame::Chunk { range, body, .. } | DataFrame::Part { range, body, .. } => (body, range),
            };
            if range.len() <= COPY_BYTES_MAX {
                append(&mut bytes, &body, range);
            } else {
                long_bytes += range.len();
                long.push(BodySlice { before: bytes.len(), body, range });
            }
        }
        if bytes.is_empty() {
            return self.spare_buffers.push(bytes);
        }
        if receipts.has_unacknowledged() {
            write_acknowledged(receipts.take_position(), &mut bytes);
        }
        self.credit_end = 0;
        self.add(WriteBatch { bytes, long });
    }

    /// Writes once on a link in clear. Returns how many bytes the socket took, and notes whether it may take more.
    fn write_clear(&mut self, stream: &ByteStream) -> Result<usize, LinkError> {
        let Some((WriteBatch { bytes, long }, _)) = self.sent.current() else { return Ok(0) };
        let Position { at, index, mut body_at } = self.place;
        let mut at = at..long.get(index).map_or(bytes.len(), |long| long.before);
        let mut parts = GatherList::new(&bytes[at.clone()]);
        for (index, BodySlice { body, range, .. }) in long.iter().enumerate().skip(index) {
            let range = range.start + std::mem::take(&mut body_at)..range.end;
            match &**body {
                Body::Bytes(bytes) => parts.add(&bytes[range]),
                Body::Remote(remote) => parts.add_remote(remote, range),
                Body::Relayed(block, _) => parts.add_block(block, range),
            }
            at = at.end..long.get(index + 1).map_or(bytes.len(), |long| long.before);
            parts.add(&bytes[at.clone()]);
        }
        let offered = parts.total_bytes();
        let written = match parts.write_to(stream.as_fd()) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(Errno::from_io_error(&error).map_or(LinkError::Closed, LinkError::from)),
        };
        // If the socket takes less than everything, `epoll` reports when it can take more.
        self.writable = written == offered;
        Ok(written)
    }

    /// Writes once on an encrypted link. The link encrypts a copy, since tasks may still change the pieces in their
    /// memory.
    fn write_encrypted(&mut self, stream: &mut ByteStream) -> Result<usize, LinkError> {
        let Some((batch, done)) = self.sent.current() else { return Ok(0) };
        let (bytes, mut place) = ((batch.length() - done) as usize, self.place);
        let written = stream.write_by(bytes, &mut |into| copy(batch, &mut place, into))?;
        // The link may take only a part although the socket has room, so `written` does not show whether the socket is
        // full.
        self.writable = !stream.wants_write();
        Ok(written)
    }

    fn written(&mut self, count: usize) {
        if let Some((batch, _)) = self.sent.current() {
            self.place.step(batch, count);
        }
        if count > 0 && self.sent.advance(count as u64) {
            self.place = Position::default();
        }
    }
}

/// Copies the next bytes of a batch.
fn copy(WriteBatch { bytes, long }: &WriteBatch, place: &mut Position, mut into: &mut [u8]) {
    while !into.is_empty() {
        let next = long.get(place.index);
        let head_end = next.map_or(bytes.len(), |long| long.before);
        let (head, rest) = into.split_at_mut(into.len().min(head_end - place.at));
        head.copy_from_slice(&bytes[place.at..][..head.len()]);
        place.at += head.len();
        into = rest;
        let (Some(BodySlice { body, range, .. }), false) = (next, into.is_empty()) else { continue };
        let (piece, rest) = into.split_at_mut(into.len().min(range.len() - place.body_at));
        body.read(range.start + place.body_at, piece);
        place.body_at += piece.len();
        into = rest;
        if place.body_at == range.len() {
            (place.index, place.body_at) = (place.index + 1, 0);
        }
    }
}

fn append(bytes: &mut Vec<u8>, body: &Body, range: Range<usize>) {
    let start = bytes.len();
    bytes.resize(start + range.len(), 0);
    body.read(range.start, &mut bytes[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::flows::frames::{FrameHeader, read_header};
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::flows::{CHUNK_BYTES_MAX, cost};
    use pvm_net::{Identity, KeyPair, Link};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const HOST: Tid = Tid(0x80000);
    const SRC: Tid = Tid(0x40001);
    /// More bytes than an encrypted link takes at once.
    const NEWS_BYTES: usize = 1 << 20;

    fn streams(encrypted: bool) -> [ByteStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        [&near, &far].iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let identity = || Identity::new(KeyPair::generate().unwrap());
        let (one, other) = (identity(), identity());
        other.known().add(one.public());
        let mut links = match encrypted {
            true => [
                Link::secure_to(near.into(), &one, other.public()).unwrap(),
                Link::secure_from(far.into(), &other).unwrap(),
            ],
            false => [near, far].map(|socket| Link::clear(socket.into())),
        };
        while !links.iter().all(Link::is_ready) {
            links.iter_mut().for_each(|link| assert!(link.handshake().is_ok()));
        }
        links.map(|mut link| {
            link.trust(Duration::from_secs(10)).unwrap();
            link.into_byte_stream()
        })
    }

    /// Returns flows whose other side sends no grants.
    fn unpaced() -> Flows<Body> {
        let mut flows = Flows::new();
        flows.set_pacing(Pacing::Off);
        flows
    }

    fn pattern(number: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 + number * 7) as u8).collect()
    }

    /// The bytes that the other side has read: an incomplete frame, and complete bodies.
    #[derive(Default)]
    struct Reader {
        bytes: Vec<u8>,
        bodies: Vec<(usize, Vec<u8>)>,
        whole: usize,
        came: u64,
        news: usize,
        credit: u64,
    }

    impl Reader {
        fn read(&mut self, stream: &mut ByteStream, flows: &mut Flows<Body>) {
            let mut buffer = vec![0; 1 << 20];
            loop {
                let before = self.bytes.len() as u64;
                match stream.read(&mut buffer).unwrap() {
                    0 => break,
                    count => self.bytes.extend_from_slice(&buffer[..count]),
                }
                self.came += self.bytes.len() as u64 - before;
            }
            while let Some((head, head_bytes)) = read_header(&self.bytes).unwrap_or_else(|_| panic!("rubbish")) {
                let behind = head.following_bytes();
                if self.bytes.len() < head_bytes + behind {
                    return;
                }
                let rest = self.bytes.split_off(head_bytes + behind);
                let body = std::mem::replace(&mut self.bytes, rest).split_off(head_bytes);
                self.understood(head, body, flows);
            }
        }

        fn understood(&mut self, head: FrameHeader, mut body: Vec<u8>, flows: &mut Flows<Body>) {
            match head {
                FrameHeader::Start { header, .. } => self.bodies.push((header.bytes, std::mem::take(&mut body))),
                FrameHeader::Chunk { .. } => self.bodies.last_mut().unwrap().1.append(&mut body),
                FrameHeader::InBand { .. } => {
                    assert!(body == pattern(9, NEWS_BYTES));
                    self.news += 1;
                }
                FrameHeader::Credit { bytes, .. } => {
                    self.credit += bytes;
                }
                FrameHeader::Acknowledged { .. } | FrameHeader::Grant { .. } => {}
                other => panic!("no multicast goes along a tree here: {other:?}"),
            }
            if self.bodies.get(self.whole).is_some_and(|(bytes, body)| body.len() == *bytes) {
                flows.credit(Tid(HOST.0 | 1), cost(self.bodies[self.whole].0));
                self.whole += 1;
            }
        }
    }

    #[test]
    fn what_is_gathered_goes_out_whole_and_in_order_and_the_link_is_never_left_while_it_has_room() {
        for encrypted in [false, true] {
            let [mut near, mut far] = streams(encrypted);
            let (mut transmit, mut flows, mut reader) = (TransmitState::default(), unpaced(), Reader::default());
            let sizes = [10, 70_000, 4096, 4097, 0, 900_000, 65_536, 65_537, 3, 2_000_000, 1];
            let dst = Tid(HOST.0 | 1);
            for (number, bytes) in sizes.into_iter().enumerate() {
                flows.send(SRC, dst, [0; 5], bytes, bytes, Body::Bytes(pattern(number, bytes)));
                if number == 5 {
                    flows.send_in_band(dst, pattern(9, NEWS_BYTES));
                }
            }
            let mut credit = 0;
            while reader.whole < sizes.len() {
                transmit.writable = true;
                assert!(transmit.write(&mut near, HOST, &mut flows, &mut AckTracker::new(u64::MAX)).is_ok());
                assert!(transmit.writable || !encrypted || near.wants_write(), "nobody would tell when to go on");
                credit += 3;
                (1..=2).for_each(|bytes| transmit.add_credit(&Credit { host: HOST, dst: SRC, bytes }));
                reader.read(&mut far, &mut flows);
                assert_eq!(transmit.acknowledged(reader.came), Ok(()));
            }
            for (number, bytes) in sizes.into_iter().enumerate() {
                assert!(reader.bodies[number] == (bytes, pattern(number, bytes)), "{number}: {bytes} bytes");
            }
            while reader.credit < credit {
                transmit.writable = true;
                assert!(transmit.write(&mut near, HOST, &mut flows, &mut AckTracker::new(u64::MAX)).is_ok());
                reader.read(&mut far, &mut flows);
                assert_eq!(transmit.acknowledged(reader.came), Ok(()));
            }
            assert!(reader.news == 1 && reader.credit == credit);
        }
    }

    #[test]
    fn credit_for_a_host_that_does_not_read_takes_little_memory_and_time() {
        for encrypted in [false, true] {
            let [mut near, mut far] = streams(encrypted);
            let (mut transmit, mut flows, mut reader) = (TransmitState::default(), unpaced(), Reader::default());
            let (long, mut full) = (30 << 20, None);
            flows.send(SRC, Tid(HOST.0 | 1), [0; 5], long, long, Body::Bytes(pattern(0, long)));
            for round in 0..1000 {
                transmit.writable = true;
                while transmit.writable {
                    assert!(transmit.write(&mut near, HOST, &mut flows, &mut AckTracker::new(u64::MAX)).is_ok());
                }
                (0..1000).for_each(|at| transmit.add_credit(&Credit { host: HOST, dst: Tid(SRC.0 + at), bytes: 1 }));
                assert!(transmit.kept() < *full.get_or_insert(transmit.kept()) + (1 << 20), "{round}");
            }
            while reader.credit < 1_000_000 {
                transmit.writable = true;
                assert!(transmit.write(&mut near, HOST, &mut flows, &mut AckTracker::new(u64::MAX)).is_ok());
                reader.read(&mut far, &mut flows);
                assert_eq!(transmit.acknowledged(reader.came), Ok(()));
            }
            assert!(reader.credit == 1_000_000);
            transmit.release();
            assert!(transmit.spare_buffers.is_empty() && transmit.kept() == 0);
        }
    }

    #[test]
    fn no_more_is_kept_for_a_host_than_the_limit() {
        let [mut near, mut far] = streams(false);
        let (mut transmit, mut flows, mut reader) = (TransmitState::default(), unpaced(), Reader::default());
        let (long, mut receipts) = (20 << 20, AckTracker::new(1));
        flows.send(SRC, Tid(HOST.0 | 1), [0; 5], long, long, Body::Bytes(pattern(0, long)));
        let mut step = |transmit: &mut TransmitState, reader: &mut Reader, receipts: &mut AckTracker| {
            transmit.writable = true;
            let result = transmit.write(&mut near, HOST, &mut flows, receipts);
            reader.read(&mut far, &mut Flows::new());
            result
        };
        // The other side reads everything and acknowledges nothing.
        for _ in 0..200 {
            assert!(step(&mut transmit, &mut reader, &mut receipts).is_ok());
        }
        let most = UNACKNOWLEDGED_BYTES_MAX + CLEAR_BYTES as u64 + (GATHER_BYTES + CHUNK_BYTES_MAX) as u64;
        assert!((UNACKNOWLEDGED_BYTES_MAX..most).contains(&transmit.kept()), "{}", transmit.kept());
        // Credit and acknowledgements are still sent, except to a hostile host.
        let mut failed = false;
        for round in 0..2_000_000 {
            transmit.add_credit(&Credit { host: HOST, dst: Tid(SRC.0 + round % 1000), bytes: 1 });
            receipts.count_received(1);
            if round % 100 == 0 {
                failed |= step(&mut transmit, &mut reader, &mut receipts).is_err();
            }
            if round == 1000 {
                assert!(reader.credit > 0 && transmit.kept() < CREDIT_KEPT_BYTES_MAX);
            }
        }
        assert!(!failed && transmit.kept() < CREDIT_KEPT_BYTES_MAX + (1 << 20), "{}", transmit.kept());
        assert_eq!(transmit.acknowledged(reader.came), Ok(()));
        assert!(transmit.kept() < 1 << 20);
        transmit.sent.push(WriteBatch::default(), KEPT_BYTES_MAX + 1);
        assert!(matches!(step(&mut transmit, &mut reader, &mut receipts), Err(LinkFailure::ProtocolViolation)));
    }
}
