//! Connections of control links that break while both hosts live, and those that break because a host has ended.
use super::fleet::{Fleet, MASTER};
use super::*;

const TWO: Tid = Tid(0x80000);
const THREE: Tid = Tid(0xc0000);

impl Fleet {
    fn timeout(&mut self) -> Duration {
        self.machine(MASTER).core.settings.host_timeout
    }
    fn broken(&mut self, host: Tid, other: Tid, how: LinkBreak) {
        let now = self.now;
        self.machine(host).handle_link_broken(now, other, how);
        self.work(host);
    }
    fn both_broken(&mut self, one: Tid, other: Tid) {
        self.broken(one, other, LinkBreak::Lost);
        self.broken(other, one, LinkBreak::Lost);
    }
    fn resumed(&mut self, one: Tid, other: Tid) {
        let now = self.now;
        for (host, other) in [(one, other), (other, one)] {
            self.machine(host).handle_link_resumed(now, other);
            self.work(host);
        }
    }
    fn call_failed(&mut self, host: Tid, other: Tid, why: CallFailure) {
        let now = self.now;
        self.machine(host).handle_call_failed(now, other, why);
        self.work(host);
    }
    /// Returns the calls for new connections since the last call of this function: time, caller, called host.
    fn calls(&mut self) -> Vec<(Time, Tid, Tid)> {
        let called = |action| match action {
            Action::ReopenLink { host, addresses } if addresses == [Fleet::address_of(host)] => host,
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut self.reopened)
            .into_iter()
            .map(|(when, host, action)| (when, host, called(action)))
            .collect()
    }
    /// Returns a machine of three hosts. There is a link between any two of them. Nobody can call the master.
    fn linked() -> Fleet {
        let mut fleet = Fleet::with_master_at(Vec::new(), 3, 1);
        let now = fleet.now;
        fleet.machine(TWO).want_link(now, THREE);
        fleet.work(TWO);
        fleet.settle();
        fleet
    }
    /// Cuts two hosts off from each other: neither receives anything from the other, and no end of the link is reported.
    fn separate(&mut self, one: Tid, other: Tid) {
        self.links.remove(&(one.min(other), one.max(other)));
    }
    fn rejoin(&mut self, one: Tid, other: Tid) {
        self.links.insert((one.min(other), one.max(other)));
    }
    fn all_here(&mut self) -> bool {
        self.settle();
        let hosts = |fleet: &mut Fleet, host| fleet.machine(host).host_list().len();
        self.living().len() == 3 && [MASTER, TWO, THREE].iter().all(|host| hosts(self, *host) == 3)
    }
}

#[test]
fn a_connection_that_breaks_is_made_again_and_nobody_is_lost() {
    let mut fleet = Fleet::linked();
    fleet.both_broken(MASTER, TWO);
    assert_eq!(fleet.calls(), [(fleet.now, MASTER, TWO)], "at once, by the one that can");
    // What is sent meanwhile goes into the session.
    let task = fleet.task(TWO);
    let wait = fleet.send(task, Request::JoinGroup(ByteBuf::from(b"g".to_vec())));
    fleet.settle();
    assert!(fleet.answer(task, wait).is_some());
    fleet.resumed(MASTER, TWO);
    fleet.pass(Duration::from_secs(20));
    assert!(fleet.calls().is_empty() && fleet.all_here());
}

#[test]
fn frames_in_flows_do_not_hide_that_the_connection_carries_nothing() {
    let mut fleet = Fleet::linked();
    let (began, timeout) = (fleet.now, fleet.timeout());
    // Nobody can call the first host, and it has not noticed that the connection has broken.
    fleet.separate(MASTER, TWO);
    while fleet.now < began + timeout * 3 / 4 {
        let now = fleet.now;
        fleet.machine(MASTER).handle_frame_in_flow(now, TWO, Frame::Fence);
        fleet.pass(timeout / 20);
    }
    assert!(matches!(fleet.calls()[..], [(_, MASTER, TWO)]));
}

#[test]
fn of_two_hosts_the_one_with_the_lower_number_calls_at_once_and_the_other_one_later() {
    let mut fleet = Fleet::linked();
    fleet.both_broken(TWO, THREE);
    let (now, turn) = (fleet.now, fleet.timeout() / 10);
    fleet.pass(2 * turn);
    assert_eq!(fleet.calls(), [(now, TWO, THREE), (now + turn / 10, THREE, TWO)]);
    fleet.resumed(TWO, THREE);
    // Only one side has noticed. After another break a short time ago, it waits longer: both may have called at once.
    fleet.broken(THREE, TWO, LinkBreak::Lost);
    let now = fleet.now;
    fleet.pass(2 * turn);
    let calls = fleet.calls();
    assert!(matches!(calls[..], [(when, THREE, TWO)] if when >= now + turn), "{calls:?}");
    fleet.resumed(TWO, THREE);
    fleet.pass(Duration::from_secs(20));
    assert!(fleet.calls().is_empty() && fleet.all_here());
}

#[test]
fn calls_go_on_with_growing_pauses_until_the_host_was_silent_for_too_long() {
    let mut fleet = Fleet::linked();
    let (began, timeout) = (fleet.now, fleet.timeout());
    fleet.separate(MASTER, TWO);
    fleet.both_broken(MASTER, TWO);
    let mut calls = Vec::new();
    while fleet.machine(MASTER).has_host(TWO) && fleet.now < began + 2 * timeout {
        calls.extend(fleet.calls().into_iter().map(|(when, ..)| when));
        fleet.call_failed(MASTER, TWO, CallFailure::NoAnswer);
        fleet.pass(Duration::from_millis(10));
    }
    let lost_after = fleet.now - began;
    assert!(lost_after > timeout - Duration::from_secs(2) && lost_after <= timeout + Duration::from_millis(20));
    let pauses: Vec<Duration> = calls.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        pauses[0] <= Duration::from_millis(120) && pauses[1..].iter().all(|pause| *pause <= timeout / 4),
        "{pauses:?}"
    );
    assert!((6..12).contains(&calls.len()), "{calls:?}");
    assert!(fleet.log.iter().any(|(_, _, line)| line.contains("silent for 10 s")), "{:?}", fleet.log);
    // The other side had no address of the master, and ends for the same reason.
    fleet.pass(timeout);
    assert!(!fleet.living().contains(&TWO));
    fleet.check_tables();
}

