//! Messages that are longer than a cell.
use super::*;
use crate::pair_memory::{CELL_BYTES_MAX, CELLS, PairMemory};
use crate::queue::Kind;
use crate::stream::Spill;
use crate::tests::{A, B, Host, Kept, beside};
use crate::{Arrival, BODY_BYTES_MAX, Meta, Posted, SendError, Sink};

/// A body that goes around the ring more than once.
const BYTES: usize = 2 * CELL_BYTES_MAX + 12_345;
/// More turns than are needed for memory to be made.
const TURNS: usize = 10;

/// Returns a body, quickly.
fn body(bytes: usize, seed: u8) -> Vec<u8> {
    let mut body = crate::tests::body(256, seed).repeat(bytes.div_ceil(256));
    body.truncate(bytes);
    body
}

/// What a receiver does with a body that is not complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Whole,
    Beginning(usize),
    Pieces,
    Nothing,
}

/// Takes messages as it is told.
struct Taking {
    wish: Wish,
    done: usize,
    pieces: Vec<u8>,
    messages: Vec<Vec<u8>>,
}

impl Taking {
    fn new(wish: Wish) -> Taking {
        Taking { wish, done: 0, pieces: Vec::new(), messages: Vec::new() }
    }
}

impl Sink for Taking {
    fn arrived(&mut self, _from: u32, _meta: Meta, arrival: Arrival<'_>) {
        let pieces = &mut self.pieces;
        let each = &mut |at: usize, from: *const u8, bytes: usize| {
            assert_eq!(at, pieces.len());
            // SAFETY: that many bytes lie there, and the sender keeps to the rules.
            pieces.extend_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        };
        let taken = match (arrival, self.wish) {
            (Arrival::Inline(_), _) => panic!("bodies are long"),
            (Arrival::InTransit(_), Wish::Nothing) => return,
            (Arrival::InTransit(body), Wish::Pieces) => {
                body.use_pieces(&mut self.done, each).ok().map(|()| std::mem::take(pieces))
            }
            (Arrival::InTransit(body), wish) => {
                let wanted = if let Wish::Beginning(bytes) = wish { bytes } else { body.len() };
                let mut bytes = vec![0; wanted];
                body.take(&mut bytes).ok().map(|()| bytes)
            }
            (Arrival::Remote(remote), Wish::Pieces) => {
                remote.use_pieces(&mut self.done, each);
                Some(std::mem::take(pieces))
            }
            (Arrival::Remote(remote), _) => {
                let mut bytes = vec![0; remote.len()];
                remote.read(0, &mut bytes);
                Some(bytes)
            }
        };
        self.messages.extend(taken);
    }
}

fn memory(endpoint: &Endpoint) -> Rc<PairMemory> {
    endpoint.peers[0].as_ref().unwrap().pair.current.clone().unwrap()
}

fn held(endpoint: &Endpoint) -> usize {
    (0..CELLS).filter(|cell| memory(endpoint).holds(*cell)).count()
}

/// Returns two endpoints that share the longest cells, at least one of them each.
fn pair(host: &Host) -> (Endpoint, Endpoint) {
    let (mut a, mut b) = host.pair();
    // The environment of the tests may choose the rendezvous for bodies of this length.
    (a.rendezvous_is_set, b.rendezvous_is_set) = (false, false);
    for turn in 0..TURNS as u8 {
        pass(&mut a, &mut b, CELL_BYTES_MAX + 1, turn);
        pass(&mut b, &mut a, CELL_BYTES_MAX + 1, turn);
    }
    assert_eq!(memory(&a).capacity(), CELL_BYTES_MAX);
    if held(&a) == 0 {
        pass(&mut b, &mut a, 3000, 0);
    }
    if held(&b) == 0 {
        pass(&mut a, &mut b, 3000, 0);
    }
    // What was spilled is released.
    while a.poll(&mut Kept::default()) + b.poll(&mut Kept::default()) > 0 {}
    // The next bodies are streamed, though these ones were not read in time.
    for endpoint in [&mut a, &mut b] {
        endpoint.peers[0].as_mut().unwrap().pair.note_stream(true);
    }
    (a, b)
}

