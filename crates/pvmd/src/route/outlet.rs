//! What goes out on a data link.
use super::Failure;
use super::taking::Body;
use pvm_core::flows::frames::{write_credit, write_piece};
use pvm_core::flows::{Credit, Flows, Piece};
use pvm_core::tid::Tid;
use pvm_fmp::Parts;
use pvm_net::{LinkError, Pipe};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
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

/// A piece of a body that is written from where it lies.
struct Long {
    /// The byte of the gathered ones in front of which it belongs.
    before: usize,
    body: Rc<Body>,
    range: Range<usize>,
}

/// How far what is being written has been copied.
struct Place {
    /// In the gathered bytes.
    at: usize,
    /// In the long pieces, and in that one.
    index: usize,
    body_at: usize,
}

/// What is being written. Never more than one gathering: the rest waits in the flows.
pub(super) struct Outlet {
    /// Heads, short bodies, credit; and how much of that is written.
    bytes: Vec<u8>,
    at: usize,
    /// The long pieces among them, in order.
    long: VecDeque<Long>,
    /// Where the last credit among the gathered bytes ends.
    credit_end: usize,
    /// Credit that is not among them yet, by task: what is owed to one that does not read takes no more than that.
    credit: BTreeMap<Tid, u64>,
    /// The socket may take more.
    pub writable: bool,
}

impl Default for Outlet {
    fn default() -> Outlet {
        Outlet {
            bytes: Vec::new(),
            at: 0,
            long: VecDeque::new(),
            credit_end: 0,
            credit: BTreeMap::new(),
            writable: true,
        }
    }
}

impl Outlet {
    /// There is credit for the host.
    pub fn add_credit(&mut self, credit: &Credit) {
        let bytes = self.credit.entry(credit.dst).or_default();
        *bytes = bytes.saturating_add(credit.bytes);
    }

    /// Credit goes right behind the piece that is being written, and behind the credit before it.
    fn gather_credit(&mut self) {
        if self.credit.is_empty() || self.at < self.credit_end {
            return;
        }
        let at = self.long.front().map_or(self.bytes.len(), |long| long.before);
        let mut frames = Vec::new();
        for (dst, bytes) in std::mem::take(&mut self.credit) {
            write_credit(&Credit { host: dst.host(), dst, bytes }, &mut frames);
        }
        self.long.iter_mut().skip(1).for_each(|long| long.before += frames.len());
        self.credit_end = at + frames.len();
        self.bytes.splice(at..at, frames);
    }

    /// Gives back what was needed for much to write.
    pub fn release(&mut self) {
        if self.is_through() && self.bytes.capacity() > 2 * GATHER_BYTES {
            (self.bytes, self.at, self.credit_end) = (Vec::new(), 0, 0);
        }
    }

