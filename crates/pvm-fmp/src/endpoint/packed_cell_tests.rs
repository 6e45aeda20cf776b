//! Packed messages in cells that go to and fro between two tasks.
use super::*;
use crate::packed_cell::PackedCell;
use crate::pair_memory::{CELLS, PACKED_BYTES_MAX, PACKED_CELLS, PairMemory};
use crate::queue::Kind;
use crate::tests::{A, B, Host, Kept, body};
use crate::{Arrival, Meta, Remote, Sent, Sink};

const BYTES: usize = 20_000;
/// More turns than are needed for memory to be made.
const TURNS: u8 = 12;

/// A task: it has a send buffer, and the message that it received last.
struct Player {
    endpoint: Endpoint,
    sent: Option<PackedCell>,
    received: Option<Remote>,
}

impl Sink for Player {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        let Arrival::Remote(remote) = body else { panic!("packed bodies are complete, and long") };
        assert!(self.received.replace(remote).is_none(), "one message at a time");
    }
}

impl Player {
    fn pair(host: &Host) -> (Player, Player) {
        let (a, b) = host.pair();
        let player = |endpoint| Player { endpoint, sent: None, received: None };
        (player(a), player(b))
    }

    /// Drops the send buffer, and packs a body into a new one; returns whether it lies in a cell. A body that finds no cell is
    /// sent at once, through the heap.
    fn pack(&mut self, to: &Player, text: &[u8]) -> bool {
        self.sent = None;
        self.sent = self.endpoint.allocate_cell(text.len());
        if let Some(cell) = &mut self.sent {
            let (first, second) = text.split_at(text.len() / 2);
            cell.append(first);
            cell.append(second);
            return true;
        }
        let block = self.endpoint.allocate(text.len()).unwrap();
        block.write(0, text);
        assert_eq!(self.endpoint.send_blocks(to.endpoint.tid, [7; 6], &[(block, text.len())]), Ok(Sent::Done));
        self.endpoint.note_packed(to.endpoint.tid, text.len());
        false
    }

    fn send(&mut self, to: &Player) -> Option<Result<Sent, crate::SendError>> {
        self.endpoint.send_cell(to.endpoint.tid, &[7; 6], self.sent.as_mut().unwrap())
    }

    /// Drops the message that was received last, and receives the next one.
    fn receive(&mut self) -> Vec<u8> {
        self.received = None;
        let mut arriving = Player { endpoint: Endpoint::new().unwrap(), sent: None, received: None };
        while self.endpoint.poll(&mut arriving) == 0 {}
        self.received = arriving.received;
        self.text()
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.received.as_ref().unwrap().append_to(&mut text);
        text
    }

    fn memory(&self) -> Option<Rc<PairMemory>> {
        self.endpoint.peers[0].as_ref().unwrap().pair.current.clone()
    }
}

/// Passes one body; returns whether it went in a cell.
fn pass(from: &mut Player, to: &mut Player, bytes: usize, seed: u8) -> bool {
    let in_cell = from.pack(to, &body(bytes, seed));
    if in_cell {
        assert_eq!(from.send(to), Some(Ok(Sent::Done)));
    }
    assert!(to.receive() == body(bytes, seed));
    in_cell
}

/// Exchanges bodies until both sides have cells.
fn exchange(a: &mut Player, b: &mut Player, bytes: usize) {
    for turn in 0..TURNS {
        pass(a, b, bytes, turn);
        pass(b, a, bytes, turn + 100);
    }
}

#[test]
fn packed_bodies_go_to_and_fro_in_cells_and_need_no_heap() {
    let host = Host::new();
    let (mut a, mut b) = Player::pair(&host);
    for bytes in [600, BYTES, PACKED_BYTES_MAX] {
        exchange(&mut a, &mut b, bytes);
        for endpoint in [&mut a.endpoint, &mut b.endpoint] {
            (0..3).for_each(|_| assert_eq!(endpoint.poll(&mut Kept::default()), 0));
        }
        let in_use = |player: &Player| player.endpoint.heap.borrow().in_use_bytes();
        let before = (in_use(&a), in_use(&b));
        for turn in 0..20 {
            assert!(pass(&mut a, &mut b, bytes, turn) && pass(&mut b, &mut a, bytes, turn + 100), "{bytes} {turn}");
        }
        assert_eq!((in_use(&a), in_use(&b)), before);
        assert_eq!(a.memory().unwrap().cells(), PACKED_CELLS);
    }
    // Bodies for which no memory is made go through the heap, and the next shorter ones in cells again.
    let long = PACKED_BYTES_MAX + 1;
    assert!(!pass(&mut a, &mut b, long, 1) && !pass(&mut b, &mut a, long, 2));
    assert!(!pass(&mut a, &mut b, BYTES, 3), "nobody knows that it is short");
    assert!(!pass(&mut b, &mut a, BYTES, 4));
    assert!(pass(&mut a, &mut b, BYTES, 5) && pass(&mut b, &mut a, BYTES, 6));
}

