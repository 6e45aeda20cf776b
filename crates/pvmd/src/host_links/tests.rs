//! The links of two daemons in one thread.
use super::control_link::GATHERED_BYTES_MAX;
use super::*;
use pvm_core::wire;
use pvm_net::{Identity, KeyPair};
use rustix::event::epoll::CreateFlags;

const PATIENCE: Duration = Duration::from_secs(20);

struct End {
    links: HostLinks,
    seen: Vec<LinkEvent>,
    frames: Vec<(Tid, Frame)>,
    acknowledgements: usize,
}

impl End {
    fn new(number: u32) -> (End, Key) {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
        let key = KeyPair::generate().unwrap();
        let public = key.public().0;
        let timeout = Duration::from_secs(10);
        let connector = Connector::new(Identity::new(key), timeout).unwrap();
        let links = HostLinks::new(connector, Tid::host_number(number), timeout, epoll).unwrap();
        (End { links, seen: Vec::new(), frames: Vec::new(), acknowledgements: 0 }, public)
    }

    fn listen(&mut self) -> u16 {
        self.links.connector.listen(0).unwrap();
        self.links.connector.port()
    }

    fn receive_all(&mut self, host: Tid) {
        while let Some(received) = self.links.receive(host) {
            match received {
                Received::Frame(frame) => self.frames.push((host, frame)),
                Received::Acknowledgement => self.acknowledgements += 1,
            }
        }
    }

    /// Takes one step, as the daemon's loop does.
    fn turn(&mut self) {
        self.links.flush_all();
        self.links.step();
        let mut ready = Vec::with_capacity(8);
        let nothing = rustix::time::Timespec::default();
        epoll::wait(&self.links.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&nothing)).unwrap();
        for event in &ready {
            let Source::Control(host) = Source::of(event.data) else { continue };
            let flags = event.flags;
            if flags.contains(EventFlags::OUT) {
                self.links.flush(host);
            }
            self.receive_all(host);
        }
        while let Some(event) = self.links.poll_event() {
            if let LinkEvent::Up { host, .. } | LinkEvent::Resumed { host } = event {
                self.receive_all(host);
            }
            self.seen.push(event);
        }
    }

    fn is_up(&self, host: Tid) -> bool {
        self.seen.iter().any(|event| matches!(event, LinkEvent::Up { host: it, .. } if *it == host))
    }

    /// Returns how often the connection to a host has broken.
    fn breaks(&self, host: Tid) -> usize {
        self.seen.iter().filter(|event| matches!(event, LinkEvent::Broken { host: it, .. } if *it == host)).count()
    }

    /// Returns how often another connection to a host was made.
    fn resumed(&self, host: Tid) -> usize {
        self.seen.iter().filter(|event| matches!(event, LinkEvent::Resumed { host: it } if *it == host)).count()
    }

    fn control(&mut self, host: Tid) -> &mut ControlLink {
        self.links.hosts.get_mut(&host).unwrap().control.as_mut().unwrap()
    }

    /// Resets the connection to a host. What is on its way in either direction is lost.
    fn reset(&mut self, host: Tid) {
        let control = self.control(host);
        if let Some(link) = control.link() {
            rustix::net::sockopt::set_socket_linger(link, Some(Duration::ZERO)).unwrap();
        }
        control.count_break();
    }

    fn is_down(&self, host: Tid) -> bool {
        self.seen.iter().any(|event| matches!(event, LinkEvent::Down { host: it } if *it == host))
    }
}

fn drive(ends: &mut [&mut End], done: impl Fn(&[&mut End]) -> bool) {
    let start = Instant::now();
    while !done(ends) {
        assert!(start.elapsed() < PATIENCE, "it does not come to pass");
        ends.iter_mut().for_each(|end| end.turn());
    }
}

const ONE: u32 = 1;
const TWO: u32 = 2;

fn tid(number: u32) -> Tid {
    Tid::host_number(number)
}

/// Returns host 1, which connects, and host 2, after the link has been made.
fn linked(trusted: bool) -> (End, End) {
    linked_within(HOST_BACKLOG_BYTES_MAX, trusted)
}