    /// Writes until the socket is full, nothing can go, or others should have their turn: then there
    /// may be more at once, and it says so.
    pub fn push(&mut self, pipe: &mut Pipe, host: Tid, flows: &mut Flows<Body>) -> Result<bool, Failure> {
        if self.writable && pipe.wants_write() {
            pipe.flush()?;
            self.writable = !pipe.wants_write();
        }
        let mut total = 0;
        while self.writable && total < TURN_BYTES {
            if self.is_through() {
                self.gather(host, flows, if pipe.is_encrypted() { ENCRYPTED_BYTES } else { CLEAR_BYTES });
            }
            self.gather_credit();
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
        self.at == self.bytes.len() && self.long.is_empty()
    }

    fn gather(&mut self, host: Tid, flows: &mut Flows<Body>, long_bytes_max: usize) {
        self.bytes.clear();
        (self.at, self.credit_end) = (0, 0);
        let mut long_bytes = 0;
        while self.bytes.len() < GATHER_BYTES && long_bytes < long_bytes_max {
            let Some(piece) = flows.next(host) else { return };
            write_piece(&piece, &mut self.bytes);
            let (body, range) = match piece {
                Piece::Along { frame, .. } => {
                    self.bytes.extend_from_slice(&frame);
                    continue;
                }
                Piece::Start { first, body, .. } => (body, 0..first),
                Piece::Chunk { range, body, .. } => (body, range),
            };
            if range.len() <= COPY_BYTES_MAX {
                append(&mut self.bytes, &body, range);
            } else {
                long_bytes += range.len();
                self.long.push_back(Long { before: self.bytes.len(), body, range });
            }
        }
    }

    /// Writes once, on a link in clear; gives how many bytes were taken, and notes whether the socket may take
    /// more.
    fn write_clear(&mut self, pipe: &Pipe) -> Result<usize, LinkError> {
        let mut at = self.long.front().map_or(self.bytes.len(), |long| long.before);
        let mut parts = Parts::new(&self.bytes[self.at..at]);
        for (index, Long { body, range, .. }) in self.long.iter().enumerate() {
            match &**body {
                Body::Bytes(bytes) => parts.add(&bytes[range.clone()]),
                Body::Remote(remote) => parts.add_remote(remote, range.clone()),
            }
            let next = self.long.get(index + 1).map_or(self.bytes.len(), |long| long.before);
            parts.add(&self.bytes[at..next]);
            at = next;
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
        let long_bytes: usize = self.long.iter().map(|long| long.range.len()).sum();
        let bytes = self.bytes.len() - self.at + long_bytes;
        let mut place = Place { at: self.at, index: 0, body_at: 0 };
        let written = pipe.write_by(bytes, &mut |into| self.copy(&mut place, into))?;
        // A pipe may take less than all although it has room.
        self.writable = !pipe.wants_write();
        Ok(written)
    }

    /// Copies what comes next in what is to be written.
    fn copy(&self, place: &mut Place, mut into: &mut [u8]) {
        while !into.is_empty() {
            let long = self.long.get(place.index);
            let head_end = long.map_or(self.bytes.len(), |long| long.before);
            let (head, rest) = into.split_at_mut(into.len().min(head_end - place.at));
            head.copy_from_slice(&self.bytes[place.at..][..head.len()]);
            place.at += head.len();
            into = rest;
            let (Some(Long { body, range, .. }), false) = (long, into.is_empty()) else { continue };
            let (piece, rest) = into.split_at_mut(into.len().min(range.len() - place.body_at));
            read(body, range.start + place.body_at, piece);
            place.body_at += piece.len();
            into = rest;
            if place.body_at == range.len() {
                (place.index, place.body_at) = (place.index + 1, 0);
            }
        }
    }

    fn written(&mut self, mut count: usize) {
        while let Some(Long { before, range, .. }) = self.long.front_mut() {
            let head = count.min(*before - self.at);
            self.at += head;
            count -= head;
            let body = count.min(range.len());
            range.start += body;
            count -= body;
            if range.start < range.end {
                return;
            }
            // The sender may reuse the memory.
            self.long.pop_front();
        }
        self.at += count;
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
    use pvm_core::flows::cost;
    use pvm_core::flows::frames::{Head, read_head};
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
        news: usize,
        credit: u64,
    }

    impl Reader {
        fn read(&mut self, pipe: &mut Pipe, flows: &mut Flows<Body>) {
            let mut buffer = vec![0; 1 << 20];
            loop {
                match pipe.read(&mut buffer).unwrap() {
                    0 => break,
                    count => self.bytes.extend_from_slice(&buffer[..count]),
                }
            }
            while let Some((head, head_bytes)) = read_head(&self.bytes).unwrap_or_else(|_| panic!("rubbish")) {
                let behind = match &head {
                    Head::Start { first, .. } => *first,
                    Head::Chunk { bytes, .. } | Head::Along { bytes, .. } => *bytes,
                    Head::Credit { .. } => 0,
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
                assert!(outlet.push(&mut near, HOST, &mut flows).is_ok());
                assert!(outlet.writable || !encrypted || near.wants_write(), "nobody would tell when to go on");
                credit += 3;
                (1..=2).for_each(|bytes| outlet.add_credit(&Credit { host: HOST, dst: SRC, bytes }));
                reader.read(&mut far, &mut flows);
            }
            for (number, bytes) in sizes.into_iter().enumerate() {
                assert!(reader.bodies[number] == (bytes, pattern(number, bytes)), "{number}: {bytes} bytes");
            }
            while reader.credit < credit {
                outlet.writable = true;
                assert!(outlet.push(&mut near, HOST, &mut flows).is_ok());
                reader.read(&mut far, &mut flows);
            }
            assert!(reader.news == 1 && reader.credit == credit);
        }
    }

    #[test]
    fn credit_for_a_host_that_does_not_read_takes_little_memory_and_time() {
        for encrypted in [false, true] {
            let [mut near, mut far] = pipes(encrypted);
            let (mut outlet, mut flows, mut reader) = (Outlet::default(), Flows::new(), Reader::default());
            let long = 30 << 20;
            flows.send(SRC, Tid(HOST.0 | 1), [0; 5], long, long, Body::Bytes(pattern(0, long)));
            for round in 0..1000 {
                outlet.writable = true;
                while outlet.writable {
                    assert!(outlet.push(&mut near, HOST, &mut flows).is_ok());
                }
                (0..1000).for_each(|at| outlet.add_credit(&Credit { host: HOST, dst: Tid(SRC.0 + at), bytes: 1 }));
                assert!(outlet.bytes.len() < 1 << 20, "{round}");
            }
            while reader.credit < 1_000_000 {
                outlet.writable = true;
                assert!(outlet.push(&mut near, HOST, &mut flows).is_ok());
                reader.read(&mut far, &mut flows);
            }
            assert!(reader.credit == 1_000_000);
            outlet.release();
            assert!(outlet.bytes.capacity() <= 2 * GATHER_BYTES);
        }
    }
}
