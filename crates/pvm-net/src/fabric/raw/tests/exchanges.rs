//! Endpoints on a provider that feigns each mode.
use super::super::abi::*;
use super::super::*;
use super::feigned::{self, Traits};
use crate::fabric::{Fabric, LoadError, OpenError, Queues, Setting};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::AsFd;

const QUEUES: Queues = Queues { receives: 16, sends: 8, reads: 3, buffer_bytes: 512, registered_bytes_max: usize::MAX };
/// Longer than four parts of the provider that reads 10 000 bytes at a time.
const BODY_BYTES: usize = 44_000;

fn setting() -> Setting {
    "feigned".parse().unwrap()
}

fn open(traits: Traits) -> Endpoint {
    let library = feigned::library(traits).unwrap();
    let setting: Setting = traits.name().to_str().unwrap().parse().unwrap();
    let mut endpoint = Fabric::open_with(&library, &setting.with_domain(""), QUEUES).unwrap().unwrap().endpoint;
    endpoint.use_receives(QUEUES.receives).unwrap();
    endpoint
}

/// Polls until an event comes.
fn next(endpoint: &mut Endpoint) -> Event {
    for _ in 0..1000 {
        if let Some(event) = endpoint.poll().unwrap() {
            return event;
        }
    }
    panic!("no event");
}

fn send(endpoint: &mut Endpoint, peer: Peer, parts: &[&[u8]]) {
    while let Err(error) = endpoint.send(peer, parts) {
        assert_eq!(error, SendError::Full);
        assert!(endpoint.poll().unwrap().is_none());
    }
    assert!(endpoint.poll().unwrap().is_none());
}

/// Takes the next message and posts its buffer again.
fn receive(endpoint: &mut Endpoint) -> Vec<u8> {
    let Event::Received(slot) = next(endpoint) else { panic!("no message") };
    let message = endpoint.message(&slot).to_vec();
    endpoint.post(slot).unwrap();
    message
}

fn read(endpoint: &mut Endpoint, peer: Peer, remote: Remote, bytes: usize) -> Result<Vec<u8>, String> {
    endpoint.read(peer, remote, bytes, 5).unwrap();
    match next(endpoint) {
        Event::Read { ticket: 5, body } => Ok(body),
        Event::ReadFailed { ticket: 5, failure } => Err(failure.words),
        other => panic!("{other:?}"),
    }
}

/// A heap in a memory file.
fn heap(content: &[u8]) -> Memory {
    let file = rustix::fs::memfd_create("heap", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, content.len() as u64 + 100_000).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    rustix::io::pwrite(&file, content, 0).unwrap();
    Memory::shared(file.as_fd(), content.len() + 100_000).unwrap()
}

/// Content in the middle of a memory file, where it begins with a page.
fn heap_part(content: &[u8]) -> Memory {
    let page = rustix::param::page_size();
    let file = rustix::fs::memfd_create("heap", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, (content.len() + 3 * page) as u64).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    rustix::io::pwrite(&file, content, 2 * page as u64).unwrap();
    Memory::shared_part(file.as_fd(), 2 * page as u64, content.len()).unwrap()
}

/// Reads a body into memory that is lent.
fn read_in_room(endpoint: &mut Endpoint, peer: Peer, remote: Remote) -> Vec<u8> {
    let mut room = vec![0xee; BODY_BYTES + 1];
    endpoint.lender().lend(
        &mut room,
        endpoint,
        |_| panic!("all was read"),
        |endpoint| {
            assert_eq!(endpoint.make_place_in_room(BODY_BYTES + 2), Ok(None));
            let place = endpoint.make_place_in_room(BODY_BYTES).unwrap().unwrap();
            assert_eq!(endpoint.make_place_in_room(1), Ok(None), "there is a place already");
            endpoint.read_next(place, peer, remote, BODY_BYTES, 7).unwrap();
            let Event::PartRead { ticket: 7, part } = next(endpoint) else { panic!("it was not read") };
            assert_eq!(endpoint.read_part_mut(&part).map(|part| part.len()), Some(BODY_BYTES));
            assert_eq!(endpoint.take_body(place), Ok(Vec::new()));
        },
    );
    assert_eq!(room.pop(), Some(0xee), "what is behind the body");
    room
}

