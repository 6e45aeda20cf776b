//! What goes out on a data link.
use super::Failure;
use super::taking::Body;
use pvm_core::flows::frames::{write_acknowledged, write_credit, write_piece};
use pvm_core::flows::{Credit, Flows, Outgoing, Piece, Receipts, Strange};
use pvm_core::tid::Tid;
use pvm_fmp::GatherList;
use pvm_net::{LinkError, Pipe};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

/// Heads and short bodies gathered for one write, in bytes.
const GATHER_BYTES: usize = 32 << 10;
/// Long pieces gathered for one write in clear, in bytes. Each write ends in a packet that is not full, which
/// costs both hosts as much as a full one.
const CLEAR_BYTES: usize = 512 << 10;
/// The same for an encrypted link, which keeps what it has not written.
const ENCRYPTED_BYTES: usize = 256 << 10;
/// A piece of a body up to this is copied behind its head, in bytes; a longer one is written from
/// where it lies.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Bytes written to one link before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// What has been sent to one host and not been acknowledged, in bytes, beside what was gathered last: bodies stay in
/// their senders' memory until then, the rest of it is copied.
///
/// * Filled by: each other host that does not read, and each task
/// * Setting: none, more is never on its way at once
/// * Reached: the rest waits where it is, as if the connection were full
/// * Test: `no_more_is_kept_for_a_host_than_the_limit`
const UNACKNOWLEDGED_BYTES_MAX: u64 = 8 << 20;
/// With so much more, it gets no credit either; with so much more again, it does not acknowledge what it takes.
const CREDIT_KEPT_BYTES_MAX: u64 = 2 * UNACKNOWLEDGED_BYTES_MAX;
const KEPT_BYTES_MAX: u64 = 3 * UNACKNOWLEDGED_BYTES_MAX;
/// Gatherings that are no longer needed whose memory is used again.
const SPARES_MAX: usize = 8;

/// A piece of a body that is written from where it lies.
struct Long {
    /// The byte of the gathered ones in front of which it belongs.
    before: usize,
    body: Rc<Body>,
    range: Range<usize>,
}

/// What goes to the link as one.
#[derive(Default)]
struct Gathering {
    /// Heads, short bodies, credit.
    bytes: Vec<u8>,
    /// The long pieces among them, in order.
    long: Vec<Long>,
}

impl Gathering {
    fn length(&self) -> u64 {
        let long: usize = self.long.iter().map(|long| long.range.len()).sum();
        (self.bytes.len() + long) as u64
    }
}

/// A place in a gathering.
#[derive(Default, Clone, Copy)]
struct Place {
    /// In the gathered bytes.
    at: usize,
    /// In the long pieces, and in that one.
    index: usize,
    body_at: usize,
}

