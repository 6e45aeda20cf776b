//! Endpoints that talk to one another within this process.
use crate::ports::{PortTable, PortView};
use crate::*;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

#[path = "daemon_tests.rs"]
mod daemon_tests;
pub(crate) use daemon_tests::{DAEMON, block_of, pair as daemon_and_task};

/// The length, in bytes, of a body that is sent by rendezvous. (Shorter under `cargo xtask sanitize thread`, which is
/// slow.)
pub(crate) const LONG_BYTES: usize = if cfg!(one_mapping) { 2_000_000 } else { 40_000_000 };

pub(crate) const A: u32 = 0x40001;
pub(crate) const B: u32 = 0x40002;

/// Keeps messages that arrive.
#[derive(Default)]
pub(crate) struct Kept {
    pub messages: Vec<(u32, Meta, Vec<u8>)>,
    remotes: Vec<Remote>,
    keep_remotes: bool,
    refuse_transit: bool,
    append_transit: bool,
    pub in_transit: usize,
}

impl Sink for Kept {
    fn arrived(&mut self, from: u32, meta: Meta, body: Arrival<'_>) {
        let bytes = match body {
            Arrival::Inline(inline) => {
                let mut bytes = vec![0; inline.len()];
                assert_eq!(inline.copy_to(&mut bytes), bytes.len());
                bytes
            }
            Arrival::Remote(remote) => {
                let mut bytes = vec![0; remote.len()];
                remote.read(0, &mut bytes);
                if self.keep_remotes {
                    self.remotes.push(remote);
                }
                bytes
            }
            Arrival::InTransit(_) if self.refuse_transit => return,
            Arrival::InTransit(body) => {
                self.in_transit += 1;
                if self.append_transit {
                    let mut bytes = vec![7];
                    assert!(body.take_all(&mut bytes).is_ok());
                    return self.messages.push((from, meta, bytes.split_off(1)));
                }
                let mut bytes = vec![0; body.len()];
                match body.take(&mut bytes) {
                    Ok(()) => bytes,
                    Err(NotTaken::Eager(remote)) => {
                        remote.read(0, &mut bytes);
                        bytes
                    }
                    Err(NotTaken::Later | NotTaken::Lost) => return,
                }
            }
        };
        self.messages.push((from, meta, bytes));
    }
}

pub(crate) struct Host {
    pub table: PortTable,
}

impl Host {
    pub fn new() -> Host {
        let table = PortTable::new(64).unwrap();
        table.set(A);
        table.set(B);
        Host { table }
    }
    fn view(&self) -> OwnedFd {
        self.table.descriptor().try_clone_to_owned().unwrap()
    }
    pub fn endpoint(&self, tid: u32) -> Endpoint {
        let mut endpoint = Endpoint::new().unwrap();
        endpoint.enrolled(tid, PortView::new(self.view()).unwrap());
        endpoint
    }
    pub fn pair(&self) -> (Endpoint, Endpoint) {
        let (mut a, mut b) = (self.endpoint(A), self.endpoint(B));
        introduce(&mut a, B, &b);
        introduce(&mut b, A, &a);
        (a, b)
    }
}

pub(crate) fn introduce(one: &mut Endpoint, tid: u32, other: &Endpoint) {
    let [segment, bell] = other.descriptors().unwrap();
    one.connect(tid, segment, bell).unwrap();
}

pub(crate) fn body(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn messages_of_every_size_arrive_whole_and_in_order() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let sizes: Vec<usize> = (0..600).chain([1000, 4096, 65_535, 1 << 20, 5_000_000]).collect();
    for (index, &size) in sizes.iter().enumerate() {
        assert_eq!(a.send_bytes(B, [index as u32, 2, 3, 4, 5, 6], &body(size, index as u8)), Ok(Sent::Done));
    }
    let mut kept = Kept::default();
    while b.poll(&mut kept) > 0 {}
    assert_eq!(kept.messages.len(), sizes.len());
    for (index, (from, meta, bytes)) in kept.messages.iter().enumerate() {
        assert_eq!((*from, meta), (A, &[index as u32, 2, 3, 4, 5, 6]));
        assert!(*bytes == body(sizes[index], index as u8), "message {index}");
    }
}

