//! Tests that make links between two daemons.
#![forbid(unsafe_code)]
mod common;

use common::*;
use pvm_net::{ConnectEvent, Connector, Failure, HANDSHAKE_TIME_MAX, Link, Security};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Begins a call from one connector to another one, with ticket 7.
fn begin_call(caller: &mut Connector, called: &Connector, security: Security) {
    let (to, key) = (address(called), called.identity().public());
    caller.connect_pair(7, &[to], key, security, PATIENCE, Instant::now());
}

#[test]
fn two_that_know_each_other_get_a_pair_of_links() {
    for security in [Security::Encrypted, Security::Trusted] {
        let (mut caller, mut called) = acquainted();
        let result = call(&mut caller, &mut called, security);
        let Some(ConnectEvent::PairAccepted { peer, .. }) = result.1.first() else { panic!("{result:?}") };
        assert_eq!(*peer, caller.identity().public());
        let (mut one, mut other) = pairs(result);
        assert!(one.control.is_encrypted() && other.control.is_encrypted());
        assert_eq!(one.data.is_encrypted(), security == Security::Encrypted);
        use_pairs(&mut one, &mut other);
        assert_eq!((caller.pending(), called.pending()), (0, 0));
    }
}

#[test]
fn an_address_that_does_not_answer_does_not_hold_up_the_others() {
    let (mut caller, mut called) = acquainted();
    // The first address accepts connections and stays silent; nobody listens at the second one.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses = [silent.local_addr().unwrap(), nobody, address(&called)];
    let start = Instant::now();
    caller.connect_pair(7, &addresses, called.identity().public(), Security::Encrypted, PATIENCE, start);
    pairs(drive(&mut caller, &mut called));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_call_to_one_that_comes_later_succeeds_and_one_to_nobody_ends_with_the_reasons() {
    let (mut caller, called) = acquainted();
    let (to, key) = (address(&called), called.identity().public());
    let (identity, port) = (called.identity().clone(), called.port());
    drop(called);
    caller.connect_pair(7, &[to], key, Security::Trusted, PATIENCE, Instant::now());
    caller.connect_pair(8, &[to], key, Security::Trusted, Duration::from_millis(50), Instant::now());
    let failed = await_events(&mut caller, 1).remove(0);
    let ConnectEvent::Failed { ticket: 8, reason, failure: Failure::NoAnswer } = failed else { panic!("{failed:?}") };
    assert!(reason.contains(&to.to_string()) && reason.contains("refused"), "{reason}");
    let mut called = open(identity, port);
    assert_eq!(called.port(), port);
    pairs(drive(&mut caller, &mut called));
}

#[test]
fn a_control_link_gets_another_connection_by_itself() {
    for one_calls in [true, false] {
        let (mut one, mut other) = acquainted();
        let (caller, called) = if one_calls { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = [silent.local_addr().unwrap(), address(called)];
        caller.connect_control(7, &addresses, None, called.identity().public(), PATIENCE, Instant::now());
        let (event, mut seen) = drive(caller, called);
        let (ConnectEvent::LinkReady { ticket: 7, link: mut near }, 1) = (event, seen.len()) else {
            panic!("{seen:?}")
        };
        let ConnectEvent::ControlAccepted { peer, link: mut far } = seen.remove(0) else { panic!("not accepted") };
        assert!(peer == caller.identity().public() && near.is_encrypted() && far.is_encrypted());
        pass(&mut near, &mut far);
        pass(&mut far, &mut near);
        assert_eq!((caller.pending(), called.pending()), (0, 0));
        // A host that was removed meanwhile is not known any more.
        called.identity().known().remove(&caller.identity().public());
        caller.connect_control(7, &addresses[1..], None, called.identity().public(), PATIENCE, Instant::now());
        let end = Instant::now() + PATIENCE;
        while !matches!(called.poll_event(), Some(ConnectEvent::Refused { .. })) {
            assert!(Instant::now() < end);
            [&mut *caller, &mut *called].into_iter().for_each(|connector| connector.step(Instant::now()));
        }
    }
}

#[test]
fn a_call_for_a_control_link_to_one_that_is_gone_from_where_it_was_ends_at_once() {
    let (mut caller, called) = acquainted();
    let key = called.identity().public();
    let nobody = address(&called);
    drop(called);
    let somebody_else = connector();
    // The system accepts connections for this one, who says nothing.
    let silent = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.3:0").unwrap();
    let open = listener.local_addr().unwrap();
    let here = Some(nobody.ip());
    let is_absent = |caller: &mut Connector, addresses: &[SocketAddr], last| {
        let start = Instant::now();
        caller.connect_control(7, addresses, last, key, Duration::from_secs(1), start);
        let event = loop {
            caller.step(Instant::now());
            if let Some(event) = caller.poll_event() {
                break event;
            }
        };
        let ConnectEvent::Failed { ticket: 7, failure, .. } = event else { panic!("{event:?}") };
        let is_absent = failure == Failure::Absent;
        assert!(!is_absent || start.elapsed() < Duration::from_millis(800), "{:?}", start.elapsed());
        is_absent
    };
    assert!(is_absent(&mut caller, &[nobody], here));
    assert!(is_absent(&mut caller, &[open, nobody], here), "where it was, nobody listens");
    assert!(!is_absent(&mut caller, &[open, nobody], Some(open.ip())), "it may still be there");
    assert!(!is_absent(&mut caller, &[open, nobody], None));
    assert!(is_absent(&mut caller, &[silent, nobody], None), "nobody listens at any address");
    let mut somebody_else = somebody_else;
    let start = Instant::now();
    caller.connect_control(7, &[address(&somebody_else)], here, key, PATIENCE, start);
    let event = loop {
        caller.step(Instant::now());
        somebody_else.step(Instant::now());
        if let Some(event) = caller.poll_event() {
            break event;
        }
    };
    assert!(
        matches!(event, ConnectEvent::Failed { failure: Failure::Absent, .. }),
        "somebody else is there: {event:?}"
    );
}

#[test]
fn one_that_ends_while_it_is_called_is_called_again_soon() {
    let mut caller = connector();
    let key = connector().identity().public();
    // The system has accepted the connection, and resets it.
    let dying = TcpListener::bind("127.0.0.1:0").unwrap();
    let was_at = dying.local_addr().unwrap();
    caller.connect_control(7, &[was_at], Some(was_at.ip()), key, PATIENCE, Instant::now());
    caller.step(Instant::now());
    drop(dying);
    while caller.pending() > 0 {
        caller.step(Instant::now());
    }
    assert!(caller.next_wakeup().is_some_and(|when| when <= Instant::now() + Duration::from_millis(50)));
    let failed = await_events(&mut caller, 1).remove(0);
    assert!(matches!(failed, ConnectEvent::Failed { ticket: 7, failure: Failure::Absent, .. }), "{failed:?}");
}

#[test]
fn a_call_that_fails_at_once_is_told_at_once() {
    let (mut caller, called) = acquainted();
    caller.connect_pair(7, &[], called.identity().public(), Security::Encrypted, PATIENCE, Instant::now());
    assert!(caller.next_wakeup().is_some_and(|when| when <= Instant::now()));
    caller.step(Instant::now());
    assert!(matches!(&events(&mut caller)[..], [ConnectEvent::Failed { ticket: 7, .. }]));
    assert_eq!(caller.next_wakeup(), None);
}

#[test]
fn a_call_that_is_cancelled_tells_nothing() {
    let (mut caller, mut called) = acquainted();
    begin_call(&mut caller, &called, Security::Encrypted);
    for _ in 0..3 {
        caller.step(Instant::now());
        called.step(Instant::now());
    }
    caller.cancel(7);
    for _ in 0..10 {
        caller.step(Instant::now() + PATIENCE);
        called.step(Instant::now());
    }
    assert!(events(&mut caller).is_empty() && caller.pending() == 0);
}

#[test]
fn the_next_port_is_taken_when_the_wanted_one_is_not_free() {
    let one = connector();
    let other = open(identity(), one.port());
    assert!(other.port() > one.port());
}

#[test]
fn both_address_families_reach_a_connector() {
    let (mut caller, mut called) = acquainted();
    let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, called.port()));
    if TcpListener::bind("[::1]:0").is_err() {
        // A system without IPv6 has one address family.
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, called.port())).is_ok());
        return;
    }
    caller.connect_pair(7, &[six], called.identity().public(), Security::Trusted, PATIENCE, Instant::now());
    pairs(drive(&mut caller, &mut called));
}