/// Sends short messages both ways, and reads long ones from each kind of memory.
fn exchange(traits: Traits) {
    let [mut one, mut other] = [open(traits), open(traits)];
    let to_other = one.insert(other.address()).unwrap();
    let to_one = other.insert(one.address()).unwrap();
    for round in 0..100_u8 {
        send(&mut one, to_other, &[&[round], &[7; 20], &vec![round; usize::from(round)]]);
        let message = receive(&mut other);
        assert_eq!((message[0], message.len()), (round, 21 + usize::from(round)));
        send(&mut other, to_one, &[&message]);
        assert_eq!(receive(&mut one), message);
    }
    assert_eq!(one.send(to_other, &[&[0; 513]]), Err(SendError::TooLong));
    let body: Vec<u8> = (0..BODY_BYTES).map(|index| (index % 251) as u8).collect();
    for memory in [Memory::of(&body).unwrap(), heap(&body), heap_part(&body)] {
        let region = one.register(memory).unwrap();
        let remote = one.remote(region, 0, BODY_BYTES).unwrap();
        assert_eq!(read(&mut other, to_one, remote, BODY_BYTES), Ok(body.clone()));
        assert_eq!(read_in_room(&mut other, to_one, remote), body);
        assert_eq!(one.remote(region, 1, usize::MAX), None);
        let part = one.remote(region, 1000, 999).unwrap();
        assert_eq!(read(&mut other, to_one, part, 999), Ok(body[1000..1999].to_vec()));
        assert_eq!(read(&mut other, to_one, part, 0), Ok(vec![]));
        // Beyond the end, with a wrong key, and after the end of the registration.
        let wrong = Remote { key: remote.key ^ 1, ..remote };
        assert_eq!(read(&mut other, to_one, wrong, 10), Err("Permission denied".into()));
        let far = Remote { address: remote.address + (1 << 40), ..remote };
        assert_eq!(read(&mut other, to_one, far, 10), Err("Permission denied".into()));
        one.retire(region);
        assert_eq!(one.remote(region, 0, 1), None);
        one.unregister(region);
        assert_eq!(one.remote(region, 0, 1), None);
        assert_eq!(read(&mut other, to_one, remote, 10), Err("Permission denied".into()));
    }
    let counters = one.counters();
    assert_eq!((counters.sent, counters.received), (100, 100));
    let fits = |round: usize| 21 + round <= traits.inject_bytes;
    assert_eq!(counters.injected, (0..100).filter(|round| fits(*round)).count() as u64);
    assert_eq!(other.counters().read_bytes, 3 * (2 * BODY_BYTES as u64 + 999));
    drop(one);
    drop(other);
    assert_eq!((feigned::complaints(), feigned::unbuffered()), ((vec![], 0), 0), "{traits:?}");
}

#[test]
fn every_mode_of_registration_is_honoured() {
    let bits = [FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT];
    for chosen in 0..1 << bits.len() {
        let registration = (0..bits.len()).filter(|bit| chosen >> bit & 1 == 1).map(|bit| bits[bit]).sum();
        exchange(Traits { registration, ..Traits::PLAIN });
    }
}

#[test]
fn contexts_short_keys_inject_parts_and_busy_queues_are_honoured() {
    let all = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED;
    exchange(Traits { mode: FI_CONTEXT, ..Traits::PLAIN });
    exchange(Traits { mode: FI_CONTEXT2, registration: all, ..Traits::PLAIN });
    exchange(Traits { key_bytes: 4, ..Traits::PLAIN });
    exchange(Traits { key_bytes: 1, ..Traits::PLAIN });
    exchange(Traits { inject_bytes: 64, ..Traits::PLAIN });
    exchange(Traits { message_bytes_max: 10_000, registration: all, ..Traits::PLAIN });
    for busy_every in 2..7 {
        exchange(Traits { busy_every, inject_bytes: 30, message_bytes_max: 10_000, ..Traits::PLAIN });
    }
    exchange(Traits { receives: 3, has_descriptor: true, version: (2, 5), ..Traits::PLAIN });
}

#[test]
fn a_provider_that_needs_more_than_can_be_given_is_not_offered() {
    let fabric = feigned::library(Traits { registration: 1 << 10, ..Traits::PLAIN }).unwrap();
    let error = Fabric::open_with(&fabric, &setting(), QUEUES).err().unwrap();
    assert_eq!(error, OpenError::NoProvider { wanted: setting(), offered: vec![] });
    assert_eq!(
        feigned::library(Traits { version: (1, 13), ..Traits::PLAIN }).err(),
        Some(LoadError::TooOld { major: 1, minor: 13 })
    );
}