#[test]
fn a_daemon_that_has_provably_ended_is_lost_at_once() {
    // The master calls, and nobody listens.
    let mut fleet = Fleet::linked();
    fleet.broken(MASTER, TWO, LinkBreak::Ended);
    fleet.call_failed(MASTER, TWO, CallFailure::Absent);
    assert!(!fleet.machine(MASTER).has_host(TWO));
    // A host cannot call the master, whose end of the connection has been closed. That is no proof for its deputy.
    let mut fleet = Fleet::linked();
    fleet.broken(TWO, MASTER, LinkBreak::Ended);
    assert!(
        fleet.log.iter().any(|(host, _, line)| *host == TWO && line.contains("the master h1 (t40000) is lost")),
        "{:?}",
        fleet.log
    );
    // The same is no proof if the connection was reset, or where a call can be made.
    let mut fleet = Fleet::linked();
    fleet.broken(TWO, MASTER, LinkBreak::Lost);
    fleet.broken(MASTER, TWO, LinkBreak::Ended);
    fleet.broken(THREE, TWO, LinkBreak::Ended);
    assert!(fleet.all_here());
    // Another host says so to the master, which decides.
    let mut fleet = Fleet::linked();
    fleet.broken(TWO, THREE, LinkBreak::Ended);
    fleet.call_failed(TWO, THREE, CallFailure::Absent);
    assert!(fleet.machine(MASTER).has_host(THREE));
    fleet.settle();
    fleet.pass(Duration::from_secs(11));
    assert!(!fleet.machine(MASTER).has_host(THREE));
}

#[test]
fn a_connection_that_is_quiet_for_half_of_the_limit_is_replaced() {
    let mut fleet = Fleet::linked();
    let timeout = fleet.timeout();
    fleet.pass(timeout / 5);
    fleet.calls();
    fleet.separate(MASTER, TWO);
    let began = fleet.now;
    fleet.pass(timeout / 2 + Duration::from_millis(10));
    let calls = fleet.calls();
    assert!(matches!(calls[..], [(when, MASTER, TWO)] if when <= began + timeout / 2), "{calls:?}");
    // The connection breaks, too; the call goes on.
    fleet.broken(MASTER, TWO, LinkBreak::Lost);
    assert_eq!(fleet.calls(), []);
    fleet.rejoin(MASTER, TWO);
    fleet.resumed(MASTER, TWO);
    fleet.pass(2 * timeout);
    assert!(fleet.calls().is_empty() && fleet.all_here());
    // The old connection carries again before the call is answered; then the call fails, and there is no other one.
    fleet.separate(MASTER, TWO);
    fleet.pass(timeout * 6 / 10);
    assert_eq!(fleet.calls().len(), 1);
    fleet.rejoin(MASTER, TWO);
    fleet.pass(timeout / 4);
    fleet.call_failed(MASTER, TWO, CallFailure::NoAnswer);
    fleet.pass(2 * timeout);
    assert!(fleet.calls().is_empty() && fleet.all_here());
}

#[test]
fn a_daemon_that_was_suspended_loses_nobody_whose_connection_has_broken() {
    let mut fleet = Fleet::linked();
    let timeout = fleet.timeout();
    fleet.both_broken(MASTER, TWO);
    fleet.freeze(TWO);
    fleet.now += timeout * 2;
    let now = fleet.now;
    fleet.machine(MASTER).handle_time(now);
    fleet.work(MASTER);
    fleet.thaw(TWO);
    fleet.pass(timeout / 2);
    fleet.resumed(MASTER, TWO);
    fleet.pass(timeout);
    assert!(fleet.all_here());
}

#[test]
fn a_host_that_was_removed_is_not_resumed() {
    let mut fleet = Fleet::linked();
    let asker = fleet.task(MASTER);
    fleet.both_broken(TWO, THREE);
    fleet.ask(asker, Request::DeleteHosts(vec![ByteBuf::from(b"h3".to_vec())]));
    fleet.calls();
    let now = fleet.now;
    fleet.machine(TWO).handle_link_resumed(now, THREE);
    fleet.machine(TWO).handle_call_failed(now, THREE, CallFailure::NoAnswer);
    fleet.machine(TWO).handle_link_broken(now, THREE, LinkBreak::Lost);
    fleet.work(TWO);
    fleet.pass(Duration::from_secs(20));
    assert!(fleet.calls().is_empty() && !fleet.machine(TWO).has_host(THREE));
    fleet.check_tables();
}

#[test]
fn a_host_that_breaks_its_connections_all_the_time_is_called_seldom() {
    let mut fleet = Fleet::linked();
    let timeout = fleet.timeout();
    for _ in 0..2000 {
        fleet.broken(MASTER, TWO, LinkBreak::Lost);
        fleet.resumed(MASTER, TWO);
        fleet.pass(timeout / 1000);
    }
    let calls = fleet.calls().len();
    assert!(calls < 20, "{calls} calls");
    fleet.pass(timeout);
    assert!(fleet.all_here());
}
