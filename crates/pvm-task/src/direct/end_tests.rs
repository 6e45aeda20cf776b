use super::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::time::Instant;

const ONE: Tid = Tid(0x40001);
const TWO: Tid = Tid(0x80001);

/// Both ends of a link: what the first has there is the second's.
fn pair(secret: Option<[u8; 32]>) -> [End; 2] {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let one = End::new(&Direct { number: 1, peer: TWO, calls: true, secret }, near).unwrap();
    let two = End::new(&Direct { number: 1, peer: ONE, calls: false, secret }, far).unwrap();
    [one, two]
}

/// Takes what is there; the tags, or the end.
fn tags(end: &mut End) -> Result<Vec<u32>, LinkError> {
    let mut arrived = Vec::new();
    let result = end.read(&mut arrived, None, &mut News::default());
    let tags: Vec<u32> = arrived.iter().map(|one: &Arrived| one.meta[1]).collect();
    if tags.is_empty() { result.map(|()| tags) } else { Ok(tags) }
}

fn send(end: &mut End, tag: u32, body: &[u8]) {
    let head = End::head([0, tag, 0, 0, 0, 0], body.len());
    let (count, _) = end.offer(&[&head, body]);
    if count < head.len() + body.len() {
        let rest = [&head[..], body].concat();
        assert!(end.push(&[&rest[count..]]));
    }
}

/// Both have said hello, and have heard it.
fn acquainted(secret: Option<[u8; 32]>) -> [End; 2] {
    let [mut one, mut two] = pair(secret);
    let end = Instant::now() + Duration::from_secs(20);
    while !(one.may_turn() && two.may_turn()) {
        assert!(Instant::now() < end);
        assert_eq!(tags(&mut one), Ok(vec![]));
        assert_eq!(tags(&mut two), Ok(vec![]));
    }
    [one, two]
}

#[test]
fn what_comes_on_the_link_waits_for_the_turn() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = acquainted(secret);
        send(&mut one, 5, b"first");
        send(&mut one, 6, &[9; 100_000]);
        assert_eq!(tags(&mut two), Ok(vec![]));
        assert!(!two.interest().contains(PollFlags::IN));
        two.turn();
        let mut came = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        while came.len() < 2 {
            assert!(Instant::now() < end);
            one.flush();
            came.extend(tags(&mut two).unwrap());
        }
        assert_eq!(came, [5, 6]);
    }
}

#[test]
fn nobody_is_heard_who_does_not_have_the_secret() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let mut one = End::new(&Direct { number: 1, peer: TWO, calls: true, secret: Some([7; 32]) }, near).unwrap();
    let mut two = End::new(&Direct { number: 1, peer: ONE, calls: false, secret: Some([8; 32]) }, far).unwrap();
    let error = (0..100).find_map(|_| tags(&mut one).err().or(tags(&mut two).err()));
    assert!(matches!(error, Some(LinkError::Tls(_))), "{error:?}");
    assert!(!one.may_turn() && !two.may_turn());
}

#[test]
fn a_long_message_goes_straight_to_its_place_unless_another_comes_first() {
    let [mut one, mut two] = acquainted(None);
    two.turn();
    let filter = Filter { src: ONE.0 as i32, tag: 6, ctx: 0 };
    send(&mut one, 6, &[3; 10_000]);
    send(&mut one, 6, &[4; 10_000]);
    let mut room = vec![0; 20_000];
    let nobody = |_: &Envelope| false;
    let mut wanted = Wanted { filter: &filter, own: TWO.0 as i32, room: &mut room, is_special: &nobody, found: None };
    let mut arrived: Vec<Arrived> = Vec::new();
    two.read(&mut arrived, Some(&mut wanted), &mut News::default()).unwrap();
    let (envelope, bytes) = wanted.found.unwrap();
    assert_eq!((envelope.src, envelope.tag, bytes), (ONE.0 as i32, 6, 10_000));
    assert!(arrived.is_empty() && two.unfinished);
    assert!(room[..10_000].iter().all(|byte| *byte == 3) && room[10_000] == 0);
    assert_eq!(tags(&mut two), Ok(vec![6]));

    send(&mut one, 5, b"");
    send(&mut one, 6, b"");
    let mut wanted = Wanted { filter: &filter, own: TWO.0 as i32, room: &mut [], is_special: &nobody, found: None };
    two.read(&mut arrived, Some(&mut wanted), &mut News::default()).unwrap();
    assert!(wanted.found.is_none());
    assert_eq!(arrived.iter().map(|one| one.meta[1]).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn a_message_that_stops_half_way_goes_on_as_one_of_the_others() {
    let [mut one, mut two] = acquainted(None);
    two.turn();
    let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let frame = [&End::head([0, 6, 0, 0, 0, 0], 5000), &body[..]].concat();
    let (count, _) = one.offer(&[&frame[..2000]]);
    assert_eq!(count, 2000);
    let filter = Filter { src: -1, tag: 6, ctx: 0 };
    let (mut room, nobody) = (vec![0; 5000], |_: &Envelope| false);
    let mut wanted = Wanted { filter: &filter, own: TWO.0 as i32, room: &mut room, is_special: &nobody, found: None };
    let mut arrived: Vec<Arrived> = Vec::new();
    two.read(&mut arrived, Some(&mut wanted), &mut News::default()).unwrap();
    assert!(wanted.found.is_none() && arrived.is_empty());
    one.offer(&[&frame[2000..]]);
    two.read(&mut arrived, None, &mut News::default()).unwrap();
    assert_eq!(arrived.pop().unwrap().body, body);
}

#[test]
fn the_dead_are_heard_to_their_last_word() {
    for secret in [None, Some([7; 32])] {
        let [mut one, mut two] = acquainted(secret);
        // More than is read in one go.
        (0..4).for_each(|_| send(&mut one, 5, &[1; 30_000]));
        assert!(one.is_flushed());
        drop(one);
        // What is sent there is lost, and what came stays.
        for _ in 0..3 {
            send(&mut two, 1, &[0; 10]);
            two.flush();
        }
        assert!(two.is_flushed());
        two.turn();
        assert_eq!(tags(&mut two), Ok(vec![5; 4]));
        assert_eq!(tags(&mut two), Err(LinkError::Closed));
    }
}
