//! A peer that breaks the rules harms nobody but itself.
use super::*;
use crate::extents::Mapping;
use crate::peer::RecordPointer;
use crate::queue::Kind;
use crate::segment_layout::PEERS_MAX;
use crate::tests::{A, B, Host, Kept, LONG_BYTES, body, introduce};
use crate::{Arrival, Meta, Sent, Sink, cross_memory, process};
use std::time::Instant;

const C: u32 = 0x40003;

/// Queues any entry, valid or not, from one endpoint to a peer.
fn push(from: &mut Endpoint, to: u32, kind: Kind, words: &[u64]) {
    let index = from.index_of(to).unwrap();
    let (us, heap) = (from.tid, from.heap.clone());
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    from.peers[index].as_mut().unwrap().push(us, &heap, kind, &[0; 6], &body).unwrap();
}

/// Three tasks that know one another.
fn three(host: &Host) -> [Endpoint; 3] {
    host.table.set(C);
    let (mut a, mut b) = host.pair();
    let mut c = host.endpoint(C);
    for (one, tid) in [(&mut a, A), (&mut b, B)] {
        introduce(one, C, &c);
        introduce(&mut c, tid, one);
    }
    [a, b, c]
}

/// Checks that all messages of `from` to `to` arrive.
fn talk(from: &mut Endpoint, to: &mut Endpoint) {
    let mut kept = Kept::default();
    to.poll(&mut kept);
    kept.messages.clear();
    for number in 0..100 {
        assert_eq!(from.send_bytes(to.tid, [number; 6], &body(number as usize * 100, 1)), Ok(Sent::Done));
    }
    while to.poll(&mut kept) > 0 {}
    let got: Vec<u32> = kept.messages.iter().map(|(_, meta, _)| meta[0]).collect();
    assert_eq!(got, (0..100).collect::<Vec<u32>>());
    assert!(kept.messages.iter().all(|(_, meta, bytes)| *bytes == body(meta[0] as usize * 100, 1)));
}

#[test]
fn who_says_that_it_has_read_more_than_there_was_hurts_only_itself() {
    let host = Host::new();
    let [mut a, b, mut c] = three(&host);
    for count in [u64::MAX, u64::MAX - 100, 1 << 40, 3] {
        let record = b.peers[b.index_of(A).unwrap()].as_ref().unwrap().our_record;
        record.get().consumed.store(count, std::sync::atomic::Ordering::Release);
        for _ in 0..1000 {
            a.send_bytes(B, [1, 0, 0, 0, 0, 0], &[7; 40]).map(|_| ()).unwrap();
        }
        a.tidy();
    }
    talk(&mut a, &mut c);
}

#[test]
fn what_is_no_doorbell_is_refused() {
    use rustix::event::EventfdFlags;
    let host = Host::new();
    let (mut a, b) = (host.endpoint(A), host.endpoint(B));
    let [segment, _] = b.descriptors().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let counter = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    for stranger in [reader, writer, near.into(), file, counter] {
        assert!(a.connect(B, segment.try_clone().unwrap(), stranger).is_err());
    }
    assert!(!a.is_connected(B));
}

#[test]
fn the_queue_of_a_dead_task_ends_even_if_it_leads_back_to_itself() {
    let host = Host::new();
    let [mut a, mut b, mut c] = three(&host);
    a.send_bytes(B, [1, 0, 0, 0, 0, 0], &[1]).map(|_| ()).unwrap();
    let ring = a.heap.borrow().source().mapping.peer_record(0).unwrap().ring.load(std::sync::atomic::Ordering::Relaxed);
    push(&mut a, B, Kind::Continuation, &[ring, 6]);
    let mut kept = Kept::default();
    assert!((1..1000).contains(&b.poll_dead(A, &mut kept)));
    b.peer_gone(A);
    talk(&mut c, &mut b);
}