#[test]
fn a_million_messages_wait_for_a_receiver_and_the_memory_comes_back() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for index in 0..1_000_000u32 {
        assert_eq!(a.send_bytes(B, [index, 0, 0, 0, 0, 0], &index.to_ne_bytes()), Ok(Sent::Done));
    }
    struct Count(u32);
    impl Sink for Count {
        fn arrived(&mut self, _from: u32, meta: Meta, _body: Arrival<'_>) {
            assert_eq!(meta[0], self.0);
            self.0 += 1;
        }
    }
    let mut count = Count(0);
    while b.poll(&mut count) > 0 {}
    assert_eq!(count.0, 1_000_000);
    a.poll(&mut Kept::default());
    a.tidy();
    a.send_bytes(B, [0; 6], &[]).map(|_| ()).unwrap();
    b.poll(&mut Kept::default());
    a.tidy();
    assert!(!a.has_excess());
}

#[test]
fn blocks_are_freed_when_the_receiver_drops_them() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let mut kept = Kept { keep_remotes: true, ..Kept::default() };
    for round in 0..50 {
        let block = a.allocate(3 << 20).unwrap();
        block.write(0, &[round; 100]);
        a.send_blocks(B, [0; 6], &[(block, 3 << 20)]).map(|_| ()).unwrap();
        b.poll(&mut kept);
        assert_eq!(kept.messages.pop().unwrap().2[99], round);
        kept.remotes.clear();
        b.poll(&mut kept);
        a.poll(&mut kept);
    }
    a.tidy();
    assert!(!a.has_excess());
}

/// Takes one message at a time, and releases its body at once.
struct OneByOne(usize);

impl Sink for OneByOne {
    fn arrived(&mut self, _from: u32, _meta: Meta, _body: Arrival<'_>) {
        self.0 += 1;
    }
    fn satisfied(&self) -> bool {
        true
    }
}

#[test]
fn a_message_behind_many_releases_is_there_before_a_sleep() {
    const LONG_MESSAGES: usize = 600;
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for _ in 0..LONG_MESSAGES {
        assert_eq!(a.send_bytes(B, [0; 6], &body(40_000, 1)), Ok(Sent::Done));
    }
    let mut taken = OneByOne(0);
    while taken.0 < LONG_MESSAGES {
        assert!(b.poll(&mut taken) > 0);
    }
    assert_eq!(b.send_bytes(A, [0; 6], b"answer"), Ok(Sent::Done));
    a.prepare_park();
    let mut kept = Kept::default();
    while a.poll(&mut kept) > 0 {}
    assert_eq!(kept.messages.len(), 1);
}

#[test]
fn a_body_in_many_fragments_arrives_as_one() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for count in [2, 31, 32, 100] {
        let fragments: Vec<_> = (0..count)
            .map(|index| {
                let block = a.allocate(2000).unwrap();
                block.write(0, &body(2000, index as u8));
                (block, 1000 + index)
            })
            .collect();
        a.send_blocks(B, [0; 6], &fragments).map(|_| ()).unwrap();
        let mut kept = Kept::default();
        assert_eq!(b.poll(&mut kept), 1);
        let expected: Vec<u8> = (0..count).flat_map(|index| body(2000, index as u8)[..1000 + index].to_vec()).collect();
        assert!(kept.messages[0].2 == expected);
    }
}

#[test]
fn a_multicast_shares_one_block() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    host.table.set(0x40003);
    let mut c = host.endpoint(0x40003);
    introduce(&mut a, 0x40003, &c);
    introduce(&mut c, A, &a);
    let block = a.allocate(1 << 20).unwrap();
    block.write(0, &body(1 << 20, 7));
    for to in [B, 0x40003] {
        a.send_blocks(to, [0; 6], &[(block.clone(), 1 << 20)]).map(|_| ()).unwrap();
    }
    drop(block);
    for endpoint in [&mut b, &mut c] {
        let mut kept = Kept::default();
        endpoint.poll(&mut kept);
        assert!(kept.messages[0].2 == body(1 << 20, 7));
        drop(kept);
        endpoint.poll(&mut Kept::default());
    }
    a.poll(&mut Kept::default());
    a.tidy();
    assert!(!a.has_excess());
}

#[test]
fn unknown_and_dead_peers_are_told_apart() {
    let host = Host::new();
    let (mut a, b) = host.pair();
    assert_eq!(a.send_bytes(0x40009, [0; 6], b"x"), Err(SendError::NotConnected));
    host.table.clear(B);
    assert_eq!(a.send_bytes(B, [0; 6], b"x"), Ok(Sent::Done));
    a.peer_gone(B);
    assert!(!a.is_connected(B));
    drop(b);
}