#[test]
fn a_loop_that_waits_for_the_connector_is_woken_for_every_event() {
    let (mut caller, mut called) = acquainted();
    begin_call(&mut caller, &called, Security::Encrypted);
    let start = Instant::now();
    let mut turns = 0;
    let mut seen = 0;
    while seen < 2 && start.elapsed() < PATIENCE {
        let wait = [caller.next_wakeup(), called.next_wakeup()].into_iter().flatten().min().unwrap();
        let wait = wait.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let mut polled = [&caller, &called]
            .map(|connector| rustix::event::PollFd::from_borrowed_fd(connector.as_fd(), rustix::event::PollFlags::IN));
        rustix::event::poll(&mut polled, Some(&pvm_net::polling::timespec(wait))).unwrap();
        caller.step(Instant::now());
        called.step(Instant::now());
        turns += 1;
        seen += events(&mut caller).len() + events(&mut called).len();
    }
    assert!(seen == 2 && turns < 100 && start.elapsed() < Duration::from_secs(2), "{turns} turns");
}

#[test]
fn of_several_calls_of_one_peer_at_once_none_spoils_the_others() {
    for _ in 0..20 {
        let (mut caller, mut called) = acquainted();
        let (to, key) = (address(&called), called.identity().public());
        for ticket in 7..10 {
            caller.connect_pair(ticket, &[to], key, Security::Trusted, PATIENCE, Instant::now());
        }
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "nobody has arrived");
            caller.step(Instant::now());
            called.step(Instant::now());
            match events(&mut called).first() {
                Some(ConnectEvent::PairAccepted { .. }) => break,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }
}