#[test]
fn a_task_that_was_said_to_be_dead_and_writes_on_is_not_read_for_ever() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    /// A sink whose sender sends again whenever a message arrives.
    struct Writing<'a>(&'a mut Endpoint, usize);
    impl Sink for Writing<'_> {
        fn arrived(&mut self, _: u32, _: Meta, _: Arrival<'_>) {
            self.1 += 1;
            assert!(self.1 < 1_000_000);
            let reader = self.0.peers[0].as_mut().unwrap();
            let written = reader.out.as_ref().unwrap().written();
            // The writer assumes that the reader has read everything. So the ring never seems full, and the writer
            // makes no new one.
            self.0.peers[0].as_mut().unwrap().out.as_mut().unwrap().note_consumed(written);
            self.0.send_bytes(B, [1, 0, 0, 0, 0, 0], &[1]).map(|_| ()).unwrap();
        }
    }
    a.send_bytes(B, [1, 0, 0, 0, 0, 0], &[1]).map(|_| ()).unwrap();
    let count = b.poll_dead(A, &mut Writing(&mut a, 0));
    assert!((1..100_000).contains(&count), "{count}");
}

#[test]
fn a_long_table_that_changes_all_the_time_is_not_searched_all_the_time() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    a.make_records(PEERS_MAX).unwrap();
    let (peers, version) = {
        let heap = a.heap.borrow();
        let header = heap.source().mapping.header();
        heap.source().mapping.peer_record(0).unwrap().tid.store(0, std::sync::atomic::Ordering::Relaxed);
        (&raw const header.peers.0, &raw const header.table_version)
    };
    // SAFETY: `a` keeps its segment mapped, and the words are atomics.
    let (peers, version) = unsafe { (&*peers, &*version) };
    peers.store(u32::MAX, std::sync::atomic::Ordering::Relaxed);
    let mut searches = 0;
    for _ in 0..4 * PEERS_MAX / 64 {
        version.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        b.poll(&mut Kept::default());
        let searched = b.peers[0].as_ref().unwrap().searched;
        searches += usize::from(searched == Some(version.load(std::sync::atomic::Ordering::Relaxed)));
    }
    assert_eq!(searches, 4);
    // A task that is about to sleep searches the whole table.
    let record = RecordPointer::own(&a.heap, PEERS_MAX - 1);
    record.get().tid.store(B, std::sync::atomic::Ordering::Release);
    version.fetch_add(1, std::sync::atomic::Ordering::Release);
    b.prepare_park();
    b.poll(&mut Kept::default());
    assert_eq!(b.peers[0].as_ref().unwrap().their_record.unwrap().index, PEERS_MAX - 1);
    b.unpark();
}

#[test]
fn a_body_that_never_becomes_whole_is_looked_at_once_and_others_come_through() {
    let host = Host::new();
    let [mut a, mut b, mut c] = three(&host);
    let block = a.allocate(1 << 20).unwrap();
    crate::pipelined::advance(block.head_word(), 64);
    push(&mut a, B, Kind::Pipelined, &[5, block.offset(), 1 << 19]);
    let mut kept = Kept::default();
    for _ in 0..50 {
        assert_eq!(b.poll(&mut kept), 0);
    }
    assert_eq!(kept.in_transit, 1);
    crate::pipelined::advance(block.head_word(), 1 << 19);
    assert_eq!(b.poll(&mut kept), 1);
    talk(&mut c, &mut b);
}

#[test]
fn a_rendezvous_over_memory_that_is_not_there_is_tried_once_and_takes_no_memory() {
    let host = Host::new();
    let [mut a, mut b, mut c] = three(&host);
    for bytes in [1 << 20, crate::BODY_BYTES_MAX as u64] {
        let record = a.peers[a.index_of(B).unwrap()].as_ref().unwrap().our_record;
        crate::rendezvous::open(&record.get().rendezvous, 9);
        cross_memory::begin(record.get());
        push(&mut a, B, Kind::Rendezvous, &[u64::MAX - 5, bytes, 9]);
        struct Taking(usize);
        impl Sink for Taking {
            fn arrived(&mut self, _: u32, _: Meta, body: Arrival<'_>) {
                self.0 += 1;
                let Arrival::InTransit(body) = body else { panic!("a body in transit") };
                assert!(body.take_all(&mut Vec::new()).is_err());
            }
        }
        let mut taking = Taking(0);
        for _ in 0..20 {
            assert_eq!(b.poll(&mut taking), 0);
        }
        assert_eq!(taking.0, 1);
        b.peer_gone(A);
        a.peer_gone(B);
        introduce(&mut b, A, &a);
        introduce(&mut a, B, &b);
    }
    talk(&mut c, &mut b);
}