#[test]
fn who_sleeps_has_asked_before() {
    let traits = Traits { has_descriptor: true, ..Traits::PLAIN };
    let [mut one, mut other] = [open(traits), open(traits)];
    let to_other = one.insert(other.address()).unwrap();
    assert_eq!(other.waits(), Waits::Descriptor);
    assert!(other.descriptor().is_some() && other.may_sleep());
    send(&mut one, to_other, &[b"now"]);
    assert!(!other.may_sleep(), "a message has arrived");
    assert_eq!(receive(&mut other), b"now");
    assert!(other.may_sleep());
    let mut without = open(Traits::PLAIN);
    assert_eq!((without.waits(), without.may_sleep()), (Waits::Timer, false));
}

#[test]
fn a_peer_that_vanishes_is_an_event_and_a_wrong_address_an_error() {
    let traits = Traits { registration: FI_MR_LOCAL, ..Traits::PLAIN };
    let [mut one, other] = [open(traits), open(traits)];
    let address = other.address().to_vec();
    let to_other = one.insert(&address).unwrap();
    feigned::vanish(&address);
    one.send(to_other, &[b"nobody"]).unwrap();
    assert!(matches!(next(&mut one), Event::SendFailed { peer, .. } if peer == to_other));
    let remote = Remote { address: 0, key: 0 };
    assert_eq!(read(&mut one, to_other, remote, 10), Err("No route to host".into()));
    assert_eq!(one.insert(&[1; 7]).err().unwrap().words, "the peer's address has 7 bytes, not 8");
}

#[test]
fn a_full_endpoint_says_so() {
    let [mut one, other] = [open(Traits::PLAIN), open(Traits::PLAIN)];
    let to_other = one.insert(other.address()).unwrap();
    for _ in 0..QUEUES.sends {
        one.send(to_other, &[b"x"]).unwrap();
    }
    assert_eq!(one.send(to_other, &[b"x"]), Err(SendError::Full));
    let remote = Remote { address: 0, key: 0 };
    assert_eq!(one.read(to_other, remote, 1 << 62, 0), Err(ReadError::NoMemory));
    for ticket in 0..QUEUES.reads as u64 {
        one.read(to_other, remote, 8, ticket).unwrap();
    }
    assert_eq!(one.read(to_other, remote, 8, 9), Err(ReadError::Full));
    assert!(!one.can_read());
    // Nobody waits for a dead peer.
    one.remove(to_other);
    assert!(one.can_read());
    one.read(to_other, remote, 8, 9).unwrap();
    assert!(matches!(next(&mut one), Event::ReadFailed { ticket: 9, .. }));
    // Closed with everything under way: nothing stays open.
    drop(one);
    drop(other);
    assert_eq!(feigned::complaints(), (vec![], 0));
}

#[test]
fn a_read_that_the_provider_never_took_ends_with_its_peer() {
    // The queues are always full.
    let traits = Traits { busy_every: 1, ..Traits::PLAIN };
    let [mut one, other] = [open(traits), open(traits)];
    for ticket in 0..100 {
        let to_other = one.insert(other.address()).unwrap();
        one.read(to_other, Remote { address: 0, key: 0 }, 8, ticket).unwrap();
        assert!(one.poll().unwrap().is_none());
        one.remove(to_other);
        assert!(one.poll().unwrap().is_none());
    }
    drop(one);
    drop(other);
    assert_eq!(feigned::complaints(), (vec![], 0));
}