#[test]
fn a_cell_is_not_written_while_its_sender_may_send_it_again() {
    let host = Host::new();
    let (mut a, mut b) = Player::pair(&host);
    exchange(&mut a, &mut b, BYTES);
    let text = body(BYTES, 77);
    assert!(a.pack(&b, &text) && a.send(&b) == Some(Ok(Sent::Done)));
    assert!(b.receive() == text);
    b.received = None;
    // B uses all cells that it may use.
    let mut cells = Vec::new();
    while let Some(mut cell) = b.endpoint.allocate_cell(BYTES) {
        cell.append(&body(BYTES, 200));
        cells.push(cell);
    }
    let mut read = vec![0; BYTES];
    a.sent.as_ref().unwrap().read(0, &mut read);
    assert!(read == text, "the buffer of the sender is as it was");
    assert!(!a.sent.as_ref().unwrap().has_room(1) && a.send(&b).is_none(), "it is sent again through the heap");
    drop(cells);
    // A drops the buffer, and says so with its next message in a cell: then the cell is B's.
    let held = |player: &Player| {
        let memory = player.memory().unwrap();
        (0..PACKED_CELLS).filter(|cell| memory.holds(*cell)).count()
    };
    let before = held(&b);
    assert!(pass(&mut b, &mut a, BYTES, 1) && pass(&mut a, &mut b, BYTES, 2));
    b.received = None;
    assert_eq!(held(&b), before, "one passed, one got");
    exchange(&mut a, &mut b, BYTES);
}

#[test]
fn a_body_that_goes_elsewhere_gives_its_cell_back() {
    let host = Host::new();
    let (mut a, mut b) = Player::pair(&host);
    exchange(&mut a, &mut b, BYTES);
    assert!(a.pack(&b, &body(BYTES, 1)));
    let memory = a.memory().unwrap();
    let held = |memory: &PairMemory| (0..PACKED_CELLS).filter(|cell| memory.holds(*cell)).count();
    let before = held(&memory);
    let cell = a.sent.as_mut().unwrap();
    assert!(a.endpoint.send_cell(B + 1, &[1; 6], cell).is_none(), "another task");
    // The pair gets longer cells while the body is packed.
    a.endpoint.peers[0].as_mut().unwrap().pair.current = None;
    assert!(a.endpoint.send_cell(B, &[1; 6], cell).is_none(), "memory of the past");
    cell.note_wrong_guess();
    a.endpoint.peers[0].as_mut().unwrap().pair.current = Some(memory.clone());
    a.sent = None;
    assert_eq!(held(&memory), before + 1);
    assert!(a.endpoint.allocate_cell(BYTES).is_none(), "the guess was wrong");
}

#[test]
fn a_peer_that_lies_about_cells_spoils_its_own_messages_alone() {
    let host = Host::new();
    for lie in 0..4 {
        let (mut a, mut b) = Player::pair(&host);
        exchange(&mut a, &mut b, BYTES);
        assert!(a.pack(&b, &body(BYTES, 1)) && a.send(&b) == Some(Ok(Sent::Done)));
        assert!(b.receive() == body(BYTES, 1));
        let memory = b.memory().unwrap();
        let generation = u64::from(memory.generation) << 32;
        let theirs = (0..PACKED_CELLS).find(|cell| memory.may_arrive(*cell)).map(u64::from).unwrap();
        // All cells are dropped, a cell that does not exist, a bit without a meaning, and a cell that is still released.
        let first = match lie {
            0 => generation | theirs | 0xff << 8,
            1 => generation | u64::from(PACKED_CELLS),
            2 => generation | theirs | 1 << 17,
            _ => {
                b.received = None;
                let released = (0..PACKED_CELLS).find(|cell| !memory.may_arrive(*cell) && !memory.holds(*cell));
                generation | u64::from(released.unwrap())
            }
        };
        let words: Vec<u8> = [first, 100, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let heap = a.endpoint.heap.clone();
        a.endpoint.peers[0].as_mut().unwrap().push(A, &heap, Kind::Passed, &[0; 6], &words).unwrap();
        let mut kept = Kept::default();
        b.endpoint.poll(&mut kept);
        assert_eq!(
            (kept.messages.len(), b.endpoint.peers[0].as_ref().unwrap().damaged),
            (usize::from(lie == 0), lie > 0)
        );
    }
}

#[test]
fn pairs_of_one_call_messages_keep_two_cells() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for turn in 0..TURNS {
        for (from, to) in [(A, B), (B, A)] {
            let (from, to) = if from == A { (&mut a, to) } else { (&mut b, to) };
            from.send_bytes(to, [turn.into(); 6], &body(BYTES, turn)).map(|_| ()).unwrap();
            while (if to == B { &mut b } else { &mut a }).poll(&mut Kept::default()) == 0 {}
        }
    }
    let memory = a.peers[0].as_ref().unwrap().pair.current.clone().unwrap();
    assert_eq!(memory.cells(), CELLS);
    assert!(a.allocate_cell(BYTES).is_none());
}