/// Returns the two hosts as `linked` does. At most `backlog_bytes_max` bytes may wait at host 1.
fn linked_within(backlog_bytes_max: usize, trusted: bool) -> (End, End) {
    let ((mut one, first), (mut two, second)) = (End::new(ONE), End::new(TWO));
    one.links.limit_backlog(backlog_bytes_max);
    // A loaded machine may take long to encrypt what these tests send.
    one.links.set_shared(trusted, Duration::from_secs(60));
    let port = two.listen();
    one.links.add_host(tid(TWO), second);
    two.links.add_host(tid(ONE), first);
    one.links.connect(tid(TWO), &[SocketAddr::from(([127, 0, 0, 1], port))]);
    drive(&mut [&mut one, &mut two], |ends| ends[0].is_up(tid(TWO)) && ends[1].is_up(tid(ONE)));
    (one, two)
}

fn line(bytes: usize, number: u32) -> Frame {
    Frame::Log { tid: Tid(number), line: vec![number as u8; bytes] }
}

#[test]
fn frames_of_all_sizes_pass_in_order_and_the_data_link_is_as_asked() {
    for trusted in [false, true] {
        let (mut one, mut two) = linked(trusted);
        let Some(LinkEvent::Up { data, .. }) = one.seen.first() else { panic!("not up") };
        assert_eq!(data.is_encrypted(), !trusted);
        let sizes = [0, 1, 100, 70_000, 3 << 20, 2, 16_384];
        for (number, bytes) in sizes.into_iter().enumerate() {
            one.links.send(tid(TWO), &line(bytes, number as u32));
            two.links.send(tid(ONE), &Frame::Beat);
        }
        drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 7 && ends[0].frames.len() == 7);
        for (number, ((from, frame), bytes)) in two.frames.iter().zip(sizes).enumerate() {
            assert!(*from == tid(ONE) && *frame == line(bytes, number as u32), "{number}");
        }
    }
}

#[test]
fn short_frames_to_a_host_are_gathered_and_long_ones_are_not() {
    let (mut one, mut two) = linked(false);
    (0..3).for_each(|_| one.links.send(tid(TWO), &Frame::Beat));
    assert!(one.control(tid(TWO)).has_unwritten());
    assert!(one.links.flush_all() && !one.links.flush_all());
    assert!(!one.control(tid(TWO)).has_unwritten());
    one.links.send(tid(TWO), &Frame::Beat);
    one.links.send(tid(TWO), &line(GATHERED_BYTES_MAX, 1));
    assert!(!one.control(tid(TWO)).has_unwritten());
    one.links.flush_all();
    drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 5);
}

#[test]
fn what_was_sent_to_a_host_before_it_is_forgotten_still_arrives() {
    let (mut one, mut two) = linked(false);
    // The line is longer than the sockets hold, but short enough that even a loaded machine encrypts it before the link
    // is closed.
    one.links.send(tid(TWO), &line(12 << 20, 1));
    one.links.send(tid(TWO), &Frame::Leave);
    // This frame is still unread when host 1 closes its end.
    two.links.send(tid(ONE), &Frame::Beat);
    one.links.remove_host(tid(TWO));
    drive(&mut [&mut one, &mut two], |ends| ends[1].breaks(tid(ONE)) == 1);
    assert!(two.seen.iter().any(|event| matches!(event, LinkEvent::Broken { how: LinkBreak::Ended, .. })));
    assert!(matches!(&two.frames[..], [_, (_, Frame::Leave)]), "{} frames", two.frames.len());
    two.links.drop_link(tid(ONE));
    let start = Instant::now();
    drive(&mut [&mut one], |ends| ends[0].links.closing_links.is_empty());
    assert!(start.elapsed() < CLOSE_TIME_MAX / 2, "the other side has closed");
    assert!(!one.is_down(tid(TWO)), "it has been forgotten");
}

#[test]
fn a_host_that_does_not_take_its_farewell_is_left_after_a_while() {
    let (mut one, _two) = linked(false);
    one.links.send(tid(TWO), &line(30 << 20, 1));
    let start = Instant::now();
    one.links.close_all();
    assert!(start.elapsed() >= CLOSE_TIME_MAX && start.elapsed() < 2 * CLOSE_TIME_MAX);
    let (mut one, mut two) = linked(false);
    one.links.remove_host(tid(TWO));
    assert!(one.links.next_wakeup().is_some());
    std::thread::sleep(CLOSE_TIME_MAX);
    one.turn();
    assert!(one.links.closing_links.is_empty());
    two.turn();
}

