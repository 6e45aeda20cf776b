//! Data links that break while both hosts live.
use super::fleet::Fleet;
use super::*;
use crate::proto::SECRET_BYTES;

const LOW: Tid = Tid(0x40000);
const HIGH: Tid = Tid(0x80000);

fn call(number: u8) -> DataCall {
    DataCall { shown: [number; SECRET_BYTES], back: [9; SECRET_BYTES] }
}

impl Fleet {
    fn data_down(&mut self, host: Tid, other: Tid) {
        let now = self.now;
        self.machine(host).handle_data_down(now, other);
        self.work(host);
        self.settle();
    }
    fn data_up(&mut self) {
        let now = self.now;
        self.machine(LOW).handle_data_up(now, HIGH);
        self.machine(HIGH).handle_data_up(now, LOW);
    }
    fn expected(&mut self, number: u8) {
        let now = self.now;
        self.machine(HIGH).handle_data_expected(now, LOW, Some(call(number)));
        self.work(HIGH);
        self.settle();
    }
    fn says(&mut self, from: Tid, to: Tid, frame: Frame) {
        let now = self.now;
        self.machine(to).handle_host_frame(now, from, frame);
        self.work(to);
        self.settle();
    }
    /// Returns the actions about data links since the last call, each with its host.
    fn wanted(&mut self) -> Vec<(Tid, Action)> {
        std::mem::take(&mut self.data).into_iter().map(|(_, host, action)| (host, action)).collect()
    }
    /// Returns the times at which that host began an attempt to make a data link.
    fn attempts(&mut self, host: Tid) -> Vec<Time> {
        let begins = |action: &Action| matches!(action, Action::ExpectData { .. } | Action::CallData { .. });
        let all = std::mem::take(&mut self.data).into_iter();
        all.filter(|(_, it, action)| *it == host && begins(action)).map(|(when, ..)| when).collect()
    }
    fn has_both(&mut self) -> bool {
        [LOW, HIGH].iter().all(|host| self.nodes.contains_key(host) && !self.nodes[host].stopped)
            && self.machine(LOW).has_host(HIGH)
    }
}

fn expect() -> (Tid, Action) {
    (HIGH, Action::ExpectData { host: LOW })
}

fn calls(number: u8) -> (Tid, Action) {
    (LOW, Action::CallData { host: HIGH, addresses: vec![Fleet::address_of(HIGH)], call: call(number) })
}

#[test]
fn whichever_side_finds_the_end_of_a_data_link_it_is_made_again_once() {
    for who in [&[LOW][..], &[HIGH], &[LOW, HIGH], &[HIGH, LOW]] {
        let mut fleet = Fleet::new(2, 1);
        for host in who {
            let now = fleet.now;
            fleet.machine(*host).handle_data_down(now, if *host == LOW { HIGH } else { LOW });
        }
        [LOW, HIGH].into_iter().for_each(|host| fleet.work(host));
        fleet.settle();
        let wanted = fleet.wanted();
        assert_eq!(wanted.iter().filter(|one| **one == expect()).count(), 1, "{who:?}");
        if who == [LOW] {
            assert_eq!(wanted[0], (HIGH, Action::DropData { host: LOW }), "it has not noticed");
        }
        fleet.expected(1);
        assert_eq!(fleet.wanted(), [(LOW, Action::DropData { host: HIGH }), calls(1)], "{who:?}");
        fleet.data_up();
        fleet.says(LOW, HIGH, Frame::DataLost { number: 0 });
        fleet.says(HIGH, LOW, Frame::DataCall { number: 1, call: call(2) });
        assert_eq!(fleet.wanted(), [], "what is said of links that were is nothing new");
        assert!(fleet.has_both());
    }
}

#[test]
fn attempts_go_on_with_growing_pauses_as_long_as_the_control_link_stands() {
    let mut fleet = Fleet::new(2, 1);
    let timeout = fleet.machine(LOW).core.settings.host_timeout;
    fleet.data_down(HIGH, LOW);
    let mut times = Vec::new();
    let end = fleet.now + 6 * timeout;
    while fleet.now < end {
        times.extend(fleet.attempts(HIGH));
        fleet.expected(1);
        // The calling host cannot reach the other, and reports this.
        fleet.data_down(LOW, HIGH);
        fleet.pass(Duration::from_millis(10));
    }
    assert!(fleet.has_both(), "the control link stands");
    let pauses: Vec<Duration> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[0] <= Duration::from_millis(150), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= timeout / 4 + Duration::from_millis(50)), "{pauses:?}");
    assert!(pauses[10..].iter().all(|pause| *pause >= timeout / 4), "{pauses:?}");
    fleet.expected(1);
    fleet.wanted();
    // The link stays up for long, so its next break counts as the first one.
    fleet.data_up();
    fleet.pass(timeout);
    fleet.data_down(HIGH, LOW);
    assert_eq!(fleet.wanted(), [expect()], "at once");
    fleet.cut(LOW, HIGH);
    fleet.settle();
    fleet.data_down(LOW, HIGH);
    fleet.pass(timeout);
    assert_eq!(fleet.wanted(), [], "nothing without a control link");
}

#[test]
fn a_host_that_has_the_link_made_anew_all_the_time_is_slowed_down() {
    let mut fleet = Fleet::new(2, 1);
    let timeout = fleet.machine(LOW).core.settings.host_timeout;
    for number in 0..2000 {
        fleet.says(HIGH, LOW, Frame::DataCall { number: number + 1, call: call(1) });
        fleet.pass(timeout / 1000);
    }
    let calls = fleet.attempts(LOW).len();
    assert!((5..20).contains(&calls), "{calls} calls");
    let mut fleet = Fleet::new(2, 1);
    for _ in 0..20 {
        for number in 0..100 {
            fleet.says(LOW, HIGH, Frame::DataLost { number });
            fleet.data_up();
        }
        fleet.pass(timeout / 10);
    }
    let expected = fleet.attempts(HIGH).len();
    assert!((5..20).contains(&expected), "{expected} times expected");
}

#[test]
fn a_host_says_nothing_of_data_links_for_another_side_than_its_own() {
    let mut fleet = Fleet::new(2, 1);
    fleet.says(HIGH, LOW, Frame::DataLost { number: 0 });
    fleet.says(LOW, HIGH, Frame::DataCall { number: 1, call: call(1) });
    assert_eq!(fleet.wanted(), []);
    // `HIGH` cannot prepare for the call of `LOW`, and tries again later.
    fleet.data_down(HIGH, LOW);
    assert_eq!(fleet.wanted(), [expect()]);
    let now = fleet.now;
    fleet.machine(HIGH).handle_data_expected(now, LOW, None);
    fleet.pass(Duration::from_secs(1));
    assert_eq!(fleet.wanted(), [expect()]);
}