#[test]
fn an_immediate_message_goes_to_its_receiver_also_when_another_task_has_the_slot_of_a_dead_one() {
    const C: u32 = 0x40003;
    const DAEMON: u32 = 0x40000;
    let host = Host::new();
    host.table.set(C);
    let (mut a, b) = host.pair();
    let mut c = host.endpoint(C);
    introduce(&mut c, A, &a);
    let immediate = Immediate::new([1, 2], 0, &[3; 8]).unwrap();
    let nobody = [0, 1, u32::MAX, u32::MAX - 1, C];
    assert!(
        nobody
            .iter()
            .all(|tid| a.send_immediate(*tid, &immediate).is_none() && c.send_immediate(*tid, &immediate).is_none())
    );
    assert!(nobody.iter().all(|tid| host.endpoint(C).send_immediate(*tid, &immediate).is_none()));
    // The first ordinary message to B creates the queue that immediate messages need.
    a.send_bytes(B, [0; 6], b"x").map(|_| ()).unwrap();
    assert_eq!(a.send_immediate(B, &immediate), Some(false));
    a.peer_gone(B);
    introduce(&mut a, C, &c);
    assert!([0, B, u32::MAX].iter().all(|tid| a.send_immediate(*tid, &immediate).is_none()));
    a.send_bytes(C, [0; 6], b"x").map(|_| ()).unwrap();
    assert_eq!(a.send_immediate(C, &immediate), Some(false));
    assert_eq!(a.send_immediate(B, &immediate), None);
    let mut kept = Kept::default();
    c.poll(&mut kept);
    assert_eq!(kept.messages.len(), 2);
    // The daemon gets no immediate messages.
    introduce(&mut a, DAEMON, &b);
    a.send_bytes(DAEMON, [0; 6], b"x").map(|_| ()).unwrap();
    assert_eq!(a.send_immediate(DAEMON, &immediate), None);
    assert_eq!(a.send_immediate(C, &immediate), Some(false));
}

#[test]
fn what_a_dead_task_had_sent_is_still_received() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    for index in 0..500 {
        a.send_bytes(B, [index, 0, 0, 0, 0, 0], &body(index as usize * 10, 1)).map(|_| ()).unwrap();
    }
    // Once this body is freed, the heap has more free memory than a living task would keep.
    a.send_bytes(B, [500, 0, 0, 0, 0, 0], &body(100 << 20, 1)).map(|_| ()).unwrap();
    host.table.clear(A);
    drop(a);
    let mut kept = Kept { keep_remotes: true, ..Kept::default() };
    while b.poll(&mut kept) > 0 {}
    b.peer_gone(A);
    assert_eq!(kept.messages.len(), 501);
    assert!(kept.messages.pop().unwrap().2 == body(100 << 20, 1), "a long body outlives its sender");
    kept.remotes.pop();
    let mut bytes = vec![0; 4990];
    kept.remotes.last().unwrap().read(0, &mut bytes);
    assert!(bytes == body(4990, 1), "a held body outlives its sender");
}

/// Runs `with` in a thread, as task B that is connected to `a`.
pub(crate) fn beside<T: Send + 'static>(
    host: &Host,
    a: &mut Endpoint,
    with: impl FnOnce(Endpoint) -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let (to_us, from_them) = mpsc::channel();
    let (view, ours) = (host.view(), a.descriptors().unwrap());
    let thread = std::thread::spawn(move || {
        let mut b = Endpoint::new().unwrap();
        b.enrolled(B, PortView::new(view).unwrap());
        let [segment, bell] = ours;
        b.connect(A, segment, bell).unwrap();
        to_us.send(b.descriptors().unwrap()).unwrap();
        with(b)
    });
    let [segment, bell] = from_them.recv().unwrap();
    a.connect(B, segment, bell).unwrap();
    thread
}