#[test]
fn a_connection_that_has_broken_is_told_once() {
    let (mut one, two) = linked(true);
    drop(two);
    drive(&mut [&mut one], |ends| ends[0].breaks(tid(TWO)) > 0);
    one.links.send(tid(TWO), &Frame::Beat);
    one.turn();
    assert!(one.breaks(tid(TWO)) == 1 && !one.is_down(tid(TWO)));
}

/// Returns how the connection to a host has broken.
fn how_broken(end: &End, host: u32) -> Vec<LinkBreak> {
    let how = |event: &LinkEvent| match event {
        LinkEvent::Broken { host: it, how } if *it == tid(host) => Some(*how),
        _ => None,
    };
    end.seen.iter().filter_map(how).collect()
}

#[test]
fn an_end_and_a_reset_are_told_apart_though_a_write_meets_them_first() {
    for is_reset in [true, false] {
        let (mut one, mut two) = linked(false);
        if is_reset {
            two.reset(tid(ONE));
        } else {
            drop(two);
        }
        // Nothing is read meanwhile. The system may need a moment to answer a write.
        for _ in 0..20 {
            one.links.send(tid(TWO), &Frame::Beat);
            one.links.flush_all();
            std::thread::sleep(Duration::from_millis(2));
        }
        drive(&mut [&mut one], |ends| ends[0].breaks(tid(TWO)) > 0);
        let expected = if is_reset { LinkBreak::Lost } else { LinkBreak::Ended };
        assert_eq!(how_broken(&one, TWO), [expected]);
    }
}

#[test]
fn a_connection_that_is_given_up_by_a_living_daemon_does_not_look_like_its_end() {
    let (mut one, mut two) = linked(false);
    two.control(tid(ONE)).count_break();
    drive(&mut [&mut one], |ends| ends[0].breaks(tid(TWO)) > 0);
    assert_eq!(how_broken(&one, TWO), [LinkBreak::Lost]);
}

#[test]
fn a_call_for_a_control_link_alone_does_not_end_the_first_call_of_the_other_side() {
    let ((mut one, one_key), (mut two, two_key)) = (End::new(ONE), End::new(TWO));
    one.links.add_host(tid(TWO), two_key);
    two.links.add_host(tid(ONE), one_key);
    let addresses = [one.listen(), two.listen()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    // The first address does not answer, so the call of host 2, which thinks that there was a session, comes before.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    one.links.connect(tid(TWO), &[silent.local_addr().unwrap(), addresses[1]]);
    let (ticket, now) = (Ticket::Control(tid(ONE)).number(), Instant::now());
    two.links.connector.connect_control(ticket, &addresses[..1], None, PublicKey(one_key), PATIENCE, now);
    drive(&mut [&mut one, &mut two], |ends| ends[0].is_up(tid(TWO)) && ends[1].is_up(tid(ONE)));
}

#[test]
fn a_host_that_cannot_be_reached_is_down_and_the_log_says_why() {
    let (mut one, _) = End::new(ONE);
    one.links.set_shared(false, Duration::from_millis(100));
    one.links.add_host(tid(TWO), [7; 32]);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    one.links.connect(tid(TWO), &[nobody]);
    drive(&mut [&mut one], |ends| ends[0].is_down(tid(TWO)));
    assert!(matches!(&one.seen[0], LinkEvent::Log(text) if text.contains("refused")));
    // An unknown host cannot be called.
    one.links.connect(tid(3), &[nobody]);
    drive(&mut [&mut one], |ends| ends[0].is_down(tid(3)));
}

#[test]
fn a_host_with_a_higher_number_does_not_call() {
    let ((mut one, first), (mut two, second)) = (End::new(ONE), End::new(TWO));
    let port = one.listen();
    one.links.add_host(tid(TWO), second);
    two.links.add_host(tid(ONE), first);
    two.links.connect(tid(ONE), &[SocketAddr::from(([127, 0, 0, 1], port))]);
    drive(&mut [&mut one, &mut two], |ends| !ends[0].seen.is_empty());
    assert!(matches!(&one.seen[0], LinkEvent::Log(text) if text.contains("must wait to be called")));
}

#[test]
fn bytes_that_are_no_frame_end_the_link() {
    let (mut one, mut two) = linked(false);
    one.control(tid(TWO)).link().unwrap().send(CONTROL_FRAME, &[], &[&[0xff; 9]]).unwrap();
    drive(&mut [&mut one, &mut two], |ends| ends[1].is_down(tid(ONE)));
    assert!(two.frames.is_empty());
}

#[test]
fn false_acknowledgements_end_the_link() {
    let long = [0xff; 9];
    for header in [&[0xff; 8][..], &long, &[]] {
        let (mut one, mut two) = linked(false);
        one.control(tid(TWO)).link().unwrap().send(ACKNOWLEDGEMENT, header, &[]).unwrap();
        drive(&mut [&mut one, &mut two], |ends| ends[1].is_down(tid(ONE)));
    }
}

#[test]
fn acknowledgements_do_not_pile_up_for_a_host_that_does_not_read() {
    let (mut one, mut two) = linked(false);
    // The acknowledgement with which the connection begins comes before the first frame.
    one.links.send(tid(TWO), &Frame::Beat);
    drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 1);
    two.acknowledgements = 0;
    // Host 2 reads nothing more, and the line is longer than the sockets hold. Each line of host 2 is long enough for an
    // acknowledgement.
    one.links.send(tid(TWO), &line(12 << 20, 1));
    (0..100).for_each(|number| two.links.send(tid(ONE), &line(64 << 10, number)));
    let start = Instant::now();
    while one.frames.len() < 100 {
        assert!(start.elapsed() < PATIENCE, "host 1 does not get the lines");
        two.links.flush(tid(ONE));
        one.turn();
    }
    assert!(one.control(tid(TWO)).link().unwrap().queued_bytes() > GATHERED_BYTES_MAX, "the line is on its way");
    drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 2 && ends[1].links.kept_bytes(tid(ONE)) == 0);
    assert_eq!(two.acknowledgements, 1, "the last one says what all would have said");
}

