//! Links that no program has asked for, of tasks that have company or get some.
use super::*;
use crate::member::Company;
use pvm_core::proto::{Order, Spawn, TraceSettings};

/// A second task on the host of each side.
const SECONDS: [Tid; 2] = [Tid(0x40002), Tid(0x80002)];

/// Returns both sides with a link that they use in both directions and for which no program has asked.
fn linked() -> Both {
    let mut both = Both::new();
    both.2 = LinkCause::Traffic;
    both.0.iter_mut().for_each(Side::ask_for_no_links);
    both.use_link(None);
    both
}

/// As [`linked`], but the second side has a neighbour, whose introduction it has taken in. Returns the neighbour, too.
fn linked_with_neighbour() -> (Both, Endpoint) {
    let mut both = linked();
    let side = &mut both.0[1];
    side.daemon.set_company(true);
    let neighbour = side.daemon.introduce(TIDS[1], SECONDS[1]);
    side.progress();
    (both, neighbour)
}

/// Sends a native message of the neighbour to the second side.
fn send_cause(neighbour: &mut Endpoint) {
    let meta = [0, 50, 0, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32);
    let _ = neighbour.send_bytes(TIDS[1].0, meta, b"cause").unwrap();
}

/// Returns whether each side sends on the link.
fn carries(both: &mut Both) -> [bool; 2] {
    both.0.each_mut().map(|side| {
        let peer = side.peer();
        side.member().has_link_to(peer)
    })
}

/// Returns the tags of what the daemon of a side has to relay, and relays nothing.
fn tags_to_relay(side: &mut Side) -> Vec<i32> {
    let (own, mut load) = (Tid(side.task.own_tid() as u32), Load::default());
    side.endpoint.poll_through(own.0, &mut load);
    load.0.into_iter().map(|(meta, _)| meta[1] as i32).collect()
}

fn spawn() -> Request {
    Request::Spawn(Spawn {
        file: Default::default(),
        arguments: Vec::new(),
        flags: 0,
        place: Default::default(),
        count: 1,
        environment: Vec::new(),
        children: TraceSettings::default(),
    })
}

#[test]
fn a_task_that_has_company_leaves_its_links_before_it_sends_and_nothing_is_lost() {
    for side in 0..2 {
        let mut both = linked();
        (0..3).for_each(|_| both.0[0].send(100));
        both.0[side].daemon.set_company(true);
        assert_eq!(carries(&mut both), [true; 2], "nobody has sent anything");
        (0..3).for_each(|number| both.0[number % 2].send(5000));
        let left = carries(&mut both);
        assert!(!left[side] && left[1 - side]);
        both.settle();
        for _ in 0..2 {
            (0..2).for_each(|side| both.carry(side));
            both.0.iter_mut().for_each(Side::receive);
        }
        assert_eq!(both.0.each_mut().map(Side::has_link), [false; 2]);
    }
}

#[test]
fn what_is_on_the_link_is_repeated_before_anybody_learns_of_it() {
    type Act = fn(&mut Side);
    let acts: [(&str, Act); 4] = [
        ("a request by which others may learn something", |side| {
            side.daemon.set_company(true);
            side.task.send_request(Request::NewContext).unwrap();
        }),
        ("a child", |side| side.task.send_request(spawn()).unwrap()),
        ("another task of this host", |side| {
            side.daemon.introduce(TIDS[0], SECONDS[0]);
            side.progress();
        }),
        ("a message to another task of the host of the peer", |side| {
            assert_eq!(side.task.psend(SECONDS[1].0 as i32, 77, b"x"), Ok(Submit::Done));
        }),
    ];
    for (name, act) in acts {
        let mut both = linked();
        both.0[0].send(100);
        assert_eq!(tags_to_relay(&mut both.0[0]), [], "{name}");
        act(&mut both.0[0]);
        let tags = tags_to_relay(&mut both.0[0]);
        assert_eq!(tags[..2], [TC_FALLBACK, 0], "{name}");
        assert!(tags[2..].iter().all(|tag| *tag == 77), "{name}: {tags:?}");
        assert!(!carries(&mut both)[0], "{name}");
    }
}