#[test]
fn a_rendezvous_that_nobody_takes_and_that_finds_no_memory_is_withdrawn() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    a.send_bytes(B, [1, 0, 0, 0, 0, 0], b"first").map(|_| ()).unwrap();
    b.post(Some(crate::Posted { from: 0, mask: [0; 6], value: [0; 6] }));
    let limit = |a: &Endpoint, bytes| a.heap.borrow().source().allowance.limit(bytes);
    a.rendezvous_wait_max = Duration::from_millis(100);
    limit(&a, 0);
    let sent = a.send_bytes(B, [2, 0, 0, 0, 0, 0], &body(LONG_BYTES, 1));
    assert!(matches!(sent, Err(crate::SendError::NoMemory)));
    limit(&a, u64::MAX);
    a.send_bytes(B, [3, 0, 0, 0, 0, 0], &body(LONG_BYTES, 2)).map(|_| ()).unwrap();
    let mut kept = Kept::default();
    while b.poll(&mut kept) > 0 {}
    let tags: Vec<u32> = kept.messages.iter().map(|(_, meta, _)| meta[0]).collect();
    assert_eq!(tags, [1, 3]);
    assert!(kept.messages[1].2 == body(LONG_BYTES, 2));
}

#[test]
fn a_sender_that_never_decides_about_its_rendezvous_holds_nobody_up() {
    let host = Host::new();
    let [mut a, mut b, mut c] = three(&host);
    let record = a.peers[a.index_of(B).unwrap()].as_ref().unwrap().our_record;
    record.get().rendezvous.store(9 * 4 + crate::rendezvous::IN_DOUBT, std::sync::atomic::Ordering::Release);
    push(&mut a, B, Kind::Rendezvous, &[4096, 1 << 20, 9]);
    push(&mut a, B, Kind::Message, &[7]);
    let mut kept = Kept::default();
    for _ in 0..50 {
        assert_eq!(b.poll(&mut kept), 0);
    }
    talk(&mut c, &mut b);
    // When the sender is dead, the message without a body is skipped, and the next message arrives.
    host.table.clear(A);
    assert_eq!((b.poll_dead(A, &mut kept), kept.in_transit), (1, 0));
}

#[test]
fn a_sender_that_never_ends_its_part_of_a_copy_holds_its_receiver_up_until_it_has_ended() {
    let host = Host::new();
    let (mut a, b) = host.pair();
    let (ours, theirs) = (a.peers[0].as_ref().unwrap().our_record, b.peers[0].as_ref().unwrap().our_record);
    let heap = a.heap.borrow();
    let header = heap.source().mapping.header();
    let mut sender = process::sleeping_owner(header);
    cross_memory::begin(ours.get());
    ours.get().back.store(1 << 19, std::sync::atomic::Ordering::Relaxed);
    let mut room = vec![0; 1 << 20];
    let start = Instant::now();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        sender.kill().unwrap();
        sender
    });
    // The daemon no longer knows the sender (`|| false`); that alone does not end the wait.
    let into = (room.as_mut_ptr(), room.len());
    // SAFETY: `room` is there, and nobody else uses it.
    let received = unsafe { cross_memory::receive(header, ours.get(), theirs.get(), 1, 64, into, &|| false) };
    assert_eq!((received, start.elapsed() >= Duration::from_millis(300)), (Err(process::Refusal::Gone), true));
    killer.join().unwrap().wait().unwrap();
    drop(heap);
    a.tidy();
}

