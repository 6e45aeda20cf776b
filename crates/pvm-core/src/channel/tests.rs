use super::*;
use crate::encoding::Reader;
use crate::tid::Tid;

/// Returns a lane on which this side's messages go.
fn switched() -> Lane {
    let mut lane = Lane::default();
    lane.handle_hello();
    lane.handle_switched(0);
    lane
}

#[test]
fn messages_go_on_the_lane_between_the_route_switch_and_the_end_of_the_fallback() {
    let mut lane = Lane::default();
    assert!(!lane.may_switch() && !lane.carries() && lane.is_pending());
    lane.handle_hello();
    assert!(lane.may_switch() && !lane.carries() && lane.is_established());
    lane.handle_switched(0);
    assert!(!lane.may_switch() && lane.carries() && !lane.is_pending());
    let mut queue = Unacknowledged::default();
    (0..3).for_each(|number| queue.push(number, true));
    assert!(queue.acknowledge(1).is_some());
    lane.handle_break();
    // Until it has said so, it still hears what has come.
    assert!(lane.carries() && lane.takes_acknowledgements());
    let fallback = Fallback { acknowledged: 1, answers: false, is_given_up: false };
    assert_eq!(lane.next_step(&queue), Some(Step::Announce(fallback)));
    lane.handle_announced();
    assert!(lane.carries() && !lane.takes_acknowledgements());
    // A message that comes meanwhile waits behind the others.
    queue.push(3, false);
    for _ in 0..3 {
        assert_eq!(lane.next_step(&queue), Some(Step::Repeat));
        queue.pop_front();
    }
    assert!(lane.carries());
    assert_eq!(lane.next_step(&queue), None);
    assert!(!lane.carries() && lane.has_fallen_back());
}

#[test]
fn messages_of_a_side_that_has_not_switched_never_wait_for_its_fallback() {
    for hello in [false, true] {
        let mut lane = Lane::default();
        if hello {
            lane.handle_hello();
        }
        lane.give_up(GivenUp::Company);
        lane.handle_hello();
        assert!(!lane.carries() && !lane.may_switch() && lane.given_up() == Some(GivenUp::Company));
        lane.handle_announced();
        assert!(!lane.carries() && lane.next_step::<()>(&Unacknowledged::default()).is_none());
    }
}

#[test]
fn the_first_reason_for_a_fallback_counts() {
    let mut lane = switched();
    lane.give_up(GivenUp::Burst);
    lane.handle_break();
    lane.handle_fallback(true);
    assert_eq!(lane.given_up(), Some(GivenUp::Burst));
    let announced = |lane: &mut Lane| match lane.next_step::<()>(&Unacknowledged::default()) {
        Some(Step::Announce(fallback)) => fallback.is_given_up,
        step => panic!("{step:?}"),
    };
    assert!(announced(&mut lane));
    let mut answers = switched();
    answers.handle_fallback(true);
    assert!(!announced(&mut answers), "the peer has given it up");
}

#[test]
fn a_side_leaves_an_idle_lane_and_returns_after_a_few_messages() {
    let mut lane = switched();
    assert!(!lane.may_leave(false) && lane.may_leave(true));
    lane.handle_left();
    assert!(!lane.carries() && !lane.may_switch() && !lane.is_pending());
    for _ in 0..3 {
        lane.count_by_default_route();
        assert!(lane.is_left());
    }
    lane.count_by_default_route();
    assert!(lane.may_switch());
}

#[test]
fn a_lane_is_read_as_long_as_its_peer_has_switched_to_it() {
    let mut lane = Lane::default();
    // The route switch may come before the hello, and before the leaving that was announced earlier.
    lane.handle_route_switch();
    assert!(lane.is_reading() && !lane.is_established());
    lane.handle_hello();
    lane.handle_route_switch();
    lane.handle_leaving();
    assert!(lane.is_reading());
    lane.handle_leaving();
    assert!(!lane.is_reading());
    // Read ahead, the leaving comes before the switch.
    lane.handle_leaving();
    lane.handle_route_switch();
    assert!(!lane.is_reading());
    lane.handle_route_switch();
    assert!(lane.is_reading());
    lane.handle_fallback(false);
    assert!(!lane.is_reading() && lane.is_established() && lane.is_read_closed());
}

#[test]
fn only_a_peer_that_has_switched_and_closed_the_lane_has_gone() {
    let mut gone = switched();
    gone.handle_route_switch();
    assert_eq!(gone.handle_end(true), LaneEnd::PeerGone);
    let mut broken = switched();
    broken.handle_route_switch();
    assert_eq!(broken.handle_end(false), LaneEnd::FallsBack);
    assert!(broken.falls_back());
    assert_eq!(switched().handle_end(true), LaneEnd::FallsBack, "the peer may live");
    assert_eq!(Lane::default().handle_end(true), LaneEnd::NeverMade);
    let mut unheard = Lane::default();
    assert!(unheard.say_hello() && !unheard.say_hello());
    assert_eq!(unheard.handle_end(true), LaneEnd::FallsBack, "the peer may have switched");
    let mut leaves = Lane::default();
    leaves.give_up(GivenUp::Company);
    assert_eq!(leaves.handle_end(true), LaneEnd::FallsBack, "it has to be announced");
}

#[test]
fn a_fallback_message_is_read_as_it_was_written() {
    for fallback in [Fallback::ANSWER, Fallback { acknowledged: u32::MAX, answers: false, is_given_up: true }] {
        assert_eq!(Fallback::decode(&mut Reader::new(&fallback.encode())), Some(fallback));
    }
    assert_eq!(Fallback::decode(&mut Reader::new(&[0; 4])), None);
}

#[test]
fn repeats_are_what_came_and_was_not_acknowledged() {
    let peer = Tid(0x80001);
    let fallback = Fallback { acknowledged: 5, answers: false, is_given_up: false };
    let with = |received: u32| {
        let mut receipts = Receipts::default();
        let lane = switched();
        lane.received_counter().set(received);
        receipts.open(peer, lane.received_counter(), ());
        receipts
    };
    assert_eq!(with(8).handle_fallback(peer, fallback), (3, true));
    assert_eq!(with(4).handle_fallback(peer, fallback), (0, true), "the peer lies");
    assert_eq!(with(2).handle_fallback(peer, Fallback { acknowledged: u32::MAX, ..fallback }), (3, true));
    assert_eq!(with(8).handle_fallback(peer, Fallback::ANSWER), (0, true));
    let mut none = Receipts::<()>::default();
    assert_eq!(none.handle_fallback(peer, fallback), (0, false));
    let mut receipts = with(8);
    receipts.get_mut(peer).unwrap().has_ended = true;
    assert!(!receipts.is_open(peer));
}