#[test]
fn a_multicast_to_several_tasks_of_a_host_goes_the_same_way_to_all() {
    let mut both = linked();
    both.0[0].send(100);
    let side = &mut both.0[0];
    side.task.init_send(pvm_core::codes::DATA_RAW).unwrap();
    let receivers = [TIDS[1], SECONDS[1]].map(|tid| tid.0 as i32);
    assert_eq!(side.task.multicast(&receivers, 5), Ok(Submit::Done));
    let tags = tags_to_relay(side);
    assert_eq!((tags[..2].to_vec(), tags.last()), (vec![TC_FALLBACK, 0], Some(&5)));
    assert_eq!(tags.iter().filter(|tag| **tag == 5).count(), 1, "one message for both");
}

#[test]
fn company_that_has_gone_again_counts_once() {
    let mut both = linked();
    both.0[0].daemon.set_company(true);
    both.0[0].daemon.set_company(false);
    both.0[0].send(100);
    assert!(!carries(&mut both)[0], "what it has sent may still be on the way");
    both.settle();
    for _ in 0..2 {
        (0..2).for_each(|side| both.carry(side));
        both.0.iter_mut().for_each(Side::receive);
    }
    both.use_link(None);
    (0..3).for_each(|side| both.0[side % 2].send(100));
    assert_eq!(carries(&mut both), [true; 2]);
    both.settle();
}

#[test]
fn links_that_a_program_has_asked_for_stay_and_so_do_all_if_the_order_of_pairs_is_enough() {
    for (cause, order) in [(LinkCause::Program, Order::Hosts), (LinkCause::Traffic, Order::Pairs)] {
        let mut both = Both::new();
        both.2 = cause;
        both.0.iter_mut().for_each(Side::ask_for_no_links);
        both.0.iter_mut().for_each(|side| side.member().company = Company::new(order));
        both.use_link(None);
        for side in &mut both.0 {
            side.daemon.set_company(true);
            side.task.send_request(spawn()).unwrap();
        }
        assert_eq!(both.0[0].task.psend(SECONDS[1].0 as i32, 77, b"x"), Ok(Submit::Done));
        (0..4).for_each(|side| both.0[side % 2].send(100));
        assert_eq!(carries(&mut both), [true; 2]);
    }
}

#[test]
fn a_link_that_comes_when_there_is_company_is_not_used() {
    let mut both = Both::new();
    both.2 = LinkCause::Traffic;
    both.0.iter_mut().for_each(Side::ask_for_no_links);
    both.0[1].daemon.set_company(true);
    both.link(None);
    for _ in 0..4 {
        (0..2).for_each(|side| both.0[side].send(100));
        both.settle();
        assert!(!carries(&mut both)[1]);
    }
    (0..2).for_each(|side| both.carry(side));
    both.0.iter_mut().for_each(Side::receive);
    assert_eq!(both.0.each_mut().map(Side::has_link), [false; 2]);
}

#[test]
fn what_a_neighbour_has_sent_goes_before_what_comes_on_a_link() {
    for by_precv in [false, true] {
        let mut both = linked();
        let side = &mut both.0[1];
        side.daemon.set_company(true);
        // The task has not even taken in the introduction when the message comes on the link.
        let mut neighbour = side.daemon.introduce(TIDS[1], SECONDS[1]);
        send_cause(&mut neighbour);
        both.0[0].send(9000);
        let (filter, task) = (Filter { src: ANY, tag: ANY, ctx: 0 }, &mut both.0[1].task);
        let mut tags = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(10);
        while tags.len() < 2 {
            assert!(Instant::now() < deadline, "{tags:?}");
            if by_precv {
                let mut data = vec![0; 9000];
                tags.extend(task.try_precv(&filter, Kind::Byte, &mut data).map(|delivered| delivered.tag));
            } else if let Some(mid) = task.try_receive(&filter) {
                tags.push(task.message_info(mid).unwrap().tag);
            }
        }
        assert_eq!(tags, [50, 0], "{by_precv}");
        assert!(!carries(&mut both)[1], "a task with company leaves its link");
    }
}

