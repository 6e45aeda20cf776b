//! Messages in cells that go to and fro between two tasks.
use super::*;
use crate::pair_memory::{CELL_BYTES_MIN, CELLS, PACKED_CELLS, PairMemory};
use crate::queue::Kind;
use crate::tests::{A, B, Host, Kept, beside, body};
use crate::{Arrival, Meta, Remote, Sent, Sink};

/// More turns than are needed for memory to be made.
const TURNS: usize = 12;

/// Sends one body, and receives it.
fn pass(from: &mut Endpoint, to: &mut Endpoint, bytes: usize, seed: u8) {
    assert_eq!(from.send_bytes(to.tid, [seed.into(); 6], &body(bytes, seed)), Ok(Sent::Done));
    let mut kept = Kept::default();
    while to.poll(&mut kept) == 0 {}
    assert!(kept.messages == [(from.tid, [seed.into(); 6], body(bytes, seed))]);
}

fn exchange(a: &mut Endpoint, b: &mut Endpoint, bytes: usize) {
    for turn in 0..TURNS {
        pass(a, b, bytes, turn as u8);
        pass(b, a, bytes + 1, turn as u8 + 100);
    }
}

/// Returns the memory that an endpoint shares with its only peer.
fn memory(endpoint: &Endpoint) -> Option<Rc<PairMemory>> {
    endpoint.peers[0].as_ref().unwrap().pair.current.clone()
}

fn held(endpoint: &Endpoint) -> usize {
    memory(endpoint).map_or(0, |memory| (0..CELLS).filter(|cell| memory.holds(*cell)).count())
}

impl Endpoint {
    /// Returns how many cells this endpoint holds of the memory that it shares with its only peer.
    pub(crate) fn cells_held(&self) -> usize {
        held(self)
    }
}

fn heap_bytes(endpoint: &Endpoint) -> u64 {
    endpoint.heap.borrow().in_use_bytes()
}

/// Queues any entry, valid or not, from one endpoint to its only peer.
fn push(from: &mut Endpoint, kind: Kind, words: &[u64]) {
    let (us, heap) = (from.tid, from.heap.clone());
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    from.peers[0].as_mut().unwrap().push(us, &heap, kind, &[0; 6], &body).unwrap();
}

#[test]
fn tasks_that_answer_each_other_share_memory_and_need_no_heap() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for bytes in [600, 4096, 10_000, 100_000] {
        exchange(&mut a, &mut b, bytes);
        // All blocks of the heaps are given back, which takes some polls.
        for _ in 0..3 {
            assert_eq!((a.poll(&mut Kept::default()), b.poll(&mut Kept::default())), (0, 0));
        }
        let before = (heap_bytes(&a), heap_bytes(&b));
        exchange(&mut a, &mut b, bytes);
        assert_eq!((heap_bytes(&a), heap_bytes(&b)), before, "{bytes}");
        assert_eq!(held(&a) + held(&b), CELLS as usize);
        for endpoint in [&a, &b] {
            let pair = &endpoint.peers[0].as_ref().unwrap().pair;
            assert!(pair.previous.is_none(), "shorter cells are given back");
        }
    }
    assert!(memory(&a).unwrap().capacity() >= 100_001 && memory(&b).unwrap().capacity() >= 100_001);
}

#[test]
fn bodies_of_one_direction_alone_share_nothing() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for turn in 0..3 * TURNS {
        pass(&mut a, &mut b, 4096, turn as u8);
        pass(&mut b, &mut a, 8, turn as u8);
    }
    assert!(memory(&a).is_none() && memory(&b).is_none());
}

#[test]
fn bodies_for_which_no_cell_is_left_arrive_in_order_through_the_heap() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 4096);
    for round in 0..10 {
        let (from, to) = if round % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        for number in 0..7 {
            from.send_bytes(to.tid, [number; 6], &body(3000 + number as usize, number as u8)).map(|_| ()).unwrap();
        }
        let mut kept = Kept::default();
        while to.poll(&mut kept) > 0 {}
        let numbers: Vec<u32> = kept.messages.iter().map(|(_, meta, _)| meta[0]).collect();
        assert_eq!(numbers, (0..7).collect::<Vec<u32>>());
        assert!(kept.messages.iter().all(|(_, meta, bytes)| *bytes == body(3000 + meta[0] as usize, meta[0] as u8)));
    }
}