/// Sends one body, and receives it afterwards.
fn pass(from: &mut Endpoint, to: &mut Endpoint, bytes: usize, seed: u8) {
    from.send_bytes(to.tid, [seed.into(); 6], &body(bytes, seed)).map(|_| ()).unwrap();
    let mut kept = Kept::default();
    while to.poll(&mut kept) == 0 {}
    assert!(kept.messages == [(from.tid, [seed.into(); 6], body(bytes, seed))]);
}

/// A stream whose sender does only what the test says.
struct Slow {
    memory: Rc<PairMemory>,
    cell: u32,
    body: Vec<u8>,
    done: usize,
}

impl Slow {
    /// Queues the entry of a stream from A to its only peer, with no byte written yet.
    fn begin(a: &mut Endpoint, bytes: usize) -> Slow {
        let (memory, cell) = a.peers[0].as_mut().unwrap().pair.take_for_stream().unwrap();
        memory.stream(cell).begin();
        push(a, &[u64::from(memory.generation) << 32 | u64::from(cell), bytes as u64, 0]);
        Slow { memory, cell, body: body(bytes, 9), done: 0 }
    }
    /// Writes more bytes, for which there is room up to the end of the ring.
    fn write(&mut self, bytes: usize) {
        let stream = self.memory.stream(self.cell);
        let at = self.done % stream.capacity;
        self.memory.write(self.cell, at, &self.body[self.done..self.done + bytes], crate::copy::CopyMode::Cached);
        self.done += bytes;
        stream.advance(self.done);
    }
    fn read(&self) -> u64 {
        self.memory.stream(self.cell).read.load(Ordering::Relaxed)
    }
}

fn push(from: &mut Endpoint, words: &[u64]) {
    let (us, heap) = (from.tid, from.heap.clone());
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    from.peers[0].as_mut().unwrap().push(us, &heap, Kind::Streamed, &[0; 6], &body).unwrap();
}

#[test]
fn long_bodies_go_through_cells_while_they_are_received() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    a.rendezvous_is_set = false;
    let turns = 2 * TURNS;
    let thread = beside(&host, &mut a, move |mut b| {
        for turn in 0..turns {
            let mut kept = Kept::default();
            while b.poll(&mut kept) == 0 {
                std::thread::yield_now();
            }
            assert!(kept.messages[0].2 == body(BYTES + turn, turn as u8), "{turn}");
            b.send_bytes(A, [0; 6], &body(BYTES - turn, turn as u8)).map(|_| ()).unwrap();
        }
        memory(&b).capacity()
    });
    for turn in 0..turns {
        a.send_bytes(B, [0; 6], &body(BYTES + turn, turn as u8)).map(|_| ()).unwrap();
        let mut kept = Kept::default();
        while a.poll(&mut kept) == 0 {
            std::thread::yield_now();
        }
        assert!(kept.messages[0].2 == body(BYTES - turn, turn as u8), "{turn}");
    }
    assert_eq!(thread.join().unwrap(), CELL_BYTES_MAX);
}