impl Place {
    /// So many bytes further on.
    fn step(&mut self, gathering: &Gathering, mut count: usize) {
        while let Some(Long { before, range, .. }) = gathering.long.get(self.index) {
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

/// What is being written, never more than one gathering: the rest waits in the flows. And what has been written and
/// not been acknowledged.
pub(super) struct Outlet {
    sent: Outgoing<Gathering>,
    /// The longest gathering since all was acknowledged: one frame can be longer than the limit.
    longest: u64,
    /// How far the current gathering is written.
    place: Place,
    /// Where the last credit among the bytes of the last gathering ends.
    credit_end: usize,
    /// Credit that is not among them yet, by task: what is owed to one that does not read takes no more than that.
    credit: BTreeMap<Tid, u64>,
    spares: Vec<Vec<u8>>,
    /// The socket may take more.
    pub writable: bool,
}

impl Default for Outlet {
    fn default() -> Outlet {
        Outlet {
            sent: Outgoing::default(),
            longest: 0,
            place: Place::default(),
            credit_end: 0,
            credit: BTreeMap::new(),
            spares: Vec::new(),
            writable: true,
        }
    }
}

/// Keeps the memory of what was acknowledged for what comes; the bodies are their senders' again.
fn spare(spares: &mut Vec<Vec<u8>>, Gathering { mut bytes, .. }: Gathering) {
    if spares.len() < SPARES_MAX && bytes.capacity() <= 2 * GATHER_BYTES {
        bytes.clear();
        spares.push(bytes);
    }
}

impl Outlet {
    /// There is credit for the host.
    pub fn add_credit(&mut self, credit: &Credit) {
        let bytes = self.credit.entry(credit.dst).or_default();
        *bytes = bytes.saturating_add(credit.bytes);
    }

    /// The other side has come so far.
    pub fn acknowledged(&mut self, position: u64) -> Result<(), Strange> {
        self.sent.acknowledge(position, |gathering| spare(&mut self.spares, gathering))?;
        if self.sent.kept() == 0 {
            self.longest = 0;
        }
        Ok(())
    }

    /// What is kept, beside a gathering that is longer than all others.
    fn kept_beside_longest(&self) -> u64 {
        self.sent.kept().saturating_sub(self.longest)
    }

    /// There is another connection, and the other side has come so far.
    pub fn resume(&mut self, position: u64) -> Result<(), Strange> {
        self.sent.resume(position, |gathering| spare(&mut self.spares, gathering))?;
        self.place = Place::default();
        if let Some((gathering, at)) = self.sent.current() {
            self.place.step(gathering, at as usize);
        }
        Ok(())
    }

    /// Credit, and an acknowledgement that is due, go right behind the piece that is being written, and behind the
    /// credit before them; never in between what an earlier connection has carried.
    fn gather_words(&mut self, receipts: &mut Receipts) {
        let gives_credit = !self.credit.is_empty() && self.kept_beside_longest() < CREDIT_KEPT_BYTES_MAX;
        if !(gives_credit || receipts.is_due())
            || !self.sent.is_new()
            || (!self.is_through() && self.place.at < self.credit_end)
        {
            return;
        }
        let mut frames = Vec::new();
        let credit = if gives_credit { std::mem::take(&mut self.credit) } else { BTreeMap::new() };
        for (dst, bytes) in credit {
            write_credit(&Credit { host: dst.host(), dst, bytes }, &mut frames);
        }
        if receipts.is_due() {
            write_acknowledged(receipts.tell(), &mut frames);
        }
        if self.is_through() {
            self.credit_end = frames.len();
            return self.add(Gathering { bytes: frames, long: Vec::new() });
        }
        let (index, credit_end) = (self.place.index, &mut self.credit_end);
        self.sent.lengthen_last(|Gathering { bytes, long }| {
            let at = long.get(index).map_or(bytes.len(), |long| long.before);
            long.iter_mut().skip(index + 1).for_each(|long| long.before += frames.len());
            *credit_end = at + frames.len();
            let count = frames.len();
            bytes.splice(at..at, frames);
            count as u64
        });
    }

    fn add(&mut self, gathering: Gathering) {
        self.place = Place::default();
        let length = gathering.length();
        self.longest = self.longest.max(length);
        self.sent.push(gathering, length);
    }

    /// Bytes that are kept.
    #[cfg(test)]
    pub fn kept(&self) -> u64 {
        self.sent.kept()
    }

    /// Gives back what was needed for much to write.
    pub fn release(&mut self) {
        self.spares = Vec::new();
    }

    /// Writes until the socket is full, nothing can go, or others should have their turn: then there
    /// may be more at once, and it says so.
    pub fn push(
        &mut self,
        pipe: &mut Pipe,
        host: Tid,
        flows: &mut Flows<Body>,
        receipts: &mut Receipts,
    ) -> Result<bool, Failure> {
        if self.writable && pipe.wants_write() {
            pipe.flush()?;
            self.writable = !pipe.wants_write();
        }
        if self.kept_beside_longest() > KEPT_BYTES_MAX {
            return Err(Failure::Strange);
        }
        let mut total = 0;
        while self.writable && total < TURN_BYTES {
            if self.is_through() && self.sent.kept() < UNACKNOWLEDGED_BYTES_MAX {
                let long_bytes_max = if pipe.is_encrypted() { ENCRYPTED_BYTES } else { CLEAR_BYTES };
                self.gather(host, flows, receipts, long_bytes_max);
            }
            self.gather_words(receipts);
            if self.is_through() {
                return Ok(false);
            }
            let written = if pipe.is_encrypted() { self.write_encrypted(pipe)? } else { self.write_clear(pipe)? };
            self.written(written);
            total += written;
        }
        Ok(self.writable)
    }

    /// Whether all that was gathered is written.
    fn is_through(&self) -> bool {
        self.sent.is_through()
    }

    fn gather(&mut self, host: Tid, flows: &mut Flows<Body>, receipts: &mut Receipts, long_bytes_max: usize) {
        let (mut bytes, mut long, mut long_bytes) = (self.spares.pop().unwrap_or_default(), Vec::new(), 0);
        while bytes.len() < GATHER_BYTES && long_bytes < long_bytes_max {
            let Some(piece) = flows.next(host) else { break };
            write_piece(&piece, &mut bytes);
            let (body, range) = match piece {
                Piece::Along { frame, .. } => {
                    bytes.extend_from_slice(&frame);
                    continue;
                }
                Piece::Start { first, body, .. } => (body, 0..first),
                Piece::Chunk { range, body, .. } => (body, range),
            };
            if range.len() <= COPY_BYTES_MAX {
                append(&mut bytes, &body, range);
            } else {
                long_bytes += range.len();
                long.push(Long { before: bytes.len(), body, range });
            }
        }
        if bytes.is_empty() {
            return self.spares.push(bytes);
        }
        if receipts.has_news() {
            write_acknowledged(receipts.tell(), &mut bytes);
        }
        self.credit_end = 0;
        self.add(Gathering { bytes, long });
    }

    /// Writes once, on a link in clear; gives how many bytes were taken, and notes whether the socket may take
    /// more.
    fn write_clear(&mut self, pipe: &Pipe) -> Result<usize, LinkError> {
        let Some((Gathering { bytes, long }, _)) = self.sent.current() else { return Ok(0) };
        let Place { at, index, mut body_at } = self.place;
        let mut at = at..long.get(index).map_or(bytes.len(), |long| long.before);
        let mut parts = GatherList::new(&bytes[at.clone()]);
        for (index, Long { body, range, .. }) in long.iter().enumerate().skip(index) {
            let range = range.start + std::mem::take(&mut body_at)..range.end;
            match &**body {
                Body::Bytes(bytes) => parts.add(&bytes[range]),
                Body::Remote(remote) => parts.add_remote(remote, range),
            }
            at = at.end..long.get(index + 1).map_or(bytes.len(), |long| long.before);
            parts.add(&bytes[at.clone()]);
        }
        let offered = parts.total_bytes();
        let written = match parts.write_to(pipe.as_fd()) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => return Err(Errno::from_io_error(&error).map_or(LinkError::Closed, LinkError::from)),
        };
        // When it takes less than all, it tells when it can take more.
        self.writable = written == offered;
        Ok(written)
    }

    /// The same on an encrypted link. What is encrypted is a copy: others may still write where pieces lie.
    fn write_encrypted(&mut self, pipe: &mut Pipe) -> Result<usize, LinkError> {
        let Some((gathering, done)) = self.sent.current() else { return Ok(0) };
        let (bytes, mut place) = ((gathering.length() - done) as usize, self.place);
        let written = pipe.write_by(bytes, &mut |into| copy(gathering, &mut place, into))?;
        // A pipe may take less than all although it has room.
        self.writable = !pipe.wants_write();
        Ok(written)
    }

    fn written(&mut self, count: usize) {
        if let Some((gathering, _)) = self.sent.current() {
            self.place.step(gathering, count);
        }
        if count > 0 && self.sent.advance(count as u64) {
            self.place = Place::default();
        }
    }
}

/// Copies what comes next in what is to be written.
fn copy(Gathering { bytes, long }: &Gathering, place: &mut Place, mut into: &mut [u8]) {
    while !into.is_empty() {
        let next = long.get(place.index);
        let head_end = next.map_or(bytes.len(), |long| long.before);
        let (head, rest) = into.split_at_mut(into.len().min(head_end - place.at));
        head.copy_from_slice(&bytes[place.at..][..head.len()]);
        place.at += head.len();
        into = rest;
        let (Some(Long { body, range, .. }), false) = (next, into.is_empty()) else { continue };
        let (piece, rest) = into.split_at_mut(into.len().min(range.len() - place.body_at));
        read(body, range.start + place.body_at, piece);
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
    read(body, range.start, &mut bytes[start..]);
}

fn read(body: &Body, at: usize, into: &mut [u8]) {
    match body {
        Body::Bytes(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        Body::Remote(remote) => remote.read(at, into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvm_core::flows::frames::{Head, read_head};
    use pvm_core::flows::{CHUNK_BYTES_MAX, cost};
    use pvm_net::{Identity, KeyPair, Link};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    const HOST: Tid = Tid(0x80000);
    const SRC: Tid = Tid(0x40001);
    /// Longer than what a pipe takes in one go.
    const NEWS_BYTES: usize = 1 << 20;

    fn pipes(encrypted: bool) -> [Pipe; 2] {
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
            link.into_pipe()
        })
    }

    fn pattern(number: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 + number * 7) as u8).collect()
    }

    /// What the other side has read and not understood yet, and what it has understood.
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
        fn read(&mut self, pipe: &mut Pipe, flows: &mut Flows<Body>) {
            let mut buffer = vec![0; 1 << 20];
            loop {
                let before = self.bytes.len() as u64;
                match pipe.read(&mut buffer).unwrap() {
                    0 => break,
                    count => self.bytes.extend_from_slice(&buffer[..count]),
                }
                self.came += self.bytes.len() as u64 - before;
            }
            while let Some((head, head_bytes)) = read_head(&self.bytes).unwrap_or_else(|_| panic!("rubbish")) {
                let behind = match &head {
                    Head::Start { first, .. } => *first,
                    Head::Chunk { bytes, .. } | Head::Along { bytes, .. } => *bytes,
                    Head::Credit { .. } | Head::Acknowledged { .. } => 0,
                };
                if self.bytes.len() < head_bytes + behind {
                    return;
                }
                let rest = self.bytes.split_off(head_bytes + behind);
                let body = std::mem::replace(&mut self.bytes, rest).split_off(head_bytes);
                self.understood(head, body, flows);
            }
        }

        fn understood(&mut self, head: Head, mut body: Vec<u8>, flows: &mut Flows<Body>) {
            match head {
                Head::Start { letter, .. } => self.bodies.push((letter.bytes, std::mem::take(&mut body))),
                Head::Chunk { .. } => self.bodies.last_mut().unwrap().1.append(&mut body),
                Head::Along { .. } => {
                    assert!(body == pattern(9, NEWS_BYTES));
                    self.news += 1;
                }
                Head::Credit { bytes, .. } => {
                    self.credit += bytes;
                }
                Head::Acknowledged { .. } => {}
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
            let [mut near, mut far] = pipes(encrypted);
            let (mut outlet, mut flows, mut reader) = (Outlet::default(), Flows::new(), Reader::default());
            let sizes = [10, 70_000, 4096, 4097, 0, 900_000, 65_536, 65_537, 3, 2_000_000, 1];
            let dst = Tid(HOST.0 | 1);
            for (number, bytes) in sizes.into_iter().enumerate() {
                flows.send(SRC, dst, [0; 5], bytes, bytes, Body::Bytes(pattern(number, bytes)));
                if number == 5 {
                    flows.along(dst, pattern(9, NEWS_BYTES));
                }
            }
            let mut credit = 0;
            while reader.whole < sizes.len() {
                outlet.writable = true;
                assert!(outlet.push(&mut near, HOST, &mut flows, &mut Receipts::new(u64::MAX)).is_ok());
                assert!(outlet.writable || !encrypted || near.wants_write(), "nobody would tell when to go on");
                credit += 3;
                (1..=2).for_each(|bytes| outlet.add_credit(&Credit { host: HOST, dst: SRC, bytes }));
                reader.read(&mut far, &mut flows);
                assert_eq!(outlet.acknowledged(reader.came), Ok(()));
            }
            for (number, bytes) in sizes.into_iter().enumerate() {
                assert!(reader.bodies[number] == (bytes, pattern(number, bytes)), "{number}: {bytes} bytes");
            }
            while reader.credit < credit {
                outlet.writable = true;
                assert!(outlet.push(&mut near, HOST, &mut flows, &mut Receipts::new(u64::MAX)).is_ok());
                reader.read(&mut far, &mut flows);
                assert_eq!(outlet.acknowledged(reader.came), Ok(()));
            }
            assert!(reader.news == 1 && reader.credit == credit);
        }
    }

    #[test]
    fn credit_for_a_host_that_does_not_read_takes_little_memory_and_time() {
        for encrypted in [false, true] {
            let [mut near, mut far] = pipes(encrypted);
            let (mut outlet, mut flows, mut reader) = (Outlet::default(), Flows::new(), Reader::default());
            let (long, mut full) = (30 << 20, None);
            flows.send(SRC, Tid(HOST.0 | 1), [0; 5], long, long, Body::Bytes(pattern(0, long)));
            for round in 0..1000 {
                outlet.writable = true;
                while outlet.writable {
                    assert!(outlet.push(&mut near, HOST, &mut flows, &mut Receipts::new(u64::MAX)).is_ok());
                }
                (0..1000).for_each(|at| outlet.add_credit(&Credit { host: HOST, dst: Tid(SRC.0 + at), bytes: 1 }));
                assert!(outlet.kept() < *full.get_or_insert(outlet.kept()) + (1 << 20), "{round}");
            }
            while reader.credit < 1_000_000 {
                outlet.writable = true;
                assert!(outlet.push(&mut near, HOST, &mut flows, &mut Receipts::new(u64::MAX)).is_ok());
                reader.read(&mut far, &mut flows);
                assert_eq!(outlet.acknowledged(reader.came), Ok(()));
            }
            assert!(reader.credit == 1_000_000);
            outlet.release();
            assert!(outlet.spares.is_empty() && outlet.kept() == 0);
        }
    }

    #[test]
    fn no_more_is_kept_for_a_host_than_the_limit() {
        let [mut near, mut far] = pipes(false);
        let (mut outlet, mut flows, mut reader) = (Outlet::default(), Flows::new(), Reader::default());
        let (long, mut receipts) = (20 << 20, Receipts::new(1));
        flows.send(SRC, Tid(HOST.0 | 1), [0; 5], long, long, Body::Bytes(pattern(0, long)));
        let mut turn = |outlet: &mut Outlet, reader: &mut Reader, receipts: &mut Receipts| {
            outlet.writable = true;
            let result = outlet.push(&mut near, HOST, &mut flows, receipts);
            reader.read(&mut far, &mut Flows::new());
            result
        };
        // All is read, and nothing acknowledged.
        for _ in 0..200 {
            assert!(turn(&mut outlet, &mut reader, &mut receipts).is_ok());
        }
        let most = UNACKNOWLEDGED_BYTES_MAX + CLEAR_BYTES as u64 + (GATHER_BYTES + CHUNK_BYTES_MAX) as u64;
        assert!((UNACKNOWLEDGED_BYTES_MAX..most).contains(&outlet.kept()), "{}", outlet.kept());
        // Credit and acknowledgements are not held up by that, but for a host that means harm.
        let mut failed = false;
        for round in 0..2_000_000 {
            outlet.add_credit(&Credit { host: HOST, dst: Tid(SRC.0 + round % 1000), bytes: 1 });
            receipts.took(1);
            if round % 100 == 0 {
                failed |= turn(&mut outlet, &mut reader, &mut receipts).is_err();
            }
            if round == 1000 {
                assert!(reader.credit > 0 && outlet.kept() < CREDIT_KEPT_BYTES_MAX);
            }
        }
        assert!(!failed && outlet.kept() < CREDIT_KEPT_BYTES_MAX + (1 << 20), "{}", outlet.kept());
        assert_eq!(outlet.acknowledged(reader.came), Ok(()));
        assert!(outlet.kept() < 1 << 20);
        outlet.sent.push(Gathering::default(), KEPT_BYTES_MAX + 1);
        assert!(matches!(turn(&mut outlet, &mut reader, &mut receipts), Err(Failure::Strange)));
    }
}