#[test]
fn two_threads_exchange_messages_without_loss() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    const COUNT: u32 = if cfg!(one_mapping) { 40_000 } else { 200_000 };
    let thread = beside(&host, &mut a, |mut b| {
        struct Check(u32);
        impl Sink for Check {
            fn arrived(&mut self, _from: u32, meta: Meta, body: Arrival<'_>) {
                assert_eq!(meta[0], self.0);
                let (mut bytes, wanted) = ([0u8; 2000], (self.0 % 1500) as usize);
                match body {
                    Arrival::Inline(inline) => assert_eq!(inline.copy_to(&mut bytes), wanted),
                    Arrival::Remote(remote) => remote.read(0, &mut bytes[..wanted]),
                    Arrival::InTransit(_) => unreachable!("nothing is posted"),
                }
                assert!(bytes[..wanted].iter().all(|byte| *byte == self.0 as u8));
                self.0 += 1;
            }
        }
        let mut check = Check(0);
        while check.0 < COUNT {
            if b.poll(&mut check) == 0 {
                std::thread::yield_now();
            }
        }
    });
    for index in 0..COUNT {
        a.send_bytes(B, [index, 0, 0, 0, 0, 0], &[index as u8; 1500][..(index % 1500) as usize]).map(|_| ()).unwrap();
        if a.should_poll() {
            a.poll(&mut Kept::default());
        }
    }
    thread.join().unwrap();
}

#[test]
fn long_bodies_go_straight_to_a_waiting_receiver() {
    const RENDEZVOUS_MAX: usize = 50;
    let host = Host::new();
    let mut a = host.endpoint(A);
    let (posted, is_posted) = mpsc::channel();
    let in_transit = std::sync::Arc::new(AtomicUsize::new(0));
    let taken = in_transit.clone();
    let thread = beside(&host, &mut a, move |mut b| {
        let mut kept = Kept::default();
        b.post(Some(Posted { from: A, mask: [u32::MAX, 0, 0, 0, 0, 0], value: [7, 0, 0, 0, 0, 0] }));
        posted.send(()).unwrap();
        let mut last = false;
        while !last {
            b.poll(&mut kept);
            last = kept.messages.iter().any(|message| message.2.is_empty());
            assert!(kept.messages.drain(..).all(|message| message.2.is_empty() || message.2 == body(LONG_BYTES, 3)));
            taken.store(kept.in_transit, Ordering::Relaxed);
            std::thread::yield_now();
        }
        b.post(None);
    });
    is_posted.recv().unwrap();
    let long = body(LONG_BYTES, 3);
    // A sender does not wait long for a receiver that has no core, so more than one send may be necessary.
    for _ in 0..RENDEZVOUS_MAX {
        a.send_bytes(B, [7, 1, 2, 3, 4, 5], &long).map(|_| ()).unwrap();
        if in_transit.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    a.send_bytes(B, [7, 1, 2, 3, 4, 5], b"").map(|_| ()).unwrap();
    thread.join().unwrap();
    assert!(in_transit.load(Ordering::Relaxed) > 0);
}

/// Writes a body again while the receiver may be reading it.
#[cfg(one_mapping)]
#[test]
#[ignore = "an error, for `cargo xtask sanitize thread` to find"]
fn a_planted_race_in_shared_memory() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let thread = beside(&host, &mut a, |mut b| {
        let mut kept = Kept::default();
        while kept.messages.is_empty() {
            b.poll(&mut kept);
            std::thread::yield_now();
        }
    });
    let block = a.allocate(5000).unwrap();
    block.write(0, &body(5000, 1));
    a.send_blocks(B, [0; 6], &[(block.clone(), 5000)]).map(|_| ()).unwrap();
    block.write(0, &body(5000, 2));
    thread.join().unwrap();
}

#[test]
fn a_rendezvous_that_nobody_takes_falls_back_to_eager() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    // B says that it waits for a message, but does not receive: the sender must not hang.
    a.send_bytes(B, [1, 0, 0, 0, 0, 0], b"first").map(|_| ()).unwrap();
    b.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
    for round in 0..3 {
        a.send_bytes(B, [2, 0, 0, 0, 0, 0], &body(LONG_BYTES, round)).map(|_| ()).unwrap();
    }
    let mut kept = Kept::default();
    while b.poll(&mut kept) > 0 {}
    assert_eq!(kept.messages.len(), 4);
    assert!((0..3).all(|round| kept.messages[1 + round].2 == body(LONG_BYTES, round as u8)));
}