#[test]
fn what_comes_on_a_link_waits_for_what_is_behind_a_gap() {
    let (mut both, mut neighbour) = linked_with_neighbour();
    let side = &mut both.0[1];
    let third = Tid::host_number(9);
    side.task.state.on_gap(third, 1);
    send_cause(&mut neighbour);
    both.0[0].send(100);
    let side = &mut both.0[1];
    let (filter, deadline) = (Filter { src: ANY, tag: ANY, ctx: 0 }, Instant::now() + Duration::from_secs(10));
    while !side.member().direct.has_arrived() {
        assert!(Instant::now() < deadline);
        assert_eq!(side.task.try_receive(&filter), None);
        side.progress();
    }
    assert_eq!(side.task.try_receive(&filter), None);
    side.task.state.on_no_more(third);
    let mut tags = Vec::new();
    while tags.len() < 2 {
        assert!(Instant::now() < deadline, "{tags:?}");
        tags.extend(side.task.try_receive(&filter).map(|mid| side.task.message_info(mid).unwrap().tag));
    }
    assert_eq!(tags, [50, 0]);
}

#[test]
fn what_lies_in_a_queue_is_taken_in_before_what_was_read_from_a_link() {
    let (mut both, mut neighbour) = linked_with_neighbour();
    both.0[0].send(100);
    let side = &mut both.0[1];
    let deadline = Instant::now() + Duration::from_secs(10);
    while !side.member().direct.has_arrived() {
        assert!(Instant::now() < deadline);
        side.member().direct.poll_links();
    }
    // As if it had come after the queues were read last, and had led to the message on the link.
    send_cause(&mut neighbour);
    let Task { member, state, .. } = &mut side.task;
    member.as_mut().unwrap().deliver_from_links(state);
    let filter = Filter { src: ANY, tag: ANY, ctx: 0 };
    side.task.reveal_all();
    let tags = [(); 2].map(|()| {
        let mid = side.task.receive(&filter).unwrap();
        side.task.message_info(mid).unwrap().tag
    });
    assert_eq!(tags, [50, 0]);
}

#[test]
fn a_task_with_company_asks_for_no_link_and_one_whose_peer_has_some_asks_later() {
    let mut side = Side::new(TIDS[0]);
    side.ask_for_no_links();
    let send = |side: &mut Side| (0..40).for_each(|_| side.task.update_route(TIDS[1], 1 << 20));
    side.daemon.set_company(true);
    send(&mut side);
    assert_eq!(side.member().direct.open_requests, 0);
    side.daemon.set_company(false);
    send(&mut side);
    assert_eq!(side.member().direct.open_requests, 1);
    let (number, _) = side.daemon.requests().pop().unwrap();
    side.daemon.reply(&mut side.task, number, pvm_core::proto::Reply::Company);
    send(&mut side);
    assert_eq!(side.member().direct.open_requests, 0);
    std::thread::sleep(PAUSE_FIRST);
    send(&mut side);
    assert_eq!(side.member().direct.open_requests, 1);
}

#[test]
fn a_message_that_has_to_be_converted_is_not_overtaken_in_the_same_poll() {
    const FOREIGN_DSIG: i32 = 0;
    let (mut both, mut neighbour) = linked_with_neighbour();
    let side = &mut both.0[1];
    for (tag, format) in [(50, FOREIGN_DSIG), (51, OWN_DSIG)] {
        let meta = [0, tag, 0, OWN_DSIG, format, 0].map(|word| word as u32);
        let _ = neighbour.send_bytes(TIDS[1].0, meta, b"body").unwrap();
    }
    let filter = Filter { src: ANY, tag: ANY, ctx: 0 };
    let (mut tags, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while tags.len() < 2 {
        assert!(Instant::now() < deadline, "{tags:?}");
        tags.extend(side.task.try_precv(&filter, Kind::Byte, &mut [0; 4]).map(|delivered| delivered.tag));
    }
    assert_eq!(tags, [50, 51]);
}