#[test]
fn a_chunk_that_the_sender_claims_and_does_not_copy_is_copied_by_the_receiver() {
    let host = Host::new();
    let (a, b) = host.pair();
    let (ours, theirs) = (a.peers[0].as_ref().unwrap().our_record, b.peers[0].as_ref().unwrap().our_record);
    let heap = a.heap.borrow();
    let header = heap.source().mapping.header();
    cross_memory::begin(ours.get());
    let (back, back_done) = (&ours.get().back, &ours.get().back_done);
    back.store(1 << 19, std::sync::atomic::Ordering::Relaxed);
    let (text, mut room) = (body(1 << 20, 4), vec![0; 1 << 20]);
    let (address, into) = (text.as_ptr() as u64, (room.as_mut_ptr(), room.len()));
    let start = Instant::now();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            back.store(back_done.load(std::sync::atomic::Ordering::Relaxed), std::sync::atomic::Ordering::Release);
        });
        // SAFETY: `room` is there, and nobody else uses it.
        unsafe { cross_memory::receive(header, ours.get(), theirs.get(), 1, address, into, &|| true) }
    });
    assert_eq!((received, start.elapsed() >= Duration::from_millis(50)), (Ok(()), true));
    assert!(room == text);
}

#[test]
fn a_receiver_that_takes_its_time_has_nothing_copied_to_it_twice() {
    let host = Host::new();
    let (mut a, mut b) = host.pair();
    b.post(Some(crate::Posted { from: 0, mask: [0; 6], value: [0; 6] }));
    let (text, mut room) = (body(LONG_BYTES, 3), vec![0; LONG_BYTES]);
    let record = b.peers[0].as_ref().unwrap().our_record;
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    record.get().into_address.store(room.as_mut_ptr() as u64, relaxed);
    record.get().into_bytes.store(text.len() as u64, relaxed);
    record.get().into_number.store(1, relaxed);
    // The receiver copies nothing and leaves its buffer open, so the sender copies the whole body.
    let before = process::WRITTEN_BYTES.get();
    a.send_bytes(B, [2, 0, 0, 0, 0, 0], &text).map(|_| ()).unwrap();
    assert_eq!(process::WRITTEN_BYTES.get() - before, text.len());
    assert!(room == text);
}

#[test]
fn a_task_that_names_another_process_as_its_own_is_not_believed() {
    let host = Host::new();
    let a = host.endpoint(A);
    let [segment, _] = a.descriptors().unwrap();
    let mapping = Mapping::of_peer(&segment).unwrap();
    assert_eq!(process::owner_of(&mapping), Some(std::process::id() as i32));
    let heap = a.heap.borrow();
    // A task that lies also chooses the address of the nonce: here the other process really has the nonce at that
    // address.
    let mut other = process::sleeping_owner(heap.source().mapping.header());
    assert_eq!(process::owner_of(&mapping), None);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_damaged_queue_is_read_no_further_and_all_others_are() {
    let host = Host::new();
    let [mut a, mut b, mut c] = three(&host);
    for sleepy in [false, true] {
        a.send_bytes(C, [1, 0, 0, 0, 0, 0], &[1]).map(|_| ()).unwrap();
        push(&mut a, C, Kind::Continuation, &[7, 7]);
        b.send_bytes(C, [2, 0, 0, 0, 0, 0], &[2]).map(|_| ()).unwrap();
        let mut kept = Kept::default();
        if sleepy {
            c.prepare_park();
        }
        c.poll(&mut kept);
        c.unpark();
        let mut got: Vec<u32> = kept.messages.iter().map(|(from, ..)| *from).collect();
        got.sort_unstable();
        assert_eq!(got, if sleepy { vec![B] } else { vec![A, B] });
    }
    talk(&mut b, &mut c);
    c.poll_dead(A, &mut Kept::default());
    c.peer_gone(A);
    talk(&mut b, &mut c);
}
