//! The links of two daemons in one thread.
use super::*;
use pvm_net::{Identity, KeyPair};
use rustix::event::epoll::CreateFlags;

const PATIENCE: Duration = Duration::from_secs(20);

struct End {
    links: HostLinks,
    seen: Vec<LinkEvent>,
    frames: Vec<(Tid, Frame)>,
}

impl End {
    fn new(number: u32) -> (End, Key) {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC).unwrap());
        let key = KeyPair::generate().unwrap();
        let public = key.public().0;
        let timeout = Duration::from_secs(10);
        let connector = Connector::new(Identity::new(key), timeout).unwrap();
        let links = HostLinks::new(connector, Tid::host_number(number), timeout, epoll).unwrap();
        (End { links, seen: Vec::new(), frames: Vec::new() }, public)
    }

    fn listen(&mut self) -> u16 {
        self.links.connector.listen(0).unwrap();
        self.links.connector.port()
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
            while let Some(frame) = self.links.receive(host) {
                self.frames.push((host, frame));
            }
        }
        while let Some(event) = self.links.poll_event() {
            if let LinkEvent::Up { host, .. } = event {
                while let Some(frame) = self.links.receive(host) {
                    self.frames.push((host, frame));
                }
            }
            self.seen.push(event);
        }
    }

    fn is_up(&self, host: Tid) -> bool {
        self.seen.iter().any(|event| matches!(event, LinkEvent::Up { host: it, .. } if *it == host))
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
    assert!(one.links.queued_bytes(tid(TWO)) > 0);
    assert!(one.links.flush_all() && !one.links.flush_all());
    assert_eq!(one.links.queued_bytes(tid(TWO)), 0);
    one.links.send(tid(TWO), &Frame::Beat);
    one.links.send(tid(TWO), &line(GATHERED_BYTES_MAX, 1));
    assert_eq!(one.links.queued_bytes(tid(TWO)), 0);
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
    drive(&mut [&mut one, &mut two], |ends| ends[1].is_down(tid(ONE)));
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
fn a_lost_link_is_told_once() {
    let (mut one, two) = linked(true);
    drop(two);
    drive(&mut [&mut one], |ends| ends[0].is_down(tid(TWO)));
    one.links.send(tid(TWO), &Frame::Beat);
    one.turn();
    assert_eq!(one.seen.iter().filter(|event| matches!(event, LinkEvent::Down { .. })).count(), 1);
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
    let control = one.links.hosts.get_mut(&tid(TWO)).unwrap().control.as_mut().unwrap();
    control.link.send(CONTROL_FRAME, &[], &[&[0xff; 9]]).unwrap();
    drive(&mut [&mut one, &mut two], |ends| ends[1].is_down(tid(ONE)));
    assert!(two.frames.is_empty());
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
        let control = one.links.hosts.get_mut(&tid(TWO)).unwrap().control.as_mut().unwrap();
        assert!(control.link.write_or_queue(&[&Link::frame_head(CONTROL_FRAME, &[], bytes), &[0; 100]]).unwrap());
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