#[test]
fn a_body_is_read_part_by_part_and_its_memory_is_used_again() {
    let registration = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    let traits = Traits { registration, ..Traits::PLAIN };
    let [mut one, mut other] = [open(traits), open(traits)];
    let to_one = other.insert(one.address()).unwrap();
    one.insert(other.address()).unwrap();
    let body: Vec<u8> = (0..BODY_BYTES).map(|index| (index % 251) as u8).collect();
    let region = one.register(Memory::from_vec(body.clone().into())).unwrap();
    let mut memory = None;
    for _ in 0..2 {
        let place = other.make_place(BODY_BYTES).unwrap();
        for (ticket, (at, bytes)) in [(0, 20_000), (20_000, 1), (20_001, BODY_BYTES - 20_001)].into_iter().enumerate() {
            let remote = one.remote(region, at, bytes).unwrap();
            other.read_next(place, to_one, remote, bytes, ticket as u64).unwrap();
        }
        assert_eq!(other.read_next(place, to_one, one.remote(region, 0, 0).unwrap(), 0, 9), Err(ReadError::Full));
        for _ in 0..3 {
            let Event::PartRead { ticket, part } = next(&mut other) else { panic!("no part") };
            let bytes = other.read_part_mut(&part).unwrap();
            bytes[0] ^= 0xff;
            assert_eq!(bytes.len(), [20_000, 1, BODY_BYTES - 20_001][ticket as usize]);
        }
        let mut read = other.take_body(place).unwrap();
        [0, 20_000, 20_001].into_iter().for_each(|at| read[at] ^= 0xff);
        assert_eq!(read, body);
        let address = read.as_ptr() as usize;
        assert_eq!(*memory.get_or_insert(address), address, "the memory of the first body");
        other.recycle(read);
    }
    // A body that nobody waits for and that has half arrived, and one that was not read to its end.
    for is_begun in [true, false] {
        let place = other.make_place(BODY_BYTES).unwrap();
        if is_begun {
            other.read_next(place, to_one, one.remote(region, 0, 10).unwrap(), 10, 0).unwrap();
        }
        other.give_up_body(place);
        assert!(other.take_body(place).is_err());
    }
    let place = other.make_place(BODY_BYTES).unwrap();
    assert!(other.take_body(place).is_err());
    drop(one);
    drop(other);
    assert_eq!(feigned::complaints(), (vec![], 0));
}

#[test]
fn above_datagrams_short_parts_are_read_one_after_the_other() {
    let traits = Traits::ABOVE_DATAGRAMS;
    let [mut one, mut other, mut third] = [open(traits), open(traits), open(traits)];
    let body: Vec<u8> = (0..3 * BODY_BYTES).map(|index| (index % 251) as u8).collect();
    let [from_one, from_third] = [&mut one, &mut third].map(|end| {
        let region = end.register(Memory::of(&body).unwrap()).unwrap();
        end.insert(other.address()).unwrap();
        (other.insert(end.address()).unwrap(), end.remote(region, 0, body.len()).unwrap())
    });
    for (ticket, (peer, remote)) in [from_one, from_third, from_one].into_iter().enumerate() {
        other.read(peer, remote, body.len(), ticket as u64).unwrap();
    }
    let mut tickets = Vec::new();
    for _ in 0..4 {
        let Event::Read { ticket, body: read } = next(&mut other) else { panic!("no body") };
        assert_eq!(read, body);
        if tickets.is_empty() {
            // A later read takes the place of one that has ended, but not its turn.
            other.read(from_one.0, from_one.1, body.len(), 3).unwrap();
        }
        tickets.push(ticket);
    }
    assert_eq!(tickets, [0, 1, 2, 3]);
    assert_eq!(feigned::complaints().0, [""; 0]);
    // A part from a peer that is gone holds up nobody, though the provider may never report its end.
    other.read(from_one.0, from_one.1, body.len(), 7).unwrap();
    other.remove(from_one.0);
    let again = other.insert(one.address()).unwrap();
    other.read(again, from_one.1, body.len(), 8).unwrap();
    assert!(matches!(next(&mut other), Event::Read { ticket: 8, body: read } if read == body));
    drop([one, other, third]);
    assert_eq!(
        feigned::complaints(),
        (vec!["two reads at a time".into()], 0),
        "the other one is of the peer that is gone"
    );
}

#[test]
fn memory_that_was_lent_is_not_used_when_the_call_has_ended() {
    let registration = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_ENDPOINT;
    for (is_begun, traits) in [false, true].into_iter().zip([Traits { registration, ..Traits::PLAIN }; 2]) {
        let one = open(traits);
        let mut other = Some(open(traits));
        let to_one = other.as_mut().unwrap().insert(one.address()).unwrap();
        let (mut room, mut place, mut part) = (vec![0xee; BODY_BYTES], None, None);
        let remote = Remote { address: 0, key: 0 };
        let lender = other.as_ref().unwrap().lender();
        lender.lend(
            &mut room,
            &mut other,
            |other| *other = None,
            |other| {
                let other = other.as_mut().unwrap();
                place = other.make_place_in_room(BODY_BYTES).unwrap();
                other.read_next(place.unwrap(), to_one, remote, 0, 1).unwrap();
                let Event::PartRead { part: none, .. } = next(other) else { panic!("nothing is soon read") };
                part = Some(none);
                if is_begun {
                    other.read_next(place.unwrap(), to_one, remote, 10, 2).unwrap();
                }
            },
        );
        // Only the end of the endpoint is sure to end a read.
        assert_eq!(other.is_none(), is_begun);
        if let Some(mut other) = other {
            let refused = other.read_next(place.unwrap(), to_one, remote, 10, 3);
            assert!(matches!(refused, Err(ReadError::Failed(_))), "{refused:?}");
            assert!(other.read_part_mut(&part.unwrap()).is_none());
            assert_eq!(other.make_place_in_room(1), Ok(None));
            other.give_up_body(place.unwrap());
        }
        drop(one);
        assert_eq!(feigned::complaints(), (vec![], 0));
    }
}