/// Keeps bodies where they lie.
#[derive(Default)]
struct Keeping(Vec<Remote>);

impl Sink for Keeping {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        let Arrival::Remote(remote) = body else { panic!("bodies are complete, and long") };
        self.0.push(remote);
    }
}

#[test]
fn a_message_that_is_kept_keeps_its_cell() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 4096);
    let mut keeping = Keeping::default();
    a.send_bytes(B, [1; 6], &body(5000, 77)).map(|_| ()).unwrap();
    while b.poll(&mut keeping) == 0 {}
    for turn in 0..10 {
        pass(&mut b, &mut a, 6000, turn);
        pass(&mut a, &mut b, 6000, turn + 50);
    }
    let before = held(&b);
    let mut bytes = vec![0; 5000];
    keeping.0[0].read(0, &mut bytes);
    assert!(bytes == body(5000, 77));
    keeping.0.clear();
    assert_eq!(held(&b), before + 1);
}

#[test]
fn messages_in_the_memory_before_arrive_after_larger_memory_was_made() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 600);
    let small = memory(&a).unwrap();
    assert_eq!(small.capacity(), CELL_BYTES_MIN);
    // B does not answer the offer before A has sent in the old memory once more.
    let long = CELL_BYTES_MIN + 1;
    while a.peers[0].as_ref().unwrap().pair.offered.is_none() {
        pass(&mut b, &mut a, long, 1);
        a.send_bytes(B, [2; 6], &body(long, 2)).map(|_| ()).unwrap();
        if a.peers[0].as_ref().unwrap().pair.offered.is_none() {
            while b.poll(&mut Kept::default()) == 0 {}
        }
    }
    while held(&a) > 0 {
        a.send_bytes(B, [3; 6], &body(700, 3)).map(|_| ()).unwrap();
    }
    let mut kept = Kept::default();
    while b.poll(&mut kept) > 0 {}
    let (last, others) = kept.messages.split_last().unwrap();
    assert!(last.2 == body(700, 3) && others[0].2 == body(long, 2));
    exchange(&mut a, &mut b, long);
    assert!(memory(&a).unwrap().capacity() > long && memory(&b).unwrap().capacity() > long);
}

#[test]
fn a_receiver_copies_out_of_a_cell_while_the_sender_writes_it() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let count = 60;
    let thread = beside(&host, &mut a, move |mut b| {
        for number in 0..count {
            let mut kept = Kept::default();
            while b.poll(&mut kept) == 0 {
                std::thread::yield_now();
            }
            let bytes = 20_000 + number * 37;
            assert!(kept.messages[0].2 == body(bytes, number as u8), "{number}");
            b.send_bytes(A, [0; 6], &body(bytes, number as u8 + 1)).map(|_| ()).unwrap();
        }
        memory(&b).is_some()
    });
    for number in 0..count {
        let bytes = 20_000 + number * 37;
        a.send_bytes(B, [0; 6], &body(bytes, number as u8)).map(|_| ()).unwrap();
        let mut kept = Kept::default();
        while a.poll(&mut kept) == 0 {
            std::thread::yield_now();
        }
        assert!(kept.messages[0].2 == body(bytes, number as u8 + 1), "{number}");
    }
    assert!(thread.join().unwrap());
}

#[test]
fn a_task_makes_no_more_memory_than_it_may_and_gives_it_back() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    a.pair_bytes.set(PAIR_BYTES_MAX - CELL_BYTES_MIN);
    exchange(&mut a, &mut b, 4096);
    assert!(memory(&a).is_none() && memory(&b).is_none());
    a.pair_bytes.set(0);
    exchange(&mut a, &mut b, 4096);
    assert!(memory(&b).is_some() && a.pair_bytes.get() > 2 * CELL_BYTES_MIN);
    a.peer_gone(B);
    assert_eq!(a.pair_bytes.get(), 0);
    // Without memory for the heap there is none for pairs either.
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 600);
    let small = memory(&a).unwrap();
    for turn in 0..TURNS as u8 {
        pass(&mut b, &mut a, 20_000, turn);
        pass(&mut a, &mut b, 20_000, turn);
        a.heap.borrow().source().allowance.limit(0);
    }
    assert!(Rc::ptr_eq(&memory(&a).unwrap(), &small));
}