/// Accepts the next connection of a caller.
fn accepted(caller: &mut Connector, listener: &TcpListener) -> OwnedFd {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "nobody calls");
        caller.step(Instant::now());
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(true).unwrap();
            return socket.into();
        }
    }
}

/// Returns the kind of the frame with which a caller opens a link.
fn opening(caller: &mut Connector, link: &mut Link) -> u8 {
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "nobody says what it wants");
        caller.step(Instant::now());
        if link.handshake().unwrap() {
            if let Some(head) = link.receive().unwrap() {
                return head.kind;
            }
        }
    }
}

#[test]
fn links_that_stand_for_the_other_side_are_not_given_up_for_a_late_answer() {
    let (mut caller, called) = (connector(), identity());
    called.known().add(caller.identity().public());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = [listener.local_addr().unwrap()];
    caller.connect_pair(7, &to, called.public(), Security::Trusted, PATIENCE, Instant::now());
    let mut control = Link::secure_from(accepted(&mut caller, &listener), &called).unwrap();
    assert_eq!(opening(&mut caller, &mut control), 1);
    control.send(2, &[[5; 32], [6; 32]].concat(), &[]).unwrap();
    let mut data = Link::clear(accepted(&mut caller, &listener));
    assert_eq!(opening(&mut caller, &mut data), 3);
    // Nothing arrives for as long as a handshake may take.
    caller.step(Instant::now() + HANDSHAKE_TIME_MAX);
    assert!(events(&mut caller).is_empty());
    data.send(4, &[6; 32], &[]).unwrap();
    let event = await_events(&mut caller, 1).remove(0);
    let ConnectEvent::PairConnected { ticket: 7, pair, .. } = event else { panic!("{event:?}") };
    // Short outages are not counted together: who uses the control link decides when the other side is silent.
    let limit = |link: &Link| rustix::net::sockopt::tcp_user_timeout(link).unwrap();
    assert_eq!([limit(&pair.control), limit(&pair.data)], [i32::MAX as u32; 2]);
}