#[test]
fn tasks_that_answer_each_other_by_rendezvous_soon_stream() {
    const TURNS: u64 = 80;
    let receive = |endpoint: &mut Endpoint| {
        endpoint.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
        let mut kept = Kept::default();
        while endpoint.poll(&mut kept) == 0 {
            std::hint::spin_loop();
        }
        endpoint.post(None);
        kept.messages.remove(0).2
    };
    let host = Host::new();
    let mut a = host.endpoint(A);
    (a.rendezvous_is_set, a.rendezvous_bytes_min) = (false, BYTES);
    let thread = beside(&host, &mut a, move |mut b| {
        (b.rendezvous_is_set, b.rendezvous_bytes_min) = (false, BYTES);
        for turn in 0..TURNS {
            assert!(receive(&mut b) == body(BYTES, turn as u8), "{turn}");
            b.send_bytes(A, [0; 6], &body(BYTES, turn as u8)).map(|_| ()).unwrap();
        }
    });
    for turn in 0..TURNS {
        a.send_bytes(B, [0; 6], &body(BYTES, turn as u8)).map(|_| ()).unwrap();
        assert!(receive(&mut a) == body(BYTES, turn as u8), "{turn}");
    }
    thread.join().unwrap();
    assert_eq!(memory(&a).capacity(), CELL_BYTES_MAX);
    // How many bodies are streamed depends on the machine: a receiver that does not run in time gets the next ones by
    // rendezvous again.
    let rendezvous = a.peers[0].as_ref().unwrap().rendezvous.number;
    assert!(rendezvous < TURNS, "nothing was streamed");
}

#[test]
fn a_sender_does_not_wait_for_a_receiver_that_is_not_there_and_the_memory_comes_back() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let before = a.heap.borrow().in_use_bytes();
    a.send_bytes(B, [1; 6], &body(BYTES, 7)).map(|_| ()).unwrap();
    let spilled = a.heap.borrow().in_use_bytes() - before;
    assert!((1..=(BYTES - CELL_BYTES_MAX + 8192) as u64).contains(&spilled), "{spilled} bytes");
    for wish in [Wish::Whole, Wish::Pieces] {
        let (mut taking, cells) = (Taking::new(wish), held(&b));
        while b.poll(&mut taking) == 0 {}
        assert!(taking.messages == [body(BYTES, 7)]);
        assert_eq!(held(&b), cells + 1, "the cell belongs to the receiver");
        pass(&mut b, &mut a, 3000, 1);
        a.send_bytes(B, [1; 6], &body(BYTES, 7)).map(|_| ()).unwrap();
    }
    while b.poll(&mut Kept::default()) > 0 {}
    for _ in 0..3 {
        pass(&mut b, &mut a, 3000, 1);
        pass(&mut a, &mut b, 3000, 1);
    }
    assert!(a.heap.borrow().in_use_bytes() <= before, "the spilled part is released");
}

#[test]
fn a_receiver_that_never_reads_in_time_gets_bodies_through_the_heap() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let mut streams = 0;
    for turn in 0..30 {
        let cells = held(&a);
        pass(&mut a, &mut b, BYTES, turn);
        streams += usize::from(held(&a) < cells);
        pass(&mut b, &mut a, 3000, turn);
    }
    assert!(streams <= 4, "{streams}");
}

#[test]
fn a_sender_that_stalls_loses_no_byte_however_its_body_is_taken() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    let second = [Wish::Whole, Wish::Pieces, Wish::Beginning(100), Wish::Nothing];
    for first in [Wish::Whole, Wish::Pieces, Wish::Beginning(CELL_BYTES_MAX / 4), Wish::Nothing] {
        for second in second {
            let mut slow = Slow::begin(&mut a, BYTES);
            slow.write(CELL_BYTES_MAX / 2);
            let mut taking = Taking::new(first);
            assert_eq!(b.poll(&mut taking), 0);
            // Room is given back only for what the receiver keeps.
            assert_eq!(slow.read() > 0, first == Wish::Whole);
            slow.write(CELL_BYTES_MAX / 2);
            taking.wish = second;
            (taking.done, taking.pieces) = (0, Vec::new());
            assert_eq!(b.poll(&mut taking), 0);
            // The rest goes to the heap.
            let start = slow.done;
            let rest = slow.body[start..].to_vec();
            let block = a.allocate(rest.len()).unwrap();
            block.write(0, &rest);
            let token = a.peers[0].as_mut().unwrap().outstanding.add([block.clone()]);
            let stream = slow.memory.stream(slow.cell);
            stream.spill(Spill { start: start as u64, offset: block.offset(), token });
            stream.advance(BYTES);
            taking.wish = if second == Wish::Nothing { Wish::Whole } else { second };
            while b.poll(&mut taking) == 0 {}
            let wanted = if let (Wish::Beginning(bytes), true) = (second, taking.messages[0].len() < BYTES) {
                bytes
            } else {
                BYTES
            };
            assert!(taking.messages[0] == slow.body[..wanted]);
            pass(&mut b, &mut a, 3000, 1);
        }
    }
}