#[test]
fn a_receiver_that_cannot_copy_gets_the_body_through_the_heap() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let (posted, is_posted) = mpsc::channel();
    let thread = beside(&host, &mut a, move |mut b| {
        let mut kept = Kept { refuse_transit: true, ..Kept::default() };
        b.post(Some(Posted { from: 0, mask: [0; 6], value: [0; 6] }));
        posted.send(()).unwrap();
        while kept.messages.len() < 5 {
            b.poll(&mut kept);
            std::thread::yield_now();
        }
        kept.messages.iter().all(|message| message.2 == body(LONG_BYTES, 3))
    });
    is_posted.recv().unwrap();
    for _ in 0..5 {
        a.send_bytes(B, [7, 1, 2, 3, 4, 5], &body(LONG_BYTES, 3)).map(|_| ()).unwrap();
    }
    assert!(thread.join().unwrap());
}

#[test]
fn a_body_can_be_taken_while_it_is_written() {
    const COUNT: usize = if cfg!(one_mapping) { 300 } else { 3000 };
    let host = Host::new();
    let mut a = host.endpoint(A);
    let thread = beside(&host, &mut a, |mut b| {
        let mut kept = Kept::default();
        while kept.messages.len() < COUNT {
            b.poll(&mut kept);
            if kept.messages.len() % 7 == 0 {
                std::thread::yield_now();
            }
        }
        kept.messages.iter().enumerate().all(|(at, message)| message.2 == body(20_000 + at * 37, at as u8))
    });
    for at in 0..COUNT {
        a.send_bytes(B, [0; 6], &body(20_000 + at * 37, at as u8)).map(|_| ()).unwrap();
        a.poll(&mut Kept::default());
    }
    assert!(thread.join().unwrap());
}

/// Reads each body where it lies, in one call or in several.
#[derive(Default)]
struct Used {
    done: usize,
    body: Vec<u8>,
    whole: Vec<Vec<u8>>,
    later: usize,
}

impl Sink for Used {
    fn arrived(&mut self, _from: u32, _meta: Meta, body: Arrival<'_>) {
        let place = &mut self.body;
        let each = &mut |at: usize, from: *const u8, bytes: usize| {
            assert!(at == place.len() && at % pipelined::UNIT_BYTES == 0);
            // SAFETY: that many bytes lie there, and the sender keeps to the rules.
            place.extend_from_slice(unsafe { std::slice::from_raw_parts(from, bytes) });
        };
        match body {
            Arrival::Inline(_) => panic!("bodies are long"),
            Arrival::Remote(remote) => remote.use_pieces(&mut self.done, each),
            Arrival::InTransit(body) => {
                if body.use_pieces(&mut self.done, each).is_err() {
                    self.later += 1;
                    return;
                }
            }
        }
        self.done = 0;
        self.whole.push(std::mem::take(&mut self.body));
    }
}

#[test]
fn a_body_can_be_used_where_it_lies_while_it_is_written() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let thread = beside(&host, &mut a, |mut b| {
        let mut used = Used::default();
        while used.whole.len() < 600 {
            b.poll(&mut used);
            if used.whole.len() % 7 == 0 {
                std::thread::yield_now();
            }
        }
        used.whole.iter().enumerate().all(|(at, whole)| *whole == body(20_000 + at * 37, at as u8))
    });
    for at in 0..600 {
        a.send_bytes(B, [0; 6], &body(20_000 + at * 37, at as u8)).map(|_| ()).unwrap();
        a.poll(&mut Kept::default());
    }
    assert!(thread.join().unwrap());
}

#[test]
fn a_body_in_fragments_is_used_in_order() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let whole = body(3 * 5001, 7);
    let blocks: Vec<_> = whole
        .chunks(5001)
        .map(|part| {
            let block = a.allocate(part.len()).unwrap();
            block.write(0, part);
            (block, part.len())
        })
        .collect();
    a.send_blocks(B, [0; 6], &blocks).map(|_| ()).unwrap();
    let mut used = Used::default();
    while b.poll(&mut used) == 0 {}
    assert!(used.whole == [whole]);
}

/// Sends a body to a task that uses bodies in place and waits for this one. Returns how often the task was told that it
/// cannot use the body yet.
fn told_later() -> usize {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let (ready, go) = mpsc::channel();
    let bytes = a.rendezvous_bytes_min();
    let thread = beside(&host, &mut a, move |mut b| {
        b.post(Some(Posted { from: A, mask: [0; 6], value: [0; 6] }));
        ready.send(()).unwrap();
        let mut used = Used::default();
        while used.whole.is_empty() {
            b.poll(&mut used);
        }
        (used.later, used.whole.pop().unwrap())
    });
    go.recv().unwrap();
    a.send_bytes(B, [0; 6], &body(bytes, 3)).map(|_| ()).unwrap();
    let (later, whole) = thread.join().unwrap();
    assert_eq!(whole, body(bytes, 3));
    later
}

