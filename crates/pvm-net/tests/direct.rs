//! Links between two tasks.
#![forbid(unsafe_code)]
mod common;

use common::*;
use pvm_net::{ConnectEvent, Connector, Link, PublicKey, Tokens, direct};
use std::time::{Duration, Instant};

const TICKET: u64 = 3;

/// Introduces two tasks to each other as daemons do, with or without keys.
fn introduce(caller: &mut Connector, called: &mut Connector, keys: bool) -> Tokens {
    let tokens = Tokens::generate().unwrap();
    let key = |connector: &Connector| Some(connector.identity().public()).filter(|_| keys);
    let (ours, theirs) = (key(caller), key(called));
    called.expect(TICKET, ours, tokens.clone(), PATIENCE, Instant::now());
    let to = [address(called)];
    caller.connect_link(TICKET, &to, theirs, tokens.clone(), PATIENCE, Instant::now());
    tokens
}

fn met(event: ConnectEvent) -> Link {
    match event {
        ConnectEvent::LinkReady { ticket: TICKET, link } => *link,
        event => panic!("{event:?}"),
    }
}

fn linked(keys: bool) -> (Link, Link) {
    let (mut caller, mut called) = (connector(), connector());
    introduce(&mut caller, &mut called, keys);
    let (event, mut seen) = drive(&mut caller, &mut called);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((caller.pending(), called.pending()), (0, 0));
    assert!(!called.identity().known().has(&caller.identity().public()), "good for one link");
    (met(event), met(seen.remove(0)))
}

#[test]
fn two_tasks_that_were_introduced_get_a_link() {
    for keys in [false, true] {
        let (mut one, mut other) = linked(keys);
        assert_eq!((one.is_encrypted(), other.is_encrypted()), (keys, keys));
        one.send(5, b"head", &[b"body"]).unwrap();
        let head = direct::receive(&mut other, PATIENCE).unwrap().unwrap();
        let mut body = [0; 9];
        assert_eq!((head.kind, head.header(), head.body_bytes), (5, &b"head"[..], 4));
        assert_eq!(direct::take(&mut other, &mut body, PATIENCE), Ok(4));
        assert_eq!(&body[..4], b"body");
    }
}

#[test]
fn a_connection_stands_in_the_kernel_before_the_called_task_looks() {
    let (mut caller, mut called) = (connector(), connector());
    introduce(&mut caller, &mut called, false);
    for _ in 0..100 {
        caller.step(Instant::now());
    }
    assert!(caller.poll_event().is_none());
    // One step is enough, since everything has arrived.
    std::thread::sleep(Duration::from_millis(10));
    called.step(Instant::now());
    met(called.poll_event().unwrap());
    met(await_events(&mut caller, 1).remove(0));
}

#[test]
fn a_wrong_token_or_a_wrong_key_meets_nobody() {
    let stranger: PublicKey = identity().public();
    for wrong_token in [true, false] {
        let (mut caller, mut called) = (connector(), connector());
        let tokens = introduce(&mut caller, &mut called, true);
        if wrong_token {
            let wrong = Tokens { shown: tokens.back.clone(), back: tokens.back };
            called.expect(TICKET, Some(caller.identity().public()), wrong, PATIENCE, Instant::now());
        } else {
            called.expect(TICKET, Some(stranger), tokens, PATIENCE, Instant::now());
        }
        let start = Instant::now();
        let mut refused = 0;
        while refused == 0 && start.elapsed() < PATIENCE {
            caller.step(Instant::now());
            called.step(Instant::now());
            for event in events(&mut called) {
                assert!(matches!(event, ConnectEvent::Refused { .. }), "{event:?}");
                refused += 1;
            }
            assert!(events(&mut caller).is_empty());
        }
        assert!(refused > 0);
    }
}