/// A linear congruential generator: Knuth's MMIX constants.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A task of the random test: its send buffers, and the messages that it keeps, each with the seed of its body.
#[derive(Default)]
struct Keeper {
    buffers: Vec<(PackedCell, u8)>,
    arrived: Vec<(Remote, Meta)>,
}

impl Sink for Keeper {
    fn arrived(&mut self, _from: u32, meta: Meta, body: Arrival<'_>) {
        let Arrival::Remote(remote) = body else { panic!("packed bodies are complete, and long") };
        self.arrived.push((remote, meta));
    }
}

impl Keeper {
    /// Checks that all bodies are what was packed.
    fn check(&self) {
        for (cell, seed) in &self.buffers {
            let mut text = vec![0; cell.len()];
            cell.read(0, &mut text);
            assert!(text == body(cell.len(), *seed), "a buffer");
        }
        for (remote, meta) in &self.arrived {
            let mut text = Vec::new();
            remote.append_to(&mut text);
            assert!(text == body(remote.len(), meta[0] as u8), "message {}", meta[0]);
        }
    }
}

#[test]
fn whatever_is_sent_again_kept_and_freed_no_body_changes_before_its_time() {
    let host = Host::new();
    let (mut cells, mut copies) = (0, 0);
    for seed in 0..20 {
        let (mut a, mut b) = Player::pair(&host);
        exchange(&mut a, &mut b, BYTES);
        for player in [&mut a, &mut b] {
            (player.sent, player.received) = (None, None);
        }
        let mut random = Random(seed);
        let mut sides = [(a.endpoint, Keeper::default(), B, 0u8), (b.endpoint, Keeper::default(), A, 128)];
        for _ in 0..300 {
            let (endpoint, keeper, to, number) = &mut sides[random.below(2)];
            match random.below(6) {
                0 | 1 => {
                    keeper.buffers.truncate(random.below(2));
                    *number = number.wrapping_add(1);
                    let text = body(BYTES - random.below(9), *number);
                    match endpoint.allocate_cell(text.len()) {
                        Some(mut cell) => {
                            cell.append(&text);
                            keeper.buffers.insert(0, (cell, *number));
                            cells += 1;
                        }
                        None => endpoint.note_packed(*to, text.len()),
                    }
                }
                2 if !keeper.buffers.is_empty() => {
                    let (cell, number) = &mut keeper.buffers[0];
                    let meta = [u32::from(*number); 6];
                    if endpoint.send_cell(*to, &meta, cell).is_none() {
                        // It was sent before: it is sent again by a copy.
                        let mut text = vec![0; cell.len()];
                        cell.read(0, &mut text);
                        let block = endpoint.allocate(text.len()).unwrap();
                        block.write(0, &text);
                        endpoint.send_blocks(*to, meta, &[(block, text.len())]).map(|_| ()).unwrap();
                        copies += 1;
                    }
                }
                3 | 4 => drop(endpoint.poll(keeper)),
                _ if !keeper.arrived.is_empty() => drop(keeper.arrived.remove(random.below(keeper.arrived.len()))),
                _ => {}
            }
            sides.iter().for_each(|(_, keeper, ..)| keeper.check());
        }
    }
    assert!(cells > 500 && copies > 100, "{cells} {copies}");
}