#[test]
fn the_body_of_a_rendezvous_is_not_used_in_place_and_comes_through_the_heap() {
    // The sender waits only for a moment. If the receiver does not run just then, there is no rendezvous.
    assert!((0..1000).any(|_| told_later() > 0));
}

#[test]
fn one_peer_can_be_listened_to_alone_and_knows_how_far() {
    const C: u32 = 0x40003;
    let host = Host::new();
    host.table.set(C);
    let (mut a, mut b) = host.pair();
    let mut c = host.endpoint(C);
    introduce(&mut a, C, &c);
    introduce(&mut c, A, &a);
    for (sender, long) in [(&mut b, false), (&mut c, true)] {
        assert_eq!(sender.send_bytes(A, [1; 6], &body(8, 1)), Ok(Sent::Done));
        let first = sender.written(A);
        assert_eq!(sender.send_bytes(A, [2; 6], &body(if long { 200_000 } else { 8 }, 2)), Ok(Sent::Done));
        assert!(sender.written(A) > first && !sender.has_read(A, first));
    }
    let mut kept = Kept::default();
    assert_eq!(a.poll_peer(C, &mut kept), 2);
    assert!(kept.messages.iter().all(|(from, ..)| *from == C));
    assert!(c.has_read(A, c.written(A)), "a long body is told at once");
    assert!(!b.has_read(A, b.written(A)));
    assert_eq!(a.poll_peer(0x40009, &mut kept), 0);
    assert_eq!(a.poll(&mut kept), 2);
    assert!(kept.messages[2..].iter().all(|(from, ..)| *from == B));
    assert_eq!(a.poll(&mut kept), 0);
    assert!(b.has_read(A, b.written(A)));
    host.table.clear(A);
    assert!(b.has_read(A, u64::MAX), "the dead are waited for by nobody");
}

#[test]
fn a_sleeper_is_woken_without_a_message() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let rung = |b: &Endpoint| rustix::io::read(b.bell(), &mut [0u8; 8]).is_ok();
    assert_eq!(a.wake(B), Sent::Done);
    assert!(!b.is_parked() && !rung(&b));
    b.prepare_park();
    assert!(b.is_parked());
    assert_eq!(a.wake(B), Sent::Done);
    assert!(rung(&b));
    assert_eq!(a.wake(0x40009), Sent::RingByDaemon);
}

#[test]
fn a_sleeper_is_rung_once() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let rung = |b: &Endpoint| {
        let bell = b.bell();
        let mut fds = [rustix::event::PollFd::new(&bell, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    a.send_bytes(B, [0; 6], b"awake").map(|_| ()).unwrap();
    assert!(!rung(&b));
    b.prepare_park();
    a.send_bytes(B, [0; 6], b"asleep").map(|_| ()).unwrap();
    assert!(rung(&b));
    b.unpark();
    assert!(!rung(&b));
}

#[test]
fn a_segment_cannot_be_written_by_a_peer() {
    let host = Host::new();
    let a = host.endpoint(A);
    let [segment, _bell] = a.descriptors().unwrap();
    assert!(rustix::io::write(&segment, b"x").is_err());
    assert!(rustix::fs::ftruncate(&segment, 0).is_err());
}

#[test]
fn another_file_is_no_segment() {
    let host = Host::new();
    let mut a = host.endpoint(A);
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let bell = a.bell().try_clone_to_owned().unwrap();
    assert!(a.connect(B, file, bell).is_err());
}

/// Sends a body in fragments from one endpoint to another. Returns the body as it was received, and the receiving
/// endpoint.
pub fn gather_pair(body: &[u8], sizes: &[usize]) -> (Remote, Endpoint) {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    let mut done = 0;
    let fragments: Vec<(Block, usize)> = sizes
        .iter()
        .map(|bytes| {
            let block = a.allocate(*bytes).unwrap();
            block.write(0, &body[done..done + bytes]);
            done += bytes;
            (block, *bytes)
        })
        .collect();
    assert_eq!(a.send_blocks(B, [0; 6], &fragments), Ok(Sent::Done));
    let mut kept = Kept { keep_remotes: true, ..Kept::default() };
    b.poll(&mut kept);
    (kept.remotes.pop().unwrap(), b)
}
