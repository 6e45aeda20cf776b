//! Connectors in one thread, driven by the test.
#![allow(dead_code)] // each test program uses its part
use pvm_net::{ConnectEvent, Connector, Identity, KeyPair, Link, Pair, Security};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// A time longer than any step of these tests takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn identity() -> Identity {
    Identity::new(KeyPair::generate().unwrap())
}

pub fn open(identity: Identity, port: u16) -> Connector {
    let mut connector = Connector::new(identity, Duration::from_secs(10)).unwrap();
    connector.listen(port).unwrap();
    connector
}

pub fn connector() -> Connector {
    open(identity(), 0)
}

/// Makes two connectors that know each other's key.
pub fn acquainted() -> (Connector, Connector) {
    let (one, other) = (connector(), connector());
    one.identity().known().add(other.identity().public());
    other.identity().known().add(one.identity().public());
    (one, other)
}

pub fn address(connector: &Connector) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, connector.port()))
}

pub fn events(connector: &mut Connector) -> Vec<ConnectEvent> {
    std::iter::from_fn(|| connector.poll_event()).collect()
}

/// Makes a call, and drives both sides until the call has a result. Returns the result and the events of the called
/// side.
pub fn call(caller: &mut Connector, called: &mut Connector, security: Security) -> (ConnectEvent, Vec<ConnectEvent>) {
    let (to, key) = ([address(called)], called.identity().public());
    caller.connect_pair(7, &to, key, security, PATIENCE, Instant::now());
    drive(caller, called)
}

/// Drives both sides until a call has a result.
pub fn drive(caller: &mut Connector, called: &mut Connector) -> (ConnectEvent, Vec<ConnectEvent>) {
    let start = Instant::now();
    let mut seen = Vec::new();
    while start.elapsed() < 2 * PATIENCE {
        caller.step(Instant::now());
        called.step(Instant::now());
        seen.extend(events(called));
        if let Some(event) = caller.poll_event() {
            // These steps let messages in flight arrive.
            for _ in 0..3 {
                called.step(Instant::now());
            }
            seen.extend(events(called));
            return (event, seen);
        }
    }
    panic!("nothing has become of the call");
}

/// Drives a connector until it has `count` events.
pub fn await_events(connector: &mut Connector, count: usize) -> Vec<ConnectEvent> {
    let start = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < count && start.elapsed() < PATIENCE {
        connector.step(Instant::now());
        seen.extend(events(connector));
    }
    assert_eq!(seen.len(), count, "{seen:?}");
    seen
}

/// Returns why the only caller was refused.
pub fn refusal(connector: &mut Connector) -> String {
    match await_events(connector, 1).remove(0) {
        ConnectEvent::Refused { reason, count: 1, .. } => reason,
        event => panic!("{event:?}"),
    }
}

/// Returns both pairs of a call that has succeeded.
pub fn pairs((event, mut seen): (ConnectEvent, Vec<ConnectEvent>)) -> (Pair, Pair) {
    assert_eq!(seen.len(), 1, "{seen:?}");
    match (event, seen.remove(0)) {
        (ConnectEvent::PairConnected { ticket: 7, pair: one, .. }, ConnectEvent::PairAccepted { pair: other, .. }) => {
            (*one, *other)
        }
        (event, seen) => panic!("{event:?}, {seen:?}"),
    }
}

/// Sends a frame on each link in each direction.
pub fn use_pairs(one: &mut Pair, other: &mut Pair) {
    pass(&mut one.control, &mut other.control);
    pass(&mut other.control, &mut one.control);
    pass(&mut one.data, &mut other.data);
    pass(&mut other.data, &mut one.data);
}

/// Sends a frame, and receives it.
pub fn pass(from: &mut Link, to: &mut Link) {
    from.send(9, b"header", &[b"some", b"text"]).unwrap();
    let start = Instant::now();
    let (head, body) = loop {
        from.flush().unwrap();
        if let Some((head, body)) = to.receive_whole().unwrap() {
            break (head, body.to_vec());
        }
        assert!(start.elapsed() < PATIENCE, "a frame has not come");
    };
    assert_eq!((head.kind, head.header(), &body[..]), (9, &b"header"[..], &b"sometext"[..]));
}