#[test]
fn memory_that_is_not_what_the_offer_says_is_refused_and_used_no_more() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let total = Rc::default();
    let (_memory, file, offer) = PairMemory::make(&a.heap, &total, PAIR_BYTES_MAX, (CELLS, CELL_BYTES_MIN), 1).unwrap();
    let size = |cells: u32, capacity: u32| u64::from(cells) << 32 | u64::from(capacity);
    let good = [1 << 32 | u64::from(offer.descriptor), offer.nonce, size(CELLS, offer.capacity)];
    let segment = a.descriptors().unwrap();
    let descriptor = |file: &OwnedFd| 1 << 32 | std::os::fd::AsRawFd::as_raw_fd(file) as u64;
    let lies = [
        [1 << 32 | u64::from(u32::MAX), good[1], good[2]],
        [1 << 32 | 999_999, good[1], good[2]],
        [descriptor(&segment[0]), good[1], good[2]],
        [descriptor(&segment[1]), good[1], good[2]],
        [good[0], good[1] ^ 1, good[2]],
        [good[0], good[1], size(CELLS, 2 * offer.capacity)],
        [good[0], good[1], size(PACKED_CELLS, offer.capacity)],
        [good[0], good[1], size(CELLS - 1, offer.capacity)],
        [good[0], good[1], size(u32::MAX, offer.capacity)],
        [good[0], good[1], good[2] + 1],
        [good[0], good[1], 0],
        [good[0], good[1], u64::MAX],
    ];
    for lie in lies {
        push(&mut a, Kind::Offer, &lie);
        assert_eq!(b.poll(&mut Kept::default()), 0);
        assert!(memory(&b).is_none(), "{lie:?}");
        pass(&mut a, &mut b, 5000, 3);
    }
    push(&mut a, Kind::Offer, &good);
    b.poll(&mut Kept::default());
    assert!(memory(&b).is_some());
    drop(file);
}

#[test]
fn a_peer_that_could_not_map_an_offer_gets_no_other() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    // B finds another process than A's: none.
    let pid = a.heap.borrow().source().mapping.header().pid.swap(u32::MAX, Ordering::Relaxed);
    exchange(&mut a, &mut b, 4096);
    a.heap.borrow().source().mapping.header().pid.store(pid, Ordering::Relaxed);
    exchange(&mut a, &mut b, 4096);
    let pair = &a.peers[0].as_ref().unwrap().pair;
    assert!(pair.refused && pair.offered.is_none() && memory(&b).is_none() && a.pair_bytes.get() == 0);
}

#[test]
fn a_cell_that_the_sender_cannot_have_is_damage() {
    let host = Host::new();
    for wrong in 0..6 {
        let (mut a, mut b) = host.pair();
        exchange(&mut a, &mut b, 4096);
        pass(&mut a, &mut b, 4096, 1);
        let current = memory(&b).unwrap();
        let ours = (0..CELLS).find(|cell| current.holds(*cell)).unwrap();
        let (generation, theirs, long) = (u64::from(current.generation) << 32, 1 - u64::from(ours), 1 << 40);
        current.progress(1 - ours).store(long, Ordering::Relaxed);
        let entry = match wrong {
            0 => [generation | u64::from(ours), 100, 1],
            1 => [generation | u64::from(CELLS), 100, 1],
            2 => [generation | u64::from(u32::MAX), 100, 0],
            3 => [generation ^ 1 << 33 | theirs, 100, 1],
            4 => [generation | theirs, CELL_BYTES_MIN as u64 + 1, 1],
            _ => [generation | theirs, long, 0],
        };
        push(&mut a, Kind::Passed, &entry);
        a.send_bytes(B, [1; 6], b"not believed any more").map(|_| ()).unwrap();
        assert_eq!(b.poll(&mut Kept::default()), 0, "{wrong}");
        assert!(b.peers[0].as_ref().unwrap().damaged, "{wrong}");
    }
}