#[test]
fn a_host_that_continues_in_the_middle_of_a_frame_is_given_up() {
    let ([mut one, mut two], addresses) = both_callable();
    one.links.send(tid(TWO), &line(100, 1));
    one.links.send(tid(TWO), &line(100, 2));
    drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 2);
    // Host 2 calls again, and lies about what it has received.
    let key = one.links.connector.identity().public();
    let now = Instant::now();
    two.links.connector.connect_control(1 << 40, &addresses[..1], None, key, PATIENCE, now);
    let has_link = |end: &mut End| {
        end.seen.iter().position(|event| matches!(event, LinkEvent::DirectReady { .. })).map(|at| end.seen.remove(at))
    };
    let mut link = loop {
        [&mut one, &mut two].into_iter().for_each(End::turn);
        if let Some(LinkEvent::DirectReady { link, .. }) = has_link(&mut two) {
            break link;
        }
    };
    link.send(ACKNOWLEDGEMENT, &7_u64.to_le_bytes(), &[]).unwrap();
    drive(&mut [&mut one, &mut two], |ends| ends[0].is_down(tid(TWO)));
}

/// Returns the two hosts as `linked` does, and the address at which each can be called.
fn both_callable() -> ([End; 2], [SocketAddr; 2]) {
    let (mut one, two) = linked(false);
    one.listen();
    let address = |end: &End| SocketAddr::from(([127, 0, 0, 1], end.links.port()));
    let addresses = [address(&one), address(&two)];
    ([one, two], addresses)
}

#[test]
fn frames_come_once_and_in_order_though_connections_break_again_and_again() {
    let ([mut one, mut two], addresses) = both_callable();
    let mut sent = 0;
    for round in 0..40_u32 {
        for _ in 0..5 {
            let bytes = [10, 3000, 200_000][sent as usize % 3];
            one.links.send(tid(TWO), &line(bytes, sent));
            two.links.send(tid(ONE), &line(bytes, sent));
            sent += 1;
        }
        (0..round % 7).for_each(|_| [&mut one, &mut two].into_iter().for_each(|end| end.turn()));
        // One side breaks the connection. The other side learns that, or only of the next connection.
        let (breaker, other, host) = if round % 2 == 0 { (&mut one, &mut two, TWO) } else { (&mut two, &mut one, ONE) };
        if round % 5 > 0 {
            breaker.reset(tid(host));
        }
        let (caller, called) = if round % 3 == 0 { (other, 3 - host) } else { (breaker, host) };
        let before = caller.resumed(tid(called));
        caller.links.reconnect(tid(called), &addresses[called as usize - 1..called as usize]);
        let resumed = move |ends: &[&mut End]| {
            let end = &ends[if called == TWO { 0 } else { 1 }];
            end.resumed(tid(called)) > before
        };
        drive(&mut [&mut one, &mut two], resumed);
    }
    let all = sent as usize;
    drive(&mut [&mut one, &mut two], |ends| ends.iter().all(|end| end.frames.len() >= all));
    for end in [&mut one, &mut two] {
        for (number, (_, frame)) in end.frames.iter().enumerate() {
            assert!(*frame == line([10, 3000, 200_000][number % 3], number as u32), "{number}");
        }
        assert!(!end.seen.iter().any(|event| matches!(event, LinkEvent::Down { .. })));
    }
}