#[test]
fn peers_read_memory_that_is_lent_until_it_was_taken_and_never_after_the_call() {
    let all = [FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT];
    for (registration, is_taken) in [(0, true), (0, false), (all.iter().sum(), true), (all.iter().sum(), false)] {
        let traits = Traits { registration, ..Traits::PLAIN };
        let (mut one, mut other) = (Some(open(traits)), open(traits));
        let to_one = other.insert(one.as_ref().unwrap().address()).unwrap();
        let source: Vec<u8> = (0..BODY_BYTES).map(|index| (index % 251) as u8).collect();
        let mut remote = None;
        let lender = one.as_ref().unwrap().source_lender();
        lender.lend(
            &source,
            &mut one,
            |one| *one = None,
            |one| {
                let one = one.as_mut().unwrap();
                let region = one.register_lent(0).unwrap().unwrap();
                assert_eq!(one.register_lent(0), Ok(None), "it is registered already");
                assert_eq!(one.region_bytes(region), BODY_BYTES);
                remote = one.remote(region, 0, BODY_BYTES);
                assert_eq!(read(&mut other, to_one, remote.unwrap(), BODY_BYTES), Ok(source.clone()));
                assert!(one.part_mut(region, 0, 1).is_none(), "it is not to be written");
                if is_taken {
                    one.unregister(region);
                } else {
                    // The link has ended: nobody knows what the peer does.
                    one.retire(region);
                    one.unregister(region);
                }
            },
        );
        assert_eq!(one.is_some(), is_taken, "only the end of the endpoint is sure to end all uses");
        assert!(read(&mut other, to_one, remote.unwrap(), BODY_BYTES).is_err());
        if let Some(one) = &mut one {
            assert_eq!(one.register_lent(0), Ok(None), "nothing is lent");
        }
        drop((one, other));
        assert_eq!(feigned::complaints(), (vec![], 0), "{registration:x} {is_taken}");
    }
}

#[test]
fn lent_memory_is_copied_and_its_end_read_in_the_same_call() {
    let all = [FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT];
    for registration in [0, all.iter().sum()] {
        let traits = Traits { registration, ..Traits::PLAIN };
        let (mut one, mut other) = (open(traits), open(traits));
        let to_other = one.insert(other.address()).unwrap();
        let to_one = other.insert(one.address()).unwrap();
        let private = one.register(Memory::anonymous(10).unwrap()).unwrap();
        let source: Vec<u8> = (0..BODY_BYTES).map(|index| (index % 251) as u8).collect();
        assert_eq!(one.source_loan(), None);
        let (lender, mut start) = (one.source_lender(), None);
        lender.lend(
            &source,
            &mut one,
            |_| panic!("the peer has read it"),
            |one| {
                let (loan, bytes) = one.source_loan().unwrap();
                assert_eq!(bytes, BODY_BYTES);
                let at = |offset| Start::Lent(loan, offset);
                start = Some(at(0));
                one.send_from(to_other, &[b"x"], at(3), 4).unwrap();
                assert!(one.poll().unwrap().is_none());
                assert_eq!(receive(&mut other), b"x\x03\x04\x05\x06");
                assert_eq!(copy(&mut *one, at(BODY_BYTES - 4), (private, 6), 4), Some(()));
                assert_eq!(one.part_mut(private, 6, 4).as_deref(), Some(&source[BODY_BYTES - 4..]));
                assert_eq!(copy(&mut *one, at(BODY_BYTES - 3), (private, 6), 4), None, "beyond the end");
                assert_eq!(one.register_lent(BODY_BYTES), Ok(None), "there is nothing behind it");
                let region = one.register_lent(1000).unwrap().unwrap();
                assert_eq!(one.region_bytes(region), BODY_BYTES - 1000);
                let remote = one.remote(region, 0, BODY_BYTES - 1000).unwrap();
                assert_eq!(read(&mut other, to_one, remote, BODY_BYTES - 1000), Ok(source[1000..].to_vec()));
                one.unregister(region);
            },
        );
        // Neither after the call nor in the next one.
        let refuses = |one: &mut Endpoint| {
            assert_eq!(copy(one, start.unwrap(), (private, 6), 1), None);
            assert!(matches!(one.send_from(to_other, &[], start.unwrap(), 1), Err(SendError::Failed(_))));
        };
        refuses(&mut one);
        lender.lend(&source, &mut one, |_| panic!("nothing was used"), refuses);
        drop((one, other));
        assert_eq!(feigned::complaints(), (vec![], 0), "{registration:x}");
    }
}