#[test]
fn a_body_that_its_sender_cannot_finish_is_not_received() {
    let host = Host::new();
    for by_death in [false, true] {
        let (mut a, mut b) = pair(&host);
        let mut slow = Slow::begin(&mut a, BYTES);
        slow.write(CELL_BYTES_MAX);
        let mut taking = Taking::new(Wish::Whole);
        assert_eq!(b.poll(&mut taking), 0);
        if by_death {
            host.table.clear(A);
        } else {
            slow.memory.stream(slow.cell).withdraw();
        }
        for _ in 0..3 {
            b.poll(&mut taking);
        }
        assert!(taking.messages.is_empty());
        host.table.set(A);
        pass(&mut a, &mut b, 3000, 5);
    }
}

#[test]
fn without_memory_for_the_rest_nothing_is_sent() {
    let host = Host::new();
    let (mut a, mut b) = pair(&host);
    a.heap.borrow_mut().tidy();
    a.heap.borrow().source().allowance.limit(0);
    let long = 64 << 20;
    assert_eq!(a.send_bytes(B, [1; 6], &body(long, 7)), Err(SendError::NoMemory));
    a.send_bytes(B, [2; 6], b"the next message").map(|_| ()).unwrap();
    let mut kept = Kept::default();
    while b.poll(&mut kept) == 0 {}
    assert!(kept.messages == [(A, [2; 6], b"the next message".to_vec())]);
}

#[test]
fn without_memory_for_the_rest_a_message_to_the_dead_is_sent() {
    let host = Host::new();
    let (mut a, _b) = pair(&host);
    a.heap.borrow_mut().tidy();
    a.heap.borrow().source().allowance.limit(0);
    host.table.clear(B);
    assert!(a.send_bytes(B, [1; 6], &body(64 << 20, 7)).is_ok());
}

#[test]
fn what_breaks_the_rules_of_streams_is_damage_or_no_message() {
    let host = Host::new();
    for wrong in 0..8 {
        let (mut a, mut b) = pair(&host);
        let current = memory(&b);
        let ours = (0..CELLS).find(|cell| current.holds(*cell)).unwrap();
        let theirs = (0..CELLS).find(|cell| memory(&a).holds(*cell)).unwrap();
        let generation = u64::from(current.generation) << 32;
        let stream = current.stream(theirs);
        stream.begin();
        let spill = |start: u64, offset: u64| stream.spill(Spill { start, offset, token: 77 });
        let (first, bytes) = match wrong {
            0 => (generation | u64::from(ours), BYTES as u64),
            1 => (generation | u64::from(CELLS), BYTES as u64),
            2 => (generation ^ 1 << 33 | u64::from(theirs), BYTES as u64),
            3 => (generation | u64::from(theirs), BODY_BYTES_MAX as u64 + 1),
            _ => (generation | u64::from(theirs), BYTES as u64),
        };
        match wrong {
            4 => spill(0, u64::MAX - 64),
            5 => spill(100, 4096),
            6 => spill(64, 1 << 50),
            _ => {}
        }
        // More than there can be, in a ring or at all.
        stream.advance(if wrong == 7 { usize::MAX - 1 } else { BYTES });
        push(&mut a, &[first, bytes, u64::MAX]);
        let mut taking = Taking::new(Wish::Whole);
        for _ in 0..3 {
            b.poll(&mut taking);
        }
        let is_damage = b.peers[0].as_ref().unwrap().damaged;
        assert_eq!(is_damage, wrong < 4, "{wrong}");
        // A sender that says that all is there gets what lies in the cell: it harms only its own message.
        assert_eq!(taking.messages.len(), usize::from(wrong == 7), "{wrong}");
    }
}