#[test]
fn a_call_that_nobody_takes_any_more_is_told_with_what_it_proves() {
    let ([mut one, mut two], addresses) = both_callable();
    // Host 2 has removed host 1.
    two.links.remove_host(tid(ONE));
    drive(&mut [&mut one, &mut two], |ends| ends[0].breaks(tid(TWO)) == 1);
    let failure = |ends: &[&mut End], wanted| {
        ends[0].seen.iter().any(|event| matches!(event, LinkEvent::CallFailed { why, .. } if *why == wanted))
    };
    one.links.set_shared(false, Duration::from_millis(500));
    one.links.reconnect(tid(TWO), &addresses[1..]);
    drive(&mut [&mut one, &mut two], |ends| failure(ends, CallFailure::NoAnswer));
    assert!(one.resumed(tid(TWO)) == 0 && two.seen.iter().all(|event| !matches!(event, LinkEvent::Resumed { .. })));
    drop(two);
    let start = Instant::now();
    one.links.reconnect(tid(TWO), &addresses[1..]);
    drive(&mut [&mut one], |ends| failure(ends, CallFailure::Absent));
    assert!(start.elapsed() < Duration::from_millis(400), "at once");
}

#[test]
fn a_host_whose_session_has_ended_gets_no_connection() {
    let ([mut one, mut two], addresses) = both_callable();
    two.links.drop_link(tid(ONE));
    drive(&mut [&mut one, &mut two], |ends| ends[0].breaks(tid(TWO)) == 1);
    one.links.reconnect(tid(TWO), &addresses[1..]);
    drive(&mut [&mut one, &mut two], |ends| ends[0].breaks(tid(TWO)) == 2);
    assert!(two.seen.iter().all(|event| !matches!(event, LinkEvent::Resumed { .. })));
}

#[test]
fn a_host_that_has_both_links_is_called_for_them_once_more_by_one_that_does_not_know() {
    let ([mut one, mut two], addresses) = both_callable();
    // Host 1 has not learnt that the pair of links was complete, and begins anew.
    one.links.drop_link(tid(TWO));
    two.links.send(tid(ONE), &line(100, 7));
    one.seen.clear();
    one.links.connect(tid(TWO), &addresses[1..]);
    drive(&mut [&mut one, &mut two], |ends| ends[0].is_up(tid(TWO)) && !ends[0].frames.is_empty());
    assert!(one.frames == [(tid(TWO), line(100, 7))] && two.resumed(tid(ONE)) == 1 && !two.is_down(tid(ONE)));
}

#[test]
fn a_host_that_lets_too_much_wait_is_given_up() {
    for (limit, is_down) in [(16 << 20, true), (HOST_BACKLOG_BYTES_MAX, false)] {
        let (mut one, two) = linked_within(limit, false);
        for _ in 0..8 {
            one.links.send(tid(TWO), &line(4 << 20, 1));
        }
        one.turn();
        assert_eq!(one.is_down(tid(TWO)), is_down);
        drop(two);
    }
    // What waits for another connection counts as well.
    let (mut one, two) = linked_within(16 << 20, false);
    one.reset(tid(TWO));
    (0..8).for_each(|_| one.links.send(tid(TWO), &line(4 << 20, 1)));
    one.turn();
    assert!(one.is_down(tid(TWO)));
    drop(two);
}

#[test]
fn a_host_that_reads_a_long_frame_is_not_given_up_for_what_comes_behind_it() {
    let (mut one, mut two) = linked_within(4 << 20, false);
    one.links.send(tid(TWO), &line(20 << 20, 1));
    (0..10).for_each(|_| one.links.send(tid(TWO), &Frame::Beat));
    one.links.send(tid(TWO), &Frame::Leave);
    drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 12);
    assert!(!one.is_down(tid(TWO)));
}