fn copy(endpoint: &mut Endpoint, from: Start, to: (RegionId, usize), bytes: usize) -> Option<()> {
    endpoint.write_part_with(from, to, bytes, |place, source| place.copy_from_slice(source))
}

#[test]
fn only_memory_of_this_process_alone_is_written() {
    let mut one = open(Traits::PLAIN);
    let (shared, private) = (one.register(heap(b"content")).unwrap(), one.register(Memory::anonymous(10).unwrap()));
    let private = private.unwrap();
    let at = Start::InRegion;
    assert_eq!(copy(&mut one, at(shared, 3), (private, 6), 4), Some(()));
    assert_eq!(one.part_mut(private, 4, 6).as_deref(), Some(&b"\0\0tent"[..]));
    assert_eq!(copy(&mut one, at(shared, 0), (private, 7), 4), None, "beyond the end");
    assert_eq!(copy(&mut one, at(private, 0), (shared, 0), 1), None);
    assert_eq!(copy(&mut one, at(private, 0), (private, 5), 1), None, "the places might overlap");
    assert!(one.part_mut(shared, 0, 1).is_none() && one.part_mut(private, 11, 0).is_none());
}

#[test]
fn a_message_ends_with_a_part_of_a_region() {
    let (mut one, mut other) = (open(Traits::PLAIN), open(Traits::PLAIN));
    let to_other = one.insert(other.address()).unwrap();
    let region = one.register(heap(b"content")).unwrap();
    let at = |offset| Start::InRegion(region, offset);
    one.send_from(to_other, &[b"a ", b"con"], at(0).after(3), 4).unwrap();
    assert!(one.poll().unwrap().is_none());
    assert_eq!(receive(&mut other), b"a content");
    let long = QUEUES.buffer_bytes;
    assert_eq!(one.send_from(to_other, &[b"x"], at(0), long), Err(SendError::TooLong));
    let beyond = one.send_from(to_other, &[], at(100_000), 8);
    assert!(matches!(beyond, Err(SendError::Failed(failure)) if failure.words.contains("no such bytes")));
    let made = |from: Option<(Start, usize)>, one: &mut Endpoint| {
        one.send_made(to_other, 9, from, |message, source| {
            let (first, rest) = message.split_at_mut(2);
            first.copy_from_slice(b"A ");
            rest[..source.len()].copy_from_slice(source);
            rest[source.len()..].fill(b'.');
        })
    };
    made(Some((at(0).after(3), 4)), &mut one).unwrap();
    assert!(one.poll().unwrap().is_none());
    assert_eq!(receive(&mut other), b"A tent...");
    made(None, &mut one).unwrap();
    assert!(one.poll().unwrap().is_none());
    assert_eq!(receive(&mut other), b"A .......");
    // Without the bytes, the buffer is free again.
    for _ in 0..2 * QUEUES.sends {
        let beyond = made(Some((at(100_000), 8)), &mut one);
        assert!(matches!(beyond, Err(SendError::Failed(failure)) if failure.words.contains("no such bytes")));
    }
    one.retire(region);
    assert_eq!(one.remote(region, 0, 1), None);
}

#[test]
fn only_as_many_buffers_are_posted_as_are_used() {
    let (mut one, mut other) = (open(Traits::PLAIN), open(Traits::PLAIN));
    let to_other = one.insert(other.address()).unwrap();
    // Those that are posted stay so until a message comes.
    other.use_receives(3).unwrap();
    let mut arrived = |count: usize| {
        (0..count).for_each(|_| send(&mut one, to_other, &[b"x"]));
        let mut slots = Vec::new();
        while let Some(event) = other.poll().unwrap() {
            let Event::Received(slot) = event else { panic!("{event:?}") };
            slots.push(slot);
        }
        let got = slots.len();
        slots.into_iter().for_each(|slot| other.post(slot).unwrap());
        got
    };
    assert_eq!(arrived(QUEUES.receives), QUEUES.receives);
    assert_eq!(arrived(5), 3, "the provider loses the others");
}
