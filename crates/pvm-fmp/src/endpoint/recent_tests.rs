//! The order of the peers.
use super::*;
use crate::tests::{A, B, Host, Kept, introduce};

/// Returns a task, and `count` peers that it knows, in the order of their introduction.
fn acquainted(host: &Host, count: u32) -> (Endpoint, Vec<Endpoint>) {
    let mut task = host.endpoint(A);
    let peers = (0..count).map(|number| {
        host.table.set(B + number);
        let mut peer = host.endpoint(B + number);
        introduce(&mut peer, A, &task);
        introduce(&mut task, B + number, &peer);
        peer
    });
    let peers = peers.collect();
    (task, peers)
}

/// Sends a message from `from` to `to`, and waits until it has arrived.
fn send(from: &mut Endpoint, to: &mut Endpoint) {
    from.send_bytes(to.tid, [1, 0, 0, 0, 0, 0], b"text").map(|_| ()).unwrap();
    while to.poll(&mut Kept::default()) == 0 {}
}

#[test]
fn the_peer_that_sent_last_is_the_most_recent_one() {
    let (host, count) = (Host::new(), 3);
    let (mut task, mut peers) = acquainted(&host, count);
    assert_eq!(task.most_recent_peer(), Some(B + count - 1));
    for number in [0, 2, 1, 1, 0] {
        send(&mut peers[number as usize], &mut task);
        assert_eq!(task.most_recent_peer(), Some(B + number));
    }
}

#[test]
fn of_many_peers_those_that_sent_last_come_first() {
    let (host, count) = (Host::new(), PROBE_PEERS as u32 + 9);
    let (mut task, mut peers) = acquainted(&host, count);
    for round in 0..3 {
        let senders: Vec<u32> = (0..count).map(|number| number * [1, 5, 3][round] % count).collect();
        for number in &senders {
            send(&mut peers[*number as usize], &mut task);
        }
        let first = task.order[..RECENT_PEERS].iter().map(|index| task.peers[*index].as_ref().unwrap().tid - B);
        assert!(first.eq(senders.into_iter().rev().take(RECENT_PEERS)), "round {round}");
        let mut all = task.order.clone();
        all.sort_unstable();
        assert_eq!(all, (0..count as usize).collect::<Vec<_>>());
    }
    // All peers send; then one poll of all peers finds one message of each.
    for peer in &mut peers {
        peer.send_bytes(A, [1, 0, 0, 0, 0, 0], b"text").map(|_| ()).unwrap();
    }
    task.prepare_park();
    assert_eq!(task.poll(&mut Kept::default()), count as usize);
    task.unpark();
}