#[test]
fn one_who_answers_with_a_wrong_token_is_not_believed() {
    let (mut caller, mut called) = (connector(), connector());
    let tokens = introduce(&mut caller, &mut called, false);
    let wrong = Tokens { shown: tokens.shown.clone(), back: tokens.shown };
    called.expect(TICKET, None, wrong, PATIENCE, Instant::now());
    let start = Instant::now();
    while called.poll_event().is_none() && start.elapsed() < PATIENCE {
        caller.step(Instant::now());
        called.step(Instant::now());
    }
    for _ in 0..50 {
        caller.step(Instant::now());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(events(&mut caller).is_empty(), "not met");
    caller.step(Instant::now() + PATIENCE);
    let event = await_events(&mut caller, 1).remove(0);
    assert!(matches!(&event, ConnectEvent::Failed { ticket: TICKET, reason, .. } if !reason.is_empty()), "{event:?}");
}

#[test]
fn one_who_does_not_come_is_given_up() {
    let mut connector = connector();
    connector.expect(TICKET, Some(identity().public()), Tokens::generate().unwrap(), PATIENCE, Instant::now());
    assert!(connector.next_wakeup().is_some());
    connector.step(Instant::now() + PATIENCE);
    assert!(matches!(connector.poll_event(), Some(ConnectEvent::Failed { ticket: TICKET, .. })));
    assert_eq!(connector.next_wakeup(), None);
}

#[test]
fn who_was_known_before_it_was_expected_stays_known() {
    let mut connector = connector();
    let [host, guest] = [identity(), identity()].map(|identity| identity.public());
    connector.identity().known().add(host);
    let expect = |connector: &mut Connector, ticket, peer| {
        connector.expect(ticket, Some(peer), Tokens::generate().unwrap(), PATIENCE, Instant::now());
    };
    for ticket in [1, 2] {
        expect(&mut connector, ticket, host);
        expect(&mut connector, 10 + ticket, guest);
    }
    connector.cancel(1);
    connector.cancel(11);
    assert!(connector.identity().known().has(&host) && connector.identity().known().has(&guest));
    connector.cancel(2);
    connector.cancel(12);
    assert!(connector.identity().known().has(&host) && !connector.identity().known().has(&guest));
}

#[test]
fn waiting_ends_when_the_time_is_over() {
    for keys in [false, true] {
        let (mut one, mut other) = linked(keys);
        let short = Duration::from_millis(30);
        let start = Instant::now();
        assert!(direct::receive(&mut one, short).unwrap().is_none());
        assert!(start.elapsed() >= short && start.elapsed() < 20 * short);
        // The peer does not read.
        let body = vec![1; 1 << 20];
        let full = (0..1000).any(|_| {
            one.send(1, &[], &[&body]).unwrap();
            direct::flush(&mut one, short) == Ok(false)
        });
        assert!(full);
        // The last part of a body is missing.
        direct::receive(&mut other, PATIENCE).unwrap().unwrap();
        let mut into = vec![0; 1 << 20];
        let reader = std::thread::spawn(move || {
            let mut frames = 0;
            loop {
                match direct::take(&mut other, &mut into, PATIENCE) {
                    Ok(1_048_576) => frames += 1,
                    result => panic!("{result:?}"),
                }
                match direct::receive(&mut other, Duration::from_millis(500)) {
                    Ok(Some(_)) => {}
                    Ok(None) => return frames,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert_eq!(direct::flush(&mut one, PATIENCE), Ok(true));
        assert!(reader.join().unwrap() > 1);
    }
}

#[test]
fn long_bodies_come_whole_through_a_small_socket() {
    for keys in [false, true] {
        let (mut one, mut other) = linked(keys);
        let body: Vec<u8> = (0..20_000_000_u32).map(|index| (index ^ (index >> 9)) as u8).collect();
        one.set_frame_bytes_max(64 << 20);
        other.set_frame_bytes_max(64 << 20);
        let sent = body.clone();
        let writer = std::thread::spawn(move || {
            for round in 0..3 {
                assert_eq!(direct::send(&mut one, round, &[round], &sent, PATIENCE), Ok(true));
            }
            one
        });
        let mut into = vec![0; body.len()];
        for round in 0..3 {
            let head = direct::receive(&mut other, PATIENCE).unwrap().unwrap();
            assert_eq!((head.kind, head.header(), head.body_bytes), (round, &[round][..], body.len()));
            into.fill(0);
            assert_eq!(direct::take(&mut other, &mut into, PATIENCE), Ok(body.len()));
            assert!(into == body);
        }
        writer.join().unwrap();
    }
}