#[test]
fn a_frame_longer_than_any_task_can_send_ends_the_link() {
    for (bytes, is_down) in [(wire::HOST_FRAME_BYTES_MAX, false), (wire::HOST_FRAME_BYTES_MAX + 1, true)] {
        let (mut one, mut two) = linked(false);
        let link = one.control(tid(TWO)).link().unwrap();
        assert!(link.write_or_queue(&[&Link::frame_head(CONTROL_FRAME, &[], bytes), &[0; 100]]).unwrap());
        one.links.send(tid(TWO), &Frame::Beat);
        for _ in 0..200 {
            one.turn();
            two.turn();
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(two.is_down(tid(ONE)), is_down);
    }
}

#[test]
fn a_host_that_calls_out_of_turn_time_and_again_costs_one_line_in_the_log() {
    let (mut one, mut two) = linked(false);
    let (port, key) = (one.listen(), one.links.connector.identity().public());
    for ticket in 0..5 {
        let now = Instant::now();
        let there = SocketAddr::from(([127, 0, 0, 1], port));
        two.links.connector.connect_pair(ticket, &[there], key, Security::Encrypted, PATIENCE, now);
    }
    drive(&mut [&mut one, &mut two], |ends| ends[0].links.hosts[&tid(TWO)].has_called);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        [&mut one, &mut two].into_iter().for_each(|end| end.turn());
    }
    let told = one.seen.iter().filter(|event| matches!(event, LinkEvent::Log(text) if text.contains("to be called")));
    assert_eq!(told.count(), 1);
    assert!(!one.is_down(tid(TWO)), "the link that stood is as it was");
}

fn tokens(number: u8) -> Tokens {
    let [shown, back] = [number, number + 100].map(|byte| pvm_net::Token::from_bytes([byte; 32]));
    Tokens { shown, back }
}

#[test]
fn a_data_link_is_made_again_and_again_by_those_who_know_the_tokens_and_the_control_link_stays() {
    for trusted in [false, true] {
        let (mut one, mut two) = linked(trusted);
        two.links.set_shared(trusted, Duration::from_secs(5));
        let there = SocketAddr::from(([127, 0, 0, 1], two.links.port()));
        for round in 1..=3 {
            two.links.expect_data(tid(ONE), tokens(round));
            one.links.connect_data(tid(TWO), &[there], tokens(round));
            let data_up = |end: &End| {
                let is_new = |event: &&LinkEvent| matches!(event, LinkEvent::DataUp { data, .. } if data.is_encrypted() != trusted);
                end.seen.iter().filter(is_new).count() == usize::from(round)
            };
            drive(&mut [&mut one, &mut two], |ends| ends.iter().all(|end| data_up(end)));
        }
        // The calling host shows a wrong token: one that was used before, or one that never existed.
        one.links.set_shared(trusted, Duration::from_millis(500));
        two.links.set_shared(trusted, Duration::from_millis(500));
        for wrong in [3, 9] {
            two.links.expect_data(tid(ONE), tokens(4));
            one.links.connect_data(tid(TWO), &[there], tokens(wrong));
            let down = |end: &End| end.seen.iter().any(|event| matches!(event, LinkEvent::DataDown { .. }));
            drive(&mut [&mut one, &mut two], |ends| ends.iter().all(|end| down(end)));
            [&mut one, &mut two].into_iter().for_each(|end| end.seen.clear());
        }
        one.links.send(tid(TWO), &Frame::Beat);
        drive(&mut [&mut one, &mut two], |ends| ends[1].frames.len() == 1);
        assert!(!one.is_down(tid(TWO)) && !two.is_down(tid(ONE)));
    }
}

#[test]
fn a_data_link_that_stands_alone_is_nobodys() {
    let (mut one, mut two) = linked(false);
    two.links.set_shared(false, Duration::from_millis(500));
    let there = SocketAddr::from(([127, 0, 0, 1], two.links.port()));
    two.links.expect_data(tid(ONE), tokens(1));
    two.links.drop_link(tid(ONE));
    one.links.connect_data(tid(TWO), &[there], tokens(1));
    for _ in 0..200 {
        [&mut one, &mut two].into_iter().for_each(|end| end.turn());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!two.seen.iter().any(|event| matches!(event, LinkEvent::DataUp { .. })));
}