#[test]
fn a_body_that_is_copied_at_once_takes_the_shortest_path_in_the_queue_or_in_a_cell() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 200_000);
    for (turn, bytes) in
        [0, 1, 32, 33, 88, 89, 200, 504, 505, 4096, 8191, 8192, 40_001, 200_000].into_iter().enumerate()
    {
        let (from, to) = if turn % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let sent = body(bytes, turn as u8);
        // Now and then it is time to poll all peers.
        assert_eq!(to.poll(&mut Kept::default()), 0);
        assert!(to.probe_recent(true).is_none());
        let result = match bytes {
            ..=504 => from.send_in_queue(to.tid, &[turn as u32; 6], &sent),
            _ => from.send_in_cell(to.tid, &[turn as u32; 6], &sent),
        };
        assert_eq!(result, Some(Sent::Done));
        let found = to.probe_recent(true).unwrap();
        assert_eq!((found.from(), found.len(), found.meta()), (from.tid, bytes, [turn as u32; 6]));
        assert_eq!(found.is_in_queue(), bytes <= crate::INLINE_BYTES_MAX);
        // A message that is not taken stays where it is.
        let mut taken = vec![0; bytes + 3];
        assert_eq!(to.probe_recent(true).unwrap().take(&mut taken), Some(bytes));
        assert!(taken[..bytes] == sent && taken[bytes..] == [0; 3]);
        assert_eq!(held(&a) + held(&b), CELLS as usize);
    }
    // Of a body that is longer than the room, the first bytes are taken.
    assert!(a.send_in_cell(b.tid, &[1; 6], &body(5000, 1)).is_some());
    let mut start = [0; 100];
    assert_eq!(b.probe_recent(true).unwrap().take(&mut start), Some(5000));
    assert!(start == body(5000, 1)[..100] && b.probe_recent(true).is_none());
    // The pair goes on in the ordinary way.
    exchange(&mut a, &mut b, 8000);
}

#[test]
fn what_cannot_be_copied_at_once_is_not_sent_or_taken_by_the_shortest_path() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    assert_eq!(a.send_in_queue(B + 1, &[1; 6], &[1]), None, "no such peer");
    assert_eq!(a.send_in_queue(B, &[1; 6], &[1; 505]), None, "too long");
    assert_eq!(a.send_in_cell(B, &[1; 6], &[1; 600]), None, "no cell");
    exchange(&mut a, &mut b, 100_000);
    a.rendezvous_bytes_min = 50_000;
    assert_eq!(a.send_in_cell(B, &[1; 6], &[1; 50_000]), None, "a rendezvous");
    // A valid entry, then three that break the rules: the cell does not exist, we hold it, or it is too short.
    for case in 0..4 {
        let (mut a, mut b) = host.pair();
        exchange(&mut a, &mut b, 100_000);
        pass(&mut a, &mut b, 100_000, 1);
        a.poll(&mut Kept::default());
        let memory = memory(&a).unwrap();
        let (ours, room) = (u64::from(!memory.holds(0)), memory.capacity() as u64);
        let theirs = 1 - ours;
        let [cell, bytes] = [[theirs, room], [CELLS.into(), 10], [ours, 10], [theirs, room + 1]][case];
        push(&mut b, Kind::Passed, &[u64::from(memory.generation) << 32 | cell, bytes, 1]);
        assert_eq!(a.probe_recent(true).is_some(), case == 0, "{case}");
    }
}

#[test]
fn a_message_whose_sender_stops_in_the_middle_is_taken_when_it_goes_on() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    exchange(&mut a, &mut b, 20_000);
    b.poll(&mut Kept::default());
    // What the sender does for a body of 20,000 bytes, up to its 10,000th byte.
    let (sent, memory) = (body(20_000, 7), memory(&a).unwrap());
    let cell = memory.take().unwrap();
    memory.write(cell, 0, &sent[..10_000], crate::copy::CopyMode::Cached);
    crate::pipelined::advance(memory.progress(cell), 10_000);
    push(&mut a, Kind::Passed, &[u64::from(memory.generation) << 32 | u64::from(cell), 20_000, 0]);
    let mut taken = vec![0; 20_000];
    assert_eq!(b.probe_recent(true).unwrap().take(&mut taken), None);
    assert!(b.probe_recent(true).is_none(), "there is nothing more to wait for");
    memory.write(cell, 10_000, &sent[10_000..], crate::copy::CopyMode::Cached);
    crate::pipelined::advance(memory.progress(cell), 20_000);
    assert_eq!(b.probe_recent(true).unwrap().take(&mut taken), Some(20_000));
    assert!(taken == sent && b.probe_recent(true).is_none());
    exchange(&mut a, &mut b, 20_000);
}
